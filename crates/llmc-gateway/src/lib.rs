//! Other MCP servers behind this one: connections, their tools as the user accepted them, calls.
//!
//! The crate is an MCP client. It starts servers through `llmc-exec`, confined like commands unless the operator decides
//! otherwise, and only when one of their tools is called. It knows nothing of this program's own tools, of answers or
//! their budgets. What a server says is data: lengths are bounded, text that is repeated in errors is cut to one line.
//!
//! The two types to know: [`PinnedTools`] is what the user accepted of a server, and [`UpstreamAnswer`] what one of its
//! tools returned.
//!
//! - `request`: one request and its answer; `lines`: messages off a stream
//! - `pins`: the record of accepted tools and how a list differs from it; `pin_diff`: the same for a person
//! - `answer`: the result of a call; `tool_names`: names that scripts and clients can use
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod answer;
mod error;
mod lines;
mod pin_diff;
mod pins;
mod request;
mod tool_names;

pub use answer::{AnswerPart, UpstreamAnswer};
pub use error::{Error, Result};
pub use pins::{PinChange, PinnedTools, ToolPin};
pub use request::ProgressSink;
pub use tool_names::listed_name;
