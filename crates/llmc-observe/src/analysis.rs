//! `te analyze`: where tokens go, what was saved, and which commands are worth condensing next.

use std::cmp::Reverse;
use std::fmt::Write;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::aggregate::Aggregator;
use crate::event::{CallEvent, EnvelopeMode};
use crate::summary::{CallTotals, LatencyQuantiles, ToolSummary};
use crate::telemetry::{ArgsColumn, CallFilter, Error, Telemetry};
use crate::upstreams::{UpstreamLedger, UpstreamList};

/// Entries of each list but the groups.
const MAX_LISTED: usize = 8;
/// Commands that served fewer tokens are not worth condensing.
const MIN_TOKENS_SERVED: u64 = 200;

/// What calls are grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupBy {
    /// The tool or command.
    Cmd,
    Agent,
    /// The surface that the calls came through.
    Source,
    Session,
    Model,
}

impl GroupBy {
    const ALL: [GroupBy; 5] = [
        GroupBy::Cmd,
        GroupBy::Agent,
        GroupBy::Source,
        GroupBy::Session,
        GroupBy::Model,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            GroupBy::Cmd => "cmd",
            GroupBy::Agent => "agent",
            GroupBy::Source => "source",
            GroupBy::Session => "session",
            GroupBy::Model => "model",
        }
    }

    pub fn parse(text: &str) -> Option<GroupBy> {
        GroupBy::ALL.into_iter().find(|by| by.as_str() == text)
    }

    fn name_of(self, call: &CallEvent) -> &str {
        match self {
            GroupBy::Cmd => command_name(&call.tool),
            GroupBy::Agent => &call.agent,
            GroupBy::Source => &call.source,
            GroupBy::Session => &call.session,
            GroupBy::Model => &call.model,
        }
    }
}

/// One name for one program, whether `te`, `te_grep`, `te_run` or `run_cmd` ran it.
fn command_name(tool: &str) -> &str {
    let name = tool.split_once(' ').map_or(tool, |(_, program)| program);
    name.strip_prefix("te_").unwrap_or(name)
}

/// What `te analyze` prints.
#[derive(Debug, Serialize)]
pub struct TelemetryAnalysis {
    all: GroupTotals,
    by: &'static str,
    /// Most tokens served first; calls without a name are under `""`.
    groups: Vec<Group>,
    #[serde(serialize_with = "as_rows")]
    slowest: Vec<CallEvent>,
    /// Commands that serve much and withhold little.
    least_saving: Vec<Group>,
    /// Commands whose output passes through unchanged, most tokens first.
    candidates: Vec<Group>,
    /// In the order of the configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    upstreams: Vec<UpstreamLedger>,
}

#[derive(Debug, Clone, Serialize)]
struct Group {
    name: String,
    #[serde(flatten)]
    totals: GroupTotals,
}

/// CallTotals under the names of the telemetry columns.
#[derive(Debug, Clone, Serialize)]
struct GroupTotals {
    calls: u64,
    errors: u64,
    truncated: u64,
    bytes_in: u64,
    bytes_out: u64,
    tokens_in: u64,
    tokens_served: u64,
    tokens_withheld: u64,
    tokens_fetched_back: u64,
    p50_ms: f64,
    p95_ms: f64,
    net_saved: i64,
}

impl GroupTotals {
    fn of(totals: &CallTotals, latency: &LatencyQuantiles) -> GroupTotals {
        GroupTotals {
            calls: totals.calls,
            errors: totals.errors,
            truncated: totals.truncated,
            bytes_in: totals.bytes_in,
            bytes_out: totals.bytes_out,
            tokens_in: totals.tokens.input,
            tokens_served: totals.tokens.served,
            tokens_withheld: totals.tokens.withheld,
            tokens_fetched_back: totals.tokens.fetched_back,
            p50_ms: latency.p50.unwrap_or(0.0),
            p95_ms: latency.p95.unwrap_or(0.0),
            net_saved: totals.net_saved(),
        }
    }

    /// The part of the output that was saved.
    fn saved_share(&self) -> f64 {
        let all = self.tokens_served.saturating_add(self.tokens_withheld);
        self.net_saved as f64 / all.max(1) as f64
    }
}

impl TelemetryAnalysis {
    /// Reads the calls that pass the filter, once.
    ///
    /// # Errors
    /// The telemetry cannot be read.
    pub fn of(
        telemetry: &Telemetry,
        by: GroupBy,
        filter: &CallFilter,
        lists: &[UpstreamList],
    ) -> Result<TelemetryAnalysis, Error> {
        let mut commands = Aggregator::unbounded();
        let mut unchanged = Aggregator::unbounded();
        let mut grouped = Aggregator::unbounded();
        telemetry.each(filter, ArgsColumn::Read, |call: Arc<CallEvent>| {
            commands.add(&call);
            if call.mode == EnvelopeMode::Passthrough {
                unchanged.add(&call);
            }
            grouped.add_under(by.name_of(&call), &call);
        })?;
        let groups = |aggregator: &Aggregator| -> Vec<Group> {
            let mut tools = aggregator.summary(Timestamp::now()).tools;
            // Stable: equal ones stay in the order of their names.
            tools.sort_by_key(|tool| Reverse((tool.totals.tokens.served, tool.totals.calls)));
            tools.into_iter().map(Group::from).collect()
        };
        let worthwhile = |aggregator: &Aggregator| {
            let mut groups = groups(aggregator);
            groups.retain(|group| group.totals.tokens_served >= MIN_TOKENS_SERVED);
            groups
        };
        let mut least_saving = worthwhile(&commands);
        least_saving.sort_by(|a, b| a.totals.saved_share().total_cmp(&b.totals.saved_share()));
        least_saving.truncate(MAX_LISTED);
        let mut candidates = worthwhile(&unchanged);
        candidates.truncate(MAX_LISTED);
        let all = commands.summary_with(Timestamp::now(), lists);
        let mut slowest = all.slowest;
        slowest.truncate(MAX_LISTED);
        Ok(TelemetryAnalysis {
            all: GroupTotals::of(&all.totals, &all.latency_ms),
            by: by.as_str(),
            groups: groups(&grouped),
            slowest,
            least_saving,
            candidates,
            upstreams: all.upstreams,
        })
    }

