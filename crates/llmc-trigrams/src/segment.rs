//! One file of the index: some files' documents, and for each trigram the list of documents that hold it.
//!
//! ```text
//! magic | lists of documents | blocks of the dictionary | table of the blocks | documents | footer
//! ```
//!
//! A block has 128 trigrams with the length of each list. A short list lies in the block itself, a longer one in front, with a
//! checksum of its own; blocks, table, documents and footer have theirs. A trigram that more than half of the documents hold has no
//! list: it tells too little, and every document counts as holding it. So every byte that an answer depends on is checked
//! when it is read, and a query reads only the blocks and lists it needs. A file is written once and never changed.
#![allow(
    clippy::disallowed_methods,
    reason = "these are the index's own files, not the agent's"
)]

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::bits::DocSet;
use crate::error::{Error, Result};
use crate::postings;

/// Changes with every change of the format.
const MAGIC: [u8; 8] = *b"LLMCTRI1";
const FOOTER_BYTES: usize = 52;
const TABLE_ENTRY_BYTES: usize = 28;
const DOC_BYTES: usize = 16;
/// The bits of a fingerprint that the kind takes.
const KIND_BITS: u64 = 3;
/// Trigrams of a block.
const BLOCK_TRIGRAMS: u32 = 128;
/// In a smaller segment every trigram has a list.
const MIN_DOCUMENTS_OF_COMMON: u32 = 64;
/// Lists up to this many bytes lie in the dictionary.
const MAX_INLINE_BYTES: usize = 24;
/// Bytes of lists that a cursor reads at a time.
const READ_AHEAD_BYTES: usize = 64 << 10;

/// What a search makes of a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexedContent {
    /// It is searched; its trigrams are in the index.
    Text,
    /// It is skipped as binary.
    Binary,
    /// It is always read: the index says nothing about it.
    Unindexed,
}

impl IndexedContent {
    fn of_stamp(stamp: u64) -> Option<IndexedContent> {
        [Self::Text, Self::Binary, Self::Unindexed]
            .into_iter()
            .find(|kind| *kind as u64 == stamp & KIND_BITS)
    }
}

/// A file as the index knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Document {
    pub(crate) path: u64,
    pub(crate) fingerprint: u64,
    pub(crate) kind: IndexedContent,
}

/// Where a block of the dictionary lies.
#[derive(Clone, Copy, Debug)]
struct Block {
    first: u32,
    length: u32,
    checksum: u32,
    /// Relative to the dictionary.
    offset: u64,
    /// Of its first list that is not inline.
    lists: u64,
}

/// A list of documents, found but not read yet.
#[derive(Clone, Debug)]
pub(crate) struct Posting {
    pub(crate) trigram: u32,
    /// Zero means all.
    count: u32,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Inline(Vec<u8>),
    At {
        offset: u64,
        length: u32,
        checksum: u32,
    },
}

/// Writes a segment. Trigrams come in growing order.
pub(crate) struct SegmentWriter {
    out: BufWriter<File>,
    written: u64,
    documents: u32,
    document_bytes: Vec<u8>,
    dictionary: Vec<u8>,
    table: Vec<u8>,
    blocks: u32,
    block: OpenBlock,
    list: Vec<u8>,
}

#[derive(Default)]
struct OpenBlock {
    bytes: Vec<u8>,
    trigrams: u32,
    first: u32,
    last: u32,
    lists: u64,
}

