//! Locking that survives a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose data stays consistent between statements, so that a panic elsewhere does not matter.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