    /// As tables.
    pub fn text(&self) -> String {
        let mut out = totals_table(&self.all);
        write_table(&mut out, &format!("by {}", self.by), &self.groups);
        write_table(&mut out, "least saving", &self.least_saving);
        write_table(&mut out, "candidates for enrichment", &self.candidates);
        write_ledgers(&mut out, &self.upstreams);
        if !self.slowest.is_empty() {
            out.push_str("\nslowest calls\n");
        }
        for call in &self.slowest {
            let _ = writeln!(
                out,
                "{:>10.1} ms  {:<24}  {}",
                call.duration_ms,
                call.tool.chars().take(24).collect::<String>(),
                call.time.strftime("%F %T"),
            );
        }
        out
    }
}

impl From<ToolSummary> for Group {
    fn from(tool: ToolSummary) -> Group {
        Group {
            totals: GroupTotals::of(&tool.totals, &tool.latency_ms),
            name: tool.tool,
        }
    }
}

impl crate::Summary {
    /// The totals as `te --stats` prints them.
    pub fn stats_text(&self) -> String {
        totals_table(&GroupTotals::of(&self.totals, &self.latency_ms))
    }

    /// The same as one JSON document.
    pub fn stats_json(&self) -> Value {
        json!(GroupTotals::of(&self.totals, &self.latency_ms))
    }
}

fn totals_table(sum: &GroupTotals) -> String {
    format!(
        "calls         {:>12}\nerrors        {:>12}\ntruncated     {:>12}\ntokens in     {:>12}\nserved        {:>12}\n\
         withheld      {:>12}\nfetched back  {:>12}\nnet saved     {:>12}\nmedian        {:>9.1} ms\np95           {:>9.1} ms\n",
        sum.calls,
        sum.errors,
        sum.truncated,
        sum.tokens_in,
        sum.tokens_served,
        sum.tokens_withheld,
        sum.tokens_fetched_back,
        sum.net_saved,
        sum.p50_ms,
        sum.p95_ms,
    )
}

fn write_table(out: &mut String, title: &str, rows: &[Group]) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "\n{title:<28}{:>7}{:>10}{:>11}{:>9}{:>11}{:>10}",
        "calls", "served", "withheld", "fetched", "net saved", "p95 ms"
    );
    for row in rows {
        let name = match row.name.as_str() {
            "" => "(none)".to_owned(),
            name => name.chars().take(26).collect(),
        };
        let sum = &row.totals;
        let _ = writeln!(
            out,
            "{name:<28}{:>7}{:>10}{:>11}{:>9}{:>11}{:>10.1}",
            sum.calls,
            sum.tokens_served,
            sum.tokens_withheld,
            sum.tokens_fetched_back,
            sum.net_saved,
            sum.p95_ms
        );
    }
}

fn write_ledgers(out: &mut String, ledgers: &[UpstreamLedger]) {
    if ledgers.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "\n{:<28}{:>7}{:>13}{:>10}{:>11}{:>9}{:>12}",
        "upstreams", "calls", "list avoided", "served", "withheld", "fetched", "in scripts"
    );
    for ledger in ledgers {
        let tokens = &ledger.totals.tokens;
        let name: String = ledger.upstream.chars().take(26).collect();
        let _ = writeln!(
            out,
            "{name:<28}{:>7}{:>13}{:>10}{:>11}{:>9}{:>12}",
            ledger.totals.calls,
            ledger.list_avoided,
            tokens.served,
            tokens.withheld,
            tokens.fetched_back,
            ledger.read_by_scripts,
        );
    }
}

/// Calls under the names of the telemetry columns.
fn as_rows<S: Serializer>(calls: &[CallEvent], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(calls.iter().map(|call| {
        json!({
            "time": call.time.to_string(),
            "source": call.source,
            "agent": call.agent,
            "session": call.session,
            "model": call.model,
            "cmd": call.tool,
            "mode": call.mode,
            "bytes_in": call.bytes_in,
            "bytes_out": call.bytes_out,
            "tokens_in": call.tokens_in,
            "tokens_served": call.tokens_served,
            "tokens_withheld": call.tokens_withheld,
            "tokens_fetched_back": call.tokens_fetched_back,
            "latency_ms": call.duration_ms,
            "truncated": call.truncated,
            "handle": call.handle,
            "error": call.error_code,
            "args": call.args,
        })
    }))
}
