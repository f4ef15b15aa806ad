//! Walks over directory trees, by descriptor and in parallel.
//!
//! A walk starts from an open directory that the caller has checked and reaches everything below it through
//! descriptors, one name at a time. It never builds a path to open and never follows a symbolic link, so whatever is
//! moved around meanwhile, nothing outside the start is ever read. Only regular files are handed out; links, pipes,
//! sockets and devices are passed over without being counted, and the kernel's own file systems are not entered.
//!
//! Hidden entries are left out unless asked for, ignored ones always, and the insides of `.git` and `.llmc` too. What
//! was left out is counted in [`Skipped`]; a directory left out counts as one.
//!
//! Paths are bytes, relative to the start of the walk.

mod crew;
mod dir;
mod glob;
mod guard;
mod ignores;
mod list;
mod queue;

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FileType, Stat};
use serde::Serialize;

use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::names::shown;
use crate::rules::STATE_DIR;

pub(crate) use self::crew::{Ended, run};
pub(crate) use self::dir::is_kernel_file_system;
pub use self::glob::FileGlob;
pub(crate) use self::glob::file_name;
pub use self::guard::Guard;
pub use self::ignores::Ancestors;
pub use self::list::{Detail, Entry, EntryKind, ListOptions, Listing, list};

use self::dir::{Dir, MAX_DEPTH, More, Names, Opened, Reader, in_kernel, open_file, push_name};
use self::ignores::{Compiler, Kind, Present, Rules};
use self::queue::{Item, Queue};

/// What a walk left out, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Named by an ignore file, or never entered: `.git`, `.llmc`, `/proc` and its like.
    pub ignored: u64,
    /// Names that begin with a dot.
    pub hidden: u64,
    /// Files that are not text.
    pub binary: u64,
    /// Files above the size limit, or with a line above the line limit.
    pub too_large: u64,
    /// Files and directories that could not be opened or read, or vanished meanwhile.
    pub unreadable: u64,
}

impl Skipped {
    fn add(&mut self, other: &Skipped) {
        self.ignored += other.ignored;
        self.hidden += other.hidden;
        self.binary += other.binary;
        self.too_large += other.too_large;
        self.unreadable += other.unreadable;
    }
}

/// What to do about names that begin with a dot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hidden {
    /// Leave them out.
    #[default]
    Skip,
    /// Treat them like others; only `.git` and `.llmc` are still not entered.
    Include,
}

/// Where a walk goes.
#[derive(Clone, Debug)]
pub struct WalkOptions {
    /// Names that begin with a dot.
    pub hidden: Hidden,
    /// Which files are meant; others are passed over and not counted.
    pub file_glob: Option<FileGlob>,
    /// The ignore files above the start.
    pub ancestors: Ancestors,
    /// What the agent may not read; a match counts as ignored.
    pub guard: Option<Guard>,
    /// Threads to work with, at least one.
    pub threads: usize,
}

impl Default for WalkOptions {
    fn default() -> Self {
        Self {
            hidden: Hidden::Skip,
            file_glob: None,
            ancestors: Ancestors::none(),
            guard: None,
            threads: default_threads(),
        }
    }
}

/// The number of threads that a walk uses when nobody says otherwise: one per core, at most eight.
pub fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get().min(8))
}

/// What a walk came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walked {
    /// Files visited, but for those counted in `skipped`.
    pub files: u64,
    /// What was left out.
    pub skipped: Skipped,
    /// Whether everything was seen; if not, the [`CancelToken`] that was given says why.
    pub complete: bool,
}

impl Default for Walked {
    fn default() -> Self {
        Self {
            files: 0,
            skipped: Skipped::default(),
            complete: true,
        }
    }
}

/// Gets to see the files of a walk; each thread has its own.
pub trait Visitor: Send + 'static {
    /// Looks at one file.
    fn visit(&mut self, file: &Found<'_>) -> Visit;

    /// Hands over what has gathered: called now and then, and at the end.
    fn flush(&mut self) {}
}

/// What came of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// It was looked at.
    Done,
    /// It is not text.
    Binary,
    /// It is above a limit.
    TooLarge,
    /// It could not be opened or read.
    Unreadable,
    /// The time was up before it had been looked at.
    Stopped,
}

/// A file that a walk has come across.
#[derive(Debug)]
pub struct Found<'a> {
    path: &'a [u8],
    name: &'a CStr,
    dir: BorrowedFd<'a>,
    device: u64,
}

impl Found<'_> {
    /// Its path relative to the start of the walk.
    pub fn path(&self) -> &[u8] {
        self.path
    }

    /// Opens it for reading, if it still is a regular file.
    pub fn open(&self) -> Result<(OwnedFd, Stat)> {
        open_file(self.dir, self.name, self.device)
            .map_err(|errno| Error::of(&shown(self.path), errno))
    }
}

