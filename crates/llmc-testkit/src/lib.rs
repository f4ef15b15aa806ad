//! What tests share: a hermetic workspace, the program as a process, and an MCP client over its pipes.
//!
//! - [`Workspace`]: a temporary folder made from one string, with an outside that holds a canary
//! - [`Process`]: a child whose output is collected and whose end is waited for, never longer than [`PATIENCE`]
//! - [`McpClient`]: JSON-RPC lines to and from `llmc mcp`
//! - [`Screen`]: a program in a terminal, and what that terminal shows
//! - [`ModelServer`]: a scripted language model that speaks three providers' protocols
//! - [`HttpServer`]: `llmc serve` on a free port of loopback, and requests to it byte by byte
//!
//! Nothing here waits without a limit, sleeps to let something happen, or sees the caller's environment. A dev-dependency
//! only; a failure is a panic, which is how a test fails.
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
pub use http::{HttpServer, Reply, read_chunk, read_reply, request};
pub use model::{Asked, ModelServer, Play, Protocol};
pub use process::{Ended, PATIENCE, Process};
pub use screen::Screen;
pub use workspace::Workspace;
