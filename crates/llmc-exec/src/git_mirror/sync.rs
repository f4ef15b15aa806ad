//! Comparing both sides of a mirror and carrying over what changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use llmc_host::lock;
use rustix::fs::{self as rfs, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use ulid::Ulid;

use super::events::Events;
use super::side::{Entry, Side, open_dir_at, parts};
use super::supervise::{DirId, id_of};
use super::transfer::{
    HOST_LOCK_TIMEOUT, Problem, Source, copy_link, empty, make_dir, place, remove,
};
use super::{Mirror, SYNCED_FILE, packed_refs, write_own_file};
use crate::git_index::has_same_entries;
use crate::git_new::judged;
use crate::git_vet::{Rejection, Verdict, is_judged, vet_deletion};

/// A file that must be judged is read whole, up to this size.
const MAX_JUDGED_BYTES: u64 = 16 << 20;
/// A larger list of packed refs is not merged with another one.
const MAX_PACKED_REFS_BYTES: u64 = 256 << 20;
/// Git's locks at the top level that commands see while the user's git holds them.
const HOST_LOCKS: [&str; 5] = [
    "index.lock",
    "HEAD.lock",
    "packed-refs.lock",
    "config.lock",
    "shallow.lock",
];
/// Where a commit is kept whose branch or `HEAD` could not be moved to it.
const KEPT_REFS: &str = "refs/llmc";
/// Names that many commands rewrite and none reads later: that the user's stay is not reported.
const FORGOTTEN: [&str; 4] = ["COMMIT_EDITMSG", "FETCH_HEAD", "ORIG_HEAD", "gc.log"];

/// What is known of a mirror.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Every name as it was on the user's side and in the copy when both were last compared.
    base: BTreeMap<PathBuf, Base>,
    /// Names that are not compared: what is mounted there is the user's own.
    skipped: BTreeSet<PathBuf>,
    /// The index and the packed refs that both sides had: git replaces them, so these keep what they were.
    index: Option<File>,
    packed_refs: Option<File>,
    /// Locks that stand in the copy for those of the user's git.
    shown_locks: BTreeSet<&'static str>,
    watched: BTreeSet<PathBuf>,
    /// Judged files that commands made and the user has not changed since. A file is seen while it is being written, so its
    /// later versions are judged as new ones.
    made: BTreeSet<PathBuf>,
    /// Whether a comparison was put off to the end of the run.
    is_suspended: bool,
    report: SyncReport,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Base {
    host: Option<Entry>,
    copy: Option<Entry>,
}

/// What was not carried over to the user's side.
#[derive(Debug, Default)]
pub(in super::super) struct SyncReport {
    /// What stays out because of what it says, with the git directory.
    pub(in super::super) rejected: Vec<(PathBuf, Rejection)>,
    pub(in super::super) notes: Vec<String>,
    /// Whether a command was told that something is done which is not.
    pub(in super::super) has_conflict: bool,
}

impl State {
    pub(super) fn skip(&mut self, skipped: BTreeSet<PathBuf>) {
        // What is skipped from now on has no counterpart to compare with any more.
        self.base
            .retain(|path, _| !skipped.iter().any(|dir| path.starts_with(dir)));
        self.skipped = skipped;
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.is_suspended
    }

    pub(super) fn take_report(&mut self) -> SyncReport {
        std::mem::take(&mut self.report)
    }

    pub(super) fn note_failure(&mut self, git_dir: &Path, error: &io::Error) {
        let note = format!(
            "what commands changed in {} could not be compared with the repository: {error}",
            git_dir.display()
        );
        if !self.report.notes.contains(&note) {
            self.report.notes.push(note);
        }
        self.report.has_conflict = true;
    }
}

/// Whether more changes of commands can follow at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    WhileRunning,
    AtEnd,
}

impl Mirror {
    /// Makes both sides the same, but for what must stay in the copy.
    pub(super) fn sync(&self, events: &Mutex<Events>, moment: Moment) -> io::Result<()> {
        let mut state = lock(&self.state);
        // Watched before they are read, so that no change is missed.
        let mut dirs = self.dirs(&state);
        {
            let mut events = lock(events);
            if dirs != state.watched || !events.is_watched(&self.dir) {
                events.watch(&self.dir, &self.watched_dirs(&dirs));
            }
        }
        Sync {
            mirror: self,
            state: &mut state,
        }
        .run(moment)?;
        let now = self.dirs(&state);
        if now != dirs {
            let mut events = lock(events);
            events.watch(&self.dir, &self.watched_dirs(&now));
            // What was made in them since they were listed is seen the next time.
            events.mark_dirty(&self.dir);
            dirs = now;
        }
        state.watched = dirs;
        write_own_file(&self.dir.join(SYNCED_FILE), b"")
    }

