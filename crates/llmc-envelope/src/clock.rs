//! The time as the stores see it, so that a test can move it forward.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;

/// Where a store reads the time: the system, or a value that a test advances. Clones share that value.
#[derive(Debug, Clone, Default)]
pub struct Clock(TimeSource);

#[derive(Debug, Clone, Default)]
enum TimeSource {
    #[default]
    System,
    /// Milliseconds since the epoch.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    pub fn system() -> Self {
        Self::default()
    }

    /// A clock that stands at `start` until [`advance`](Self::advance) moves it.
    pub fn manual(start: Timestamp) -> Self {
        Self(TimeSource::Manual(Arc::new(AtomicI64::new(
            start.as_millisecond(),
        ))))
    }

    /// Moves a manual clock forward; does nothing to the system's.
    pub fn advance(&self, by: Duration) {
        if let TimeSource::Manual(now) = &self.0 {
            now.fetch_add(millis(by), Ordering::SeqCst);
        }
    }

    pub fn now(&self) -> Timestamp {
        from_millis(self.now_ms())
    }

    pub fn now_ms(&self) -> i64 {
        match &self.0 {
            TimeSource::System => Timestamp::now().as_millisecond(),
            TimeSource::Manual(now) => now.load(Ordering::SeqCst),
        }
    }

    /// The time of a manual clock: what a database is given in place of its own.
    pub fn manual_ms(&self) -> Option<i64> {
        match &self.0 {
            TimeSource::System => None,
            TimeSource::Manual(now) => Some(now.load(Ordering::SeqCst)),
        }
    }
}

/// A span in milliseconds, capped.
pub fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

/// The moment of a stored number, limited to the calendar.
pub fn from_millis(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap_or(if ms < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    })
}
