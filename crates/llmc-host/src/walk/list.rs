//! Listings of a directory, for `linux_fs_list`.
//!
//! Ignore files do not count here: a caller that lists a directory wants all of its entries. However large the tree, only the
//! entries with the smallest paths are kept, and only those are looked at beyond their names.

use std::collections::BinaryHeap;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use rustix::fs::{AtFlags, FileType, statat};

use super::dir::{
    Dir, DirReader, MAX_WALK_DEPTH, MoreEntries, OpenedDir, is_on_kernel_fs, push_name,
};
use super::threads::{self, ThreadsEnd};
use super::{FileGlob, Hidden, WalkGuard, is_never_entered};
use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::read::mtime_ns;
use crate::sync::lock;

#[derive(Clone, Debug)]
pub struct ListOptions {
    /// Levels below the directory's own entries; 0 lists those alone.
    pub depth: usize,
    pub hidden: Hidden,
    /// Which entries are meant; with a glob, directories are searched but not listed.
    pub file_glob: Option<FileGlob>,
    /// The most entries to return.
    pub max_entries: usize,
    /// What the agent may not read: such directories are listed but not entered.
    pub guard: Option<WalkGuard>,
    /// What to find out about each entry.
    pub detail: ListDetail,
}

/// What is found out about an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListDetail {
    /// Its name and kind, which the directory itself tells.
    Name,
    /// Its size and time too, which takes a system call for each entry.
    #[default]
    Status,
}

/// The entries of a directory tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirListing {
    /// The entries with the smallest paths, in the order of their bytes.
    pub entries: Vec<ListEntry>,
    /// How many entries there are in all.
    pub total: u64,
    /// Hidden entries left out, a directory counting as one.
    pub hidden: u64,
    /// Directories that could not be opened or read.
    pub unreadable: u64,
    /// Whether everything was seen; if not, the [`CancelToken`] that was given says why.
    pub complete: bool,
}

/// One entry of a listing. Entries are ordered by their path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListEntry {
    /// The path relative to the listed directory.
    pub path: Vec<u8>,
    pub kind: FileKind,
    /// Its size in bytes; absent when not requested or when the entry vanished while being listed.
    pub size: Option<u64>,
    /// When it was last modified, in nanoseconds since 1970; absent like the size.
    pub mtime_ns: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    File,
    Dir,
    /// A symbolic link, whatever it points to.
    Symlink,
    /// A pipe, socket or device.
    Other,
}

impl FileKind {
    pub fn as_str(self) -> &'static str {
        match self {
            FileKind::File => "file",
            FileKind::Dir => "dir",
            FileKind::Symlink => "symlink",
            FileKind::Other => "other",
        }
    }
}

impl From<FileType> for FileKind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Dir,
            FileType::Symlink => FileKind::Symlink,
            _ => FileKind::Other,
        }
    }
}

/// Lists the directory `start`.
///
/// `.git` and `.llmc` are listed when hidden names are, but not entered; nor are the kernel's own file systems.
pub fn list(start: impl AsFd, options: &ListOptions, cancel: &CancelToken) -> Result<DirListing> {
    let start = Dir::start(start.as_fd(), Vec::new(), None)
        .map_err(|errno| Error::from_errno(".", errno))?;
    let state = Arc::new(Mutex::new(ListState::default()));
    lock(&state).listing.complete = true;
    let mut lister = Lister {
        options: options.clone(),
        cancel: cancel.clone(),
        state: Arc::clone(&state),
        reader: DirReader::new(),
        stack: Vec::new(),
    };
    // On a thread of its own, so that a file system that hangs cannot hold the caller beyond the deadline.
    let ended = threads::run(vec![move || lister.run(start)], cancel)?;
    let mut state = lock(&state);
    let mut listing = std::mem::take(&mut state.listing);
    // Taking them out of the heap in order would jump around in memory for every single one.
    listing.entries = std::mem::take(&mut state.smallest).into_vec();
    listing.entries.sort_unstable();
    if ended == ThreadsEnd::SomeStuck {
        listing.complete = false;
    }
    Ok(listing)
}

#[derive(Default)]
struct ListState {
    /// Everything but the entries.
    listing: DirListing,
    smallest: BinaryHeap<ListEntry>,
}

struct Lister {
    options: ListOptions,
    cancel: CancelToken,
    state: Arc<Mutex<ListState>>,
    reader: DirReader,
    stack: Vec<(Arc<Dir>, CString)>,
}

