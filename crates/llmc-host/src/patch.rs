//! Applies a patch to several files: to all of them or to none. It is a unified diff or in the `*** Begin Patch` form.
//!
//! Every file is leased, read and patched in memory first; only when all hunks fit does the first file change. Should a
//! later file then fail (a full disk, another program), the earlier ones are restored; should the process end, the next
//! start restores them from the journal.

mod blocks;
mod check;

use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use diffy::patch_set::{FileMode, FileOperation, ParseOptions, PatchKind, PatchSet};
use rustix::fs::{self, AtFlags, Mode, Stat};

use crate::cancel::CancelToken;
use crate::edit;
use crate::error::{Error, Result};
use crate::journal::{Journal, JournalEntry, Unfinished};
use crate::lease::Leases;
use crate::names;
use crate::read::{for_each_block, open_regular, sha256_hex};
use crate::roots::{FinalLink, RootedPath};
use crate::rules::Access;
use crate::scratch::{IfChanged, PlaceOutcome};
use crate::write::{MAX_EDIT_BYTES, Workspace, WriteState};
use blocks::BlockChange;

const MAX_PATCH_FILES: usize = 1000;
const BINARY: &str = "binary patches are not applied";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchAction {
    Created,
    Modified,
    Deleted,
    /// The path is the new name.
    Renamed,
}

/// One file of a patch that was applied.
#[derive(Debug)]
pub struct PatchedFile {
    pub path: RootedPath,
    pub action: PatchAction,
    pub hunks: usize,
}

/// The change of one file, parsed from the patch.
struct FilePatch<'a> {
    from: Option<String>,
    to: Option<String>,
    change: FileChange<'a>,
    executable: bool,
}

/// How the content of a file changes.
enum FileChange<'a> {
    Hunks(diffy::Patch<'a, str>),
    Blocks(BlockChange),
}

impl FileChange<'_> {
    fn apply(&self, requested: &str, base: &[u8]) -> Result<Vec<u8>> {
        let text = std::str::from_utf8(base).map_err(|_| Error::NotText {
            path: requested.to_owned(),
            why: "is not UTF-8 text; it cannot be patched",
        });
        match self {
            FileChange::Hunks(patch) => apply(requested, text?, patch),
            FileChange::Blocks(BlockChange::Add { content }) => Ok(content.clone().into_bytes()),
            FileChange::Blocks(BlockChange::Delete) => Ok(Vec::new()),
            FileChange::Blocks(BlockChange::Update { blocks }) => {
                blocks::apply(requested, text?, blocks).map(String::into_bytes)
            }
        }
    }

    fn hunks(&self) -> usize {
        match self {
            FileChange::Hunks(patch) => patch.hunks().len(),
            FileChange::Blocks(BlockChange::Update { blocks }) => blocks.len(),
            FileChange::Blocks(_) => 1,
        }
    }
}

/// One file change that can be executed and reverted.
struct PatchStep {
    path: RootedPath,
    old: Option<(File, Stat, Vec<u8>)>,
    new: Option<Vec<u8>>,
    mode: StepMode,
}

/// Which permission bits new content gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepMode {
    /// Those that the file has, or that a new one gets.
    Usual,
    /// The same, and it can be executed.
    Executable,
    /// These.
    Exactly(u32),
}

impl Workspace {
    /// Applies a patch in git's, plain unified or `*** Begin Patch` form.
    ///
    /// # Errors
    /// [`Error::NoMatch`] with the hunk that does not fit; nothing is written then.
    pub fn apply_patch(
        &self,
        patch: &str,
        owner: &str,
        cancel: &CancelToken,
    ) -> Result<Vec<PatchedFile>> {
        let state = self.state("patch")?;
        let patches = if blocks::is_block_form(patch) {
            parse_blocks(patch)?
        } else {
            parse(patch)?
        };
        let mut paths = Vec::new();
        for file in &patches {
            let resolve = |requested: &String, access| {
                self.roots.resolve(requested, FinalLink::Follow, access)
            };
            let from = file
                .from
                .as_ref()
                .map(|requested| resolve(requested, Access::Write))
                .transpose()?;
            let to = file
                .to
                .as_ref()
                .map(|requested| resolve(requested, Access::Write))
                .transpose()?;
            paths.push((from, to));
        }
        let mut keys: Vec<PathBuf> = paths
            .iter()
            .flat_map(|(a, b)| [a, b])
            .flatten()
            .map(RootedPath::absolute)
            .collect();
        keys.sort();
        keys.dedup();
        let leases = state
            .locks
            .acquire(&keys, owner, "patch")?
            .with_cancel(cancel);
        let mut steps = Vec::new();
        let mut report = Vec::new();
        for (file, (from, to)) in patches.iter().zip(paths) {
            report.extend(plan(file, from, to, &mut steps, cancel)?);
        }
        // One change is all-or-none by itself.
        let journal = match steps.len() {
            0 | 1 => None,
            _ => Some(begin_journal(state, &steps)?),
        };
        let mut done = Ok(());
        for at in 0..steps.len() {
            self.before_change(&steps[at].path);
            done = steps[at].execute(state, &leases);
            if done.is_err() {
                for step in steps[..at].iter().rev() {
                    step.revert(state, &leases);
                }
                break;
            }
        }
        if let Some(journal) = journal {
            journal.end();
        }
        done.map(|()| report)
    }

