//! `git status`: how many files in which state, and which, by directory.

use std::collections::BTreeMap;

use crate::budget::{cost, plural, thousands, within};
use crate::{Condensed, Totals};

/// States in the order in which they matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StatusState {
    Conflict,
    Staged,
    Unstaged,
    Untracked,
    Ignored,
}

impl StatusState {
    fn name(self) -> &'static str {
        match self {
            Self::Conflict => "conflicts",
            Self::Staged => "staged",
            Self::Unstaged => "not staged",
            Self::Untracked => "untracked",
            Self::Ignored => "ignored",
        }
    }
}

#[derive(Default)]
struct GitStatus<'a> {
    /// What git says of the branch.
    branch: Vec<&'a str>,
    entries: Vec<(StatusState, &'a str, &'a str)>,
}

/// Nothing when the text has another form than git's own.
pub(super) fn condense(text: &str, budget: usize) -> Option<Condensed> {
    let status = parse(text);
    if status.entries.is_empty() {
        return None;
    }
    Some(within(budget, |tokens| render(&status, tokens)))
}

/// The files of one state and change in one directory.
struct StatusGroup<'a> {
    state: StatusState,
    change: &'a str,
    directory: &'a str,
    names: Vec<&'a str>,
}

fn render(status: &GitStatus<'_>, tokens: usize) -> Condensed {
    const BREADCRUMB_TOKENS: usize = 24;
    let mut groups: BTreeMap<(StatusState, &str, &str), Vec<&str>> = BTreeMap::new();
    let mut counts: BTreeMap<StatusState, u64> = BTreeMap::new();
    for (state, change, path) in &status.entries {
        *counts.entry(*state).or_default() += 1;
        let trimmed = path.strip_suffix('/').unwrap_or(path);
        let (directory, _) = trimmed.split_at(trimmed.rfind('/').map_or(0, |at| at + 1));
        let names = groups.entry((*state, change, directory)).or_default();
        names.push(&path[directory.len()..]);
    }
    let total = status.entries.len() as u64;
    let parts: Vec<String> = counts
        .iter()
        .map(|(state, n)| format!("{} {}", thousands(*n), state.name()))
        .collect();
    let mut body = format!("{}: {}\n", plural(total, "path"), parts.join(", "));
    for line in &status.branch {
        body.push_str(line);
        body.push('\n');
    }
    let room = tokens.saturating_sub(cost(&body) + BREADCRUMB_TOKENS);
    let groups: Vec<StatusGroup<'_>> = groups
        .into_iter()
        .map(|((state, change, directory), names)| StatusGroup {
            state,
            change,
            directory,
            names,
        })
        .collect();
    // The same number of names per directory everywhere, as many as there is room for.
    let mut lines = Vec::new();
    let mut shown = 0;
    for names in [usize::MAX, 30, 10, 4, 1, 0] {
        (lines, shown) = list(&groups, names, room);
        let covered = lines.len() == groups.len();
        if covered {
            break;
        }
    }
    for line in &lines {
        body.push_str(line);
        body.push('\n');
    }
    let mut breadcrumbs = Vec::new();
    if shown < total {
        let mut crumb = plural(total - shown, "more path");
        if lines.len() < groups.len() {
            let more = (groups.len() - lines.len()) as u64;
            crumb.push_str(&format!(
                ", some in {} not shown",
                if more == 1 {
                    "1 directory".into()
                } else {
                    format!("{} directories", thousands(more))
                }
            ));
        }
        breadcrumbs.push(crumb);
    }
    Condensed {
        body,
        breadcrumbs,
        totals: Totals {
            files: Some(total),
            ..Totals::default()
        },
        shown,
        truncated: true,
        hot_zone: hot_zone(&groups),
        gap: None,
    }
}

