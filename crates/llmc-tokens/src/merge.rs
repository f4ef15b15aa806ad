//! Byte pair merging within one piece, for the number of tokens only.
//!
//! The rule: of all adjacent pairs that form a token, merge the one with the lowest rank, the leftmost first, until
//! none is left. It is implemented twice, because pieces are nearly always short, and the few that are not (a file of
//! one repeated character, a minified blob) must take neither quadratic time nor memory in proportion.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::layout::MAX_TOKEN_BYTES;
use crate::table;

/// Pieces up to this many bytes are merged by scanning all pairs for the lowest rank.
const MAX_SCAN_BYTES: usize = 64;

/// Longer pieces are merged in windows of this many bytes, which bounds the memory it takes to a few hundred KiB.
const WINDOW_BYTES: usize = 32 * 1024;

/// How far neighbouring windows overlap at least: many tokens, so that they agree where they meet.
const WINDOW_OVERLAP_BYTES: usize = 8 * MAX_TOKEN_BYTES;

/// The number of tokens in a piece.
pub(crate) fn tokens_in(piece: &str) -> usize {
    let piece = piece.as_bytes();
    if piece.len() <= 1 || table::rank(piece).is_some() {
        piece.len().min(1)
    } else if piece.len() <= MAX_SCAN_BYTES {
        merge_by_scan(piece)
    } else {
        merge_in_windows(piece, WINDOW_BYTES, WINDOW_OVERLAP_BYTES)
    }
}

/// Quadratic, on the stack, and the fastest for a few dozen bytes.
fn merge_by_scan(piece: &[u8]) -> usize {
    const NO_MERGE: u32 = u32::MAX;
    let rank = |from: usize, to: usize| table::rank(&piece[from..to]).unwrap_or(NO_MERGE);

    // Token `i` starts at `starts[i]`; `ranks[i]` is that of the pair it forms with the next one.
    let mut starts: [usize; MAX_SCAN_BYTES + 1] = std::array::from_fn(|i| i);
    let mut ranks = [NO_MERGE; MAX_SCAN_BYTES];
    let mut tokens = piece.len();
    for (i, held) in ranks[..tokens - 1].iter_mut().enumerate() {
        *held = rank(i, i + 2);
    }
    loop {
        let mut lowest = NO_MERGE;
        let mut left = 0;
        for (i, &rank) in ranks[..tokens - 1].iter().enumerate() {
            if rank < lowest {
                (lowest, left) = (rank, i);
            }
        }
        if lowest == NO_MERGE {
            return tokens;
        }
        starts.copy_within(left + 2..=tokens, left + 1);
        ranks.copy_within(left + 2..tokens, left + 1);
        tokens -= 1;
        if left + 1 < tokens {
            ranks[left] = rank(starts[left], starts[left + 2]);
        } else {
            ranks[left] = NO_MERGE;
        }
        if left > 0 {
            ranks[left - 1] = rank(starts[left - 1], starts[left + 1]);
        }
    }
}

/// Merges a piece of any length, window by window, with the result of merging it as a whole.
///
/// Tokens are the merge of a piece exactly if every two neighbours, merged on their own, stay as they are: stretches
/// that do not merge with each other go through the same merges together as apart. So where two overlapping windows
/// agree on one token, the tokens of the left window before it and those of the right window from it on are the tokens
/// of both. Should they ever disagree, the whole piece is merged at once.
fn merge_in_windows(piece: &[u8], window: usize, overlap: usize) -> usize {
    let merge_from = |start: usize| merge_by_heap(&piece[start..piece.len().min(start + window)]);
    let mut tokens = 0;
    let mut start = 0;
    let mut heads = merge_from(start);
    while start + heads.len() < piece.len() {
        let overlapping = heads.len() - overlap;
        let seam = heads[overlapping..].iter().position(|&head| head != 0);
        let Some(seam) = seam.map(|seam| overlapping + seam) else {
            return heads_in(&merge_by_heap(piece));
        };
        let next = merge_from(start + seam);
        if next[0] != heads[seam] {
            return heads_in(&merge_by_heap(piece));
        }
        tokens += heads_in(&heads[..seam]);
        start += seam;
        heads = next;
    }
    tokens + heads_in(&heads)
}

/// The number of tokens that start within these heads.
fn heads_in(heads: &[u8]) -> usize {
    heads.iter().filter(|&&head| head != 0).count()
}

/// Merges in O(n log n); returns the length of each token at its first byte, and zero at its other bytes.
fn merge_by_heap(piece: &[u8]) -> Vec<u8> {
    // Tails hold the same lengths at the last byte of each token, for the neighbour on the right to find its start.
    let mut heads = vec![1u8; piece.len()];
    let mut tails = vec![1u8; piece.len()];
    let mut merges: BinaryHeap<_> = (0..piece.len() - 1)
        .filter_map(|start| Merge::of(piece, start, start + 2))
        .map(Reverse)
        .collect();

    while let Some(Reverse(merge)) = merges.pop() {
        let (start, end) = merge.span();
        let middle = start + usize::from(heads[start]);
        // Tokens only grow: a merge whose two halves no longer span its bytes has been overtaken by another.
        if middle == start || middle >= end || middle + usize::from(heads[middle]) != end {
            continue;
        }
        let length = u8::try_from(end - start).expect("a token is at most LONGEST_TOKEN bytes");
        heads[start] = length;
        heads[middle] = 0;
        tails[end - 1] = length;
        if end < piece.len() {
            let next_end = end + usize::from(heads[end]);
            merges.extend(Merge::of(piece, start, next_end).map(Reverse));
        }
        if start > 0 {
            let previous = start - usize::from(tails[start - 1]);
            merges.extend(Merge::of(piece, previous, end).map(Reverse));
        }
    }
    heads
}

/// A possible merge, packed so that the order of the numbers is the order of merging: rank, start, length.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Merge(u64);

impl Merge {
    const LENGTH_BITS: u32 = 8;
    const START_BITS: u32 = 38;

    fn of(piece: &[u8], start: usize, end: usize) -> Option<Self> {
        const { assert!(MAX_TOKEN_BYTES < 1 << Merge::LENGTH_BITS) };
        let rank = table::rank(&piece[start..end])?;
        let rank_and_start = u64::from(rank) << Self::START_BITS | start as u64;
        Some(Self(
            rank_and_start << Self::LENGTH_BITS | (end - start) as u64,
        ))
    }

    fn span(&self) -> (usize, usize) {
        let length = self.0 & ((1 << Self::LENGTH_BITS) - 1);
        let start = self.0 >> Self::LENGTH_BITS & ((1 << Self::START_BITS) - 1);
        (start as usize, (start + length) as usize)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn both_ways_of_merging_agree(piece in "[a-c ]{2,64}|[a-zA-Z_=/]{2,64}|\\PC{2,16}") {
            let piece = piece.as_bytes();
            prop_assert_eq!(merge_by_scan(piece), heads_in(&merge_by_heap(piece)));
        }

        #[test]
        fn windows_make_no_difference(
            piece in "[ab]{1,900}|[a-z]{1,900}|[A-Za-z=/ ]{1,900}|(\\PC{1,9}){1,40}|.{300}",
            overlap in 4usize..40,
        ) {
            let piece = piece.as_bytes();
            let whole = heads_in(&merge_by_heap(piece));
            prop_assert_eq!(merge_in_windows(piece, overlap * 2 + 1, overlap), whole);
        }
    }
}
