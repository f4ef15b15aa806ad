//! Cancellation of file work: long loops call [`CancelToken::check`] often, which costs one atomic load and a clock read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::error::{Error, Result};

/// Cancellation flag shared by clones, with an optional deadline.
#[derive(Debug, Clone, Default)]
pub struct CancelToken {
    cancelled: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl CancelToken {
    pub fn with_deadline(deadline: Instant) -> CancelToken {
        CancelToken {
            deadline: Some(deadline),
            ..CancelToken::default()
        }
    }

    /// A clone that also ends at this time, if its own deadline is not earlier.
    #[must_use]
    pub fn until(&self, time: Instant) -> CancelToken {
        let deadline = self.deadline.map_or(time, |deadline| deadline.min(time));
        CancelToken {
            cancelled: Arc::clone(&self.cancelled),
            deadline: Some(deadline),
        }
    }

    /// When the work has to end.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Cancels this token and all its clones.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Fails once the token is cancelled or its deadline has passed.
    ///
    /// # Errors
    /// [`Error::Cancelled`] or [`Error::TimedOut`].
    pub fn check(&self) -> Result<()> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => Err(Error::TimedOut),
            _ => Ok(()),
        }
    }

    /// Whether the token is cancelled or its deadline has passed.
    pub fn is_cancelled(&self) -> bool {
        self.check().is_err()
    }
}
