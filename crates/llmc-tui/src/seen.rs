//! One finished call as it is shown.

use jiff::Timestamp;
use llmc_envelope::HandleId;
use llmc_envelope::telemetry::Recorded;
use serde::Deserialize;
use serde_json::Value;

use crate::text::{label, legible};

/// Characters of a name that are kept.
const NAME: usize = 80;
/// Characters of what a call was about that are kept.
const ABOUT: usize = 2000;

/// One finished call. Its texts are legible: nothing in them acts on a terminal.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// When it ended.
    pub time: Timestamp,
    /// `mcp`, `http`, `cli` or `code`.
    pub source: String,
    /// Who called.
    pub agent: String,
    /// In which conversation.
    pub session: String,
    /// With which model.
    pub model: String,
    /// The tool.
    pub tool: String,
    /// The error code, if it failed.
    pub error: Option<String>,
    /// How long it took, in milliseconds.
    pub ms: f64,
    /// Tokens of the arguments.
    pub tokens_in: u64,
    /// Tokens of the answer.
    pub served: u64,
    /// Tokens that were left out.
    pub withheld: u64,
    /// Tokens of the answer that an earlier one had left out.
    pub fetched_back: u64,
    /// Whether something was left out.
    pub truncated: bool,
    /// The handle made for the rest, or read from.
    pub handle: Option<HandleId>,
    /// What it was about: its arguments in brief, or its path.
    pub about: String,
    /// The arguments as they were recorded, for running it again; never shown.
    pub args: Option<String>,
}

impl Seen {
    /// From a row of telemetry.
    pub fn recorded(call: Recorded) -> Seen {
        let row = call.row;
        let name = |text: Option<String>| label(&text.unwrap_or_default(), NAME);
        Seen {
            time: call.time,
            source: row.source.as_str().to_owned(),
            agent: name(row.agent),
            session: name(row.session),
            model: name(row.model),
            tool: label(&row.cmd, NAME),
            error: row.error.map(|code| label(&code, NAME)),
            ms: row.latency_ms,
            tokens_in: row.tokens_in,
            served: row.tokens_served,
            withheld: row.tokens_withheld,
            fetched_back: row.tokens_fetched_back,
            truncated: row.truncated,
            handle: row.handle,
            about: legible(&brief(row.args.as_deref().unwrap_or_default()), ABOUT),
            args: row.args,
        }
    }

    /// From an event of a server, with its correlation id.
    pub(crate) fn event(json: &str) -> Option<(String, Seen)> {
        let event: Event = serde_json::from_str(json).ok()?;
        Some(event.into_seen())
    }

    /// `ok`, `ok, cut`, or the error's code.
    pub fn status(&self) -> &str {
        match &self.error {
            Some(code) => code,
            None if self.truncated => "ok, cut",
            None => "ok",
        }
    }

    /// Whether any of its texts holds this one, which is in lower case.
    pub(crate) fn matches(&self, wanted: &str) -> bool {
        let texts = [
            &self.tool,
            &self.source,
            &self.agent,
            &self.session,
            &self.model,
            &self.about,
        ];
        let holds = |text: &str| text.to_lowercase().contains(wanted);
        wanted.is_empty()
            || holds(self.status())
            || texts.into_iter().any(|text| holds(text))
            || self.handle.is_some_and(|handle| holds(&handle.to_string()))
    }
}

/// Arguments as a person would note them: `path=a.txt max_lines=20`. What is no JSON object stays as it is.
fn brief(args: &str) -> String {
    let Ok(Value::Object(args)) = serde_json::from_str(args) else {
        return args.to_owned();
    };
    let pairs = args.iter().map(|(key, value)| match value {
        Value::String(text) => format!("{key}={text}"),
        value => format!("{key}={value}"),
    });
    pairs.collect::<Vec<_>>().join(" ")
}

/// A call as `/api/events` and `/api/summary` tell it.
#[derive(Debug, Deserialize)]
pub(crate) struct Event {
    ts: Timestamp,
    correlation_id: String,
    source: String,
    agent: String,
    session: String,
    model: String,
    tool: String,
    error_code: Option<String>,
    duration_ms: f64,
    path: Option<String>,
    truncated: bool,
    handle: Option<String>,
    tokens_in: u64,
    tokens_served: u64,
    tokens_withheld: u64,
    tokens_fetched_back: u64,
}

impl Event {
    pub(crate) fn into_seen(self) -> (String, Seen) {
        let name = |text: &str| label(text, NAME);
        let seen = Seen {
            time: self.ts,
            source: name(&self.source),
            agent: name(&self.agent),
            session: name(&self.session),
            model: name(&self.model),
            tool: name(&self.tool),
            error: self.error_code.as_deref().map(name),
            ms: self.duration_ms,
            tokens_in: self.tokens_in,
            served: self.tokens_served,
            withheld: self.tokens_withheld,
            fetched_back: self.tokens_fetched_back,
            truncated: self.truncated,
            handle: self.handle.as_deref().and_then(HandleId::parse),
            about: legible(self.path.as_deref().unwrap_or_default(), ABOUT),
            args: None,
        };
        (self.correlation_id, seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_noted_in_brief() {
        for (args, noted) in [
            (
                r#"{"path":"a b.txt","max_lines":20,"all":true}"#,
                "path=a b.txt max_lines=20 all=true",
            ),
            (r#"{"edits":[{"old":"x"}]}"#, r#"edits=[{"old":"x"}]"#),
            ("{}", ""),
            ("", ""),
            (r#"{"path":"cut o…"#, r#"{"path":"cut o…"#),
        ] {
            assert_eq!(brief(args), noted);
        }
    }

    #[test]
    fn events_of_a_server_are_read_and_others_refused() {
        let event = serde_json::json!({
            "ts": "2026-01-02T03:04:05.678Z", "correlation_id": "id", "source": "http", "principal": "local",
            "agent": "a\u{1b}[2J", "session": "s", "model": "m", "tool": "stat", "status": "error",
            "error_code": "NOT_FOUND", "duration_ms": 1.5, "path": "p", "truncated": false, "handle": null,
            "tokens_in": 1, "tokens_served": 2, "tokens_withheld": 3, "tokens_fetched_back": 4,
        });
        let (id, call) = Seen::event(&event.to_string()).unwrap();
        assert_eq!((id.as_str(), call.agent.as_str()), ("id", "a\\x1b[2J"));
        assert_eq!(
            (call.status(), call.withheld, call.about.as_str()),
            ("NOT_FOUND", 3, "p")
        );
        for other in ["", "[]", "{}", r#"{"ts":"yesterday"}"#] {
            assert!(Seen::event(other).is_none(), "{other}");
        }
    }
}
