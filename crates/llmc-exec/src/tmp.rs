//! A directory for temporary files where a run cannot have a `/tmp` of its own.

use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use ulid::Ulid;

/// How the directories' names begin; the server's process id follows, for people.
const PREFIX: &str = "llmc-run-";
/// One that was made this shortly ago may not be locked yet.
const MIN_AGE_TO_SWEEP: Duration = Duration::from_secs(60);

/// One run's temporary directory. Deleted when dropped, which must come after the end of the run.
///
/// It is locked as long as its server lives, so that the next one can tell what a crash has left behind.
#[derive(Debug)]
pub(super) struct OwnTmp {
    path: PathBuf,
    _lock: OwnedFd,
}

impl OwnTmp {
    pub(super) fn new() -> std::io::Result<OwnTmp> {
        static SWEPT: Once = Once::new();
        let tmp = Path::new("/tmp");
        SWEPT.call_once(|| sweep(tmp, MIN_AGE_TO_SWEEP));
        OwnTmp::below(tmp)
    }

    fn below(dir: &Path) -> std::io::Result<OwnTmp> {
        let path = dir.join(format!("{PREFIX}{}-{}", std::process::id(), Ulid::new()));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        let lock = lock(&path)?;
        Ok(OwnTmp { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for OwnTmp {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Deletes what servers of this user that were killed have left behind.
fn sweep(dir: &Path, young: Duration) {
    let own = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let Ok(status) = entry.metadata() else {
            continue;
        };
        let old = status
            .created()
            .or_else(|_| status.modified())
            .is_ok_and(|made| {
                SystemTime::now()
                    .duration_since(made)
                    .is_ok_and(|age| age >= young)
            });
        if ours && old && status.is_dir() && status.uid() == own && lock(&entry.path()).is_ok() {
            remove(&entry.path());
        }
    }
}

/// Locks a directory; fails if its server lives.
fn lock(path: &Path) -> std::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, flags, Mode::empty())?;
    flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
    Ok(dir)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a directory of the server's own making"
)]
fn remove(path: &Path) {
    let _ = std::fs::remove_dir_all(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_crash_left_is_swept_and_what_lives_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let alive = OwnTmp::below(dir.path()).unwrap();
        let left = dir.path().join(format!("{PREFIX}1-x"));
        std::fs::create_dir_all(left.join("sub")).unwrap();
        std::fs::write(left.join("sub/file"), "x").unwrap();
        let other = dir.path().join("another-users");
        std::fs::create_dir(&other).unwrap();
        let link = dir.path().join(format!("{PREFIX}2-x"));
        std::os::unix::fs::symlink(&other, &link).unwrap();
        sweep(dir.path(), MIN_AGE_TO_SWEEP);
        assert!(left.exists(), "it may be about to be locked");
        sweep(dir.path(), Duration::ZERO);
        assert!(!left.exists());
        assert!(alive.path().exists() && other.exists() && link.is_symlink());
        let path = alive.path().to_owned();
        drop(alive);
        assert!(!path.exists());
    }
}
