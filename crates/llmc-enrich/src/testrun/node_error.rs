//! An error of Node.js as its test runner prints it: message, stack, and where in them the test is.

use super::{TestFailure, place};

/// What a reporter printed about one error.
#[derive(Default)]
pub(super) struct NodeError<'a> {
    /// The message, its kind in front.
    pub(super) message: Vec<String>,
    /// `function (path:12:5)` or `path:12:5`, innermost first.
    pub(super) frames: Vec<&'a str>,
    /// What was compared, where the message does not say it.
    pub(super) compared: Vec<String>,
    /// Where the test is defined.
    pub(super) test_place: Option<String>,
}

impl NodeError<'_> {
    /// Writes it into a failure: its place is in the test's own file where the stack leads there, and an error that was
    /// raised elsewhere says where.
    pub(super) fn describe(self, failure: &mut TestFailure) {
        let mut lines = self.message.iter();
        if let Some(first) = lines.next() {
            failure.assert(first);
        }
        for line in lines.chain(&self.compared) {
            failure.add_message(line);
        }
        let own: Vec<(String, &str)> = self
            .frames
            .iter()
            .filter_map(|frame| Some((own_place(frame)?, *frame)))
            .collect();
        let Some(test) = &self.test_place else {
            failure.location = own.into_iter().next().map(|(place, _)| place);
            return;
        };
        let in_test = own.iter().position(|(place, _)| is_same_file(place, test));
        if in_test != Some(0)
            && let Some((_, frame)) = own.first()
        {
            failure.add_message(&format!("at {frame}"));
        }
        let line = in_test.and_then(|at| own[at].0.rsplit_once(':'));
        failure.location = Some(match line {
            Some((_, line)) => format!("{}:{line}", path_of(test)),
            None => test.clone(),
        });
    }
}

/// The place of a frame of the project's own code.
fn own_place(frame: &str) -> Option<String> {
    let at = frame
        .rsplit_once('(')
        .map_or(frame, |(_, at)| at.trim_end_matches(')'));
    let at = at.strip_prefix("async ").unwrap_or(at);
    if at.starts_with("node:") || at.contains("node_modules/") || at.starts_with('<') {
        return None;
    }
    test_place(at)
}

/// `path:12:5`, or the same as an address, as `path:12`.
pub(super) fn test_place(text: &str) -> Option<String> {
    place(text.strip_prefix("file://").unwrap_or(text))
}

fn path_of(place: &str) -> &str {
    place.rsplit_once(':').map_or(place, |(path, _)| path)
}

/// Whether two places are in one file; one of them may be relative.
fn is_same_file(a: &str, b: &str) -> bool {
    let (a, b) = (path_of(a), path_of(b));
    let ends = |long: &str, short: &str| {
        long.strip_suffix(short)
            .is_some_and(|front| front.is_empty() || front.ends_with('/'))
    };
    ends(a, b) || ends(b, a)
}

/// A line of a message without the codes that Node.js puts behind the kind of an error.
pub(super) fn tidied(line: &str) -> String {
    let line = line.replacen(" [ERR_ASSERTION]:", ":", 1);
    let line = line.replacen(" [Error]:", ":", 1);
    let quoted = line
        .strip_prefix('\'')
        .and_then(|line| line.strip_suffix('\''));
    quoted.map(str::to_owned).unwrap_or(line)
}

/// The lines of what a broken file printed that say what is wrong: from the error on, without its stack.
pub(super) fn reason<'a>(printed: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    const MAX_REASON_LINES: usize = 6;
    let says_error = |line: &&str| line.contains("Error");
    let from = printed.clone().position(|line| says_error(&line));
    let lines = printed.skip(from.unwrap_or(0)).filter(|line| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with("at ")
    });
    lines.take(MAX_REASON_LINES).map(str::to_owned).collect()
}

/// The runner's counts, one line each.
#[derive(Default)]
pub(super) struct NodeTotals {
    pass: u64,
    fail: u64,
    cancelled: Option<u64>,
    skipped: u64,
    todo: u64,
    milliseconds: Option<f64>,
}

impl NodeTotals {
    /// Adds `fail 3`; several runs in one output add up.
    pub(super) fn line(&mut self, line: &str) {
        let Some((key, value)) = line.split_once(' ') else {
            return;
        };
        let value = value.trim();
        if key == "duration_ms" {
            if let Ok(time) = value.parse::<f64>() {
                self.milliseconds = Some(self.milliseconds.unwrap_or(0.0) + time);
            }
            return;
        }
        let Ok(count) = value.parse::<u64>() else {
            return;
        };
        match key {
            "pass" => self.pass += count,
            "fail" => self.fail += count,
            "cancelled" => self.cancelled = Some(self.cancelled.unwrap_or(0) + count),
            "skipped" => self.skipped += count,
            "todo" => self.todo += count,
            _ => {}
        }
    }

    /// Whether these are the last lines of `node --test`.
    pub(super) fn is_whole(&self) -> bool {
        self.cancelled.is_some() && self.milliseconds.is_some()
    }

    pub(super) fn wrong(&self) -> u64 {
        self.fail + self.cancelled.unwrap_or(0)
    }

    /// Writes the counts into a run, whose failures are known.
    pub(super) fn count(&self, run: &mut super::TestRun) {
        // The runner counts a file that cannot be run among the failed tests.
        let errors = run
            .failures
            .iter()
            .filter(|failure| failure.kind == super::FailureKind::Error);
        run.failed = self.wrong().saturating_sub(errors.count() as u64);
        run.passed = self.pass;
        run.skipped = self.skipped + self.todo;
        let seconds = self.milliseconds.map(|time| time / 1000.0);
        run.duration = seconds.and_then(|time| std::time::Duration::try_from_secs_f64(time).ok());
    }
}
