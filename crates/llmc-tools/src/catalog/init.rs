//! `init`: the instructions once more, for clients that drop them, and what they leave out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use llmc_config::Config;
use llmc_envelope::receipt::Receipt;
use llmc_exec::withheld_names;

use crate::cx::{Cx, Surface};
use crate::error::Result;
use crate::mode;
use crate::project::{self, ProjectFacts};
use crate::reachable::{Reach, Route};
use crate::render::{AnswerRoom, Render, Rendition};
use crate::stubs;
use crate::tool::{Effect, Tool};
use crate::upstreams::UpstreamSummary;

pub(super) struct Init;

/// How to use this server.
///
/// The instructions, and what they leave out about tools and workspace.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {}

/// The text that explains server and workspace.
#[derive(Serialize, JsonSchema)]
pub(super) struct Guide(String);

impl Render for Guide {
    fn render(&self, _: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        Ok(Rendition::text(self.0.as_str(), Receipt::new()))
    }
}

impl Tool for Init {
    const NAME: &'static str = "init";
    const ALIASES: &'static [&'static str] = &["00_INIT"];
    const EFFECT: Effect = Effect::Reads;
    type Args = Args;
    type Output = Guide;

    async fn run(cx: &Cx, _: Args) -> Result<Guide> {
        let (facts, scripts) = cx
            .blocking(|cx, cancel| Ok((project::look(cx, cancel), cx.app().script_backend_kind())))
            .await?;
        let mut text = guide(cx.app().config(), &facts, &scripts);
        if stubs_are_reachable(cx.app().config()) {
            text.push_str(&upstream_lines(&cx.app().upstream_summaries()));
        }
        let withheld = withheld_names(&cx.app().command_settings());
        if cx.app().config().mcp.tools.enable_run_cmd && !withheld.is_empty() {
            text.push_str(&withheld_line(&withheld));
        }
        if let Some(ignored) = cx.app().loaded().trust.ignored() {
            text.push_str(&format!("\nconfiguration: {ignored}"));
        }
        Ok(Guide(text))
    }
}

fn guide(config: &Config, facts: &ProjectFacts, scripts: &str) -> String {
    let mut text = mode::instructions(config);
    let in_scripts = script_tools(config);
    if !in_scripts.is_empty() {
        text.push_str("\n\nIn scripts also, as tools.NAME(…), * required:\n");
        text.push_str(&in_scripts.join("\n"));
    }
    text.push_str("\n\nThis workspace:\n");
    if !facts.languages.is_empty() {
        let languages = facts.languages.iter();
        let languages: Vec<String> = languages
            .map(|(name, files)| format!("{name} ({files})"))
            .collect();
        text.push_str(&format!("languages (files): {}\n", languages.join(", ")));
    }
    let tests = facts.test_command.map(|command| command.line);
    text.push_str(&format!("tests: {}", tests.unwrap_or("no known command")));
    if let Some(missing) = facts.missing_test_program() {
        text.push_str(&format!(" ({missing} is not installed)"));
    }
    text.push('\n');
    if !facts.programs.is_empty() {
        text.push_str(&format!("programs found: {}\n", facts.programs.join(", ")));
    }
    if stubs_are_reachable(config) {
        text.push_str(&format!("scripts run in: {scripts}\n"));
    }
    if let Some(why) = &config.without_scripts {
        text.push_str(&format!("no scripts: {why}\n"));
    }
    let off = switched_off(config);
    let off = if off.is_empty() {
        "nothing".to_owned()
    } else {
        off.join(", ")
    };
    text.push_str(&format!("switched off: {off}"));
    text
}

/// Names of variables that are listed.
const MAX_WITHHELD_NAMES: usize = 30;

/// Which of the user's variables commands do not have.
pub(crate) fn withheld_line(names: &[String]) -> String {
    let shown = &names[..names.len().min(MAX_WITHHELD_NAMES)];
    let more = match names.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "\nvariables withheld from commands, as they look like secrets (the user passes one with llmc allow --env NAME): {}{more}",
        shown.join(", ")
    )
}

/// One line for each upstream.
fn upstream_lines(upstreams: &[UpstreamSummary]) -> String {
    let mut text = String::new();
    for upstream in upstreams {
        let name = &upstream.name;
        text.push_str(&match &upstream.missing {
            None => format!(
                "\nserver {name}: {} tools in scripts, tools.{name}.NAME(…); tools.search(\"words\") finds them",
                upstream.tools
            ),
            Some(why) => format!("\nserver {name}: no tools, {why}"),
        });
    }
    text
}

/// One line for each tool that scripts reach and the mode does not list.
fn script_tools(config: &Config) -> Vec<String> {
    let reach = Reach::of(config, Surface::Mcp);
    let tools = stubs::scriptable(config).into_iter();
    tools
        .filter(|tool| reach.route(tool) == Some(Route::Script))
        .map(|tool| format!("{}: {}", tool.signature(), tool.description()))
        .collect()
}

/// Whether the mode lists `execute_code`.
fn stubs_are_reachable(config: &Config) -> bool {
    mode::listing(config)
        .0
        .iter()
        .any(|tool| tool.effect == Effect::Scripts)
}

/// What the operator's configuration takes away.
fn switched_off(config: &Config) -> Vec<&'static str> {
    let mcp = &config.mcp;
    [
        (mcp.tools.read_only, "writing (mcp.tools.read_only)"),
        (
            !mcp.tools.enable_run_cmd,
            "commands (mcp.tools.enable_run_cmd)",
        ),
        (
            !mcp.tools.allow_outbound_network,
            "network for commands (mcp.tools.allow_outbound_network)",
        ),
        (!mcp.rlm.enabled, "rlm_query (mcp.rlm.enabled)"),
    ]
    .into_iter()
    .filter_map(|(off, what)| off.then_some(what))
    .collect()
}

#[cfg(test)]
mod tests {
    use llmc_config::Mode;

    use super::*;
    use crate::project::TestCommand;

    #[test]
    fn the_guide_begins_with_the_instructions_and_tells_the_rest() {
        let facts = ProjectFacts {
            languages: vec![("Rust", 3)],
            test_command: Some(TestCommand {
                line: "cargo test",
                needs: "cargo",
            }),
            programs: vec!["git", "cargo"],
        };
        for mode in Mode::ALL {
            let mut config = Config::default();
            config.mcp.mode = *mode;
            config.mcp.rlm.enabled = false;
            let text = guide(&config, &facts, "Python 3.11");
            assert!(
                text.starts_with(&mode::instructions(&config)),
                "{mode}: {text}"
            );
            for part in [
                "languages (files): Rust (3)\n",
                "tests: cargo test\n",
                "programs found: git, cargo\n",
                "rlm_query (mcp.rlm.enabled)",
            ] {
                assert!(text.contains(part), "{mode}: {text}");
            }
            let scripts = matches!(mode, Mode::Hybrid | Mode::CodeExecution);
            assert_eq!(
                text.contains("\nlinux_fs_move(source*, target*): "),
                scripts,
                "{mode}: {text}"
            );
        }
    }

    #[test]
    fn the_guide_says_that_the_test_program_is_missing() {
        let facts = ProjectFacts {
            test_command: Some(TestCommand {
                line: "python -m pytest",
                needs: "pytest",
            }),
            programs: vec!["git"],
            ..ProjectFacts::default()
        };
        let text = guide(&Config::default(), &facts, "Python 3.11");
        assert!(
            text.contains("tests: python -m pytest (pytest is not installed)\n"),
            "{text}"
        );
    }
}
