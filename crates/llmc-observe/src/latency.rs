//! Quantiles of how long calls took, without keeping every duration.

use std::collections::BTreeMap;

/// Durations counted by their first three significant digits: a quantile is off by at most half a percent.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    /// By exponent times 1000 plus the three digits.
    counts: BTreeMap<i32, u64>,
    calls: u64,
}

impl Latency {
    /// Counts one duration, in milliseconds.
    pub(crate) fn add(&mut self, ms: f64) {
        // Telemetry that another program wrote may hold what is not a number.
        let ms = if ms.is_nan() {
            0.001
        } else {
            ms.clamp(0.001, 1e12)
        };
        let mut exponent = ms.log10().floor() as i32 - 2;
        let mut digits = (ms / 10f64.powi(exponent)).round() as i32;
        if digits >= 1000 {
            (exponent, digits) = (exponent + 1, 100);
        }
        *self.counts.entry(exponent * 1000 + digits).or_default() += 1;
        self.calls += 1;
    }

    /// The duration at the quantile, in milliseconds; `None` without calls.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        let rank = (self.calls as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (key, count) in &self.counts {
            seen += count;
            if seen >= rank {
                let (exponent, digits) = (key.div_euclid(1000), key.rem_euclid(1000));
                let ms = if exponent < 0 {
                    f64::from(digits) / 10f64.powi(-exponent)
                } else {
                    f64::from(digits) * 10f64.powi(exponent)
                };
                return Some((ms * 1000.0).round() / 1000.0);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_have_three_digits() {
        let mut latency = Latency::default();
        for ms in 1..=100_000 {
            latency.add(f64::from(ms) / 100.0);
        }
        for (share, expect) in [(0.5, 500.0), (0.95, 950.0), (0.99, 990.0), (1.0, 1000.0)] {
            assert_eq!(latency.quantile(share), Some(expect));
        }
        assert!(latency.counts.len() < 6000);
        assert_eq!(Latency::default().quantile(0.5), None);
    }

    #[test]
    fn any_number_is_counted() {
        for (ms, expect) in [
            (0.0, 0.001),
            (-1.0, 0.001),
            (f64::NAN, 0.001),
            (0.9996, 1.0),
            (7.0, 7.0),
            (f64::INFINITY, 1e12),
        ] {
            let mut latency = Latency::default();
            latency.add(ms);
            assert_eq!(latency.quantile(0.5), Some(expect), "{ms}");
        }
    }
}
