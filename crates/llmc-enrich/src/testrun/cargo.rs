//! `cargo test`: what rustc and libtest print.
//!
//! libtest writes to stdout and cargo to stderr, so the `Running …` lines may be far from the tests they announce; each
//! `running 7 tests` therefore opens a scope of its own, and equal names in two of them are two tests.

use std::collections::{HashMap, VecDeque};

use super::{FailureKind, Framework, TestFailure, TestRun, counted, place, seconds};

/// Lines of a test's own output kept with its failure.
const MAX_OUTPUT_LINES: usize = 8;

pub(super) const MARKERS: &[&str] = &[
    "test result: ",
    "running ",
    "error[",
    "error: ",
    "stdout ----",
    ": error",
];

pub(super) fn parse(text: &str) -> Option<TestRun> {
    let mut reader = CargoReader::default();
    for line in text.lines() {
        reader.line(line);
    }
    reader.finish()
}

#[derive(Default)]
struct CargoReader<'a> {
    state: CargoState,
    /// Which `running 7 tests` this is.
    scope: usize,
    failures: Vec<TestFailure>,
    known: HashMap<(usize, &'a str), usize>,
    block: Option<(&'a str, Output<'a>)>,
    /// What stands outside all blocks: panics, with `--nocapture`.
    loose: Output<'a>,
    compile: Compile,
    crashes: Vec<TestFailure>,
    results: u64,
    ok_lines: u64,
    ignored_lines: u64,
    /// The names of all tests, without the lines of doctests, which shift.
    ran: Vec<&'a str>,
    passed: u64,
    failed: u64,
    skipped: u64,
    duration: Option<std::time::Duration>,
}

#[derive(Default, PartialEq)]
enum CargoState {
    #[default]
    Tests,
    LineBlock,
    List,
}

impl<'a> CargoReader<'a> {
    fn line(&mut self, line: &'a str) {
        if let Some(id) = line
            .strip_prefix("---- ")
            .and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            self.close();
            self.block = Some((id, Output::default()));
            self.state = CargoState::LineBlock;
            return;
        }
        if line == "failures:" {
            self.close();
            self.state = CargoState::List;
            return;
        }
        if let Some(rest) = line.strip_prefix("test result: ") {
            self.close();
            self.result(rest);
            return;
        }
        match self.state {
            CargoState::LineBlock => {
                if let Some((_, output)) = &mut self.block {
                    output.line(line);
                }
            }
            CargoState::List if line.starts_with("    ") => {
                self.fail(line.trim());
            }
            CargoState::List if line.is_empty() => {}
            CargoState::List | CargoState::Tests => {
                self.state = CargoState::Tests;
                self.outside(line);
            }
        }
    }

    fn outside(&mut self, line: &'a str) {
        if let Some(count) = line.strip_prefix("running ").and_then(counted)
            && matches!(count.1, "test" | "tests")
        {
            self.scope += 1;
        } else if let Some((id, outcome)) = test_line(line) {
            self.ran.push(id.split(" (line ").next().unwrap_or(id));
            match outcome {
                CargoOutcome::Ok => self.ok_lines += 1,
                CargoOutcome::Ignored => self.ignored_lines += 1,
                CargoOutcome::Failed => {
                    self.fail(id);
                }
            }
        } else if let Some(crash) = crash(line) {
            self.crashes.push(crash);
        } else if !self.compile.line(line) {
            self.loose.line(line);
        }
    }

    fn fail(&mut self, id: &'a str) -> &mut TestFailure {
        let id = id.strip_suffix(" - should panic").unwrap_or(id);
        let next = self.failures.len();
        let at = *self.known.entry((self.scope, id)).or_insert(next);
        if at == next {
            self.failures
                .push(TestFailure::new(FailureKind::Failed, id));
        }
        &mut self.failures[at]
    }

    fn close(&mut self) {
        self.state = CargoState::Tests;
        if let Some((id, output)) = self.block.take() {
            let failure = self.fail(id);
            output.describe(id, failure);
        }
    }

    /// `FAILED. 1 passed; 5 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.09s`.
    fn result(&mut self, rest: &str) {
        self.results += 1;
        for part in rest.split(['.', ';']) {
            match counted(part) {
                Some((n, "passed")) => self.passed += n,
                Some((n, "failed")) => self.failed += n,
                Some((n, "ignored")) => self.skipped += n,
                _ => {}
            }
        }
        if let Some(time) = rest
            .rsplit_once("finished in ")
            .and_then(|(_, time)| seconds(time))
        {
            *self.duration.get_or_insert_default() += time;
        }
    }

    fn finish(mut self) -> Option<TestRun> {
        self.close();
        let tests = self.ok_lines + self.ignored_lines + self.failures.len() as u64;
        let ran = self.results > 0 || (self.scope > 0 && tests > 0);
        let built = self.compile.finish(ran);
        if !ran && built.is_empty() {
            return None;
        }
        let mut run = TestRun::new(Framework::Cargo);
        run.passed = if self.results > 0 {
            self.passed
        } else {
            self.ok_lines
        };
        run.skipped = if self.results > 0 {
            self.skipped
        } else {
            self.ignored_lines
        };
        run.failed = self.failed;
        run.duration = self.duration;
        for failure in &mut self.failures {
            if failure.assertion.is_none() && failure.location.is_none() {
                self.loose.describe_from_thread(failure);
            }
        }
        run.failures = built;
        run.failures.append(&mut self.crashes);
        run.failures.append(&mut self.failures);
        // Quiet runs name none.
        if self.ran.len() as u64 == run.passed + run.skipped + run.failed {
            run.ran = self.ran.into_iter().map(ToOwned::to_owned).collect();
        }
        if ran && (self.results as usize) < self.scope {
            run.notes
                .push("a test binary did not finish, or its result is not in the output".into());
        }
        Some(run)
    }
}

