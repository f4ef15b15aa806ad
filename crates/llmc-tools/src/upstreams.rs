//! Tools of other MCP servers, offered like this server's own.
//!
//! An upstream's tools become definitions of the same kind as the catalogue's, named `NAME.tool`, so that every surface,
//! every right and every record applies to them without knowing them. They are made of what the user has accepted
//! ([`PinnedTools`]), read when a tool is first looked for: a server with upstreams starts as fast as one without, and no
//! upstream is started before it is called.

mod definition;
mod instructions;
mod output;
mod run;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use llmc_config::{LoadedConfig, UpstreamConfig, UpstreamLaunch};
use llmc_gateway::{PinnedTools, Upstream, UpstreamHealth};
use llmc_observe::UpstreamList;

use crate::app::App;
use crate::catalog;
use crate::error::{Error, Result};
use crate::stubs;
use crate::tool::ToolDef;

pub(crate) use definition::UpstreamTool;
pub use instructions::{InstructionLike, instruction_like};

/// The upstreams of a server.
#[derive(Debug, Default)]
pub(crate) struct Upstreams {
    all: Vec<ConfiguredUpstream>,
    tools: OnceLock<UpstreamTools>,
    lists: OnceLock<Vec<UpstreamList>>,
}

#[derive(Debug)]
struct ConfiguredUpstream {
    config: UpstreamConfig,
    /// Connected by its first call.
    upstream: OnceLock<std::result::Result<Arc<Upstream>, String>>,
}

/// What the user has accepted, as definitions.
#[derive(Debug, Default)]
struct UpstreamTools {
    /// In the order of the configuration and of each server's list.
    all: Vec<&'static ToolDef>,
    promoted: Vec<&'static ToolDef>,
    by_name: HashMap<&'static str, &'static ToolDef>,
    /// Why an upstream offers nothing, by its name.
    missing: Vec<(String, String)>,
}

/// One upstream in short, for people and models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamSummary {
    pub name: String,
    /// How many tools it offers.
    pub tools: usize,
    /// Why it offers none.
    pub missing: Option<String>,
    pub health: UpstreamHealth,
}

impl Upstreams {
    /// Those of the configuration; nothing is read or started.
    ///
    /// # Errors
    /// A name that scripts have for something else.
    pub(crate) fn new(loaded: &LoadedConfig) -> Result<Upstreams> {
        for upstream in &loaded.config.mcp.upstream {
            let name = &upstream.name;
            let dotted = format!("{name}.");
            let mut aliases = catalog::TOOLS.iter().flat_map(|tool| tool.aliases);
            if catalog::find(name).is_some() || aliases.any(|alias| alias.starts_with(&dotted)) {
                return Err(Error::bad_args(format!(
                    "mcp.upstream: the name {name:?} is taken by tools of this server"
                ))
                .hint("give the upstream another name"));
            }
        }
        let upstreams = loaded.config.mcp.upstream.iter();
        let all = upstreams.map(|config| ConfiguredUpstream {
            config: config.clone(),
            upstream: OnceLock::new(),
        });
        Ok(Upstreams {
            all: all.collect(),
            tools: OnceLock::new(),
            lists: OnceLock::new(),
        })
    }

    fn tools(&self, loaded: &LoadedConfig) -> &UpstreamTools {
        self.tools.get_or_init(|| {
            let mut tools = UpstreamTools::default();
            for entry in &self.all {
                tools.add(loaded, &entry.config);
            }
            tools
        })
    }
}

impl UpstreamTools {
    fn add(&mut self, loaded: &LoadedConfig, config: &UpstreamConfig) {
        let pins = match accepted(loaded, config) {
            Ok(pins) => pins,
            Err(why) => {
                tracing::warn!(upstream = config.name, "{why}");
                self.missing.push((config.name.clone(), why));
                return;
            }
        };
        for (pin, function) in pins.tools.iter().zip(pins.functions()) {
            if !config.offers(&pin.name) {
                continue;
            }
            let tool = definition::define(config, pin, &function);
            self.all.push(tool);
            self.by_name.insert(tool.name, tool);
            for alias in tool.aliases {
                self.by_name.entry(*alias).or_insert(tool);
            }
            if config.promotes(&pin.name) {
                let taken =
                    |name: &str| catalog::find(name).is_some() || self.by_name.contains_key(name);
                let listed = definition::promote(tool, taken);
                self.by_name.insert(listed.name, listed);
                self.promoted.push(listed);
            }
        }
        for name in &config.promoted {
            let is_known = pins.tools.iter().any(|pin| &pin.name == name);
            if !name.contains('*') && !is_known {
                tracing::warn!(
                    upstream = config.name,
                    tool = name,
                    "an upstream without this tool is to promote it"
                );
            }
        }
    }
}

