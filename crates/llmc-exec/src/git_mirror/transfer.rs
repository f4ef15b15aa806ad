//! Putting a name of one side in place on the other.
//!
//! What only git's own data decides (packed refs, messages) is a hard link, so that nothing is copied and a write
//! in place is seen by both. What decides which programs git runs is always a new file: no command holds a descriptor of it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{self as rfs, AtFlags, Dir, Mode, OFlags, Timespec, Timestamps, statat, unlinkat};
use rustix::io::Errno;

use super::side::{Entry, Side, entry_at, open_dir_at, open_file_at, with_ending};

/// How long a lock of the user's git is waited for. A command's is not: it is looked at again when it is gone.
pub(super) const HOST_LOCK_TIMEOUT: Duration = Duration::from_millis(500);
const LOCK_POLL: Duration = Duration::from_millis(5);

/// What is put in place.
pub(super) enum Source<'a> {
    /// The other side's file; linked where that is possible.
    Linked(&'a Side, &'a Path),
    /// The other side's file, copied.
    Copied(&'a Side, &'a Path),
    Bytes(&'a [u8]),
    /// What was read of the other side's file, which had this status.
    Judged(&'a [u8], Entry),
}

/// Why something was not put in place.
#[derive(Debug)]
pub(super) enum Problem {
    /// It was changed meanwhile.
    Changed,
    /// A git that changes it holds its lock.
    Locked,
    Failed(Errno),
}

impl From<Errno> for Problem {
    fn from(errno: Errno) -> Problem {
        Problem::Failed(errno)
    }
}

/// Replaces a file of one side as git does it, under `NAME.lock`; only if it still is as `expected`. Returns what was put
/// there, which may have been changed again since.
pub(super) fn place(
    side: &Side,
    path: &Path,
    source: &Source<'_>,
    expected: Option<Entry>,
    lock_timeout: Duration,
) -> Result<Option<Entry>, Problem> {
    let (dir, name) = side.parent(path)?;
    let lock = with_ending(name, ".lock");
    let deadline = Instant::now() + lock_timeout;
    loop {
        match make(&dir, &lock, source) {
            Ok(()) => break,
            Err(Errno::EXIST) if Instant::now() < deadline => std::thread::sleep(LOCK_POLL),
            Err(Errno::EXIST) => return Err(Problem::Locked),
            Err(errno) => return Err(errno.into()),
        }
    }
    let made = entry_at(&dir, &lock);
    let placed = match entry_at(&dir, name) == expected {
        true => replace(&dir, &lock, name).map_err(Problem::Failed),
        false => Err(Problem::Changed),
    };
    if placed.is_err() {
        let _ = unlinkat(&dir, &lock, AtFlags::empty());
    }
    placed.map(|()| made)
}

/// Makes a new file under a name that must be free.
fn make(dir: &OwnedFd, name: &OsStr, source: &Source<'_>) -> Result<(), Errno> {
    let plain = Mode::from_raw_mode(0o644);
    let (side, path) = match source {
        Source::Bytes(bytes) => return write(dir, name, plain, None, &mut &**bytes),
        Source::Judged(bytes, entry) => {
            // None of these files is started.
            let mode = Mode::from_raw_mode(entry.mode() & 0o666) | Mode::RUSR | Mode::WUSR;
            return write(dir, name, mode, Some(entry.modified()), &mut &**bytes);
        }
        Source::Linked(side, path) | Source::Copied(side, path) => (side, path),
    };
    let (from, own_name) = side.parent(path)?;
    if matches!(source, Source::Linked(..)) {
        match rfs::linkat(&from, own_name, dir, name, AtFlags::empty()) {
            // Another file system, or a file of another user.
            Err(Errno::XDEV | Errno::PERM | Errno::ACCESS | Errno::MLINK | Errno::NOTSUP) => {}
            other => return other,
        }
    }
    let mut file = open_file_at(&from, own_name)?;
    let status = rfs::fstat(&file)?;
    let mode = Mode::from_raw_mode(status.st_mode & 0o777) | Mode::RUSR | Mode::WUSR;
    let modified = (status.st_mtime, status.st_mtime_nsec);
    write(dir, name, mode, Some(modified), &mut file)
}

/// Writes a new file. Git compares the time of an index with those of the files in it, so it is the other side's.
fn write(
    dir: &OwnedFd,
    name: &OsStr,
    mode: Mode,
    modified: Option<(i64, u64)>,
    from: &mut dyn io::Read,
) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rfs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?);
    let written = io::copy(from, &mut file)
        .and_then(|_| file.flush())
        .and_then(|()| Ok(rfs::fchmod(&file, mode)?))
        .and_then(|()| match modified {
            Some(modified) => Ok(rfs::futimens(&file, &times(modified))?),
            None => Ok(()),
        });
    written.map_err(|error| {
        let _ = unlinkat(dir, name, AtFlags::empty());
        Errno::from_io_error(&error).unwrap_or(Errno::IO)
    })
}

