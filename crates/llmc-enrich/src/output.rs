//! Arbitrary commands: which condenser fits, and head and tail when none does.
//!
//! The program's name comes first, seen through the usual launchers (`python -m pytest`, `npx jest`, `timeout 60 cargo
//! t`); then the text itself, since a `make check` may well print a test run.

use std::borrow::Cow;

use llmc_tokens::{count, fits};

use crate::excerpt::{Favour, excerpt};
use crate::room::crumb_cost;
use crate::{Condensed, diff, git, logs, testrun};

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
    let program = Program::of(argv);
    if program == Program::Elsewhere {
        return None;
    }
    let both = joined(stdout, stderr);
    let raw_len = (stdout.len() + stderr.len()) as u64;
    if let Program::Git { subcommand, args } = &program {
        return Some(git::condense(subcommand, args, &both, budget));
    }
    if program == Program::Diff {
        return Some(diff::condense(&both, budget));
    }
    // Before diffs, for a failed comparison is often printed as one.
    if let Some(run) = testrun::parse(&both) {
        return Some(testrun::condense(&run, raw_len, budget));
    }
    if diff::looks_like_diff(&both) {
        return Some(diff::condense(&both, budget));
    }
    if logs::looks_like_log(&both) {
        return Some(logs::condense(&both, budget));
    }
    let favour = match exit_code {
        Some(0) => Favour::Head,
        _ => Favour::Tail,
    };
    Some(fallback(stdout, stderr, favour, budget))
}

/// What kind of program a command line starts.
#[derive(Debug, PartialEq, Eq)]
enum Program {
    Git {
        subcommand: String,
        args: Vec<String>,
    },
    Diff,
    /// Ranked by other modules.
    Elsewhere,
    Other,
}

impl Program {
    fn of(argv: &[String]) -> Self {
        let words = command(argv);
        let Some((first, rest)) = words.split_first() else {
            return Self::Other;
        };
        match first.rsplit('/').next().unwrap_or(first) {
            "git" => {
                let (subcommand, args) = git_words(rest);
                match subcommand {
                    "grep" => Self::Elsewhere,
                    _ => Self::Git {
                        subcommand: subcommand.to_owned(),
                        args: args.to_vec(),
                    },
                }
            }
            "diff" | "colordiff" => Self::Diff,
            "grep" | "egrep" | "fgrep" | "rg" | "ripgrep" | "ag" | "ack" | "cat" | "bat"
            | "head" | "tail" | "find" | "fd" | "fdfind" | "ls" | "exa" | "eza" => Self::Elsewhere,
            _ => Self::Other,
        }
    }
}

/// The command behind variables and launchers: `env A=1 timeout 60 git log` is `git log`.
fn command(argv: &[String]) -> &[String] {
    let mut words = argv;
    while let Some((first, rest)) = words.split_first() {
        let name = first.rsplit('/').next().unwrap_or(first);
        let takes_value = match name {
            "env" | "nohup" | "time" | "nice" | "command" | "stdbuf" | "setsid" => 0,
            "timeout" => 1,
            _ if name.contains('=') && !name.starts_with('-') => 0,
            _ => return words,
        };
        let options = rest.iter().take_while(|word| word.starts_with('-')).count();
        words = rest.get(options + takes_value..).unwrap_or_default();
    }
    words
}

/// git's subcommand and what follows it, past git's own options.
fn git_words(words: &[String]) -> (&str, &[String]) {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        match word.as_str() {
            "-C" | "-c" | "--git-dir" | "--work-tree" | "--namespace" => at += 2,
            option if option.starts_with('-') => at += 1,
            subcommand => return (subcommand, &words[at + 1..]),
        }
    }
    ("", &[])
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