#[derive(PartialEq)]
enum CargoOutcome {
    Ok,
    Failed,
    Ignored,
}

/// `test path::name ... FAILED`.
fn test_line(line: &str) -> Option<(&str, CargoOutcome)> {
    let (id, outcome) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let outcome = match outcome.split([' ', ',']).next()? {
        "ok" => CargoOutcome::Ok,
        "FAILED" => CargoOutcome::Failed,
        "ignored" => CargoOutcome::Ignored,
        _ => return None,
    };
    Some((id, outcome))
}

/// A test binary that crashed; one that has counted its failures exits with status 101.
fn crash(line: &str) -> Option<TestFailure> {
    let (_, how) = line
        .trim_start()
        .split_once("process didn't exit successfully: ")?;
    if how.ends_with("(exit status: 101)") {
        return None;
    }
    let mut failure = TestFailure::new(FailureKind::Error, "test binary did not exit successfully");
    failure.assert(how);
    Some(failure)
}

/// What one test printed, its panics apart from the rest.
#[derive(Default)]
pub(super) struct Output<'a> {
    panics: Vec<Panic<'a>>,
    lines: VecDeque<&'a str>,
    lost: usize,
    state: Within,
}

#[derive(Default, PartialEq)]
enum Within {
    #[default]
    Plain,
    Panic,
    Backtrace,
}

struct Panic<'a> {
    thread: &'a str,
    place: Option<String>,
    message: Vec<&'a str>,
}

impl<'a> Output<'a> {
    pub(super) fn line(&mut self, line: &'a str) {
        if let Some(panic) = panic_line(line) {
            self.panics.push(panic);
            self.state = Within::Panic;
            return;
        }
        if line == "stack backtrace:" {
            self.state = Within::Backtrace;
            return;
        }
        if line.starts_with("note: run with `RUST_BACKTRACE")
            || line.starts_with("note: Some details are omitted")
        {
            self.state = Within::Plain;
            return;
        }
        if self.state == Within::Backtrace {
            if line.starts_with(' ') {
                return;
            }
            self.state = Within::Plain;
        }
        match (&self.state, self.panics.last_mut()) {
            // Bounded, for a panic message may be a megabyte of a failed comparison.
            (Within::Panic, Some(panic)) if panic.message.len() < super::MAX_MESSAGE_LINES => {
                panic.message.push(line)
            }
            _ if line.trim().is_empty() => {}
            _ => {
                if self.lines.len() == MAX_OUTPUT_LINES {
                    self.lines.pop_front();
                    self.lost += 1;
                }
                self.lines.push_back(line);
            }
        }
    }

    pub(super) fn describe(self, id: &str, failure: &mut TestFailure) {
        let mine = self.panics.iter().rposition(|panic| panic.thread == id);
        let main = mine.or(self.panics.len().checked_sub(1));
        if let Some(main) = main {
            self.panics[main].describe(failure);
        }
        for (i, panic) in self.panics.iter().enumerate() {
            if Some(i) != main {
                let first = panic.message.first().copied().unwrap_or_default();
                let place = panic.place.as_deref().unwrap_or("?");
                failure.add_message(&format!(
                    "thread '{}' panicked at {place}: {first}",
                    panic.thread
                ));
            }
        }
        let mut lines = self.lines.into_iter();
        if main.is_none()
            && let Some(first) = lines.next()
        {
            if let Some((_, at)) = first.split_once("did not panic as expected at ") {
                failure.location = place(at);
            }
            failure.assert(first);
        }
        failure.dropped += self.lost;
        for line in lines {
            // How rustdoc introduces the panic that was reported just before.
            if !line.starts_with("Test executable failed") && !matches!(line, "stdout:" | "stderr:")
            {
                failure.add_message(&format!("| {line}"));
            }
        }
    }

