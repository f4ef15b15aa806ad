//! pytest: the sections `ERRORS` and `FAILURES`, the short summary, the last line.
//!
//! A test is known by its node id, `path::Class::test[parameters]`. The short summary has it where `-r` lets pytest print
//! one; else it is put together of the title above the traceback and the file that defines the test, never of the file
//! in which the error was raised.

mod progress;
mod report;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::{FailureKind, Framework, TestFailure, TestRun, counted, seconds};
use progress::Progress;
use report::{ReportBlock, frame, ruled};

pub(super) const MARKERS: &[&str] = &[
    "test session starts",
    "short test summary info",
    "FAILURES =",
    "ERRORS =",
    "INTERNALERROR>",
    "while loading conftest",
    " passed",
    " failed",
    " error",
    " skipped",
    "no tests ran",
    " deselected",
    " xfailed",
    " xpassed",
];

pub(super) fn parse(text: &str) -> Option<TestRun> {
    let mut reader = PytestReader::default();
    for line in text.lines() {
        reader.line(line);
    }
    reader.finish()
}

#[derive(Default)]
struct PytestReader<'a> {
    section: Section,
    /// Whether the section has shown a title yet; under `--tb=line` it has none.
    titled: bool,
    /// What node ids are relative to; not printed with `-q`.
    root: Option<&'a str>,
    blocks: Vec<ReportBlock<'a>>,
    /// `FAILED id - message` and `ERROR id - message`, in order.
    summary: Vec<SummaryLine<'a>>,
    progress: Progress<'a>,
    /// Places of `--tb=line`, whose sections have no titles, and what is said there.
    places: Vec<(String, &'a str)>,
    /// Errors before or outside a session: wrong arguments, a broken `conftest.py`, pytest's own faults.
    outside: Vec<TestFailure>,
    totals: Option<PytestTotals>,
    started: bool,
}

#[derive(Default, Clone, Copy, PartialEq)]
enum Section {
    #[default]
    Other,
    Errors,
    Failures,
    Summary,
}

/// A line of the short summary.
struct SummaryLine<'a> {
    kind: FailureKind,
    id: Cow<'a, str>,
    message: &'a str,
}

#[derive(Default)]
struct PytestTotals {
    passed: u64,
    failed: u64,
    errors: u64,
    skipped: u64,
    notes: Vec<String>,
    duration: Option<std::time::Duration>,
}

impl PytestTotals {
    fn ran_nothing(&self) -> bool {
        self.passed + self.failed + self.errors + self.skipped == 0
    }
}

impl<'a> PytestReader<'a> {
    fn line(&mut self, line: &'a str) {
        if let Some(title) = ruled(line, '=') {
            return self.rule(title);
        }
        if line.starts_with("INTERNALERROR> ")
            || line.starts_with("ImportError while loading conftest")
        {
            if let Some(last) = self
                .outside
                .last_mut()
                .filter(|f| f.id.starts_with("INTERNALERROR"))
            {
                last.add_message(line);
            } else {
                self.outside
                    .push(TestFailure::new(FailureKind::Error, line));
            }
            return;
        }
        match self.section {
            Section::Errors | Section::Failures => self.report_line(line),
            Section::Summary => {
                if let Some(found) = SummaryLine::of(line) {
                    self.summary.push(found);
                } else {
                    self.bare_totals(line);
                }
            }
            Section::Other => {
                if let Some(rest) = line.strip_prefix("ERROR: ") {
                    self.outside
                        .push(TestFailure::new(FailureKind::Error, rest));
                } else if let Some(root) = line.strip_prefix("rootdir: ") {
                    self.root.get_or_insert(root.trim_end());
                } else {
                    self.progress.line(line);
                }
            }
        }
        if self.section != Section::Summary {
            self.bare_totals(line);
        }
    }

    fn report_line(&mut self, line: &'a str) {
        if let Some(title) = ruled(line, '_') {
            let kind = match self.section {
                Section::Errors => FailureKind::Error,
                _ => FailureKind::Failed,
            };
            self.titled = true;
            self.blocks.push(ReportBlock::new(kind, title));
        } else if let Some(block) = self.blocks.last_mut().filter(|_| self.titled) {
            block.line(line);
        } else if self.section == Section::Failures
            && !line.starts_with("E  ")
            && let Some(found) = frame(line)
        {
            self.places.push((found.place, found.rest));
        }
    }

    fn rule(&mut self, title: &'a str) {
        self.titled = false;
        if title == "short test summary info" {
            // Of several the last one is of the run itself; others are quoted by its tests.
            self.summary.clear();
        }
        self.section = match title {
            "ERRORS" => Section::Errors,
            "FAILURES" => Section::Failures,
            "short test summary info" => Section::Summary,
            _ => Section::Other,
        };
        self.started |= self.section != Section::Other || title == "test session starts";
        if let Some(totals) = totals(title) {
            self.totals = Some(totals);
        }
    }

