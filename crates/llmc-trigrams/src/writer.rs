//! Adds files to an index.
//!
//! Trigrams are gathered up to a limit and then written as a segment, which the list of segments names from then on; a process
//! that is killed loses what it had not written, and the next update adds it. Segments are merged so that there are few.
//! One process writes at a time, which the caller ensures.
#![allow(
    clippy::disallowed_methods,
    reason = "these are the index's own files, not the agent's"
)]

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};
use crate::identity::PathHash;
use crate::merge::merge;
use crate::segment::{Document, IndexedContent, Segment, SegmentWriter};
use crate::store::{OpenSegment, TrigramIndex, segment_path};

/// Entries that are gathered before a segment is written; each takes eight bytes.
const MAX_PENDING_ENTRIES: usize = 2 << 20;
/// Files that are gathered before a segment is written.
const MAX_PENDING_FILES: usize = 100_000;
/// Segments from which on the smaller ones are merged.
const MAX_SEGMENTS: usize = 12;
/// A segment counts as large while the others together have less than its size by this factor.
const LARGE_FACTOR: u64 = 4;
/// Of this many documents one may be out of date before all are merged.
const MAX_DROPPED_SHARE: u64 = 4;

/// Whether an update has seen every file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkExtent {
    /// Files that were not seen are gone.
    Whole,
    Part,
}

/// Writes an index.
#[derive(Debug)]
pub struct TrigramWriter {
    dir: PathBuf,
    index: TrigramIndex,
    documents: Vec<Document>,
    /// A trigram in the upper half and a position in `documents` in the lower.
    entries: Vec<u64>,
    seen: HashSet<u64>,
}

