//! Scripts: Python that calls tools, in a worker that can do nothing else.
//!
//! A script's calls go through `App::call` with the rights, the session and the correlation id of the caller of
//! `execute_code`, and leave their own events. What comes back is data, as over REST: a script has no use for
//! receipts, and what it prints is what the model reads.

mod answer;
mod files;
mod host;
mod sessions;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use llmc_config::{ExecProfile, ScriptBackend as Backend};
use llmc_sandbox::{
    PythonBackend, Sandbox, SandboxOptions, ScriptEnd, ScriptLimits, ScriptNames, ScriptOutcome,
    SessionSetup,
};

use crate::app::App;
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};
use crate::stubs;

pub(crate) use answer::ScriptOutput;
pub(crate) use host::Tools;
pub(crate) use sessions::ScriptSessions;

/// The name under which a script finds the tools.
const MODULE: &str = "tools";
/// What it finds there beside them.
const FUNCTIONS: [&str; 2] = ["search", "help"];
/// How long a script may wait for its turn before its own time begins.
pub(crate) const MAX_QUEUE_WAIT: Duration = Duration::from_secs(60);

/// What outlives a single script: workers, the probed Python, sessions.
#[derive(Debug, Default)]
pub(crate) struct Scripts {
    sandbox: OnceLock<Sandbox>,
    python: OnceLock<Result<Arc<PythonBackend>>>,
    sessions: ScriptSessions,
}

/// A script to run.
#[derive(Debug)]
pub(crate) struct Script {
    /// Python.
    pub(crate) code: String,
    /// The name under which its variables are kept.
    pub(crate) session: Option<String>,
    /// Seconds.
    pub(crate) timeout: Option<f64>,
}

/// Runs a script to its end.
pub(crate) async fn run(cx: &Cx, script: Script) -> Result<ScriptOutput> {
    if script.code.trim().is_empty() {
        return Err(Error::bad_args("code is empty")
            .hint("write Python; tools.search(\"words\") finds tools"));
    }
    let python = cx.app().config().mcp.code_execution.sandbox == Backend::Python
        && not_for_python(cx).is_none();
    if python && script.session.is_some() {
        return Err(
            Error::bad_args("sessions are kept by the embedded interpreter only").hint(
                "leave session out, or the operator sets mcp.code_execution.sandbox = \"embedded\"",
            ),
        );
    }
    let (limits, lowered) = limits(cx.app(), script.timeout)?;
    let mut notes: Vec<String> = lowered.into_iter().collect();
    let tools = Tools::new(cx);
    let outcome = match &script.session {
        None if python => run_in_python(cx, &script.code, &limits, &tools).await?,
        None => {
            run_in_worker(cx, &script.code, &limits, &tools, None)
                .await?
                .0
        }
        Some(name) => {
            sessions::check_name(name)?;
            let sessions = &cx.app().scripts().sessions;
            let session = sessions.enter(cx, name).await?;
            let (state, new) = match session.load()? {
                Some(state) => (Some(state), false),
                None => (None, true),
            };
            if new {
                notes.push(format!("session {name} is new"));
            }
            let kept = Some((state, sessions::MAX_STATE_BYTES));
            let ran = run_in_worker(cx, &script.code, &limits, &tools, kept).await;
            let (outcome, state) = ran.inspect_err(|error| {
                if error.kind == ErrorKind::HandleExpired {
                    session.forget();
                }
            })?;
            match state {
                Some(Ok(state)) => session.store(&state)?,
                Some(Err(why)) => notes.push(format!("session not kept: {why}")),
                None if outcome.rolled_back && !new => {
                    notes.push(format!("session {name} is as it was before this call"));
                }
                None => {}
            }
            outcome
        }
    };
    match outcome.ending {
        // Only recursive analysis stops scripts from outside.
        ScriptEnd::Stopped => Err(Error::new(ErrorKind::Internal, "the script was stopped")),
        ScriptEnd::Value(last) => Ok(ScriptOutput::new(outcome.output, last, notes)),
        ScriptEnd::Failed(trouble) => {
            let effects = tools.effects();
            Err(answer::failure(
                &script.code,
                outcome.output,
                trouble,
                effects,
                notes,
            ))
        }
    }
}

/// Why this caller's scripts cannot run in a process that reads the workspace's files by itself.
fn not_for_python(cx: &Cx) -> Option<&'static str> {
    let mcp = &cx.app().config().mcp;
    let reads_files = |tools: &Arc<Vec<String>>| tools.iter().any(|name| name == "read_file");
    if mcp.exec.profile == ExecProfile::Restricted {
        return Some("mcp.exec.profile is restricted");
    }
    if mcp.tools.denylist_reads {
        return Some("mcp.tools.denylist_reads is on");
    }
    if !cx.caller().tools.as_ref().is_none_or(reads_files) {
        return Some("this token may not read files");
    }
    None
}

/// What is to be kept of a script's variables: the state it begins with, and the most that the next may take.
type StateToKeep = Option<(Option<Vec<u8>>, u64)>;
/// What was kept, or why not; nothing if the script left nothing to keep.
type KeptState = Option<std::result::Result<Vec<u8>, String>>;

