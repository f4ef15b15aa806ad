//! Fuzz targets: whatever a program prints, what is shown of it keeps the budget and tells what it leaves out.

use llmc_fuzz::{FuzzInput, check};
use llmc_tokens::count;

use crate::error_lines::ErrorLines;
use crate::excerpt::line_count;
use crate::output::{CapturedOutput, condense_command};
use crate::preview::TextEnds;
use crate::{Condensed, diff, git};

/// Tokens that counts, totals and remarks may take where a budget is smaller than they are.
const MIN_BUDGET_TOKENS: usize = 200;

const COMMANDS: [&str; 14] = [
    "tool",
    "git status",
    "git log",
    "git show",
    "git diff",
    "git blame f",
    "diff a b",
    "grep -n word src",
    "cat data.json",
    "cat notes.md",
    "find . -name x",
    "cargo test",
    "pytest",
    "npx jest",
];

const GIT: [&str; 8] = [
    "status", "log", "show", "diff", "blame", "branch", "reflog", "stash",
];

fn check_bounds(found: &Condensed, budget: usize) {
    let crumbs: usize = found.breadcrumbs.iter().map(|crumb| count(crumb) + 5).sum();
    let tokens = count(&found.body) + crumbs;
    assert!(
        tokens <= budget.max(MIN_BUDGET_TOKENS),
        "{tokens} of {budget} tokens: {found:?}"
    );
    let totals = found.totals;
    let total = totals.matches.or(totals.lines).or(totals.files);
    assert!(total.is_none_or(|total| found.shown <= total), "{found:?}");
}

#[test]
fn condensers() {
    check!("condensers", |bytes: &[u8]| {
        let mut input = FuzzInput::new(bytes);
        let command = input.one_of(&COMMANDS);
        let budget = usize::from(input.byte()) * 2;
        let exit_code = *input.one_of(&[Some(0), Some(1), None]);
        let only_ends = input.byte() % 4 == 3;
        let (stdout, stderr) = (input.text(), input.text());
        let argv: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let mut error_lines = ErrorLines::default();
        error_lines.feed(stdout.as_bytes());
        error_lines.finish();
        let half = stdout.floor_char_boundary(stdout.len() / 2);
        let cut = stdout[..half].rfind('\n').filter(|_| only_ends);
        let (head, tail) = match cut {
            Some(at) => (&stdout[..=at], Some(&stdout[at + 1..])),
            None => (&*stdout, None),
        };
        let whole = |head, tail, text: &str| TextEnds {
            head,
            tail,
            total_bytes: text.len() as u64,
            total_lines: line_count(text),
            survey: None,
        };
        let captured = CapturedOutput {
            argv: &argv,
            stdout: whole(head, tail, &stdout),
            stderr: whole(&stderr, None, &stderr),
            error_lines: &error_lines,
            exit_code,
        };
        let found = condense_command(&captured, |_| Some(stdout.to_string()), budget).found;
        check_bounds(&found, budget);
        let together = stdout.len() + stderr.len() + 1;
        if !found.truncated && argv[0] == "tool" {
            assert!(
                found.body.len() + 1 >= together - 1,
                "cut and not marked as such: {found:?}"
            );
        }
    });
}

#[test]
fn git_output() {
    check!("git_output", |bytes: &[u8]| {
        let mut input = FuzzInput::new(bytes);
        let subcommand = input.one_of(&GIT);
        let budget = usize::from(input.byte()) * 2;
        let args: Vec<String> = input.text().split(' ').map(str::to_owned).collect();
        let text = input.text();
        let found = git::condense(subcommand, &args, &text, budget);
        check_bounds(&found, budget);
        if count(&text) <= budget {
            assert_eq!((found.body.as_str(), found.truncated), (&*text, false));
        }
    });
}

#[test]
fn diffs() {
    check!("diffs", |bytes: &[u8]| {
        let mut input = FuzzInput::new(bytes);
        let budget = usize::from(input.byte()) * 2;
        let context = usize::from(input.byte() % 5);
        let (old, new) = (input.text(), input.text());
        check_bounds(&diff::condense(&old, budget), budget);
        let made = diff::unified("a", &old, "b", &new, context);
        assert_eq!(made.is_empty(), old == new);
        let found = diff::condense(&made, usize::MAX);
        assert_eq!(
            (found.body.as_str(), found.truncated),
            (made.as_str(), false)
        );
        let hunks = made.lines().filter(|line| line.starts_with("@@ -")).count();
        assert!(found.totals.matches <= Some(hunks as u64), "{made:?}");
        if context == 0 {
            // Every line that is added or removed makes up the difference in length.
            let signed = |sign: &str| {
                let lines = made.split_inclusive('\n').skip(2);
                lines.filter(|line| line.starts_with(sign)).count() as i64
            };
            let lines = |text: &str| text.split_inclusive('\n').count() as i64;
            assert_eq!(
                signed("+") - signed("-"),
                lines(&new) - lines(&old),
                "{made:?}"
            );
        }
        check_bounds(&diff::condense(&made, budget), budget);
    });
}
