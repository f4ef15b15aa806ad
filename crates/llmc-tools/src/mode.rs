//! Which tools a mode lists, and the instructions that come with it.

use llmc_config::{Config, ExecProfile, Mode};
use llmc_enrich::thousands;

use crate::call::nearest;
use crate::catalog::{self, TOOLS};
use crate::cx::Surface;
use crate::reachable::Reach;
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
    let mode = mode_of(config);
    let names: Vec<&str> = match mode {
        Mode::Classic => TOOLS.iter().map(|tool| tool.name).collect(),
        Mode::Te if config.mcp.te.core_only => TE_CORE.to_vec(),
        Mode::Te => [TE_CORE, TE_MORE].concat(),
        Mode::CodeExecution => vec!["read_file", "list_dir", "execute_code", "init"],
        Mode::Hybrid => {
            let hybrid = &config.mcp.hybrid;
            warnings.extend(phantoms(
                "mcp.hybrid.promoted_tools",
                &hybrid.promoted_tools,
            ));
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
    let mut list = enabled(config);
    let has_scripts = config.without_scripts.is_none();
    list.retain(|tool| {
        wanted.contains(&tool.name) && (has_scripts || tool.effect != Effect::Scripts)
    });
    if mode == Mode::Hybrid {
        let size: usize = list.iter().map(|tool| tool.listing().len()).sum();
        let limit = config.mcp.hybrid.bootstrap_budget_warning;
        if size as u64 > limit {
            warnings.push(format!("the tool list takes {size} characters, more than mcp.hybrid.bootstrap_budget_warning = {limit}"));
        }
    }
    let ask = config.mcp.code_execution.ask.iter();
    let own = ask.filter(|name| !is_of_upstream(config, name)).cloned();
    warnings.extend(phantoms("mcp.code_execution.ask", &own.collect::<Vec<_>>()));
    for token in &config.mcp.auth.tokens {
        let key = format!("the list of tools of token {}", token.name);
        let tools = token.tools.as_deref().unwrap_or_default().iter();
        let own = tools.filter(|name| !is_of_upstream(config, name)).cloned();
        warnings.extend(phantoms(&key, &own.collect::<Vec<_>>()));
    }
    (list, warnings)
}

/// The mode in force: without scripts, the mode that consists of them lists what the other one lists beside them.
fn mode_of(config: &Config) -> Mode {
    match config.mcp.mode {
        Mode::CodeExecution if config.without_scripts.is_some() => Mode::Hybrid,
        mode => mode,
    }
}

/// Every tool that the configuration does not switch off, in the catalogue's order.
pub fn enabled(config: &Config) -> Vec<&'static ToolDef> {
    let is_on = |effect: Effect| match effect {
        Effect::Runs => config.mcp.tools.enable_run_cmd,
        Effect::SendsOut => config.mcp.rlm.enabled,
        Effect::Reads
        | Effect::Writes
        | Effect::Scripts
        | Effect::UpstreamReads
        | Effect::UpstreamRuns => true,
    };
    TOOLS.iter().filter(|tool| is_on(tool.effect)).collect()
}

/// Whether a name is that of an upstream's tool, `NAME.tool` or `NAME.*`; which tools there are is known later.
pub fn is_of_upstream(config: &Config, name: &str) -> bool {
    let upstream = name.split_once('.').map(|(upstream, _)| upstream);
    let mut known = config.mcp.upstream.iter();
    known.any(|known| Some(known.name.as_str()) == upstream)
}

/// Names in a list of the configuration that no tool has, each with the one that was probably meant.
fn phantoms(list: &str, names: &[String]) -> Vec<String> {
    let unknown = names.iter().filter(|name| catalog::find(name).is_none());
    unknown
        .map(|name| {
            let meant = nearest(name, TOOLS.iter().map(|tool| tool.name))
                .map(|name| format!("; did you mean {name}?"))
                .unwrap_or_default();
            format!("{list}: there is no tool {name:?}, skipped{meant}")
        })
        .collect()
}

/// The instructions that a model reads once, at the start: the sentences of the mode that name nothing it cannot call.
pub fn instructions(config: &Config) -> String {
    let reach = Reach::of(config, Surface::Mcp);
    let runs_shell = config.mcp.exec.profile != ExecProfile::Restricted;
    let sentences = sentences(mode_of(config));
    let told = sentences.iter().filter(|sentence| {
        reach.unreachable(sentence).is_empty()
            && (runs_shell || !sentence.contains("shell lines"))
            && (reach.has_scripts() || **sentence != SCRIPTS)
    });
    let budget = thousands(config.mcp.te.budget_tokens);
    let text = told.copied().collect::<Vec<_>>().join(" ");
    text.replace("{budget}", &budget)
}

const THREE_CALLS: &str =
    "Most tasks take two or three calls: look; edit, test and show the diff; review.";
const THREE_SCRIPTS: &str =
    "Most tasks take two or three execute_code scripts: look; edit, test and show the diff.";
const SCRIPTS: &str =
    "Their open and subprocess work on the workspace; tools are functions that raise on failure.";
