//! What a command printed, as an output that the seal makes an answer of.

use std::borrow::Cow;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

use llmc_enrich::{Condensed, LineGap, output};
use llmc_envelope::receipt::Receipt;
use llmc_exec::ExitStatus;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::condense::{CondenseRequest, OutputForm, OutputView, test_run, view};
use super::execute::program_name;
use super::line::CommandWords;
use super::long::RunAnswer;
use super::previewed::note_exit_code;
use super::spool::Spool;
use crate::catalog::te_handle::HandleChunk;
use crate::cx::Form;
use crate::error::Result;
use crate::render::{AnswerRoom, Render, Rendition, Rest, RestExtent};
use crate::te;

/// Bytes of an operator's `enrichment` that the notes of an answer may hold.
const MAX_ENRICHMENT_BYTES: usize = 400;

/// The tool whose answer in a shell ends as its command does.
const RUN_TESTS: &str = "run_tests";

/// The answer of a tool that runs commands.
#[derive(Debug)]
pub(crate) enum RunOutput {
    Command(Box<CommandOutput>),
    /// A comparison, preview or test run that a call waited on for.
    Run(RunAnswer),
    /// `te --handle`.
    Stored(HandleChunk),
    /// What else `te` prints.
    Text(String),
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(super) words: CommandWords,
    pub(super) cwd: Option<String>,
    pub(super) form: OutputForm,
    /// `None` while it runs.
    pub(super) status: Option<ExitStatus>,
    /// The id under which it goes on.
    pub(super) proc_id: Option<String>,
    pub(super) spool: Mutex<Spool>,
    pub(super) notes: Vec<String>,
    /// Whether it was ended because it printed too much.
    pub(super) output_capped: bool,
    /// What the operator's `te` program says about its output.
    pub(super) enrichment: Option<Value>,
}

impl CommandOutput {
    pub(super) fn spool(&self) -> MutexGuard<'_, Spool> {
        self.spool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program whose output this is, for statistics.
    pub(super) fn program(&self) -> String {
        let argv = match self.words.printed_by.is_empty() {
            true => &self.words.argv,
            false => &self.words.printed_by,
        };
        program_name(argv)
    }

    /// The view for a reader with this much room.
    pub(super) fn view(&self, room: &AnswerRoom<'_>, form: OutputForm) -> OutputView {
        let request = CondenseRequest {
            argv: &self.words.printed_by,
            form,
            budget: room.tokens,
            whole_budget: room.whole_tokens,
            // A program reads `exit_code`.
            show_status: self.form != OutputForm::Streams,
        };
        let source = |path: &str| match &self.cwd {
            Some(cwd) => te::source(room.cx, &format!("{cwd}/{path}"), room.cancel),
            None => te::source(room.cx, path, room.cancel),
        };
        view(&request, &mut self.spool(), self.status, source)
    }

    /// Everything that was printed, byte for byte; a note where it could not be kept.
    fn rest(&self, gap: Option<LineGap>) -> std::result::Result<Rest<'_>, String> {
        if let Some(why) = self.spool().lost() {
            return Err(format!("the rest is not kept: {why}"));
        }
        let extent = match gap {
            _ if self.output_capped => RestExtent::UntilEnded,
            Some(gap) => RestExtent::Between(gap),
            None => RestExtent::Everything,
        };
        let rest = Rest::written("command", |mut out: &mut dyn Write| {
            self.spool().write_to(&mut out)
        });
        Ok(rest
            .about("command", self.words.text.clone())
            .extent(extent))
    }

    /// For a program: both streams within the budget, else what matters of them in `stdout`.
    fn streams(&self, room: &AnswerRoom<'_>) -> Rendition<'_> {
        let form = match room.cx.app().config().mcp.te.enabled {
            true => OutputForm::Streams,
            false => OutputForm::Plain,
        };
        let (stdout, stderr, truncated) = match self.view(room, form) {
            OutputView::Whole(whole) => (whole.stdout, whole.stderr, false),
            OutputView::BothEnds { text, .. } => (text, String::new(), true),
            OutputView::Condensed(found, _) => (found.body, String::new(), found.truncated),
        };
        let shown = stdout.len();
        let document = self.document(stdout, stderr);
        let rendition = Rendition {
            data: serde_json::to_value(document).ok(),
            ..Rendition::data().truncated(truncated)
        };
        self.finish(rendition, shown, None)
    }

    /// What a script prints of a test run: what a model would see of it. `stdout` and `stderr` are whole all the same.
    fn test_run_in_script(&self, room: &AnswerRoom<'_>) -> Option<Condensed> {
        let te = &room.cx.app().config().mcp.te;
        if !room.is_in_script() || !te.enabled {
            return None;
        }
        let budget = usize::try_from(te.budget_for(&room.cx.caller().agent)).unwrap_or(usize::MAX);
        let request = CondenseRequest {
            argv: &self.words.printed_by,
            form: OutputForm::Fit,
            budget,
            whole_budget: budget,
            show_status: true,
        };
        test_run(&request, &self.spool(), self.status)
    }

    fn document(&self, stdout: String, stderr: String) -> CommandDocument {
        CommandDocument {
            stdout,
            stderr,
            exit_code: self.status.and_then(ExitStatus::shell_code),
            proc_id: self.proc_id.clone(),
        }
    }

    fn finish<'a>(
        &'a self,
        mut rendition: Rendition<'a>,
        shown_bytes: usize,
        gap: Option<LineGap>,
    ) -> Rendition<'a> {
        if rendition.truncated {
            match self.rest(gap) {
                Ok(rest) => rendition.rest = Some(rest),
                Err(note) => rendition.notes.push(note),
            }
            let withheld = self.spool().bytes().saturating_sub(shown_bytes as u64);
            rendition.withheld_bytes = Some(withheld);
        }
        rendition.truncated |= self.output_capped;
        if let Some(enrichment) = &self.enrichment {
            rendition.truncated |= enrichment["truncated"] == true;
            let text = enrichment.to_string();
            let is_read_as_text = !matches!(self.form, OutputForm::Streams | OutputForm::Raw);
            if is_read_as_text && text.len() <= MAX_ENRICHMENT_BYTES {
                rendition.notes.push(format!("te: {text}"));
            }
            let key = "enrichment".to_owned();
            rendition.meta.insert(key, enrichment.clone());
        }
        rendition.notes.extend(self.notes.iter().cloned());
        rendition.program = Some(self.program());
        rendition
    }
}