    /// Takes back what patches of processes that have ended left half done. Returns what was done, in words.
    pub fn take_back_unfinished_patches(&self) -> Vec<String> {
        let Ok(state) = self.state("patch") else {
            return Vec::new();
        };
        let mut said = Vec::new();
        for unfinished in state.journals.unfinished(&state.locks) {
            match self.take_back(state, &unfinished) {
                Ok(words) => {
                    said.extend(words);
                    state.journals.settle(&unfinished);
                }
                // Tried again at the next start.
                Err(error) => said.push(format!("an unfinished patch stays: {error}")),
            }
        }
        said
    }

    fn take_back(&self, state: &WriteState, unfinished: &Unfinished) -> Result<Vec<String>> {
        let cancel = CancelToken::default();
        let mut paths = Vec::new();
        for (entry, _) in &unfinished.entries {
            let path = self
                .roots
                .resolve(&entry.path, FinalLink::Follow, Access::Write)?;
            paths.push(path);
        }
        let keys: Vec<PathBuf> = paths.iter().map(RootedPath::absolute).collect();
        let leases = state.locks.acquire(&keys, "an unfinished patch", "patch")?;
        let mut said = Vec::new();
        for ((entry, bytes), path) in unfinished.entries.iter().zip(paths) {
            let shown = self.roots.display_path(&path);
            let now = match read_old(&path, &cancel) {
                Ok(now) => Some(now),
                Err(Error::NotFound { .. }) => None,
                Err(error) => return Err(error),
            };
            let holds = now.as_ref().map(|(_, _, bytes)| sha256_hex(bytes));
            let held = entry.mode.map(|_| sha256_hex(bytes));
            if holds == held {
                continue;
            }
            if holds != entry.new_sha256 {
                said.push(format!(
                    "{shown} was changed after a patch stopped half way; it is left as it is"
                ));
                continue;
            }
            let step = PatchStep {
                path,
                old: now,
                new: entry.mode.map(|_| bytes.clone()),
                mode: StepMode::Exactly(entry.mode.unwrap_or(0o644)),
            };
            step.execute(state, &leases)?;
            said.push(format!(
                "{shown} is as it was before a patch that stopped half way"
            ));
        }
        Ok(said)
    }
}

/// Notes what every file holds before the first one changes.
fn begin_journal<'a>(state: &'a WriteState, steps: &[PatchStep]) -> Result<Journal<'a>> {
    let entries: Vec<(JournalEntry, &[u8])> = steps
        .iter()
        .map(|step| {
            let old = step.old.as_ref();
            let bytes = old.map_or(&b""[..], |(_, _, bytes)| bytes.as_slice());
            let entry = JournalEntry {
                path: names::escape(step.path.absolute().as_os_str().as_bytes()),
                mode: old.map(|(_, stat, _)| stat.st_mode & 0o1777),
                bytes: bytes.len() as u64,
                new_sha256: step.new.as_deref().map(sha256_hex),
            };
            (entry, bytes)
        })
        .collect();
    state.journals.begin(&entries)
}

