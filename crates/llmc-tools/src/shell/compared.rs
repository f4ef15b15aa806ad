//! `run_compare`: a command on the workspace as it was at a base and as it is, and what differs between the two runs.
//!
//! The runs are those of `comparing`; this is their answer.

use std::borrow::Cow;
use std::io::Write;

use llmc_enrich::diff;
use llmc_enrich::run_diff::{Diagnostic, RunDiff, RunDifference, UnrunSide};
use llmc_enrich::testrun::TestFailure;
use llmc_host::CancelToken;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::comparing::{Compared, ComparedRun};
use super::long::{self, RunAnswer, RunOutcome, run_time};
use super::previewed::note_exit_code;
use super::viewed::command_words;
use super::wait::WaitLimit;
use crate::cx::{Cx, Form};
use crate::error::Result;
use crate::render::{AnswerRoom, Render, Rendition, Rest};

/// Tests and diagnostics of a kind that are listed for a program that is no script.
const MAX_LISTED: usize = 200;
/// Last lines of a run that are shown beside the comparison, and how long one may be.
const TESTS_AT_BASE_LINES: usize = 5;
const MAX_LINE_BYTES: usize = 300;
/// Tokens of the text that a script prints.
const SCRIPT_TOKENS: usize = 1 << 20;
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
    pub(super) command: String,
    pub(super) program: String,
    /// The base as an answer calls it.
    pub(super) base_name: String,
    pub(super) base_id: String,
    pub(super) base: ComparedRun,
    pub(super) now: ComparedRun,
    pub(super) diff: RunDiff,
    /// The command on the sources of the base with the tests as they are now, where tests are not known by name.
    pub(super) tests_at_base: Option<ComparedRun>,
    /// Whether the base's result is that of an earlier comparison.
    pub(super) is_base_kept: bool,
    pub(super) notes: Vec<String>,
}

/// What a caller of `run_compare` gets.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct ComparisonAnswer(RunAnswer);

/// Runs a command on a base and as it is. The runs go on where they take longer than the call waits.
pub(crate) fn compare_runs(
    cx: &Cx,
    request: CompareRequest,
    cancel: &CancelToken,
) -> Result<ComparisonAnswer> {
    let wait = WaitLimit::new(cx, request.timeout)?;
    let words = command_words(cx, request.command, request.argv)?;
    cx.files()
        .roots
        .open_dir(request.cwd.as_deref().unwrap_or("."))?;
    let compared = Compared {
        words,
        cwd: request.cwd,
        base: request.base,
        time: run_time(cx, &wait),
    };
    let (text, note) = (compared.words.text.clone(), wait.note.clone());
    let answer = long::begin(cx, &text, &wait, cancel, move |cx, progress, stop| {
        let mut comparison = compared.run(cx, progress, stop)?;
        comparison.notes.extend(note);
        Ok(RunOutcome::Comparison(Box::new(comparison)))
    })?;
    Ok(ComparisonAnswer(answer))
}

impl Render for ComparisonAnswer {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        self.0.render(room)
    }
}

/// What a program gets of a comparison that goes on.
pub(super) fn running(proc_id: &str, step: &str) -> Value {
    let document = CompareDocument {
        kind: "running",
        proc_id: Some(proc_id),
        step,
        ..CompareDocument::default()
    };
    serde_json::to_value(document).unwrap_or_default()
}

impl RunComparison {
    /// How both runs ended.
    fn first_line(&self) -> String {
        let (base, now) = (self.base.ended(), self.now.ended());
        let mut text = format!("{}: {base}; now: {now}\n", self.base_name);
        if let Some(run) = &self.tests_at_base {
            let ended = run.ended();
            text.push_str(&format!(
                "the changed tests on the sources of {}: {ended}\n",
                self.base_name
            ));
            if !run.status().is_success() {
                for line in run.last_lines(TESTS_AT_BASE_LINES) {
                    let end = line.floor_char_boundary(line.len().min(MAX_LINE_BYTES));
                    text.push_str(&format!("  {}\n", &line[..end]));
                }
            }
        }
        text
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
            base_exit_code: self.base.status().shell_code(),
            exit_code: self.now.status().shell_code(),
            tests_at_base_exit_code: self
                .tests_at_base
                .as_ref()
                .and_then(|run| run.status().shell_code()),
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
                document.new_tests = tests.new.clone();
                if let Some(found) = &tests.new_at_base {
                    document.new_failing_at_base = ids(&found.failing);
                    document.new_passing_at_base = found.passing.clone();
                }
                document.flaky = tests.flaky.clone();
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
            &mut document.new_tests,
            &mut document.new_failing_at_base,
            &mut document.new_passing_at_base,
            &mut document.flaky,
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
        let printed = self.base.bytes() + self.now.bytes();
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
        match room.form() {
            _ if !self.is_base_kept => {}
            Form::Data => drop(rendition.meta.insert("base_kept".to_owned(), true.into())),
            Form::Text | Form::Page => rendition
                .notes
                .push("the base's result is that of an earlier comparison".to_owned()),
        }
        rendition.program = Some(self.program.clone());
        note_exit_code(&mut rendition, room, Some(self.now.status()));
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
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-help" = "the changed tests on the old sources, where tests have no names"))]
    tests_at_base_exit_code: Option<i32>,
    #[schemars(extend("enum" = ["tests", "diagnostics", "output", "running"]))]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-help" = "if it runs on; run_cmd(proc=…) waits on"))]
    proc_id: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    #[schemars(extend("x-help" = "what it is at"))]
    step: &'a str,
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
    #[schemars(extend("x-help" = "not at the base"))]
    new_tests: Vec<String>,
    #[schemars(extend("x-help" = "of those, on the old sources"))]
    new_failing_at_base: Vec<String>,
    new_passing_at_base: Vec<String>,
    #[schemars(extend("x-help" = "differ between two runs of the same side"))]
    flaky: Vec<String>,
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

impl JsonSchema for ComparisonAnswer {
    fn schema_name() -> Cow<'static, str> {
        CompareDocument::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        CompareDocument::json_schema(generator)
    }
}
