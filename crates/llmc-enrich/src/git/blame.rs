//! `git blame`: runs of lines from the same commit as one line.

use super::{is_hash, short};
use crate::budget::{clip, cost, plural, thousands, within};
use crate::{Condensed, Totals};

/// Consecutive lines of one commit.
struct BlameRun<'a> {
    hash: &'a str,
    author: &'a str,
    date: &'a str,
    first: u64,
    last: u64,
    code: &'a str,
}

/// Nothing when no line looks like a line of blame.
pub(super) fn condense(text: &str, budget: usize) -> Option<Condensed> {
    let mut runs: Vec<BlameRun<'_>> = Vec::new();
    let mut lines = 0;
    for line in text.lines() {
        let Some(run) = parse(line) else { continue };
        lines += 1;
        match runs.last_mut() {
            Some(last) if last.hash == run.hash && last.last + 1 == run.first => {
                last.last = run.first;
                if last.code.trim().is_empty() {
                    last.code = run.code;
                }
            }
            _ => runs.push(run),
        }
    }
    if runs.is_empty() {
        return None;
    }
    Some(within(budget, |tokens| render(&runs, lines, tokens)))
}

fn render(runs: &[BlameRun<'_>], lines: u64, tokens: usize) -> Condensed {
    const BREADCRUMB_TOKENS: usize = 24;
    let mut room = tokens.saturating_sub(BREADCRUMB_TOKENS);
    let mut body = String::new();
    let mut shown_runs = 0;
    let mut shown = 0;
    for run in runs {
        let span = if run.first == run.last {
            run.first.to_string()
        } else {
            format!("{}-{}", run.first, run.last)
        };
        let code = clip(run.code.trim(), 80);
        let line = format!(
            "{span} {} {} {} {code}",
            short(run.hash),
            run.author,
            run.date
        );
        let need = cost(&line);
        if need > room {
            break;
        }
        room -= need;
        body.push_str(line.trim_end());
        body.push('\n');
        shown_runs += 1;
        shown += run.last - run.first + 1;
    }
    let mut breadcrumbs = Vec::new();
    if let Some(next) = runs.get(shown_runs) {
        let more = plural((runs.len() - shown_runs) as u64, "more run");
        let last = runs.last().map_or(next.last, |run| run.last);
        breadcrumbs.push(format!(
            "{more}: lines {}-{}",
            thousands(next.first),
            thousands(last)
        ));
    }
    Condensed {
        body,
        breadcrumbs,
        totals: Totals {
            lines: Some(lines),
            ..Totals::default()
        },
        shown,
        truncated: true,
        ..Condensed::default()
    }
}

/// `^a1b2c3d4 old/path.rs (Author Name 2025-01-02 12:00:00 +0000 12) code`.
fn parse(line: &str) -> Option<BlameRun<'_>> {
    let (hash, rest) = line.split_once(' ')?;
    let hash = hash.strip_prefix('^').unwrap_or(hash);
    if !is_hash(hash) {
        return None;
    }
    let (_, rest) = rest.split_once('(')?;
    // Author and code may both hold brackets; the line number stands before the first `) ` that follows a time zone.
    let mut from = 0;
    loop {
        let close = from + rest[from..].find(')')?;
        if let Some((author, date, number)) = stamp(&rest[..close]) {
            let code = rest[close + 1..].strip_prefix(' ').unwrap_or_default();
            return Some(BlameRun {
                hash,
                author,
                date,
                first: number,
                last: number,
                code,
            });
        }
        from = close + 1;
    }
}

/// `Author Name 2025-01-02 12:00:00 +0000 12` as author, day and line.
fn stamp(text: &str) -> Option<(&str, &str, u64)> {
    let (rest, number) = text.trim_end().rsplit_once(' ')?;
    let number = number.parse().ok()?;
    let (rest, zone) = rest.trim_end().rsplit_once(' ')?;
    let (rest, _time) = rest.rsplit_once(' ')?;
    let (author, date) = rest.rsplit_once(' ')?;
    let zoned = zone.len() == 5 && zone.starts_with(['+', '-']);
    let dated = date.len() == 10 && date.as_bytes()[4] == b'-';
    (zoned && dated).then(|| (author.trim(), date, number))
}
