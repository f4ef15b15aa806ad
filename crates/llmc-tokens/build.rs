//! Writes the tables that `src/table.rs` compiles in: the `o200k_base` vocabulary as bytes, offsets and hash slots, and
//! the Unicode classes its pre-tokenizer asks about. Both come from the crates the reference tokenizer itself uses.
#![allow(
    clippy::print_stdout,
    reason = "cargo reads its directives from stdout"
)]

#[path = "src/layout.rs"]
mod layout;

use std::path::{Path, PathBuf};
use std::{env, fs};

use layout::{BREAK, LETTER, LOWER, NUMBER, OTHER, SPACE, UPPER};
use regex::Regex;

/// Ordinary tokens of `o200k_base`; special tokens follow and are never counted.
const TOKENS: u32 = 199_998;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/layout.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    write_vocabulary(&out);
    write_classes(&out);
}

fn write_vocabulary(out: &Path) {
    let reference = tiktoken_rs::o200k_base().expect("the vocabulary ships with tiktoken-rs");
    let mut tokens = Vec::new();
    let mut offsets = vec![0];
    let mut slots = vec![layout::EMPTY; layout::SLOTS];
    let mut longest = 0;
    for rank in 0..TOKENS {
        let token = reference.decode_bytes(&[rank]).expect("ranks are dense");
        longest = longest.max(token.len());
        let (mut slot, fingerprint) = layout::home_and_fingerprint(&token);
        while slots[slot] != layout::EMPTY {
            slot = (slot + 1) % layout::SLOTS;
        }
        slots[slot] = fingerprint | rank;
        tokens.extend_from_slice(&token);
        offsets.push(u32::try_from(tokens.len()).expect("the vocabulary is a few megabytes"));
    }
    const { assert!(TOKENS < 1 << layout::RANK_BITS, "a rank fits its bits") };
    assert_eq!(longest, layout::MAX_TOKEN_BYTES);
    write(out, "tokens.bin", &tokens);
    write(out, "offsets.bin", &little_endian(&offsets));
    write(out, "slots.bin", &little_endian(&slots));
}

/// A two-level table: the block number of each run of characters, then the distinct blocks.
fn write_classes(out: &Path) {
    let classes = classes();
    let mut index = Vec::new();
    let mut blocks: Vec<&[u8]> = Vec::new();
    for block in classes.chunks(1 << layout::BLOCK_BITS) {
        let number = blocks
            .iter()
            .position(|known| *known == block)
            .unwrap_or_else(|| {
                blocks.push(block);
                blocks.len() - 1
            });
        index.push(u8::try_from(number).expect("fewer than 256 distinct blocks"));
    }
    write(out, "class_index.bin", &index);
    write(out, "class_blocks.bin", &blocks.concat());
}

/// The class bits of every character, by code point.
fn classes() -> Vec<u8> {
    let every_char: String = (0..=u32::from(char::MAX))
        .filter_map(char::from_u32)
        .collect();
    let mut classes = vec![0; char::MAX as usize + 1];
    for (bit, members) in [
        (UPPER, r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"),
        (LOWER, r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"),
        (LETTER, r"\p{L}+"),
        (NUMBER, r"\p{N}+"),
        (SPACE, r"\s+"),
        (BREAK, r"[\r\n]+"),
        (OTHER, r"[^\s\p{L}\p{N}]+"),
    ] {
        let members = Regex::new(members).expect("a valid class");
        for run in members.find_iter(&every_char) {
            for member in run.as_str().chars() {
                classes[member as usize] |= bit;
            }
        }
    }
    classes
}

fn little_endian(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn write(out: &Path, name: &str, bytes: &[u8]) {
    fs::write(out.join(name), bytes).expect("OUT_DIR is writable");
}
