//! `llmc te …`: the Tool Envelope on the command line.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser};
use jiff::Timestamp;
use llmc_host::names::escape;
use llmc_observe::{CallFilter, GroupBy, TelemetryAnalysis};
use llmc_tools::shell::{AskedTests, Cli, Flags, HELP};
use llmc_tools::{App, ErrorKind, Form, catalog};
use llmc_tui::Since;
use serde_json::{Map, Value};

use super::{Failure, print, print_clap_error, start_quietly, tool};
use crate::cli::Common;

pub(super) fn run(common: &Common, words: &[String]) -> Result<ExitCode, Failure> {
    if words.first().is_some_and(|word| word == "analyze") {
        return match Analyze::try_parse_from(words) {
            Ok(args) => args.run(common),
            Err(error) => print_clap_error(&error),
        };
    }
    let mut flags = match Flags::parse(words) {
        Ok(flags) => flags,
        Err(error) => {
            if let Ok(app) = start_quietly(common) {
                llmc_tools::shell::record_refused(&app, &error);
            }
            return Err(error.into());
        }
    };
    match flags.command.first().map(String::as_str) {
        Some("rag") => return ask(common, "te_rag", "--query", &flags),
        Some("explain") => return ask(common, "te_explain", "--symbol", &flags),
        // What `te_run` is to an agent.
        Some("run") if flags.command.len() > 1 => drop(flags.command.remove(0)),
        _ => {}
    }
    if let Some(asked) = AskedTests::of(&flags.command)? {
        return test(common, &flags, asked);
    }
    if flags.help {
        print(HELP)?;
        return Ok(ExitCode::SUCCESS);
    }
    if flags.version {
        print(concat!("te ", env!("CARGO_PKG_VERSION")))?;
        return Ok(ExitCode::SUCCESS);
    }
    if flags.preview || flags.compare {
        return on_view(common, &flags);
    }
    let app = start_quietly(common)?;
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    let terminal = out.is_terminal();
    let code = Cli::new(app, &mut out, &mut err, terminal).run(&flags)?;
    Ok(ExitCode::from(code))
}

/// Asks the index, as the tool of that name does; the words after the verb are the question.
fn ask(common: &Common, tool: &str, flag: &str, flags: &Flags) -> Result<ExitCode, Failure> {
    let question = flags.command[1..].join(" ");
    if question.is_empty() {
        let verb = &flags.command[0];
        let message = format!("te {verb}: say what to look for, such as te {verb} parse_header");
        return Err(Failure::new(ErrorKind::BadArgs, message));
    }
    let mut words = vec![tool.to_owned(), format!("{flag}={question}")];
    words.extend(flags.json.then(|| "--json".to_owned()));
    tool::run(common, &words)
}

/// Runs the project's tests, as the tool of that name does, and ends with the runner's exit code.
fn test(common: &Common, flags: &Flags, asked: AskedTests) -> Result<ExitCode, Failure> {
    let mut args = Map::new();
    args.insert("affected".to_owned(), asked.affected.into());
    if let Some(base) = asked.base {
        args.insert("base".to_owned(), base.into());
    }
    let paths = asked.paths;
    args.insert("paths".to_owned(), paths.into());
    let app = start_quietly(common)?;
    let longest = app.config().mcp.exec.max_wait().as_secs();
    args.insert("timeout".to_owned(), longest.into());
    ended_as(&app, "run_tests", args, flags)
}

/// Runs the command on a copy-on-write view, as the tool of that name does, and ends with the command's exit code.
fn on_view(common: &Common, flags: &Flags) -> Result<ExitCode, Failure> {
    let name = match flags.preview {
        true => "run_preview",
        false => "run_compare",
    };
    let app = start_quietly(common)?;
    let mut args = Map::new();
    match flags.command.as_slice() {
        // A line in quotes is for a shell.
        [line] if line.contains(char::is_whitespace) => {
            args.insert("command".to_owned(), line.as_str().into())
        }
        words => args.insert("argv".to_owned(), words.into()),
    };
    if let Some(base) = &flags.base {
        args.insert("base".to_owned(), base.as_str().into());
    }
    if let Some(cwd) = std::env::current_dir()
        .ok()
        .filter(|cwd| cwd.starts_with(app.root()))
    {
        let cwd = escape(cwd.as_os_str().as_encoded_bytes());
        args.insert("cwd".to_owned(), cwd.into());
    }
    ended_as(&app, name, args, flags)
}

/// Calls a tool that runs a command, prints its answer and ends with the command's exit code.
fn ended_as(
    app: &Arc<App>,
    name: &str,
    args: Map<String, Value>,
    flags: &Flags,
) -> Result<ExitCode, Failure> {
    let Some(tool) = catalog::find(name) else {
        return Err(Failure::new(ErrorKind::UnknownTool, name));
    };
    let form = if flags.json { Form::Data } else { Form::Text };
    let outcome = tool::call_on(app, tool, args, form, None)?;
    let code = tool::show(tool, &outcome, flags.json)?;
    let meta = outcome
        .result
        .as_ref()
        .ok()
        .map(|answer| &answer.facts().meta);
    let own = meta
        .and_then(|meta| meta.get("exit_code"))
        .and_then(Value::as_i64);
    Ok(own
        .and_then(|own| u8::try_from(own).ok())
        .map_or(code, ExitCode::from))
}

/// Where tokens go, what condensing saved, and what would be worth condensing next.
#[derive(Debug, Parser)]
#[command(name = "te analyze")]
struct Analyze {
    /// What to add up by: cmd, agent, source, session or model
    #[arg(long, default_value = "cmd", value_parser = group)]
    by: GroupBy,
    /// Only calls since: 90m, 24h, 7d (or 7), or all
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<Since>,
    /// As one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// Where the telemetry is, when `te` itself is asked.
#[derive(Debug, Args)]
struct Place {
    /// Workspace [default: nearest folder upwards with .git, else this one]
    #[arg(long, value_name = "DIR")]
    root: Option<std::path::PathBuf>,
}

impl Analyze {
    fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let mut common = common.clone();
        common.root = self.place.root.or(common.root);
        let app = start_quietly(&common)?;
        let filter = CallFilter {
            since: self.since.map(|since| since.start(Timestamp::now())),
            ..CallFilter::default()
        };
        let analysis =
            TelemetryAnalysis::of(&app.telemetry()?, self.by, &filter, app.upstream_lists())
                .map_err(|error| Failure::from_error(ErrorKind::Internal, &error))?;
        print(&if self.json {
            serde_json::to_string(&analysis)
                .map_err(|error| Failure::from_error(ErrorKind::Internal, &error))?
        } else {
            analysis.text()
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A number alone counts days, as it did before units were read.
fn since(text: &str) -> Result<Since, String> {
    match text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        true => format!("{text}d").parse(),
        false => text.parse(),
    }
}

fn group(text: &str) -> Result<GroupBy, String> {
    GroupBy::parse(text).ok_or_else(|| "one of cmd, agent, source, session, model".to_owned())
}
