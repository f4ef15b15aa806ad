//! The Tool Envelope's way of answering: header, body within the caller's budget, breadcrumbs, and a handle for the rest.

use llmc_envelope::te;
use llmc_host::CancelToken;

use crate::budget;
use crate::cx::Cx;
use crate::error::Error;
use crate::seal::body_room;

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
