//! One row of telemetry: secrets masked, texts bounded, ready for either engine.

use std::time::Instant;

use serde::Serialize;

use crate::content::{CallContent, ContentText};
use crate::event::CallEvent;
use crate::mask::mask_secrets;

/// Longest argument text that is kept.
const MAX_ARGS_BYTES: usize = 2000;
/// How much of the arguments is searched for secrets before they are cut to that.
const MAX_MASKED_BYTES: usize = 64 * 1024;
/// How far from a cut a secret may not be recognised as one.
const UNMASKED_MARGIN_BYTES: usize = 512;
/// Bytes of a call's arguments, and of its answer, that are kept beside the row.
const MAX_CONTENT_BYTES: usize = 16 << 10;

/// A call as it is stored.
#[derive(Debug, Serialize)]
pub(crate) struct TelemetryRow {
    #[serde(skip)]
    pub(super) made: Instant,
    pub(super) source: String,
    pub(super) agent: String,
    pub(super) session: String,
    pub(super) model: String,
    pub(super) cmd: String,
    pub(super) mode: &'static str,
    pub(super) bytes_in: i64,
    pub(super) bytes_out: i64,
    pub(super) tokens_in: i64,
    pub(super) tokens_served: i64,
    pub(super) tokens_withheld: i64,
    pub(super) tokens_fetched_back: i64,
    pub(super) latency_ms: f64,
    pub(super) truncated: bool,
    pub(super) handle: Option<String>,
    pub(super) error: Option<String>,
    pub(super) principal: String,
    pub(super) server: String,
    pub(super) client: Option<String>,
    pub(super) correlation_id: String,
    pub(super) path: Option<String>,
    pub(super) entry: Option<String>,
    pub(super) args: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<RowContent>,
}

/// What of a call's texts is stored.
#[derive(Debug, Serialize)]
pub(super) struct RowContent {
    pub(super) args: String,
    pub(super) args_cut: bool,
    pub(super) answer: String,
    pub(super) answer_cut: bool,
}

impl TelemetryRow {
    pub(crate) fn new(call: &CallEvent, content: Option<&CallContent>) -> TelemetryRow {
        let content = content.map(|content| {
            let (args, args_cut) = masked_start(&content.args, MAX_CONTENT_BYTES);
            let (answer, answer_cut) = masked_start(&content.answer, MAX_CONTENT_BYTES);
            RowContent {
                args,
                args_cut,
                answer,
                answer_cut,
            }
        });
        // Of a tool that runs programs, the program is the more telling half of the name.
        let cmd = match &call.program {
            Some(program) => masked(&format!("{} {program}", call.tool)),
            None => masked(&call.tool),
        };
        let number = |count: u64| count as i64;
        TelemetryRow {
            made: Instant::now(),
            source: without_nul(&call.source),
            agent: without_nul(&call.agent),
            session: without_nul(&call.session),
            model: without_nul(&call.model),
            cmd,
            mode: call.mode.as_str(),
            bytes_in: number(call.bytes_in),
            bytes_out: number(call.bytes_out),
            tokens_in: number(call.tokens_in),
            tokens_served: number(call.tokens_served),
            tokens_withheld: number(call.tokens_withheld),
            tokens_fetched_back: number(call.tokens_fetched_back),
            latency_ms: Some(call.duration_ms)
                .filter(|ms| ms.is_finite())
                .unwrap_or(0.0),
            truncated: call.truncated,
            handle: call.handle.map(|id| id.to_string()),
            error: call.error_code.as_deref().map(masked),
            principal: without_nul(&call.principal),
            server: without_nul(&call.server),
            client: call.client.as_deref().map(masked),
            correlation_id: without_nul(&call.correlation_id),
            path: call.path.as_deref().map(masked),
            entry: call.entry.as_deref().map(without_nul),
            args: call.args.as_deref().map(masked_args),
            content,
        }
    }

    /// Bytes of the texts that are stored beside the row.
    pub(crate) fn content_bytes(&self) -> usize {
        let content = self.content.as_ref();
        content.map_or(0, |content| content.args.len() + content.answer.len())
    }
}

/// The masked start of the arguments, which may be as long as the file they write.
fn masked_args(args: &str) -> String {
    let end = args.floor_char_boundary(MAX_MASKED_BYTES);
    let head = ContentText {
        text: args[..end].to_owned(),
        is_cut: end < args.len(),
    };
    let (mut masked, is_cut) = masked_start(&head, MAX_ARGS_BYTES);
    if is_cut {
        masked.push('…');
    }
    masked
}

/// The start of a text, secrets masked, and whether there is more of it.
fn masked_start(head: &ContentText, max_bytes: usize) -> (String, bool) {
    // Masked before it is cut to size: a cut could take away what a secret is recognised by. Where the head itself was
    // cut that may have happened, so its end is dropped.
    let mut masked = masked(&head.text);
    let sure = if head.is_cut {
        masked.len().saturating_sub(UNMASKED_MARGIN_BYTES)
    } else {
        masked.len()
    };
    let limit = sure.min(max_bytes);
    let is_cut = limit < masked.len();
    if is_cut {
        masked.truncate(masked.floor_char_boundary(limit));
    }
    (masked, is_cut || head.is_cut)
}

fn masked(text: &str) -> String {
    without_nul(&mask_secrets(text))
}

/// A text of PostgreSQL cannot hold NUL, and SQLite's functions stop at one.
pub(crate) fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
