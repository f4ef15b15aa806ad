//! Collects the matching lines of all search threads within limits.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::sync::lock;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchedLine {
    /// The file, relative to the start of the search.
    pub path: Arc<[u8]>,
    /// The line, counted from 1.
    pub line: u64,
    /// The first line of the snippet, counted from 1.
    pub first_line: u64,
    /// The line with the context lines around it, joined by LF.
    ///
    /// What is not UTF-8 is replaced. Of a very long line only a part is shown, with the number of bytes left out.
    pub snippet: String,
    /// Whether part of the line is left out.
    pub clipped: bool,
}

impl MatchedLine {
    fn bytes(&self) -> usize {
        self.snippet.len() + self.path.len()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MatchLimits {
    pub(super) hits: usize,
    pub(super) bytes: usize,
}

/// Files whose matches are counted one by one.
const MAX_COUNTED_FILES: usize = 20_000;

/// The matching lines of all threads.
///
/// What is kept is a beginning of the list of all hits in order: the longest that fits the limits. When a line is dropped it is
/// the last one, and nothing after it is accepted again.
#[derive(Debug)]
pub(super) struct MatchCollector {
    limits: MatchLimits,
    state: Mutex<MatchState>,
    /// Counts the moves of the cutoff, so that threads notice without taking the lock.
    moves: AtomicU64,
}

#[derive(Debug, Default)]
struct MatchState {
    files: BTreeMap<Arc<[u8]>, Vec<MatchedLine>>,
    hits: usize,
    bytes: usize,
    cutoff: Option<Arc<[u8]>>,
    total_hits: u64,
    files_matched: u64,
    counts: BTreeMap<Arc<[u8]>, u64>,
}

#[derive(Debug, Default)]
pub(super) struct CollectedMatches {
    pub(super) hits: Vec<MatchedLine>,
    pub(super) total_hits: u64,
    pub(super) files_matched: u64,
    pub(super) counts: Vec<(Arc<[u8]>, u64)>,
}

impl MatchCollector {
    pub(super) fn new(limits: MatchLimits) -> Self {
        Self {
            limits,
            state: Mutex::default(),
            moves: AtomicU64::new(0),
        }
    }

    pub(super) fn limits(&self) -> MatchLimits {
        self.limits
    }

    /// Adds the matches of one file: `count` matching lines, of which the first are in `hits`.
    pub(super) fn add(&self, path: &[u8], count: u64, hits: Vec<MatchedLine>) {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        state.total_hits += count;
        state.files_matched += 1;
        if state.counts.len() < MAX_COUNTED_FILES {
            state.counts.insert(path.into(), count);
        }
        let Some(key) = hits.first().map(|hit| Arc::clone(&hit.path)) else {
            return;
        };
        if state.cutoff.as_ref().is_some_and(|cutoff| key >= *cutoff) {
            return;
        }
        state.hits += hits.len();
        state.bytes += hits.iter().map(MatchedLine::bytes).sum::<usize>();
        state.files.insert(key, hits);
        while state.hits > self.limits.hits || state.bytes > self.limits.bytes {
            let Some(mut last) = state.files.last_entry() else {
                break;
            };
            if let Some(hit) = last.get_mut().pop() {
                state.hits -= 1;
                state.bytes -= hit.bytes();
                if state.cutoff.as_ref() != Some(&hit.path) {
                    state.cutoff = Some(hit.path);
                    self.moves.fetch_add(1, Ordering::Relaxed);
                }
            }
            if last.get().is_empty() {
                last.remove();
            }
        }
    }

    /// The path from which on no hits are kept, if it has moved since `seen`.
    pub(super) fn cutoff_since(&self, seen: &mut u64) -> Option<Arc<[u8]>> {
        let moves = self.moves.load(Ordering::Relaxed);
        if moves == *seen {
            return None;
        }
        *seen = moves;
        lock(&self.state).cutoff.clone()
    }

    pub(super) fn take(&self) -> CollectedMatches {
        let state = std::mem::take(&mut *lock(&self.state));
        CollectedMatches {
            hits: state.files.into_values().flatten().collect(),
            total_hits: state.total_hits,
            files_matched: state.files_matched,
            counts: state.counts.into_iter().collect(),
        }
    }
}
