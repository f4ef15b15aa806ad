//! Commands and processes inside their kernel boundary. The only crate that starts programs.
//!
//! A list of allowed names says which programs the operator wants; the kernel decides what they can touch. Every command is
//! started by a helper, which is this executable run again with a hidden argument: a single-threaded process that can
//! enter namespaces and restrict itself, which a forked child of a threaded server cannot. The helper reads its request
//! from the socket that is its standard input. When the server closes that socket, or dies, the kernel kills the helper
//! and every process below it.
//!
//! This crate knows nothing of tools, envelopes or transports, and nothing outside `helper` changes the process it runs in.
//!
//! The three most important types: [`Runner`] finds out at start what this kernel gives, and runs programs; [`ExecRequest`]
//! is one run; [`Process`] is a run that outlives the call that started it.
//!
//! - [`Settings`], [`Limits`]: what the operator decided
//! - [`ConfinementLevel`]: what the kernel enforces, in one line; [`BoundaryFacts`], [`PlaceRule`], [`HiddenFact`]: the rules in
//!   force, which distinguish a refusal from another failure
//! - [`Program`]: an allowed name and the file it stands for
//! - [`RunReport`], [`ExitStatus`], [`Stream`]: the result of a run
//! - [`RunPipes`], [`RunLeash`]: a run that its caller talks to
//! - [`GitAccess`], [`Quarantined`], [`RejectedItem`], [`quarantine_notes`]: what a run may change in git directories, and what was not taken over
//! - [`followed_git_dirs`], [`is_followed`]: git directories outside the roots that the user's own files name
//! - [`LayeredRun`], [`BaseLayer`], [`LayerChanges`]: a run that changes nothing, what it saw, and what it would have changed
//! - [`ProcessOptions`]: how a background process is kept
//! - [`RunOwner`], [`Sessions`], [`SessionPlace`], [`PrivateLayer`]: whose processes a run is among, and whose private folders
//!   it uses
//! - [`tool_search_path`], [`user_home`], [`HIDDEN_PLACES`]: the user's tool chains, and the credentials beside them
//! - [`withheld_names`]: variables of this process that commands do not get because they look like secrets
//! - [`run_probes`], [`Probe`]: escape tests against the sandbox
//! - [`check_tool_chains`]: which tool chains are there and start confined
//! - [`run_plain`]: a user's own command, not confined
//! - [`find_signal_target`]: a process of the host that may be sent a signal
//! - [`is_interpreter`]: programs with which a list of names bounds nothing
//! - [`hide_process`]: keeps the server's memory and environment from its user's other processes
//! - [`GitCommand`]: git in a form in which a repository cannot make it run anything
//! - [`split_words`]: a command line cut into words, without a shell
//! - [`Worker`], [`restrict_to_compute`], [`close_inherited`]: this executable as a process that can only compute
//! - [`helper_main`]: what `main` calls first
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod boundary_facts;
mod broker;
mod cgroup;
mod dir_watch;
mod environment;
mod error;
mod exit_status;
mod fds;
mod follow;
mod git_dirs;
mod git_index;
mod git_mirror;
mod git_new;
mod git_vet;
mod helper;
mod home;
mod host_sockets;
mod interactive;
mod interpreters;
mod layer_changes;
mod layer_limit;
mod layered_run;
mod level;
mod memory;
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
mod protected_dirs;
mod quarantine;
mod redact;
mod ring;
mod runner;
mod search_path;
mod secret_variables;
mod sessions;
mod settings;
mod stdio;
mod tmp;
mod tool_chains;
mod tree;
mod view;
mod word_split;
mod worker;

pub use boundary_facts::{BoundaryFacts, HiddenFact, PlaceRule};
pub use environment::withheld_names;
pub use error::{Error, Result};
pub use exit_status::ExitStatus;
pub use follow::{RunReport, Stream};
pub use git_dirs::{followed_git_dirs, is_followed};
pub use helper::{confines_without_namespaces, helper_main, places_around};
pub use home::{HIDDEN_PLACES, user_home};
pub use interactive::{RunLeash, RunPipes};
pub use interpreters::is_interpreter;
pub use layer_changes::{LayerChange, LayerChanges, LayerEntry, LayerEntryKind};
pub use layered_run::{BaseLayer, LayeredRun};
pub use level::{ConfinementLevel, Protection};
pub use pids::{NotKilled, SignalTarget, find_signal_target, signal_number};
pub use plain::{Sink, run_plain};
pub use plan::LayerStore;
pub use policy::GitCommand;
pub use privacy::{hide_process, is_confined};
pub use probe::{Probe, ProbeResult, run_probes};
pub use process::{
    Io, OutputReader, OutputSink, OutputSlice, Process, ProcessEnd, ProcessOptions, SentInput,
};
pub use programs::{Program, Unresolved};
pub use protect::GitAccess;
pub use quarantine::{Quarantined, RejectedItem, quarantine_notes};
pub use runner::{ExecRequest, PrivateLayer, RunAllowances, RunOwner, Runner, SessionPlace};
pub use search_path::{SYSTEM_SEARCH_PATH, tool_search_path};
pub use sessions::Sessions;
pub use settings::{CacheMode, Children, Confinement, Limits, Profile, Settings};
pub use tool_chains::{ToolChain, check_tool_chains};
pub use word_split::split_words;
pub use worker::{Worker, WorkerEnd, close_inherited, restrict_to_compute};
