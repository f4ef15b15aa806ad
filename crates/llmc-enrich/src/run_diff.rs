//! Two runs of one command: what differs between what they printed.
//!
//! Of test runs the tests that newly fail, newly pass, fail in both or cannot be run; of compilers and linters the diagnostics
//! that are new and those that are gone; of anything else a diff of the output. Times and line numbers, which differ from run
//! to run, are no difference where the output is understood. In other output, times are left out if something else differs.

mod diagnostics;
mod named_tests;
mod test_runs;
#[cfg(test)]
mod tests;
mod times;

use crate::budget::{
    LineBlock, clip, common_head, cost, names, plural, share, thousands, within, write_block,
};
use crate::output::{condenser_name, is_test_run, test_run};
use crate::terminal::settled;
use crate::testrun::{self, FailureGroup, Framework, TestFailure, TestRun};
use crate::{Condensed, Totals, diff};

pub use diagnostics::{Diagnostic, DiagnosticDiff};
pub use named_tests::NamedTests;
pub use test_runs::{NewTestsAtBase, TestRunDiff, UnrunSide};

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
    /// The tests by the runner's own report, where it has written one.
    pub tests: Option<&'a TestRun>,
}

impl FinishedRun<'_> {
    /// The tests that ran: by the runner's report, else by what it printed.
    fn tests(&self, argv: &[String]) -> Option<TestRun> {
        match self.tests {
            Some(run) => Some(run.clone()),
            None => test_run(argv, self.text, None).filter(|run| run.framework != Framework::Tsc),
        }
    }
}

/// What differs between two runs.
#[derive(Debug, Clone)]
pub struct RunDiff {
    pub found: RunDifference,
    /// What to say when both printed the same.
    same_output: &'static str,
    /// The last lines of a run that failed where nothing else says why, each under a title.
    tails: Vec<(String, String)>,
}

/// The difference, by what the output is.
#[derive(Debug, Clone)]
pub enum RunDifference {
    Tests(Box<TestRunDiff>),
    Diagnostics(DiagnosticDiff),
    Output(OutputDiff),
}

/// The difference of an output that is not understood.
#[derive(Debug, Clone, Default)]
pub struct OutputDiff {
    /// A unified diff; empty if both printed the same.
    pub text: String,
    /// Whether times are left out of it.
    pub is_without_times: bool,
    /// Tests that one of both names as failing.
    pub named: NamedTests,
}

impl RunDiff {
    /// Compares what a command printed at a base and now. `argv` are the words of the program that printed it.
    pub fn of(argv: &[String], base: FinishedRun<'_>, now: FinishedRun<'_>) -> RunDiff {
        let found = difference(argv, base, now);
        let (is_base_told, is_now_told) = match &found {
            RunDifference::Tests(tests) => tests.explains(),
            RunDifference::Diagnostics(found) => {
                (true, !found.new.is_empty() || found.unchanged > 0)
            }
            // The end of a test run says how it came out.
            RunDifference::Output(diff) if !diff.named.is_empty() => (false, false),
            RunDifference::Output(diff) => (true, !diff.text.is_empty()),
        };
        let sides = [
            ("at the base", base, is_base_told),
            ("now", now, is_now_told),
        ];
        let mut tails = Vec::new();
        for (side, run, is_told) in sides {
            let is_unrun =
                matches!(&found, RunDifference::Tests(tests) if tests.is_unrun(side == "now"));
            if is_told || (run.exit_code == Some(0) && !is_unrun) {
                continue;
            }
            let ended = match run.exit_code {
                _ if !is_unrun => String::new(),
                Some(code) => format!(", exit {code}"),
                None => ", ended by a signal".to_owned(),
            };
            let tail = tail(run.text);
            if !tail.is_empty() || is_unrun {
                tails.push((format!("[last lines {side}{ended}]"), tail));
            }
        }
        let have_failed = [base, now].iter().all(|run| run.exit_code != Some(0));
        let same_output = match have_failed {
            true if is_test_run(argv) => {
                "no test was run: both runs failed, with the same output\n"
            }
            true => "both runs failed, with the same output\n",
            false => "the output is the same\n",
        };
        RunDiff {
            found,
            same_output,
            tails,
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
            RunDifference::Output(diff) if diff.text.is_empty() => Condensed {
                body: self.same_output.to_owned(),
                ..Condensed::default()
            },
            RunDifference::Output(diff) => {
                let note = match diff.is_without_times {
                    true => times::NOTE,
                    false => "",
                };
                let named = named_lines(&diff.named, tokens / 3);
                let taken = cost(note) + cost(&named);
                let mut found = diff::condense(&diff.text, tokens.saturating_sub(taken));
                found.body.insert_str(0, note);
                found.body.insert_str(0, &named);
                found
            }
        };
        for (title, tail) in &self.tails {
            found.body.push_str(title);
            found.body.push('\n');
            found.body.push_str(tail);
        }
        found
    }
}

