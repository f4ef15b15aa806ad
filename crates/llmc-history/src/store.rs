//! What an engine keeps of a history, behind one trait: entries, changes, contents, the snapshot, running calls, undo plans.
//!
//! There are two engines: a SQLite file in the state directory, and the database that the servers of a team share. A write
//! is one transaction in which no other server writes. The snapshot carries the newest state of every path with the number of
//! the write that last changed it (`gen`), so that a server learns what others have recorded since its own last write.

pub(crate) mod marker;
pub(crate) mod postgres;
pub(crate) mod sqlite;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::compare::Finding;
use crate::entry::{
    ChangeAction, ChangeAuthor, ChangeCounts, Entry, EntryFilter, EntryId, EntrySource,
    HistoryViewer, NotKeptReason, ObjectId, PathChange, PathState,
};
use crate::error::Result;
use crate::history::HistoryCheck;
use crate::objects::PackedObject;
use crate::snapshot::{Known, Stamp};

/// The rows of one workspace. Every method is one transaction, or several short ones.
pub(crate) trait HistoryRows: Send + Sync {
    /// Makes the store if there is none; the first write of a store names it, so that others notice when it is replaced.
    fn open(&self) -> Result<StoreState>;

    /// Calls `each` with every path whose state changed after the write `since`; a path that is gone has no `Known`.
    fn load(&self, since: i64, each: &mut dyn FnMut(Vec<u8>, Option<Known>)) -> Result<StoreState>;

    /// Entries, newest first.
    fn list(&self, filter: &EntryFilter) -> Result<Vec<Entry>>;

    /// An entry with its changes, by path.
    fn entry(&self, id: EntryId, viewer: &HistoryViewer) -> Result<Option<StoredEntry>>;

    /// Entries with their changes, newest first, until more than `max_changes` are found.
    fn choose(
        &self,
        chosen: &ChosenEntries<'_>,
        viewer: &HistoryViewer,
        max_changes: usize,
    ) -> Result<Vec<StoredEntry>>;

    /// Of every path that an entry from `id` on changed, the oldest of these changes; `None` without that entry.
    fn oldest_changes_since(
        &self,
        id: EntryId,
        viewer: &HistoryViewer,
    ) -> Result<Option<Vec<ChangeRow>>>;

    /// The newest entry that has a change of each path.
    fn newest_entries(&self, paths: &[&[u8]]) -> Result<HashMap<Vec<u8>, EntryId>>;

    /// Makes an entry of changes from outside that of a call, if all of its changes are at these paths; whether it did.
    fn give_to_call(&self, id: EntryId, author: &ChangeAuthor, paths: &[Vec<u8>]) -> Result<bool>;

    /// Whether a content is stored, as far as that is known without waiting: for one that is not, the content is offered
    /// again, which changes nothing.
    fn is_surely_stored(&self, id: &ObjectId) -> bool;

    /// Which of these contents are stored.
    fn stored(&self, ids: &[ObjectId]) -> Result<HashSet<ObjectId>>;

    fn object(&self, id: &ObjectId) -> Result<Option<PackedObject>>;

    /// Stores contents ahead of their entry until the store has `max_bytes`; whether all are stored.
    fn add_objects(&self, objects: &[Arc<PackedObject>], max_bytes: u64) -> Result<bool>;

    /// Bytes of contents that go with the transaction of their entry, where more have to be stored ahead of it.
    fn max_inline_bytes(&self) -> Option<usize>;

    /// The first snapshot is complete.
    fn set_built(&self) -> Result<()>;

    /// The right to take the first snapshot; `None` while another process has it.
    fn claim_build(&self) -> Result<Option<BuildClaim>>;

    /// Files of the first snapshot that are read and stored at a time.
    fn build_batch(&self) -> usize;

    /// The clock of entries.
    fn now_ms(&self) -> Result<i64>;

