//! Which files of a watched tree an index knows as they are now, so that a search need not look at them.
//!
//! A file is known from the moment when its status, taken after its directory was watched, was the one that the index has of
//! it, until an event names it. It must have one name only: what is written through another one is reported for that one.
//! Whatever an event cannot show is left to `verify`.
//!
//! Positions of the index lead to files and back, so that a search goes over candidates and files that are not known, and over
//! no others.

use std::collections::{BTreeSet, HashSet};
use std::os::unix::ffi::OsStrExt;

use llmc_trigrams::{DocId, IndexedContent, PathHash, TrigramIndex};

use super::TreeState;
use super::dirs::FilePlace;

/// Files that changed without an event, from which on no file is taken for known.
const MAX_UNREPORTED_FILES: usize = 1000;
const NO_PLACE: FilePlace = FilePlace {
    dir: u32::MAX,
    at: u32::MAX,
};

/// What is known of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KnownFile {
    pub(super) state: KnownState,
    /// Where its segment is in the list of segments.
    segment: u16,
    /// Its position there; the number of the check while it is looked at.
    position: u32,
    /// Of the status that it was compared by.
    pub(super) fingerprint: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum KnownState {
    /// It has to be looked at.
    #[default]
    Unknown,
    /// A search looks at it, and no event has come since it began.
    Checked,
    /// Its trigrams are in the index.
    Text,
    /// It is skipped as binary.
    Binary,
}

impl KnownFile {
    fn checked(check: u32) -> KnownFile {
        KnownFile {
            state: KnownState::Checked,
            position: check,
            ..KnownFile::default()
        }
    }

    pub(super) fn is_known(self) -> bool {
        matches!(self.state, KnownState::Text | KnownState::Binary)
    }
}

/// A file whose status was found to be the one that the index has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ComparedFile {
    pub(crate) document: DocId,
    pub(crate) fingerprint: u64,
    pub(crate) kind: IndexedContent,
    pub(crate) has_one_name: bool,
}

/// The files of each segment of the index, and what must not be taken for known.
#[derive(Debug, Default)]
pub(super) struct KnownFiles {
    /// Of the index that the positions belong to.
    generation: u64,
    segments: Vec<KnownSegment>,
    last_check: u32,
    /// Files that changed without an event, relative to the workspace.
    unreported: HashSet<Vec<u8>>,
    /// The same while an event may still come.
    pub(super) suspects: BTreeSet<Vec<u8>>,
    /// Whether so many files changed without an event that every file is looked at.
    is_off: bool,
}

/// The files of a segment by their positions; without a number it is free for another one.
#[derive(Debug, Default)]
struct KnownSegment {
    number: Option<u64>,
    places: Vec<FilePlace>,
}

impl KnownFiles {
    /// Makes room for a file; whether there is.
    pub(super) fn reserve(&mut self, file: KnownFile, place: FilePlace) -> bool {
        if !file.is_known() {
            return true;
        }
        let segment = self.segments.get_mut(usize::from(file.segment));
        let slot = segment.and_then(|segment| segment.places.get_mut(file.position as usize));
        // A document is one file: two paths with one hash are not both known.
        let free = slot.filter(|slot| **slot == NO_PLACE || **slot == place);
        free.map(|slot| *slot = place).is_some()
    }

    /// Takes a file away from its position.
    pub(super) fn forget(&mut self, file: KnownFile) {
        if file.is_known()
            && let Some(segment) = self.segments.get_mut(usize::from(file.segment))
            && let Some(slot) = segment.places.get_mut(file.position as usize)
        {
            *slot = NO_PLACE;
        }
    }

    /// The document of a known file.
    pub(super) fn number_and_position(&self, file: KnownFile) -> Option<(u64, u32)> {
        let segment = self.segments.get(usize::from(file.segment))?;
        Some((segment.number?, file.position)).filter(|_| file.is_known())
    }

    /// The files at positions of the index.
    pub(super) fn places<I: Iterator<Item = u32>>(
        &self,
        positions: impl Fn(u64) -> I,
    ) -> impl Iterator<Item = FilePlace> {
        let segments = self.segments.iter();
        let found = segments.flat_map(move |segment| {
            let positions = segment.number.map(&positions).into_iter().flatten();
            positions.filter_map(|at| segment.places.get(at as usize).copied())
        });
        found.filter(|place| *place != NO_PLACE)
    }

    /// The number of a new check.
    pub(super) fn begin_check(&mut self) -> u32 {
        self.last_check = self.last_check.wrapping_add(1);
        self.last_check
    }

    fn slot_of(&self, number: u64) -> Option<u16> {
        let mut segments = self.segments.iter();
        let slot = segments.position(|segment| segment.number == Some(number))?;
        u16::try_from(slot).ok()
    }
}

impl TreeState {
    /// Whether files are known by this index; takes over what is known by an earlier state of it.
    pub(super) fn follow(&mut self, index: &TrigramIndex) -> bool {
        if self.files.is_off || index.generation() < self.files.generation {
            return false;
        }
        if index.generation() == self.files.generation {
            return true;
        }
        self.files.generation = index.generation();
        let listed: Vec<(u64, u32)> = index.segments().collect();
        let is_listed = |number: u64| listed.iter().any(|(listed, _)| *listed == number);
        let mut moved = Vec::new();
        for segment in &mut self.files.segments {
            if segment.number.is_some_and(|number| !is_listed(number)) {
                segment.number = None;
                let places = std::mem::take(&mut segment.places);
                moved.extend(places.into_iter().filter(|place| *place != NO_PLACE));
            }
        }
        for (number, documents) in listed {
            if self.files.slot_of(number).is_some() {
                continue;
            }
            let added = KnownSegment {
                number: Some(number),
                places: vec![NO_PLACE; documents as usize],
            };
            let mut segments = self.files.segments.iter_mut();
            match segments.find(|segment| segment.number.is_none()) {
                Some(free) => *free = added,
                None => self.files.segments.push(added),
            }
        }
        for place in moved {
            self.find_again(place, index);
        }
        true
    }

