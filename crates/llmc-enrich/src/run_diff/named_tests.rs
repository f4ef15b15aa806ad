//! Tests that an output names as failing, of runners whose output is not known.
//!
//! What looks like the name of a test, in a line of its own that says that something failed or under a ruled title. Indented
//! lines are what a test printed, or the source that failed.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

/// Longer lines are no summary.
const MAX_LINE_BYTES: usize = 300;
/// Names that are kept of one output.
const MAX_NAMES: usize = 2000;

/// Tests named as failing in one output and not in the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamedTests {
    pub only_now: Vec<String>,
    pub only_at_base: Vec<String>,
}

impl NamedTests {
    pub(super) fn of(base: &str, now: &str) -> NamedTests {
        let (base, now) = (failing(base), failing(now));
        NamedTests {
            only_now: now.difference(&base).cloned().collect(),
            only_at_base: base.difference(&now).cloned().collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.only_now.is_empty() && self.only_at_base.is_empty()
    }
}

fn failing(text: &str) -> BTreeSet<String> {
    static NAME: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"[\w./:-]*[Tt]est[\w./:\[\]-]*").ok());
    static FAILED: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"(?i)\b(?:fail|failed|failure|fails|error|errored|not ok|broken)\b|[✗✘✖]").ok()
    });
    let mut found = BTreeSet::new();
    let (Some(name), Some(failed)) = (NAME.as_ref(), FAILED.as_ref()) else {
        return found;
    };
    for line in text.lines() {
        if line.len() > MAX_LINE_BYTES || line.starts_with(char::is_whitespace) {
            continue;
        }
        let title = line
            .strip_prefix("___")
            .and_then(|rest| rest.strip_suffix("___"));
        if title.is_none() && !failed.is_match(line) {
            continue;
        }
        let words = name
            .find_iter(title.unwrap_or(line))
            .map(|word| word.as_str());
        // `tests`, `test`, `testing` are words, not names.
        let names = words
            .map(|word| word.trim_matches([':', '.', '-', '_']))
            .filter(|word| {
                word.contains(['_', '/', ':', '.']) || word.chars().skip(1).any(char::is_uppercase)
            });
        for name in names {
            if found.len() < MAX_NAMES {
                found.insert(name.to_owned());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beside_words_of_failure_and_in_titles_are_told_apart() {
        let base = "\
lib/core/tests/test_a.py[3] ..F    [FAIL]
________ lib/core/tests/test_a.py:test_one ________
  File \"lib/core/tests/test_q.py\", line 3, in test_quoted failed
tests finished: 2 passed, 1 failed
";
        let now = "\
lib/core/tests/test_b.py[3] ..F    [FAIL]
not ok 3 - test_two does it
ok 4 - test_three
running tests failed
";
        assert_eq!(
            NamedTests::of(base, now),
            NamedTests {
                only_now: vec![
                    "lib/core/tests/test_b.py[3]".to_owned(),
                    "test_two".to_owned()
                ],
                only_at_base: vec![
                    "lib/core/tests/test_a.py:test_one".to_owned(),
                    "lib/core/tests/test_a.py[3]".to_owned()
                ],
            }
        );
        assert!(NamedTests::of(base, base).is_empty());
    }
}
