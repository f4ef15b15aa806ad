//! Logs: how much of which level, the errors, what repeats, and both ends.
//!
//! Lines that differ only in numbers, addresses and ids say the same thing; they are one *kind*, shown once with how
//! often it came. Every error line is part of a kind that is shown, or of the number of those that are not. In a log that
//! repeats itself the few lines of no such kind are shown too: they are why it is read.

mod level;
mod survey;
mod template;

use std::borrow::Cow;

use llmc_tokens::fits;

use crate::budget::{
    LineBlock, clip, cost, crumb_cost, plural, share, thousands, within, write_block,
};
use crate::excerpt::{left_out, line_count, take};
use crate::preview::TextEnds;
use crate::terminal::settled;
use crate::{Condensed, Totals};
use level::LogLevel;
use survey::LineGroup;
pub use survey::LogSurvey;
use template::{template, without_time};

/// Bytes shown of one line.
const MAX_LINE_BYTES: usize = 400;

/// Condenses a log to `budget` tokens; untouched when it fits.
pub fn condense(text: &str, budget: usize) -> Condensed {
    if fits(text, budget) {
        return Condensed::whole(text);
    }
    let totals = Totals {
        lines: Some(line_count(text)),
        size: Some(text.len() as u64),
        ..Totals::default()
    };
    let clean = settled(text);
    let mut survey = LogSurvey::default();
    survey.read(&clean);
    within(budget, |tokens| {
        render(&survey, &clean, &clean, totals, tokens)
    })
}

/// Condenses a log of which only the ends are at hand, and what was found when all of it streamed by.
///
/// What was not read, then or now, is said not to have been.
pub(crate) fn condense_ends(text: &TextEnds<'_>, tail: &str, budget: usize) -> Condensed {
    let (head, tail) = (settled(text.head), settled(tail));
    let mut survey = match text.survey {
        Some(survey) => Cow::Borrowed(survey),
        None => {
            let mut survey = LogSurvey::default();
            survey.read(&head);
            Cow::Owned(survey)
        }
    };
    let tail_lines = line_count(&tail);
    let lines = match text.survey {
        Some(survey) => text.total_lines.max(survey.lines),
        None => text.total_lines.max(survey.lines + tail_lines),
    };
    // The end is worth reading also where nothing before it is.
    if let Some(unread) = (lines - survey.lines)
        .checked_sub(tail_lines)
        .filter(|_| survey.lines < lines)
    {
        let survey = survey.to_mut();
        survey.skip(unread);
        survey.read(&tail);
    }
    let totals = Totals {
        lines: Some(lines),
        size: Some(text.total_bytes),
        ..Totals::default()
    };
    within(budget, |tokens| {
        render(&survey, &head, &tail, totals, tokens)
    })
}

/// Whether most of the first lines have a level or a time, as a log's have.
pub(crate) fn looks_like_log(text: &str) -> bool {
    const SAMPLE_LINES: usize = 200;
    let (mut lines, mut like) = (0, 0);
    for line in text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .take(SAMPLE_LINES)
    {
        lines += 1;
        like += usize::from(
            level::has_time(line) || (LogLevel::of(line).is_some() && !line.starts_with(' ')),
        );
    }
    lines >= 10 && like * 10 >= lines * 6
}

