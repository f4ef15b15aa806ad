//! `llmc rag`: the code index from the shell.

use std::io::{IsTerminal, Read};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use llmc_host::CancelToken;
use llmc_index::UpdateReport;
use llmc_tools::{App, Error, ErrorKind, Form, catalog};
use serde_json::{Map, Value};

use super::colour::Paint;
use super::{Failure, print, start_quietly, tool};
use crate::cli::{Common, RagVerb};

/// How often a progress bar is drawn.
const PROGRESS_REDRAW_INTERVAL: Duration = Duration::from_millis(25);
/// The longest question read from standard input.
const MAX_QUESTION_BYTES: u64 = 1 << 20;

pub(super) fn run(common: &Common, verb: RagVerb) -> Result<ExitCode, Failure> {
    match verb {
        RagVerb::Index => index(common),
        RagVerb::Watch => watch(common),
        RagVerb::Doctor => doctor(common),
        RagVerb::Search {
            query,
            k,
            scope,
            budget_tokens,
            explain,
            json,
        } => {
            let query = question(&query)?;
            let args = arguments([
                ("query", Some(query.clone().into())),
                ("k", k.map(Value::from)),
                ("scope", scope.map(Value::from)),
                ("budget_tokens", budget_tokens.map(Value::from)),
                ("explain", explain.then(|| Value::from(true))),
            ]);
            call_and_print(common, "rag_search", args, json, &query)
        }
        RagVerb::WhereUsed {
            symbol,
            depth,
            json,
        } => {
            let args = arguments([
                ("symbol", Some(symbol.into())),
                ("depth", depth.map(Value::from)),
            ]);
            call_and_print(common, "rag_where_used", args, json, "")
        }
        RagVerb::Lineage {
            symbol,
            direction,
            depth,
            json,
        } => {
            let args = arguments([
                ("symbol", Some(symbol.into())),
                ("direction", direction.map(Value::from)),
                ("depth", depth.map(Value::from)),
            ]);
            call_and_print(common, "rag_lineage", args, json, "")
        }
        RagVerb::Inspect { what, json } => {
            // A name with a folder or an extension is a file, unless it says what in the file is meant.
            let is_path = !what.contains('#')
                && !what.contains("::")
                && (what.contains('/') || std::path::Path::new(&what).extension().is_some());
            let key = if is_path { "path" } else { "symbol" };
            let args = arguments([(key, Some(what.into()))]);
            call_and_print(common, "inspect", args, json, "")
        }
        RagVerb::Plan { query, json } => {
            let args = arguments([("query", Some(question(&query)?.into()))]);
            call_and_print(common, "rag_plan", args, json, "")
        }
        RagVerb::Stats { json } => call_and_print(common, "rag_stats", Map::new(), json, ""),
    }
}

