//! A list of growing numbers in few bits: the gaps between them as Rice codes.
//!
//! A gap is written as its quotient by a power of two, in unary, and its remainder. With the power chosen by the mean gap this
//! is close to the least possible for numbers that are spread at random, which the hashes of paths are. The power follows
//! from the number of entries and the bound, so it is not stored.

/// Writes a list of growing numbers below `bound`.
pub(crate) fn encode(numbers: &[u32], bound: u32, out: &mut Vec<u8>) {
    let low_bits = low_bits(numbers.len(), bound);
    let mut writer = BitWriter::default();
    let mut next = 0;
    for number in numbers {
        let gap = number - next;
        next = number + 1;
        writer.put_zeros(gap >> low_bits, out);
        // The one that ends the zeros, and the remainder above it.
        let rest = u64::from(gap) & ((1 << low_bits) - 1);
        writer.put(rest << 1 | 1, low_bits + 1, out);
    }
    writer.end(out);
}

/// Reads a list; `None` if it is not one of `count` numbers below `bound`.
pub(crate) fn decode(
    bytes: &[u8],
    count: u32,
    bound: u32,
    mut take: impl FnMut(u32),
) -> Option<()> {
    if count > bound {
        return None;
    }
    let low_bits = low_bits(count as usize, bound);
    let mut reader = BitReader::new(bytes);
    let mut next = 0_u32;
    for _ in 0..count {
        let quotient = reader.zeros()?;
        let rest = reader.take(low_bits)?;
        let gap = quotient
            .checked_shl(low_bits)
            .filter(|high| high >> low_bits == quotient)?
            | rest;
        let number = next.checked_add(gap)?;
        if number >= bound {
            return None;
        }
        take(number);
        next = number + 1;
    }
    Some(())
}

/// The bits of a remainder: about the logarithm of two thirds of the mean gap.
fn low_bits(count: usize, bound: u32) -> u32 {
    let mean = u64::from(bound) / (count as u64).max(1);
    (mean * 69 / 100).max(1).ilog2()
}

#[derive(Default)]
struct BitWriter {
    pending: u64,
    used: u32,
}

impl BitWriter {
    /// Appends the lowest `count` bits, at most 32, lowest first.
    fn put(&mut self, bits: u64, count: u32, out: &mut Vec<u8>) {
        self.pending |= bits << self.used;
        self.used += count;
        while self.used >= 8 {
            out.push((self.pending & 0xff) as u8);
            self.pending >>= 8;
            self.used -= 8;
        }
    }

    fn put_zeros(&mut self, mut count: u32, out: &mut Vec<u8>) {
        while count > 0 {
            let some = count.min(32);
            self.put(0, some, out);
            count -= some;
        }
    }

    fn end(self, out: &mut Vec<u8>) {
        if self.used > 0 {
            out.push((self.pending & 0xff) as u8);
        }
    }
}

struct BitReader<'a> {
    bytes: &'a [u8],
    pending: u64,
    held: u32,
}

impl<'a> BitReader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            pending: 0,
            held: 0,
        }
    }

    fn fill(&mut self) {
        while self.held <= 56
            && let Some((first, rest)) = self.bytes.split_first()
        {
            self.pending |= u64::from(*first) << self.held;
            self.held += 8;
            self.bytes = rest;
        }
    }

    /// Takes zeros and the one behind them; the number of zeros.
    fn zeros(&mut self) -> Option<u32> {
        let mut total = 0_u32;
        loop {
            self.fill();
            let zeros = self.pending.trailing_zeros();
            if zeros < self.held {
                // In two steps, since a shift by all 64 bits is none.
                self.pending = self.pending >> zeros >> 1;
                self.held -= zeros + 1;
                return total.checked_add(zeros);
            }
            total = total.checked_add(self.held)?;
            if self.bytes.is_empty() {
                return None;
            }
            (self.pending, self.held) = (0, 0);
        }
    }

    fn take(&mut self, count: u32) -> Option<u32> {
        if self.held < count {
            self.fill();
        }
        if self.held < count {
            return None;
        }
        let bits = self.pending & ((1 << count) - 1);
        self.pending >>= count;
        self.held -= count;
        u32::try_from(bits).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(bound in 1_u32..5000, seed in proptest::collection::btree_set(0_u32..5000, 0..400)) {
            let numbers: Vec<u32> = seed.into_iter().filter(|number| *number < bound).collect();
            let mut bytes = Vec::new();
            encode(&numbers, bound, &mut bytes);
            let mut read = Vec::new();
            let count = numbers.len() as u32;
            prop_assert!(decode(&bytes, count, bound, |number| read.push(number)).is_some());
            prop_assert_eq!(read, numbers);
        }

        #[test]
        fn any_bytes_end_in_bounds(bytes in proptest::collection::vec(any::<u8>(), 0..64), count in 0_u32..300, bound in 0_u32..300) {
            let mut last = None;
            let _ = decode(&bytes, count, bound, |number| {
                assert!(number < bound && last.is_none_or(|last| number > last));
                last = Some(number);
            });
        }
    }

    #[test]
    fn extremes() {
        for (numbers, bound) in [
            (vec![], 10),
            (vec![u32::MAX - 1], u32::MAX),
            ((0..1000).collect(), 1000),
            (vec![0, u32::MAX - 1], u32::MAX),
        ] {
            let mut bytes = Vec::new();
            encode(&numbers, bound, &mut bytes);
            let mut read = Vec::new();
            decode(&bytes, numbers.len() as u32, bound, |number| {
                read.push(number)
            })
            .unwrap();
            assert_eq!(read, numbers);
        }
    }
}
