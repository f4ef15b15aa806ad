//! What to look for in files, read and compiled once per search.

use grep_regex::{ErrorKind, RegexMatcher, RegexMatcherBuilder};

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

/// Memory for one compiled pattern, and again for the states that each thread builds while it searches.
const MAX_PATTERN_BYTES: usize = 10 * 1024 * 1024;

/// A compiled pattern, which finds lines.
///
/// `^` and `$` are the ends of a line, also when it ends in CR LF, and `.` never stands for a CR or LF.
#[derive(Clone, Debug)]
pub struct ContentPattern {
    pub(super) matcher: RegexMatcher,
}

impl ContentPattern {
    /// Reads a pattern.
    pub fn new(pattern: &str, syntax: PatternSyntax, case: Case) -> Result<Self> {
        if syntax == PatternSyntax::Regex {
            check_syntax(pattern)?;
        }
        let matcher = RegexMatcherBuilder::new()
            .multi_line(true)
            .fixed_strings(syntax == PatternSyntax::Literal)
            .case_insensitive(case == Case::Ignore)
            .size_limit(MAX_PATTERN_BYTES)
            .dfa_size_limit(MAX_PATTERN_BYTES)
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
        Ok(Self { matcher })
    }
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
        check_syntax(pattern)?;
        regex::RegexBuilder::new(pattern)
            .multi_line(true)
            .crlf(true)
            .size_limit(MAX_PATTERN_BYTES)
            .dfa_size_limit(MAX_PATTERN_BYTES)
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
fn check_syntax(pattern: &str) -> Result<()> {
    let parsed = regex_syntax::ParserBuilder::new()
        .utf8(false)
        .crlf(true)
        .build()
        .parse(pattern);
    let (reason, offset) = match parsed {
        Ok(_) => return Ok(()),
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
        let large = error("a{1000}{1000}{1000}", PatternSyntax::Regex);
        assert!(
            large.contains("size limit") && !large.contains('\n'),
            "{large}"
        );
        let nested = error(&"(".repeat(100_000), PatternSyntax::Regex);
        assert!(!nested.contains('\n') && nested.len() < 200, "{nested}");
    }

    #[test]
    fn whitespace_classes_do_not_count_as_line_breaks() {
        assert!(ContentPattern::new(r"a\s+b[^x]", PatternSyntax::Regex, Case::Sensitive).is_ok());
        assert!(ContentPattern::new("a(b", PatternSyntax::Literal, Case::Sensitive).is_ok());
    }
}
