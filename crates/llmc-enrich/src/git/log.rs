//! `git log`: one line per commit, with what its diff or statistics say.

use super::{day, is_hash, short};
use crate::budget::{clip, cost, plural, within};
use crate::{Condensed, Totals};

#[derive(Default)]
struct Commit<'a> {
    hash: &'a str,
    author: &'a str,
    date: String,
    subject: &'a str,
    files: u64,
    added: u64,
    removed: u64,
}

/// Nothing when the text has another form than git's own.
pub(super) fn condense(text: &str, budget: usize) -> Option<Condensed> {
    let commits = parse(text);
    if commits.is_empty() {
        return one_line(text, budget);
    }
    let total = commits.len() as u64;
    Some(within(budget, |tokens| {
        let lines = commits.iter().map(line);
        render(lines, total, tokens, |shown| {
            let last = commits.last()?;
            (shown < total).then(|| format!("the oldest is {} {}", short(last.hash), last.date))
        })
    }))
}

/// `--oneline` and other forms with one commit a line.
fn one_line(text: &str, budget: usize) -> Option<Condensed> {
    let starts_with_hash = |line: &str| {
        let bare = line.trim_start_matches(['*', '|', '/', '\\', '_', ' ']);
        is_hash(bare.split([' ', ',', ';', '\t']).next().unwrap_or_default())
    };
    let sample: Vec<&str> = text.lines().take(20).collect();
    let hashes = sample.iter().filter(|line| starts_with_hash(line)).count();
    if hashes * 2 < sample.len() {
        return None;
    }
    let total = text.lines().filter(|line| starts_with_hash(line)).count() as u64;
    Some(within(budget, |tokens| {
        let lines = text
            .lines()
            .filter(|line| starts_with_hash(line))
            .map(|line| clip(line, 300).into_owned());
        render(lines, total, tokens, |_| None)
    }))
}

fn render(
    lines: impl Iterator<Item = String>,
    total: u64,
    tokens: usize,
    oldest: impl Fn(u64) -> Option<String>,
) -> Condensed {
    const BREADCRUMB_TOKENS: usize = 32;
    let mut room = tokens.saturating_sub(BREADCRUMB_TOKENS);
    let mut body = String::new();
    let mut shown = 0;
    for line in lines {
        let need = cost(&line);
        if need > room {
            break;
        }
        room -= need;
        body.push_str(&line);
        body.push('\n');
        shown += 1;
    }
    let mut breadcrumbs = Vec::new();
    if shown < total {
        let mut crumb = plural(total - shown, "more commit");
        if let Some(oldest) = oldest(shown) {
            crumb.push_str(&format!("; {oldest}"));
        }
        breadcrumbs.push(crumb);
    }
    Condensed {
        body,
        breadcrumbs,
        totals: Totals {
            matches: Some(total),
            ..Totals::default()
        },
        shown,
        truncated: true,
        ..Condensed::default()
    }
}

fn line(commit: &Commit<'_>) -> String {
    let mut line = format!(
        "{} {} {}: {}",
        short(commit.hash),
        commit.date,
        commit.author,
        commit.subject
    );
    if commit.files > 0 {
        line.push_str(&format!(
            " ({}, +{} -{})",
            plural(commit.files, "file"),
            commit.added,
            commit.removed
        ));
    }
    clip(&line, 300).into_owned()
}

fn parse(text: &str) -> Vec<Commit<'_>> {
    let mut commits: Vec<Commit<'_>> = Vec::new();
    let mut in_hunk = false;
    for line in text.lines() {
        // `--graph` draws before the words.
        let bare = line.trim_start_matches(['*', '|', '/', '\\', '_', ' ']);
        let unindented = line.starts_with(|c: char| !c.is_whitespace());
        if let Some(hash) = bare.strip_prefix("commit ").filter(|_| unindented)
            && let Some(hash) = hash
                .split(' ')
                .next()
                .filter(|hash| is_hash(hash) && hash.len() >= 12)
        {
            in_hunk = false;
            commits.push(Commit {
                hash,
                ..Commit::default()
            });
            continue;
        }
        let Some(commit) = commits.last_mut() else {
            continue;
        };
        if line.starts_with("diff ") {
            commit.files += 1;
            in_hunk = false;
        } else if line.starts_with("@@ ") {
            in_hunk = true;
        } else if in_hunk {
            commit.added += u64::from(line.starts_with('+'));
            commit.removed += u64::from(line.starts_with('-'));
        } else if let Some(author) = bare.strip_prefix("Author: ") {
            commit.author = author.trim().split(" <").next().unwrap_or_default();
        } else if let Some(date) = bare
            .strip_prefix("AuthorDate: ")
            .or(bare.strip_prefix("Date: "))
        {
            commit.date = day(date);
        } else if commit.subject.is_empty()
            && line
                .trim_start_matches(['|', '*', '/', '\\'])
                .starts_with("    ")
        {
            commit.subject = bare.trim();
        } else if let Some((files, rest)) = bare.split_once(" changed, ")
            && (files.ends_with(" file") || files.ends_with(" files"))
        {
            commit.files = number_before(files, " file");
            commit.added = number_before(rest, " insertion");
            let removed = rest.rsplit(", ").next().unwrap_or_default();
            commit.removed = number_before(removed, " deletion");
        }
    }
    commits
}

fn number_before(text: &str, word: &str) -> u64 {
    let number = text.split_once(word).map(|(number, _)| number.trim());
    number.and_then(|n| n.parse().ok()).unwrap_or(0)
}
