//! The hits of a search, no more of them than there is room for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A line that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
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
}

impl Hit {
    /// What it counts for against the limit of bytes.
    fn bytes(&self) -> usize {
        self.snippet.len() + self.path.len()
    }
}

/// The file with the most matching lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Densest {
    /// The file, relative to the start of the search.
    pub path: Vec<u8>,
    /// Its matching lines.
    pub hits: u64,
}

/// How many hits are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) hits: usize,
    pub(super) bytes: usize,
}

/// The hits of all threads.
///
/// What is kept is a beginning of the list of all hits in order: the longest that has room. When a hit has to go it is
/// the last one, and nothing behind it is taken in again.
#[derive(Debug)]
pub(super) struct Hits {
    room: Room,
    state: Mutex<State>,
    /// Counts the moves of the cutoff, so that threads notice without taking the lock.
    moves: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<Arc<[u8]>, Vec<Hit>>,
    hits: usize,
    bytes: usize,
    cutoff: Option<Arc<[u8]>>,
    total_hits: u64,
    files_matched: u64,
    densest: Option<Densest>,
}

/// What a search has found.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) hits: Vec<Hit>,
    pub(super) total_hits: u64,
    pub(super) files_matched: u64,
    pub(super) densest: Option<Densest>,
}

impl Hits {
    pub(super) fn new(room: Room) -> Self {
        Self {
            room,
            state: Mutex::default(),
            moves: AtomicU64::new(0),
        }
    }

    pub(super) fn room(&self) -> Room {
        self.room
    }

    /// Takes in the hits of one file: `count` matching lines, of which the first are in `hits`.
    pub(super) fn add(&self, path: &[u8], count: u64, hits: Vec<Hit>) {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.total_hits += count;
        state.files_matched += 1;
        let denser = state.densest.as_ref().is_none_or(|best| {
            count > best.hits || (count == best.hits && path < best.path.as_slice())
        });
        if denser {
            state.densest = Some(Densest {
                path: path.to_vec(),
                hits: count,
            });
        }
        let Some(key) = hits.first().map(|hit| Arc::clone(&hit.path)) else {
            return;
        };
        if state.cutoff.as_ref().is_some_and(|cutoff| key >= *cutoff) {
            return;
        }
        state.hits += hits.len();
        state.bytes += hits.iter().map(Hit::bytes).sum::<usize>();
        state.files.insert(key, hits);
        while state.hits > self.room.hits || state.bytes > self.room.bytes {
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
        self.lock().cutoff.clone()
    }

    /// Takes everything out.
    pub(super) fn take(&self) -> Collected {
        let state = std::mem::take(&mut *self.lock());
        Collected {
            hits: state.files.into_values().flatten().collect(),
            total_hits: state.total_hits,
            files_matched: state.files_matched,
            densest: state.densest,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
