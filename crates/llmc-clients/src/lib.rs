//! Settings files of MCP clients: where they are, and how one server entry is added, updated or removed.
//!
//! People edit these files by hand and other programs rewrite them. So an edit changes its own entry alone and keeps
//! comments, order and spacing; the result is parsed and compared before anything is written; the old file is copied
//! first; the new one replaces it by a rename; and a file that does not parse is refused, not repaired.
//!
//! This crate prints nothing, asks nothing, and does not know what the server does.
//!
//! The three types to know:
//! - [`Client`]: the clients, their files and formats
//! - [`ServerEntry`]: what is written: a name, a program, its arguments
//! - [`EditPlan`]: a prepared edit, to be shown and then applied
//!
//! [`OtherFileServer`] is an entry that the user may want to retire, [`ClientServer`] any entry of a file.

mod client;
mod edit;
mod entry;
mod error;
mod file;
mod found;
mod json;
mod others;
mod plan;
mod servers;
mod toml;
mod yaml;
mod yaml_servers;

pub use client::{Client, ClientPaths, SettingsFormat, SettingsScope, StartFolder};
pub use entry::{InvalidServerName, ServerEntry};
pub use error::Error;
pub use others::OtherFileServer;
pub use plan::{AppliedEdit, EditPlan, NameConflict, SettingsChange};
pub use servers::ClientServer;
