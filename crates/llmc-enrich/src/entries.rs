//! Found files and listed directories, the likeliest first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use llmc_tokens::{count, fits};

use crate::grep::skipped;
use crate::place::{self, Purpose};
use crate::{Condensed, Totals};

/// Files found by name.
#[derive(Debug, Clone, Default)]
pub struct FoundPaths {
    /// Those that are at hand, at best all of them.
    pub paths: Vec<FoundPath>,
    /// How many there are in all.
    pub total: u64,
    /// How many files were looked at.
    pub files_searched: u64,
    /// How many were not, and why: `(29, "ignored")`.
    pub skipped: Vec<(u64, &'static str)>,
    /// What was searched for: a glob, or a part of a name.
    pub pattern: String,
}

/// A file found by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundPath {
    /// As it is to be shown.
    pub path: String,
    /// Bytes, if known.
    pub size: Option<u64>,
    /// When it last changed, in seconds since 1970, if known.
    pub modified: Option<i64>,
}

/// What an entry of a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum EntryKind {
    Directory,
    File,
    Link,
    Other,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// As it is to be shown, without a mark.
    pub name: String,
    /// What it is.
    pub kind: EntryKind,
    /// Bytes, if known.
    pub size: Option<u64>,
    /// When it last changed, in seconds since 1970, if known.
    pub modified: Option<i64>,
}

/// Tokens left for the header, which the caller writes, and for the remarks.
const HEADER: usize = 80;
const REMARKS: usize = 60;

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
    let room = budget_tokens.saturating_sub(HEADER);
    let mut order: Vec<_> = found.paths.iter().collect();
    let wanted = Wanted::new(&found.pattern);
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
    if unplaced == 0 && fits(&all, room.saturating_sub(REMARKS / 2)) {
        return Condensed {
            body: all,
            breadcrumbs: crumbs(&[], 0),
            totals,
            shown: total,
            truncated: false,
            hot_zone,
        };
    }
    let room = room.saturating_sub(REMARKS);
    let (bytes, spent) = llmc_tokens::lines_within(&all, room * 7 / 10);
    all.truncate(bytes);
    let shown = all.lines().count();
    let withheld = &counts[shown..];
    let dirs = directories(withheld, room.saturating_sub(spent + 2));
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
    }
}

/// What a pattern wants a name to be.
struct Wanted {
    text: String,
    in_path: bool,
}

