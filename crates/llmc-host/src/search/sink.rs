//! What becomes of the matching lines of one file: they are counted, or kept with their context.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink, SinkContext, SinkMatch};

use super::matches::{MatchLimits, MatchedLine};
use crate::cancel::CancelToken;

/// The longest part of a line that is shown.
const MAX_SHOWN_LINE_BYTES: usize = 4096;
/// What is shown before the match when a line is longer than that.
const BYTES_BEFORE_MATCH: usize = 512;
/// Matches between two looks at the clock.
const MATCHES_PER_CANCEL_CHECK: u64 = 64;

/// Counts matching lines.
pub(super) struct CountSink<'a> {
    pub(super) cancel: &'a CancelToken,
    pub(super) lines: u64,
    pub(super) binary: bool,
}

impl Sink for CountSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, _: &SinkMatch<'_>) -> io::Result<bool> {
        self.lines += 1;
        Ok(!self.lines.is_multiple_of(MATCHES_PER_CANCEL_CHECK) || !self.cancel.is_cancelled())
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> io::Result<bool> {
        self.binary = true;
        Ok(false)
    }
}

/// Counts matching lines and keeps the first of them.
pub(super) struct MatchSink<'a> {
    pub(super) count: CountSink<'a>,
    matcher: &'a RegexMatcher,
    path: Arc<[u8]>,
    context: u64,
    limits: MatchLimits,
    bytes: usize,
    pub(super) hits: Vec<MatchedLine>,
    /// The hits from here on may still get lines behind them.
    open: usize,
    /// The lines seen last, without a gap, for the hits to come, and whether they are clipped.
    recent: VecDeque<(u64, String, bool)>,
}

impl<'a> MatchSink<'a> {
    pub(super) fn new(
        path: &[u8],
        matcher: &'a RegexMatcher,
        context: usize,
        limits: MatchLimits,
        cancel: &'a CancelToken,
    ) -> Self {
        Self {
            count: CountSink {
                cancel,
                lines: 0,
                binary: false,
            },
            matcher,
            path: path.into(),
            context: context as u64,
            limits,
            bytes: 0,
            hits: Vec::new(),
            open: 0,
            recent: VecDeque::new(),
        }
    }

    /// Adds a line to the snippets that reach to it.
    fn extend(&mut self, number: u64, text: &str, clipped: bool) {
        while let Some(hit) = self.hits.get(self.open)
            && hit.line + self.context < number
        {
            self.open += 1;
        }
        for hit in &mut self.hits[self.open..] {
            hit.snippet.push('\n');
            hit.snippet.push_str(text);
            hit.clipped |= clipped;
            self.bytes += 1 + text.len();
        }
    }

    fn remember(&mut self, number: u64, text: String, clipped: bool) {
        if self.context > 0 {
            if self.recent.len() as u64 == self.context {
                self.recent.pop_front();
            }
            self.recent.push_back((number, text, clipped));
        }
    }
}

impl Sink for MatchSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, searcher: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        let number = found.line_number().unwrap_or(0);
        let line = without_line_end(found.bytes());
        let is_long = line.len() > MAX_SHOWN_LINE_BYTES;
        let text = if is_long {
            let start = self
                .matcher
                .find(line)
                .ok()
                .flatten()
                .map_or(0, |m| m.start());
            clip(line, start.saturating_sub(BYTES_BEFORE_MATCH))
        } else {
            String::from_utf8_lossy(line).into_owned()
        };
        self.extend(number, &text, is_long);
        // One hit too many is kept on purpose: it is what tells the collector that this file was not taken in whole.
        if self.hits.len() <= self.limits.hits && self.bytes <= self.limits.bytes {
            let mut snippet = String::new();
            let mut first_line = number;
            let mut clipped = is_long;
            for (at, before, is_long) in &self.recent {
                if at + self.context >= number {
                    first_line = first_line.min(*at);
                    clipped |= is_long;
                    snippet.push_str(before);
                    snippet.push('\n');
                }
            }
            snippet.push_str(&text);
            self.bytes += snippet.len() + self.path.len();
            self.hits.push(MatchedLine {
                path: Arc::clone(&self.path),
                line: number,
                first_line,
                snippet,
                clipped,
            });
        }
        self.remember(number, text, is_long);
        self.count.matched(searcher, found)
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        let number = context.line_number().unwrap_or(0);
        let line = without_line_end(context.bytes());
        let is_long = line.len() > MAX_SHOWN_LINE_BYTES;
        let text = if is_long {
            clip(line, 0)
        } else {
            String::from_utf8_lossy(line).into_owned()
        };
        self.extend(number, &text, is_long);
        self.remember(number, text, is_long);
        Ok(true)
    }

    fn context_break(&mut self, _: &Searcher) -> io::Result<bool> {
        self.recent.clear();
        self.open = self.hits.len();
        Ok(true)
    }

    fn binary_data(&mut self, searcher: &Searcher, offset: u64) -> io::Result<bool> {
        self.count.binary_data(searcher, offset)
    }
}

fn without_line_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The part of a long line from `start` on, with what is left out on either side.
fn clip(line: &[u8], start: usize) -> String {
    let window = window(line, start);
    let text = String::from_utf8_lossy(&line[window.clone()]);
    let (before, after) = (window.start, line.len() - window.end);
    match (before, after) {
        (0, 0) => text.into_owned(),
        (0, _) => format!("{text} [+{after} bytes]"),
        (_, 0) => format!("[{before} bytes+] {text}"),
        _ => format!("[{before} bytes+] {text} [+{after} bytes]"),
    }
}

/// At most [`MAX_SHOWN_LINE_BYTES`] bytes from about `start` on, not cutting a character in two.
fn window(line: &[u8], start: usize) -> Range<usize> {
    let start = start.min(line.len().saturating_sub(MAX_SHOWN_LINE_BYTES));
    let end = line.len().min(start + MAX_SHOWN_LINE_BYTES);
    back_to_boundary(line, start)..back_to_boundary(line, end)
}

/// The nearest place at or before `at` where a character can begin.
fn back_to_boundary(line: &[u8], at: usize) -> usize {
    (at.saturating_sub(3)..=at)
        .rev()
        .find(|&place| place == line.len() || line[place] & 0xc0 != 0x80)
        .unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_clipped_around_the_match() {
        let line = "ä".repeat(10_000);
        let head = clip(line.as_bytes(), 0);
        assert!(
            head.starts_with('ä') && head.ends_with("ä [+15904 bytes]"),
            "{head}"
        );
        let middle = clip(line.as_bytes(), 5001);
        assert!(middle.starts_with("[5000 bytes+] ä") && middle.ends_with("bytes]"));
        assert!(!middle.contains('\u{fffd}'));
        let tail = clip(line.as_bytes(), 19_990);
        assert!(tail.starts_with("[15904 bytes+] ä") && tail.ends_with('ä'));
        assert!(clip(&[0x80; 9000], 4000).contains('\u{fffd}'));
    }
}
