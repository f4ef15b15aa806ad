//! What each verb does.

mod config;
mod doctor;
mod mcp;
mod te;
mod tool;
mod tools;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use llmc_config::{Inputs, Loaded, LogLevel};
use llmc_tools::{App, Error, Kind};

use crate::cli::{Cli, Common, ConfigVerb, RepoVerb, Verb};
use crate::log;

/// A verb that did not end well: what to say and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Failure {
        Failure {
            message: message.into(),
            code: kind.row().exit,
        }
    }

    /// Says it on standard error.
    pub(crate) fn report(self) -> ExitCode {
        let _ = writeln!(std::io::stderr(), "llmc: {}", self.message);
        ExitCode::from(self.code)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let hint = error
            .hint
            .map(|hint| format!("\n  hint: {hint}"))
            .unwrap_or_default();
        Failure::new(error.kind, format!("{}{hint}", error.message))
    }
}

pub(crate) fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let common = &cli.common;
    match cli.verb {
        Verb::Mcp => mcp::run(common),
        Verb::Te { words } => te::run(common, &words),
        Verb::Tool { words } => tool::run(common, &words),
        Verb::Tools { schemas } => tools::run(common, schemas),
        Verb::Doctor { json } => doctor::run(common, json),
        Verb::Config(ConfigVerb::Show) => config::show(common),
        Verb::Config(ConfigVerb::Init(args)) | Verb::Init(args) => config::init(common, &args),
        Verb::Config(ConfigVerb::Check) | Verb::Repo(RepoVerb::Validate) => config::check(common),
    }
}

/// Reads the configuration.
fn load(common: &Common) -> Result<Loaded, Failure> {
    let loaded = llmc_config::load(&inputs(common)?);
    loaded.map_err(|error| Failure::new(Kind::BadArgs, error.to_string()))
}

/// What the configuration is read from: flags, environment, current folder.
fn inputs(common: &Common) -> Result<Inputs, Failure> {
    let failed =
        |error: std::io::Error| Failure::new(Kind::Internal, format!("no current folder: {error}"));
    let mut inputs = Inputs::from_process().map_err(failed)?;
    inputs.config_flag.clone_from(&common.config);
    inputs.root_flag.clone_from(&common.root);
    inputs.sets.clone_from(&common.sets);
    let flags = [
        ("mcp.mode", &common.mode),
        ("mcp.server.host", &common.host),
        ("mcp.server.port", &common.port),
        ("mcp.observability.log_level", &common.log_level),
    ];
    inputs.flags = flags
        .into_iter()
        .filter_map(|(key, value)| value.clone().map(|value| (key.to_owned(), value)))
        .collect();
    Ok(inputs)
}

/// Starts the application for a short-lived verb: quiet unless a log level was asked for.
fn start_quietly(common: &Common) -> Result<Arc<App>, Failure> {
    let loaded = load(common)?;
    let level = if common.log_level.is_some() {
        loaded.config.mcp.observability.log_level
    } else {
        LogLevel::Error
    };
    log::start(loaded.config.mcp.observability.log_format, level);
    Ok(App::start(loaded)?)
}

/// Writes to standard output; a reader that went away is fine, a full disk is not.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| {
        if !text.ends_with('\n') {
            out.write_all(b"\n")?;
        }
        out.flush()
    });
    written_or_unread(written)
}

/// What clap has to say: help on standard output, complaints on standard error.
pub(crate) fn say(error: &clap::Error) -> Result<ExitCode, Failure> {
    let written = error.print().and_then(|()| std::io::stdout().flush());
    written_or_unread(written)?;
    Ok(ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)))
}

fn written_or_unread(written: std::io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::new(
            Kind::WriteFailed,
            format!("standard output: {error}"),
        )),
        _ => Ok(()),
    }
}
