//! `llmc tui`: the terminal view, and the summary after a task.

use std::process::ExitCode;

use llmc_config::LoadedConfig;
use llmc_observe::TelemetryLocation;
use llmc_server::http::generated_token;
use llmc_tools::{ErrorKind, shared_database, telemetry_location};
use llmc_tui::{
    ActivitySource, ServerAddress, TerminalError, Theme, TuiSetup, WatchTarget, summary_text,
};

use super::health::with_certificate;
use super::{Failure, load, print};
use crate::cli::{Common, TuiArgs};

pub(super) fn run(common: &Common, args: &TuiArgs) -> Result<ExitCode, Failure> {
    let loaded = load(common)?;
    let target = match &args.url {
        Some(address) => server(&loaded, with_certificate(&loaded, address.clone())?)?,
        None => store(&loaded, args)?,
    };
    let state_dir = loaded.state_dir();
    let telemetry = telemetry(&loaded)?;
    let activity = ActivitySource::new(move || {
        llmc_server::control::workspace_activity(&state_dir, telemetry.as_ref())
    });
    let setup = TuiSetup {
        loaded,
        target,
        activity,
        theme: Theme::from_no_color(std::env::var_os("NO_COLOR").as_deref()),
        pager: std::env::var_os("PAGER"),
    };
    if args.summary {
        let summary = setup.target.read_summary();
        let summary = summary.map_err(|error| Failure::from_error(ErrorKind::Internal, &error))?;
        print(&summary_text(&summary, &setup.summary_context()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let exit = llmc_tui::run(setup).map_err(|error| {
        let kind = match error {
            TerminalError::NoTerminal => ErrorKind::BadArgs,
            TerminalError::Io(_) => ErrorKind::Internal,
        };
        Failure::from_error(kind, &error)
    })?;
    let printed = print(&summary_text(&exit.summary, &exit.context));
    if exit.interrupted {
        // Perhaps because there is no terminal any more to print to.
        return Ok(ExitCode::from(ErrorKind::Cancelled.row().exit));
    }
    printed?;
    Ok(ExitCode::SUCCESS)
}

/// The workspace's own record, which every server and shell call in it writes.
fn store(loaded: &LoadedConfig, args: &TuiArgs) -> Result<WatchTarget, Failure> {
    let config = &loaded.config.mcp;
    let not_kept = || {
        let key = if config.observability.enabled {
            "mcp.docker.persist_telemetry"
        } else {
            "mcp.observability.enabled"
        };
        Failure::new(
            ErrorKind::BadArgs,
            format!(
                "{key} is false: calls of this workspace are not recorded\n  hint: set it to true, or watch a running server with --url"
            ),
        )
    };
    if !config.observability.enabled {
        return Err(not_kept());
    }
    match telemetry(loaded)? {
        None => Err(not_kept()),
        Some(location) => Ok(WatchTarget::Telemetry {
            location,
            since: args.since,
            upstreams: llmc_tools::upstream_lists(loaded),
        }),
    }
}

/// Where the calls of this workspace, and of the team's other servers, are recorded.
fn telemetry(loaded: &LoadedConfig) -> Result<Option<TelemetryLocation>, Failure> {
    let database = shared_database(&loaded.config.mcp.store)?;
    let state_dir = loaded.state_dir();
    Ok(telemetry_location(
        &loaded.config,
        Some(&state_dir),
        database.as_ref(),
    ))
}

/// A running server, with the token that it was given or has made.
fn server(loaded: &LoadedConfig, address: ServerAddress) -> Result<WatchTarget, Failure> {
    let token = match std::env::var(&loaded.config.mcp.auth.token_env) {
        Ok(token) if !token.is_empty() => Some(token),
        // A server may require no token; one that does answers 401.
        _ => generated_token(loaded)?,
    };
    Ok(WatchTarget::Server { address, token })
}
