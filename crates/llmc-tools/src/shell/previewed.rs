//! `run_preview`: what a command prints and what it would change, while nothing is changed.

use std::borrow::Cow;
use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use llmc_enrich::{Condensed, Totals, diff, thousands};
use llmc_envelope::receipt::Receipt;
use llmc_exec::ExitStatus;
use llmc_host::CancelToken;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::changes::{ViewChange, ViewChanges};
use super::condense::{OutputForm, OutputView, with_status};
use super::execute::output_form;
use super::line::CommandWords;
use super::long::{self, RunAnswer, RunOutcome, run_time};
use super::output::CommandOutput;
use super::viewed::{ViewedCommand, command_words, run_on_view};
use super::wait::WaitLimit;
use crate::cx::{Cx, Form, Surface};
use crate::error::{Error, ErrorKind, Result};
use crate::processes::RunProgress;
use crate::render::{AnswerRoom, Render, Rendition, Rest};

/// The most of an output that a script is given.
const MAX_DATA_BYTES: usize = 4 << 20;
/// Changes that are listed for a program that is no script.
const MAX_LISTED_CHANGES: usize = 200;

/// A command to be previewed.
pub(crate) struct PreviewRequest {
    pub(crate) command: Option<String>,
    pub(crate) argv: Option<Vec<String>>,
    pub(crate) cwd: Option<String>,
    pub(crate) timeout: Option<f64>,
}

/// What a command printed, and what it would have changed.
#[derive(Debug)]
pub(crate) struct Preview {
    output: CommandOutput,
    changes: ViewChanges,
}

/// What a caller of `run_preview` gets.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct PreviewAnswer(RunAnswer);

/// Runs a command on a view and compares what it wrote. The run goes on where it takes longer than the call waits.
pub(crate) fn preview(
    cx: &Cx,
    request: PreviewRequest,
    cancel: &CancelToken,
) -> Result<PreviewAnswer> {
    let wait = WaitLimit::new(cx, request.timeout)?;
    let words = command_words(cx, request.command, request.argv)?;
    cx.files()
        .roots
        .open_dir(request.cwd.as_deref().unwrap_or("."))?;
    let (form, time, note) = (output_form(cx), run_time(cx, &wait), wait.note.clone());
    let text = words.text.clone();
    let answer = long::begin(cx, &text, &wait, cancel, move |cx, progress, stop| {
        let previewed = Previewed {
            words,
            cwd: request.cwd,
            form,
            time,
        };
        let mut preview = previewed.run(cx, progress, stop)?;
        preview.output.notes.extend(note);
        Ok(RunOutcome::Preview(Box::new(preview)))
    })?;
    Ok(PreviewAnswer(answer))
}

/// A command that is previewed.
struct Previewed {
    words: CommandWords,
    cwd: Option<String>,
    form: OutputForm,
    time: Duration,
}

impl Previewed {
    fn run(self, cx: &Cx, progress: &RunProgress, cancel: &CancelToken) -> Result<Preview> {
        let dir = self.cwd.as_deref().unwrap_or(".");
        let cwd = cx.files().roots.open_dir(dir)?;
        let command = ViewedCommand {
            words: &self.words,
            cwd: &cwd,
            env: &[],
            deadline: Instant::now() + self.time,
            wait: self.time,
            run_name: None,
            progress,
        };
        let ran = run_on_view(cx, &command, |_| Ok(()), cancel)?;
        let changes = ran.layered.changes().map_err(|error| {
            let message = format!("what the command wrote cannot be read: {error}");
            Error::new(ErrorKind::Internal, message)
        })?;
        let changes = ViewChanges::of(cx, &changes, cancel)?;
        let mut notes = ran.notes;
        notes.extend(changes.notes.iter().cloned());
        Ok(Preview {
            output: CommandOutput {
                words: self.words,
                cwd: self.cwd,
                form: self.form,
                status: Some(ran.status),
                proc_id: None,
                spool: Mutex::new(ran.spool),
                notes,
                output_capped: ran.output_capped,
                enrichment: None,
            },
            changes,
        })
    }
}

impl Render for PreviewAnswer {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        self.0.render(room)
    }
}

