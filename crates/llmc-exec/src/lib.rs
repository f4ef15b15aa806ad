//! Running the agent's commands inside a real boundary.
//!
//! A list of allowed names says which commands the operator wants; what they can touch is for the kernel to say. So every
//! command is started by a helper, which is this very executable run again with one hidden argument: a fresh,
//! single-threaded process that can enter namespaces and restrict itself without the rules that bind a forked child of
//! a threaded server. The helper is told what to do through the socket that is its standard input, and that socket is
//! also the leash: when the server closes it, or dies, the helper and everything below it die too.
//!
//! - [`Settings`], [`Limits`]: what the operator decided
//! - [`Runner`]: opened once at start; finds out what this kernel really gives, resolves the allowed programs, runs them
//! - [`Level`]: the truth about the confinement, in one line
//! - [`Program`]: an allowed name and the file it stands for
//! - [`Spec`], [`RunReport`], [`Stream`]: one run
//! - [`ExitStatus`]: how a program ended, in the one form that every layer passes on
//! - [`Voice`]: what a run is told while it runs
//! - [`run_plain`]: a user's own command, not confined
//! - [`Process`], [`Manner`]: a run that is talked to and outlives the call that started it
//! - [`aim`]: a process of the host that may be sent a signal
//! - [`run_probes`], [`Probe`]: escape tests against the sandbox
//! - [`check_tool_chains`]: which tool chains are there and start confined
//! - [`is_interpreter`]: programs with which a list of names bounds nothing
//! - [`tool_search_path`], [`user_home`], [`HIDDEN_PLACES`]: the user's tool chains, and the credentials beside them
//! - [`hide_process`]: keeps the server's memory and environment from its user's other processes
//! - [`GitCommand`]: git in a form in which a repository cannot make it run anything
//! - [`split_words`]: a command line cut into words, without a shell
//! - [`Worker`], [`seal`], [`close_inherited`]: this executable once more, as a process that can do nothing but compute
//! - [`helper_main`]: what `main` calls first of all
//!
//! Nothing here knows about tools, envelopes or transports, and nothing outside `helper` changes the process it runs in.

mod broker;
mod converse;
mod ends;
mod environment;
mod exit_status;
mod fds;
mod find;
mod follow;
mod helper;
mod home;
mod interpreters;
mod level;
mod outer;
mod pids;
mod plain;
mod plan;
mod policy;
mod privacy;
mod probe;
mod process;
mod programs;
mod protect;
mod quarantine;
mod redact;
mod ring;
mod runner;
mod search_path;
mod settings;
mod tmp;
mod tool_chains;
mod tree;
mod view;
mod words;
mod worker;

pub use converse::Voice;
pub use environment::is_secret_variable;
pub use exit_status::ExitStatus;
pub use follow::{RunReport, Stream};
pub use helper::helper_main;
pub use home::{HIDDEN_PLACES, user_home};
pub use interpreters::is_interpreter;
pub use level::{Level, Protection};
pub use pids::{Aim, NotKilled, aim, signal_number};
pub use plain::{Sink, run_plain};
pub use plan::LayerStore;
pub use policy::GitCommand;
pub use privacy::hide_process;
pub use probe::{Probe, ProbeResult, run_probes};
pub use process::{Io, Manner, OutputSink, Process, ProcessEnd, Seen, Sent};
pub use programs::{Program, Unresolved};
pub use protect::Quarantined;
pub use runner::{PrivateLayer, RunOwner, Runner, Spec};
pub use search_path::{SYSTEM_SEARCH_PATH, tool_search_path};
pub use settings::{CacheMode, Children, Confinement, Limits, Profile, Settings};
pub use tool_chains::{ToolChain, check_tool_chains};
pub use words::split_words;
pub use worker::{Worker, WorkerEnd, close_inherited, seal};
