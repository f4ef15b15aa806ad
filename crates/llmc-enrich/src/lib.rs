//! Reads what Unix tools print and puts first what matters.
//!
//! - [`Condensed`]: an answer within a token budget that accounts for everything it leaves out
//! - [`entries`]: found files and listed directories
//! - [`grep`]: matches, definitions first
//! - [`sniff`], [`preview`]: what a file holds, and the form in which it says most
//! - [`syntax`]: what a source file defines, by its syntax tree
//!
//! Everything here is a pure function of bytes: nothing opens a file, starts a program or knows MCP.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod condensed;
pub mod entries;
pub mod grep;
mod place;
pub mod preview;
pub mod sniff;
pub mod syntax;

pub use condensed::{Condensed, Totals};
