//! A finished call as those who watch live see it.

use jiff::Timestamp;
use serde::Serialize;

use super::{Counted, source};

/// One finished call: what, whose, how long, how much. Never its arguments or its answer.
#[derive(Debug, Clone, Serialize)]
pub struct SeenCall {
    /// When it ended.
    pub ts: String,
    /// Its id in logs and audits.
    pub correlation_id: String,
    /// `mcp`, `http`, `cli` or `code`.
    pub source: &'static str,
    /// `local`, or the token's name.
    pub principal: String,
    /// The agent.
    pub agent: String,
    /// The conversation.
    pub session: String,
    /// The model.
    pub model: String,
    /// The tool.
    pub tool: &'static str,
    /// `ok` or `error`.
    pub status: &'static str,
    /// The tool's own code, when it failed.
    pub error_code: Option<&'static str>,
    /// How long it took.
    pub duration_ms: f64,
    /// The path it was about.
    pub path: Option<String>,
    /// Whether something was left out.
    pub truncated: bool,
    /// The handle that returns the rest.
    pub handle: Option<String>,
    /// Tokens of the arguments.
    pub tokens_in: u64,
    /// Tokens of the answer.
    pub tokens_served: u64,
    /// Tokens that were left out.
    pub tokens_withheld: u64,
    /// Tokens of the answer that had been left out before.
    pub tokens_fetched_back: u64,
}

impl SeenCall {
    pub(super) fn of(counted: &Counted, now: Timestamp) -> SeenCall {
        let event = &counted.event;
        SeenCall {
            ts: format!("{now:.3}"),
            correlation_id: event.correlation_id.clone(),
            source: source(event.surface).as_str(),
            principal: event.principal.clone(),
            agent: event.agent.clone(),
            session: event.session.clone(),
            model: event.model.clone(),
            tool: event.tool_name(),
            status: if event.error.is_some() { "error" } else { "ok" },
            error_code: counted.error_code(),
            duration_ms: (counted.latency_ms() * 1000.0).round() / 1000.0,
            path: event.path.clone(),
            truncated: event.truncated,
            handle: event.handle.map(|handle| handle.to_string()),
            tokens_in: counted.tokens_in,
            tokens_served: counted.tokens_out,
            tokens_withheld: counted.tokens_withheld,
            tokens_fetched_back: counted.tokens_fetched_back,
        }
    }
}
