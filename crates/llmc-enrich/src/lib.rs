//! Condensers: the output of Unix tools within a token budget, most important lines first.
//!
//! Owns the parsers of what programs print and the ranking of its lines. Must not know MCP, handles or sessions, open a
//! file or start a program: everything is a pure function of bytes.
//!
//! The three types to know: [`Condensed`] is what every condenser returns, an answer that accounts for everything it
//! leaves out; [`Totals`] counts what there was; [`output::CapturedOutput`] is a command's output before condensing.
//!
//! - [`entries`]: found files and listed directories
//! - [`grep`]: matches, definitions first
//! - [`sniff`], [`preview`]: the kind of a file's content, and a preview that fits the kind
//! - [`testrun`]: test runs, as counts and failures
//! - [`diff`]: diffs by file and symbol, and the making of one
//! - [`git`]: output of git
//! - [`logs`]: logs by level and kind of line
//! - [`error_lines`]: lines that look like errors in a text too large to keep
//! - [`run_diff`]: two runs of one command, as what differs between them
//! - [`output`]: any command, by its name or by what it printed
//!
//! Inside, `terminal` reads text as a terminal would leave it, `budget` distributes tokens over lines, and `excerpt` cuts
//! what no condenser knows to head and tail.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod budget;
mod condensed;
pub mod diff;
pub mod entries;
pub mod error_lines;
mod excerpt;
#[cfg(test)]
mod fuzz;
pub mod git;
pub mod grep;
pub mod logs;
pub mod output;
mod place;
pub mod preview;
pub mod run_diff;
pub mod sniff;
mod terminal;
pub mod testrun;

pub use budget::thousands;
pub use condensed::{Condensed, LineGap, Totals};
