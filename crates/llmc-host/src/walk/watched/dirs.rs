//! The directories of a watched tree, by their paths and by numbers that are small and stay the same.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::known::{KnownFile, KnownFiles, KnownState};
use super::{LeftOutEntries, range_below};
use crate::walk::dir::NameBatch;
use crate::walk::ignores::IgnoreRules;

/// A directory that a walk would enter.
#[derive(Debug)]
pub(super) struct WatchedDir {
    /// Relative to the workspace.
    pub(super) path: Arc<[u8]>,
    pub(super) watch: i32,
    pub(super) device: u64,
    /// What is ignored inside.
    pub(super) rules: Option<Arc<IgnoreRules>>,
    /// The names of its files, in the order of their bytes; shared with the searches that use them.
    pub(super) names: Arc<NameBatch>,
    pub(super) left_out: LeftOutEntries,
    /// What is known of each file; empty while nothing is.
    known: Vec<KnownFile>,
    known_texts: u32,
    known_binaries: u32,
}

impl WatchedDir {
    pub(super) fn new(path: Arc<[u8]>, watch: i32, device: u64) -> WatchedDir {
        WatchedDir {
            path,
            watch,
            device,
            rules: None,
            names: Arc::default(),
            left_out: LeftOutEntries::default(),
            known: Vec::new(),
            known_texts: 0,
            known_binaries: 0,
        }
    }

    /// The path of a file, relative to the workspace.
    pub(super) fn path_of(&self, at: usize) -> Vec<u8> {
        super::join(&self.path, self.names.get(at))
    }

    pub(super) fn known(&self, at: usize) -> KnownFile {
        self.known.get(at).copied().unwrap_or_default()
    }

    /// Files that need no look: those that are searched, and those that are skipped as binary.
    pub(super) fn known_counts(&self) -> (u64, u64) {
        (self.known_texts.into(), self.known_binaries.into())
    }

    /// Whether every file is known.
    pub(super) fn is_all_known(&self) -> bool {
        self.known_texts as usize + self.known_binaries as usize == self.names.len()
    }

    /// Puts down what is known of a file, in place of what was.
    fn put(&mut self, at: usize, file: KnownFile) {
        if self.known.is_empty() {
            self.known = vec![KnownFile::default(); self.names.len()];
        }
        let old = std::mem::replace(&mut self.known[at], file);
        for (state, by) in [(old.state, -1), (file.state, 1)] {
            let count = match state {
                KnownState::Text => &mut self.known_texts,
                KnownState::Binary => &mut self.known_binaries,
                KnownState::Unknown | KnownState::Checked => continue,
            };
            *count = count.saturating_add_signed(by);
        }
    }
}

/// A file of the tree: the number of its directory, and which of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilePlace {
    pub(super) dir: u32,
    pub(super) at: u32,
}

#[derive(Debug, Default)]
pub(super) struct DirTable {
    numbers: BTreeMap<Arc<[u8]>, u32>,
    dirs: Vec<Option<WatchedDir>>,
    free: Vec<u32>,
}

impl DirTable {
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// One more than the largest number in use.
    pub(super) fn bound(&self) -> usize {
        self.dirs.len()
    }

    pub(super) fn contains(&self, path: &[u8]) -> bool {
        self.numbers.contains_key(path)
    }

    pub(super) fn number_of(&self, path: &[u8]) -> Option<u32> {
        self.numbers.get(path).copied()
    }

    pub(super) fn get(&self, path: &[u8]) -> Option<&WatchedDir> {
        self.by_number(self.number_of(path)?)
    }

    pub(super) fn get_mut(&mut self, path: &[u8]) -> Option<&mut WatchedDir> {
        let number = self.number_of(path)?;
        self.dirs.get_mut(number as usize)?.as_mut()
    }

    pub(super) fn by_number(&self, number: u32) -> Option<&WatchedDir> {
        self.dirs.get(number as usize)?.as_ref()
    }

    /// Adds a directory. In place of an older listing of it, it takes over what was known of files whose names are still there.
    pub(super) fn insert(&mut self, dir: WatchedDir, files: &mut KnownFiles) {
        let path = Arc::clone(&dir.path);
        match self.number_of(&path) {
            Some(number) => {
                let old = self.dirs[number as usize].replace(dir);
                if let Some(old) = old {
                    self.take_over(number, &old, files);
                }
            }
            None => {
                let number = self.free.pop().unwrap_or(self.dirs.len() as u32);
                if number as usize == self.dirs.len() {
                    self.dirs.push(None);
                }
                self.dirs[number as usize] = Some(dir);
                self.numbers.insert(path, number);
            }
        }
    }

    pub(super) fn remove(&mut self, path: &[u8], files: &mut KnownFiles) -> Option<WatchedDir> {
        let number = self.numbers.remove(path)?;
        self.free.push(number);
        let dir = self.dirs[number as usize].take()?;
        for file in &dir.known {
            files.forget(*file);
        }
        Some(dir)
    }

    /// The directories at and below a path, with their numbers.
    pub(super) fn below<'a>(
        &'a self,
        start: &'a [u8],
    ) -> impl Iterator<Item = (u32, &'a WatchedDir)> {
        let range = range_below(start);
        let range = (
            Bound::Included(range.start.as_slice()),
            Bound::Excluded(range.end.as_slice()),
        );
        let own = self.number_of(start).into_iter();
        let below = self.numbers.range::<[u8], _>(range);
        own.chain(below.map(|(_, number)| *number))
            .filter_map(|number| Some((number, self.by_number(number)?)))
    }

    /// Puts down what is known of a file, in place of what was.
    pub(super) fn set_known(&mut self, place: FilePlace, file: KnownFile, files: &mut KnownFiles) {
        let dir = self.dirs.get_mut(place.dir as usize);
        let Some(dir) = dir.and_then(Option::as_mut) else {
            return;
        };
        let at = place.at as usize;
        if at < dir.names.len() {
            files.forget(dir.known(at));
            let has_room = files.reserve(file, place);
            dir.put(at, if has_room { file } else { KnownFile::default() });
        }
    }

    /// Puts down what is known of a file whose old position is gone.
    pub(super) fn replace_known(&mut self, place: FilePlace, file: KnownFile) {
        let dir = self.dirs.get_mut(place.dir as usize);
        if let Some(dir) = dir.and_then(Option::as_mut) {
            dir.put(place.at as usize, file);
        }
    }

    /// Forgets what is known of every file.
    pub(super) fn forget_known(&mut self, files: &mut KnownFiles) {
        for dir in self.dirs.iter_mut().flatten() {
            for file in std::mem::take(&mut dir.known) {
                files.forget(file);
            }
            (dir.known_texts, dir.known_binaries) = (0, 0);
        }
    }

    /// Both lists of names are in the same order.
    fn take_over(&mut self, number: u32, old: &WatchedDir, files: &mut KnownFiles) {
        let Some(names) = self.by_number(number).map(|dir| Arc::clone(&dir.names)) else {
            return;
        };
        let mut next = 0;
        for (at, file) in old.known.iter().enumerate() {
            files.forget(*file);
            if file.state == KnownState::Unknown {
                continue;
            }
            let name = old.names.get(at);
            while next < names.len() && names.get(next) < name {
                next += 1;
            }
            if next < names.len() && names.get(next) == name {
                let place = FilePlace {
                    dir: number,
                    at: next as u32,
                };
                self.set_known(place, *file, files);
            }
        }
    }
}
