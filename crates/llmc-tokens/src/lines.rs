//! How many whole lines of a text fit a token budget.
//!
//! Adding up the counts of single lines would be wrong, since one token may span a line break and the indentation or
//! the blank lines after it. What makes an exact answer cheap: no piece of the pre-tokenizer depends on anything behind
//! the line break that follows it. So the pieces of a prefix that ends after a `\n` are those of the whole text, except
//! that a piece which reaches over the end of the prefix (a run of white space, or punctuation followed by line breaks)
//! is cut off there and stays one piece. The count of such a prefix is then the sum of the pieces before, plus that of
//! the cut one.

use crate::layout::MAX_TOKEN_BYTES;
use crate::merge::tokens_in;
use crate::split::pieces;

/// The bytes of the leading whole lines that fit `budget` tokens, and exactly how many tokens those are.
///
/// The next line would no longer fit, unless the text ends. A line ends with `\n`, which belongs to it, or with the
/// text.
pub fn lines_within(text: &str, budget: usize) -> (usize, usize) {
    let mut within = (0, 0);
    let mut start = 0;
    let mut before = 0;
    for piece in pieces(text) {
        let end = start + piece.len();
        let room = budget - before;
        let tokens = tokens_up_to(room, piece);
        if end == text.len()
            && let Some(tokens) = tokens
        {
            return (end, before + tokens);
        }
        if let Some((bytes, tokens)) = lines_of_piece(piece, tokens, room) {
            within = (start + bytes, before + tokens);
        }
        // Whole pieces are part of every longer prefix: once they are over the budget, nothing further on fits.
        let Some(tokens) = tokens else { break };
        start = end;
        before += tokens;
    }
    within
}

/// Where the last line end inside a piece lies that is reached within `room` tokens, and the tokens up to it.
///
/// A longer stretch can have fewer tokens (line breaks merge), so bisection need not find the very last such end; it
/// finds one whose successor does not fit, which is what is promised.
fn lines_of_piece(piece: &str, tokens: Option<usize>, room: usize) -> Option<(usize, usize)> {
    let tokens_at = |bytes: usize| {
        if bytes == piece.len() {
            tokens
        } else {
            tokens_up_to(room, &piece[..bytes])
        }
    };
    // The usual piece has no line break, or ends with its only one.
    let last = piece.rfind('\n')? + 1;
    if let Some(tokens) = tokens_at(last) {
        return Some((last, tokens));
    }
    let ends: Vec<_> = piece[..last - 1]
        .match_indices('\n')
        .map(|(at, _)| at + 1)
        .collect();
    let mut within = None;
    let mut fitting = 0;
    let mut failing = ends.len();
    while fitting < failing {
        let middle = fitting + (failing - fitting) / 2;
        match tokens_at(ends[middle]) {
            Some(tokens) => {
                within = Some((ends[middle], tokens));
                fitting = middle + 1;
            }
            None => failing = middle,
        }
    }
    within
}

/// The tokens of a piece if there are at most `room`, without counting a piece that is far too long for that.
fn tokens_up_to(room: usize, piece: &str) -> Option<usize> {
    if piece.len() > room.saturating_mul(MAX_TOKEN_BYTES) {
        return None;
    }
    Some(tokens_in(piece)).filter(|&tokens| tokens <= room)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::count;

    #[test]
    fn whole_lines_only() {
        let text = "one two three\nfour five six\nseven";
        for (budget, lines) in [
            (0, ""),
            (3, ""),
            (4, "one two three\n"),
            (7, "one two three\n"),
            (8, "one two three\nfour five six\n"),
            (9, text),
            (usize::MAX, text),
        ] {
            assert_eq!(
                lines_within(text, budget),
                (lines.len(), count(lines)),
                "{budget}"
            );
        }
    }

    #[test]
    fn long_runs_of_line_breaks_are_cut() {
        for line in ["\n", " \n", "\r\n", "/\n", "   \n\n"] {
            let text = format!("x.{}", line.repeat((1 << 17) / line.len()));
            for budget in [1, 10, 1000] {
                holds(&text, budget).expect("exact and maximal");
            }
        }
    }

    proptest! {
        #[test]
        fn the_prefix_is_exact_and_maximal(
            text in prop_oneof![
                "([a-zé字 .;/']{0,12}(\n|\r\n|\r| \n|\t|\n\n\n)){0,20}",
                "[\n\r /\t.a]{0,200}",
                "(\\PC|\n){0,60}",
            ],
            budget in 0usize..80,
        ) {
            holds(&text, budget)?;
        }
    }

    fn holds(text: &str, budget: usize) -> Result<(), TestCaseError> {
        let (bytes, tokens) = lines_within(text, budget);
        let (lines, rest) = text.split_at(bytes);
        prop_assert!(lines.is_empty() || lines.ends_with('\n') || rest.is_empty());
        prop_assert_eq!(count(lines), tokens);
        prop_assert!(tokens <= budget);
        if let Some(next) = rest.split_inclusive('\n').next() {
            prop_assert!(count(&text[..bytes + next.len()]) > budget);
        }
        Ok(())
    }
}
