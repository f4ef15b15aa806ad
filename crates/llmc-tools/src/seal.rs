//! The seal: the one place where a tool's output becomes an answer.
//!
//! [`Sealed`] has no public constructor, so nothing but [`App::call`](crate::App::call) can make one. The seal asks the output
//! how it reads ([`Render`]), stores what is left out under a handle, writes header or receipt, escapes the body and counts
//! what was served against the session's budget. Every surface reads the same sealed answer and differs only in form.

use std::borrow::Cow;
use std::sync::OnceLock;

use llmc_enrich::Condensed;
use llmc_envelope::HandleId;
use llmc_envelope::cut::{CutLimits, cut_ends};
use llmc_envelope::neutral::{Ansi, neutralise};
use llmc_envelope::te::{self, ContentType, TeHeader};
use llmc_host::{CancelToken, MAX_ANSWER_BYTES};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::budget;
use crate::cx::{Cx, Form};
use crate::error::{Error, ErrorKind, Result};
use crate::recording::{NOT_UNDOABLE, undo_note};
use crate::render::{AnswerImage, AnswerRoom, Layout, Render, Rendition, RestExtent, TeLayout};

mod rest;

use rest::{StoredRest, rest_call, rest_note, rest_note_of, store};

/// A document up to this size is given even when the session's budget is spent: what stands for a larger one is no smaller.
const MAX_BYTES_WHEN_SPENT: usize = 300;

/// An answer as every surface reads it: bounded, escaped, with an account of what it leaves out.
///
/// Only the seal makes one:
/// ```compile_fail
/// let forged = llmc_tools::Sealed { text: String::new(), data: None, facts: Default::default() };
/// ```
#[derive(Debug, Clone)]
pub struct Sealed {
    text: String,
    /// What a program gets; the text where there is none.
    data: Option<Value>,
    facts: Facts,
    image: Option<AnswerImage>,
}

/// What observers and envelopes need to know about an answer.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The path it is about, as shown.
    pub path: Option<String>,
    /// Whether something was left out.
    pub truncated: bool,
    /// The handle that returns the rest.
    pub handle: Option<HandleId>,
    /// Bytes that were left out.
    pub withheld_bytes: u64,
    /// Whether this answer returns what an earlier one left out.
    pub fetched_back: bool,
    /// The program that a command ran.
    pub program: Option<String>,
    /// How bytes that are not plain UTF-8 were turned into text.
    pub encoding: Option<&'static str>,
    /// What the tool itself says beside its data.
    pub meta: Map<String, Value>,
    /// What the data prints as in a script; its JSON where there is none.
    pub printed: Option<String>,
    /// What the reader of a script's output has to know about data that the script got.
    pub warning: Option<String>,
}

impl Sealed {
    /// What a model or a person reads.
    pub fn text(&self) -> Cow<'_, str> {
        match &self.data {
            Some(Value::String(text)) if self.text.is_empty() => Cow::Borrowed(text),
            Some(data) if self.text.is_empty() => Cow::Owned(data.to_string()),
            _ => Cow::Borrowed(&self.text),
        }
    }

    /// What a program gets: the document, or the text of a tool that answers in text.
    pub fn data(&self) -> Cow<'_, Value> {
        match &self.data {
            Some(data) => Cow::Borrowed(data),
            None => Cow::Owned(self.text.clone().into()),
        }
    }

    /// The image beside the text.
    pub fn image(&self) -> Option<&AnswerImage> {
        self.image.as_ref()
    }

    /// What is known about the answer.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The body that `POST /tool` returns: `{"data": …, "meta": …}`, never decorated.
    pub fn rest_body(&self, correlation_id: &str) -> Value {
        let facts = &self.facts;
        let mut meta = json!({"correlation_id": correlation_id, "truncated": facts.truncated});
        if let Some(handle) = facts.handle {
            meta["handle"] = handle.to_string().into();
        }
        if let Some(path) = &facts.path {
            meta["path"] = path.clone().into();
            if let Some(Value::String(text)) = &self.data {
                meta["length"] = text.len().into();
            }
        }
        if let Some(encoding) = facts.encoding {
            meta["encoding"] = encoding.into();
        }
        for (key, value) in &facts.meta {
            meta[key.as_str()] = value.clone();
        }
        json!({"data": self.data(), "meta": meta})
    }

    /// An answer for tests of what reads answers.
    #[cfg(test)]
    pub(crate) fn for_test(text: impl Into<String>, data: Option<Value>) -> Sealed {
        Sealed {
            text: text.into(),
            data,
            facts: Facts::default(),
            image: None,
        }
    }
}

