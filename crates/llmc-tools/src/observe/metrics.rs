//! Counters and latencies in memory, for `get_metrics`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use super::Counted;

/// Everything since the start.
#[derive(Debug, Default)]
pub struct Metrics(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    all: Series,
    tools: BTreeMap<&'static str, Series>,
    errors: BTreeMap<&'static str, u64>,
    tokens_in: u64,
    served: u64,
    withheld: u64,
    fetched_back: u64,
}

#[derive(Debug, Default)]
struct Series {
    calls: u64,
    errors: u64,
    latency: Latency,
}

impl Metrics {
    pub(super) fn add(&self, counted: &Counted) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = u64::from(counted.event.error.is_some());
        let ms = counted.latency_ms();
        state.all.add(failed, ms);
        state
            .tools
            .entry(counted.event.tool_name())
            .or_default()
            .add(failed, ms);
        if let Some(code) = counted.error_code() {
            *state.errors.entry(code).or_default() += 1;
        }
        state.tokens_in += counted.tokens_in;
        state.served += counted.tokens_out;
        state.withheld += counted.tokens_withheld;
        state.fetched_back += counted.tokens_fetched_back;
    }

    pub(super) fn document(&self) -> Value {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tools: serde_json::Map<String, Value> = state
            .tools
            .iter()
            .map(|(name, series)| ((*name).to_owned(), series.document()))
            .collect();
        let mut document = state.all.document();
        document["errors_by_code"] = json!(state.errors);
        document["tokens"] = json!({
            "in": state.tokens_in,
            "served": state.served,
            "withheld": state.withheld,
            "fetched_back": state.fetched_back,
        });
        document["tools"] = tools.into();
        document
    }
}

impl Series {
    fn add(&mut self, failed: u64, ms: f64) {
        self.calls += 1;
        self.errors += failed;
        self.latency.add(ms);
    }

    fn document(&self) -> Value {
        json!({
            "calls": self.calls,
            "errors": self.errors,
            "latency_ms": {
                "p50": self.latency.quantile(0.50),
                "p95": self.latency.quantile(0.95),
                "p99": self.latency.quantile(0.99),
            },
        })
    }
}

/// Latencies in buckets that grow by 5 %: a quantile is off by at most that, in a few hundred bytes.
#[derive(Debug, Default)]
struct Latency {
    buckets: BTreeMap<i32, u64>,
    count: u64,
}

const STEP: f64 = 1.05;

impl Latency {
    fn add(&mut self, ms: f64) {
        let bucket = (ms.max(0.001).ln() / STEP.ln()).ceil() as i32;
        *self.buckets.entry(bucket).or_default() += 1;
        self.count += 1;
    }

    /// The upper edge of the bucket that holds the quantile, in milliseconds; `None` without calls.
    fn quantile(&self, share: f64) -> Option<f64> {
        let rank = (self.count as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in &self.buckets {
            seen += count;
            if seen >= rank {
                return Some((STEP.powi(*bucket) * 1000.0).round() / 1000.0);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_a_twentieth() {
        let mut latency = Latency::default();
        for ms in 1..=1000 {
            latency.add(f64::from(ms));
        }
        for (share, expect) in [(0.5, 500.0), (0.95, 950.0), (0.99, 990.0)] {
            let got = latency.quantile(share).unwrap();
            assert!((got / expect - 1.0).abs() < 0.051, "{share}: {got}");
        }
        assert_eq!(Latency::default().quantile(0.5), None);
    }
}
