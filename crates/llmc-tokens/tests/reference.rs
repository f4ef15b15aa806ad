//! Counts must equal those of `tiktoken-rs`, whatever the text.
#![allow(
    clippy::disallowed_methods,
    reason = "tests look at files and start programs directly"
)]

use std::fs;
use std::path::Path;

use llmc_tokens::count;
use proptest::prelude::*;
use tiktoken_rs::o200k_base_singleton;

/// The expression that `src/split.rs` is written after.
const PATTERN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r"|\s*[\r\n]+",
    r"|\s+(?!\S)",
    r"|\s+",
);

#[test]
fn the_pattern_is_unchanged() {
    assert_eq!(tiktoken_rs::O200K_BASE_PAT_STR, PATTERN);
}

#[test]
fn picked_texts() {
    for text in [
        "",
        "Hello, world!",
        "I'm you're HE'LL it'S they'Ve 'tis 'ſ aſ'ſ x'ſy A'ſ we'rE 'sing don't'd",
        // `'type` is a token, but only if `'ſ` was taken as a contraction of the word before.
        "x'ſ'type",
        "camelCaseHTMLParser XMLHttpRequest ABCdef ǅungla ǆ ʰʱ ªº",
        "日A日AA日 AB日 日本語ABC日本 \u{301}AB \u{301} a\u{301}B\u{301}'s \u{301}'s",
        "  leading\n\n\n   mixed \t\r\n\r\n \u{a0}\u{2003}x\u{85}y\u{2028}z   ",
        "1234567 12³Ⅷ½ ٣٤٥٦ 1a2b",
        "//\n///\r\n /path/to/ -- => :: !!\n\n/\n x.\n/",
        "👩‍👩‍👧‍👦🏳️‍🌈 e\u{301}\u{302} \u{0}\u{1f}\u{7f}\u{200b}\u{feff}",
        "<|endoftext|><|fim_prefix|>",
        "\u{10ffff}\u{e000}\u{fffd}",
    ] {
        agrees(text);
    }
}

#[test]
fn every_character_alone_and_in_company() {
    let unassigned = '\u{323b0}'..'\u{e0000}';
    for c in ('\0'..=unassigned.start).chain(unassigned.end..='\u{e01f0}') {
        agrees(&format!("{c} {c}a{c}A1{c}\n{c}{c}. {c}'s"));
    }
}

#[test]
fn own_sources() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = vec![workspace.join("crates")];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                agrees(&text);
                files += 1;
            }
        }
    }
    assert!(files > 10);
    agrees(&fs::read_to_string(workspace.join("Cargo.lock")).expect("a lock file"));
}

#[test]
fn long_pieces() {
    for unit in [
        "a", "A", " ", "\t", "\n", "=", "-", "ab", "abc", " \n", "字", "é", "\u{301}", "/\n",
        "xyzzy", "ACGT", "日A", "🎉",
    ] {
        for length in [63, 64, 65, 66, 100, 127, 128, 129, 1000, 20_000] {
            agrees(&unit.repeat(length / unit.len() + 1));
        }
    }
}

/// Keywords, names, numbers, strings and comments, with punctuation, line breaks and indentation between them.
const CODE: &str = concat!(
    "((fn|let|if|return|self|impl|HashMap|snake_case|HTTPServer|0x[0-9a-f]{1,9}|[0-9]{1,8}|\"[^\"]{0,8}\"|//+|[a-z]{1,9})",
    "[(){};:.,<>=+*/&!#' ]{0,3}(\n {0,12}|\r\n\t{0,3})?){0,30}",
);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_unicode(text in "(?s:.){0,80}") {
        agrees(&text);
    }

    #[test]
    fn white_space(text in "[ \t\r\n\u{a0}\u{2003}\u{85}a./]{0,80}") {
        agrees(&text);
    }

    #[test]
    fn words_of_all_kinds(text in "[a-cA-C'sSſtTrRevVlLdDm ǅʰª字ア\u{301}\u{20dd}K1_-]{0,80}") {
        agrees(&text);
    }

    #[test]
    fn scripts_and_symbols(text in "[\\p{Han}\\p{Hiragana}\\p{Arabic}\\p{Thai}\\p{M}\\p{N}\\p{So} ]{0,60}") {
        agrees(&text);
    }

    #[test]
    fn code(text in CODE) {
        agrees(&text);
    }

    #[test]
    fn long_words(text in "[a-z]{65,400}|[A-Z]{65,300}|[=+/-]{65,300}|\\p{Han}{30,200}") {
        agrees(&text);
    }
}

#[track_caller]
fn agrees(text: &str) {
    assert_eq!(count(text), reference(text), "{text:?}");
}

fn reference(text: &str) -> usize {
    o200k_base_singleton().encode_ordinary(text).len()
}
