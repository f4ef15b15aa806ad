//! The server's own files and git's, inside places that commands may write.
//!
//! What exists before a run is mounted read-only for it. Of git directories it sees a copy, of which what is harmless reaches
//! the host ([`super::git_mirror`]). What else does not exist cannot be mounted over, so it is looked for while the run goes on
//! and after it: a new repository is judged by what it contains, any other protected name is moved away. Without a mount
//! namespace the look afterwards finds changes to what did exist, and puts back what is not harmless.
//!
//! Known gaps: hard links made before the run, a state directory without a mount namespace.

mod planted;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use self::planted::{Look, below};
use super::exit_status::ExitStatus;
use super::git_dirs::{GitNames, foreign_worktrees, git_dirs, inner_git_dirs};
use super::git_mirror::{Mirror, Mirrors, supervise};
use super::level::{ConfinementLevel, Protection};
use super::plan::{Places, os};
use super::protected_dirs::{FoundDirs, ProtectedDirFinder};
use super::quarantine::{Copy, Quarantined, Store};
use super::settings::Settings;
use llmc_host::{CONFIG_FILE, GIT_STATE_DIR, STATE_DIR, included_git_configs, lock};

/// Directories with protected names that are covered by mounts; what is beyond is checked after the run only.
const MAX_MOUNTED_HOMES: usize = 4096;
/// How often a run is looked at for what it has planted.
pub(super) const SWEEP_INTERVAL: Duration = Duration::from_millis(250);
/// How much longer than a look the pause after it is: looks must not take the processor from the run.
const LOOK_PAUSE_FACTOR: u32 = 10;
/// Names that are taken away from a run while it goes on; one that plants more is ended.
const MAX_TAKEN_WHILE_RUNNING: usize = 200;

/// What a run may change in git directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GitAccess {
    /// Everything that is harmless.
    #[default]
    ReadWrite,
    /// Nothing.
    ReadOnly,
}

/// Knows what to protect, for every run of one runner.
#[derive(Debug)]
pub(super) struct Guard {
    roots: Vec<PathBuf>,
    places: Places,
    files: Vec<PathBuf>,
    /// Folders that runs see empty: the state directory, and those of the settings.
    masked: Vec<PathBuf>,
    finder: Mutex<ProtectedDirFinder>,
    /// Finds the state directories of other servers below the roots that runs may only read.
    read_finder: Mutex<ProtectedDirFinder>,
    store: Store,
    mirrors: Arc<Mirrors>,
    /// Git directories outside the roots that the user's own files name.
    followed: Vec<PathBuf>,
    /// Directories below which paths in a repository's settings may lead.
    allowed: Vec<PathBuf>,
}

/// What was there before one run.
#[derive(Debug, Default)]
pub(super) struct Watch {
    places: Places,
    /// Directories that hold protected names, and which directories they are.
    homes: Vec<Home>,
    /// Names that were not there.
    absent: BTreeSet<PathBuf>,
    /// Names that only a copy protects.
    copies: Vec<(PathBuf, Copy)>,
    /// Git directories of which the run sees a copy.
    mirrors: Vec<Arc<Mirror>>,
    /// All git directories that were found.
    git_dirs: Vec<PathBuf>,
    /// `.git` files below the roots, as they were.
    dot_git_files: Vec<(PathBuf, Copy)>,
    /// Git directories that the run changes directly, and the protected names in each.
    git_names: Vec<(PathBuf, GitNames)>,
    /// Git directories that are not called `.git`.
    bare: Vec<BareRepository>,
    /// What was taken away while the run went on.
    taken: Vec<Quarantined>,
    /// When to look for that again.
    next_look: Option<Instant>,
    /// What could not be covered.
    notes: Vec<String>,
    on: bool,
}

/// A directory with protected names, and which directories it and its `.git` are.
#[derive(Debug)]
struct Home {
    path: PathBuf,
    id: Option<FileId>,
    git_id: Option<FileId>,
}

/// A git directory that is not called `.git`: which one it is, and the protected names in it, relative to it.
#[derive(Debug)]
struct BareRepository {
    id: Option<FileId>,
    names: BTreeSet<PathBuf>,
}

/// Device, number and birth: a new directory may have the number of one that was removed.
type FileId = (u64, u64, Option<SystemTime>);

/// How a run sees git directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GitView {
    Mirrored,
    ReadOnly,
    /// In a layer over the whole place, of which nothing reaches the host.
    Discarded,
    /// As they are, with protected names that exist read-only or copied.
    Direct,
}

