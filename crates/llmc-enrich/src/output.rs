//! Arbitrary commands: which condenser fits, and head and tail when none does.
//!
//! The program's name comes first, seen through the usual launchers (`python -m pytest`, `npx jest`, `timeout 60 cargo
//! t`); then the text itself, since a `make check` may well print a test run.

mod matches;
mod program;

use std::borrow::Cow;

use llmc_tokens::{count, fits};

use crate::budget::{clip, crumb_cost, plural, thousands};
use crate::entries::{FoundPath, FoundPaths, condense_find};
use crate::error_lines::ErrorLines;
use crate::excerpt::{Favour, excerpt, excerpt_ends, excerpt_of_output, line_count};
use crate::preview::{self, PreviewPart, TextEnds};
use crate::sniff::{self, ContentKind};
use crate::{Condensed, Totals, diff, git, grep, logs, testrun};
use program::{KnownProgram, operands, prints_matches};

/// What a command printed, as much of it as is at hand.
#[derive(Debug)]
pub struct CapturedOutput<'a> {
    pub argv: &'a [String],
    pub stdout: TextEnds<'a>,
    pub stderr: TextEnds<'a>,
    /// Lines that look like errors, where an output is not at hand as a whole.
    pub error_lines: &'a ErrorLines,
    pub exit_code: Option<i32>,
}

#[derive(Debug)]
pub struct CondensedCommand {
    pub found: Condensed,
    /// What a file that was printed holds.
    pub kind: Option<ContentKind>,
}

/// The name of the condenser for this command; `None` for unknown commands.
pub fn condenser_name(argv: &[String]) -> Option<&'static str> {
    KnownProgram::of(argv).name(argv)
}

/// Whether this command runs tests, which may print their results on either stream.
pub fn is_test_run(argv: &[String]) -> bool {
    matches!(KnownProgram::of(argv), KnownProgram::Tests(_))
}

/// The test run that a command printed: only if the program is that runner, or the output ends with that runner's
/// summary. Else the counts of one program would be taken for the result of another. Without words, several programs
/// printed, and the run would hide what the others say. Nor does a run without a failure tell why a command failed.
pub fn test_run(argv: &[String], text: &str, exit_code: Option<i32>) -> Option<testrun::TestRun> {
    if argv.is_empty() {
        return None;
    }
    let runner = match KnownProgram::of(argv) {
        KnownProgram::Tests(name) => Some(name),
        KnownProgram::Other => None,
        _ => return None,
    };
    let run = testrun::parse(text)?;
    let is_runner = runner.is_some_and(|name| run.framework.is_run_by(name));
    let run = match is_runner {
        true => run,
        // What another program prints after the summary is not of the run.
        false if ends_with_summary(text, run.framework) => {
            let text = &text[..summary_end(text)];
            let run = testrun::parse(text)?;
            // Nor is what it prints before, where the summary counts no failure.
            if run.wrong() > 0 && counts_no_failure(text, run.framework) {
                return None;
            }
            run
        }
        false => return None,
    };
    let is_explained = exit_code.is_none_or(|code| code == 0) || run.wrong() > 0;
    is_explained.then_some(run)
}

/// Prints a test run within `budget` tokens, and every line after its summary that looks like an error.
pub fn condense_test_run(
    run: &testrun::TestRun,
    text: &str,
    raw_len: u64,
    budget: usize,
) -> Condensed {
    let errors = errors_after_summary(text);
    let mut after = String::new();
    for line in &errors {
        after.push_str(&clip(line, MAX_ERROR_LINE_BYTES));
        after.push('\n');
    }
    let mut found = testrun::condense(run, raw_len, budget.saturating_sub(count(&after)));
    let is_shown = |line: &&str| found.body.contains(line.trim());
    if !errors.iter().all(is_shown) {
        found.body.push_str("[after the summary]\n");
        found.body.push_str(&after);
    }
    found
}

/// Bytes shown of a line after the summary.
const MAX_ERROR_LINE_BYTES: usize = 300;
/// Lines at the end of an output among which a summary must be.
const SUMMARY_LINES: usize = 5;

