//! Putting earlier states back, so that a killed process leaves nothing half done for good.
//!
//! The plan is stored before the first path is touched. Every step is atomic or passes through states that are recognised, so the
//! next process that uses the history finishes what is left of the plan and records the whole as one undo.

use std::fmt;
use std::io::Read;

use llmc_host::{CancelToken, NewEntry, PathEntry, PutOutcome};
use serde::{Deserialize, Serialize};

use crate::commit::CommitRequest;
use crate::entry::{ChangeAuthor, EntryId, ObjectId, PathState};
use crate::error::{Error, Result};
use crate::history::{Inner, Work};
use crate::objects::blob_id;
use crate::store::{NewEntryRow, PlanId, state_columns, state_from};
use crate::undo::UndoConflict;

/// What an undo is about to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RestorePlan {
    pub(crate) author: ChangeAuthor,
    #[serde(with = "entry_ids")]
    pub(crate) undoes: Vec<EntryId>,
    #[serde(with = "taken_back")]
    pub(crate) taken_back: Vec<(EntryId, Vec<u8>)>,
    pub(crate) steps: Vec<RestoreStep>,
}

/// One path that goes from one state to another.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RestoreStep {
    pub(crate) path: Vec<u8>,
    #[serde(with = "path_state")]
    pub(crate) expected: PathState,
    #[serde(with = "path_state")]
    pub(crate) target: PathState,
}

impl RestoreStep {
    pub(crate) fn removes_dir(&self) -> bool {
        is_dir(&self.expected) && !is_dir(&self.target)
    }

    /// Where the step comes in the order of all: what is in a directory goes before it and comes after it, and rights to a
    /// directory are given first and taken last.
    fn rank(&self) -> (u8, i64) {
        let depth = i64::try_from(self.path.iter().filter(|b| **b == b'/').count()).unwrap_or(0);
        match (self.expected, self.target) {
            (PathState::Dir { .. }, PathState::Dir { mode }) if mode & 0o300 == 0o300 => (0, depth),
            (PathState::Dir { .. }, PathState::Dir { .. }) => (6, -depth),
            (PathState::Dir { .. }, _) => (2, -depth),
            (_, PathState::Absent) => (1, 0),
            (_, PathState::Dir { .. }) => (3, depth),
            _ => (4, 0),
        }
    }

    /// Whether a directory is removed that its owner may not change.
    fn is_opened(&self) -> bool {
        self.removes_dir()
            && matches!(self.expected, PathState::Dir { mode } if open_mode(mode) != mode)
    }

    /// Whether this is what the step starts from: as expected, or opened for its owner.
    fn starts_from(&self, state: &PathState) -> bool {
        let is_open = match (state, self.expected) {
            (PathState::Dir { mode }, PathState::Dir { mode: expected }) => {
                self.is_opened() && *mode == open_mode(expected)
            }
            _ => false,
        };
        *state == self.expected || is_open
    }

    /// Whether a killed undo can have left this state on the way.
    fn passes(&self, state: &PathState) -> bool {
        let is_file = |state: &PathState| matches!(state, PathState::File { .. });
        match (state, self.target) {
            (PathState::Absent, _) => !(is_file(&self.expected) && is_file(&self.target)),
            // A new directory is opened for its owner until its entries are in it.
            (PathState::Dir { mode }, PathState::Dir { mode: target }) => {
                !is_dir(&self.expected) && (*mode == open_mode(target) || *mode == 0o700)
            }
            _ => false,
        }
    }
}

fn is_dir(state: &PathState) -> bool {
    matches!(state, PathState::Dir { .. })
}

/// The mode of a new directory until its entries are in it.
fn open_mode(mode: u32) -> u32 {
    mode | 0o300
}

/// Which states a step starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RestoreRun {
    First,
    /// After the process that began was killed.
    Again,
}

/// Why a path is not in its earlier state.
#[derive(Debug)]
enum NotRestored {
    /// Another process is changing it.
    Busy(llmc_host::Error),
    Left(String),
}

impl fmt::Display for NotRestored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotRestored::Busy(error) => error.fmt(f),
            NotRestored::Left(why) => f.write_str(why),
        }
    }
}

impl From<&str> for NotRestored {
    fn from(why: &str) -> NotRestored {
        NotRestored::Left(why.to_owned())
    }
}

