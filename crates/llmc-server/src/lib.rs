//! Carries calls over MCP and HTTP: the protocols, and the transports under them.
//!
//! The crate owns rmcp, axum and hyper, and every limit of a connection. It knows no tool by name: the registry in
//! `llmc-tools` says what there is, and `App::call` does it. Its most important types are [`McpHandler`],
//! [`ConnectionLimits`] and [`http`]'s listener.
//!
//! rmcp reads what it can and drops the rest: a broken line gets no answer, the last of two duplicate keys
//! wins, and a client that skips the handshake is refused. Here every line is checked first, every
//! request is answered, and the process ends when its client does.
//!
//! - [`McpHandler`]: tools and resources as MCP requests and results
//! - [`control`]: the sockets by which servers of a workspace, and `llmc dashboard`, reach each other
//! - `approvals`: asks the user about calls of scripts
//! - [`json`]: the strict look at a message before anything else parses it; HTTP bodies use it too
//! - `panic_guard`: a handler's panic becomes an error response
//! - [`http`]: the same tools over HTTP, with REST, metrics and a dashboard beside MCP
//! - `head`: the id of a message that cannot be parsed
//! - `hangup`: notices that the client closed the input while the server does not read it
//! - `line`: bounded lines from a byte stream
//! - `output`: whole lines to a byte stream
//! - [`token_store`]: named tokens in the database that servers share
//! - `transport`: an rmcp transport made of both, also for clients without a handshake
//! - [`parent`]: notices that the process that started the server has exited
//! - [`serve`](mod@serve): one connection from first byte to clean end

#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod approvals;
pub mod control;
#[cfg(test)]
mod fuzz;
mod hangup;
mod head;
pub mod http;
pub mod json;
mod line;
mod mcp;
mod output;
mod panic_guard;
pub mod parent;
pub mod serve;
pub mod token_store;
mod transport;

pub use mcp::McpHandler;
pub use serve::{ConnectionEnd, ConnectionLimits, REVISIONS, ServeError, serve, serve_stdio};