/// What was undone after a run.
#[derive(Debug, Default)]
pub(super) struct Undone {
    pub(super) quarantined: Vec<Quarantined>,
    pub(super) notes: Vec<String>,
    /// Whether the command was told that something is done which is not.
    pub(super) has_conflict: bool,
}

impl Undone {
    /// How the run ended, for a caller that must not take it for done where it is not.
    pub(super) fn status(&self, status: ExitStatus) -> ExitStatus {
        match self.has_conflict && status.is_success() {
            true => ExitStatus::Exited(1),
            false => status,
        }
    }
}

impl Guard {
    pub(super) fn new(settings: &Settings) -> Guard {
        Guard::of(settings, Arc::new(Mirrors::new(settings.state_dir.clone())))
    }

    /// Another guard, for runs that start with other settings. Both have the same copies of git directories.
    pub(super) fn with_settings(&self, settings: &Settings) -> Guard {
        Guard::of(settings, self.mirrors.clone())
    }

    fn of(settings: &Settings, mirrors: Arc<Mirrors>) -> Guard {
        let mut roots = settings.write_roots.clone();
        let extra = settings.extra_write.iter().filter(|path| path.is_dir());
        roots.extend(extra.cloned());
        for home in &settings.homes {
            let inside = settings
                .write_roots
                .iter()
                .any(|root| home.starts_with(root));
            if inside && !roots.contains(home) {
                roots.push(home.clone());
            }
        }
        let places = Places {
            write: os(settings.writable().cloned()),
            read_only: os(settings.read_only_system_dirs()),
            read: os(settings.read_roots.iter().cloned()),
            seen: settings.sees.as_ref().map(|seen| os(seen.iter().cloned())),
            ..Places::default()
        };
        let canonical =
            |path: &PathBuf| std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        let followed = settings.git_dirs.clone();
        let mut allowed: Vec<PathBuf> = settings.writable().cloned().collect();
        // A bare repository is its own folder; another's lies in its working tree.
        allowed.extend(followed.iter().map(|dir| match dir.ends_with(".git") {
            true => dir.parent().unwrap_or(dir).to_owned(),
            false => dir.clone(),
        }));
        mirrors.allow(allowed.clone());
        Guard {
            files: settings.protected.iter().map(canonical).collect(),
            masked: settings
                .state_dir
                .iter()
                .chain(&settings.masked)
                .map(canonical)
                .collect(),
            finder: Mutex::new(ProtectedDirFinder::new(roots.clone())),
            read_finder: Mutex::new(ProtectedDirFinder::new(settings.read_roots.clone())),
            store: Store::new(settings.state_dir.clone()),
            mirrors,
            followed,
            allowed,
            roots,
            places,
        }
    }

    /// Every folder that runs may write.
    pub(super) fn writable_dirs(&self) -> Vec<OsString> {
        let mut dirs = self.places.write.clone();
        dirs.retain(|place| Path::new(place).is_dir());
        dirs
    }

    /// Records what is there, and returns how the run is to see it.
    pub(super) fn before(&self, level: &ConfinementLevel, git: GitAccess) -> Watch {
        let view = match (level.protected, git) {
            (Protection::Mount, GitAccess::ReadOnly) => GitView::ReadOnly,
            (Protection::Mount, GitAccess::ReadWrite) => GitView::Mirrored,
            _ => GitView::Direct,
        };
        self.watch(level, view)
    }

    /// How a run sees what is there that changes nothing of it, so that nothing has to be looked at afterwards.
    pub(super) fn before_view(&self, level: &ConfinementLevel) -> Watch {
        let mut places = self.watch(level, GitView::Discarded).places;
        // There are no layers over single files, which are read-only then.
        places.write = self.writable_dirs();
        Watch {
            places,
            ..Watch::default()
        }
    }

