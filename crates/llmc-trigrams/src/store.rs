//! The directory of an index, opened for reading.
//!
//! A list names the segments that count; it is replaced as a whole by a rename, so a reader sees the segments of one moment.
#![allow(
    clippy::disallowed_methods,
    reason = "these are the index's own files, not the agent's"
)]

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bits::DocSet;
use crate::error::{Error, Result};
use crate::identity::PathHash;
use crate::query::TrigramQuery;
use crate::segment::{IndexedContent, Posting, Segment};

const LIST_HEAD: &str = "llmc trigrams 1";
/// A list names a handful of segments.
const MAX_LIST_BYTES: u64 = 64 << 10;
/// Lists that are intersected, the shortest first: what further ones leave out is little.
const MAX_INTERSECTED_LISTS: usize = 10;
/// So few candidates are read rather than reduced further.
const FEW_CANDIDATES: u32 = 4;

/// A file of the index: the number of its segment, and its position there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocId {
    segment: u64,
    position: u32,
}

impl DocId {
    /// The number of its segment.
    pub fn segment(self) -> u64 {
        self.segment
    }

    pub fn position(self) -> u32 {
        self.position
    }
}

/// An index as it was when it was opened.
#[derive(Debug, Default)]
pub struct TrigramIndex {
    /// From the oldest to the newest.
    pub(crate) segments: Vec<OpenSegment>,
    /// Never used again for another segment, also after the index was removed: it begins with the time in nanoseconds.
    pub(crate) next_number: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct OpenSegment {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) segment: Arc<Segment>,
}

/// Files that may hold a match.
#[derive(Debug)]
pub struct TrigramCandidates(Vec<(u64, DocSet)>);

impl TrigramCandidates {
    pub fn contains(&self, document: DocId) -> bool {
        self.is_at(document.segment, document.position)
    }

    /// The same of the file at a position of a segment.
    pub fn is_at(&self, segment: u64, position: u32) -> bool {
        let mut sets = self.0.iter();
        let set = sets.find(|(number, _)| *number == segment);
        set.is_none_or(|(_, set)| set.contains(position))
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, set)| u64::from(set.count())).sum()
    }

    /// The positions of those in one segment.
    pub fn in_segment(&self, number: u64) -> impl Iterator<Item = u32> {
        let sets = self.0.iter().filter(move |(of, _)| *of == number);
        sets.flat_map(|(_, set)| set.iter())
    }
}

impl TrigramIndex {
    /// Opens what is in a directory; an index without files if there is none.
    ///
    /// # Errors
    /// [`Error::Damaged`] if a checksum is wrong or another version wrote it.
    pub fn open(dir: &Path) -> Result<TrigramIndex> {
        TrigramIndex::default().reopen(dir)
    }

    /// Opens what is in a directory now, without reading the segments again that are open here.
    ///
    /// # Errors
    /// As for [`TrigramIndex::open`].
    pub fn reopen(&self, dir: &Path) -> Result<TrigramIndex> {
        match open_listed(dir, &self.segments) {
            // A merge has removed a segment after the list was read.
            Err(Error::Io(error)) if error.kind() == ErrorKind::NotFound => {
                open_listed(dir, &self.segments)
            }
            other => other,
        }
    }

    /// The file that names the segments; another file in its place means another state of the index.
    pub fn list_path(dir: &Path) -> PathBuf {
        dir.join("segments")
    }

    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Files of all segments, those that are replaced included.
    pub fn documents(&self) -> u64 {
        let segments = self.segments.iter();
        segments
            .map(|open| u64::from(open.segment.documents()))
            .sum()
    }

    /// The size on disk.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|open| open.bytes).sum()
    }

    /// The file at a path, if the index knows it by this fingerprint.
    pub fn find(&self, path: PathHash, fingerprint: u64) -> Option<DocId> {
        self.segments.iter().rev().find_map(|open| {
            let position = open.segment.find(path.0)?;
            let is_same = open.segment.has_fingerprint(position, fingerprint);
            is_same.then_some(DocId {
                segment: open.number,
                position,
            })
        })
    }

    /// The number of each segment, and how many files it has.
    pub fn segments(&self) -> impl Iterator<Item = (u64, u32)> {
        let segments = self.segments.iter();
        segments.map(|open| (open.number, open.segment.documents()))
    }

    /// What a search makes of a file; `None` if its segment is none of these any more.
    pub fn kind(&self, document: DocId) -> Option<IndexedContent> {
        let mut segments = self.segments.iter();
        let open = segments.find(|open| open.number == document.segment)?;
        open.segment.kinds.get(document.position as usize).copied()
    }

    /// Changes with every update that wrote something.
    pub fn generation(&self) -> u64 {
        self.next_number
    }

    /// The files that meet a condition.
    ///
    /// # Errors
    /// [`Error::Damaged`] if a checksum is wrong.
    pub fn candidates(&self, query: &TrigramQuery) -> Result<TrigramCandidates> {
        let sets = self.segments.iter().map(|open| {
            let mut lookup = Lookup {
                segment: &open.segment,
                known: HashMap::new(),
            };
            Ok((open.number, lookup.evaluate(query)?))
        });
        sets.collect::<Result<_>>().map(TrigramCandidates)
    }

    /// Reads every byte of every list.
    ///
    /// # Errors
    /// [`Error::Damaged`] if a checksum is wrong.
    pub fn check(&self) -> Result<()> {
        for open in &self.segments {
            let mut cursor = crate::segment::SegmentCursor::new(&open.segment)?;
            while cursor.current.is_some() {
                cursor.each_document(|_| {})?;
                cursor.advance()?;
            }
        }
        Ok(())
    }

    /// The list that names these segments.
    pub(crate) fn list_text(&self) -> String {
        let mut text = format!("{LIST_HEAD}\nnext {}\n", self.next_number);
        for open in &self.segments {
            text.push_str(&format!("segment {} {}\n", open.number, open.bytes));
        }
        format!("{text}sum {:08x}\n", crc32fast::hash(text.as_bytes()))
    }
}

