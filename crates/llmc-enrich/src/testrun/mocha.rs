//! mocha, with any reporter that ends in its list of failures (`spec`, `dot`, `min`, `nyan`, …): the counts, then each failure
//! under the titles of its suites.

use super::node_error::{NodeError, tidied};
use super::{FailureKind, Framework, TestFailure, TestRun, counted, seconds};

pub(super) const MARKERS: &[&str] = &[" passing ("];

/// Lines kept of one error.
const MAX_KEPT_LINES: usize = 200;
/// The indentation of the second title of a failure; each further one has two more.
const TITLE_INDENT: usize = 7;
/// The indentation of what mocha prints of an error.
const ERROR_INDENT: usize = 6;

pub(super) fn parse(text: &str) -> Option<TestRun> {
    let mut reader = MochaReader {
        run: TestRun::new(Framework::Mocha),
        has_summary: false,
        listed: 0,
        to_list: 0,
        open: None,
    };
    for line in text.lines() {
        reader.line(line);
    }
    reader.finish()
}

struct MochaReader<'a> {
    run: TestRun,
    has_summary: bool,
    /// The failures of the last summary: how many were read, and how many it counts.
    listed: u64,
    to_list: u64,
    open: Option<OpenFailure<'a>>,
}

/// A failure that is being read.
struct OpenFailure<'a> {
    titles: Vec<&'a str>,
    lines: Vec<&'a str>,
    frames: Vec<&'a str>,
    part: FailurePart,
}

#[derive(PartialEq, Eq)]
enum FailurePart {
    Titles,
    Message,
    Stack,
}

impl<'a> MochaReader<'a> {
    fn line(&mut self, line: &'a str) {
        if let Some((count, time)) = passing(line) {
            self.close();
            (self.has_summary, self.listed, self.to_list) = (true, 0, 0);
            self.run.passed += count;
            let before = self.run.duration.unwrap_or_default();
            self.run.duration = seconds(time).map(|time| before + time);
            return;
        }
        if !self.has_summary {
            return;
        }
        if self.to_list == 0 {
            match counted(line) {
                Some((count, "pending")) => self.run.skipped += count,
                Some((count, "failing")) => {
                    self.run.failed += count;
                    self.to_list = count;
                }
                _ => {}
            }
            return;
        }
        let title = numbered(line)
            .filter(|(number, _)| *number == self.listed + 1 && *number <= self.to_list);
        if let Some((_, title)) = title {
            self.close();
            self.listed += 1;
            self.open = Some(OpenFailure {
                titles: vec![title],
                lines: Vec::new(),
                frames: Vec::new(),
                part: FailurePart::Titles,
            });
        } else if let Some(open) = &mut self.open {
            open.line(line);
        }
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.run.failures.push(open.failure());
        }
    }

    fn finish(mut self) -> Option<TestRun> {
        self.close();
        let errors = self.run.failures.iter();
        let errors = errors.filter(|failure| failure.kind == FailureKind::Error);
        self.run.failed = self.run.failed.saturating_sub(errors.count() as u64);
        self.has_summary.then_some(self.run)
    }
}

impl<'a> OpenFailure<'a> {
    fn line(&mut self, line: &'a str) {
        let text = line.trim();
        if self.part == FailurePart::Titles {
            let indent = line.len() - line.trim_start().len();
            if !text.is_empty() && indent == TITLE_INDENT + 2 * (self.titles.len() - 1) {
                return self.titles.push(text);
            }
            self.part = FailurePart::Message;
        }
        if let Some(frame) = text.strip_prefix("at ")
            && line.starts_with(' ')
        {
            self.part = FailurePart::Stack;
            if self.frames.len() < MAX_KEPT_LINES {
                self.frames.push(frame);
            }
        } else if ["npm ERR!", "npm error"]
            .iter()
            .any(|start| line.starts_with(start))
        {
            // An error without a stack, and after it what npm says.
            self.part = FailurePart::Stack;
        } else if self.part == FailurePart::Message && self.lines.len() < MAX_KEPT_LINES {
            self.lines.push(line);
        }
    }

    fn failure(mut self) -> TestFailure {
        if let Some(last) = self.titles.last_mut() {
            *last = last.strip_suffix(':').unwrap_or(last);
        }
        // `"before each" hook for "adds"`: the test itself did not run.
        let is_hook = self
            .titles
            .last()
            .is_some_and(|title| title.starts_with('"') && title.contains("\" hook"));
        let kind = match is_hook {
            true => FailureKind::Error,
            false => FailureKind::Failed,
        };
        let mut failure = TestFailure::new(kind, self.titles.join(" > "));
        // Node.js has compared the values already.
        let is_compared = self.lines.contains(&"+ actual - expected");
        let lines = self
            .lines
            .iter()
            .take_while(|line| !is_compared || line.trim() != "+ expected - actual");
        let error = NodeError {
            message: lines
                .map(|line| tidied(unindented(line).trim_end()))
                .filter(|line| !line.is_empty())
                .collect(),
            frames: self.frames,
            ..NodeError::default()
        };
        error.describe(&mut failure);
        failure
    }
}

/// `  12 passing (3s)` as the count and the time.
fn passing(line: &str) -> Option<(u64, &str)> {
    let (count, time) = line.trim().split_once(" passing (")?;
    let time = time.strip_suffix(')')?;
    Some((count.parse().ok()?, time))
}

/// `  3) title` as the number and the title.
fn numbered(line: &str) -> Option<(u64, &str)> {
    let (number, title) = line.strip_prefix("  ")?.split_once(") ")?;
    Some((number.parse().ok()?, title.trim_end()))
}

/// A line of an error without the indentation that mocha adds to some.
fn unindented(line: &str) -> &str {
    let spaces = line.len() - line.trim_start_matches(' ').len();
    // The first line of an error has one space less.
    &line[spaces.min(ERROR_INDENT)..]
}
