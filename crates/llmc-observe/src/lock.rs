use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose data stays valid when a holder panics: counters, queues, maps that are changed in one step.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
