//! What stands under one `____ title ____`: source lines, frames, the message, and what was captured.

use std::collections::HashMap;

use super::super::{FailureKind, TestFailure, place};
use super::{SummaryLine, split_parameters};
use crate::place::Purpose;

/// Lines of captured output kept with a failure.
const MAX_CAPTURED_LINES: usize = 8;

pub(super) struct ReportBlock<'a> {
    pub(super) kind: FailureKind,
    title: &'a str,
    source: Option<&'a str>,
    failure: TestFailure,
    captured: Vec<&'a str>,
    uncaptured: usize,
    in_captured: bool,
    /// How far the first line of the message is indented.
    indent: Option<usize>,
    /// The next line is the source of a frame.
    after_frame: bool,
    /// The function whose source is being shown.
    function: Option<&'a str>,
    /// The file that defines the test, by a frame of the test's own name.
    home: Option<String>,
    /// The first frame of a file that is there for tests, for want of one of the test's name.
    test_file: Option<String>,
    /// A fixture was not found; what follows lists the others.
    is_lookup: bool,
    native: NativeTrace,
}

/// How far a traceback of `--tb=native` has been read.
#[derive(Clone, Copy, PartialEq)]
enum NativeTrace {
    None,
    Frames,
    Message,
}

impl<'a> ReportBlock<'a> {
    pub(super) fn new(kind: FailureKind, title: &'a str) -> Self {
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
            function: None,
            home: None,
            test_file: None,
            is_lookup: false,
            native: NativeTrace::None,
        }
    }

    pub(super) fn line(&mut self, line: &'a str) {
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
            if !self.is_lookup {
                self.source = Some(source);
            }
        } else if let Some(frame) = frame(line).or_else(|| native_frame(line)) {
            self.after_frame = frame.function.is_some();
            let function = frame.function.or(self.function.take());
            self.native_frames(line);
            self.frame(frame.place, function);
            return;
        } else if self.after_frame {
            self.source = Some(line);
        } else if let Some(name) = defined(line) {
            self.function = Some(name);
        } else if let Some((path, number)) = lookup(line) {
            self.is_lookup = true;
            self.home.get_or_insert_with(|| path.to_owned());
            self.failure.location = Some(format!("{path}:{number}"));
        } else if self.failure.message.is_empty() && line.starts_with("ImportError while") {
            self.failure.add_message(line);
        } else {
            self.native_line(line);
        }
        self.after_frame = false;
    }

    fn frame(&mut self, place: String, function: Option<&str>) {
        let path = place.rsplit_once(':').map_or("", |(path, _)| path);
        let (name, _) = split_parameters(self.test_title());
        let test = name.rsplit('.').next();
        if self.home.is_none() && function.is_some() && function == test {
            self.home = Some(path.to_owned());
        } else if self.test_file.is_none() && Purpose::of(path) == Purpose::Test {
            self.test_file = Some(path.to_owned());
        }
        self.failure.location = Some(place);
    }

    fn native_frames(&mut self, line: &str) {
        if line.starts_with("  File \"") {
            self.native = NativeTrace::Frames;
        }
    }

    /// The message of `--tb=native` is what is not indented under the frames.
    fn native_line(&mut self, line: &str) {
        match self.native {
            NativeTrace::None => {}
            _ if line.starts_with("The above exception was")
                || line.starts_with("During handling of")
                || line.starts_with("Traceback ") =>
            {
                self.native = NativeTrace::None;
            }
            NativeTrace::Frames if line.starts_with(' ') => {}
            NativeTrace::Frames | NativeTrace::Message => {
                self.native = NativeTrace::Message;
                self.failure.add_message(line);
            }
        }
    }

    /// The summary's line for this block: same name, and same file when several have that name.
    pub(super) fn summary_line(
        &self,
        summary: &[SummaryLine<'_>],
        open: &mut HashMap<(FailureKind, String), Vec<usize>>,
    ) -> Option<usize> {
        let title = self.test_title();
        let candidates = open.get_mut(&(self.kind, title.to_owned()))?;
        let location = self.failure.location.as_deref();
        let raised_in = location
            .and_then(|l| l.rsplit_once(':'))
            .map(|(path, _)| path);
        let file = self.home.as_deref().or(raised_in);
        let same_file = |i: &usize| {
            let path = summary[*i].id.split("::").next().unwrap_or_default();
            file.is_some_and(|file| file.ends_with(path))
        };
        let at = candidates
            .iter()
            .rposition(same_file)
            .or(candidates.len().checked_sub(1))?;
        Some(candidates.remove(at))
    }

    fn test_title(&self) -> &'a str {
        for lead in [
            "ERROR collecting ",
            "ERROR at setup of ",
            "ERROR at teardown of ",
        ] {
            if let Some(rest) = self.title.strip_prefix(lead) {
                return rest;
            }
        }
        self.title
    }

    pub(super) fn is_of_collection(&self) -> bool {
        self.title.starts_with("ERROR collecting ")
    }

    /// The node id without a summary: the title, and the file that defines the test if it is known. `file` is where the
    /// progress lines have the failure, `root` what ids are relative to.
    pub(super) fn own_id(&self, file: Option<&str>, root: Option<&str>) -> String {
        let title = self.test_title();
        let (name, parameters) = split_parameters(title);
        if self.is_of_collection() || name.contains('/') || name.ends_with(".py") {
            return title.to_owned();
        }
        // The traceback of a failed test begins in its file, that of a fixture where the fixture is.
        let guessed = self.test_file.as_deref();
        let guessed = guessed.filter(|_| self.kind == FailureKind::Failed);
        let Some(path) = file.or(self.home.as_deref()).or(guessed) else {
            return title.to_owned();
        };
        let below_root = root.and_then(|root| path.strip_prefix(root)?.strip_prefix('/'));
        let path = below_root.unwrap_or(path);
        format!("{path}::{}{parameters}", name.replace('.', "::"))
    }

    pub(super) fn close(mut self, id: String) -> TestFailure {
        if let Some(source) = self.source {
            self.failure.assert(source);
        }
        self.failure.dropped += self.uncaptured;
        for line in &self.captured {
            if !line.trim().is_empty() {
                self.failure.add_message(&format!("| {line}"));
            }
        }
        self.failure.id = id;
        self.failure
    }
}

