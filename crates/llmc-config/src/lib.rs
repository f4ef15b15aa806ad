//! Settings: their declaration, the layers that set them, and the typed [`Config`] that the rest of the program reads.
//!
//! Each setting is declared once, with its type, default, bounds, meaning and environment name. [`load`] merges the
//! command line over the environment over `llmc.toml` over the user's own file over the defaults, leaves out what the
//! workspace's file may not decide without the user's trust ([`ConfigTrust`]), remembers where each value came from
//! ([`SettingSource`]), and builds [`Config`] inside a [`LoadedConfig`]. An unknown key, a value of the wrong type or a
//! contradiction between two settings is an error that names the place and what would be right; nothing falls back to
//! a default silently, because a misspelt security switch must not pass.
//!
//! This crate reads two configuration files and the record of what the user trusts. It knows nothing of the other crates, of clap or
//! of logging, and it never holds the value of `LLMC_MCP_TOKEN`.
//!
//! The three types to know: [`Config`] is what other crates read, [`LoadedConfig`] adds where each value came from, and
//! [`SettingSource`] is such a place.
//!
//! - `declarations`: every setting, and nothing else; `spec`: what a declaration can say, and the macro behind it
//! - `choices`: enums for settings with a fixed set of words
//! - `value`: the kinds of values and how TOML or bare text becomes one
//! - `registry`: the declarations as rows, looking them up, the nearest row to a misspelling
//! - `config`: [`Config`] and what follows from single tables; `upstream`: other MCP servers;
//!   `upstream_edit`: adding one to a file
//! - `merge`: layers and their merged values, each with its [`SettingSource`]
//! - `layer_reader`: one layer from a TOML tree; `layers`: the files, the environment, the command line
//! - `locate`: which folder is the workspace and which files are read; `regular_file`: how they are read
//! - `trust`: whether the workspace's file sets security keys; `trust_store`: what the user has trusted, outside every
//!   workspace; `allowances`: what the user allows commands there
//! - `check`: defaults that follow from other settings, contradictions between settings
//! - `load`: all of the above in order
//! - `render`: `config show` and the reference page; `template`: `config init`

#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod allowances;
mod check;
mod choices;
mod config;
mod declarations;
mod error;
#[cfg(test)]
mod fuzz;
mod layer_reader;
mod layers;
mod load;
mod locate;
mod merge;
mod paths;
mod registry;
mod regular_file;
mod render;
mod spec;
mod state_place;
mod template;
#[cfg(test)]
mod tests;
mod trust;
mod trust_store;
mod upstream;
mod upstream_edit;
mod value;

pub use allowances::{Allowance, Allowances};
pub use choices::{
    AuthMode, CachePolicy, ConfigVersion, ConfinementMode, DefaultScope, EmbeddingProvider,
    ExecProfile, LogFormat, LogLevel, Mode, OnTimeout, RlmProfile, ScriptBackend,
};
pub use config::{Config, NamedToken, TokenDigest, TokenProof};
pub use declarations::{
    AgentBudget, AuthConfig, CodeExecutionConfig, DockerConfig, EmbeddingConfig, ExecConfig,
    HandlesConfig, HistoryConfig, HybridConfig, LinuxOpsConfig, LinuxRootsConfig, LocksConfig,
    McpConfig, ObservabilityConfig, RagConfig, RequestLimitsConfig, ResourcesConfig, RlmConfig,
    RlmPolicyConfig, ServerConfig, SessionConfig, StoreConfig, TeConfig, ToolsConfig,
};
pub use error::{ConfigError, ConfigProblem};
pub use load::{ConfigInputs, LoadedConfig, load, workspace_root};
pub use merge::{SettingEntry, SettingSource};
pub use regular_file::{LinkPolicy, RegularFile, read_regular_file};
pub use render::{reference_markdown, render_show};
pub use template::{TemplateExtent, TemplateOptions, template};
pub use trust::{ConfigTrust, SecuritySetting, TrustState, revoke_trust};
pub use trust_store::{StoreStamp, TrustStore};
pub use upstream::{UpstreamCommand, UpstreamConfig, UpstreamHttp, UpstreamLaunch};
pub use upstream_edit::{with_upstream, without_upstream};
