//! `llmc`: a lean MCP server for coding agents.
//!
//! Parses the command line, layers the configuration, starts one of the verbs. Everything else lives in the crates
//! below: tools and their one call path in `llmc-tools`, MCP in `llmc-server`, files in `llmc-host`.

mod cli;
mod log;
mod verbs;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    // Commands are confined by this executable, started again; that must come before any thread.
    if let Some(code) = llmc_host::exec::helper_main(std::env::args_os()) {
        return code;
    }
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // clap writes help to stdout and complaints to stderr; a closed pipe is no failure.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match verbs::run(cli) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
