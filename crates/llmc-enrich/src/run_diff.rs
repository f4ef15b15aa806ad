//! Two runs of one command: what differs between what they printed.
//!
//! Of test runs the tests that newly fail, newly pass, fail in both or cannot be run; of compilers and linters the diagnostics
//! that are new and those that are gone; of anything else a diff of the output. Times and line numbers, which differ from run
//! to run, are no difference where the output is understood.

mod diagnostics;
mod test_runs;
#[cfg(test)]
mod tests;

use crate::budget::{LineBlock, clip, cost, names, plural, share, thousands, within, write_block};
use crate::output::{condenser_name, is_test_run, test_run};
use crate::terminal::settled;
use crate::testrun::{self, TestFailure};
use crate::{Condensed, Totals, diff};

pub use diagnostics::{Diagnostic, DiagnosticDiff};
pub use test_runs::TestRunDiff;

/// Unchanged lines around a change of the output.
const CONTEXT: usize = 2;
/// Bytes shown of one line.
const MAX_LINE_BYTES: usize = 300;
/// Lines shown of the end of a run that failed for a reason that is not in the comparison.
const TAIL_LINES: usize = 8;

/// A run that has ended.
#[derive(Debug, Clone, Copy)]
pub struct FinishedRun<'a> {
    /// Both outputs, in the order in which they were read.
    pub text: &'a str,
    /// `None` for a run that a signal ended.
    pub exit_code: Option<i32>,
}

/// What differs between two runs.
#[derive(Debug, Clone)]
pub struct RunDiff {
    pub found: RunDifference,
    /// The last lines of the run as it is now, where it failed and nothing else says why.
    tail: Option<String>,
}

/// The difference, by what the output is.
#[derive(Debug, Clone)]
pub enum RunDifference {
    Tests(TestRunDiff),
    Diagnostics(DiagnosticDiff),
    /// A unified diff; empty if both printed the same.
    Output(String),
}

impl RunDiff {
    /// Compares what a command printed at a base and now. `argv` are the words of the program that printed it.
    pub fn of(argv: &[String], base: FinishedRun<'_>, now: FinishedRun<'_>) -> RunDiff {
        let found = difference(argv, base, now);
        let is_explained = match &found {
            RunDifference::Tests(tests) => {
                tests.now_counts.is_some()
                    && !(tests.newly_failing.is_empty()
                        && tests.failing_in_both.is_empty()
                        && tests.not_collected_now.is_empty())
            }
            RunDifference::Diagnostics(found) => !found.new.is_empty() || found.unchanged > 0,
            RunDifference::Output(diff) => !diff.is_empty(),
        };
        let tail = (now.exit_code != Some(0) && !is_explained).then(|| tail(now.text));
        RunDiff {
            found,
            tail: tail.filter(|tail| !tail.is_empty()),
        }
    }

    /// The comparison within `budget` tokens.
    pub fn condense(&self, budget: usize) -> Condensed {
        within(budget, |tokens| self.render(tokens))
    }

    fn render(&self, tokens: usize) -> Condensed {
        let mut found = match &self.found {
            RunDifference::Tests(tests) => render_tests(tests, tokens),
            RunDifference::Diagnostics(found) => render_diagnostics(found, tokens),
            RunDifference::Output(text) if text.is_empty() => Condensed {
                body: "the output is the same\n".to_owned(),
                ..Condensed::default()
            },
            RunDifference::Output(text) => diff::condense(text, tokens),
        };
        if let Some(tail) = &self.tail {
            found.body.push_str("[last lines now]\n");
            found.body.push_str(tail);
        }
        found
    }
}

fn difference(argv: &[String], base: FinishedRun<'_>, now: FinishedRun<'_>) -> RunDifference {
    let is_checker = diagnostics::is_checker(argv);
    if !is_checker {
        let run = |run: FinishedRun<'_>| test_run(argv, run.text, run.exit_code);
        if let Some(tests) = TestRunDiff::of(run(base), run(now)) {
            return RunDifference::Tests(tests);
        }
    }
    // A build may print diagnostics whatever it is called; a program that prints files or matches has none of its own.
    let may_check = !argv.is_empty() && (condenser_name(argv).is_none() || is_test_run(argv));
    let (before, after) = (diagnostics::parse(base.text), diagnostics::parse(now.text));
    // What some program prints may look like a diagnostic without being one.
    let says_so = |found: &Diagnostic| !found.severity.is_empty() && !found.path.is_empty();
    if (is_checker && !(before.is_empty() && after.is_empty()))
        || (may_check && before.iter().chain(&after).any(says_so))
    {
        return RunDifference::Diagnostics(DiagnosticDiff::of(before, after));
    }
    let (before, after) = (settled(base.text), settled(now.text));
    RunDifference::Output(diff::unified("base", &before, "now", &after, CONTEXT))
}