/// What a program gets of a preview that goes on.
pub(super) fn running(proc_id: &str, output: &str) -> Value {
    let document = PreviewDocument {
        output: output.to_owned(),
        exit_code: None,
        proc_id: Some(proc_id),
        changes: &[],
        ignored: 0,
        diff: Cow::Borrowed(""),
    };
    serde_json::to_value(document).unwrap_or_default()
}

/// What was printed, as an answer shows it.
struct PrintedPart {
    text: String,
    is_cut: bool,
    notes: Vec<String>,
}

impl Preview {
    fn status(&self) -> Option<ExitStatus> {
        self.output.status
    }

    /// What was printed, within half of the room; the rest is for the changes.
    fn printed(&self, room: &AnswerRoom<'_>) -> PrintedPart {
        let half = AnswerRoom {
            tokens: room.tokens / 2,
            whole_tokens: room.whole_tokens / 2,
            ..*room
        };
        let form = match self.output.form {
            OutputForm::Raw | OutputForm::Streams => OutputForm::Fit,
            form => form,
        };
        let mut part = match self.output.view(&half, form) {
            OutputView::Whole(whole) => PrintedPart {
                text: whole.text(self.status()),
                is_cut: false,
                notes: Vec::new(),
            },
            OutputView::BothEnds { text, .. } => PrintedPart {
                text: with_status(&text, self.status()),
                is_cut: true,
                notes: Vec::new(),
            },
            OutputView::Condensed(found, _) => PrintedPart {
                text: found.body,
                is_cut: found.truncated,
                notes: found.breadcrumbs,
            },
        };
        if !part.text.is_empty() && !part.text.ends_with('\n') {
            part.text.push('\n');
        }
        part
    }

    /// The list of changes and the diff within `tokens`, and whether something is left out.
    fn changed(&self, tokens: usize) -> (String, bool) {
        let mut text = format!("would change: {}\n", self.changes.summary());
        let lines: Vec<String> = self.changes.list.iter().map(ViewChange::line).collect();
        let for_list = match self.changes.diff.is_empty() {
            true => tokens,
            false => tokens / 2,
        };
        let mut left = for_list.saturating_sub(llmc_tokens::count(&text));
        let mut shown = 0;
        for line in &lines {
            let cost = llmc_tokens::count(line) + 1;
            if cost > left {
                break;
            }
            left -= cost;
            shown += 1;
            text.push_str(line);
            text.push('\n');
        }
        let unshown = lines.len() - shown;
        if unshown > 0 {
            text.push_str(&format!("and {} more\n", thousands(unshown as u64)));
        }
        if self.changes.diff.is_empty() {
            return (text, unshown > 0);
        }
        let room = tokens.saturating_sub(llmc_tokens::count(&text));
        let found = diff::condense(&self.changes.diff, room);
        text.push_str(&found.body);
        (text, unshown > 0 || found.truncated)
    }

    /// Everything, as the handle returns it.
    fn write_whole(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let mut out = out;
        self.output.spool().write_to(&mut out)?;
        let status = with_status("", self.status());
        if !status.is_empty() {
            writeln!(out, "{status}")?;
        }
        writeln!(out, "would change: {}", self.changes.summary())?;
        for change in &self.changes.list {
            writeln!(out, "{}", change.line())?;
        }
        out.write_all(self.changes.diff.as_bytes())
    }

