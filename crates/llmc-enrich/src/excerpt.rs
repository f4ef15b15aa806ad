//! The head and tail of a text, for what no condenser knows better.

use std::borrow::Cow;
use std::sync::LazyLock;

use llmc_tokens::fits;
use memchr::{memchr, memchr_iter, memrchr};
use regex::Regex;

use crate::budget::{clip, cost, plural, thousands, within};
use crate::error_lines::{self, ErrorLines, is_negated};
use crate::preview::TextEnds;
use crate::terminal::settled;
use crate::{Condensed, Totals};

/// Bytes shown of one line.
const MAX_LINE_BYTES: usize = 500;

/// Which end of a text tells more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Favour {
    /// A listing, a report.
    Head,
    /// A failure: the end, and lines that look like errors.
    Tail,
}

impl Favour {
    pub(crate) fn of(exit_code: Option<i32>) -> Favour {
        match exit_code {
            Some(0) => Favour::Head,
            _ => Favour::Tail,
        }
    }
}

/// The head and tail of a text within the budget, the lines between counted; untouched when it fits.
pub(crate) fn excerpt(text: &str, budget: usize, favour: Favour) -> Condensed {
    if fits(text, budget) {
        return Condensed::whole(text);
    }
    let totals = Totals {
        lines: Some(line_count(text)),
        size: Some(text.len() as u64),
        ..Totals::default()
    };
    let clean = settled(text);
    let suspicious = match favour {
        Favour::Head => Suspicious::default(),
        Favour::Tail => Suspicious::of(&clean, budget),
    };
    within(budget, |tokens| {
        render(&clean, &suspicious, favour, totals, tokens)
    })
}

/// The head and tail of a text that is too large to be at hand, and between them lines that look like errors.
pub(crate) fn excerpt_ends(
    text: &TextEnds<'_>,
    error_lines: &ErrorLines,
    budget: usize,
) -> Condensed {
    let totals = Totals {
        lines: Some(text.total_lines),
        size: Some(text.total_bytes),
        ..Totals::default()
    };
    let (head, tail) = (settled(text.head), settled(text.tail.unwrap_or_default()));
    within(budget, |tokens| {
        const MARK_TOKENS: usize = 60;
        let room = tokens.saturating_sub(MARK_TOKENS);
        let (first, first_cost) = take(head.lines(), room / 4);
        let (mut last, last_cost) = take(tail.lines().rev(), room / 3);
        last.reverse();
        let between = first.len() as u64 + 1..=text.total_lines - last.len() as u64;
        let mut left = room.saturating_sub(first_cost + last_cost);
        let mut errors = Vec::new();
        for (number, line) in error_lines.kept().filter(|line| between.contains(&line.0)) {
            let line = format!(
                "{}: {}",
                thousands(*number),
                clip(line.trim(), MAX_LINE_BYTES / 2)
            );
            let need = cost(&line);
            if need > left {
                break;
            }
            left -= need;
            errors.push(line);
        }
        let unshown = text.total_lines - (first.len() + last.len() + errors.len()) as u64;
        let mut body = String::new();
        let mut push = |line: &str| {
            body.push_str(line);
            body.push('\n');
        };
        first.iter().for_each(|line| push(line));
        push(&format!("… {} left out …", plural(unshown, "line")));
        if !errors.is_empty() {
            errors.iter().for_each(|line| push(line));
            push("…");
        }
        last.iter().for_each(|line| push(line));
        let mut breadcrumbs = vec![format!("{} left out", plural(unshown, "line"))];
        if error_lines.count() > errors.len() as u64 {
            breadcrumbs.push(format!(
                "{} in all that look like errors, {} listed between head and tail",
                plural(error_lines.count(), "line"),
                errors.len()
            ));
        }
        Condensed {
            body,
            breadcrumbs,
            totals,
            shown: text.total_lines - unshown,
            truncated: true,
            hot_zone: None,
        }
    })
}

