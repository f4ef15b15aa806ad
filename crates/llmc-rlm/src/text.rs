//! The text of a query: stored once and addressed by characters, as in Python.
//!
//! A part is the same text with other bounds, so children of a query share their parent's. A small table of how many
//! characters come before each block translates characters to bytes; ASCII text needs none.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memchr::memmem;
use regex::RegexBuilder;

/// Bytes of text for each entry of the table.
const BLOCK_BYTES: usize = 4096;
/// After it a search reports what it has found as incomplete.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(5);
const MATCHES_PER_CLOCK_CHECK: u64 = 4096;
const MAX_SHOWN_LINE_CHARS: usize = 240;
const MAX_CHUNKS: usize = 10_000;

#[derive(Debug)]
struct Store {
    text: String,
    /// Characters before each block; empty for ASCII.
    before: Vec<usize>,
}

/// A text, or a part of one. Clones share it.
#[derive(Debug, Clone)]
pub struct SourceText {
    store: Arc<Store>,
    bytes: Range<usize>,
}

#[derive(Debug, Clone)]
pub(crate) struct TextSearch {
    /// A regular expression, or text to find literally.
    pub(crate) pattern: String,
    pub(crate) literal: bool,
    pub(crate) ignore_case: bool,
    /// In characters, by Python's rules for slices.
    pub(crate) start: i64,
    pub(crate) end: Option<i64>,
    /// Matches that are returned; all are counted.
    pub(crate) limit: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextMatch {
    /// In characters.
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// From 1.
    pub(crate) line: usize,
    /// The line, clipped around the match.
    pub(crate) text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextMatches {
    /// The first matches, up to the limit.
    pub(crate) hits: Vec<TextMatch>,
    pub(crate) total: u64,
    /// Whether the whole range was searched; otherwise `total` is what was found by then.
    pub(crate) complete: bool,
}

impl SourceText {
    pub fn new(text: String) -> SourceText {
        let before = if text.is_ascii() {
            Vec::new()
        } else {
            let mut count = 0;
            let mut table = Vec::with_capacity(text.len() / BLOCK_BYTES + 2);
            for block in text.as_bytes().chunks(BLOCK_BYTES) {
                table.push(count);
                count += count_chars(block);
            }
            table.push(count);
            table
        };
        let bytes = 0..text.len();
        SourceText {
            store: Arc::new(Store { text, before }),
            bytes,
        }
    }

    pub fn as_str(&self) -> &str {
        &self.store.text[self.bytes.clone()]
    }

    /// The length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The length in characters.
    pub(crate) fn chars(&self) -> usize {
        self.char_at(self.bytes.len())
    }

    /// A part, by Python's rules for slices: negative counts from the end, too far is the end.
    pub(crate) fn part(&self, start: i64, end: Option<i64>) -> SourceText {
        let (start, end) = self.range(start, end);
        let from = self.bytes.start + self.byte_at(start);
        let to = self.bytes.start + self.byte_at(end);
        SourceText {
            store: self.store.clone(),
            bytes: from..to,
        }
    }

    /// Bounds by Python's rules for slices.
    fn range(&self, start: i64, end: Option<i64>) -> (usize, usize) {
        let length = self.chars();
        let place = |at: i64| match usize::try_from(at) {
            Ok(at) => at.min(length),
            Err(_) => length.saturating_sub(usize::try_from(at.unsigned_abs()).unwrap_or(length)),
        };
        let start = place(start);
        (start, end.map_or(length, place).max(start))
    }

    /// How many characters come before a byte of this text.
    pub(crate) fn char_at(&self, byte: usize) -> usize {
        if self.store.before.is_empty() {
            return byte;
        }
        self.global_char(self.bytes.start + byte) - self.global_char(self.bytes.start)
    }

    fn global_char(&self, byte: usize) -> usize {
        let block = byte / BLOCK_BYTES;
        let base = self.store.before[block];
        base + count_chars(&self.store.text.as_bytes()[block * BLOCK_BYTES..byte])
    }

    /// The byte of this text at which a character begins.
    pub(crate) fn byte_at(&self, char: usize) -> usize {
        if self.store.before.is_empty() {
            return char;
        }
        let wanted = self.global_char(self.bytes.start) + char;
        let block = self
            .store
            .before
            .partition_point(|before| *before <= wanted)
            - 1;
        let mut left = wanted - self.store.before[block];
        let bytes = self.store.text.as_bytes();
        let mut at = (block * BLOCK_BYTES).min(bytes.len());
        // Bytes that belong to a character of the block before are no char starts and are passed over.
        while at < bytes.len() {
            if is_char_start(bytes[at]) {
                if left == 0 {
                    break;
                }
                left -= 1;
            }
            at += 1;
        }
        at - self.bytes.start
    }

    /// Finds and counts all matches. The error is a message for the script.
    pub(crate) fn search(&self, search: &TextSearch) -> Result<TextMatches, String> {
        if search.pattern.is_empty() {
            return Err("the pattern is empty".to_owned());
        }
        let range = self.part(search.start, search.end);
        let offset = range.bytes.start - self.bytes.start;
        let mut collector = MatchCollector::new(self, offset, search.limit);
        if search.literal && !search.ignore_case {
            let finder = memmem::Finder::new(&search.pattern);
            let length = search.pattern.len();
            for at in finder.find_iter(range.as_str().as_bytes()) {
                if !collector.add(at, at + length) {
                    break;
                }
            }
            return Ok(collector.found);
        }
        let pattern = if search.literal {
            regex::escape(&search.pattern)
        } else {
            search.pattern.clone()
        };
        let regex = RegexBuilder::new(&pattern)
            .case_insensitive(search.ignore_case)
            .multi_line(true)
            .size_limit(8 << 20)
            .dfa_size_limit(32 << 20)
            .build()
            .map_err(|error| format!("bad pattern: {error}"))?;
        for hit in regex.find_iter(range.as_str()) {
            if !collector.add(hit.start(), hit.end()) {
                break;
            }
        }
        Ok(collector.found)
    }

    /// Bounds of pieces of about `size` characters, cut at the end of a line where one is near. The error is a message
    /// for the script.
    pub(crate) fn chunks(
        &self,
        size: usize,
        overlap: usize,
    ) -> Result<Vec<(usize, usize)>, String> {
        if size == 0 || overlap >= size {
            return Err("size must be at least 1, and overlap less than size".to_owned());
        }
        let length = self.chars();
        if length / (size - overlap) > MAX_CHUNKS {
            return Err(format!(
                "that makes more than {MAX_CHUNKS} pieces; choose a larger size"
            ));
        }
        let mut pieces = Vec::new();
        let mut start = 0;
        while start < length {
            let hard = start + size;
            let end = if hard >= length {
                length
            } else {
                self.line_end_near(start + size - size / 4, hard)
                    .max(start + overlap + 1)
            };
            pieces.push((start, end));
            if end >= length {
                break;
            }
            start = end - overlap;
        }
        Ok(pieces)
    }

    /// The last start of a line between two characters, or the second of them.
    fn line_end_near(&self, low: usize, high: usize) -> usize {
        let (from, to) = (self.byte_at(low), self.byte_at(high));
        match memchr::memrchr(b'\n', &self.as_str().as_bytes()[from..to]) {
            Some(at) => self.char_at(from + at + 1),
            None => high,
        }
    }
}

/// Collects matches that come in order.
struct MatchCollector<'a> {
    text: &'a SourceText,
    offset: usize,
    limit: usize,
    found: TextMatches,
    /// The byte up to which lines are counted, and the line there.
    line_count: (usize, usize),
    deadline: Instant,
}

impl<'a> MatchCollector<'a> {
    fn new(text: &'a SourceText, offset: usize, limit: usize) -> MatchCollector<'a> {
        MatchCollector {
            text,
            offset,
            limit,
            found: TextMatches {
                hits: Vec::new(),
                total: 0,
                complete: true,
            },
            line_count: (0, 1),
            deadline: Instant::now() + SEARCH_TIMEOUT,
        }
    }

    /// Adds a match; false when the time is up.
    fn add(&mut self, start: usize, end: usize) -> bool {
        self.found.total += 1;
        if self.found.hits.len() < self.limit {
            let (start, end) = (start + self.offset, end + self.offset);
            let bytes = self.text.as_str().as_bytes();
            let (at, line) = self.line_count;
            let line = line + memchr::memchr_iter(b'\n', &bytes[at..start]).count();
            self.line_count = (start, line);
            self.found.hits.push(TextMatch {
                start: self.text.char_at(start),
                end: self.text.char_at(end),
                line,
                text: line_around(self.text.as_str(), start, end),
            });
        }
        if self.found.total.is_multiple_of(MATCHES_PER_CLOCK_CHECK)
            && Instant::now() > self.deadline
        {
            self.found.complete = false;
        }
        self.found.complete
    }
}

/// The line that holds a match, clipped around it.
fn line_around(text: &str, start: usize, end: usize) -> String {
    // A line may be as long as the file: no more of it is looked at than is shown.
    let near = |at: usize| text.floor_char_boundary(at);
    let low = near(start.saturating_sub(MAX_SHOWN_LINE_CHARS));
    let from = memchr::memrchr(b'\n', &text.as_bytes()[low..start]).map_or(low, |at| low + at + 1);
    let high = near(
        (start + MAX_SHOWN_LINE_CHARS)
            .max(end.min(start + MAX_SHOWN_LINE_CHARS))
            .min(text.len()),
    );
    let to = memchr::memchr(b'\n', &text.as_bytes()[start..high]).map_or(high, |at| start + at);
    let line = &text[from..to.max(from)];
    let skip = text[from..start]
        .chars()
        .count()
        .saturating_sub(MAX_SHOWN_LINE_CHARS / 3);
    let shown: String = line.chars().skip(skip).take(MAX_SHOWN_LINE_CHARS).collect();
    shown.trim_end_matches('\r').to_owned()
}

fn count_chars(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| is_char_start(**byte)).count()
}

fn is_char_start(byte: u8) -> bool {
    byte & 0xc0 != 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(pattern: &str) -> TextSearch {
        TextSearch {
            pattern: pattern.to_owned(),
            literal: false,
            ignore_case: false,
            start: 0,
            end: None,
            limit: 100,
        }
    }

    /// A text whose characters take one to four bytes, longer than several blocks.
    fn mixed() -> String {
        let mut text = String::new();
        for number in 0..4_000 {
            text.push_str(["a", "\u{e4}", "\u{20ac}", "\u{1f600}", "\n"][number % 5]);
            text.push_str(&number.to_string());
        }
        text
    }

    #[test]
    fn offsets_are_those_of_python() {
        let plain = mixed();
        let text = SourceText::new(plain.clone());
        let chars: Vec<char> = plain.chars().collect();
        assert_eq!(text.chars(), chars.len());
        for start in (0..chars.len()).step_by(97) {
            let end = (start + 61).min(chars.len());
            let expect: String = chars[start..end].iter().collect();
            let part = text.part(start as i64, Some(end as i64));
            assert_eq!(part.as_str(), expect);
            assert_eq!(part.chars(), end - start);
            // A part of a part counts from its own beginning.
            let inner: String = chars[start..end].iter().skip(5).take(7).collect();
            assert_eq!(part.part(5, Some(12)).as_str(), inner);
        }
        for (start, end, expect) in [
            (-3, None, 3),
            (0, Some(-1), chars.len() - 1),
            (9, Some(3), 0),
        ] {
            assert_eq!(text.part(start, end).chars(), expect);
        }
        assert_eq!(text.part(i64::MIN, Some(i64::MAX)).as_str(), plain);
    }

    #[test]
    fn matches_are_found_counted_and_placed() {
        let plain = mixed();
        let text = SourceText::new(plain.clone());
        let found = text.search(&search(r"\u{20ac}1\d2\b")).unwrap();
        assert!(found.complete && found.total > 0 && found.total == found.hits.len() as u64);
        for hit in &found.hits {
            let slice = text.part(hit.start as i64, Some(hit.end as i64));
            assert!(slice.as_str().starts_with('\u{20ac}'), "{hit:?}");
            let byte = text.byte_at(hit.start);
            assert_eq!(hit.line, 1 + plain[..byte].matches('\n').count());
            assert!(hit.text.contains(slice.as_str()), "{hit:?}");
        }
        let few = TextSearch {
            limit: 2,
            ..search(r"\d")
        };
        let found = text.search(&few).unwrap();
        assert_eq!(found.hits.len(), 2);
        let digits = plain.chars().filter(char::is_ascii_digit).count();
        assert_eq!(found.total, digits as u64);
    }

    #[test]
    fn words_are_not_patterns_and_ranges_bound_them() {
        let text = SourceText::new("one.two ONE.TWO one-two\nx".to_owned());
        let literal = TextSearch {
            literal: true,
            ..search("one.two")
        };
        assert_eq!(text.search(&literal).unwrap().total, 1);
        let any_case = TextSearch {
            ignore_case: true,
            ..literal.clone()
        };
        assert_eq!(text.search(&any_case).unwrap().total, 2);
        assert_eq!(text.search(&search("one.two")).unwrap().total, 2);
        let later = TextSearch {
            start: 1,
            end: Some(-1),
            ..search("one.two")
        };
        let found = text.search(&later).unwrap();
        assert_eq!(found.hits[0].start, 16);
        assert_eq!(found.hits[0].line, 1);
        for bad in ["", "(", "a{1000}{1000}{1000}"] {
            assert!(text.search(&search(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_line_as_long_as_the_file_is_clipped() {
        let text = SourceText::new(format!(
            "{}needle{}",
            "x".repeat(1 << 20),
            "y".repeat(1 << 20)
        ));
        let found = text.search(&search("needle")).unwrap();
        assert!(found.hits[0].text.contains("needle"));
        assert!(found.hits[0].text.chars().count() <= MAX_SHOWN_LINE_CHARS);
    }

    #[test]
    fn hostile_patterns_end() {
        let text = SourceText::new("A".repeat(300_000));
        let started = Instant::now();
        let found = text.search(&search(".*[^A-Z]|[A-Z]")).unwrap();
        assert!(!found.complete || found.total == 300_000);
        assert!(started.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn pieces_cover_the_text_and_end_with_lines() {
        let text = SourceText::new(mixed());
        for (size, overlap) in [(1_000, 0), (1_000, 100), (7, 3), (1 << 30, 0)] {
            let pieces = text.chunks(size, overlap).unwrap();
            assert_eq!(pieces[0].0, 0);
            assert_eq!(pieces.last().unwrap().1, text.chars());
            for pair in pieces.windows(2) {
                assert_eq!(pair[1].0, pair[0].1 - overlap);
                assert!(pair[0].1 - pair[0].0 <= size);
            }
        }
        let pieces = text.chunks(1_000, 0).unwrap();
        let first = text.part(0, Some(pieces[0].1 as i64));
        assert!(first.as_str().ends_with('\n'));
        assert!(text.chunks(0, 0).is_err() && text.chunks(5, 5).is_err());
        assert!(text.chunks(1, 0).is_err(), "too many pieces");
        assert!(
            SourceText::new(String::new())
                .chunks(5, 0)
                .unwrap()
                .is_empty()
        );
    }
}
