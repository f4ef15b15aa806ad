//! Texts that a question repeats word for word: the message of a pasted error, and what stands between quotation marks.
//!
//! Programs print what their source holds, except for the values filled in, so the longest run of words that a message
//! and a unit have in common tells the unit that prints it better than any count of single words.

use std::collections::HashMap;

use crate::question::is_stop_word;

/// A question may paste a whole log.
const MAX_QUOTES: usize = 8;
/// Longer messages are compared by their beginning.
const MAX_WORDS: usize = 40;
/// Shorter runs of words are in many units, and so are runs of words such as "of the".
const MIN_RUN: usize = 3;
const MIN_TELLING_WORDS: usize = 2;
/// A whole question is taken for a message where a unit has more than this share of it, and the more so the more it has.
const MIN_SHARE_OF_QUESTION: f32 = 0.5;

/// A text that the source is likely to hold.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Quote {
    /// In lower case.
    words: Vec<String>,
    /// Whether it is the whole question, which may be no quote at all.
    whole: bool,
}

impl Quote {
    fn new(text: &str, whole: bool) -> Option<Self> {
        let words: Vec<String> = runs(text).map(str::to_lowercase).take(MAX_WORDS).collect();
        (words.len() >= MIN_RUN).then_some(Self { words, whole })
    }

    /// The share of its words that stand one after the other in `text`.
    fn share_in(&self, text: &str) -> f32 {
        let run = longest_run(&self.words, text);
        let telling = run.iter().filter(|word| !is_stop_word(word)).count();
        if run.len() < MIN_RUN || telling < MIN_TELLING_WORDS {
            return 0.0;
        }
        let share = run.len() as f32 / self.words.len() as f32;
        match self.whole {
            true => ((share - MIN_SHARE_OF_QUESTION) / (1.0 - MIN_SHARE_OF_QUESTION)).max(0.0),
            false => share,
        }
    }
}

/// The quotes of a question, and what is left of it to tell the subject: the kinds of errors are not it.
#[derive(Debug, Default)]
pub(crate) struct Quotes {
    pub(crate) all: Vec<Quote>,
    /// The kinds of the errors (`RuntimeError`, `error[E0308]`), as written.
    pub(crate) error_kinds: Vec<String>,
}

impl Quotes {
    pub(crate) fn of(text: &str) -> Self {
        let mut found = Self::default();
        let mut message_follows = false;
        for line in text.lines() {
            if std::mem::take(&mut message_follows) {
                found.add(line, false);
            }
            // `thread 'main' panicked at src/main.rs:4:5:` has its message on the next line.
            message_follows = line.contains("panicked at ") && line.trim_end().ends_with(':');
            if let Some((kind, message)) = error_line(line) {
                found.error_kinds.push(kind.to_owned());
                found.add(message, false);
            }
        }
        // A message is often pasted alone, without its kind.
        if found.all.is_empty() && text.trim().lines().count() == 1 {
            found.add(text, true);
        }
        // A block of quoted code is compared whole: single lines of it are in many units.
        for block in text.split("```").skip(1).step_by(2) {
            let code = block.split_once('\n').map_or("", |(_, code)| code);
            found.add(code, false);
        }
        for mark in ['"', '`'] {
            // Every second piece stands between two marks.
            for quoted in text.split(mark).skip(1).step_by(2) {
                if !quoted.contains('\n') {
                    found.add(quoted, false);
                }
            }
        }
        found
    }

    fn add(&mut self, text: &str, whole: bool) {
        if self.all.len() < MAX_QUOTES
            && let Some(quote) = Quote::new(text, whole)
            && !self.all.contains(&quote)
        {
            self.all.push(quote);
        }
    }

    /// The share of a quote that stands in `text`, of the quote with the largest.
    pub(crate) fn share_in(&self, text: &str) -> f32 {
        let shares = self.all.iter().map(|quote| quote.share_in(text));
        shares.fold(0.0, f32::max)
    }
}

/// Whether a line holds the message of an error.
pub(crate) fn has_message(line: &str) -> bool {
    error_line(line).is_some()
}

/// The kind and the message of a line such as `E   ValueError: too many values` or `a.c:3:4: error: expected ';'`.
///
/// The innermost kind counts: `panic: runtime error: index out of range`.
fn error_line(line: &str) -> Option<(&str, &str)> {
    // pytest marks lines of errors, whatever they are called: `E   click.BadParameter: …`.
    let is_marked = line.starts_with("E  ");
    let is_type = |kind: &str| {
        let name = kind.rsplit('.').next().unwrap_or_default();
        name.starts_with(char::is_uppercase)
    };
    let ends = line.match_indices(": ").map(|(at, _)| at);
    ends.filter_map(|end| {
        let kind = line[..end].rsplit(char::is_whitespace).next()?;
        (is_error_kind(kind) || is_marked && is_type(kind)).then(|| (kind, line[end + 2..].trim()))
    })
    .last()
}

