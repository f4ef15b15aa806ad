//! The progress of an update.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Shared between the update and its observers.
#[derive(Debug, Default)]
pub struct IndexProgress {
    done: AtomicU64,
    total: AtomicU64,
    running: AtomicBool,
    urgent: AtomicBool,
}

impl IndexProgress {
    /// Files processed.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// All files; 0 until they are counted.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Whether an update of the whole tree is running.
    pub fn is_running(&self) -> bool {
        self.running.load(Ordering::Relaxed)
    }

    /// Whether it runs at normal priority because a caller waits for it.
    pub fn is_urgent(&self) -> bool {
        self.urgent.load(Ordering::Relaxed)
    }

    pub(crate) fn set_urgent(&self, urgent: bool) {
        self.urgent.store(urgent, Ordering::Relaxed);
    }

    pub(crate) fn step(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self) {
        self.total.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn begin(&self) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(0, Ordering::Relaxed);
        self.running.store(true, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.running.store(false, Ordering::Relaxed);
    }
}

/// How many of all files an index has that is being built, by whichever process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexedShare {
    pub files: u64,
    /// 0 until they are counted.
    pub total: u64,
}

impl fmt::Display for IndexedShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.total {
            0 => write!(f, "{} files", self.files),
            total => write!(f, "{} of {} files", self.files, total.max(self.files)),
        }
    }
}
