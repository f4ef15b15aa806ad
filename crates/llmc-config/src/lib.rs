//! Settings: their declaration, the layers that set them, and the typed [`Config`] that the rest of the program reads.
//!
//! Each setting is declared once, with its type, default, bounds, meaning and environment name. [`load`] merges the
//! command line over the environment over `llmc.toml` over the defaults, remembers where each value came from
//! ([`SettingSource`]), and builds [`Config`] inside a [`LoadedConfig`]. An unknown key, a value of the wrong type or a
//! contradiction between two settings is an error that names the place and what would be right; nothing falls back to
//! a default silently, because a misspelt security switch must not pass.
//!
//! This crate reads one file and asks the file system where it lies. It knows nothing of the other crates, of clap or
//! of logging, and it never holds the value of `LLMC_MCP_TOKEN`.
//!
//! The three types to know: [`Config`] is what other crates read, [`LoadedConfig`] adds where each value came from, and
//! [`SettingSource`] is such a place.
//!
//! - `declarations`: every setting, and nothing else; `spec`: what a declaration can say, and the macro behind it
//! - `choices`: enums for settings with a fixed set of words
//! - `value`: the kinds of values and how TOML or bare text becomes one
//! - `registry`: the declarations as rows, looking them up, the nearest row to a misspelling
//! - `config`: [`Config`] and what follows from single tables
//! - `merge`: layers and their merged values, each with its [`SettingSource`]
//! - `layer_reader`: one layer from a TOML tree; `layers`: the file, the environment, the command line
//! - `locate`: which folder is the workspace and which file is read
//! - `check`: defaults that follow from other settings, contradictions between settings
//! - `load`: all of the above in order
//! - `render`: `config show` and the reference page; `template`: `config init`

#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod check;
mod choices;
mod config;
mod declarations;
mod error;
mod layer_reader;
mod layers;
mod load;
mod locate;
mod merge;
mod paths;
mod registry;
mod render;
mod spec;
mod template;
#[cfg(test)]
mod tests;
mod value;

pub use choices::{
    AuthMode, CachePolicy, ConfigVersion, ConfinementMode, DefaultScope, EmbeddingProvider,
    ExecProfile, LogFormat, LogLevel, Mode, OnTimeout, RlmProfile, ScriptBackend,
};
pub use config::{Config, NamedToken, TokenDigest, TokenProof};
pub use declarations::{
    AgentBudget, AuthConfig, CodeExecutionConfig, DockerConfig, EmbeddingConfig, ExecConfig,
    HandlesConfig, HybridConfig, LinuxOpsConfig, LinuxRootsConfig, LocksConfig, McpConfig,
    ObservabilityConfig, RagConfig, RequestLimitsConfig, ResourcesConfig, RlmConfig,
    RlmPolicyConfig, ServerConfig, SessionConfig, TeConfig, ToolsConfig,
};
pub use error::{ConfigError, ConfigProblem};
pub use load::{ConfigInputs, LoadedConfig, load, workspace_root};
pub use merge::{SettingEntry, SettingSource};
pub use render::{reference_markdown, render_show};
pub use template::{TemplateOptions, template};
