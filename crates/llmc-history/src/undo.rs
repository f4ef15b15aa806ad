//! Choosing the changes to take back, and planning which path gets which state.
//!
//! The chosen changes are composed per path, newest first. A path is restored only if what is there is what the newest of
//! them left; anything else is newer content, which stays and is reported.

use std::collections::{BTreeMap, BTreeSet};

use llmc_host::{Access, CancelToken, PathEntry, lock};
use rustix::fs::OFlags;
use serde::Serialize;

use crate::compare::Comparer;
use crate::entry::{ChangeAuthor, EntryId, EntrySource, HistoryViewer, NotKeptReason, PathState};
use crate::error::{Error, Result};
use crate::head;
use crate::history::{Inner, Work};
use crate::restore::{RestorePlan, RestoreStep};
use crate::snapshot::{is_within, parent};
use crate::store::{ChangeRow, ChosenEntries};

/// Changes that one undo takes back; more would take minutes and memory.
const MAX_CHANGES: usize = 500_000;

/// Which changes to take back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoTarget {
    Entry(EntryId),
    /// Both included, changes from outside among them.
    Range(EntryId, EntryId),
    /// The calls of a session. Changes from outside stay.
    Session(String),
    /// All calls after this time, in milliseconds since 1970. Changes from outside stay.
    To(i64),
}

#[derive(Debug, Clone)]
pub struct UndoRequest {
    pub target: UndoTarget,
    /// Only these paths, and what is below them; none means all.
    pub paths: Vec<Vec<u8>>,
    /// Report what would happen, change nothing.
    pub dry_run: bool,
    /// All or nothing: when some path cannot be restored, none is.
    pub atomic: bool,
    /// Shared changes to take back all the same: these paths, and what is below them.
    pub force_shared: Vec<Vec<u8>>,
    pub viewer: HistoryViewer,
    /// Who undoes; becomes the author of the new entry and the owner of the leases.
    pub author: ChangeAuthor,
    pub cancel: CancelToken,
}

/// A path that was left as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UndoConflict {
    #[serde(serialize_with = "crate::entry::serialize_path")]
    pub path: Vec<u8>,
    /// What the undone change left there.
    pub expected: PathState,
    /// What is there now.
    pub found: PathState,
    /// In words.
    pub why: String,
}

/// What an undo did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct UndoReport {
    /// The undo's own entry; `None` for a dry run and when nothing was restored.
    pub entry: Option<EntryId>,
    /// The entries that were chosen, newest first.
    pub undone: Vec<EntryId>,
    #[serde(serialize_with = "serialize_paths")]
    pub restored: Vec<Vec<u8>>,
    pub conflicts: Vec<UndoConflict>,
    /// Left because another writer was active when they changed; see [`UndoRequest::force_shared`].
    #[serde(serialize_with = "serialize_paths")]
    pub skipped_shared: Vec<Vec<u8>>,
    /// Left because the earlier content is not in the history.
    pub not_kept: Vec<(String, NotKeptReason)>,
    /// What the user runs to have the earlier commit checked out; undo never touches the repository.
    pub git_command: Option<String>,
}

fn serialize_paths<S: serde::Serializer>(
    paths: &[Vec<u8>],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(|path| llmc_host::names::escape(path)))
}

/// The chosen changes of one path.
struct PathUndo {
    /// What the newest change left.
    expected: PathState,
    /// What was there before the oldest.
    target: PathState,
    entries: Vec<EntryId>,
    shared: bool,
    /// What a chosen change left, where a change that is not chosen follows.
    broken: Option<PathState>,
}

/// What was chosen.
struct Chosen {
    entries: Vec<EntryId>,
    rows: Vec<ChangeRow>,
    /// What was checked out before the oldest and after the newest.
    heads: Option<(String, String)>,
}

