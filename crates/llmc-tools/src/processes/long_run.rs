//! Comparisons, previews and test runs: work on views that may take longer than a call waits.
//!
//! Each runs on a thread of its own. The call that began it waits for its end; where that wait is over first, the run goes on
//! under the id of a background process, and `run_cmd proc=ID` waits on for it. Its result stays for a while.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use llmc_host::CancelToken;
use tokio::runtime::Handle;

use super::{Owner, Processes, new_id};
use crate::cx::{Caller, Cx};
use crate::error::{Error, ErrorKind, Result};
use crate::shell::RunOutcome;

/// How often a waiting call checks whether it was cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Bytes of the end of the output that are shown of a run that goes on.
const TAIL_BYTES: usize = 2048;
/// Results that are kept.
const MAX_ENDED: usize = 16;
/// How long a result is kept.
const ENDED_KEPT_FOR: Duration = Duration::from_secs(30 * 60);

/// One run, from its beginning until its result is forgotten.
#[derive(Debug)]
pub(crate) struct LongRun {
    pub(crate) id: String,
    pub(super) owner: Owner,
    /// The tool that began it.
    pub(crate) tool: &'static str,
    pub(crate) command: String,
    pub(crate) started: Timestamp,
    begun: Instant,
    stop: CancelToken,
    /// Whether its caller has been told the id.
    is_known: AtomicBool,
    state: Mutex<RunState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct RunState {
    /// What it is at, in words.
    step: String,
    /// The end of what the current step has printed.
    tail: Vec<u8>,
    outcome: Option<Result<Arc<RunOutcome>>>,
    ended: Option<Instant>,
}

/// What a run tells those who wait for it.
#[derive(Debug, Clone)]
pub(crate) struct RunProgress(Arc<LongRun>);

impl RunProgress {
    /// Says what the run is at.
    pub(crate) fn step(&self, words: impl Into<String>) {
        let mut state = self.0.lock();
        state.step = words.into();
        state.tail.clear();
        drop(state);
        self.0.changed.notify_all();
    }

    pub(crate) fn printed(&self, bytes: &[u8]) {
        let mut state = self.0.lock();
        state.tail.extend_from_slice(bytes);
        let surplus = state.tail.len().saturating_sub(TAIL_BYTES);
        state.tail.drain(..surplus);
    }
}

impl LongRun {
    /// Waits for the result; `None` when the wait is over first.
    pub(crate) fn wait(
        &self,
        cx: &Cx,
        deadline: Option<Instant>,
        cancel: &CancelToken,
    ) -> Result<Option<Arc<RunOutcome>>> {
        let mut told = String::new();
        let mut state = self.lock();
        loop {
            if let Some(outcome) = &state.outcome {
                return outcome.clone().map(Some);
            }
            cancel.check()?;
            if state.step != told {
                told.clone_from(&state.step);
                cx.tell(told.clone());
            }
            let left = match deadline {
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
                None => POLL_INTERVAL,
            };
            if left.is_zero() {
                return Ok(None);
            }
            let waited = self.changed.wait_timeout(state, left.min(POLL_INTERVAL));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends it; its result is then that it was ended.
    pub(crate) fn end(&self) {
        self.stop.cancel();
    }

    pub(crate) fn is_running(&self) -> bool {
        self.lock().outcome.is_none()
    }

    /// What it is at, and the end of what that has printed.
    pub(crate) fn look(&self) -> (String, String) {
        let state = self.lock();
        let tail = String::from_utf8_lossy(&state.tail).into_owned();
        (state.step.clone(), tail)
    }

    /// How long it has been running.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    fn finish(&self, outcome: Result<Arc<RunOutcome>>) {
        let mut state = self.lock();
        if state.outcome.is_none() {
            state.outcome = Some(outcome);
            state.ended = Some(Instant::now());
        }
        drop(state);
        self.changed.notify_all();
    }

    fn ended(&self) -> Option<Instant> {
        self.lock().ended
    }

    fn lock(&self) -> MutexGuard<'_, RunState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a run whose thread panicked, so that no call waits for it in vain.
struct Finisher(Arc<LongRun>);

impl Drop for Finisher {
    fn drop(&mut self) {
        let broken = Error::new(ErrorKind::Internal, "the run ended unexpectedly");
        self.0.finish(Err(broken));
    }
}

impl Processes {
    /// Begins a run on a thread of its own. `work` gets a context that outlives the call.
    pub(crate) fn begin_run(
        &self,
        cx: &Cx,
        command: &str,
        work: impl FnOnce(&Cx, &RunProgress, &CancelToken) -> Result<RunOutcome> + Send + 'static,
    ) -> Result<Arc<LongRun>> {
        let run = Arc::new(LongRun {
            id: new_id(self.server()),
            owner: Owner::of(cx.caller()),
            tool: cx.tool(),
            command: command.to_owned(),
            started: Timestamp::now(),
            begun: Instant::now(),
            stop: CancelToken::default(),
            is_known: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        self.add_run(run.clone())?;
        let cx = cx.detached(run.stop.clone());
        let (finisher, runtime) = (Finisher(run.clone()), Handle::try_current().ok());
        let span = tracing::Span::current();
        let spawned = std::thread::Builder::new()
            .name("llmc-long-run".to_owned())
            .spawn(move || {
                let _runtime = runtime.as_ref().map(Handle::enter);
                let run = finisher.0.clone();
                let progress = RunProgress(run.clone());
                let outcome = span.in_scope(|| work(&cx, &progress, &run.stop));
                run.finish(outcome.map(Arc::new));
            });
        match spawned {
            Ok(_) => Ok(run),
            Err(error) => {
                let message = format!("no thread for the run: {error}");
                Err(Error::new(ErrorKind::Internal, message))
            }
        }
    }

    fn add_run(&self, run: Arc<LongRun>) -> Result<()> {
        let mut state = self.lock();
        if state.closed {
            let message = "the server is shutting down";
            return Err(Error::new(ErrorKind::Cancelled, message));
        }
        state.runs.push(run);
        Ok(())
    }

    /// Lets later calls of its caller wait for a run.
    pub(crate) fn keep_run(&self, run: &LongRun) {
        run.is_known.store(true, Ordering::Relaxed);
    }

    /// Forgets a run whose result its call has got.
    pub(crate) fn forget_run(&self, run: &LongRun) {
        self.lock().runs.retain(|known| known.id != run.id);
    }

    /// The caller's run of that id, if it is one.
    pub(crate) fn run(&self, caller: &Caller, id: &str) -> Option<Arc<LongRun>> {
        self.runs(caller).into_iter().find(|run| run.id == id)
    }

    /// The caller's runs that outlived their calls, oldest first.
    pub(crate) fn runs(&self, caller: &Caller) -> Vec<Arc<LongRun>> {
        let owner = Owner::of(caller);
        let mut state = self.lock();
        let ended = state.runs.iter().filter(|run| !run.is_running()).count();
        let mut surplus = ended.saturating_sub(MAX_ENDED);
        state.runs.retain(|run| {
            let Some(at) = run.ended() else { return true };
            let is_surplus = surplus > 0;
            surplus = surplus.saturating_sub(1);
            !is_surplus && at.elapsed() <= ENDED_KEPT_FOR
        });
        let known = state
            .runs
            .iter()
            .filter(|run| run.is_known.load(Ordering::Relaxed) && run.owner == owner);
        known.cloned().collect()
    }
}
