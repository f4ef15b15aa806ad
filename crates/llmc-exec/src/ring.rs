//! The last output of a process, every byte under the number it had in the whole stream.

use std::collections::VecDeque;

/// Output that is kept up to a bound; older bytes make room for newer ones.
#[derive(Debug)]
pub(super) struct Ring {
    bytes: VecDeque<u8>,
    /// How many bytes came before the first one kept.
    start: u64,
    capacity: usize,
}

impl Ring {
    pub(super) fn new(capacity: usize) -> Ring {
        Ring {
            bytes: VecDeque::new(),
            start: 0,
            capacity,
        }
    }

    /// Adds what came; true if something older had to go.
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        let skipped = bytes.len().saturating_sub(self.capacity);
        let room = self.capacity - (bytes.len() - skipped);
        let dropped = self.bytes.len().saturating_sub(room);
        self.bytes.drain(..dropped);
        self.bytes.extend(&bytes[skipped..]);
        self.start += (dropped + skipped) as u64;
        dropped + skipped > 0
    }

    /// The number that the next byte will have.
    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Up to `most` bytes from number `from` on, or from the first one kept, and the number of the first.
    pub(super) fn read(&self, from: u64, most: usize) -> (u64, Vec<u8>) {
        let from = from.clamp(self.start, self.end());
        let skipped = usize::try_from(from - self.start).unwrap_or(usize::MAX);
        let end = self.bytes.len().min(skipped.saturating_add(most));
        (from, self.bytes.range(skipped..end).copied().collect())
    }

    /// Gives back memory that a process which has ended will not fill.
    pub(super) fn settle(&mut self) {
        self.bytes.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_byte_keeps_its_number(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20), from in 0_u64..300, most in 0_usize..50) {
            let mut ring = Ring::new(32);
            let mut whole = Vec::new();
            for piece in &pieces {
                let full = whole.len() + piece.len() > 32 && !piece.is_empty();
                prop_assert_eq!(ring.push(piece), full);
                whole.extend_from_slice(piece);
            }
            prop_assert_eq!(ring.end(), whole.len() as u64);
            prop_assert_eq!(ring.start, whole.len().saturating_sub(32) as u64);
            let (at, bytes) = ring.read(from, most);
            prop_assert!(at >= ring.start && at <= ring.end() && bytes.len() <= most);
            let at = at as usize;
            prop_assert_eq!(&whole[at..at + bytes.len()], &bytes[..]);
        }
    }
}