/// Whether the last lines are a summary of this framework.
fn ends_with_summary(text: &str, framework: testrun::Framework) -> bool {
    let lines: Vec<&str> = last_lines(text).into_iter().map(|(_, line)| line).collect();
    testrun::parse(&lines.join("\n")).is_some_and(|run| run.framework == framework)
}

/// Whether the summary at the end of a text is of the whole run and counts no failure.
fn counts_no_failure(text: &str, framework: testrun::Framework) -> bool {
    let lines: Vec<&str> = last_lines(text).into_iter().map(|(_, line)| line).collect();
    let summary = testrun::parse(&lines.join("\n"));
    framework.has_one_summary() && summary.is_some_and(|summary| summary.wrong() == 0)
}

/// The last lines that are not blank, each with where it begins.
fn last_lines(text: &str) -> Vec<(usize, &str)> {
    let begin = |line: &str| line.as_ptr() as usize - text.as_ptr() as usize;
    let lines = text.lines().rev().filter(|line| !line.trim().is_empty());
    let lines = lines.take(SUMMARY_LINES).map(|line| (begin(line), line));
    let mut lines: Vec<(usize, &str)> = lines.collect();
    lines.reverse();
    lines
}

/// Where the summary at the end of a text ends: after it, the same tests have passed and failed, and the run is as
/// complete. Without a summary, all of the last lines are after it.
fn summary_end(text: &str) -> usize {
    let lines = last_lines(text);
    let counts = |lines: &[(usize, &str)]| {
        let lines: Vec<&str> = lines.iter().map(|(_, line)| *line).collect();
        let run = testrun::parse(&lines.join("\n"))?;
        Some((
            run.framework,
            run.passed,
            run.failed,
            run.skipped,
            run.notes,
        ))
    };
    let whole = counts(&lines);
    let is_read = |end: &usize| whole.is_some() && counts(&lines[..*end]) == whole;
    let read = (1..=lines.len()).find(is_read).unwrap_or(0);
    match lines.get(read) {
        Some((begin, _)) => *begin,
        None => text.len(),
    }
}

