//! Commands through the Tool Envelope, the same behind every door.
//!
//! - `spool`: the output while it arrives, in bounded memory
//! - `wrap`: what becomes of it
//! - `served`: the `te` that this server starts for a command, and the server's side of it
//! - `foreign`: a `te` that the operator brought
//! - `cli`: the `te` of a shell
//! - [`Flags`]: how `te` is asked; `document`, `report`: how it answers besides text

mod cli;
mod document;
mod flags;
mod foreign;
mod report;
mod run;
mod served;
pub(crate) mod spool;
pub(crate) mod wrap;

pub use cli::{Cli, CliAnswer};
pub use flags::Flags;
pub use report::HELP;
pub(crate) use run::{Asked, answer, call_limit as time_limit, words};
pub(crate) use served::open_store;
pub use served::te_main;