/// Shows every file below `start` to the visitors that `new_visitor` makes, one for each thread.
///
/// The order is not defined. On cancellation the walk returns at once, even if one of its threads is stuck.
pub fn walk<V: Visitor>(
    start: impl AsFd,
    options: &WalkOptions,
    cancel: &CancelToken,
    mut new_visitor: impl FnMut() -> V,
) -> Result<Walked> {
    let compiler = Compiler::default();
    let path = options.ancestors.start.clone();
    let base = if path.is_empty() { 0 } else { path.len() + 1 };
    let start = Dir::start(start.as_fd(), path, options.ancestors.rules(&compiler))
        .map_err(|errno| Error::of(&shown(&options.ancestors.start), errno))?;
    if start.fd().is_some_and(in_kernel) {
        let mut walked = Walked::default();
        walked.skipped.ignored = 1;
        return Ok(walked);
    }
    let shared = Arc::new(Shared {
        queue: Queue::default(),
        hidden: options.hidden,
        file_glob: options.file_glob.clone(),
        guard: options.guard.clone(),
        base,
        compiler,
        cancel: cancel.clone(),
        total: Mutex::default(),
    });
    shared.queue.push(std::iter::once(Item::Start(start)));
    let jobs = (0..options.threads.max(1))
        .map(|_| {
            let mut worker = Worker {
                shared: Arc::clone(&shared),
                visitor: new_visitor(),
                reader: Reader::new(),
                path: Vec::new(),
                files: Names::default(),
                dirs: Vec::new(),
                tally: Walked::default(),
                last: None,
            };
            move || worker.work()
        })
        .collect();
    let ended = crew::run(jobs, cancel)?;
    let mut walked = *shared.total.lock().unwrap_or_else(PoisonError::into_inner);
    if ended == Ended::LeftBehind {
        walked.complete = false;
    }
    Ok(walked)
}

/// What the threads of a walk have in common.
struct Shared {
    queue: Queue,
    hidden: Hidden,
    file_glob: Option<FileGlob>,
    guard: Option<Guard>,
    /// Bytes of an internal path, which begins at the workspace root, that lie before the start of the walk.
    base: usize,
    compiler: Compiler,
    cancel: CancelToken,
    total: Mutex<Walked>,
}

/// Files left in a directory that are worth giving some away to a thread without work.
const WORTH_SHARING: usize = 2;

struct Worker<V> {
    shared: Arc<Shared>,
    visitor: V,
    reader: Reader,
    // Kept from one directory to the next to save the allocations.
    path: Vec<u8>,
    files: Names,
    dirs: Vec<CString>,
    tally: Walked,
    /// The directory read last, when its descriptor is not kept inside: often the next one is its child.
    last: Option<(Arc<Dir>, OwnedFd)>,
}

impl<V: Visitor> Worker<V> {
    fn work(&mut self) {
        let shared = Arc::clone(&self.shared);
        // Others must not wait for a thread that has panicked.
        let _guard = CloseOnPanic(&shared.queue);
        let mut next = shared.queue.first();
        while let Some(item) = next {
            if shared.cancel.is_cancelled() {
                self.tally.complete = false;
                self.flush();
                shared.queue.close();
                return;
            }
            match item {
                Item::Start(dir) => self.read_dir(dir, None),
                Item::Dir { parent, name } => self.enter(&parent, &name),
                Item::Files { dir, mut names } => self.with_fd(&dir, |worker, fd| {
                    worker.visit_files(&dir, fd, &mut names);
                }),
            }
            self.flush();
            next = shared.queue.next();
        }
    }

    fn flush(&mut self) {
        self.visitor.flush();
        let tally = std::mem::take(&mut self.tally);
        let mut total = self
            .shared
            .total
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        total.files += tally.files;
        total.skipped.add(&tally.skipped);
        total.complete &= tally.complete;
    }