/// Lines after the summary that look like errors.
fn errors_after_summary(text: &str) -> Vec<&str> {
    let is_error = |line: &&str| {
        let mut errors = ErrorLines::default();
        errors.feed(line.as_bytes());
        errors.finish();
        errors.count() > 0
    };
    let after = text[summary_end(text)..].lines();
    after
        .filter(|line| !line.trim().is_empty())
        .filter(is_error)
        .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// Which output is a log of which only the ends are at hand; it should be surveyed before it is condensed.
pub fn find_long_log(
    argv: &[String],
    stdout: &TextEnds<'_>,
    stderr: &TextEnds<'_>,
) -> Option<OutputStream> {
    let printed = match KnownProgram::of(argv) {
        KnownProgram::Cat => {
            let is_log = stdout.tail.is_some() && file_kind(argv, stdout) == ContentKind::Log;
            return is_log.then_some(OutputStream::Stdout);
        }
        KnownProgram::Tests(_) | KnownProgram::Other => larger(stdout, stderr),
        _ => return None,
    };
    let text = match printed {
        OutputStream::Stdout => stdout,
        OutputStream::Stderr => stderr,
    };
    (text.tail.is_some() && logs::looks_like_log(text.head)).then_some(printed)
}

fn larger(stdout: &TextEnds<'_>, stderr: &TextEnds<'_>) -> OutputStream {
    if stdout.total_bytes >= stderr.total_bytes {
        OutputStream::Stdout
    } else {
        OutputStream::Stderr
    }
}

/// Puts what a command printed within `budget` tokens, by what the command is and by what it printed.
///
/// `source` gives the text of a file that a line of the output names, if it may be read.
pub fn condense_command(
    captured: &CapturedOutput<'_>,
    mut source: impl FnMut(&str) -> Option<String>,
    budget: usize,
) -> CondensedCommand {
    let CapturedOutput {
        argv,
        stdout,
        stderr,
        error_lines,
        exit_code,
    } = captured;
    let program = KnownProgram::of(argv);
    let plain = |found| CondensedCommand { found, kind: None };
    let whole = stdout.tail.is_none() && stderr.tail.is_none();
    if whole && count(stdout.head) + count(stderr.head) <= budget {
        let mut found = Condensed::whole(&joined(stdout.head, stderr.head));
        // Where everything is there, its size tells nothing.
        found.totals.size = None;
        if program == KnownProgram::Grep && prints_matches(argv) && matches!(exit_code, Some(0 | 1))
        {
            let lines = line_count(stdout.head);
            (found.totals.matches, found.totals.lines) = (Some(lines), None);
            found.shown = lines;
        }
        let kind = (program == KnownProgram::Cat && !stdout.head.is_empty())
            .then(|| file_kind(argv, stdout));
        return CondensedCommand { found, kind };
    }
    if let Some(told) = by_program(&program, captured, &mut source, budget) {
        return told;
    }
    if whole {
        let found = condense(argv, stdout.head, stderr.head, *exit_code, budget);
        let favour = Favour::of(*exit_code);
        let found = found.unwrap_or_else(|| fallback(stdout.head, stderr.head, favour, budget));
        return plain(found);
    }
    let (larger, other, other_name) = match larger(stdout, stderr) {
        OutputStream::Stdout => (stdout, stderr, "stderr"),
        OutputStream::Stderr => (stderr, stdout, "stdout"),
    };
    // A long run's verdict stands at its end.
    let end = larger.tail.unwrap_or(larger.head);
    if let Some(run) = test_run(argv, end, *exit_code).filter(|run| run.wrong() > 0) {
        let raw_len = stdout.total_bytes + stderr.total_bytes;
        let mut found = condense_test_run(&run, end, raw_len, budget);
        found.breadcrumbs.push(format!(
            "{} lines in all; failures are those of the last {} bytes",
            stdout.total_lines + stderr.total_lines,
            end.len()
        ));
        found.truncated = true;
        return plain(found);
    }
    let by_name = match (program, larger.tail) {
        (KnownProgram::Git { .. } | KnownProgram::Diff, _) => {
            condense_beginning(captured, larger, budget)
        }
        (_, Some(tail)) if larger.survey.is_some() => {
            Some(logs::condense_ends(larger, tail, budget))
        }
        _ => None,
    };
    let mut found = by_name.unwrap_or_else(|| excerpt_ends(larger, error_lines, budget));
    if other.total_bytes > 0 {
        found.gap = None;
        found.breadcrumbs.push(format!(
            "{other_name}: {} lines, left out",
            other.total_lines
        ));
        found.totals.lines = found.totals.lines.map(|lines| lines + other.total_lines);
        found.totals.size = found.totals.size.map(|size| size + other.total_bytes);
    }
    plain(found)
}

/// What the beginning of an output says that is not at hand as a whole, for programs that print one thing after the other.
fn condense_beginning(
    captured: &CapturedOutput<'_>,
    text: &TextEnds<'_>,
    budget: usize,
) -> Option<Condensed> {
    const NOTE_TOKENS: usize = 24;
    let room = budget.saturating_sub(NOTE_TOKENS);
    let mut found = condense(captured.argv, text.head, "", captured.exit_code, room)?;
    let rest = text.total_lines.saturating_sub(line_count(text.head));
    found.breadcrumbs.push(format!(
        "only the first {} bytes are taken apart, not the {} after them",
        text.head.len(),
        plural(rest, "line")
    ));
    // What was counted there is not all there is.
    found.shown = line_count(&found.body).min(text.total_lines);
    found.totals = Totals {
        lines: Some(text.total_lines),
        size: Some(text.total_bytes),
        ..Totals::default()
    };
    found.body.insert_str(
        0,
        &format!(
            "(of the first {} of {} bytes)\n",
            thousands(text.head.len() as u64),
            thousands(text.total_bytes)
        ),
    );
    found.truncated = true;
    Some(found)
}

/// The output of programs that print matches, files or paths.
fn by_program(
    program: &KnownProgram,
    captured: &CapturedOutput<'_>,
    source: &mut dyn FnMut(&str) -> Option<String>,
    budget: usize,
) -> Option<CondensedCommand> {
    let CapturedOutput {
        argv,
        stdout,
        stderr,
        ..
    } = captured;
    if stdout.total_bytes == 0 {
        return None;
    }
    let complaint = match stderr.total_bytes {
        0 => Condensed::default(),
        _ => excerpt(stderr.head, budget / 4, Favour::Head),
    };
    let room = budget.saturating_sub(count(&complaint.body) + 2 * complaint.breadcrumbs.len() * 8);
    let (mut found, kind) = match program {
        KnownProgram::Grep if prints_matches(argv) => {
            let pattern = operands(argv).next().unwrap_or_default().to_owned();
            let file = operands(argv).skip(1).last().unwrap_or_default();
            let total = stdout.total_lines;
            let found = match matches::parse(stdout.head, total, pattern, file, source) {
                Some(matches) => grep::condense(&matches, source, room),
                None => {
                    let mut found = match stdout.tail {
                        None => excerpt(stdout.head, room, Favour::Head),
                        Some(_) => excerpt_ends(stdout, captured.error_lines, room),
                    };
                    (found.totals.matches, found.totals.lines) = (Some(total), None);
                    found
                }
            };
            (found, None)
        }
        KnownProgram::Cat => {
            let kind = file_kind(argv, stdout);
            let path = operands(argv).last().unwrap_or_default();
            let mut found = match kind {
                ContentKind::Binary => {
                    preview::condense_binary(path, stdout.head.as_bytes(), stdout.total_bytes)
                }
                // Of a log every line counts.
                ContentKind::Log => preview::condense(path, kind, stdout, PreviewPart::Whole, room),
                _ => {
                    let text = ends_of(stdout);
                    preview::condense(path, kind, &text, PreviewPart::Whole, room)
                }
            };
            if stdout.tail.is_some() && captured.error_lines.count() > 0 {
                let error_lines = plural(captured.error_lines.count(), "line");
                found
                    .breadcrumbs
                    .push(format!("{error_lines} in all that look like errors"));
            }
            (found, Some(kind))
        }
        KnownProgram::Find => {
            let paths = stdout.head.lines().map(|path| FoundPath {
                path: path.to_owned(),
                ..FoundPath::default()
            });
            let found = FoundPaths {
                paths: paths.collect(),
                total: stdout.total_lines,
                files_searched: stdout.total_lines,
                pattern: operands(argv).last().unwrap_or_default().to_owned(),
                ..FoundPaths::default()
            };
            (condense_find(&found, room), None)
        }
        _ => return None,
    };
    if stderr.total_bytes > 0 {
        found.gap = None;
        found.body.push_str("[stderr]\n");
        found.body.push_str(&complaint.body);
        let crumbs = complaint.breadcrumbs.iter();
        found
            .breadcrumbs
            .extend(crumbs.map(|crumb| format!("stderr: {crumb}")));
        found.truncated |= complaint.truncated || stderr.tail.is_some();
    }
    Some(CondensedCommand { found, kind })
}

/// A long text by its ends: what lies between would cost more to read than it can say in a few hundred lines.
fn ends_of<'a>(text: &TextEnds<'a>) -> TextEnds<'a> {
    const HEAD_BYTES: usize = 2 << 20;
    const TAIL_BYTES: usize = 512 << 10;
    if text.head.len() <= HEAD_BYTES + TAIL_BYTES {
        return *text;
    }
    let cut = |at: usize| text.head[..text.head.floor_char_boundary(at)].rfind('\n');
    let head = cut(HEAD_BYTES).map_or(text.head, |at| &text.head[..=at]);
    let tail = text.tail.or_else(|| {
        let from = cut(text.head.len() - TAIL_BYTES)?;
        Some(&text.head[from + 1..])
    });
    TextEnds {
        head: tail.map_or(text.head, |_| head),
        tail,
        ..*text
    }
}

