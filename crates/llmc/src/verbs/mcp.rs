//! `llmc mcp`: serve MCP over standard input and output.

use std::process::ExitCode;

use llmc_server::{McpHandler, Options, serve_stdio};
use llmc_tools::{App, Kind};
use serde_json::{Map, Value};

use super::{Failure, load};
use crate::cli::Common;
use crate::log;

pub(super) fn run(common: &Common) -> Result<ExitCode, Failure> {
    let loaded = load(common)?;
    let config = &loaded.config;
    if !config.mcp.enabled {
        return Err(Failure::new(
            Kind::BadArgs,
            "mcp.enabled is false: this server is switched off",
        ));
    }
    log::start(
        config.mcp.observability.log_format,
        config.mcp.observability.log_level,
    );
    if let Err(error) = llmc_host::exec::hide_process() {
        tracing::warn!(%error, "other processes of this user can read the server's environment");
    }
    let effective: Map<String, Value> = loaded
        .entries()
        .iter()
        .map(|entry| (entry.key.clone(), entry.shown().into()))
        .collect();
    let effective = Value::Object(effective).to_string();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        mode = config.mcp.mode.as_str(),
        root = %loaded.root.display(),
        file = loaded.file_label(),
        config = effective,
        "start"
    );
    let app = App::start(loaded)?;
    app.announce_commands();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("llmc")
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Kind::Internal, format!("no runtime: {error}")))?;
    let ended = runtime.block_on(serve_stdio(
        McpHandler::new(app.clone()),
        Options::default(),
    ));
    // Calls that ignore their cancellation are left behind; what they would have written is not committed.
    runtime.shutdown_background();
    app.processes().close();
    app.observer().close();
    match ended {
        Ok(ended) => {
            tracing::info!(reason = ?ended, "end");
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Err(Failure::new(Kind::Internal, error.to_string())),
    }
}
