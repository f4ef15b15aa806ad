//! Writes what a comparison found: one transaction for contents, entry and snapshot.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::compare::{Comparer, Effect, Finding};
use crate::entry::{ChangeCounts, EntryId, EntrySource, NotKeptReason, ObjectId, PathState};
use crate::error::{Error, Result};
use crate::history::{Inner, Work};
use crate::objects::PackedObject;
use crate::recording::{HeadMove, Recorded};
use crate::snapshot::Known;
use crate::store::{
    self, ChangeRow, CommitFound, CommitWork, CommitWrite, NewEntry, NewEntryRow, PlanId,
};

/// What is written beside the findings.
#[derive(Debug, Default)]
pub(crate) struct CommitRequest {
    pub(crate) entry: NewEntryRow,
    /// The call in `active` that these changes are of.
    pub(crate) call: Option<String>,
    /// Whether the call goes on.
    pub(crate) is_checkpoint: bool,
    /// The plan of an undo that is done.
    pub(crate) plan: Option<PlanId>,
    /// Changes that the entry takes back.
    pub(crate) taken_back: Vec<(EntryId, Vec<u8>)>,
    /// Changes are marked `shared` only where other calls may have made them.
    pub(crate) is_exact: bool,
    /// Changes that are not compared with the snapshot: of files that it does not hold.
    pub(crate) unknown: Vec<ChangeRow>,
    /// Changed files that are ignored.
    pub(crate) ignored: u64,
    /// Whether only paths that no server knows anything of are adopted.
    pub(crate) is_first_snapshot: bool,
}

impl CommitRequest {
    /// Whether nothing is written without findings.
    fn is_empty(&self) -> bool {
        self.call.is_none()
            && self.plan.is_none()
            && self.taken_back.is_empty()
            && self.unknown.is_empty()
            && head_move(&self.entry).is_none()
    }
}

/// A commit as the store carries it out.
struct Commit<'a> {
    inner: &'a Inner,
    request: &'a CommitRequest,
    source: EntrySource,
    store_number: i64,
    generation: i64,
    looking_ns: i64,
    findings: Vec<Finding>,
    /// Contents to be stored.
    objects: Vec<Arc<PackedObject>>,
    entry: Option<NewEntry>,
}

impl CommitWork for Commit<'_> {
    fn store_number(&self) -> i64 {
        self.store_number
    }

    fn generation(&self) -> i64 {
        self.generation
    }

    fn call(&self) -> Option<&str> {
        self.request.call.as_deref()
    }

    fn is_checkpoint(&self) -> bool {
        self.request.is_checkpoint
    }

    fn rows(&self) -> usize {
        self.findings.len()
    }

    fn paths_to_check(&self) -> Vec<&[u8]> {
        match self.request.is_first_snapshot {
            true => self.findings.iter().map(|f| f.path.as_slice()).collect(),
            false => Vec::new(),
        }
    }

    /// Looks again at paths that both this server and another have seen.
    fn learn(&mut self, rows: Vec<(Vec<u8>, Option<Known>)>) {
        if rows.is_empty() {
            return;
        }
        let mut learned: HashSet<Vec<u8>> = HashSet::new();
        {
            let mut snapshot = self.inner.snapshot.write();
            for (path, known) in rows {
                learned.insert(path.clone());
                snapshot.set(path, known);
            }
        }
        let comparer = self.inner.comparer(&|_| false, &|_| {});
        self.findings.retain_mut(|finding| {
            if !learned.contains(&finding.path) || finding.effect == Effect::Forget {
                return true;
            }
            if finding.effect == Effect::Adopt {
                return false;
            }
            examine_again(&comparer, finding)
        });
    }

    fn contents_to_check(&self, used_bytes: u64) -> Vec<ObjectId> {
        let is_full = used_bytes > self.inner.settings.max_first_snapshot_bytes();
        let to_check = |finding: &Finding| match &finding.object {
            Some(object) => is_full.then_some(object.id),
            None => finding.state.content(),
        };
        let ids: HashSet<ObjectId> = self.findings.iter().filter_map(to_check).collect();
        ids.into_iter().collect()
    }

    fn decide(&mut self, mut found: CommitFound) -> CommitWrite<'_> {
        let (inner, request) = (self.inner, self.request);
        // What another server's call has said to be absent, or changed, before the first snapshot came to it: the change is
        // that call's to record.
        self.findings
            .retain(|finding| !found.known_paths.contains(&finding.path));
        // What was stored when the file was looked at, and has been removed by retention since.
        let comparer = inner.comparer(&|_| false, &|_| {});
        self.findings.retain_mut(|finding| {
            let stored_before = finding.state.content().filter(|_| finding.object.is_none());
            let is_gone = stored_before.is_some_and(|id| !found.stored.contains(&id));
            !is_gone || examine_again(&comparer, finding)
        });
        let shared = match request.call {
            Some(_) => found.was_shared,
            None => request.entry.shared,
        };
        let mut changes = inner.changes(&self.findings, shared && !request.is_exact);
        changes.extend(request.unknown.iter().cloned());
        self.objects.clear();
        let mut not_stored = false;
        for finding in &mut self.findings {
            let limit = match finding.effect {
                Effect::Adopt => inner.settings.max_first_snapshot_bytes(),
                Effect::Record | Effect::Forget => inner.settings.max_bytes,
            };
            let is_full = found.used_bytes > limit;
            let (object, was_changed) = object_to_store(finding, is_full, &found.stored);
            not_stored |= was_changed;
            if let Some(object) = object {
                found.stored.insert(object.id);
                self.objects.push(object);
            }
        }
        if not_stored {
            // States without their contents.
            let states: HashMap<&[u8], PathState> = self
                .findings
                .iter()
                .map(|f| (f.path.as_slice(), f.state))
                .collect();
            for change in &mut changes {
                if let Some(state) = states.get(change.path.as_slice()) {
                    change.after = *state;
                }
            }
        }
        let mut row = request.entry.clone();
        row.shared = shared && !request.is_exact;
        let is_moved = head_move(&row).is_some();
        if !is_moved {
            (row.head_before, row.head_after) = (None, None);
        }
        let counts = ChangeCounts {
            ignored: request.ignored,
            ..store::count_changes(&changes)
        };
        let is_entry = !changes.is_empty() || is_moved;
        self.entry = is_entry.then_some(NewEntry {
            source: self.source,
            row,
            counts,
            changes,
        });
        CommitWrite {
            generation: found.generation + i64::from(!self.findings.is_empty()),
            looked_ns: self.looking_ns,
            objects: &self.objects,
            findings: &self.findings,
            entry: self.entry.as_ref(),
            taken_back: &request.taken_back,
            is_checkpoint: request.is_checkpoint,
            plan: request.plan.as_ref(),
        }
    }
}

