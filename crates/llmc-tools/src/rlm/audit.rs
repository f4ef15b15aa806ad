//! One audit row for each call: caller, duration, spending, error code; never text.

use std::time::Duration;

use jiff::Timestamp;
use llmc_model::SpendingReport;
use llmc_observe::CsvLog;

use super::AuditFacts;
use crate::cx::Cx;
use crate::error::{Error, Family};

/// The file in the state directory.
const FILE: &str = "rlm_audit.csv";

const HEADER: &[&str] = &[
    "timestamp",
    "correlation_id",
    "session_id",
    "agent_id",
    "rlm_session_id",
    "tool",
    "duration_ms",
    "bytes_read",
    "model",
    "calls",
    "turns",
    "tokens_in",
    "tokens_out",
    "tokens_cached",
    "cost_usd",
    "error_code",
    "models",
];

/// Every model that was asked and how often: `ollama/lead=2 ollama/part=5`.
fn calls_by_model(spent: &SpendingReport) -> String {
    let models: Vec<String> = spent
        .by_model
        .iter()
        .map(|one| format!("{}={}", one.model, one.calls + one.unconfirmed_calls))
        .collect();
    models.join(" ")
}

/// Writes the row of a call whose arguments were refused.
pub(crate) async fn write_refused(cx: &Cx, error: &Error) {
    write(cx, &AuditFacts::default(), Duration::ZERO, Some(error)).await;
}

/// Writes the row, and the same into the log.
pub(super) async fn write(cx: &Cx, facts: &AuditFacts, took: Duration, error: Option<&Error>) {
    let total = &facts.spent.total;
    let code = error.map_or("", |error| error.kind.code(Family::Rlm));
    let duration_ms = took.as_secs_f64() * 1000.0;
    let models = calls_by_model(&facts.spent);
    tracing::info!(
        target: "llmc::rlm",
        tool = "rlm_query",
        duration_ms = duration_ms.round(),
        bytes_read = facts.bytes_read,
        model = facts.model.as_str(),
        models = models.as_str(),
        calls = total.calls,
        turns = facts.turns,
        tokens_in = total.tokens_in,
        tokens_out = total.tokens_out,
        cost_usd = total.cost_usd,
        error_code = code,
        "analysis"
    );
    let app = cx.app();
    let Some(dir) = app
        .stores()
        .filter(|_| app.config().mcp.observability.enabled)
    else {
        return;
    };
    let caller = cx.caller();
    let cells = [
        Timestamp::now().to_string(),
        cx.correlation_id().to_owned(),
        caller.session.clone(),
        caller.agent.clone(),
        facts.session.clone(),
        "rlm_query".to_owned(),
        format!("{duration_ms:.3}"),
        facts.bytes_read.to_string(),
        facts.model.clone(),
        (total.calls + total.unconfirmed_calls).to_string(),
        facts.turns.to_string(),
        total.tokens_in.to_string(),
        total.tokens_out.to_string(),
        total.tokens_cached.to_string(),
        format!("{:.9}", total.cost_usd),
        code.to_owned(),
        models,
    ];
    let (root, path) = (app.root().to_owned(), dir.join(FILE));
    let days = app.config().mcp.observability.retention_days;
    let written =
        tokio::task::spawn_blocking(move || CsvLog::new(&root, &path, HEADER).add(&cells, days));
    if let Ok(Err(error)) = written.await {
        tracing::error!(%error, "the audit of analyses cannot be written");
    }
}
