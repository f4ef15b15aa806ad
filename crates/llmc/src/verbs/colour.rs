//! Colour on terminals, plain text elsewhere; and nothing else that acts on a terminal.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::IsTerminal;

use llmc_host::names::is_invisible;

/// Text that a terminal is about to show, with escapes for what would act on it or hide or reorder parts of it: file names,
/// settings and answers come from others. The program's own colours stay.
pub(crate) fn for_terminal(text: &str) -> Cow<'_, str> {
    let acts = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || is_invisible(c);
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let whole = match colour_bytes(rest) {
            0 if rest.starts_with("\r\n") => 2,
            0 if acts(c) => 0,
            0 => c.len_utf8(),
            bytes => bytes,
        };
        match whole {
            0 => shown.extend(c.escape_unicode()),
            bytes => shown.push_str(&rest[..bytes]),
        }
        rest = &rest[whole.max(c.len_utf8())..];
    }
    Cow::Owned(shown)
}

/// How many bytes the colour has that the text begins with.
fn colour_bytes(text: &str) -> usize {
    let Some(body) = text.strip_prefix("\u{1b}[") else {
        return 0;
    };
    let style = body.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
    match style.starts_with('m') {
        true => text.len() - style.len() + 1,
        false => 0,
    }
}

/// Styles text if standard output takes colour.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint(bool);

impl Paint {
    /// For standard output: on a terminal, unless `NO_COLOR` is set or the terminal is dumb; `CLICOLOR_FORCE` forces it.
    pub(crate) fn stdout() -> Paint {
        let set = |name: &str| {
            std::env::var_os(name)
                .is_some_and(|value| !value.is_empty() && value != OsStr::new("0"))
        };
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let shown = std::io::stdout().is_terminal() && !dumb;
        Paint(!refused && (shown || set("CLICOLOR_FORCE")))
    }

    pub(crate) fn is_on(self) -> bool {
        self.0
    }

    /// Text in a style, by its SGR number.
    pub(crate) fn styled(self, text: &str, style: &str) -> String {
        if self.0 {
            format!("\x1b[{style}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// A unified diff with its added lines green and its removed lines red.
    pub(crate) fn diff(self, diff: &str) -> String {
        let line = |line: &str| {
            let text = line.trim_end_matches('\n');
            let style = match text.as_bytes() {
                [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => "1",
                [b'+', ..] => "32",
                [b'-', ..] => "31",
                [b'@', ..] => "36",
                _ => return line.to_owned(),
            };
            format!("{}{}", self.styled(text, style), &line[text.len()..])
        };
        diff.split_inclusive('\n').map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_colours_act_on_a_terminal() {
        for (text, shown) in [
            ("plain käse\tx\r\n", "plain käse\tx\r\n"),
            (
                "\u{1b}[1;32mgreen\u{1b}[0m\n",
                "\u{1b}[1;32mgreen\u{1b}[0m\n",
            ),
            ("\u{1b}[2Jx\u{1b}]0;t\u{7}", "\\u{1b}[2Jx\\u{1b}]0;t\\u{7}"),
            ("a\u{9b}2Kb\u{202e}c\rd", "a\\u{9b}2Kb\\u{202e}c\\u{d}d"),
            ("\u{1b}[", "\\u{1b}["),
            ("\u{1b}", "\\u{1b}"),
        ] {
            assert_eq!(for_terminal(text), shown);
        }
    }
}
