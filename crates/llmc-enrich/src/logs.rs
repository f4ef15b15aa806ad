//! Logs: how much of which level, the errors, what repeats, and both ends.
//!
//! Lines that differ only in numbers, addresses and ids say the same thing; they are one *kind*, shown once with how
//! often it came. Every error line is part of a kind that is shown, or of the number of those that are not. In a log that
//! repeats itself the few lines of no such kind are shown too: they are why it is read.

mod level;

use std::borrow::Cow;
use std::collections::HashMap;

use llmc_tokens::fits;

use crate::excerpt::{line_count, take};
use crate::room::{Block, clip, cost, crumb_cost, plural, share, thousands, within, write_block};
use crate::terminal::settled;
use crate::{Condensed, Totals};
use level::Level;

/// Bytes shown of one line.
const LINE_BYTES: usize = 400;
/// Lines kept of what stands under an error: a stack trace.
const TRACE_LINES: usize = 12;
/// Kinds told apart; lines of further ones are only counted.
const KINDS: usize = 50_000;

/// The two ends of a log that is too long to be read whole.
#[derive(Debug, Clone, Copy)]
pub struct Ends<'a> {
    /// Its first lines.
    pub head: &'a str,
    /// Its last lines.
    pub tail: &'a str,
    /// How many lines it has in all.
    pub lines: u64,
    /// How many bytes it has in all.
    pub bytes: u64,
}

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
    let survey = Survey::of(&[(&clean, 0)]);
    within(budget, |tokens| {
        render(&survey, &clean, &clean, totals, 0, tokens)
    })
}

/// Condenses a log of which only the ends are at hand; the lines between are said not to have been read.
pub fn condense_ends(ends: Ends<'_>, budget: usize) -> Condensed {
    let head = settled(ends.head);
    let tail = settled(ends.tail);
    let (head_lines, tail_lines) = (line_count(&head), line_count(&tail));
    let lines = ends.lines.max(head_lines + tail_lines);
    let survey = Survey::of(&[(&head, 0), (&tail, lines - tail_lines)]);
    let totals = Totals {
        lines: Some(lines),
        size: Some(ends.bytes),
        ..Totals::default()
    };
    let unread = lines - head_lines - tail_lines;
    within(budget, |tokens| {
        render(&survey, &head, &tail, totals, unread, tokens)
    })
}

/// Whether most of the first lines have a level or a time, as a log's have.
pub(crate) fn looks_like_log(text: &str) -> bool {
    const SAMPLE: usize = 200;
    let (mut lines, mut like) = (0, 0);
    for line in text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .take(SAMPLE)
    {
        lines += 1;
        like += usize::from(
            level::has_time(line) || (Level::of(line).is_some() && !line.starts_with(' ')),
        );
    }
    lines >= 10 && like * 10 >= lines * 6
}

/// Lines that say the same thing.
struct Kind<'a> {
    level: Option<Level>,
    count: u64,
    first: (u64, &'a str),
    last: (u64, &'a str),
    /// What stands under the first of them.
    trace: Vec<&'a str>,
    untraced: usize,
}

/// All that one pass over a log finds.
#[derive(Default)]
struct Survey<'a> {
    levels: [u64; Level::ALL.len()],
    unlevelled: u64,
    kinds: Vec<Kind<'a>>,
    errors: u64,
    last_error: Option<usize>,
}

