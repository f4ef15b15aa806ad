//! One side of a mirrored git directory: the user's own, or the copy that commands see.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self as rfs, AtFlags, Dir, FileType, Mode, OFlags, Stat, statat};
use rustix::io::Errno;

/// Levels of directories that are mirrored.
const MAX_DEPTH: usize = 24;
/// Names of one git directory that are mirrored; one with more is shown read-only.
const MAX_ENTRIES: usize = 200_000;
/// Files up to this size are compared by content: git may replace one twice within a step of the file system's clock.
const MAX_COMPARED_BYTES: u64 = 1024;
/// Read of a larger file: an index ends with its own checksum.
const TAIL_BYTES: u64 = 64;

/// Where `objects/info` lies, which is mirrored although the objects are not.
pub(super) const OBJECTS_INFO: &str = "objects/info";

/// A git directory, opened.
#[derive(Debug)]
pub(super) struct Side {
    top: OwnedFd,
    objects_info: OwnedFd,
}

/// A name in a git directory, as it was at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    Directory,
    File(Stamp),
    Link(Stamp),
    /// A FIFO, a socket, a device.
    Other,
}

/// What distinguishes two versions of a file. The time of its last status change does not: links to it change that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    dev: u64,
    ino: u64,
    size: i64,
    mode: u32,
    mtime: (i64, u64),
    content: u64,
}

impl Entry {
    pub(super) fn is_dir(self) -> bool {
        self == Entry::Directory
    }

    /// Whether both names are links to one file.
    pub(super) fn is_same_file(self, other: Entry) -> bool {
        match (self, other) {
            (Entry::File(one), Entry::File(other)) => (one.dev, one.ino) == (other.dev, other.ino),
            _ => false,
        }
    }

    /// Whether one was copied from the other and neither has changed since.
    pub(super) fn is_copy_of(self, other: Entry) -> bool {
        let version = |stamp: Stamp| (stamp.size, stamp.mtime, stamp.content);
        match (self, other) {
            (Entry::File(one), Entry::File(other)) => version(one) == version(other),
            _ => false,
        }
    }

    /// Its permissions.
    pub(super) fn mode(self) -> u32 {
        match self {
            Entry::File(stamp) | Entry::Link(stamp) => stamp.mode,
            _ => 0,
        }
    }

    /// When its content last changed.
    pub(super) fn modified(self) -> (i64, u64) {
        match self {
            Entry::File(stamp) | Entry::Link(stamp) => stamp.mtime,
            _ => (0, 0),
        }
    }
}

impl Side {
    pub(super) fn new(top: OwnedFd, objects_info: OwnedFd) -> Side {
        Side { top, objects_info }
    }

    /// The directory that a name lies in, and its last part.
    pub(super) fn parent<'a>(&self, path: &'a Path) -> Result<(OwnedFd, &'a OsStr), Errno> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let dir = path.parent().unwrap_or(Path::new(""));
        Ok((self.dir(dir)?, name))
    }

    /// Opens a directory without following a link.
    pub(super) fn dir(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let (top, rest) = match path.strip_prefix(OBJECTS_INFO) {
            Ok(rest) => (&self.objects_info, rest),
            Err(_) => (&self.top, path),
        };
        let mut dir = rustix::io::fcntl_dupfd_cloexec(top, 0)?;
        for part in rest {
            dir = open_dir_at(&dir, part)?;
        }
        Ok(dir)
    }

    pub(super) fn entry(&self, path: &Path) -> Option<Entry> {
        let (dir, name) = self.parent(path).ok()?;
        entry_at(&dir, name)
    }

    /// A file's content, if it has at most so many bytes.
    pub(super) fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        let file = self.open(path)?;
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(file, limit + 1), &mut bytes)?;
        match bytes.len() as u64 <= limit {
            true => Ok(bytes),
            false => Err(io::ErrorKind::FileTooLarge.into()),
        }
    }

    /// Opens a regular file without following a link.
    pub(super) fn open(&self, path: &Path) -> Result<File, Errno> {
        let (dir, name) = self.parent(path)?;
        open_file_at(&dir, name)
    }

    /// Every name that is mirrored, below the top and below `objects/info`; without those in `skipped` and what a git
    /// that runs or was killed leaves beside them.
    pub(super) fn list(&self, skipped: &BTreeSet<PathBuf>) -> io::Result<BTreeMap<PathBuf, Entry>> {
        let mut found = BTreeMap::new();
        let top = self.dir(Path::new(""))?;
        walk(&top, &mut PathBuf::new(), 0, skipped, &mut found)?;
        let info = self.dir(Path::new(OBJECTS_INFO))?;
        walk(
            &info,
            &mut PathBuf::from(OBJECTS_INFO),
            0,
            skipped,
            &mut found,
        )?;
        Ok(found)
    }
}