fn file_kind(argv: &[String], stdout: &TextEnds<'_>) -> ContentKind {
    let path = operands(argv).last().unwrap_or_default();
    sniff::sniff(path, stdout.head.as_bytes())
}

/// Condenses what a command printed to `budget` tokens.
///
/// Nothing when it fits as it is, and for `grep`, `cat`, `find` and their like, which are ranked elsewhere.
pub fn condense(
    argv: &[String],
    stdout: &str,
    stderr: &str,
    exit_code: Option<i32>,
    budget: usize,
) -> Option<Condensed> {
    if fits(stdout, budget) && fits(stderr, budget) && count(stdout) + count(stderr) <= budget {
        return None;
    }
    let program = KnownProgram::of(argv);
    if matches!(
        program,
        KnownProgram::Grep | KnownProgram::Cat | KnownProgram::Find | KnownProgram::Ls
    ) {
        return None;
    }
    let both = joined(stdout, stderr);
    let raw_len = (stdout.len() + stderr.len()) as u64;
    if let KnownProgram::Git { subcommand, args } = &program {
        return Some(git::condense(subcommand, args, &both, budget));
    }
    if program == KnownProgram::Diff {
        return Some(diff::condense(&both, budget));
    }
    // Before diffs, for a failed comparison is often printed as one.
    if let Some(run) = test_run(argv, &both, exit_code) {
        return Some(condense_test_run(&run, &both, raw_len, budget));
    }
    if !argv.is_empty() && diff::looks_like_diff(&both) {
        return Some(diff::condense(&both, budget));
    }
    if logs::looks_like_log(&both) {
        return Some(logs::condense(&both, budget));
    }
    Some(fallback(stdout, stderr, Favour::of(exit_code), budget))
}

