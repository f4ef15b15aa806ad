//! `run_compare`: a command on the workspace as it was at a base and as it is, and what differs between the two runs.
//!
//! Both run on copy-on-write views, so that they start alike, neither sees what the other wrote, and nothing is changed.

use std::borrow::Cow;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use llmc_enrich::diff;
use llmc_enrich::run_diff::{Diagnostic, FinishedRun, RunDiff, RunDifference, UnrunSide};
use llmc_enrich::testrun::TestFailure;
use llmc_exec::{ExitStatus, Stream};
use llmc_host::CancelToken;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};

use super::execute::program_name;
use super::previewed::note_exit_code;
use super::spool::Spool;
use super::viewed::{NotViewed, ViewedCommand, command_words, run_on_view};
use super::wait::WaitLimit;
use crate::base_view::{BaseView, repository_dir};
use crate::cx::{Cx, Form};
use crate::error::{Error, ErrorKind, Result};
use crate::render::{AnswerRoom, Render, Rendition, Rest};

/// A module that cannot be imported must not keep the others from being compared.
const ENVIRONMENT: &[(&str, &str)] = &[("PYTEST_ADDOPTS", "--continue-on-collection-errors")];
/// Bytes of the end of each stream that are compared where an output is too large to be held whole.
const TAIL_BYTES: usize = 512 << 10;
/// Tests and diagnostics of a kind that are listed for a program that is no script.
const MAX_LISTED: usize = 200;
/// Tokens of the text that a script prints.
const SCRIPT_TOKENS: usize = 1 << 20;
/// The exit code of a program that is not there, as shells have it.
const NOT_FOUND: i32 = 127;

/// A command to be compared.
pub(crate) struct CompareRequest {
    pub(crate) command: Option<String>,
    pub(crate) argv: Option<Vec<String>>,
    pub(crate) base: Option<String>,
    pub(crate) cwd: Option<String>,
    pub(crate) timeout: Option<f64>,
}

/// What differs between two runs of a command.
#[derive(Debug)]
pub(crate) struct RunComparison {
    command: String,
    program: String,
    /// The base as an answer calls it.
    base_name: String,
    base_id: String,
    base: ComparedRun,
    now: ComparedRun,
    diff: RunDiff,
    notes: Vec<String>,
}

/// One of the two runs.
#[derive(Debug)]
struct ComparedRun {
    status: ExitStatus,
    spool: Mutex<Spool>,
}

impl ComparedRun {
    /// What was printed, and whether that is all of it.
    fn text(&self) -> (String, bool) {
        let spool = self.spool.lock().unwrap_or_else(PoisonError::into_inner);
        match spool.merged() {
            Some(text) => (String::from_utf8_lossy(&text).into_owned(), true),
            None => (spool.ends(TAIL_BYTES).concat(), false),
        }
    }

    fn write_to(&self, mut out: &mut dyn Write) -> std::io::Result<()> {
        let mut spool = self.spool.lock().unwrap_or_else(PoisonError::into_inner);
        spool.write_to(&mut out)
    }

    /// `exit 1`, also of a success.
    fn ended(&self) -> String {
        match self.status.is_success() {
            true => "exit 0".to_owned(),
            false => self.status.to_string(),
        }
    }
}

