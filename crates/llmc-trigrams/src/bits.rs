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

    /// The numbers in it, growing.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        let words = (0_u32..).step_by(64).zip(&self.words);
        words.flat_map(|(first, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let number = first
                    .checked_add(rest.trailing_zeros())
                    .filter(|_| rest != 0)?;
                rest &= rest - 1;
                Some(number)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_set_are_those_put_in() {
        for length in [0, 1, 63, 64, 65, 200] {
            let all: Vec<u32> = DocSet::all(length).iter().collect();
            assert_eq!(all, (0..length).collect::<Vec<u32>>());
            let mut some = DocSet::none(length);
            (0..length)
                .step_by(3)
                .for_each(|number| some.insert(number));
            let found: Vec<u32> = some.iter().collect();
            assert_eq!(found, (0..length).step_by(3).collect::<Vec<u32>>());
        }
    }
}
