//! `llmc mcp`: serve MCP over standard input and output.

use std::process::ExitCode;

use llmc_server::control::ControlSocket;
use llmc_server::{ConnectionLimits, McpHandler, serve_stdio};
use llmc_tools::{App, ErrorKind};

use super::{Failure, load, start_server};
use crate::cli::Common;

pub(super) fn run(common: &Common) -> Result<ExitCode, Failure> {
    let loaded = load(common)?;
    start_server(&loaded)?;
    let app = App::start(loaded)?;
    app.announce_commands();
    app.keep_stubs();
    app.connect_store();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("llmc")
        .enable_all()
        .build()
        .map_err(|error| Failure::new(ErrorKind::Internal, format!("no runtime: {error}")))?;
    runtime.spawn(crate::heap::keep_small(app.clone()));
    let ended = runtime.block_on(async {
        let _control = ControlSocket::of_stdio(&app);
        serve_stdio(McpHandler::new(app.clone()), ConnectionLimits::default()).await
    });
    // Calls that ignore their cancellation are left behind; what they would have written is not committed.
    runtime.shutdown_background();
    app.processes().close();
    app.finish_recordings();
    app.observer().close();
    match ended {
        Ok(ended) => {
            tracing::info!(reason = ?ended, "end");
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Err(Failure::from_error(ErrorKind::Internal, &error)),
    }
}
