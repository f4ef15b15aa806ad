//! Test runs: counts first, then every failure.
//!
//! A test run prints pages about what went well. What its reader needs is how many tests failed, which, where, on what
//! assertion and with what message; and that no failure is missing without being counted. [`parse`] reads the output of
//! the usual runners into one [`TestRun`], [`condense`] prints that within a budget.
//!
//! Numbers come from the runner's own summary where there is one. When the output was cut and shows fewer failures than
//! the summary counts, the difference is counted and reported.

mod cargo;
mod go;
mod jest;
mod mocha;
mod nextest;
mod node_error;
mod node_spec;
mod pytest;
mod report;
mod same_error;
mod tap;
#[cfg(test)]
mod tests;
mod tsc;
mod unittest;
mod vitest;

use std::collections::HashMap;
use std::time::Duration;

use crate::budget::{clip, names, plural, share, thousands, within, write_block};
use crate::terminal::settled;
use crate::{Condensed, Totals};

pub use report::{ReportedTest, TestOutcome, TestReport};
pub(crate) use same_error::{FailureGroup, groups};

/// Lines kept of one failure's message.
const MAX_MESSAGE_LINES: usize = 40;
/// Bytes kept of one line.
const MAX_LINE_BYTES: usize = 400;
/// The share of a budget that the names of failures with one error may take.
pub(crate) const SAME_ERROR_SHARE: usize = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framework {
    Pytest,
    Unittest,
    /// `cargo test`, or a cargo build that did not get that far.
    Cargo,
    Nextest,
    Go,
    Jest,
    Vitest,
    Mocha,
    /// `node --test`, whichever way it reports.
    Node,
    /// The Test Anything Protocol of any other program.
    Tap,
    /// The TypeScript compiler on its own.
    Tsc,
}

impl Framework {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pytest => "pytest",
            Self::Unittest => "unittest",
            Self::Cargo => "cargo test",
            Self::Nextest => "cargo nextest",
            Self::Go => "go test",
            Self::Jest => "jest",
            Self::Vitest => "vitest",
            Self::Mocha => "mocha",
            Self::Node => "node --test",
            Self::Tap => "TAP",
            Self::Tsc => "tsc",
        }
    }

    /// Whether its last lines count everything that ran; cargo and go count each part on its own.
    pub(crate) fn has_one_summary(self) -> bool {
        !matches!(self, Self::Cargo | Self::Go | Self::Tsc)
    }

    /// Whether a program of this name prints it.
    pub(crate) fn is_run_by(self, program: &str) -> bool {
        match self {
            Self::Pytest => program == "pytest",
            Self::Unittest => program == "unittest",
            Self::Cargo | Self::Nextest => program == "cargo",
            Self::Go => program == "go",
            Self::Jest => matches!(program, "jest" | "npm"),
            Self::Vitest => matches!(program, "vitest" | "npm"),
            Self::Mocha => matches!(program, "mocha" | "npm"),
            Self::Node | Self::Tap => matches!(program, "node" | "tap" | "npm"),
            Self::Tsc => matches!(program, "tsc" | "npm"),
        }
    }
}

/// What went wrong, in the order in which it is worth reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureKind {
    /// The code did not compile.
    Build,
    /// A test could not run: collection, setup, teardown, a crash.
    Error,
    /// A test ran and failed.
    Failed,
}

