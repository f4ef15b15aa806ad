//! Files found by their name, for `linux_search_files`.

use std::collections::BinaryHeap;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use regex::bytes::{Regex, RegexBuilder};

use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::sync::lock;
use crate::walk::{
    self, FileGlob, FileVisitor, SkippedCounts, VisitOutcome, WalkFile, WalkOptions, WatchedTree,
};

/// A pattern for file names, or for relative paths when it holds a `/`.
///
/// With `*`, `?`, `[` or `{` it is a glob over the whole name; otherwise a part of the name, in any case.
#[derive(Clone, Debug)]
pub struct NamePattern(NameMatcher);

#[derive(Clone, Debug)]
enum NameMatcher {
    Glob(FileGlob),
    Part { regex: Regex, whole_path: bool },
}

impl NamePattern {
    /// Reads a pattern.
    pub fn new(pattern: &str) -> Result<Self> {
        if pattern.contains(['*', '?', '[', '{']) {
            return FileGlob::new(pattern).map(|glob| Self(NameMatcher::Glob(glob)));
        }
        // Only a pattern of many thousand characters is too large for this.
        let regex = RegexBuilder::new(&regex::escape(pattern))
            .case_insensitive(true)
            .build()
            .map_err(|_| Error::BadPattern("too long".to_owned()))?;
        Ok(Self(NameMatcher::Part {
            regex,
            whole_path: pattern.contains('/'),
        }))
    }

    /// Whether the file at the relative path `path` is meant.
    pub fn matches(&self, path: &[u8]) -> bool {
        match &self.0 {
            NameMatcher::Glob(glob) => glob.matches(path),
            NameMatcher::Part {
                regex,
                whole_path: true,
            } => regex.is_match(path),
            NameMatcher::Part { regex, .. } => regex.is_match(walk::file_name(path)),
        }
    }
}

/// Files found by their name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameMatches {
    /// The smallest paths, in the order of their bytes, relative to the start of the search.
    pub paths: Vec<Vec<u8>>,
    /// How many files were found in all.
    pub total_hits: u64,
    /// Files whose names were looked at.
    pub files_searched: u64,
    /// What was left out.
    pub skipped: SkippedCounts,
    /// Whether the whole tree was searched; if not, the [`CancelToken`] that was given says why.
    pub complete: bool,
}

/// Finds the files below `start` whose names match, keeping at most `max_paths` of them.
pub fn search_files(
    start: impl AsFd,
    pattern: &NamePattern,
    options: &WalkOptions,
    max_paths: usize,
    cancel: &CancelToken,
) -> Result<NameMatches> {
    let shared = Arc::new(Mutex::new(SmallestPaths {
        max: max_paths,
        ..SmallestPaths::default()
    }));
    let walked = walk::walk(start, options, cancel, || NameVisitor {
        pattern: pattern.clone(),
        cutoff: None,
        fresh: Vec::new(),
        total: 0,
        shared: Arc::clone(&shared),
    })?;
    let mut found = lock(&shared);
    Ok(NameMatches {
        paths: std::mem::take(&mut found.paths).into_sorted_vec(),
        total_hits: found.total,
        files_searched: walked.files,
        skipped: walked.skipped,
        complete: walked.complete,
    })
}

/// The same over the files of a watched tree, without a walk. `None` if only a walk can answer.
pub fn search_files_watched(
    tree: &WatchedTree,
    pattern: &NamePattern,
    options: &WalkOptions,
    max_paths: usize,
    cancel: &CancelToken,
) -> Option<NameMatches> {
    let mut smallest = SmallestPaths {
        max: max_paths,
        ..SmallestPaths::default()
    };
    let walked = tree.each_path(options, cancel, |path| {
        if pattern.matches(path) {
            smallest.total += 1;
            smallest.add(path);
        }
    })?;
    Some(NameMatches {
        paths: smallest.paths.into_sorted_vec(),
        total_hits: smallest.total,
        files_searched: walked.files,
        skipped: walked.skipped,
        complete: walked.complete,
    })
}

/// The smallest paths of all threads.
#[derive(Debug, Default)]
struct SmallestPaths {
    max: usize,
    paths: BinaryHeap<Vec<u8>>,
    total: u64,
}

impl SmallestPaths {
    /// Keeps a path if it is among the smallest.
    fn add(&mut self, path: &[u8]) {
        let is_full = self.paths.len() >= self.max;
        if is_full
            && self
                .paths
                .peek()
                .is_none_or(|largest| path >= largest.as_slice())
        {
            return;
        }
        if is_full {
            self.paths.pop();
        }
        self.paths.push(path.to_vec());
    }
}

/// Paths that a thread gathers before it hands them over.
const MAX_UNFLUSHED_PATHS: usize = 1024;

struct NameVisitor {
    pattern: NamePattern,
    /// A path at or above which nothing is kept any more.
    cutoff: Option<Vec<u8>>,
    fresh: Vec<Vec<u8>>,
    total: u64,
    shared: Arc<Mutex<SmallestPaths>>,
}

impl FileVisitor for NameVisitor {
    fn visit(&mut self, file: &WalkFile<'_>) -> VisitOutcome {
        if self.pattern.matches(file.path()) {
            self.total += 1;
            if self
                .cutoff
                .as_deref()
                .is_none_or(|cutoff| file.path() < cutoff)
            {
                self.fresh.push(file.path().to_vec());
            }
            if self.fresh.len() >= MAX_UNFLUSHED_PATHS {
                self.flush();
            }
        }
        VisitOutcome::Done
    }

    fn flush(&mut self) {
        if self.total == 0 {
            return;
        }
        let mut shared = lock(&self.shared);
        shared.total += std::mem::take(&mut self.total);
        for path in self.fresh.drain(..) {
            shared.paths.push(path);
            if shared.paths.len() > shared.max {
                shared.paths.pop();
            }
        }
        if shared.paths.len() == shared.max {
            self.cutoff = Some(shared.paths.peek().cloned().unwrap_or_default());
        }
    }
}
