//! Walking, listing and searching real trees.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod changes;
mod content;
mod hazards;
mod indexed;
mod listing;
mod names;
mod rules;

use std::fs::{self, File};
use std::path::Path;

use llmc_host::CancelToken;
use llmc_host::search::{
    Case, ContentMatches, ContentOptions, ContentPattern, NameMatches, NamePattern, PatternSyntax,
    search_content, search_files,
};
use llmc_host::walk::WalkOptions;
use tempfile::TempDir;

/// Makes a tree from a text in which `//- path` heads each file; a path that ends in `/` is an empty directory.
fn tree(fixture: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    add(dir.path(), fixture);
    dir
}

fn add(root: &Path, fixture: &str) {
    for part in fixture.split("//- ").skip(1) {
        let (path, text) = part.split_once('\n').unwrap_or((part, ""));
        let path = path.trim_end();
        let full = root.join(path);
        if path.ends_with('/') {
            fs::create_dir_all(full).unwrap();
            continue;
        }
        fs::create_dir_all(full.parent().unwrap()).unwrap();
        fs::write(full, text).unwrap();
    }
}

fn open(path: impl AsRef<Path>) -> File {
    File::open(path).unwrap()
}

fn regex(pattern: &str) -> ContentPattern {
    ContentPattern::new(pattern, PatternSyntax::Regex, Case::Sensitive).unwrap()
}

fn grep_with(
    root: impl AsRef<Path>,
    pattern: &str,
    walk: &WalkOptions,
    options: &ContentOptions,
) -> ContentMatches {
    search_content(
        open(root),
        &regex(pattern),
        walk,
        options,
        &CancelToken::default(),
    )
    .unwrap()
}

fn grep(root: impl AsRef<Path>, pattern: &str) -> ContentMatches {
    grep_with(
        root,
        pattern,
        &WalkOptions::default(),
        &ContentOptions::default(),
    )
}

fn find_with(root: impl AsRef<Path>, pattern: &str, walk: &WalkOptions) -> NameMatches {
    let pattern = NamePattern::new(pattern).unwrap();
    search_files(open(root), &pattern, walk, 1000, &CancelToken::default()).unwrap()
}

/// The paths that a search for names finds, as text.
fn paths(found: &NameMatches) -> Vec<&str> {
    found
        .paths
        .iter()
        .map(|path| str::from_utf8(path).unwrap())
        .collect()
}

/// MatchCollector as `path:line:snippet`.
fn lines(found: &ContentMatches) -> Vec<String> {
    found
        .hits
        .iter()
        .map(|hit| {
            let path = String::from_utf8_lossy(&hit.path);
            format!("{path}:{}:{}", hit.line, hit.snippet)
        })
        .collect()
}
