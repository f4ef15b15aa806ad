//! Writes what a comparison found: one transaction for contents, entry and snapshot.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, params};

use crate::compare::{Effect, Finding};
use crate::entry::{ChangeCounts, EntryId, EntrySource, NotKeptReason, PathState};
use crate::error::{Error, Result};
use crate::history::{Inner, Work};
use crate::recording::{HeadMove, Recorded};
use crate::shared::Sharing;
use crate::snapshot::{Known, now_ns};
use crate::store::{self, ChangeRow, NewEntryRow};

/// What is written beside the findings.
#[derive(Debug, Default)]
pub(crate) struct CommitRequest {
    pub(crate) entry: NewEntryRow,
    /// The call in `active` that these changes are of.
    pub(crate) call: Option<String>,
    /// Whether the call goes on.
    pub(crate) is_checkpoint: bool,
    /// The plan of an undo that is done.
    pub(crate) plan: Option<i64>,
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

impl Inner {
    /// Records the findings as one entry, if any is a change or HEAD moved.
    pub(crate) fn commit(
        &self,
        work: &mut Work,
        mut findings: Vec<Finding>,
        source: EntrySource,
        request: &CommitRequest,
    ) -> Result<Option<Recorded>> {
        let now_ms = self.clock.now_ms();
        self.copy_shared_ahead(&findings);
        let store_number = work.store_number;
        let known = work.generation;
        let (recorded, applied, generation) = self.store.write(|conn| {
            if store::number(conn, "store")? != store_number {
                // Another process found the file damaged and began a new one.
                return Ok((None, Vec::new(), None));
            }
            self.learn(conn, known, &mut findings)?;
            if request.is_first_snapshot {
                drop_known(conn, &mut findings)?;
            }
            let shared = end_call(conn, request)?;
            let mut changes = self.changes(&findings, shared && !request.is_exact);
            changes.extend(request.unknown.iter().cloned());
            let used = store::used_bytes(conn)?;
            let mut not_stored = false;
            for finding in &mut findings {
                // The first snapshot leaves room for entries.
                let limit = match finding.effect {
                    Effect::Adopt => self.settings.max_bytes / 2,
                    Effect::Record | Effect::Forget => self.settings.max_bytes,
                };
                not_stored |= store_object(conn, finding, used > limit, now_ms)?;
            }
            if not_stored {
                // States without their contents.
                let states: HashMap<&[u8], PathState> = findings
                    .iter()
                    .map(|f| (f.path.as_slice(), f.state))
                    .collect();
                for change in &mut changes {
                    if let Some(state) = states.get(change.path.as_slice()) {
                        change.after = *state;
                    }
                }
            }
            self.copy_shared(conn, &mut changes, used > self.settings.max_bytes, now_ms)?;
            let mut generation = store::number(conn, "generation")?;
            if !findings.is_empty() {
                generation += 1;
                store::set_number(conn, "generation", generation)?;
            }
            for finding in &findings {
                let known = known_of(finding);
                store::put_snapshot(conn, &finding.path, known.as_ref(), generation)?;
            }
            store::set_number(conn, "looked_ns", work.looking_ns)?;
            if let Some(plan) = request.plan {
                conn.execute("DELETE FROM plans WHERE id = ?1", [plan])?;
            }
            let head = &request.entry;
            let head_moved = match (&head.head_before, &head.head_after) {
                (Some(before), Some(after)) if before != after => Some(HeadMove {
                    before: before.clone(),
                    after: after.clone(),
                }),
                _ => None,
            };
            let mut recorded = None;
            if !changes.is_empty() || head_moved.is_some() {
                let mut entry = request.entry.clone();
                entry.shared = shared && !request.is_exact;
                if head_moved.is_none() {
                    (entry.head_before, entry.head_after) = (None, None);
                }
                let counts = ChangeCounts {
                    ignored: request.ignored,
                    ..store::count_changes(&changes)
                };
                let id = store::add_entry(conn, source, &entry, &changes, &counts, now_ms)?;
                for (entry, path) in &request.taken_back {
                    store::set_undone(conn, *entry, path, Some(id))?;
                    // Taking back an undo puts in force what it took back.
                    store::clear_undone(conn, *entry, path)?;
                }
                recorded = Some(Recorded {
                    id: Some(id),
                    counts,
                    shared: entry.shared,
                    head_moved,
                    not_undoable: entry.not_undoable.or_else(|| not_kept_text(&changes)),
                });
            }
            Ok::<_, rusqlite::Error>((recorded, findings, Some(generation)))
        })?;
        let Some(generation) = generation else {
            self.reset(work)?;
            return Err(Error::Unavailable(
                "its file was replaced; it is being built anew".to_owned(),
            ));
        };
        work.generation = generation;
        work.last_look_ns = work.looking_ns;
        let mut snapshot = self.snapshot.write();
        let mut linked: HashSet<u64> = HashSet::new();
        for finding in applied {
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
        Ok(recorded)
    }

    /// Stores contents ahead of their entry.
    pub(crate) fn store_ahead(&self, findings: &mut [Finding]) {
        let now_ms = self.clock.now_ms();
        // What fails here is tried again with the entry.
        let _ = self.store.write(|conn| {
            if store::used_bytes(conn)? <= self.settings.max_bytes {
                for object in findings
                    .iter()
                    .filter_map(|finding| finding.object.as_ref())
                {
                    store::add_object(conn, object, now_ms)?;
                }
                for finding in findings.iter_mut() {
                    finding.object = None;
                }
            }
            Ok::<_, rusqlite::Error>(())
        });
    }

    /// Learns what other servers have recorded since this one's last write, and looks again at paths that both have seen.
    fn learn(
        &self,
        conn: &Connection,
        since: i64,
        findings: &mut Vec<Finding>,
    ) -> rusqlite::Result<()> {
        let mut learned: HashSet<Vec<u8>> = HashSet::new();
        {
            let mut snapshot = self.snapshot.write();
            store::snapshot_since(conn, since, |path, known| {
                learned.insert(path.clone());
                snapshot.set(path, known);
            })?;
        }
        if learned.is_empty() {
            return Ok(());
        }
        let has_object = |id: &_| store::has_object(conn, id).unwrap_or(false);
        let objects = self.repository();
        let comparer = self.comparer(&has_object, Sharing::Unchanged(&objects), &|_| {});
        findings.retain_mut(|finding| {
            if !learned.contains(&finding.path) || finding.effect == Effect::Forget {
                return true;
            }
            if finding.effect == Effect::Adopt {
                return false;
            }
            match comparer.examine(&finding.path) {
                Some(again) => {
                    let effect = finding.effect;
                    *finding = again;
                    finding.effect = effect;
                    true
                }
                None => false,
            }
        });
        Ok(())
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

    /// The first write of a store names it, so that other processes notice when the file is replaced.
    pub(crate) fn read_numbers(&self, work: &mut Work) -> Result<()> {
        let (store_number, is_built, looked_ns) = self.store.write(|conn| {
            let mut number = store::number(conn, "store")?;
            if number == 0 {
                number = now_ns();
                store::set_number(conn, "store", number)?;
            }
            let is_built = store::number(conn, "built")? != 0;
            Ok::<_, rusqlite::Error>((number, is_built, store::number(conn, "looked_ns")?))
        })?;
        work.store_number = store_number;
        work.is_built = is_built;
        work.last_look_ns = looked_ns;
        Ok(())
    }
}

/// Drops what another server's call has said to be absent, or changed, before the first snapshot came to it: the change is
/// that call's to record.
fn drop_known(conn: &Connection, findings: &mut Vec<Finding>) -> rusqlite::Result<()> {
    let mut known = HashSet::new();
    for finding in findings.iter() {
        if store::is_in_snapshot(conn, &finding.path)? {
            known.insert(finding.path.clone());
        }
    }
    findings.retain(|finding| !known.contains(&finding.path));
    Ok(())
}

fn known_of(finding: &Finding) -> Option<Known> {
    (finding.state != PathState::Absent).then(|| Known::new(finding.state, finding.stamp))
}

/// Stores a finding's content; whether its state had to become one without.
fn store_object(
    conn: &Connection,
    finding: &mut Finding,
    is_full: bool,
    now_ms: i64,
) -> rusqlite::Result<bool> {
    let Some(object) = finding.object.take() else {
        return Ok(false);
    };
    if !is_full {
        store::add_object(conn, &object, now_ms)?;
        return Ok(false);
    }
    if store::has_object(conn, &object.id)? {
        return Ok(false);
    }
    if let PathState::File { mode, size, .. } = finding.state {
        finding.state = PathState::FileNotKept {
            mode,
            size,
            why: NotKeptReason::StoreFull,
        };
        return Ok(true);
    }
    // A link's target is short.
    store::add_object(conn, &object, now_ms)?;
    Ok(false)
}

/// Whether other calls were active during this one; removes it from the active ones unless it goes on.
fn end_call(conn: &Connection, request: &CommitRequest) -> rusqlite::Result<bool> {
    let Some(call) = &request.call else {
        return Ok(request.entry.shared);
    };
    let mut select = conn.prepare_cached("SELECT shared FROM active WHERE call = ?1")?;
    let shared: bool = select.query_row([call], |row| row.get(0)).unwrap_or(false);
    if request.is_checkpoint {
        conn.execute(
            "UPDATE active SET shared = EXISTS (SELECT 1 FROM active WHERE call != ?1) WHERE call = ?1",
            params![call],
        )?;
    } else {
        conn.execute("DELETE FROM active WHERE call = ?1", params![call])?;
    }
    Ok(shared)
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
