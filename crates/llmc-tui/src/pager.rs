//! The operator's own pager, on the operator's own terminal.

use std::ffi::OsString;
use std::path::Path;

/// Used when `$PAGER` says nothing.
const DEFAULT: &str = "less";

/// Shows a file and waits until it is left.
///
/// # Errors
/// The pager does not start or fails; says so in words.
#[allow(
    clippy::disallowed_methods,
    reason = "a program of the person at the terminal, not one that an agent asked for"
)]
pub(crate) fn show(file: &Path, pager: Option<OsString>) -> Result<(), String> {
    let words = pager
        .and_then(|pager| pager.into_string().ok())
        .unwrap_or_default();
    let mut words = words.split_whitespace();
    let program = words.next().unwrap_or(DEFAULT);
    let status = std::process::Command::new(program)
        .args(words)
        .arg(file)
        .status()
        .map_err(|error| {
            format!("{program} does not start ({error}); set PAGER to one that does")
        })?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{program}: {status}"))
    }
}
