//! Whether a token can be guessed.
//!
//! Not a measure of randomness, which a single value does not have: it finds the tokens that people type, copy from an
//! example or make by repeating something.

/// A shorter token can be guessed.
pub(super) const MIN_TOKEN_CHARS: usize = 16;
/// Characters that must be left when the words below are taken out.
const MIN_UNKNOWN_CHARS: usize = 8;
const MIN_DIFFERENT_CHARS: usize = 6;
/// Words that examples and people put into tokens.
const KNOWN_WORDS: [&str; 23] = [
    "changeme",
    "change",
    "password",
    "passwd",
    "passw0rd",
    "secret",
    "token",
    "bearer",
    "default",
    "example",
    "sample",
    "admin",
    "letmein",
    "qwertyuiop",
    "qwerty",
    "dummy",
    "testing",
    "test",
    "replace",
    "please",
    "your",
    "llmc",
    "mcp",
];

/// Whether a header can carry this as a token.
pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Why a token can be guessed, if it can.
pub(super) fn weakness(token: &str) -> Option<String> {
    if token.len() < MIN_TOKEN_CHARS {
        return Some(format!("less than {MIN_TOKEN_CHARS} characters"));
    }
    let lower = token.to_ascii_lowercase();
    let rest = KNOWN_WORDS
        .iter()
        .fold(lower.clone(), |text, word| text.replace(word, ""));
    let unknown = rest.chars().filter(char::is_ascii_alphanumeric).count();
    if rest.len() < lower.len() && unknown < MIN_UNKNOWN_CHARS {
        return Some("little but well-known words".to_owned());
    }
    let bytes = lower.as_bytes();
    let mut different = bytes.to_vec();
    different.sort_unstable();
    different.dedup();
    if different.len() < MIN_DIFFERENT_CHARS {
        return Some("few different characters".to_owned());
    }
    if (1..=bytes.len() / 2).any(|period| bytes[period..] == bytes[..bytes.len() - period]) {
        return Some("a part that repeats".to_owned());
    }
    let neighbours = bytes.windows(2);
    let steps = neighbours.filter(|pair| pair[0].abs_diff(pair[1]) <= 1);
    if steps.count() * 4 >= bytes.len() * 3 {
        return Some("a row of characters in order".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_people_type_are_weak_and_random_ones_are_not() {
        let weak = [
            "changeme",
            "short",
            "changeme-changeme",
            "change-me-please!",
            "my-secret-token-1",
            "llmc-test-token-123",
            "passwordpassword",
            "aaaaaaaaaaaaaaaaaaaaaaaa",
            "abcabcabcabcabcabcabc",
            "0123456789abcdef",
            "abcdefghijklmnopqrst",
            "1111111122222222",
            "k7Qx2kk7Qx2kk7Qx2k",
        ];
        for token in weak {
            assert!(weakness(token).is_some(), "{token}");
        }
        let strong = [
            "correct-horse-battery",
            "9f8c1b7e4a2d6053bb1c7d90e4f2a861",
            "4839201758392647",
            "kJ2m-9xQz_4tBw7Lr8Yp",
            "ghp_x8Kd92LmQpZ3vTr7",
            "llmc-7f3a9c2e5b8d1640",
        ];
        for token in strong {
            assert_eq!(weakness(token), None, "{token}");
        }
    }
}
