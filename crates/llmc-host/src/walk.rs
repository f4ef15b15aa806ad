//! Walks over directory trees, by descriptor and in parallel.
//!
//! A walk starts from an open directory that the caller has checked and reaches everything below it through
//! descriptors, one name at a time. It never builds a path to open and never follows a symbolic link, so whatever is
//! renamed meanwhile, nothing outside the start is read. Only regular files are handed out, and links when they are asked
//! for; pipes, sockets and devices are passed over without being counted, and the kernel's own file systems are not entered.
//!
//! Hidden entries are left out unless requested, ignored ones always, and the insides of `.git` and `.llmc` too. What
//! was left out is counted in [`SkippedCounts`]; a directory left out counts as one.
//!
//! Paths are bytes, relative to the start of the walk.

mod dir;
mod glob;
mod guard;
mod ignores;
mod list;
mod queue;
mod threads;
mod watched;

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use rustix::fs::{AtFlags, FileType, Stat, statat};
use serde::Serialize;

use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::names::escape;
use crate::rules::STATE_DIR;
use crate::sync::lock;

pub(crate) use self::dir::is_kernel_file_system;
pub use self::glob::FileGlob;
pub(crate) use self::glob::file_name;
pub use self::guard::WalkGuard;
pub use self::ignores::{AncestorIgnores, IgnoreLookup};
pub use self::list::{DirListing, FileKind, ListDetail, ListEntry, ListOptions, list};
pub(crate) use self::threads::{ThreadsEnd, run};
pub(crate) use self::watched::{ComparedFile, TreePlace};
pub use self::watched::{TreeChanges, TreeVerification, WatchedTree};

use self::dir::{
    Dir, DirReader, MAX_WALK_DEPTH, MoreEntries, NameBatch, OpenedDir, is_on_kernel_fs, open_file,
    push_name,
};
use self::ignores::{IgnoreCompiler, IgnoreFilesPresent, IgnoreRules, IgnoreTarget};
use self::queue::{WorkItem, WorkQueue};

/// What a walk left out, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SkippedCounts {
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

impl SkippedCounts {
    fn add(&mut self, other: &SkippedCounts) {
        self.ignored += other.ignored;
        self.hidden += other.hidden;
        self.binary += other.binary;
        self.too_large += other.too_large;
        self.unreadable += other.unreadable;
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hidden {
    /// Leave them out.
    #[default]
    Skip,
    /// Treat them like others; only `.git` and `.llmc` are still not entered.
    Include,
}

/// Whether symbolic links are visited, as entries of their own: none is followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VisitLinks {
    #[default]
    No,
    Yes,
}

#[derive(Clone, Debug)]
pub struct WalkOptions {
    pub hidden: Hidden,
    pub links: VisitLinks,
    /// Which files are meant; others are passed over and not counted.
    pub file_glob: Option<FileGlob>,
    /// The ignore files above the start.
    pub ancestors: AncestorIgnores,
    /// What the agent may not read; a match counts as ignored.
    pub guard: Option<WalkGuard>,
    /// Threads to work with, at least one.
    pub threads: usize,
}

impl Default for WalkOptions {
    fn default() -> Self {
        Self {
            hidden: Hidden::Skip,
            links: VisitLinks::No,
            file_glob: None,
            ancestors: AncestorIgnores::none(),
            guard: None,
            threads: default_threads(),
        }
    }
}

/// One thread per core, at most eight.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get().min(8))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkStats {
    /// Files visited, but for those counted in `skipped`.
    pub files: u64,
    pub skipped: SkippedCounts,
    /// Whether everything was seen; if not, the [`CancelToken`] that was given says why.
    pub complete: bool,
}

impl Default for WalkStats {
    fn default() -> Self {
        Self {
            files: 0,
            skipped: SkippedCounts::default(),
            complete: true,
        }
    }
}

