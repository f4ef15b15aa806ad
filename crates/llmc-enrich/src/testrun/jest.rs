//! jest: under each `FAIL path` the failures as `● suite › test`, then the counts.

use std::collections::HashSet;

use super::{FailureKind, Framework, TestFailure, TestRun, counted, place, seconds};

pub(super) const MARKERS: &[&str] = &["Tests:", "Test Suites:", "  ● "];

pub(super) fn parse(text: &str) -> Option<TestRun> {
    let mut run = TestRun::new(Framework::Jest);
    let mut path = "";
    let mut open: Option<OpenFailure> = None;
    let mut seen = HashSet::new();
    let (mut suites, mut tests) = (false, false);
    for line in text.lines() {
        if let Some(rest) = line
            .strip_prefix("FAIL ")
            .or_else(|| line.strip_prefix("PASS "))
        {
            close(&mut run, &mut seen, open.take());
            path = rest.split(" (").next().unwrap_or(rest).trim();
            path = path.strip_prefix("./").unwrap_or(path);
        } else if let Some(counts) = line.strip_prefix("Tests:") {
            close(&mut run, &mut seen, open.take());
            tests = true;
            totals(&mut run, counts);
        } else if line.starts_with("Test Suites:") {
            close(&mut run, &mut seen, open.take());
            suites = true;
        } else if let Some(time) = line.strip_prefix("Time:") {
            let time = time.split(',').next().unwrap_or(time);
            run.duration = seconds(time);
        } else if let Some(title) = line.strip_prefix("  ● ") {
            close(&mut run, &mut seen, open.take());
            open = OpenFailure::new(path, title);
        } else if !line.is_empty() && !line.starts_with(' ') {
            close(&mut run, &mut seen, open.take());
        } else if let Some(open) = &mut open {
            open.line(line);
        }
    }
    close(&mut run, &mut seen, open);
    let cut = !run.failures.is_empty() && text.contains("\nFAIL ");
    (suites || tests || cut).then_some(run)
}

struct OpenFailure {
    failure: TestFailure,
    /// Past the message: source code and stack.
    in_stack: bool,
    build: Vec<TestFailure>,
}

impl OpenFailure {
    fn new(path: &str, title: &str) -> Option<Self> {
        // Not failures, though they look like them.
        if path.is_empty()
            || title == "Console"
            || title.ends_with("Warning")
            || title.ends_with("Warning:")
        {
            return None;
        }
        let failure = if title == "Test suite failed to run" {
            TestFailure::new(FailureKind::Error, path)
        } else {
            TestFailure::new(FailureKind::Failed, format!("{path} › {title}"))
        };
        Some(Self {
            failure,
            in_stack: false,
            build: Vec::new(),
        })
    }

    fn line(&mut self, line: &str) {
        let line = line.strip_prefix("    ").unwrap_or(line);
        if let Some(error) = super::tsc::error_line(line) {
            self.build.push(error);
        }
        if let Some(frame) = line.trim_start().strip_prefix("at ") {
            self.in_stack = true;
            let at = frame
                .rsplit_once('(')
                .map_or(frame, |(_, at)| at.trim_end_matches(')'));
            if self.failure.location.is_none()
                && !at.contains("node_modules/")
                && !at.starts_with("node:")
            {
                self.failure.location = place(at);
            }
        } else if is_source(line) {
            self.in_stack = true;
        } else if !self.in_stack {
            if self.failure.assertion.is_none() {
                self.failure.assert(line);
            } else {
                self.failure.add_message(line);
            }
        }
    }
}

/// `> 3 |   expect(…)` and its neighbours.
fn is_source(line: &str) -> bool {
    let line = line.trim_start();
    let line = line.strip_prefix('>').unwrap_or(line).trim_start();
    let line = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.trim_start().starts_with('|')
}

/// Keeps the failure, once: after many suites jest prints them all again.
fn close(run: &mut TestRun, seen: &mut HashSet<String>, open: Option<OpenFailure>) {
    let Some(OpenFailure {
        mut failure, build, ..
    }) = open
    else {
        return;
    };
    while failure.message.last().is_some_and(|line| line.is_empty()) {
        failure.message.pop();
    }
    // A long explanation may come before the words that say what is wrong.
    if failure.kind == FailureKind::Error
        && let Some(at) = failure
            .message
            .iter()
            .position(|line| line.starts_with("SyntaxError: "))
    {
        failure.message.drain(..at);
    }
    if !seen.insert(failure.id.clone()) {
        return;
    }
    if build.is_empty() {
        run.failures.push(failure);
    } else {
        run.failures.extend(build);
    }
}

/// `3 failed, 1 skipped, 1 passed, 5 total`.
fn totals(run: &mut TestRun, counts: &str) {
    for part in counts.split(", ") {
        match counted(part) {
            Some((n, "failed")) => run.failed = n,
            Some((n, "passed")) => run.passed = n,
            Some((n, "skipped" | "todo")) => run.skipped += n,
            _ => {}
        }
    }
}
