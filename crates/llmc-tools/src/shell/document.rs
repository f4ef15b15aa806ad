//! The answer of `te --json`: eight keys, always all of them.

use std::time::Duration;

use llmc_observe::EnvelopeMode as Mode;
use serde_json::{Value, json};

use super::wrap::{Ending, Wrapped};

/// Everything the document tells.
pub(crate) struct Told<'a> {
    pub(crate) argv: &'a [String],
    pub(crate) mode: Mode,
    pub(crate) ending: Ending,
    pub(crate) wrapped: &'a Wrapped,
    pub(crate) latency: Duration,
    pub(crate) agent: &'a str,
    pub(crate) budget_remaining: Option<u64>,
}

pub(crate) fn document(told: &Told<'_>) -> Value {
    let wrapped = told.wrapped;
    let enrichment = (told.mode == Mode::Enriched).then(|| {
        json!({
            "match_count": wrapped.matches,
            "truncated": wrapped.truncated,
            "handle": wrapped.handle,
            "tokens_estimate": llmc_tokens::count(&wrapped.stdout),
        })
    });
    json!({
        "success": is_success(told.argv, told.ending),
        "mode": told.mode.as_str(),
        "command": told.argv.join(" "),
        "stdout": wrapped.stdout,
        "stderr": wrapped.stderr,
        "exit_code": told.ending.code(),
        "enrichment": enrichment,
        "telemetry": {
            "latency_ms": (told.latency.as_secs_f64() * 10_000.0).round() / 10.0,
            "agent_id": told.agent,
            "budget_remaining": told.budget_remaining,
        },
    })
}

/// Whether an exit code means no error: searches that find nothing and comparisons that find something end with 1.
fn is_success(argv: &[String], ending: Ending) -> bool {
    match ending.exit_code {
        Some(0) => true,
        Some(1) => {
            let first = argv.first().map_or("", String::as_str);
            let name = first.rsplit('/').next().unwrap_or(first);
            matches!(
                name,
                "grep" | "egrep" | "fgrep" | "rg" | "ripgrep" | "ag" | "ack" | "diff" | "cmp"
            ) || (name == "git" && argv.iter().any(|word| word == "grep"))
        }
        _ => false,
    }
}
