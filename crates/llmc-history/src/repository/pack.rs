//! One pack of a git repository: its index, and the entries that the index leads to.
//!
//! Both files are read by position and never as a whole, so that a pack of any size costs little memory. Whatever they hold,
//! sizes, chains and the work for one object are bounded; what does not fit is `None`, and the caller copies the content.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use flate2::{Decompress, FlushDecompress, Status};
use sha1::{Digest, Sha1};

use super::GitObjectKind;
use crate::entry::ObjectId;

const ID_BYTES: u64 = 20;
const INDEX_MAGIC: [u8; 8] = [0xff, b't', b'O', b'c', 0, 0, 0, 2];
/// The magic, and the number of ids up to each first byte.
const INDEX_HEADER_BYTES: u64 = 8 + 256 * 4;
/// The hashes of the pack and of the index.
const INDEX_TRAILER_BYTES: u64 = 40;
const PACK_HEADER_BYTES: u64 = 12;
const PACK_TRAILER_BYTES: u64 = 20;
/// Ids that are read at once when the search has come down to so few.
const IDS_AT_ONCE: u64 = 64;
/// What is read of an entry at first: most are shorter.
const FIRST_READ_BYTES: usize = 4 << 10;
const READ_BYTES: usize = 32 << 10;
/// Bytes that a compressed entry may take beyond those of its content.
const MAX_SURPLUS_BYTES: u64 = 64 << 10;
/// Git makes no longer chains of deltas.
const MAX_DELTA_DEPTH: usize = 4096;
/// Bytes of all deltas and results on the way to one object.
const MAX_CHAIN_BYTES: u64 = 512 << 20;
/// Packs that are larger are not read as a whole.
const MAX_CHECKED_BYTES: u64 = 256 << 20;
/// Contents that are kept because the next object may be a delta to one of them: all together, and each.
const MAX_CACHE_BYTES: usize = 16 << 20;
const MAX_CACHED_BYTES: usize = 1 << 20;

/// A pack, open for as long as its contents may be needed: git may remove its name meanwhile.
#[derive(Debug)]
pub(super) struct PackFile {
    index: PackIndex,
    file: File,
    /// Where the last entry ends.
    end: u64,
    bytes: u64,
    /// When it was last found to be what its checksum says.
    checked_mtime_ns: AtomicI64,
}

impl PackFile {
    /// `None` for anything but a pack of version 2 or 3 with an index of version 2.
    pub(super) fn open(index: File, pack: File) -> Option<PackFile> {
        let index = PackIndex::open(index)?;
        let mut header = [0; PACK_HEADER_BYTES as usize];
        pack.read_exact_at(&mut header, 0).ok()?;
        let is_known =
            header.starts_with(b"PACK\0\0\0\x02") || header.starts_with(b"PACK\0\0\0\x03");
        let (bytes, mtime_ns) = written(&pack)?;
        let end = bytes.checked_sub(PACK_TRAILER_BYTES)?;
        (is_known && be_u32(&header[8..]) == index.count).then_some(PackFile {
            index,
            file: pack,
            end,
            bytes,
            checked_mtime_ns: AtomicI64::new(mtime_ns),
        })
    }

    /// Whether nothing was written into the pack since it was opened. Git never does that, but it renews the time of a
    /// pack that already has what is added; then the checksum at the end of the pack tells.
    pub(super) fn is_intact(&self) -> bool {
        match written(&self.file) {
            Some((bytes, mtime_ns)) if bytes == self.bytes => {
                let is_intact = mtime_ns == self.checked_mtime_ns.load(Ordering::Relaxed)
                    || self.has_its_checksum() == Some(true);
                if is_intact {
                    self.checked_mtime_ns.store(mtime_ns, Ordering::Relaxed);
                }
                is_intact
            }
            _ => false,
        }
    }

