//! The verbs of the command line, one module each.

mod allow;
mod colour;
mod config;
mod config_warnings;
mod dashboard;
mod doctor;
mod health;
mod history;
mod init;
mod install;
mod mcp;
mod pager;
mod rag;
mod rlm;
mod serve;
mod shell;
mod state;
mod store;
mod te;
mod token;
mod tool;
mod tools;
mod trust;
mod tui;
mod upstream;

use std::fmt::Write as _;
use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;

use llmc_config::{ConfigError, ConfigInputs, LoadedConfig, LogLevel};
use llmc_tools::{App, Error, ErrorKind};
use serde_json::{Map, Value};

use crate::cli::{Cli, Common, ConfigVerb, RepoVerb, RlmVerb, StoreVerb, Verb};
use crate::log::{self, LineFormat};

/// Message and exit code of a failed verb.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Failure {
        Failure {
            message: message.into(),
            code: kind.row().exit,
        }
    }

    /// The error's message with the causes that it does not name itself.
    pub(crate) fn from_error(kind: ErrorKind, error: &dyn std::error::Error) -> Failure {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !message.contains(&text) {
                let _ = write!(message, ": {text}");
            }
            cause = error.source();
        }
        Failure::new(kind, message)
    }

    /// Prints the message to standard error.
    pub(crate) fn report(self) -> ExitCode {
        let message = colour::for_terminal(&self.message);
        let _ = writeln!(std::io::stderr(), "llmc: {message}");
        ExitCode::from(self.code)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::from_error(ErrorKind::BadArgs, &error)
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
        Verb::Serve { listen } => serve::run(common, listen),
        Verb::Dashboard(args) => dashboard::run(common, &args),
        Verb::Tool { words } => tool::run(common, &words),
        Verb::Tools { schemas } => tools::run(common, schemas),
        Verb::Doctor { store: true, json } => doctor::run_store(common, json),
        Verb::Doctor { store: false, json } => doctor::run(common, json),
        Verb::Health { url } => health::run(common, url),
        Verb::Rag(verb) => rag::run(common, verb),
        Verb::Rlm(RlmVerb::Query(args)) => rlm::query(common, args),
        Verb::History { list, verb } => history::run(common, &list, verb),
        Verb::Undo(args) => history::undo(common, &args),
        Verb::Tui(args) => tui::run(common, &args),
        Verb::Config(ConfigVerb::Show) => config::show(common),
        Verb::Config(ConfigVerb::Init(args)) | Verb::Init(args) => init::run(common, &args),
        Verb::Trust(args) => trust::run(common, &args),
        Verb::Allow(args) => allow::run(common, &args),
        Verb::State => state::run(common),
        Verb::Install(args) => install::run(common, &args),
        Verb::Upstream(verb) => upstream::run(common, verb),
        Verb::Store(StoreVerb::Migrate) => store::migrate(common),
        Verb::Store(StoreVerb::Audit) => store::audit(common),
        Verb::Token(verb) => token::run(common, verb),
        Verb::Uninstall(args) => install::uninstall(common, &args),
        Verb::Completions { shell } => shell::completions(shell),
        Verb::Man { folder } => shell::man(folder.as_deref()),
        Verb::Config(ConfigVerb::Check) | Verb::Repo(RepoVerb::Validate) => config::check(common),
    }
}

fn load(common: &Common) -> Result<LoadedConfig, Failure> {
    let mut loaded = llmc_config::load(&inputs(common)?)?;
    llmc_tools::look_for_scripts(&mut loaded);
    Ok(loaded)
}

/// What the configuration is read from: flags, environment, current folder.
fn inputs(common: &Common) -> Result<ConfigInputs, Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(ErrorKind::Internal, format!("no current folder: {error}"))
    };
    let mut inputs = ConfigInputs::from_process().map_err(failed)?;
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

/// First steps of `mcp` and `serve`: refuse when switched off, start the log, log the effective configuration.
fn start_server(loaded: &LoadedConfig) -> Result<(), Failure> {
    let config = &loaded.config;
    if !config.mcp.enabled {
        return Err(Failure::new(
            ErrorKind::BadArgs,
            "mcp.enabled is false: the server is switched off",
        ));
    }
    let format = LineFormat::of(config.mcp.observability.log_format);
    log::start(
        format,
        config.mcp.observability.log_level,
        log::LogWriter::Thread,
    );
    if let Err(error) = llmc_exec::hide_process() {
        tracing::warn!(%error, "other processes of this user can read the server's environment");
    }
    let effective: Map<String, Value> = loaded
        .entries()
        .iter()
        .map(|entry| (entry.key.clone(), entry.shown().into()))
        .collect();
    let effective = Value::Object(effective).to_string();
    // Programs that collect logs want the configuration in the first line; people ask for it with --log-level debug.
    let (first, second) = match format {
        LineFormat::Json => (Some(effective), None),
        LineFormat::Text => (None, Some(effective)),
    };
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        mode = config.mcp.mode.as_str(),
        root = %loaded.root.display(),
        file = loaded.file_label(),
        config = first,
        "start"
    );
    if let Some(config) = second {
        tracing::debug!(config, "configuration");
    }
    Ok(())
}

/// Starts the application for a short-lived verb, which logs errors only unless a log level is given.
fn start_quietly(common: &Common) -> Result<Arc<App>, Failure> {
    let loaded = load(common)?;
    let level = if common.log_level.is_some() {
        loaded.config.mcp.observability.log_level
    } else {
        LogLevel::Error
    };
    let format = LineFormat::of(loaded.config.mcp.observability.log_format);
    log::start(format, level, log::LogWriter::Direct);
    Ok(App::start(loaded)?)
}

/// Writes to standard output; a closed pipe is fine, a full disk is an error.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let shown = match out.is_terminal() {
        true => colour::for_terminal(text),
        false => text.into(),
    };
    let text = shown.as_ref();
    let written = out.write_all(text.as_bytes()).and_then(|()| {
        if !text.ends_with('\n') {
            out.write_all(b"\n")?;
        }
        out.flush()
    });
    ignore_closed_pipe(written)
}

/// Refuses what only the user may do where a command of an agent does it, whose changes of the record would be lost.
fn require_user() -> Result<(), Failure> {
    match llmc_exec::is_confined() {
        true => Err(Failure::new(
            ErrorKind::PermissionDenied,
            "an agent's command cannot accept or allow anything: ask the user to run this in a shell of their own",
        )),
        false => Ok(()),
    }
}

/// Asks a question on the terminal; `hint` says what to do without one.
fn confirm(question: &str, hint: &str) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::new(
            ErrorKind::BadArgs,
            format!(
                "nothing was written: standard input is no terminal, so the question cannot be asked\n  hint: {hint}"
            ),
        ));
    }
    let _ = write!(std::io::stderr(), "{question} [y/N] ");
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| Failure::new(ErrorKind::Internal, format!("standard input: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Prints clap's message: help on standard output, errors on standard error.
pub(crate) fn print_clap_error(error: &clap::Error) -> Result<ExitCode, Failure> {
    let written = error.print().and_then(|()| std::io::stdout().flush());
    ignore_closed_pipe(written)?;
    Ok(ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)))
}

fn ignore_closed_pipe(written: std::io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::new(
            ErrorKind::WriteFailed,
            format!("standard output: {error}"),
        )),
        _ => Ok(()),
    }
}
