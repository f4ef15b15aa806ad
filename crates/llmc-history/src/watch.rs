//! Directories that changed since they were last looked at, as the kernel reports them.
//!
//! A command that changed nothing then costs one read of an empty queue instead of a walk. Events are hints where to look, never
//! the truth about what changed: when some were lost, or directories cannot be watched, the tree is walked.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use llmc_host::is_remote_file_system;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::snapshot::is_within;

/// Dirty paths above which a walk is cheaper.
const MAX_DIRTY_PATHS: usize = 20_000;

/// Where to look.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    /// Single entries.
    pub(crate) paths: BTreeSet<Vec<u8>>,
    /// Directories that came, went or were moved: everything in them.
    pub(crate) trees: BTreeSet<Vec<u8>>,
    /// The whole workspace.
    pub(crate) everything: bool,
}

impl Dirty {
    pub(crate) fn clear(&mut self) {
        *self = Dirty::default();
    }

    fn limit(&mut self) {
        if self.paths.len() + self.trees.len() > MAX_DIRTY_PATHS {
            self.clear();
            self.everything = true;
        }
    }
}

/// The watched directories of a workspace.
#[derive(Debug)]
pub(crate) struct Watch {
    fd: Arc<OwnedFd>,
    workspace: PathBuf,
    paths: HashMap<i32, Vec<u8>>,
    numbers: BTreeMap<Vec<u8>, i32>,
    /// Some directory could not be watched.
    is_partial: bool,
}

impl Watch {
    /// `None` where changes would go unnoticed.
    pub(crate) fn new(workspace: &Path) -> Option<Watch> {
        if is_remote_file_system(&rustix::fs::statfs(workspace).ok()?) {
            return None;
        }
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        let mut watch = Watch {
            fd: Arc::new(fd),
            workspace: workspace.to_owned(),
            paths: HashMap::new(),
            numbers: BTreeMap::new(),
            is_partial: false,
        };
        watch.add(b"");
        (!watch.is_partial).then_some(watch)
    }

    pub(crate) fn fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    pub(crate) fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// Watches a directory. To be called before its entries are read.
    pub(crate) fn add(&mut self, path: &[u8]) {
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::ONLYDIR
            | WatchFlags::DONT_FOLLOW
            | WatchFlags::EXCL_UNLINK;
        let absolute = self.workspace.join(OsStr::from_bytes(path));
        match inotify::add_watch(&*self.fd, &absolute, flags) {
            Ok(number) => {
                // The same directory under another name, which it was moved to.
                if let Some(old) = self.paths.insert(number, path.to_vec())
                    && old != path
                {
                    self.numbers.remove(&old);
                }
                if let Some(old) = self.numbers.insert(path.to_vec(), number)
                    && old != number
                {
                    self.paths.remove(&old);
                    let _ = inotify::remove_watch(&*self.fd, old);
                }
            }
            // Gone already, which an event of its parent tells; or not readable, by a walk neither.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => {}
            Err(errno) => {
                if !self.is_partial {
                    tracing::warn!(%errno, "folders cannot all be watched; history walks the workspace instead");
                }
                self.is_partial = true;
            }
        }
    }

    /// Adds what changed since the last call.
    pub(crate) fn drain(&mut self, dirty: &mut Dirty) {
        let mut buffer = [MaybeUninit::uninit(); 64 << 10];
        let fd = Arc::clone(&self.fd);
        let mut reader = inotify::Reader::new(&*fd, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event
                        .file_name()
                        .map_or(&[] as &[u8], |name| name.to_bytes());
                    self.note(event.wd(), event.events(), name, dirty);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    self.is_partial = true;
                    break;
                }
            }
        }
        dirty.limit();
    }

    fn note(&mut self, number: i32, flags: ReadFlags, name: &[u8], dirty: &mut Dirty) {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            dirty.everything = true;
            return;
        }
        if flags.contains(ReadFlags::IGNORED) {
            if let Some(path) = self.paths.remove(&number) {
                self.numbers.remove(&path);
                if path.is_empty() {
                    // The workspace itself was replaced.
                    self.is_partial = true;
                }
            }
            return;
        }
        let Some(dir) = self.paths.get(&number) else {
            return;
        };
        if name.is_empty() {
            dirty.paths.insert(dir.clone());
            return;
        }
        let mut path = dir.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        if name == b".git" || name.eq_ignore_ascii_case(llmc_host::STATE_DIR.as_bytes()) {
            // A repository that comes or goes decides which ignore files count.
            let moved =
                ReadFlags::CREATE | ReadFlags::DELETE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO;
            dirty.everything |= name == b".git" && flags.intersects(moved);
            return;
        }
        if matches!(name, b".gitignore" | b".ignore") {
            dirty.everything = true;
            return;
        }
        let is_dir = flags.contains(ReadFlags::ISDIR);
        if is_dir && !flags.contains(ReadFlags::ATTRIB) {
            if flags.intersects(ReadFlags::MOVED_FROM | ReadFlags::DELETE) {
                self.forget(&path);
            }
            dirty.trees.insert(path);
        } else {
            dirty.paths.insert(path);
        }
    }

    /// Ends the watches in a directory that is gone from its place.
    fn forget(&mut self, dir: &[u8]) {
        let gone: Vec<Vec<u8>> = self
            .numbers
            .range(dir.to_vec()..)
            .take_while(|(path, _)| path.starts_with(dir))
            .filter(|(path, _)| is_within(path, dir))
            .map(|(path, _)| path.clone())
            .collect();
        for path in gone {
            if let Some(number) = self.numbers.remove(&path) {
                self.paths.remove(&number);
                let _ = inotify::remove_watch(&*self.fd, number);
            }
        }
    }
}
