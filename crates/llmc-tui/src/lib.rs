//! The terminal view of an agent's calls, and its summary as text.
//!
//! Owns the screen, the keys and the text summary. It must not know how calls are counted ([`llmc_observe`] does that), and
//! it never writes files: it watches a telemetry file or a server, and a call that is run again goes through `App::call`
//! like any other.
//!
//! The three types to know are [`WatchTarget`] (where calls come from), `TuiState` (what is on the screen; keys and updates
//! go in, at most one action comes out) and [`TuiSetup`] (what [`run`] needs). The parts:
//!
//! - `watch`: follows the workspace's telemetry, or a server's event stream, on a thread
//! - `call`: texts from outside made safe to show, as they come in, so that none can control the terminal
//! - `changes`: the history of the workspace's changes
//! - `state`, `view`, `theme`: the screen as data, and as cells
//! - `keys`, `screen`, `live`, `pager`: the terminal and the loop around it
//! - `pages`: agents now, savings, a call's arguments and answer
//! - `rerun`: runs a recorded call again
//! - [`summary_text`]: the summary after a task
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod call;
mod changes;
mod keys;
mod live;
mod pager;
mod pages;
mod rerun;
mod screen;
mod state;
mod summary_text;
mod text;
mod theme;
mod view;
mod watch;

pub use live::{TuiExit, TuiSetup, run};
pub use pages::ActivitySource;
pub use screen::TerminalError;
pub use summary_text::{SummaryContext, summary_text};
pub use theme::Theme;
pub use watch::{AddressError, ServerAddress, Since, WatchError, WatchTarget, fetch_health};