impl FailureKind {
    fn label(self) -> &'static str {
        match self {
            Self::Build => "BUILD",
            Self::Error => "ERROR",
            Self::Failed => "FAIL",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestFailure {
    /// What the runner calls the test; for a compile error the compiler's message.
    pub id: String,
    /// `path:line`, where the failure was raised.
    pub location: Option<String>,
    /// The assertion that failed: its source line where the runner prints it, else the runner's words for it.
    pub assertion: Option<String>,
    /// The message, most telling lines first; bounded.
    pub message: Vec<String>,
    /// Lines of the message that were too many to keep.
    pub dropped: usize,
    pub kind: FailureKind,
}

impl TestFailure {
    fn new(kind: FailureKind, id: impl AsRef<str>) -> Self {
        Self {
            id: clip(id.as_ref().trim(), MAX_LINE_BYTES).into_owned(),
            location: None,
            assertion: None,
            message: Vec::new(),
            dropped: 0,
            kind,
        }
    }

    /// Adds a line to the message, or counts it when there are enough. Blank lines say nothing.
    fn add_message(&mut self, line: &str) {
        let line = line.trim_end();
        if line.is_empty() {
            return;
        }
        if self.message.len() < MAX_MESSAGE_LINES {
            self.message.push(clip(line, MAX_LINE_BYTES).into_owned());
        } else {
            self.dropped += 1;
        }
    }

    fn assert(&mut self, line: &str) {
        let line = line.trim();
        if !line.is_empty() {
            self.assertion = Some(clip(line, MAX_LINE_BYTES).into_owned());
        }
    }
}

/// The result of a test run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestRun {
    pub framework: Framework,
    pub passed: u64,
    pub failed: u64,
    /// Compile errors and tests that could not run.
    pub errors: u64,
    /// Tests that were left out on purpose.
    pub skipped: u64,
    /// As the runner reports it.
    pub duration: Option<Duration>,
    /// Everything that went wrong, compile errors first.
    pub failures: Vec<TestFailure>,
    /// Further remarks, one line each.
    pub notes: Vec<String>,
    /// The tests by name, where the runner names them all.
    pub ran: Vec<String>,
}

impl TestRun {
    fn new(framework: Framework) -> Self {
        Self {
            framework,
            passed: 0,
            failed: 0,
            errors: 0,
            skipped: 0,
            duration: None,
            failures: Vec::new(),
            notes: Vec::new(),
            ran: Vec::new(),
        }
    }

    /// A run without tests, by the runner of another one.
    pub fn empty_like(other: Option<&TestRun>) -> Self {
        Self::new(other.map_or(Framework::Pytest, |other| other.framework))
    }

    /// All that went wrong, whether the output has details of it or not.
    pub fn wrong(&self) -> u64 {
        self.failed + self.errors
    }

    /// Puts compile errors first and makes the counts at least what was found.
    fn finish(mut self) -> Self {
        self.failures.sort_by_key(|failure| failure.kind);
        let failed = self
            .failures
            .iter()
            .filter(|f| f.kind == FailureKind::Failed);
        let failed = failed.count() as u64;
        self.failed = self.failed.max(failed);
        self.errors = self.errors.max(self.failures.len() as u64 - failed);
        self
    }
}

type Parser = fn(&str) -> Option<TestRun>;

/// The parsers, each with the markers of which a text must contain one to be parsed at all.
///
/// The more particular formats come first: nextest quotes what libtest prints, and any runner may print a plain summary.
const PARSERS: &[(&[&str], Parser)] = &[
    (go::JSON_MARKERS, go::parse_json),
    (nextest::MARKERS, nextest::parse),
    (pytest::MARKERS, pytest::parse),
    (cargo::MARKERS, cargo::parse),
    (vitest::MARKERS, vitest::parse),
    (jest::MARKERS, jest::parse),
    (node_spec::MARKERS, node_spec::parse),
    (mocha::MARKERS, mocha::parse),
    (tap::MARKERS, tap::parse),
    (unittest::MARKERS, unittest::parse),
    (go::MARKERS, go::parse),
    (tsc::MARKERS, tsc::parse),
];

/// Parses the output of a test runner; `None` when it is none.
///
/// Takes stdout and stderr together, in any order, coloured or not, and cut anywhere.
pub fn parse(text: &str) -> Option<TestRun> {
    let text = settled(text);
    let text = text.as_ref();
    PARSERS
        .iter()
        .filter(|(markers, _)| contains_any(text, markers))
        .find_map(|(_, parse)| parse(text))
        .map(TestRun::finish)
}

/// Prints a run within `budget` tokens: the counts, then every failure, shortened evenly when room is short.
///
/// Failures that find no room are named, or at least counted. `raw_len` is the size of the output in bytes.
pub fn condense(run: &TestRun, raw_len: u64, budget: usize) -> Condensed {
    within(budget, |tokens| render(run, raw_len, tokens))
}

fn render(run: &TestRun, raw_len: u64, tokens: usize) -> Condensed {
    let mut body = counts(run);
    body.push('\n');
    let mut breadcrumbs = Vec::new();
    for note in &run.notes {
        breadcrumbs.push(note.clone());
    }
    let undetailed = run.wrong().saturating_sub(run.failures.len() as u64);
    if undetailed > 0 {
        let what = plural(undetailed, "failure");
        breadcrumbs.push(format!(
            "{what} counted by the runner, but not in its output"
        ));
    }
    let fixed = crate::budget::cost(&body)
        + breadcrumbs
            .iter()
            .map(|crumb| crate::budget::crumb_cost(crumb))
            .sum::<usize>();
    let room = tokens.saturating_sub(fixed);
    let groups = groups(&run.failures);
    // A first line takes a good ten tokens: more failures than this cannot be shown, so they need not be prepared.
    let prepared = groups.len().min(room / 4);
    let blocks: Vec<_> = groups[..prepared]
        .iter()
        .map(|group| group.block(tokens / SAME_ERROR_SHARE))
        .collect();
    let mut shares = share(&blocks, room);
    if shares.blocks() < groups.len() {
        let for_names = (room / 5).max(24).min(room);
        shares = share(&blocks, room - for_names);
        let rest = &groups[shares.blocks()..];
        let rest: Vec<&str> = rest.iter().flat_map(FailureGroup::ids).collect();
        let what = plural(rest.len() as u64, "more failure");
        let list = names(&rest, for_names.saturating_sub(12) + shares.left);
        breadcrumbs.insert(
            0,
            if list == thousands(rest.len() as u64) {
                what
            } else {
                format!("{what}: {list}")
            },
        );
    }
    let shown = groups[..shares.blocks()].iter().map(FailureGroup::len);
    let shown: usize = shown.sum();
    for (block, lines) in blocks.iter().zip(&shares.lines) {
        write_block(&mut body, block, *lines);
    }
    Condensed {
        truncated: raw_len > body.len() as u64,
        body,
        breadcrumbs,
        totals: Totals {
            matches: Some(run.wrong()),
            size: Some(raw_len),
            ..Totals::default()
        },
        shown: shown as u64,
        hot_zone: hot_zone(run),
        gap: None,
    }
}

/// `pytest: 5 failed, 2 errors, 40 passed, 1 skipped in 0.04s`.
fn counts(run: &TestRun) -> String {
    let mut parts = Vec::new();
    if run.failed > 0 {
        parts.push(format!("{} failed", thousands(run.failed)));
    }
    if run.errors > 0 {
        parts.push(plural(run.errors, "error"));
    }
    if run.passed > 0 || run.wrong() == 0 {
        parts.push(format!("{} passed", thousands(run.passed)));
    }
    if run.skipped > 0 {
        parts.push(format!("{} skipped", thousands(run.skipped)));
    }
    let mut line = format!("{}: {}", run.framework.name(), parts.join(", "));
    if let Some(duration) = run.duration {
        line.push_str(&format!(" in {:.2}s", duration.as_secs_f64()));
    }
    line
}

/// The file with the most failed tests, when there is more than one in it.
fn hot_zone(run: &TestRun) -> Option<String> {
    let mut by_path: HashMap<&str, usize> = HashMap::new();
    for path in run
        .failures
        .iter()
        .filter_map(|f| test_file(run.framework, f))
    {
        *by_path.entry(path).or_default() += 1;
    }
    let (path, count) = by_path
        .into_iter()
        .max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(a.0)))?;
    (count > 1).then(|| path.to_owned())
}

