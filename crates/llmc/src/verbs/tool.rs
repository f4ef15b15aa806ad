//! `llmc tool NAME`: any tool from the shell, with flags read off its schema.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use llmc_envelope::neutral::{Ansi, neutralise};
use llmc_tools::{
    App, Call, CallOutcome, Caller, Error, ErrorKind, Form, Progress, Surface, ToolDef, catalog,
};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::{Failure, print, print_clap_error, start_quietly};
use crate::cli::Common;

/// The flag that takes all of a tool's arguments as JSON.
const ALL_ARGUMENTS: &str = "args";

/// Arguments that are paths, for completion.
const PATHS: [&str; 7] = ["path", "root", "cwd", "source", "target", "a", "b"];

pub(super) fn run(common: &Common, words: &[String]) -> Result<ExitCode, Failure> {
    let Some((name, rest)) = words
        .split_first()
        .filter(|(name, _)| !name.starts_with('-'))
    else {
        let list = catalog::TOOLS
            .iter()
            .map(|tool| format!("  {:<22} {}\n", tool.name, tool.description()));
        let usage = format!(
            "usage: llmc tool NAME [FLAGS]\n\n{}\n`llmc tool NAME --help` lists a tool's flags",
            list.collect::<String>()
        );
        if words.iter().any(|word| word == "--help" || word == "-h") {
            print(&usage)?;
            return Ok(ExitCode::SUCCESS);
        }
        return Err(Failure::new(ErrorKind::UnknownTool, usage));
    };
    // The application knows which tools upstreams have; those of the catalogue need none before their flags are read.
    let app = match catalog::find(name) {
        None if name.contains('.') => Some(start_quietly(common)?),
        _ => None,
    };
    let upstream = || app.as_ref().and_then(|app| app.find_tool(name));
    let Some(tool) = catalog::find(name).or_else(upstream) else {
        let hint = llmc_tools::suggestion(name);
        return Err(Failure::new(
            ErrorKind::UnknownTool,
            format!("unknown tool {name:?}{hint} (llmc tools lists them)"),
        ));
    };
    let command = with_common_flags(command(tool));
    let matches = match command.try_get_matches_from(std::iter::once(name).chain(rest)) {
        Ok(matches) => matches,
        Err(error) => {
            return print_clap_error(&error);
        }
    };
    let args = arguments(tool, &matches)?;
    let given = merged(common, &matches);
    let json = matches.get_flag("json output");
    let form = if json { Form::Data } else { Form::Text };
    let outcome = match &app {
        // Flags behind the name of an upstream's tool count, too.
        Some(app) if given == *common => call_on(app, tool, args, form, None)?,
        _ => call(&given, tool, args, form)?,
    };
    show(tool, &outcome, json)
}

/// Prints an answer, or an error on stderr, and returns the exit code.
pub(super) fn show(tool: &ToolDef, outcome: &CallOutcome, json: bool) -> Result<ExitCode, Failure> {
    match &outcome.result {
        Ok(answer) => {
            print(&if json {
                answer.rest_body(&outcome.correlation_id).to_string()
            } else {
                answer.text().into_owned()
            })?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            report(
                error,
                json.then(|| error.rest_body(tool.family, &outcome.correlation_id)),
            );
            Ok(ExitCode::from(error.kind.row().exit))
        }
    }
}