fn difference(argv: &[String], base: FinishedRun<'_>, now: FinishedRun<'_>) -> RunDifference {
    let is_checker = diagnostics::is_checker(argv);
    if !is_checker {
        // A run that passed and failed for another reason, such as too little coverage, is a test run all the same.
        if let Some(tests) = TestRunDiff::of(base.tests(argv), now.tests(argv)) {
            return RunDifference::Tests(Box::new(tests));
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
    RunDifference::Output(output_diff(&settled(base.text), &settled(now.text)))
}

fn output_diff(before: &str, after: &str) -> OutputDiff {
    let unified = |before: &str, after: &str| diff::unified("base", before, "now", after, CONTEXT);
    let whole = unified(before, after);
    let timeless = unified(&times::left_out(before), &times::left_out(after));
    // Where only times differ, they are what the caller wants to see.
    let is_without_times = !timeless.is_empty() && timeless.len() < whole.len();
    OutputDiff {
        text: if is_without_times { timeless } else { whole },
        is_without_times,
        named: NamedTests::of(before, after),
    }
}

/// The tests that only one output names as failing.
fn named_lines(named: &NamedTests, tokens: usize) -> String {
    let mut text = String::new();
    for (title, list) in [
        ("named as failing only now", &named.only_now),
        ("named as failing only at the base", &named.only_at_base),
    ] {
        if !list.is_empty() {
            let count = thousands(list.len() as u64);
            let row = names(&ids(list), tokens / 2);
            text.push_str(&format!("{title} ({count}): {row}\n"));
        }
    }
    text
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
        self.counted_blocks(title, blocks, |_| 1, later);
    }

    /// Failures under a title, those with one error together.
    fn failures(&mut self, title: &str, failures: &[TestFailure], later: usize) {
        let groups = testrun::groups(failures);
        let name_tokens = self.left / testrun::SAME_ERROR_SHARE;
        let blocks: Vec<LineBlock<'_>> = groups
            .iter()
            .map(|group| group.block(name_tokens))
            .collect();
        self.counted_blocks(title, &blocks, |at| FailureGroup::len(&groups[at]), later);
    }

    /// Blocks that each stand for as many things as `size` says.
    fn counted_blocks(
        &mut self,
        title: &str,
        blocks: &[LineBlock<'_>],
        size: impl Fn(usize) -> usize,
        later: usize,
    ) {
        if blocks.is_empty() {
            return;
        }
        let sum = |range: std::ops::Range<usize>| range.map(&size).sum::<usize>() as u64;
        let total = sum(0..blocks.len());
        let title = format!("{title} ({}):\n", thousands(total));
        let room = self.left.saturating_sub(cost(&title)) / (later + 1).min(3);
        let shares = share(blocks, room);
        self.body.push_str(&title);
        for (block, lines) in blocks.iter().zip(&shares.lines) {
            write_block(&mut self.body, block, *lines);
        }
        let shown = sum(0..shares.blocks());
        if shown < total {
            self.body
                .push_str(&format!("  and {} more\n", thousands(total - shown)));
        }
        self.left = self.left.saturating_sub(cost(&title) + room - shares.left);
        self.shown += shown;
        self.total += total;
    }

    /// A title with a count, and names in a row.
    fn names(&mut self, title: &str, list: &[&str], later: usize) {
        if list.is_empty() {
            return;
        }
        let room = self.left / (later + 1).min(3);
        let count = thousands(list.len() as u64);
        let head = common_head(list);
        let tails: Vec<&str> = list.iter().map(|name| &name[head.len()..]).collect();
        let row = names(&tails, room);
        let is_cut = row == count || row.ends_with(" more");
        let place = match head {
            "" => String::new(),
            head => format!(" in {}", head.trim_end_matches([':', ' '])),
        };
        let line = format!("{title} ({count}){place}: {row}\n");
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
    let name = tests.framework.name();
    let counts =
        |counts: &Option<String>| counts.clone().unwrap_or_else(|| "no test run".to_owned());
    let (base, now) = (counts(&tests.base_counts), counts(&tests.now_counts));
    let first = match tests.unrun {
        None => format!("{name}: {base} at the base; {now} now\n"),
        Some(unrun) => {
            let reason = unrun.reason();
            format!("{name}: cannot compare: {reason}\nbase: {base}; now: {now}\n")
        }
    };
    let mut first = first;
    if !tests.new.is_empty() {
        first.push_str(&format!("new: {}", thousands(tests.new.len() as u64)));
        let failing = tests.new.len() - tests.new_and_not_failing().len();
        if failing > 0 {
            first.push_str(&format!(", {} failing now", thousands(failing as u64)));
        }
        if let Some(found) = &tests.new_at_base {
            first.push_str(&format!("; without the change: {}", found.text()));
        }
        first.push('\n');
    }
    let mut sections = Sections::new(first, tokens);
    for (title, list) in [
        ("newly failing", &tests.newly_failing),
        (
            "failing now, not run at the base",
            &tests.failing_unrun_at_base,
        ),
        ("cannot be collected now", &tests.not_collected_now),
    ] {
        sections.failures(title, list, 2);
    }
    // With nothing about them, the names are all there is.
    let (mut unproved, mut passing, mut not_run) = (ids(&tests.new), Vec::new(), Vec::new());
    if let Some(found) = &tests.new_at_base {
        unproved.clear();
        sections.failures("new, failing without the change", &found.failing, 2);
        (passing, not_run) = (ids(&found.passing), ids(&found.not_run));
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
        (
            "flaky, differ between two runs of the same side",
            ids(&tests.flaky),
        ),
        ("new tests", unproved),
        ("new, passing without the change", passing),
        ("new, not run without the change", not_run),
    ] {
        sections.names(title, &list, 1);
    }
    let nothing_new = tests.is_empty() && tests.new.is_empty();
    if nothing_new && tests.base_counts != tests.now_counts {
        // Such a difference has a test behind it, whose name is not in the output.
        sections.body.push_str(
            "the counts differ, and the runner names only tests that fail; its verbose form names new ones\n",
        );
    } else if nothing_new && tests.failing_in_both.is_empty() {
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
