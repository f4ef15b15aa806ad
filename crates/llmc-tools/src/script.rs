//! Scripts: Python that calls tools, in a confined process.
//!
//! A script's calls go through `App::call` with the rights, the session and the correlation id of the caller of
//! `execute_code`, and leave their own events. What comes back is data, as over REST: a script has no use for
//! receipts, and what it prints is what the model reads.

mod answer;
mod backend;
mod files;
mod host;
mod kept;
mod sessions;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use llmc_exec::Runner;
use llmc_sandbox::{
    CommandSession, ModulePart, PythonBackend, ScriptEnd, ScriptLimits, ScriptNames, ScriptOutcome,
};

use crate::app::App;
use crate::cx::{Caller, Cx};
use crate::error::{Error, ErrorKind, Result};
use crate::meant;
use crate::shell::refusals;
use crate::stubs;

pub(crate) use answer::ScriptOutput;
pub use backend::look_for_scripts;
pub(crate) use host::Tools;
pub(crate) use kept::MAX_IDLE;
use kept::{Found, KeptProcesses};
pub(crate) use sessions::{ScriptSessions, session_key};

/// The name under which a script finds the tools.
const MODULE: &str = "tools";
/// What it finds there beside them.
const FUNCTIONS: [&str; 2] = ["search", "help"];
/// How long a script may wait for its turn before its own time begins.
pub(crate) const MAX_QUEUE_WAIT: Duration = Duration::from_secs(60);

/// How long a script's calls may take together; its own time does not run meanwhile.
pub(crate) const MAX_TIME_IN_CALLS: Duration = Duration::from_secs(3600);

/// What outlives a single script: the probed Python, sessions.
#[derive(Debug, Default)]
pub(crate) struct Scripts {
    /// The Python that reads the workspace by itself.
    reading: OnceLock<Result<Arc<PythonBackend>>>,
    /// The Python that has no rights there.
    sealed: OnceLock<Result<Arc<PythonBackend>>>,
    sessions: ScriptSessions,
    kept: KeptProcesses,
    /// Sessions that know the limit of a script's own time.
    told_limit: Mutex<BTreeSet<(String, String)>>,
    /// Whether a client knows that it can run scripts.
    is_expected: AtomicBool,
}

/// Sessions that are remembered as having been told something.
const MAX_TOLD_SESSIONS: usize = 1024;