    /// Whether the content is what the checksum says. Of a very large pack only the checksum itself is looked at: each
    /// object that is read is compared with its id anyway.
    fn has_its_checksum(&self) -> Option<bool> {
        let mut wanted = [0; PACK_TRAILER_BYTES as usize];
        self.file.read_exact_at(&mut wanted, self.end).ok()?;
        if self.bytes > MAX_CHECKED_BYTES {
            let mut indexed = [0; PACK_TRAILER_BYTES as usize];
            let index = &self.index.file;
            let at = index
                .metadata()
                .ok()?
                .len()
                .checked_sub(INDEX_TRAILER_BYTES)?;
            index.read_exact_at(&mut indexed, at).ok()?;
            return Some(indexed == wanted);
        }
        let mut hash = Sha1::new();
        let mut buffer = vec![0; 1 << 20];
        let mut at = 0;
        while at < self.end {
            let read = self.read_some(&mut buffer, at)?;
            hash.update(&buffer[..read]);
            at += read as u64;
        }
        Some(<[u8; 20]>::from(hash.finalize()) == wanted)
    }

    pub(super) fn offset_of(&self, id: &ObjectId) -> Option<u64> {
        self.index.find(id)
    }

    /// The object at an offset of the index, unless it or something on the way to it is larger than `limit`.
    pub(super) fn read(
        &self,
        reader: &mut PackReader,
        number: usize,
        offset: u64,
        limit: u64,
    ) -> Option<PackedContent> {
        let mut deltas: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut work = 0_u64;
        let mut at = offset;
        let (kind, mut content) = loop {
            if let Some(known) = reader.cache.get(number, at) {
                break known;
            }
            let (base, bytes) = self.entry(reader, at, limit)?;
            work += bytes.len() as u64;
            // A delta to an object by its id can lead back to itself.
            let is_circle = deltas.iter().any(|(seen, _)| *seen == at);
            if is_circle || work > limit.saturating_mul(2) || deltas.len() >= MAX_DELTA_DEPTH {
                return None;
            }
            let base_at = match base {
                EntryBase::Whole(kind) => {
                    let content = Arc::new(bytes);
                    reader.cache.add(number, at, kind, &content);
                    break (kind, content);
                }
                EntryBase::At(base_at) => base_at,
                EntryBase::Id(id) => self.index.find(&id)?,
            };
            deltas.push((at, bytes));
            at = base_at;
        };
        while let Some((at, delta)) = deltas.pop() {
            content = Arc::new(apply_delta(&content, &delta, limit)?);
            work += content.len() as u64;
            if work > MAX_CHAIN_BYTES {
                return None;
            }
            reader.cache.add(number, at, kind, &content);
        }
        Some((kind, content))
    }

    /// What an entry is a delta to, if it is one, and its bytes.
    fn entry(&self, reader: &mut PackReader, at: u64, limit: u64) -> Option<(EntryBase, Vec<u8>)> {
        if at < PACK_HEADER_BYTES || at >= self.end {
            return None;
        }
        let read = self.read_some(&mut reader.buffer[..FIRST_READ_BYTES], at)?;
        let mut header = Bytes(&reader.buffer[..read]);
        let first = header.next()?;
        let (mut size, mut shift, mut byte) = (u64::from(first & 15), 4, first);
        while byte & 0x80 != 0 {
            byte = header.next()?;
            size |= u64::from(byte & 0x7f)
                .checked_shl(shift)
                .filter(|_| shift < 57)?;
            shift += 7;
        }
        let base = match first >> 4 & 7 {
            1 => EntryBase::Whole(GitObjectKind::Commit),
            2 => EntryBase::Whole(GitObjectKind::Tree),
            3 => EntryBase::Whole(GitObjectKind::Blob),
            4 => EntryBase::Whole(GitObjectKind::Tag),
            // Bases lie before their deltas, so that these chains have no circles.
            6 => EntryBase::At(
                at.checked_sub(distance(&mut header)?)
                    .filter(|base| *base < at)?,
            ),
            7 => EntryBase::Id(ObjectId(header.take(ID_BYTES as usize)?.try_into().ok()?)),
            _ => return None,
        };
        if size > limit {
            return None;
        }
        let used = read - header.0.len();
        Some((base, self.inflate(reader, at, used..read, size)?))
    }

