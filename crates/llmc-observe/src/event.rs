//! One finished call as observers see it.

use std::borrow::Cow;

use jiff::Timestamp;
use llmc_envelope::HandleId;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What the envelope did with the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EnvelopeMode {
    /// Ranked or cut, with a header or a receipt.
    Enriched,
    /// Unchanged, because it fitted.
    #[default]
    Passthrough,
    /// Unchanged, because the caller asked for that.
    Raw,
}

impl EnvelopeMode {
    /// As it is stored and printed.
    pub fn as_str(self) -> &'static str {
        match self {
            EnvelopeMode::Enriched => "enriched",
            EnvelopeMode::Passthrough => "passthrough",
            EnvelopeMode::Raw => "raw",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<EnvelopeMode> {
        [
            EnvelopeMode::Enriched,
            EnvelopeMode::Passthrough,
            EnvelopeMode::Raw,
        ]
        .into_iter()
        .find(|mode| mode.as_str() == text)
    }
}

/// One finished call: what, whose, how long, how much.
///
/// Its JSON form is what `/api/events` and `/api/summary` send; fields that only telemetry keeps are not part of it.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub struct CallEvent {
    /// When the call ended.
    #[serde(rename = "ts")]
    pub time: Timestamp,
    pub correlation_id: String,
    /// `mcp`, `http`, `cli` or `code`.
    pub source: String,
    /// `local`, or the token's name.
    #[serde(default)]
    pub principal: String,
    pub agent: String,
    pub session: String,
    pub model: String,
    /// The tool; in telemetry also the program it ran, after a space.
    pub tool: String,
    pub error_code: Option<String>,
    pub duration_ms: f64,
    /// The path the call was about.
    pub path: Option<String>,
    pub truncated: bool,
    /// The handle that was made for the rest, or read from.
    #[serde(deserialize_with = "known_handle")]
    pub handle: Option<HandleId>,
    pub tokens_in: u64,
    pub tokens_served: u64,
    /// Tokens that the answer left out.
    pub tokens_withheld: u64,
    /// Tokens of the answer that an earlier answer had left out.
    pub tokens_fetched_back: u64,
    /// Whether a Tool Envelope tool was called.
    #[serde(skip)]
    pub is_te: bool,
    /// The program that a command tool ran.
    #[serde(skip)]
    pub program: Option<String>,
    #[serde(skip)]
    pub mode: EnvelopeMode,
    #[serde(skip)]
    pub bytes_in: u64,
    #[serde(skip)]
    pub bytes_out: u64,
    /// The arguments that may be recorded; telemetry masks and shortens them.
    #[serde(skip)]
    pub args: Option<String>,
    /// The number of its row in telemetry, once it is read from there.
    #[serde(rename = "id", default)]
    pub seq: Option<i64>,
    /// The server process that carried it out.
    #[serde(default)]
    pub server: String,
    /// Name and version of the program that called, as it gives them.
    #[serde(default)]
    pub client: Option<String>,
    /// The history entry of what it changed, such as `h12`.
    #[serde(default)]
    pub entry: Option<String>,
}

impl CallEvent {
    /// `ok` or `error`.
    pub(crate) fn status(&self) -> &'static str {
        if self.error_code.is_some() {
            "error"
        } else {
            "ok"
        }
    }

    /// Fills in what the sizes of the answer say about the rest, which is assumed to be as dense in tokens.
    pub fn estimate_withheld(&mut self, withheld_bytes: u64, fetched_back: bool) {
        let density = match self.bytes_out {
            0 => 0.25,
            bytes => self.tokens_served as f64 / bytes as f64,
        };
        self.tokens_withheld = (withheld_bytes as f64 * density).round() as u64;
        self.tokens_fetched_back = if fetched_back { self.tokens_served } else { 0 };
    }
}

impl Serialize for CallEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut call = serializer.serialize_struct("CallEvent", 22)?;
        call.serialize_field("ts", &format_args!("{:.3}", self.time))?;
        call.serialize_field("correlation_id", &self.correlation_id)?;
        call.serialize_field("source", &self.source)?;
        call.serialize_field("principal", &self.principal)?;
        call.serialize_field("agent", &self.agent)?;
        call.serialize_field("session", &self.session)?;
        call.serialize_field("model", &self.model)?;
        call.serialize_field("tool", &self.tool)?;
        call.serialize_field("status", self.status())?;
        call.serialize_field("error_code", &self.error_code)?;
        call.serialize_field("duration_ms", &self.duration_ms)?;
        call.serialize_field("path", &self.path)?;
        call.serialize_field("truncated", &self.truncated)?;
        call.serialize_field("handle", &self.handle)?;
        call.serialize_field("tokens_in", &self.tokens_in)?;
        call.serialize_field("tokens_served", &self.tokens_served)?;
        call.serialize_field("tokens_withheld", &self.tokens_withheld)?;
        call.serialize_field("tokens_fetched_back", &self.tokens_fetched_back)?;
        // A call that was read from telemetry says what else is known there.
        if let Some(seq) = self.seq {
            call.serialize_field("id", &seq)?;
            call.serialize_field("server", &self.server)?;
            call.serialize_field("client", &self.client)?;
            call.serialize_field("entry", &self.entry)?;
        }
        call.end()
    }
}

/// A handle in a form that this version does not know is as good as none.
fn known_handle<'de, D: Deserializer<'de>>(from: D) -> Result<Option<HandleId>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    Ok(text.as_deref().and_then(HandleId::parse))
}

/// A finished call whose texts are not counted yet; counting is left to the observer's thread.
#[derive(Debug)]
pub struct UncountedCall<'a> {
    /// Everything but sizes and tokens.
    pub event: CallEvent,
    /// The whole arguments, to be counted and dropped.
    pub args: String,
    /// What the caller reads, to be counted and dropped.
    pub answer: Cow<'a, str>,
    pub withheld_bytes: u64,
    /// Bytes of an upstream's answer that a script read in the place of the caller.
    pub script_bytes: u64,
    /// Whether the answer is a part that an earlier answer left out.
    pub fetched_back: bool,
    /// The error's message, for the log; secrets in it are masked.
    pub error_message: Option<String>,
    /// Whether arguments and answer may be kept.
    pub keeps_content: bool,
}
