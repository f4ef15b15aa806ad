//! When to give up: a deadline and a caller who may go away, asked often and cheaply.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::error::{Error, Result};

/// A shared word to stop, with an optional deadline. Clones share the word.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    cancelled: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl Stop {
    /// Stops at `deadline` at the latest.
    pub fn at(deadline: Instant) -> Stop {
        Stop {
            deadline: Some(deadline),
            ..Stop::default()
        }
    }

    /// Tells everybody who shares this word to stop.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether to stop, and why.
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

    /// [`Stop::check`] as a yes or no.
    pub fn struck(&self) -> bool {
        self.check().is_err()
    }
}
