//! The entries of a directory, those first that say what it is.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use llmc_tokens::count;

use super::{ListedEntry, ListedKind, REMARK_TOKENS, short_size};
use crate::place::Purpose;
use crate::{Condensed, Totals};

/// Files that say what a directory is.
const TELLING: &[&str] = &[
    "readme",
    "readme.md",
    "readme.rst",
    "readme.txt",
    "cargo.toml",
    "package.json",
    "pyproject.toml",
    "setup.py",
    "go.mod",
    "pom.xml",
    "build.gradle",
    "makefile",
    "cmakelists.txt",
    "dockerfile",
    "composer.json",
    "gemfile",
    "llmc.toml",
];

/// A directory within a token budget: `name/`, `name@`, `name  12K`; directories first.
///
/// Of a large one, the files that say what it is and the newest, and the rest counted by extension.
pub fn condense_ls(
    entries: &[ListedEntry],
    total: u64,
    hidden: u64,
    budget_tokens: usize,
) -> Condensed {
    let total = total.max(entries.len() as u64);
    let room = budget_tokens;
    let mut sorted: Vec<_> = entries.iter().collect();
    sorted.sort_by_key(|entry| (entry.kind != ListedKind::Directory, &*entry.name));
    let rank = |entry: &ListedEntry| {
        (
            Purpose::of(&entry.name) == Purpose::Generated,
            !TELLING.contains(&&*entry.name.to_lowercase()),
            entry.kind != ListedKind::Directory,
            Reverse(entry.modified),
        )
    };
    let mut by_rank: Vec<usize> = (0..sorted.len()).collect();
    by_rank.sort_by_cached_key(|at| (rank(sorted[*at]), *at));
    let costs = |at: &usize| count(&line(sorted[*at]));

    let unplaced = total - entries.len() as u64;
    let all: usize = if entries.len() < room {
        by_rank.iter().map(costs).sum()
    } else {
        usize::MAX
    };
    let mut shown: Vec<usize> = by_rank.clone();
    if unplaced > 0 || all > room.saturating_sub(10) {
        let room = room.saturating_sub(REMARK_TOKENS);
        // Directories get at most half, so that a thousand of them leave room for the files.
        let (mut spent, mut on_directories) = (0, 0);
        shown.retain(|at| {
            if spent >= room {
                return false;
            }
            let tokens = costs(at);
            let directory = sorted[*at].kind == ListedKind::Directory;
            let files_too = entries.len() > 1
                && sorted
                    .last()
                    .is_some_and(|last| last.kind != ListedKind::Directory);
            if spent + tokens > room
                || (directory && files_too && on_directories + tokens > room / 2)
            {
                return false;
            }
            spent += tokens;
            on_directories += if directory { tokens } else { 0 };
            true
        });
    }
    loop {
        let mut places = shown.clone();
        places.sort_unstable();
        let body: String = places.iter().map(|at| line(sorted[*at])).collect();
        let breadcrumbs = ls_remarks(&sorted, &places, unplaced, hidden);
        let tokens = count(&body)
            + breadcrumbs
                .iter()
                .map(|crumb| count(crumb) + 5)
                .sum::<usize>();
        if tokens <= room || shown.is_empty() {
            return Condensed {
                body,
                breadcrumbs,
                totals: Totals {
                    files: Some(total),
                    ..Totals::default()
                },
                shown: places.len() as u64,
                truncated: places.len() as u64 != total,
                ..Condensed::default()
            };
        }
        shown.truncate(shown.len() - 1 - ((tokens - room) / 20).min(shown.len() - 1));
    }
}

/// `312 more: 300 .rs, 10 directories, 2 others`, and how many are hidden.
fn ls_remarks(sorted: &[&ListedEntry], shown: &[usize], unplaced: u64, hidden: u64) -> Vec<String> {
    let mut groups: BTreeMap<String, u64> = BTreeMap::new();
    let mut shown = shown.iter().peekable();
    for (at, entry) in sorted.iter().enumerate() {
        if shown.next_if_eq(&&at).is_some() {
            continue;
        }
        let group = match entry.kind {
            ListedKind::Directory => "directories".to_owned(),
            _ => match entry.name.rsplit_once('.') {
                Some((stem, extension))
                    if !stem.is_empty() && extension.len() <= 12 && !extension.is_empty() =>
                {
                    format!(".{extension}")
                }
                _ => "others".to_owned(),
            },
        };
        *groups.entry(group).or_default() += 1;
    }
    let mut others = groups.remove("others").unwrap_or(0) + unplaced;
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let total = groups.iter().map(|(_, files)| files).sum::<u64>() + others;
    others += groups.iter().skip(6).map(|(_, files)| files).sum::<u64>();
    groups.truncate(6);
    let mut remarks = Vec::new();
    if total > 0 {
        let mut parts: Vec<_> = groups
            .iter()
            .map(|(group, files)| format!("{files} {group}"))
            .collect();
        if others > 0 && !parts.is_empty() {
            parts.push(format!("{others} others"));
        }
        remarks.push(if parts.is_empty() {
            format!("{total} more")
        } else {
            format!("{total} more: {}", parts.join(", "))
        });
    }
    if hidden > 0 {
        remarks.push(format!("{hidden} hidden"));
    }
    remarks
}

fn line(entry: &ListedEntry) -> String {
    let size = entry
        .size
        .map_or(String::new(), |size| format!("  {}", short_size(size)));
    match entry.kind {
        ListedKind::Directory => format!("{}/\n", entry.name),
        ListedKind::Link => format!("{}@\n", entry.name),
        ListedKind::File => format!("{}{size}\n", entry.name),
        ListedKind::Other => format!("{}=\n", entry.name),
    }
}