fn joined<'a>(stdout: &'a str, stderr: &'a str) -> Cow<'a, str> {
    match (stdout.is_empty(), stderr.is_empty()) {
        (_, true) => Cow::Borrowed(stdout),
        (true, _) => Cow::Borrowed(stderr),
        _ if stdout.ends_with('\n') => Cow::Owned(format!("{stdout}{stderr}")),
        _ => Cow::Owned(format!("{stdout}\n{stderr}")),
    }
}

/// Both streams as head and tail; what stderr says is short and matters more than its length.
fn fallback(stdout: &str, stderr: &str, favour: Favour, budget: usize) -> Condensed {
    if stderr.is_empty() {
        return excerpt_of_output(stdout, budget, favour);
    }
    if stdout.is_empty() {
        return excerpt_of_output(stderr, budget, favour);
    }
    if stderr.trim().is_empty() {
        return excerpt(stdout, budget, favour);
    }
    if stdout.trim().is_empty() {
        return excerpt(stderr, budget, favour);
    }
    let most = match favour {
        Favour::Head => budget * 2 / 5,
        Favour::Tail => budget * 3 / 5,
    };
    let errors = excerpt(stderr, most, favour);
    let used = count(&errors.body)
        + errors
            .breadcrumbs
            .iter()
            .map(|crumb| crumb_cost(crumb))
            .sum::<usize>()
        + 8;
    let mut both = excerpt(stdout, budget.saturating_sub(used), favour);
    if !both.body.is_empty() && !both.body.ends_with('\n') {
        both.body.push('\n');
    }
    both.body.push_str("[stderr]\n");
    both.body.push_str(&errors.body);
    let crumbs = errors
        .breadcrumbs
        .iter()
        .map(|crumb| format!("stderr: {crumb}"));
    both.breadcrumbs.extend(crumbs);
    let sum = |a: Option<u64>, b: Option<u64>| Some(a.unwrap_or(0) + b.unwrap_or(0));
    both.totals.lines = sum(both.totals.lines, errors.totals.lines);
    both.totals.size = sum(both.totals.size, errors.totals.size);
    both.shown += errors.shown;
    both.truncated |= errors.truncated;
    both
}

#[cfg(test)]
mod tests;