    /// Inflates what begins in the buffer's `ready` bytes, which were read from the position `at` on.
    fn inflate(
        &self,
        reader: &mut PackReader,
        at: u64,
        ready: std::ops::Range<usize>,
        size: u64,
    ) -> Option<Vec<u8>> {
        let mut next_at = at + ready.end as u64;
        // Deflate makes nothing much longer than it was; blocks without content could go on for ever.
        let longest = size
            .saturating_add(size / 8)
            .saturating_add(MAX_SURPLUS_BYTES);
        let last_at = next_at.saturating_add(longest);
        let mut stream = ZlibStream::begin(&mut reader.inflate, size)?;
        let mut ready = ready;
        while !stream.add(&reader.buffer[ready])? {
            if next_at > last_at {
                return None;
            }
            let read = self.read_some(&mut reader.buffer, next_at)?;
            next_at += read as u64;
            ready = 0..read;
        }
        stream.content()
    }

    /// Reads what there is before the end of the entries, at least one byte.
    fn read_some(&self, buffer: &mut [u8], at: u64) -> Option<usize> {
        let left = usize::try_from(self.end.checked_sub(at)?).unwrap_or(usize::MAX);
        let wanted = left.min(buffer.len());
        if wanted == 0 {
            return None;
        }
        self.file.read_exact_at(&mut buffer[..wanted], at).ok()?;
        Some(wanted)
    }
}

/// A file's length and the time when it was last written.
fn written(file: &File) -> Option<(u64, i64)> {
    let stat = rustix::fs::fstat(file).ok()?;
    Some((stat.st_size.try_into().ok()?, llmc_host::mtime_ns(&stat)))
}

/// What an entry of a pack is given by.
enum EntryBase {
    Whole(GitObjectKind),
    /// A delta to the entry at this offset.
    At(u64),
    /// A delta to this object of the same pack.
    Id(ObjectId),
}

/// Where each object of a pack is.
#[derive(Debug)]
struct PackIndex {
    file: File,
    /// How many ids begin with a byte up to this one.
    fanout: Box<[u32; 256]>,
    count: u32,
    /// Offsets of 64 bits that the index has room for.
    large_offsets: u64,
}

impl PackIndex {
    fn open(file: File) -> Option<PackIndex> {
        let mut header = vec![0; INDEX_HEADER_BYTES as usize];
        file.read_exact_at(&mut header, 0).ok()?;
        let counts = header.strip_prefix(&INDEX_MAGIC)?;
        let mut fanout = Box::new([0; 256]);
        for (count, bytes) in fanout.iter_mut().zip(counts.chunks_exact(4)) {
            *count = be_u32(bytes);
        }
        let count = fanout[255];
        let tables = INDEX_HEADER_BYTES + u64::from(count) * (ID_BYTES + 4 + 4);
        let rest = file
            .metadata()
            .ok()?
            .len()
            .checked_sub(tables + INDEX_TRAILER_BYTES)?;
        fanout.is_sorted().then_some(PackIndex {
            file,
            fanout,
            count,
            large_offsets: rest / 8,
        })
    }

