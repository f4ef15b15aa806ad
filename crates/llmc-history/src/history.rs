//! The history of one workspace.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use llmc_host::{Access, RootedPath, Workspace, lock};
use llmc_store::Database;
use serde::Serialize;

use crate::compare::{Compared, Comparer, Finding, SharedSnapshot};
use crate::entry::{
    ChangeAuthor, Entry, EntryDetail, EntryFilter, EntryId, HistoryViewer, ObjectId, PastState,
    PathState,
};
use crate::error::{Error, Result};
use crate::recording::{Recording, RecordingScope};
use crate::snapshot::now_ns;
use crate::store::HistoryRows;
use crate::store::postgres::PostgresHistory;
use crate::store::sqlite::SqliteHistory;
use crate::undo::{UndoReport, UndoRequest};
use crate::watch::{Dirty, Watch};

/// Limits of a history.
#[derive(Debug, Clone)]
pub struct HistorySettings {
    /// Size of the store on disk; the oldest entries go first.
    pub max_bytes: u64,
    /// Days after which an entry goes.
    pub keep_days: u32,
    /// Files above this size are not kept.
    pub max_file_bytes: u64,
    /// Files of a workspace; above, only changes of file tools are recorded.
    pub max_files: usize,
}

impl HistorySettings {
    /// What the first snapshot may fill, so that entries have room.
    pub(crate) fn max_first_snapshot_bytes(&self) -> u64 {
        self.max_bytes / 2
    }
}

impl Default for HistorySettings {
    fn default() -> HistorySettings {
        HistorySettings {
            max_bytes: 1 << 30,
            keep_days: 30,
            max_file_bytes: 64 << 20,
            max_files: 500_000,
        }
    }
}

/// Whether commands can be undone yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum HistoryState {
    /// The first snapshot is being taken; so far `done` files.
    Building {
        done: u64,
    },
    Ready {
        files: u64,
    },
    /// Only changes of file tools are recorded, or none.
    Off {
        why: String,
    },
}

/// What a check of the store found, for `llmc doctor`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct HistoryCheck {
    pub entries: u64,
    pub objects: u64,
    /// Size of the store on disk.
    pub bytes: u64,
    /// What is wrong, one sentence each; empty when all is well.
    pub problems: Vec<String>,
}

/// What retention removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct HistorySwept {
    pub entries: u64,
    pub objects: u64,
}

/// The history of one workspace. Clones share it.
#[derive(Clone)]
pub struct History(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) files: Workspace,
    pub(crate) settings: HistorySettings,
    pub(crate) store: Box<dyn HistoryRows>,
    pub(crate) snapshot: SharedSnapshot,
    /// One comparison, recording or undo at a time.
    pub(crate) work: Mutex<Work>,
    pub(crate) status: Mutex<Status>,
    pub(crate) built_files: AtomicU64,
    /// Paths that calls with named paths are about to change; they record them themselves.
    pub(crate) claimed: Mutex<Vec<Vec<u8>>>,
    pub(crate) is_started: AtomicBool,
}

/// What the calls of this process share while they compare and record.
#[derive(Default)]
pub(crate) struct Work {
    /// Whether the snapshot is in memory.
    pub(crate) is_loaded: bool,
    /// Whether the first snapshot is complete.
    pub(crate) is_built: bool,
    /// Names the store; another number is another store, 0 means that it has not been opened.
    pub(crate) store_number: i64,
    /// The last write that the snapshot in memory knows.
    pub(crate) generation: i64,
    pub(crate) newest_entry: Option<EntryId>,
    pub(crate) has_plans: bool,
    pub(crate) watch: Option<Arc<Mutex<Watch>>>,
    pub(crate) wants_watch: bool,
    /// Until then the workspace is taken to have too many files still.
    pub(crate) over_limit_until: Option<Instant>,
    /// When the last watch turned out not to see everything.
    pub(crate) watch_failed: Option<Instant>,
    pub(crate) dirty: Dirty,
    /// When the last comparison that was recorded began, and when the present one did.
    pub(crate) last_look_ns: i64,
    pub(crate) looking_ns: i64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Status {
    pub(crate) is_built: bool,
    pub(crate) off: Option<String>,
    /// Why the store could not be used when that was last tried.
    pub(crate) unavailable: Option<String>,
}

const WATCH_RETRY_INTERVAL: Duration = Duration::from_secs(300);
/// A workspace with too many files is not looked at again for so many times the time that the look took, when it took long.
const OVER_LIMIT_PAUSE: u32 = 20;
const LONG_LOOK: Duration = Duration::from_millis(200);

impl History {
    /// Opens the store in `state_dir`, finishing an undo that a killed process left half done. The snapshot is read when
    /// it is first needed, or by [`History::start`].
    ///
    /// # Errors
    /// The store cannot be opened.
    pub fn open(state_dir: &Path, files: Workspace, settings: HistorySettings) -> Result<History> {
        let store = Box::new(SqliteHistory::open(state_dir)?);
        let inner = Inner::new(store, files, settings);
        {
            let mut work = lock(&inner.work);
            inner.read_numbers(&mut work)?;
            inner.set_built(&work);
            inner.finish_plans(&mut work);
        }
        Ok(History(Arc::new(inner)))
    }