fn render(survey: &LogSurvey, head: &str, tail: &str, totals: Totals, tokens: usize) -> Condensed {
    let lines = totals.lines.unwrap_or(0);
    let unread = lines - survey.read.min(lines);
    let mut body = survey.counts(lines);
    body.push('\n');
    let mut breadcrumbs = Vec::new();
    if unread > 0 {
        breadcrumbs.push(format!(
            "{} between head and tail were not read",
            plural(unread, "line")
        ));
    }
    let fixed = cost(&body)
        + breadcrumbs
            .iter()
            .map(|crumb| crumb_cost(crumb))
            .sum::<usize>();
    let mut room = tokens.saturating_sub(fixed + 24);

    let errors: Vec<&LineGroup> = survey.kinds.iter().filter(|kind| kind.is_error()).collect();
    let mut verbatim = Vec::new();
    if survey.errors > 0 {
        let share_of_errors = room * 3 / 5;
        let last = survey.last_error.as_ref();
        let last_line = last
            .map(|last| format!("last {}: {}", thousands(last.number), last.line))
            .filter(|line| cost(line) <= share_of_errors / 2 && survey.errors > 1);
        let for_last = last_line.as_deref().map_or(0, cost);
        let blocks: Vec<LineBlock<'_>> = errors
            .iter()
            .take(room / 4)
            .map(|kind| kind.block())
            .collect();
        let shares = share(&blocks, share_of_errors - for_last);
        let shown = shares.blocks();
        body.push_str(&format!(
            "errors ({}, {}):\n",
            plural(survey.errors, "line"),
            plural(errors.len() as u64, "kind")
        ));
        let mut counted = 0;
        for ((block, lines), kind) in blocks.iter().zip(&shares.lines).zip(&errors).take(shown) {
            write_block(&mut body, block, *lines);
            counted += kind.count;
            verbatim.extend((0..*lines as u64).map(|i| kind.first + i));
        }
        // The first of a kind that is shown has been shown.
        let is_new = last.is_some_and(|last| {
            let kind = last.first_of.map(|kind| &survey.kinds[kind]);
            !errors[..shown]
                .iter()
                .any(|shown| kind.is_some_and(|kind| std::ptr::eq(kind, *shown)))
        });
        match last_line.filter(|_| is_new) {
            Some(line) => {
                body.push_str(&line);
                body.push('\n');
                verbatim.extend(last.map(|last| last.number));
            }
            None => room += for_last,
        }
        if counted < survey.errors {
            let more = plural(survey.errors - counted, "more error line");
            breadcrumbs.push(format!(
                "{more} of {}",
                plural((errors.len() - shown) as u64, "other kind")
            ));
        }
        room -= (share_of_errors - shares.left).min(room);
    }

    let rare = rare(survey, lines - unread, room / 4);
    if !rare.is_empty() {
        body.push_str("rare:\n");
        for (number, line) in &rare {
            body.push_str(line);
            body.push('\n');
            room = room.saturating_sub(cost(line));
            verbatim.push(*number);
        }
    }

    let repeated = repeated(survey, room / 3);
    if !repeated.is_empty() {
        body.push_str("repeated:\n");
        for line in &repeated {
            body.push_str(line);
            body.push('\n');
            room = room.saturating_sub(cost(line));
        }
    }

    let first = take(head.lines(), room / 3);
    let rest = if std::ptr::eq(head, tail) {
        line_count(tail) - first.lines.len() as u64
    } else {
        line_count(tail)
    };
    let last = take(
        tail.lines().rev().take(rest as usize),
        room.saturating_sub(first.tokens),
    )
    .reversed();
    for (title, part) in [("first lines:", &first.lines), ("last lines:", &last.lines)] {
        if part.is_empty() {
            continue;
        }
        body.push_str(title);
        body.push('\n');
        for line in part {
            body.push_str(line);
            body.push('\n');
        }
    }
    let (first_lines, last_lines) = (first.lines.len() as u64, last.lines.len() as u64);
    let ends = first_lines + last_lines;
    let between = |number: &u64| *number > first_lines && *number <= lines - last_lines;
    verbatim.retain(between);
    verbatim.sort_unstable();
    verbatim.dedup();
    let shown = ends + verbatim.len() as u64;
    breadcrumbs.push(if shown < lines {
        format!("{} of {} shown", thousands(shown), plural(lines, "line"))
    } else {
        let bytes = totals.size.unwrap_or_default();
        let left = bytes.saturating_sub(first.bytes + last.bytes);
        left_out(0, left, first.clipped + last.clipped, "")
    });
    Condensed {
        body,
        breadcrumbs,
        totals,
        shown,
        truncated: true,
        ..Condensed::default()
    }
}

/// A kind that came this often is frequent.
const FREQUENT_COUNT: u64 = 3;

/// What stands out of a log that else repeats itself: the lines of kinds that hardly ever come, warnings first.
fn rare(survey: &LogSurvey, lines: u64, tokens: usize) -> Vec<(u64, String)> {
    const MAX_SHOWN_GROUPS: usize = 8;
    /// One line in so many may be rare; a log with more of them has no lines that stand out.
    const RARE_ONE_IN: u64 = 20;
    let mut kinds: Vec<&LineGroup> = survey
        .kinds
        .iter()
        .filter(|kind| kind.count < FREQUENT_COUNT && !kind.is_error())
        .collect();
    let all: u64 = kinds.iter().map(|kind| kind.count).sum();
    if all * RARE_ONE_IN > lines {
        return Vec::new();
    }
    kinds.sort_by_key(|kind| (!kind.level.is_some_and(LogLevel::is_warning), kind.first));
    let mut left = tokens;
    let shown = kinds.iter().take(MAX_SHOWN_GROUPS).map_while(|kind| {
        let line = kind.block().lines.swap_remove(0).into_owned();
        left = left.checked_sub(cost(&line))?;
        Some((kind.first, line))
    });
    shown.collect()
}

/// The most frequent kinds that are no errors, as `×132 connection reset by <ip>`.
fn repeated(survey: &LogSurvey, tokens: usize) -> Vec<String> {
    const MAX_SHOWN_GROUPS: usize = 12;
    let often = survey
        .kinds
        .iter()
        .filter(|kind| kind.count >= FREQUENT_COUNT && !kind.is_error());
    // Warnings say more than what is merely frequent, but may not take all the room.
    let (mut kinds, mut others): (Vec<_>, Vec<_>) =
        often.partition(|kind| kind.level.is_some_and(LogLevel::is_warning));
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.count));
    kinds.truncate(MAX_SHOWN_GROUPS / 2);
    others.sort_by_key(|kind| std::cmp::Reverse(kind.count));
    kinds.extend(others);
    let mut out = Vec::new();
    let mut used = 0;
    for kind in kinds.iter().take(MAX_SHOWN_GROUPS) {
        let text = template(&kind.line).replace("<n>.<n>.<n>.<n>", "<ip>");
        let line = format!(
            "×{} {}",
            thousands(kind.count),
            clip(without_time(&text), MAX_LINE_BYTES / 2)
        );
        used += cost(&line);
        if used > tokens {
            break;
        }
        out.push(line);
    }
    out
}

#[cfg(test)]
mod tests;
