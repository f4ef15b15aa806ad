//! The time as the stores see it, so that a test can move a day forward without waiting for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;

/// Where a store reads the time: the system, or a hand that a test moves.
///
/// Clones share the hand, so advancing one advances all.
#[derive(Debug, Clone, Default)]
pub struct Clock(Hand);

#[derive(Debug, Clone, Default)]
enum Hand {
    #[default]
    System,
    /// Milliseconds since the epoch.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self::default()
    }

    /// A clock that stands at `start` until [`advance`](Self::advance) moves it.
    pub fn manual(start: Timestamp) -> Self {
        Self(Hand::Manual(Arc::new(AtomicI64::new(
            start.as_millisecond(),
        ))))
    }

    /// Moves a manual clock forward; the system's clock goes its own way.
    pub fn advance(&self, by: Duration) {
        if let Hand::Manual(hand) = &self.0 {
            hand.fetch_add(millis(by), Ordering::SeqCst);
        }
    }

    /// The present moment.
    pub fn now(&self) -> Timestamp {
        from_millis(self.now_ms())
    }

    pub fn now_ms(&self) -> i64 {
        match &self.0 {
            Hand::System => Timestamp::now().as_millisecond(),
            Hand::Manual(hand) => hand.load(Ordering::SeqCst),
        }
    }
}

/// A span in milliseconds; one too long to count lasts for ever.
pub fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

/// The moment a stored number means; one outside the calendar is its nearest end.
pub fn from_millis(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap_or(if ms < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    })
}