    /// The history that the servers of a team have in common. Connects to nothing: the database is used when the history is.
    pub fn open_shared(database: Database, files: Workspace, settings: HistorySettings) -> History {
        let workspace = files.roots.workspace().to_owned();
        let store = PostgresHistory::new(database, workspace, settings.max_bytes);
        History(Arc::new(Inner::new(Box::new(store), files, settings)))
    }

    /// Starts the thread that takes the first snapshot, watches folders and applies retention; it ends with the last
    /// clone of this history. Servers call this; a verb of the command line does without.
    pub fn start(&self) {
        if !self.0.is_started.swap(true, Ordering::SeqCst) {
            crate::keeper::start(&self.0);
        }
    }

    /// Watches folders from the next look at the workspace on: the look after a command then reads events instead of walking.
    pub fn watch_changes(&self) {
        lock(&self.0.work).wants_watch = true;
    }

    /// Takes the first snapshot now, if there is none yet.
    ///
    /// # Errors
    /// The store cannot be written, or there are too many files.
    pub fn build(&self) -> Result<()> {
        self.0.build(std::time::Duration::ZERO)
    }

    pub fn state(&self) -> HistoryState {
        let status = lock(&self.0.status).clone();
        if let Some(why) = status.off.or(status.unavailable) {
            return HistoryState::Off { why };
        }
        let done = self.0.built_files.load(Ordering::Relaxed);
        match status.is_built {
            true => HistoryState::Ready { files: done },
            false => HistoryState::Building { done },
        }
    }

    pub fn is_ready(&self) -> bool {
        matches!(self.state(), HistoryState::Ready { .. })
    }

    /// A recording of a call that names every path it changes ([`Recording::before_write`]).
    pub fn begin(&self, author: ChangeAuthor) -> Recording {
        Recording::begin(&self.0, author, RecordingScope::NamedPaths)
    }

    /// A recording of a call that may change anything: a command, a script. What changed until now is recorded as a
    /// change from outside.
    pub fn begin_all(&self, author: ChangeAuthor) -> Recording {
        Recording::begin(&self.0, author, RecordingScope::Everything)
    }

    /// Entries, newest first.
    pub fn list(&self, filter: &EntryFilter) -> Result<Vec<Entry>> {
        self.0.store.list(filter)
    }

    /// One entry with its changes.
    ///
    /// # Errors
    /// [`Error::UnknownEntry`] also for an entry that the viewer may not see.
    pub fn show(&self, id: EntryId, viewer: &HistoryViewer) -> Result<EntryDetail> {
        let found = self.0.store.entry(id, viewer)?;
        let found = found.ok_or(Error::UnknownEntry(id))?;
        let changes = found.changes.into_iter();
        Ok(EntryDetail {
            entry: found.entry,
            changes: changes.filter_map(|row| row.shown()).collect(),
            steps: found.steps,
        })
    }

