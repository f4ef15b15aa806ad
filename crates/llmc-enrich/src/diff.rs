//! Diffs: by file and symbol, without what only looks like a change.
//!
//! A long diff is mostly context, moved code, white space and lock files. [`condense`] keeps the changed lines, says
//! `moved a -> b` for blocks that only changed their place and `whitespace only` for hunks without another change, puts
//! large and generated files last, and counts every hunk it does not show. [`unified`] makes a diff of two texts.

mod moves;
mod parse;
mod unified;

use std::borrow::Cow;

use llmc_tokens::fits;

use crate::budget::{
    LineBlock, clip, cost, crumb_cost, names, plural, share, thousands, within, write_block,
};
use crate::excerpt::{Favour, excerpt};
use crate::terminal::without_escapes;
use crate::{Condensed, Totals};
use moves::{MoveRole, Moves};
use parse::{Diff, DiffFile, Hunk, Sign};

pub(crate) use parse::looks_like_diff;
pub use unified::unified;

/// Bytes shown of one line.
const MAX_LINE_BYTES: usize = 300;
/// Tokens for `1,234 more hunks in generated files` as a breadcrumb.
const BREADCRUMB_TOKENS: usize = 16;
/// Changed lines from which on a file that makes up most of a diff comes last.
const LARGE_DIFF_LINES: u64 = 400;

/// Condenses a unified diff, git's or plain, to `budget` tokens; untouched when it fits.
///
/// `totals.matches` counts the hunks. Text without any diff in it is cut to head and tail.
pub fn condense(text: &str, budget: usize) -> Condensed {
    let diff = Diff::parse(text);
    let totals = Totals {
        matches: Some(diff.hunks()),
        files: Some(diff.files.len() as u64),
        size: Some(text.len() as u64),
        ..Totals::default()
    };
    if fits(text, budget) {
        return Condensed {
            body: text.to_owned(),
            shown: diff.hunks(),
            totals,
            ..Condensed::default()
        };
    }
    let clean = without_escapes(text);
    let diff = match &clean {
        Cow::Borrowed(_) => diff,
        Cow::Owned(clean) => Diff::parse(clean),
    };
    if diff.files.is_empty() {
        return excerpt(text, budget, Favour::Head);
    }
    let moves = Moves::find(&diff);
    let order = order(&diff);
    within(budget, |tokens| {
        render(&diff, &order, &moves, totals, tokens)
    })
}

fn render(
    diff: &Diff<'_>,
    order: &[(Rank, usize)],
    moves: &Moves,
    totals: Totals,
    tokens: usize,
) -> Condensed {
    let (added, removed) = diff.files.iter().fold((0, 0), |sum, file| {
        (sum.0 + file.added(), sum.1 + file.removed())
    });
    let mut body = format!(
        "{}, {}, +{added} -{removed}\n",
        plural(diff.files.len() as u64, "file"),
        plural(diff.hunks(), "hunk"),
    );
    let mut breadcrumbs = Vec::new();
    if diff.outside > 0 {
        breadcrumbs.push(format!(
            "{} outside of the diff left out",
            plural(diff.outside, "line")
        ));
    }
    let fixed = cost(&body)
        + breadcrumbs
            .iter()
            .map(|crumb| crumb_cost(crumb))
            .sum::<usize>();
    let room = tokens.saturating_sub(fixed);
    // Even a bare heading takes a few tokens: what is further down cannot be shown and need not be prepared.
    let entries = entries(diff, order, moves, room / 4);
    let blocks: Vec<&LineBlock<'_>> = entries.iter().map(|entry| &entry.block).collect();
    let shown_hunks = |blocks: usize| {
        entries[..blocks]
            .iter()
            .filter(|entry| entry.hunk.is_some())
            .count() as u64
    };
    let last_file = order.last().map(|(_, file)| *file);
    let mut shares = share(&blocks, room);
    let all_shown =
        shares.blocks() == entries.len() && entries.last().map(|entry| entry.file) == last_file;
    if !all_shown || shown_hunks(shares.blocks()) < diff.hunks() {
        let for_names = if all_shown {
            BREADCRUMB_TOKENS
        } else {
            (room / 6).max(2 * BREADCRUMB_TOKENS)
        }
        .min(room);
        shares = share(&blocks, room - for_names);
        let crumb = left_out(
            diff,
            order,
            &entries[..shares.blocks()],
            for_names.saturating_sub(BREADCRUMB_TOKENS),
        );
        breadcrumbs.extend(crumb);
    }
    let shown = shown_hunks(shares.blocks());
    for (entry, lines) in entries.iter().zip(&shares.lines) {
        write_block(&mut body, &entry.block, *lines);
    }
    Condensed {
        body,
        breadcrumbs,
        totals,
        shown,
        truncated: true,
        hot_zone: hot_zone(diff),
        gap: None,
    }
}

