//! Shell completions and manual pages, generated from the definitions behind `--help`.

use std::path::Path;
use std::process::ExitCode;

use clap::Command;
use clap::builder::PossibleValuesParser;
use clap_complete::Shell;
use llmc_config::{LogLevel, Mode};
use llmc_tools::{ErrorKind, catalog};

use super::{Failure, print, tool};
use crate::cli;

/// Prints the completions of one shell: verbs, flags, and the tools with theirs.
pub(super) fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    let mut command = completed(&cli::command()).version(env!("CARGO_PKG_VERSION"));
    clap_complete::generate(shell, &mut command, "llmc", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// A verb with what is worth completing: the flags that it shows, their values, and the verbs below it.
fn completed(verb: &Command) -> Command {
    let about = verb.get_about().cloned().unwrap_or_default();
    // clap keeps names for as long as the program runs, which here is not long.
    let name: &'static str = Box::leak(verb.get_name().to_owned().into_boxed_str());
    let command = Command::new(name).about(about);
    if name == "tool" {
        // A call is parsed by the tool's own schema; here each tool is a verb of its own.
        return command.subcommands(catalog::TOOLS.iter().map(tool::completion));
    }
    let flags = verb.get_arguments().filter(|arg| !arg.is_hide_set());
    let flags = flags.cloned().map(|arg| match arg.get_id().as_str() {
        "mode" => arg.value_parser(PossibleValuesParser::new(Mode::NAMES)),
        "log_level" => arg.value_parser(PossibleValuesParser::new(LogLevel::NAMES)),
        _ => arg,
    });
    command
        .args(flags.map(|arg| arg.global(false)))
        .subcommands(verb.get_subcommands().map(completed))
}

/// Prints the page of the whole program, or writes one for each verb into a folder.
pub(super) fn man(folder: Option<&Path>) -> Result<ExitCode, Failure> {
    let Some(folder) = folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(cli::command())
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
    clap_mangen::generate_to(cli::command(), folder).map_err(unwritable)?;
    let pages = folder.read_dir().map_err(unwritable)?.count();
    print(&format!("{pages} pages in {}", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}
