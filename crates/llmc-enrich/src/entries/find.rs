//! Files found by name, the likeliest first.

use std::cmp::Reverse;
use std::collections::HashMap;

use llmc_tokens::{count, fits};

use super::{FoundPaths, REMARK_TOKENS};
use crate::grep::skipped;
use crate::place::{self, Purpose};
use crate::{Condensed, Totals};

/// Found files within a token budget: the nearest names first, then what is closer to the top, then the newest.
///
/// What does not fit is counted by directory: `src/search/ (14 more)`.
pub fn condense_find(found: &FoundPaths, budget_tokens: usize) -> Condensed {
    let total = found.total.max(found.paths.len() as u64);
    let totals = Totals {
        files: Some(total),
        ..Totals::default()
    };
    let left_out = skipped(&found.skipped);
    if total == 0 {
        let mut said = format!("0 files found; {} searched", found.files_searched);
        if !left_out.is_empty() {
            said.push_str(", ");
            said.push_str(&left_out);
        }
        return Condensed {
            breadcrumbs: vec![said],
            totals,
            ..Condensed::default()
        };
    }
    let room = budget_tokens;
    let mut order: Vec<_> = found.paths.iter().collect();
    let wanted = NameQuery::new(&found.pattern);
    order.sort_by_cached_key(|found| {
        (
            Purpose::of(&found.path) == Purpose::Generated,
            wanted.distance(&found.path),
            found.path.matches('/').count(),
            Reverse(found.modified),
            found.path.clone(),
        )
    });
    let mut all: String = order
        .iter()
        .map(|found| format!("{}\n", found.path))
        .collect();
    let crumbs = |withheld: &[(&str, u64)], unplaced| {
        let mut crumbs = Vec::new();
        crumbs.extend(place::whereabouts(withheld, unplaced, " more"));
        if !left_out.is_empty() {
            crumbs.push(format!(
                "{} files searched, {left_out}",
                found.files_searched
            ));
        }
        crumbs
    };
    let counts: Vec<_> = order.iter().map(|found| (&*found.path, 1)).collect();
    let hot_zone = (total > 1)
        .then(|| place::hottest(&counts))
        .flatten()
        .map(|(place, _)| place.to_owned());
    let unplaced = total - order.len() as u64;
    if unplaced == 0 && fits(&all, room.saturating_sub(REMARK_TOKENS / 2)) {
        return Condensed {
            body: all,
            breadcrumbs: crumbs(&[], 0),
            totals,
            shown: total,
            truncated: false,
            hot_zone,
            gap: None,
        };
    }
    let room = room.saturating_sub(REMARK_TOKENS);
    // At most three tenths are for directories, and what these do not need is for paths.
    let within = |room: usize| {
        let (bytes, spent) = llmc_tokens::lines_within(&all, room);
        (bytes, spent, all[..bytes].lines().count())
    };
    let (_, spent, shown) = within(room * 7 / 10);
    let dirs = directories(&counts[shown..], room.saturating_sub(spent + 2));
    let (bytes, spent, shown) = within(room.saturating_sub(count(&dirs) + 2));
    let withheld = &counts[shown..];
    let dirs = directories(withheld, room.saturating_sub(spent + 2));
    all.truncate(bytes);
    if !dirs.is_empty() {
        if !all.is_empty() {
            all.push('\n');
        }
        all.push_str(&dirs);
    }
    Condensed {
        breadcrumbs: crumbs(withheld, unplaced),
        truncated: shown as u64 != total,
        shown: shown as u64,
        body: all,
        totals,
        hot_zone,
        gap: None,
    }
}

/// What a pattern wants a name to be.
struct NameQuery {
    text: String,
    in_path: bool,
}

impl NameQuery {
    fn new(pattern: &str) -> Self {
        // Of a glob, the longest part that is plain text.
        let text = pattern
            .split(['*', '?', '[', ']', '{', '}', ','])
            .max_by_key(|part| part.len())
            .unwrap_or_default();
        Self {
            text: text.to_lowercase(),
            in_path: text.contains('/'),
        }
    }

    /// 0 for the name itself, more the farther from it.
    fn distance(&self, path: &str) -> u8 {
        let lower = path.to_lowercase();
        if self.in_path {
            let text = self.text.trim_matches('/');
            return if lower.ends_with(text) { 0 } else { 3 };
        }
        let name = lower.rsplit('/').next().unwrap_or(&lower);
        let stem = name.split_once('.').map_or(name, |(stem, _)| stem);
        if name == self.text {
            0
        } else if stem == self.text {
            1
        } else if name.starts_with(&self.text) {
            2
        } else {
            3
        }
    }
}

/// Directories with the number of files in them, the fullest first; as many levels deep as fit.
fn directories(files: &[(&str, u64)], room: usize) -> String {
    let mut best = (0, String::new());
    for depth in 1..=12 {
        let mut sums: HashMap<&str, u64> = HashMap::new();
        let mut deep = false;
        for (path, _) in files {
            let slashes = memchr::memchr_iter(b'/', path.as_bytes()).take(depth);
            if let Some((level, at)) = slashes.enumerate().last() {
                deep |= level + 1 == depth;
                *sums.entry(&path[..=at]).or_default() += 1;
            }
        }
        let count = sums.len();
        // Nothing is that deep, or it cannot fit: a line has some tokens at least.
        if !deep || (depth > 1 && count * 4 > room) {
            break;
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(dir, files)| (Reverse(*files), *dir));
        let mut lines = String::new();
        for (dir, files) in sums.iter().take(room) {
            lines.push_str(&format!("{dir} ({files} more)\n"));
        }
        if !fits(&lines, room) {
            if depth == 1 {
                let (bytes, _) = llmc_tokens::lines_within(&lines, room);
                lines.truncate(bytes);
                return lines;
            }
            break;
        }
        best = (count, lines);
    }
    // So few the remark below names anyway.
    if best.0 < 4 { String::new() } else { best.1 }
}
