//! pytest: the sections `ERRORS` and `FAILURES`, the short summary, the last line.

use std::collections::{HashMap, HashSet};

use super::{FailureKind, Framework, TestFailure, TestRun, counted, place, seconds};

/// Lines of captured output kept with a failure.
const MAX_CAPTURED_LINES: usize = 8;

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
    blocks: Vec<ReportBlock<'a>>,
    /// `FAILED id - message` and `ERROR id - message`, in order.
    summary: Vec<(FailureKind, &'a str, &'a str)>,
    /// Ids that the progress lines of `-v` call failed.
    progress: Vec<(FailureKind, &'a str)>,
    /// Places of `--tb=line`, whose sections have no titles.
    places: Vec<String>,
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

#[derive(Default)]
struct PytestTotals {
    passed: u64,
    failed: u64,
    errors: u64,
    skipped: u64,
    notes: Vec<String>,
    duration: Option<std::time::Duration>,
}

/// What stands under one `____ title ____`.
struct ReportBlock<'a> {
    kind: FailureKind,
    title: &'a str,
    source: Option<&'a str>,
    failure: TestFailure,
    captured: Vec<&'a str>,
    uncaptured: usize,
    in_captured: bool,
    /// How far the first line of the message is indented.
    indent: Option<usize>,
    /// The next line is the source of a frame of `--tb=short`.
    after_frame: bool,
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
            Section::Errors | Section::Failures => {
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
                    && let Some(found) = frame(line)
                {
                    self.places.push(found.0);
                }
            }
            Section::Summary => {
                if let Some((kind, rest)) = outcome(line) {
                    let (id, message) = split_summary(rest);
                    self.summary.push((kind, id, message));
                } else {
                    self.bare_totals(line);
                }
            }
            Section::Other => {
                if let Some(rest) = line.strip_prefix("ERROR: ") {
                    self.outside
                        .push(TestFailure::new(FailureKind::Error, rest));
                } else if let Some(found) = progress(line) {
                    self.progress.push(found);
                }
            }
        }
        if self.section != Section::Summary {
            self.bare_totals(line);
        }
    }

    fn rule(&mut self, title: &'a str) {
        self.titled = false;
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

    fn finish(self) -> Option<TestRun> {
        let conftest = self
            .outside
            .iter()
            .any(|f| !f.id.starts_with("file or directory"));
        let known = self.started || self.totals.is_some() || (conftest && self.is_loading_error());
        if !known {
            return None;
        }
        let mut run = TestRun::new(Framework::Pytest);
        let mut open: HashMap<(FailureKind, String), Vec<usize>> = HashMap::new();
        for (i, (kind, id, _)) in self.summary.iter().enumerate().rev() {
            open.entry((*kind, title_of(id))).or_default().push(i);
        }
        let mut used = vec![false; self.summary.len()];
        for mut block in self.blocks {
            let mine = block.summary_line(&self.summary, &mut open);
            let id = match mine {
                Some(i) => {
                    used[i] = true;
                    self.summary[i].1.to_owned()
                }
                None => block.own_id(),
            };
            block.close();
            block.failure.id = id;
            run.failures.push(block.failure);
        }
        let undetailed = used
            .iter()
            .zip(&self.summary)
            .filter(|(used, line)| !**used && line.0 == FailureKind::Failed);
        let placed = undetailed.count() == self.places.len();
        let mut places = self.places.into_iter().filter(|_| placed);
        for ((kind, id, message), used) in self.summary.iter().zip(used) {
            if used {
                continue;
            }
            let mut failure = TestFailure::new(*kind, id);
            failure.add_message(message);
            if *kind == FailureKind::Failed {
                failure.location = places.next();
            }
            run.failures.push(failure);
        }
        // Without a summary, the progress lines know of failures whose details were cut away.
        if self.summary.is_empty() {
            let mut known: HashSet<_> = run
                .failures
                .iter()
                .map(|f| (f.kind, title_of(&f.id)))
                .collect();
            for (kind, id) in self.progress {
                if known.insert((kind, title_of(id))) {
                    run.failures.push(TestFailure::new(kind, id));
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
        Some(run)
    }

    fn is_loading_error(&self) -> bool {
        self.outside.iter().any(|f| {
            f.id.starts_with("INTERNALERROR>")
                || f.id.starts_with("ImportError while loading conftest")
        })
    }
}

impl<'a> ReportBlock<'a> {
    fn new(kind: FailureKind, title: &'a str) -> Self {
        Self {
            kind,
            title,
            source: None,
            failure: TestFailure::new(kind, title),
            captured: Vec::new(),
            uncaptured: 0,
            in_captured: false,
            indent: None,
            after_frame: false,
        }
    }

    fn line(&mut self, line: &'a str) {
        if ruled(line, '-').is_some_and(|title| title.starts_with("Captured ")) {
            self.in_captured = true;
            return;
        }
        if self.in_captured {
            // The end of what a test printed is nearest to its failure.
            if self.captured.len() == MAX_CAPTURED_LINES {
                self.captured.remove(0);
                self.uncaptured += 1;
            }
            self.captured.push(line);
            return;
        }
        if let Some(message) = line.strip_prefix("E  ") {
            let spaces = message.len() - message.trim_start_matches(' ').len();
            let indent = *self.indent.get_or_insert(spaces);
            self.failure.add_message(&message[spaces.min(indent)..]);
        } else if let Some(source) = line.strip_prefix('>') {
            self.source = Some(source);
        } else if let Some((place, in_function)) = frame(line) {
            self.failure.location = Some(place);
            self.after_frame = in_function;
            return;
        } else if self.after_frame {
            self.source = Some(line);
        } else if self.failure.message.is_empty() && line.starts_with("ImportError while") {
            self.failure.add_message(line);
        }
        self.after_frame = false;
    }

    /// The summary's line for this block: same name, and same file when several have that name.
    fn summary_line(
        &self,
        summary: &[(FailureKind, &str, &str)],
        open: &mut HashMap<(FailureKind, String), Vec<usize>>,
    ) -> Option<usize> {
        let candidates = open.get_mut(&(self.kind, self.test_title()))?;
        let file = self
            .failure
            .location
            .as_deref()
            .and_then(|l| l.rsplit_once(':'));
        let same_file = |i: &usize| {
            let path = summary[*i].1.split("::").next().unwrap_or_default();
            file.is_some_and(|(file, _)| file.ends_with(path))
        };
        let at = candidates
            .iter()
            .rposition(same_file)
            .or(candidates.len().checked_sub(1))?;
        Some(candidates.remove(at))
    }

    fn test_title(&self) -> String {
        let title = self.title;
        for lead in [
            "ERROR collecting ",
            "ERROR at setup of ",
            "ERROR at teardown of ",
        ] {
            if let Some(rest) = title.strip_prefix(lead) {
                return rest.to_owned();
            }
        }
        title.to_owned()
    }

    fn own_id(&self) -> String {
        let title = self.test_title();
        let path = self
            .failure
            .location
            .as_deref()
            .and_then(|l| l.rsplit_once(':'));
        match path {
            Some((path, _)) if !title.contains('/') && !title.ends_with(".py") => {
                let (name, parameters) = title.split_at(title.find('[').unwrap_or(title.len()));
                format!("{path}::{}{parameters}", name.replace('.', "::"))
            }
            _ => title,
        }
    }

    fn close(&mut self) {
        if let Some(source) = self.source {
            self.failure.assert(source);
        }
        self.failure.dropped += self.uncaptured;
        for line in &self.captured {
            if !line.trim().is_empty() {
                self.failure.add_message(&format!("| {line}"));
            }
        }
    }
}

/// The title inside a line like `===== title =====`.
fn ruled(line: &str, rule: char) -> Option<&str> {
    if !line.starts_with(rule) || !line.ends_with(rule) {
        return None;
    }
    let title = line.trim_matches(rule);
    let title = title.strip_prefix(' ')?.strip_suffix(' ')?;
    (!title.trim_matches([' ', rule]).is_empty()).then_some(title)
}

/// `path:12: in function` or `path:12: ExceptionName`, and whether it is the former.
fn frame(line: &str) -> Option<(String, bool)> {
    let line = line.trim_end();
    if line.is_empty() || line.starts_with([' ', '\t', '>', '{', '[']) {
        return None;
    }
    let (at, _) = line.match_indices(':').find(|(at, _)| {
        let rest = &line[at + 1..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        digits > 0 && (rest[digits..] == *":" || rest[digits..].starts_with(": "))
    })?;
    let rest = &line[at + 1..];
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let place = place(&line[..at + 1 + digits])?;
    Some((place, rest[digits..].starts_with(": in ")))
}

fn outcome(line: &str) -> Option<(FailureKind, &str)> {
    if let Some(rest) = line.strip_prefix("FAILED ") {
        return Some((FailureKind::Failed, rest));
    }
    line.strip_prefix("ERROR ")
        .map(|rest| (FailureKind::Error, rest))
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

/// `path::Class::test FAILED   [ 22%]`, or `[gw0] [ 22%] FAILED path::test` of several workers.
fn progress(line: &str) -> Option<(FailureKind, &str)> {
    if !line.contains("::") {
        return None;
    }
    for (word, kind) in [
        ("FAILED", FailureKind::Failed),
        ("ERROR", FailureKind::Error),
    ] {
        let Some((before, after)) = line.split_once(word) else {
            continue;
        };
        if before.contains("::")
            && before.ends_with(' ')
            && (after.trim().is_empty() || after.starts_with(' '))
        {
            return Some((kind, before.trim()));
        }
        if before.starts_with("[gw") && after.starts_with(' ') {
            return Some((kind, after.trim()));
        }
    }
    None
}

/// How a block is titled that belongs to this id: `path::Class::test[a]` is `Class.test[a]`.
fn title_of(id: &str) -> String {
    let (name, parameters) = id.split_at(id.find('[').unwrap_or(id.len()));
    match name.split_once("::") {
        Some((_, name)) => format!("{}{parameters}", name.replace("::", ".")),
        None => id.to_owned(),
    }
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