    fn watch(&self, level: &ConfinementLevel, view: GitView) -> Watch {
        let mut watch = Watch {
            places: self.places.clone(),
            on: level.protected != Protection::None,
            ..Watch::default()
        };
        if !watch.on {
            return watch;
        }
        let found = self.homes();
        watch.note_coverage(&found);
        let mut git_dirs_found = self.followed.clone();
        for (at, home) in found.homes.into_iter().enumerate() {
            if at < MAX_MOUNTED_HOMES || level.protected == Protection::Detect {
                self.note_home(&home, &mut watch);
                git_dirs_found.extend(git_dirs(&home));
            }
            watch.homes.push(Home {
                id: identity(&home),
                git_id: identity(&home.join(".git")),
                path: home,
            });
        }
        if watch.homes.len() > MAX_MOUNTED_HOMES && level.protected == Protection::Mount {
            watch.notes.push(format!(
                "{} folders with protected names were not covered while the command ran",
                watch.homes.len() - MAX_MOUNTED_HOMES
            ));
        }
        let configs: BTreeSet<PathBuf> = git_dirs_found
            .iter()
            .flat_map(|dir| included_git_configs(dir))
            .flat_map(|file| canonical_names(&file))
            .collect();
        for file in configs {
            self.note_file(&file, &mut watch);
        }
        for dir in &found.bare {
            watch.bare.push(BareRepository {
                id: identity(dir),
                names: below(&GitNames::of(dir).paths, dir),
            });
        }
        git_dirs_found.extend(found.bare.iter().cloned());
        for dir in self.own_git_dirs(git_dirs_found) {
            let mut inner = inner_git_dirs(&dir);
            inner.sort_by_key(|dir| dir.components().count());
            let mut foreign = foreign_worktrees(&dir, &self.places.write);
            // Which the user has allowed although it names another working tree, or none.
            foreign.retain(|dir| !self.followed.contains(dir));
            for (at, git_dir) in std::iter::once(&dir).chain(&inner).enumerate() {
                self.note_git_dir(git_dir, &inner[at..], &foreign, view, &mut watch);
            }
        }
        for file in &self.files {
            self.note_file(file, &mut watch);
        }
        let masked = self.masked.iter().cloned();
        let masked = masked.chain(self.read_only_state_dirs());
        for dir in masked.map(PathBuf::into_os_string) {
            if !watch.places.masked.contains(&dir) {
                watch.places.masked.push(dir);
            }
        }
        if level.protected == Protection::Detect {
            for path in &watch.places.kept {
                let path = PathBuf::from(path);
                watch
                    .copies
                    .extend(Copy::of(&path).map(|copy| (path, copy)));
            }
        }
        watch.places.pinned.sort();
        watch.places.pinned.dedup();
        watch
    }

    /// Answers the renames of a run until its end.
    pub(super) fn supervise_renames(&self, descriptor: OwnedFd) {
        supervise(&self.mirrors, descriptor);
    }

    /// A descriptor that can be read when something has changed that [`Guard::while_running`] carries over.
    pub(super) fn changes(&self) -> Option<OwnedFd> {
        self.mirrors.changes()
    }

    /// Carries over what the run has changed in git directories, and judges the ones that it has made so far, so that what is
    /// harmful lasts no longer than a moment. Returns why the run is to end, if it must.
    pub(super) fn while_running(&self, watch: &mut Watch) -> Option<String> {
        self.mirrors.sync_changed();
        let begun = Instant::now();
        let is_due = watch.on && watch.next_look.is_none_or(|at| begun >= at);
        let mut finder = self.finder.try_lock().ok().filter(|_| is_due)?;
        // Where directories are not watched a look takes too long.
        if !finder.is_watching() {
            return None;
        }
        let found = finder.find();
        drop(finder);
        let planted = watch.planted(&found).into_iter();
        let planted: Vec<PathBuf> = planted.filter(|path| self.is_in_git(path)).collect();
        let mut removed = Vec::new();
        self.judge_planted(&planted, &found, watch, Look::WhileRunning, &mut removed);
        removed.retain(|taken| !(taken.is_left && watch.taken.contains(taken)));
        watch.taken.append(&mut removed);
        if watch.taken.len() >= MAX_TAKEN_WHILE_RUNNING {
            return Some("it made git directories that run programs without end".to_owned());
        }
        let now = Instant::now();
        let pause = ((now - begun) * LOOK_PAUSE_FACTOR).max(SWEEP_INTERVAL);
        watch.next_look = Some(now + pause);
        None
    }

    /// Whether a protected name is git's, and not the server's own.
    fn is_in_git(&self, path: &Path) -> bool {
        !path.ends_with(CONFIG_FILE)
            && !path.ends_with(STATE_DIR)
            && !self.files.iter().any(|file| file == path)
    }

    /// What became of a command that has ended while processes that it has started go on: what it changed in git directories is
    /// carried over.
    pub(super) fn after_command(&self, watch: &mut Watch) -> Undone {
        let mut undone = Undone::default();
        if watch.on {
            self.carry_over(watch, &mut undone);
            watch.next_look = None;
            self.while_running(watch);
            undone.quarantined.append(&mut watch.taken);
            undone.notes.append(&mut watch.notes);
        }
        undone
    }

