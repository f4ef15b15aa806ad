//! One directory, held by descriptor, and what is read through it.
//!
//! Everything below the start of a walk is reached with `openat` on a directory that is already open, one name at a
//! time and never through a symbolic link. So it does not matter what is renamed while the walk runs: it cannot
//! leave its start.

use std::cmp::Ordering;
use std::ffi::CStr;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat, StatFs, fstat, fstatfs, openat,
    openat2, statat,
};
use rustix::io::Errno;

use super::ignores::IgnoreRules;

/// Directories that stay open because entries below them are still to be visited.
///
/// A process has 1,024 descriptors by default and a server needs them for other things too. Beyond this number a
/// directory is closed and opened again, from its nearest open ancestor, when its turn comes.
const MAX_OPEN_DIRS: usize = 128;

/// The last half of [`MAX_OPEN_DIRS`] goes to every so many levels, so that in a deep tree an open ancestor is near.
const OPEN_DIR_LEVEL_STEP: usize = 64;

/// Levels below the start that are visited; what lies deeper counts as unreadable.
pub(super) const MAX_WALK_DEPTH: usize = 4096;

/// A directory of the walk.
#[derive(Debug)]
pub(super) struct Dir {
    /// Its path relative to the workspace root, without a slash at the end; empty for the root itself.
    pub(super) path: Vec<u8>,
    /// What to ignore inside.
    pub(super) rules: Option<Arc<IgnoreRules>>,
    /// Levels below the start of the walk.
    pub(super) depth: usize,
    pub(super) device: u64,
    inode: u64,
    parent: Option<Arc<Dir>>,
    fd: Option<CountedFd>,
}

/// A descriptor that counts towards [`MAX_OPEN_DIRS`].
#[derive(Debug)]
struct CountedFd {
    fd: OwnedFd,
    open: Arc<AtomicUsize>,
}

impl Drop for CountedFd {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Relaxed);
    }
}

impl Dir {
    /// The start of a walk; `path` is where it lies below the workspace root.
    pub(super) fn start(
        fd: BorrowedFd<'_>,
        path: Vec<u8>,
        rules: Option<Arc<IgnoreRules>>,
    ) -> rustix::io::Result<Self> {
        // Opened anew, since a duplicate would share its reading position with every other walk from here.
        let fd = open_dir(fd, c".")?;
        let stat = fstat(&fd)?;
        let open = Arc::new(AtomicUsize::new(1));
        Ok(Self {
            path,
            rules,
            depth: 0,
            device: stat.st_dev,
            inode: stat.st_ino,
            parent: None,
            fd: Some(CountedFd { fd, open }),
        })
    }

    /// Opens the directory `name` in `parent`, which `fd` is a descriptor of.
    ///
    /// The descriptor comes apart from the directory when too many are open to keep it.
    pub(super) fn open(
        parent: &Arc<Dir>,
        parent_fd: BorrowedFd<'_>,
        name: &CStr,
    ) -> rustix::io::Result<OpenedDir> {
        let fd = open_dir(parent_fd, name)?;
        let stat = fstat(&fd)?;
        if stat.st_dev != parent.device && is_on_kernel_fs(&fd) {
            return Ok(OpenedDir::Kernel);
        }
        let mut path = Vec::with_capacity(parent.path.len() + 1 + name.count_bytes());
        push_name(&mut path, &parent.path, name);
        let open = parent.open_count();
        let depth = parent.depth + 1;
        let limit = match depth % OPEN_DIR_LEVEL_STEP {
            0 => MAX_OPEN_DIRS,
            _ => MAX_OPEN_DIRS / 2,
        };
        let kept = open.fetch_add(1, Relaxed) < limit;
        let (held, loose) = if kept {
            (Some(CountedFd { fd, open }), None)
        } else {
            open.fetch_sub(1, Relaxed);
            (None, Some(fd))
        };
        let dir = Self {
            path,
            rules: parent.rules.clone(),
            depth,
            device: stat.st_dev,
            inode: stat.st_ino,
            parent: Some(Arc::clone(parent)),
            fd: held,
        };
        Ok(OpenedDir::Dir(dir, loose))
    }