impl SegmentWriter {
    /// Begins a segment of these documents, ordered by the hashes of their paths.
    pub(crate) fn create(path: &Path, documents: &[Document]) -> Result<SegmentWriter> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)?;
        let mut out = BufWriter::with_capacity(256 << 10, file);
        out.write_all(&MAGIC)?;
        let mut document_bytes = Vec::with_capacity(documents.len() * DOC_BYTES);
        for document in documents {
            document_bytes.extend_from_slice(&document.path.to_le_bytes());
            let stamp = document.fingerprint & !KIND_BITS | document.kind as u64;
            document_bytes.extend_from_slice(&stamp.to_le_bytes());
        }
        Ok(SegmentWriter {
            out,
            written: MAGIC.len() as u64,
            documents: u32::try_from(documents.len())
                .map_err(|_| Error::Damaged("too many files"))?,
            document_bytes,
            dictionary: Vec::new(),
            table: Vec::new(),
            blocks: 0,
            block: OpenBlock::default(),
            list: Vec::new(),
        })
    }

    /// Adds the documents that hold a trigram, as growing positions.
    pub(crate) fn add(&mut self, trigram: u32, documents: &[u32]) -> Result<()> {
        let mut list = std::mem::take(&mut self.list);
        list.clear();
        let is_common = documents.len() as u64 * 2 > u64::from(self.documents)
            && self.documents >= MIN_DOCUMENTS_OF_COMMON;
        let documents = if is_common { &[] } else { documents };
        postings::encode(documents, self.documents, &mut list);
        if self.block.trigrams == 0 {
            self.block.first = trigram;
            self.block.last = trigram;
            self.block.lists = self.written;
        }
        let bytes = &mut self.block.bytes;
        put_number(bytes, trigram - self.block.last);
        put_number(bytes, documents.len() as u32);
        let is_inline = list.len() <= MAX_INLINE_BYTES;
        put_number(bytes, (list.len() as u32) << 1 | u32::from(is_inline));
        if is_inline {
            bytes.extend_from_slice(&list);
        } else {
            bytes.extend_from_slice(&crc32fast::hash(&list).to_le_bytes());
            self.out.write_all(&list)?;
            self.written += list.len() as u64;
        }
        self.block.last = trigram;
        self.block.trigrams += 1;
        if self.block.trigrams == BLOCK_TRIGRAMS {
            self.end_block();
        }
        self.list = list;
        Ok(())
    }

    fn end_block(&mut self) {
        let block = std::mem::take(&mut self.block);
        if block.trigrams == 0 {
            return;
        }
        let table = &mut self.table;
        table.extend_from_slice(&block.first.to_le_bytes());
        table.extend_from_slice(&(block.bytes.len() as u32).to_le_bytes());
        table.extend_from_slice(&crc32fast::hash(&block.bytes).to_le_bytes());
        table.extend_from_slice(&(self.dictionary.len() as u64).to_le_bytes());
        table.extend_from_slice(&block.lists.to_le_bytes());
        self.dictionary.extend_from_slice(&block.bytes);
        self.blocks += 1;
    }

    /// Writes the rest and waits until all is on the disk.
    pub(crate) fn finish(mut self) -> Result<u64> {
        self.end_block();
        let dictionary_at = self.written;
        let table_at = dictionary_at + self.dictionary.len() as u64;
        let documents_at = table_at + self.table.len() as u64;
        let mut footer = Vec::with_capacity(FOOTER_BYTES);
        footer.extend_from_slice(&MAGIC);
        footer.extend_from_slice(&self.documents.to_le_bytes());
        footer.extend_from_slice(&self.blocks.to_le_bytes());
        for offset in [dictionary_at, table_at, documents_at] {
            footer.extend_from_slice(&offset.to_le_bytes());
        }
        footer.extend_from_slice(&crc32fast::hash(&self.table).to_le_bytes());
        footer.extend_from_slice(&crc32fast::hash(&self.document_bytes).to_le_bytes());
        footer.extend_from_slice(&crc32fast::hash(&footer).to_le_bytes());
        for part in [&self.dictionary, &self.table, &self.document_bytes, &footer] {
            self.out.write_all(part)?;
        }
        let file = self.out.into_inner().map_err(|error| error.into_error())?;
        file.sync_all()?;
        Ok(documents_at + self.document_bytes.len() as u64 + FOOTER_BYTES as u64)
    }
}

/// A segment that is open for reading.
#[derive(Debug)]
pub(crate) struct Segment {
    file: File,
    dictionary_at: u64,
    blocks: Vec<Block>,
    /// The hashes of the documents' paths, growing.
    pub(crate) paths: Vec<u64>,
    pub(crate) fingerprints: Vec<u64>,
    pub(crate) kinds: Vec<IndexedContent>,
}