    /// Without blocks, a panic is assigned by the name of its thread, which is that of the test.
    fn describe_from_thread(&self, failure: &mut TestFailure) {
        if let Some(panic) = self
            .panics
            .iter()
            .rev()
            .find(|panic| panic.thread == failure.id)
        {
            panic.describe(failure);
        }
    }
}

impl Panic<'_> {
    fn describe(&self, failure: &mut TestFailure) {
        failure.location.clone_from(&self.place);
        let mut lines = self.message.iter();
        if let Some(first) = lines.next() {
            failure.assert(first);
        }
        let lines: Vec<_> = lines.collect();
        let end = lines
            .iter()
            .rposition(|line| !line.trim().is_empty())
            .map_or(0, |last| last + 1);
        for line in &lines[..end] {
            failure.add_message(line);
        }
    }
}

/// `thread 'name' (123) panicked at src/lib.rs:8:23:`, or with the message before the place as until Rust 1.72.
fn panic_line(line: &str) -> Option<Panic<'_>> {
    let (thread, rest) = line.strip_prefix("thread '")?.split_once('\'')?;
    let (_, rest) = rest.split_once("panicked at ")?;
    if let Some(at) = rest.strip_suffix(':') {
        return Some(Panic {
            thread,
            place: place(at),
            message: Vec::new(),
        });
    }
    let (message, at) = rest.strip_prefix('\'')?.rsplit_once("', ")?;
    Some(Panic {
        thread,
        place: place(at),
        message: vec![message],
    })
}

/// Compile errors, each with the lines under it up to a blank one.
#[derive(Default)]
pub(super) struct Compile {
    errors: Vec<TestFailure>,
    open: bool,
}

impl Compile {
    /// Takes the line if it is part of a compile error.
    pub(super) fn line(&mut self, line: &str) -> bool {
        if let Some(failure) = error_line(line) {
            self.errors.push(failure);
            self.open = true;
            return true;
        }
        if !self.open {
            return false;
        }
        if line.is_empty() || line.starts_with("warning") {
            self.open = false;
        } else if let Some(error) = self.errors.last_mut() {
            match line.trim_start().strip_prefix("--> ") {
                Some(at) if error.location.is_none() => error.location = place(at),
                _ if line.trim() == "|" => {}
                _ => error.add_message(line),
            }
        }
        true
    }

    /// The errors, each once: cargo may build the same code twice. One without a place only counts when nothing ran,
    /// for else it is a program's own `error:`.
    pub(super) fn finish(self, ran: bool) -> Vec<TestFailure> {
        let mut errors: Vec<TestFailure> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        let compiled = self.errors.iter().any(|e| e.location.is_some());
        for error in self.errors {
            let sure = error.location.is_some()
                || (!ran && (compiled || error.id.starts_with("linking with")));
            if sure && seen.insert((error.id.clone(), error.location.clone())) {
                errors.push(error);
            }
        }
        errors
    }
}

/// `error[E0308]: mismatched types`, `error: message`, or with `path:1:2: ` before it (`--message-format short`).
fn error_line(line: &str) -> Option<TestFailure> {
    const NOT_AN_ERROR_OF_ITS_OWN: &[&str] = &[
        "could not compile",
        "aborting due to",
        "test failed",
        "test run failed",
        "doctest failed",
        "process didn't exit",
        "command `",
    ];
    if let Some(rest) = line.strip_prefix("error") {
        let (code, message) = rest.split_once(": ")?;
        let coded = code.starts_with('[') && code.ends_with(']');
        let summary = NOT_AN_ERROR_OF_ITS_OWN
            .iter()
            .any(|s| message.starts_with(s))
            || message.ends_with("target failed:")
            || message.ends_with("targets failed:");
        if summary || !(code.is_empty() || coded) {
            return None;
        }
        let id = if coded {
            format!("{code} {message}")
        } else {
            message.to_owned()
        };
        return Some(TestFailure::new(FailureKind::Build, id));
    }
    let (at, rest) = line.split_once(": error")?;
    if !at.contains(".rs:") || at.contains(' ') {
        return None;
    }
    let (code, message) = rest.split_once(": ")?;
    let mut failure = TestFailure::new(FailureKind::Build, format!("{code} {message}"));
    failure.location = Some(place(at)?);
    Some(failure)
}
