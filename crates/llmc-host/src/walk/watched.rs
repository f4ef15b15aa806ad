//! The files of a tree in memory, kept current by the kernel's events, so that a search need not walk.
//!
//! Every directory that a walk from the workspace would enter is listed once, after a watch was put on it. From then on an
//! event says which directories to list again: before each use the events that have arrived are read (`events`). So a use sees
//! every name that came or went before it. Which files an index knows as they are now is kept the same way (`known`): those
//! whose status was compared, and which no event has named since. What events do not show is looked for afterwards (`verify`).
//!
//! What cannot be followed makes the tree unusable until it is built anew, and searches walk meanwhile: lost events, changed
//! ignore files, mounts. Where directories cannot be watched there is no such tree. On file systems that other machines change
//! the tree reports what this machine changes, and searches always walk.

mod dirs;
mod events;
mod known;
mod listing;
mod second_names;
mod selection;
mod verify;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use llmc_trigrams::FileIdentity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags};
use rustix::fs::{AtFlags, Stat, fstat, statat};

use super::dir::{DirReader, MAX_WALK_DEPTH, NameBatch, open_dir};
use super::ignores::IgnoreCompiler;
use super::{EntryRules, Hidden, WalkGuard};
use crate::cancel::CancelToken;
use crate::mounts::mounts_below;
use crate::read::OpenDir;
use crate::roots::Roots;
use crate::sync::lock;

use self::dirs::DirTable;
pub(crate) use self::known::ComparedFile;
use self::known::KnownFiles;
use self::second_names::SecondNames;
pub(crate) use self::selection::TreePlace;
pub use self::verify::TreeVerification;

/// Changed directories above which the tree is built anew.
const MAX_DIRTY_DIRS: usize = 2000;
/// Changed files above which an index looks at all.
const MAX_CHANGED_FILES: usize = 20_000;
/// The files that a directory's ignore rules come from, relative to it.
const RULE_FILES: [&CStr; 3] = [c".ignore", c".gitignore", c".git/info/exclude"];

/// The files of a workspace, watched.
#[derive(Debug)]
pub struct WatchedTree {
    state: Mutex<TreeState>,
    inotify: Arc<OwnedFd>,
    /// Whether a search has passed over files by events alone since they were last verified.
    is_unverified: AtomicBool,
}

/// What changed since the last look, for an index.
#[derive(Debug, Default)]
pub struct TreeChanges {
    /// Files that were written, came or went, relative to the workspace.
    pub files: BTreeSet<Vec<u8>>,
    /// Files of which only the status changed.
    pub touched: BTreeSet<Vec<u8>>,
    /// Whether anything else changed: directories, ignore files, or more than was noted.
    pub needs_scan: bool,
}

struct TreeState {
    inotify: Arc<OwnedFd>,
    root: OwnedFd,
    workspace: PathBuf,
    entries: EntryRules,
    compiler: IgnoreCompiler,
    reader: Option<DirReader>,
    /// Of the workspace: files of other ones are never taken for known.
    device: u64,
    dirs: DirTable,
    files: KnownFiles,
    /// The paths of the watches.
    watches: HashMap<i32, Arc<[u8]>>,
    /// Directories to list again.
    dirty: BTreeSet<Arc<[u8]>>,
    second_names: SecondNames,
    rule_files: BTreeMap<Vec<u8>, RuleFile>,
    /// Reports changes of the mounts; the mount points in the workspace when it was built.
    mounts: File,
    mount_points: Vec<PathBuf>,
    devices: HashMap<u64, listing::FileSystemKind>,
    changes: TreeChanges,
    /// Whether something happened that only a new tree shows.
    is_lost: bool,
    /// Whether every change of a name is reported, so that a search may do without a walk.
    is_searchable: bool,
    /// Whether all directories were listed once.
    is_built: bool,
}

/// A file of ignore rules as it was when it was read.
#[derive(Debug)]
struct RuleFile {
    identity: Option<FileIdentity>,
    /// Whether every change of it has an event: it has no second name, and its directory is watched.
    is_reported: bool,
}

impl std::fmt::Debug for TreeState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TreeState")
            .field("dirs", &self.dirs.len())
            .field("is_lost", &self.is_lost)
            .field("is_searchable", &self.is_searchable)
            .finish_non_exhaustive()
    }
}

/// What a walk leaves out of a directory.
#[derive(Debug, Default)]
struct LeftOutEntries {
    hidden_files: NameBatch,
    ignored_files: NameBatch,
    hidden_dirs: u64,
    ignored_dirs: u64,
    /// Directories that cannot be opened and entries that cannot be looked at.
    unreadable: u64,
}