impl WalkStats {
    fn count(&mut self, visit: VisitOutcome) {
        match visit {
            VisitOutcome::Done => self.files += 1,
            VisitOutcome::Binary => self.skipped.binary += 1,
            VisitOutcome::TooLarge => self.skipped.too_large += 1,
            VisitOutcome::Unreadable => self.skipped.unreadable += 1,
            VisitOutcome::Stopped => self.complete = false,
        }
    }
}

/// Receives the files of a walk; each thread has its own visitor.
pub trait FileVisitor: Send + 'static {
    fn visit(&mut self, file: &WalkFile<'_>) -> VisitOutcome;

    /// A directory below the start, before its entries are read.
    fn visit_dir(&mut self, _path: &[u8], _dir: BorrowedFd<'_>) {}

    /// Passes on buffered results; called now and then, and at the end.
    fn flush(&mut self) {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VisitOutcome {
    Done,
    Binary,
    TooLarge,
    Unreadable,
    /// The file was not read, and the walk ends as incomplete.
    Stopped,
}

#[derive(Debug)]
pub struct WalkFile<'a> {
    path: &'a [u8],
    /// Bytes of the path that lie before the start of the walk.
    base: usize,
    name: &'a CStr,
    dir: BorrowedFd<'a>,
    device: u64,
    /// Where it is in a visit of a watched tree.
    place: Option<TreePlace>,
    /// Whether it is known to be as an index has it.
    is_compared: bool,
}

impl WalkFile<'_> {
    /// Its path relative to the start of the walk.
    pub fn path(&self) -> &[u8] {
        &self.path[self.base..]
    }

    /// Its path relative to the root that the walk starts in.
    pub fn path_from_root(&self) -> &[u8] {
        self.path
    }

    pub(crate) fn place(&self) -> Option<TreePlace> {
        self.place
    }

    /// Whether it is known to be as an index has it, so that its status need not be compared.
    pub(crate) fn is_compared(&self) -> bool {
        self.is_compared
    }

    /// Its status; a link is not followed.
    pub fn lstat(&self) -> Result<Stat> {
        statat(self.dir, self.name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| Error::from_errno(&escape(self.path()), errno))
    }

    /// Opens it for reading, if it still is a regular file.
    pub fn open(&self) -> Result<(OwnedFd, Stat)> {
        open_file(self.dir, self.name, self.device)
            .map_err(|errno| Error::from_errno(&escape(self.path()), errno))
    }
}

/// Passes every file below `start` to the visitors that `new_visitor` makes, one for each thread.
///
/// The order is not defined. On cancellation the walk returns at once, even if one of its threads is stuck.
pub fn walk<V: FileVisitor>(
    start: impl AsFd,
    options: &WalkOptions,
    cancel: &CancelToken,
    mut new_visitor: impl FnMut() -> V,
) -> Result<WalkStats> {
    let compiler = IgnoreCompiler::default();
    let path = options.ancestors.start.clone();
    let base = if path.is_empty() { 0 } else { path.len() + 1 };
    let start = Dir::start(start.as_fd(), path, options.ancestors.rules(&compiler))
        .map_err(|errno| Error::from_errno(&escape(&options.ancestors.start), errno))?;
    if start.fd().is_some_and(is_on_kernel_fs) {
        let mut walked = WalkStats::default();
        walked.skipped.ignored = 1;
        return Ok(walked);
    }
    let shared = Arc::new(WalkShared {
        queue: WorkQueue::default(),
        entries: EntryRules {
            hidden: options.hidden,
            guard: options.guard.clone(),
            base,
        },
        links: options.links,
        file_glob: options.file_glob.clone(),
        base,
        compiler,
        cancel: cancel.clone(),
        total: Mutex::default(),
    });
    shared.queue.push(std::iter::once(WorkItem::Start(start)));
    let jobs = (0..options.threads.max(1))
        .map(|_| {
            let mut worker = WalkWorker {
                shared: Arc::clone(&shared),
                visitor: new_visitor(),
                reader: DirReader::new(),
                path: Vec::new(),
                files: NameBatch::default(),
                dirs: Vec::new(),
                tally: WalkStats::default(),
                has_stopped: false,
                last: None,
            };
            move || worker.work()
        })
        .collect();
    let ended = threads::run(jobs, cancel)?;
    let mut walked = *lock(&shared.total);
    if ended == ThreadsEnd::SomeStuck {
        walked.complete = false;
    }
    Ok(walked)
}

struct WalkShared {
    queue: WorkQueue,
    entries: EntryRules,
    links: VisitLinks,
    file_glob: Option<FileGlob>,
    /// Bytes of an internal path, which begins at the workspace root, that lie before the start of the walk.
    base: usize,
    compiler: IgnoreCompiler,
    cancel: CancelToken,
    total: Mutex<WalkStats>,
}

/// Remaining files of a directory from which half is given to an idle thread.
const MIN_FILES_TO_SHARE: usize = 2;

struct WalkWorker<V> {
    shared: Arc<WalkShared>,
    visitor: V,
    reader: DirReader,
    // Kept from one directory to the next to save the allocations.
    path: Vec<u8>,
    files: NameBatch,
    dirs: Vec<CString>,
    tally: WalkStats,
    /// Whether the visitor has ended the walk.
    has_stopped: bool,
    /// The directory read last, when its descriptor is not kept inside: often the next one is its child.
    last: Option<(Arc<Dir>, OwnedFd)>,
}

impl<V: FileVisitor> WalkWorker<V> {
    fn work(&mut self) {
        let shared = Arc::clone(&self.shared);
        // The other threads must not wait for one that has panicked.
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
                WorkItem::Start(dir) => self.read_dir(dir, None),
                WorkItem::Dir { parent, name } => self.enter(&parent, &name),
                WorkItem::Files { dir, mut names } => self.with_fd(&dir, |worker, fd| {
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
        let mut total = lock(&self.shared.total);
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
            Ok(OpenedDir::Dir(dir, loose)) => {
                if let Some(fd) = dir.fd().or(loose.as_ref().map(AsFd::as_fd)) {
                    let path = &dir.path[worker.shared.base..];
                    worker.visitor.visit_dir(path, fd);
                }
                worker.read_dir(dir, loose);
            }
            Ok(OpenedDir::Kernel) => worker.tally.skipped.ignored += 1,
            Err(_) => worker.tally.skipped.unreadable += 1,
        });
    }

    fn read_dir(&mut self, mut dir: Dir, loose: Option<OwnedFd>) {
        let fd = match dir.fd().or(loose.as_ref().map(AsFd::as_fd)) {
            Some(fd) => fd,
            None => return,
        };
        let (mut more, mut result) = self.reader.next_batch(fd);
        let rules = IgnoreRules::inside(
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
            self.classify_names(&dir);
            self.share_dirs(&dir);
            let mut files = std::mem::take(&mut self.files);
            self.visit_files(&dir, fd, &mut files);
            self.files = files;
            if more == MoreEntries::No || self.has_stopped || self.shared.cancel.is_cancelled() {
                break;
            }
            (more, result) = self.reader.next_batch(fd);
        }
        self.last = loose.map(|fd| (dir, fd));
    }

    /// The ignore files among the names just read.
    fn ignore_files(&self, more: MoreEntries) -> IgnoreFilesPresent {
        if more == MoreEntries::Yes {
            return IgnoreFilesPresent::Unknown;
        }
        let has = |wanted: &CStr| self.reader.names.iter().any(|name| name == wanted);
        IgnoreFilesPresent::Known {
            dot_ignore: has(c".ignore"),
            git_ignore: has(c".gitignore"),
            git: has(c".git"),
        }
    }

    /// Puts the names just read into `files` and `dirs`, the first directory by name last.
    fn classify_names(&mut self, dir: &Dir) {
        self.files.clear();
        let skipped = &mut self.tally.skipped;
        let path = &mut self.path;
        path.clear();
        push_name(path, &dir.path, c"");
        let stem = path.len();
        for (name, kind) in self.reader.names.iter().zip(&self.reader.kinds) {
            let is_dir = match kind {
                FileType::RegularFile => false,
                FileType::Symlink if self.shared.links == VisitLinks::Yes => false,
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
            let rules = dir.rules.as_deref();
            match self.shared.entries.class(path, name, is_dir, rules) {
                EntryClass::Hidden => skipped.hidden += 1,
                EntryClass::Ignored => skipped.ignored += 1,
                EntryClass::Visited if !is_dir => self.files.push(name),
                EntryClass::Visited if dir.depth >= MAX_WALK_DEPTH => skipped.unreadable += 1,
                EntryClass::Visited => self.dirs.push(name.to_owned()),
            }
        }
        // Smallest paths first: visitors that keep only the smallest can then drop later ones early.
        self.dirs.sort_unstable_by(|a, b| b.cmp(a));
    }

    fn share_dirs(&mut self, dir: &Arc<Dir>) {
        if !self.dirs.is_empty() {
            self.shared
                .queue
                .push(self.dirs.drain(..).map(|name| WorkItem::Dir {
                    parent: Arc::clone(dir),
                    name,
                }));
        }
    }

    fn visit_files(&mut self, dir: &Arc<Dir>, fd: BorrowedFd<'_>, names: &mut NameBatch) {
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
            if left >= MIN_FILES_TO_SHARE && self.shared.queue.is_short() {
                let item = WorkItem::Files {
                    dir: Arc::clone(dir),
                    names: names.split_off(index + left / 2),
                };
                self.shared.queue.push(std::iter::once(item));
            }
            let name = names.get(index);
            path.truncate(stem);
            path.extend_from_slice(name.to_bytes());
            let visit = self.visitor.visit(&WalkFile {
                path: &path,
                base: self.shared.base,
                name,
                dir: fd,
                device: dir.device,
                place: None,
                is_compared: false,
            });
            self.tally.count(visit);
            if visit == VisitOutcome::Stopped {
                self.has_stopped = true;
                self.shared.queue.close();
                break;
            }
            index += 1;
        }
        self.path = path;
    }
}

/// What a walk makes of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryClass {
    Visited,
    Hidden,
    Ignored,
}

