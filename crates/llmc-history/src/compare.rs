//! Finds which paths differ from the snapshot, reading as little as possible.
//!
//! A path whose stamp is as recorded is unchanged; only others are read. With a live watch only paths with events are looked at
//! at all; without one, or when the kernel lost events, the workspace is walked.

use std::collections::HashSet;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use llmc_host::walk::{Hidden, IgnoreLookup, VisitLinks, WalkOptions};
use llmc_host::{Access, OpenDir, PathEntry, RootedPath, Roots, is_protected_name, lock};
use rustix::fs::{OFlags, Stat};

use crate::entry::{NotKeptReason, ObjectId, PathState};
use crate::error::{Error, Result};
use crate::history::HistorySettings;
use crate::listing::NewListing;
use crate::objects::{PackedObject, blob_id};
use crate::snapshot::{Snapshot, Stamp, is_within, now_ns, parent};
use crate::stamps::{Walked, walk_stamps};
use crate::watch::{Dirty, Watch};

/// How often a file that changes while it is read is read again; then the last read counts, and it stays dirty.
const MAX_READS: usize = 3;

/// How far the clock that stamps files can be behind the system's.
const FILE_CLOCK_NS: i64 = 15_000_000;

/// What a comparison does to the snapshot and the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// A change.
    Record,
    /// It was there before, but not looked at: it becomes known without being a change.
    Adopt,
    /// It is there, but not looked at any more.
    Forget,
}

/// A path that may differ from the snapshot.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) path: Vec<u8>,
    pub(crate) state: PathState,
    pub(crate) stamp: Stamp,
    /// The content, when the store may not have it.
    pub(crate) object: Option<Arc<PackedObject>>,
    pub(crate) effect: Effect,
}

/// The snapshot, shared with the threads of a walk.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedSnapshot(Arc<RwLock<Snapshot>>);

impl SharedSnapshot {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Snapshot> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Snapshot> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks at the workspace's files.
pub(crate) struct Comparer<'a> {
    pub(crate) roots: &'a Roots,
    pub(crate) settings: &'a HistorySettings,
    pub(crate) snapshot: &'a SharedSnapshot,
    /// Whether the store has a content already; otherwise the finding has it.
    pub(crate) has_object: &'a dyn Fn(&ObjectId) -> bool,
    /// Stores contents before their entry, so that they need not all be held in memory.
    pub(crate) store_ahead: &'a dyn Fn(&mut [Finding]),
}

/// Bytes of contents that wait in memory for the transaction of their entry.
const MAX_WAITING_BYTES: usize = 32 << 20;