pub(crate) fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number}.seg"))
}

/// A segment that is among `known` is not opened again: its number is never used for another one.
fn open_listed(dir: &Path, known: &[OpenSegment]) -> Result<TrigramIndex> {
    let path = TrigramIndex::list_path(dir);
    let text = match fs::metadata(&path) {
        Ok(found) if found.len() > MAX_LIST_BYTES => {
            return Err(Error::Damaged("its list is too long"));
        }
        Ok(_) => fs::read_to_string(&path),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(TrigramIndex::default()),
        Err(error) => Err(error),
    };
    let text = match text {
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            return Err(Error::Damaged("its list is no text"));
        }
        other => other?,
    };
    let (next_number, listed) = parse_list(&text).ok_or(Error::Damaged("its list is wrong"))?;
    let segments = listed.into_iter().map(|(number, bytes)| {
        let mut known = known.iter();
        if let Some(open) = known.find(|open| (open.number, open.bytes) == (number, bytes)) {
            return Ok(open.clone());
        }
        let segment = Arc::new(Segment::open(&segment_path(dir, number))?);
        Ok(OpenSegment {
            number,
            bytes,
            segment,
        })
    });
    Ok(TrigramIndex {
        segments: segments.collect::<Result<_>>()?,
        next_number,
    })
}

fn parse_list(text: &str) -> Option<(u64, Vec<(u64, u64)>)> {
    let body = text.strip_suffix('\n')?;
    let (body, sum) = body.split_at(body.rfind('\n')? + 1);
    let sum = u32::from_str_radix(sum.strip_prefix("sum ")?, 16).ok()?;
    if sum != crc32fast::hash(body.as_bytes()) {
        return None;
    }
    let mut lines = body.lines();
    if lines.next()? != LIST_HEAD {
        return None;
    }
    let next = lines.next()?.strip_prefix("next ")?.parse().ok()?;
    let segments = lines.map(|line| {
        let (number, bytes) = line.strip_prefix("segment ")?.split_once(' ')?;
        Some((number.parse().ok()?, bytes.parse().ok()?))
    });
    Some((next, segments.collect::<Option<_>>()?))
}

/// One query over one segment.
struct Lookup<'a> {
    segment: &'a Segment,
    known: HashMap<u32, Option<Posting>>,
}

impl Lookup<'_> {
    fn posting(&mut self, trigram: u32) -> Result<Option<Posting>> {
        if let Some(known) = self.known.get(&trigram) {
            return Ok(known.clone());
        }
        let found = self.segment.posting(trigram)?;
        self.known.insert(trigram, found.clone());
        Ok(found)
    }

    fn evaluate(&mut self, query: &TrigramQuery) -> Result<DocSet> {
        let documents = self.segment.documents();
        match query {
            TrigramQuery::All => Ok(DocSet::all(documents)),
            TrigramQuery::None => Ok(DocSet::none(documents)),
            TrigramQuery::Trigram(trigram) => match self.posting(*trigram)? {
                Some(posting) => self.segment.documents_of(&posting),
                None => Ok(DocSet::none(documents)),
            },
            TrigramQuery::Or(parts) => {
                let mut any = DocSet::none(documents);
                for part in parts {
                    any.unite(&self.evaluate(part)?);
                }
                Ok(any)
            }
            TrigramQuery::And(parts) => self.evaluate_all(parts),
        }
    }

    fn evaluate_all(&mut self, parts: &[TrigramQuery]) -> Result<DocSet> {
        let mut postings = Vec::new();
        let mut others = Vec::new();
        for part in parts {
            match part {
                TrigramQuery::Trigram(trigram) => match self.posting(*trigram)? {
                    Some(posting) => postings.push(posting),
                    None => return Ok(DocSet::none(self.segment.documents())),
                },
                other => others.push(other),
            }
        }
        postings.sort_by_key(|posting| self.segment.count(posting));
        let mut all = DocSet::all(self.segment.documents());
        for posting in postings.iter().take(MAX_INTERSECTED_LISTS) {
            all.intersect(&self.segment.documents_of(posting)?);
            if all.count() <= FEW_CANDIDATES {
                return Ok(all);
            }
        }
        for other in others {
            all.intersect(&self.evaluate(other)?);
            if all.count() <= FEW_CANDIDATES {
                return Ok(all);
            }
        }
        Ok(all)
    }
}