    /// Whether servers on other machines use it, and it may be away.
    fn is_shared(&self) -> bool;

    /// Marks a call as running, and all calls that run beside it as shared; whether there are others.
    fn begin_call(&self, call: &str) -> Result<bool>;
    fn end_call(&self, call: &str) -> Result<()>;

    /// Calls of all servers that may be changing anything now.
    fn active_calls(&self) -> Result<usize>;

    fn add_plan(&self, plan: &str) -> Result<PlanId>;

    /// Plans of this process and of those that have ended, which this process has to finish from now on.
    fn take_plans(&self) -> Result<Vec<(PlanId, String)>>;
    fn remove_plan(&self, id: &PlanId) -> Result<()>;

    /// Records an entry; `None` when the store is another than `work` knows.
    fn commit(&self, work: &mut dyn CommitWork) -> Result<Option<Committed>>;

    /// Removes some entries that are too old, from the old end up to the first that is young enough; how many.
    fn remove_old(&self, keep_days: u32) -> Result<u64>;
    /// Removes some of the oldest entries; how many.
    fn remove_oldest(&self) -> Result<u64>;
    /// Removes contents that neither an entry nor the snapshot refers to, from an object on; how many, and where to go on.
    fn remove_unused(&self, from: i64) -> Result<(u64, Option<i64>)>;
    /// Removes what else is of no use any more.
    fn tidy(&self) -> Result<()>;
    /// Bytes that count for the limit.
    fn used_bytes(&self) -> Result<u64>;

    /// Counts what there is and looks for damage, but for that of contents.
    fn check(&self) -> Result<HistoryCheck>;
    /// Some contents after this one, to be checked; all of them, or as many as are worth the time.
    fn objects_to_check(&self, after: i64) -> Result<Vec<(i64, ObjectId)>>;

    #[cfg(test)]
    fn set_clock(&mut self, clock: llmc_envelope::clock::Clock);
    /// The name of this process in rows.
    #[cfg(test)]
    fn server_name(&self) -> String;
}

/// An undo that was begun.
pub(crate) type PlanId = String;

/// The right to take the first snapshot, until it is dropped.
pub(crate) struct BuildClaim {
    pub(crate) _release: Box<dyn Send>,
}

/// What a store says of itself.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StoreState {
    /// Names the store; another number is another store.
    pub(crate) number: i64,
    /// Whether the first snapshot is complete.
    pub(crate) is_built: bool,
    /// The last write.
    pub(crate) generation: i64,
    /// When the last comparison that was recorded began.
    pub(crate) looked_ns: i64,
    pub(crate) newest_entry: Option<EntryId>,
    /// Whether some undo has begun and not ended.
    pub(crate) has_plans: bool,
}

/// An entry with its changes and the steps of a script.
#[derive(Debug)]
pub(crate) struct StoredEntry {
    pub(crate) entry: Entry,
    pub(crate) steps: Vec<String>,
    pub(crate) changes: Vec<ChangeRow>,
}

/// Which entries an undo means.
#[derive(Debug)]
pub(crate) enum ChosenEntries<'a> {
    /// Both included, changes from outside among them.
    Range(EntryId, EntryId),
    /// Without changes from outside.
    Session(&'a str),
    /// After this time, without changes from outside. By id: a clock that was set back must not hide an entry.
    Since(i64),
}

/// What the transaction of a commit asks the process that commits. It may be asked again from the start, when a connection
/// was lost.
pub(crate) trait CommitWork {
    fn store_number(&self) -> i64;
    /// The last write that the process knows.
    fn generation(&self) -> i64;
    /// The call whose end this is.
    fn call(&self) -> Option<&str>;
    /// Whether that call goes on.
    fn is_checkpoint(&self) -> bool;
    /// About how many rows will be written.
    fn rows(&self) -> usize;
    /// Paths of which the work must know whether any server has said something of them, their absence included.
    fn paths_to_check(&self) -> Vec<&[u8]>;
    /// Takes in what others have recorded since [`CommitWork::generation`].
    fn learn(&mut self, rows: Vec<(Vec<u8>, Option<Known>)>);
    /// Contents of which the work must know whether they are stored.
    fn contents_to_check(&self, used_bytes: u64) -> Vec<ObjectId>;
    /// What is to be written.
    fn decide(&mut self, found: CommitFound) -> CommitWrite<'_>;
}