impl Inner {
    pub(crate) fn undo(&self, request: &UndoRequest) -> Result<UndoReport> {
        let work = &mut *lock(&self.work);
        self.load(work)?;
        self.finish_plans(work);
        if request.dry_run {
            let (report, _) = self.plan_undo(work, request)?;
            return Ok(report);
        }
        let (call, are_others_active) = self.begin_call()?;
        let undone = self.undo_now(work, request, are_others_active);
        let _ = self.store.end_call(&call);
        undone
    }

    fn undo_now(
        &self,
        work: &mut Work,
        request: &UndoRequest,
        are_others_active: bool,
    ) -> Result<UndoReport> {
        if work.is_built && !are_others_active {
            match self.record_outside(work) {
                // The paths to be restored are compared one by one in any case.
                Ok(()) | Err(Error::TooManyFiles(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let (mut report, plan) = self.plan_undo(work, request)?;
        let is_partial = !report.conflicts.is_empty()
            || !report.skipped_shared.is_empty()
            || !report.not_kept.is_empty();
        if request.atomic && is_partial {
            report.restored.clear();
            report.git_command = None;
            return Ok(report);
        }
        if plan.steps.is_empty() {
            return Ok(report);
        }
        let (entry, failed) = self.restore(work, plan, &request.cancel)?;
        report.entry = entry;
        report
            .restored
            .retain(|path| !failed.iter().any(|conflict| conflict.path == *path));
        report.conflicts.extend(failed);
        Ok(report)
    }

    fn plan_undo(
        &self,
        work: &mut Work,
        request: &UndoRequest,
    ) -> Result<(UndoReport, RestorePlan)> {
        let chosen = self.choose(request)?;
        let paths = compose(&chosen);
        let contents = paths.values().filter_map(|undo| undo.target.content());
        let stored = self.store.stored(&contents.collect::<Vec<_>>())?;
        let mut report = UndoReport {
            undone: chosen.entries.clone(),
            ..UndoReport::default()
        };
        let mut steps: BTreeMap<Vec<u8>, RestoreStep> = BTreeMap::new();
        let mut taken_back = Vec::new();
        self.compare(work, |comparer, _| {
            for (path, undo) in paths {
                let is_lost = (undo.target.content()).is_some_and(|id| !stored.contains(&id));
                self.plan_path(
                    comparer,
                    request,
                    is_lost,
                    path,
                    undo,
                    &mut report,
                    &mut steps,
                    &mut taken_back,
                );
            }
            Ok(())
        })?;
        self.drop_blocked(&mut steps, &mut report);
        taken_back.retain(|(_, path)| {
            !report
                .conflicts
                .iter()
                .any(|conflict| conflict.path == *path)
        });
        report.restored = steps.keys().cloned().collect();
        if let Some((before, after)) = &chosen.heads
            && head::checked_out(&self.files.roots).as_ref() == Some(after)
        {
            report.git_command = head::command_back(before, after);
        }
        let plan = RestorePlan {
            author: request.author.clone(),
            undoes: chosen.entries,
            taken_back,
            steps: steps.into_values().collect(),
        };
        Ok((report, plan))
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "one step of a loop, taken out of it"
    )]
    fn plan_path(
        &self,
        comparer: &Comparer<'_>,
        request: &UndoRequest,
        is_lost: bool,
        path: Vec<u8>,
        undo: PathUndo,
        report: &mut UndoReport,
        steps: &mut BTreeMap<Vec<u8>, RestoreStep>,
        taken_back: &mut Vec<(EntryId, Vec<u8>)>,
    ) {
        let is_forced = request.force_shared.iter().any(|dir| is_within(&path, dir));
        if undo.shared && !is_forced {
            report.skipped_shared.push(path);
            return;
        }
        let why = undo.target.not_kept().or(undo.expected.not_kept());
        if let Some(why) = why.or(is_lost.then_some(NotKeptReason::Unreadable)) {
            report.not_kept.push((llmc_host::names::escape(&path), why));
            return;
        }
        let (found, refused) = match self.found(comparer, &path) {
            Ok(found) => (found, None),
            Err(why) => (PathState::Absent, Some(why)),
        };
        let why = match (refused, &undo.broken) {
            (Some(why), _) => Some(why),
            (None, Some(_)) => Some("a change in between is not being undone".to_owned()),
            (None, None) if found == undo.target => None,
            (None, None) if found != undo.expected => Some("it has changed since".to_owned()),
            (None, None) => None,
        };
        if let Some(why) = why {
            report.conflicts.push(UndoConflict {
                path,
                expected: undo.broken.unwrap_or(undo.expected),
                found,
                why,
            });
            return;
        }
        taken_back.extend(undo.entries.iter().map(|entry| (*entry, path.clone())));
        if found != undo.target {
            steps.insert(
                path.clone(),
                RestoreStep {
                    path,
                    expected: undo.expected,
                    target: undo.target,
                },
            );
        }
    }

    /// What is at a path now, or why it cannot be restored.
    fn found(
        &self,
        comparer: &Comparer<'_>,
        path: &[u8],
    ) -> std::result::Result<PathState, String> {
        let exact = self.files.roots.exact_path(path, Access::Replace);
        let entry = exact.and_then(|exact| exact.entry());
        match entry {
            Err(error) => Err(error.to_string()),
            Ok(PathEntry::Special) => Err("a special file is there now".to_owned()),
            Ok(_) => Ok(match comparer.examine(path) {
                Some(finding) => finding.state,
                None => self.snapshot.read().state(path),
            }),
        }
    }

    /// Drops steps that cannot be done because of what stays beside them: directories that would not be empty, and
    /// entries whose directory would not be there.
    fn drop_blocked(&self, steps: &mut BTreeMap<Vec<u8>, RestoreStep>, report: &mut UndoReport) {
        let mut children: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
        for step in steps.values().filter(|step| step.removes_dir()) {
            children.insert(step.path.clone(), self.children(&step.path));
        }
        loop {
            let mut blocked: Vec<(Vec<u8>, String)> = Vec::new();
            for (dir, names) in children.iter().rev() {
                let stays = |child: &&Vec<u8>| {
                    steps
                        .get(*child)
                        .is_none_or(|step| step.target != PathState::Absent)
                };
                if steps.contains_key(dir)
                    && let Some(child) = names.iter().find(stays)
                {
                    let shown = llmc_host::names::escape(child);
                    blocked.push((dir.clone(), format!("it holds {shown}, which stays")));
                }
            }
            for step in steps
                .values()
                .filter(|step| step.target != PathState::Absent)
            {
                if let Some(dir) = parent(&step.path)
                    && !self.will_be_dir(dir, steps)
                {
                    let why = "its directory is not there; undo the entry that removed it first";
                    blocked.push((step.path.clone(), why.to_owned()));
                }
            }
            if blocked.is_empty() {
                return;
            }
            for (path, why) in blocked {
                if let Some(step) = steps.remove(&path) {
                    report.conflicts.push(UndoConflict {
                        path,
                        expected: step.expected,
                        found: step.expected,
                        why,
                    });
                }
            }
        }
    }

    fn will_be_dir(&self, dir: &[u8], steps: &BTreeMap<Vec<u8>, RestoreStep>) -> bool {
        if let Some(step) = steps.get(dir) {
            return matches!(step.target, PathState::Dir { .. });
        }
        let exact = self.files.roots.exact_path(dir, Access::Read);
        let entry = exact.and_then(|exact| exact.entry());
        matches!(entry, Ok(PathEntry::Dir { .. }))
    }

    /// The paths of a directory's entries, ignored ones among them.
    fn children(&self, dir: &[u8]) -> Vec<Vec<u8>> {
        let opened = self
            .files
            .roots
            .exact_path(dir, Access::Read)
            .and_then(|exact| exact.open(OFlags::RDONLY | OFlags::DIRECTORY));
        let Ok(entries) = opened.map(rustix::fs::Dir::new) else {
            return Vec::new();
        };
        let entries = entries.into_iter().flatten().flatten();
        entries
            .map(|entry| entry.file_name().to_bytes().to_vec())
            .filter(|name| !matches!(name.as_slice(), b"." | b".."))
            .map(|name| [dir, b"/", &name].concat())
            .collect()
    }

    fn choose(&self, request: &UndoRequest) -> Result<Chosen> {
        let meant = match &request.target {
            UndoTarget::Entry(id) => ChosenEntries::Range(*id, *id),
            UndoTarget::Range(a, b) => ChosenEntries::Range(*a.min(b), *a.max(b)),
            UndoTarget::Session(session) => ChosenEntries::Session(session),
            UndoTarget::To(time_ms) => ChosenEntries::Since(*time_ms),
        };
        let mut chosen = Chosen {
            entries: Vec::new(),
            rows: Vec::new(),
            heads: None,
        };
        for found in self.store.choose(&meant, &request.viewer, MAX_CHANGES)? {
            chosen.entries.push(found.entry.id);
            chosen.rows.extend(found.changes);
            if let (Some(before), Some(after)) = (found.entry.head_before, found.entry.head_after) {
                // Newest first: the newest `after` stays, the oldest `before` wins.
                let newest = chosen.heads.take().map_or(after, |(_, newest)| newest);
                chosen.heads = Some((before, newest));
            }
        }
        if chosen.rows.len() > MAX_CHANGES {
            return Err(Error::BadRequest(format!(
                "more than {MAX_CHANGES} changes; undo fewer entries at a time"
            )));
        }
        let nothing = |what: &str| Err(Error::BadRequest(format!("nothing to undo: {what}")));
        match &request.target {
            UndoTarget::Entry(id) | UndoTarget::Range(id, _) if chosen.entries.is_empty() => {
                Err(Error::UnknownEntry(*id))
            }
            UndoTarget::Session(session) if chosen.entries.is_empty() => {
                nothing(&format!("no entry of session {session}"))
            }
            UndoTarget::To(_) if chosen.entries.is_empty() => nothing("no call after that time"),
            UndoTarget::Entry(id) => match all_undone_by(&chosen.rows) {
                Some(by) => Err(Error::AlreadyUndone { entry: *id, by }),
                None => Ok(chosen.within(&request.paths)),
            },
            _ => Ok(chosen.within(&request.paths)),
        }
    }
}

impl Chosen {
    /// Keeps the changes at these paths that no entry outside the choice has taken back.
    fn within(mut self, paths: &[Vec<u8>]) -> Chosen {
        let entries: BTreeSet<EntryId> = self.entries.iter().copied().collect();
        self.rows.retain(|row| {
            let is_meant = paths.is_empty() || paths.iter().any(|dir| is_within(&row.path, dir));
            is_meant && row.undone_by.is_none_or(|by| entries.contains(&by))
        });
        self
    }
}

/// The undo that took back the last of these changes, when none is left.
fn all_undone_by(rows: &[ChangeRow]) -> Option<EntryId> {
    let by: Option<Vec<EntryId>> = rows.iter().map(|row| row.undone_by).collect();
    by?.into_iter().max()
}

/// Composes the chosen changes per path; they come newest first.
fn compose(chosen: &Chosen) -> BTreeMap<Vec<u8>, PathUndo> {
    let mut paths: BTreeMap<Vec<u8>, PathUndo> = BTreeMap::new();
    for row in &chosen.rows {
        match paths.get_mut(&row.path) {
            None => {
                let undo = PathUndo {
                    expected: row.after,
                    target: row.before,
                    entries: vec![row.entry],
                    shared: row.shared,
                    broken: None,
                };
                paths.insert(row.path.clone(), undo);
            }
            Some(undo) => {
                if row.after != undo.target {
                    undo.broken.get_or_insert(row.after);
                }
                undo.target = row.before;
                undo.entries.push(row.entry);
                undo.shared |= row.shared;
            }
        }
    }
    paths
}

/// An undo's entry.
pub(crate) const SOURCE: EntrySource = EntrySource::Undo;
