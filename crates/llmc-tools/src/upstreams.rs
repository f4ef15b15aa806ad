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

pub(crate) use definition::{UpstreamFunction, UpstreamTool};
pub use instructions::{InstructionLike, instruction_like};

/// The upstreams of a server. What was accepted of one is read when that one is looked at.
#[derive(Debug, Default)]
pub(crate) struct Upstreams {
    all: Vec<ConfiguredUpstream>,
    /// The tools of all.
    tools: OnceLock<Vec<&'static ToolDef>>,
    /// Those that MCP clients are listed.
    promoted: OnceLock<Vec<&'static ToolDef>>,
    lists: OnceLock<Vec<UpstreamList>>,
}

#[derive(Debug)]
struct ConfiguredUpstream {
    config: UpstreamConfig,
    tools: OnceLock<UpstreamTools>,
    /// Connected by its first call.
    upstream: OnceLock<std::result::Result<Arc<Upstream>, String>>,
}

/// What the user has accepted of one upstream, as definitions.
#[derive(Debug, Default)]
struct UpstreamTools {
    /// In the order of the server's list.
    all: Vec<&'static ToolDef>,
    by_name: HashMap<&'static str, &'static ToolDef>,
    /// Those to promote.
    promoted: Vec<&'static ToolDef>,
    /// Why there are none.
    missing: Option<String>,
}

/// One upstream in short, for people and models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamSummary {
    pub name: String,
    /// How many tools it offers; functions for its resources and prompts are none.
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
            tools: OnceLock::new(),
            upstream: OnceLock::new(),
        });
        Ok(Upstreams {
            all: all.collect(),
            ..Upstreams::default()
        })
    }

    fn find(&self, name: &str) -> Option<&ConfiguredUpstream> {
        self.all.iter().find(|entry| entry.config.name == name)
    }

    /// The tools of all, in the order of the configuration.
    fn tools(&self, loaded: &LoadedConfig) -> &[&'static ToolDef] {
        self.tools.get_or_init(|| {
            let each = self.all.iter().map(|entry| &entry.tools(loaded).all);
            each.flatten().copied().collect()
        })
    }

    /// The tools that MCP clients are listed, each under a name that no other tool has.
    fn promoted(&self, loaded: &LoadedConfig) -> &[&'static ToolDef] {
        self.promoted.get_or_init(|| {
            let promotes = |entry: &&ConfiguredUpstream| !entry.config.promoted.is_empty();
            let entries = self.all.iter().filter(promotes);
            let mut listed: Vec<&'static ToolDef> = Vec::new();
            for tool in entries.flat_map(|entry| &entry.tools(loaded).promoted) {
                let is_taken = |name: &str| {
                    let mut names = listed.iter().map(|tool| tool.name);
                    catalog::find(name).is_some() || names.any(|listed| listed == name)
                };
                listed.push(definition::promote(tool, is_taken));
            }
            listed
        })
    }
}

impl ConfiguredUpstream {
    fn tools(&self, loaded: &LoadedConfig) -> &UpstreamTools {
        self.tools.get_or_init(|| {
            let config = &self.config;
            accepted(loaded, config).map_or_else(
                |why| {
                    tracing::warn!(upstream = config.name, "{why}");
                    UpstreamTools {
                        missing: Some(why),
                        ..UpstreamTools::default()
                    }
                },
                |pins| UpstreamTools::new(config, pins),
            )
        })
    }
}

impl UpstreamTools {
    fn new(config: &UpstreamConfig, pins: PinnedTools) -> UpstreamTools {
        let mut tools = UpstreamTools::default();
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
        let further = UpstreamFunction::of_server(&pins);
        let names: Vec<&str> = further.iter().map(UpstreamFunction::name).collect();
        let mut functions = pins.functions(&names).into_iter();
        for (pin, function) in pins.tools.into_iter().zip(functions.by_ref()) {
            if !config.offers(&pin.name) {
                continue;
            }
            let is_promoted = config.promotes(&pin.name);
            let tool = definition::define(config, pin, &function);
            tools.add(tool);
            tools.promoted.extend(is_promoted.then_some(tool));
        }
        for (of_server, function) in further.into_iter().zip(functions) {
            if config.offers(of_server.name()) {
                tools.add(definition::define_function(config, of_server, &function));
            }
        }
        tools
    }

    fn add(&mut self, tool: &'static ToolDef) {
        self.all.push(tool);
        self.by_name.insert(tool.name, tool);
        for alias in tool.aliases {
            self.by_name.entry(*alias).or_insert(tool);
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
            let Some((upstream, _)) = name.split_once('.') else {
                let mut promoted = self.promoted_tools().iter().copied();
                return promoted.find(|tool| tool.name == name);
            };
            let tools = self.upstreams().find(upstream)?.tools(self.loaded());
            tools.by_name.get(name).copied()
        })
    }

    /// Whether a tool is one of an upstream that this server starts as a program.
    pub(crate) fn is_upstream_program(&self, tool: &ToolDef) -> bool {
        tool.origin.is_some_and(|origin| {
            let own = self.upstreams().find(&origin.upstream);
            own.is_some_and(|entry| matches!(entry.config.launch, UpstreamLaunch::Command(_)))
        })
    }

    /// Whether there are upstreams.
    pub fn has_upstreams(&self) -> bool {
        !self.upstreams().all.is_empty()
    }

    /// Every tool of upstreams; rights are checked per call.
    pub(crate) fn upstream_tools(&self) -> &[&'static ToolDef] {
        self.upstreams().tools(self.loaded())
    }

    /// The tools of upstreams that MCP clients are listed.
    pub(crate) fn promoted_tools(&self) -> &[&'static ToolDef] {
        self.upstreams().promoted(self.loaded())
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
        let summaries = self.upstreams().all.iter().map(|entry| {
            let tools = entry.tools(self.loaded());
            let is_tool = |tool: &&&ToolDef| tool.origin.is_some_and(UpstreamTool::is_tool);
            let upstream = entry.upstream.get().and_then(|made| made.as_ref().ok());
            UpstreamSummary {
                name: entry.config.name.clone(),
                tools: tools.all.iter().filter(is_tool).count(),
                missing: tools.missing.clone(),
                health: upstream
                    .map(|upstream| upstream.health())
                    .unwrap_or_default(),
            }
        });
        summaries.collect()
    }
}
