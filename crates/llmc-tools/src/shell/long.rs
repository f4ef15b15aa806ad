//! The answer of a tool whose run may take longer than its call waits: the result, or what there is of it until now.

use std::sync::Arc;
use std::time::{Duration, Instant};

use llmc_envelope::neutral::{Ansi, neutralise};
use llmc_envelope::receipt::Receipt;
use llmc_host::CancelToken;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::compared::{self, RunComparison};
use super::execute::{ends_after_wait, next_calls};
use super::previewed::{self, Preview};
use super::wait::WaitLimit;
use crate::cx::{Cx, Form};
use crate::error::{Error, Result};
use crate::processes::{LongRun, RunProgress};
use crate::render::{AnswerRoom, Render, Rendition};

/// The longest that a run on a view may take.
const MAX_RUN_TIME: Duration = Duration::from_secs(2 * 3600);
/// Lines of the output until now that are shown of a run that goes on.
const TAIL_LINES: usize = 5;

/// What a run on views came to.
#[derive(Debug)]
pub(crate) enum RunOutcome {
    Comparison(Box<RunComparison>),
    Preview(Box<Preview>),
}

/// What a caller gets of a run.
#[derive(Debug)]
pub(crate) enum RunAnswer {
    Ended(Arc<RunOutcome>),
    Running(RunningView),
}

/// A run that outlived the wait.
#[derive(Debug)]
pub(crate) struct RunningView {
    tool: &'static str,
    pub(super) proc_id: String,
    /// What it is at, and since when it has been running.
    step: String,
    /// The last lines that it printed.
    tail: String,
    note: String,
}

/// How long a run on views may take: as long as the call waits where it ends with the call, else as long as any.
pub(super) fn run_time(cx: &Cx, wait: &WaitLimit) -> Duration {
    match ends_after_wait(cx) {
        true => wait.duration,
        false => MAX_RUN_TIME,
    }
}

/// Begins a run and waits for it.
pub(super) fn begin(
    cx: &Cx,
    command: &str,
    wait: &WaitLimit,
    cancel: &CancelToken,
    work: impl FnOnce(&Cx, &RunProgress, &CancelToken) -> Result<RunOutcome> + Send + 'static,
) -> Result<RunAnswer> {
    let processes = cx.app().processes();
    let run = processes.begin_run(cx, command, work)?;
    // One that ends with the call ends by itself when its time is over.
    let deadline = (!ends_after_wait(cx)).then(|| Instant::now() + wait.duration);
    let waited = cx.waiting(|| run.wait(cx, deadline, cancel));
    if let Ok(None) = waited {
        processes.keep_run(&run);
        return Ok(RunAnswer::Running(RunningView::of(cx, &run)));
    }
    run.end();
    processes.forget_run(&run);
    Ok(match waited? {
        Some(outcome) => RunAnswer::Ended(outcome),
        None => RunAnswer::Running(RunningView::of(cx, &run)),
    })
}

/// Waits on for a run of this session.
pub(crate) fn resume_run(
    cx: &Cx,
    run: &LongRun,
    timeout: Option<f64>,
    cancel: &CancelToken,
) -> Result<RunAnswer> {
    let wait = WaitLimit::new(cx, timeout)?;
    let deadline = Instant::now() + wait.duration;
    let outcome = cx.waiting(|| run.wait(cx, Some(deadline), cancel))?;
    Ok(match outcome {
        Some(outcome) => RunAnswer::Ended(outcome),
        None => RunAnswer::Running(RunningView::of(cx, run)),
    })
}

/// Refuses what only a process takes.
pub(crate) fn no_input(run: &LongRun) -> Error {
    let id = &run.id;
    Error::bad_args(format!("{id}: a {} reads no input", run.tool))
        .hint(format!("run_cmd proc={id} waits on for it"))
}

impl RunningView {
    fn of(cx: &Cx, run: &LongRun) -> RunningView {
        let (step, tail) = run.look();
        let tail = neutralise(&tail, Ansi::Strip);
        let lines: Vec<&str> = tail
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        let shown = &lines[lines.len().saturating_sub(TAIL_LINES)..];
        let at = match step.is_empty() {
            true => String::new(),
            false => format!(", {step}"),
        };
        RunningView {
            tool: run.tool,
            proc_id: run.id.clone(),
            note: format!(
                "still running after {} s as {}{at}; {}",
                run.elapsed().as_secs(),
                run.id,
                next_calls(cx, &run.id)
            ),
            step,
            tail: shown.iter().map(|line| format!("{line}\n")).collect(),
        }
    }

    /// The document of the tool that began it, without results.
    fn document(&self) -> Value {
        match self.tool {
            "run_preview" => previewed::running(&self.proc_id, &self.tail),
            "run_compare" => compared::running(&self.proc_id, &self.step),
            _ => json!({"proc_id": self.proc_id}),
        }
    }
}

impl Render for RunAnswer {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let running = match self {
            RunAnswer::Ended(outcome) => return outcome.render(room),
            RunAnswer::Running(running) => running,
        };
        if room.form() == Form::Data {
            return Ok(Rendition {
                data: Some(running.document()),
                printed: Some(running.tail.clone()),
                ..Rendition::data().note(running.note.clone())
            });
        }
        Ok(Rendition::text(running.tail.clone(), Receipt::new()).note(running.note.clone()))
    }
}

impl Serialize for RunAnswer {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            RunAnswer::Ended(outcome) => outcome.serialize(serializer),
            RunAnswer::Running(running) => running.document().serialize(serializer),
        }
    }
}

impl Render for RunOutcome {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        match self {
            RunOutcome::Comparison(comparison) => comparison.render(room),
            RunOutcome::Preview(preview) => preview.render(room),
        }
    }
}

impl Serialize for RunOutcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            RunOutcome::Comparison(comparison) => comparison.serialize(serializer),
            RunOutcome::Preview(preview) => preview.serialize(serializer),
        }
    }
}