    /// With `-q` the last line stands without its `====`.
    fn bare_totals(&mut self, line: &'a str) {
        if line.as_bytes().first().is_some_and(u8::is_ascii_digit)
            && let Some(totals) = totals(line)
        {
            self.totals = Some(totals);
        }
    }

    fn finish(mut self) -> Option<TestRun> {
        let conftest = self
            .outside
            .iter()
            .any(|f| !f.id.starts_with("file or directory"));
        let known = self.started || self.totals.is_some() || (conftest && self.is_loading_error());
        if !known {
            return None;
        }
        // Where tests ran, such a line is of a test: pytest runs none over arguments that it does not take.
        if self
            .totals
            .as_ref()
            .is_some_and(|totals| !totals.ran_nothing())
        {
            self.outside.retain(is_loading_error);
        }
        let mut run = TestRun::new(Framework::Pytest);
        let used = self.read_blocks(&mut run);
        self.read_places(&mut run, used);
        // Without a summary, the progress lines know of failures whose details were cut away.
        if self.summary.is_empty() {
            let mut known: HashSet<_> = run
                .failures
                .iter()
                .map(|f| (f.kind, title_of(&f.id)))
                .collect();
            for (kind, id) in &self.progress.named {
                if known.insert((*kind, title_of(id))) {
                    run.failures.push(TestFailure::new(*kind, id));
                }
            }
        }
        run.failures.extend(self.outside);
        match self.totals {
            Some(totals) => {
                run.passed = totals.passed;
                run.failed = totals.failed;
                run.errors = totals.errors;
                run.skipped = totals.skipped;
                run.duration = totals.duration;
                run.notes = totals.notes;
            }
            None => run
                .notes
                .push("the run's last line is missing: counts are of what the output shows".into()),
        }
        if run.wrong() > run.failures.len() as u64 {
            run.notes.extend(self.progress.whereabouts());
        }
        Some(run)
    }

    /// Turns the blocks into failures. Returns which lines of the summary are theirs.
    fn read_blocks(&mut self, run: &mut TestRun) -> Vec<bool> {
        let blocks = std::mem::take(&mut self.blocks);
        let mut open: HashMap<(FailureKind, String), Vec<usize>> = HashMap::new();
        for (i, line) in self.summary.iter().enumerate().rev() {
            open.entry((line.kind, title_of(&line.id)))
                .or_default()
                .push(i);
        }
        let mut used = vec![false; self.summary.len()];
        let mut lines: Vec<Option<usize>> = Vec::with_capacity(blocks.len());
        for block in &blocks {
            let line = block.summary_line(&self.summary, &mut open);
            if let Some(i) = line {
                used[i] = true;
            }
            lines.push(line);
        }
        for kind in [FailureKind::Failed, FailureKind::Error] {
            pair_rest(kind, &blocks, &self.summary, &mut lines, &mut used);
        }
        let files = self.progress.files_of(&blocks);
        let is_complete = self.is_summary_complete();
        for ((block, line), file) in blocks.into_iter().zip(lines).zip(files) {
            if line.is_none() && is_complete {
                // Part of what a test printed: the output of another run.
                continue;
            }
            let id = match line {
                Some(i) => self.summary[i].id.clone().into_owned(),
                None => block.own_id(file, self.root),
            };
            run.failures.push(block.close(id));
        }
        used
    }

    /// Whether the short summary names every failure and error that the last line counts.
    fn is_summary_complete(&self) -> bool {
        let count = |kind| self.summary.iter().filter(|line| line.kind == kind).count() as u64;
        let totals = self.totals.as_ref();
        !self.summary.is_empty()
            && totals.is_some_and(|totals| {
                totals.failed == count(FailureKind::Failed)
                    && totals.errors == count(FailureKind::Error)
            })
    }

    /// Failures without a block: those of the summary, or the places of `--tb=line`.
    fn read_places(&mut self, run: &mut TestRun, used: Vec<bool>) {
        let places = std::mem::take(&mut self.places);
        let undetailed = used
            .iter()
            .zip(&self.summary)
            .filter(|(used, line)| !**used && line.kind == FailureKind::Failed);
        let placed = undetailed.count() == places.len();
        if self.summary.is_empty() && self.progress.named.is_empty() {
            for (place, said) in places {
                let path = place
                    .rsplit_once(':')
                    .map_or(place.as_str(), |(path, _)| path);
                let mut failure = TestFailure::new(FailureKind::Failed, path);
                failure.add_message(said);
                failure.location = Some(place);
                run.failures.push(failure);
            }
            return;
        }
        let mut places = places.into_iter().filter(|_| placed);
        for (line, used) in self.summary.iter().zip(used) {
            if used {
                continue;
            }
            let mut failure = TestFailure::new(line.kind, &line.id);
            failure.add_message(line.message);
            if line.kind == FailureKind::Failed {
                failure.location = places.next().map(|(place, _)| place);
            }
            run.failures.push(failure);
        }
    }

