//! `llmc rlm query`: recursive analysis from the shell.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, IsTerminal, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use llmc_envelope::neutral::{Ansi, neutralise, one_line};
use llmc_rlm::{RecordedTrace, TraceDetail, TraceRecorder};
use llmc_tools::{AnalysisShell, App, ErrorKind, Form, Progress, catalog};
use serde_json::{Map, Value};

use super::{Failure, print, start_quietly, tool};
use crate::cli::{Common, RlmArgs};

const MAX_STDIN_BYTES: u64 = (256 << 20) + 1;
const PROGRESS_REDRAW_INTERVAL: Duration = Duration::from_millis(120);

pub(super) fn query(common: &Common, args: RlmArgs) -> Result<ExitCode, Failure> {
    if args.budget_usd.is_some_and(|budget| !budget.is_finite()) {
        return Err(Failure::new(
            ErrorKind::BadArgs,
            "--budget-usd must be a number of dollars",
        ));
    }
    let Some(definition) = catalog::find("rlm_query") else {
        return Err(Failure::new(ErrorKind::UnknownTool, "no tool rlm_query"));
    };
    let app = start_quietly(common)?;
    let shell = shell(&args)?;
    let json = args.json;
    let (bar, progress) = progress(args.progress);
    let call = arguments(&app, args)?;
    app.analyse_from_shell(shell);
    let outcome = tool::call_on(&app, definition, call, Form::Text, Some(progress));
    bar.finish_and_clear();
    let outcome = outcome?;
    match &outcome.result {
        Ok(answer) if json => print(&answer.text())?,
        Ok(answer) => {
            let data = answer.data();
            let text = data["answer"].as_str().unwrap_or_default();
            print(&for_reader(text, std::io::stdout().is_terminal()))?;
            let _ = writeln!(
                std::io::stderr(),
                "{}",
                one_line(&describe_cost(&data, &answer.facts().meta))
            );
        }
        Err(error) if json => {
            let document = error.to_document(outcome.family(), &outcome.correlation_id);
            let _ = writeln!(std::io::stderr(), "{document}");
            return Ok(ExitCode::from(error.kind.row().exit));
        }
        Err(error) => {
            tool::report(error, None);
            if let Some(budget) = error.extra.get("budget_summary") {
                let _ = writeln!(std::io::stderr(), "  spent: {}", describe_spending(budget));
            }
            return Ok(ExitCode::from(error.kind.row().exit));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A model's text for who reads it: a terminal acts on control characters, a program gets what the model wrote.
fn for_reader(text: &str, is_terminal: bool) -> Cow<'_, str> {
    if is_terminal {
        neutralise(text, Ansi::Show)
    } else {
        Cow::Borrowed(text)
    }
}

/// What the tool is called with.
fn arguments(app: &Arc<App>, args: RlmArgs) -> Result<Map<String, Value>, Failure> {
    let (path, context) = if args.file == Path::new("-") {
        (None, Some(standard_input()?))
    } else {
        (Some(in_workspace(app, &args.file)?), None)
    };
    let given = [
        ("task", Some(args.task.into())),
        ("path", path.map(Value::from)),
        ("context", context.map(Value::from)),
        ("budget_usd", args.budget_usd.map(Value::from)),
        ("max_turns", args.max_turns.map(Value::from)),
        ("max_bytes", args.max_bytes.map(Value::from)),
        ("timeout_s", args.timeout_s.map(Value::from)),
        ("language", args.language.map(Value::from)),
    ];
    let given = given.into_iter();
    Ok(given
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect())
}

fn standard_input() -> Result<String, Failure> {
    let mut text = Vec::new();
    std::io::stdin()
        .take(MAX_STDIN_BYTES)
        .read_to_end(&mut text)
        .map_err(|error| Failure::new(ErrorKind::Internal, format!("standard input: {error}")))?;
    Ok(String::from_utf8(text)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// A path relative to the current folder as one relative to the workspace.
fn in_workspace(app: &Arc<App>, file: &Path) -> Result<String, Failure> {
    let absolute = std::path::absolute(file)
        .map_err(|error| Failure::new(ErrorKind::BadArgs, format!("--file: {error}")))?;
    let path = absolute.strip_prefix(app.root()).unwrap_or(file);
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Failure::new(ErrorKind::BadArgs, "--file: the name is not UTF-8"))
}

/// The flags that are no arguments of the tool.
fn shell(args: &RlmArgs) -> Result<AnalysisShell, Failure> {
    let detail = if args.redact {
        TraceDetail::Redacted
    } else {
        TraceDetail::Full
    };
    let record = match &args.trace {
        Some(path) => Some(TraceRecorder::new(create_trace(path)?, detail)),
        None => None,
    };
    let replay = match &args.replay {
        Some(path) => {
            let file = OpenOptions::new().read(true).open(path);
            let file = file.map_err(|error| open_failure(ErrorKind::NotFound, path, &error))?;
            let trace = RecordedTrace::read(BufReader::new(file));
            Some(trace.map_err(|error| Failure::from_error(ErrorKind::BadArgs, &error))?)
        }
        None => None,
    };
    Ok(AnalysisShell {
        model: args.model.clone(),
        record,
        replay,
    })
}

/// A trace holds the file's content: only its owner may read it, and links are not followed.
fn create_trace(path: &Path) -> Result<File, Failure> {
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits();
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(i32::try_from(no_follow).unwrap_or(0))
        .open(path)
        .map_err(|error| open_failure(ErrorKind::WriteFailed, path, &error))
}

fn open_failure(kind: ErrorKind, path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(kind, format!("{}: {error}", PathBuf::from(path).display()))
}

/// A progress line on a terminal, or single lines with `--progress`, or nothing.
fn progress(lines: bool) -> (ProgressBar, Progress) {
    let terminal = std::io::stderr().is_terminal();
    let bar = if terminal && !lines {
        ProgressBar::new_spinner()
    } else {
        ProgressBar::hidden()
    };
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
        bar.set_style(style);
    }
    if terminal && !lines {
        bar.enable_steady_tick(PROGRESS_REDRAW_INTERVAL);
    }
    let drawn = bar.clone();
    let progress = move |_: f64, words: &str| {
        // A heartbeat carries only the name of the tool.
        if words == "rlm_query" {
            return;
        }
        let words = one_line(words);
        if lines {
            let _ = writeln!(std::io::stderr(), "{words}");
        }
        drawn.set_message(words.into_owned());
    };
    (bar, Arc::new(progress))
}

/// Model, turns, calls, tokens and cost of an answer in one line.
fn describe_cost(data: &Value, meta: &Map<String, Value>) -> String {
    let model = meta.get("model_used").and_then(Value::as_str);
    let partial = match meta.get("partial_reason").and_then(Value::as_str) {
        Some(why) => format!("partial: {why}; "),
        None => String::new(),
    };
    format!(
        "{partial}{}, {}",
        model.unwrap_or_default(),
        describe_spending(&data["budget_summary"])
    )
}

fn describe_spending(budget: &Value) -> String {
    format!(
        "{} turns, {} calls, {} tokens in, {} out, ${:.4}",
        budget["turns"],
        budget["calls"],
        budget["tokens_in"],
        budget["tokens_out"],
        budget["total_cost_usd"].as_f64().unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_shown_what_a_program_is_given() {
        let text = "a\u{1b}]0;title\u{7}b\u{9b}2J\u{61c}\n";
        assert_eq!(for_reader(text, false), text);
        assert_eq!(
            for_reader(text, true),
            "a\\x1b]0;title\\x07b\\u{9b}2J\\u{61c}\n"
        );
    }
}