/// Runs a command on a base and as it is.
pub(crate) fn compare_runs(
    cx: &Cx,
    request: CompareRequest,
    cancel: &CancelToken,
) -> Result<RunComparison> {
    let wait = WaitLimit::new(cx, request.timeout)?;
    let words = command_words(cx, request.command, request.argv)?;
    let roots = &cx.files().roots;
    let cwd = roots.open_dir(request.cwd.as_deref().unwrap_or("."))?;
    let repository = repository_dir(roots, &cwd)?;
    let base = request.base.as_deref().unwrap_or("HEAD");
    let view = BaseView::of(cx, &repository, base, cancel)?;
    let mut notes = view.notes.clone();
    let at_base = format!("at {}", view.name);
    let command = ViewedCommand {
        words: &words,
        cwd: &cwd,
        env: ENVIRONMENT,
        deadline: Instant::now() + wait.duration,
        wait: wait.duration,
        run_name: Some(&at_base),
    };
    let mut further = Vec::new();
    let fill = |layer: &llmc_exec::BaseLayer<'_>| {
        further = view.fill(layer, cancel)?;
        Ok(())
    };
    cx.tell(format!("running on {}", view.name));
    let before = match run_on_view(cx, &command, fill, cancel) {
        Ok(ran) => {
            notes.extend(ran.notes.iter().map(|note| format!("at the base: {note}")));
            ComparedRun {
                status: ran.status,
                spool: Mutex::new(ran.spool),
            }
        }
        Err(NotViewed::Exec(llmc_exec::Error::NotExecutable { program, source })) => {
            let mut spool = Spool::new(None);
            let said = format!("{program}: cannot be started: {source}\n");
            spool.push(Stream::Stderr, said.as_bytes());
            ComparedRun {
                status: ExitStatus::Exited(NOT_FOUND),
                spool: Mutex::new(spool),
            }
        }
        Err(NotViewed::Exec(llmc_exec::Error::NoWorkingDirectory)) => {
            let shown = roots.display_path(&cwd.path);
            let message = format!("{shown} is not there at {}", view.name);
            return Err(Error::new(ErrorKind::NotFound, message)
                .hint("give a cwd that is there at the base, or another base"));
        }
        Err(error) => return Err(error.into()),
    };
    notes.extend(further);
    cx.tell("running on the workspace as it is".to_owned());
    let command = ViewedCommand {
        run_name: Some("on the workspace as it is"),
        ..command
    };
    let ran = run_on_view(cx, &command, |_| Ok(()), cancel)?;
    notes.extend(ran.notes.iter().map(|note| format!("now: {note}")));
    notes.extend(wait.note);
    let now = ComparedRun {
        status: ran.status,
        spool: Mutex::new(ran.spool),
    };
    let ((old, is_whole), (new, is_new_whole)) = (before.text(), now.text());
    if !(is_whole && is_new_whole) {
        notes.push("the outputs are large: their ends were compared".to_owned());
    }
    let diff = RunDiff::of(
        &words.printed_by,
        FinishedRun {
            text: &old,
            exit_code: before.status.exit_code(),
        },
        FinishedRun {
            text: &new,
            exit_code: now.status.exit_code(),
        },
    );
    let program = match words.printed_by.is_empty() {
        true => program_name(&words.argv),
        false => program_name(&words.printed_by),
    };
    Ok(RunComparison {
        command: words.text,
        program,
        base_name: view.name,
        base_id: view.id,
        base: before,
        now,
        diff,
        notes,
    })
}

impl RunComparison {
    /// How both runs ended.
    fn first_line(&self) -> String {
        let (base, now) = (self.base.ended(), self.now.ended());
        format!("{}: {base}; now: {now}\n", self.base_name)
    }

    fn write_whole(&self, out: &mut dyn Write) -> std::io::Result<()> {
        writeln!(out, "== {}: {} ==", self.base_name, self.base.ended())?;
        self.base.write_to(out)?;
        writeln!(out, "== now: {} ==", self.now.ended())?;
        self.now.write_to(out)
    }

