//! File names as text, without loss.
//!
//! A Linux file name is any bytes but `/` and NUL; JSON carries only Unicode. A name that is plain text is shown as it
//! is. One that is not (bad UTF-8, a newline, an escape sequence that would repaint a terminal) is shown with C-style
//! escapes, and [`unescape`] turns that form back into the bytes, so an agent can open what a listing showed it.

use std::borrow::Cow;

/// A name or path as printable text; [`unescape`] reverses it.
pub fn escape(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        // A backslash that would read as an escape needs one itself, or two names would be shown alike.
        Ok(text) if !text.chars().any(needs_escape) && *unescape(text) == *name => text.to_owned(),
        _ => escape_all(name),
    }
}

/// The bytes behind a shown name. Text without escapes is its own bytes.
pub fn unescape(shown: &str) -> Cow<'_, [u8]> {
    if !shown.contains('\\') {
        return Cow::Borrowed(shown.as_bytes());
    }
    let bytes = shown.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let (byte, used) = match &bytes[at..] {
            [b'\\', b'n', ..] => (b'\n', 2),
            [b'\\', b't', ..] => (b'\t', 2),
            [b'\\', b'r', ..] => (b'\r', 2),
            [b'\\', b'\\', ..] => (b'\\', 2),
            [b'\\', b'x', high, low, ..] => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high * 16 + low, 4),
                _ => (b'\\', 1),
            },
            _ => (bytes[at], 1),
        };
        out.push(byte);
        at += used;
    }
    Cow::Owned(out)
}

/// Control characters, and the invisible ones that make a name look like another.
fn needs_escape(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

fn escape_all(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len() + 8);
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\r' => out.push_str("\\r"),
                c if needs_escape(c) => push_hex(&mut out, c.encode_utf8(&mut [0; 4]).as_bytes()),
                c => out.push(c),
            }
        }
        push_hex(&mut out, chunk.invalid());
    }
    out
}

fn push_hex(out: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push_str("\\x");
        out.push(DIGITS[usize::from(byte >> 4)] as char);
        out.push(DIGITS[usize::from(byte & 15)] as char);
    }
}

fn hex(digit: u8) -> Option<u8> {
    (digit as char)
        .to_digit(16)
        .and_then(|d| u8::try_from(d).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_stay_as_they_are() {
        for name in ["a b.txt", "ünïcode-日本", "back\\slash", "-rf", "$HOME"] {
            assert_eq!(escape(name.as_bytes()), name);
        }
    }

    #[test]
    fn odd_names_are_escaped() {
        assert_eq!(escape(b"caf\xe9"), "caf\\xe9");
        assert_eq!(escape(b"a\nb\\c"), "a\\nb\\\\c");
        assert_eq!(escape("x\u{202e}y".as_bytes()), "x\\xe2\\x80\\xaey");
        assert_eq!(escape(b"a\\n"), "a\\\\n");
    }

    proptest::proptest! {
        #[test]
        fn an_escaped_name_parses_back(name in proptest::collection::vec(1u8.., 0..40)) {
            let text = escape(&name);
            assert_eq!(unescape(&text), name);
            assert!(!text.chars().any(needs_escape));
        }
    }
}