impl Inner {
    /// Carries out a plan and records it; the entry, and the paths that could not be restored.
    pub(crate) fn restore(
        &self,
        work: &mut Work,
        plan: RestorePlan,
        cancel: &CancelToken,
    ) -> Result<(Option<EntryId>, Vec<UndoConflict>)> {
        let text =
            serde_json::to_string(&plan).map_err(|error| Error::Unavailable(error.to_string()))?;
        let id = self.store.add_plan(&text)?;
        self.carry_out(work, id, plan, RestoreRun::First, cancel)
    }

    /// Finishes the undos of processes that were killed.
    pub(crate) fn finish_plans(&self, work: &mut Work) {
        if !work.has_plans {
            return;
        }
        let plans = self.store.take_plans();
        for (id, text) in plans.unwrap_or_default() {
            let finished = match serde_json::from_str::<RestorePlan>(&text) {
                Ok(plan) => self
                    .load(work)
                    .and_then(|()| {
                        self.carry_out(work, id, plan, RestoreRun::Again, &CancelToken::default())
                    })
                    .map(|(entry, failed)| (entry, failed.len())),
                Err(error) => {
                    let _ = self.store.remove_plan(&id);
                    Err(Error::Unavailable(error.to_string()))
                }
            };
            match finished {
                Ok((entry, conflicts)) => {
                    tracing::warn!(
                        ?entry,
                        conflicts,
                        "an undo that was interrupted is finished"
                    );
                }
                Err(error) => tracing::warn!(%error, "an interrupted undo could not be finished"),
            }
        }
    }

    fn carry_out(
        &self,
        work: &mut Work,
        id: PlanId,
        mut plan: RestorePlan,
        run: RestoreRun,
        cancel: &CancelToken,
    ) -> Result<(Option<EntryId>, Vec<UndoConflict>)> {
        plan.steps.sort_by_key(RestoreStep::rank);
        let mut failed: Vec<UndoConflict> = Vec::new();
        let owner = match plan.author.agent.is_empty() {
            true => "undo".to_owned(),
            false => format!("{} (undo)", plan.author.agent),
        };
        // A directory that goes is opened for its owner, so that its entries can go first.
        for step in plan.steps.iter().filter(|step| step.is_opened()) {
            if let PathState::Dir { mode } = step.expected {
                let _ = self.files.put_entry(
                    &step.path,
                    |found| Ok(state_of(found) == Some(step.expected)),
                    NewEntry::Mode(open_mode(mode)),
                    &owner,
                    cancel,
                );
            }
        }
        for step in &plan.steps {
            match self.put(step, run, &owner, cancel) {
                Ok(()) => {}
                // The lease of the process that was killed has not ended yet: the plan stays, and is carried out later.
                Err(NotRestored::Busy(error)) if run == RestoreRun::Again => {
                    return Err(error.into());
                }
                Err(why) => failed.push(UndoConflict {
                    path: step.path.clone(),
                    expected: step.expected,
                    found: step.expected,
                    why: why.to_string(),
                }),
            }
        }
        // New directories get their own modes once their entries are in them, and those that could not go have theirs again.
        for step in plan.steps.iter().rev() {
            let last = match step.is_opened() {
                true => step.expected,
                false => step.target,
            };
            if let PathState::Dir { mode } = last
                && open_mode(mode) != mode
            {
                let opened = PathState::Dir {
                    mode: open_mode(mode),
                };
                let _ = self.files.put_entry(
                    &step.path,
                    |found| Ok(state_of(found) == Some(opened)),
                    NewEntry::Mode(mode),
                    &owner,
                    cancel,
                );
            }
        }
        let paths: Vec<Vec<u8>> = plan.steps.iter().map(|step| step.path.clone()).collect();
        let findings = self.compare(work, |comparer, _| Ok(comparer.examine_all(paths)))?;
        for conflict in &mut failed {
            let found = findings
                .iter()
                .find(|finding| finding.path == conflict.path);
            conflict.found = match found {
                Some(finding) => finding.state,
                None => self.snapshot.read().state(&conflict.path),
            };
        }
        plan.taken_back
            .retain(|(_, path)| !failed.iter().any(|conflict| conflict.path == *path));
        let request = CommitRequest {
            entry: NewEntryRow {
                author: plan.author,
                undoes: plan.undoes,
                ..NewEntryRow::default()
            },
            plan: Some(id),
            taken_back: plan.taken_back,
            is_exact: true,
            ..CommitRequest::default()
        };
        let recorded = self.commit(work, findings, crate::undo::SOURCE, &request)?;
        Ok((recorded.and_then(|recorded| recorded.id), failed))
    }

