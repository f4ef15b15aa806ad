//! Runs the threads of one request and waits for them, but never past the deadline.
//!
//! A thread may be caught where nothing can interrupt it: a regex engine busy with one very long line, a read from a
//! network file system that hangs. The deadline holds all the same: the caller gets what the other threads have
//! found, and the stuck thread ends at its next check for cancellation.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::sync::lock;

/// How long a thread gets to notice the cancellation.
const CANCEL_GRACE: Duration = Duration::from_millis(150);
/// The most stuck threads in the whole process; until some of them end, no new work starts.
///
/// A stuck thread ends eventually, but occupies a core meanwhile.
const MAX_STUCK_THREADS: usize = 8;
/// How often the waiting thread checks for cancellation.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Threads of the whole process that outlived their request.
static STUCK_THREADS: AtomicUsize = AtomicUsize::new(0);

#[derive(Default)]
struct ThreadGroup {
    working: usize,
    /// The caller has stopped waiting for the threads still working.
    abandoned: bool,
    panic: Option<Box<dyn std::any::Any + Send>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadsEnd {
    AllFinished,
    /// A thread did not end within the grace period.
    SomeStuck,
}

/// Runs `jobs`, one thread each, until all are done or `cancel` is cancelled and a short grace period has passed.
///
/// The jobs share their work, so when some threads cannot be started the others only take longer; it is an error when
/// none can. A panic in a job is passed on to the caller.
pub(crate) fn run<F>(jobs: Vec<F>, cancel: &CancelToken) -> Result<ThreadsEnd>
where
    F: FnOnce() + Send + 'static,
{
    if STUCK_THREADS.load(Ordering::Relaxed) >= MAX_STUCK_THREADS {
        return Err(Error::Busy {
            path: "search".to_owned(),
            holder: "earlier searches that ran out of time".to_owned(),
            waited_ms: 0,
        });
    }
    let shared = Arc::new((Mutex::new(ThreadGroup::default()), Condvar::new()));
    for (started, job) in jobs.into_iter().enumerate() {
        let member = Arc::clone(&shared);
        lock(&shared.0).working += 1;
        let spawned = thread::Builder::new().name("walk".into()).spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(job));
            let mut group = lock(&member.0);
            group.working -= 1;
            if group.abandoned {
                STUCK_THREADS.fetch_sub(1, Ordering::Relaxed);
            }
            if let Err(panic) = outcome {
                group.panic = Some(panic);
            }
            member.1.notify_all();
        });
        if let Err(err) = spawned {
            lock(&shared.0).working -= 1;
            if started == 0 {
                return Err(Error::Io {
                    path: "a thread to search with".to_owned(),
                    source: err,
                });
            }
            break;
        }
    }

    let mut group = lock(&shared.0);
    let mut give_up = None;
    while group.working > 0 && group.panic.is_none() {
        if give_up.is_none() && cancel.is_cancelled() {
            give_up = Some(Instant::now() + CANCEL_GRACE);
        }
        let left = give_up.map_or(CANCEL_POLL_INTERVAL, |at| {
            at.saturating_duration_since(Instant::now())
        });
        if left.is_zero() {
            break;
        }
        group = shared
            .1
            .wait_timeout(group, left.min(CANCEL_POLL_INTERVAL))
            .unwrap_or_else(PoisonError::into_inner)
            .0;
    }
    if group.working > 0 {
        group.abandoned = true;
        STUCK_THREADS.fetch_add(group.working, Ordering::Relaxed);
    }
    if let Some(panic) = group.panic.take() {
        drop(group);
        cancel.cancel();
        resume_unwind(panic)
    }
    Ok(match group.working {
        0 => ThreadsEnd::AllFinished,
        _ => ThreadsEnd::SomeStuck,
    })
}