    /// Runs `action` with a descriptor of `dir`, opening it again if need be.
    fn with_fd(&mut self, dir: &Arc<Dir>, action: impl FnOnce(&mut Self, BorrowedFd<'_>)) {
        if let Some(fd) = dir.fd() {
            return action(self, fd);
        }
        if let Some((last, fd)) = self.last.take_if(|(last, _)| Arc::ptr_eq(last, dir)) {
            action(self, fd.as_fd());
            self.last.get_or_insert((last, fd));
            return;
        }
        match dir.reopen() {
            Ok(fd) => action(self, fd.as_fd()),
            Err(_) => self.tally.skipped.unreadable += 1,
        }
    }

    fn enter(&mut self, parent: &Arc<Dir>, name: &CStr) {
        self.with_fd(parent, |worker, fd| match Dir::open(parent, fd, name) {
            Ok(Opened::Dir(dir, loose)) => worker.read_dir(dir, loose),
            Ok(Opened::Kernel) => worker.tally.skipped.ignored += 1,
            Err(_) => worker.tally.skipped.unreadable += 1,
        });
    }

    fn read_dir(&mut self, mut dir: Dir, loose: Option<OwnedFd>) {
        let fd = match dir.fd().or(loose.as_ref().map(AsFd::as_fd)) {
            Some(fd) => fd,
            None => return,
        };
        let (mut more, mut result) = self.reader.next_batch(fd);
        let rules = Rules::inside(
            dir.rules.as_ref(),
            fd,
            dir.device,
            &dir.path,
            &self.ignore_files(more),
            &self.shared.compiler,
        );
        dir.rules = rules;
        let dir = Arc::new(dir);
        let Some(fd) = dir.fd().or(loose.as_ref().map(AsFd::as_fd)) else {
            return;
        };
        loop {
            if result.is_err() {
                self.tally.skipped.unreadable += 1;
            }
            self.sort_out(&dir);
            self.share_dirs(&dir);
            let mut files = std::mem::take(&mut self.files);
            self.visit_files(&dir, fd, &mut files);
            self.files = files;
            if more == More::No || self.shared.cancel.is_cancelled() {
                break;
            }
            (more, result) = self.reader.next_batch(fd);
        }
        self.last = loose.map(|fd| (dir, fd));
    }

    /// The ignore files among the names just read.
    fn ignore_files(&self, more: More) -> Present {
        if more == More::Yes {
            return Present::Unknown;
        }
        let has = |wanted: &CStr| self.reader.names.iter().any(|name| name == wanted);
        Present::Known {
            dot_ignore: has(c".ignore"),
            git_ignore: has(c".gitignore"),
            git: has(c".git"),
        }
    }

    /// Puts the names just read into `files` and `dirs`, the first directory by name last.
    fn sort_out(&mut self, dir: &Dir) {
        self.files.clear();
        let skipped = &mut self.tally.skipped;
        let path = &mut self.path;
        path.clear();
        push_name(path, &dir.path, c"");
        let stem = path.len();
        for (name, kind) in self.reader.names.iter().zip(&self.reader.kinds) {
            let is_dir = match kind {
                FileType::RegularFile => false,
                FileType::Directory => true,
                FileType::Unknown => {
                    skipped.unreadable += 1;
                    continue;
                }
                _ => continue,
            };
            path.truncate(stem);
            path.extend_from_slice(name.to_bytes());
            if !is_dir
                && let Some(glob) = &self.shared.file_glob
                && !glob.matches(&path[self.shared.base..])
            {
                continue;
            }
            if name.to_bytes().starts_with(b".") {
                if self.shared.hidden == Hidden::Skip {
                    skipped.hidden += 1;
                    continue;
                }
                if is_dir && is_private(name) {
                    skipped.ignored += 1;
                    continue;
                }
            }
            if let Some(guard) = &self.shared.guard {
                let refused = match is_dir {
                    true => guard.refuses_dir(&path[self.shared.base..]),
                    false => guard.refuses_file(name.to_bytes()),
                };
                if refused {
                    skipped.ignored += 1;
                    continue;
                }
            }
            let kind = if is_dir { Kind::Dir } else { Kind::File };
            if dir
                .rules
                .as_ref()
                .is_some_and(|rules| rules.ignore(path, kind))
            {
                skipped.ignored += 1;
            } else if !is_dir {
                self.files.push(name);
            } else if dir.depth >= MAX_DEPTH {
                skipped.unreadable += 1;
            } else {
                self.dirs.push(name.to_owned());
            }
        }
        // Small paths first lets those who keep only the smallest find out early what they can drop.
        self.dirs.sort_unstable_by(|a, b| b.cmp(a));
    }

    fn share_dirs(&mut self, dir: &Arc<Dir>) {
        if !self.dirs.is_empty() {
            self.shared
                .queue
                .push(self.dirs.drain(..).map(|name| Item::Dir {
                    parent: Arc::clone(dir),
                    name,
                }));
        }
    }

    fn visit_files(&mut self, dir: &Arc<Dir>, fd: BorrowedFd<'_>, names: &mut Names) {
        let mut path = std::mem::take(&mut self.path);
        path.clear();
        push_name(&mut path, &dir.path, c"");
        let stem = path.len();
        let mut index = 0;
        while index < names.len() {
            if self.shared.cancel.is_cancelled() {
                self.tally.complete = false;
                break;
            }
            let left = names.len() - index;
            if left >= WORTH_SHARING && self.shared.queue.is_short() {
                let item = Item::Files {
                    dir: Arc::clone(dir),
                    names: names.split_off(index + left / 2),
                };
                self.shared.queue.push(std::iter::once(item));
            }
            let name = names.get(index);
            path.truncate(stem);
            path.extend_from_slice(name.to_bytes());
            let visit = self.visitor.visit(&Found {
                path: &path[self.shared.base..],
                name,
                dir: fd,
                device: dir.device,
            });
            match visit {
                Visit::Done => self.tally.files += 1,
                Visit::Binary => self.tally.skipped.binary += 1,
                Visit::TooLarge => self.tally.skipped.too_large += 1,
                Visit::Unreadable => self.tally.skipped.unreadable += 1,
                Visit::Stopped => self.tally.complete = false,
            }
            index += 1;
        }
        self.path = path;
    }
}

/// Whether a directory is never entered: a repository's store, or this program's own.
fn is_private(name: &CStr) -> bool {
    let name = name.to_bytes();
    name == b".git" || name.eq_ignore_ascii_case(STATE_DIR.as_bytes())
}

struct CloseOnPanic<'a>(&'a Queue);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close();
        }
    }
}
