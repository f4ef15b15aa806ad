//! Completes errors about paths: the nearest paths that exist, and the call that fits what is there.
//!
//! A file crate knows what failed; only here are the tool, its caller and the workspace known as well.

use std::time::{Duration, Instant};

use llmc_host::search::{NamePattern, search_files};
use llmc_host::walk::{Hidden, ListDetail, ListOptions, list};
use llmc_host::{CancelToken, Roots};

use crate::catalog::{below, split_lines};
use crate::cx::Cx;
use crate::error::{Error, ErrorKind};
use crate::tool::{Effect, ToolDef};

/// How long the workspace is searched for a name.
const SEARCH_TIME: Duration = Duration::from_millis(150);
/// Entries of one directory that are compared.
const MAX_ENTRIES: usize = 2_000;
/// Files of a similar name that are compared.
const MAX_FOUND: usize = 200;
/// Paths that an error offers.
const MAX_OFFERED: usize = 3;
/// Names less alike than this are not offered.
const MIN_LIKENESS: f64 = 0.84;

/// Adds what to do next to an error about an argument or a path, where nothing more particular is known.
pub(crate) fn complete(cx: &Cx, tool: &ToolDef, error: Error) -> Error {
    // What a script did wrong is not about the arguments of its call.
    if error.hint.is_some() || error.transcript.is_some() {
        return error;
    }
    if error.kind == ErrorKind::BadArgs {
        return error.hint(tool.usage());
    }
    let Some(path) = &error.path else {
        return error;
    };
    let roots = if tool.name.starts_with("linux_") {
        &cx.linux().roots
    } else {
        &cx.files().roots
    };
    let hint = match error.kind {
        ErrorKind::NotFound => not_found(roots, path),
        ErrorKind::IsDirectory if tool.name == "linux_fs_delete" => {
            "recursive=true deletes a directory with everything in it".to_owned()
        }
        ErrorKind::IsDirectory if tool.effect == Effect::Writes => {
            "name a file in that directory".to_owned()
        }
        ErrorKind::IsDirectory => listing(path),
        ErrorKind::NotADirectory => match file_on_the_way(roots, path) {
            Some(file) => format!(
                "{file} is a file; read_file path={file} reads it || {file} is a file; te_cat path={file} shows it"
            ),
            None => listing(&existing_dir(roots, path).0),
        },
        ErrorKind::TooLarge if tool.effect == Effect::Reads => format!(
            "te_cat path={path} shows its beginning and end || run_cmd command=\"head -c 2000 {path}\" shows its beginning"
        ),
        _ => return error,
    };
    error.hint(hint)
}

fn not_found(roots: &Roots, path: &str) -> String {
    if let Some((file, _)) = split_lines(path)
        && roots.open_file(file).is_ok()
    {
        return format!("{file} is there; give the path without the line numbers");
    }
    match closest(roots, path)[..] {
        [] => {
            let dir = existing_dir(roots, path).0;
            listing(&dir)
        }
        [ref one] => format!("did you mean {one}?"),
        [ref others @ .., ref last] => format!("did you mean {} or {last}?", others.join(", ")),
    }
}

/// The call that shows what a directory holds: the first of these that the reader can make.
fn listing(dir: &str) -> String {
    format!("list_dir path={dir} shows what is there || te_ls path={dir} shows what is there")
}

