//! The one path every call takes, whichever surface it came from.
//!
//! Find the tool, ask the mode and the policy, parse the arguments, run with a time limit, a way to cancel and a guard
//! against panics, check the size, and let exactly one event leave.

use std::sync::Arc;
use std::time::{Duration, Instant};

use llmc_gateway::AskUser;
use llmc_host::CancelToken;
use serde_json::{Map, Value};
use tokio::time::{Interval, interval_at};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::app::App;
use crate::call_thread::run_on_call_thread;
use crate::cx::{Caller, Cx, Surface};
use crate::error::{Error, ErrorKind, Family, Result};
use crate::meant;
use crate::observe::{self, ObservedArgs};
use crate::reachable::{Reach, Route};
use crate::recording::CallRecording;
use crate::seal::Sealed;
use crate::shared_audit::CallAudit;
use crate::slots::{CallSlot, WorkClass};
use crate::te;
use crate::tool::{Effect, RunningTool, ToolDef};

/// How long a call may go on past its deadline or cancellation to finish a write it has begun.
const GRACE: Duration = Duration::from_millis(800);
/// Characters of an unknown tool's name that an error repeats.
const MAX_NAME_CHARS: usize = 80;
/// How often a long call says that it is still at work.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Tells the client how far a long call is: seconds so far, and words.
pub type Progress = Arc<dyn Fn(f64, &str) + Send + Sync>;

/// A call, the same from every surface.
pub struct Call {
    /// The tool's name or an alias.
    pub name: String,
    /// The arguments.
    pub args: Map<String, Value>,
    /// Who calls.
    pub caller: Caller,
    /// Fires when the call is cancelled or its client disconnects.
    pub cancel: CancellationToken,
    /// Where progress goes, when the client asked for it.
    pub progress: Option<Progress>,
    /// The caller's correlation id, when it has one.
    pub correlation_id: Option<String>,
    /// Asks the user, where the client can: about calls of scripts, and what upstreams want to know.
    pub ask_user: Option<AskUser>,
    /// The slot that the surface has taken for this call; without one, the call waits for a slot of its principal.
    pub slot: Option<Arc<CallSlot>>,
}

/// How a call ended.
#[derive(Debug)]
pub struct CallOutcome {
    /// The call's id in logs and audits.
    pub correlation_id: String,
    /// The tool, when there is one of that name.
    pub tool: Option<&'static ToolDef>,
    /// The answer, or why there is none.
    pub result: Result<Sealed>,
}

impl CallOutcome {
    /// What a model reads: the answer's text, or the error with the code of the tool's family.
    pub fn text(&self) -> String {
        match &self.result {
            Ok(answer) => answer.text().into_owned(),
            Err(error) => match self.tool {
                Some(tool) if tool.family == Family::Te => te::error_text(tool.name, error),
                _ => error.plain_text(self.family()),
            },
        }
    }
}

impl CallOutcome {
    /// The column of error codes that the tool's callers know.
    pub fn family(&self) -> Family {
        self.tool.map_or(Family::Linux, |tool| tool.family)
    }
}

impl App {
    /// Carries out a call.
    pub async fn call(self: &Arc<App>, call: Call) -> CallOutcome {
        self.call_with(call, None, |tool, cx, args| (tool.run)(cx, args))
            .await
    }

    /// Carries out a call of a script, whose changes belong to the script's entry in the history.
    pub(crate) async fn call_in_script(
        self: &Arc<App>,
        call: Call,
        script: Option<&Arc<CallRecording>>,
    ) -> CallOutcome {
        self.call_with(call, script, |tool, cx, args| (tool.run)(cx, args))
            .await
    }

