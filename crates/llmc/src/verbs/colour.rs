//! Colour on terminals, plain text elsewhere.

use std::ffi::OsStr;
use std::io::IsTerminal;

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