/// The paths that exist and are most like a path that does not, the likeliest first.
///
/// The directory that does exist is compared first, then the names of files in the workspace, for a limited time.
fn closest(roots: &Roots, path: &str) -> Vec<String> {
    let (dir, missing) = existing_dir(roots, path);
    let Some(first) = missing.first() else {
        return Vec::new();
    };
    let mut found: Vec<(f64, String)> = Vec::new();
    for name in entries(roots, &dir, first.starts_with('.')) {
        let likeness = likeness(first, &name);
        if likeness < MIN_LIKENESS {
            continue;
        }
        let mut candidate = joined(&dir, &name);
        for part in &missing[1..] {
            candidate = joined(&candidate, part);
        }
        // A misspelt directory is offered with what was wanted in it, or not at all.
        if missing.len() == 1 || roots.stat(&candidate).is_ok() {
            found.push((1.0 + likeness, candidate));
        }
    }
    let name = missing.last().unwrap_or(first);
    for path in same_names(roots, name) {
        let file = path.rsplit('/').next().unwrap_or(&path);
        let likeness = likeness(name, file);
        if likeness >= MIN_LIKENESS && !found.iter().any(|(_, known)| *known == path) {
            // The shortest way to it is the likeliest.
            let depth = path.matches('/').count().min(20) as f64;
            found.push((likeness - depth / 1000.0, path));
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    found.truncate(MAX_OFFERED);
    found.into_iter().map(|(_, path)| path).collect()
}

/// The deepest directory on the way that exists, and the parts after it.
fn existing_dir(roots: &Roots, path: &str) -> (String, Vec<String>) {
    let mut dir = path.trim_end_matches('/');
    let mut missing = Vec::new();
    loop {
        let (parent, name) = match dir.rsplit_once('/') {
            Some(("", name)) => ("/", name),
            Some((parent, name)) => (parent, name),
            None => (".", dir),
        };
        if !matches!(name, "" | ".") {
            missing.insert(0, name.to_owned());
        }
        if parent == "." || parent == "/" || roots.open_dir(parent).is_ok() {
            return (parent.to_owned(), missing);
        }
        dir = parent;
    }
}

/// The regular file that a path leads through or to.
fn file_on_the_way(roots: &Roots, path: &str) -> Option<String> {
    let mut part = path.trim_end_matches('/');
    loop {
        if roots.open_file(part).is_ok() {
            return Some(part.to_owned());
        }
        part = part.rsplit_once('/')?.0;
    }
}

fn entries(roots: &Roots, dir: &str, hidden: bool) -> Vec<String> {
    let Ok(open) = roots.open_dir(dir) else {
        return Vec::new();
    };
    let options = ListOptions {
        depth: 0,
        hidden: if hidden {
            Hidden::Include
        } else {
            Hidden::Skip
        },
        file_glob: None,
        max_entries: MAX_ENTRIES,
        guard: Some(open.guard(roots)),
        detail: ListDetail::Name,
    };
    let cancel = CancelToken::with_deadline(Instant::now() + SEARCH_TIME);
    let Ok(listing) = list(&open.fd, &options, &cancel) else {
        return Vec::new();
    };
    let names = listing.entries.into_iter().map(|entry| entry.path);
    names
        .filter_map(|name| String::from_utf8(name).ok())
        .collect()
}

/// Files of the workspace whose names hold this one without its extension.
fn same_names(roots: &Roots, name: &str) -> Vec<String> {
    let stem = match name.rsplit_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem,
        _ => name,
    };
    let look = || {
        let pattern = NamePattern::new(stem).ok()?;
        let dir = roots.open_dir(".").ok()?;
        let options = dir.walk_options(roots).ok()?;
        let cancel = CancelToken::with_deadline(Instant::now() + SEARCH_TIME);
        let found = search_files(&dir.fd, &pattern, &options, MAX_FOUND, &cancel).ok()?;
        let paths = found.paths.iter().map(|path| below(roots, &dir.path, path));
        Some(paths.collect())
    };
    // A short name is part of too many others.
    if stem.len() < 2 {
        return Vec::new();
    }
    look().unwrap_or_default()
}

fn joined(dir: &str, name: &str) -> String {
    match dir {
        "." => name.to_owned(),
        dir => format!("{}/{name}", dir.trim_end_matches('/')),
    }
}

/// How alike two names are, from 0 to 1; the case of letters does not count, and the extension little.
fn likeness(asked: &str, name: &str) -> f64 {
    let (asked, name) = (asked.to_lowercase(), name.to_lowercase());
    if asked == name {
        return 1.0;
    }
    let stem = |name: &str| match name.rsplit_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem.to_owned(),
        _ => name.to_owned(),
    };
    if stem(&asked) == stem(&name) {
        return 0.95;
    }
    let clipped = |text: &str| text.chars().take(100).collect::<String>();
    strsim::jaro_winkler(&clipped(&asked), &clipped(&name)) * 0.94
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_by_what_people_mistype() {
        for (asked, name) in [
            ("app.py", "App.py"),
            ("app.js", "app.ts"),
            ("aplication.py", "application.py"),
            ("user_model.py", "user_models.py"),
        ] {
            assert!(likeness(asked, name) >= MIN_LIKENESS, "{asked} {name}");
        }
        for (asked, name) in [
            ("app.py", "setup.cfg"),
            ("main.rs", "lib.rs"),
            ("x", "readme"),
        ] {
            assert!(likeness(asked, name) < MIN_LIKENESS, "{asked} {name}");
        }
    }
}
