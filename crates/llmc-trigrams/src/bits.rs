//! A set of numbers below a bound, as bits.

/// Files of one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DocSet {
    words: Vec<u64>,
    length: u32,
}

impl DocSet {
    pub(crate) fn none(length: u32) -> DocSet {
        DocSet {
            words: vec![0; length.div_ceil(64) as usize],
            length,
        }
    }

    pub(crate) fn all(length: u32) -> DocSet {
        let mut set = DocSet {
            words: vec![u64::MAX; length.div_ceil(64) as usize],
            length,
        };
        if let Some(last) = set.words.last_mut()
            && !length.is_multiple_of(64)
        {
            *last = (1 << (length % 64)) - 1;
        }
        set
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        let word = self.words.get((number / 64) as usize);
        word.is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    pub(crate) fn insert(&mut self, number: u32) {
        if number < self.length {
            self.words[(number / 64) as usize] |= 1 << (number % 64);
        }
    }

    pub(crate) fn intersect(&mut self, other: &DocSet) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= other;
        }
    }

    pub(crate) fn unite(&mut self, other: &DocSet) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }
}
