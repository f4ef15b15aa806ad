//! Temporary files that become the target by one rename or link.
//!
//! New content is written to a temporary file, synced, and then renamed or linked to its name, so a reader sees the old
//! file or the new one and a crash leaves no partial file. Three ways, best first:
//!
//! - a new file is an unnamed one (`O_TMPFILE`) in its own directory, linked to its name: nothing to clean up, ever;
//! - a replacement is made in the state directory and renamed across: what a crash leaves there is swept at the next start;
//! - where the state directory lies on another file system, a randomly named file beside the target, noted in the lease.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, Mode, OFlags, Stat, XattrFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::lease::{LeaseTable, Leases};
use crate::roots::RootedPath;

/// How temporary files beside a target begin.
pub(crate) const TEMP_PREFIX: &str = ".llmc-";

/// The state directory's folder for unfinished files.
#[derive(Debug)]
pub(crate) struct Scratch {
    dir: OwnedFd,
    alive: String,
}

impl Scratch {
    /// Opens the folder and removes the files of processes that have ended.
    pub(crate) fn open(state_dir: &Path, locks: &LeaseTable) -> Result<Scratch> {
        let failed = |source| Error::WriteFailed {
            path: ".llmc/tmp".to_owned(),
            source,
        };
        let dir = private_dir(&state_dir.join("tmp")).map_err(failed)?;
        let list = fs::openat(
            &dir,
            ".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        if let Ok(entries) = list.and_then(fs::Dir::new) {
            for entry in entries.flatten() {
                let Ok(name) = entry.file_name().to_str() else {
                    continue;
                };
                let owner = name.split_once('.').map(|(owner, _)| owner);
                if owner.is_some_and(|owner| owner.starts_with("alive-") && locks.is_dead(owner)) {
                    let _ = fs::unlinkat(&dir, name, AtFlags::empty());
                }
            }
        }
        Ok(Scratch {
            dir,
            alive: locks.alive_name().to_owned(),
        })
    }

    /// Creates a file that did not exist. If another program creates it meanwhile, the result is [`PlaceOutcome::Changed`].
    pub(crate) fn create(
        &self,
        path: &RootedPath,
        leases: &Leases<'_>,
        fill: impl FnOnce(&mut File) -> Result<()>,
    ) -> Result<PlaceOutcome> {
        let (dir, name) = path.parent()?;
        let requested = path.requested();
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        let linked = match fs::openat(&dir, ".", flags, mode) {
            Ok(fd) => {
                let mut file = File::from(fd);
                fill(&mut file)?;
                sync(&file, requested)?;
                leases.commit(|| Ok(link(&file, &dir, name)))?
            }
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                let temp = SiblingTempFile::new(path, &dir, leases, mode)?;
                let mut file = temp
                    .file
                    .try_clone()
                    .map_err(|e| write_failed(requested, e))?;
                fill(&mut file)?;
                sync(&file, requested)?;
                leases.commit(|| Ok(fs::linkat(&dir, &*temp.name, &dir, name, AtFlags::empty())))?
            }
            Err(errno) => return Err(Error::from_write_errno(requested, errno)),
        };
        match linked {
            Ok(()) => sync_dir(&dir, requested).map(|()| PlaceOutcome::Done),
            Err(Errno::EXIST) => Ok(PlaceOutcome::Changed),
            Err(errno) => Err(Error::from_write_errno(requested, errno)),
        }
    }

    /// Replaces `old` (the file's status when it was read), keeping mode, owner and attributes. With [`IfChanged::Abort`],
    /// a file that has changed since then stays as it is and the result is [`PlaceOutcome::Changed`].
    pub(crate) fn replace(
        &self,
        path: &RootedPath,
        old: (&File, &Stat),
        if_changed: IfChanged,
        leases: &Leases<'_>,
        fill: impl FnOnce(&mut File) -> Result<()>,
    ) -> Result<PlaceOutcome> {
        let (dir, name) = path.parent()?;
        fs::accessat(&dir, name, fs::Access::WRITE_OK, AtFlags::EACCESS)
            .map_err(|errno| Error::from_write_errno(path.requested(), errno))?;
        self.replace_any(path, old, if_changed, leases, fill)
    }

    /// [`Scratch::replace`] also of a file that is write-protected, as a rename may do.
    pub(crate) fn replace_any(
        &self,
        path: &RootedPath,
        old: (&File, &Stat),
        if_changed: IfChanged,
        leases: &Leases<'_>,
        fill: impl FnOnce(&mut File) -> Result<()>,
    ) -> Result<PlaceOutcome> {
        let (dir, name) = path.parent()?;
        let requested = path.requested();
        let private = Mode::RUSR | Mode::WUSR;
        let here = format!("{}.{}", self.alive, ulid::Ulid::new());
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = fs::openat(&self.dir, &here, flags, private)
            .map_err(|errno| Error::from_write_errno(requested, errno))?;
        let guard = UnlinkOnDrop {
            dir: self.dir.as_fd(),
            name: OsStr::new(&here),
        };
        let mut file = File::from(fd);
        let same_device = fs::fstat(&file).is_ok_and(|stat| stat.st_dev == old.1.st_dev);
        if same_device {
            fill(&mut file)?;
            keep_attributes(old, &file, requested)?;
            sync(&file, requested)?;
            let moved = leases.commit(|| {
                if if_changed == IfChanged::Abort && !is_unchanged(&dir, name, old.1) {
                    return Ok(Err(Errno::STALE));
                }
                Ok(fs::renameat(&self.dir, &here, &dir, name))
            })?;
            match moved {
                Ok(()) => {
                    std::mem::forget(guard);
                    return sync_dir(&dir, requested).map(|()| PlaceOutcome::Done);
                }
                Err(Errno::STALE) => return Ok(PlaceOutcome::Changed),
                // Same device number but another mount (a bind mount): the way below works.
                Err(Errno::XDEV) => {
                    return replace_via_sibling(path, &dir, name, old, if_changed, leases, file);
                }
                Err(errno) => return Err(Error::from_write_errno(requested, errno)),
            }
        }
        fill(&mut file)?;
        replace_via_sibling(path, &dir, name, old, if_changed, leases, file)
    }
}

