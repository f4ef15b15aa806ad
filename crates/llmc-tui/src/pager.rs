//! The operator's pager.

use std::ffi::OsString;
use std::path::Path;

/// Used when `$PAGER` is not set.
const DEFAULT_PAGER: &str = "less";

/// Shows a file and waits until the pager ends.
///
/// # Errors
/// The pager does not start or fails.
#[allow(
    clippy::disallowed_methods,
    reason = "the person at the terminal starts it, not an agent"
)]
pub(crate) fn show(file: &Path, pager: Option<OsString>) -> Result<(), String> {
    let words = pager
        .and_then(|pager| pager.into_string().ok())
        .unwrap_or_default();
    let mut words = words.split_whitespace();
    let program = words.next().unwrap_or(DEFAULT_PAGER);
    let status = std::process::Command::new(program)
        .args(words)
        .arg(file)
        .status()
        .map_err(|error| {
            format!("{program} cannot be started ({error}); set PAGER to a pager that can")
        })?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{program}: {status}"))
    }
}