    /// Carries out a call with other work than the tool's own, under the same rights, limits and records.
    pub(crate) async fn call_with(
        self: &Arc<App>,
        mut call: Call,
        script: Option<&Arc<CallRecording>>,
        work: impl FnOnce(&'static ToolDef, Cx, Map<String, Value>) -> RunningTool,
    ) -> CallOutcome {
        let started = Instant::now();
        let correlation_id = call
            .correlation_id
            .clone()
            .unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        call.correlation_id = Some(correlation_id.clone());
        let tool = self.find_tool(&call.name);
        let caller = Arc::new(call.caller.clone());
        let args = ObservedArgs::new(tool, &call.args);
        // Whatever is logged on the way carries the id, on whichever thread.
        let span = if self.config().mcp.observability.include_correlation_id {
            tracing::info_span!("call", correlation_id = correlation_id.as_str())
        } else {
            tracing::Span::none()
        };
        let mut entry = None;
        let mut audit = CallAudit::of(self);
        let admitted = match self.admit(tool, &call) {
            Ok(tool) => audit.begin(tool, &caller, &correlation_id).await,
            Err(error) => Err(error),
        };
        let result = match admitted {
            Ok(tool) => {
                let recording = self.record_call(tool, &call, script);
                let running = self.running().begin(
                    tool.name,
                    &caller,
                    args.recorded.as_deref(),
                    &correlation_id,
                    call.cancel.clone(),
                );
                let result = self
                    .run_in_turn(tool, call, caller.clone(), recording.clone(), work)
                    .instrument(span)
                    .await;
                drop(running);
                // What a script's calls changed is in the script's entry.
                let own = recording.filter(|_| script.is_none());
                entry = own.and_then(|recording| recording.entry());
                result
            }
            Err(error) => Err(error),
        };
        let result = result.map_err(|mut error| {
            let hint = error.hint.take();
            let reach = || Reach::of(self.config(), caller.surface);
            error.hint = hint.and_then(|hint| reach().fit(&hint));
            error
        });
        let mut outcome = CallOutcome {
            correlation_id,
            tool,
            result,
        };
        audit
            .finish(&mut outcome, &caller, &args, started.elapsed())
            .await;
        observe::record(self, &outcome, &caller, args, entry, started.elapsed());
        outcome
    }

    /// Whether this caller may call this tool at all.
    pub(crate) fn admit(
        &self,
        tool: Option<&'static ToolDef>,
        call: &Call,
    ) -> Result<&'static ToolDef> {
        let unknown = |how: &str| {
            let name: String = call.name.chars().take(MAX_NAME_CHARS).collect();
            Error::new(ErrorKind::UnknownTool, format!("Unknown tool: {name}{how}"))
        };
        let reach = || Reach::of(self.config(), call.caller.surface);
        let Some(tool) = tool else {
            return Err(unknown(&meant::suggestion_for(&call.name, &reach())));
        };
        if call.caller.surface == Surface::Mcp && tool.origin.is_some() {
            // Of an upstream only the promoted ones are listed.
            if !self.listing().iter().any(|listed| listed.name == tool.name) {
                let how = match self.offers_scripts() {
                    true => format!("; in execute_code: tools.{}(…)", tool.full_name()),
                    false => String::new(),
                };
                return Err(unknown(&how));
            }
        } else if call.caller.surface == Surface::Mcp {
            match reach().route(tool) {
                Some(Route::Direct) => {}
                Some(Route::Script) => {
                    return Err(unknown(&format!(
                        "; in execute_code: tools.{}(…)",
                        tool.name
                    )));
                }
                None => {
                    let missing = self.config().without_scripts.as_ref();
                    let missing = missing.filter(|_| tool.effect == Effect::Scripts);
                    return Err(unknown(&match missing {
                        Some(why) => format!("; {why}"),
                        None => meant::suggestion_for(tool.name, &reach()),
                    }));
                }
            }
        }
        if call
            .caller
            .tools
            .as_ref()
            .is_some_and(|tools| !tool.is_in(tools))
        {
            return Err(Error::new(
                ErrorKind::CommandDenied,
                format!("{} is not among this token's tools", tool.full_name()),
            ));
        }
        // A script only looks by itself; what it calls is asked about when it calls.
        if !(tool.effect.only_looks() || tool.effect == Effect::Scripts)
            && (self.config().mcp.tools.read_only || call.caller.read_only)
        {
            return Err(Error::new(
                ErrorKind::CommandDenied,
                format!("{}: this server is read only", tool.name),
            )
            .hint("the operator set mcp.tools.read_only or gave this token read access only"));
        }
        if tool.effect == Effect::SendsOut && !self.config().mcp.rlm.enabled {
            return Err(Error::new(
                ErrorKind::EgressDenied,
                format!("{} is switched off", tool.name),
            )
            .hint("the operator set mcp.rlm.enabled = false"));
        }
        if tool.effect == Effect::SendsOut
            && call.caller.remote
            && !self.config().mcp.rlm.allow_http
        {
            return Err(Error::new(
                ErrorKind::EgressDenied,
                format!("{} is not offered over HTTP", tool.name),
            )
            .hint("the operator can set mcp.rlm.allow_http = true"));
        }
        let runs = tool.effect == Effect::Runs || self.is_upstream_program(tool);
        if runs && !self.config().mcp.tools.enable_run_cmd {
            return Err(Error::new(
                ErrorKind::CommandDenied,
                format!("{}: commands are switched off", tool.name),
            )
            .hint("the operator set mcp.tools.enable_run_cmd = false"));
        }
        Ok(tool)
    }

