//! How long a call waits for a command.

use std::time::{Duration, Instant};

use llmc_exec::{Process, ProcessEnd};
use llmc_host::CancelToken;

use super::execute::MAX_OUTPUT_BYTES;
use crate::cx::Cx;
use crate::error::{Error, Result};

/// How often a waiting call checks whether it was cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Output after sent input counts as complete after so long without more.
const ANSWER_QUIET_TIME: Duration = Duration::from_millis(300);
/// How long the end of a killed process is waited for.
const KILL_TIMEOUT: Duration = Duration::from_secs(7);
/// Time for what comes around the wait itself.
const CALL_OVERHEAD: Duration = Duration::from_secs(15);

/// How long one call waits.
#[derive(Debug)]
pub(crate) struct WaitLimit {
    pub(crate) duration: Duration,
    /// Says that the caller asked for more.
    pub(crate) note: Option<String>,
}

impl WaitLimit {
    /// From a call's `timeout` in seconds, of which 0 is the same as none.
    pub(crate) fn new(cx: &Cx, timeout: Option<f64>) -> Result<WaitLimit> {
        let exec = &cx.app().config().mcp.exec;
        let Some(seconds) = timeout.filter(|seconds| *seconds != 0.0) else {
            return Ok(WaitLimit {
                duration: exec.wait(),
                note: None,
            });
        };
        if !(seconds.is_finite() && seconds > 0.0) {
            return Err(Error::bad_args("timeout must be at least 0 seconds"));
        }
        let asked = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let most = exec.max_wait();
        Ok(WaitLimit {
            duration: asked.min(most),
            note: (asked > most).then(|| {
                format!(
                    "timeout lowered to {} s (mcp.exec.max_wait_s)",
                    most.as_secs()
                )
            }),
        })
    }
}

/// How long a call that waits for a command may take.
pub(crate) fn call_limit(cx: &Cx) -> Duration {
    cx.app().config().mcp.exec.max_wait() + CALL_OVERHEAD
}

/// What ended a wait.
pub(super) enum Waited {
    Ended(ProcessEnd),
    /// The program has ended, and what it has started goes on.
    Left(ProcessEnd),
    StillRunning,
    /// More was printed than can be stored.
    OutputLimit,
}

/// Waits for the end of a process's program, then, once a caller knows of that, for the end of what it has left running; or,
/// after input was sent to it, for its answer: output beyond the `unanswered` bytes that it had printed before. A cancelled
/// call ends the wait with an error.
pub(super) fn wait_for_end(
    process: &Process,
    output_bytes: impl Fn() -> u64,
    deadline: Instant,
    unanswered: Option<u64>,
    cancel: &CancelToken,
) -> Result<Waited> {
    let mut printed = output_bytes();
    let mut last_output = Instant::now();
    loop {
        let now = Instant::now();
        let left = deadline.saturating_duration_since(now);
        let interval = left.min(POLL_INTERVAL);
        if let Some(end) = process.wait_untold(interval) {
            return Ok(match process.ending() {
                Some(end) => Waited::Ended(end),
                None => Waited::Left(end),
            });
        }
        cancel.check()?;
        let bytes = output_bytes();
        if bytes != printed {
            (printed, last_output) = (bytes, now);
        }
        if printed > MAX_OUTPUT_BYTES {
            return Ok(Waited::OutputLimit);
        }
        let answered = unanswered.is_some_and(|before| printed > before)
            && last_output.elapsed() >= ANSWER_QUIET_TIME;
        if left.is_zero() || answered {
            return Ok(Waited::StillRunning);
        }
    }
}

/// Kills a process tree and waits for its end; `None` if something is stuck in the kernel.
pub(super) fn kill(process: &Process) -> Option<ProcessEnd> {
    process.end();
    process.wait_end(KILL_TIMEOUT)
}
