//! What to look for in files, read and compiled once per search.

use std::sync::Arc;

use grep_regex::{ErrorKind, RegexMatcher, RegexMatcherBuilder};
use llmc_trigrams::TrigramQuery;
use regex_syntax::hir::{Hir, HirKind};

use super::bounded::CHEAP_POSITIONS;
use crate::error::{Error, Result};

/// How a pattern is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PatternSyntax {
    /// A regular expression.
    #[default]
    Regex,
    /// Plain text.
    Literal,
}

/// Whether upper and lower case differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Case {
    /// They differ.
    #[default]
    Sensitive,
    /// They are the same.
    Ignore,
}

/// Memory for one compiled pattern.
const MAX_PATTERN_BYTES: usize = 10 << 20;
/// Memory for the states that each thread builds while it searches.
const MAX_DFA_BYTES: usize = 2 << 20;
/// The part of a plain text that decides which files are read.
const MAX_CONDITION_BYTES: usize = 256;
/// Characters and classes of a pattern with its repetitions written out: a search takes time in proportion.
const MAX_POSITIONS: u64 = 4000;
/// The same for a pattern that is looked for in one go in all that a program printed.
const MAX_OUTPUT_POSITIONS: u64 = 500;

/// A compiled pattern, which finds lines.
///
/// `^` and `$` are the ends of a line, also when it ends in CR LF, and `.` never stands for a CR or LF.
#[derive(Clone, Debug)]
pub struct ContentPattern {
    pub(super) matcher: RegexMatcher,
    /// What a search costs for each byte.
    pub(super) positions: u64,
    query: Option<Arc<TrigramQuery>>,
}

impl ContentPattern {
    /// Reads a pattern.
    pub fn new(pattern: &str, syntax: PatternSyntax, case: Case) -> Result<Self> {
        let positions = match syntax {
            PatternSyntax::Regex => check_syntax(pattern, MAX_POSITIONS)?,
            PatternSyntax::Literal => 1,
        };
        let matcher = RegexMatcherBuilder::new()
            .multi_line(true)
            .fixed_strings(syntax == PatternSyntax::Literal)
            .case_insensitive(case == Case::Ignore)
            .size_limit(MAX_PATTERN_BYTES)
            .dfa_size_limit(MAX_DFA_BYTES)
            .ban_byte(Some(0))
            // Anchors know CR LF, but lines end in LF alone: so a pattern may still ask for a CR.
            .crlf(true)
            .line_terminator(Some(b'\n'))
            .build(pattern)
            .map_err(|err| {
                Error::BadPattern(match err.kind() {
                    ErrorKind::NotAllowed(_) => {
                        "holds a line break, but lines are searched one at a time".to_owned()
                    }
                    ErrorKind::Banned(_) => {
                        "holds a NUL, but files that hold one are not searched".to_owned()
                    }
                    _ => one_line(&err.to_string()),
                })
            })?;
        // A costly pattern leaves out files with long lines, whether or not they match.
        let query =
            (positions <= CHEAP_POSITIONS).then(|| Arc::new(condition(pattern, syntax, case)));
        Ok(Self {
            matcher,
            positions,
            query,
        })
    }

    /// What a file that matches has to hold; `None` if its answer depends on more than the lines that match.
    pub(super) fn query(&self) -> Option<&TrigramQuery> {
        self.query.as_deref()
    }
}

/// The condition on the trigrams of a file with a match. The pattern is parsed as the matcher does it.
fn condition(pattern: &str, syntax: PatternSyntax, case: Case) -> TrigramQuery {
    let escaped;
    let pattern = match syntax {
        PatternSyntax::Regex => pattern,
        PatternSyntax::Literal => {
            // A file that holds a long text holds its beginning.
            let end = pattern.floor_char_boundary(MAX_CONDITION_BYTES);
            escaped = regex_syntax::escape(&pattern[..end]);
            &escaped
        }
    };
    let parsed = regex_syntax::ParserBuilder::new()
        .utf8(false)
        .multi_line(true)
        .crlf(true)
        .case_insensitive(case == Case::Ignore)
        .build()
        .parse(pattern);
    parsed.map_or(TrigramQuery::All, |parsed| TrigramQuery::of(&parsed))
}

/// A compiled pattern that is looked for in what a program prints, over line ends too.
///
/// `^` and `$` are the ends of a line. One search takes time in proportion to the text.
#[derive(Clone, Debug)]
pub struct OutputPattern(regex::Regex);

