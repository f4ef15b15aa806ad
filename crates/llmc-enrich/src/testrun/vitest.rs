//! vitest: under ` FAIL  path > suite > test` the error and its place, then the counts.

use super::{FailureKind, Framework, TestFailure, TestRun, counted, place, seconds};

pub(super) const MARKERS: &[&str] = &[" RUN  v", " Test Files  ", "      Tests  "];

pub(super) fn parse(text: &str) -> Option<TestRun> {
    let mut run = TestRun::new(Framework::Vitest);
    let mut open = OpenFailure::default();
    let mut known = text.contains(" RUN  v");
    for line in text.lines() {
        if let Some(title) = line.strip_prefix(" FAIL  ") {
            if open.has_body {
                open.close(&mut run);
            }
            open.titles.push(title);
        } else if line.starts_with('⎯') || line.starts_with("⎯") {
            open.close(&mut run);
            if line.contains(" Unhandled ") {
                open.titles.push("unhandled error outside of tests");
                open.kind = Some(FailureKind::Error);
            }
        } else if let Some((label, rest)) = summary(line) {
            open.close(&mut run);
            match label {
                "Tests" => {
                    known = true;
                    totals(&mut run, rest);
                }
                "Errors" => run.notes.push(format!("{} outside of tests", rest.trim())),
                "Duration" => {
                    run.duration = seconds(rest.split('(').next().unwrap_or(rest));
                }
                _ => known = true,
            }
        } else if !open.titles.is_empty() {
            open.line(line);
        }
    }
    open.close(&mut run);
    known.then_some(run)
}

/// Failures that are being read; several tests with the same error share one body.
#[derive(Default)]
struct OpenFailure<'a> {
    titles: Vec<&'a str>,
    kind: Option<FailureKind>,
    body: Vec<&'a str>,
    location: Option<String>,
    has_body: bool,
    in_source: bool,
    dropped: usize,
}

impl<'a> OpenFailure<'a> {
    fn line(&mut self, line: &'a str) {
        if line.trim().is_empty() && !self.has_body {
            return;
        }
        self.has_body = true;
        if let Some(frame) = line.strip_prefix(" ❯ ") {
            self.in_source = true;
            let at = frame.rsplit(' ').next().unwrap_or(frame);
            if self.location.is_none() && !at.contains("node_modules/") && !at.starts_with("node:")
            {
                self.location = place(at);
            }
        } else if self.in_source && (line.starts_with("    ") || line.trim().is_empty()) {
        } else if self.body.len() < super::MAX_MESSAGE_LINES {
            self.in_source = false;
            self.body.push(line);
        } else {
            self.dropped += 1;
        }
    }

    fn close(&mut self, run: &mut TestRun) {
        let open = std::mem::take(self);
        for title in open.titles {
            // A suite that failed on its own is followed by its file in brackets.
            let (kind, id) = match title.split_once(" [ ") {
                Some((id, rest)) if rest.ends_with(" ]") => (FailureKind::Error, id),
                _ => (FailureKind::Failed, title),
            };
            let mut failure = TestFailure::new(open.kind.unwrap_or(kind), id);
            failure.location.clone_from(&open.location);
            failure.dropped = open.dropped;
            let mut lines = open.body.iter();
            if let Some(first) = lines.next() {
                failure.assert(first);
            }
            for line in lines {
                failure.add_message(line);
            }
            while failure.message.last().is_some_and(|line| line.is_empty()) {
                failure.message.pop();
            }
            run.failures.push(failure);
        }
    }
}

/// ` Test Files  2 failed (2)` as label and rest.
fn summary(line: &str) -> Option<(&'static str, &str)> {
    let trimmed = line.strip_prefix(' ')?.trim_start();
    ["Test Files", "Tests", "Errors", "Duration"]
        .into_iter()
        .find_map(|label| {
            let rest = trimmed.strip_prefix(label)?;
            let numbered = rest.trim_start().starts_with(|c: char| c.is_ascii_digit());
            (rest.starts_with("  ") && numbered).then_some((label, rest))
        })
}

/// `3 failed | 1 passed | 1 skipped (5)`.
fn totals(run: &mut TestRun, counts: &str) {
    let counts = counts.split(" (").next().unwrap_or(counts);
    for part in counts.split(" | ") {
        match counted(part) {
            Some((n, "failed")) => run.failed = n,
            Some((n, "passed")) => run.passed = n,
            Some((n, "skipped" | "todo")) => run.skipped += n,
            _ => {}
        }
    }
}
