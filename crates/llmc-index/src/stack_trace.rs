//! The places that a pasted stack trace or error message names, the innermost frame first.
//!
//! Python lists its frames with the most recent call last, other languages with the innermost first. Traces come from
//! other machines and through libraries, so a path means the file that shares most of its end with it; a path in a
//! known library directory has to match whole.

use std::collections::{HashMap, HashSet};

use crate::classify::{self, file_name};
use crate::error::Result;
use crate::rank::Candidate;
use crate::source::Sources;

/// Places parsed from a text, and those of them in the workspace that are ranked.
const MAX_PARSED_PLACES: usize = 400;
const MAX_TRACED_UNITS: usize = 8;

/// Parts of paths of libraries.
const LIBRARY_DIRS: &[&str] = &[
    "/site-packages/",
    "/dist-packages/",
    "/lib/python",
    "/node_modules/",
    "/rustc/",
    "/.cargo/registry/",
    "/.cargo/git/",
    "/rustlib/",
    "/go/pkg/mod/",
    "/usr/local/go/",
    "/usr/lib/",
    "/usr/include/",
    "/gems/",
    "/lib/ruby/",
    "/vendor/",
];

/// A line of a file, as a trace names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TracePlace {
    /// Without a slash in front.
    path: String,
    line: u32,
    /// The number of path components, from the end, that a file must share.
    min_shared: usize,
}

/// A line of a file of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocatedPlace {
    pub(crate) path: String,
    pub(crate) line: u32,
}

/// The line of a unit that a trace names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TracedLine {
    /// 0 for the innermost frame, 1 for its caller, and so on.
    pub(crate) depth: usize,
    pub(crate) line: u32,
}

/// `src/a.rs:12`, `File "a/b.py", line 3`, `(web/x.js:4:10)`, `in Cart.cs:line 4`: the innermost first.
pub(crate) fn places(text: &str) -> Vec<TracePlace> {
    let text = text.replace('\\', "/");
    let mut found: Vec<TracePlace> = Vec::new();
    // The start of a run of frames in call order.
    let mut oldest_first: Option<usize> = None;
    let is_path = |c: char| c.is_alphanumeric() || "/._-+@".contains(c);
    let mut at = 0;
    while let Some(start) = text[at..].find(is_path).map(|start| at + start) {
        let rest = &text[start..];
        let len = rest.find(|c| !is_path(c)).unwrap_or(rest.len());
        let (path, after) = rest.split_at(len);
        at = start + len;
        let (Some((line, after)), true) = (line_after(after), has_extension(path)) else {
            continue;
        };
        let before = &text[..start];
        if !is_call_order(before, path, after) {
            reverse_run(&mut found, &mut oldest_first);
        } else if oldest_first.is_none() {
            oldest_first = Some(found.len());
        }
        found.push(place(before, path, line));
        if found.len() >= MAX_PARSED_PLACES {
            break;
        }
    }
    reverse_run(&mut found, &mut oldest_first);
    let mut seen = HashSet::new();
    found.retain(|place| seen.insert((place.path.clone(), place.line)));
    found
}

fn reverse_run(found: &mut [TracePlace], oldest_first: &mut Option<usize>) {
    if let Some(from) = oldest_first.take() {
        found[from..].reverse();
    }
}

/// The line number right after a path, and the text behind it.
fn line_after(after: &str) -> Option<(u32, &str)> {
    let (number, in_brackets) = match after.strip_prefix('(') {
        Some(number) => (number, true),
        None => (plain_number(after)?, false),
    };
    let end = number
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(number.len());
    let (number, after) = number.split_at(end);
    // `cart.php(30): ` and `cart.ts(30,5): ` are places, `pool.take(2)` is a call.
    let closed = || {
        let column = |c: char| c == ',' || c.is_ascii_digit();
        after.trim_start_matches(column).starts_with("):")
    };
    if in_brackets && !closed() {
        return None;
    }
    Some((number.parse().ok()?, after))
}

fn plain_number(after: &str) -> Option<&str> {
    let words = ["line ", "on line "];
    after
        .strip_prefix(":line ")
        .or_else(|| after.strip_prefix(':'))
        .or_else(|| {
            let after = after.trim_start_matches(['"', '\'', ',', ' ']);
            words.iter().find_map(|word| after.strip_prefix(word))
        })
}

fn has_extension(path: &str) -> bool {
    let parts = file_name(path).rsplit_once('.');
    parts.is_some_and(|(stem, extension)| !stem.is_empty() && !extension.is_empty())
}

/// Whether a frame is listed in call order (most recent call last): Python, pytest, old Ruby.
fn is_call_order(before: &str, path: &str, after: &str) -> bool {
    if before.trim_end_matches(['"', '\'']).ends_with("File ") && before.ends_with(['"', '\'']) {
        return true;
    }
    let after = after.split('\n').next().unwrap_or_default();
    match classify::extension(path).as_str() {
        // `a.py:3: in take` and, where it ends, `a.py:9: KeyError`.
        "py" => after.strip_prefix(": ").is_some_and(|after| {
            after.starts_with("in ")
                || after.starts_with(char::is_uppercase)
                    && after
                        .chars()
                        .all(|c| c.is_alphanumeric() || "._".contains(c))
        }),
        "rb" => before.contains("(most recent call last)"),
        _ => false,
    }
}

