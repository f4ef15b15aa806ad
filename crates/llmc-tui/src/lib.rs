//! The live picture in a terminal, and the summary after a task.
//!
//! - [`Setup`], [`run`]: the screen, from the first look to the terminal given back
//! - [`Feed`]: where calls come from: the workspace's telemetry, or a server's event stream
//! - [`Seen`], [`Picture`]: one finished call, and all of them added up
//! - [`State`]: what is on the screen; keys and news go in, at most one [`Action`] comes out
//! - [`draw`]: a state as cells; knows no terminal
//! - [`summary`]: the same as plain text
//!
//! Texts that others wrote (arguments, agents, paths) are made legible when they come in, in [`Seen`] and [`Picture`], so
//! nothing that acts on a terminal can reach one. This crate writes to the terminal and nothing else: it watches files it
//! never changes, and what it runs again goes through `App::call` like any other call.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod again;
mod feed;
mod keys;
mod live;
mod pager;
mod picture;
mod screen;
mod seen;
mod state;
mod summary;
mod tally;
mod text;
mod theme;
mod view;

pub use again::Again;
pub use feed::{Address, BadAddress, Feed, News, Since, health};
pub use keys::Key;
pub use live::{Ended, Setup, run};
pub use picture::{Picture, SessionLine, Slow, Step, Sums, ToolLine};
pub use screen::Failed;
pub use seen::Seen;
pub use state::{Action, State};
pub use summary::{Context, summary};
pub use theme::Theme;
pub use view::draw;