/// One line per group, as far as there is room, and how many paths they name.
fn list(groups: &[StatusGroup<'_>], names: usize, room: usize) -> (Vec<String>, u64) {
    let mut lines = Vec::new();
    let mut used = 0;
    let mut shown = 0;
    let mut state = None;
    for group in groups {
        let named = group.names.len().min(names);
        let mut line = String::new();
        if state != Some(group.state) {
            line.push_str(&format!("{}:\n", group.state.name()));
            state = Some(group.state);
        }
        let separator = if group.change.is_empty() { "" } else { " " };
        line.push_str(&format!("  {}{separator}{}", group.change, group.directory));
        if group.names.len() == 1 && named == 1 {
            line.push_str(group.names[0]);
        } else if named > 0 {
            let lead = if group.directory.is_empty() { "" } else { ": " };
            line.push_str(&format!("{lead}{}", group.names[..named].join(", ")));
        }
        let more = group.names.len() - named;
        if more > 0 {
            line.push_str(&format!(" (+{})", thousands(more as u64)));
        }
        used += cost(&line);
        if used > room {
            break;
        }
        shown += named as u64;
        lines.push(line);
    }
    (lines, shown)
}

fn hot_zone(groups: &[StatusGroup<'_>]) -> Option<String> {
    let most = groups
        .iter()
        .filter(|group| !group.directory.is_empty())
        .max_by_key(|group| group.names.len())?;
    (most.names.len() > 1).then(|| most.directory.to_owned())
}

fn parse(text: &str) -> GitStatus<'_> {
    let mut status = GitStatus::default();
    let mut section = None;
    for line in text.lines() {
        if let Some(rest) = line
            .strip_prefix("# ")
            .filter(|rest| rest.starts_with("branch."))
        {
            status.branch.push(rest);
        } else if let Some(rest) = line.strip_prefix("## ") {
            status.branch.push(rest);
        } else if let Some(found) = porcelain_v2(line) {
            status.entries.extend(found);
        } else if let Some(state) = heading(line) {
            section = Some(state);
        } else if let Some(state) = section {
            if let Some(entry) = line.strip_prefix('\t') {
                let (change, path) = long_entry(state, entry);
                status.entries.push((state, change, path));
            }
        } else if let Some(found) = porcelain_v1(line) {
            status.entries.extend(found);
        } else if line.starts_with("On branch ")
            || line.starts_with("Your branch ")
            || line.starts_with("HEAD detached")
        {
            status.branch.push(line);
        }
    }
    status
}

fn heading(line: &str) -> Option<StatusState> {
    Some(match line {
        "Changes to be committed:" => StatusState::Staged,
        "Changes not staged for commit:" => StatusState::Unstaged,
        "Untracked files:" => StatusState::Untracked,
        "Ignored files:" => StatusState::Ignored,
        "Unmerged paths:" => StatusState::Conflict,
        _ => return None,
    })
}

/// `modified:   src/a.rs`, or just a path among the untracked.
fn long_entry(state: StatusState, entry: &str) -> (&str, &str) {
    if matches!(state, StatusState::Untracked | StatusState::Ignored) {
        return ("", entry);
    }
    match entry.split_once(':') {
        Some((change, path)) => {
            let letter = match change {
                "modified" => "M",
                "new file" => "A",
                "deleted" => "D",
                "renamed" => "R",
                "copied" => "C",
                "typechange" => "T",
                other => other,
            };
            (letter, path.trim_start())
        }
        None => ("", entry),
    }
}

/// `XY path`: X for the index, Y for the files.
fn porcelain_v1(line: &str) -> Option<Vec<(StatusState, &str, &str)>> {
    let bytes = line.as_bytes();
    let known = |b: u8| {
        matches!(
            b,
            b' ' | b'M' | b'T' | b'A' | b'D' | b'R' | b'C' | b'U' | b'?' | b'!'
        )
    };
    if bytes.len() < 4
        || !known(bytes[0])
        || !known(bytes[1])
        || bytes[2] != b' '
        || &line[..2] == "  "
    {
        return None;
    }
    Some(states(&line[..2], &line[3..]))
}

fn states<'a>(xy: &'a str, path: &'a str) -> Vec<(StatusState, &'a str, &'a str)> {
    let unmerged = xy.contains('U') || xy == "AA" || xy == "DD";
    match xy {
        "??" => vec![(StatusState::Untracked, "", path)],
        "!!" => vec![(StatusState::Ignored, "", path)],
        _ if unmerged => vec![(StatusState::Conflict, xy, path)],
        _ => {
            let (index, tree) = xy.split_at(1);
            let mut found = Vec::new();
            if !matches!(index, " " | ".") {
                found.push((StatusState::Staged, index, path));
            }
            if !matches!(tree, " " | ".") {
                found.push((StatusState::Unstaged, tree, path));
            }
            found
        }
    }
}

/// `1 XY sub mH mI mW hH hI path`, `2 … Xscore path<tab>origin`, `u XY … path`, `? path`.
fn porcelain_v2(line: &str) -> Option<Vec<(StatusState, &str, &str)>> {
    let (kind, rest) = line.split_once(' ')?;
    let fields = match kind {
        "?" => return Some(vec![(StatusState::Untracked, "", rest)]),
        "!" => return Some(vec![(StatusState::Ignored, "", rest)]),
        "1" => 7,
        "2" => 8,
        "u" => 9,
        _ => return None,
    };
    let mut parts = rest.splitn(fields + 1, ' ');
    let xy = parts.next().filter(|xy| xy.len() == 2 && xy.is_ascii())?;
    let path = parts.nth(fields - 1)?;
    let path = path.split('\t').next()?;
    if kind == "u" {
        return Some(vec![(StatusState::Conflict, xy, path)]);
    }
    Some(states(xy, path))
}
