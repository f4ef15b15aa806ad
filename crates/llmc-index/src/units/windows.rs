//! Windows of lines, for text without a known structure.

use super::{Lines, Unit, UnitKind, is_blob};

/// Lines of a window, and how many it shares with the next.
const WINDOW_LINES: u32 = 60;
const OVERLAP_LINES: u32 = 8;
/// A window may end this many lines earlier, at a blank line.
const MAX_SHORTENED_LINES: u32 = 20;

/// The whole text as windows.
pub(super) fn all(lines: &Lines<'_>) -> Vec<Unit> {
    of(lines, 1, lines.len())
}

/// Lines `first` to `last` as windows, without blank lines at their ends.
pub(super) fn of(lines: &Lines<'_>, first: u32, last: u32) -> Vec<Unit> {
    let mut found = Vec::new();
    let mut start = first;
    while start <= last {
        let mut end = (start + WINDOW_LINES - 1).min(last);
        let mut cut_cleanly = end == last;
        if !cut_cleanly {
            let blank = (end - MAX_SHORTENED_LINES..=end)
                .rev()
                .find(|line| lines.trimmed(*line).is_empty());
            if let Some(blank) = blank {
                end = blank;
                cut_cleanly = true;
            }
        }
        let head = (start..=end).find(|line| !lines.trimmed(*line).is_empty());
        let tail = (start..=end)
            .rev()
            .find(|line| !lines.trimmed(*line).is_empty());
        if let (Some(head), Some(tail)) = (head, tail) {
            found.push(window(lines, head, tail));
        }
        start = if cut_cleanly {
            end + 1
        } else {
            end + 1 - OVERLAP_LINES
        };
    }
    found
}

fn window(lines: &Lines<'_>, first: u32, last: u32) -> Unit {
    // Lines of embedded data are shown but not indexed.
    let mut own: Vec<(u32, u32)> = Vec::new();
    for line in first..=last {
        if is_blob(lines.range(line, line)) {
            continue;
        }
        match own.last_mut() {
            Some((_, end)) if *end + 1 == line => *end = line,
            _ => own.push((line, line)),
        }
    }
    Unit {
        kind: UnitKind::Text,
        symbol: String::new(),
        scope: String::new(),
        first,
        last,
        head: last,
        own,
        names: Vec::new(),
    }
}