    fn document(&self) -> CompareDocument<'_> {
        let ids = |list: &[TestFailure]| list.iter().map(|failure| failure.id.clone()).collect();
        let lines = |list: &[Diagnostic]| list.iter().map(Diagnostic::text).collect();
        let mut document = CompareDocument {
            base: &self.base_id,
            base_exit_code: self.base.status.shell_code(),
            exit_code: self.now.status.shell_code(),
            kind: "output",
            ..CompareDocument::default()
        };
        match &self.diff.found {
            RunDifference::Tests(tests) => {
                document.kind = "tests";
                document.cannot_compare = tests.unrun.map(UnrunSide::reason);
                document.newly_failing = ids(&tests.newly_failing);
                document.failing_unrun_at_base = ids(&tests.failing_unrun_at_base);
                document.newly_passing = tests.newly_passing.clone();
                document.failing_in_both = ids(&tests.failing_in_both);
                document.not_collected = ids(&tests.not_collected_now);
                document.not_collected_at_base = ids(&tests.not_collected_at_base);
                document.not_run = tests.not_run_now.clone();
            }
            RunDifference::Diagnostics(found) => {
                document.kind = "diagnostics";
                document.new = lines(&found.new);
                document.gone = lines(&found.gone);
            }
            RunDifference::Output(diff) => document.diff = &diff.text,
        }
        document
    }

    /// What a program gets: everything in a script, what fits the budget elsewhere.
    fn data(&self, room: &AnswerRoom<'_>) -> Rendition<'_> {
        if room.is_in_script() {
            let found = self.diff.condense(SCRIPT_TOKENS);
            return Rendition {
                printed: Some(self.first_line() + &found.body),
                ..Rendition::data()
            };
        }
        let mut document = self.document();
        for list in [
            &mut document.newly_failing,
            &mut document.failing_unrun_at_base,
            &mut document.newly_passing,
            &mut document.failing_in_both,
            &mut document.not_collected,
            &mut document.not_collected_at_base,
            &mut document.not_run,
            &mut document.new,
            &mut document.gone,
        ] {
            list.truncate(MAX_LISTED);
        }
        let fitted = diff::condense(document.diff, room.tokens).body;
        document.diff = &fitted;
        let data = serde_json::to_value(document).ok();
        Rendition {
            data,
            ..Rendition::data()
        }
    }
}

impl Render for RunComparison {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let printed: u64 = [&self.base, &self.now]
            .iter()
            .map(|run| {
                let spool = run.spool.lock().unwrap_or_else(PoisonError::into_inner);
                spool.bytes()
            })
            .sum();
        let mut rendition = if room.form() == Form::Data {
            self.data(room)
        } else {
            let first = self.first_line();
            let tokens = room.tokens.saturating_sub(llmc_tokens::count(&first) + 1);
            let mut found = self.diff.condense(tokens);
            found.body.insert_str(0, &first);
            // Nothing that differs is an answer, not a search without a match.
            found.totals.matches = found.totals.matches.filter(|count| *count > 0);
            Rendition::te("compare", found)
        };
        // What both runs printed is behind the answer, whatever of it is shown.
        rendition.truncated |= printed > 0;
        if rendition.truncated {
            let rest = Rest::written("compare", |out: &mut dyn Write| self.write_whole(out));
            rendition.rest = Some(rest.about("command", self.command.clone()));
        }
        rendition.notes.extend(self.notes.iter().cloned());
        rendition.program = Some(self.program.clone());
        note_exit_code(&mut rendition, room, Some(self.now.status));
        Ok(rendition)
    }
}

/// What a program gets of a comparison.
#[derive(Serialize, JsonSchema, Default)]
#[schemars(extend("x-help" = "a failing command is no error; nothing was changed; the handle returns both outputs"))]
struct CompareDocument<'a> {
    #[schemars(extend("x-help" = "commit"))]
    base: &'a str,
    base_exit_code: Option<i32>,
    exit_code: Option<i32>,
    #[schemars(extend("enum" = ["tests", "diagnostics", "output"]))]
    kind: &'static str,
    #[schemars(extend("x-help" = "which side ran no tests"))]
    cannot_compare: Option<&'static str>,
    newly_failing: Vec<String>,
    failing_unrun_at_base: Vec<String>,
    newly_passing: Vec<String>,
    failing_in_both: Vec<String>,
    #[schemars(extend("x-help" = "modules and builds"))]
    not_collected: Vec<String>,
    not_collected_at_base: Vec<String>,
    #[schemars(extend("x-help" = "failed at the base"))]
    not_run: Vec<String>,
    #[schemars(extend("x-help" = "diagnostics"))]
    new: Vec<String>,
    gone: Vec<String>,
    #[schemars(extend("x-help" = "of other output"))]
    diff: &'a str,
}

impl Serialize for RunComparison {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.document().serialize(serializer)
    }
}

impl JsonSchema for RunComparison {
    fn schema_name() -> Cow<'static, str> {
        CompareDocument::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        CompareDocument::json_schema(generator)
    }
}
