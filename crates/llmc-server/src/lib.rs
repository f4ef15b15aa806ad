//! Carries calls over MCP and HTTP: the protocols' side of the tools, and the transports under them.
//!
//! rmcp reads what it can and drops the rest: a broken line gets no answer, the last of two duplicate keys
//! wins, and a client that skips the handshake is turned away. Here every line is checked first, every
//! request is answered, and the process ends when its client does.
//!
//! - [`McpHandler`]: the application's tools and resources as MCP wants them
//! - [`json`]: the strict look at a message before anything else parses it; HTTP bodies use it too
//! - `guard`: panics of a handler as errors to its client
//! - [`http`]: the same tools over HTTP, with REST, metrics and a dashboard beside MCP
//! - `hangup`: noticing that the client closed our input while it is not read
//! - `line`: bounded lines from a byte stream
//! - `output`: whole lines to a byte stream
//! - `transport`: the two joined into an rmcp transport, handshake-less clients included
//! - [`parent`]: noticing that the process which started us is gone
//! - [`serve`](mod@serve): one connection from first byte to clean end
//!
//! No tool is known here by name; the catalogue in `llmc-tools` is all there is.

#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod guard;
mod hangup;
pub mod http;
pub mod json;
mod line;
mod mcp;
mod output;
pub mod parent;
pub mod serve;
mod transport;

pub use mcp::McpHandler;
pub use serve::{Ended, Options, REVISIONS, ServeError, serve, serve_stdio};
