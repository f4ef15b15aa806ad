//! How far an update has come.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How far an update has come; shared with whoever shows it.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    at_work: AtomicBool,
}

impl Progress {
    /// Files looked at.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Files there are; 0 until they have been counted.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Whether an update of the whole tree is under way.
    pub fn is_at_work(&self) -> bool {
        self.at_work.load(Ordering::Relaxed)
    }

    /// One more file was looked at.
    pub(crate) fn step(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// There is one more file.
    pub(crate) fn count(&self) {
        self.total.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn begin(&self) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(0, Ordering::Relaxed);
        self.at_work.store(true, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.at_work.store(false, Ordering::Relaxed);
    }
}
