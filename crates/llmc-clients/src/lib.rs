//! Where MCP clients keep their settings, and how one server's entry is put there or taken away.
//!
//! These are files that people write by hand and that other programs rewrite. So an edit touches its own entry alone and
//! keeps comments, order and spacing; it is read back and compared before anything is written; what is there is copied
//! aside first; the new file replaces the old in one step; and whatever is not understood is refused, not repaired.
//!
//! - [`Client`]: the clients, their files, formats and habits
//! - [`Entry`]: what is written: a name, a program, its arguments
//! - [`Plan`]: an edit that has been thought through and not yet made
//!
//! Nothing here prints, asks, or knows what the server does.

mod client;
mod edit;
mod entry;
mod error;
mod file;
mod json;
mod plan;
mod toml;
mod yaml;

pub use client::{Client, Format, Place, Scope, Starts};
pub use entry::{BadName, Entry};
pub use error::Error;
pub use plan::{Applied, Change, Others, Plan};
