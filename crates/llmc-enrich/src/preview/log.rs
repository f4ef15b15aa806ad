//! A log: how bad, what went wrong first and last, how it begins and how it ends.
//!
//! Stands in for the reader of logs that also sees repetition, until that one is called here.

use llmc_tokens::count;

use super::Text;
use super::excerpt::{first_lines, last_lines};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Error,
    Warning,
    Info,
    Debug,
}

const LEVELS: [(Level, &str, &[&str]); 4] = [
    (
        Level::Error,
        "errors",
        &[
            "ERROR", "ERR", "FATAL", "CRITICAL", "PANIC", "SEVERE", "EMERG", "ALERT",
        ],
    ),
    (Level::Warning, "warnings", &["WARN", "WARNING"]),
    (Level::Info, "info", &["INFO", "NOTICE"]),
    (Level::Debug, "debug", &["DEBUG", "TRACE"]),
];

/// Bytes of a line in which the level stands.
const PREFIX: usize = 120;
/// Errors shown from either end.
const ERRORS: usize = 5;

/// The body, how many lines of the text are in it, and what to remark.
pub(super) fn preview(text: &Text<'_>, room: usize) -> (String, u64, Vec<String>) {
    let mut counts = [0_u64; LEVELS.len()];
    let mut errors: Vec<(u64, &str)> = Vec::new();
    let tail_lines = text.tail.map_or(0, |tail| tail.lines().count() as u64);
    let tail_first = (text.total_lines + 1).saturating_sub(tail_lines);
    let head = text.head.lines().zip(1..);
    let tail = text.tail.unwrap_or_default().lines().zip(tail_first..);
    for (line, number) in head.chain(tail) {
        let Some(at) = level(line) else { continue };
        counts[at] += 1;
        if LEVELS[at].0 == Level::Error {
            errors.push((number, line));
        }
    }
    let said: Vec<_> = LEVELS
        .iter()
        .zip(counts)
        .filter(|(_, count)| *count > 0)
        .map(|((_, word, _), count)| format!("{count} {word}"))
        .collect();
    let mut body = String::new();
    if !said.is_empty() {
        let part = if text.tail.is_some() {
            " (beginning and end)"
        } else {
            ""
        };
        body = format!("{}{part}\n", said.join(", "));
    }
    let mut told = std::collections::BTreeSet::new();
    // Up to half of the room for errors, the first and the last in turn, so that both ends are there.
    let limit = room / 2;
    let mut spent = count(&body) + 12;
    let ends = (0..ERRORS).flat_map(|n| [Some(n), errors.len().checked_sub(n + 1)]);
    for at in ends.flatten().filter(|at| *at < errors.len()) {
        if told.contains(&at) {
            continue;
        }
        let cost = count(&error_line(errors[at]));
        if spent + cost > limit {
            break;
        }
        spent += cost;
        told.insert(at);
    }
    if !told.is_empty() {
        body.push_str(&format!("\n{} of {} errors:\n", told.len(), errors.len()));
        for at in &told {
            body.push_str(&error_line(errors[*at]));
        }
    }
    let left = room.saturating_sub(count(&body) + 30);
    let start = first_lines(text.head, u64::MAX, left / 3);
    let unread = match text.tail {
        Some(tail) => tail,
        None => rest_after(text.head, start.lines),
    };
    let end = last_lines(unread, u64::MAX, (left - left / 3).saturating_sub(5));
    for (first, part) in [
        (1, &start),
        ((text.total_lines + 1).saturating_sub(end.lines), &end),
    ] {
        if part.lines > 0 {
            let last = first + part.lines - 1;
            body.push_str(&format!(
                "\nlines {first}-{last} of {}:\n{}",
                text.total_lines, part.text
            ));
            if !body.ends_with('\n') {
                body.push('\n');
            }
        }
    }
    let in_parts = |line: u64| line <= start.lines || line + end.lines > text.total_lines;
    let alone = told.iter().filter(|at| !in_parts(errors[**at].0)).count() as u64;
    let withheld = errors
        .iter()
        .enumerate()
        .filter(|(at, (line, _))| !told.contains(at) && !in_parts(*line))
        .count();
    let remark = (withheld > 0).then(|| format!("{withheld} more errors"));
    (
        body,
        start.lines + end.lines + alone,
        remark.into_iter().collect(),
    )
}

fn error_line((number, line): (u64, &str)) -> String {
    let line = line.trim_end();
    match line.char_indices().nth(300) {
        Some((at, _)) => format!("{number}: {}… [{} bytes]\n", &line[..at], line.len()),
        None => format!("{number}: {line}\n"),
    }
}

fn rest_after(text: &str, lines: u64) -> &str {
    let bytes: usize = text
        .split_inclusive('\n')
        .take(usize::try_from(lines).unwrap_or(usize::MAX))
        .map(str::len)
        .sum();
    &text[bytes..]
}

/// Which level a line names near its start, as a word of its own.
fn level(line: &str) -> Option<usize> {
    let mut end = line.len().min(PREFIX);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    line[..end]
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| (3..=8).contains(&word.len()))
        .find_map(|word| {
            // `error` in small letters is a level only where it is set apart, as in `[error]` or `level=error`.
            let is_level = |names: &[&str]| {
                names.iter().any(|name| {
                    *name == word || (name.eq_ignore_ascii_case(word) && set_apart(line, word))
                })
            };
            LEVELS.iter().position(|(_, _, names)| is_level(names))
        })
}

fn set_apart(line: &str, word: &str) -> bool {
    let at = word.as_ptr() as usize - line.as_ptr() as usize;
    let before = line[..at].trim_end_matches('"').chars().next_back();
    let after = line[at + word.len()..].chars().next();
    matches!(before, Some('[' | '=' | '<' | '('))
        || (before == Some(':') && line[..at].contains("level"))
        || (before.is_none() && matches!(after, Some(':' | '[')))
}
