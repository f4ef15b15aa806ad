//! The vocabulary and the character classes, read in place from bytes compiled into the binary.
//!
//! Nothing is parsed or copied at start: a lookup touches the few pages it needs, and the kernel shares and evicts them
//! like any other part of the executable. Numbers are read byte-wise, little endian, so alignment never matters.

use crate::layout::{BLOCK_BITS, EMPTY, MAX_TOKEN_BYTES, RANK_BITS, SLOTS, home_and_fingerprint};

static TOKENS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tokens.bin"));
static OFFSETS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/offsets.bin"));
static SLOT_BYTES: &[u8; SLOTS * 4] = include_bytes!(concat!(env!("OUT_DIR"), "/slots.bin"));
/// The block number of each run of characters, then the blocks.
static CLASSES: &[u8] = include_bytes!("../data/char_classes.bin");

/// Runs of characters with a block number.
const BLOCKS: usize = (char::MAX as usize + 1) >> BLOCK_BITS;

/// The rank of a token, if these bytes are one; a lower rank merges first.
pub(crate) fn rank(bytes: &[u8]) -> Option<u32> {
    const RANK_MASK: u32 = (1 << RANK_BITS) - 1;
    if bytes.len() > MAX_TOKEN_BYTES {
        return None;
    }
    let (mut slot, fingerprint) = home_and_fingerprint(bytes);
    loop {
        let held = number(SLOT_BYTES, slot);
        if held == EMPTY {
            return None;
        }
        if held & !RANK_MASK == fingerprint && token(held & RANK_MASK) == bytes {
            return Some(held & RANK_MASK);
        }
        slot = (slot + 1) % SLOTS;
    }
}

/// The class bits of a character, as named in [`crate::layout`].
pub(crate) fn class(c: char) -> u8 {
    let code = c as usize;
    let (numbers, blocks) = CLASSES.split_at(BLOCKS);
    let block = usize::from(numbers[code >> BLOCK_BITS]);
    blocks[block << BLOCK_BITS | code & ((1 << BLOCK_BITS) - 1)]
}

fn token(rank: u32) -> &'static [u8] {
    let rank = rank as usize;
    &TOKENS[number(OFFSETS, rank) as usize..number(OFFSETS, rank + 1) as usize]
}

fn number(table: &[u8], index: usize) -> u32 {
    let bytes = &table[index * 4..index * 4 + 4];
    u32::from_le_bytes(bytes.try_into().expect("four bytes"))
}
