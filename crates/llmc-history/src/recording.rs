//! What one call changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use llmc_host::walk::IgnoreLookup;
use llmc_host::{Access, PathEntry, RootedPath, lock};
use serde::Serialize;

use crate::commit::CommitRequest;
use crate::compare::{Compared, Effect, Finding, missing_parents};
use crate::entry::{
    ChangeAuthor, ChangeCounts, EntryId, EntrySource, HistoryViewer, NotKeptReason, PathState,
};
use crate::error::{Error, Result};
use crate::head;
use crate::history::{Inner, Work};
use crate::snapshot::{Stamp, now_ns};
use crate::store::{ChangeRow, NewEntryRow};

/// Steps of a script that are kept, and the length of one.
const MAX_STEPS: usize = 500;
const MAX_STEP_CHARS: usize = 200;

/// The recording of a call, from before its first change on. Dropped without [`Recording::finish`], it records what is
/// there by then.
pub struct Recording {
    inner: Arc<Inner>,
    author: ChangeAuthor,
    scope: RecordingScope,
    notes: Mutex<Notes>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordingScope {
    NamedPaths,
    Everything,
}

/// What was checked out before and after a call: a branch and its commit, or a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeadMove {
    pub before: String,
    pub after: String,
}

/// What a call has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Recorded {
    /// `None` when nothing could be recorded; then `not_undoable` says why.
    pub id: Option<EntryId>,
    #[serde(flatten)]
    pub counts: ChangeCounts,
    /// Another writer was active meanwhile.
    pub shared: bool,
    pub head_moved: Option<HeadMove>,
    /// Why (part of) the call cannot be undone; fit to be shown.
    pub not_undoable: Option<String>,
}

#[derive(Default)]
struct Notes {
    /// The row in `active`.
    call: Option<String>,
    /// Whether everything was known when the call began.
    was_ready: bool,
    /// Paths to compare at the end.
    paths: Vec<Vec<u8>>,
    /// Of these, the ones that other calls leave to this one.
    claims: Vec<Vec<u8>>,
    /// The newest entry when a path was named.
    newest_entries: HashMap<Vec<u8>, Option<EntryId>>,
    ignored: Vec<IgnoredPath>,
    steps: Vec<String>,
    head: Option<String>,
    /// Why something may be missing.
    problem: Option<String>,
    is_finished: bool,
}

/// A path that history does not look at, which the call said it would change.
struct IgnoredPath {
    path: Vec<u8>,
    state: PathState,
    stamp: Stamp,
}

impl Recording {
    pub(crate) fn begin(
        inner: &Arc<Inner>,
        author: ChangeAuthor,
        scope: RecordingScope,
    ) -> Recording {
        let mut notes = Notes::default();
        if scope == RecordingScope::Everything {
            if let Err(error) = begin_all(inner, &mut notes) {
                notes.was_ready = false;
                notes.problem = Some(why_not_recorded(&error));
            }
            notes.head = head::checked_out(&inner.files.roots);
        }
        Recording {
            inner: Arc::clone(inner),
            author,
            scope,
            notes: Mutex::new(notes),
        }
    }

    /// A file tool is about to change exactly this path (both paths of a move; a directory stands for everything in it).
    /// What is there is kept now if it is not known yet.
    pub fn before_write(&self, path: &RootedPath) {
        let mut notes = lock(&self.notes);
        if self.scope == RecordingScope::Everything && notes.was_ready {
            return;
        }
        let key = self.inner.path_of(path);
        let is_noted =
            notes.paths.contains(&key) || notes.ignored.iter().any(|ignored| ignored.path == key);
        if key.is_empty() || is_noted {
            return;
        }
        if let Err(error) = self.keep_before(path, &key, &mut notes) {
            notes.problem = Some(why_not_recorded(&error));
        }
    }