impl OutputPattern {
    /// Reads a regular expression.
    ///
    /// # Errors
    /// [`Error::BadPattern`] with the place.
    pub fn new(pattern: &str) -> Result<Self> {
        check_syntax(pattern, MAX_OUTPUT_POSITIONS)?;
        regex::RegexBuilder::new(pattern)
            .multi_line(true)
            .crlf(true)
            .size_limit(MAX_PATTERN_BYTES)
            .dfa_size_limit(MAX_DFA_BYTES)
            .build()
            .map(Self)
            .map_err(|error| Error::BadPattern(one_line(&error.to_string())))
    }

    /// Whether the text holds it.
    pub fn is_in(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

/// Finds what is wrong in a pattern and where, before the matcher's own parser reports it in a drawing of four lines.
/// Returns how many positions it has.
fn check_syntax(pattern: &str, max_positions: u64) -> Result<u64> {
    let parsed = regex_syntax::ParserBuilder::new()
        .utf8(false)
        .crlf(true)
        .build()
        .parse(pattern);
    let (reason, offset) = match parsed {
        Ok(parsed) => {
            let positions = positions(&parsed);
            if positions <= max_positions {
                return Ok(positions);
            }
            return Err(Error::BadPattern(format!(
                "too large: {positions} characters with its repetitions written out, at most {max_positions}; use smaller repetitions"
            )));
        }
        Err(regex_syntax::Error::Parse(err)) => (err.kind().to_string(), err.span().start.offset),
        Err(regex_syntax::Error::Translate(err)) => {
            (err.kind().to_string(), err.span().start.offset)
        }
        Err(err) => (err.to_string(), 0),
    };
    let before = pattern.get(..offset).unwrap_or(pattern);
    let at = before.chars().count() + 1;
    Err(Error::BadPattern(format!(
        "{} (at character {at})",
        one_line(&reason)
    )))
}

/// Characters and classes, each as often as repetitions ask for it. The parser limits how deep a pattern nests.
fn positions(pattern: &Hir) -> u64 {
    match pattern.kind() {
        HirKind::Empty | HirKind::Look(_) => 0,
        HirKind::Literal(text) => text.0.len() as u64,
        HirKind::Class(_) => 1,
        HirKind::Capture(capture) => positions(&capture.sub),
        HirKind::Repetition(repetition) => {
            let times = repetition
                .max
                .unwrap_or_else(|| repetition.min.saturating_add(1));
            positions(&repetition.sub).saturating_mul(u64::from(times))
        }
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(positions).fold(0, u64::saturating_add)
        }
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(pattern: &str, syntax: PatternSyntax) -> String {
        ContentPattern::new(pattern, syntax, Case::Ignore)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn errors_say_what_and_where() {
        for (pattern, message) in [
            ("foo(", "invalid pattern: unclosed group (at character 4)"),
            (
                "äb[a",
                "invalid pattern: unclosed character class (at character 3)",
            ),
            (
                r"a\pX",
                "invalid pattern: Unicode property not found (at character 2)",
            ),
            (
                "*",
                "invalid pattern: repetition operator missing expression (at character 1)",
            ),
        ] {
            assert_eq!(error(pattern, PatternSyntax::Regex), message);
        }
        let lines = error("a\\nb", PatternSyntax::Regex);
        assert!(lines.contains("line break"), "{lines}");
        assert_eq!(error("a\nb", PatternSyntax::Literal), lines);
        assert!(error("a\\x00", PatternSyntax::Regex).contains("NUL"));
        for pattern in [
            "a{1000}{1000}{1000}",
            "(?:a?){5000}a{5000}",
            &"a?".repeat(5000),
        ] {
            let large = error(pattern, PatternSyntax::Regex);
            assert!(
                large.contains("smaller repetitions") && !large.contains('\n'),
                "{large}"
            );
        }
        let large = error(r"\w{1000}", PatternSyntax::Regex);
        assert!(large.contains("size limit"), "{large}");
        let nested = error(&"(".repeat(100_000), PatternSyntax::Regex);
        assert!(!nested.contains('\n') && nested.len() < 200, "{nested}");
    }

    #[test]
    fn a_long_text_is_looked_for_by_its_beginning() {
        // Within a character, if it were cut by bytes.
        let text = format!("x{}", "\u{e9}".repeat(50_000));
        for case in [Case::Sensitive, Case::Ignore] {
            let pattern = ContentPattern::new(&text, PatternSyntax::Literal, case).unwrap();
            assert!(*pattern.query().unwrap() != TrigramQuery::All);
        }
    }

    #[test]
    fn whitespace_classes_do_not_count_as_line_breaks() {
        assert!(ContentPattern::new(r"a\s+b[^x]", PatternSyntax::Regex, Case::Sensitive).is_ok());
        assert!(ContentPattern::new("a(b", PatternSyntax::Literal, Case::Sensitive).is_ok());
    }
}