    /// Finds a known file in other segments, where its trigrams are now.
    fn find_again(&mut self, place: FilePlace, index: &TrigramIndex) {
        let Some(dir) = self.dirs.by_number(place.dir) else {
            return;
        };
        let at = place.at as usize;
        let (path, known) = (PathHash::of(&dir.path_of(at)), dir.known(at));
        let found = index.find(path, known.fingerprint).and_then(|document| {
            Some(ComparedFile {
                document,
                fingerprint: known.fingerprint,
                kind: index.kind(document)?,
                has_one_name: true,
            })
        });
        // Its old segment is gone: there is no place to take it away from.
        let unknown = KnownFile::default();
        let again = found.and_then(|found| self.known_file(&found));
        let again = again.filter(|again| self.files.reserve(*again, place));
        self.dirs.replace_known(place, again.unwrap_or(unknown));
    }

    fn known_file(&self, compared: &ComparedFile) -> Option<KnownFile> {
        Some(KnownFile {
            state: match compared.kind {
                IndexedContent::Text => KnownState::Text,
                IndexedContent::Binary => KnownState::Binary,
                IndexedContent::Unindexed => return None,
            },
            segment: self.files.slot_of(compared.document.segment())?,
            position: compared.document.position(),
            fingerprint: compared.fingerprint,
        })
    }

    /// Notes that a check looks at a file. An event for it ends the check.
    pub(super) fn begin_check_of(&mut self, place: FilePlace, check: u32) {
        self.dirs
            .set_known(place, KnownFile::checked(check), &mut self.files);
    }

    /// Takes a file for known that a check found as the index has it, unless an event came meanwhile.
    pub(super) fn end_check_of(&mut self, place: FilePlace, check: u32, compared: &ComparedFile) {
        let Some(dir) = self.dirs.by_number(place.dir) else {
            return;
        };
        let at = place.at as usize;
        let is_untouched = dir.known(at) == KnownFile::checked(check);
        if !is_untouched || !compared.has_one_name || dir.device != self.device || self.files.is_off
        {
            return;
        }
        if !self.files.unreported.is_empty() && self.files.unreported.contains(&dir.path_of(at)) {
            return;
        }
        if let Some(known) = self.known_file(compared) {
            self.dirs.set_known(place, known, &mut self.files);
        }
    }

    /// An event named a file: it has to be looked at.
    pub(super) fn forget_file(&mut self, dir: &[u8], name: &[u8]) {
        if !self.files.suspects.is_empty() {
            let mut path = dir.to_vec();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            self.files.suspects.remove(&path);
        }
        let Some(number) = self.dirs.number_of(dir) else {
            return;
        };
        let at = self.dirs.by_number(number).and_then(|dir| {
            let at = dir.names.find(name)?;
            (dir.known(at).state != KnownState::Unknown).then_some(at as u32)
        });
        if let Some(at) = at {
            self.forget_known(FilePlace { dir: number, at });
        }
    }

    pub(super) fn forget_known(&mut self, place: FilePlace) {
        let unknown = KnownFile::default();
        self.dirs.set_known(place, unknown, &mut self.files);
    }

    /// Every file has to be looked at, and those of ignore rules before each search from now on.
    pub(super) fn forget_all_files(&mut self) {
        self.dirs.forget_known(&mut self.files);
        for file in self.rule_files.values_mut() {
            file.is_reported = false;
        }
    }

    /// A file that is mounted over another one has its directory elsewhere, and events come from there.
    pub(super) fn exclude_mounted_files(&mut self) {
        let points = self.mount_points.iter();
        let below = points.filter_map(|point| point.strip_prefix(&self.workspace).ok());
        let below = below.map(|point| point.as_os_str().as_bytes().to_vec());
        self.files.unreported = below.collect();
    }

    /// Takes files that changed without an event for known no more; all files when there are many.
    pub(super) fn exclude(&mut self, paths: impl IntoIterator<Item = Vec<u8>>) {
        self.files.unreported.extend(paths);
        if self.files.unreported.len() > MAX_UNREPORTED_FILES {
            self.files.is_off = true;
            self.files.unreported.clear();
            self.forget_all_files();
        }
    }

    /// Whether every position leads to its file, and every count is right.
    #[cfg(debug_assertions)]
    pub(super) fn check_known_files(&self) {
        let mut known = 0;
        for (number, dir) in self.dirs.below(b"") {
            let (mut texts, mut binaries) = (0, 0);
            for at in 0..dir.names.len() {
                let file = dir.known(at);
                texts += u64::from(file.state == KnownState::Text);
                binaries += u64::from(file.state == KnownState::Binary);
                if file.is_known() {
                    let segment = &self.files.segments[usize::from(file.segment)];
                    let place = segment.places[file.position as usize];
                    let at = at as u32;
                    assert_eq!(place, FilePlace { dir: number, at });
                    known += 1;
                }
            }
            assert_eq!(dir.known_counts(), (texts, binaries));
        }
        let segments = self.files.segments.iter();
        let places = segments.flat_map(|segment| &segment.places);
        assert_eq!(known, places.filter(|place| **place != NO_PLACE).count());
    }
}
