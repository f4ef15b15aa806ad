//! Test support: a hermetic workspace, the program as a process, and clients for its protocols.
//!
//! Owns everything a test needs to drive the built program from outside. Must not know what a single test checks, and
//! is a dev-dependency only: a failure is a panic.
//!
//! The three types to know: [`TestWorkspace`] is a temporary folder made from one string, with a canary file outside of
//! it; [`TestProcess`] is a child whose output is collected; [`McpClient`] exchanges JSON-RPC lines with `llmc mcp`.
//!
//! - [`ProcessOutput`], [`TEST_TIMEOUT`]: exit status and output of a child; the time limit of every wait
//! - [`TestScreen`]: a program in a terminal, and what that terminal shows
//! - [`ModelServer`]: a scripted language model that speaks three providers' protocols
//! - [`skip`]: what a test says that this machine cannot run
//! - [`HttpServer`]: `llmc serve` on a free port of loopback, and requests to it byte by byte
//!
//! No wait is without a limit, nothing sleeps to let something happen, and no child sees the caller's environment.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "test support: a panic is a failed test, and tests look at files and start programs from outside"
)]

mod client;
mod http;
mod model;
mod process;
mod screen;
mod workspace;

pub use client::{META_2026, McpClient, common_code, error_document};
pub use http::{HttpReply, HttpServer, read_chunk, read_reply, request};
pub use model::{ModelAction, ModelRequest, ModelServer, Protocol};
pub use process::{ProcessOutput, TEST_TIMEOUT, TestProcess};
pub use screen::TestScreen;
pub use workspace::TestWorkspace;

/// Says that a test tries nothing because this machine lacks something; under `CI=true` that is a failure.
#[expect(
    clippy::print_stderr,
    reason = "a skipped test must not look like one that ran"
)]
pub fn skip(missing: &str) {
    let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!ci, "under CI a missing component is a failure: {missing}");
    eprintln!("SKIPPED: {missing}");
}