fn place(before: &str, path: &str, line: u32) -> TracePlace {
    let rooted = format!("/{path}");
    let path = path.trim_start_matches("./").trim_start_matches('/');
    if LIBRARY_DIRS.iter().any(|library| rooted.contains(library)) {
        return TracePlace {
            path: path.to_owned(),
            line,
            min_shared: usize::MAX,
        };
    }
    // `com.shop.Cart.add(Cart.java:44)`: the package says in which folder.
    let package = before.strip_suffix('(').map(|before| {
        let name = before.rsplit(|c: char| c.is_whitespace() || c == '/');
        let mut parts: Vec<&str> = name.take(1).flat_map(|name| name.split('.')).collect();
        parts.truncate(parts.len().saturating_sub(2));
        parts
    });
    let on_the_jvm = ["java", "kt", "scala", "groovy"];
    let package = package
        .filter(|package| !package.is_empty() && !path.contains('/'))
        .filter(|_| on_the_jvm.contains(&classify::extension(path).as_str()));
    match package {
        Some(package) => TracePlace {
            path: format!("{}/{path}", package.join("/")),
            line,
            // Other languages than Java often leave out the folders that all packages share.
            min_shared: if path.ends_with(".java") {
                package.len() + 1
            } else {
                2
            },
        },
        None => TracePlace {
            path: path.to_owned(),
            line,
            min_shared: 1,
        },
    }
}

/// The file names of the places.
pub(crate) fn file_names(places: &[TracePlace]) -> HashSet<String> {
    places
        .iter()
        .map(|place| file_name(&place.path).to_owned())
        .collect()
}

/// The places in the workspace, in order; `named` returns the paths of all files with a name.
pub(crate) fn locate(
    places: &[TracePlace],
    mut named: impl FnMut(&str) -> Result<Vec<String>>,
) -> Result<Vec<LocatedPlace>> {
    let mut known: HashMap<&str, Option<(String, bool)>> = HashMap::new();
    let mut found: Vec<(LocatedPlace, bool)> = Vec::new();
    for place in places {
        let meant = match known.get(place.path.as_str()) {
            Some(meant) => meant.clone(),
            None => {
                let meant = matching_file(place, named(file_name(&place.path))?);
                known.insert(&place.path, meant.clone());
                meant
            }
        };
        if let Some((path, sure)) = meant {
            let line = place.line;
            found.push((LocatedPlace { path, line }, sure));
        }
    }
    // A file that shares only its name may be a library's; it counts if there is nothing better.
    let any_sure = found.iter().any(|(_, sure)| *sure);
    let kept = found.into_iter().filter(|(_, sure)| *sure || !any_sure);
    Ok(kept.map(|(located, _)| located).collect())
}

/// The files of the workspace that these paths and names mean; `named` as for [`locate`].
pub(crate) fn files_meant(
    paths: &[String],
    mut named: impl FnMut(&str) -> Result<Vec<String>>,
) -> Result<HashSet<String>> {
    let mut meant = HashSet::new();
    for path in paths {
        let place = TracePlace {
            path: path.clone(),
            line: 0,
            min_shared: 1,
        };
        let file = matching_file(&place, named(file_name(path))?);
        meant.extend(file.map(|(file, _)| file));
    }
    Ok(meant)
}

/// The one file that a path from another machine means, and whether that is sure.
fn matching_file(place: &TracePlace, files: Vec<String>) -> Option<(String, bool)> {
    let parts = |path: &str| path.split('/').count();
    let shared = |file: &String| {
        let (a, b) = (place.path.rsplit('/'), file.rsplit('/'));
        a.zip(b).take_while(|(a, b)| a == b).count()
    };
    let max_shared = files.iter().map(shared).max()?;
    let mut nearest = files.into_iter().filter(|file| shared(file) == max_shared);
    let file = nearest.next()?;
    // Several share as much: ambiguous.
    if nearest.next().is_some() {
        return None;
    }
    let whole = max_shared == parts(&file);
    if max_shared < place.min_shared
        && !(whole && (max_shared >= 3 || place.min_shared < usize::MAX))
    {
        return None;
    }
    let sure = whole || max_shared >= 2 || max_shared == parts(&place.path);
    Some((file, sure))
}

/// Marks the units that a trace names, and adds those that are not candidates yet.
pub(crate) fn mark_candidates(
    located: &[LocatedPlace],
    candidates: &mut Vec<Candidate>,
    sources: &mut Sources<'_>,
) {
    let mut depth = 0;
    for LocatedPlace { path, line } in located {
        if depth >= MAX_TRACED_UNITS {
            break;
        }
        let Some(source) = sources.get(path) else {
            continue;
        };
        let units = source.parts().units.iter();
        let inside = units
            .filter(|unit| (unit.first..=unit.last).contains(line))
            .min_by_key(|unit| unit.last - unit.first);
        let Some(unit) = inside else { continue };
        let known = candidates.iter().position(|known| {
            known.source.path == *path
                && (known.unit.first, known.unit.last) == (unit.first, unit.last)
        });
        let place = known.unwrap_or_else(|| {
            let origin = classify::origin(path, &source.text);
            candidates.push(Candidate::new(source.clone(), unit.clone(), origin, 0.0));
            candidates.len() - 1
        });
        // A recursive function has the depth of its innermost call.
        if candidates[place].traced.is_none() {
            candidates[place].traced = Some(TracedLine { depth, line: *line });
            depth += 1;
        }
    }
}

#[cfg(test)]
mod tests;