    fn find(&self, id: &ObjectId) -> Option<u64> {
        let first = usize::from(id.0[0]);
        let mut low = match first {
            0 => 0,
            _ => u64::from(self.fanout[first - 1]),
        };
        let mut high = u64::from(self.fanout[first]);
        let id_at = |at: u64| INDEX_HEADER_BYTES + at * ID_BYTES;
        while high - low > IDS_AT_ONCE {
            let middle = low + (high - low) / 2;
            let mut found = [0; ID_BYTES as usize];
            self.file.read_exact_at(&mut found, id_at(middle)).ok()?;
            match found <= id.0 {
                true => low = middle,
                false => high = middle,
            }
        }
        let mut ids = [0; (IDS_AT_ONCE * ID_BYTES) as usize];
        let ids = &mut ids[..usize::try_from((high - low) * ID_BYTES).ok()?];
        self.file.read_exact_at(ids, id_at(low)).ok()?;
        let position = ids
            .chunks_exact(ID_BYTES as usize)
            .position(|found| *found == id.0)?;
        self.offset(low + position as u64)
    }

    fn offset(&self, at: u64) -> Option<u64> {
        let count = u64::from(self.count);
        let offsets = INDEX_HEADER_BYTES + count * (ID_BYTES + 4);
        let mut bytes = [0; 4];
        self.file.read_exact_at(&mut bytes, offsets + at * 4).ok()?;
        let offset = be_u32(&bytes);
        if offset & 0x8000_0000 == 0 {
            return Some(u64::from(offset));
        }
        let large = u64::from(offset & 0x7fff_ffff);
        if large >= self.large_offsets {
            return None;
        }
        let mut bytes = [0; 8];
        let at = offsets + count * 4 + large * 8;
        self.file.read_exact_at(&mut bytes, at).ok()?;
        Some(u64::from_be_bytes(bytes))
    }
}

/// What reading objects one after the other needs again and again.
pub(super) struct PackReader {
    inflate: Decompress,
    buffer: Box<[u8]>,
    cache: BaseCache,
}

impl PackReader {
    pub(super) fn new() -> PackReader {
        PackReader {
            inflate: Decompress::new(true),
            buffer: vec![0; READ_BYTES].into(),
            cache: BaseCache::default(),
        }
    }
}

/// An object, shared with the cache.
type PackedContent = (GitObjectKind, Arc<Vec<u8>>);

/// Contents by pack and offset.
#[derive(Default)]
struct BaseCache {
    known: HashMap<(usize, u64), PackedContent>,
    bytes: usize,
}

impl BaseCache {
    fn get(&self, number: usize, at: u64) -> Option<PackedContent> {
        self.known.get(&(number, at)).cloned()
    }

    fn add(&mut self, number: usize, at: u64, kind: GitObjectKind, content: &Arc<Vec<u8>>) {
        if content.len() > MAX_CACHED_BYTES {
            return;
        }
        if self.bytes + content.len() > MAX_CACHE_BYTES {
            self.known.clear();
            self.bytes = 0;
        }
        let old = self.known.insert((number, at), (kind, Arc::clone(content)));
        if old.is_none() {
            self.bytes += content.len();
        }
    }
}

/// Inflates a stream whose length is known.
struct ZlibStream<'a> {
    inflate: &'a mut Decompress,
    content: Vec<u8>,
    size: usize,
}