    fn keep_before(&self, path: &RootedPath, key: &[u8], notes: &mut Notes) -> Result<()> {
        let inner = &*self.inner;
        let work = &mut *lock(&inner.work);
        if self.scope == RecordingScope::NamedPaths {
            lock(&inner.claimed).push(key.to_vec());
            notes.claims.push(key.to_vec());
        }
        inner.load(work)?;
        let is_known = inner.snapshot.read().get(key).is_some();
        if !is_known {
            let (state, stamp) = ignored_state(path);
            let is_dir = matches!(state, PathState::Dir { .. });
            if path.is_ignored(is_dir)? {
                let path = key.to_vec();
                notes.ignored.push(IgnoredPath { path, state, stamp });
                return Ok(());
            }
        }
        // What was removed from outside on the way is known as absent before the call makes it anew.
        let mut named = missing_parents(&inner.files.roots, key);
        named.push(key.to_vec());
        let mut findings = within(inner, work, &named)?;
        if !work.is_built {
            findings.extend(absences(inner, &named, &findings));
        }
        named.retain(|path| !notes.paths.contains(path));
        notes.paths.append(&mut named);
        {
            let snapshot = inner.snapshot.read();
            findings.retain(|finding| {
                let is_absence = finding.effect == Effect::Adopt;
                is_absence || snapshot.state(&finding.path) != finding.state
            });
            for finding in &mut findings {
                if !work.is_built && snapshot.get(&finding.path).is_none() {
                    finding.effect = Effect::Adopt;
                }
            }
        }
        if !findings.is_empty() {
            let mut request = CommitRequest::default();
            request.entry.shared = inner.store.active_calls()? > 0;
            inner.commit(work, findings, EntrySource::Outside, &request)?;
        }
        if self.scope == RecordingScope::NamedPaths {
            notes.newest_entries.insert(key.to_vec(), work.newest_entry);
        }
        Ok(())
    }

    /// The entry in which another server has recorded, as a change from outside, what this call changed: it compared the
    /// workspace between the change and the end of the call. If nothing else is in it, it becomes the entry of this call.
    fn recorded_by_another(&self, notes: &Notes) -> Result<Option<Recorded>> {
        if notes.newest_entries.is_empty() {
            return Ok(None);
        }
        let store = &self.inner.store;
        let paths: Vec<&[u8]> = notes.newest_entries.keys().map(Vec::as_slice).collect();
        let newest = store.newest_entries(&paths)?;
        let is_new = |(path, id): &(&Vec<u8>, &EntryId)| Some(**id) > notes.newest_entries[*path];
        let Some(id) = newest.iter().filter(is_new).map(|(_, id)| *id).max() else {
            return Ok(None);
        };
        let mut recorded = Recorded {
            id: Some(id),
            shared: true,
            ..Recorded::default()
        };
        if store.give_to_call(id, &self.author, &notes.paths)?
            && let Some(given) = store.entry(id, &HistoryViewer::All)?
        {
            recorded.counts = given.entry.counts;
            recorded.shared = false;
        }
        Ok(Some(recorded))
    }

    /// Notes what a script did, in one line.
    pub fn step(&self, text: &str) {
        let mut notes = lock(&self.notes);
        if notes.steps.len() < MAX_STEPS {
            let line = text.lines().next().unwrap_or_default();
            notes
                .steps
                .push(line.chars().take(MAX_STEP_CHARS).collect());
        }
    }

    /// Records what changed: of [`begin`](crate::History::begin) the named paths, of
    /// [`begin_all`](crate::History::begin_all) everything. `None` when nothing did.
    ///
    /// # Errors
    /// Never because the store fails: [`Recorded::not_undoable`] says that. The change itself stands in any case.
    pub fn finish(self) -> Result<Option<Recorded>> {
        self.record(RecordingEnd::Final)
    }

    /// Records what changed so far and goes on: for a background process, every minute.
    pub fn checkpoint(&self) -> Result<Option<Recorded>> {
        self.record(RecordingEnd::GoesOn)
    }

    /// Goes on after the call, for a process that lives on. It does not make the changes of other calls shared: what changes
    /// while one of them runs is that call's, and what changes between them is the process's.
    pub fn continue_in_background(&self) {
        if let Some(call) = lock(&self.notes).call.take() {
            let _ = self.inner.store.end_call(&call);
        }
    }

