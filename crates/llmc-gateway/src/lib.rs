//! Other MCP servers behind this one: connections, their tools as the user accepted them, calls.
//!
//! The crate is an MCP client. It starts servers through `llmc-exec`, confined like commands unless the operator decides
//! otherwise, and only when one of their tools is called. It knows nothing of this program's own tools, of answers or
//! their budgets. What a server says is data: lengths are bounded, text that is repeated in errors is cut to one line.
//!
//! The types to know: [`Upstream`] is one server, [`PinnedTools`] what the user accepted of it, [`UpstreamCall`] what is
//! wanted of it, and [`UpstreamAnswer`] what came back.
//!
//! - `upstream`: starting, stopping, restarting with a growing wait, withholding what was not accepted
//! - `connection`: handshakes of both generations of the protocol, lists, calls
//! - `child`: messages over the standard input and output of a program; `lines`: cutting them; `request`: one of them
//! - `http`: messages to a server at an address, sent by `llmc-model`; `reply_body`: reading its answers; `param_headers`:
//!   arguments that are repeated in headers
//! - `offers`: resources and prompts; `user`: what a server asks the user of a call
//! - `pins`: the record of accepted tools and how a list differs from it; `pin_diff`: the same for a person
//! - `places`: whether a program lies where agents write
//! - `answer`: the result of a call; `tool_names`: names that scripts and clients can use
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod answer;
mod child;
mod connection;
mod error;
#[cfg(test)]
mod fuzz;
mod http;
mod lines;
mod offers;
mod param_headers;
mod pin_diff;
mod pins;
mod places;
mod reply_body;
mod request;
mod tool_names;
mod upstream;
mod user;

pub use answer::{AnswerPart, UpstreamAnswer};
pub use error::{Error, Result};
pub use http::HttpLaunch;
pub use pins::{PinChange, PinnedTools, ToolPin};
pub use places::lies_in;
pub use request::ProgressSink;
pub use tool_names::listed_name;
pub use upstream::{ChildLaunch, Launch, Upstream, UpstreamCall, UpstreamHealth, UpstreamRequest};
pub use user::{AskUser, UserQuestion, UserReply};