/// The file of a test, which its id names for some runners; else where it failed.
fn test_file(framework: Framework, failure: &TestFailure) -> Option<&str> {
    let separator = match framework {
        Framework::Pytest => "::",
        Framework::Jest => " › ",
        Framework::Vitest => " > ",
        _ => "",
    };
    match failure.id.split_once(separator) {
        Some((path, _)) if !separator.is_empty() => Some(path),
        _ => failure
            .location
            .as_deref()?
            .rsplit_once(':')
            .map(|(path, _)| path),
    }
}

fn contains_any(text: &str, words: &[&str]) -> bool {
    let text = text.as_bytes();
    words
        .iter()
        .any(|word| memchr::memmem::find(text, word.as_bytes()).is_some())
}

/// `path:12:5` or `path:12` as `path:12`; nothing when there is no line number.
fn place(text: &str) -> Option<String> {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let (front, last) = text.rsplit_once(':')?;
    if !number(last) {
        return None;
    }
    match front.rsplit_once(':') {
        Some((path, line)) if number(line) && !path.is_empty() => Some(format!("{path}:{line}")),
        _ if !front.is_empty() => Some(format!("{front}:{last}")),
        _ => None,
    }
}

/// The number in front of a word: `3 failed` is `(3, "failed")`.
fn counted(part: &str) -> Option<(u64, &str)> {
    let (number, word) = part.trim().split_once(' ')?;
    Some((number.parse().ok()?, word.trim()))
}

/// Seconds as runners print them: `0.04s`, `505ms`, `1.2 s`.
fn seconds(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, scale) = match text.strip_suffix("ms") {
        Some(number) => (number, 1000.0),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let value: f64 = number.trim().parse().ok()?;
    Duration::try_from_secs_f64(value / scale).ok()
}
