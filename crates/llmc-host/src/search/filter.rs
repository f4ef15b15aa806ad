//! Which files a search need not read, by what an index knows of their content.
//!
//! A file is passed over only if the kernel reports of it now what it reported when the index read it, and that was settled;
//! in a watched tree, if that was so once and no event has named the file since. Its answer is then known without reading:
//! searched without a match, or skipped as binary. Everything else is read.

use std::os::fd::AsFd;
use std::sync::Arc;

use llmc_trigrams::{IndexedContent, PathHash, TrigramCandidates, TrigramIndex, TrigramQuery};
use rustix::fs::{Stat, fstat, fstatfs};

use super::pattern::ContentPattern;
use crate::mounts::is_local_file_system;
use crate::walk::{ComparedFile, VisitOutcome};

/// The files of an index that may hold a match of one pattern.
#[derive(Debug)]
pub struct ContentFilter {
    index: Arc<TrigramIndex>,
    candidates: TrigramCandidates,
    /// Whether the candidates are fewer than all.
    is_selective: bool,
    /// The only device whose files the index is asked about.
    device: u64,
}

impl ContentFilter {
    /// The filter for a search from a directory of the workspace. `None` for a pattern whose answers depend on more than
    /// which lines match, and on a file system whose times do not show every change.
    ///
    /// # Errors
    /// The index is damaged.
    pub fn new(
        index: Arc<TrigramIndex>,
        pattern: &ContentPattern,
        start: impl AsFd,
    ) -> llmc_trigrams::Result<Option<ContentFilter>> {
        let Some(query) = pattern.query() else {
            return Ok(None);
        };
        if !fstatfs(&start).is_ok_and(|found| is_local_file_system(&found)) {
            return Ok(None);
        }
        Ok(Some(ContentFilter {
            candidates: index.candidates(query)?,
            is_selective: *query != TrigramQuery::All,
            index,
            device: fstat(&start)?.st_dev,
        }))
    }

    /// Whether it can pass over any text.
    pub(crate) fn is_selective(&self) -> bool {
        self.is_selective
    }

    pub(crate) fn index(&self) -> &TrigramIndex {
        &self.index
    }

    /// The device whose files it knows.
    pub(crate) fn device(&self) -> u64 {
        self.device
    }

    /// Whether the file at a position of a segment may hold a match.
    pub(crate) fn is_candidate_at(&self, (segment, position): (u64, u32)) -> bool {
        self.candidates.is_at(segment, position)
    }

    /// The positions in a segment of files that may hold a match.
    pub(crate) fn candidates_in(&self, segment: u64) -> impl Iterator<Item = u32> {
        self.candidates.in_segment(segment)
    }

    /// What the index has of the file at a path below the root, if it has this status.
    pub(crate) fn compare(&self, path: &[u8], stat: &Stat) -> Option<ComparedFile> {
        if stat.st_dev != self.device {
            return None;
        }
        ComparedFile::of(&self.index, PathHash::of(path), stat)
    }

    /// What a search would make of a file that is as the index has it, if that is known.
    pub(crate) fn known_outcome(&self, file: &ComparedFile) -> Option<VisitOutcome> {
        match file.kind {
            IndexedContent::Text if self.candidates.contains(file.document) => None,
            IndexedContent::Text => Some(VisitOutcome::Done),
            IndexedContent::Binary => Some(VisitOutcome::Binary),
            IndexedContent::Unindexed => None,
        }
    }
}