    /// Waits for a slot. A script's calls run in the slot of the script itself, or they would wait for each other.
    async fn run_in_turn(
        self: &Arc<App>,
        tool: &'static ToolDef,
        mut call: Call,
        caller: Arc<Caller>,
        recording: Option<Arc<CallRecording>>,
        work: impl FnOnce(&'static ToolDef, Cx, Map<String, Value>) -> RunningTool,
    ) -> Result<Sealed> {
        if caller.surface == Surface::Code {
            return self.run(tool, call, caller, recording, work).await;
        }
        let class = WorkClass::of(tool.effect);
        if class == WorkClass::Other && call.slot.is_some() {
            return self.run(tool, call, caller, recording, work).await;
        }
        let cancel = call.cancel.clone();
        let pool = self.slots().of(&caller.principal, class);
        let slot = tokio::select! {
            slot = pool.acquire() => slot,
            () = cancel.cancelled() => return Err(Error::new(ErrorKind::Cancelled, "cancelled")),
        };
        // A script or an analysis does not occupy the slot that its request came with.
        let given = call.slot.replace(Arc::new(slot));
        let released = given.as_ref().map(|given| given.release());
        let answer = self.run(tool, call, caller, recording, work).await;
        drop(released);
        answer
    }

    async fn run(
        self: &Arc<App>,
        tool: &'static ToolDef,
        call: Call,
        caller: Arc<Caller>,
        recording: Option<Arc<CallRecording>>,
        work: impl FnOnce(&'static ToolDef, Cx, Map<String, Value>) -> RunningTool,
    ) -> Result<Sealed> {
        let cx = Cx::new(self.clone(), caller, CancelToken::default())
            .for_tool(tool.name)
            .for_call(&call)
            .recorded(recording);
        let limit = (tool.time_limit)(&cx);
        let stop = CancelToken::with_deadline(Instant::now() + limit);
        let mut texts = cx.progress_texts();
        let work = work(tool, cx.with_stop(stop.clone()), call.args);
        let work = work.in_current_span();
        let mut task = match tool.effect {
            Effect::Reads | Effect::Writes => run_on_call_thread(work),
            // These mostly wait.
            Effect::Runs
            | Effect::SendsOut
            | Effect::Scripts
            | Effect::UpstreamReads
            | Effect::UpstreamRuns => tokio::spawn(work),
        };
        let started = Instant::now();
        let tells = call.progress.is_some();
        let mut beat = tells.then(|| interval_at((started + HEARTBEAT).into(), HEARTBEAT));
        let deadline = tokio::time::sleep(limit + GRACE);
        tokio::pin!(deadline);
        let joined = loop {
            tokio::select! {
                joined = &mut task => break Some(joined),
                () = call.cancel.cancelled() => {
                    stop.cancel();
                    // A write that has begun either finishes or has not happened; give it the time to say which.
                    break tokio::time::timeout(GRACE, &mut task).await.ok();
                }
                () = &mut deadline => {
                    stop.cancel();
                    return Err(Error::new(ErrorKind::TimedOut, format!("{}: no answer within {} s", tool.name, limit.as_secs())));
                }
                () = next_beat(&mut beat) => tell(&call.progress, tool, started, &texts.borrow()),
                Ok(()) = texts.changed(), if tells => {
                    tell(&call.progress, tool, started, &texts.borrow_and_update());
                }
            }
        };
        match joined {
            None => Err(Error::new(ErrorKind::Cancelled, "cancelled")),
            Some(Ok(result)) => result,
            Some(Err(error)) => {
                tracing::error!(tool = tool.name, error = %error, "a tool panicked");
                Err(Error::new(
                    ErrorKind::Internal,
                    format!("{}: internal error", tool.name),
                ))
            }
        }
    }
}

/// Waits for the next heartbeat; there is none for a call without progress, whose timer would only wake threads.
async fn next_beat(beat: &mut Option<Interval>) {
    match beat {
        Some(beat) => drop(beat.tick().await),
        None => std::future::pending().await,
    }
}

/// Tells the client how far a call is, if it wants to know.
fn tell(progress: &Option<Progress>, tool: &ToolDef, started: Instant, words: &str) {
    let Some(progress) = progress else { return };
    let seconds = started.elapsed().as_secs_f64();
    let name = tool.name;
    if words.is_empty() {
        progress(seconds, &format!("{name}: {seconds:.0} s"));
    } else {
        progress(seconds, &format!("{name}: {words}, {seconds:.0} s"));
    }
}

/// The name that was probably meant.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name: String = name.chars().take(64).collect();
    known
        .map(|candidate| (strsim::jaro_winkler(&name, candidate), candidate))
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
