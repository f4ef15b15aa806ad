//! Text made safe to show to a model or in a terminal.
//!
//! A result may hold characters that act instead of appearing: escape sequences that repaint a terminal, overrides that
//! reverse the reading order, letters of no width that hide words from a person but not from a model. They are shown
//! for what they are, as `\x1b` or `\u{202e}`.

use std::borrow::Cow;
use std::fmt::Write as _;

use llmc_host::names::is_invisible;

/// What to do with terminal escape sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ansi {
    /// Leave them out when they are complete: colours say nothing to a model and cost tokens.
    Strip,
    /// Show the escape character, so that nothing of the text is missing.
    Show,
}

/// An escape sequence that is longer than this is not waited for.
const LONGEST_SEQUENCE: usize = 256;

/// The text with every acting character shown as an escape.
///
/// Tab, line feed and CR LF stay. This is for the eye and cannot be reversed: a backslash that was there stays as it is.
pub fn neutralise(text: &str, ansi: Ansi) -> Cow<'_, str> {
    if !needs_work(text) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    let mut before = None;
    while let Some(c) = rest.chars().next() {
        if ansi == Ansi::Strip
            && let Some(len) = escape_sequence(rest)
        {
            rest = &rest[len..];
            continue;
        }
        let after = &rest[c.len_utf8()..];
        match c {
            '\t' | '\n' => out.push(c),
            '\r' if after.starts_with('\n') => out.push(c),
            '\r' => out.push_str("\\r"),
            c if is_variation_selector(c) && before.is_some_and(|b| !is_variation_selector(b)) => {
                out.push(c);
            }
            c if c.is_ascii_control() => push_fmt(&mut out, format_args!("\\x{:02x}", c as u32)),
            c if acts(c) => push_fmt(&mut out, format_args!("\\u{{{:x}}}", c as u32)),
            c => out.push(c),
        }
        before = Some(c);
        rest = after;
    }
    Cow::Owned(out)
}

/// How much of a text that goes on later can be shown now: what comes after may belong to a sequence or a line end that
/// has only begun.
pub fn finished(text: &str) -> usize {
    let mut at = text.floor_char_boundary(text.len().saturating_sub(LONGEST_SEQUENCE));
    while let Some(found) = text[at..].find(['\u{1b}', '\u{9b}', '\u{9d}', '\u{90}']) {
        let start = at + found;
        match escape_sequence(&text[start..]) {
            Some(len) => at = start + len,
            None if text[start..].contains('\n') => at = text.ceil_char_boundary(start + 1),
            None => return start,
        }
    }
    text.len() - usize::from(text.ends_with('\r'))
}

/// Text that must stay on one line, such as a message inside a receipt: as [`neutralise`], and line ends and tabs too.
pub fn one_line(text: &str) -> Cow<'_, str> {
    let safe = neutralise(text, Ansi::Show);
    if !safe.contains(['\n', '\r', '\t']) {
        return safe;
    }
    let safe = safe.replace("\r\n", "\\r\\n");
    Cow::Owned(safe.replace('\n', "\\n").replace('\t', "\\t"))
}

/// Whether this character acts or hides instead of appearing.
pub(crate) fn acts(c: char) -> bool {
    c.is_control() || is_variation_selector(c) || is_invisible(c)
}

/// One of these after a character picks its form, as in most emoji; a row of them can carry a hidden message.
fn is_variation_selector(c: char) -> bool {
    matches!(c, '\u{fe00}'..='\u{fe0f}')
}

fn needs_work(text: &str) -> bool {
    text.chars().any(|c| !matches!(c, '\t' | '\n') && acts(c))
}

/// The length of the complete escape sequence at the start of the text, if there is one.
fn escape_sequence(text: &str) -> Option<usize> {
    let (intro, kind) = match text.strip_prefix('\u{1b}') {
        Some(rest) => (2, rest.chars().next()?),
        None => (
            2,
            match text.chars().next()? {
                '\u{9b}' => '[',
                '\u{9d}' => ']',
                '\u{90}' => 'P',
                _ => return None,
            },
        ),
    };
    let body = text.get(intro..)?;
    match kind {
        '[' => {
            let end = body.bytes().position(|b| !(0x20..=0x3f).contains(&b))?;
            matches!(body.as_bytes()[end], 0x40..=0x7e).then_some(intro + end + 1)
        }
        // Strings end with BEL or ST, and never run over a line end: past one, the end was lost.
        ']' | 'P' | 'X' | '^' | '_' => {
            let end = body.find(['\u{7}', '\u{1b}', '\u{9c}', '\n'])?;
            let closing = &body[end..];
            if closing.starts_with("\u{1b}\\") || closing.starts_with('\u{9c}') {
                Some(intro + end + 2)
            } else {
                closing.starts_with('\u{7}').then_some(intro + end + 1)
            }
        }
        // Character sets and other three-part sequences.
        ' '..='/' => body
            .starts_with(|c| matches!(c, '0'..='~'))
            .then_some(intro + 1),
        '0'..='~' => Some(intro),
        _ => None,
    }
}