    /// As [`Recording::checkpoint`], but records nothing while a call is under way, whose changes these may be.
    ///
    /// # Errors
    /// The store cannot be asked.
    pub fn checkpoint_between_calls(&self) -> Result<Option<Recorded>> {
        match self.inner.store.active_calls()? {
            0 => self.checkpoint(),
            _ => Ok(None),
        }
    }

    fn record(&self, end: RecordingEnd) -> Result<Option<Recorded>> {
        let mut notes = lock(&self.notes);
        if notes.is_finished {
            return Ok(None);
        }
        notes.is_finished = end == RecordingEnd::Final;
        let recorded = self.compare_and_commit(&mut notes, end);
        if end == RecordingEnd::Final {
            self.release(&notes);
        }
        let problem = notes.problem.clone();
        match recorded {
            Ok(Some(mut recorded)) => {
                recorded.not_undoable = problem.or(recorded.not_undoable);
                Ok(Some(recorded))
            }
            Ok(None) => Ok(problem.map(not_recorded)),
            Err(error) => Ok(Some(not_recorded(why_not_recorded(&error)))),
        }
    }

    fn compare_and_commit(&self, notes: &mut Notes, end: RecordingEnd) -> Result<Option<Recorded>> {
        let inner = &*self.inner;
        let work = &mut *lock(&inner.work);
        // Of named paths, the commit itself learns what others have recorded: that saves a round trip to a database.
        let is_named = self.scope == RecordingScope::NamedPaths;
        if !(is_named && work.is_loaded && inner.store.is_shared()) {
            inner.load(work)?;
        }
        let is_whole = self.scope == RecordingScope::Everything && notes.was_ready;
        let compared = match is_whole {
            true => inner.look(work)?,
            false => Compared {
                findings: within(inner, work, &notes.paths)?,
                ..Compared::default()
            },
        };
        let mut request = CommitRequest {
            entry: NewEntryRow {
                author: self.author.clone(),
                steps: notes.steps.clone(),
                not_undoable: notes.problem.clone(),
                ..NewEntryRow::default()
            },
            call: notes.call.clone(),
            is_checkpoint: end == RecordingEnd::GoesOn,
            is_exact: self.scope == RecordingScope::NamedPaths,
            unknown: self.ignored_changes(notes),
            ignored: compared.ignored,
            ..CommitRequest::default()
        };
        if self.scope == RecordingScope::Everything {
            request.entry.head_before = notes.head.take();
            request.entry.head_after = head::checked_out(&inner.files.roots);
            notes.head = request.entry.head_after.clone();
        }
        let recorded = inner.commit(work, compared.findings, EntrySource::Call, &request)?;
        inner.snapshot.write().set_listings(compared.listings);
        if end == RecordingEnd::Final {
            // The transaction has ended the call.
            notes.call = None;
        }
        if end == RecordingEnd::GoesOn && recorded.is_some() {
            notes.steps.clear();
        }
        match recorded {
            None => self.recorded_by_another(notes),
            recorded => Ok(recorded),
        }
    }

    fn ignored_changes(&self, notes: &mut Notes) -> Vec<ChangeRow> {
        let mut changes = Vec::new();
        for ignored in &mut notes.ignored {
            let exact = self
                .inner
                .files
                .roots
                .exact_path(&ignored.path, Access::Read);
            let Ok((state, stamp)) = exact.map(|exact| ignored_state(&exact)) else {
                continue;
            };
            if ignored.stamp.proves(&stamp) && state == ignored.state {
                continue;
            }
            changes.push(ChangeRow {
                entry: EntryId(0),
                path: ignored.path.clone(),
                before: ignored.state,
                after: state,
                moved_from: None,
                moved_to: None,
                shared: false,
                undone_by: None,
            });
            (ignored.state, ignored.stamp) = (state, stamp);
        }
        changes
    }