impl Comparer<'_> {
    /// What is at a path now; `None` when it is certainly as the snapshot has it, or cannot be looked at.
    pub(crate) fn examine(&self, path: &[u8]) -> Option<Finding> {
        let exact = self.roots.exact_path(path, Access::Read).ok()?;
        let before = {
            let snapshot = self.snapshot.read();
            snapshot.get(path).map(|known| (known.state, known.stamp))
        };
        let looked_ns = now_ns();
        let entry = exact.entry().ok()?;
        let (state, stamp, object) = match entry {
            PathEntry::Absent | PathEntry::Special => (PathState::Absent, Stamp::default(), None),
            PathEntry::Dir { stat } => {
                let mode = stat.st_mode & 0o1777;
                (PathState::Dir { mode }, Stamp::new(&stat, looked_ns), None)
            }
            PathEntry::Link { stat, target } => {
                let content = blob_id(&target);
                let stamp = Stamp::new(&stat, looked_ns);
                let is_stored = (self.has_object)(&content);
                let object = (!is_stored).then(|| Arc::new(PackedObject::pack(content, target)));
                (PathState::Link { content }, stamp, object)
            }
            PathEntry::File { stat, file } => {
                let stamp = Stamp::new(&stat, looked_ns);
                if let Some((state, known)) = before
                    && matches!(
                        state,
                        PathState::File { .. } | PathState::FileNotKept { .. }
                    )
                    && known.proves(&stamp)
                {
                    return None;
                }
                self.examine_file(&exact, stat, file, stamp)
            }
        };
        if before.is_none() && state == PathState::Absent {
            return None;
        }
        Some(Finding {
            path: path.to_vec(),
            state,
            stamp,
            object,
            effect: Effect::Record,
        })
    }

    fn examine_file(
        &self,
        path: &RootedPath,
        stat: Stat,
        file: Option<std::fs::File>,
        stamp: Stamp,
    ) -> (PathState, Stamp, Option<Arc<PackedObject>>) {
        let mode = stat.st_mode & 0o1777;
        let not_kept = |size, why| PathState::FileNotKept { mode, size, why };
        if let Some(why) = self.why_not_kept(path, stamp.size) {
            return (not_kept(stamp.size, why), stamp, None);
        }
        let unreadable = (not_kept(stamp.size, NotKeptReason::Unreadable), stamp, None);
        let Some(mut file) = file else {
            return unreadable;
        };
        let mut stamp = stamp;
        for _ in 0..MAX_READS {
            let Ok(content) = read_all(&mut file, stamp.size, self.settings.max_file_bytes) else {
                return unreadable;
            };
            let looked_ns = now_ns();
            let Ok(now) = rustix::fs::fstat(&file) else {
                return unreadable;
            };
            let again = Stamp::new(&now, looked_ns);
            let is_stable = (again.size, again.mtime_ns, again.ctime_ns)
                == (stamp.size, stamp.mtime_ns, stamp.ctime_ns)
                && content.len() as u64 == stamp.size;
            if is_stable {
                // The stamp of before the read: what changes later must not look as if it had been read.
                let id = blob_id(&content);
                let state = PathState::File {
                    mode,
                    size: content.len() as u64,
                    content: id,
                };
                let is_stored = (self.has_object)(&id);
                let object = (!is_stored).then(|| Arc::new(PackedObject::pack(id, content)));
                return (state, stamp, object);
            }
            stamp = again;
            if again.size > self.settings.max_file_bytes {
                return (not_kept(again.size, NotKeptReason::TooLarge), again, None);
            }
            if std::io::Seek::rewind(&mut file).is_err() {
                return unreadable;
            }
        }
        // It changes all the time: a torn content would be worse than none.
        (
            not_kept(stamp.size, NotKeptReason::Unreadable),
            Stamp::default(),
            None,
        )
    }

    fn why_not_kept(&self, path: &RootedPath, size: u64) -> Option<NotKeptReason> {
        let absolute = path.absolute();
        let is_protected = absolute
            .components()
            .any(|part| is_protected_name(part.as_os_str().as_bytes()));
        if is_protected || self.roots.rules().is_denylisted(&absolute) {
            return Some(NotKeptReason::Denied);
        }
        (size > self.settings.max_file_bytes).then_some(NotKeptReason::TooLarge)
    }

    /// Compares what has events, and files that can change without one.
    pub(crate) fn dirty(&self, dirty: &Dirty, watch: &Arc<Mutex<Watch>>) -> Result<Compared> {
        let mut ignored = 0;
        let mut suspects: Vec<Vec<u8>> = Vec::new();
        let mut below: Vec<Vec<u8>> = Vec::new();
        for path in &dirty.trees {
            if !below.iter().any(|dir| is_within(path, dir)) {
                below.push(path.clone());
            }
        }
        let top = self.roots.open_dir(".").map_err(Error::from)?;
        let mut ignores = IgnoreLookup::new(top.fd);
        for dir in &below {
            let found = self
                .suspects_within(dir, Some(watch), &mut ignores)?
                .suspects;
            // An ignored directory that came or went counts as one.
            ignored += u64::from(found.is_empty());
            suspects.extend(found);
        }
        for path in &dirty.paths {
            if path.is_empty() || below.iter().any(|dir| is_within(path, dir)) {
                continue;
            }
            let is_known = self.snapshot.read().get(path).is_some();
            if is_known || !ignores.is_ignored(path, false) {
                suspects.push(path.clone());
            } else {
                ignored += 1;
            }
        }
        {
            let snapshot = self.snapshot.read();
            let linked = snapshot.linked().filter(|path| !path.starts_with(b"/"));
            suspects.extend(linked.map(<[u8]>::to_vec));
        }
        suspects.sort();
        suspects.dedup();
        let mut findings = self.examine_all(suspects);
        let linked = self.newly_linked(&findings);
        findings.extend(self.examine_all(linked));
        Ok(Compared {
            findings,
            ignored,
            listings: Vec::new(),
        })
    }

    /// Known names of files that got a further name among the findings: through that one they may have changed without an
    /// event under their own.
    fn newly_linked(&self, findings: &[Finding]) -> Vec<Vec<u8>> {
        let snapshot = self.snapshot.read();
        let is_new = |finding: &&Finding| {
            let known = snapshot.get(&finding.path);
            finding.stamp.is_linked()
                && !is_dir(&finding.state)
                && known.is_none_or(|known| !known.stamp.is_linked())
        };
        let inodes: HashSet<u64> = findings
            .iter()
            .filter(is_new)
            .map(|finding| finding.stamp.inode)
            .collect();
        if inodes.is_empty() {
            return Vec::new();
        }
        let found: HashSet<&[u8]> = findings
            .iter()
            .map(|finding| finding.path.as_slice())
            .collect();
        let names = snapshot.files_of(&inodes);
        names
            .into_iter()
            .filter(|path| !found.contains(path.as_slice()))
            .collect()
    }

    /// Compares everything in the workspace.
    pub(crate) fn everything(
        &self,
        watch: Option<&Arc<Mutex<Watch>>>,
        last_look_ns: i64,
    ) -> Result<Compared> {
        if watch.is_none()
            && let Some(compared) = self.by_names()?
        {
            return Ok(compared);
        }
        let mut walked = self.walk(b"", watch)?;
        let unseen = {
            let snapshot = self.snapshot.read();
            walked.set_names(&snapshot);
            match walked.seen == snapshot.paths_inside() {
                true => Vec::new(),
                false => snapshot.unseen(b""),
            }
        };
        if walked.suspects.is_empty() && unseen.is_empty() {
            return Ok(Compared {
                listings: walked.listings,
                ..Compared::default()
            });
        }
        let top = self.roots.open_dir(".").map_err(Error::from)?;
        let mut ignores = IgnoreLookup::new(top.fd);
        let mut findings = self.examine_all(walked.suspects);
        let mut rules_changed = findings.iter().any(|finding| {
            is_rule(&finding.path) && self.snapshot.read().state(&finding.path) != finding.state
        }) || unseen.iter().any(|path| is_rule(path));
        for path in unseen {
            match self.examine(&path) {
                // Still there and as before: the walk left it out.
                None if ignores.is_ignored(&path, self.is_known_dir(&path)) => {
                    rules_changed = true;
                    findings.push(self.forget(path));
                }
                Some(finding)
                    if finding.state != PathState::Absent
                        && ignores.is_ignored(&path, is_dir(&finding.state)) =>
                {
                    rules_changed = true;
                    findings.push(self.forget(path));
                }
                Some(finding) => findings.push(finding),
                None => {}
            }
        }
        if rules_changed {
            self.adopt_uncovered(&mut findings, last_look_ns);
        }
        // A walk passes over what is ignored, so that changes of it are not known.
        Ok(Compared {
            findings,
            ignored: 0,
            listings: walked.listings,
        })
    }

    /// What an ignore rule kept from the snapshot until now was not created by the change that removed the rule: an undo
    /// must not delete it.
    fn adopt_uncovered(&self, findings: &mut [Finding], last_look_ns: i64) {
        let snapshot = self.snapshot.read();
        let gone: HashSet<u64> = findings
            .iter()
            .filter(|finding| finding.state == PathState::Absent)
            .filter_map(|finding| snapshot.get(&finding.path))
            .map(|known| known.stamp.inode)
            .collect();
        for finding in findings {
            let is_new = snapshot.get(&finding.path).is_none();
            let is_old = finding.stamp.ctime_ns < last_look_ns.saturating_sub(FILE_CLOCK_NS);
            if is_new && is_old && !gone.contains(&finding.stamp.inode) {
                finding.effect = Effect::Adopt;
            }
        }
    }

    fn forget(&self, path: Vec<u8>) -> Finding {
        Finding {
            path,
            state: PathState::Absent,
            stamp: Stamp::default(),
            object: None,
            effect: Effect::Forget,
        }
    }

    fn is_known_dir(&self, path: &[u8]) -> bool {
        is_dir(&self.snapshot.read().state(path))
    }

    pub(crate) fn examine_all(&self, paths: Vec<Vec<u8>>) -> Vec<Finding> {
        let mut findings: Vec<Finding> = Vec::new();
        let (mut stored, mut waiting) = (0, 0);
        for path in paths {
            let Some(finding) = self.examine(&path) else {
                continue;
            };
            waiting += finding
                .object
                .as_ref()
                .map_or(0, |object| object.body.len());
            findings.push(finding);
            if waiting > MAX_WAITING_BYTES {
                (self.store_ahead)(&mut findings[stored..]);
                (stored, waiting) = (findings.len(), 0);
            }
        }
        findings
    }

    /// Compares a path and, when it is or was a directory, everything in it.
    pub(crate) fn within(&self, path: &[u8], ignores: &mut IgnoreLookup) -> Result<Vec<Finding>> {
        let within = self.suspects_within(path, None, ignores)?;
        Ok(self.examine_all(within.suspects))
    }

    pub(crate) fn suspects_within(
        &self,
        path: &[u8],
        watch: Option<&Arc<Mutex<Watch>>>,
        ignores: &mut IgnoreLookup,
    ) -> Result<Walked> {
        let mut suspects = vec![path.to_vec()];
        let mut listings = Vec::new();
        let exact = self.roots.exact_path(path, Access::Read)?;
        let is_dir_now = matches!(exact.entry(), Ok(PathEntry::Dir { .. }));
        let is_known = self.snapshot.read().get(path).is_some();
        // Absolute paths lie in other roots, whose ignore files the lookup does not know.
        let is_ignored = (is_dir_now || !is_known)
            && !path.starts_with(b"/")
            && ignores.is_ignored(path, is_dir_now);
        if is_dir_now && !is_ignored {
            if let Some(watch) = watch {
                lock(watch).add(path);
            }
            let mut walked = self.walk(path, watch)?;
            let snapshot = self.snapshot.read();
            walked.set_names(&snapshot);
            suspects.extend(walked.suspects);
            suspects.extend(snapshot.unseen(path));
            listings = walked.listings;
        } else {
            let snapshot = self.snapshot.read();
            suspects.extend(snapshot.below(path));
            if is_ignored && !is_known {
                suspects.remove(0);
            }
        }
        Ok(Walked {
            suspects,
            seen: 0,
            listings,
        })
    }

    /// Walks a directory and returns the paths in it whose stamp is not as recorded; known ones are marked as seen.
    pub(crate) fn walk(&self, dir: &[u8], watch: Option<&Arc<Mutex<Watch>>>) -> Result<Walked> {
        let path = self.roots.exact_path(dir, Access::Read)?;
        let fd = match path.open(OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(fd) => fd,
            Err(llmc_host::Error::NotFound { .. } | llmc_host::Error::NotADirectory { .. })
                if !dir.is_empty() =>
            {
                return Ok(Walked::default());
            }
            Err(error) => return Err(error.into()),
        };
        let start = OpenDir { path, fd };
        let options = WalkOptions {
            hidden: Hidden::Include,
            links: VisitLinks::Yes,
            ..start.walk_options(self.roots)?
        };
        walk_stamps(&start, &options, dir, self, watch)
    }
}

