//! Lines that look like errors, collected from a text that is too large to keep.

use std::collections::VecDeque;
use std::sync::LazyLock;

use memchr::{memchr, memchr_iter, memrchr};
use regex::bytes::Regex;

/// How many of the first, and how many of the last, are kept.
const MAX_KEPT_LINES: usize = 40;
/// Bytes kept of one line.
const MAX_LINE_BYTES: usize = 300;
/// A line longer than this is looked at in pieces.
const MAX_CARRY_BYTES: usize = 64 << 10;

/// Words with which any program reports an error.
pub(crate) const ERROR_WORDS: &str = concat!(
    r"(?i-u:\b(?:errors?|fatal|panic|panicked|exception|traceback|fail(?:ed|ure|ures)?|undefined reference",
    r"|segmentation fault|core dumped|permission denied|not found|no such file|cannot|unable to|aborted)\b)",
    r"|(?-u:\b[A-Z][A-Za-z]*(?:Error|Exception)\b)",
);

static ERROR_PATTERN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(ERROR_WORDS).expect("a valid pattern"));

/// A line and its number, counted from 1.
pub type NumberedLine = (u64, String);

/// Collects lines that look like errors: the first, the last, and how many.
#[derive(Debug, Default)]
pub struct ErrorLines {
    carry: Vec<u8>,
    /// Whole lines before the carry.
    lines: u64,
    first: Vec<NumberedLine>,
    last: VecDeque<NumberedLine>,
    count: u64,
}

impl ErrorLines {
    pub fn feed(&mut self, mut bytes: &[u8]) {
        if !self.carry.is_empty() {
            let end = memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1);
            self.carry.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end..];
            if !self.carry.ends_with(b"\n") && self.carry.len() < MAX_CARRY_BYTES {
                return;
            }
            let carry = std::mem::take(&mut self.carry);
            self.scan(&carry);
        }
        let whole = memrchr(b'\n', bytes).map_or(0, |at| at + 1);
        self.scan(&bytes[..whole]);
        self.carry.extend_from_slice(&bytes[whole..]);
    }

    /// Looks at a last line that has no end.
    pub fn finish(&mut self) {
        let carry = std::mem::take(&mut self.carry);
        self.scan(&carry);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// Those that were kept, in order.
    pub fn kept(&self) -> impl Iterator<Item = &NumberedLine> {
        self.first.iter().chain(&self.last)
    }

    fn scan(&mut self, text: &[u8]) {
        let (mut from, mut counted) = (0, 0);
        while let Some(word) = ERROR_PATTERN.find_at(text, from) {
            let start = memrchr(b'\n', &text[..word.start()]).map_or(0, |at| at + 1);
            let end =
                memchr(b'\n', &text[word.start()..]).map_or(text.len(), |at| word.start() + at);
            self.lines += memchr_iter(b'\n', &text[counted..start]).count() as u64;
            counted = start;
            if !is_negated(&String::from_utf8_lossy(&text[start..word.start()])) {
                let line = &text[start..end.min(start + MAX_LINE_BYTES)];
                self.keep(String::from_utf8_lossy(line).into_owned());
            }
            from = end;
        }
        self.lines += memchr_iter(b'\n', &text[counted..]).count() as u64;
    }

    fn keep(&mut self, line: String) {
        self.count += 1;
        let line = (self.lines + 1, line);
        if self.first.len() < MAX_KEPT_LINES {
            self.first.push(line);
            return;
        }
        if self.last.len() == MAX_KEPT_LINES {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }
}

/// Whether the text before the word negates it: `0 errors`, `no error`.
pub(crate) fn is_negated(before: &str) -> bool {
    let before = before.trim_end();
    let end = before.rsplit([' ', '\t', '(']).next().unwrap_or(before);
    ["0", "no", "without"]
        .iter()
        .any(|word| end.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_and_numbered_however_the_text_is_cut() {
        let mut text = String::new();
        for n in 1..=5000 {
            match n % 100 {
                0 => text.push_str(&format!("{n}: error: bad thing\n")),
                _ => text.push_str(&format!("{n}: fine, 0 errors\n")),
            }
        }
        text.push_str("5001: fatal: cut off");
        for size in [1, 7, 1000, text.len()] {
            let mut alarms = ErrorLines::default();
            text.as_bytes()
                .chunks(size)
                .for_each(|part| alarms.feed(part));
            alarms.finish();
            assert_eq!(alarms.count(), 51, "pieces of {size}");
            for (number, line) in alarms.kept() {
                assert!(line.starts_with(&format!("{number}: ")), "{number}: {line}");
            }
            assert_eq!(alarms.kept().last().map(|line| line.0), Some(5001));
        }
    }
}