    /// The directory's descriptor, unless it had to be closed.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(|held| held.fd.as_fd())
    }

    /// Opens a directory again that had to be closed, through the nearest ancestor still open.
    pub(super) fn reopen(&self) -> rustix::io::Result<OwnedFd> {
        let mut closed = vec![self];
        let mut above = self.parent.as_deref();
        let top = loop {
            match above {
                Some(dir) if dir.fd.is_none() => {
                    closed.push(dir);
                    above = dir.parent.as_deref();
                }
                Some(dir) => break dir.fd(),
                None => break None,
            }
        };
        let mut fd: Option<OwnedFd> = None;
        for dir in closed.iter().rev() {
            let at = fd.as_ref().map(AsFd::as_fd).or(top).ok_or(Errno::BADF)?;
            fd = Some(open_dir(at, super::glob::file_name(&dir.path))?);
        }
        let fd = fd.ok_or(Errno::BADF)?;
        let stat = fstat(&fd)?;
        if (stat.st_dev, stat.st_ino) != (self.device, self.inode) {
            return Err(Errno::STALE);
        }
        Ok(fd)
    }

    fn open_count(&self) -> Arc<AtomicUsize> {
        let mut dir = self;
        loop {
            match (&dir.fd, &dir.parent) {
                (Some(held), _) => return Arc::clone(&held.open),
                (None, Some(parent)) => dir = parent,
                (None, None) => return Arc::default(),
            }
        }
    }
}

pub(super) enum OpenedDir {
    /// It is to be read, with its descriptor when that is not kept inside.
    Dir(Dir, Option<OwnedFd>),
    /// It belongs to the kernel's own file systems, which are never entered.
    Kernel,
}

/// Appends `name` to the directory path `dir`.
pub(super) fn push_name(path: &mut Vec<u8>, dir: &[u8], name: &CStr) {
    path.extend_from_slice(dir);
    if !dir.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name.to_bytes());
}

pub(super) fn open_dir<P: rustix::path::Arg>(
    at: BorrowedFd<'_>,
    name: P,
) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

/// Opens a directory any number of levels below `at`, through no link.
pub(super) fn open_below(at: BorrowedFd<'_>, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(at, path, flags, Mode::empty(), resolve)
}

/// Opens `name` if it is a regular file; never waits, never follows a link.
pub(super) fn open_file(
    at: BorrowedFd<'_>,
    name: &CStr,
    device: u64,
) -> rustix::io::Result<(OwnedFd, Stat)> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = openat(at, name, flags, Mode::empty())?;
    let stat = fstat(&fd)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    // A file of /proc can be mounted over a plain one.
    if stat.st_dev != device && is_on_kernel_fs(&fd) {
        return Err(Errno::ACCESS);
    }
    Ok((fd, stat))
}

/// Reads a small text file whole, or its first `limit` bytes up to the end of a line.
pub(super) fn read_small(
    at: BorrowedFd<'_>,
    name: &CStr,
    device: u64,
    limit: u64,
) -> Option<Vec<u8>> {
    let (fd, _) = open_file(at, name, device).ok()?;
    let mut text = Vec::new();
    std::fs::File::from(fd)
        .take(limit + 1)
        .read_to_end(&mut text)
        .ok()?;
    if text.len() as u64 > limit {
        let end = text.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
        text.truncate(end);
    }
    Some(text)
}

/// Whether `fd` lies in one of the kernel's own file systems.
pub(super) fn is_on_kernel_fs(fd: impl AsFd) -> bool {
    fstatfs(fd).is_ok_and(|stat| is_kernel_file_system(&stat))
}

/// Whether this is a file system that shows the kernel's state rather than files on a disk.
pub(crate) fn is_kernel_file_system(stat: &StatFs) -> bool {
    const MAGIC: [u32; 22] = [
        0x0000_0187, // autofs: looking around in it mounts things
        0x4249_4e4d, // binfmt_misc
        0xcafe_4a11, // bpf
        0x0027_e0eb, // cgroup
        0x6367_7270, // cgroup2
        0x6265_6570, // configfs
        0x6462_6720, // debugfs
        0x0000_1cd1, // devpts
        0xde5e_81e4, // efivarfs
        0x6573_5543, // fusectl
        0x9584_58f6, // hugetlbfs
        0x1980_0202, // mqueue
        0x6e73_6673, // nsfs
        0x0000_9fa0, // proc
        0x6165_676c, // pstore
        0x0765_5821, // resctrl
        0x6759_6969, // rpc_pipefs
        0x7363_6673, // securityfs
        0xf97c_ff8c, // selinuxfs
        0x4341_5d53, // smackfs
        0x6265_6572, // sysfs
        0x7472_6163, // tracefs
    ];
    MAGIC.contains(&(stat.f_type as u32))
}