impl<'a> ZlibStream<'a> {
    fn begin(inflate: &'a mut Decompress, size: u64) -> Option<ZlibStream<'a>> {
        inflate.reset(true);
        let size = usize::try_from(size).ok()?;
        let mut content = Vec::new();
        // One byte more shows a stream that is longer than it says.
        content.try_reserve_exact(size.checked_add(1)?).ok()?;
        Some(ZlibStream {
            inflate,
            content,
            size,
        })
    }

    /// Whether the stream has ended with these bytes; `None` when it is damaged.
    fn add(&mut self, input: &[u8]) -> Option<bool> {
        let mut input = input;
        while !input.is_empty() {
            let (read, written) = (self.inflate.total_in(), self.content.len());
            let status = self
                .inflate
                .decompress_vec(input, &mut self.content, FlushDecompress::None)
                .ok()?;
            let used = usize::try_from(self.inflate.total_in() - read).ok()?;
            if status == Status::StreamEnd {
                return Some(true);
            }
            if self.content.len() > self.size || (used == 0 && self.content.len() == written) {
                return None;
            }
            input = input.get(used..)?;
        }
        Some(false)
    }

    fn content(self) -> Option<Vec<u8>> {
        (self.content.len() == self.size).then_some(self.content)
    }
}

/// The content that a delta makes of its base.
fn apply_delta(base: &[u8], delta: &[u8], limit: u64) -> Option<Vec<u8>> {
    let mut delta = Bytes(delta);
    if size(&mut delta)? != base.len() as u64 {
        return None;
    }
    let length = size(&mut delta).filter(|length| *length <= limit)?;
    let length = usize::try_from(length).ok()?;
    let mut content = Vec::new();
    content.try_reserve_exact(length).ok()?;
    while let Some(command) = delta.next() {
        let part = match command {
            0 => return None,
            1..=0x7f => delta.take(usize::from(command))?,
            _ => {
                let (mut from, mut count) = (0, 0);
                for bit in 0..7 {
                    if command & 1 << bit != 0 {
                        let byte = usize::from(delta.next()?);
                        match bit {
                            0..4 => from |= byte << (8 * bit),
                            _ => count |= byte << (8 * (bit - 4)),
                        }
                    }
                }
                let count = if count == 0 { 0x1_0000 } else { count };
                base.get(from..from.checked_add(count)?)?
            }
        };
        if content.len() + part.len() > length {
            return None;
        }
        content.extend_from_slice(part);
    }
    (content.len() == length).then_some(content)
}

/// A size, seven bits a byte, the lowest first.
fn size(bytes: &mut Bytes<'_>) -> Option<u64> {
    let (mut size, mut shift) = (0, 0);
    loop {
        let byte = bytes.next()?;
        size |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return Some(size);
        }
        if shift > 56 {
            return None;
        }
    }
}

/// How far before a delta its base lies: seven bits a byte, the highest first, and each further byte stands for one more.
fn distance(bytes: &mut Bytes<'_>) -> Option<u64> {
    let mut byte = bytes.next()?;
    let mut distance = u64::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        byte = bytes.next()?;
        distance = distance.checked_add(1)?.checked_mul(0x80)? | u64::from(byte & 0x7f);
    }
    Some(distance)
}

fn be_u32(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .take(4)
        .fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Bytes that are taken from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_copies_and_inserts() {
        let base = b"hello world";
        // Length of the base, of the result; 5 bytes from 0; insert two; 5 bytes from 6.
        let delta = [11, 12, 0x90, 5, 2, b',', b' ', 0x91, 6, 5];
        assert_eq!(apply_delta(base, &delta, 100).unwrap(), b"hello, world");
        assert_eq!(apply_delta(base, &delta, 11), None, "larger than allowed");
        assert_eq!(apply_delta(b"hello", &delta, 100), None, "another base");
        for end in 0..delta.len() {
            assert_eq!(apply_delta(base, &delta[..end], 100), None, "cut at {end}");
        }
        assert_eq!(
            apply_delta(base, &[11, 5, 0x91, 7, 5], 100),
            None,
            "past the end"
        );
        assert_eq!(apply_delta(base, &[11, 5, 0, 5], 100), None, "reserved");
        assert_eq!(apply_delta(base, &[11, 1, 0x90, 5], 100), None, "too long");
    }

    #[test]
    fn numbers_are_bounded() {
        assert_eq!(size(&mut Bytes(&[0x80 | 1, 1])), Some(129));
        assert_eq!(size(&mut Bytes(&[0x80; 20])), None);
        assert_eq!(distance(&mut Bytes(&[0x80, 0])), Some(128));
        assert_eq!(distance(&mut Bytes(&[0xff; 30])), None);
        assert_eq!(distance(&mut Bytes(&[0xff])), None);
        let largest = [
            0x80, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe, 0xff, 0,
        ];
        assert_eq!(distance(&mut Bytes(&largest)), None);
    }
}