impl Segment {
    pub(crate) fn open(path: &Path) -> Result<Segment> {
        let file = OpenOptions::new().read(true).open(path)?;
        let length = file.metadata()?.len();
        let footer_at = length
            .checked_sub(FOOTER_BYTES as u64)
            .ok_or(Error::Damaged("a file is too short"))?;
        let footer = read(&file, footer_at, FOOTER_BYTES)?;
        let (body, checksum) = footer.split_at(FOOTER_BYTES - 4);
        if body[..8] != MAGIC || number32(checksum, 0) != crc32fast::hash(body) {
            return Err(Error::Damaged("a footer is wrong, or of another version"));
        }
        let (documents, blocks) = (number32(body, 8) as usize, number32(body, 12) as usize);
        let [dictionary_at, table_at, documents_at] = [16, 24, 32].map(|at| number64(body, at));
        let table_bytes = blocks * TABLE_ENTRY_BYTES;
        let document_bytes = documents * DOC_BYTES;
        let fits = dictionary_at <= table_at
            && table_at.checked_add(table_bytes as u64) == Some(documents_at)
            && documents_at.checked_add(document_bytes as u64) == Some(footer_at);
        if !fits {
            return Err(Error::Damaged("the parts of a file do not fit"));
        }
        let table = read(&file, table_at, table_bytes)?;
        let list = read(&file, documents_at, document_bytes)?;
        if crc32fast::hash(&table) != number32(body, 40)
            || crc32fast::hash(&list) != number32(body, 44)
        {
            return Err(Error::Damaged("a checksum is wrong"));
        }
        let blocks = table.chunks_exact(TABLE_ENTRY_BYTES).map(|entry| Block {
            first: number32(entry, 0),
            length: number32(entry, 4),
            checksum: number32(entry, 8),
            offset: number64(entry, 12),
            lists: number64(entry, 20),
        });
        let documents = list.chunks_exact(DOC_BYTES);
        let blocks: Vec<Block> = blocks.collect();
        let dictionary_bytes = table_at - dictionary_at;
        let is_inside = |block: &Block| {
            let end = block.offset.checked_add(u64::from(block.length));
            end.is_some_and(|end| end <= dictionary_bytes)
        };
        if !blocks.iter().all(is_inside) {
            return Err(Error::Damaged("a block lies outside its file"));
        }
        let kinds = documents
            .clone()
            .map(|document| IndexedContent::of_stamp(number64(document, 8)))
            .collect::<Option<Vec<IndexedContent>>>()
            .ok_or(Error::Damaged("a file has an unknown kind"))?;
        Ok(Segment {
            dictionary_at,
            blocks,
            paths: documents
                .clone()
                .map(|document| number64(document, 0))
                .collect(),
            fingerprints: documents
                .map(|document| number64(document, 8) & !KIND_BITS)
                .collect(),
            kinds,
            file,
        })
    }

    pub(crate) fn documents(&self) -> u32 {
        self.paths.len() as u32
    }

    /// The document of a path.
    pub(crate) fn find(&self, path: u64) -> Option<u32> {
        self.paths
            .binary_search(&path)
            .ok()
            .map(|position| position as u32)
    }

    /// Whether a document was added with this fingerprint.
    pub(crate) fn has_fingerprint(&self, position: u32, fingerprint: u64) -> bool {
        self.fingerprints[position as usize] == fingerprint & !KIND_BITS
    }

    /// The list of a trigram, if any document holds it.
    pub(crate) fn posting(&self, trigram: u32) -> Result<Option<Posting>> {
        let behind = self.blocks.partition_point(|block| block.first <= trigram);
        let Some(block) = behind.checked_sub(1).map(|at| &self.blocks[at]) else {
            return Ok(None);
        };
        let mut entries = BlockEntries::read(self, block)?;
        while let Some(posting) = entries.next()? {
            if posting.trigram >= trigram {
                return Ok(Some(posting).filter(|posting| posting.trigram == trigram));
            }
        }
        Ok(None)
    }

    /// How many documents a list has.
    pub(crate) fn count(&self, posting: &Posting) -> u32 {
        match posting.count {
            0 => self.documents(),
            count => count,
        }
    }

    /// The documents of a list.
    pub(crate) fn documents_of(&self, posting: &Posting) -> Result<DocSet> {
        let mut set = DocSet::none(self.documents());
        self.each_document(posting, &mut ReadAhead::default(), |document| {
            set.insert(document)
        })?;
        Ok(set)
    }

    fn each_document(
        &self,
        posting: &Posting,
        buffer: &mut ReadAhead,
        take: impl FnMut(u32),
    ) -> Result<()> {
        if posting.count == 0 {
            (0..self.documents()).for_each(take);
            return Ok(());
        }
        let decode = |bytes: &[u8]| {
            postings::decode(bytes, posting.count, self.documents(), take)
                .ok_or(Error::Damaged("a list is wrong"))
        };
        match &posting.place {
            Place::Inline(bytes) => decode(bytes),
            Place::At {
                offset,
                length,
                checksum,
            } => {
                let bytes =
                    buffer.get(&self.file, *offset, *length as usize, self.dictionary_at)?;
                if crc32fast::hash(bytes) != *checksum {
                    return Err(Error::Damaged("a checksum is wrong"));
                }
                decode(bytes)
            }
        }
    }
}