/// One script in one worker.
async fn run_in_worker(
    cx: &Cx,
    code: &str,
    limits: &ScriptLimits,
    tools: &Tools<'_>,
    kept: StateToKeep,
) -> Result<(ScriptOutcome, KeptState)> {
    let (state, most) = match kept {
        Some((state, most)) => (state, Some(most)),
        None => (None, None),
    };
    let setup = SessionSetup {
        names: names(cx.app()),
        state,
        ..SessionSetup::default()
    };
    let sandbox = cx.app().scripts().sandbox(cx.app());
    let opened = sandbox.session(&cx.caller().principal, setup);
    let mut session = tokio::select! {
        session = tokio::time::timeout(MAX_QUEUE_WAIT, opened) => match session {
            Ok(session) => session.map_err(worker_error)?,
            Err(_) => {
                return Err(Error::new(ErrorKind::Busy, "too many scripts at once").hint("try again"));
            }
        },
        () = cx.cancel().cancelled() => return Err(Error::new(ErrorKind::Cancelled, "cancelled")),
    };
    let outcome = session.run(code, limits, tools, cx.cancel()).await;
    let state = match most {
        Some(most) if !outcome.rolled_back => {
            let dumped = session.dump(most).await;
            Some(dumped.map_err(|error| error.to_string()))
        }
        _ => None,
    };
    Ok((outcome, state))
}

/// One script in the system's Python, if the kernel holds it.
async fn run_in_python(
    cx: &Cx,
    code: &str,
    limits: &ScriptLimits,
    tools: &Tools<'_>,
) -> Result<ScriptOutcome> {
    let python = cx.blocking(|cx, _| cx.app().scripts().python(cx)).await?;
    let names = names(cx.app());
    Ok(python.run(code, &names, limits, tools, cx.cancel()).await)
}

fn worker_error(error: llmc_sandbox::Error) -> Error {
    use llmc_sandbox::Error as Sandbox;
    let message = error.to_string();
    match error {
        Sandbox::Refused(_) => Error::new(ErrorKind::IsolationRequired, message)
            .hint("scripts need a kernel that filters system calls (seccomp)"),
        Sandbox::BadState(_) => Error::new(ErrorKind::HandleExpired, message)
            .hint("it is damaged or of another version; call again to begin it anew"),
        _ => Error::new(ErrorKind::Internal, message).hint("try again"),
    }
}

/// What a script finds beside Python: every tool that this configuration offers to scripts. Rights are asked per call.
fn names(app: &App) -> ScriptNames {
    let tools = stubs::scriptable(app.config());
    let plain = |name: &&&str| !name.contains('.');
    let aliases = tools
        .iter()
        .flat_map(|tool| tool.aliases.iter().filter(plain));
    let further = FUNCTIONS.iter().chain(aliases);
    ScriptNames {
        functions: tools.iter().map(|tool| tool.name.to_owned()).collect(),
        module: Some(MODULE.to_owned()),
        module_functions: further.map(|name| (*name).to_owned()).collect(),
        values: Vec::new(),
        reserved: vec![MODULE.to_owned()],
    }
}

/// What a script may spend, and a note if that is less than it asked for.
fn limits(app: &App, timeout: Option<f64>) -> Result<(ScriptLimits, Option<String>)> {
    let config = &app.config().mcp.code_execution;
    let most = Duration::from_secs(config.timeout);
    let (wall, lowered) = match timeout {
        None => (most, None),
        Some(seconds) if !seconds.is_finite() || seconds <= 0.0 => {
            return Err(Error::bad_args(format!(
                "timeout must be more than 0 seconds, not {seconds}"
            )));
        }
        Some(seconds) if seconds > most.as_secs_f64() => (
            most,
            Some(format!("timeout lowered to {} s", config.timeout)),
        ),
        Some(seconds) => (Duration::from_secs_f64(seconds), None),
    };
    let limits = ScriptLimits {
        wall,
        cpu: wall,
        memory_bytes: config.max_memory_mb << 20,
        output_bytes: config.max_output_bytes,
        calls: config.max_tool_calls,
        ..ScriptLimits::default()
    };
    Ok((limits, lowered))
}

impl Scripts {
    /// The system's Python, found and proven when the first script needs it.
    fn python(&self, cx: &Cx) -> Result<Arc<PythonBackend>> {
        let opened = self.python.get_or_init(|| {
            let app = cx.app();
            let memory = app.config().mcp.code_execution.max_memory_mb << 20;
            let python = PythonBackend::open(&app.command_settings(), memory)?;
            Ok(Arc::new(python))
        });
        opened.clone()
    }

    fn sandbox(&self, app: &App) -> &Sandbox {
        self.sandbox.get_or_init(|| {
            Sandbox::new(SandboxOptions {
                memory_bytes: app.config().mcp.code_execution.max_memory_mb << 20,
                ..SandboxOptions::default()
            })
        })
    }
}