/// What to do when the file has changed since it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfChanged {
    Abort,
    Overwrite,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PlaceOutcome {
    Done,
    /// Another program changed the target first; nothing was written.
    Changed,
}

/// Finishes a replacement on another file system than the state directory's.
fn replace_via_sibling(
    path: &RootedPath,
    dir: &OwnedFd,
    name: &OsStr,
    old: (&File, &Stat),
    if_changed: IfChanged,
    leases: &Leases<'_>,
    mut made: File,
) -> Result<PlaceOutcome> {
    use std::io::Seek;
    let requested = path.requested();
    let temp = SiblingTempFile::new(path, dir, leases, Mode::RUSR | Mode::WUSR)?;
    let mut file = temp
        .file
        .try_clone()
        .map_err(|e| write_failed(requested, e))?;
    made.rewind().map_err(|e| write_failed(requested, e))?;
    io::copy(&mut made, &mut file).map_err(|e| write_failed(requested, e))?;
    keep_attributes(old, &file, requested)?;
    sync(&file, requested)?;
    let moved = leases.commit(|| {
        if if_changed == IfChanged::Abort && !is_unchanged(dir, name, old.1) {
            return Ok(Err(Errno::STALE));
        }
        Ok(fs::renameat(dir, &*temp.name, dir, name))
    })?;
    match moved {
        Ok(()) => sync_dir(dir, requested).map(|()| PlaceOutcome::Done),
        Err(Errno::STALE) => Ok(PlaceOutcome::Changed),
        Err(errno) => Err(Error::from_write_errno(requested, errno)),
    }
}

/// A randomly named file beside the target, removed when dropped (after a rename there is nothing left to remove).
struct SiblingTempFile<'a> {
    dir: &'a OwnedFd,
    name: String,
    file: File,
    leases: &'a Leases<'a>,
}

impl<'a> SiblingTempFile<'a> {
    fn new(
        path: &RootedPath,
        dir: &'a OwnedFd,
        leases: &'a Leases<'a>,
        mode: Mode,
    ) -> Result<SiblingTempFile<'a>> {
        let name = format!("{TEMP_PREFIX}{}.tmp", ulid::Ulid::new());
        let note: Option<PathBuf> = path.absolute().parent().map(|parent| parent.join(&name));
        leases.note_temp_file(note)?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = fs::openat(dir, &name, flags, mode)
            .map_err(|errno| Error::from_write_errno(path.requested(), errno))?;
        Ok(SiblingTempFile {
            dir,
            name,
            file: File::from(fd),
            leases,
        })
    }
}

