//! `llmc serve`: the same tools over HTTP.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use llmc_server::http::{self, Listen, ListeningServer, ServeOutcome};
use llmc_tools::{App, ConfinementSummary, ErrorKind};

use super::{Failure, config_warnings, load, start_server};
use crate::cli::Common;
use crate::log;

pub(super) fn run(common: &Common, listen: Option<Listen>) -> Result<ExitCode, Failure> {
    let loaded = load(common)?;
    start_server(&loaded)?;
    let mode = loaded.config.mcp.mode.as_str();
    // On a socket file there are no foreign names.
    let foreign_hosts = match listen {
        Some(Listen::Unix(_)) => None,
        _ => config_warnings::foreign_hosts(&loaded.config.mcp.server),
    };
    let app = App::start(loaded)?;
    app.announce_commands();
    app.expect_questions();
    app.keep_history();
    app.keep_stubs();
    app.connect_store();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers())
        .thread_name("llmc")
        .enable_all()
        .build()
        .map_err(|error| Failure::new(ErrorKind::Internal, format!("no runtime: {error}")))?;
    app.join_servers();
    let on_start = |started: &ListeningServer| {
        announce(started, mode, ConfinementSummary::confinement(&app));
        if let Some(warning) = &foreign_hosts {
            warn(warning);
        }
    };
    let listen = listen.unwrap_or(Listen::Address);
    runtime.spawn(crate::heap::keep_small(app.clone()));
    let ended = runtime.block_on(http::serve(app.clone(), listen, on_start));
    // Calls that ignore their cancellation are left behind; what they would have written is not committed.
    runtime.shutdown_background();
    app.processes().close();
    app.leave_servers();
    app.finish_recordings();
    app.observer().close();
    let finished = ended?;
    tracing::info!(reason = ?finished, "end");
    Ok(match finished {
        ServeOutcome::Drained | ServeOutcome::Overdue => ExitCode::SUCCESS,
        ServeOutcome::Forced => ExitCode::from(ErrorKind::Cancelled.row().exit),
    })
}

/// A few: tools run on blocking threads.
fn workers() -> usize {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    cores.clamp(2, 8)
}

/// Says what clients would otherwise find out by being refused.
fn warn(warning: &str) {
    tracing::warn!("{warning}");
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        log::flush();
        let _ = writeln!(stderr, "  warning: {warning}\n");
    }
}

/// Prints address and token at any log level: without them no client can connect.
fn announce(started: &ListeningServer, mode: &str, confinement: &str) {
    tracing::info!(
        target: log::ALWAYS,
        url = started.url,
        token = started.token.to_string(),
        mode,
        confinement,
        "listening"
    );
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        log::flush();
        let _ = writeln!(
            stderr,
            "\n  LLMC listens on {}\n  token: {}\n  mode: {mode}\n  commands: {confinement}\n",
            started.url, started.token
        );
    }
}
