//! What a terminal would have left standing: no colours, and of an overwritten line only its last state.
//!
//! Programs that write to a terminal colour their output and repaint progress bars in place. Both are
//! noise to a parser and cost tokens, so every condenser reads its text through here first.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

const ESC: u8 = 0x1b;

/// The text without escape sequences, line ends as `\n`, and each line as it stood when it was last painted.
pub(crate) fn settled(text: &str) -> Cow<'_, str> {
    if memchr2(ESC, b'\r', text.as_bytes()).is_none() {
        return Cow::Borrowed(text);
    }
    let text = without_escapes(text);
    if memchr(b'\r', text.as_bytes()).is_none() {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (content, end) = match line.strip_suffix('\n') {
            Some(content) => (content, "\n"),
            None => (line, ""),
        };
        let last = content.rsplit('\r').find(|state| !state.is_empty());
        out.push_str(last.unwrap_or_default());
        out.push_str(end);
    }
    Cow::Owned(out)
}

/// The text without escape sequences; carriage returns stay, for formats in which they mean something.
pub(crate) fn without_escapes(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let Some(mut at) = memchr(ESC, bytes) else {
        return Cow::Borrowed(text);
    };
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    loop {
        out.push_str(&text[from..at]);
        from = at + sequence(&bytes[at..]);
        match memchr(ESC, &bytes[from..]) {
            Some(next) => at = from + next,
            None => break,
        }
    }
    out.push_str(&text[from..]);
    Cow::Owned(out)
}

/// The length of the escape sequence that starts here; of an incomplete one just the escape character.
fn sequence(bytes: &[u8]) -> usize {
    let within = |from: usize, range: std::ops::RangeInclusive<u8>| {
        let body = bytes.get(from..).unwrap_or_default();
        from + body.iter().take_while(|b| range.contains(b)).count()
    };
    match bytes.get(1) {
        Some(b'[') => {
            let end = within(2, 0x20..=0x3f);
            match bytes.get(end) {
                Some(0x40..=0x7e) => end + 1,
                _ => 1,
            }
        }
        // A string ends with BEL or ST and never runs over a line end: past one, its end was lost.
        Some(b']' | b'P' | b'X' | b'^' | b'_') => {
            let body = &bytes[2..];
            match body.iter().position(|b| matches!(b, 0x07 | &ESC | b'\n')) {
                Some(end) if body[end] == 0x07 => end + 3,
                Some(end) if body[end..].starts_with(b"\x1b\\") => end + 4,
                _ => 1,
            }
        }
        Some(b' '..=b'/') => {
            let end = within(1, 0x20..=0x2f);
            match bytes.get(end) {
                Some(0x30..=0x7e) => end + 1,
                _ => 1,
            }
        }
        Some(b'0'..=b'~') => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn colours_go_and_the_last_state_of_a_line_stays() {
        for (text, want) in [
            ("plain\ntext", "plain\ntext"),
            ("\x1b[1;31mred\x1b[0m\x1b[K!\n", "red!\n"),
            ("\x1b]8;;http://a\x1b\\link\x1b]8;;\x07\n", "link\n"),
            ("a\x1b(Bb\x1b7c\x1b", "abc"),
            ("lost \x1b]0;title\nnext", "lost ]0;title\nnext"),
            ("  1%\r 50%\r100%\ndone\r\n", "100%\ndone\n"),
            ("10%\r20%\r\r\n\r\n", "20%\n\n"),
            ("\x1b[2K\rstep 1\x1b[2K\rstep 2", "step 2"),
        ] {
            assert_eq!(settled(text), want, "{text:?}");
        }
        assert_eq!(without_escapes("-a\r\n\x1b[32m+b\x1b[m\n"), "-a\r\n+b\n");
    }

    proptest! {
        #[test]
        fn nothing_acts_and_no_line_is_lost(text in "(\\PC|\x1b|\\[|\\]|\x07|\r|\n|é){0,60}") {
            let out = settled(&text);
            prop_assert!(!out.contains(['\x1b', '\r']));
            prop_assert_eq!(out.matches('\n').count(), text.matches('\n').count());
        }
    }
}