    /// Gives back what marks this call as running.
    fn release(&self, notes: &Notes) {
        let mut claimed = lock(&self.inner.claimed);
        for path in &notes.claims {
            if let Some(at) = claimed.iter().position(|claim| claim == path) {
                claimed.swap_remove(at);
            }
        }
        drop(claimed);
        if let Some(call) = &notes.call {
            let _ = self.inner.store.end_call(call);
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // A call that panicked or was cancelled has changed files all the same.
        let _ = self.record(RecordingEnd::Final);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecordingEnd {
    Final,
    GoesOn,
}

fn why_not_recorded(error: &Error) -> String {
    match error {
        Error::Unavailable(_) => format!("the change is not recorded, {error}"),
        _ => error.to_string(),
    }
}

fn not_recorded(why: String) -> Recorded {
    Recorded {
        not_undoable: Some(why),
        ..Recorded::default()
    }
}

fn begin_all(inner: &Inner, notes: &mut Notes) -> Result<()> {
    let work = &mut *lock(&inner.work);
    inner.load(work)?;
    if let Some(why) = lock(&inner.status).off.clone() {
        notes.problem = Some(why);
        return Ok(());
    }
    inner.finish_plans(work);
    let (call, are_others_active) = inner.begin_call()?;
    notes.call = Some(call);
    if !work.is_built {
        notes.problem = Some(NotKeptReason::Building.text().to_owned());
        return Ok(());
    }
    // What changed while others write may be theirs: it is recorded with the first call that ends.
    if !are_others_active {
        inner.record_outside(work)?;
    }
    notes.was_ready = true;
    Ok(())
}

/// Compares these paths and what is in them.
fn within(inner: &Inner, work: &mut Work, paths: &[Vec<u8>]) -> Result<Vec<Finding>> {
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let top = inner.files.roots.open_dir(".").map_err(Error::from);
    inner.compare(work, |comparer, _| {
        let mut ignores = IgnoreLookup::new(top?.fd);
        let mut findings: BTreeMap<Vec<u8>, Finding> = BTreeMap::new();
        for path in paths {
            for finding in comparer.within(path, &mut ignores)? {
                findings.insert(finding.path.clone(), finding);
            }
        }
        Ok(findings.into_values().collect())
    })
}

/// The named paths at which nothing is, as findings: another server that takes the first snapshot meanwhile must not take what
/// the call creates for something that was there.
fn absences(inner: &Inner, named: &[Vec<u8>], found: &[Finding]) -> Vec<Finding> {
    let snapshot = inner.snapshot.read();
    let is_absent = |path: &&Vec<u8>| {
        let exact = inner.files.roots.exact_path(path, Access::Read);
        let entry = exact.and_then(|exact| exact.entry());
        snapshot.get(path).is_none()
            && !found.iter().any(|finding| finding.path == **path)
            && matches!(entry, Ok(PathEntry::Absent))
    };
    let absent = named.iter().filter(is_absent);
    absent
        .map(|path| Finding {
            path: path.clone(),
            state: PathState::Absent,
            stamp: Stamp::default(),
            object: None,
            effect: Effect::Adopt,
        })
        .collect()
}

/// The state of a path whose content is never read.
fn ignored_state(path: &RootedPath) -> (PathState, Stamp) {
    let looked_ns = now_ns();
    let not_kept = |stat: &rustix::fs::Stat| {
        let stamp = Stamp::new(stat, looked_ns);
        let state = PathState::FileNotKept {
            mode: stat.st_mode & 0o1777,
            size: stamp.size,
            why: NotKeptReason::Ignored,
        };
        (state, stamp)
    };
    match path.entry() {
        Ok(PathEntry::File { stat, .. } | PathEntry::Link { stat, .. }) => not_kept(&stat),
        Ok(PathEntry::Dir { stat }) => {
            let mode = stat.st_mode & 0o1777;
            (PathState::Dir { mode }, Stamp::new(&stat, looked_ns))
        }
        _ => (PathState::Absent, Stamp::default()),
    }
}

impl Inner {
    /// Marks a call as running; whether there are others.
    pub(crate) fn begin_call(&self) -> Result<(String, bool)> {
        let call = ulid::Ulid::new().to_string();
        let are_others = self.store.begin_call(&call)?;
        Ok((call, are_others))
    }
}