/// The last lines of an output.
fn tail(text: &str) -> String {
    let text = settled(text);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let from = lines.len().saturating_sub(TAIL_LINES);
    let lines = lines[from..].iter().map(|line| clip(line, MAX_LINE_BYTES));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The sections of an answer, cut where there is no more room.
struct Sections {
    body: String,
    left: usize,
    shown: u64,
    total: u64,
}

impl Sections {
    fn new(first: String, tokens: usize) -> Sections {
        let left = tokens.saturating_sub(cost(&first));
        Sections {
            body: first,
            left,
            shown: 0,
            total: 0,
        }
    }

    /// A title with a count, and under it as much of each block as there is room for. `later` sections need some room too.
    fn blocks(&mut self, title: &str, blocks: &[LineBlock<'_>], later: usize) {
        if blocks.is_empty() {
            return;
        }
        let title = format!("{title} ({}):\n", thousands(blocks.len() as u64));
        let room = self.left.saturating_sub(cost(&title)) / (later + 1).min(3);
        let shares = share(blocks, room);
        self.body.push_str(&title);
        for (block, lines) in blocks.iter().zip(&shares.lines) {
            write_block(&mut self.body, block, *lines);
        }
        let unshown = blocks.len() - shares.blocks();
        if unshown > 0 {
            self.body
                .push_str(&format!("  and {} more\n", thousands(unshown as u64)));
        }
        self.left = self.left.saturating_sub(cost(&title) + room - shares.left);
        self.shown += shares.blocks() as u64;
        self.total += blocks.len() as u64;
    }

    /// A title with a count, and names in a row.
    fn names(&mut self, title: &str, list: &[&str], later: usize) {
        if list.is_empty() {
            return;
        }
        let room = self.left / (later + 1).min(3);
        let count = thousands(list.len() as u64);
        let row = names(list, room);
        let is_cut = row == count || row.ends_with(" more");
        let line = format!("{title} ({count}): {row}\n");
        self.left = self.left.saturating_sub(cost(&line));
        self.body.push_str(&line);
        self.total += list.len() as u64;
        self.shown += list.len() as u64 - u64::from(is_cut);
    }

    fn finish(self) -> Condensed {
        Condensed {
            truncated: self.shown < self.total,
            body: self.body,
            totals: Totals {
                matches: Some(self.total),
                ..Totals::default()
            },
            shown: self.shown,
            ..Condensed::default()
        }
    }
}

fn render_tests(tests: &TestRunDiff, tokens: usize) -> Condensed {
    let counts =
        |counts: &Option<String>| counts.clone().unwrap_or_else(|| "no test run".to_owned());
    let first = format!(
        "{}: {} at the base; {} now\n",
        tests.framework.name(),
        counts(&tests.base_counts),
        counts(&tests.now_counts)
    );
    let mut sections = Sections::new(first, tokens);
    for (title, list) in [
        ("newly failing", &tests.newly_failing),
        ("cannot be collected now", &tests.not_collected_now),
    ] {
        let blocks: Vec<LineBlock<'_>> = list.iter().map(testrun::block).collect();
        sections.blocks(title, &blocks, 2);
    }
    for (title, list) in [
        ("newly passing", ids(&tests.newly_passing)),
        (
            "did not run now, failed at the base",
            ids(&tests.not_run_now),
        ),
        (
            "could not be collected at the base",
            failed_ids(&tests.not_collected_at_base),
        ),
        ("failing in both", failed_ids(&tests.failing_in_both)),
    ] {
        sections.names(title, &list, 1);
    }
    if tests.is_empty() && tests.failing_in_both.is_empty() {
        sections.body.push_str("no test changed its result\n");
    }
    sections.finish()
}

fn ids(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

fn failed_ids(list: &[TestFailure]) -> Vec<&str> {
    list.iter().map(|failure| failure.id.as_str()).collect()
}

fn render_diagnostics(found: &DiagnosticDiff, tokens: usize) -> Condensed {
    let first = match (found.new.len(), found.gone.len()) {
        (0, 0) => format!(
            "the same diagnostics ({})\n",
            thousands(found.unchanged as u64)
        ),
        (new, gone) => format!(
            "{}, {} gone, {} unchanged\n",
            plural(new as u64, "new diagnostic"),
            thousands(gone as u64),
            thousands(found.unchanged as u64)
        ),
    };
    let mut sections = Sections::new(first, tokens);
    let blocks = |list: &[Diagnostic]| {
        let line = |found: &Diagnostic| LineBlock {
            lines: vec![clip(&found.text(), MAX_LINE_BYTES).into_owned().into()],
            dropped: 0,
        };
        list.iter().map(line).collect::<Vec<_>>()
    };
    sections.blocks("new", &blocks(&found.new), 1);
    sections.blocks("gone", &blocks(&found.gone), 0);
    sections.finish()
}
