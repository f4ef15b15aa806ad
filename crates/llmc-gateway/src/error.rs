//! Why an upstream gave no answer.

use std::time::Duration;

/// Characters of an upstream's own words that an error repeats.
const MAX_QUOTED_CHARS: usize = 600;

/// Why an upstream gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("cannot be started: {0}")]
    NotStarted(String),
    #[error("ended before it answered ({how}){said}")]
    Ended {
        how: String,
        /// The last line on its standard error, with a separator before it.
        said: String,
    },
    #[error("no answer within {} s", .0.as_secs())]
    TimedOut(Duration),
    #[error("cancelled")]
    Cancelled,
    /// It answered with a protocol error.
    #[error("{message} (error {code})")]
    Refused { code: i64, message: String },
    /// It does not speak the revision that it was asked in.
    #[error("speaks {} only", .supported.join(", "))]
    OtherRevision { supported: Vec<String> },
    /// What it sent is no MCP.
    #[error("does not speak MCP: {0}")]
    Protocol(String),
    #[error("sent a message of more than {} MiB", .0 >> 20)]
    TooLarge(usize),
    #[error("failed {failures} times in a row and is tried again in {} s: {last}", .wait.as_secs().max(1))]
    Waiting {
        failures: u32,
        wait: Duration,
        last: String,
    },
    /// The user has not accepted this tool as it is now.
    #[error("{0}")]
    Withheld(String),
    #[error("no longer offers {0}")]
    Gone(String),
    /// The record of accepted tools cannot be read or written.
    #[error("{0}")]
    Pins(String),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Whether the connection is of no use any more.
    pub(crate) fn ends_connection(&self) -> bool {
        matches!(
            self,
            Error::NotStarted(_) | Error::Ended { .. } | Error::Protocol(_) | Error::TooLarge(_)
        )
    }
}

/// Text of an upstream as an error repeats it: bounded, on one line, without control characters.
pub(crate) fn quoted(text: &str) -> String {
    let words = text.split_whitespace();
    let mut line = String::new();
    for word in words {
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word.chars().filter(|c| !c.is_control()));
        if line.len() > MAX_QUOTED_CHARS * 4 {
            break;
        }
    }
    match line.char_indices().nth(MAX_QUOTED_CHARS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_is_one_bounded_line() {
        assert_eq!(quoted("a\n\tb\u{7}c  d"), "a bc d");
        let long = quoted(&"x".repeat(1 << 20));
        assert_eq!(long.chars().count(), MAX_QUOTED_CHARS + 1);
    }
}
