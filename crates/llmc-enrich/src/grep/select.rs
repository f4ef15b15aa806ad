//! Who gets the room there is.

use std::collections::HashMap;

/// The hits of one file in one rank.
#[derive(Debug)]
pub(super) struct HitGroup<'p> {
    pub(super) path: &'p str,
    /// In the order in which they are taken.
    pub(super) hits: Vec<usize>,
    /// Hits of the file in all ranks.
    pub(super) in_file: usize,
}

/// Lines a file gets before the next file has its turn.
const LINES_PER_TURN: usize = 3;
/// Lines in a row without room for them, after which a rank is taken to be full.
const MAX_MISSES: usize = 6;
/// Tokens of `… 14 more in` besides the path.
const NOTE_TOKENS: usize = 6;

/// How far each rank may fill the room, in percent, in turn: definitions cannot take it all, the ranks below get a look
/// in, and what is left over then goes to the best.
const RANK_SHARES: [(usize, usize); 8] = [
    (0, 60),
    (1, 88),
    (2, 97),
    (3, 100),
    (0, 100),
    (1, 100),
    (2, 100),
    (3, 100),
];

/// The hits to show, the most important first.
///
/// All of them if they fit, otherwise what fits beside `remarks` tokens for the account of the rest.
pub(super) fn select(
    sections: &[Vec<HitGroup<'_>>; 4],
    room: usize,
    remarks: usize,
    all_at_hand: bool,
    mut cost: impl FnMut(usize) -> usize,
) -> Vec<usize> {
    if all_at_hand {
        let mut all = Vec::new();
        let mut spent = remarks / 3;
        for hit in sections.iter().flatten().flat_map(|group| &group.hits) {
            spent += cost(*hit);
            if spent > room {
                break;
            }
            all.push(*hit);
        }
        if spent <= room {
            return all;
        }
    }
    let room = room.saturating_sub(remarks);
    let mut taken = Vec::new();
    let mut spent = 0;
    let mut in_file: HashMap<&str, usize> = HashMap::new();
    let mut progress: [Vec<usize>; 4] = std::array::from_fn(|rank| vec![0; sections[rank].len()]);
    for (rank, percent) in RANK_SHARES {
        let limit = room * percent / 100;
        let groups = &sections[rank];
        let mut misses = 0;
        let mut open: Vec<usize> = (0..groups.len()).collect();
        while !open.is_empty() && misses < MAX_MISSES && spent < limit {
            open.retain(|&at| {
                let group = &groups[at];
                let done = &mut progress[rank][at];
                for _ in 0..LINES_PER_TURN {
                    let Some(&hit) = group.hits.get(*done) else {
                        return false;
                    };
                    if misses >= MAX_MISSES {
                        return false;
                    }
                    // A file with lines left out takes a note, and none once all of them are there.
                    let note = NOTE_TOKENS + group.path.len() / 4;
                    let others = in_file.get(group.path).copied().unwrap_or(0);
                    let mut tokens = cost(hit);
                    let mut back = 0;
                    if others == 0 && group.in_file > 1 {
                        tokens += note;
                    } else if others > 0 && others + 1 == group.in_file {
                        back = note;
                    }
                    if spent + tokens > limit + back {
                        misses += 1;
                        return false;
                    }
                    misses = 0;
                    spent = spent + tokens - back;
                    *in_file.entry(group.path).or_default() += 1;
                    taken.push(hit);
                    *done += 1;
                }
                true
            });
        }
    }
    taken
}
