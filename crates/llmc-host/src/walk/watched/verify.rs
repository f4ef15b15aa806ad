//! Looks for changes that no event showed: through a second name that is not watched, or a mapping into memory.
//!
//! The status of every file is taken and compared with what is known of it. A file that has another one, and no event after a
//! while, is looked at by every later search. The same pass makes files known after a start.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use llmc_trigrams::{FileIdentity, PathHash, TrigramIndex};
use rustix::fs::{AtFlags, Stat, statat};

use super::dirs::FilePlace;
use super::known::{ComparedFile, KnownFile};
use super::{TreeState, Unreported, WatchedTree};
use crate::cancel::CancelToken;
use crate::sync::lock;
use crate::walk::dir::{NameBatch, open_below, open_dir};

/// Between two looks for events that come late.
const GRACE_STEP: Duration = Duration::from_millis(50);

/// What a look at the status of all files found.
#[derive(Debug, Default)]
pub struct TreeVerification {
    /// Files whose status was taken.
    pub files: u64,
    /// Files that changed without an event, relative to the workspace.
    pub unreported: Vec<Vec<u8>>,
}

/// A directory at the moment when its files were to be compared.
struct ComparedDir {
    number: u32,
    path: Arc<[u8]>,
    names: Arc<NameBatch>,
    known: Vec<KnownFile>,
    /// By which files become known; none while another state of the index is in use.
    check: Option<u32>,
}

/// What comparing the files of a directory found, by their places among its names.
#[derive(Default)]
struct DirComparison {
    same: Vec<(u32, ComparedFile)>,
    changed: Vec<u32>,
}

impl WatchedTree {
    /// Whether a search has relied on events since the last call.
    pub fn take_unverified(&self) -> bool {
        self.is_unverified.swap(false, Ordering::Relaxed)
    }

    /// Compares the status of all files with what is known of them, and makes those known that the index has as they are.
    ///
    /// An event may come after the change shows in the status by `grace`: a write is reported when it ends.
    pub fn verify(
        &self,
        index: &TrigramIndex,
        grace: Duration,
        cancel: &CancelToken,
    ) -> TreeVerification {
        let mut found = TreeVerification::default();
        let Some((root, dirs)) = self.begin_verification() else {
            return found;
        };
        for path in dirs {
            if cancel.is_cancelled() {
                break;
            }
            let Some(dir) = lock(&self.state).begin_comparison(&path, index) else {
                continue;
            };
            let compared = dir.compare(&root, index);
            found.files += dir.names.len() as u64;
            lock(&self.state).end_comparison(&dir, compared);
        }
        self.wait_for_late_events(grace, cancel);
        let mut state = lock(&self.state);
        found.unreported = std::mem::take(&mut state.files.suspects)
            .into_iter()
            .collect();
        state.exclude(found.unreported.iter().cloned());
        found
    }

    /// The directories of the tree, unless it cannot be used.
    fn begin_verification(&self) -> Option<(OwnedFd, Vec<Arc<[u8]>>)> {
        let mut state = lock(&self.state);
        if !state.is_searchable || !state.refresh() {
            return None;
        }
        if state.has_other_rule_files(Unreported::AndOthers) {
            state.lose();
            return None;
        }
        let root = open_dir(state.root.as_fd(), c".").ok()?;
        let dirs = state.dirs.below(b"");
        let dirs = dirs.map(|(_, dir)| Arc::clone(&dir.path)).collect();
        Some((root, dirs))
    }

    /// Waits while files have changed of which an event may still come.
    fn wait_for_late_events(&self, grace: Duration, cancel: &CancelToken) {
        let end = Instant::now() + grace;
        while !cancel.is_cancelled() {
            let mut state = lock(&self.state);
            state.read_events();
            if state.files.suspects.is_empty() || Instant::now() >= end {
                return;
            }
            drop(state);
            std::thread::sleep(GRACE_STEP);
        }
    }
}

