//! The server's own files and git's, inside places that commands may write.
//!
//! What exists before a run is mounted read-only for it. What does not exist cannot be mounted over, so it is looked for
//! after the run and moved away. Without a mount namespace the same look finds changes to what did exist, and puts the
//! copy back that was taken before.
//!
//! Every write root is covered, and so are directories below it as far as [`ProtectedDirFinder`](super::protected_dirs::ProtectedDirFinder) looks. Known
//! gaps: names deeper than that, hard links made before the run, a state directory without a mount namespace.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::level::Protection;
use super::plan::{Places, os};
use super::protected_dirs::ProtectedDirFinder;
use super::quarantine::{Copy, Store};
use super::settings::Settings;
use llmc_host::{CONFIG_FILE, STATE_DIR, lock};

/// What inside a repository's `.git` runs programs.
const IN_GIT: [&str; 3] = ["hooks", "config", "config.worktree"];

/// A protected name that a run created or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// Where it was.
    pub path: PathBuf,
    /// Where it is now; `None` if it could not be moved and is still there.
    pub moved_to: Option<PathBuf>,
}

/// Knows what to protect, for every run of one runner.
#[derive(Debug)]
pub(super) struct Guard {
    roots: Vec<PathBuf>,
    places: Places,
    files: Vec<PathBuf>,
    state_dir: Option<PathBuf>,
    finder: Mutex<ProtectedDirFinder>,
    /// Finds the state directories of other servers below the roots that runs may only read.
    read_finder: Mutex<ProtectedDirFinder>,
    store: Store,
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
    on: bool,
}

#[derive(Debug)]
struct Home {
    path: PathBuf,
    id: Option<(u64, u64)>,
}

impl Guard {
    pub(super) fn new(settings: &Settings) -> Guard {
        let mut roots = settings.write_roots.clone();
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
        Guard {
            files: settings.protected.iter().map(canonical).collect(),
            state_dir: settings.state_dir.as_ref().map(canonical),
            finder: Mutex::new(ProtectedDirFinder::new(roots.clone())),
            read_finder: Mutex::new(ProtectedDirFinder::new(settings.read_roots.clone())),
            store: Store::new(settings.state_dir.clone()),
            roots,
            places,
        }
    }

    /// Records what is there, and returns how the run is to see it.
    pub(super) fn before(&self, protection: Protection) -> Watch {
        let mut watch = Watch {
            places: self.places.clone(),
            on: protection != Protection::None,
            ..Watch::default()
        };
        if !watch.on {
            return watch;
        }
        for home in self.homes() {
            note_home(&home, &mut watch);
            watch.homes.push(Home {
                id: identity(&home),
                path: home,
            });
        }
        for file in &self.files {
            self.note_file(file, &mut watch);
        }
        let state_dirs = self
            .state_dir
            .iter()
            .cloned()
            .chain(self.read_only_state_dirs());
        for dir in state_dirs.map(PathBuf::into_os_string) {
            if !watch.places.masked.contains(&dir) {
                watch.places.masked.push(dir);
            }
        }
        if protection == Protection::Detect {
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

    /// Compares once the run has ended: moves away what it planted and restores what it changed.
    pub(super) fn after(&self, watch: Watch) -> Vec<Quarantined> {
        if !watch.on {
            return Vec::new();
        }
        let mut planted = BTreeSet::new();
        // A directory moved away takes its mounts along; what stands in its place is an impostor.
        for home in &watch.homes {
            if identity(&home.path) != home.id {
                planted.extend(names_in(&home.path));
            }
        }
        let known = |home: &PathBuf| watch.homes.iter().any(|other| other.path == *home);
        for home in self.homes().into_iter().filter(|home| !known(home)) {
            planted.extend(names_in(&home));
        }
        planted.extend(watch.absent);
        let mut moved: Vec<Quarantined> = planted
            .into_iter()
            .filter(|path| std::fs::symlink_metadata(path).is_ok())
            .map(|path| self.store.take_away(path))
            .collect();
        for (path, copy) in watch.copies {
            if Copy::of(&path).as_ref() != Some(&copy) {
                moved.push(self.store.take_away(path.clone()));
                copy.put_back(&path);
            }
        }
        moved
    }

    fn homes(&self) -> Vec<PathBuf> {
        let mut finder = lock(&self.finder);
        let mut homes = self.roots.clone();
        homes.extend(finder.homes());
        homes
    }

    /// State directories below the roots that runs may only read.
    fn read_only_state_dirs(&self) -> Vec<PathBuf> {
        let mut finder = lock(&self.read_finder);
        let below = finder.homes();
        let roots = finder.roots().iter().cloned();
        let dirs = roots.chain(below).map(|dir| dir.join(STATE_DIR));
        dirs.filter(|dir| std::fs::symlink_metadata(dir).is_ok_and(|status| status.is_dir()))
            .collect()
    }

    /// A file of the server below a write root: it and the way to it stay where they are.
    fn note_file(&self, file: &Path, watch: &mut Watch) {
        let Some(root) = self.roots.iter().find(|root| file.starts_with(root)) else {
            return;
        };
        if std::fs::symlink_metadata(file).is_err() {
            watch.absent.insert(file.to_owned());
            return;
        }
        let way = file.ancestors().skip(1).take_while(|dir| dir != root);
        watch.places.pinned.extend(os(way.map(Path::to_owned)));
        watch.places.kept.push(file.to_owned().into_os_string());
    }
}

impl Watch {
    pub(super) fn places(&self) -> Places {
        self.places.clone()
    }
}

/// Takes note of the protected names in one directory.
fn note_home(home: &Path, watch: &mut Watch) {
    note(home.join(CONFIG_FILE), watch, |places| &mut places.kept);
    note(home.join(STATE_DIR), watch, |places| &mut places.masked);
    let git = home.join(".git");
    match std::fs::symlink_metadata(&git) {
        Ok(status) if status.is_dir() => {
            watch.places.pinned.push(git.clone().into_os_string());
            let modules = subdirectories(&git.join("modules"));
            for dir in [git].into_iter().chain(modules) {
                for name in IN_GIT {
                    note(dir.join(name), watch, |places| &mut places.kept);
                }
            }
        }
        // In a linked worktree it is a file that says where the repository is.
        _ => note(git, watch, |places| &mut places.kept),
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

/// Every protected name a directory can hold, existing or not.
fn names_in(home: &Path) -> Vec<PathBuf> {
    [CONFIG_FILE, STATE_DIR, ".git"]
        .map(|name| home.join(name))
        .to_vec()
}

fn subdirectories(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.take(64).map(|entry| entry.path()).collect()
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let status = std::fs::symlink_metadata(path).ok()?;
    Some((status.dev(), status.ino()))
}
