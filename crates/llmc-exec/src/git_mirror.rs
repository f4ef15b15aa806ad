//! What commands see of a git directory, and how that and the user's own stay the same.
//!
//! Some files of a git directory decide which programs git runs, so commands must not write there; but git replaces most
//! other files of its top level under a lock beside them, so it must be able to write there. Commands therefore see a copy of
//! the top level and of its small folders. Objects, refs, their logs and other data without such files are the user's own
//! directories, mounted into the copy: what is committed there is committed, and locks of refs are real locks.
//!
//! The copy is a plain directory, one for each git directory and server, shared by all commands. Both sides are compared by
//! name whenever something changed on one of them, while commands run and at the beginning and end of each: what the user's git
//! changed goes into the copy, what commands changed is judged by content ([`crate::git_vet`]) and goes to the user's side under
//! git's own locks. Where both changed one name, the user's stays. What is not harmless stays in the copy alone, and is named.
//!
//! After a kill the copy is still there; the next server takes over what had not been compared yet.

mod carry;
mod conflicts;
mod events;
mod packed_refs;
mod recovery;
mod removal;
mod side;
mod supervise;
mod sync;
mod transfer;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use llmc_host::{GIT_STATE_DIR, lock};
use rustix::fs::{self as rfs, CWD, FlockOperation, Mode, OFlags, ResolveFlags, flock};
use rustix::io::Errno;
use ulid::Ulid;

use self::events::Events;
use self::side::{OBJECTS_INFO, Side};
pub(super) use self::supervise::supervise;
use self::supervise::{DirId, id_of};
pub(super) use self::sync::SyncReport;
use self::sync::{Moment, State};
use super::plan::GitMount;

/// The directory in the state directory that holds the copies.
const MIRRORS_DIR: &str = "git-mirrors";
/// In a mirror's directory: the copy of the top level, the copy of `objects/info`, and a file whose time says when both
/// sides were last the same.
const TOP_DIR: &str = "top";
const INFO_DIR: &str = "objects-info";
const SYNCED_FILE: &str = "synced";
/// Which git directory it is a copy of.
const GIT_DIR_FILE: &str = "git-dir";
/// Directories of a git directory that commands use as they are: git reads nothing there that runs a program.
const DIRECT_DIRS: [&str; 7] = ["objects", "refs", "logs", "lfs", "annex", "rr-cache", "svn"];

/// The mirrors of one server.
#[derive(Debug)]
pub(super) struct Mirrors {
    state_dir: Option<PathBuf>,
    allowed: AllowedDirs,
    own: Mutex<Option<LockedDir>>,
    known: Mutex<BTreeMap<PathBuf, Arc<Mirror>>>,
    events: Mutex<Events>,
    /// What was found of servers that were killed, until a command's answer says it.
    recovered: Mutex<Vec<String>>,
}

/// This server's own directory, locked as long as it lives.
#[derive(Debug)]
struct LockedDir {
    path: PathBuf,
    _lock: OwnedFd,
}

/// Directories below which paths in a repository's settings may lead; what the user allows changes them.
#[derive(Debug, Clone, Default)]
pub(super) struct AllowedDirs(Arc<Mutex<Arc<Vec<PathBuf>>>>);

impl AllowedDirs {
    fn get(&self) -> Arc<Vec<PathBuf>> {
        lock(&self.0).clone()
    }
}

/// One git directory and the copy of it.
#[derive(Debug)]
pub(super) struct Mirror {
    git_dir: PathBuf,
    dir: PathBuf,
    host: Side,
    copy: Side,
    allowed: AllowedDirs,
    state: Mutex<State>,
    /// Directories that commands use as they are.
    direct: Mutex<BTreeSet<DirId>>,
}