    fn carry_over(&self, watch: &Watch, undone: &mut Undone) {
        undone.notes.extend(self.mirrors.take_recovered());
        for mirror in &watch.mirrors {
            let report = self.mirrors.finish(mirror);
            let rejected = report.rejected.into_iter();
            undone
                .quarantined
                .extend(rejected.map(|(git_dir, one)| Quarantined::rejected(&git_dir, one)));
            undone.notes.extend(report.notes);
            undone.has_conflict |= report.has_conflict;
        }
    }

    /// Compares once the run has ended: carries over what is left of its copies, judges the repositories that it made, moves
    /// away what else it planted and restores what it changed.
    pub(super) fn after(&self, mut watch: Watch) -> Undone {
        let mut undone = Undone::default();
        if !watch.on {
            return undone;
        }
        self.carry_over(&watch, &mut undone);
        let found = self.homes();
        let mut planted = watch.planted(&found);
        undone.notes.append(&mut watch.notes);
        if !found.is_complete && undone.notes.is_empty() {
            undone.notes.push(TOO_MANY_DIRECTORIES.to_owned());
        }
        for (git_dir, before) in &watch.git_names {
            let after = GitNames::with_others(git_dir);
            let is_new = |path: &PathBuf| before.paths.binary_search(path).is_err();
            planted.extend(after.paths.into_iter().filter(is_new));
            let is_new = |path: &PathBuf| !path.is_symlink() || !before.others.contains(path);
            planted.extend(after.others.into_iter().filter(is_new));
            if !(before.is_complete && after.is_complete) {
                undone.notes.push(format!(
                    "{} could not be checked whole for protected names: too many folders, or some that cannot be read",
                    git_dir.display()
                ));
            }
        }
        let planted: Vec<PathBuf> = planted.into_iter().filter(|path| exists(path)).collect();
        let mut removed = Vec::new();
        self.judge_planted(&planted, &found, &watch, Look::AtEnd, &mut removed);
        self.judge_changed(&mut watch, &mut removed);
        // What was planted again and again is reported once, as it is now.
        let mut reported = BTreeSet::new();
        for taken in removed.into_iter().chain(watch.taken) {
            let item = taken
                .rejected
                .as_ref()
                .map(|rejected| rejected.item.clone());
            if reported.insert((taken.path.clone(), item)) {
                undone.quarantined.push(taken);
            }
        }
        undone
    }

    /// Reads the folders below the roots, so that the first run does not wait for that.
    pub(super) fn read_folders(&self) {
        lock(&self.finder).find();
        lock(&self.read_finder).find();
    }

    fn homes(&self) -> FoundDirs {
        let found = lock(&self.finder).find();
        let mut homes = self.roots.clone();
        homes.extend(found.homes);
        FoundDirs { homes, ..found }
    }

    /// The git directories that runs could write, none inside another.
    fn own_git_dirs(&self, mut found: Vec<PathBuf>) -> Vec<PathBuf> {
        let places: Vec<&Path> = self.places.write.iter().map(Path::new).collect();
        found.retain(|dir| {
            self.followed.contains(dir) || places.iter().any(|place| dir.starts_with(place))
        });
        found.dedup();
        found.sort_by_key(|dir| dir.components().count());
        let mut outer: Vec<PathBuf> = Vec::new();
        for dir in found {
            if !outer.iter().any(|known| dir.starts_with(known)) {
                outer.push(dir);
            }
        }
        // A root inside a git directory would vanish behind it.
        outer.retain(|dir| !places.iter().any(|place| place.starts_with(dir)));
        outer
    }

    /// Decides how the run sees a git directory. `inner` lie in it, `foreign` belong to working trees elsewhere.
    fn note_git_dir(
        &self,
        dir: &Path,
        inner: &[PathBuf],
        foreign: &[PathBuf],
        view: GitView,
        watch: &mut Watch,
    ) {
        watch.git_dirs.push(dir.to_owned());
        match view {
            GitView::Direct => {
                let names = GitNames::with_others(dir);
                watch.places.pinned.push(dir.as_os_str().to_owned());
                watch.places.kept.extend(os(names.paths.clone()));
                watch.git_names.push((dir.to_owned(), names));
            }
            GitView::Mirrored => match self.mirrors.prepare(dir, inner, foreign) {
                Ok((mirror, mount)) => {
                    watch.mirrors.push(mirror);
                    watch.places.git.push(mount);
                }
                // Another user's, a full disk: git says that it is read-only.
                Err(_) => watch.places.kept.push(dir.as_os_str().to_owned()),
            },
            GitView::ReadOnly => watch.places.kept.push(dir.as_os_str().to_owned()),
            // All of it is in the layer.
            GitView::Discarded => {}
        }
    }