/// Reads and patches one file in memory.
fn plan(
    file: &FilePatch<'_>,
    from: Option<RootedPath>,
    to: Option<RootedPath>,
    steps: &mut Vec<PatchStep>,
    cancel: &CancelToken,
) -> Result<Option<PatchedFile>> {
    let old = match &from {
        Some(path) => Some(read_old(path, cancel)?),
        None => None,
    };
    let base = old
        .as_ref()
        .map_or(&b""[..], |(_, _, bytes)| bytes.as_slice());
    let requested = file
        .from
        .as_ref()
        .or(file.to.as_ref())
        .map_or("patch", String::as_str);
    let new = file.change.apply(requested, base)?;
    let hunks = file.change.hunks();
    let step = |path: RootedPath, old, new| PatchStep {
        path,
        old,
        new,
        mode: if file.executable {
            StepMode::Executable
        } else {
            StepMode::Usual
        },
    };
    let (path, action) = match (from, to) {
        (Some(from), Some(to)) if from.absolute() == to.absolute() => {
            steps.push(step(from.clone(), old, Some(new)));
            (from, PatchAction::Modified)
        }
        (Some(from), Some(to)) => {
            refuse_existing(&to)?;
            steps.push(step(to.clone(), None, Some(new)));
            steps.push(step(from, old, None));
            (to, PatchAction::Renamed)
        }
        (Some(from), None) => {
            if !new.is_empty() {
                let summary =
                    "the patch deletes the file, but its content is not what the patch removes"
                        .to_owned();
                return Err(Error::NoMatch {
                    path: requested.to_owned(),
                    summary,
                    found: 0,
                    nearest: String::new(),
                });
            }
            steps.push(step(from.clone(), old, None));
            (from, PatchAction::Deleted)
        }
        (None, Some(to)) => {
            refuse_existing(&to)?;
            steps.push(step(to.clone(), None, Some(new)));
            (to, PatchAction::Created)
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(PatchedFile {
        path,
        action,
        hunks,
    }))
}

impl PatchStep {
    fn execute(&self, state: &WriteState, leases: &Leases<'_>) -> Result<()> {
        let changed = || Error::Busy {
            path: self.path.requested().to_owned(),
            holder: "another program that changed the file".to_owned(),
            waited_ms: 0,
        };
        let placed = match (&self.old, &self.new) {
            (Some((file, stat, _)), Some(new)) => state.scratch.replace(
                &self.path,
                (file, stat),
                IfChanged::Abort,
                leases,
                |out| self.fill(out, new),
            )?,
            (None, Some(new)) => state
                .scratch
                .create(&self.path, leases, |out| self.fill(out, new))?,
            (Some(_), None) => {
                let (dir, name) = self.path.parent()?;
                let gone = leases.commit(|| Ok(fs::unlinkat(&dir, name, AtFlags::empty())))?;
                gone.map_err(|errno| Error::from_write_errno(self.path.requested(), errno))?;
                PlaceOutcome::Done
            }
            (None, None) => PlaceOutcome::Done,
        };
        if placed == PlaceOutcome::Done {
            Ok(())
        } else {
            Err(changed())
        }
    }

    /// Puts things back. A failure here is ignored: the caller gets the error that made the revert necessary.
    fn revert(&self, state: &WriteState, leases: &Leases<'_>) {
        let undone = match (&self.old, &self.new) {
            (None, Some(_)) => PatchStep {
                path: self.path.clone(),
                old: read_old(&self.path, &CancelToken::default()).ok(),
                new: None,
                mode: StepMode::Usual,
            },
            (Some((_, _, bytes)), _) => PatchStep {
                path: self.path.clone(),
                old: read_old(&self.path, &CancelToken::default()).ok(),
                new: Some(bytes.clone()),
                mode: StepMode::Usual,
            },
            (None, None) => return,
        };
        let _ = undone.execute(state, leases);
    }

    fn fill(&self, out: &mut File, bytes: &[u8]) -> Result<()> {
        let failed = |source| Error::WriteFailed {
            path: self.path.requested().to_owned(),
            source,
        };
        out.write_all(bytes).map_err(failed)?;
        let mode = || fs::fstat(&*out).map_or(0o644, |stat| stat.st_mode & 0o777);
        let mode = match self.mode {
            StepMode::Usual => return Ok(()),
            StepMode::Executable => mode() | 0o111,
            StepMode::Exactly(mode) => mode,
        };
        let _ = fs::fchmod(&*out, Mode::from_raw_mode(mode));
        Ok(())
    }
}

fn read_old(path: &RootedPath, cancel: &CancelToken) -> Result<(File, Stat, Vec<u8>)> {
    let (mut file, stat) = open_regular(path)?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    if size > MAX_EDIT_BYTES as u64 {
        let why = format!("{size} bytes; files above {MAX_EDIT_BYTES} bytes are not patched");
        return Err(Error::TooLarge {
            path: path.requested().to_owned(),
            why,
        });
    }
    let mut bytes = Vec::new();
    for_each_block(&mut file, path.requested(), size, cancel, |block| {
        bytes.extend_from_slice(block);
        Ok(())
    })?;
    Ok((file, stat, bytes))
}

fn refuse_existing(path: &RootedPath) -> Result<()> {
    match path.lstat() {
        Ok(_) => Err(Error::AlreadyExists {
            path: path.requested().to_owned(),
        }),
        Err(_) => Ok(()),
    }
}

/// Applies the hunks; one that does not fit is shown beside what is there.
fn apply(requested: &str, text: &str, patch: &diffy::Patch<'_, str>) -> Result<Vec<u8>> {
    diffy::apply(text, patch)
        .map(String::into_bytes)
        .map_err(|error| {
            let number: usize = error
                .to_string()
                .rsplit('#')
                .next()
                .and_then(|n| n.parse().ok())
                .unwrap_or(1);
            let hunk = patch.hunks().get(number.saturating_sub(1));
            let expected: String = hunk
                .into_iter()
                .flat_map(|hunk| hunk.lines())
                .filter_map(|line| match line {
                    diffy::Line::Context(text) | diffy::Line::Delete(text) => Some(*text),
                    diffy::Line::Insert(_) => None,
                })
                .collect();
            let summary = format!(
                "hunk {number} of {} does not apply; expected these lines:\n{expected}",
                patch.hunks().len()
            );
            Error::NoMatch {
                path: requested.to_owned(),
                summary,
                found: 0,
                nearest: edit::nearest_region(text.as_bytes(), &expected),
            }
        })
}

/// Reads a patch in the `*** Begin Patch` form.
fn parse_blocks(patch: &str) -> Result<Vec<FilePatch<'_>>> {
    let files = blocks::parse(patch)?;
    check_count(files.len())?;
    if files.is_empty() {
        return Err(Error::BadPatch("it changes no file".to_owned()));
    }
    let files = files.into_iter().map(|file| FilePatch {
        from: file.from,
        to: file.to,
        change: FileChange::Blocks(file.change),
        executable: false,
    });
    Ok(files.collect())
}

