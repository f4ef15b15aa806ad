//! The rate limit of a token: so many requests a second, with bursts.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use llmc_observe::lock;

/// A token bucket, stored as the moment at which it will be full again (the generic cell rate algorithm).
#[derive(Debug)]
pub(crate) struct RateLimiter {
    /// Between two requests at the sustained rate.
    interval: Duration,
    /// How far ahead of the sustained rate a caller may be.
    tolerance: Duration,
    full_at: Mutex<Instant>,
}

impl RateLimiter {
    /// `rps` requests a second, `burst` at once; zero of either counts as one.
    pub(crate) fn new(rps: u64, burst: u64) -> RateLimiter {
        let interval = Duration::from_nanos(1_000_000_000 / rps.max(1));
        let burst = u32::try_from(burst.max(1)).unwrap_or(u32::MAX);
        RateLimiter {
            interval,
            tolerance: interval.saturating_mul(burst),
            full_at: Mutex::new(Instant::now()),
        }
    }

    /// Takes one request out of the bucket.
    ///
    /// # Errors
    /// How long to wait until there is one.
    pub(crate) fn take(&self, now: Instant) -> Result<(), Duration> {
        let mut full_at = lock(&self.full_at);
        let then = (*full_at).max(now) + self.interval;
        let ahead = then - now;
        if ahead > self.tolerance {
            return Err(ahead - self.tolerance);
        }
        *full_at = then;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(rate: &RateLimiter, start: Instant, every: Duration, seconds: u64) -> u64 {
        let mut now = start;
        let mut passed = 0;
        while now < start + Duration::from_secs(seconds) {
            passed += u64::from(rate.take(now).is_ok());
            now += every;
        }
        passed
    }

    #[test]
    fn a_burst_passes_and_then_the_sustained_rate() {
        let rate = RateLimiter::new(10, 20);
        let start = Instant::now();
        let at_once = (0..100).filter(|_| rate.take(start).is_ok()).count();
        assert_eq!(at_once, 20);
        // A hundred a second for thirty seconds: ten of each second's pass.
        assert_eq!(passed(&rate, start, Duration::from_millis(10), 30), 299);
        let idle = start + Duration::from_secs(100);
        let at_once = (0..100).filter(|_| rate.take(idle).is_ok()).count();
        assert_eq!(at_once, 20, "full again after a pause, and no fuller");
    }

    #[test]
    fn a_refusal_says_how_long_to_wait_and_waiting_helps() {
        let rate = RateLimiter::new(2, 1);
        let start = Instant::now();
        assert_eq!(rate.take(start), Ok(()));
        let wait = rate.take(start).unwrap_err();
        assert_eq!(wait, Duration::from_millis(500));
        assert_eq!(rate.take(start + wait), Ok(()));
    }

    #[test]
    fn absurd_settings_do_not_overflow() {
        let now = Instant::now() + Duration::from_secs(3600);
        for (rps, burst) in [(0, 0), (u64::MAX, u64::MAX), (1, u64::MAX), (u64::MAX, 1)] {
            assert_eq!(
                RateLimiter::new(rps, burst).take(now),
                Ok(()),
                "{rps} {burst}"
            );
        }
    }
}
