//! Interpreters that were started ahead and wait for their first script.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::interpreter::Interpreter;
use super::process::PythonProcess;
use crate::host::CommandSession;

/// How many wait for scripts of one session.
const SPARES: usize = 2;
/// How many wait in all; those of the session that ran no script for longest give way.
const MAX_SPARES: usize = 6;
/// After this long without a script they end.
const SPARE_IDLE_TIME: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(super) struct Spares {
    /// Those that were started last come last.
    waiting: Mutex<VecDeque<Spare>>,
}

#[derive(Debug)]
struct Spare {
    since: Instant,
    /// The session of commands that it is in.
    session: Option<String>,
    process: PythonProcess,
}

impl Spares {
    /// With one that was started already, in no session.
    pub(super) fn beginning_with(process: PythonProcess) -> Spares {
        Spares {
            waiting: Mutex::new(VecDeque::from([Spare {
                since: Instant::now(),
                session: None,
                process,
            }])),
        }
    }

    /// Ends all that wait.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    /// One that waits in that session.
    pub(super) fn take(&self, session: Option<&str>) -> Option<PythonProcess> {
        let mut waiting = self.lock();
        waiting.retain_mut(|spare| spare.process.is_running());
        let found = waiting
            .iter()
            .position(|spare| spare.session.as_deref() == session)?;
        waiting.remove(found).map(|spare| spare.process)
    }

    /// Starts as many as that session lacks; they get ready by themselves.
    pub(super) fn fill(
        self: &Arc<Spares>,
        interpreter: &Arc<Interpreter>,
        session: Option<&CommandSession>,
    ) {
        let name = session.map(|session| session.name.clone());
        let mut waiting = self.lock();
        waiting.retain_mut(|spare| spare.process.is_running());
        let known = waiting.iter().filter(|spare| spare.session == name);
        let missing = SPARES.saturating_sub(known.count());
        for _ in 0..missing {
            waiting.push_back(Spare {
                since: Instant::now(),
                session: name.clone(),
                process: PythonProcess::start(interpreter, session),
            });
        }
        while waiting.len() > MAX_SPARES {
            waiting.pop_front();
        }
        drop(waiting);
        if missing > 0 {
            let spares = Arc::downgrade(self);
            tokio::spawn(async move {
                tokio::time::sleep(SPARE_IDLE_TIME).await;
                if let Some(spares) = spares.upgrade() {
                    let is_young = |spare: &Spare| spare.since.elapsed() < SPARE_IDLE_TIME;
                    spares.lock().retain(is_young);
                }
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Spare>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