impl Scripts {
    /// Whether this session has not been told the limit yet.
    fn is_untold(&self, caller: &Caller) -> bool {
        let mut told = llmc_host::lock(&self.told_limit);
        if told.len() >= MAX_TOLD_SESSIONS {
            told.clear();
        }
        told.insert((caller.principal.clone(), caller.session.clone()))
    }
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
    let (limits, lowered) = limits(cx.app(), script.timeout)?;
    let mut notes: Vec<String> = Vec::new();
    // Once for each session: with every answer it would be noise.
    let lowered = lowered.filter(|_| cx.app().scripts().is_untold(cx.caller()));
    if let Some(lowered) = &lowered {
        cx.tell(lowered.clone());
    }
    let most_wait = cx.app().config().mcp.exec.max_wait();
    let wait = script.timeout.map(|wait| wait.min(most_wait.as_secs_f64()));
    let tools = Tools::new(cx, wait);
    let python = backend::choose(cx).await?;
    let mut outcome = match &script.session {
        None => {
            let names = names(cx.app());
            let session = command_session(cx.app(), cx.caller());
            python
                .session(session.as_ref())
                .run_once(&script.code, &names, &limits, &tools, cx.cancel())
                .await
        }
        Some(name) => {
            let block = Block {
                code: &script.code,
                limits: &limits,
                tools: &tools,
            };
            run_in_kept_process(cx, &python, name, &block, &mut notes).await?
        }
    };
    notes.extend(tools.warnings());
    if let Some(lowered) = lowered {
        if let (ScriptEnd::Value(last), true) = (&outcome.ending, outcome.output.is_empty()) {
            outcome.output.clone_from(&last.repr);
        }
        outcome.output_parts = say_first(&lowered, &mut outcome.output, &outcome.output_parts);
    }
    match outcome.ending {
        // Only recursive analysis stops scripts from outside.
        ScriptEnd::Stopped => Err(Error::new(ErrorKind::Internal, "the script was stopped")),
        ScriptEnd::Value(last) => {
            let printed = answer::PrintedText {
                text: outcome.output,
                parts: outcome.output_parts,
            };
            Ok(ScriptOutput::new(printed, last, notes))
        }
        ScriptEnd::Failed(trouble) => {
            let effects = tools.effects();
            let error = format!("{}\n{}", trouble.traceback, trouble.message);
            let refused = refusals::notes_of_script(cx, &script.code, &outcome.output, error);
            notes.extend(refused);
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

/// Puts a line before what was printed, and returns where the parts of that start now.
fn say_first(line: &str, output: &mut String, parts: &[usize]) -> Vec<usize> {
    output.insert_str(0, &format!("{line}\n"));
    parts.iter().map(|start| start + line.len() + 1).collect()
}

/// One script and what it may use.
struct Block<'a> {
    code: &'a str,
    limits: &'a ScriptLimits,
    tools: &'a Tools<'a>,
}

/// The session of commands in which a caller's scripts run, where there are such sessions.
pub(super) fn command_session(app: &Arc<App>, caller: &Caller) -> Option<CommandSession> {
    let has_sessions = app.commands().is_ok_and(Runner::has_sessions);
    let owner = caller.run_owner();
    if !has_sessions || owner.session.is_empty() {
        return None;
    }
    let name = session_key(owner.principal, owner.session);
    let (app, caller) = (Arc::downgrade(app), caller.clone());
    let place = move || match app.upgrade() {
        Some(app) => match app.commands() {
            Ok(runner) => runner.place_in_session(caller.run_owner()),
            Err(_) => Ok(None),
        },
        None => Ok(None),
    };
    Some(CommandSession {
        name,
        place: Arc::new(place),
    })
}

/// One script in the Python process of its session, which is started if there is none.
async fn run_in_kept_process(
    cx: &Cx,
    python: &PythonBackend,
    name: &str,
    block: &Block<'_>,
    notes: &mut Vec<String>,
) -> Result<ScriptOutcome> {
    let scripts = cx.app().scripts();
    let session = scripts.sessions.enter(cx, name).await?;
    let commands = command_session(cx.app(), cx.caller());
    let found = scripts.kept.take(session.key());
    let is_kept = matches!(found, Found::Running(_));
    let mut process = match found {
        Found::Running(process) => process,
        Found::Lost(why) => {
            notes.push(lost(name, &why));
            Box::new(python.session(commands.as_ref()))
        }
        Found::Nothing => {
            notes.push(match session.is_known() {
                Ok(false) => format!("session {name} is new"),
                Ok(true) => lost(name, "the server was restarted"),
                Err(error) => lost(name, &error.message),
            });
            Box::new(python.session(commands.as_ref()))
        }
    };
    if !is_kept {
        // So that a later server knows that there was a session.
        session.begin()?;
    }
    // A call that is dropped drops the process.
    scripts
        .kept
        .lose(session.key(), "its last script was cancelled".to_owned());
    let names = names(cx.app());
    let outcome = process
        .run(block.code, &names, block.limits, block.tools, cx.cancel())
        .await;
    if process.can_go_on() {
        let principal = &cx.caller().principal;
        scripts.kept.keep(session.key(), principal, process);
    } else {
        let why = match &outcome.ending {
            ScriptEnd::Failed(error) => error.message.clone(),
            _ => "its process has ended".to_owned(),
        };
        scripts.kept.lose(session.key(), why);
        notes.push(format!("session {name} is over; its variables are gone"));
    }
    Ok(outcome)
}

/// The note about a session that does not go on.
fn lost(name: &str, why: &str) -> String {
    format!("session {name} was lost: {why}; its variables are gone")
}

/// What a script finds beside Python: every tool that this configuration offers to scripts. Rights are asked per call.
fn names(app: &App) -> ScriptNames {
    let tools = stubs::scriptable(app.config());
    let mut parts: Vec<ModulePart> = Vec::new();
    for tool in app.upstream_tools() {
        let Some((name, function)) = tool.name.split_once('.') else {
            continue;
        };
        match parts.last_mut().filter(|part| part.name == name) {
            Some(part) => part.functions.push(function.to_owned()),
            None => parts.push(ModulePart {
                name: name.to_owned(),
                functions: vec![function.to_owned()],
            }),
        }
    }
    let plain = |name: &&&str| !name.contains('.');
    let aliases = tools
        .iter()
        .flat_map(|tool| tool.aliases.iter().filter(plain));
    let further = FUNCTIONS.iter().chain(aliases);
    ScriptNames {
        functions: tools.iter().map(|tool| tool.name.to_owned()).collect(),
        module: Some(MODULE.to_owned()),
        module_functions: further.map(|name| (*name).to_owned()).collect(),
        parts,
        meant: meant::in_scripts(&tools),
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
            Some(format!(
                "[limit: {} s for the script's own Python; time in its tool calls and programs does not count]",
                config.timeout
            )),
        ),
        Some(seconds) => (Duration::from_secs_f64(seconds), None),
    };
    let limits = ScriptLimits {
        wall,
        calls_wall: MAX_TIME_IN_CALLS,
        cpu: wall,
        memory_bytes: config.max_memory_mb << 20,
        output_bytes: config.max_output_bytes,
        calls: config.max_tool_calls,
        ..ScriptLimits::default()
    };
    Ok((limits, lowered))
}
