//! What `data` holds is what the crates of the reference tokenizer say; `UPDATE_DATA=1` writes it.
#![allow(
    clippy::disallowed_methods,
    reason = "tests look at files and start programs directly"
)]

use std::fs;
use std::path::Path;

use regex::Regex;

#[path = "../src/layout.rs"]
#[allow(dead_code, reason = "the tokens are hashed by the build script")]
mod layout;

use layout::{BREAK, LETTER, LOWER, NUMBER, OTHER, SPACE, UPPER};

/// Ordinary tokens, without the special ones that follow.
const TOKENS: u32 = 199_998;

#[test]
fn the_vocabulary_is_that_of_the_reference() {
    let reference = tiktoken_rs::o200k_base_singleton();
    let mut vocabulary = Vec::new();
    for rank in 0..TOKENS {
        let token = reference.decode_bytes(&[rank]).expect("ranks are dense");
        vocabulary.push(u8::try_from(token.len()).expect("tokens are short"));
        vocabulary.extend_from_slice(&token);
    }
    assert_data("o200k_base.bin", &vocabulary);
}

/// A two-level table: the block number of each run of characters, then the distinct blocks.
#[test]
fn the_character_classes_are_those_of_the_regex_crate() {
    let classes = classes();
    let mut table = Vec::new();
    let mut blocks: Vec<&[u8]> = Vec::new();
    for block in classes.chunks(1 << layout::BLOCK_BITS) {
        let known = blocks.iter().position(|known| *known == block);
        let number = known.unwrap_or_else(|| {
            blocks.push(block);
            blocks.len() - 1
        });
        table.push(u8::try_from(number).expect("fewer than 256 distinct blocks"));
    }
    table.extend(blocks.concat());
    assert_data("char_classes.bin", &table);
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

fn assert_data(name: &str, wanted: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("data")
        .join(name);
    if std::env::var_os("UPDATE_DATA").is_some() {
        fs::write(&path, wanted).expect("the data can be written");
    }
    let found = fs::read(&path).expect("the data is in the repository");
    assert!(
        found == wanted,
        "data/{name} is out of date; UPDATE_DATA=1 writes it"
    );
}