fn times((tv_sec, nanoseconds): (i64, u64)) -> Timestamps {
    let omitted = Timespec {
        tv_sec: 0,
        tv_nsec: rfs::UTIME_OMIT,
    };
    Timestamps {
        last_access: omitted,
        last_modification: Timespec {
            tv_sec,
            tv_nsec: nanoseconds.cast_signed(),
        },
    }
}

fn replace(dir: &OwnedFd, from: &OsStr, name: &OsStr) -> Result<(), Errno> {
    match rfs::renameat(dir, from, dir, name) {
        Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => {
            // A directory gave way to a file, such as a folder of branches to a branch.
            unlinkat(dir, name, AtFlags::REMOVEDIR)?;
            rfs::renameat(dir, from, dir, name)?;
        }
        other => other?,
    }
    Ok(())
}

/// Makes a directory; one that is there is as good.
pub(super) fn make_dir(side: &Side, path: &Path) -> Result<(), Errno> {
    let (dir, name) = side.parent(path)?;
    match rfs::mkdirat(&dir, name, Mode::from_raw_mode(0o777)) {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// Makes a symbolic link with the target that the other side's has.
pub(super) fn copy_link(from: &Side, to: &Side, path: &Path) -> Result<(), Errno> {
    let (dir, name) = from.parent(path)?;
    let target = rfs::readlinkat(&dir, name, Vec::new())?;
    let (dir, name) = to.parent(path)?;
    let _ = unlinkat(&dir, name, AtFlags::empty());
    rfs::symlinkat(target, &dir, name)
}

/// Deletes a name; of a directory only if nothing is in it.
pub(super) fn remove(side: &Side, path: &Path, entry: Entry) -> Result<(), Errno> {
    let (dir, name) = match side.parent(path) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        other => other?,
    };
    let flags = match entry.is_dir() {
        true => AtFlags::REMOVEDIR,
        false => AtFlags::empty(),
    };
    match unlinkat(&dir, name, flags) {
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::BUSY) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Deletes all that is in a directory, which itself stays.
pub(super) fn empty(dir: &OwnedFd) -> Result<(), Errno> {
    empty_but(dir, &[])
}

/// Deletes all that is in a directory but these names.
pub(super) fn empty_but(dir: &OwnedFd, kept: &[&str]) -> Result<(), Errno> {
    let entries: Vec<_> = Dir::read_from(dir)?.flatten().collect();
    for entry in entries {
        let name = entry.file_name();
        let is_kept = kept.iter().any(|kept| name.to_bytes() == kept.as_bytes());
        if name == c"." || name == c".." || is_kept {
            continue;
        }
        let status = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if rfs::FileType::from_raw_mode(status.st_mode).is_dir() {
            let inner = open_dir_at(
                dir,
                std::os::unix::ffi::OsStrExt::from_bytes(name.to_bytes()),
            )?;
            empty(&inner)?;
            unlinkat(dir, name, AtFlags::REMOVEDIR)?;
        } else {
            unlinkat(dir, name, AtFlags::empty())?;
        }
    }
    Ok(())
}
