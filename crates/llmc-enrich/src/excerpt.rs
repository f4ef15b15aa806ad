//! The head and tail of a text, for what no condenser knows better.

use std::borrow::Cow;
use std::sync::LazyLock;

use llmc_tokens::fits;
use memchr::{memchr, memchr_iter, memrchr};
use regex::Regex;

use crate::budget::{clip, cost, line_ends, plural, thousands, within};
use crate::error_lines::{self, ErrorLines, is_negated};
use crate::preview::TextEnds;
use crate::terminal::settled;
use crate::{Condensed, LineGap, Totals};

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

/// An excerpt of a part of an output, whose lines are not the lines of the output.
pub(crate) fn excerpt(text: &str, budget: usize, favour: Favour) -> Condensed {
    let found = excerpt_of_output(text, budget, favour);
    Condensed { gap: None, ..found }
}

/// The head and tail of a text within the budget, the lines between counted; untouched when it fits.
pub(crate) fn excerpt_of_output(text: &str, budget: usize, favour: Favour) -> Condensed {
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
        let first = take(head.lines(), room / 4);
        let last = take(tail.lines().rev(), room / 3).reversed();
        let between = first.lines.len() as u64 + 1..=text.total_lines - last.lines.len() as u64;
        let mut left = room.saturating_sub(first.tokens + last.tokens);
        let (mut errors, mut error_bytes) = (Vec::new(), 0);
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
            error_bytes += line.len() as u64;
            errors.push(line);
        }
        let shown_lines = first.lines.len() + last.lines.len() + errors.len();
        let unshown = text.total_lines - shown_lines as u64;
        let mut body = String::new();
        let mut push = |line: &str| {
            body.push_str(line);
            body.push('\n');
        };
        first.lines.iter().for_each(|line| push(line));
        push(&format!("… {} left out …", plural(unshown, "line")));
        if !errors.is_empty() {
            errors.iter().for_each(|line| push(line));
            push("…");
        }
        last.lines.iter().for_each(|line| push(line));
        let mut breadcrumbs = vec![left_out(
            unshown,
            text.total_bytes
                .saturating_sub(first.bytes + last.bytes + error_bytes),
            first.clipped + last.clipped,
            "",
        )];
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
            gap: line_gap(
                text.total_lines,
                first.lines.len() as u64,
                last.lines.len() as u64,
                first.clipped + last.clipped,
            ),
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
    let head = take(text.lines(), for_head);
    let head_lines = head.lines.len() as u64;
    let rest = total - head_lines;
    // Errors between head and tail: the tail may reach back over some of them, which are then dropped again.
    let mut errors = Vec::new();
    let mut error_tokens = 0;
    for (number, line) in suspicious
        .lines
        .iter()
        .filter(|(number, _)| *number > head_lines)
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
    let tail = take(
        text.lines().rev().take(rest as usize),
        room.saturating_sub(head.tokens + error_tokens),
    )
    .reversed();
    let tail_lines = tail.lines.len() as u64;
    let tail_start = total - tail_lines;
    errors.retain(|(number, _)| *number <= tail_start);
    let left = rest - tail_lines;
    let mut body = String::new();
    for line in &head.lines {
        body.push_str(line);
        body.push('\n');
    }
    let error_bytes: u64 = errors.iter().map(|(_, line)| line.len() as u64).sum();
    let shown_bytes = head.bytes + tail.bytes + error_bytes;
    let mut breadcrumbs = Vec::new();
    let range = match left {
        0 => String::new(),
        _ => format!(" ({}-{})", thousands(head_lines + 1), thousands(tail_start)),
    };
    breadcrumbs.push(left_out(
        left - errors.len() as u64,
        (text.len() as u64).saturating_sub(shown_bytes),
        head.clipped + tail.clipped,
        &range,
    ));
    if left > 0 {
        let (first, last) = (head_lines + 1, tail_start);
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
        if more > 0 {
            breadcrumbs.push(format!(
                "{} in between that looks like an error",
                plural(more, "more line")
            ));
        }
    }
    for line in &tail.lines {
        body.push_str(line);
        body.push('\n');
    }
    Condensed {
        body,
        breadcrumbs,
        totals,
        shown: head_lines + tail_lines + errors.len() as u64,
        truncated: true,
        hot_zone: None,
        gap: line_gap(total, head_lines, tail_lines, head.clipped + tail.clipped),
    }
}

/// The lines between a head and a tail; `None` where clipped lines are left out as well.
fn line_gap(total: u64, head: u64, tail: u64, clipped: u64) -> Option<LineGap> {
    let count = total - head - tail;
    (count > 0 && clipped == 0).then_some(LineGap { skip: head, count })
}

/// What is not shown, in lines and in bytes.
pub(crate) fn left_out(lines: u64, bytes: u64, clipped_lines: u64, range: &str) -> String {
    let bytes = plural(bytes, "byte");
    match (lines, clipped_lines) {
        (0, 0) => format!("{bytes} left out"),
        (0, clipped) => format!("{} clipped, {bytes} left out", plural(clipped, "long line")),
        (lines, _) => format!("{}{range} left out, {bytes}", plural(lines, "line")),
    }
}

/// Lines from one end of a text.
#[derive(Default)]
pub(crate) struct TakenLines<'a> {
    pub(crate) lines: Vec<Cow<'a, str>>,
    pub(crate) tokens: usize,
    /// Bytes of the text that are in them, line ends included.
    pub(crate) bytes: u64,
    /// How many of them are clipped.
    pub(crate) clipped: u64,
}

impl TakenLines<'_> {
    pub(crate) fn reversed(mut self) -> Self {
        self.lines.reverse();
        self
    }
}

/// Lines, clipped, as long as they fit.
pub(crate) fn take<'a>(lines: impl Iterator<Item = &'a str>, tokens: usize) -> TakenLines<'a> {
    let mut taken = TakenLines::default();
    for whole in lines {
        let line = clip(whole, MAX_LINE_BYTES);
        let need = cost(&line);
        if taken.tokens + need > tokens {
            break;
        }
        taken.tokens += need;
        let kept = match whole.len() > MAX_LINE_BYTES {
            true => {
                taken.clipped += 1;
                let (head, tail) = line_ends(whole, MAX_LINE_BYTES);
                head.len() + tail.len()
            }
            false => whole.len(),
        };
        taken.bytes += kept as u64 + 1;
        taken.lines.push(line);
    }
    taken
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
    fn counts_of_zero_errors_are_not_errors() {
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