/// The tool's schema as a command.
fn command(tool: &'static ToolDef) -> Command {
    let mut command = Command::new(tool.name)
        .bin_name(format!("llmc tool {}", tool.name))
        .about(tool.description())
        .arg(
            Arg::new(ALL_ARGUMENTS)
                .long(ALL_ARGUMENTS)
                .value_name("JSON")
                .help("All arguments as one JSON object; flags add to it"),
        )
        .arg(
            Arg::new("json output")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print the REST body instead of the text"),
        );
    if properties(tool).any(|(name, _)| is_required(tool, name)) {
        command = command.after_help("* required");
    }
    for (name, schema) in properties(tool) {
        // clap keeps names for as long as the program runs, which is also how long this one command is needed.
        let id: &'static str = Box::leak(argument_id(name).into_boxed_str());
        let flag: &'static str = Box::leak(name.replace('_', "-").into_boxed_str());
        if flag == ALL_ARGUMENTS {
            // A command's own words stand behind the tool's name, as a shell's user writes them.
            command = command.arg(
                Arg::new(id)
                    .num_args(0..)
                    .trailing_var_arg(true)
                    .allow_hyphen_values(true)
                    .value_name("WORD")
                    .help(help(tool, name)),
            );
            continue;
        }
        let mut arg = Arg::new(id)
            .long(flag)
            .allow_hyphen_values(true)
            .help(help(tool, name));
        if flag != name {
            arg = arg.alias(name.as_str());
        }
        if PATHS.contains(&name.as_str()) {
            arg = arg.value_hint(ValueHint::AnyPath);
        }
        arg = match schema.get("type").and_then(Value::as_str) {
            // What follows a switch is its value only when it is no flag itself.
            Some("boolean") => arg
                .allow_hyphen_values(false)
                .num_args(0..=1)
                .default_missing_value("true")
                .value_name("BOOL"),
            Some("integer" | "number") => arg.value_name("N"),
            Some("array") => arg.action(ArgAction::Append).value_name("TEXT"),
            _ => arg.value_name("TEXT"),
        };
        command = command.arg(arg);
    }
    command
}

/// What a flag is for; a `*` marks those that every call needs.
fn help(tool: &ToolDef, name: &str) -> String {
    let mark = if is_required(tool, name) { "* " } else { "" };
    format!("{mark}{}", tool.argument_help(name))
}

fn is_required(tool: &ToolDef, name: &str) -> bool {
    let required = tool.schema().get("required").and_then(Value::as_array);
    required.is_some_and(|list| list.iter().any(|entry| entry == name))
}

/// The tool's command for completions: with the values that a flag takes.
pub(super) fn completion(tool: &'static ToolDef) -> Command {
    let mut command = command(tool).disable_help_flag(true);
    for (name, schema) in properties(tool) {
        let values = schema.get("enum").and_then(Value::as_array);
        let values: Vec<&'static str> = values
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        if !values.is_empty() {
            command = command.mut_arg(argument_id(name), |arg| {
                arg.value_parser(PossibleValuesParser::new(values))
            });
        }
    }
    command
}

/// Keeps a tool's `config` or `root` argument apart from the common flags of those names.
fn argument_id(name: &str) -> String {
    format!("tool {name}")
}

fn properties(tool: &'static ToolDef) -> impl Iterator<Item = (&'static String, &'static Value)> {
    let properties = tool.schema().get("properties").and_then(Value::as_object);
    properties.into_iter().flatten()
}

/// `--args` and the flags, as one object. Types follow the schema; the tool itself checks the rest.
fn arguments(tool: &'static ToolDef, matches: &ArgMatches) -> Result<Map<String, Value>, Failure> {
    let mut args = match matches.get_one::<String>(ALL_ARGUMENTS) {
        None => Map::new(),
        Some(text) => strict_object(text)?,
    };
    for (name, schema) in properties(tool) {
        let Some(values) = matches.get_many::<String>(&argument_id(name)) else {
            continue;
        };
        let values: Vec<&String> = values.collect();
        let bad = |what: &str, text: &str| {
            Failure::new(
                ErrorKind::BadArgs,
                format!("--{}: {text:?} is not {what}", name.replace('_', "-")),
            )
        };
        let last = values.last().map_or("", |text| text.as_str());
        let value = match schema.get("type").and_then(Value::as_str) {
            Some("boolean") => last
                .parse::<bool>()
                .map_err(|_| bad("true or false", last))?
                .into(),
            Some("integer") => last
                .parse::<i64>()
                .map_err(|_| bad("a whole number", last))?
                .into(),
            Some("number") => last
                .parse::<f64>()
                .ok()
                .filter(|number| number.is_finite())
                .ok_or_else(|| bad("a number", last))?
                .into(),
            Some("array") => values
                .iter()
                .map(|text| Value::from(text.as_str()))
                .collect(),
            _ => last.into(),
        };
        args.insert(name.clone(), value);
    }
    Ok(args)
}

