//! Quantiles of how long calls took, without keeping every duration.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Latencies in buckets that grow by 5 %: a quantile is off by at most that, in a few hundred bytes.
#[derive(Debug, Default)]
pub struct Latency {
    buckets: BTreeMap<i32, u64>,
    count: u64,
}

const STEP: f64 = 1.05;

impl Latency {
    /// Counts one duration, in milliseconds.
    pub fn add(&mut self, ms: f64) {
        let bucket = (ms.max(0.001).ln() / STEP.ln()).ceil() as i32;
        *self.buckets.entry(bucket).or_default() += 1;
        self.count += 1;
    }

    pub(super) fn document(&self) -> Value {
        json!({
            "p50": self.quantile(0.50),
            "p95": self.quantile(0.95),
            "p99": self.quantile(0.99),
        })
    }

    /// The upper edge of the bucket that holds the quantile, in milliseconds; `None` without calls.
    pub fn quantile(&self, share: f64) -> Option<f64> {
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
