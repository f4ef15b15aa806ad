//! A question taken apart: its words, the names in it, and the places that a stack trace names.

use std::collections::{HashMap, HashSet};

use crate::quotes::Quotes;
use crate::stack_trace::{self, TracePlace};
use crate::words::{each_word, folded};

/// A longer question, such as a pasted log, keeps its beginning and its end.
const HEAD_BYTES: usize = 12 << 10;
const TAIL_BYTES: usize = 4 << 10;

const STOP_WORDS: &[&str] = &[
    "the", "an", "of", "to", "in", "is", "it", "for", "on", "with", "as", "by", "at", "be", "or",
    "and", "that", "this", "are", "was", "how", "what", "where", "which", "who", "why", "when",
    "does", "do", "did", "can", "could", "should", "would", "will", "we", "you", "my", "our",
    "your", "its", "there", "from", "into", "has", "have", "had", "if", "then", "than", "so",
    "not", "no", "any", "all", "me", "us", "find", "show", "code", "function", "please",
];

/// Whether a word in lower case says nothing about the subject.
pub(crate) fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.contains(&word)
}

#[derive(Debug, Default)]
pub(crate) struct Question {
    /// As asked, clipped.
    pub(crate) text: String,
    /// The different words in order, with their counts.
    pub(crate) words: Vec<(String, usize)>,
    /// Each word as it was written.
    pub(crate) spelling: HashMap<String, String>,
    /// Pairs of adjacent words.
    pub(crate) pairs: HashSet<(String, String)>,
    /// Names in code (`parse_header`, `HttpServer`, `Pool::open`), folded.
    pub(crate) names: HashSet<String>,
    /// Every bare word, folded: a name may be one plain word.
    pub(crate) plain: HashSet<String>,
    /// Files and lines that a stack trace or an error message names, the innermost first.
    pub(crate) places: Vec<TracePlace>,
    /// Error messages and quoted texts.
    pub(crate) quotes: Quotes,
    /// Words that only say what kind of error was raised.
    pub(crate) error_kinds: HashSet<String>,
    /// Whether it asks about tests.
    pub(crate) about_tests: bool,
}

impl Question {
    /// `None` if there is no word in the text.
    pub(crate) fn new(asked: &str) -> Option<Self> {
        let text = clipped(asked);
        let mut question = Question {
            places: stack_trace::places(&text),
            quotes: Quotes::of(&text),
            ..Question::default()
        };
        let mut order: Vec<String> = Vec::new();
        let mut counts: HashMap<String, usize> = HashMap::new();
        let stop_words = stop_words();
        let mut last: Option<String> = None;
        for run in text.split(|c: char| !(c.is_alphanumeric() || c == '_')) {
            if run.is_empty() {
                continue;
            }
            let whole = folded(run);
            if is_name(run) {
                question.names.insert(whole.clone());
            }
            question.plain.insert(whole);
            each_word(run, |word| {
                let stops = stop_words.contains(word);
                if !stops && let Some(last) = last.take() {
                    question.pairs.insert((last, word.to_owned()));
                }
                if !stops {
                    last = Some(word.to_owned());
                }
                let count = counts.entry(word.to_owned()).or_default();
                if *count == 0 {
                    order.push(word.to_owned());
                    question.spelling.insert(word.to_owned(), run.to_owned());
                }
                *count += 1;
            });
        }
        for kind in &question.quotes.error_kinds {
            each_word(kind, |word| {
                question.error_kinds.insert(word.to_owned());
            });
        }
        let has_content = order.iter().any(|word| !stop_words.contains(word.as_str()));
        question.words = order
            .into_iter()
            .filter(|word| !has_content || !stop_words.contains(word.as_str()))
            .map(|word| {
                let count = counts.get(&word).copied().unwrap_or(1);
                (word, count)
            })
            .collect();
        let is_test = |(word, _): &(String, usize)| matches!(word.as_str(), "test" | "spec");
        question.about_tests = question.words.iter().any(is_test);
        question.text = text;
        (!question.words.is_empty()).then_some(question)
    }
}

/// Stop words after splitting and stemming.
fn stop_words() -> HashSet<String> {
    let mut all = HashSet::new();
    for word in STOP_WORDS {
        each_word(word, |word| {
            all.insert(word.to_owned());
        });
    }
    all
}

fn clipped(asked: &str) -> String {
    if asked.len() <= HEAD_BYTES + TAIL_BYTES {
        return asked.to_owned();
    }
    let head = asked.floor_char_boundary(HEAD_BYTES);
    let tail = asked.ceil_char_boundary(asked.len() - TAIL_BYTES);
    format!("{}\n{}", &asked[..head], &asked[tail..])
}

/// Whether a run of letters is a name rather than a word of a sentence.
fn is_name(run: &str) -> bool {
    let inner = run.trim_matches('_');
    let mut chars = inner.chars();
    let first = chars.next();
    inner.contains('_')
        || inner != run
        || first.is_some() && chars.clone().any(char::is_uppercase) && chars.any(char::is_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_words() {
        let question = Question::new("where does HttpServer call parse_header for the request?");
        let question = question.expect("has words");
        assert!(question.names.contains("httpserver") && question.names.contains("parseheader"));
        assert!(!question.names.contains("where") && !question.names.contains("request"));
        let words: Vec<&str> = question
            .words
            .iter()
            .map(|(word, _)| word.as_str())
            .collect();
        assert_eq!(
            words,
            [
                "http",
                "server",
                "httpserver",
                "call",
                "pars",
                "header",
                "parseheader",
                "request"
            ]
        );
    }

    #[test]
    fn questions_without_words() {
        for text in ["", "   ", "?!", "\u{0}\u{1}", "a"] {
            assert!(Question::new(text).is_none(), "{text:?}");
        }
        assert!(
            Question::new("the").is_some(),
            "a stop word alone is what is asked for"
        );
        let long = "lorem ipsum ".repeat(20_000);
        assert!(Question::new(&long).expect("words").text.len() <= HEAD_BYTES + TAIL_BYTES + 1);
    }
}
