//! TAP, the Test Anything Protocol, as `node --test`, tape, Perl's Test::More and bats print it.
//!
//! One line per test, `ok 1 - name` or `not ok 2 - name`; under a failed one a block of YAML, or comments. Subtests are
//! indented by four spaces and stand before the test that holds them.

use std::collections::VecDeque;

use super::node_error::{NodeError, NodeTotals, reason, test_place};
use super::{FailureKind, Framework, TestFailure, TestRun, place};

pub(super) const MARKERS: &[&str] = &["TAP version ", "# duration_ms ", "ok 1", "not ok "];

/// Comments kept of what a test printed.
const MAX_COMMENTS: usize = 40;
/// Lines kept of one block of YAML.
const MAX_YAML_LINES: usize = 200;
/// Subtests deeper than this are read as if they were at this depth.
const MAX_DEPTH: usize = 64;

pub(super) fn parse(text: &str) -> Option<TestRun> {
    let mut reader = TapReader::default();
    for line in text.lines() {
        reader.line(line);
    }
    reader.finish()
}

#[derive(Default)]
struct TapReader<'a> {
    has_version: bool,
    planned: Option<u64>,
    /// Test points at the outermost level.
    outermost: u64,
    passed: u64,
    skipped: u64,
    /// The names of the subtests that are open, outermost first.
    open_subtests: Vec<&'a str>,
    /// What is known of the tests below each depth.
    below: Vec<TestsBelow>,
    open: Option<OpenPoint<'a>>,
    /// What was printed since the last test point.
    comments: VecDeque<&'a str>,
    /// The last comment that may be a title: tape prints one above the assertions of a test.
    title: Option<&'a str>,
    failures: Vec<TestFailure>,
    totals: NodeTotals,
    /// Whether a block of YAML is one of Node.js.
    is_node: bool,
}

#[derive(Default, Clone, Copy)]
struct TestsBelow {
    any: bool,
    failed: bool,
}

/// A failed test whose details are being read.
struct OpenPoint<'a> {
    indent: usize,
    parents: Vec<&'a str>,
    name: &'a str,
    below: TestsBelow,
    yaml: Vec<(&'a str, Vec<&'a str>)>,
    yaml_lines: usize,
    in_yaml: bool,
    /// Comments under it, where there is no YAML.
    diagnostics: Vec<&'a str>,
    /// Comments above it.
    printed: VecDeque<&'a str>,
    title: Option<&'a str>,
}

impl<'a> TapReader<'a> {
    fn line(&mut self, line: &'a str) {
        let text = line.trim_start_matches(' ');
        let indent = line.len() - text.len();
        if let Some(open) = &mut self.open {
            if open.in_yaml && (indent > open.indent || text.is_empty()) {
                return open.yaml_line(text, indent, line);
            }
            open.in_yaml = false;
            if text == "---" && indent > open.indent {
                open.in_yaml = true;
                return;
            }
        }
        let depth = (indent / 4).min(MAX_DEPTH);
        if let Some(comment) = text.strip_prefix('#') {
            self.comment(comment, depth);
        } else if let Some(point) = TestPoint::of(text) {
            self.point(&point, indent, depth);
        } else if indent > 0 {
        } else if text.starts_with("TAP version ") {
            self.has_version = true;
        } else if let Some(count) = text.strip_prefix("1..") {
            let count = count.split(' ').next().unwrap_or(count);
            if let Ok(count) = count.parse::<u64>() {
                self.planned = Some(self.planned.unwrap_or(0).saturating_add(count));
            }
        } else if text.starts_with("Bail out!") {
            self.close();
            self.failures
                .push(TestFailure::new(FailureKind::Error, text));
        }
    }

    fn comment(&mut self, comment: &'a str, depth: usize) {
        if let Some(name) = comment.strip_prefix(" Subtest: ") {
            self.close();
            self.open_subtests.truncate(depth);
            self.open_subtests.push(name);
            return;
        }
        if depth == 0 {
            self.totals.line(comment.trim_start());
        }
        if let Some(open) = &mut self.open
            && open.yaml.is_empty()
            && !comment.starts_with(" Looks like you ")
        {
            if open.diagnostics.len() < MAX_COMMENTS {
                open.diagnostics.push(comment);
            }
            return;
        }
        if self.comments.len() == MAX_COMMENTS {
            self.comments.pop_front();
        }
        self.comments
            .push_back(comment.strip_prefix(' ').unwrap_or(comment));
        self.title = Some(comment.trim());
    }

