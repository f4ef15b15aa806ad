//! Which tools a mode lists, and the few words that come with it.

use llmc_config::{Config, Mode};

use crate::catalog::{self, TOOLS};
use crate::tool::{Effect, ToolDef};

/// Tools of mode `te`: the core first, then those that `core_only` leaves out.
const TE_CORE: &[&str] = &[
    "te_grep",
    "te_cat",
    "te_find",
    "te_ls",
    "te_head",
    "te_tail",
    "te_handle",
];
const TE_MORE: &[&str] = &["te_rag", "te_explain", "te_diff", "te_git"];

/// What a mode lists, in the catalogue's order, with warnings about names that have no tool and lists that are too long.
pub fn listing(config: &Config) -> (Vec<&'static ToolDef>, Vec<String>) {
    let mut warnings = Vec::new();
    let names: Vec<&str> = match config.mcp.mode {
        Mode::Classic => TOOLS.iter().map(|tool| tool.name).collect(),
        Mode::Te if config.mcp.te.core_only => TE_CORE.to_vec(),
        Mode::Te => [TE_CORE, TE_MORE].concat(),
        Mode::CodeExecution => vec!["read_file", "list_dir", "execute_code", "init"],
        Mode::Hybrid => {
            let hybrid = &config.mcp.hybrid;
            for name in hybrid
                .promoted_tools
                .iter()
                .filter(|name| catalog::find(name).is_none())
            {
                warnings.push(format!(
                    "mcp.hybrid.promoted_tools names {name}, but there is no such tool; skipped"
                ));
            }
            let code = hybrid.include_execute_code.then_some("execute_code");
            let promoted = hybrid.promoted_tools.iter().map(String::as_str);
            ["read_file", "list_dir"]
                .into_iter()
                .chain(promoted)
                .chain(code)
                .chain(["init"])
                .collect()
        }
    };
    let wanted: Vec<&str> = names
        .iter()
        .filter_map(|name| catalog::find(name))
        .map(|tool| tool.name)
        .collect();
    let runs = config.mcp.tools.enable_run_cmd;
    let list: Vec<&ToolDef> = TOOLS
        .iter()
        .filter(|tool| wanted.contains(&tool.name) && (runs || tool.effect != Effect::Runs))
        .collect();
    if config.mcp.mode == Mode::Hybrid {
        let size: usize = list.iter().map(|tool| tool.listing().len()).sum();
        let limit = config.mcp.hybrid.bootstrap_budget_warning;
        if size as u64 > limit {
            warnings.push(format!("the tool list takes {size} characters, more than mcp.hybrid.bootstrap_budget_warning = {limit}"));
        }
    }
    (list, warnings)
}

/// What a model is told once, at the start.
pub fn instructions(mode: Mode) -> &'static str {
    match mode {
        Mode::Hybrid => {
            "LLMC: files and commands of one workspace. Paths are relative to its root. Reads end with a `# LLMC:` line: \
             what was shown, the total, a sha tag. Pass that tag as expected_sha256 when you write or edit, so that no \
             one's change is lost. Whatever is left out is named there, with a handle or an offset that returns it. \
             Prefer linux_fs_edit to rewriting; on NO_MATCH its answer shows the nearest lines."
        }
        Mode::Classic => {
            "LLMC: files and search of one workspace. Paths are relative to its root. Every cut answer names its total and \
             a handle; linux_handle_read returns the rest byte for byte. Reads give a sha tag: pass it as \
             expected_sha256 when you write or edit. Search with linux_search_content before reading whole files."
        }
        Mode::Te => {
            "LLMC Tool Envelope: grep, cat, find, ls, head, tail with ranked, bounded answers. The header between \
             TE_BEGIN_META and TE_END_META gives totals; when truncated, te_handle with its handle returns the rest."
        }
        Mode::CodeExecution => {
            "LLMC: write one short Python program with execute_code instead of many calls; every tool is a function in \
             `tools`. Only what it prints comes back. tools.search(\"words\") finds tools, tools.help(\"name\") explains one."
        }
    }
}