    /// Carries out a rename in a directory of the copy, once the user's side has what it makes; nothing if the directory is none
    /// of the copy, or what is renamed is left to the next comparison.
    pub(super) fn replace(
        &self,
        dir: DirId,
        from: &OsStr,
        to: &OsStr,
    ) -> Option<Result<(), Errno>> {
        let mut state = lock(&self.state);
        let dirs = self.dirs(&state);
        let is_it = |path: &&PathBuf| self.copy.dir(path).ok().and_then(id_of) == Some(dir);
        let path = dirs.iter().find(is_it)?;
        let (from, to) = (path.join(from), path.join(to));
        Sync {
            mirror: self,
            state: &mut state,
        }
        .replace(&from, &to)
    }

    /// Removes a directory that is mounted somewhere in the copy, or is the whole; nothing for any other directory.
    pub(super) fn remove_mounted(&self, dir: DirId) -> Option<Result<(), Errno>> {
        let top = self.copy.dir(Path::new("")).ok()?;
        if id_of(&top) == Some(dir) {
            let mut state = lock(&self.state);
            if !is_empty_dir(&top, &[]) {
                return Some(Err(Errno::NOTEMPTY));
            }
            let mut sync = Sync {
                mirror: self,
                state: &mut state,
            };
            let removed = sync.remove_repository();
            return Some(
                removed.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            );
        }
        let info = Path::new(super::OBJECTS_INFO);
        if self.copy.dir(info).ok().and_then(id_of) == Some(dir) {
            let objects = self.host.dir(Path::new("objects"));
            return Some(objects.and_then(|dir| rfs::unlinkat(&dir, "info", AtFlags::REMOVEDIR)));
        }
        let skipped = lock(&self.state).skipped.clone();
        let is_it = |path: &&PathBuf| self.host.dir(path).ok().and_then(id_of) == Some(dir);
        let path = skipped.iter().find(is_it)?;
        if !self.host.dir(path).is_ok_and(|dir| is_empty_dir(&dir, &[])) {
            return Some(Err(Errno::NOTEMPTY));
        }
        // The mount goes with the directory that it is on; what was in it is looked at when the whole is removed.
        Some(remove(&self.copy, path, Entry::Directory))
    }

    /// Carries one name over that a killed server had not. Whether it is done.
    pub(super) fn take_over(&self, path: &Path, host: Option<Entry>, copy: Entry) -> bool {
        let mut state = lock(&self.state);
        let mut sync = Sync {
            mirror: self,
            state: &mut state,
        };
        let mut dirs: Vec<&Path> = path.ancestors().skip(1).collect();
        dirs.pop();
        let made = dirs
            .iter()
            .rev()
            .try_for_each(|dir| make_dir(&self.host, dir));
        made.is_ok() && sync.update_host(path, host, Some(copy)).is_ok()
    }

    /// What was not carried over since this was last asked. Files that are gone again, such as an editor's, do not count.
    pub(super) fn take_report(&self) -> SyncReport {
        let mut report = lock(&self.state).take_report();
        report
            .rejected
            .retain(|(_, one)| self.copy.entry(Path::new(&one.file)).is_some());
        report
    }

    fn dirs(&self, state: &State) -> BTreeSet<PathBuf> {
        let known = state.base.iter();
        let dirs = known.filter(|(_, base)| {
            base.host.is_some_and(Entry::is_dir) || base.copy.is_some_and(Entry::is_dir)
        });
        let dirs = dirs.map(|(path, _)| path.clone());
        let tops = [PathBuf::new(), PathBuf::from(super::OBJECTS_INFO)];
        tops.into_iter().chain(dirs).collect()
    }
}

/// One comparison.
struct Sync<'a> {
    mirror: &'a Mirror,
    state: &'a mut State,
}