    fn point(&mut self, point: &TestPoint<'a>, indent: usize, depth: usize) {
        self.close();
        self.open_subtests.truncate(depth);
        let below = self.below.get(depth).copied().unwrap_or_default();
        self.below.truncate(depth);
        self.below.resize(depth, TestsBelow::default());
        let is_failed = !point.ok && !point.is_excused;
        if let Some(parent) = self.below.last_mut() {
            parent.any = true;
            parent.failed |= is_failed;
        }
        self.outermost += u64::from(depth == 0);
        let printed = std::mem::take(&mut self.comments);
        match is_failed {
            true => {
                self.open = Some(OpenPoint {
                    indent,
                    parents: self.open_subtests.clone(),
                    name: point.name,
                    below,
                    yaml: Vec::new(),
                    yaml_lines: 0,
                    in_yaml: false,
                    diagnostics: Vec::new(),
                    printed,
                    title: self.title,
                });
            }
            false if below.any => {}
            false if point.is_excused => self.skipped += 1,
            false => self.passed += 1,
        }
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        self.is_node |= open.value("failureType").is_some();
        self.failures.extend(open.failure());
    }

    fn finish(mut self) -> Option<TestRun> {
        self.close();
        let is_node = self.totals.is_whole() || self.is_node;
        let is_tap = (self.has_version || self.planned.is_some())
            && (self.outermost > 0 || !self.failures.is_empty());
        let known = self.totals.is_whole() || is_tap || (is_node && !self.failures.is_empty());
        if !known {
            return None;
        }
        let mut run = TestRun::new(match is_node {
            true => Framework::Node,
            false => Framework::Tap,
        });
        run.failures = self.failures;
        if self.totals.is_whole() {
            self.totals.count(&mut run);
            return Some(run);
        }
        (run.passed, run.skipped) = (self.passed, self.skipped);
        match self.planned {
            _ if is_node => run
                .notes
                .push("the summary is missing: counts are of what the output shows".into()),
            Some(planned) if planned > self.outermost => run.notes.push(format!(
                "{} of {planned} planned tests did not report",
                planned - self.outermost
            )),
            _ => {}
        }
        Some(run)
    }
}

/// `not ok 2 - name # SKIP reason`.
struct TestPoint<'a> {
    ok: bool,
    name: &'a str,
    /// Skipped, or known not to work yet.
    is_excused: bool,
}

impl<'a> TestPoint<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let (ok, rest) = match text.strip_prefix("not ok ") {
            Some(rest) => (false, rest),
            None => (true, text.strip_prefix("ok ")?),
        };
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let rest = &rest[digits..];
        if digits == 0 || !(rest.is_empty() || rest.starts_with(' ')) {
            return None;
        }
        let rest = rest.trim_start();
        let rest = rest.strip_prefix("- ").unwrap_or(rest);
        // A `#` of the name itself is escaped.
        let directive = rest
            .match_indices("# ")
            .find(|(at, _)| *at == 0 || rest[..*at].ends_with(' '));
        let (name, directive) = match directive {
            Some((at, _)) => (&rest[..at], rest[at + 2..].trim_start()),
            None => (rest, ""),
        };
        let is = |word: &str| {
            directive
                .get(..word.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(word))
        };
        Some(Self {
            ok,
            name: name.trim(),
            is_excused: is("SKIP") || is("TODO"),
        })
    }
}

impl<'a> OpenPoint<'a> {
    fn yaml_line(&mut self, text: &'a str, indent: usize, line: &'a str) {
        let base = self.indent + 2;
        if text == "..." && indent <= base + 2 {
            self.in_yaml = false;
            return;
        }
        self.yaml_lines += 1;
        if self.yaml_lines > MAX_YAML_LINES {
            return;
        }
        // Node.js indents keys by two spaces, tape by four.
        let is_key = self.yaml.is_empty() || indent <= self.key_indent();
        match text.split_once(':').filter(|_| is_key && !text.is_empty()) {
            Some((key, value)) => {
                let value = value.trim();
                let inline = !value.is_empty() && !matches!(value, "|-" | "|" | ">-" | ">" | "~");
                self.yaml.push((
                    &line[..indent + key.len()],
                    inline.then_some(value).into_iter().collect(),
                ));
            }
            None => {
                if let Some((_, lines)) = self.yaml.last_mut() {
                    lines.push(line);
                }
            }
        }
    }

    fn key_indent(&self) -> usize {
        self.yaml
            .first()
            .map_or(0, |(key, _)| key.len() - key.trim_start_matches(' ').len())
    }

