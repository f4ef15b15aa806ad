//! Python's unittest: blocks between `=====` lines, then `Ran 7 tests in 0.002s` and one line with the counts.

use super::{FailureKind, Framework, TestFailure, TestRun, counted, seconds};

pub(super) const MARKERS: &[&str] = &["Ran ", "ERROR: ", "FAIL: "];

pub(super) fn parse(text: &str) -> Option<TestRun> {
    let mut run = TestRun::new(Framework::Unittest);
    let mut ran = None;
    let mut open: Option<OpenFailure<'_>> = None;
    let mut after_rule = false;
    for line in text.lines() {
        let rule = line.len() >= 60 && line.bytes().all(|b| b == b'=');
        if let Some(title) = after_rule.then(|| title(line)).flatten() {
            close(&mut run, open.take());
            open = Some(OpenFailure::new(title));
        } else if let Some(found) = ran_line(line) {
            close(&mut run, open.take());
            ran = Some(found.0);
            run.duration = found.1;
        } else if rule {
            close(&mut run, open.take());
        } else if let Some(open) = &mut open {
            open.line(line);
        } else if ran.is_some() {
            result(&mut run, line);
        }
        after_rule = rule;
    }
    let known = ran.is_some() || !run.failures.is_empty() || open.is_some();
    close(&mut run, open);
    if !known {
        return None;
    }
    match ran {
        Some(ran) => {
            // What did not pass has been put into `passed` as a debit by `result`.
            run.passed = u64::saturating_sub(ran, run.passed);
        }
        None => run
            .notes
            .push("the run's last lines are missing: counts are of what the output shows".into()),
    }
    Some(run)
}

/// A failure that is being read.
struct OpenFailure<'a> {
    failure: TestFailure,
    traceback: bool,
    /// The source line under the last frame.
    source: Option<&'a str>,
    expect_source: bool,
    in_message: bool,
}

impl<'a> OpenFailure<'a> {
    fn new((kind, id): (FailureKind, String)) -> Self {
        Self {
            failure: TestFailure::new(kind, id),
            traceback: false,
            source: None,
            expect_source: false,
            in_message: false,
        }
    }

    fn line(&mut self, line: &'a str) {
        if line == "Traceback (most recent call last):" {
            self.traceback = true;
            self.in_message = false;
        } else if let Some(place) = frame(line).filter(|_| self.traceback && !self.in_message) {
            self.failure.location = Some(place);
            self.source = None;
            self.expect_source = true;
        } else if self.expect_source && line.starts_with("    ") {
            self.source = Some(line);
            self.expect_source = false;
        } else if self.traceback && (self.in_message || !line.starts_with("    ")) {
            // From the exception to the end, blank lines and indented differences included.
            self.in_message = true;
            self.failure.add_message(line);
        } else if !self.traceback && line.starts_with("ImportError: Failed to import") {
            self.failure.add_message(line);
        }
    }
}

fn close(run: &mut TestRun, open: Option<OpenFailure<'_>>) {
    let Some(mut open) = open else { return };
    if let Some(source) = open.source {
        open.failure.assert(source);
    }
    let message = &mut open.failure.message;
    // The line of dashes before the last block's `Ran`.
    while message
        .last()
        .is_some_and(|line| line.trim_matches('-').is_empty())
    {
        message.pop();
    }
    run.failures.push(open.failure);
}

/// `FAIL: test_eq (module.Class.test_eq) (i=0)` as kind and `module.Class.test_eq (i=0)`.
fn title(line: &str) -> Option<(FailureKind, String)> {
    let (kind, rest) = match line.split_once(": ")? {
        ("FAIL", rest) => (FailureKind::Failed, rest),
        ("ERROR", rest) => (FailureKind::Error, rest),
        ("UNEXPECTED SUCCESS", rest) => (FailureKind::Failed, rest),
        _ => return None,
    };
    let Some((name, rest)) = rest.split_once(" (") else {
        return Some((kind, rest.to_owned()));
    };
    let (class, parameters) = rest.split_once(')')?;
    // Since Python 3.11 the brackets hold the whole name.
    let id = match class.rsplit('.').next() {
        Some(last) if last == name => class.to_owned(),
        _ => format!("{class}.{name}"),
    };
    Some((kind, format!("{id}{parameters}")))
}

fn frame(line: &str) -> Option<String> {
    let rest = line.trim_start().strip_prefix("File \"")?;
    let (path, rest) = rest.split_once("\", line ")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    Some(format!("{path}:{}", &rest[..digits]))
}

fn ran_line(line: &str) -> Option<(u64, Option<std::time::Duration>)> {
    let (count, time) = line.strip_prefix("Ran ")?.split_once(" in ")?;
    let (count, what) = counted(count)?;
    (what == "test" || what == "tests").then(|| (count, seconds(time)))
}

/// `FAILED (failures=3, errors=2, skipped=1)` or `OK (skipped=1)`; counts what did not pass in `passed`.
fn result(run: &mut TestRun, line: &str) {
    let Some(counts) = line
        .strip_prefix("FAILED (")
        .or_else(|| line.strip_prefix("OK ("))
        .or_else(|| line.strip_prefix("NO TESTS RAN ("))
        .and_then(|rest| rest.strip_suffix(')'))
    else {
        return;
    };
    for part in counts.split(", ") {
        let Some((what, n)) = part.split_once('=') else {
            continue;
        };
        let Ok(n) = n.parse::<u64>() else { continue };
        match what {
            "failures" => run.failed = n,
            "errors" => run.errors = n,
            "skipped" => run.skipped = n,
            "unexpected successes" => run.failed += n,
            _ => run.notes.push(format!("{n} {what}")),
        }
        run.passed += n;
    }
}