    fn document(&self) -> PreviewDocument<'_> {
        let merged = self.output.spool().merged().unwrap_or_default();
        let end = merged.len().min(MAX_DATA_BYTES);
        let diff = &self.changes.diff;
        PreviewDocument {
            output: String::from_utf8_lossy(&merged[..end]).into_owned(),
            exit_code: self.status().and_then(ExitStatus::shell_code),
            proc_id: None,
            changes: &self.changes.list,
            ignored: self.changes.ignored,
            diff: Cow::Borrowed(&diff[..diff.floor_char_boundary(MAX_DATA_BYTES)]),
        }
    }

    /// What a script prints: all that it gets.
    fn text_of(&self, document: &PreviewDocument<'_>) -> String {
        let mut text = with_status(&document.output, self.status());
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!("would change: {}\n", self.changes.summary()));
        for change in document.changes {
            text.push_str(&change.line());
            text.push('\n');
        }
        text.push_str(&document.diff);
        text
    }

    /// What a program gets: everything in a script, what fits the budget elsewhere.
    fn data(&self, room: &AnswerRoom<'_>) -> Rendition<'_> {
        let mut document = self.document();
        let merged = self.output.spool().merged();
        let mut is_cut = merged.is_none_or(|text| text.len() > MAX_DATA_BYTES)
            || self.changes.diff.len() > MAX_DATA_BYTES;
        if room.is_in_script() {
            return Rendition {
                printed: Some(self.text_of(&document)),
                ..Rendition::data().truncated(is_cut)
            };
        }
        if is_cut || !llmc_tokens::fits(&document.output, room.whole_tokens / 2) {
            document.output = self.printed(room).text;
            is_cut = true;
        }
        let left = room
            .tokens
            .saturating_sub(llmc_tokens::count(&document.output));
        let found = diff::condense(&self.changes.diff, left);
        let is_listed = self.changes.list.len() <= MAX_LISTED_CHANGES;
        is_cut |= found.truncated || !is_listed;
        document.diff = Cow::Owned(found.body);
        document.changes = &self.changes.list[..self.changes.list.len().min(MAX_LISTED_CHANGES)];
        Rendition {
            data: serde_json::to_value(document).ok(),
            ..Rendition::data().truncated(is_cut)
        }
    }

    fn finish<'a>(&'a self, mut rendition: Rendition<'a>, room: &AnswerRoom<'_>) -> Rendition<'a> {
        if rendition.truncated {
            let rest = Rest::written("preview", |out: &mut dyn Write| self.write_whole(out));
            rendition.rest = Some(rest.about("command", self.output.words.text.clone()));
        }
        rendition.notes.extend(self.output.notes.iter().cloned());
        rendition.program = Some(self.output.program());
        note_exit_code(&mut rendition, room, self.status());
        rendition
    }
}

impl Render for Preview {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        if room.form() == Form::Data {
            return Ok(self.finish(self.data(room), room));
        }
        let printed = self.printed(room);
        let taken = llmc_tokens::count(&printed.text);
        if !printed.is_cut {
            let (changed, is_cut) = self.changed(room.whole_tokens.saturating_sub(taken));
            if !is_cut {
                let rendition = Rendition::text(printed.text + &changed, Receipt::new());
                return Ok(self.finish(rendition, room));
            }
        }
        let (changed, is_cut) = self.changed(room.tokens.saturating_sub(taken));
        let files = self.changes.list.len() as u64;
        let found = Condensed {
            body: printed.text + &changed,
            breadcrumbs: printed.notes,
            totals: Totals {
                files: Some(files),
                ..Totals::default()
            },
            shown: files,
            truncated: printed.is_cut || is_cut,
            ..Condensed::default()
        };
        Ok(self.finish(Rendition::te("preview", found), room))
    }
}

/// In a shell the command's exit code becomes the process's own.
pub(super) fn note_exit_code(
    rendition: &mut Rendition<'_>,
    room: &AnswerRoom<'_>,
    status: Option<ExitStatus>,
) {
    let code = status.and_then(ExitStatus::shell_code);
    if let (Surface::Cli, Some(code)) = (room.cx.caller().surface, code) {
        rendition.meta.insert("exit_code".to_owned(), code.into());
    }
}

/// What a program gets of a preview.
#[derive(Serialize, JsonSchema)]
#[schemars(extend("x-help" = "a failing command is no error; nothing was changed"))]
struct PreviewDocument<'a> {
    #[schemars(extend("x-help" = "stdout and stderr"))]
    output: String,
    #[schemars(extend("x-help" = "null while it runs"))]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-help" = "if it runs on; run_cmd(proc=…) waits on"))]
    proc_id: Option<&'a str>,
    changes: &'a [ViewChange],
    #[schemars(extend("x-help" = "changes that git ignores"))]
    ignored: u64,
    #[schemars(extend("x-help" = "unified"))]
    diff: Cow<'a, str>,
}

impl Serialize for Preview {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.document().serialize(serializer)
    }
}

impl JsonSchema for PreviewAnswer {
    fn schema_name() -> Cow<'static, str> {
        PreviewDocument::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        PreviewDocument::json_schema(generator)
    }
}
