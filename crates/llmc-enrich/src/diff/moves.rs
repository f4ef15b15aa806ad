//! Blocks of lines that left one place and came back, unchanged, in another.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::parse::{Diff, Sign};

/// Lines a block has at least, and at least so many of them say something.
const MIN_MOVED_LINES: usize = 3;

/// All moved blocks of a diff, by where they start.
#[derive(Default)]
pub(super) struct Moves {
    at: HashMap<(usize, usize, usize), Moved>,
}

/// One end of a moved block.
pub(super) struct Moved {
    pub(super) role: MoveRole,
    /// How many lines it has.
    pub(super) lines: usize,
    /// `path:10-20`, where it was.
    pub(super) from: String,
    /// Where it is.
    pub(super) to: String,
}

/// Which end it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MoveRole {
    /// Where the lines were removed.
    From,
    /// Where they were added.
    To,
}

/// A changed line and where it stands.
struct LinePosition<'a> {
    file: usize,
    hunk: usize,
    line: usize,
    number: u64,
    text: &'a str,
    hash: u64,
    used: bool,
}

impl LinePosition<'_> {
    fn follows(&self, before: &Self) -> bool {
        (self.file, self.hunk, self.line) == (before.file, before.hunk, before.line + 1)
    }

    fn says_something(&self) -> bool {
        self.text
            .chars()
            .filter(|c| c.is_alphanumeric())
            .take(MIN_MOVED_LINES)
            .count()
            == MIN_MOVED_LINES
    }
}

impl Moves {
    pub(super) fn find(diff: &Diff<'_>) -> Self {
        let (mut removed, added) = changed_lines(diff);
        // Places by the three lines that start there, the first place last, so that it is popped first.
        let mut starts: HashMap<[u64; MIN_MOVED_LINES], Vec<usize>> = HashMap::new();
        for at in (0..removed.len().saturating_sub(MIN_MOVED_LINES - 1)).rev() {
            if let Some(key) = key(&removed, at) {
                starts.entry(key).or_default().push(at);
            }
        }
        let mut moves = Self::default();
        let mut at = 0;
        while at < added.len() {
            let candidates = key(&added, at).and_then(|key| starts.get_mut(&key));
            let from = candidates.and_then(|places| {
                while let Some(place) = places.pop() {
                    if !removed[place].used {
                        return Some(place);
                    }
                }
                None
            });
            let lines = from.map_or(0, |from| common(&removed[from..], &added[at..]));
            let telling = added[at..at + lines]
                .iter()
                .filter(|place| place.says_something())
                .count();
            match from {
                Some(from) if lines >= MIN_MOVED_LINES && telling >= MIN_MOVED_LINES => {
                    for place in &mut removed[from..from + lines] {
                        place.used = true;
                    }
                    moves.record(diff, &removed[from], &added[at], lines);
                    at += lines;
                }
                _ => at += 1,
            }
        }
        moves
    }

    /// The moved block that starts at this line of a hunk.
    pub(super) fn starting_at(&self, file: usize, hunk: usize, line: usize) -> Option<&Moved> {
        self.at.get(&(file, hunk, line))
    }

    fn record(
        &mut self,
        diff: &Diff<'_>,
        from: &LinePosition<'_>,
        to: &LinePosition<'_>,
        lines: usize,
    ) {
        let span = |path: &str, first: u64| format!("{path}:{first}-{}", first + lines as u64 - 1);
        let old = span(diff.files[from.file].old_path(), from.number);
        let new = span(diff.files[to.file].path(), to.number);
        for (place, role) in [(from, MoveRole::From), (to, MoveRole::To)] {
            self.at.insert(
                (place.file, place.hunk, place.line),
                Moved {
                    role,
                    lines,
                    from: old.clone(),
                    to: new.clone(),
                },
            );
        }
    }
}

fn changed_lines<'a>(diff: &Diff<'a>) -> (Vec<LinePosition<'a>>, Vec<LinePosition<'a>>) {
    let (mut removed, mut added) = (Vec::new(), Vec::new());
    for (f, file) in diff.files.iter().enumerate() {
        for (h, hunk) in file
            .hunks
            .iter()
            .enumerate()
            .filter(|(_, hunk)| !hunk.combined)
        {
            let (mut old, mut new) = (hunk.old_start, hunk.new_start);
            for (l, line) in hunk.lines.iter().enumerate() {
                let place = |number| {
                    let mut hasher = DefaultHasher::new();
                    line.text.hash(&mut hasher);
                    LinePosition {
                        file: f,
                        hunk: h,
                        line: l,
                        number,
                        text: line.text,
                        hash: hasher.finish(),
                        used: false,
                    }
                };
                match line.sign {
                    Sign::Removed => removed.push(place(old)),
                    Sign::Added => added.push(place(new)),
                    Sign::Context => {}
                }
                old += u64::from(line.sign != Sign::Added);
                new += u64::from(line.sign != Sign::Removed);
            }
        }
    }
    (removed, added)
}

fn key(places: &[LinePosition<'_>], at: usize) -> Option<[u64; MIN_MOVED_LINES]> {
    let window = places.get(at..at + MIN_MOVED_LINES)?;
    let together = window.windows(2).all(|pair| pair[1].follows(&pair[0]));
    together.then(|| std::array::from_fn(|i| window[i].hash))
}

/// How many lines from here on are the same and stand together in both places.
fn common(removed: &[LinePosition<'_>], added: &[LinePosition<'_>]) -> usize {
    let pairs = removed.iter().zip(added).enumerate();
    pairs
        .take_while(|(i, (old, new))| {
            let together = *i == 0 || (old.follows(&removed[i - 1]) && new.follows(&added[i - 1]));
            together && !old.used && old.text == new.text
        })
        .count()
}