impl TreeState {
    /// `None` for a directory whose files are never known.
    fn begin_comparison(&mut self, path: &[u8], index: &TrigramIndex) -> Option<ComparedDir> {
        let check = self.follow(index).then(|| self.files.begin_check());
        let number = self.dirs.number_of(path)?;
        let dir = self.dirs.by_number(number)?;
        if dir.device != self.device {
            return None;
        }
        let compared = ComparedDir {
            number,
            path: Arc::clone(&dir.path),
            names: Arc::clone(&dir.names),
            known: (0..dir.names.len()).map(|at| dir.known(at)).collect(),
            check,
        };
        for at in check.into_iter().flat_map(|_| compared.unknown()) {
            self.begin_check_of(FilePlace { dir: number, at }, check?);
        }
        Some(compared)
    }

    fn end_comparison(&mut self, dir: &ComparedDir, compared: DirComparison) {
        for (at, same) in compared.same {
            let place = self.place_now(dir.number, &dir.path, &dir.names, at);
            if let (Some(place), Some(check)) = (place, dir.check) {
                self.end_check_of(place, check, &same);
            }
        }
        if compared.changed.is_empty() {
            return;
        }
        self.read_events();
        for at in compared.changed {
            let place = self.place_now(dir.number, &dir.path, &dir.names, at);
            let Some(place) = place else { continue };
            let Some(now) = self.dirs.by_number(place.dir) else {
                continue;
            };
            // Unless an event has come, or another look.
            if now.known(place.at as usize) == dir.known[at as usize] {
                let path = now.path_of(place.at as usize);
                self.files.suspects.insert(path);
                self.forget_known(place);
            }
        }
    }

    /// Where a file is that was at a place when its directory had these names.
    pub(super) fn place_now(
        &self,
        number: u32,
        path: &[u8],
        names: &Arc<NameBatch>,
        at: u32,
    ) -> Option<FilePlace> {
        let dir = self.dirs.by_number(number)?;
        if *dir.path != *path {
            return None;
        }
        let at = match Arc::ptr_eq(&dir.names, names) {
            true => at,
            false => dir.names.find(names.get(at as usize).to_bytes())? as u32,
        };
        Some(FilePlace { dir: number, at })
    }
}

impl ComparedDir {
    fn unknown(&self) -> impl Iterator<Item = u32> {
        let known = (0_u32..).zip(&self.known);
        known
            .filter(|(_, known)| !known.is_known())
            .map(|(at, _)| at)
    }

    fn compare(&self, root: &OwnedFd, index: &TrigramIndex) -> DirComparison {
        let opened = match self.path.is_empty() {
            true => open_dir(root.as_fd(), c"."),
            false => open_below(root.as_fd(), &self.path),
        };
        let mut compared = DirComparison::default();
        // Where it cannot be opened an event will say why.
        let Ok(fd) = opened else {
            return compared;
        };
        for (at, known) in (0_u32..).zip(&self.known) {
            if !known.is_known() && self.check.is_none() {
                continue;
            }
            let name = self.names.get(at as usize);
            let stat = statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW).ok();
            let fingerprint = stat
                .as_ref()
                .map(|stat| FileIdentity::of(stat).fingerprint());
            if known.is_known() {
                if fingerprint != Some(known.fingerprint) {
                    compared.changed.push(at);
                }
            } else if let Some(stat) = stat {
                let path = PathHash::of(&super::join(&self.path, name));
                let same = ComparedFile::of(index, path, &stat);
                compared.same.extend(same.map(|same| (at, same)));
            }
        }
        compared
    }
}

impl ComparedFile {
    /// The file of the index at a path, if it has this status.
    pub(crate) fn of(index: &TrigramIndex, path: PathHash, stat: &Stat) -> Option<ComparedFile> {
        let fingerprint = FileIdentity::of(stat).fingerprint();
        let document = index.find(path, fingerprint)?;
        Some(ComparedFile {
            document,
            fingerprint,
            kind: index.kind(document)?,
            has_one_name: stat.st_nlink == 1,
        })
    }
}
