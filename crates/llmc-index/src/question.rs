//! A question taken apart: its words, the names in it, and the places that a stack trace names.

use std::collections::{HashMap, HashSet};

use crate::classify;
use crate::passages::{Passage, passages};
use crate::quotes::{self, Quotes};
use crate::stack_trace::{self, TracePlace};
use crate::words::{each_word, folded};

/// A longer question, such as a pasted log, keeps its beginning and its end.
const HEAD_BYTES: usize = 12 << 10;
const TAIL_BYTES: usize = 4 << 10;
/// A word of a log or of a template is no name, unless it is written as one.
const MIN_NAMING_WEIGHT: f32 = 0.5;
/// Sentences behind this say little about the subject.
const MAX_PROSE_BYTES: usize = 1200;
/// Files that a question names.
const MAX_FILES: usize = 8;

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
    /// The different words in order, and how much each counts: by the passage it is in, and by how often.
    pub(crate) words: Vec<(String, f32)>,
    /// Its sentences, the first of them: what a vector is made of.
    pub(crate) prose: String,
    /// Names of files in it, without the lines of a trace.
    pub(crate) files: Vec<String>,
    /// Each word as it was written.
    pub(crate) spelling: HashMap<String, String>,
    /// Pairs of adjacent words, each with a blank between them.
    pub(crate) pairs: HashSet<String>,
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
        // The sum of the weights of the passages that have a word, and the largest of them.
        let mut counts: HashMap<String, (f32, f32)> = HashMap::new();
        let stop_words = stop_words();
        let mut last: Option<String> = None;
        let mut passages = passages(&text, quotes::has_message);
        let has_text = |passage: &Passage| passage.text.contains(char::is_alphanumeric);
        // A comment of a template or an address alone is what is asked for.
        if !passages.iter().any(has_text) {
            passages.push(Passage {
                text: text.clone(),
                weight: 1.0,
                is_prose: true,
            });
        }
        question.files = files_named(&passages);
        question.prose = prose(&passages);
        let runs = passages.iter().flat_map(|passage| {
            let runs = passage
                .text
                .split(|c: char| !(c.is_alphanumeric() || c == '_'));
            runs.map(|run| (passage.weight, run))
        });
        for (weight, run) in runs {
            if run.is_empty() {
                continue;
            }
            let whole = folded(run);
            if is_name(run) {
                question.names.insert(whole.clone());
            }
            if weight >= MIN_NAMING_WEIGHT {
                question.plain.insert(whole);
            }
            each_word(run, |word| {
                let stops = stop_words.contains(word);
                if !stops && let Some(last) = last.take() {
                    question.pairs.insert(format!("{last} {word}"));
                }
                if !stops {
                    last = Some(word.to_owned());
                }
                let (sum, most) = counts.entry(word.to_owned()).or_default();
                if *sum == 0.0 {
                    order.push(word.to_owned());
                    question.spelling.insert(word.to_owned(), run.to_owned());
                }
                *sum += weight;
                *most = most.max(weight);
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
                let (sum, most) = counts.get(&word).copied().unwrap_or((1.0, 1.0));
                (word, most * (1.0 + (sum / most).ln()))
            })
            .collect();
        let is_test = |(word, _): &(String, f32)| matches!(word.as_str(), "test" | "spec");
        question.about_tests = question.words.iter().any(is_test);
        question.text = text;
        (!question.words.is_empty()).then_some(question)
    }
}

/// The sentences of a question, up to [`MAX_PROSE_BYTES`]; its whole text where it has none.
fn prose(passages: &[Passage]) -> String {
    let any_prose = passages.iter().any(|passage| passage.is_prose);
    let mut prose = String::new();
    for passage in passages {
        if !any_prose || passage.is_prose {
            prose.push_str(&passage.text);
            prose.push('\n');
        }
        if prose.len() >= MAX_PROSE_BYTES {
            break;
        }
    }
    prose.truncate(prose.floor_char_boundary(MAX_PROSE_BYTES));
    prose
}

/// Paths and names of source files in a question.
fn files_named(passages: &[Passage]) -> Vec<String> {
    let is_path = |c: char| c.is_alphanumeric() || "/\\._-+@".contains(c);
    let mut files: Vec<String> = Vec::new();
    for passage in passages {
        for word in passage.text.split(|c| !is_path(c)) {
            let word = word.trim_matches(['.', '-', '/']).replace('\\', "/");
            let name = classify::file_name(&word);
            let known = llmc_syntax::Language::of_path(name).is_some();
            if known && name.len() > 3 && files.len() < MAX_FILES && !files.contains(&word) {
                files.push(word);
            }
        }
    }
    files
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
        let address = Question::new("https://example.org/multiplication").expect("words");
        assert!(address.plain.contains("multiplication"));
        let long = "lorem ipsum ".repeat(20_000);
        assert!(Question::new(&long).expect("words").text.len() <= HEAD_BYTES + TAIL_BYTES + 1);
    }
}