/// What a commit finds, with all other writers locked out.
#[derive(Debug, Default)]
pub(crate) struct CommitFound {
    /// The last write.
    pub(crate) generation: i64,
    pub(crate) used_bytes: u64,
    /// Of [`CommitWork::contents_to_check`].
    pub(crate) stored: HashSet<ObjectId>,
    /// Of [`CommitWork::paths_to_check`].
    pub(crate) known_paths: HashSet<Vec<u8>>,
    /// Whether other calls were active during [`CommitWork::call`].
    pub(crate) was_shared: bool,
}

/// What a commit writes.
pub(crate) struct CommitWrite<'a> {
    pub(crate) generation: i64,
    pub(crate) looked_ns: i64,
    pub(crate) objects: &'a [Arc<PackedObject>],
    /// States for the snapshot.
    pub(crate) findings: &'a [Finding],
    pub(crate) entry: Option<&'a NewEntry>,
    /// Changes that the entry takes back.
    pub(crate) taken_back: &'a [(EntryId, Vec<u8>)],
    /// Whether the call goes on.
    pub(crate) is_checkpoint: bool,
    /// The plan of an undo that is done.
    pub(crate) plan: Option<&'a PlanId>,
}

/// What a commit has written.
#[derive(Debug)]
pub(crate) struct Committed {
    pub(crate) generation: i64,
    pub(crate) entry: Option<EntryId>,
}

/// An entry to be written.
#[derive(Debug)]
pub(crate) struct NewEntry {
    pub(crate) source: EntrySource,
    pub(crate) row: NewEntryRow,
    pub(crate) counts: ChangeCounts,
    pub(crate) changes: Vec<ChangeRow>,
}

/// Columns of a [`PathState`].
pub(crate) type StateColumns = (i64, i64, i64, Option<ObjectId>, Option<i64>);

const REASONS: [NotKeptReason; 6] = [
    NotKeptReason::TooLarge,
    NotKeptReason::Denied,
    NotKeptReason::Ignored,
    NotKeptReason::Unreadable,
    NotKeptReason::StoreFull,
    NotKeptReason::Building,
];

pub(crate) fn state_columns(state: &PathState) -> StateColumns {
    let size = |size: u64| i64::try_from(size).unwrap_or(i64::MAX);
    match *state {
        PathState::Absent => (0, 0, 0, None, None),
        PathState::File {
            mode,
            size: bytes,
            content,
        } => (1, i64::from(mode), size(bytes), Some(content), None),
        PathState::Link { content } => (2, 0, 0, Some(content), None),
        PathState::Dir { mode } => (3, i64::from(mode), 0, None, None),
        PathState::FileNotKept {
            mode,
            size: bytes,
            why,
        } => {
            let why = REASONS.iter().position(|reason| *reason == why);
            let why = why.and_then(|at| i64::try_from(at).ok());
            (4, i64::from(mode), size(bytes), None, why)
        }
    }
}

pub(crate) fn state_from(columns: StateColumns) -> PathState {
    let (kind, mode, size, content, why) = columns;
    let mode = u32::try_from(mode).unwrap_or(0);
    let size = u64::try_from(size).unwrap_or(0);
    match (kind, content) {
        (1, Some(content)) => PathState::File {
            mode,
            size,
            content,
        },
        (2, Some(content)) => PathState::Link { content },
        (3, _) => PathState::Dir { mode },
        (1 | 4, _) => PathState::FileNotKept {
            mode,
            size,
            why: why
                .and_then(|at| REASONS.get(usize::try_from(at).ok()?).copied())
                .unwrap_or(NotKeptReason::Unreadable),
        },
        _ => PathState::Absent,
    }
}