fn walk(
    dir: &OwnedFd,
    path: &mut PathBuf,
    depth: usize,
    skipped: &BTreeSet<PathBuf>,
    found: &mut BTreeMap<PathBuf, Entry>,
) -> io::Result<()> {
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." || is_passing(name) {
            continue;
        }
        path.push(name);
        // Another process may have deleted it meanwhile.
        if !skipped.contains(path.as_path())
            && let Some(entry) = entry_at(dir, name)
        {
            found.insert(path.clone(), entry);
            if found.len() > MAX_ENTRIES {
                return Err(io::Error::other("it has too many files"));
            }
            if entry.is_dir()
                && depth < MAX_DEPTH
                && let Ok(inner) = open_dir_at(dir, name)
            {
                walk(&inner, path, depth + 1, skipped, found)?;
            }
        }
        path.pop();
    }
    Ok(())
}

/// Locks and temporary files: they mean something only to the process that made them.
pub(super) fn is_passing(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let is_named = matches!(name, b"gc.pid" | b"packed-refs.new");
    is_named || name.ends_with(b".lock") || name.starts_with(b"tmp_")
}

pub(super) fn entry_at(dir: impl AsFd, name: &OsStr) -> Option<Entry> {
    let status = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(match FileType::from_raw_mode(status.st_mode) {
        FileType::Directory => Entry::Directory,
        FileType::RegularFile => Entry::File(Stamp::of(&status, content_mark(&dir, name, &status))),
        FileType::Symlink => Entry::Link(Stamp::of(&status, 0)),
        _ => Entry::Other,
    })
}

impl Stamp {
    fn of(status: &Stat, content: u64) -> Stamp {
        Stamp {
            dev: status.st_dev,
            ino: status.st_ino,
            size: status.st_size,
            mode: status.st_mode & 0o7777,
            mtime: (status.st_mtime, status.st_mtime_nsec),
            content,
        }
    }
}

/// A number that differs where the content, or the end of a larger file, differs.
fn content_mark(dir: impl AsFd, name: &OsStr, status: &Stat) -> u64 {
    let size = u64::try_from(status.st_size).unwrap_or(0);
    let Ok(file) = open_file_at(dir, name) else {
        return 0;
    };
    let (start, length) = match size {
        0..=MAX_COMPARED_BYTES => (0, size),
        _ => (size - TAIL_BYTES, TAIL_BYTES),
    };
    let mut buffer = [0; MAX_COMPARED_BYTES as usize];
    let bytes = &mut buffer[..length as usize];
    let read = file.read_at(bytes, start).unwrap_or(0);
    // FNV-1a.
    bytes[..read]
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
}

pub(super) fn open_file_at(dir: impl AsFd, name: &OsStr) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rfs::openat(dir, name, flags, Mode::empty())?;
    match FileType::from_raw_mode(rfs::fstat(&file)?.st_mode).is_file() {
        true => Ok(File::from(file)),
        false => Err(Errno::INVAL),
    }
}

pub(super) fn open_dir_at(dir: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rfs::openat(dir, name, flags, Mode::empty())
}

/// The parts of a path below a git directory.
pub(super) fn parts(path: &Path) -> Vec<&[u8]> {
    path.iter().map(OsStr::as_bytes).collect()
}

/// A name with an ending.
pub(super) fn with_ending(name: &OsStr, ending: &str) -> OsString {
    let mut name = name.to_owned();
    name.push(ending);
    name
}