fn strict_object(text: &str) -> Result<Map<String, Value>, Failure> {
    let bad = |why: String| Failure::new(ErrorKind::BadArgs, format!("--args: {why}"));
    llmc_server::json::check(text.as_bytes()).map_err(bad)?;
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(bad("must be a JSON object".to_owned())),
        Err(error) => Err(bad(error.to_string())),
    }
}

/// Adds the common flags whose names the tool leaves free; `--root` of a search is the search's.
fn with_common_flags(command: Command) -> Command {
    let verbs = crate::cli::command();
    let common = verbs.find_subcommand("tool");
    let common = common.into_iter().flat_map(Command::get_arguments);
    let taken: Vec<String> = command
        .get_arguments()
        .filter_map(Arg::get_long)
        .map(str::to_owned)
        .collect();
    let free: Vec<Arg> = common
        .filter(|arg| {
            arg.get_long()
                .is_some_and(|long| !taken.iter().any(|t| t == long))
        })
        .cloned()
        .collect();
    command.args(free)
}

/// Common flags may stand before `tool` or, where the tool has none of that name, after its name.
fn merged(before: &Common, matches: &ArgMatches) -> Common {
    let text = |id: &str| matches.try_get_one::<String>(id).ok().flatten().cloned();
    let path = |id: &str| matches.try_get_one::<PathBuf>(id).ok().flatten().cloned();
    let sets = matches
        .try_get_many::<String>("sets")
        .ok()
        .flatten()
        .into_iter()
        .flatten()
        .cloned();
    Common {
        config: path("config").or_else(|| before.config.clone()),
        root: path("root").or_else(|| before.root.clone()),
        mode: text("mode").or_else(|| before.mode.clone()),
        host: text("host").or_else(|| before.host.clone()),
        port: text("port").or_else(|| before.port.clone()),
        log_level: text("log_level").or_else(|| before.log_level.clone()),
        sets: before.sets.iter().cloned().chain(sets).collect(),
    }
}

pub(super) fn call(
    common: &Common,
    tool: &ToolDef,
    args: Map<String, Value>,
    form: Form,
) -> Result<CallOutcome, Failure> {
    let app = start_quietly(common)?;
    call_on(&app, tool, args, form, None)
}

/// Calls a tool of an application that has been started; Ctrl-C cancels the call.
pub(super) fn call_on(
    app: &Arc<App>,
    tool: &ToolDef,
    args: Map<String, Value>,
    form: Form,
    progress: Option<Progress>,
) -> Result<CallOutcome, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(ErrorKind::Internal, format!("no runtime: {error}")))?;
    let cancel = CancellationToken::new();
    let outcome = runtime.block_on(async {
        let interrupted = cancel.clone();
        tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                interrupted.cancel();
            }
        });
        let caller = Caller {
            form,
            ..Caller::local(Surface::Cli, app)
        };
        let name = tool.name.to_owned();
        app.call(Call {
            name,
            args,
            caller,
            cancel,
            progress,
            correlation_id: None,
            ask_user: None,
            slot: None,
        })
        .await
    });
    runtime.shutdown_background();
    app.processes().close();
    app.finish_recordings();
    app.observer().close();
    Ok(outcome)
}

pub(super) fn report(error: &Error, body: Option<Value>) {
    let text = match body {
        Some(body) => body.to_string(),
        None => {
            let mut text = format!("llmc: {}", error.message);
            if let Some(hint) = &error.hint {
                text.push_str(&format!("\n  hint: {hint}"));
            }
            for (key, words) in [
                ("nearest", "nearest"),
                ("conflicts", "conflicts"),
                ("traceback", "where"),
                ("output", "printed before"),
            ] {
                if let Some(Value::String(said)) = error.extra.get(key) {
                    text.push_str(&format!("\n  {words}:\n{}", said.trim_end_matches('\n')));
                }
            }
            text
        }
    };
    // An error may quote a file, a program or a provider.
    let text = neutralise(&text, Ansi::Show);
    let _ = writeln!(std::io::stderr(), "{text}");
}
