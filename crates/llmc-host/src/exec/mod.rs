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
//! - [`Spec`], [`Finished`], [`Stream`]: one run
//! - [`split_words`]: a command line cut into words, without a shell
//! - [`helper_main`]: what `main` calls first of all
//!
//! Nothing here knows about tools, envelopes or transports, and nothing outside `helper` changes the process it runs in.

mod broker;
mod fds;
mod find;
mod helper;
mod level;
mod outer;
mod plan;
mod programs;
mod protect;
mod quarantine;
mod runner;
mod settings;
mod tmp;
mod tree;
mod words;

pub use helper::helper_main;
pub use level::{Level, Protection};
pub use programs::{Program, Unresolved};
pub use protect::Quarantined;
pub use runner::{Finished, Runner, Spec, Stream};
pub use settings::{Confinement, Limits, Profile, SEARCH_PATH, Settings};
pub use words::split_words;
