//! A server with the tools, resources and prompts that the MCP conformance suite calls by name.
//!
//! It exists so that the suite exercises *our* transport: started without arguments it serves standard input
//! and output with [`llmc_server::serve_stdio`], exactly as the real server does. With `--http` it serves the
//! SDK's Streamable HTTP behind the same check of every message. It never ships.

#![allow(
    deprecated,
    reason = "the older revisions have logging, sampling and roots"
)]

mod handler;
mod http;
mod input_required;
mod prompts;
mod resources;
mod tools;

use std::process::ExitCode;

use handler::Fixture;
use llmc_server::{ConnectionLimits, serve_stdio};

fn main() -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(_) => return ExitCode::FAILURE,
    };
    let ended = runtime.block_on(async {
        if std::env::args().nth(1).as_deref() == Some("--http") {
            http::serve().await.is_ok()
        } else {
            serve_stdio(Fixture::default(), ConnectionLimits::default())
                .await
                .is_ok()
        }
    });
    runtime.shutdown_background();
    if ended {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
