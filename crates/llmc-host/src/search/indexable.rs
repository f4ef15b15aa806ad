//! The text of a file as a search sees it, for an index.
//!
//! Whatever a search would decide by the content of a file has to be decided here in the same way, or left to the search:
//! a file whose outcome depends on more than its lines is [`IndexedContent::Unindexed`].

use std::borrow::Cow;
use std::os::fd::AsFd;

use encoding_rs::Encoding;
use llmc_trigrams::{FileIdentity, IndexedContent};
use memchr::{memchr, memchr_iter};
use rustix::fs::Stat;

use super::by_content::{MAX_SEARCHED_BYTES, SMALL_FILE_BYTES, has_bom, read_at};

/// Larger files are not indexed.
const MAX_INDEXED_BYTES: u64 = 32 << 20;
/// A file with a longer line may be too large for a search, which holds a line and its context in memory.
pub(super) const MAX_INDEXED_LINE_BYTES: usize = 512 << 10;

/// A file that was read for an index.
#[derive(Debug)]
pub struct IndexableFile<'a> {
    pub kind: IndexedContent,
    /// What is searched; empty unless the kind is text.
    pub text: Cow<'a, [u8]>,
}

/// Reads a file for an index. `None` if it cannot be read or changed meanwhile.
pub fn read_indexable<'a>(
    file: impl AsFd,
    stat: &Stat,
    buffer: &'a mut Vec<u8>,
) -> Option<IndexableFile<'a>> {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let without_text = |kind| IndexableFile {
        kind,
        text: Cow::Borrowed(&[]),
    };
    if size > MAX_SEARCHED_BYTES {
        return Some(without_text(IndexedContent::Unindexed));
    }
    let file = file.as_fd();
    let fill = |buffer: &mut Vec<u8>, limit: usize| {
        let mut length = buffer.len();
        buffer.resize(limit, 0);
        while length < limit {
            match read_at(file, &mut buffer[length..], length as u64).ok()? {
                0 => break,
                read => length += read,
            }
        }
        buffer.truncate(length);
        Some(())
    };
    buffer.clear();
    fill(buffer, SMALL_FILE_BYTES)?;
    let is_binary = !has_bom(buffer) && memchr(0, buffer).is_some();
    if !is_binary && size > MAX_INDEXED_BYTES {
        return Some(without_text(IndexedContent::Unindexed));
    }
    if !is_binary && buffer.len() == SMALL_FILE_BYTES {
        // One byte more shows whether the file has grown.
        fill(buffer, usize::try_from(size).ok()? + 1)?;
    }
    let now = rustix::fs::fstat(file).ok()?;
    if FileIdentity::of(&now) != FileIdentity::of(stat) {
        return None;
    }
    if is_binary {
        return Some(without_text(IndexedContent::Binary));
    }
    if buffer.len() as u64 != size {
        return None;
    }
    let text = match Encoding::for_bom(buffer) {
        // Decoded as the searcher does it: UTF-8 is left as it is.
        Some((encoding, bom)) if encoding != encoding_rs::UTF_8 => {
            match encoding.decode_without_bom_handling(&buffer[bom..]).0 {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            }
        }
        _ => Cow::Borrowed(buffer.as_slice()),
    };
    if longest_line(&text) > MAX_INDEXED_LINE_BYTES {
        return Some(without_text(IndexedContent::Unindexed));
    }
    if memchr(0, &text).is_some() {
        return Some(without_text(IndexedContent::Binary));
    }
    Some(IndexableFile {
        kind: IndexedContent::Text,
        text,
    })
}

fn longest_line(text: &[u8]) -> usize {
    let mut start = 0;
    let mut longest = 0;
    for end in memchr_iter(b'\n', text) {
        longest = longest.max(end - start);
        start = end + 1;
    }
    longest.max(text.len() - start)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use rustix::fs::fstat;

    use super::*;

    fn read(bytes: &[u8]) -> (IndexedContent, Vec<u8>) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let stat = fstat(&file).unwrap();
        let mut buffer = b"left over".to_vec();
        let read = read_indexable(&file, &stat, &mut buffer).unwrap();
        (read.kind, read.text.into_owned())
    }

    #[test]
    fn contents_are_what_a_search_sees() {
        let text = |bytes: &[u8]| (IndexedContent::Text, bytes.to_vec());
        let long = "line\n".repeat(40_000);
        for bytes in [
            &b""[..],
            b"plain",
            b"\xff\x80\n",
            long.as_bytes(),
            b"\xef\xbb\xbfbom",
        ] {
            assert_eq!(read(bytes), text(bytes));
        }
        assert_eq!(read(b"\xff\xfeh\0i\0"), text(b"hi"));
        assert_eq!(read(b"\xfe\xff\0h\0i"), text(b"hi"));
        for bytes in [
            &b"a\0b"[..],
            b"\xff\xfe\0\0",
            format!("{long}\0").as_bytes(),
        ] {
            assert_eq!(read(bytes).0, IndexedContent::Binary);
        }
        let line = "a".repeat(MAX_INDEXED_LINE_BYTES + 1);
        assert_eq!(read(line.as_bytes()).0, IndexedContent::Unindexed);
        let large = vec![b'\n'; MAX_INDEXED_BYTES as usize + 1];
        assert_eq!(read(&large).0, IndexedContent::Unindexed);
    }

    #[test]
    fn a_file_that_changed_while_it_was_read_is_not_indexed() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"one").unwrap();
        let stat = fstat(&file).unwrap();
        file.write_all(b"two").unwrap();
        assert!(read_indexable(&file, &stat, &mut Vec::new()).is_none());
        let gone = File::open("/proc/self/status").unwrap();
        let stat = fstat(&gone).unwrap();
        assert!(read_indexable(&gone, &stat, &mut Vec::new()).is_none());
    }
}
