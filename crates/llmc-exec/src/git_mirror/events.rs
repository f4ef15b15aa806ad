//! Which mirrors have changed, by the kernel's events for their directories.

use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

const BUFFER_BYTES: usize = 16 << 10;

/// Watches the directories of all mirrors of a server. A mirror is known by its own directory.
#[derive(Debug)]
pub(super) struct Events {
    /// Nothing where directories cannot be watched: every mirror counts as changed then.
    inotify: Option<OwnedFd>,
    by_watch: HashMap<i32, PathBuf>,
    dirty: HashSet<PathBuf>,
    /// Mirrors whose directories are all watched.
    watched: HashSet<PathBuf>,
}

impl Events {
    pub(super) fn new() -> Events {
        Events {
            inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok(),
            by_watch: HashMap::new(),
            dirty: HashSet::new(),
            watched: HashSet::new(),
        }
    }

    /// Whether all directories of a mirror are watched, as far as they were known when it was last read.
    pub(super) fn is_watched(&self, mirror: &Path) -> bool {
        self.watched.contains(mirror)
    }

    /// Takes a mirror for changed: something may have happened in it before it was watched.
    pub(super) fn mark_dirty(&mut self, mirror: &Path) {
        self.dirty.insert(mirror.to_owned());
    }

    pub(super) fn descriptor(&self) -> Option<OwnedFd> {
        let inotify = self.inotify.as_ref()?;
        inotify.as_fd().try_clone_to_owned().ok()
    }

    /// Watches the directories of a mirror, before they are read. Those that are watched already stay so.
    pub(super) fn watch(&mut self, mirror: &Path, dirs: &[PathBuf]) {
        let Some(inotify) = &self.inotify else {
            return;
        };
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::ONLYDIR
            | WatchFlags::DONT_FOLLOW;
        for dir in dirs {
            match inotify::add_watch(inotify, dir, flags) {
                Ok(number) => {
                    self.by_watch.insert(number, mirror.to_owned());
                }
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(_) => {
                    self.watched.remove(mirror);
                    return;
                }
            }
        }
        self.watched.insert(mirror.to_owned());
    }

    /// Takes note of what has happened.
    pub(super) fn read(&mut self) {
        let Some(inotify) = &self.inotify else {
            return;
        };
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(inotify, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                        self.watched.clear();
                    }
                    if let Some(mirror) = self.by_watch.get(&event.wd()) {
                        self.dirty.insert(mirror.clone());
                    }
                    // Deleted: another directory of that name may be there already.
                    if event.events().contains(ReadFlags::IGNORED)
                        && let Some(mirror) = self.by_watch.remove(&event.wd())
                    {
                        self.watched.remove(&mirror);
                    }
                }
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Whether a mirror may have changed since this was last asked.
    pub(super) fn take_dirty(&mut self, mirror: &Path) -> bool {
        let is_dirty = self.dirty.remove(mirror);
        is_dirty || !self.watched.contains(mirror)
    }
}
