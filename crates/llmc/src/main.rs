//! `llmc`: a lean MCP server for coding agents.
//!
//! Parses the command line, layers the configuration, starts one of the verbs. Everything else lives in the crates
//! below: tools and their one call path in `llmc-tools`, MCP in `llmc-server`, files in `llmc-host`.

mod cli;
mod heap;
mod log;
mod verbs;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::FromArgMatches;

fn main() -> ExitCode {
    // Commands are confined by this executable, started again; that must come before any thread.
    if let Some(code) = llmc_exec::helper_main(std::env::args_os()) {
        return code;
    }
    // Parsers and converters run in it, too, started once more.
    if let Some(code) = llmc_sandbox::worker_main(std::env::args_os()) {
        return code;
    }
    heap::share_between_threads();
    // A write beyond the limit of file sizes must fail, not end the server. A handler, since an ignored signal would
    // stay ignored in the commands that are started.
    let handled = std::sync::Arc::default();
    if let Err(error) = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, handled) {
        tracing::debug!(%error, "no handler for SIGXFSZ");
    }
    llmc_sandbox::parse_in_workers();
    llmc_sandbox::convert_in_workers();
    let done = match parsed() {
        Ok(cli) => verbs::run(cli),
        Err(mut error) => {
            cli::suggest(&mut error);
            verbs::print_clap_error(&error)
        }
    };
    // What was logged comes before the last word.
    log::flush();
    done.unwrap_or_else(verbs::Failure::report)
}

fn parsed() -> Result<cli::Cli, clap::Error> {
    let mut command = cli::command();
    let matches = command.try_get_matches_from_mut(words())?;
    cli::Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// The command line. Started under the name `te`, by a link, this is `llmc te`.
fn words() -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let name = words.first().map(Path::new).and_then(Path::file_name);
    if name == Some("te".as_ref()) {
        words.splice(..1, ["llmc".into(), "te".into()]);
    }
    words
}
