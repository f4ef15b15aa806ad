//! What the build script and the crate must agree on: how the compiled-in tables are hashed and packed.
//!
//! `build.rs` and `tests/data.rs` include this very file, so the writers and the reader cannot drift apart.

/// Length in bytes of the longest token; the build script checks it.
///
/// Turns "can this many bytes fit that many tokens" into a multiplication, and no merge looks further than this.
pub(crate) const MAX_TOKEN_BYTES: usize = 128;

/// Slots in the hash table, a power of two.
pub(crate) const SLOTS: usize = 1 << 18;

/// A slot packs a rank into its low bits and a fingerprint of the hash above it.
///
/// The fingerprint lets nearly every miss end inside the slot array, without touching the token bytes.
pub(crate) const RANK_BITS: u32 = 18;

/// A slot that holds nothing; no rank has all its bits set.
pub(crate) const EMPTY: u32 = u32::MAX;

/// Characters that share one block of the class table, as a power of two.
pub(crate) const BLOCK_BITS: u32 = 7;

/// `\p{Lu}`, `\p{Lt}`, `\p{Lm}`, `\p{Lo}`, `\p{M}`: what may open a word.
pub(crate) const UPPER: u8 = 1;
/// `\p{Ll}`, `\p{Lm}`, `\p{Lo}`, `\p{M}`: what may close a word.
pub(crate) const LOWER: u8 = 1 << 1;
/// `\p{L}`.
pub(crate) const LETTER: u8 = 1 << 2;
/// `\p{N}`.
pub(crate) const NUMBER: u8 = 1 << 3;
/// `\s`.
pub(crate) const SPACE: u8 = 1 << 4;
/// `[\r\n]`, which is also [`SPACE`].
pub(crate) const BREAK: u8 = 1 << 5;
/// `[^\s\p{L}\p{N}]`: punctuation, symbols, marks, controls.
pub(crate) const OTHER: u8 = 1 << 6;

/// Where the search for a token starts, and the slot's bits above the rank.
pub(crate) fn home_and_fingerprint(token: &[u8]) -> (usize, u32) {
    let hash = hash(token);
    let home = hash as usize & (SLOTS - 1);
    let fingerprint = (hash >> 32) as u32 & (u32::MAX << RANK_BITS);
    (home, fingerprint)
}

fn hash(token: &[u8]) -> u64 {
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = token.len() as u64;
    let mut words = token.chunks_exact(8);
    for word in &mut words {
        let word = word.try_into().expect("chunks of eight bytes");
        hash = (hash ^ u64::from_le_bytes(word))
            .wrapping_mul(MIX)
            .rotate_left(29);
    }
    let rest = words
        .remainder()
        .iter()
        .rev()
        .fold(0, |rest, &byte| rest << 8 | u64::from(byte));
    let wide = u128::from(hash ^ rest ^ MIX) * u128::from(MIX);
    (wide >> 64) as u64 ^ wide as u64
}
