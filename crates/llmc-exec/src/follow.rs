//! A run while it goes on: its output, its limits, its end.

use std::io;
use std::time::{Duration, Instant};

use super::exit_status::ExitStatus;
use super::layered_run::VIEW_HINT;
use super::plan::{Failure, LAYERED_STEP, Report};
use super::protect::SWEEP_INTERVAL;
use super::quarantine::Quarantined;
use super::tree::{Event, Tree};
use crate::error::{Error, Result};

/// How often a run checks whether its call was cancelled.
pub(super) const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// How long remaining output is read after the last process of the run has ended.
pub(super) const OUTPUT_DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the end of a stopped run is waited for. Only a process stuck in the kernel takes longer.
pub(super) const RUN_END_TIMEOUT: Duration = Duration::from_secs(6);
/// Upper bound on every time limit, so that adding it to the current time cannot overflow.
pub(super) const MAX_RUN_TIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// Which of a command's two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// The result of a run.
#[derive(Debug)]
pub struct RunReport {
    pub status: ExitStatus,
    /// The time limit was reached.
    pub timed_out: bool,
    /// The call was cancelled.
    pub cancelled: bool,
    /// There was more output than allowed.
    pub output_capped: bool,
    /// From the start to the end of the last process.
    pub duration: Duration,
    /// Protected names that the run created or changed; they were moved away.
    pub quarantined: Vec<Quarantined>,
    /// What else a caller must know.
    pub notes: Vec<String>,
}

/// The limits of a run.
#[derive(Debug)]
pub(super) struct Terms {
    /// The program's name, for error messages.
    pub(super) program: String,
    pub(super) timeout: Duration,
    pub(super) max_output: u64,
    /// How often `go_on` is asked.
    pub(super) check_interval: Duration,
}

/// Follows a run to its end, or until `go_on` returns an error or `sweep`, which takes planted names away, a reason to end
/// it. What is planted at the end is left to the caller.
pub(super) fn follow(
    tree: &mut Tree,
    terms: &Terms,
    on_output: &mut dyn FnMut(Stream, &[u8]),
    go_on: &dyn Fn() -> llmc_host::Result<()>,
    sweep: &mut dyn FnMut() -> Option<String>,
) -> Result<RunReport> {
    let started = Instant::now();
    let run = Run {
        deadline: started + terms.timeout.min(MAX_RUN_TIME),
        check_interval: terms.check_interval,
        left: terms.max_output,
        over: None,
        report: None,
        notes: Vec::new(),
    };
    let run = run.follow(tree, on_output, go_on, sweep)?;
    let status = match (run.over, run.report) {
        (Some(_), _) => ExitStatus::Stopped,
        (None, Some(Report::Exited(code))) => ExitStatus::Exited(code),
        (None, Some(Report::Killed(signal))) => ExitStatus::Signaled(signal),
        (None, Some(Report::Failed(failure))) => return Err(failed(&failure, &terms.program)),
        (None, _) => return Err(broken("the helper", io::ErrorKind::UnexpectedEof.into())),
    };
    Ok(RunReport {
        status,
        timed_out: run.over == Some(Over::TimedOut),
        cancelled: run.over == Some(Over::Cancelled),
        output_capped: run.over == Some(Over::Capped),
        duration: started.elapsed(),
        quarantined: Vec::new(),
        notes: run.notes,
    })
}

/// One run while it is followed.
#[derive(Debug)]
struct Run {
    deadline: Instant,
    check_interval: Duration,
    left: u64,
    over: Option<Over>,
    report: Option<Report>,
    notes: Vec<String>,
}

/// Why the server ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    TimedOut,
    Cancelled,
    Capped,
    Planting,
}

impl Run {
    fn follow(
        mut self,
        tree: &mut Tree,
        on_output: &mut dyn FnMut(Stream, &[u8]),
        go_on: &dyn Fn() -> llmc_host::Result<()>,
        sweep: &mut dyn FnMut() -> Option<String>,
    ) -> Result<Run> {
        let wrong = |error| broken("following the helper", error);
        let mut next_sweep = Instant::now() + SWEEP_INTERVAL;
        let mut gone: Option<Instant> = None;
        let mut stuck: Option<Instant> = None;
        loop {
            let now = Instant::now();
            if stuck.is_some_and(|deadline| now >= deadline) {
                return Ok(self);
            }
            if self.over.is_some() {
                stuck.get_or_insert(now + RUN_END_TIMEOUT);
            }
            if gone.is_some_and(|deadline| now >= deadline) || (gone.is_some() && tree.silent()) {
                return Ok(self);
            }
            if self.over.is_none() && gone.is_none() && self.report.is_none() {
                self.over = match go_on() {
                    Err(llmc_host::Error::Cancelled) => Some(Over::Cancelled),
                    Err(_) => Some(Over::TimedOut),
                    Ok(()) if now >= self.deadline => Some(Over::TimedOut),
                    Ok(()) => None,
                };
                if self.over.is_none() && (now >= next_sweep || tree.take_wake()) {
                    if let Some(reason) = sweep() {
                        self.over = Some(Over::Planting);
                        self.notes.push(ended_because(&reason));
                    }
                    next_sweep = Instant::now() + SWEEP_INTERVAL;
                }
                if self.over.is_some() {
                    tree.end();
                }
            }
            let timeout = match gone {
                Some(deadline) => deadline - now,
                None => self.check_interval.min(
                    self.deadline
                        .saturating_duration_since(now)
                        .max(Duration::from_millis(1)),
                ),
            };
            match tree.next(timeout).map_err(wrong)? {
                Event::Output(stream, read) => {
                    let bytes = &tree.block()[..read];
                    let kept = usize::try_from(self.left).unwrap_or(usize::MAX).min(read);
                    if kept > 0 {
                        on_output(stream, &bytes[..kept]);
                        self.left -= kept as u64;
                    }
                    if kept < read && self.over.is_none() {
                        self.over = Some(Over::Capped);
                        tree.end();
                    }
                }
                Event::Report(Report::Exceeded(bound)) => self.notes.push(ended_because(&bound)),
                Event::Report(Report::Left) => {
                    // A run that answers once keeps nothing that its command leaves.
                    tree.end();
                    stuck.get_or_insert(now + RUN_END_TIMEOUT);
                }
                Event::Report(report) => self.report = Some(report),
                Event::Gone => gone = Some(Instant::now() + OUTPUT_DRAIN_TIMEOUT),
                Event::Nothing => {}
            }
        }
    }
}

/// The message about a run that was over a bound.
pub(super) fn ended_because(bound: &str) -> String {
    format!("ended: {bound}")
}

/// Translates the failure of a helper.
pub(super) fn failed(failure: &Failure, program: &str) -> Error {
    match (failure.step.as_str(), failure.feature) {
        ("starting the program", _) => Error::NotExecutable {
            program: program.to_owned(),
            source: failure.io(),
        },
        ("the working directory", _) => Error::NoWorkingDirectory,
        (step, _) if step.starts_with(LAYERED_STEP) => Error::NoView {
            why: format!("{}: {}", &step[LAYERED_STEP.len()..], failure.io()),
            hint: VIEW_HINT,
        },
        (step, _) => broken(step, failure.io()),
    }
}

pub(super) fn broken(step: &str, source: io::Error) -> Error {
    Error::Failed {
        step: step.to_owned(),
        source,
    }
}