    /// The content of a path in a recorded state: a file's bytes, a link's target. `None` when it has none or it is not
    /// in the history.
    ///
    /// # Errors
    /// The rules on names, as they are now, keep the path from tools.
    pub fn content(&self, path: &[u8], state: &PathState) -> Result<Option<Vec<u8>>> {
        let Some(id) = state.content() else {
            return Ok(None);
        };
        let roots = &self.0.files.roots;
        let exact = roots.exact_path(path, Access::Write)?;
        let absolute = exact.absolute();
        if roots.rules().is_denylisted(&absolute) {
            return Err(Error::Host(llmc_host::Error::Denylisted {
                path: exact.requested().to_owned(),
            }));
        }
        self.0.content(&id)
    }

    /// Takes changes back.
    ///
    /// # Errors
    /// Nothing to undo, or the store cannot be used. A path that changed since is no error: the report names it.
    pub fn undo(&self, request: &UndoRequest) -> Result<UndoReport> {
        self.0.undo(request)
    }

    /// The paths whose state just before entry `id` differs from the newest recorded one.
    pub fn tree_at(&self, id: EntryId, viewer: &HistoryViewer) -> Result<Vec<PastState>> {
        let found = self.0.store.oldest_changes_since(id, viewer)?;
        let rows = found.ok_or(Error::UnknownEntry(id))?;
        let mut work = lock(&self.0.work);
        self.0.load(&mut work)?;
        let snapshot = self.0.snapshot.read();
        Ok(rows
            .into_iter()
            .filter(|row| snapshot.state(&row.path) != row.before)
            .map(|row| PastState {
                path: row.path,
                state: row.before,
            })
            .collect())
    }

    /// The time by the clock that entries have, in milliseconds since 1970.
    ///
    /// # Errors
    /// That is the clock of a database which cannot be used.
    pub fn now_ms(&self) -> Result<i64> {
        self.0.store.now_ms()
    }

    /// Checks the store.
    pub fn check(&self) -> Result<HistoryCheck> {
        self.0.check()
    }

    /// Applies retention.
    pub fn sweep(&self) -> Result<HistorySwept> {
        self.0.sweep()
    }

    /// A path as entries have it: relative to the workspace, or absolute in another root.
    pub fn path_of(&self, path: &RootedPath) -> Vec<u8> {
        self.0.path_of(path)
    }
}

impl Inner {
    fn new(store: Box<dyn HistoryRows>, files: Workspace, settings: HistorySettings) -> Inner {
        Inner {
            files,
            settings,
            store,
            snapshot: SharedSnapshot::default(),
            work: Mutex::default(),
            status: Mutex::default(),
            built_files: AtomicU64::new(0),
            claimed: Mutex::default(),
            is_started: AtomicBool::new(false),
        }
    }

    pub(crate) fn path_of(&self, path: &RootedPath) -> Vec<u8> {
        let absolute = path.absolute();
        let shown = absolute
            .strip_prefix(self.files.roots.workspace())
            .unwrap_or(&absolute);
        shown.as_os_str().as_bytes().to_vec()
    }

    pub(crate) fn content(&self, id: &ObjectId) -> Result<Option<Vec<u8>>> {
        let packed = self.store.object(id)?;
        match packed.map(|packed| packed.unpack()) {
            None => Ok(None),
            Some(Some(content)) => Ok(Some(content)),
            Some(None) => Err(Error::DamagedContent(id.to_string())),
        }
    }