    /// The lines of a value, as far to the left as they go.
    fn value(&self, key: &str) -> Option<Vec<&'a str>> {
        let (_, lines) = self
            .yaml
            .iter()
            .find(|(name, _)| name.trim_start() == key)?;
        let indent = |line: &&str| line.len() - line.trim_start_matches(' ').len();
        let least = lines
            .iter()
            .filter(|line| !line.trim().is_empty())
            .map(indent)
            .min();
        let least = least.unwrap_or(0);
        Some(
            lines
                .iter()
                .map(|line| line.get(least..).unwrap_or(""))
                .collect(),
        )
    }

    /// A value of one line without its quotes.
    fn word(&self, key: &str) -> Option<&'a str> {
        self.value(key)?.first().map(|value| unquoted(value))
    }

    fn failure(self) -> Option<TestFailure> {
        let is_parent = self.below.failed;
        // What failed stands below; Node.js counts tests that hold others, and no suites.
        if is_parent && (self.word("failureType").is_none() || self.word("type") == Some("suite")) {
            return None;
        }
        let is_file = self.value("exitCode").is_some() && !is_parent;
        let kind = match is_file {
            true => FailureKind::Error,
            false => FailureKind::Failed,
        };
        let mut names: Vec<&str> = self.parents.clone();
        // tape names assertions alike and puts the name of their test above them.
        if names.is_empty()
            && self.value("operator").is_some()
            && self.value("failureType").is_none()
        {
            names.extend(self.title);
        }
        names.push(match self.name.is_empty() {
            true => "test without a name",
            false => self.name,
        });
        let names: Vec<String> = names.into_iter().map(unescaped).collect();
        let mut failure = TestFailure::new(kind, names.join(" > "));
        if self.yaml.is_empty() {
            self.read_diagnostics(&mut failure);
        } else {
            self.error(is_file).describe(&mut failure);
        }
        Some(failure)
    }

    fn error(&self, is_file: bool) -> NodeError<'a> {
        let said = self.value("error").or_else(|| self.value("message"));
        let mut message: Vec<String> = said
            .unwrap_or_default()
            .into_iter()
            .map(|line| unquoted(line).to_owned())
            .collect();
        if is_file {
            let reason = reason(self.printed.iter().copied());
            if !reason.is_empty() {
                message = reason;
            }
        }
        if let (Some(name), Some(first)) = (self.word("name"), message.first_mut())
            && !first.starts_with(name)
        {
            *first = format!("{name}: {first}");
        }
        let says_values = message
            .iter()
            .any(|line| line.contains("Expected ") || line.contains("actual - expected"));
        let mut compared = Vec::new();
        for key in ["operator", "expected", "actual"] {
            if let Some(lines) = self.value(key).filter(|_| !says_values) {
                let mut lines = lines.into_iter();
                let first = lines.next().map(unquoted).unwrap_or_default();
                compared.push(format!("{key}: {first}"));
                compared.extend(lines.map(|line| format!("  {line}")));
            }
        }
        let stack = self.value("stack").unwrap_or_default();
        let mut frames: Vec<&str> = stack.iter().map(|line| frame_text(line)).collect();
        frames.extend(self.word("at").filter(|_| stack.is_empty()));
        let place = self.word("location").and_then(test_place);
        let called = self.word("at").and_then(|at| {
            let at = at.rsplit_once('(').map_or(at, |(_, at)| at);
            test_place(at.trim_end_matches(')'))
        });
        NodeError {
            message,
            frames,
            compared,
            test_place: place.or(called),
        }
    }

    /// Comments under a failed test: `#   at t/a.t line 5.`, or `# (in test file a.bats, line 5)`.
    fn read_diagnostics(&self, failure: &mut TestFailure) {
        for comment in &self.diagnostics {
            let line = comment.trim();
            if failure.location.is_none() {
                failure.location = perl_place(line);
            }
            let is_title = line.starts_with("Failed test");
            if !is_title && perl_place(line).is_none() {
                failure.add_message(comment.strip_prefix(' ').unwrap_or(comment));
            }
        }
    }
}

/// A line of a stack, with or without the `at` in front.
fn frame_text(line: &str) -> &str {
    let line = line.trim();
    line.strip_prefix("at ").unwrap_or(line)
}

fn perl_place(line: &str) -> Option<String> {
    let (path, rest) = match line.strip_prefix("at ") {
        Some(rest) => rest.rsplit_once(" line ")?,
        None => line
            .strip_prefix("(in test file ")
            .or_else(|| line.strip_prefix("(from function "))?
            .rsplit_once(", line ")?,
    };
    let path = path
        .rsplit_once("in test file ")
        .map_or(path, |(_, path)| path);
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    place(&format!("{path}:{}", &rest[..digits]))
}

fn unquoted(value: &str) -> &str {
    for quote in ['\'', '"'] {
        if value.len() > 1
            && let Some(inner) = value
                .strip_prefix(quote)
                .and_then(|v| v.strip_suffix(quote))
        {
            return inner;
        }
    }
    value
}

/// A name as it was written in the test.
fn unescaped(name: &str) -> String {
    name.replace("\\#", "#").replace("\\\\", "\\")
}
