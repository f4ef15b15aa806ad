//! Reads what Unix tools print and puts first what matters.
//!
//! - [`Condensed`]: an answer within a token budget that accounts for everything it leaves out
//! - [`entries`]: found files and listed directories
//! - [`grep`]: matches, definitions first
//! - [`sniff`], [`preview`]: what a file holds, and the form in which it says most
//! - [`testrun`]: test runs, as counts and failures
//! - [`diff`]: diffs by file and symbol, and the making of one
//! - [`git`]: what git prints
//! - [`logs`]: logs by level and kind
//! - [`alarms`]: lines that look like errors in a text too large to keep
//! - [`output`]: any command, by its name or by what it printed
//!
//! Inside, `terminal` reads text as a terminal would leave it, `room` deals out token budgets, and `excerpt` cuts
//! what no condenser knows to head and tail.
//!
//! Everything here is a pure function of bytes: nothing opens a file, starts a program or knows MCP.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod alarms;
mod condensed;
pub mod diff;
pub mod entries;
mod excerpt;
pub mod git;
pub mod grep;
pub mod logs;
pub mod output;
mod place;
pub mod preview;
mod room;
pub mod sniff;
mod terminal;
pub mod testrun;

pub use condensed::{Condensed, Totals};
pub use room::thousands;
