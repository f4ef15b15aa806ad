//! A Python of this machine, confined by the kernel alone.
//!
//! Python itself restricts nothing, so the run is confined more tightly than a command: it reads the system's programs and
//! libraries, a directory for temporary files and, where mounts can cover what it must not see, the workspace; it writes only
//! the temporary files; it has no network, may start no process and reach none. Where there are no namespaces, Landlock and a
//! filter of system calls do that alone. Escape probes check all of it before the first script runs. Scripts call the host
//! over a pipe.

mod block;
mod boot;
mod frames;
#[cfg(test)]
mod fuzz;
mod interpreter;
mod process;
mod spares;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use llmc_exec::Settings;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::block::ScriptRun;
use self::interpreter::{Interpreter, Visible};
pub use self::interpreter::{WorkspaceAccess, look_for_python};
use self::process::PythonProcess;
use self::spares::Spares;
use crate::host::{CommandSession, ScriptHost};
use crate::limits::ScriptLimits;
use crate::names::ScriptNames;
use crate::outcome::ScriptOutcome;

/// What brings a Python that scripts can run in.
pub const PYTHON_PACKAGE: &str = "install Python 3.8 or newer (package python3 of Debian, Ubuntu, Fedora and Alpine, python of Arch)";
/// The oldest Python that scripts run in.
const MIN_VERSION: (u32, u32) = (3, 8);

/// A Python of this machine inside a boundary that passed its probes.
#[derive(Debug)]
pub struct PythonBackend {
    interpreter: Arc<Interpreter>,
    version: String,
    spares: Arc<Spares>,
    memory_bytes: u64,
    /// Why the workspace's own interpreter is not the one.
    passed_over: Option<String>,
}

impl PythonBackend {
    /// Finds Python and runs the escape probes; one that succeeds fails this call.
    ///
    /// Of `settings`, which are those of commands, only the places are used: the roots are visible and read-only or not
    /// readable at all, the state directory and what commands do not see is hidden. What they allow commands is not allowed here.
    ///
    /// # Errors
    /// [`llmc_exec::Error::IsolationRequired`] names what is missing or which probe escaped; or there is no Python.
    pub fn open(
        settings: &Settings,
        access: WorkspaceAccess,
        memory_bytes: u64,
    ) -> llmc_exec::Result<PythonBackend> {
        let visible = Visible::new(settings, access, memory_bytes)?;
        let candidates = visible.candidates();
        let (mut passed_over, mut why) = (candidates.skipped_venv, candidates.skipped);
        for candidate in candidates.list {
            let interpreter = Arc::new(visible.confine(&candidate)?);
            match Spare::try_out(&interpreter)? {
                Ok(spare) => {
                    let (major, minor, micro) = spare.version;
                    return Ok(PythonBackend {
                        interpreter,
                        version: format!("{major}.{minor}.{micro}"),
                        spares: Arc::new(Spares::beginning_with(spare.process)),
                        memory_bytes,
                        passed_over,
                    });
                }
                Err(reason) => {
                    let reason = format!("{}: {reason}", candidate.describe());
                    tracing::debug!("{reason}");
                    if candidate.is_venv() {
                        passed_over = Some(reason);
                    } else {
                        why.get_or_insert(reason);
                    }
                }
            }
        }
        Err(llmc_exec::Error::CommandDenied {
            command: "python3".to_owned(),
            why: why.unwrap_or_else(|| "there is no such program".to_owned()),
            hint: format!("{PYTHON_PACKAGE}; llmc doctor shows which one is found"),
        })
    }

    /// What a script may take beside an idle interpreter.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// The interpreter in a few words, and why it is not the workspace's own where that exists.
    pub fn describe(&self) -> String {
        let Interpreter { program, venv, .. } = &*self.interpreter;
        let mut words = format!("Python {} ({})", self.version, program.path.display());
        if let Some(venv) = venv {
            words.push_str(&format!(" with {}", venv.display()));
        }
        if let Some(why) = &self.passed_over {
            words.push_str(&format!("; {why}"));
        }
        words
    }

    /// Whose Python it is, without what differs between machines.
    pub fn kind(&self) -> String {
        let venv = self.interpreter.venv.as_deref().and_then(Path::file_name);
        let mut words = match venv {
            Some(name) => format!("the Python of {}", name.to_string_lossy()),
            None => "this machine's Python".to_owned(),
        };
        if let Some(why) = &self.passed_over {
            words.push_str(&format!("; {why}"));
        }
        words
    }

    /// Starts interpreters ahead, so that the next scripts of a session need not wait for one. Needs a tokio runtime.
    pub fn prepare(&self, session: Option<&CommandSession>) {
        self.spares.fill(&self.interpreter, session);
    }

    /// Ends the interpreters that were started ahead.
    pub fn rest(&self) {
        self.spares.clear();
    }