impl WatchedTree {
    /// Lists and watches the workspace; `None` where that is not possible, and when cancelled.
    pub fn build(roots: &Roots, dir: &OpenDir, cancel: &CancelToken) -> Option<WatchedTree> {
        let is_workspace =
            dir.path.root_path() == roots.workspace() && dir.path.below_root().is_empty();
        if !is_workspace {
            return None;
        }
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        let inotify = Arc::new(inotify);
        let workspace = roots.workspace().to_owned();
        #[expect(
            clippy::disallowed_methods,
            reason = "the kernel's own list, not a file of the workspace"
        )]
        let mounts = File::open("/proc/self/mountinfo").ok()?;
        let root = open_dir(dir.fd.as_fd(), c".").ok()?;
        let mut state = TreeState {
            inotify: Arc::clone(&inotify),
            device: fstat(&root).ok()?.st_dev,
            root,
            entries: EntryRules {
                hidden: Hidden::Skip,
                guard: Some(dir.guard(roots)),
                base: 0,
            },
            compiler: IgnoreCompiler::default(),
            reader: None,
            dirs: DirTable::default(),
            files: KnownFiles::default(),
            watches: HashMap::new(),
            dirty: BTreeSet::new(),
            second_names: SecondNames::default(),
            rule_files: BTreeMap::new(),
            mount_points: mounts_below(&workspace),
            mounts,
            workspace,
            devices: HashMap::new(),
            changes: TreeChanges::default(),
            is_lost: false,
            is_searchable: true,
            is_built: false,
        };
        state.exclude_mounted_files();
        state.add_tree(Vec::new(), None, cancel);
        state.is_built = true;
        (!state.is_lost && !cancel.is_cancelled()).then(|| WatchedTree {
            state: Mutex::new(state),
            inotify,
            is_unverified: AtomicBool::new(false),
        })
    }

    /// Waits for an event; whether one came.
    pub fn wait(&self, time: Duration) -> bool {
        let mut fds = [PollFd::new(&*self.inotify, PollFlags::IN)];
        let time = Timespec::try_from(time).unwrap_or(Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        });
        matches!(poll(&mut fds, Some(&time)), Ok(ready) if ready > 0)
    }

    /// Takes in what the kernel has reported, and returns what changed since the last call.
    pub fn take_changes(&self) -> TreeChanges {
        let mut state = lock(&self.state);
        state.read_events();
        state.list_dirty();
        std::mem::take(&mut state.changes)
    }

    /// Takes in what the kernel has reported, so that its queue does not overflow while no one asks.
    pub fn read_events(&self) {
        lock(&self.state).read_events();
    }

    /// Whether it has to be built anew.
    pub fn is_lost(&self) -> bool {
        lock(&self.state).is_lost
    }

    /// Whether a search may do without a walk.
    pub fn is_searchable(&self) -> bool {
        let state = lock(&self.state);
        state.is_searchable && !state.is_lost
    }
}

impl TreeState {
    /// Makes the tree current. Whether it can be used.
    fn refresh(&mut self) -> bool {
        self.read_events();
        if !self.is_lost && (self.has_other_mounts() || self.has_other_rule_files(Unreported::Only))
        {
            self.lose();
        }
        self.list_dirty();
        !self.is_lost
    }

    /// Lists the directories again in which names came or went.
    fn list_dirty(&mut self) {
        if self.dirty.len() > MAX_DIRTY_DIRS {
            self.lose();
        }
        while !self.is_lost
            && let Some(path) = self.dirty.pop_first()
        {
            self.list_again(&path);
        }
        self.look_for_second_names();
    }

    /// Gives up on the tree until it is built anew.
    fn lose(&mut self) {
        self.is_lost = true;
        self.changes.needs_scan = true;
    }

    /// Whether something was mounted in the workspace, or unmounted.
    fn has_other_mounts(&self) -> bool {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut fds = [PollFd::new(&self.mounts, PollFlags::PRI)];
        let changed = matches!(poll(&mut fds, Some(&now)), Ok(ready) if ready > 0);
        changed && mounts_below(&self.workspace) != self.mount_points
    }

    /// Whether a file of ignore rules has another status than when it was read.
    fn has_other_rule_files(&self, which: Unreported) -> bool {
        let files = self.rule_files.iter();
        let mut files =
            files.filter(|(_, file)| which == Unreported::AndOthers || !file.is_reported);
        files.any(|(path, file)| {
            self.stat(path).map(|stat| FileIdentity::of(&stat)) != file.identity
        })
    }

    fn stat(&self, path: &[u8]) -> Option<Stat> {
        statat(&self.root, path, AtFlags::SYMLINK_NOFOLLOW).ok()
    }

    /// Forgets a directory and what is in it.
    fn forget(&mut self, path: &[u8]) {
        let below = self.dirs.below(path);
        let gone: Vec<Arc<[u8]>> = below.map(|(_, dir)| Arc::clone(&dir.path)).collect();
        for path in gone {
            if let Some(dir) = self.dirs.remove(&path, &mut self.files)
                && self.watches.remove(&dir.watch).is_some()
            {
                let _ = inotify::remove_watch(&*self.inotify, dir.watch);
            }
            self.dirty.remove(&path);
            for name in RULE_FILES {
                self.rule_files.remove(&join(&path, name));
            }
        }
    }
}

/// Which files of ignore rules are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unreported {
    /// Those whose changes may have no event.
    Only,
    AndOthers,
}

/// The paths below a directory, itself not among them.
fn range_below(path: &[u8]) -> std::ops::Range<Vec<u8>> {
    if path.is_empty() {
        // Every path but the empty one.
        return vec![0]..vec![0xff; 2 * 4096];
    }
    let with = |byte: u8| {
        let mut end = path.to_vec();
        end.push(byte);
        end
    };
    with(b'/')..with(b'/' + 1)
}

/// The path of an entry.
fn join(dir: &[u8], name: &CStr) -> Vec<u8> {
    let mut path = Vec::with_capacity(dir.len() + 1 + name.count_bytes());
    super::dir::push_name(&mut path, dir, name);
    path
}

/// Whether a path is too deep for a walk from any start.
fn is_too_deep(path: &[u8]) -> bool {
    path.iter().filter(|byte| **byte == b'/').count() + 1 >= MAX_WALK_DEPTH
}

/// Whether a guard for a search applies the rules of the tree.
fn has_same_rules(tree: &EntryRules, asked: Option<&WalkGuard>) -> bool {
    match (&tree.guard, asked) {
        (Some(tree), Some(asked)) => tree.has_rules_of(asked),
        _ => false,
    }
}