fn render(
    text: &str,
    suspicious: &Suspicious<'_>,
    favour: Favour,
    totals: Totals,
    tokens: usize,
) -> Condensed {
    const MARK_TOKENS: usize = 40;
    let room = tokens.saturating_sub(MARK_TOKENS);
    let (for_head, for_errors) = match favour {
        Favour::Head => (room * 2 / 3, 0),
        Favour::Tail if suspicious.lines.is_empty() => (room / 4, 0),
        Favour::Tail => (room / 5, room / 4),
    };
    let total = line_count(text);
    let (head, head_tokens) = take(text.lines(), for_head);
    let rest = total - head.len() as u64;
    // Errors between head and tail: the tail may reach back over some of them, which are then dropped again.
    let mut errors = Vec::new();
    let mut error_tokens = 0;
    for (number, line) in suspicious
        .lines
        .iter()
        .filter(|(number, _)| *number > head.len() as u64)
    {
        let line = format!(
            "{}: {}",
            thousands(*number),
            clip(line.trim(), MAX_LINE_BYTES / 2)
        );
        let need = cost(&line);
        if error_tokens + need > for_errors {
            break;
        }
        error_tokens += need;
        errors.push((*number, line));
    }
    let (mut tail, _) = take(
        text.lines().rev().take(rest as usize),
        room.saturating_sub(head_tokens + error_tokens),
    );
    tail.reverse();
    let tail_start = total - tail.len() as u64;
    errors.retain(|(number, _)| *number <= tail_start);
    let left = rest - tail.len() as u64;
    let mut body = String::new();
    for line in &head {
        body.push_str(line);
        body.push('\n');
    }
    let mut breadcrumbs = Vec::new();
    if left > 0 {
        let (first, last) = (head.len() as u64 + 1, tail_start);
        body.push_str(&format!("… {} left out …\n", plural(left, "line")));
        for (_, line) in &errors {
            body.push_str(line);
            body.push('\n');
        }
        if !errors.is_empty() {
            body.push_str("…\n");
        }
        let more = suspicious
            .between(first, last)
            .saturating_sub(errors.len() as u64);
        breadcrumbs.push(format!(
            "{} left out ({}-{})",
            plural(left - errors.len() as u64, "line"),
            thousands(first),
            thousands(last)
        ));
        if more > 0 {
            breadcrumbs.push(format!(
                "{} in between that looks like an error",
                plural(more, "more line")
            ));
        }
    }
    for line in &tail {
        body.push_str(line);
        body.push('\n');
    }
    Condensed {
        body,
        breadcrumbs,
        totals,
        shown: (head.len() + tail.len() + errors.len()) as u64,
        truncated: true,
        hot_zone: None,
    }
}

/// Lines, clipped, as long as they fit.
pub(crate) fn take<'a>(
    lines: impl Iterator<Item = &'a str>,
    tokens: usize,
) -> (Vec<Cow<'a, str>>, usize) {
    let mut taken = Vec::new();
    let mut used = 0;
    for line in lines {
        let line = clip(line, MAX_LINE_BYTES);
        let need = cost(&line);
        if used + need > tokens {
            break;
        }
        used += need;
        taken.push(line);
    }
    (taken, used)
}

/// How many lines a text has; a last one without its end counts.
pub(crate) fn line_count(text: &str) -> u64 {
    let ends = memchr_iter(b'\n', text.as_bytes()).count() as u64;
    ends + u64::from(!text.is_empty() && !text.ends_with('\n'))
}

/// Lines that look like errors: the first of them, and the numbers of all.
#[derive(Default)]
struct Suspicious<'a> {
    lines: Vec<(u64, &'a str)>,
    numbers: Vec<u64>,
}

impl<'a> Suspicious<'a> {
    fn of(text: &'a str, budget: usize) -> Self {
        let mut found = Self::default();
        let bytes = text.as_bytes();
        // One search over the whole text, since one per line would cost more than the reading of it.
        let (mut from, mut number, mut counted) = (0, 1, 0);
        while let Some(word) = WORDS.find_at(text, from) {
            let start = memrchr(b'\n', &bytes[..word.start()]).map_or(0, |at| at + 1);
            let end =
                memchr(b'\n', &bytes[word.start()..]).map_or(text.len(), |at| word.start() + at);
            number += memchr_iter(b'\n', &bytes[counted..start]).count() as u64;
            counted = start;
            if !is_negated(&text[start..word.start()]) {
                if found.lines.len() <= budget {
                    found.lines.push((number, &text[start..end]));
                }
                found.numbers.push(number);
            }
            from = end;
        }
        found
    }

    fn between(&self, first: u64, last: u64) -> u64 {
        let from = self.numbers.partition_point(|n| *n < first);
        let to = self.numbers.partition_point(|n| *n <= last);
        (to - from) as u64
    }
}

static WORDS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(error_lines::ERROR_WORDS).expect("a valid pattern"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_from_their_absence() {
        for line in [
            "error: x",
            "E: ModuleNotFoundError: y",
            "make: *** [all] Error 2",
            "cat: x: No such file or directory",
            "3 tests failed",
        ] {
            assert!(!Suspicious::of(line, 1).numbers.is_empty(), "{line}");
        }
        for line in [
            "0 errors",
            "finished with no errors",
            "terror",
            "all good",
            "Tests: 0 failed",
        ] {
            assert!(Suspicious::of(line, 1).numbers.is_empty(), "{line}");
        }
    }
}
