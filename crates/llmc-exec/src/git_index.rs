//! Whether two versions of git's index name the same files and contents.
//!
//! `git status` rewrites the index to remember times and sizes of files, which changes nothing that was staged. Two versions
//! that differ in nothing else are merged as the same.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

/// A larger index is not compared, so two of them count as different.
const MAX_INDEX_BYTES: u64 = 256 << 20;
/// Times, device, inode; then the mode; then owner, group and size.
const STAT_BYTES: usize = 24;
const MODE_BYTES: usize = 4;
const OWNER_BYTES: usize = 12;
/// A SHA-1; an index with longer names does not parse, and counts as different.
const HASH_BYTES: usize = 20;
const FIXED_BYTES: usize = STAT_BYTES + MODE_BYTES + OWNER_BYTES + HASH_BYTES + 2;
/// The flag for two more bytes of flags, and the mask of the name's length.
const EXTENDED: u16 = 0x4000;
const NAME_MASK: usize = 0x0fff;

/// Whether both hold the same entries, times and sizes aside. Reads both from their beginning.
pub(super) fn has_same_entries(a: &File, b: &File) -> bool {
    let entries = |file: &File| bytes_of(file).and_then(|bytes| entries(&bytes));
    matches!((entries(a), entries(b)), (Some(a), Some(b)) if a == b)
}

fn bytes_of(file: &File) -> Option<Vec<u8>> {
    let length = file
        .metadata()
        .ok()
        .filter(|status| status.is_file())?
        .len();
    if length > MAX_INDEX_BYTES {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut bytes, 0).ok()?;
    Some(bytes)
}

/// Mode, hash, flags and name of every entry, one after the other.
fn entries(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut header = bytes.get(..12)?;
    let mut word = || {
        let mut word = [0; 4];
        header.read_exact(&mut word).ok()?;
        Some(u32::from_be_bytes(word))
    };
    if word()? != u32::from_be_bytes(*b"DIRC") {
        return None;
    }
    let (version, count) = (word()?, word()?);
    if !(2..=4).contains(&version) {
        return None;
    }
    let mut found = Vec::with_capacity(bytes.len() / 2);
    let mut rest = bytes.get(12..)?;
    for _ in 0..count {
        let fixed = rest.get(..FIXED_BYTES)?;
        let flags = u16::from_be_bytes([fixed[FIXED_BYTES - 2], fixed[FIXED_BYTES - 1]]);
        let start = FIXED_BYTES + if flags & EXTENDED == 0 { 0 } else { 2 };
        // In version 4 a number of bytes to keep comes first, and no padding after.
        let skip = match version {
            4 => {
                1 + rest
                    .get(start..)?
                    .iter()
                    .position(|byte| byte & 0x80 == 0)?
            }
            _ => 0,
        };
        let name = match usize::from(flags) & NAME_MASK {
            length if length < NAME_MASK && version < 4 => length,
            _ => rest
                .get(start + skip..)?
                .iter()
                .position(|byte| *byte == 0)?,
        };
        let end = start + skip + name;
        found.extend_from_slice(&fixed[STAT_BYTES..STAT_BYTES + MODE_BYTES]);
        found.extend_from_slice(rest.get(STAT_BYTES + MODE_BYTES + OWNER_BYTES..end)?);
        found.push(0);
        let next = match version {
            4 => end + 1,
            _ => (end + 8) & !7,
        };
        rest = rest.get(next..)?;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn index(entries: &[(&str, u8, u8)]) -> File {
        let mut bytes = b"DIRC\0\0\0\x02".to_vec();
        bytes.extend((entries.len() as u32).to_be_bytes());
        for (name, time, hash) in entries {
            let start = bytes.len();
            bytes.extend([*time; STAT_BYTES]);
            bytes.extend([0, 0, 0x81, 0xa4]);
            bytes.extend([*time; OWNER_BYTES]);
            bytes.extend([*hash; HASH_BYTES]);
            bytes.extend((name.len() as u16).to_be_bytes());
            bytes.extend(name.as_bytes());
            let length = (bytes.len() - start + 8) & !7;
            bytes.resize(start + length, 0);
        }
        bytes.extend([9; 20]);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        file
    }

    #[test]
    fn times_do_not_matter_and_contents_do() {
        let before = index(&[("a", 1, 1), ("longer/name", 1, 2)]);
        assert!(has_same_entries(
            &before,
            &index(&[("a", 7, 1), ("longer/name", 8, 2)])
        ));
        for other in [
            index(&[("a", 1, 1), ("longer/name", 1, 3)]),
            index(&[("a", 1, 1)]),
            index(&[("b", 1, 1), ("longer/name", 1, 2)]),
        ] {
            assert!(!has_same_entries(&before, &other));
        }
        assert!(!has_same_entries(
            &tempfile::tempfile().unwrap(),
            &tempfile::tempfile().unwrap()
        ));
    }
}
