//! The one place where configuration exists.
//!
//! Every setting is a row of [`KEYS`]: its path, type, default, meaning and environment name. Loading merges the
//! command line over the environment over `llmc.toml` over those defaults, remembers where each value came from, and
//! only then builds the typed [`Config`] that the rest of the program reads. A key nobody knows, a value of the wrong
//! type or a contradiction between two keys is an error that says where it stands and what would be right; nothing
//! falls back to a default silently, because a misspelt security switch must not pass.
//!
//! - `table`: the list of keys, and nothing but the list
//! - [`keys`](Key): what a row says, looking rows up, the nearest row to a misspelling
//! - [`value`](Kind): the types a value may have and how TOML or bare text becomes one
//! - `choices`: enums for keys with a fixed set of words
//! - `types`: the structs that mirror the TOML tables; `read`: how a field gets its value
//! - `settings`: merged values with their [`Source`]
//! - `reader`: one layer from a TOML tree; `layers`: the file, the environment, the command line
//! - `locate`: which folder is the workspace and which file is read
//! - `check`: defaults that follow from other keys, contradictions between keys
//! - `load`: all of the above in order
//! - `render`: `config show` and the reference page; `template`: `config init`
//!
//! This crate reads one file and asks the file system where it lies. It knows nothing of the other crates, of clap or
//! of logging, and it never holds the value of `LLMC_MCP_TOKEN`.

#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod check;
mod choices;
mod error;
mod keys;
mod layers;
mod load;
mod locate;
mod paths;
mod read;
mod reader;
mod render;
mod settings;
mod table;
mod template;
#[cfg(test)]
mod tests;
mod types;
mod value;

pub use choices::{
    AuthMode, CachePolicy, Confinement, EmbeddingProvider, ExecProfile, LogFormat, LogLevel, Mode,
    OnTimeout, RlmProfile, Scope, ScriptBackend, UnknownChoice,
};
pub use error::{ConfigError, Problem};
pub use keys::{Initial, Key, find, nearest};
pub use load::{Inputs, Loaded, load, workspace_root};
pub use paths::expand_home;
pub use render::{reference_markdown, render_show};
pub use settings::{Entry, Source};
pub use table::{KEYS, SECTIONS};
pub use template::{TemplateOpts, template};
pub use types::{
    AgentBudget, Auth, CodeExecution, Config, Docker, Embedding, Exec, Handles, Hybrid, Limits,
    LinuxOps, LinuxRoots, Locks, Mcp, McpRlm, NamedToken, Observability, Rag, Resources, Rlm,
    Server, Session, Te, TokenDigest, TokenProof, Tools,
};
pub use value::{Kind, Shape};
