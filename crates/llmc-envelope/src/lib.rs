//! Turns any result into a bounded, honest answer.
//!
//! Whatever a tool found is either shown whole, or shown in part with a line that counts what is missing and a handle that
//! gives the rest back byte for byte.
//!
//! The three types to know: [`CutLimits`](cut::CutLimits) is the room of an answer, [`Receipt`](receipt::Receipt) the line
//! below it, [`HandleStore`] keeps what it leaves out.
//!
//!
//! - [`cut`]: what fits a token budget, cut between lines.
//! - [`receipt`]: the last line of an incomplete answer, and the escape that keeps content from forging one.
//! - [`te`]: the Tool Envelope's text form, header, body and breadcrumbs.
//! - [`neutral`]: text made safe to show.
//! - [`handles`]: where the rest is stored for later calls.
//! - [`integrity`]: whether a store's file is sound.
//! - [`store`], [`clock`]: SQLite files that survive damage, and the time as stores see it; telemetry uses them too.
//!
//! Nothing in here knows MCP, HTTP or any tool, and nothing reads or writes the agent's files: a handle to a large file
//! keeps the file's [`SourceStamp`](handles::SourceStamp) and leaves the reading to the caller.

#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod clock;
pub mod cut;
#[cfg(test)]
mod fuzz;
pub mod handles;
mod integrity;
pub mod neutral;
pub mod receipt;
pub mod store;
pub mod te;

pub use clock::Clock;
pub use handles::{HandleId, HandleStore};
pub use integrity::integrity;