impl TrigramWriter {
    /// Opens an index, or begins one. A damaged one is removed first.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn open(dir: &Path) -> Result<TrigramWriter> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let index = match TrigramIndex::open(dir) {
            Ok(index) if !damage_mark(dir).exists() => index,
            // Damaged, or a segment is missing.
            _ => {
                clear(dir)?;
                TrigramIndex::default()
            }
        };
        remove_unlisted(dir, &index)?;
        let index = match index.next_number {
            0 => TrigramIndex {
                next_number: nanoseconds_now(),
                ..index
            },
            _ => index,
        };
        Ok(TrigramWriter {
            dir: dir.to_owned(),
            index,
            documents: Vec::new(),
            entries: Vec::new(),
            seen: HashSet::new(),
        })
    }

    /// Makes the next writer begin anew.
    pub fn mark_damaged(dir: &Path) {
        let _ = File::create(damage_mark(dir));
    }

    /// Whether a writer will begin anew.
    pub fn is_marked_damaged(dir: &Path) -> bool {
        damage_mark(dir).exists()
    }

    /// What was there when the writer was opened.
    pub fn existing(&self) -> TrigramIndex {
        TrigramIndex {
            segments: self.index.segments.clone(),
            next_number: self.index.next_number,
        }
    }

    /// Notes that a file is still there, as the index has it or as it will be added.
    pub fn see(&mut self, path: PathHash) {
        self.seen.insert(path.0);
    }

    /// Adds a file; its trigrams are each given once.
    ///
    /// # Errors
    /// A segment cannot be written.
    pub fn add(
        &mut self,
        path: PathHash,
        fingerprint: u64,
        kind: IndexedContent,
        trigrams: &[u32],
    ) -> Result<()> {
        let position = self.documents.len() as u64;
        self.documents.push(Document {
            path: path.0,
            fingerprint,
            kind,
        });
        self.seen.insert(path.0);
        let entries = trigrams
            .iter()
            .map(|three| u64::from(*three) << 32 | position);
        self.entries.extend(entries);
        if self.entries.len() >= MAX_PENDING_ENTRIES || self.documents.len() >= MAX_PENDING_FILES {
            self.flush()?;
            self.merge_small()?;
        }
        Ok(())
    }

    /// Writes what was gathered and merges what should be one.
    ///
    /// # Errors
    /// A segment cannot be written.
    pub fn finish(mut self, extent: WalkExtent) -> Result<TrigramIndex> {
        self.flush()?;
        let total = self.index.documents();
        let seen = self.seen.len() as u64;
        let is_whole = extent == WalkExtent::Whole;
        let dropped = if is_whole {
            total.saturating_sub(seen)
        } else {
            0
        };
        let largest = self
            .index
            .segments
            .iter()
            .map(|open| open.bytes)
            .max()
            .unwrap_or(0);
        let others = self.index.bytes() - largest;
        if dropped > total / MAX_DROPPED_SHARE || (is_whole && others > largest / LARGE_FACTOR) {
            let seen = is_whole.then(|| std::mem::take(&mut self.seen));
            let all = 0..self.index.segments.len();
            self.merge_some(&all.collect::<Vec<_>>(), |path| {
                seen.as_ref().is_none_or(|seen| seen.contains(&path))
            })?;
        }
        self.merge_small()?;
        Ok(self.index)
    }

    /// Writes what was gathered as a segment.
    fn flush(&mut self) -> Result<()> {
        if self.documents.is_empty() {
            return Ok(());
        }
        let given = std::mem::take(&mut self.documents);
        let mut order: Vec<u32> = (0..given.len() as u32).collect();
        order.sort_by_key(|position| given[*position as usize].path);
        let mut documents: Vec<Document> = Vec::with_capacity(given.len());
        let mut places = vec![u32::MAX; given.len()];
        for (at, position) in order.iter().enumerate() {
            let document = given[*position as usize];
            let newer = order.get(at + 1).map(|next| given[*next as usize].path);
            // Of a file that was added twice the later one counts.
            if newer != Some(document.path) {
                places[*position as usize] = documents.len() as u32;
                documents.push(document);
            }
        }
        let mut entries = std::mem::take(&mut self.entries);
        for entry in &mut entries {
            let place = places[(*entry & 0xffff_ffff) as usize];
            *entry = *entry >> 32 << 32 | u64::from(place);
        }
        entries.sort_unstable();
        let number = self.index.next_number;
        let path = segment_path(&self.dir, number);
        let mut writer = SegmentWriter::create(&path, &documents)?;
        let mut list = Vec::new();
        for group in entries.chunk_by(|one, next| one >> 32 == next >> 32) {
            list.clear();
            let places = group.iter().map(|entry| (*entry & 0xffff_ffff) as u32);
            list.extend(places.filter(|place| *place != u32::MAX));
            if !list.is_empty() {
                writer.add((group[0] >> 32) as u32, &list)?;
            }
        }
        let bytes = writer.finish()?;
        entries.clear();
        self.entries = entries;
        let kept: Vec<usize> = (0..self.index.segments.len()).collect();
        self.commit(&kept, number, bytes)
    }

    /// Merges all but the large segments when there are too many.
    fn merge_small(&mut self) -> Result<()> {
        if self.index.segments.len() < MAX_SEGMENTS {
            return Ok(());
        }
        let limit = self.index.bytes() / LARGE_FACTOR;
        let segments = self.index.segments.iter().enumerate();
        let small = segments.filter(|(_, open)| open.bytes <= limit);
        let small: Vec<usize> = small.map(|(at, _)| at).collect();
        self.merge_some(&small, |_| true)
    }

    fn merge_some(&mut self, chosen: &[usize], is_live: impl Fn(u64) -> bool) -> Result<()> {
        let segments = chosen
            .iter()
            .map(|at| Arc::clone(&self.index.segments[*at].segment));
        let segments: Vec<Arc<Segment>> = segments.collect();
        let segments: Vec<&Segment> = segments.iter().map(|segment| &**segment).collect();
        let number = self.index.next_number;
        let bytes = match merge(&segments, is_live, &segment_path(&self.dir, number)) {
            Err(error @ Error::Damaged(_)) => {
                TrigramWriter::mark_damaged(&self.dir);
                return Err(error);
            }
            other => other?,
        };
        let kept = (0..self.index.segments.len()).filter(|at| !chosen.contains(at));
        let kept: Vec<usize> = kept.collect();
        self.commit(&kept, number, bytes)
    }

    /// Makes the segments at `kept` and the new one those that count, and removes the others.
    fn commit(&mut self, kept: &[usize], number: u64, bytes: u64) -> Result<()> {
        let segment = Arc::new(Segment::open(&segment_path(&self.dir, number))?);
        let mut segments: Vec<OpenSegment> = kept
            .iter()
            .map(|at| self.index.segments[*at].clone())
            .collect();
        segments.push(OpenSegment {
            number,
            bytes,
            segment,
        });
        let index = TrigramIndex {
            segments,
            next_number: number + 1,
        };
        let path = TrigramIndex::list_path(&self.dir);
        let new = path.with_extension("new");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(index.list_text().as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.dir)?.sync_all()?;
        self.index = index;
        remove_unlisted(&self.dir, &self.index)
    }
}

fn nanoseconds_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(1)
}

fn damage_mark(dir: &Path) -> PathBuf {
    dir.join("damaged")
}

/// Removes the files of an index.
fn clear(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        fs::remove_file(entry?.path())?;
    }
    Ok(())
}

/// Removes segments that the list does not name: merged ones, and those of a process that was killed.
fn remove_unlisted(dir: &Path, index: &TrigramIndex) -> Result<()> {
    let listed: HashSet<PathBuf> = index
        .segments
        .iter()
        .map(|open| segment_path(dir, open.number))
        .collect();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "seg") && !listed.contains(&path) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
