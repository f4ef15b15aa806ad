use std::ops::{Deref, DerefMut};

/// Where the kernel copies fastest to: addresses that are a multiple of this many bytes. To one that is a multiple of 16
/// only, which is what the allocator returns, a copy from the page cache takes four times as long on many processors.
const ALIGNMENT: usize = 64;

/// A buffer that files and pipes are read into.
#[derive(Debug)]
pub struct ReadBlock {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl ReadBlock {
    /// A buffer of `length` zeros.
    pub fn new(length: usize) -> ReadBlock {
        let bytes = vec![0; length + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        ReadBlock {
            bytes,
            start,
            length,
        }
    }
}

impl Deref for ReadBlock {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..][..self.length]
    }
}

impl DerefMut for ReadBlock {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_aligned_and_as_long_as_asked_for() {
        for length in [0, 1, 4096, 128 << 10, (1 << 20) + 1] {
            let block = ReadBlock::new(length);
            assert_eq!(block.len(), length);
            assert_eq!(block.as_ptr().addr() % ALIGNMENT, 0);
        }
    }
}