/// In which order changes go to the user's side: what is named before what names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Data,
    PackedRefs,
    Head,
    Index,
    Deletion,
}

impl Sync<'_> {
    fn run(&mut self, moment: Moment) -> io::Result<()> {
        let host = self.mirror.host.list(&self.state.skipped)?;
        let copy = self.mirror.copy.list(&self.state.skipped)?;
        let is_gone = |name: &str| {
            let path = Path::new(name);
            self.state.base.contains_key(path) && !copy.contains_key(path)
        };
        if is_gone("HEAD") || is_gone("config") {
            // Git never deletes them: the repository is being removed, and nothing is put back meanwhile.
            if moment == Moment::WhileRunning {
                self.state.is_suspended = true;
                return Ok(());
            }
            if self.is_removed(&copy) {
                return self.remove_repository();
            }
        }
        self.state.is_suspended = false;
        self.show_locks();
        let known = self.state.base.keys();
        let names: BTreeSet<PathBuf> = known
            .chain(host.keys())
            .chain(copy.keys())
            .cloned()
            .collect();
        let mut changes: Vec<(Stage, PathBuf)> = Vec::new();
        for path in names {
            let now = Base {
                host: host.get(&path).copied(),
                copy: copy.get(&path).copied(),
            };
            let base = self.state.base.get(&path).copied();
            if base == Some(now) {
                continue;
            }
            let is_same = match (now.host, now.copy) {
                (None, None) => {
                    self.state.base.remove(&path);
                    continue;
                }
                (Some(host), Some(copy)) => {
                    host.is_same_file(copy) || (host.is_dir() && copy.is_dir())
                }
                _ => false,
            };
            let (was_host, was_copy) = base.map_or((None, None), |base| (base.host, base.copy));
            let is_deletion = (now.copy.is_none() && now.host == was_host)
                || (now.host.is_none() && now.copy == was_copy);
            if is_same {
                self.settle_as(&path, now.host, now.copy);
            } else {
                changes.push((stage(&path, is_deletion), path));
            }
        }
        // Directories before what lies in them; deletions the other way round.
        changes.sort();
        let (deletions, others): (Vec<_>, Vec<_>) = changes
            .into_iter()
            .partition(|(stage, _)| *stage == Stage::Deletion);
        for (_, path) in others.into_iter().chain(deletions.into_iter().rev()) {
            self.carry(&path);
        }
        Ok(())
    }

    fn replace(&mut self, from: &Path, to: &Path) -> Option<Result<(), Errno>> {
        let (copy, host) = (&self.mirror.copy, &self.mirror.host);
        let new = copy
            .entry(from)
            .filter(|entry| matches!(entry, Entry::File(_)))?;
        let (now, before) = (host.entry(to), copy.entry(to));
        let base = self.state.base.get(to).copied();
        if base.and_then(|base| base.host) != now && !self.is_refreshed_index(to) {
            // The user's git changed it meanwhile: what this rename makes was begun from what is no longer there.
            return Some(Err(Errno::STALE));
        }
        let placed = if self.is_judged(to) {
            let content = copy.read(from, MAX_JUDGED_BYTES).ok()?;
            let own = self.before(to, now);
            let (git_dir, allowed) = (&self.mirror.git_dir, &self.mirror.allowed);
            match judged(git_dir, to, &content, own.as_deref(), allowed) {
                Verdict::Harmless => {
                    let source = Source::Bytes(&content);
                    place(host, to, &source, now, HOST_LOCK_TIMEOUT)
                }
                // A setting that is refused makes git fail; one among others is left out, and named.
                Verdict::Refused(rejected)
                    if to.ends_with("config") || to.ends_with("config.worktree") =>
                {
                    rejected.into_iter().for_each(|one| self.report(one));
                    return Some(Err(Errno::PERM));
                }
                Verdict::Filtered { .. } | Verdict::Refused(_) => return None,
            }
        } else {
            place(
                host,
                to,
                &Source::Linked(copy, from),
                now,
                HOST_LOCK_TIMEOUT,
            )
        };
        let placed = match placed {
            Ok(placed) => placed,
            Err(Problem::Changed | Problem::Locked) => return Some(Err(Errno::STALE)),
            Err(Problem::Failed(errno)) => return Some(Err(errno)),
        };
        let renamed = copy.parent(from).and_then(|(dir, name)| {
            let to_name = to.file_name().ok_or(Errno::INVAL)?;
            rfs::renameat(&dir, name, &dir, to_name)
        });
        // The user's side has it in any case; the copy follows with the next comparison if it has not.
        let settled = match renamed {
            Ok(()) => Some(new),
            Err(_) => before,
        };
        self.settle_as(to, placed, settled);
        Some(renamed)
    }

    /// Whether the user's index differs from the one that both sides had only in the times of files.
    fn is_refreshed_index(&self, path: &Path) -> bool {
        let now = self.mirror.host.open(path).ok();
        let before = self
            .state
            .index
            .as_ref()
            .filter(|_| path == Path::new("index"));
        before
            .zip(now)
            .is_some_and(|(before, now)| has_same_entries(before, &now))
    }

    /// Carries one name over, in the direction in which it changed.
    fn carry(&mut self, path: &Path) {
        let (host, copy) = (self.mirror.host.entry(path), self.mirror.copy.entry(path));
        let base = self.state.base.get(path).copied();
        let (was_host, was_copy) = base.map_or((None, None), |base| (base.host, base.copy));
        // A write in place to a file that both sides share is the command's: no git writes so.
        let is_shared = matches!((host, was_host, was_copy), (Some(now), Some(host), Some(copy))
            if now.is_same_file(host) && host.is_same_file(copy));
        let done = match (host != was_host && !is_shared, copy != was_copy) {
            (false, false) => return,
            (true, false) => self.update_copy(path, host, copy),
            (false, true) => self.update_host(path, host, copy),
            (true, true) => self.both_changed(path, host, copy),
        };
        match done {
            // What a command holds the lock of is looked at again when it has let go.
            Ok(()) | Err(Problem::Failed(Errno::NOENT)) => {}
            Err(Problem::Changed | Problem::Locked) => self.conflict(path),
            Err(Problem::Failed(errno)) => self.fail(path, errno),
        }
    }

    /// Takes note of what both sides are, as far as it is known: either may have been changed again since.
    fn settle_as(&mut self, path: &Path, host: Option<Entry>, copy: Option<Entry>) {
        let opened = || self.mirror.host.open(path).ok();
        match path.to_str() {
            Some("index") => self.state.index = opened(),
            Some("packed-refs") => self.state.packed_refs = opened(),
            _ => {}
        }
        if host.is_none() {
            self.state.made.remove(path);
        }
        match host.is_none() && copy.is_none() {
            true => self.state.base.remove(path),
            false => self.state.base.insert(path.to_owned(), Base { host, copy }),
        };
    }

    /// The user's side changed: the copy, which was as `copy`, becomes the same.
    fn update_copy(
        &mut self,
        path: &Path,
        host: Option<Entry>,
        copy: Option<Entry>,
    ) -> Result<(), Problem> {
        let (from, to) = (&self.mirror.host, &self.mirror.copy);
        self.state.made.remove(path);
        let mut copy = copy;
        if let Some(old) = copy
            && host.is_none_or(|host| host.is_dir() != old.is_dir())
        {
            match host {
                // A folder made way for a file.
                Some(_) if old.is_dir() => empty(&to.dir(path)?)?,
                None if old.is_dir() => self.drop_rejected(path),
                _ => {}
            }
            remove(to, path, old)?;
            copy = None;
        }
        let made = match host {
            None | Some(Entry::Other) => None,
            Some(Entry::Directory) => {
                make_dir(to, path)?;
                Some(Entry::Directory)
            }
            Some(Entry::Link(_)) => {
                copy_link(from, to, path)?;
                to.entry(path)
            }
            Some(Entry::File(_)) => {
                // A file that is judged must never be the same file on both sides.
                let source = match self.is_judged(path) {
                    true => Source::Copied(from, path),
                    false => Source::Linked(from, path),
                };
                match place(to, path, &source, copy, Duration::ZERO) {
                    // A command is changing it: what it makes of it is looked at then.
                    Err(Problem::Locked | Problem::Changed) => return Ok(()),
                    placed => placed?,
                }
            }
        };
        self.settle_as(path, host, made);
        Ok(())
    }

    /// A command changed the copy.
    fn update_host(
        &mut self,
        path: &Path,
        host: Option<Entry>,
        copy: Option<Entry>,
    ) -> Result<(), Problem> {
        let (to, from) = (&self.mirror.host, &self.mirror.copy);
        let placed = match copy {
            None => return self.delete_on_host(path, host),
            Some(Entry::Directory) => {
                if let Some(host) = host {
                    remove(to, path, host)?;
                }
                make_dir(to, path)?;
                Some(Entry::Directory)
            }
            // No program that can be asked outlives the run.
            Some(Entry::Other) => host,
            Some(Entry::Link(_)) => {
                self.reject(path, "a link", "links are not taken over");
                host
            }
            Some(Entry::File(_)) if self.is_judged(path) => return self.judge(path, host, copy),
            Some(Entry::File(_)) => place(
                to,
                path,
                &Source::Linked(from, path),
                host,
                HOST_LOCK_TIMEOUT,
            )?,
        };
        self.settle_as(path, placed, copy);
        Ok(())
    }

    fn delete_on_host(&mut self, path: &Path, host: Option<Entry>) -> Result<(), Problem> {
        if let Some(entry) = host {
            let rejection = vet_deletion(&parts(path)).filter(|_| !entry.is_dir());
            if let Some(rejection) = rejection {
                self.report(rejection);
                return self.update_copy(path, host, None);
            }
            remove(&self.mirror.host, path, entry)?;
        }
        // A directory with something in it that is not mirrored stays.
        let left = self
            .mirror
            .host
            .entry(path)
            .filter(|_| host.is_some_and(Entry::is_dir));
        self.settle_as(path, left, None);
        Ok(())
    }

    /// Judges a file by its content and takes over what is harmless.
    fn judge(
        &mut self,
        path: &Path,
        host: Option<Entry>,
        copy: Option<Entry>,
    ) -> Result<(), Problem> {
        let read = |side: &Side| side.read(path, MAX_JUDGED_BYTES);
        let new = match read(&self.mirror.copy) {
            Ok(new) => new,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(_) => {
                self.reject(path, "the file", "it is too large to be judged");
                return self.keep_own(path, host, copy);
            }
        };
        let before = self.before(path, host);
        let (git_dir, allowed) = (&self.mirror.git_dir, &self.mirror.allowed);
        let verdict = judged(git_dir, path, &new, before.as_deref(), allowed);
        let (content, rejected) = match verdict {
            Verdict::Harmless => (Some(new), Vec::new()),
            Verdict::Filtered { content, rejected } => (Some(content), rejected),
            Verdict::Refused(rejected) => (None, rejected),
        };
        if host.is_none() {
            // What was said of an earlier version, such as a file that was still being written, no longer holds.
            self.withdraw(path);
        }
        let is_whole = rejected.is_empty();
        rejected
            .into_iter()
            .for_each(|rejection| self.report(rejection));
        let Some(content) = content else {
            return self.keep_own(path, host, copy);
        };
        let source = Source::Bytes(&content);
        let placed = place(&self.mirror.host, path, &source, host, HOST_LOCK_TIMEOUT)?;
        if host.is_none() {
            self.state.made.insert(path.to_owned());
        }
        self.settle_as(path, placed, copy);
        match is_whole {
            true => Ok(()),
            false => self.update_copy(path, placed, copy),
        }
    }

    /// What the user's side has of a file that is judged. Git moves lines of a rebase from one list to another, so each is
    /// compared with both.
    fn before(&self, path: &Path, host: Option<Entry>) -> Option<Vec<u8>> {
        let read = |path: &Path| self.mirror.host.read(path, MAX_JUDGED_BYTES).ok();
        if path.ends_with("rebase-merge/git-rebase-todo") || path.ends_with("rebase-merge/done") {
            let lists = ["done", "git-rebase-todo"].map(|name| read(&path.with_file_name(name)));
            let lists: Vec<Vec<u8>> = lists.into_iter().flatten().collect();
            return (!lists.is_empty()).then(|| lists.concat());
        }
        host.filter(|_| !self.state.made.contains(path))
            .and_then(|_| read(path))
    }

    /// The user's version is shown again; without one the command's stays in the copy alone.
    fn keep_own(
        &mut self,
        path: &Path,
        host: Option<Entry>,
        copy: Option<Entry>,
    ) -> Result<(), Problem> {
        match host {
            Some(_) => self.update_copy(path, host, copy),
            None => {
                self.settle_as(path, None, copy);
                Ok(())
            }
        }
    }

    /// The user's git and a command changed one name since both were last compared.
    fn both_changed(
        &mut self,
        path: &Path,
        host: Option<Entry>,
        copy: Option<Entry>,
    ) -> Result<(), Problem> {
        let (ours, theirs) = (&self.mirror.host, &self.mirror.copy);
        let limit = MAX_JUDGED_BYTES;
        let is_file = |entry| matches!(entry, Some(Entry::File(_)));
        if is_file(host)
            && is_file(copy)
            && let (Ok(a), Ok(b)) = (ours.read(path, limit), theirs.read(path, limit))
            && a == b
        {
            self.settle_as(path, host, copy);
            return Ok(());
        }
        match path.to_str() {
            Some("index") => {
                let (host_index, copy_index) = (ours.open(path).ok(), theirs.open(path).ok());
                let is_refreshed = |now: &Option<File>| {
                    let before = self.state.index.as_ref();
                    before
                        .zip(now.as_ref())
                        .is_some_and(|(before, now)| has_same_entries(before, now))
                };
                if is_refreshed(&host_index) {
                    return self.update_host(path, host, copy);
                }
                if is_refreshed(&copy_index) {
                    return self.update_copy(path, host, copy);
                }
            }
            Some("packed-refs") => {
                let base = self
                    .state
                    .packed_refs
                    .as_ref()
                    .and_then(|file| bytes_of(file).ok());
                let (ours, theirs) = (
                    ours.read(path, MAX_PACKED_REFS_BYTES),
                    theirs.read(path, MAX_PACKED_REFS_BYTES),
                );
                let merged = match (base, ours, theirs) {
                    (base, Ok(ours), Ok(theirs)) => {
                        packed_refs::merged(&base.unwrap_or_default(), &ours, &theirs)
                    }
                    _ => None,
                };
                if let Some(merged) = merged {
                    let source = Source::Bytes(&merged);
                    let placed = place(&self.mirror.host, path, &source, host, HOST_LOCK_TIMEOUT)?;
                    return self.update_copy(path, placed, copy);
                }
            }
            _ => {}
        }
        Err(Problem::Changed)
    }

    /// The user's version stays. A commit that only the copy's `HEAD` names is kept under a name of its own.
    fn conflict(&mut self, path: &Path) {
        let shown = self.mirror.git_dir.join(path).display().to_string();
        let is_forgotten = FORGOTTEN.iter().any(|name| path.ends_with(name));
        if !is_forgotten {
            let kept = match path.file_name().is_some_and(|name| name == "HEAD") {
                true => self.keep_commit(path),
                false => None,
            };
            let kept = kept.map_or(String::new(), |name| {
                format!("; the command's commit is {name}")
            });
            self.state.report.notes.push(format!(
                "{shown} was changed by another program while a command changed it: that program's version was kept{kept}"
            ));
            self.state.report.has_conflict = true;
        }
        let (host, copy) = (self.mirror.host.entry(path), self.mirror.copy.entry(path));
        if let Err(Problem::Failed(errno)) = self.update_copy(path, host, copy) {
            self.fail(path, errno);
        }
    }

    /// Makes a ref of the commit that the copy's detached `HEAD` is.
    fn keep_commit(&self, path: &Path) -> Option<String> {
        let head = self.mirror.copy.read(path, 256).ok()?;
        let head = String::from_utf8(head).ok()?;
        let oid = head.trim();
        if !matches!(oid.len(), 40 | 64) || !oid.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let name = format!("{KEPT_REFS}/{}", Ulid::new().to_string().to_lowercase());
        let refs = self.mirror.host.dir(Path::new("refs")).ok()?;
        match rfs::mkdirat(&refs, "llmc", Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(_) => return None,
        }
        let dir = open_dir_at(&refs, "llmc".as_ref()).ok()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let last = Path::new(&name).file_name()?;
        let file = rfs::openat(&dir, last, flags, Mode::from_raw_mode(0o644)).ok()?;
        io::Write::write_all(&mut File::from(file), format!("{oid}\n").as_bytes()).ok()?;
        Some(name)
    }

    fn fail(&mut self, path: &Path, errno: Errno) {
        let shown = self.mirror.git_dir.join(path);
        let note = format!(
            "{} was not written to the repository: {errno}",
            shown.display()
        );
        if !self.state.report.notes.contains(&note) {
            self.state.report.notes.push(note);
        }
        self.state.report.has_conflict = true;
    }

    fn reject(&mut self, path: &Path, item: &str, reason: &'static str) {
        self.report(Rejection {
            file: path.display().to_string(),
            item: item.to_owned(),
            reason,
        });
    }

    fn report(&mut self, rejection: Rejection) {
        let rejected = (self.mirror.git_dir.clone(), rejection);
        // A command that had read the file before may write the same once more.
        if !self.state.report.rejected.contains(&rejected) {
            self.state.report.rejected.push(rejected);
        }
    }

    fn withdraw(&mut self, path: &Path) {
        let git_dir = &self.mirror.git_dir;
        let is_other =
            |(dir, one): &(PathBuf, Rejection)| dir != git_dir || Path::new(&one.file) != path;
        self.state.report.rejected.retain(is_other);
    }

    /// Deletes what stayed in the copy alone below a directory that the user's side no longer has.
    fn drop_rejected(&mut self, dir: &Path) {
        let copy = &self.mirror.copy;
        self.state.base.retain(|path, base| {
            let is_own = base.host.is_none() && path != dir && path.starts_with(dir);
            let rejected = base
                .copy
                .filter(|entry| is_own && !entry.is_dir() && copy.entry(path) == Some(*entry));
            rejected.is_none_or(|entry| remove(copy, path, entry).is_err())
        });
    }

    fn is_judged(&self, path: &Path) -> bool {
        is_judged(&parts(path))
    }

    /// Whether a command deleted the whole repository: `rm -rf`, to whose end only what is mounted is left.
    fn is_removed(&self, copy: &BTreeMap<PathBuf, Entry>) -> bool {
        let has_none = ["HEAD", "config"]
            .iter()
            .all(|name| !copy.contains_key(Path::new(name)));
        let had = ["HEAD", "config"]
            .iter()
            .all(|name| self.state.base.contains_key(Path::new(name)));
        let is_empty = |name: &str| {
            let dir = self.mirror.host.dir(Path::new(name));
            dir.is_ok_and(|dir| is_empty_dir(&dir, &["info"]))
        };
        has_none && had && is_empty("objects") && is_empty("refs")
    }

    fn remove_repository(&mut self) -> io::Result<()> {
        empty(&self.mirror.host.dir(Path::new(""))?)?;
        self.state.base.clear();
        // Only if nothing else has been made there meanwhile.
        let _ = std::fs::remove_dir(&self.mirror.git_dir);
        Ok(())
    }

    /// Shows commands the locks that the user's git holds.
    fn show_locks(&mut self) {
        for name in HOST_LOCKS {
            let path = Path::new(name);
            let is_held = self.mirror.host.entry(path).is_some();
            let Ok((dir, file)) = self.mirror.copy.parent(path) else {
                continue;
            };
            if is_held && !self.state.shown_locks.contains(name) {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                if rfs::openat(&dir, file, flags, Mode::from_raw_mode(0o444)).is_ok() {
                    self.state.shown_locks.insert(name);
                }
            } else if !is_held && self.state.shown_locks.remove(name) {
                let _ = rfs::unlinkat(&dir, file, AtFlags::empty());
            }
        }
    }
}

fn stage(path: &Path, is_deletion: bool) -> Stage {
    match path.file_name().and_then(|name| name.to_str()) {
        _ if is_deletion => Stage::Deletion,
        Some("packed-refs") => Stage::PackedRefs,
        Some("HEAD") => Stage::Head,
        Some("index") => Stage::Index,
        _ => Stage::Data,
    }
}

/// Whether a directory holds nothing but empty directories of these names.
fn is_empty_dir(dir: &std::os::fd::OwnedFd, but: &[&str]) -> bool {
    let Ok(entries) = rfs::Dir::read_from(dir) else {
        return false;
    };
    entries.flatten().all(|entry| {
        let name = entry.file_name().to_bytes();
        name == b"." || name == b".." || but.iter().any(|known| name == known.as_bytes())
    })
}

fn bytes_of(file: &File) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    if length > MAX_PACKED_REFS_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    std::os::unix::fs::FileExt::read_exact_at(file, &mut bytes, 0)?;
    Ok(bytes)
}