/// What a comparison found.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    pub(crate) findings: Vec<Finding>,
    /// Ignored files that changed, as far as events tell.
    pub(crate) ignored: u64,
    /// Of a look without a watch: what it need not read again, once the findings are recorded.
    pub(crate) listings: Vec<NewListing>,
}

/// Whether a file of this name says what is ignored.
pub(crate) fn is_rule(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next();
    matches!(name, Some(b".gitignore" | b".ignore"))
}

fn is_dir(state: &PathState) -> bool {
    matches!(state, PathState::Dir { .. })
}

/// The directories above a path that do not exist yet.
pub(crate) fn missing_parents(roots: &Roots, path: &[u8]) -> Vec<Vec<u8>> {
    let mut missing = Vec::new();
    let mut next = parent(path);
    while let Some(dir) = next {
        let exact = roots.exact_path(dir, Access::Read);
        match exact.and_then(|exact| exact.entry()) {
            Ok(PathEntry::Absent) => missing.push(dir.to_vec()),
            _ => break,
        }
        next = parent(dir);
    }
    missing
}

fn read_all(file: &mut std::fs::File, size: u64, limit: u64) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::with_capacity(usize::try_from(size.min(limit)).unwrap_or(0) + 1);
    file.take(limit.saturating_add(1))
        .read_to_end(&mut content)?;
    Ok(content)
}
