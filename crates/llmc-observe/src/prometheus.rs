//! The text format of Prometheus.

use std::fmt::Write;

/// Upper bounds of the buckets, in seconds.
const BUCKET_BOUNDS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// A histogram of durations.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    counts: [u64; BUCKET_BOUNDS.len()],
    count: u64,
    sum: f64,
}

impl Histogram {
    /// Counts one duration, in seconds.
    pub fn add(&mut self, seconds: f64) {
        if let Some(bucket) = BUCKET_BOUNDS.iter().position(|bound| seconds <= *bound) {
            self.counts[bucket] += 1;
        }
        self.count += 1;
        self.sum += seconds;
    }

    /// Writes it under a name; `label` is `key="value"`, or empty.
    pub fn write(&self, out: &mut String, name: &str, label: &str) {
        let comma = if label.is_empty() { "" } else { "," };
        let mut below = 0;
        for (bound, count) in BUCKET_BOUNDS.iter().zip(self.counts) {
            below += count;
            let _ = writeln!(out, "{name}_bucket{{{label}{comma}le=\"{bound}\"}} {below}");
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

/// Writes the `HELP` and `TYPE` lines of a metric.
pub fn write_header(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// A label's value with the characters escaped that would end it.
pub fn escape_label(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
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
