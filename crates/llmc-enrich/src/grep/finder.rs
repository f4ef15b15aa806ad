//! Where in a line the match is.

use std::ops::Range;

use regex::{Regex, RegexBuilder};

use super::FoundLine;

/// The pattern of a search, compiled once more to look inside lines that are known to match.
///
/// Whether the search read it as plain text or in any case follows from what it found.
pub(super) struct PatternMatcher(Option<Regex>);

/// Hits that a reading of the pattern is tried on.
const MAX_TRIED_HITS: usize = 40;
/// Memory for the compiled pattern; one that needs more goes without marks.
const MAX_PATTERN_BYTES: usize = 2 * 1024 * 1024;

impl PatternMatcher {
    pub(super) fn new(pattern: &str, hits: &[FoundLine]) -> Self {
        let escaped = regex::escape(pattern);
        let readings = [
            (pattern, false),
            (pattern, true),
            (&escaped, false),
            (&escaped, true),
        ];
        let regex = readings.into_iter().find_map(|(pattern, any_case)| {
            let regex = RegexBuilder::new(pattern)
                .case_insensitive(any_case)
                .multi_line(true)
                .crlf(true)
                .size_limit(MAX_PATTERN_BYTES)
                .dfa_size_limit(MAX_PATTERN_BYTES)
                .build()
                .ok()?;
            let finds = hits
                .iter()
                .take(MAX_TRIED_HITS)
                .any(|hit| regex.is_match(&hit.text));
            finds.then_some(regex)
        });
        Self(regex)
    }

    /// The first match.
    pub(super) fn find(&self, line: &str) -> Option<Range<usize>> {
        self.0.as_ref()?.find(line).map(|found| found.range())
    }

    /// The first matches; not all, since looking for all of them can take quadratic time.
    pub(super) fn spans(&self, line: &str) -> Vec<Range<usize>> {
        let Some(regex) = &self.0 else {
            return Vec::new();
        };
        regex
            .find_iter(line)
            .take(8)
            .map(|found| found.range())
            .collect()
    }
}
