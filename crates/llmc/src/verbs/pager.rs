//! Long output in the user's pager, where there is a terminal.

use std::io::{IsTerminal, Write};
use std::process::Stdio;

use super::{Failure, print};

/// The pager where `$PAGER` is not set: ends at once if all fits the screen, and keeps colours.
const DEFAULT_PAGER: [&str; 2] = ["less", "-FRX"];

/// Prints a text; on a terminal, through the pager.
pub(super) fn page(text: &str) -> Result<(), Failure> {
    if !std::io::stdout().is_terminal() || !shown(text) {
        return print(text);
    }
    Ok(())
}

/// Shows a text in the pager; `false` where there is none.
#[allow(
    clippy::disallowed_methods,
    reason = "the person at the terminal starts it, not an agent"
)]
fn shown(text: &str) -> bool {
    let named = std::env::var("PAGER").unwrap_or_default();
    let mut words: Vec<&str> = named.split_whitespace().collect();
    if words.is_empty() {
        words.extend(DEFAULT_PAGER);
    }
    let started = std::process::Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::piped())
        .spawn();
    let Ok(mut pager) = started else {
        return false;
    };
    if let Some(mut input) = pager.stdin.take() {
        // A pager that is quit early reads no more.
        let _ = input.write_all(text.as_bytes());
    }
    pager.wait().is_ok_and(|status| status.success())
}