fn accepted(
    loaded: &LoadedConfig,
    config: &UpstreamConfig,
) -> std::result::Result<PinnedTools, String> {
    let path = loaded.pin_file(config).map_err(|error| error.to_string())?;
    match PinnedTools::load(&path) {
        Ok(Some(pins)) => Ok(pins),
        Ok(None) => Err(format!(
            "no tool of it is accepted yet; `llmc upstream accept {}` shows and accepts them",
            config.name
        )),
        Err(error) => Err(error.to_string()),
    }
}

/// What the lists of the configured upstreams would cost each conversation, promoted tools left out; none for one that is not
/// accepted.
pub fn upstream_lists(loaded: &LoadedConfig) -> Vec<UpstreamList> {
    let lists = loaded.config.mcp.upstream.iter().map(|config| {
        let pins = accepted(loaded, config).unwrap_or_default();
        let spared = pins.tools.iter().filter(|pin| !config.promotes(&pin.name));
        let tokens = spared.map(|pin| llmc_tokens::count(&pin.listing()) as u64);
        UpstreamList {
            name: config.name.clone(),
            tokens: tokens.sum(),
        }
    });
    lists.collect()
}

impl App {
    /// What [`upstream_lists`] says of this server's upstreams, counted once.
    pub fn upstream_lists(&self) -> &[UpstreamList] {
        let upstreams = self.upstreams();
        upstreams
            .lists
            .get_or_init(|| upstream_lists(self.loaded()))
    }

    /// The tool of that name or alias: one of the catalogue, or one of an upstream.
    pub fn find_tool(&self, name: &str) -> Option<&'static ToolDef> {
        catalog::find(name).or_else(|| {
            let upstreams = self.upstreams();
            if upstreams.all.is_empty() {
                return None;
            }
            upstreams.tools(self.loaded()).by_name.get(name).copied()
        })
    }

    /// Whether a tool is one of an upstream that this server starts as a program.
    pub(crate) fn is_upstream_program(&self, tool: &ToolDef) -> bool {
        tool.origin.is_some_and(|origin| {
            let mut all = self.upstreams().all.iter().map(|entry| &entry.config);
            let own = all.find(|config| config.name == origin.upstream);
            own.is_some_and(|config| matches!(config.launch, UpstreamLaunch::Command(_)))
        })
    }

    /// Every tool of upstreams; rights are checked per call.
    pub(crate) fn upstream_tools(&self) -> &[&'static ToolDef] {
        match self.upstreams().all.is_empty() {
            true => &[],
            false => &self.upstreams().tools(self.loaded()).all,
        }
    }

    /// The tools of upstreams that MCP clients are listed.
    pub(crate) fn promoted_tools(&self) -> &[&'static ToolDef] {
        let upstreams = self.upstreams();
        let promotes = |entry: &ConfiguredUpstream| !entry.config.promoted.is_empty();
        match upstreams.all.iter().any(promotes) {
            true => &upstreams.tools(self.loaded()).promoted,
            false => &[],
        }
    }

    /// Tokens that the promoted tools of an upstream take in a list.
    pub fn promoted_tokens(&self, upstream: &str) -> usize {
        let promoted = self.promoted_tools().iter();
        let own = promoted.filter(|tool| {
            tool.origin
                .is_some_and(|origin| origin.upstream == upstream)
        });
        own.map(|tool| llmc_tokens::count(&tool.listing())).sum()
    }

    /// Every tool that a script may call: those of this server, then those of upstreams.
    pub(crate) fn script_tools(&self) -> Vec<&'static ToolDef> {
        let mut tools = stubs::scriptable(self.config());
        tools.extend(self.upstream_tools());
        tools
    }

    /// Each upstream in short, in the order of the configuration.
    pub fn upstream_summaries(&self) -> Vec<UpstreamSummary> {
        if self.upstreams().all.is_empty() {
            return Vec::new();
        }
        let tools = self.upstreams().tools(self.loaded());
        let summaries = self.upstreams().all.iter().map(|entry| {
            let name = &entry.config.name;
            let own = |tool: &&&ToolDef| tool.origin.is_some_and(|own| &own.upstream == name);
            let missing = tools.missing.iter().find(|(missing, _)| missing == name);
            let upstream = entry.upstream.get().and_then(|made| made.as_ref().ok());
            UpstreamSummary {
                name: name.clone(),
                tools: tools.all.iter().filter(own).count(),
                missing: missing.map(|(_, why)| why.clone()),
                health: upstream
                    .map(|upstream| upstream.health())
                    .unwrap_or_default(),
            }
        });
        summaries.collect()
    }
}