impl<'a> Survey<'a> {
    fn of(parts: &[(&'a str, u64)]) -> Self {
        let mut survey = Self::default();
        let mut known: HashMap<u64, usize> = HashMap::new();
        for (text, offset) in parts {
            // The kind whose trace is being read.
            let mut open: Option<(usize, bool)> = None;
            for (i, line) in text.lines().enumerate() {
                let number = offset + i as u64 + 1;
                let level = Level::of(line);
                if let Some((kind, keep)) = open
                    && level.is_none()
                    && !line.is_empty()
                    && !level::has_time(line)
                {
                    if keep {
                        survey.kinds[kind].trace(line);
                    }
                    survey.unlevelled += 1;
                    continue;
                }
                let level = level.or_else(|| Level::of_crash(line));
                match level {
                    Some(level) => survey.levels[level as usize] += 1,
                    None => survey.unlevelled += 1,
                }
                open = None;
                let is_error = level.is_some_and(Level::is_error);
                survey.errors += u64::from(is_error);
                if line.trim().is_empty() {
                    continue;
                }
                let key = fingerprint(line, level);
                let kind = match known.get(&key) {
                    Some(kind) => Some(*kind),
                    None if known.len() < KINDS => {
                        known.insert(key, survey.kinds.len());
                        survey.kinds.push(Kind {
                            level,
                            count: 0,
                            first: (number, line),
                            last: (number, line),
                            trace: Vec::new(),
                            untraced: 0,
                        });
                        Some(survey.kinds.len() - 1)
                    }
                    None => None,
                };
                if let Some(kind) = kind {
                    survey.kinds[kind].count += 1;
                    survey.kinds[kind].last = (number, line);
                    if is_error {
                        survey.last_error = Some(kind);
                        open = Some((kind, survey.kinds[kind].count == 1));
                    }
                }
            }
        }
        survey
    }

    /// `1,204 lines: 12 ERROR, 30 WARN, 1,162 INFO`.
    fn counts(&self, lines: u64) -> String {
        let mut parts: Vec<String> = Level::ALL
            .iter()
            .filter(|level| self.levels[**level as usize] > 0)
            .map(|level| {
                format!(
                    "{} {}",
                    thousands(self.levels[*level as usize]),
                    level.name()
                )
            })
            .collect();
        if self.unlevelled > 0 && !parts.is_empty() {
            parts.push(format!("{} without level", thousands(self.unlevelled)));
        }
        let mut out = plural(lines, "line");
        if !parts.is_empty() {
            out.push_str(": ");
            out.push_str(&parts.join(", "));
        }
        out
    }
}

impl<'a> Kind<'a> {
    fn is_error(&self) -> bool {
        self.level.is_some_and(Level::is_error)
    }

    fn trace(&mut self, line: &'a str) {
        if self.trace.len() < TRACE_LINES {
            self.trace.push(line);
        } else {
            self.untraced += 1;
        }
    }

    fn block(&self) -> Block<'a> {
        let (number, line) = self.first;
        let line = clip(line.trim_end(), LINE_BYTES);
        let first = match self.count {
            1 => format!("{}: {line}", thousands(number)),
            n => format!(
                "{} ×{} to {}: {line}",
                thousands(number),
                thousands(n),
                thousands(self.last.0)
            ),
        };
        let mut lines = vec![Cow::Owned(first)];
        lines.extend(self.trace.iter().map(|line| clip(line, LINE_BYTES)));
        Block {
            lines,
            dropped: self.untraced,
        }
    }
}

fn render(
    survey: &Survey<'_>,
    head: &str,
    tail: &str,
    totals: Totals,
    unread: u64,
    tokens: usize,
) -> Condensed {
    let lines = totals.lines.unwrap_or(0);
    let mut body = survey.counts(lines - unread);
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

    let errors: Vec<&Kind<'_>> = survey.kinds.iter().filter(|kind| kind.is_error()).collect();
    let mut verbatim = Vec::new();
    if survey.errors > 0 {
        let share_of_errors = room * 3 / 5;
        let last = survey
            .last_error
            .map(|kind| &survey.kinds[kind])
            .filter(|kind| kind.count > 1);
        let last_line = last.map(|kind| {
            let line = clip(kind.last.1.trim_end(), LINE_BYTES);
            format!("last {}: {line}", thousands(kind.last.0))
        });
        let for_last = last_line.as_deref().map_or(0, cost).min(share_of_errors);
        let blocks: Vec<Block<'_>> = errors
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
            verbatim.extend((0..*lines as u64).map(|i| kind.first.0 + i));
        }
        if let Some(line) = last_line.filter(|line| cost(line) <= for_last) {
            body.push_str(&line);
            body.push('\n');
            verbatim.extend(last.map(|kind| kind.last.0));
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

    let (first, used) = take(head.lines(), room / 3);
    let rest = if std::ptr::eq(head, tail) {
        line_count(tail) - first.len() as u64
    } else {
        line_count(tail)
    };
    let (mut last, _) = take(
        tail.lines().rev().take(rest as usize),
        room.saturating_sub(used),
    );
    last.reverse();
    for (title, part) in [("first lines:", &first), ("last lines:", &last)] {
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
    let ends = (first.len() + last.len()) as u64;
    let between =
        |number: &u64| *number > first.len() as u64 && *number <= lines - last.len() as u64;
    verbatim.retain(between);
    verbatim.sort_unstable();
    verbatim.dedup();
    let shown = ends + verbatim.len() as u64;
    breadcrumbs.push(format!(
        "{} of {} shown",
        thousands(shown),
        plural(lines, "line")
    ));
    Condensed {
        body,
        breadcrumbs,
        totals,
        shown,
        truncated: true,
        hot_zone: None,
    }
}

/// A kind that came this often is frequent.
const OFTEN: u64 = 3;

/// What stands out of a log that else repeats itself: the lines of kinds that hardly ever come, warnings first.
fn rare<'a>(survey: &Survey<'a>, lines: u64, tokens: usize) -> Vec<(u64, String)> {
    const MOST: usize = 8;
    /// One line in so many may be rare; a log with more of them has no lines that stand out.
    const ONE_IN: u64 = 20;
    let mut kinds: Vec<&Kind<'a>> = survey
        .kinds
        .iter()
        .filter(|kind| kind.count < OFTEN && !kind.is_error())
        .collect();
    let all: u64 = kinds.iter().map(|kind| kind.count).sum();
    if all * ONE_IN > lines {
        return Vec::new();
    }
    kinds.sort_by_key(|kind| (!kind.level.is_some_and(Level::is_warning), kind.first.0));
    let mut left = tokens;
    let shown = kinds.iter().take(MOST).map_while(|kind| {
        let line = kind.block().lines.swap_remove(0).into_owned();
        left = left.checked_sub(cost(&line))?;
        Some((kind.first.0, line))
    });
    shown.collect()
}

/// The most frequent kinds that are no errors, as `×132 connection reset by <ip>`.
fn repeated(survey: &Survey<'_>, tokens: usize) -> Vec<String> {
    const MOST: usize = 12;
    let often = survey
        .kinds
        .iter()
        .filter(|kind| kind.count >= OFTEN && !kind.is_error());
    // Warnings say more than what is merely frequent, but may not take all the room.
    let (mut kinds, mut others): (Vec<_>, Vec<_>) =
        often.partition(|kind| kind.level.is_some_and(Level::is_warning));
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.count));
    kinds.truncate(MOST / 2);
    others.sort_by_key(|kind| std::cmp::Reverse(kind.count));
    kinds.extend(others);
    let mut out = Vec::new();
    let mut used = 0;
    for kind in kinds.iter().take(MOST) {
        let text = template(kind.first.1).replace("<n>.<n>.<n>.<n>", "<ip>");
        let line = format!(
            "×{} {}",
            thousands(kind.count),
            clip(without_time(&text), LINE_BYTES / 2)
        );
        used += cost(&line);
        if used > tokens {
            break;
        }
        out.push(line);
    }
    out
}