    /// Takes note of the protected names in one directory.
    fn note_home(&self, home: &Path, watch: &mut Watch) {
        note(home.join(CONFIG_FILE), watch, |places| &mut places.kept);
        note(home.join(STATE_DIR), watch, |places| &mut places.masked);
        let git = home.join(".git");
        let kind =
            std::fs::symlink_metadata(&git).map(|status| (status.is_dir(), status.is_file()));
        match kind {
            // A directory is dealt with on its own.
            Ok((true, _)) => {}
            // A working tree or submodule must be removable with the file that says where its repository is.
            Ok((_, true)) if !self.roots.iter().any(|root| root == home) => {
                let copy = Copy::of(&git).map(|copy| (git, copy));
                watch.dot_git_files.extend(copy);
            }
            _ => note(git, watch, |places| &mut places.kept),
        }
    }

    /// State directories below the roots that runs may only read.
    fn read_only_state_dirs(&self) -> Vec<PathBuf> {
        let mut finder = lock(&self.read_finder);
        let below = finder.find().homes;
        let roots = finder.roots().iter().cloned();
        let dirs = roots
            .chain(below)
            .flat_map(|dir| [dir.join(STATE_DIR), dir.join(".git").join(GIT_STATE_DIR)]);
        dirs.filter(|dir| std::fs::symlink_metadata(dir).is_ok_and(|status| status.is_dir()))
            .collect()
    }

    /// A file of the server, or one that git's configuration includes, below a write root: it and the way to it stay where
    /// they are.
    fn note_file(&self, file: &Path, watch: &mut Watch) {
        let Some(root) = self.roots.iter().find(|root| file.starts_with(root)) else {
            return;
        };
        match std::fs::symlink_metadata(file) {
            Ok(status) if status.is_symlink() => {
                let copy = Copy::of(file).map(|copy| (file.to_owned(), copy));
                watch.copies.extend(copy);
                return;
            }
            Ok(_) => {}
            Err(_) => {
                watch.absent.insert(file.to_owned());
                return;
            }
        }
        let way = file.ancestors().skip(1).take_while(|dir| dir != root);
        watch.places.pinned.extend(os(way.map(Path::to_owned)));
        watch.places.kept.push(file.to_owned().into_os_string());
    }
}

const TOO_MANY_DIRECTORIES: &str = "not all folders were checked for protected names: the roots have too many, or are the whole file system";

impl Watch {
    pub(super) fn places(&self) -> Places {
        self.places.clone()
    }

    fn note_coverage(&mut self, found: &FoundDirs) {
        if !found.is_complete {
            self.notes.push(TOO_MANY_DIRECTORIES.to_owned());
        }
    }
}

fn note(path: PathBuf, watch: &mut Watch, list: fn(&mut Places) -> &mut Vec<OsString>) {
    match std::fs::symlink_metadata(&path) {
        // A mount covers what a link points to, not the link.
        Ok(status) if status.is_symlink() => {
            watch
                .copies
                .extend(Copy::of(&path).map(|copy| (path, copy)));
        }
        // Only a directory can be hidden by one.
        Ok(status) if !status.is_dir() => watch.places.kept.push(path.into_os_string()),
        Ok(_) => list(&mut watch.places).push(path.into_os_string()),
        Err(_) => {
            watch.absent.insert(path);
        }
    }
}

/// A file under its own name and under that of what it is a link to, both in folders that are free of links.
fn canonical_names(file: &Path) -> Vec<PathBuf> {
    let own = file.parent().zip(file.file_name()).and_then(|(dir, name)| {
        let dir = std::fs::canonicalize(dir).ok()?;
        Some(dir.join(name))
    });
    let target = std::fs::canonicalize(file).ok();
    own.into_iter().chain(target).collect()
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn identity(path: &Path) -> Option<FileId> {
    let status = std::fs::symlink_metadata(path).ok()?;
    Some((status.dev(), status.ino(), status.created().ok()))
}
