//! Interpreters that were started ahead and wait for their first script.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::interpreter::Interpreter;
use super::process::PythonProcess;

/// How many wait.
const SPARES: usize = 2;
/// After this long without a script they end.
const SPARE_IDLE_TIME: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(super) struct Spares {
    waiting: Mutex<VecDeque<(Instant, PythonProcess)>>,
}

impl Spares {
    /// With one that was started already.
    pub(super) fn beginning_with(process: PythonProcess) -> Spares {
        Spares {
            waiting: Mutex::new(VecDeque::from([(Instant::now(), process)])),
        }
    }

    /// Ends all that wait.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    /// One that waits.
    pub(super) fn take(&self) -> Option<PythonProcess> {
        let mut waiting = self.lock();
        loop {
            let (_, mut process) = waiting.pop_front()?;
            if process.is_running() {
                return Some(process);
            }
        }
    }

    /// Starts as many as are missing; they get ready by themselves.
    pub(super) fn fill(self: &Arc<Spares>, interpreter: &Arc<Interpreter>) {
        let mut waiting = self.lock();
        waiting.retain_mut(|(_, process)| process.is_running());
        let missing = SPARES.saturating_sub(waiting.len());
        for _ in 0..missing {
            waiting.push_back((Instant::now(), PythonProcess::start(interpreter)));
        }
        drop(waiting);
        if missing > 0 {
            let spares = Arc::downgrade(self);
            tokio::spawn(async move {
                tokio::time::sleep(SPARE_IDLE_TIME).await;
                if let Some(spares) = spares.upgrade() {
                    let is_young = |since: &Instant| since.elapsed() < SPARE_IDLE_TIME;
                    spares.lock().retain(|(since, _)| is_young(since));
                }
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Instant, PythonProcess)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