const LOOK: &str = "tools.look(\"words or names\", budget=3000) gives definitions and callers.";
const TESTS: &str = "tools.run_tests(affected=True) runs tests of your change.";
const COMPARE: &str = "tools.run_compare(line) names tests newly failing since HEAD, and new ones failing without the change.";
const SCRIPT_COMMANDS: &str = "tools.run_cmd(line) has .stdout, .exit_code and never raises.";
const SEARCH: &str = "tools.search(\"words\") finds more.";
const LONGER: &str = "max_tokens=N allows over {budget} tokens.";
const SHELL_LINES: &str = "run_cmd takes shell lines.";
const EDITS: &str = "linux_fs_edit wants the exact old text.";
const CUT_ANSWERS: &str =
    "Answers over {budget} tokens lose their middle; the last line names the call for it.";

fn sentences(mode: Mode) -> &'static [&'static str] {
    match mode {
        Mode::Hybrid => &[
            "LLMC: paths are relative to the workspace.",
            THREE_SCRIPTS,
            SCRIPTS,
            LOOK,
            TESTS,
            COMPARE,
            SCRIPT_COMMANDS,
            SEARCH,
            LONGER,
        ],
        Mode::Classic => &[
            "LLMC: files, search, commands and code retrieval of one workspace; paths are relative to its root.",
            THREE_CALLS,
            "execute_code does several steps in one call.",
            "Find code with te_grep or rag_search before reading whole files.",
            SHELL_LINES,
            EDITS,
            "Reads give a sha tag; as expected_sha256 of a write or edit it protects changes by others.",
            CUT_ANSWERS,
        ],
        Mode::Te => &[
            "LLMC Tool Envelope: te_grep, te_cat, te_find, te_ls, te_head, te_tail with ranked, bounded answers; paths are \
             relative to the workspace root.",
            "A header between TE_BEGIN_META and TE_END_META says what was left out, and te_handle with its handle returns \
             it.",
        ],
        Mode::CodeExecution => &[
            "LLMC: one workspace for Python scripts; paths are relative to its root.",
            THREE_SCRIPTS,
            SCRIPTS,
            LOOK,
            TESTS,
            COMPARE,
            SCRIPT_COMMANDS,
            SEARCH,
            LONGER,
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hybrid(promoted: &[&str]) -> Config {
        let mut config = Config::default();
        config.mcp.mode = Mode::Hybrid;
        config.mcp.hybrid.promoted_tools = promoted.iter().map(|&name| name.to_owned()).collect();
        config
    }

    fn names(config: &Config) -> Vec<&'static str> {
        listing(config).0.iter().map(|tool| tool.name).collect()
    }

    #[test]
    fn promoted_tools_are_listed_once_in_the_catalogues_order() {
        let config = hybrid(&["te_grep", "read_file", "linux.fs_move", "te_grep"]);
        let listed = names(&config);
        let wanted = ["read_file", "list_dir", "linux_fs_move", "te_grep"];
        assert_eq!(listed[..4], wanted);
        assert_eq!(listed.last(), Some(&"init"));
        assert!(names(&hybrid(&[])).starts_with(&["read_file", "list_dir"]));
        let mut without = hybrid(&["te_grep"]);
        without.mcp.hybrid.include_execute_code = false;
        assert!(!names(&without).contains(&"execute_code"));
        assert!(!instructions(&without).contains("execute_code"));
        assert!(instructions(&config).contains("execute_code"));
        for mode in Mode::ALL {
            let mut without = config.clone();
            without.mcp.mode = *mode;
            without.without_scripts = Some("there is no python3".to_owned());
            assert!(!names(&without).contains(&"execute_code"), "{mode}");
            let said = instructions(&without);
            for word in ["execute_code", "script", "subprocess"] {
                assert!(!said.contains(word), "{mode}: {said}");
            }
        }
    }

    #[test]
    fn a_name_without_a_tool_is_a_warning_that_names_the_nearest() {
        let (_, warnings) = listing(&hybrid(&["linux_fs_wriet", "xyzzy", "run_cmd"]));
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(
            warnings[0].contains("linux_fs_wriet")
                && warnings[0].contains("did you mean linux_fs_write?")
        );
        assert!(warnings[1].contains("xyzzy") && !warnings[1].contains("did you mean"));
        assert_eq!(listing(&Config::default()).1, [""; 0]);
    }

    #[test]
    fn the_budget_is_measured_on_all_that_a_model_is_sent() {
        let mut config = hybrid(&["linux_fs_write"]);
        let list = listing(&config).0;
        let sent: usize = list.iter().map(|tool| tool.listing().len()).sum();
        let schemas: usize = list
            .iter()
            .map(|tool| {
                serde_json::Value::Object(tool.schema().clone())
                    .to_string()
                    .len()
            })
            .sum();
        assert!(sent > schemas);
        for (limit, warned) in [(sent, 0), (sent - 1, 1), (schemas, 1)] {
            config.mcp.hybrid.bootstrap_budget_warning = limit as u64;
            let warnings = listing(&config).1;
            assert_eq!(warnings.len(), warned, "{limit}: {warnings:?}");
        }
    }

    #[test]
    fn commands_that_are_switched_off_are_not_listed_in_any_mode() {
        for mode in Mode::ALL {
            let mut config = Config::default();
            config.mcp.mode = *mode;
            config.mcp.tools.enable_run_cmd = false;
            let (list, _) = listing(&config);
            assert!(
                list.iter().all(|tool| tool.effect != Effect::Runs),
                "{mode}"
            );
        }
    }
}
