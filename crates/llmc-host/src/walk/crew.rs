//! Threads that work on one request, and a wait for them that always ends.
//!
//! A thread may be caught where nothing can interrupt it: a regex engine busy with one very long line, a read from a
//! network file system that hangs. The deadline holds all the same: such a thread is left behind, to notice at its
//! next check that nobody waits for it any more, while the caller gets what the others have found.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::cancel::CancelToken;
use crate::error::{Error, Result};

/// How long a thread gets to notice the cancellation.
const GRACE: Duration = Duration::from_millis(150);
/// The most threads of the whole process that may be left behind; until some of them end, no new work is begun.
///
/// What holds a thread ends some day, but meanwhile it takes a core.
const MAX_LEFT_BEHIND: usize = 8;
/// How often the waiting thread checks for cancellation.
const POLL: Duration = Duration::from_millis(5);

/// Threads of the whole process that nobody waits for any more.
static LEFT_BEHIND: AtomicUsize = AtomicUsize::new(0);

#[derive(Default)]
struct Roll {
    working: usize,
    /// Nobody waits for those still working.
    deserted: bool,
    panic: Option<Box<dyn std::any::Any + Send>>,
}

/// How a crew's work came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Every thread has finished.
    Together,
    /// A thread was stuck when the time was up.
    LeftBehind,
}

/// Runs `jobs`, one thread each, until all are done or `cancel` is cancelled and a short grace period has passed.
///
/// The jobs share their work, so when some threads cannot be started the others only take longer; it is an error when
/// none can. A panic in a job is passed on to the caller.
pub(crate) fn run<F>(jobs: Vec<F>, cancel: &CancelToken) -> Result<Ended>
where
    F: FnOnce() + Send + 'static,
{
    if LEFT_BEHIND.load(Ordering::Relaxed) >= MAX_LEFT_BEHIND {
        return Err(Error::Busy {
            path: "search".to_owned(),
            holder: "earlier searches that ran out of time".to_owned(),
            waited_ms: 0,
        });
    }
    let crew = Arc::new((Mutex::new(Roll::default()), Condvar::new()));
    for (started, job) in jobs.into_iter().enumerate() {
        let member = Arc::clone(&crew);
        roll_of(&crew.0).working += 1;
        let spawned = thread::Builder::new().name("walk".into()).spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(job));
            let mut roll = roll_of(&member.0);
            roll.working -= 1;
            if roll.deserted {
                LEFT_BEHIND.fetch_sub(1, Ordering::Relaxed);
            }
            if let Err(panic) = outcome {
                roll.panic = Some(panic);
            }
            member.1.notify_all();
        });
        if let Err(err) = spawned {
            roll_of(&crew.0).working -= 1;
            if started == 0 {
                return Err(Error::Io {
                    path: "a thread to search with".to_owned(),
                    source: err,
                });
            }
            break;
        }
    }

    let mut roll = roll_of(&crew.0);
    let mut give_up = None;
    while roll.working > 0 && roll.panic.is_none() {
        if give_up.is_none() && cancel.is_cancelled() {
            give_up = Some(Instant::now() + GRACE);
        }
        let left = give_up.map_or(POLL, |at| at.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            break;
        }
        roll = crew
            .1
            .wait_timeout(roll, left.min(POLL))
            .unwrap_or_else(PoisonError::into_inner)
            .0;
    }
    if roll.working > 0 {
        roll.deserted = true;
        LEFT_BEHIND.fetch_add(roll.working, Ordering::Relaxed);
    }
    if let Some(panic) = roll.panic.take() {
        drop(roll);
        cancel.cancel();
        resume_unwind(panic)
    }
    Ok(match roll.working {
        0 => Ended::Together,
        _ => Ended::LeftBehind,
    })
}

fn roll_of(roll: &Mutex<Roll>) -> MutexGuard<'_, Roll> {
    roll.lock().unwrap_or_else(PoisonError::into_inner)
}