/// Seals an output for the caller of `cx`.
///
/// # Errors
/// The output cannot be rendered or written, or the answer is larger than one may be.
pub(crate) fn seal<O: Render + Serialize>(
    cx: &Cx,
    cancel: &CancelToken,
    output: &O,
) -> Result<Sealed> {
    let budget = usize::try_from(budget::next_answer_budget(cx)).unwrap_or(usize::MAX);
    let not_undoable = cx
        .recording()
        .and_then(|recording| recording.not_undoable());
    let said = not_undoable.as_deref().map(undo_note);
    let budget = budget.saturating_sub(said.as_deref().map_or(0, llmc_tokens::count));
    let room = AnswerRoom {
        tokens: body_room(budget),
        whole_tokens: budget::whole_answer_budget(cx, budget),
        cx,
        cancel,
    };
    let mut rendition = fitted(output, room, budget)?;
    if let Some(why) = &not_undoable {
        match (cx.caller().form, &rendition.layout) {
            (Form::Data, _) => {
                rendition
                    .meta
                    .insert(NOT_UNDOABLE.to_owned(), why.as_str().into());
            }
            (_, Layout::Document | Layout::Data) => {}
            (_, Layout::Text { .. } | Layout::Te(_)) => rendition.notes.extend(said.clone()),
        }
    }
    let image = rendition.image.take();
    let stored = match rendition.rest.take() {
        Some(rest) => store(cx, cancel, rest)?,
        None => None,
    };
    let sealed = match std::mem::take(&mut rendition.layout) {
        Layout::Document => {
            let mut data = serialized(output)?;
            if let (Some(why), Some(fields), true) = (
                not_undoable,
                data.as_object_mut(),
                cx.caller().form != Form::Data,
            ) {
                fields.insert(NOT_UNDOABLE.to_owned(), why.into());
            }
            document(cx, rendition, stored, data)
        }
        Layout::Data => {
            let data = match rendition.data.take() {
                Some(data) => data,
                None => serialized(output)?,
            };
            if let Some(mut text) = rendition.printed.take() {
                let rest = stored.as_ref().filter(|_| rendition.is_printed_short);
                let rest = rest.and_then(|stored| rest_note(cx, stored));
                let noted = rendition.notes.iter().chain(&said).chain(&rest);
                let noted: Vec<&str> = noted.map(String::as_str).collect();
                text.truncate(text.trim_end_matches('\n').len());
                if !noted.is_empty() {
                    // In brackets: a receipt in what a script prints would be escaped as content.
                    text.push_str(&format!("\n[{}]", noted.join("; ")));
                }
                rendition.printed = Some(text);
            }
            if !rendition.notes.is_empty() {
                let notes = json!(std::mem::take(&mut rendition.notes));
                rendition.meta.insert("notes".to_owned(), notes);
            }
            let sealed = Sealed {
                text: String::new(),
                data: Some(data),
                facts: facts(rendition, stored, 0),
                image: None,
            };
            budget::count_served(cx, &sealed.text());
            sealed
        }
        Layout::Text { body, receipt } => {
            let note = stored.as_ref().and_then(|stored| rest_note(cx, stored));
            let receipt = rendition
                .notes
                .drain(..)
                .fold(receipt.with_rest(note), |receipt, note| receipt.note(note));
            let text = receipt.seal(&body);
            budget::count_served(cx, &text);
            Sealed {
                facts: facts(rendition, stored, body.len()),
                text,
                data: None,
                image: None,
            }
        }
        Layout::Te(layout) => envelope(cx, rendition, stored, &layout),
    };
    let mut sealed = check_size(sealed)?;
    if let Some(image) = &image {
        budget::count_image(cx, image.width, image.height);
    }
    sealed.image = image;
    Ok(sealed)
}

/// Seals a failure: what ran before it is cut to the caller's budget, and the whole of it stored under a handle.
pub(crate) fn seal_failure(cx: &Cx, mut error: Error) -> Error {
    let not_undoable = cx
        .recording()
        .and_then(|recording| recording.not_undoable());
    if let Some(why) = &not_undoable {
        error = error.with(NOT_UNDOABLE, why.as_str());
    }
    let Some(mut transcript) = error.transcript.take() else {
        return error;
    };
    transcript
        .notes
        .extend(not_undoable.as_deref().map(undo_note));
    let printed = std::mem::take(&mut transcript.printed);
    let budget = usize::try_from(budget::next_answer_budget(cx)).unwrap_or(usize::MAX);
    let budget = budget.saturating_sub(llmc_tokens::count(&transcript.text(&error)));
    let whole = budget::whole_answer_budget(cx, budget);
    let mut cut = cut_ends(&printed, CutLimits::tokens(whole));
    if !cut.is_whole() {
        cut = cut_ends(&printed, CutLimits::tokens(body_room(budget)));
        transcript.receipt = transcript.receipt.cut(cut.kept, cut.left, cut.clipped);
        if let Some(id) = cx.keep(|draft| draft, "script", printed.as_bytes()) {
            let rest = rest_note_of(cx, id, RestExtent::of_cut(&printed, &cut));
            transcript.receipt = transcript.receipt.with_rest(rest);
            error = error.with("output_handle", id.to_string());
        }
    }
    transcript.printed = cut.text.into_owned();
    if !transcript.printed.is_empty() {
        error = error.with("output", transcript.printed.as_str());
    }
    budget::count_served(cx, &transcript.text(&error));
    // A program reads the fields.
    error.transcript = (cx.caller().form != Form::Data).then_some(transcript);
    error
}

