//! `node --test` with its reporter `spec`: a tree of `✔` and `✖`, the counts, and all failures once more.

use super::node_error::{NodeError, NodeTotals, reason, test_place, tidied};
use super::{FailureKind, Framework, TestFailure, TestRun};

pub(super) const MARKERS: &[&str] = &["ℹ duration_ms "];

/// Lines kept of one error, and of what a file printed.
const MAX_KEPT_LINES: usize = 200;

pub(super) fn parse(text: &str) -> Option<TestRun> {
    let mut reader = SpecReader::default();
    for line in text.lines() {
        reader.line(line);
    }
    reader.finish()
}

#[derive(Default)]
struct SpecReader<'a> {
    /// The names of the tests that are open, outermost first.
    parents: Vec<&'a str>,
    /// Failed tests of the tree.
    tree: Vec<SpecFailure<'a>>,
    /// Failed tests that hold others.
    failed_parents: Vec<String>,
    /// Failed tests of the list at the end.
    listed: Vec<SpecFailure<'a>>,
    in_list: bool,
    /// Where the next test of the list is.
    place: Option<String>,
    /// Whether lines belong to the last failure.
    is_open: bool,
    /// What was printed since the last test.
    printed: Vec<&'a str>,
    totals: NodeTotals,
}

/// A failed test and what is said about it.
struct SpecFailure<'a> {
    id: String,
    name: &'a str,
    indent: usize,
    place: Option<String>,
    lines: Vec<&'a str>,
    printed: Vec<&'a str>,
    is_todo: bool,
}

impl<'a> SpecReader<'a> {
    fn line(&mut self, line: &'a str) {
        let text = line.trim_start_matches(' ');
        let indent = line.len() - text.len();
        let depth = indent / 2;
        if let Some(name) = text.strip_prefix("▶ ") {
            self.is_open = false;
            self.parents.truncate(depth);
            self.parents
                .push(timed(name).map_or(name, |(name, _)| name));
        } else if text == "✖ failing tests:" {
            (self.is_open, self.in_list) = (false, true);
        } else if let Some((name, rest)) = text.strip_prefix("✖ ").and_then(timed) {
            self.failed(name, !rest.is_empty(), indent);
        } else if ["✔ ", "﹣ "].iter().any(|mark| {
            text.strip_prefix(mark)
                .is_some_and(|rest| timed(rest).is_some())
        }) {
            self.is_open = false;
            self.printed.clear();
            self.parents.truncate(depth);
        } else if let Some(total) = line.strip_prefix("ℹ ") {
            self.is_open = false;
            self.totals.line(total);
        } else if let Some(place) = line.strip_prefix("test at ").filter(|_| self.in_list) {
            self.is_open = false;
            self.place = test_place(place);
        } else if self.is_open {
            let list = match self.in_list {
                true => &mut self.listed,
                false => &mut self.tree,
            };
            if let Some(last) = list
                .last_mut()
                .filter(|last| last.lines.len() < MAX_KEPT_LINES)
            {
                last.lines.push(line.get(last.indent + 2..).unwrap_or(text));
            }
        } else if self.printed.len() < MAX_KEPT_LINES {
            self.printed.push(line);
        }
    }

    fn failed(&mut self, name: &'a str, is_todo: bool, indent: usize) {
        let depth = indent / 2;
        let mut failure = SpecFailure {
            id: name.to_owned(),
            name,
            indent,
            place: None,
            lines: Vec::new(),
            printed: Vec::new(),
            is_todo,
        };
        self.is_open = true;
        if self.in_list {
            failure.place = self.place.take();
            self.listed.push(failure);
            return;
        }
        let is_parent = self.parents.get(depth) == Some(&name);
        self.parents.truncate(depth);
        failure.id = [&self.parents[..], &[name]].concat().join(" > ");
        failure.printed = std::mem::take(&mut self.printed);
        match is_parent {
            true => {
                self.is_open = false;
                self.failed_parents.push(failure.id);
            }
            false => self.tree.push(failure),
        }
    }

    fn finish(self) -> Option<TestRun> {
        if !self.totals.is_whole() {
            return None;
        }
        let mut run = TestRun::new(Framework::Node);
        let mut tree: Vec<Option<SpecFailure<'_>>> = self.tree.into_iter().map(Some).collect();
        for mut listed in self.listed {
            // The list has no names of parents; it is in the order of the tree.
            let same = |known: &Option<SpecFailure<'_>>| {
                known
                    .as_ref()
                    .is_some_and(|known| known.name == listed.name)
            };
            if let Some(known) = tree.iter().position(same).and_then(|at| tree[at].take()) {
                listed.id = known.id;
                listed.printed = known.printed;
            }
            run.failures.extend(listed.failure());
        }
        let rest = tree.into_iter().flatten();
        run.failures.extend(rest.filter_map(SpecFailure::failure));
        // The runner counts tests that hold others, too, and no suites; the tree shows no difference between them.
        let missing = self
            .totals
            .wrong()
            .saturating_sub(run.failures.len() as u64);
        let missing = usize::try_from(missing).unwrap_or(usize::MAX);
        for id in self.failed_parents.into_iter().take(missing) {
            let mut failure = TestFailure::new(FailureKind::Failed, id);
            failure.assert("subtests failed");
            run.failures.push(failure);
        }
        self.totals.count(&mut run);
        Some(run)
    }
}

impl SpecFailure<'_> {
    fn failure(self) -> Option<TestFailure> {
        if self.is_todo {
            return None;
        }
        let is_file = self
            .lines
            .first()
            .is_some_and(|line| *line == "'test failed'");
        let kind = match is_file {
            true => FailureKind::Error,
            false => FailureKind::Failed,
        };
        let mut failure = TestFailure::new(kind, &self.id);
        let mut error = NodeError {
            test_place: self.place,
            ..NodeError::default()
        };
        let lines = self.lines.iter().map(|line| line.trim_end());
        let is_frame = |line: &&str| line.trim_start().starts_with("at ");
        let said = lines.clone().take_while(|line| !is_frame(line));
        error.message = said.map(tidied).collect();
        if is_file {
            let reason = reason(self.printed.iter().copied());
            if !reason.is_empty() {
                error.message = reason;
            }
        }
        let frames = self.lines.iter().map(|line| line.trim());
        let frames = frames.filter_map(|line| line.strip_prefix("at "));
        error.frames = frames.map(|frame| frame.trim_end_matches(" {")).collect();
        if lines
            .clone()
            .any(|line| line.trim() == "generatedMessage: false,")
        {
            let from = lines.skip_while(|line| !is_frame(line));
            let compared = from.filter(|line| {
                let line = line.trim();
                !is_frame(&line) && line != "}" && !line.starts_with("generatedMessage:")
            });
            error.compared = compared.map(str::to_owned).collect();
        }
        error.describe(&mut failure);
        Some(failure)
    }
}

/// `name (12.3ms) # reason` as the name and what follows the time.
fn timed(text: &str) -> Option<(&str, &str)> {
    let (front, rest) = match text.strip_suffix("ms)") {
        Some(front) => (front, ""),
        None => text.rsplit_once("ms) # ")?,
    };
    let (name, time) = front.rsplit_once(" (")?;
    time.parse::<f64>().is_ok().then_some((name, rest))
}