/// Looks at a path again, with its content whether it is stored or not; whether it still differs from the snapshot.
fn examine_again(comparer: &Comparer<'_>, finding: &mut Finding) -> bool {
    let Some(again) = comparer.examine(&finding.path) else {
        return false;
    };
    *finding = Finding {
        effect: finding.effect,
        ..again
    };
    true
}

/// What an entry says of HEAD, if that moved.
fn head_move(entry: &NewEntryRow) -> Option<HeadMove> {
    match (&entry.head_before, &entry.head_after) {
        (Some(before), Some(after)) if before != after => Some(HeadMove {
            before: before.clone(),
            after: after.clone(),
        }),
        _ => None,
    }
}

impl Inner {
    /// Records the findings as one entry, if any is a change or HEAD moved.
    pub(crate) fn commit(
        &self,
        work: &mut Work,
        mut findings: Vec<Finding>,
        source: EntrySource,
        request: &CommitRequest,
    ) -> Result<Option<Recorded>> {
        if findings.is_empty() && request.is_empty() {
            return Ok(None);
        }
        self.store_large_ahead(&mut findings, work.is_built);
        let mut commit = Commit {
            inner: self,
            request,
            source,
            store_number: work.store_number,
            generation: work.generation,
            looking_ns: work.looking_ns,
            findings,
            objects: Vec::new(),
            entry: None,
        };
        let committed = self.store.commit(&mut commit).inspect_err(|_| {
            // What was found is looked for again.
            work.dirty.everything = true;
        })?;
        let Commit {
            findings, entry, ..
        } = commit;
        let Some(committed) = committed else {
            self.reset(work)?;
            return Err(Error::Unavailable(
                "its store was replaced; it is being built anew".to_owned(),
            ));
        };
        work.generation = committed.generation;
        work.newest_entry = committed.entry.or(work.newest_entry);
        work.last_look_ns = work.looking_ns;
        let mut snapshot = self.snapshot.write();
        let mut linked: HashSet<u64> = HashSet::new();
        for finding in findings {
            let known = known_of(&finding);
            let is_newly_linked = finding.stamp.is_linked()
                && snapshot
                    .get(&finding.path)
                    .is_none_or(|known| !known.stamp.is_linked());
            if is_newly_linked && !matches!(finding.state, PathState::Dir { .. }) {
                linked.insert(finding.stamp.inode);
            }
            snapshot.set(finding.path, known);
        }
        if !linked.is_empty() {
            snapshot.set_linked(&linked);
        }
        Ok(entry.map(|entry| Recorded {
            id: committed.entry,
            counts: entry.counts,
            shared: entry.row.shared,
            head_moved: head_move(&entry.row),
            not_undoable: entry
                .row
                .not_undoable
                .or_else(|| not_kept_text(&entry.changes)),
        }))
    }

