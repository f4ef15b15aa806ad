//! Shell completions and manual pages, generated from the definitions behind `--help`.

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;
use llmc_tools::ErrorKind;

use super::{Failure, print};
use crate::cli::Cli;

/// Prints the completions of one shell.
pub(super) fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "llmc", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the page of the whole program, or writes one for each verb into a folder.
pub(super) fn man(folder: Option<&Path>) -> Result<ExitCode, Failure> {
    let Some(folder) = folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command())
            .render(&mut page)
            .map_err(|error| Failure::from_error(ErrorKind::Internal, &error))?;
        print(&String::from_utf8_lossy(&page))?;
        return Ok(ExitCode::SUCCESS);
    };
    let unwritable = |error: std::io::Error| {
        Failure::new(
            ErrorKind::WriteFailed,
            format!("{}: {error}", folder.display()),
        )
    };
    std::fs::create_dir_all(folder).map_err(unwritable)?;
    clap_mangen::generate_to(Cli::command(), folder).map_err(unwritable)?;
    let pages = folder.read_dir().map_err(unwritable)?.count();
    print(&format!("{pages} pages in {}", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}