impl Drop for SiblingTempFile<'_> {
    fn drop(&mut self) {
        let _ = fs::unlinkat(self.dir, &*self.name, AtFlags::empty());
        let _ = self.leases.note_temp_file(None);
    }
}

struct UnlinkOnDrop<'a> {
    dir: std::os::fd::BorrowedFd<'a>,
    name: &'a OsStr,
}

impl Drop for UnlinkOnDrop<'_> {
    fn drop(&mut self) {
        let _ = fs::unlinkat(self.dir, self.name, AtFlags::empty());
    }
}

/// Gives an unnamed file its name. The direct way needs a privilege on older kernels, the other one `/proc`.
fn link(file: &File, dir: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    match fs::linkat(file, "", dir, name, AtFlags::EMPTY_PATH) {
        Err(Errno::NOENT | Errno::PERM | Errno::INVAL) => {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            fs::linkat(fs::CWD, path, dir, name, AtFlags::SYMLINK_FOLLOW)
        }
        other => other,
    }
}

/// Whether the name still refers to the file that was read.
fn is_unchanged(dir: &OwnedFd, name: &OsStr, old: &Stat) -> bool {
    crate::roots::lstat_at(dir, name).is_ok_and(|now| is_same_version(&now, old))
}

/// Whether both describe the same file with the same content, as far as the file system tells.
pub(crate) fn is_same_version(a: &Stat, b: &Stat) -> bool {
    (
        a.st_dev,
        a.st_ino,
        a.st_size,
        a.st_mtime,
        a.st_mtime_nsec,
        a.st_ctime,
        a.st_ctime_nsec,
    ) == (
        b.st_dev,
        b.st_ino,
        b.st_size,
        b.st_mtime,
        b.st_mtime_nsec,
        b.st_ctime,
        b.st_ctime_nsec,
    )
}

/// What makes a program act with another user's rights; new content never gets it.
const CAPABILITY_XATTR: &[u8] = b"security.capability";

/// Copies owner, extended attributes (access lists among them) and mode, but no right to act as another user: set-uid
/// and set-gid bits and capabilities were given to the old content. What only a privileged user may set is left.
pub(crate) fn keep_attributes(
    (from, stat): (&File, &Stat),
    to: &File,
    requested: &str,
) -> Result<()> {
    let owner = (
        rustix::fs::Uid::from_raw(stat.st_uid),
        rustix::fs::Gid::from_raw(stat.st_gid),
    );
    if fs::fchown(to, Some(owner.0), Some(owner.1)).is_err() {
        let _ = fs::fchown(to, None, Some(owner.1));
    }
    let mut names = vec![0; 64 << 10];
    let used = fs::flistxattr(from, &mut names[..]).unwrap_or(0);
    let mut value = vec![0; 64 << 10];
    for name in names[..used]
        .split(|b| *b == 0)
        .filter(|name| !name.is_empty() && *name != CAPABILITY_XATTR)
    {
        if let Ok(len) = fs::fgetxattr(from, name, &mut value[..]) {
            let _ = fs::fsetxattr(to, name, &value[..len], XattrFlags::empty());
        }
    }
    fs::fchmod(to, Mode::from_raw_mode(stat.st_mode & 0o1777))
        .map_err(|errno| Error::from_write_errno(requested, errno))
}

fn sync(file: &File, requested: &str) -> Result<()> {
    file.sync_all()
        .map_err(|source| write_failed(requested, source))
}

/// Makes a rename or link in this directory durable.
pub(crate) fn sync_dir(dir: impl AsFd, requested: &str) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = fs::openat(dir, ".", flags, Mode::empty());
    match readable.and_then(|dir| fs::fsync(&dir)) {
        // Some file systems cannot sync a directory, and an unreadable one cannot be opened: the rename stands.
        Ok(()) | Err(Errno::INVAL | Errno::ACCESS | Errno::ROFS | Errno::OPNOTSUPP) => Ok(()),
        Err(errno) => Err(Error::from_write_errno(requested, errno)),
    }
}

pub(crate) fn write_failed(requested: &str, source: io::Error) -> Error {
    Error::WriteFailed {
        path: requested.to_owned(),
        source,
    }
}

/// Makes a directory only the owner can enter (and its parents), and opens it.
pub(crate) fn private_dir(path: &Path) -> io::Result<OwnedFd> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(fs::openat(fs::CWD, path, flags, Mode::empty())?)
}
