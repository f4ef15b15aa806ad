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
        Ok(text) if !text.chars().any(needs_escape) && *unescape(text) == *name => {
            escape_marker(text.to_owned())
        }
        _ => escape_marker(escape_all(name)),
    }
}

/// Whether a character cannot be seen, or changes the order in which its neighbours are read: Unicode's bidirectional
/// controls, its invisible format characters and blank letters, and line and paragraph separators.
///
/// Variation selectors are not among them; emoji need them.
pub fn is_invisible(c: char) -> bool {
    INVISIBLE
        .iter()
        .any(|(first, last)| (*first..=*last).contains(&c))
}

/// `Bidi_Control` and `Default_Ignorable_Code_Point` of Unicode 16 without variation selectors of the basic plane, the
/// interlinear and hieroglyph format characters, U+2028 and U+2029.
const INVISIBLE: [(char, char); 19] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{13430}', '\u{13440}'),
    ('\u{13447}', '\u{13455}'),
    ('\u{16fe4}', '\u{16fe4}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

/// A name that would read as a line of an answer's own (`# LLMC: …`, `# TE: …`) gets an escape that leads back to it.
fn escape_marker(shown: String) -> String {
    let text = shown.trim_start();
    let Some(after) = text.strip_prefix('#') else {
        return shown;
    };
    let after = after.trim_start();
    let is_marker = ["llmc", "te"].iter().any(|word| {
        after
            .get(..word.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(word))
    });
    if !is_marker {
        return shown;
    }
    let blanks = &shown[..shown.len() - text.len()];
    format!("{blanks}\\x23{}", &text[1..])
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
    c.is_control() || is_invisible(c)
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
        assert_eq!(escape("a\u{61c}b".as_bytes()), "a\\xd8\\x9cb");
    }

    #[test]
    fn a_name_that_reads_as_a_receipt_is_shown_so_that_it_can_be_opened() {
        for (name, shown) in [
            ("# LLMC: 3 lines", "\\x23 LLMC: 3 lines"),
            ("  #te: x", "  \\x23te: x"),
            ("# LLMC: a\\nb", "\\x23 LLMC: a\\\\nb"),
            ("# LLMC: a\\b", "\\x23 LLMC: a\\b"),
            ("# LLMC: a\nb", "\\x23 LLMC: a\\nb"),
            ("# notes", "# notes"),
        ] {
            assert_eq!(escape(name.as_bytes()), shown);
            assert_eq!(*unescape(shown), *name.as_bytes());
        }
    }

    proptest::proptest! {
        #[test]
        fn an_escaped_name_parses_back(
            marker in proptest::sample::select(vec!["", "# LLMC:", " #te\\", "\\#"]),
            name in proptest::collection::vec(1u8.., 0..40),
        ) {
            let name = [marker.as_bytes(), &name].concat();
            let text = escape(&name);
            assert_eq!(unescape(&text), name);
            assert!(!text.chars().any(needs_escape));
        }
    }
}