fn is_error_kind(word: &str) -> bool {
    let word = word.split('[').next().unwrap_or_default();
    let name = word.rsplit(['.', ':']).next().unwrap_or_default();
    let plain = ["error", "fatal", "panic", "exception", "warning"];
    let named = ["Error", "Exception", "Warning", "Panic", "Failure"];
    plain.contains(&name.to_ascii_lowercase().as_str())
        || named.iter().any(|ending| name.ends_with(ending))
}

/// Runs of letters, digits and underscores.
fn runs(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|run| !run.is_empty())
}

/// The longest run of words that both have.
fn longest_run<'a>(words: &'a [String], text: &str) -> &'a [String] {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, word) in words.iter().enumerate() {
        places.entry(word).or_default().push(at);
    }
    // For each word of the quote, how long the run is that ends there and at the last word of the text.
    let mut ending: HashMap<usize, usize> = HashMap::new();
    let mut longest: &[String] = &[];
    for run in runs(text) {
        let word = run.to_lowercase();
        let mut next = HashMap::new();
        for at in places.get(word.as_str()).into_iter().flatten() {
            let before = at.checked_sub(1).and_then(|before| ending.get(&before));
            let length = before.copied().unwrap_or(0) + 1;
            if length > longest.len() {
                longest = &words[at + 1 - length..=*at];
            }
            next.insert(*at, length);
        }
        ending = next;
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(text: &str) -> Vec<String> {
        let all = Quotes::of(text).all;
        all.iter().map(|quote| quote.words.join(" ")).collect()
    }

    #[test]
    fn messages_are_found_behind_the_kind_of_error() {
        for (text, message) in [
            (
                "RuntimeError: Working outside of application context.",
                "working outside of application context",
            ),
            (
                "E       click.exceptions.UsageError: Got unexpected extra argument (x)",
                "got unexpected extra argument x",
            ),
            (
                "E   web.BadParameter: option --size expects a number",
                "option size expects a number",
            ),
            (
                "error[E0433]: failed to resolve: use of undeclared crate",
                "failed to resolve use of undeclared crate",
            ),
            (
                "panic: runtime error: index out of range [5] with length 3",
                "index out of range 5 with length 3",
            ),
            (
                "thread 'main' panicked at src/main.rs:4:5:\ncannot open the store",
                "cannot open the store",
            ),
            (
                "src/a.c:3:4: error: expected ';' before return",
                "expected before return",
            ),
            (
                "Working outside of application context.",
                "working outside of application context",
            ),
            (
                "see this:\nwhere is \"no such file here\" printed?",
                "no such file here",
            ),
            (
                "what is this?\n```rust\nlet rest = jar.take(1);\nrest.len()\n```\n",
                "let rest jar take 1 rest len",
            ),
        ] {
            assert_eq!(quoted(text), [message], "{text}");
        }
        for text in [
            "handled errors",
            "KeyError: 'x'",
            "where is this?\na `name` and an \"other\"",
            "",
        ] {
            assert_eq!(quoted(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn the_longest_run_counts_whatever_values_were_filled_in() {
        let quotes = Quotes::of("ValueError: option --colour is not known to parser main");
        let share =
            |text: &str| (quotes.share_in(text) * quotes.all[0].words.len() as f32).round() as u32;
        assert_eq!(
            share("raise ValueError(f\"option {name} is not known to parser {parser}\")"),
            5
        );
        assert_eq!(share("the parser is known"), 0);
        assert_eq!(share("Option --colour is NOT known to parser main!"), 8);
    }

    #[test]
    fn a_question_is_no_quote_of_the_words_that_it_happens_to_share() {
        let quotes = Quotes::of("where is the list of the users of a project sorted by name");
        assert_eq!(quotes.share_in("the list of the files"), 0.0);
        assert_eq!(quotes.share_in("users of a project"), 0.0);
        let part = quotes.share_in("The list of the users of a project, by name");
        assert!(part > 0.0 && part < 0.5, "{part}");
        let most = "where is the list of the users of a project sorted by date";
        assert!(quotes.share_in(most) > 0.8);
    }
}