fn check_count(files: usize) -> Result<()> {
    if files <= MAX_PATCH_FILES {
        return Ok(());
    }
    Err(Error::BadRequest(format!(
        "more than {MAX_PATCH_FILES} files in one patch"
    )))
}

/// What is wrong with a unified diff, and where.
fn unreadable(patch: &str, why: &str) -> Error {
    if patch.lines().any(|line| line == "GIT binary patch") {
        return Error::BadRequest(BINARY.to_owned());
    }
    Error::BadPatch(match check::bad_line(patch) {
        Some((line, why)) => format!("line {line}: {why}"),
        None => why.to_owned(),
    })
}

/// Reads the patch. Names come as git writes them (`a/…`, `b/…`) or plain.
fn parse(patch: &str) -> Result<Vec<FilePatch<'_>>> {
    let git = patch.lines().any(|line| line.starts_with("diff --git "));
    let options = if git {
        ParseOptions::gitdiff()
    } else {
        ParseOptions::unidiff()
    };
    let mut patches = Vec::new();
    for file in PatchSet::parse(patch, options) {
        let file = file.map_err(|error| unreadable(patch, &error.to_string()))?;
        check_count(patches.len() + 1)?;
        if matches!(file.new_mode(), Some(FileMode::Symlink | FileMode::Gitlink)) {
            return Err(Error::BadRequest(
                "links and submodules are not patched".to_owned(),
            ));
        }
        let prefixed = |name: &str| name.starts_with("a/") || name.starts_with("b/");
        let strip = match file.operation() {
            FileOperation::Modify { original, modified } => {
                usize::from(prefixed(original) && prefixed(modified))
            }
            FileOperation::Create(name) | FileOperation::Delete(name) => {
                usize::from(prefixed(name))
            }
            // git gives the names of renames without prefix.
            FileOperation::Rename { .. } | FileOperation::Copy { .. } => 0,
        };
        let executable = file.new_mode() == Some(&FileMode::Executable);
        let (from, to) = match file.operation().strip_prefix(strip) {
            FileOperation::Delete(name) => (Some(name.into_owned()), None),
            FileOperation::Create(name) => (None, Some(name.into_owned())),
            FileOperation::Modify { original, modified } => {
                (Some(original.into_owned()), Some(modified.into_owned()))
            }
            FileOperation::Rename { from, to } => (Some(from.into_owned()), Some(to.into_owned())),
            FileOperation::Copy { .. } => {
                return Err(Error::BadRequest(
                    "copies are not patched; create the new file instead".to_owned(),
                ));
            }
        };
        let change = match file.into_patch() {
            PatchKind::Text(patch) => patch,
            PatchKind::Binary(_) => {
                return Err(Error::BadRequest(BINARY.to_owned()));
            }
        };
        let named_only = change.hunks().is_empty() && !git;
        if named_only {
            return Err(Error::BadPatch(
                "it names a file but holds no hunk for it".to_owned(),
            ));
        }
        patches.push(FilePatch {
            from,
            to,
            change: FileChange::Hunks(change),
            executable,
        });
    }
    if patches.is_empty() {
        return Err(unreadable(patch, "it changes no file"));
    }
    Ok(patches)
}

#[cfg(test)]
mod tests;