/// The rules of a walk on single names, but for a glob.
#[derive(Debug)]
struct EntryRules {
    hidden: Hidden,
    guard: Option<WalkGuard>,
    /// Bytes of a path that lie before the start of the walk.
    base: usize,
}

impl EntryRules {
    /// The class of the entry `name` at `path`, relative to the root, in a directory with these ignore rules.
    fn class(
        &self,
        path: &[u8],
        name: &CStr,
        is_dir: bool,
        ignores: Option<&IgnoreRules>,
    ) -> EntryClass {
        if name.to_bytes().starts_with(b".") {
            if self.hidden == Hidden::Skip {
                return EntryClass::Hidden;
            }
            if is_dir && is_never_entered(name) {
                return EntryClass::Ignored;
            }
        }
        if let Some(guard) = &self.guard {
            let is_refused = if is_dir {
                guard.refuses_dir(&path[self.base..])
            } else {
                guard.refuses_file(name.to_bytes())
            };
            if is_refused {
                return EntryClass::Ignored;
            }
        }
        let target = if is_dir {
            IgnoreTarget::Dir
        } else {
            IgnoreTarget::File
        };
        match ignores {
            Some(ignores) if ignores.ignore(path, target) => EntryClass::Ignored,
            _ => EntryClass::Visited,
        }
    }
}

/// Whether a directory is never entered: a repository's store, or this program's state directory.
fn is_never_entered(name: &CStr) -> bool {
    let name = name.to_bytes();
    name == b".git" || name.eq_ignore_ascii_case(STATE_DIR.as_bytes())
}

struct CloseOnPanic<'a>(&'a WorkQueue);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close();
        }
    }
}