/// Names read from a directory, each ending in NUL so that it can be opened without a copy.
#[derive(Debug, Default)]
pub(super) struct NameBatch {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl NameBatch {
    pub(super) fn push(&mut self, name: &CStr) {
        self.bytes.extend_from_slice(name.to_bytes_with_nul());
        // A batch is far smaller than 4 GiB: see `MAX_BATCH_ENTRIES`.
        self.ends.push(self.bytes.len() as u32);
    }

    pub(super) fn get(&self, index: usize) -> &CStr {
        let start = match index {
            0 => 0,
            _ => self.ends[index - 1] as usize,
        };
        let bytes = &self.bytes[start..self.ends[index] as usize];
        CStr::from_bytes_with_nul(bytes).unwrap_or_default()
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &CStr> {
        (0..self.len()).map(|index| self.get(index))
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// The same names in the order of their bytes.
    pub(super) fn sorted(&self) -> NameBatch {
        let mut names: Vec<&CStr> = self.iter().collect();
        names.sort_unstable();
        let mut sorted = NameBatch {
            bytes: Vec::with_capacity(self.bytes.len()),
            ends: Vec::with_capacity(self.ends.len()),
        };
        names.into_iter().for_each(|name| sorted.push(name));
        sorted
    }

    /// Where a name is in a sorted batch.
    pub(super) fn find(&self, name: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.get(middle).to_bytes().cmp(name) {
                Ordering::Equal => return Some(middle),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// Takes away the names from `at` on.
    pub(super) fn split_off(&mut self, at: usize) -> NameBatch {
        let mut rest = NameBatch::default();
        for index in at..self.len() {
            rest.push(self.get(index));
        }
        self.ends.truncate(at);
        self.bytes
            .truncate(self.ends.last().copied().unwrap_or(0) as usize);
        rest
    }
}

/// Entries taken from a directory at a time, which bounds the memory that a huge one needs.
const MAX_BATCH_ENTRIES: usize = 8192;

/// Reads the entries of one directory after another, a batch at a time.
pub(super) struct DirReader {
    buffer: Vec<u8>,
    /// The names of the current batch, with their types in `kinds`.
    pub(super) names: NameBatch,
    pub(super) kinds: Vec<FileType>,
}

/// Whether a directory holds more than the batch just read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoreEntries {
    Yes,
    No,
}

impl DirReader {
    pub(super) fn new() -> Self {
        Self {
            buffer: Vec::with_capacity(64 * 1024),
            names: NameBatch::default(),
            kinds: Vec::new(),
        }
    }

    /// Replaces the batch by the next entries of `dir`, whose position is the descriptor's own.
    ///
    /// After an error the batch holds what could be read.
    pub(super) fn next_batch(
        &mut self,
        dir: BorrowedFd<'_>,
    ) -> (MoreEntries, rustix::io::Result<()>) {
        self.names.clear();
        self.kinds.clear();
        let mut entries = RawDir::new(dir, self.buffer.spare_capacity_mut());
        loop {
            // Leave only at the end of the block the kernel returned: its unread entries would be lost.
            if self.kinds.len() >= MAX_BATCH_ENTRIES && entries.is_buffer_empty() {
                return (MoreEntries::Yes, Ok(()));
            }
            let entry = match entries.next() {
                None => return (MoreEntries::No, Ok(())),
                Some(Ok(entry)) => entry,
                Some(Err(Errno::INTR)) => continue,
                Some(Err(err)) => return (MoreEntries::No, Err(err)),
            };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let kind = match entry.file_type() {
                // Some file systems leave the type out.
                FileType::Unknown => statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(FileType::Unknown, |stat| {
                        FileType::from_raw_mode(stat.st_mode)
                    }),
                kind => kind,
            };
            self.names.push(name);
            self.kinds.push(kind);
        }
    }
}
