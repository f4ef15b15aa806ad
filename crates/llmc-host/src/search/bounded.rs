//! A matcher whose work between two looks at the clock is bounded.
//!
//! One call of a regular expression cannot be interrupted, and takes time in proportion to the length of the text times
//! the number of positions in the pattern. So a pattern with many positions is tried on few lines at a time, and a line
//! that is too long for it is not tried at all.

use std::fmt;

use grep_matcher::{ByteSet, LineMatchKind, LineTerminator, Match, Matcher, NoError};
use grep_regex::{RegexCaptures, RegexMatcher};
use memchr::{memchr, memrchr};

use super::pattern::ContentPattern;
use crate::cancel::CancelToken;

/// Bytes times positions between two looks at the clock: a fraction of a second.
const WORK_PER_CANCEL_CHECK: u64 = 8 << 20;
/// Bytes times positions of one line: a second or so at worst.
const MAX_LINE_WORK: u64 = 64 << 20;
/// Patterns with no more positions are tried on lines of any length.
pub(super) const CHEAP_POSITIONS: u64 = 100;

/// A pattern within its bounds, for one file.
pub(super) struct BoundedMatcher<'a> {
    inner: &'a RegexMatcher,
    cancel: &'a CancelToken,
    /// Bytes that are searched in one call.
    window: usize,
    /// The longest line that is searched.
    max_line: usize,
}

/// Why a search ended early.
#[derive(Debug)]
pub(super) enum MatchError {
    Stopped,
    LineTooLong,
}

impl fmt::Display for MatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MatchError::Stopped => "stopped",
            MatchError::LineTooLong => "a line is too long for this pattern",
        })
    }
}

impl From<NoError> for MatchError {
    fn from(_: NoError) -> MatchError {
        MatchError::Stopped
    }
}

impl<'a> BoundedMatcher<'a> {
    pub(super) fn new(pattern: &'a ContentPattern, cancel: &'a CancelToken) -> Self {
        let bytes = |work: u64| {
            let positions = pattern.positions.max(1);
            usize::try_from(work / positions).unwrap_or(usize::MAX)
        };
        BoundedMatcher {
            inner: &pattern.matcher,
            cancel,
            window: bytes(WORK_PER_CANCEL_CHECK).max(1),
            max_line: match pattern.positions {
                ..=CHEAP_POSITIONS => usize::MAX,
                _ => bytes(MAX_LINE_WORK),
            },
        }
    }

    /// Searches some lines after the other. No pattern matches over a line end, so this finds what one call would.
    fn in_windows<T>(
        &self,
        haystack: &[u8],
        at: usize,
        position: impl Fn(&T) -> usize,
        search: impl Fn(&[u8], usize) -> Result<Option<T>, NoError>,
    ) -> Result<Option<T>, MatchError> {
        let mut start = at;
        while haystack.len() - start > self.window {
            if self.cancel.is_cancelled() {
                return Err(MatchError::Stopped);
            }
            let soon = start + self.window;
            let line_end = memrchr(b'\n', &haystack[start..soon]).map(|found| start + found);
            let end = line_end.or_else(|| memchr(b'\n', &haystack[soon..]).map(|more| soon + more));
            let end_of_lines = end.unwrap_or(haystack.len());
            if line_end.is_none() && end_of_lines - start > self.max_line {
                return Err(MatchError::LineTooLong);
            }
            // With the line end, so that anchors see it, but without the empty line that seems to follow it.
            let text = &haystack[..haystack.len().min(end_of_lines + 1)];
            if let Some(found) = search(text, start)?
                && position(&found) <= end_of_lines
            {
                return Ok(Some(found));
            }
            match end {
                Some(end) => start = end + 1,
                None => return Ok(None),
            }
        }
        Ok(search(haystack, start)?)
    }
}

impl Matcher for BoundedMatcher<'_> {
    type Captures = RegexCaptures;
    type Error = MatchError;

    fn find_at(&self, haystack: &[u8], at: usize) -> Result<Option<Match>, MatchError> {
        self.in_windows(haystack, at, Match::start, |text, at| {
            self.inner.find_at(text, at)
        })
    }

    fn new_captures(&self) -> Result<RegexCaptures, MatchError> {
        Ok(self.inner.new_captures()?)
    }

    fn shortest_match_at(&self, haystack: &[u8], at: usize) -> Result<Option<usize>, MatchError> {
        self.in_windows(
            haystack,
            at,
            |end| *end,
            |text, at| self.inner.shortest_match_at(text, at),
        )
    }

    fn non_matching_bytes(&self) -> Option<&ByteSet> {
        self.inner.non_matching_bytes()
    }

    fn line_terminator(&self) -> Option<LineTerminator> {
        self.inner.line_terminator()
    }

    fn find_candidate_line(&self, haystack: &[u8]) -> Result<Option<LineMatchKind>, MatchError> {
        if haystack.len() <= self.window {
            return Ok(self.inner.find_candidate_line(haystack)?);
        }
        let found = self.shortest_match_at(haystack, 0)?;
        Ok(found.map(LineMatchKind::Confirmed))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::search::pattern::{Case, PatternSyntax};

    fn pattern(text: &str) -> ContentPattern {
        ContentPattern::new(text, PatternSyntax::Regex, Case::Sensitive).unwrap()
    }

    #[test]
    fn windows_find_what_one_call_finds() {
        let text = b"one\n\ntwo three\nfour\r\n\nfive\n";
        let cancel = CancelToken::default();
        for words in [
            "^$", "two.*", "e$", "^f", "x", r"\bthree", "four$", r"o\b", "e",
        ] {
            let pattern = pattern(words);
            for window in [1, 2, 3, 5, 8, 100] {
                let mut bounded = BoundedMatcher::new(&pattern, &cancel);
                bounded.window = window;
                for at in 0..text.len() {
                    let found = bounded.find_at(text, at).unwrap();
                    let whole = pattern.matcher.find_at(text, at).unwrap();
                    assert_eq!(found, whole, "{words} at {at} by {window}");
                }
            }
        }
    }

    #[test]
    fn a_costly_pattern_stops_at_the_deadline_and_leaves_out_long_lines() {
        let pattern = pattern("(?:a?){1900}a{1900}[^a]");
        let text = "a".repeat(2_000) + "\n";
        let lines = text.repeat(2000);
        let limit = Duration::from_millis(200);
        let cancel = CancelToken::with_deadline(Instant::now() + limit);
        let bounded = BoundedMatcher::new(&pattern, &cancel);
        let found = bounded.find_at(lines.as_bytes(), 0);
        assert!(matches!(found, Err(MatchError::Stopped)), "{found:?}");
        let cancel = CancelToken::default();
        let bounded = BoundedMatcher::new(&pattern, &cancel);
        let line = "a".repeat(4 << 20);
        let found = bounded.find_at(line.as_bytes(), 0);
        assert!(matches!(found, Err(MatchError::LineTooLong)), "{found:?}");
    }
}