    /// Stores contents ahead of their entry.
    pub(crate) fn store_ahead(&self, findings: &mut [Finding], is_built: bool) {
        let objects = findings.iter().filter_map(|finding| finding.object.clone());
        let objects: Vec<_> = objects.collect();
        let max_bytes = match is_built {
            true => self.settings.max_bytes,
            false => self.settings.max_first_snapshot_bytes(),
        };
        // What fails here is tried again with the entry.
        let added = self.store.add_objects(&objects, max_bytes);
        if matches!(added, Ok(true)) {
            for finding in findings.iter_mut() {
                finding.object = None;
            }
        }
    }

    /// Stores contents ahead where they would make the transaction of their entry long.
    fn store_large_ahead(&self, findings: &mut [Finding], is_built: bool) {
        let objects = findings
            .iter()
            .filter_map(|finding| finding.object.as_ref());
        let bytes: usize = objects.map(|object| object.body.len()).sum();
        if self
            .store
            .max_inline_bytes()
            .is_some_and(|limit| bytes > limit)
        {
            self.store_ahead(findings, is_built);
        }
    }

    /// The changes among the findings, with moves recognised.
    fn changes(&self, findings: &[Finding], shared: bool) -> Vec<ChangeRow> {
        let snapshot = self.snapshot.read();
        let mut changes = Vec::new();
        // Of paths that are gone, by inode: which content was where.
        let mut gone: HashMap<u64, usize> = HashMap::new();
        let mut created: Vec<(u64, usize)> = Vec::new();
        for finding in findings.iter() {
            let before = snapshot.state(&finding.path);
            if finding.effect != Effect::Record || before == finding.state {
                continue;
            }
            let at = changes.len();
            let inode = snapshot.get(&finding.path).map(|known| known.stamp.inode);
            if finding.state == PathState::Absent && before.content().is_some() {
                gone.extend(inode.map(|inode| (inode, at)));
            }
            if before == PathState::Absent && finding.state.content().is_some() {
                created.push((finding.stamp.inode, at));
            }
            changes.push(ChangeRow {
                entry: EntryId(0),
                path: finding.path.clone(),
                before,
                after: finding.state,
                moved_from: None,
                moved_to: None,
                shared,
                undone_by: None,
            });
        }
        for (inode, to) in created {
            let Some(from) = gone.get(&inode).copied() else {
                continue;
            };
            if changes[from].before.content() == changes[to].after.content() {
                gone.remove(&inode);
                changes[to].moved_from = Some(changes[from].path.clone());
                changes[from].moved_to = Some(changes[to].path.clone());
            }
        }
        changes
    }

    /// Starts from nothing after the store was replaced.
    pub(crate) fn reset(&self, work: &mut Work) -> Result<()> {
        self.snapshot.write().clear();
        *work = Work {
            watch: None,
            wants_watch: work.wants_watch,
            ..Work::default()
        };
        self.read_numbers(work)?;
        self.set_built(work);
        Ok(())
    }

    pub(crate) fn read_numbers(&self, work: &mut Work) -> Result<()> {
        let state = self.store.open()?;
        work.store_number = state.number;
        work.is_built = state.is_built;
        work.last_look_ns = state.looked_ns;
        work.newest_entry = state.newest_entry;
        work.has_plans = state.has_plans;
        Ok(())
    }
}

fn known_of(finding: &Finding) -> Option<Known> {
    (finding.state != PathState::Absent).then(|| Known::new(finding.state, finding.stamp))
}

/// The content of a finding that has to be stored, and whether its state had to become one without.
fn object_to_store(
    finding: &mut Finding,
    is_full: bool,
    stored: &HashSet<ObjectId>,
) -> (Option<Arc<PackedObject>>, bool) {
    let Some(object) = &finding.object else {
        return (None, false);
    };
    if stored.contains(&object.id) {
        return (None, false);
    }
    match finding.state {
        PathState::File { mode, size, .. } if is_full => {
            finding.state = PathState::FileNotKept {
                mode,
                size,
                why: NotKeptReason::StoreFull,
            };
            finding.object = None;
            (None, true)
        }
        // A link's target is short.
        _ => (Some(Arc::clone(object)), false),
    }
}

fn not_kept_text(changes: &[ChangeRow]) -> Option<String> {
    let mut not_kept = changes.iter().filter_map(|change| {
        let why = change.before.not_kept().or(change.after.not_kept())?;
        Some((&change.path, why))
    });
    let (path, why) = not_kept.next()?;
    let more = match not_kept.count() {
        0 => String::new(),
        n => format!(", and {n} more"),
    };
    Some(format!(
        "{}: {}{more}",
        llmc_host::names::escape(path),
        why.text()
    ))
}
