//! Tells which directories have changed, with inotify.

use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use llmc_host::{GitDirParts, is_protected_name};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

/// One event is at most 272 bytes long.
const BUFFER_BYTES: usize = 32 << 10;

/// Watches directories for names that come and go in them.
#[derive(Debug)]
pub(super) struct DirWatch {
    inotify: OwnedFd,
}

/// A change that matters here: of a directory, of a protected name, or of a part of a git directory.
#[derive(Debug)]
pub(super) struct DirEvent {
    /// The number of the directory in which it happened.
    pub(super) watch: i32,
    /// The directory there that came, went or was replaced.
    pub(super) dir: Option<OsString>,
    /// Whether the watched directory itself is gone, and its number with it.
    pub(super) is_gone: bool,
}

/// What became of the wish to watch a directory.
#[derive(Debug)]
pub(super) enum Watched {
    Number(i32),
    /// It is not this user's to watch.
    Refused,
    NoDirectory,
    /// The user has no more watches.
    TooMany,
}

impl DirWatch {
    pub(super) fn new() -> std::io::Result<DirWatch> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(DirWatch { inotify })
    }

    pub(super) fn add(&self, dir: &Path) -> Watched {
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::ONLYDIR
            | WatchFlags::DONT_FOLLOW
            | WatchFlags::EXCL_UNLINK;
        match inotify::add_watch(&self.inotify, dir, flags) {
            Ok(number) => Watched::Number(number),
            Err(Errno::ACCESS | Errno::PERM) => Watched::Refused,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG) => {
                Watched::NoDirectory
            }
            Err(_) => Watched::TooMany,
        }
    }

    pub(super) fn remove(&self, number: i32) {
        // The kernel has removed it already if the directory is gone.
        let _ = inotify::remove_watch(&self.inotify, number);
    }

    /// What has happened since the last call, or nothing if some of it was lost.
    pub(super) fn events(&mut self) -> Option<Vec<DirEvent>> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut events = Vec::new();
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Some(events),
                Err(Errno::INTR) => continue,
                Err(_) => return None,
            };
            let flags = event.events();
            if flags.intersects(ReadFlags::QUEUE_OVERFLOW | ReadFlags::UNMOUNT) {
                return None;
            }
            let name = event
                .file_name()
                .map(|name| OsStr::from_bytes(name.to_bytes()));
            let is_gone = flags.contains(ReadFlags::IGNORED);
            let is_dir = flags.contains(ReadFlags::ISDIR);
            let name_counts = name.is_some_and(|name| {
                let name = name.as_bytes();
                is_protected_name(name) || GitDirParts::default().add(name)
            });
            if is_gone || is_dir || name_counts {
                events.push(DirEvent {
                    watch: event.wd(),
                    dir: name.filter(|_| is_dir).map(OsStr::to_owned),
                    is_gone,
                });
            }
        }
    }
}
