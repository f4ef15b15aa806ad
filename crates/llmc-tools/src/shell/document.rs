//! The answer of `te --json`: eight keys, always all of them.

use std::time::Duration;

use llmc_exec::ExitStatus;
use llmc_observe::EnvelopeMode as Mode;
use serde_json::{Value, json};

use super::te_output::TeOutput;

/// What the document is made of.
pub(crate) struct DocumentParts<'a> {
    pub(crate) argv: &'a [String],
    pub(crate) mode: Mode,
    pub(crate) output: &'a TeOutput,
    /// What the operator's `te` program said, in the place of our own.
    pub(crate) enrichment: Option<&'a Value>,
    pub(crate) latency: Duration,
    pub(crate) agent: &'a str,
    pub(crate) budget_remaining: Option<u64>,
}

pub(crate) fn document(parts: &DocumentParts<'_>) -> Value {
    let output = parts.output;
    let enrichment = (parts.mode == Mode::Enriched).then(|| {
        if let Some(enrichment) = parts.enrichment {
            return enrichment.clone();
        }
        json!({
            "match_count": output.matches,
            "truncated": output.truncated,
            "handle": output.handle,
            "tokens_estimate": llmc_tokens::count(&output.stdout),
        })
    });
    json!({
        "success": is_success(parts.argv, output.status),
        "mode": parts.mode.as_str(),
        "command": parts.argv.join(" "),
        "stdout": output.stdout,
        "stderr": output.stderr,
        "exit_code": output.status.and_then(ExitStatus::shell_code),
        "enrichment": enrichment,
        "telemetry": {
            "latency_ms": (parts.latency.as_secs_f64() * 10_000.0).round() / 10.0,
            "agent_id": parts.agent,
            "budget_remaining": parts.budget_remaining,
        },
    })
}

/// Whether an exit code means no error: searches that find nothing and comparisons that find something end with 1.
fn is_success(argv: &[String], status: Option<ExitStatus>) -> bool {
    match status.and_then(ExitStatus::exit_code) {
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