    /// Puts a step's target in place, or says why not.
    fn put(
        &self,
        step: &RestoreStep,
        run: RestoreRun,
        owner: &str,
        cancel: &CancelToken,
    ) -> std::result::Result<(), NotRestored> {
        let content = match step.target.content() {
            None => None,
            Some(id) => match self.content(&id) {
                Ok(Some(content)) => Some(content),
                Ok(None) => return Err("its content is not in the history any more".into()),
                Err(error) => return Err(NotRestored::Left(error.to_string())),
            },
        };
        let bytes = content.as_deref().unwrap_or_default();
        let new = match step.target {
            PathState::Absent => NewEntry::Absent,
            // Also for another mode alone: a file with further names must keep its own under them.
            PathState::File { mode, .. } => NewEntry::File {
                mode,
                content: bytes,
            },
            PathState::Link { .. } => NewEntry::Link { target: bytes },
            PathState::Dir { mode } if is_dir(&step.expected) => NewEntry::Dir { mode },
            PathState::Dir { mode } => NewEntry::Dir {
                mode: open_mode(mode),
            },
            PathState::FileNotKept { why, .. } => return Err(why.text().into()),
        };
        let mut is_done = false;
        let expects = |found: &mut PathEntry| {
            let state = state_of(found);
            if run == RestoreRun::Again && state == Some(step.target) {
                is_done = true;
                return Ok(false);
            }
            Ok(state.is_some_and(|state| {
                step.starts_from(&state) || (run == RestoreRun::Again && step.passes(&state))
            }))
        };
        let outcome = self
            .files
            .put_entry(&step.path, expects, new, owner, cancel);
        match outcome {
            _ if is_done => Ok(()),
            Ok(PutOutcome::Done) => Ok(()),
            Ok(PutOutcome::Changed) => Err("it has changed since".into()),
            Ok(PutOutcome::NotEmpty) => Err("it holds files that stay".into()),
            Err(error @ llmc_host::Error::Busy { .. }) => Err(NotRestored::Busy(error)),
            Err(error) => Err(NotRestored::Left(error.to_string())),
        }
    }
}

/// The state of what is at a path, read to the last byte; `None` when it cannot be read.
fn state_of(found: &mut PathEntry) -> Option<PathState> {
    match found {
        PathEntry::Absent => Some(PathState::Absent),
        PathEntry::Dir { stat } => Some(PathState::Dir {
            mode: stat.st_mode & 0o1777,
        }),
        PathEntry::Link { target, .. } => Some(PathState::Link {
            content: blob_id(target),
        }),
        PathEntry::File { stat, file } => {
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            let mut content = Vec::new();
            file.as_mut()?
                .take(size.saturating_add(1))
                .read_to_end(&mut content)
                .ok()?;
            Some(PathState::File {
                mode: stat.st_mode & 0o1777,
                size: content.len() as u64,
                content: blob_id(&content),
            })
        }
        PathEntry::Special => None,
    }
}

mod entry_ids {
    use super::{Deserialize, EntryId, Serialize};

    pub(super) fn serialize<S: serde::Serializer>(
        ids: &[EntryId],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let ids: Vec<u64> = ids.iter().map(|id| id.0).collect();
        ids.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<EntryId>, D::Error> {
        let ids = Vec::<u64>::deserialize(deserializer)?;
        Ok(ids.into_iter().map(EntryId).collect())
    }
}

mod taken_back {
    use super::{Deserialize, EntryId, Serialize};

    pub(super) fn serialize<S: serde::Serializer>(
        rows: &[(EntryId, Vec<u8>)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let rows: Vec<(u64, &Vec<u8>)> = rows.iter().map(|(id, path)| (id.0, path)).collect();
        rows.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(EntryId, Vec<u8>)>, D::Error> {
        let rows = Vec::<(u64, Vec<u8>)>::deserialize(deserializer)?;
        Ok(rows
            .into_iter()
            .map(|(id, path)| (EntryId(id), path))
            .collect())
    }
}

/// A state as the store's columns have it.
mod path_state {
    use super::{Deserialize, ObjectId, PathState, Serialize, state_columns, state_from};

    type Columns = (i64, i64, i64, Option<[u8; 20]>, Option<i64>);

    pub(super) fn serialize<S: serde::Serializer>(
        state: &PathState,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let (kind, mode, size, id, why) = state_columns(state);
        (kind, mode, size, id.map(|id| id.0), why).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<PathState, D::Error> {
        let (kind, mode, size, id, why) = Columns::deserialize(deserializer)?;
        Ok(state_from((kind, mode, size, id.map(ObjectId), why)))
    }
}