impl Wanted {
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
    match best.0 < 4 {
        true => String::new(),
        false => best.1,
    }
}

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
pub fn condense_ls(entries: &[Entry], total: u64, hidden: u64, budget_tokens: usize) -> Condensed {
    let total = total.max(entries.len() as u64);
    let room = budget_tokens.saturating_sub(HEADER);
    let mut sorted: Vec<_> = entries.iter().collect();
    sorted.sort_by_key(|entry| (entry.kind != EntryKind::Directory, &*entry.name));
    let rank = |entry: &Entry| {
        (
            Purpose::of(&entry.name) == Purpose::Generated,
            !TELLING.contains(&&*entry.name.to_lowercase()),
            entry.kind != EntryKind::Directory,
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
        let room = room.saturating_sub(REMARKS);
        // Directories get at most half, so that a thousand of them leave room for the files.
        let (mut spent, mut on_directories) = (0, 0);
        shown.retain(|at| {
            if spent >= room {
                return false;
            }
            let tokens = costs(at);
            let directory = sorted[*at].kind == EntryKind::Directory;
            let files_too = entries.len() > 1
                && sorted
                    .last()
                    .is_some_and(|last| last.kind != EntryKind::Directory);
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
                hot_zone: None,
            };
        }
        shown.truncate(shown.len() - 1 - ((tokens - room) / 20).min(shown.len() - 1));
    }
}

/// `312 more: 300 .rs, 10 directories, 2 others`, and how many are hidden.
fn ls_remarks(sorted: &[&Entry], shown: &[usize], unplaced: u64, hidden: u64) -> Vec<String> {
    let mut groups: BTreeMap<String, u64> = BTreeMap::new();
    let mut shown = shown.iter().peekable();
    for (at, entry) in sorted.iter().enumerate() {
        if shown.next_if_eq(&&at).is_some() {
            continue;
        }
        let group = match entry.kind {
            EntryKind::Directory => "directories".to_owned(),
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
        remarks.push(match parts.is_empty() {
            true => format!("{total} more"),
            false => format!("{total} more: {}", parts.join(", ")),
        });
    }
    if hidden > 0 {
        remarks.push(format!("{hidden} hidden"));
    }
    remarks
}

fn line(entry: &Entry) -> String {
    let size = entry
        .size
        .map_or(String::new(), |size| format!("  {}", short_size(size)));
    match entry.kind {
        EntryKind::Directory => format!("{}/\n", entry.name),
        EntryKind::Link => format!("{}@\n", entry.name),
        EntryKind::File => format!("{}{size}\n", entry.name),
        EntryKind::Other => format!("{}=\n", entry.name),
    }
}

/// A size in at most four characters: `980`, `1.2K`, `12K`, `3.4M`.
pub(crate) fn short_size(bytes: u64) -> String {
    if bytes < 1000 {
        return bytes.to_string();
    }
    let mut size = bytes as f64;
    let mut unit = 0;
    while size >= 999.5 && unit < 6 {
        size /= 1024.0;
        unit += 1;
    }
    let letter = ["", "K", "M", "G", "T", "P", "E"][unit];
    if size < 9.95 {
        format!("{size:.1}{letter}")
    } else {
        format!("{size:.0}{letter}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn paths(list: &[&str]) -> Vec<FoundPath> {
        list.iter()
            .map(|path| FoundPath {
                path: (*path).to_owned(),
                ..FoundPath::default()
            })
            .collect()
    }

    #[test]
    fn the_nearest_name_first() {
        let mut found = FoundPaths {
            paths: paths(&[
                "a/b/c/store.rs",
                "lib/datastore.rs",
                "src/store/mod.rs",
                "store.rs",
                "store_old.rs",
                "vendor/store.rs",
                "web/store",
                "x/stores_b.rs",
                "x/stores_a.rs",
            ]),
            total: 9,
            pattern: "store".into(),
            ..FoundPaths::default()
        };
        found.paths[7].modified = Some(20);
        found.paths[8].modified = Some(10);
        let answer = condense_find(&found, 1000);
        assert_eq!(
            answer.body.lines().collect::<Vec<_>>(),
            [
                "web/store",
                "store.rs",
                "a/b/c/store.rs",
                "store_old.rs",
                "x/stores_b.rs",
                "x/stores_a.rs",
                "lib/datastore.rs",
                "src/store/mod.rs",
                "vendor/store.rs",
            ]
        );
        assert_eq!((answer.shown, answer.truncated), (9, false));
    }

    #[test]
    fn what_does_not_fit_is_counted_by_directory() {
        let list: Vec<_> = (0..900)
            .map(|n| format!("crates/part{}/src/deep/module_{n:03}.rs", n % 9))
            .collect();
        let list: Vec<_> = list.iter().map(String::as_str).collect();
        let found = FoundPaths {
            paths: paths(&list),
            total: 1000,
            files_searched: 5000,
            skipped: vec![(3, "ignored")],
            pattern: "*.rs".into(),
        };
        let answer = condense_find(&found, 500);
        assert!(answer.truncated && answer.shown > 5);
        let more: u64 = answer
            .body
            .lines()
            .filter_map(|line| {
                line.split_once(" (")?
                    .1
                    .strip_suffix(" more)")?
                    .parse::<u64>()
                    .ok()
            })
            .sum();
        assert_eq!(answer.shown + more + 100, 1000, "{}", answer.body);
        assert!(
            answer.body.contains("crates/part3/src/ (100 more)"),
            "{}",
            answer.body
        );
        assert_eq!(
            answer.breadcrumbs[1],
            "5000 files searched, 3 skipped: 3 ignored"
        );
        assert_eq!(answer.hot_zone.as_deref(), Some("crates/"));
    }

    #[test]
    fn nothing_found() {
        let found = FoundPaths {
            files_searched: 12,
            ..FoundPaths::default()
        };
        assert_eq!(
            condense_find(&found, 500).breadcrumbs,
            ["0 files found; 12 searched"]
        );
    }

    fn entry(name: &str, kind: EntryKind, size: u64) -> Entry {
        Entry {
            name: name.into(),
            kind,
            size: Some(size),
            modified: None,
        }
    }

    #[test]
    fn a_small_directory_is_listed() {
        let entries = [
            entry("zed", EntryKind::Directory, 4096),
            entry("a.rs", EntryKind::File, 12_345),
            entry("link", EntryKind::Link, 7),
            entry("b.rs", EntryKind::File, 80),
        ];
        let answer = condense_ls(&entries, 4, 2, 500);
        assert_eq!(answer.body, "zed/\na.rs  12K\nb.rs  80\nlink@\n");
        assert_eq!(answer.breadcrumbs, ["2 hidden"]);
        assert_eq!(answer.totals.files, Some(4));
    }

    #[test]
    fn a_large_directory_is_counted() {
        let mut entries: Vec<_> = (0..2000)
            .map(|n| entry(&format!("part{n:04}.rs"), EntryKind::File, n))
            .collect();
        entries.extend((0..30).map(|n| entry(&format!("dir{n}"), EntryKind::Directory, 0)));
        entries.push(entry("README.md", EntryKind::File, 900));
        entries[1500].modified = Some(99);
        let answer = condense_ls(&entries, 2031, 0, 400);
        assert!(
            answer.body.contains("dir7/\n") && answer.body.contains("README.md  900\n"),
            "{}",
            answer.body
        );
        assert!(answer.body.contains("part1500.rs"), "{}", answer.body);
        let more = 2031 - answer.shown;
        assert!(
            answer.breadcrumbs[0].starts_with(&format!("{more} more: ")),
            "{:?}",
            answer.breadcrumbs
        );
        assert!(
            answer.breadcrumbs[0].ends_with(" .rs"),
            "{:?}",
            answer.breadcrumbs
        );
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, expected) in [
            (0, "0"),
            (999, "999"),
            (1000, "1.0K"),
            (12_345, "12K"),
            (1_048_576, "1.0M"),
            (1_023_999, "1.0M"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(short_size(bytes), expected, "{bytes}");
        }
    }

    proptest! {
        #[test]
        fn accounts_for_everything_within_the_budget(
            list in prop::collection::vec(("\\PC{0,20}|[a-b]/[a-b]/[a-c]{1,3}\\.rs", prop::option::of(any::<i64>())), 0..80),
            more in 0..500_u64,
            pattern in "\\PC{0,6}|\\*\\.rs",
            budget in 150..1500_usize,
        ) {
            let paths: Vec<_> = list
                .iter()
                .map(|(path, modified)| FoundPath { path: path.clone(), size: None, modified: *modified })
                .collect();
            let total = paths.len() as u64 + more;
            let found = FoundPaths { paths, total, pattern, skipped: vec![(more, "binary")], files_searched: total };
            let answer = condense_find(&found, budget);
            prop_assert!(count(&answer.body) <= budget - HEADER);
            prop_assert_eq!(answer.truncated, answer.shown < total);
            prop_assert_eq!(answer.totals.files, Some(total));

            let entries: Vec<_> = list
                .iter()
                .map(|(name, modified)| Entry {
                    name: name.clone(),
                    kind: if name.len() % 3 == 0 { EntryKind::Directory } else { EntryKind::File },
                    size: modified.map(i64::unsigned_abs),
                    modified: *modified,
                })
                .collect();
            let answer = condense_ls(&entries, total, more, budget);
            prop_assert!(count(&answer.body) <= budget - HEADER);
            prop_assert_eq!(answer.truncated, answer.shown < total);
            if answer.truncated {
                let start = format!("{} more", total - answer.shown);
                prop_assert!(answer.breadcrumbs[0].starts_with(&start));
            }
        }
    }
}
