//! What processes change that outlive the call that started them.
//!
//! The recording of the call goes on: an entry is made when the process ends, when a call waits on it, before another
//! command begins, and every minute while it changes files.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use llmc_history::Recording;

use crate::app::App;
use crate::processes::Entry;

/// How often the changes of a running process become an entry.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(60);
/// How often the end of a process is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(crate) struct BackgroundRecordings {
    open: Mutex<Vec<Arc<BackgroundRecording>>>,
}

/// The recording of a call whose processes go on.
struct BackgroundRecording {
    recording: Recording,
    processes: Vec<Weak<Entry>>,
}

impl BackgroundRecording {
    fn checkpoint(&self) -> Option<String> {
        match self.recording.checkpoint_between_calls() {
            Ok(recorded) => recorded.and_then(|recorded| recorded.not_undoable),
            Err(error) => Some(error.to_string()),
        }
    }

    /// A process that still runs, if there is one.
    fn running(&self) -> Option<Arc<Entry>> {
        let mut known = self.processes.iter().filter_map(Weak::upgrade);
        known.find(|entry| entry.process.ending().is_none())
    }

    fn has(&self, proc_id: &str) -> bool {
        let mut known = self.processes.iter().filter_map(Weak::upgrade);
        known.any(|entry| entry.id == proc_id)
    }
}

impl BackgroundRecordings {
    /// Goes on with a recording until these processes have ended.
    pub(crate) fn follow(&self, app: &Arc<App>, recording: Recording, processes: &[Weak<Entry>]) {
        recording.continue_in_background();
        let followed = Arc::new(BackgroundRecording {
            recording,
            processes: processes.to_vec(),
        });
        self.lock().push(followed.clone());
        // Neither the application nor a process lives on for this thread.
        let (app, followed) = (Arc::downgrade(app), Arc::downgrade(&followed));
        let spawned = std::thread::Builder::new()
            .name("history-process".to_owned())
            .spawn(move || follow(&app, &followed));
        if let Err(error) = spawned {
            tracing::warn!(error = %error, "no thread to record what a background process changes");
        }
    }

    /// Records what every background process has changed so far, so that the next command is not taken for its author.
    pub(crate) fn checkpoint_all(&self) {
        let open = self.lock().clone();
        for recording in open {
            recording.checkpoint();
        }
    }

    /// Records what a process has changed so far. Returns why that cannot be undone, if so.
    pub(crate) fn checkpoint(&self, proc_id: &str) -> Option<String> {
        let found = (self.lock().iter())
            .find(|recording| recording.has(proc_id))
            .cloned()?;
        let not_undoable = found.checkpoint();
        if found.running().is_none() {
            self.remove(&found);
        }
        not_undoable
    }

    /// Records what is left to record.
    pub(crate) fn close(&self) {
        let open = std::mem::take(&mut *self.lock());
        for recording in open {
            recording.checkpoint();
        }
    }

    fn remove(&self, ended: &Arc<BackgroundRecording>) {
        self.lock().retain(|open| !Arc::ptr_eq(open, ended));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<BackgroundRecording>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for BackgroundRecordings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BackgroundRecordings({})", self.lock().len())
    }
}

/// Makes entries of what processes change until they have ended, or nothing knows them any more.
fn follow(app: &Weak<App>, followed: &Weak<BackgroundRecording>) {
    let look = || match followed.upgrade() {
        None => FollowedState::Unknown,
        Some(recording) => match recording.running() {
            Some(entry) => {
                entry.process.watch_end(POLL_INTERVAL);
                FollowedState::Running
            }
            None => FollowedState::Ended,
        },
    };
    let checkpoint = || {
        if let Some(recording) = followed.upgrade() {
            recording.checkpoint();
        }
    };
    checkpoint_until_end(CHECKPOINT_INTERVAL, look, checkpoint);
    if let (Some(app), Some(recording)) = (app.upgrade(), followed.upgrade()) {
        app.history_keeper().background().remove(&recording);
    }
}

/// Whether the processes of a recording go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FollowedState {
    Running,
    Ended,
    /// The recording is closed.
    Unknown,
}

/// Calls `checkpoint` in each interval while something runs, and once when it has ended. `look` takes a moment by itself.
fn checkpoint_until_end(
    interval: Duration,
    mut look: impl FnMut() -> FollowedState,
    mut checkpoint: impl FnMut(),
) {
    let mut recorded = Instant::now();
    loop {
        match look() {
            FollowedState::Unknown => return,
            FollowedState::Ended => return checkpoint(),
            FollowedState::Running => {}
        }
        if recorded.elapsed() >= interval {
            checkpoint();
            recorded = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often there is a checkpoint while a process is seen running three times before this.
    fn checkpoints(interval: Duration, end: FollowedState) -> usize {
        let (mut looks, mut count) = (0, 0);
        let look = || {
            looks += 1;
            if looks <= 3 {
                FollowedState::Running
            } else {
                end
            }
        };
        checkpoint_until_end(interval, look, || count += 1);
        count
    }

    #[test]
    fn a_running_process_is_recorded_in_each_interval_and_at_its_end() {
        let never = Duration::from_secs(3600);
        assert_eq!(checkpoints(Duration::ZERO, FollowedState::Ended), 4);
        assert_eq!(checkpoints(never, FollowedState::Ended), 1);
        assert_eq!(checkpoints(Duration::ZERO, FollowedState::Unknown), 3);
        assert_eq!(checkpoints(never, FollowedState::Unknown), 0);
    }
}
