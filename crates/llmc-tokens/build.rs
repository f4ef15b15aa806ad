//! Writes the tables that `src/table.rs` compiles in, from the vocabulary in `data`: bytes, offsets and hash slots.
#![allow(
    clippy::print_stdout,
    reason = "cargo reads its directives from stdout"
)]

#[path = "src/layout.rs"]
#[allow(dead_code, reason = "the classes of characters need no table")]
mod layout;

use std::path::{Path, PathBuf};
use std::{env, fs};

/// Ordinary tokens of `o200k_base`; special tokens follow and are never counted.
const TOKENS: u32 = 199_998;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/layout.rs");
    println!("cargo::rerun-if-changed=data/o200k_base.bin");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    write_vocabulary(include_bytes!("data/o200k_base.bin"), &out);
}

/// The tokens stand in the order of their ranks, each behind a byte with its length.
fn write_vocabulary(mut vocabulary: &[u8], out: &Path) {
    let mut tokens = Vec::new();
    let mut offsets = vec![0];
    let mut slots = vec![layout::EMPTY; layout::SLOTS];
    let mut longest = 0;
    let mut rank = 0;
    while let Some((length, rest)) = vocabulary.split_first() {
        let (token, rest) = rest.split_at(usize::from(*length));
        longest = longest.max(token.len());
        let (mut slot, fingerprint) = layout::home_and_fingerprint(token);
        while slots[slot] != layout::EMPTY {
            slot = (slot + 1) % layout::SLOTS;
        }
        slots[slot] = fingerprint | rank;
        tokens.extend_from_slice(token);
        offsets.push(u32::try_from(tokens.len()).expect("the vocabulary is a few megabytes"));
        rank += 1;
        vocabulary = rest;
    }
    const { assert!(TOKENS < 1 << layout::RANK_BITS, "a rank fits its bits") };
    assert_eq!(rank, TOKENS);
    assert_eq!(longest, layout::MAX_TOKEN_BYTES);
    write(out, "tokens.bin", &tokens);
    write(out, "offsets.bin", &little_endian(&offsets));
    write(out, "slots.bin", &little_endian(&slots));
}

fn little_endian(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn write(out: &Path, name: &str, bytes: &[u8]) {
    fs::write(out.join(name), bytes).expect("OUT_DIR is writable");
}