/// Why a file comes late; the order of the variants is that of the files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Ordinary,
    Large,
    Generated,
}

fn order(diff: &Diff<'_>) -> Vec<(Rank, usize)> {
    let changed = |file: &DiffFile<'_>| file.added() + file.removed();
    let all: u64 = diff.files.iter().map(changed).sum();
    let mut order: Vec<(Rank, usize)> = diff
        .files
        .iter()
        .enumerate()
        .map(|(i, file)| {
            let rank = if is_generated(file) {
                Rank::Generated
            } else if diff.files.len() > 1 && changed(file) > LARGE_DIFF_LINES.max(all / 2) {
                Rank::Large
            } else {
                Rank::Ordinary
            };
            (rank, i)
        })
        .collect();
    order.sort();
    order
}

/// Lock files, minified and generated code: their changes follow from others.
fn is_generated(file: &DiffFile<'_>) -> bool {
    const NAMES: &[&str] = &[
        "Cargo.lock",
        "package-lock.json",
        "npm-shrinkwrap.json",
        "yarn.lock",
        "pnpm-lock.yaml",
        "bun.lock",
        "poetry.lock",
        "uv.lock",
        "Pipfile.lock",
        "Gemfile.lock",
        "composer.lock",
        "go.sum",
        "flake.lock",
    ];
    const ENDS: &[&str] = &[
        ".min.js",
        ".min.css",
        ".js.map",
        ".css.map",
        ".pb.go",
        "_pb2.py",
        "_generated.go",
    ];
    const GENERATED_LINE_BYTES: usize = 5000;
    let path = file.path();
    let name = path.rsplit('/').next().unwrap_or(path);
    NAMES.contains(&name)
        || ENDS.iter().any(|end| name.ends_with(end))
        || path.split('/').any(|part| part == "node_modules")
        || file.hunks.iter().any(|hunk| {
            hunk.lines
                .iter()
                .any(|line| line.text.len() > GENERATED_LINE_BYTES)
        })
}

/// Something that can be shown: a hunk, or a file that has none to show.
struct DiffEntry<'a> {
    file: usize,
    hunk: Option<usize>,
    block: LineBlock<'a>,
}

fn entries<'a>(
    diff: &'a Diff<'a>,
    order: &[(Rank, usize)],
    moves: &Moves,
    at_most: usize,
) -> Vec<DiffEntry<'a>> {
    let mut entries = Vec::new();
    for &(rank, index) in order {
        if entries.len() >= at_most {
            break;
        }
        let file = &diff.files[index];
        let heading = heading(file, rank);
        if rank == Rank::Generated || file.hunks.is_empty() {
            entries.push(DiffEntry {
                file: index,
                hunk: None,
                block: LineBlock {
                    lines: vec![Cow::Owned(heading)],
                    dropped: 0,
                },
            });
            continue;
        }
        let mut symbol = "";
        for (i, hunk) in file.hunks.iter().enumerate().take(at_most - entries.len()) {
            let mut block = hunk_block(
                hunk,
                moves,
                (index, i),
                std::mem::replace(&mut symbol, hunk.symbol),
            );
            if i == 0 {
                let first = std::mem::take(&mut block.lines[0]);
                block.lines[0] = Cow::Owned(format!("{heading}\n{first}"));
            }
            entries.push(DiffEntry {
                file: index,
                hunk: Some(i),
                block,
            });
        }
    }
    entries
}

