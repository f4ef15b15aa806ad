//! Counts a whole text, or just enough of it to compare it with a budget.

use crate::layout::MAX_TOKEN_BYTES;
use crate::merge::tokens_in;
use crate::split::pieces;

/// The exact number of `o200k_base` tokens in a text.
pub fn count(text: &str) -> usize {
    pieces(text).map(tokens_in).sum()
}

/// Whether a text is at most `budget` tokens long.
///
/// Counts only until the answer is certain: a token is at least one byte and at most 128, so most texts are settled by
/// their length alone.
pub fn fits(text: &str, budget: usize) -> bool {
    let mut room = budget;
    let mut rest = text.len();
    for piece in pieces(text) {
        if rest <= room {
            return true;
        }
        if rest > room.saturating_mul(MAX_TOKEN_BYTES) {
            return false;
        }
        let tokens = tokens_in(piece);
        if tokens > room {
            return false;
        }
        room -= tokens;
        rest -= piece.len();
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_empty_text_has_no_tokens() {
        assert_eq!(count(""), 0);
        assert!(fits("", 0));
        assert!(!fits("a", 0));
    }

    #[test]
    fn special_tokens_are_ordinary_text() {
        assert_eq!(count("<|endoftext|>"), 7);
    }

    #[test]
    fn two_megabytes_of_one_character_finish() {
        for c in ["a", " "] {
            let text = c.repeat((2 << 20) / c.len());
            assert!(count(&text) >= text.len() / MAX_TOKEN_BYTES, "{c:?}");
        }
    }

    proptest! {
        #[test]
        fn fits_is_a_comparison_with_the_count(text in "\\PC{0,40}|[a-z \n]{0,200}", budget in 0usize..60) {
            prop_assert_eq!(fits(&text, budget), count(&text) <= budget);
        }
    }
}