impl Mirrors {
    pub(super) fn new(state_dir: Option<PathBuf>) -> Mirrors {
        Mirrors {
            state_dir,
            allowed: AllowedDirs::default(),
            own: Mutex::default(),
            known: Mutex::default(),
            events: Mutex::new(Events::new()),
            recovered: Mutex::default(),
        }
    }

    /// Sets the directories below which paths in a repository's settings may lead.
    pub(super) fn allow(&self, dirs: Vec<PathBuf>) {
        *lock(&self.allowed.0) = Arc::new(dirs);
    }

    /// A git directory for a run: both sides are the same, and the mounts say how it is shown. `inner` lie in it and have
    /// mirrors of their own, `foreign` stay read-only. An error if it has to be read-only as a whole.
    pub(super) fn prepare(
        &self,
        git_dir: &Path,
        inner: &[PathBuf],
        foreign: &[PathBuf],
    ) -> io::Result<(Arc<Mirror>, GitMount)> {
        let mirror = self.mirror(git_dir)?;
        let mount = mirror.mount(inner, foreign)?;
        if self.take_dirty(&mirror) {
            mirror.sync(&self.events, Moment::WhileRunning)?;
        }
        Ok((mirror, mount))
    }

    /// What a run has left to carry over, once its last process has ended.
    pub(super) fn finish(&self, mirror: &Arc<Mirror>) -> SyncReport {
        if !mirror.is_current() {
            // The command has removed the repository; one that it has made there is judged where it lies.
            lock(&self.known).retain(|_, known| !Arc::ptr_eq(known, mirror));
            return mirror.take_report();
        }
        if (self.take_dirty(mirror) || mirror.has_unfinished())
            && let Err(error) = mirror.sync(&self.events, Moment::AtEnd)
        {
            mirror.note_failure(&error);
        }
        mirror.take_report()
    }

    /// A descriptor that can be read when something has changed on either side of a mirror.
    pub(super) fn changes(&self) -> Option<OwnedFd> {
        match lock(&self.known).is_empty() {
            true => None,
            false => lock(&self.events).descriptor(),
        }
    }

    /// Makes both sides the same again where something has changed.
    pub(super) fn sync_changed(&self) {
        let known: Vec<Arc<Mirror>> = lock(&self.known).values().cloned().collect();
        for mirror in known {
            if self.take_dirty(&mirror)
                && mirror.is_current()
                && let Err(error) = mirror.sync(&self.events, Moment::WhileRunning)
            {
                mirror.note_failure(&error);
            }
        }
    }

    /// What was found of servers that were killed; once.
    pub(super) fn take_recovered(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.recovered))
    }

    fn take_dirty(&self, mirror: &Arc<Mirror>) -> bool {
        let mut events = lock(&self.events);
        events.read();
        events.take_dirty(&mirror.dir)
    }

    fn mirror(&self, git_dir: &Path) -> io::Result<Arc<Mirror>> {
        let mut known = lock(&self.known);
        if let Some(mirror) = known.get(git_dir)
            && mirror.is_current()
        {
            return Ok(mirror.clone());
        }
        let dir = self.own_dir()?.join(Ulid::new().to_string());
        let mirror = Mirror::new(git_dir, dir, self.allowed.clone())?;
        let mirror = Arc::new(mirror);
        known.insert(git_dir.to_owned(), mirror.clone());
        Ok(mirror)
    }

    /// This server's directory. What servers that were killed have left beside it is taken over first.
    fn own_dir(&self) -> io::Result<PathBuf> {
        let mut own = lock(&self.own);
        if let Some(dir) = own.as_ref().filter(|dir| dir.path.is_dir()) {
            return Ok(dir.path.clone());
        }
        let state_dir = self.state_dir.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        // A command may have removed the repository that it lies in, and made another.
        let _ = DirBuilder::new().mode(0o700).create(state_dir);
        let mirrors = std::fs::canonicalize(state_dir)?.join(MIRRORS_DIR);
        let notes = recovery::take_over(&mirrors, &self.allowed);
        lock(&self.recovered).extend(notes);
        let made = own.insert(LockedDir::new(&mirrors)?);
        Ok(made.path.clone())
    }
}