    pub(crate) fn comparer<'a>(
        &'a self,
        has_object: &'a dyn Fn(&ObjectId) -> bool,
        store_ahead: &'a dyn Fn(&mut [Finding]),
    ) -> Comparer<'a> {
        Comparer {
            roots: &self.files.roots,
            settings: &self.settings,
            snapshot: &self.snapshot,
            has_object,
            store_ahead,
        }
    }

    /// Runs `compare` outside a transaction.
    pub(crate) fn compare<T>(
        &self,
        work: &mut Work,
        compare: impl FnOnce(&Comparer<'_>, &mut Work) -> Result<T>,
    ) -> Result<T> {
        work.looking_ns = now_ns();
        let is_built = work.is_built;
        let has_object = |id: &ObjectId| self.store.is_surely_stored(id);
        let store_ahead = |findings: &mut [Finding]| self.store_ahead(findings, is_built);
        compare(&self.comparer(&has_object, &store_ahead), work)
    }

    /// Brings the snapshot into memory, or up to date with what other servers have recorded.
    pub(crate) fn load(&self, work: &mut Work) -> Result<()> {
        let loaded = self.load_rows(work);
        let problem = match &loaded {
            Err(error @ Error::Unavailable(_)) => Some(error.to_string()),
            _ => None,
        };
        lock(&self.status).unavailable = problem;
        loaded?;
        self.set_built(work);
        Ok(())
    }

    fn load_rows(&self, work: &mut Work) -> Result<()> {
        if work.store_number == 0 {
            self.read_numbers(work)?;
        }
        let since = match work.is_loaded {
            true => work.generation,
            false => -1,
        };
        let state = self.store.load(since, &mut |path, known| {
            self.snapshot.write().set(path, known);
        })?;
        if state.number != work.store_number {
            self.reset(work)?;
            return Err(Error::Unavailable(
                "its store was replaced; it is being built anew".to_owned(),
            ));
        }
        work.is_loaded = true;
        work.generation = state.generation;
        work.newest_entry = state.newest_entry;
        work.has_plans = state.has_plans;
        work.is_built = state.is_built;
        work.last_look_ns = work.last_look_ns.max(state.looked_ns);
        Ok(())
    }

    pub(crate) fn set_built(&self, work: &Work) {
        lock(&self.status).is_built = work.is_built;
        if work.is_built && work.is_loaded {
            self.built_files
                .store(self.snapshot.read().files(), Ordering::Relaxed);
        }
    }

    /// What differs from the snapshot in the whole workspace, but for paths that running calls record themselves.
    pub(crate) fn look(&self, work: &mut Work) -> Result<Compared> {
        if work
            .over_limit_until
            .is_some_and(|until| Instant::now() < until)
        {
            return Err(Error::TooManyFiles(self.settings.max_files));
        }
        let started = Instant::now();
        let compared = self.compare(work, |comparer, work| {
            let watch = work.watch.clone();
            let alive = watch.filter(|watch| {
                let mut watch = lock(watch);
                watch.drain(&mut work.dirty);
                !watch.is_partial()
            });
            if let Some(watch) = &alive
                && !work.dirty.everything
            {
                return comparer.dirty(&work.dirty, watch);
            }
            if alive.is_none() {
                work.watch = self.next_watch(work);
            }
            comparer.everything(work.watch.as_ref(), work.last_look_ns)
        });
        if let Err(Error::TooManyFiles(_)) = &compared {
            let took = started.elapsed();
            let is_long = took > LONG_LOOK;
            work.over_limit_until = is_long.then(|| Instant::now() + took * OVER_LIMIT_PAUSE);
        }
        let mut compared = compared?;
        let mut kept_dirty = Dirty::default();
        compared.findings.retain(|finding| {
            let is_claimed = self.is_claimed(&finding.path);
            if is_claimed {
                kept_dirty.paths.insert(finding.path.clone());
            }
            !is_claimed
        });
        work.dirty = kept_dirty;
        Ok(compared)
    }

    /// Whether a running call of this process records what becomes of a path.
    pub(crate) fn is_claimed(&self, path: &[u8]) -> bool {
        let claimed = lock(&self.claimed);
        claimed
            .iter()
            .any(|claim| crate::snapshot::is_within(path, claim))
    }

    /// A watch in the place of one that sees not everything, or of none: where folders cannot all be watched, that is not
    /// tried each time.
    fn next_watch(&self, work: &mut Work) -> Option<Arc<Mutex<Watch>>> {
        if work.watch.take().is_some() {
            work.watch_failed = Some(Instant::now());
        }
        let is_due = work
            .watch_failed
            .is_none_or(|failed| failed.elapsed() > WATCH_RETRY_INTERVAL);
        is_due.then(|| self.new_watch(work)).flatten()
    }

    /// A watch on the workspace, when one is wanted and possible.
    pub(crate) fn new_watch(&self, work: &Work) -> Option<Arc<Mutex<Watch>>> {
        if !work.wants_watch {
            return None;
        }
        let watch = Watch::new(self.files.roots.workspace())?;
        Some(Arc::new(Mutex::new(watch)))
    }
}