    fn is_loading_error(&self) -> bool {
        self.outside.iter().any(is_loading_error)
    }
}

fn is_loading_error(failure: &TestFailure) -> bool {
    failure.id.starts_with("INTERNALERROR>")
        || failure.id.starts_with("ImportError while loading conftest")
}

/// Blocks whose titles are unlike their ids, as those of doctests, stand in the order of the summary.
fn pair_rest(
    kind: FailureKind,
    blocks: &[ReportBlock<'_>],
    summary: &[SummaryLine<'_>],
    lines: &mut [Option<usize>],
    used: &mut [bool],
) {
    let is_open = |i: &usize| summary[*i].kind == kind && !used[*i];
    let rest: Vec<usize> = (0..summary.len()).filter(is_open).collect();
    let is_open = |i: &usize| blocks[*i].kind == kind && lines[*i].is_none();
    let open: Vec<usize> = (0..blocks.len()).filter(is_open).collect();
    if rest.len() == open.len() {
        for (block, line) in open.into_iter().zip(rest) {
            lines[block] = Some(line);
            used[line] = true;
        }
    }
}

impl<'a> SummaryLine<'a> {
    fn of(line: &'a str) -> Option<Self> {
        if let Some(rest) = line.strip_prefix("SUBFAILED") {
            return SummaryLine::of_subtest(rest);
        }
        let (kind, rest) = match line.strip_prefix("FAILED ") {
            Some(rest) => (FailureKind::Failed, rest),
            None => (FailureKind::Error, line.strip_prefix("ERROR ")?),
        };
        let (id, message) = split_summary(rest);
        Some(Self {
            kind,
            id: Cow::Borrowed(id),
            message,
        })
    }

    /// `[message] (i=1) path::test - AssertionError`, of which the title has the parts the other way round.
    fn of_subtest(rest: &'a str) -> Option<Self> {
        let is_begin =
            |at: usize| rest[..at].ends_with([')', ']']) && !rest[at + 1..].starts_with(['(', '[']);
        let spaces = rest.match_indices(' ').map(|(at, _)| at);
        let at = spaces
            .filter(|at| rest[at + 1..].contains("::"))
            .find(|at| is_begin(*at))?;
        let (id, message) = split_summary(&rest[at + 1..]);
        let id = format!("{id} {}", rest[..at].trim());
        Some(Self {
            kind: FailureKind::Failed,
            id: Cow::Owned(id),
            message,
        })
    }
}

/// Splits `id - message`; an id may hold ` - ` itself, but only inside its brackets.
fn split_summary(rest: &str) -> (&str, &str) {
    let mut depth = 0i32;
    for (i, byte) in rest.bytes().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' => depth -= 1,
            b' ' if depth <= 0 && rest[i..].starts_with(" - ") => {
                return (&rest[..i], &rest[i + 3..]);
            }
            _ => {}
        }
    }
    match rest.split_once("] - ") {
        Some((id, message)) => (&rest[..id.len() + 1], message),
        None => (rest, ""),
    }
}

/// How a block is titled that belongs to this id: `path::Class::test[a]` is `Class.test[a]`.
fn title_of(id: &str) -> String {
    match id.split_once("::") {
        Some((_, title)) => {
            let (name, parameters) = split_parameters(title);
            format!("{}{parameters}", name.replace("::", "."))
        }
        None => id.to_owned(),
    }
}

/// The name of a test, and its parameters or the values of its subtest.
fn split_parameters(title: &str) -> (&str, &str) {
    title.split_at(title.find(['[', ' ']).unwrap_or(title.len()))
}

/// `5 failed, 1 passed, 2 errors in 0.04s`.
fn totals(line: &str) -> Option<PytestTotals> {
    let (counts, time) = line.trim().rsplit_once(" in ")?;
    let mut totals = PytestTotals {
        duration: Some(seconds(time.split(' ').next()?)?),
        ..PytestTotals::default()
    };
    if counts == "no tests ran" {
        return Some(totals);
    }
    for part in counts.split(", ") {
        let (n, what) = counted(part)?;
        match what {
            "passed" => totals.passed = n,
            "failed" => totals.failed = n,
            "skipped" => totals.skipped = n,
            "error" | "errors" => totals.errors = n,
            "xfailed" | "xpassed" | "deselected" | "rerun" | "warning" | "warnings" => {
                totals.notes.push(part.to_owned());
            }
            _ if what.starts_with("subtests ") => totals.notes.push(part.to_owned()),
            _ => return None,
        }
    }
    Some(totals)
}
