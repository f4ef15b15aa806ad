//! Every tool, and the one path every call takes.
//!
//! The crate owns what a tool is, every tool, admission, dispatch, the seal and the error table. The three types to know:
//! [`ToolDef`] is one tool, [`App`] runs calls, [`Sealed`] is an answer.
//!
//! - [`ToolDef`]: what a tool is; each implements the trait `Tool`
//! - [`catalog`]: all of them, one file each
//! - [`App`]: the running application; [`App::call`] is the only way to run a tool
//! - [`Error`], [`ErrorKind`]: what can go wrong, and how each surface names it
//! - [`Sealed`]: the answer that the seal makes of a tool's output, which `Render` describes
//! - [`mode`]: which tools an MCP client is listed
//! - [`Processes`]: programs that outlive the call that started them
//! - [`StopTarget`]: what runs now and can be ended; see [`App::activity`]
//! - [`AnalysisShell`]: what the shell may ask of a recursive analysis, and no client
//! - [`ConfinementSummary`]: what holds commands, and what does not, in one line
//! - [`shared_database`]: the database that the servers of a team share
//! - [`state`]: the state directory and its stores, looked at from outside
//! - [`stubs`]: tools as typed Python functions, found by words and explained
//! - [`docs`]: the reference pages, generated
//!
//! Nothing in here knows MCP, HTTP or the command line.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod activity;
mod affected;
mod app;
mod approval;
mod argument_help;
mod arguments;
mod background_recordings;
mod base_inputs;
mod base_view;
mod bootload;
mod budget;
mod call;
mod call_thread;
pub mod catalog;
mod command_keeper;
mod committed;
mod compare;
mod confinement;
mod cx;
pub mod docs;
mod embedding;
mod environment_folders;
mod error;
mod handle_access;
mod handle_keeper;
mod history_keeper;
mod history_text;
mod history_view;
mod index_keeper;
mod meant;
pub mod mode;
mod observe;
mod processes;
mod project;
mod rag;
mod reachable;
mod recording;
mod remedy;
mod render;
pub mod resources;
mod rlm;
mod schema;
mod script;
mod seal;
mod servers;
mod shape;
mod shared_audit;
mod shared_store;
pub mod shell;
mod slots;
pub mod state;
pub mod stubs;
mod te;
mod tool;
mod upstreams;

pub use activity::StopTarget;
pub use app::App;
pub use call::{Call, CallOutcome, Progress, nearest};
pub use confinement::ConfinementSummary;
pub use cx::{Caller, Form, Surface, UNKNOWN_AGENT};
pub use error::{Error, ErrorKind, ErrorRow, Family, ROWS, Result};
pub use history_view::{EntryUndo, HistoryQuery};
pub use llmc_gateway::{AskUser, UserQuestion, UserReply};
pub use meant::suggestion;
pub use observe::telemetry_location;
pub use processes::Processes;
pub use render::AnswerImage;
pub use rlm::AnalysisShell;
pub use rlm::useless_model_prefix;
pub use script::look_for_scripts;
pub use seal::{Facts, Sealed};
pub use shared_store::shared_database;
pub use slots::{CallSlot, SlotPool};
pub use tool::{Effect, ToolDef};
pub use upstreams::{InstructionLike, UpstreamSummary, instruction_like, upstream_lists};