fn heading(file: &DiffFile<'_>, rank: Rank) -> String {
    let mut heading = clip(file.path(), MAX_LINE_BYTES).into_owned();
    if file.added() + file.removed() > 0 {
        heading.push_str(&format!(" +{} -{}", file.added(), file.removed()));
    }
    let mut notes = file.notes.clone();
    if rank == Rank::Generated {
        notes.push("generated".into());
        if !file.hunks.is_empty() {
            notes.push(plural(file.hunks.len() as u64, "hunk"));
        }
    }
    if !notes.is_empty() {
        heading.push_str(&format!(" ({})", notes.join(", ")));
    }
    heading
}

fn hunk_block<'a>(
    hunk: &Hunk<'a>,
    moves: &Moves,
    at: (usize, usize),
    previous_symbol: &str,
) -> LineBlock<'a> {
    let mut first = format!("@@ {} @@", hunk.first_changed_line());
    if hunk.symbol != previous_symbol && !hunk.symbol.is_empty() {
        first.push(' ');
        first.push_str(&clip(hunk.symbol, 120));
    }
    if hunk.is_whitespace_only() {
        first.push_str(&format!(
            " (whitespace only, {})",
            plural(hunk.changed().max(1), "line")
        ));
        return LineBlock {
            lines: vec![Cow::Owned(first)],
            dropped: 0,
        };
    }
    let mut lines = vec![Cow::Owned(first)];
    let changed = |i: usize| {
        hunk.lines
            .get(i)
            .is_some_and(|line| line.sign != Sign::Context)
    };
    let mut i = 0;
    while i < hunk.lines.len() {
        let line = &hunk.lines[i];
        if let Some(moved) = moves.starting_at(at.0, at.1, i) {
            lines.push(Cow::Owned(match moved.role {
                MoveRole::From => format!("moved {} -> {}", moved.from, moved.to),
                MoveRole::To => format!("(moved here from {})", moved.from),
            }));
            i += moved.lines;
            continue;
        }
        // One line of context on either side of a change is enough to find it.
        let beside = changed(i + 1) || (i > 0 && changed(i - 1));
        if line.sign != Sign::Context || (beside && !line.text.trim().is_empty()) {
            lines.push(clip(line.raw, MAX_LINE_BYTES));
        }
        i += 1;
    }
    LineBlock {
        lines,
        dropped: hunk.dropped,
    }
}

/// How many hunks and files are not shown, and where they are.
fn left_out(
    diff: &Diff<'_>,
    order: &[(Rank, usize)],
    shown: &[DiffEntry<'_>],
    tokens: usize,
) -> Option<String> {
    let mut shown_of = vec![0; diff.files.len()];
    let mut seen = vec![false; diff.files.len()];
    for entry in shown {
        seen[entry.file] = true;
        shown_of[entry.file] += usize::from(entry.hunk.is_some());
    }
    let mut hunks = 0;
    let mut places = Vec::new();
    for &(rank, index) in order {
        let file = &diff.files[index];
        let left = file.hunks.len() - shown_of[index];
        hunks += left as u64;
        if left > 0 && !(rank == Rank::Generated && seen[index]) {
            places.push(format!("{} ({left})", file.path()));
        } else if !seen[index] {
            places.push(file.path().to_owned());
        }
    }
    if places.is_empty() && hunks == 0 {
        return None;
    }
    let what = plural(hunks, "more hunk");
    let places: Vec<&str> = places.iter().map(String::as_str).collect();
    let list = names(&places, tokens);
    Some(match places.len() {
        0 => format!("{what} in generated files"),
        n if list == thousands(n as u64) => format!("{what} in {}", plural(n as u64, "file")),
        _ => format!("{what}: {list}"),
    })
}

/// The file with the most changed lines that people write, when there are several files.
fn hot_zone(diff: &Diff<'_>) -> Option<String> {
    if diff.files.len() < 2 {
        return None;
    }
    let files = diff.files.iter().filter(|file| !is_generated(file));
    let most = files
        .rev()
        .max_by_key(|file| file.added() + file.removed())?;
    (most.added() + most.removed() > 0).then(|| most.path().to_owned())
}

#[cfg(test)]
mod tests;