/// Renders an envelope again with less room while it is larger than the budget: notes and a long path are not in the
/// estimate of its frame.
fn fitted<'a, O: Render>(
    output: &'a O,
    mut room: AnswerRoom<'_>,
    budget: usize,
) -> Result<Rendition<'a>> {
    const MAX_ATTEMPTS: usize = 4;
    let mut rendition = output.render(&room)?;
    for _ in 1..MAX_ATTEMPTS {
        let (Layout::Te(layout), true) = (&rendition.layout, rendition.truncated) else {
            break;
        };
        let handle = rendition.rest.as_ref().and(sample_handle());
        let extent = rendition
            .rest
            .as_ref()
            .map_or_else(RestExtent::default, |rest| rest.extent);
        let rest = handle.and_then(|id| rest_note_of(room.cx, id, extent));
        let tokens = llmc_tokens::count(&te_text(&rendition, handle, rest, layout));
        if tokens <= budget || room.tokens == 0 {
            break;
        }
        room.tokens = room.tokens.saturating_sub(tokens - budget);
        room.whole_tokens = room.tokens;
        rendition = output.render(&room)?;
    }
    Ok(rendition)
}

/// Tokens that a budget leaves for a body when the frame of a cut answer is paid for.
pub(crate) fn body_room(budget: usize) -> usize {
    budget.saturating_sub(frame_tokens())
}

/// A handle that takes as many tokens as any: of 400 random ones, 30 tokens was the most and 26 the middle.
fn sample_handle() -> Option<HandleId> {
    HandleId::parse("res_01M7J02VHT8FQTN3X8Q3P7F7V9")
}

fn serialized(output: &impl Serialize) -> Result<Value> {
    serde_json::to_value(output).map_err(|error| {
        Error::new(
            ErrorKind::Internal,
            format!("answer cannot be written: {error}"),
        )
    })
}

fn check_size(sealed: Sealed) -> Result<Sealed> {
    let bytes = sealed.text.len();
    if bytes <= MAX_ANSWER_BYTES + MAX_ANSWER_BYTES / 4 {
        return Ok(sealed);
    }
    let message =
        format!("the answer is {bytes} bytes, more than the {MAX_ANSWER_BYTES} that one may hold");
    Err(Error::new(ErrorKind::TooLarge, message).hint("ask for less at a time"))
}

fn document(
    cx: &Cx,
    mut rendition: Rendition<'_>,
    mut stored: Option<StoredRest>,
    mut data: Value,
) -> Sealed {
    if let Some(fields) = data.as_object_mut() {
        // In place where the document has the key, at its end where not.
        if let Some(stored) = &stored
            && stored.extent != RestExtent::Known
        {
            fields.insert("handle".to_owned(), stored.id.to_string().into());
        }
    }
    let mut text = if rendition.meta.is_empty() {
        data.to_string()
    } else {
        json!({"data": data, "meta": rendition.meta}).to_string()
    };
    if cx.caller().form != Form::Data
        && text.len() > MAX_BYTES_WHEN_SPENT
        && !llmc_tokens::fits(&text, budget::session_room(cx))
        && let Some(id) = cx.keep(|draft| draft, "document", text.as_bytes())
    {
        let bytes = text.len() as u64;
        let note = format!(
            "{}; {} returns it",
            budget::SESSION_SPENT,
            rest_call(cx, id)
        );
        data = json!({
            "truncated": true,
            "handle": id.to_string(),
            "total_bytes": bytes,
            "note": note,
        });
        text = data.to_string();
        rendition.truncated = true;
        stored = Some(StoredRest {
            id,
            bytes,
            extent: RestExtent::Everything,
        });
    }
    budget::count_served(cx, &text);
    Sealed {
        facts: facts(rendition, stored, text.len()),
        text,
        data: Some(data),
        image: None,
    }
}