impl Render for CommandOutput {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        if room.form() == Form::Data && self.form == OutputForm::Raw {
            let whole = self.spool().whole().is_some();
            let shown = self.spool().heads_len();
            let rendition = Rendition::data().truncated(!whole);
            let mut rendition = self.finish(rendition, shown, None);
            if let Some(found) = self.test_run_in_script(room) {
                rendition.printed = Some(found.body);
                rendition.is_printed_short = true;
                rendition.notes.extend(found.breadcrumbs);
                if rendition.rest.is_none() {
                    rendition.rest = self.rest(None).ok();
                }
            }
            return Ok(rendition);
        }
        if self.form == OutputForm::Streams {
            return Ok(self.streams(room));
        }
        let name = output::condenser_name(&self.words.printed_by).unwrap_or("run");
        Ok(match self.view(room, self.form) {
            OutputView::Whole(whole) => {
                let mut rendition = Rendition::text(whole.text(self.status), Receipt::new());
                for (sign, note) in [
                    ('\u{1b}', "terminal escapes left out"),
                    ('\u{fffd}', "not UTF-8, odd bytes shown as \u{fffd}"),
                ] {
                    if whole.stdout.contains(sign) || whole.stderr.contains(sign) {
                        rendition.notes.push(note.to_owned());
                    }
                }
                self.finish(rendition, 0, None)
            }
            OutputView::BothEnds { text, kept, left } => {
                let receipt = Receipt::new().cut(kept, left, 1);
                let text = super::condense::with_status(&text, self.status);
                let length = text.len();
                let rendition = Rendition::text(text, receipt).truncated(true);
                self.finish(rendition, length, None)
            }
            OutputView::Condensed(found, content_type) => {
                let (length, gap) = (found.body.len(), found.gap);
                let mut rendition = Rendition::te(name, found);
                if let Some(kind) = content_type {
                    rendition = rendition.content_type(kind);
                }
                self.finish(rendition, length, gap)
            }
        })
    }
}

/// What a program gets of a command: `{stdout, stderr, exit_code}`, and `proc_id` of one that goes on.
#[derive(Serialize, JsonSchema)]
#[schemars(extend("x-help" = "a failing command is no error; what the server adds is in meta.notes"))]
struct CommandDocument {
    stdout: String,
    stderr: String,
    #[schemars(extend("x-help" = "null while it runs"))]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-help" = "if it runs on"))]
    proc_id: Option<String>,
}

impl Serialize for CommandOutput {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let spool = self.spool();
        let streams = (spool.stdout.parts().head, spool.stderr.parts().head);
        self.document(streams.0, streams.1).serialize(serializer)
    }
}

impl JsonSchema for RunOutput {
    fn schema_name() -> Cow<'static, str> {
        CommandDocument::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        CommandDocument::json_schema(generator)
    }
}

impl Render for RunOutput {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        match self {
            RunOutput::Command(output) => {
                let mut rendition = output.render(room)?;
                if room.cx.tool() == RUN_TESTS {
                    note_exit_code(&mut rendition, room, output.status);
                }
                Ok(rendition)
            }
            RunOutput::Run(answer) => with_stdout(answer.render(room)?, answer, room),
            RunOutput::Stored(chunk) => chunk.render(room),
            RunOutput::Text(text) => Ok(Rendition::text(text.clone(), Receipt::new())),
        }
    }
}

/// What a script prints of a run stands in `stdout`, too, where it looks for what a command printed.
fn with_stdout<'a>(
    mut rendition: Rendition<'a>,
    answer: &RunAnswer,
    room: &AnswerRoom<'_>,
) -> Result<Rendition<'a>> {
    if room.is_in_script() {
        let data = rendition.data.take();
        let mut data = data.or_else(|| serde_json::to_value(answer).ok());
        if let (Some(Value::Object(fields)), Some(text)) = (&mut data, &rendition.printed) {
            fields.insert("stdout".to_owned(), text.as_str().into());
        }
        rendition.data = data;
    }
    Ok(rendition)
}

impl Serialize for RunOutput {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            RunOutput::Command(output) => output.serialize(serializer),
            RunOutput::Run(answer) => answer.serialize(serializer),
            RunOutput::Stored(chunk) => chunk.serialize(serializer),
            RunOutput::Text(text) => text.serialize(serializer),
        }
    }
}