/// What the snapshot stores of a path; one that is gone keeps a row so that other servers learn of it.
pub(crate) fn snapshot_columns(finding: &Finding) -> (StateColumns, Stamp) {
    let mut columns = state_columns(&finding.state);
    let stamp = match finding.state {
        PathState::Absent => Stamp::default(),
        _ => finding.stamp,
    };
    columns.2 = i64::try_from(stamp.size).unwrap_or(i64::MAX);
    (columns, stamp)
}

/// One change of an entry as it is stored: a move is two of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChangeRow {
    pub(crate) entry: EntryId,
    pub(crate) path: Vec<u8>,
    pub(crate) before: PathState,
    pub(crate) after: PathState,
    pub(crate) moved_from: Option<Vec<u8>>,
    pub(crate) moved_to: Option<Vec<u8>>,
    pub(crate) shared: bool,
    pub(crate) undone_by: Option<EntryId>,
}

impl ChangeRow {
    /// The change as it is shown; `None` for the source of a move, which is shown at its target.
    pub(crate) fn shown(self) -> Option<PathChange> {
        if self.moved_to.is_some() {
            return None;
        }
        let action = match (self.moved_from, self.before, self.after) {
            (Some(from), ..) => ChangeAction::Moved { from },
            (None, PathState::Absent, _) => ChangeAction::Created,
            (None, _, PathState::Absent) => ChangeAction::Deleted,
            _ => ChangeAction::Changed,
        };
        Some(PathChange {
            path: self.path,
            action,
            before: self.before,
            after: self.after,
            shared: self.shared,
            undone_by: self.undone_by,
        })
    }
}

/// An entry to be written.
#[derive(Debug, Clone, Default)]
pub(crate) struct NewEntryRow {
    pub(crate) author: ChangeAuthor,
    pub(crate) undoes: Vec<EntryId>,
    pub(crate) steps: Vec<String>,
    pub(crate) head_before: Option<String>,
    pub(crate) head_after: Option<String>,
    pub(crate) shared: bool,
    pub(crate) not_undoable: Option<String>,
}

/// How many paths had which change; `ignored` ones have no row.
pub(crate) fn count_changes(changes: &[ChangeRow]) -> ChangeCounts {
    let mut counts = ChangeCounts::default();
    for change in changes {
        if change
            .before
            .not_kept()
            .or(change.after.not_kept())
            .is_some()
        {
            counts.not_kept += 1;
        }
        match (&change.moved_from, &change.moved_to) {
            (_, Some(_)) => {}
            (Some(_), _) => counts.moved += 1,
            _ if change.before == PathState::Absent => counts.created += 1,
            _ if change.after == PathState::Absent => counts.deleted += 1,
            _ => counts.changed += 1,
        }
    }
    counts
}

pub(crate) fn source_number(source: EntrySource) -> i64 {
    match source {
        EntrySource::Call => 0,
        EntrySource::Outside => 1,
        EntrySource::Undo => 2,
    }
}

pub(crate) fn source_of(number: i64) -> EntrySource {
    match number {
        0 => EntrySource::Call,
        1 => EntrySource::Outside,
        _ => EntrySource::Undo,
    }
}

/// The principal whose entries are meant; `None` for all.
pub(crate) fn principal(viewer: &HistoryViewer) -> Option<&str> {
    match viewer {
        HistoryViewer::All => None,
        HistoryViewer::Principal(name) => Some(name),
    }
}

/// The keys between which everything below a directory lies: `/` is followed by `0`.
pub(crate) fn below(path: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut first, mut behind) = (path.to_vec(), path.to_vec());
    first.push(b'/');
    behind.push(b'0');
    (first, behind)
}