/// The title inside a line like `===== title =====`.
pub(super) fn ruled(line: &str, rule: char) -> Option<&str> {
    if !line.starts_with(rule) || !line.ends_with(rule) {
        return None;
    }
    let title = line.trim_matches(rule);
    let title = title.strip_prefix(' ')?.strip_suffix(' ')?;
    (!title.trim_matches([' ', rule]).is_empty()).then_some(title)
}

/// A line of a traceback.
pub(super) struct Frame<'a> {
    pub(super) place: String,
    /// The function, where the line names it.
    function: Option<&'a str>,
    /// What follows the place.
    pub(super) rest: &'a str,
}

/// `path:12: in function` or `path:12: ExceptionName`.
pub(super) fn frame(line: &str) -> Option<Frame<'_>> {
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
    let rest = rest[digits + 1..].trim_start();
    Some(Frame {
        place,
        function: rest.strip_prefix("in "),
        rest,
    })
}

/// `  File "path", line 12, in function`.
fn native_frame(line: &str) -> Option<Frame<'_>> {
    let rest = line.strip_prefix("  File \"")?;
    let (path, rest) = rest.split_once("\", line ")?;
    let (number, function) = rest.split_once(", in ").unwrap_or((rest, ""));
    number.bytes().all(|b| b.is_ascii_digit()).then(|| Frame {
        place: format!("{path}:{number}"),
        function: Some(function.trim_end()),
        rest: "",
    })
}

/// The name of the function that a line defines, in the outermost source of a frame.
fn defined(line: &str) -> Option<&str> {
    let code = line.strip_prefix("    ")?;
    let code = code.strip_prefix("async ").unwrap_or(code);
    let (name, _) = code.strip_prefix("def ")?.split_once('(')?;
    Some(name.trim())
}

/// `file /w/tests/test_a.py, line 22`, which stands above a test whose fixture was not found.
fn lookup(line: &str) -> Option<(&str, &str)> {
    let (path, number) = line.strip_prefix("file ")?.rsplit_once(", line ")?;
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    is_number.then_some((path, number))
}