/// Goes over the lists of a segment in the order of their trigrams.
pub(crate) struct SegmentCursor<'a> {
    segment: &'a Segment,
    next_block: usize,
    entries: Option<BlockEntries>,
    buffer: ReadAhead,
    /// The list at hand.
    pub(crate) current: Option<Posting>,
}

impl<'a> SegmentCursor<'a> {
    pub(crate) fn new(segment: &'a Segment) -> Result<SegmentCursor<'a>> {
        let mut cursor = SegmentCursor {
            segment,
            next_block: 0,
            entries: None,
            buffer: ReadAhead {
                ahead: READ_AHEAD_BYTES,
                ..ReadAhead::default()
            },
            current: None,
        };
        cursor.advance()?;
        Ok(cursor)
    }

    pub(crate) fn advance(&mut self) -> Result<()> {
        loop {
            if let Some(entries) = &mut self.entries
                && let Some(posting) = entries.next()?
            {
                self.current = Some(posting);
                return Ok(());
            }
            let Some(block) = self.segment.blocks.get(self.next_block) else {
                self.current = None;
                return Ok(());
            };
            self.entries = Some(BlockEntries::read(self.segment, block)?);
            self.next_block += 1;
        }
    }

    /// Passes on the documents of the list at hand.
    pub(crate) fn each_document(&mut self, take: impl FnMut(u32)) -> Result<()> {
        match &self.current {
            Some(posting) => self.segment.each_document(posting, &mut self.buffer, take),
            None => Ok(()),
        }
    }
}

/// The entries of one block.
struct BlockEntries {
    bytes: Vec<u8>,
    at: usize,
    last: u32,
    lists: u64,
}

impl BlockEntries {
    fn read(segment: &Segment, block: &Block) -> Result<BlockEntries> {
        let at = segment.dictionary_at.saturating_add(block.offset);
        let bytes = read(&segment.file, at, block.length as usize)?;
        if crc32fast::hash(&bytes) != block.checksum {
            return Err(Error::Damaged("a checksum is wrong"));
        }
        Ok(BlockEntries {
            bytes,
            at: 0,
            last: block.first,
            lists: block.lists,
        })
    }

    fn next(&mut self) -> Result<Option<Posting>> {
        if self.at == self.bytes.len() {
            return Ok(None);
        }
        let posting = self.parse().ok_or(Error::Damaged("a block is wrong"))?;
        Ok(Some(posting))
    }

    fn parse(&mut self) -> Option<Posting> {
        let trigram = self.last.checked_add(self.number()?)?;
        let count = self.number()?;
        let length = self.number()?;
        let (length, is_inline) = (length >> 1, length & 1 == 1);
        let place = if is_inline {
            Place::Inline(self.take(length as usize)?.to_vec())
        } else {
            let checksum = number32(self.take(4)?, 0);
            let offset = self.lists;
            self.lists = offset.checked_add(u64::from(length))?;
            Place::At {
                offset,
                length,
                checksum,
            }
        };
        self.last = trigram;
        Some(Posting {
            trigram,
            count,
            place,
        })
    }

    fn take(&mut self, length: usize) -> Option<&[u8]> {
        let end = self.at.checked_add(length)?;
        let bytes = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(bytes)
    }

    fn number(&mut self) -> Option<u32> {
        let mut number = 0_u32;
        for shift in [0, 7, 14, 21, 28] {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            number |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}

/// Bytes read from a file beyond what was asked for.
#[derive(Default)]
struct ReadAhead {
    bytes: Vec<u8>,
    start: u64,
    ahead: usize,
}

impl ReadAhead {
    fn get(&mut self, file: &File, offset: u64, length: usize, end: u64) -> Result<&[u8]> {
        if offset
            .checked_add(length as u64)
            .is_none_or(|stop| stop > end)
        {
            return Err(Error::Damaged("a list lies outside its file"));
        }
        let held =
            offset >= self.start && offset + length as u64 <= self.start + self.bytes.len() as u64;
        if !held {
            let rest = usize::try_from(end - offset).unwrap_or(usize::MAX);
            self.bytes = read(file, offset, length.max(self.ahead.min(rest)))?;
            self.start = offset;
        }
        let from = (offset - self.start) as usize;
        Ok(&self.bytes[from..from + length])
    }
}

fn read(file: &File, offset: u64, length: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    match file.read_exact_at(&mut bytes, offset) {
        Ok(()) => Ok(bytes),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Err(Error::Damaged("a file is too short"))
        }
        Err(error) => Err(error.into()),
    }
}

fn put_number(out: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn number32(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4]
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn number64(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8]
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}
