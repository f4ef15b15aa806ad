//! Durations in the buckets that Prometheus reads.

use std::fmt::Write;

/// Upper edges in seconds, the last one open.
const EDGES: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// How many durations fell below each edge, and their sum.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    counts: [u64; EDGES.len()],
    count: u64,
    sum: f64,
}

impl Histogram {
    /// Counts one duration, in seconds.
    pub fn add(&mut self, seconds: f64) {
        if let Some(bucket) = EDGES.iter().position(|edge| seconds <= *edge) {
            self.counts[bucket] += 1;
        }
        self.count += 1;
        self.sum += seconds;
    }

    /// Writes it under a name; `label` is `key="value"`, or empty.
    pub fn write(&self, out: &mut String, name: &str, label: &str) {
        let comma = if label.is_empty() { "" } else { "," };
        let mut below = 0;
        for (edge, count) in EDGES.iter().zip(self.counts) {
            below += count;
            let _ = writeln!(out, "{name}_bucket{{{label}{comma}le=\"{edge}\"}} {below}");
        }
        let _ = writeln!(
            out,
            "{name}_bucket{{{label}{comma}le=\"+Inf\"}} {}",
            self.count
        );
        let braces = if label.is_empty() {
            String::new()
        } else {
            format!("{{{label}}}")
        };
        let _ = writeln!(out, "{name}_sum{braces} {}", self.sum);
        let _ = writeln!(out, "{name}_count{braces} {}", self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_the_last_one_holds_all() {
        let mut histogram = Histogram::default();
        for seconds in [0.0005, 0.002, 0.002, 60.0] {
            histogram.add(seconds);
        }
        let mut out = String::new();
        histogram.write(&mut out, "x_seconds", "tool=\"a\"");
        assert!(out.contains("x_seconds_bucket{tool=\"a\",le=\"0.001\"} 1\n"));
        assert!(out.contains("x_seconds_bucket{tool=\"a\",le=\"0.0025\"} 3\n"));
        assert!(out.contains("x_seconds_bucket{tool=\"a\",le=\"30\"} 3\n"));
        assert!(out.contains("x_seconds_bucket{tool=\"a\",le=\"+Inf\"} 4\n"));
        assert!(out.contains("x_seconds_sum{tool=\"a\"} 60.0045\n"));
        assert!(out.contains("x_seconds_count{tool=\"a\"} 4\n"));
    }
}