impl Mirror {
    fn new(git_dir: &Path, dir: PathBuf, allowed: AllowedDirs) -> io::Result<Mirror> {
        for dir in [dir.clone(), dir.join(TOP_DIR), dir.join(INFO_DIR)] {
            DirBuilder::new().mode(0o700).create(dir)?;
        }
        let name = std::os::unix::ffi::OsStrExt::as_bytes(git_dir.as_os_str());
        write_own_file(&dir.join(GIT_DIR_FILE), name)?;
        let is_emptied = make_emptied(git_dir)?;
        let mirror = Mirror::open(git_dir, dir, allowed)?;
        lock(&mirror.state).is_emptied = is_emptied;
        // Git may not write a directory that its user cannot.
        rfs::accessat(CWD, git_dir, rfs::Access::WRITE_OK, rfs::AtFlags::EACCESS)?;
        Ok(mirror)
    }

    /// Opens both sides; `objects/info` is made if it is not there.
    fn open(git_dir: &Path, dir: PathBuf, allowed: AllowedDirs) -> io::Result<Mirror> {
        let top = open_dir(git_dir, OFlags::RDONLY)?;
        let objects = side::open_dir_at(&top, "objects".as_ref())?;
        match rfs::mkdirat(&objects, "info", Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let info = side::open_dir_at(&objects, "info".as_ref())?;
        let copy_top = open_dir(&dir.join(TOP_DIR), OFlags::RDONLY)?;
        let copy_info = open_dir(&dir.join(INFO_DIR), OFlags::RDONLY)?;
        Ok(Mirror {
            git_dir: git_dir.to_owned(),
            dir,
            host: Side::new(top, info),
            copy: Side::new(copy_top, copy_info),
            allowed,
            state: Mutex::default(),
            direct: Mutex::default(),
        })
    }

    /// Whether its git directory still is the one of that name.
    fn is_current(&self) -> bool {
        let opened = self
            .host
            .dir(Path::new(""))
            .and_then(|dir| rfs::fstat(&dir));
        let named = open_dir(&self.git_dir, OFlags::PATH).and_then(|dir| rfs::fstat(&dir));
        matches!((opened, named), (Ok(a), Ok(b)) if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
            // Removed and made anew, its objects are other ones.
            && self.host.dir(Path::new(OBJECTS_INFO)).and_then(|dir| rfs::fstat(&dir)).is_ok_and(|status| status.st_nlink > 0)
    }

    /// Decides what commands use as it is, and makes the places where that is mounted.
    fn mount(&self, inner: &[PathBuf], foreign: &[PathBuf]) -> io::Result<GitMount> {
        let top = self.host.dir(Path::new(""))?;
        let is_dir =
            |name: &str| side::entry_at(&top, name.as_ref()).is_some_and(side::Entry::is_dir);
        let direct: Vec<PathBuf> = DIRECT_DIRS
            .into_iter()
            .filter(|name| is_dir(name))
            .map(PathBuf::from)
            .collect();
        let ids = direct.iter().filter_map(|name| self.host.dir(name).ok());
        lock(&self.direct).extend(ids.filter_map(id_of));
        let below = |paths: &[PathBuf]| -> Vec<PathBuf> {
            let inside = paths
                .iter()
                .filter_map(|path| path.strip_prefix(&self.git_dir).ok());
            inside
                .filter(|path| *path != Path::new(""))
                .map(Path::to_owned)
                .collect()
        };
        let mut read_only = below(foreign);
        if has_hooks(&top) {
            read_only.push("hooks".into());
        }
        let inner = below(inner);
        // This program's own state is no command's.
        let mut skipped = BTreeSet::from([PathBuf::from(GIT_STATE_DIR)]);
        for path in direct.iter().chain(&read_only).chain(&inner) {
            let mut way = PathBuf::new();
            for part in path {
                way.push(part);
                transfer::make_dir(&self.copy, &way)?;
            }
            skipped.insert(path.clone());
        }
        lock(&self.state).skip(skipped);
        let os = |paths: Vec<PathBuf>| paths.into_iter().map(PathBuf::into_os_string).collect();
        Ok(GitMount {
            git_dir: self.git_dir.clone().into_os_string(),
            top: self.dir.join(TOP_DIR).into_os_string(),
            objects_info: self.dir.join(INFO_DIR).into_os_string(),
            direct: os(direct),
            read_only: os(read_only),
        })
    }

    /// Whether a directory is one that commands use as it is, now or in a run that began earlier.
    fn is_direct(&self, id: DirId) -> bool {
        lock(&self.direct).contains(&id)
    }

    /// Whether the end of a run has something to do even if nothing changed since the last comparison.
    fn has_unfinished(&self) -> bool {
        lock(&self.state).has_unfinished()
    }

    fn note_failure(&self, error: &io::Error) {
        lock(&self.state).note_failure(&self.git_dir, error);
    }

    /// The directories of both sides, for the kernel's events.
    fn watched_dirs(&self, names: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
        let mut dirs = Vec::new();
        for name in names {
            match name.strip_prefix(OBJECTS_INFO) {
                Ok(rest) => dirs.push(self.dir.join(INFO_DIR).join(rest)),
                Err(_) => dirs.push(self.dir.join(TOP_DIR).join(name)),
            }
            dirs.push(self.git_dir.join(name));
        }
        dirs
    }
}

impl LockedDir {
    fn new(mirrors: &Path) -> io::Result<LockedDir> {
        let path = mirrors.join(format!("{}-{}", std::process::id(), Ulid::new()));
        DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(&path)?;
        let lock = open_dir(&path, OFlags::RDONLY)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(LockedDir { path, _lock: lock })
    }
}

impl Drop for Mirrors {
    fn drop(&mut self) {
        // No command is left that could change anything now.
        self.sync_changed();
        if let Some(own) = lock(&self.own).take() {
            recovery::remove(&own.path);
        }
    }
}

/// Makes what is mounted in a git directory of which a command has left nothing but the server's state, so that the next one can
/// make a repository there. Whether it was one; without a repository it is emptied again at the end of the run.
fn make_emptied(git_dir: &Path) -> io::Result<bool> {
    let top = open_dir(git_dir, OFlags::RDONLY)?;
    let names = rfs::Dir::read_from(&top)?.flatten();
    let mut names = names.filter(|entry| !matches!(entry.file_name().to_bytes(), b"." | b".."));
    let is_state = |entry: rfs::DirEntry| entry.file_name().to_bytes() == GIT_STATE_DIR.as_bytes();
    if !names.next().is_some_and(is_state) || names.next().is_some() {
        return Ok(false);
    }
    for name in ["objects", "refs", "logs"] {
        rfs::mkdirat(&top, name, Mode::from_raw_mode(0o777))?;
    }
    Ok(true)
}

/// Whether the user has hooks, beside the samples that git puts into every repository.
fn has_hooks(git_dir: &OwnedFd) -> bool {
    let Ok(hooks) = side::open_dir_at(git_dir, "hooks".as_ref()) else {
        return false;
    };
    let names = rfs::Dir::read_from(&hooks).into_iter().flatten().flatten();
    names.into_iter().any(|entry| {
        let name = entry.file_name().to_bytes();
        name != b"." && name != b".." && !name.ends_with(b".sample")
    })
}

/// Opens a directory without following a link anywhere on the way.
pub(super) fn open_dir(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::DIRECTORY | OFlags::CLOEXEC;
    loop {
        match rfs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
}

fn write_own_file(path: &Path, text: &[u8]) -> io::Result<()> {
    std::fs::write(path, text)
}
