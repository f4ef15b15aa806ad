//! git's answers: what changed, who changed it, without the pages around it.
//!
//! Everything that fits the budget is left as git printed it.

mod blame;
mod log;
mod status;

use std::borrow::Cow;

use llmc_tokens::{count, fits};

use crate::budget::{clip, cost, plural};
use crate::excerpt::{Favour, excerpt};
use crate::terminal::settled;
use crate::{Condensed, diff};

/// Condenses what `git subcommand args…` printed to `budget` tokens; untouched when it fits.
pub fn condense(subcommand: &str, args: &[String], text: &str, budget: usize) -> Condensed {
    if fits(text, budget) {
        return untouched(subcommand, text, budget);
    }
    let clean = settled(text);
    let condensed = match subcommand {
        "diff" | "diff-tree" | "diff-index" | "diff-files" | "format-patch" => {
            return diff::condense(text, budget);
        }
        "show" => show(text, budget),
        "status" => status::condense(&clean, budget),
        "log" | "whatchanged" | "reflog" => log::condense(&clean, budget),
        "blame" | "annotate" => blame::condense(&clean, budget),
        "stash" if args.first().is_some_and(|word| word == "show") => {
            return diff::condense(text, budget);
        }
        "branch" => Some(branch(&clean, budget)),
        _ => None,
    };
    let mut condensed = condensed.unwrap_or_else(|| excerpt(text, budget, Favour::Head));
    condensed.totals.size = Some(text.len() as u64);
    condensed
}

fn untouched(subcommand: &str, text: &str, budget: usize) -> Condensed {
    if matches!(subcommand, "diff" | "show") && diff::looks_like_diff(text) {
        return diff::condense(text, budget);
    }
    Condensed::whole(text)
}

/// The commit's header and message, then its diff.
fn show(text: &str, budget: usize) -> Option<Condensed> {
    const MAX_MESSAGE_LINES: usize = 12;
    const MAX_FIRST_LINE_BYTES: usize = 60;
    let start = ["diff --git ", "diff --cc ", "diff --combined "]
        .iter()
        .filter_map(|lead| {
            if text.starts_with(lead) {
                return Some(0);
            }
            text.find(&format!("\n{lead}")).map(|at| at + 1)
        })
        .min()?;
    let (header, changes) = text.split_at(start);
    let header = settled(header);
    let mut lines: Vec<_> = header
        .trim_end()
        .lines()
        .map(|line| clip(line.trim_end(), 300))
        .collect();
    let all = lines.len();
    // As much as takes half of the room; of the first line always its beginning.
    let mut room = budget / 2;
    let has_room = |line: &&Cow<'_, str>| {
        let tokens = cost(line);
        let fits = tokens <= room;
        room = room.saturating_sub(tokens);
        fits
    };
    let fitting = lines
        .iter()
        .take(MAX_MESSAGE_LINES)
        .take_while(has_room)
        .count();
    lines.truncate(fitting.max(1));
    if let (0, Some(first)) = (fitting, lines.first_mut()) {
        *first = clip(first, MAX_FIRST_LINE_BYTES).into_owned().into();
    }
    let mut shown = lines.join("\n");
    if shown.is_empty() {
        return Some(diff::condense(text, budget));
    }
    if all > lines.len() {
        shown.push_str(&format!(
            "\n    …[+{}]",
            plural((all - lines.len()) as u64, "line")
        ));
    }
    shown.push('\n');
    let mut condensed = diff::condense(changes, budget.saturating_sub(count(&shown) + 1));
    condensed.body.insert_str(0, &shown);
    condensed.truncated = true;
    Some(condensed)
}

/// The current branch first: it may stand far down.
fn branch(text: &str, budget: usize) -> Condensed {
    let is_current = |line: &&str| line.starts_with("* ");
    let current = text.lines().find(is_current);
    let mut lines: Vec<&str> = current.into_iter().collect();
    lines.extend(text.lines().filter(|line| !is_current(line)));
    excerpt(&(lines.join("\n") + "\n"), budget, Favour::Head)
}

/// `Thu Jan 2 12:00:00 2025 +0000`, and dates that start with the year, as `2025-01-02`.
fn day(date: &str) -> String {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let date = date.trim();
    let words: Vec<&str> = date.split_whitespace().collect();
    if let [_, month, day, _, year, ..] = words[..]
        && let Some(at) = MONTHS.find(month).filter(|_| month.len() == 3)
        && let (Ok(day), Ok(year)) = (day.parse::<u32>(), year.parse::<u32>())
    {
        return format!("{year}-{:02}-{day:02}", at / 3 + 1);
    }
    let first = words.first().copied().unwrap_or_default();
    let iso = first.len() >= 10 && first.as_bytes()[4] == b'-' && first.is_char_boundary(10);
    if iso {
        first[..10].to_owned()
    } else {
        date.to_owned()
    }
}

/// The first digits of a commit's name.
fn short(hash: &str) -> &str {
    &hash[..hash.floor_char_boundary(8)]
}

fn is_hash(word: &str) -> bool {
    (7..=64).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests;