impl Lister {
    fn run(&mut self, start: Dir) {
        if start.fd().is_some_and(is_on_kernel_fs) {
            return;
        }
        self.read_dir(start, None);
        while let Some((parent, name)) = self.stack.pop() {
            if self.cancel.is_cancelled() {
                lock(&self.state).listing.complete = false;
                return;
            }
            match open(&parent, &name) {
                Ok(OpenedDir::Dir(dir, loose)) => self.read_dir(dir, loose),
                Ok(OpenedDir::Kernel) => {}
                Err(_) => lock(&self.state).listing.unreadable += 1,
            }
        }
    }

    fn read_dir(&mut self, dir: Dir, loose: Option<OwnedFd>) {
        let dir = Arc::new(dir);
        let Some(fd) = dir.fd().or(loose.as_ref().map(AsFd::as_fd)) else {
            return;
        };
        let first = self.stack.len();
        loop {
            let (more, result) = self.reader.next_batch(fd);
            if result.is_err() {
                lock(&self.state).listing.unreadable += 1;
            }
            self.add_names(&dir, fd);
            if more == MoreEntries::No {
                break;
            }
            if self.cancel.is_cancelled() {
                lock(&self.state).listing.complete = false;
                return;
            }
        }
        // The smallest path is visited first, so that most of what comes later can be dropped by its name alone.
        self.stack[first..].sort_unstable_by(|a, b| b.1.cmp(&a.1));
    }

    /// Counts the names just read, keeps the smallest and notes the directories to enter.
    fn add_names(&mut self, dir: &Arc<Dir>, fd: BorrowedFd<'_>) {
        let mut state = lock(&self.state);
        let ListState { listing, smallest } = &mut *state;
        let mut path = Vec::new();
        push_name(&mut path, &dir.path, c"");
        let stem = path.len();
        let mut fresh: Vec<(Vec<u8>, FileType)> = Vec::new();
        let max = self.options.max_entries;
        for (name, kind) in self.reader.names.iter().zip(&self.reader.kinds) {
            let is_dir = *kind == FileType::Directory;
            let is_hidden = name.to_bytes().starts_with(b".");
            path.truncate(stem);
            path.extend_from_slice(name.to_bytes());
            let meant = match &self.options.file_glob {
                Some(glob) => !is_dir && glob.matches(&path),
                None => true,
            };
            if is_hidden && self.options.hidden == Hidden::Skip {
                listing.hidden += u64::from(meant || is_dir);
                continue;
            }
            let guard = self.options.guard.as_ref();
            if is_dir
                && dir.depth < self.options.depth.min(MAX_WALK_DEPTH)
                && !is_never_entered(name)
                && !guard.is_some_and(|guard| guard.refuses_dir(&path))
            {
                self.stack.push((Arc::clone(dir), name.to_owned()));
            }
            if !meant {
                continue;
            }
            listing.total += 1;
            let full = smallest.len() >= max;
            if !full || smallest.peek().is_some_and(|largest| path < largest.path) {
                fresh.push((path.clone(), *kind));
            }
        }
        fresh.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        fresh.truncate(max);
        for (path, kind) in fresh {
            if smallest.len() >= max {
                match smallest.peek() {
                    Some(largest) if path < largest.path => drop(smallest.pop()),
                    _ => break,
                }
            }
            smallest.push(stat_entry(fd, path, kind, self.options.detail));
        }
    }
}

fn open(parent: &Arc<Dir>, name: &CStr) -> rustix::io::Result<OpenedDir> {
    match parent.fd() {
        Some(fd) => Dir::open(parent, fd, name),
        None => Dir::open(parent, parent.reopen()?.as_fd(), name),
    }
}

fn stat_entry(dir: BorrowedFd<'_>, path: Vec<u8>, kind: FileType, detail: ListDetail) -> ListEntry {
    let stat = match detail {
        ListDetail::Name => None,
        ListDetail::Status => statat(dir, super::file_name(&path), AtFlags::SYMLINK_NOFOLLOW).ok(),
    };
    ListEntry {
        kind: stat
            .map_or(kind, |stat| FileType::from_raw_mode(stat.st_mode))
            .into(),
        size: stat.map(|stat| u64::try_from(stat.st_size).unwrap_or(0)),
        mtime_ns: stat.as_ref().map(mtime_ns),
        path,
    }
}