/// Header, body and breadcrumbs.
fn envelope(
    cx: &Cx,
    rendition: Rendition<'_>,
    stored: Option<StoredRest>,
    layout: &TeLayout,
) -> Sealed {
    let rest = stored.as_ref().and_then(|stored| rest_note(cx, stored));
    let text = te_text(
        &rendition,
        stored.as_ref().map(|stored| stored.id),
        rest,
        layout,
    );
    let facts = facts(rendition, stored, layout.body.len());
    budget::count_served(cx, &text);
    let (text, data) = match cx.caller().form {
        Form::Text | Form::Page => (text, None),
        Form::Data => (String::new(), Some(text.into())),
    };
    Sealed {
        text,
        data,
        facts,
        image: None,
    }
}

/// The envelope that `te` prints in a user's shell, where no call is made and no answer sealed.
pub(crate) fn shell_envelope(
    cmd: &'static str,
    found: Condensed,
    content_type: Option<ContentType>,
    handle: Option<HandleId>,
) -> String {
    let mut rendition = Rendition::te(cmd, found);
    let rest = handle.map(|id| format!("te --handle {id} returns the rest"));
    match std::mem::take(&mut rendition.layout) {
        Layout::Te(mut layout) => {
            layout.content_type = content_type;
            te_text(&rendition, handle, rest, &layout)
        }
        _ => String::new(),
    }
}

/// The text of an envelope. A whole answer is its body alone; the header is there when something was cut, is stale or was
/// not found.
fn te_text(
    rendition: &Rendition<'_>,
    handle: Option<HandleId>,
    rest: Option<String>,
    layout: &TeLayout,
) -> String {
    let totals = rendition.totals;
    let first = [totals.matches, totals.lines, totals.files, totals.size]
        .into_iter()
        .flatten()
        .next();
    let header = TeHeader {
        matches: totals.matches,
        lines: totals.lines,
        files: totals.files,
        size: totals.size,
        shown: (layout.chunk.is_some() || first != Some(rendition.shown))
            .then_some(rendition.shown),
        truncated: rendition.truncated,
        handle,
        hot_zone: layout.hot_zone.clone(),
        content_type: layout.content_type,
        chunk: layout.chunk.map(|chunk| chunk.number),
        chunks: layout.chunk.and_then(|chunk| chunk.count),
        stale: layout.chunk.is_some_and(|chunk| chunk.stale),
        ..TeHeader::new(layout.cmd)
    };
    let is_whole = !header.truncated && !header.stale && first != Some(0);
    let has_header = match layout.chunk {
        Some(chunk) => !is_whole || chunk.count != Some(1),
        None => !is_whole || handle.is_some(),
    };
    let mut crumbs = rendition.notes.clone();
    if rendition.truncated {
        crumbs.extend(rest);
    }
    // A stored result is returned byte for byte; elsewhere terminal colours cost tokens and say nothing.
    let body = if layout.chunk.is_some() {
        neutralise(&layout.body, Ansi::Show)
    } else {
        let body = neutralise(&layout.body, Ansi::Strip);
        if body != neutralise(&layout.body, Ansi::Show) {
            crumbs.push("terminal escapes left out".to_owned());
        }
        body
    };
    if has_header {
        te::render(&header, &body, &crumbs)
    } else {
        te::render_whole(&body, &crumbs)
    }
}

/// What the frame of a cut answer takes beside its body and its notes: header, and the breadcrumb that names the handle.
///
/// This is the only place that reserves tokens for it, and it counts a frame with every key that a cut answer commonly has.
fn frame_tokens() -> usize {
    static TOKENS: OnceLock<usize> = OnceLock::new();
    *TOKENS.get_or_init(|| {
        let handle = sample_handle();
        let header = TeHeader {
            matches: Some(12_345),
            files: Some(1_234),
            shown: Some(123),
            truncated: true,
            handle,
            ..TeHeader::new("explain")
        };
        let rest = handle.map(|id| format!("read_file path={id} returns the rest"));
        llmc_tokens::count(&te::render(&header, "", rest.as_slice()))
    })
}

fn facts(rendition: Rendition<'_>, stored: Option<StoredRest>, shown_bytes: usize) -> Facts {
    let beyond = stored
        .as_ref()
        .map(|stored| stored.bytes.saturating_sub(shown_bytes as u64));
    Facts {
        path: rendition.path,
        truncated: rendition.truncated,
        handle: stored.map(|stored| stored.id),
        withheld_bytes: rendition.withheld_bytes.or(beyond).unwrap_or(0),
        fetched_back: rendition.fetched_back,
        program: rendition.program,
        encoding: rendition.encoding,
        meta: rendition.meta,
        printed: rendition.printed,
        warning: rendition.warning,
    }
}
