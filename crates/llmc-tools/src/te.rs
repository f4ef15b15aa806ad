//! The Tool Envelope's way of answering: header, body within the caller's budget, breadcrumbs, and a handle for the rest.

use llmc_enrich::Condensed;
use llmc_envelope::HandleId;
use llmc_envelope::neutral::{Ansi, neutralise};
use llmc_envelope::te::{self, ContentType, TeHeader};
use llmc_host::CancelToken;

use crate::answer::{Answer, Facts};
use crate::budget;
use crate::cx::{Cx, Form};
use crate::error::Error;
use crate::seal::body_room;

/// What an answer needs besides what was condensed.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    /// The command's name, as the header gives it.
    pub(crate) cmd: &'static str,
    /// What the body is.
    pub(crate) content_type: Option<ContentType>,
    /// The path it is about, as shown.
    pub(crate) path: Option<String>,
    /// What returns the rest.
    pub(crate) handle: Option<HandleId>,
    /// Bytes that are not shown.
    pub(crate) withheld_bytes: u64,
}

/// How many tokens the body of this caller's answer may have.
pub(crate) fn budget(cx: &Cx) -> usize {
    body_room(tokens(budget::next_answer_budget(cx)))
}

/// How many tokens a chunk of a stored result may have. It is asked for by a caller who knows what it costs: an answer's
/// budget, not what is left of a session's; and never nothing, or the rest could not be read.
pub(crate) fn chunk_budget(cx: &Cx) -> usize {
    let budget = tokens(budget::answer_budget(cx));
    body_room(budget).max(budget / 4).max(1)
}

fn tokens(budget: u64) -> usize {
    usize::try_from(budget).unwrap_or(usize::MAX)
}

/// The envelope's text, and what observers need to know of it.
pub(crate) fn text(found: &Condensed, frame: Frame) -> (String, Facts) {
    let mut header = TeHeader::new(frame.cmd);
    header.matches = found.totals.matches;
    header.lines = found.totals.lines;
    header.files = found.totals.files;
    header.size = found.totals.size;
    let totals = [
        found.totals.matches,
        found.totals.lines,
        found.totals.files,
        found.totals.size,
    ];
    let first = totals.into_iter().flatten().next();
    header.shown = (first != Some(found.shown)).then_some(found.shown);
    header.truncated = found.truncated;
    header.handle = frame.handle;
    header.hot_zone.clone_from(&found.hot_zone);
    header.content_type = frame.content_type;
    let mut crumbs = found.breadcrumbs.clone();
    if let (true, Some(id)) = (found.truncated, frame.handle) {
        crumbs.push(format!("te --handle {id} returns the rest"));
    }
    let facts = Facts {
        path: frame.path,
        truncated: found.truncated,
        handle: frame.handle,
        withheld_bytes: frame.withheld_bytes,
        ..Facts::default()
    };
    let body = neutralise(&found.body, Ansi::Strip);
    if body != neutralise(&found.body, Ansi::Show) {
        crumbs.push("terminal escapes left out".to_owned());
    }
    let is_whole = !header.truncated && header.handle.is_none() && first != Some(0);
    let text = if is_whole {
        te::render_whole(&body, &crumbs)
    } else {
        te::render(&header, &body, &crumbs)
    };
    (text, facts)
}

/// A finished text, counted.
pub(crate) fn served(cx: &Cx, text: String, facts: Facts) -> Answer {
    budget::count_served(cx, &text);
    match cx.caller().form {
        Form::Text => Answer {
            text,
            data: serde_json::Value::Null,
            facts,
        },
        Form::Data => Answer::data(text, facts),
    }
}

/// Source files above this are not asked for definitions.
pub(crate) const SOURCE_LIMIT: usize = 512 << 10;

/// The text of a file that had a hit; whatever cannot be read now is simply not ranked by its syntax.
pub(crate) fn source(cx: &Cx, path: &str, stop: &CancelToken) -> Option<String> {
    let file = cx.files().roots.open_file(path).ok()?;
    String::from_utf8(file.read_all(SOURCE_LIMIT, stop).ok()?).ok()
}

/// A failed call in the Tool Envelope's words.
pub(crate) fn error_text(tool: &str, error: &Error) -> String {
    let cmd = tool.strip_prefix("te_").unwrap_or(tool);
    let code = error.kind.code(crate::error::Family::Te);
    let mut message = error.message.clone();
    if let Some(serde_json::Value::String(nearest)) = error.extra.get("nearest") {
        message.push_str("\nnearest lines:\n");
        message.push_str(nearest);
    }
    te::render_error(cmd, code, &message, error.hint.as_deref())
}