/// The line with `<n>` for numbers and `<id>` for what looks like an identifier.
fn template(line: &str) -> String {
    let mut out = String::new();
    pieces(line, |piece| out.push_str(piece));
    out
}

/// A number that lines of one kind share (FNV-1a over the template, which need not be written down for it).
fn fingerprint(line: &str, level: Option<Level>) -> u64 {
    const PRIME: u64 = 0x0100_0000_01b3;
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ level.map_or(0, |level| level as u64 + 1);
    pieces(line, |piece| {
        for byte in piece.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(PRIME);
        }
    });
    hash
}

/// The parts of a line's template, in order.
fn pieces(line: &str, mut each: impl FnMut(&str)) {
    const ID_LENGTH: usize = 8;
    let bytes = line.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let run = bytes[at..]
            .iter()
            .take_while(|b| b.is_ascii_alphanumeric())
            .count();
        if run == 0 {
            let plain = bytes[at..]
                .iter()
                .take_while(|b| !b.is_ascii_alphanumeric())
                .count();
            each(&line[at..at + plain]);
            at += plain;
            continue;
        }
        let word = &line[at..at + run];
        let digits = word.bytes().filter(u8::is_ascii_digit).count();
        if digits == 0 {
            each(word);
        } else if digits == run {
            each("<n>");
        } else if run >= ID_LENGTH && word.bytes().all(|b| b.is_ascii_hexdigit()) {
            each("<id>");
        } else {
            for part in word
                .as_bytes()
                .chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit())
            {
                match std::str::from_utf8(part) {
                    Ok(letters) if !part[0].is_ascii_digit() => each(letters),
                    _ => each("<n>"),
                }
            }
        }
        at += run;
    }
}

/// A template without the time at its start.
fn without_time(template: &str) -> &str {
    let mut rest = template.trim_start();
    while let Some((word, after)) = rest.split_once(' ') {
        let bare = word.replace("<n>", "");
        let time = word.contains("<n>") && bare.chars().all(|c| "TZ-:/.,+[]".contains(c));
        if !time {
            break;
        }
        rest = after.trim_start();
    }
    rest
}

#[cfg(test)]
mod tests;
