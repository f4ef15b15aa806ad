//! `llmc state`: where the workspace's state is kept.

use std::process::ExitCode;

use super::{Failure, load, print};
use crate::cli::Common;

pub(super) fn run(common: &Common) -> Result<ExitCode, Failure> {
    let dir = load(common)?.state_dir();
    print(&dir.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}
