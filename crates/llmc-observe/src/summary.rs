//! Calls added up, as every view reads them. The JSON form is that of `/api/summary`.

use jiff::Timestamp;
use llmc_envelope::HandleId;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::event::CallEvent;
use crate::upstreams::UpstreamLedger;

/// All calls since the start, or those of a filter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub totals: CallTotals,
    pub latency_ms: LatencyQuantiles,
    /// By name.
    pub tools: Vec<ToolSummary>,
    /// By code.
    pub errors: Vec<ErrorCount>,
    /// The latest first.
    pub sessions: Vec<SessionSummary>,
    pub over_time: OverTime,
    /// The latest calls, newest first.
    pub recent: Vec<CallEvent>,
    /// In the order of the configuration; a server of an earlier version sends none.
    #[serde(default)]
    pub upstreams: Vec<UpstreamLedger>,
    /// The slowest calls, slowest first. Not sent.
    #[serde(skip)]
    pub slowest: Vec<CallEvent>,
    /// The handle seen last. Not sent.
    #[serde(skip)]
    pub last_handle: Option<HandleId>,
}

/// What is added up over calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallTotals {
    pub calls: u64,
    pub errors: u64,
    pub tokens: TokenCounts,
    /// Calls whose answer was cut.
    #[serde(skip)]
    pub truncated: u64,
    #[serde(skip)]
    pub bytes_in: u64,
    #[serde(skip)]
    pub bytes_out: u64,
}

impl CallTotals {
    /// From nine sums: calls, errors, cut answers, bytes in and out, tokens in, served, withheld and fetched back.
    pub(crate) fn from_sums<E>(mut sum: impl FnMut(usize) -> Result<i64, E>) -> Result<Self, E> {
        // Telemetry that another program wrote may hold any number.
        let mut number = |at: usize| sum(at).map(|sum| u64::try_from(sum).unwrap_or(0));
        Ok(Self {
            calls: number(0)?,
            errors: number(1)?,
            truncated: number(2)?,
            bytes_in: number(3)?,
            bytes_out: number(4)?,
            tokens: TokenCounts {
                input: number(5)?,
                served: number(6)?,
                withheld: number(7)?,
                fetched_back: number(8)?,
            },
        })
    }
}

/// Tokens by where they went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenCounts {
    /// Tokens of arguments.
    #[serde(rename = "in")]
    pub input: u64,
    /// Tokens of answers.
    pub served: u64,
    /// Tokens that answers left out.
    pub withheld: u64,
    /// Tokens that were left out first and fetched later.
    pub fetched_back: u64,
}

impl CallTotals {
    pub(crate) fn add(&mut self, call: &CallEvent) {
        // Telemetry that another program wrote may hold any number.
        for (sum, number) in [
            (&mut self.calls, 1),
            (&mut self.errors, u64::from(call.error_code.is_some())),
            (&mut self.truncated, u64::from(call.truncated)),
            (&mut self.bytes_in, call.bytes_in),
            (&mut self.bytes_out, call.bytes_out),
            (&mut self.tokens.input, call.tokens_in),
            (&mut self.tokens.served, call.tokens_served),
            (&mut self.tokens.withheld, call.tokens_withheld),
            (&mut self.tokens.fetched_back, call.tokens_fetched_back),
        ] {
            *sum = sum.saturating_add(number);
        }
    }

    /// Tokens that no model has read in the end: withheld and never fetched.
    pub fn net_saved(&self) -> i64 {
        let clamp = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        clamp(self.tokens.withheld) - clamp(self.tokens.fetched_back)
    }

    /// The share of saved tokens in what would have been read without the envelope, in percent.
    pub fn saved_percent(&self) -> Option<f64> {
        let saved = self.net_saved() as f64;
        let all = self.tokens.served as f64 + saved;
        (all > 0.0 && saved >= 0.0).then(|| saved / all * 100.0)
    }
}

/// Durations that half, 95 % and 99 % of the calls do not exceed; absent without calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyQuantiles {
    pub p50: Option<f64>,
    pub p95: Option<f64>,
    pub p99: Option<f64>,
}

/// The calls of one tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolSummary {
    pub tool: String,
    #[serde(flatten)]
    pub totals: CallTotals,
    pub latency_ms: LatencyQuantiles,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorCount {
    pub code: String,
    pub count: u64,
}

/// The calls of one agent in one session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionSummary {
    pub session: String,
    pub agent: String,
    pub model: String,
    #[serde(default)]
    pub principal: String,
    #[serde(flatten)]
    pub totals: CallTotals,
    #[serde(serialize_with = "in_seconds")]
    pub first: Timestamp,
    #[serde(serialize_with = "in_seconds")]
    pub last: Timestamp,
}

/// The last hour in steps of equal length, oldest first; steps without calls are missing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OverTime {
    pub step_s: i64,
    pub steps: Vec<TimeStep>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeStep {
    /// The second at which it begins, since 1970.
    pub at: i64,
    #[serde(flatten)]
    pub totals: CallTotals,
}

impl Summary {
    /// The document that `get_metrics` answers with.
    pub(crate) fn metrics(&self) -> Value {
        let tools: Map<String, Value> = (self.tools.iter())
            .map(|tool| {
                let document = document(&tool.totals, &tool.latency_ms);
                (tool.tool.clone(), document)
            })
            .collect();
        let errors: Map<String, Value> = (self.errors.iter())
            .map(|error| (error.code.clone(), error.count.into()))
            .collect();
        let mut metrics = document(&self.totals, &self.latency_ms);
        metrics["errors_by_code"] = errors.into();
        metrics["tokens"] = json!(self.totals.tokens);
        metrics["tools"] = tools.into();
        if !self.upstreams.is_empty() {
            metrics["upstreams"] = json!(self.upstreams);
        }
        metrics
    }
}

fn document(totals: &CallTotals, latency: &LatencyQuantiles) -> Value {
    json!({"calls": totals.calls, "errors": totals.errors, "latency_ms": latency})
}

fn in_seconds<S: Serializer>(time: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{time:.0}"))
}
