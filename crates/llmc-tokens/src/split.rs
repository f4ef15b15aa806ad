//! The pre-tokenizer: cuts text into the pieces that byte pairs are merged within.
//!
//! `o200k_base` defines the pieces by a regular expression, tried as an ordered choice at each position:
//!
//! ```text
//! [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//! [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//! \p{N}{1,3}
//!  ?[^\s\p{L}\p{N}]+[\r\n/]*
//! \s*[\r\n]+
//! \s+(?!\S)
//! \s+
//! ```
//!
//! This is the same choice written by hand, without a backtracking engine: each place where the expression would
//! backtrack has one answer, which a single forward scan remembers. Every character belongs to some piece.

use crate::layout::{BREAK, LETTER, LOWER, NUMBER, OTHER, SPACE, UPPER};
use crate::table;

/// The pieces of a text, in order and without gaps.
pub(crate) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut start = 0;
    std::iter::from_fn(move || {
        if start == text.len() {
            return None;
        }
        let end = piece_end(text, start);
        let piece = &text[start..end];
        start = end;
        Some(piece)
    })
}

fn piece_end(text: &str, start: usize) -> usize {
    let (first, width) = class_at(text, start);
    if first & NUMBER != 0 {
        return numbers_end(text, start);
    }
    word_end(text, start, first, width)
        .or_else(|| punctuation_end(text, start))
        .unwrap_or_else(|| space_end(text, start))
}

/// The first two choices: a word, with one leading character that is neither letter, number nor line break.
///
/// The leading character is taken if a word follows it, and may itself be the word if it is a combining mark.
fn word_end(text: &str, start: usize, first: u8, width: usize) -> Option<usize> {
    let bare = Some(start);
    let led = (first & (LETTER | NUMBER | BREAK) == 0).then_some(start + width);
    let starts = || led.into_iter().chain(bare);
    starts()
        .find_map(|word| lowered_end(text, word))
        .or_else(|| starts().find_map(|word| raised_end(text, word)))
        .map(|end| contraction_end(text, end))
}

/// `UPPER* LOWER+`: the run of `UPPER` gives back characters until one is found that is `LOWER` as well.
fn lowered_end(text: &str, start: usize) -> Option<usize> {
    let mut at = start;
    let mut last_lower = None;
    loop {
        let (class, width) = class_at(text, at);
        if class & UPPER == 0 {
            break;
        }
        at += width;
        if class & LOWER != 0 {
            last_lower = Some(at);
        }
    }
    let end = run_end(text, at, LOWER);
    if end > at { Some(end) } else { last_lower }
}

/// `UPPER+ LOWER*`, tried only where `UPPER* LOWER+` failed: so no `LOWER` follows.
fn raised_end(text: &str, start: usize) -> Option<usize> {
    let end = run_end(text, start, UPPER);
    (end > start).then_some(end)
}

/// `(?i:'s|'t|'re|'ve|'m|'ll|'d)?`, where `ſ` (U+017F) folds to `s`.
fn contraction_end(text: &str, start: usize) -> usize {
    let tail = match &text.as_bytes()[start..] {
        [
            b'\'',
            b's' | b'S' | b't' | b'T' | b'm' | b'M' | b'd' | b'D',
            ..,
        ] => 2,
        [b'\'', b'r' | b'R' | b'v' | b'V', b'e' | b'E', ..] => 3,
        [b'\'', b'l' | b'L', b'l' | b'L', ..] => 3,
        [b'\'', 0xc5, 0xbf, ..] => 3,
        _ => 0,
    };
    start + tail
}

fn numbers_end(text: &str, start: usize) -> usize {
    let mut end = start;
    for _ in 0..3 {
        let (class, width) = class_at(text, end);
        if class & NUMBER == 0 {
            break;
        }
        end += width;
    }
    end
}

/// ` ?OTHER+[\r\n/]*`.
fn punctuation_end(text: &str, start: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let from = start + usize::from(bytes[start] == b' ');
    let end = run_end(text, from, OTHER);
    if end == from {
        return None;
    }
    let breaks = bytes[end..]
        .iter()
        .take_while(|byte| matches!(byte, b'\r' | b'\n' | b'/'));
    Some(end + breaks.count())
}

/// The last three choices: white space up to its last line break, or else all but the character that the next piece
/// may want to lead with.
fn space_end(text: &str, start: usize) -> usize {
    let mut end = start;
    let mut last = start;
    let mut after_break = None;
    loop {
        let (class, width) = class_at(text, end);
        if class & SPACE == 0 {
            break;
        }
        last = end;
        end += width;
        if class & BREAK != 0 {
            after_break = Some(end);
        }
    }
    match after_break {
        Some(after_break) => after_break,
        None if end == text.len() || last == start => end,
        None => last,
    }
}

fn run_end(text: &str, start: usize, wanted: u8) -> usize {
    let mut end = start;
    loop {
        let (class, width) = class_at(text, end);
        if class & wanted == 0 {
            return end;
        }
        end += width;
    }
}

/// The class and the length of the character at a position; of no class, and empty, at the end.
fn class_at(text: &str, at: usize) -> (u8, usize) {
    text[at..]
        .chars()
        .next()
        .map_or((0, 0), |c| (table::class(c), c.len_utf8()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few of these cuts show in a count, since no token was trained across them.
    #[test]
    fn pieces_end_where_the_expression_backtracks_to() {
        for expected in [
            &["Hello", ",", " world", "!"][..],
            &["camel", "Case", "HTMLParser's"],
            &["HTML's", " we'RE", " x'ſ", "'type't", "is"],
            &["日", "AB", " 日A日", "AB's"],
            &["\u{301}", "AB", ".\u{301}b\u{301}'s"],
            &["123", "4", "a", "12³", "½"],
            &[" ", " a", "\t\t", "\ta", " ", " ", "1", " \n", "  "],
            &["x", " !=\r\n//\n", " \n\r\n", " ", " ./", "y"],
            &["\u{a0}a", "\u{2003}", "\u{a0}b", "\u{85}"],
        ] {
            let text = expected.concat();
            assert_eq!(pieces(&text).collect::<Vec<_>>(), expected);
        }
    }
}