fn push_fmt(out: &mut String, args: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = out.write_fmt(args);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn acting_characters_are_shown() {
        for (text, shown, stripped) in [
            (
                "plain\ttext\r\nline\n",
                "plain\ttext\r\nline\n",
                "plain\ttext\r\nline\n",
            ),
            ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m", "red"),
            ("\x1b]0;title\x07x", "\\x1b]0;title\\x07x", "x"),
            (
                "\x1b]8;;http://a\x1b\\link",
                "\\x1b]8;;http://a\\x1b\\link",
                "link",
            ),
            ("\x1b(Bx\x1bMy", "\\x1b(Bx\\x1bMy", "xy"),
            ("\u{9b}2Jx", "\\u{9b}2Jx", "x"),
            ("cut off \x1b[3", "cut off \\x1b[3", "cut off \\x1b[3"),
            (
                "lost end \x1b]0;a\nb",
                "lost end \\x1b]0;a\nb",
                "lost end \\x1b]0;a\nb",
            ),
            ("over\rwritten", "over\\rwritten", "over\\rwritten"),
            ("a\x00b\x7f", "a\\x00b\\x7f", "a\\x00b\\x7f"),
            ("\u{202e}txt.exe", "\\u{202e}txt.exe", "\\u{202e}txt.exe"),
            (
                "a\u{200b}b\u{e0041}",
                "a\\u{200b}b\\u{e0041}",
                "a\\u{200b}b\\u{e0041}",
            ),
            ("⚠\u{fe0f} ok", "⚠\u{fe0f} ok", "⚠\u{fe0f} ok"),
            (
                "x\u{fe01}\u{fe02}",
                "x\u{fe01}\\u{fe02}",
                "x\u{fe01}\\u{fe02}",
            ),
            ("héllo 日本 \\n", "héllo 日本 \\n", "héllo 日本 \\n"),
        ] {
            assert_eq!(neutralise(text, Ansi::Show), shown, "{text:?}");
            assert_eq!(neutralise(text, Ansi::Strip), stripped, "{text:?}");
        }
    }

    #[test]
    fn what_has_only_begun_is_not_finished() {
        let long = format!("x\x1b]0;{}", "t".repeat(300));
        for (text, finished_to) in [
            ("", 0),
            ("plain", 5),
            ("red\x1b[31m", 8),
            ("red\x1b[3", 3),
            ("red\x1b", 3),
            ("é\x1b]0;title", 2),
            ("é\x1b]0;title\x1b", 2),
            ("é\x1b]0;title\x1b\\", 13),
            ("lost \x1b]0;a\nb", 12),
            ("line\r", 4),
            ("line\r\n", 6),
            (long.as_str(), long.len()),
        ] {
            assert_eq!(finished(text), finished_to, "{text:?}");
        }
    }

    #[test]
    fn one_line_is_one_line() {
        assert_eq!(one_line("a\nb\r\nc\td"), "a\\nb\\r\\nc\\td");
        assert_eq!(one_line("a\u{2028}b"), "a\\u{2028}b");
    }

    proptest! {
        #[test]
        fn nothing_acts_any_more(text in "(\\PC|[\\x00-\\x1f\\x7f-\\x9f]|\u{202e}|\u{200b}|\x1b\\[[0-9;]*m){0,30}") {
            for ansi in [Ansi::Show, Ansi::Strip] {
                let safe = neutralise(&text, ansi).replace("\r\n", "\n");
                let acting = safe
                    .chars()
                    .find(|c| acts(*c) && !is_variation_selector(*c) && !matches!(c, '\t' | '\n'));
                prop_assert_eq!(acting, None);
            }
            prop_assert!(!one_line(&text).contains(['\n', '\r', '\t']));
        }
    }
}
