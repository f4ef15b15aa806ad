//! Estimates the tokens of large texts, for listings that must not count every file in full.

use std::fmt;

use crate::count;

/// Texts up to this many bytes are counted; longer ones are sampled to about this many.
const MAX_COUNTED_BYTES: usize = 64 * 1024;

/// Number of samples taken of a long text: a file may begin with a licence and end with data.
const SAMPLE_COUNT: usize = 8;

/// A number of tokens, and whether it was counted or scaled up from a sample.
///
/// Displays as `123` or `~123`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenEstimate {
    pub tokens: usize,
    /// Whether all of the text was counted.
    pub exact: bool,
}

impl fmt::Display for TokenEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = if self.exact { "" } else { "~" };
        write!(f, "{about}{}", self.tokens)
    }
}

/// The tokens of a text of any length and encoding, in bounded time.
///
/// Exact up to 64 KiB, with a replacement character for every invalid UTF-8 sequence; beyond that, scaled from samples
/// taken evenly across the text.
pub fn estimate(text: &[u8]) -> TokenEstimate {
    if text.len() <= MAX_COUNTED_BYTES {
        return TokenEstimate {
            tokens: count(&String::from_utf8_lossy(text)),
            exact: true,
        };
    }
    let length = MAX_COUNTED_BYTES / SAMPLE_COUNT;
    let mut bytes = 0;
    let mut tokens = 0;
    for spot in 0..SAMPLE_COUNT {
        let start = scale(text.len() - length, spot, SAMPLE_COUNT - 1);
        let sample = whole_chars(&text[start..start + length]);
        bytes += sample.len();
        tokens += count(&String::from_utf8_lossy(sample));
    }
    TokenEstimate {
        tokens: scale(tokens, text.len(), bytes),
        exact: false,
    }
}

/// Drops the halves of characters that sampling cut through, which would count as replacement characters.
fn whole_chars(sample: &[u8]) -> &[u8] {
    let is_continuation = |byte: &&u8| **byte & 0xc0 == 0x80;
    let head = sample.iter().take(3).take_while(is_continuation).count();
    let tail = sample
        .iter()
        .rev()
        .take(3)
        .take_while(is_continuation)
        .count();
    let end = sample.len() - tail;
    // What precedes the trailing continuation bytes is the first byte of the last character.
    let last = &sample[end - 1..];
    if std::str::from_utf8(last).is_ok() {
        &sample[head..]
    } else {
        &sample[head..end - 1]
    }
}

fn scale(value: usize, numerator: usize, denominator: usize) -> usize {
    let scaled = value as u128 * numerator as u128 / denominator as u128;
    usize::try_from(scaled).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_texts_are_counted() {
        let estimate = estimate(b"fn main() {}\n");
        assert_eq!(estimate.tokens, count("fn main() {}\n"));
        assert_eq!(estimate.to_string(), estimate.tokens.to_string());
    }

    #[test]
    fn invalid_utf8_is_counted_lossily() {
        assert_eq!(estimate(b"a\xff\xfeb").tokens, count("a\u{fffd}\u{fffd}b"));
    }

    #[test]
    fn long_texts_are_sampled() {
        for line in [
            "let answer = 6 * 7;\n",
            "Übergrößenträger für 字形 und 🎉\n",
        ] {
            let text = line.repeat(20_000);
            let estimate = estimate(text.as_bytes());
            let exact = count(&text);
            assert!(!estimate.exact);
            assert!(
                estimate.tokens.abs_diff(exact) < exact / 100,
                "{exact} {estimate}"
            );
            assert!(estimate.to_string().starts_with('~'));
        }
    }

    #[test]
    fn samples_keep_whole_characters() {
        for (sample, whole) in [
            (&b"\x97abc"[..], &b"abc"[..]),
            ("ab字".as_bytes(), "ab字".as_bytes()),
            (b"ab\xe5\xad", b"ab"),
            (b"ab\xe5", b"ab"),
            (b"\xad\x97ab\xf0\x9f\x8e", b"ab"),
        ] {
            assert_eq!(whole_chars(sample), whole, "{sample:?}");
        }
    }
}
