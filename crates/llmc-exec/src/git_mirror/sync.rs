//! Comparing both sides of a mirror and carrying over what changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use llmc_host::lock;
use rustix::fs::{self as rfs, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::events::Events;
use super::side::{Entry, OBJECTS_INFO, parts};
use super::supervise::{DirId, id_of};
use super::transfer::{HOST_LOCK_TIMEOUT, Problem, Source, make_dir, place, remove};
use super::{Mirror, SYNCED_FILE, write_own_file};
use crate::git_new::{judged, max_judged_bytes};
use crate::git_vet::{Rejection, Verdict, is_judged};

/// Git's locks at the top level that commands see while the user's git holds them.
const HOST_LOCKS: [&str; 5] = [
    "index.lock",
    "HEAD.lock",
    "packed-refs.lock",
    "config.lock",
    "shallow.lock",
];

/// What is known of a mirror.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Every name as it was on the user's side and in the copy when both were last compared.
    pub(super) base: BTreeMap<PathBuf, Base>,
    /// Names that are not compared: what is mounted there is the user's own.
    pub(super) skipped: BTreeSet<PathBuf>,
    /// The index and the packed refs that both sides had: git replaces them, so these keep what they were.
    pub(super) index: Option<File>,
    pub(super) packed_refs: Option<File>,
    /// Locks that stand in the copy for those of the user's git.
    pub(super) shown_locks: BTreeMap<&'static str, Entry>,
    pub(super) watched: BTreeSet<PathBuf>,
    /// Judged files that commands made and the user has not changed since. A file is seen while it is being written, so its
    /// later versions are judged as new ones.
    pub(super) made: BTreeSet<PathBuf>,
    /// Whether a command removed the repository, of which empty directories stay while it runs.
    pub(super) is_emptied: bool,
    /// Whether a comparison was put off to the end of the run.
    pub(super) is_suspended: bool,
    pub(super) report: SyncReport,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Base {
    pub(super) host: Option<Entry>,
    pub(super) copy: Option<Entry>,
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

    pub(super) fn has_unfinished(&self) -> bool {
        self.is_suspended || self.is_emptied
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
        let tops = [PathBuf::new(), PathBuf::from(OBJECTS_INFO)];
        tops.into_iter().chain(dirs).collect()
    }
}

/// One comparison.
pub(super) struct Sync<'a> {
    pub(super) mirror: &'a Mirror,
    pub(super) state: &'a mut State,
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
                self.remove_repository()?;
                self.remove_emptied(&copy);
                return Ok(());
            }
        }
        if moment == Moment::AtEnd {
            self.remove_emptied(&copy);
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
        self.remove_stale_locks();
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
        let placed = if is_judged(&parts(to)) {
            let content = copy.read(from, max_judged_bytes(to)).ok()?;
            let own = self.before(to, now);
            let (git_dir, allowed) = (&self.mirror.git_dir, &self.mirror.allowed.get());
            match judged(git_dir, to, &content, own.as_deref(), allowed) {
                Verdict::Harmless => {
                    let source = Source::Judged(&content, new);
                    place(host, to, &source, now, HOST_LOCK_TIMEOUT)
                }
                // A setting that is refused makes git fail; one among others is left out, and named.
                Verdict::Refused(rejected)
                    if ["config", "config.worktree", "index"]
                        .iter()
                        .any(|name| to.ends_with(name)) =>
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

    /// Shows commands the locks that the user's git holds.
    fn show_locks(&mut self) {
        self.remove_stale_locks();
        for name in HOST_LOCKS {
            let path = Path::new(name);
            let is_held = self.mirror.host.entry(path).is_some();
            let Ok((dir, file)) = self.mirror.copy.parent(path) else {
                continue;
            };
            if is_held && !self.state.shown_locks.contains_key(name) {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                if rfs::openat(&dir, file, flags, Mode::from_raw_mode(0o444)).is_ok()
                    && let Some(shown) = self.mirror.copy.entry(path)
                {
                    self.state.shown_locks.insert(name, shown);
                }
            } else if !is_held && self.state.shown_locks.remove(name).is_some() {
                let _ = rfs::unlinkat(&dir, file, AtFlags::empty());
            }
        }
    }

    /// Removes locks on the user's side whose stand-ins a command has removed: it takes them for stale ones, as it could in the
    /// user's shell.
    fn remove_stale_locks(&mut self) {
        let Mirror { copy, host, .. } = self.mirror;
        self.state.shown_locks.retain(|name, shown| {
            let path = Path::new(name);
            let is_there = copy.entry(path) == Some(*shown);
            if !is_there {
                let _ = remove(host, path, Entry::Other);
            }
            is_there
        });
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