    /// A process for one script, or for those of one session: one that was started ahead if there is any. No process is
    /// ever used by two. The next is started at once, so that it gets ready while this one works. Needs a tokio runtime.
    ///
    /// In a session of commands it shares their `/tmp`.
    pub fn session(&self, session: Option<&CommandSession>) -> PythonSession {
        let name = session.map(|session| session.name.clone());
        let ready = self.spares.take(name.as_deref());
        let process = ready.unwrap_or_else(|| PythonProcess::start(&self.interpreter, session));
        self.prepare(session);
        PythonSession {
            process,
            known_names: None,
            is_over: false,
            memory_bytes: 0,
        }
    }

    /// Runs one script in no session. Nothing of it remains but the effects of its calls. Failures of the script and of its interpreter
    /// are in the outcome.
    pub async fn run<H: ScriptHost>(
        &self,
        code: &str,
        names: &ScriptNames,
        limits: &ScriptLimits,
        host: &H,
        cancel: &CancellationToken,
    ) -> ScriptOutcome {
        self.session(None)
            .run_once(code, names, limits, host, cancel)
            .await
    }
}

/// The first interpreter, which is also the first spare.
struct Spare {
    process: PythonProcess,
    version: (u32, u32, u32),
}

impl Spare {
    /// Starts the interpreter while the boundary around it is probed; why it does not run, if it does not.
    fn try_out(interpreter: &Arc<Interpreter>) -> llmc_exec::Result<Result<Spare, String>> {
        std::thread::scope(|scope| {
            let probing = scope.spawn(|| interpreter.check_boundary());
            let started = PythonProcess::start(interpreter, None).wait_for_hello();
            let (process, version) = match started {
                Ok(started) => started,
                Err(reason) => return Ok(Err(reason)),
            };
            let (major, minor, micro) = version;
            if (major, minor) < MIN_VERSION {
                return Ok(Err(format!("version {major}.{minor}.{micro} is too old")));
            }
            match probing.join() {
                Ok(checked) => checked?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
            Ok(Ok(Spare { process, version }))
        })
    }
}

/// A Python process that runs blocks of code one after the other, which share their variables. Dropping it ends it.
#[derive(Debug)]
pub struct PythonSession {
    process: PythonProcess,
    /// The names that the process knows.
    known_names: Option<ScriptNames>,
    is_over: bool,
    memory_bytes: u64,
}

/// What becomes of a process when its block has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterBlock {
    Keep,
    End,
}

impl PythonSession {
    /// Runs a block. A limit, a cancellation or a crash ends the process with it.
    pub async fn run<H: ScriptHost>(
        &mut self,
        code: &str,
        names: &ScriptNames,
        limits: &ScriptLimits,
        host: &H,
        cancel: &CancellationToken,
    ) -> ScriptOutcome {
        self.run_block(code, names, limits, host, cancel, AfterBlock::Keep)
            .await
    }

    /// Runs the only block of a process. Nothing of it remains but the effects of its calls.
    pub async fn run_once<H: ScriptHost>(
        mut self,
        code: &str,
        names: &ScriptNames,
        limits: &ScriptLimits,
        host: &H,
        cancel: &CancellationToken,
    ) -> ScriptOutcome {
        self.run_block(code, names, limits, host, cancel, AfterBlock::End)
            .await
    }

    async fn run_block<H: ScriptHost>(
        &mut self,
        code: &str,
        names: &ScriptNames,
        limits: &ScriptLimits,
        host: &H,
        cancel: &CancellationToken,
        after: AfterBlock,
    ) -> ScriptOutcome {
        let keep = after == AfterBlock::Keep;
        let mut first = json!({
            "code": code,
            "keep": keep,
            "values": names.values.iter().cloned().collect::<serde_json::Map<_, _>>(),
            "recursion": limits.recursion,
            "cpu": limits.cpu.as_secs().max(1),
            "output": limits.output_bytes,
        });
        // Names are many and rarely change: the process keeps them from block to block.
        if self.known_names.as_ref() != Some(names) {
            let meant = names.meant.iter().cloned();
            first["functions"] = json!(names.functions);
            first["module"] = json!(names.module);
            first["module_functions"] = json!(names.module_functions);
            let parts = names.parts.iter().map(|part| (&part.name, &part.functions));
            first["parts"] = json!(parts.collect::<BTreeMap<_, _>>());
            first["meant"] = json!(meant.collect::<BTreeMap<_, _>>());
            first["reserved"] = json!(names.reserved);
            self.known_names = keep.then(|| names.clone());
        }
        self.is_over = true;
        self.process.say(&mut first, &[]);
        let end = ScriptRun::new(limits, host, cancel)
            .run(&mut self.process)
            .await;
        self.is_over = !(keep && end.can_go_on);
        self.memory_bytes = end.memory_bytes;
        end.outcome
    }

    /// Whether another block can be run.
    pub fn can_go_on(&mut self) -> bool {
        !self.is_over && self.process.is_running()
    }

    /// Memory in use after the last block, by the account of the process itself; its limit bounds it.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }
}