/// Those arguments that were given.
fn arguments<const N: usize>(given: [(&str, Option<Value>); N]) -> Map<String, Value> {
    let given = given.into_iter();
    given
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// The words of a question as one, or what standard input holds.
fn question(words: &[String]) -> Result<String, Failure> {
    if words != ["-"] {
        return Ok(words.join(" "));
    }
    let mut text = Vec::new();
    std::io::stdin()
        .take(MAX_QUESTION_BYTES)
        .read_to_end(&mut text)
        .map_err(|error| Failure::new(ErrorKind::Internal, format!("standard input: {error}")))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Calls a tool and prints its document or its page, on a terminal with the words of the question in bold.
fn call_and_print(
    common: &Common,
    name: &str,
    args: Map<String, Value>,
    json: bool,
    question: &str,
) -> Result<ExitCode, Failure> {
    let Some(tool) = catalog::find(name) else {
        return Err(Failure::new(
            ErrorKind::UnknownTool,
            format!("no tool {name}"),
        ));
    };
    let form = if json { Form::Data } else { Form::Page };
    let outcome = tool::call(common, tool, args, form)?;
    match &outcome.result {
        Ok(answer) => {
            print(&if json {
                answer.data().to_string()
            } else if Paint::stdout().is_on() {
                highlight(&answer.text(), question)
            } else {
                answer.text().into_owned()
            })?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            let body = json.then(|| error.rest_body(tool.family, &outcome.correlation_id));
            tool::report(error, body);
            Ok(ExitCode::from(error.kind.row().exit))
        }
    }
}

/// The text with every word that holds a word of the question in bold.
fn highlight(text: &str, question: &str) -> String {
    let asked: Vec<String> = question
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.len() > 2)
        .map(str::to_lowercase)
        .collect();
    let mut out = String::with_capacity(text.len() + 64);
    for run in text.split_inclusive(|c: char| !c.is_alphanumeric()) {
        let word = run.trim_end_matches(|c: char| !c.is_alphanumeric());
        let lower = word.to_lowercase();
        if asked.iter().any(|asked| lower.contains(asked.as_str())) {
            out.push_str(&Paint::stdout().styled(word, "1;33"));
        } else {
            out.push_str(word);
        }
        out.push_str(&run[word.len()..]);
    }
    out
}

fn index(common: &Common) -> Result<ExitCode, Failure> {
    let app = start_quietly(common)?;
    let (done, took) = update_with_progress(&app).map_err(Error::from)?;
    app.observer().close();
    print(&format!(
        "Indexed {} files ({} new or changed, {} read, {} removed) in {:.2} s; index size {}",
        HumanCount(done.files),
        HumanCount(done.changed),
        HumanBytes(done.bytes),
        HumanCount(done.removed),
        took.as_secs_f64(),
        HumanBytes(app.index().bytes()),
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Updates the index with a progress bar, and measures the time.
fn update_with_progress(app: &Arc<App>) -> llmc_index::Result<(UpdateReport, Duration)> {
    let cancel = CancelToken::default();
    let worker = {
        let (app, cancel) = (Arc::clone(app), cancel.clone());
        std::thread::spawn(move || {
            let started = Instant::now();
            let roots = &app.files().roots;
            let done = app.index().update(roots, &cancel)?;
            if let Err(error) = app.index().embed_new(roots, &cancel) {
                tracing::warn!(error = %error, "vectors could not be updated");
            }
            Ok((done, started.elapsed()))
        })
    };
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::new(0)
    } else {
        ProgressBar::hidden()
    };
    if let Ok(style) =
        ProgressStyle::with_template("indexing {wide_bar} {human_pos}/{human_len} files {elapsed}")
    {
        bar.set_style(style);
    }
    let progress = app.index().progress();
    while !worker.is_finished() {
        bar.set_length(progress.total().max(progress.done()));
        bar.set_position(progress.done());
        std::thread::sleep(PROGRESS_REDRAW_INTERVAL);
    }
    bar.finish_and_clear();
    worker.join().unwrap_or_else(|_| {
        Err(llmc_index::Error::Unwritable(
            "the update failed".to_owned(),
        ))
    })
}

fn watch(common: &Common) -> Result<ExitCode, Failure> {
    let app = start_quietly(common)?;
    let done = update_with_progress(&app);
    use llmc_index::Error as Index;
    if let Err(error @ (Index::Unwritable(_) | Index::Full(_))) = done {
        return Err(Error::from(error).into());
    }
    print(&format!("watching {}; Ctrl-C stops", app.root().display()))?;
    app.index()
        .keep_current(&app.files().roots, &CancelToken::default());
    Ok(ExitCode::SUCCESS)
}

fn doctor(common: &Common) -> Result<ExitCode, Failure> {
    let app = start_quietly(common)?;
    let wrong = app.index().check().map_err(Error::from)?;
    if wrong.is_empty() {
        print("no damage found")?;
        return Ok(ExitCode::SUCCESS);
    }
    let wrong = wrong.join("; ");
    Err(Failure::new(
        ErrorKind::Internal,
        format!("{wrong}\n  hint: llmc rag index rebuilds the damaged parts"),
    ))
}
