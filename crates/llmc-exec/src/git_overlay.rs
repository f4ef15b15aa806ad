//! Where a command's changes to a git directory go while it runs: the upper layer of an overlay, in the state directory.
//!
//! One per run and git directory. It is deleted when dropped; what a killed server has left is kept in the quarantine by the
//! next one, since it may hold commits.

use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use llmc_host::lock;
use rustix::fs::{self as rfs, AtFlags, CWD, FlockOperation, Mode, OFlags, ResolveFlags, flock};
use rustix::io::Errno;
use ulid::Ulid;

use super::quarantine::Store;

/// The directory in the state directory that holds the layers.
const LAYERS_DIR: &str = "git-layers";

/// The layers of one server.
#[derive(Debug)]
pub(super) struct GitLayers {
    state_dir: Option<PathBuf>,
    /// Made for the first run.
    own: Mutex<Option<LockedDir>>,
}

/// This server's own directory, locked as long as it lives.
#[derive(Debug)]
struct LockedDir {
    path: PathBuf,
    _lock: OwnedFd,
}

/// The layer of one git directory in one run.
#[derive(Debug)]
pub(super) struct GitLayer {
    /// The git directory as it was called before the run.
    pub(super) git_dir: PathBuf,
    /// The git directory itself, wherever the run has moved it.
    pub(super) lower: OwnedFd,
    /// What was changed after this was changed while the run went on.
    pub(super) started: (i64, u64),
    /// The index before the run: git replaces it, so this keeps what it was.
    pub(super) index: Option<File>,
    dir: PathBuf,
}

impl GitLayers {
    pub(super) fn new(state_dir: Option<PathBuf>) -> GitLayers {
        GitLayers {
            state_dir,
            own: Mutex::default(),
        }
    }

    /// A layer for a git directory; an error if it has to be read-only instead.
    pub(super) fn layer(&self, git_dir: &Path, quarantine: &Store) -> io::Result<GitLayer> {
        let lower = open_dir(git_dir, OFlags::RDONLY)?;
        let dir = self.own_dir(quarantine)?.join(Ulid::new().to_string());
        let mut layer = GitLayer {
            git_dir: git_dir.to_owned(),
            lower,
            started: (0, 0),
            index: None,
            dir,
        };
        for dir in [layer.dir.clone(), layer.upper(), layer.dir.join("work")] {
            DirBuilder::new().mode(0o700).create(dir)?;
        }
        let status = rfs::fstat(&layer.lower)?;
        let mode = Permissions::from_mode(status.st_mode & 0o777);
        std::fs::set_permissions(layer.upper(), mode)?;
        // The file system's own clock, which is coarser than the system's.
        let made = std::fs::metadata(&layer.dir)?;
        layer.started = (made.ctime(), u64::try_from(made.ctime_nsec()).unwrap_or(0));
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let index = rfs::openat(&layer.lower, "index", flags, Mode::empty());
        layer.index = index.ok().map(File::from);
        Ok(layer)
    }

    /// This server's directory, and what servers that were killed have left beside it taken away.
    fn own_dir(&self, quarantine: &Store) -> io::Result<PathBuf> {
        let mut own = lock(&self.own);
        if let Some(dir) = &*own {
            return Ok(dir.path.clone());
        }
        let state_dir = self.state_dir.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let layers = std::fs::canonicalize(state_dir)?.join(LAYERS_DIR);
        sweep(&layers, quarantine);
        let made = own.insert(LockedDir::new(&layers)?);
        Ok(made.path.clone())
    }
}

impl GitLayer {
    /// The directory with both parts of the layer, for the helper.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn upper(&self) -> PathBuf {
        self.dir.join("upper")
    }
}

impl Drop for GitLayer {
    fn drop(&mut self) {
        remove(&self.dir);
    }
}

impl LockedDir {
    fn new(layers: &Path) -> io::Result<LockedDir> {
        let path = layers.join(format!("{}-{}", std::process::id(), Ulid::new()));
        DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(&path)?;
        let lock = open_dir(&path, OFlags::RDONLY)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(LockedDir { path, _lock: lock })
    }
}

impl Drop for LockedDir {
    fn drop(&mut self) {
        // Only if empty.
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// Takes away the layers of servers that were killed: empty ones are deleted, others go to the quarantine.
fn sweep(layers: &Path, quarantine: &Store) {
    for server in std::fs::read_dir(layers).into_iter().flatten().flatten() {
        let locked = open_dir(&server.path(), OFlags::RDONLY)
            .and_then(|dir| flock(&dir, FlockOperation::NonBlockingLockExclusive).map(|()| dir));
        let Ok(_lock) = locked else {
            continue;
        };
        for layer in std::fs::read_dir(server.path())
            .into_iter()
            .flatten()
            .flatten()
        {
            let upper = layer.path().join("upper");
            let mut changes = std::fs::read_dir(&upper).into_iter().flatten();
            if changes.next().is_some() {
                let _ = quarantine.take_away(upper);
            }
            remove(&layer.path());
        }
        let _ = std::fs::remove_dir(server.path());
    }
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

#[expect(
    clippy::disallowed_methods,
    reason = "a directory of the server's own making"
)]
fn remove(dir: &Path) {
    // The common case: nothing was changed, and the kernel's own directory, which has no permissions, is empty.
    let work = dir.join("work");
    let _ = std::fs::remove_dir(work.join("work"));
    let is_gone = [dir.join("upper").as_path(), work.as_path(), dir]
        .iter()
        .all(|dir| std::fs::remove_dir(dir).is_ok());
    if is_gone {
        return;
    }
    let mut next = vec![dir.to_owned()];
    while let Some(dir) = next.pop() {
        let _ = rfs::chmodat(CWD, &dir, Mode::RWXU, AtFlags::empty());
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                next.push(entry.path());
            }
        }
    }
    let _ = std::fs::remove_dir_all(dir);
}
