//! A Python of this machine, confined by the kernel alone.
//!
//! Python itself restricts nothing, so the run is confined more tightly than a command: it reads the workspace, the
//! system's programs and libraries and an empty `/tmp` of its own, and writes only the latter; it has no network and may
//! start no process. Escape probes check all of that before the first script runs. Scripts call the host over a pipe, as in
//! the embedded backend.

mod frames;
mod interpreter;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use llmc_exec::{CommandInput, ExecRequest, RunOwner, RunReport, Settings};
use llmc_host::CancelToken;
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use self::frames::{CallFrame, EndFrame, ErrorFrame, Frame, FrameBuffer, SystemFrame};
use self::interpreter::{Interpreter, Visible};
use crate::host::{ScriptCall, ScriptCallError, ScriptHost, SystemCall, SystemReply};
use crate::limits::{ScriptLimit, ScriptLimits};
use crate::names::ScriptNames;
use crate::outcome::{ScriptEnd, ScriptError, ScriptErrorKind, ScriptOutcome};
use crate::session::{CALLS_END_TIMEOUT, MAX_CONCURRENT_CALLS};

/// The program that Python runs first.
const BOOT_SCRIPT: &str = concat!(
    include_str!("python/files.py"),
    include_str!("python/programs.py"),
    include_str!("python/boot.py"),
);
/// The oldest Python that scripts run in.
const MIN_VERSION: (u32, u32) = (3, 8);
/// How long an interpreter may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A Python of this machine inside a boundary that passed its probes.
#[derive(Debug)]
pub struct PythonBackend {
    interpreter: Arc<Interpreter>,
    /// Why the workspace's own interpreter is not the one.
    passed_over: Option<String>,
}

impl PythonBackend {
    /// Finds Python and runs the escape probes; one that succeeds fails this call.
    ///
    /// Of `settings`, which are those of commands, only the places are used: the roots are visible and read-only, the
    /// state directory and what commands do not see is hidden. What they allow commands is not allowed here.
    ///
    /// # Errors
    /// [`llmc_exec::Error::IsolationRequired`] names what is missing or which probe escaped; or there is no Python.
    pub fn open(settings: &Settings, memory_bytes: u64) -> llmc_exec::Result<PythonBackend> {
        let visible = Visible::new(settings, memory_bytes)?;
        let (candidates, mut passed_over) = visible.candidates();
        let mut why = None;
        for candidate in candidates {
            let mut interpreter = visible.confine(&candidate)?;
            match interpreter.start_once() {
                Ok(version) => {
                    interpreter.version = version;
                    interpreter.check_boundary()?;
                    return Ok(PythonBackend {
                        interpreter: Arc::new(interpreter),
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
            hint:
                "install Python 3.8 or newer; mcp.code_execution.sandbox = \"embedded\" needs none"
                    .to_owned(),
        })
    }

    /// The interpreter in a few words, and why it is not the workspace's own where that exists.
    pub fn describe(&self) -> String {
        let Interpreter {
            version,
            program,
            venv,
            ..
        } = &*self.interpreter;
        let mut words = format!("Python {version} ({})", program.path.display());
        if let Some(venv) = venv {
            words.push_str(&format!(" with {}", venv.display()));
        }
        if let Some(why) = &self.passed_over {
            words.push_str(&format!("; {why}"));
        }
        words
    }

    /// Runs one script. Nothing of it remains but the effects of its calls. Failures of the script and of its interpreter
    /// are in the outcome.
    pub async fn run<H: ScriptHost>(
        &self,
        code: &str,
        names: &ScriptNames,
        limits: &ScriptLimits,
        host: &H,
        cancel: &CancellationToken,
    ) -> ScriptOutcome {
        let started = Instant::now();
        let stop = CancelToken::default();
        let _cancel_on_drop = CancelOnDrop(stop.clone());
        let (chunks, output) = mpsc::channel(16);
        let (answers, messages) = std::sync::mpsc::channel::<Vec<u8>>();
        let first = frames::pack(&json!({
            "code": code,
            "functions": names.functions,
            "module": names.module,
            "module_functions": names.module_functions,
            "values": names.values.iter().cloned().collect::<serde_json::Map<_, _>>(),
            "reserved": names.reserved,
            "recursion": limits.recursion,
            "cpu": limits.cpu.as_secs().max(1),
            "output": limits.output_bytes,
        }));
        let _ = answers.send(first);
        let (interpreter, cancelled) = (self.interpreter.clone(), stop.clone());
        let wall = limits.wall;
        let process = tokio::task::spawn_blocking(move || {
            interpreter.run(wall, messages, &cancelled, &mut |bytes| {
                // A full channel makes the script wait; a closed one means that it is being ended.
                let _ = chunks.blocking_send(bytes.to_vec());
            })
        });
        let mut run = ScriptRun {
            limits,
            host,
            cancel,
            deadline: started + limits.wall.min(Duration::from_secs(365 * 24 * 3600)),
            output: Vec::new(),
            calls: 0,
            cpu: Duration::ZERO,
        };
        let ending = run.exchange(output, &answers).await;
        stop.cancel();
        drop(answers);
        let finished = process.await;
        let ending = ending.unwrap_or_else(|| run.lost(finished));
        ScriptOutcome {
            ending,
            output: String::from_utf8_lossy(&run.output).into_owned(),
            calls: run.calls,
            elapsed: started.elapsed(),
            cpu: run.cpu,
            rolled_back: false,
        }
    }
}

/// Ends the run when its future is dropped.
struct CancelOnDrop(CancelToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Interpreter {
    /// Starts the interpreter and lets it end: its version if it runs.
    fn start_once(&self) -> Result<String, String> {
        let mut inbox = FrameBuffer::default();
        let (_, silence) = std::sync::mpsc::channel();
        let stop = CancelToken::default();
        let ended = self.run(START_TIMEOUT, silence, &stop, &mut |bytes| inbox.add(bytes));
        match (inbox.next(), ended) {
            (Ok(Some(Frame::Hello(hello))), _) => {
                let (major, minor, micro) = hello.version;
                let version = format!("{major}.{minor}.{micro}");
                match (major, minor) >= MIN_VERSION {
                    true => Ok(version),
                    false => Err(format!("version {version} is too old")),
                }
            }
            (_, Err(error)) => Err(error.to_string()),
            _ => Err("it does not start as Python 3.8 or newer".to_owned()),
        }
    }

    /// Runs the interpreter to its end, sending it messages and passing on its output.
    fn run(
        &self,
        wall: Duration,
        messages: std::sync::mpsc::Receiver<Vec<u8>>,
        stop: &CancelToken,
        on_output: &mut dyn FnMut(&[u8]),
    ) -> llmc_exec::Result<RunReport> {
        let argument = self.argument.as_str();
        let argv = [
            "python3",
            "-I",
            "-S",
            "-B",
            "-X",
            "utf8",
            "-c",
            BOOT_SCRIPT,
            argument,
        ];
        let argv = argv.map(str::to_owned);
        let cwd = self.cwd()?;
        let env = [
            ("HOME", "/tmp"),
            ("USER", "nobody"),
            ("LOGNAME", "nobody"),
            ("MALLOC_ARENA_MAX", "2"),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let spec = ExecRequest {
            argv: &argv,
            program: Some(&self.program),
            cwd: &cwd,
            // `ScriptRun` keeps the time; this is a second safeguard.
            timeout: wall + Duration::from_secs(5),
            env: &env,
            max_output: u64::MAX,
            owner: RunOwner::default(),
        };
        let cancel = stop.clone();
        let begin = move |mut input: CommandInput| {
            // A thread of its own, since a script may not read its messages.
            let send = move || {
                while let Ok(bytes) = messages.recv() {
                    if !input.write(&bytes, &cancel) {
                        break;
                    }
                }
            };
            let spawned = std::thread::Builder::new()
                .name("llmc-python".to_owned())
                .spawn(send);
            if let Err(error) = spawned {
                tracing::warn!(%error, "no thread to send messages to a script");
            }
        };
        self.runner.run_interactive(&spec, begin, on_output, stop)
    }
}

/// What a script asks for.
enum Asked {
    Tool(ScriptCall),
    System(SystemCall),
}

/// Carries out one request in its turn; also its number and the bytes that it came with.
async fn carry_out<H: ScriptHost>(
    host: &H,
    permits: &Semaphore,
    id: u64,
    asked: Asked,
) -> (u64, usize, Result<SystemReply, ScriptCallError>) {
    let _permit = permits.acquire().await;
    match asked {
        Asked::Tool(call) => (id, 0, host.call(call).await.map(SystemReply::from)),
        Asked::System(call) => {
            let bytes = call.content.len();
            (id, bytes, host.system(call).await)
        }
    }
}

struct ScriptRun<'a, H> {
    limits: &'a ScriptLimits,
    host: &'a H,
    cancel: &'a CancellationToken,
    deadline: Instant,
    output: Vec<u8>,
    calls: u64,
    cpu: Duration,
}

impl<H: ScriptHost> ScriptRun<'_, H> {
    /// Exchanges messages until the script has ended. `None` if its interpreter ended by itself.
    async fn exchange(
        &mut self,
        mut output: mpsc::Receiver<Vec<u8>>,
        answers: &std::sync::mpsc::Sender<Vec<u8>>,
    ) -> Option<ScriptEnd> {
        let calls_over = self.cancel.child_token();
        let _over = calls_over.clone().drop_guard();
        let (host, cancel) = (self.host, self.cancel);
        let permits = Semaphore::new(MAX_CONCURRENT_CALLS);
        let mut running = FuturesUnordered::new();
        let mut cancels = HashMap::new();
        let mut inbox = FrameBuffer::default();
        // Contents of operations that are not over. The script waits while they are too many.
        let mut content_bytes = 0;
        let ending = 'run: loop {
            tokio::select! {
                chunk = output.recv(), if content_bytes < frames::MAX_SYSTEM_FRAME_BYTES => match chunk {
                    Some(chunk) => inbox.add(&chunk),
                    None => break None,
                },
                Some((id, bytes, reply)) = running.next() => {
                    cancels.remove(&id);
                    content_bytes -= bytes;
                    let mut contents = Vec::new();
                    let mut reply = match reply {
                        Ok(SystemReply { value, contents: found }) => {
                            contents = found;
                            json!({"id": id, "value": value})
                        }
                        Err(ScriptCallError::Raise(exception, message)) => {
                            json!({"id": id, "raise": [exception.class(), message]})
                        }
                        Err(ScriptCallError::Stop) => break Some(ScriptEnd::Stopped),
                    };
                    let _ = answers.send(frames::pack_with(&mut reply, &contents));
                }
                () = tokio::time::sleep_until(self.deadline.into()) => {
                    break Some(self.limit_reached(ScriptLimit::Wall));
                }
                () = cancel.cancelled() => {
                    let error = ScriptError::new(ScriptErrorKind::Cancelled, "cancelled");
                    break Some(ScriptEnd::Failed(error));
                }
            }
            loop {
                match inbox.next() {
                    Ok(None) => break,
                    Ok(Some(Frame::Hello(_))) => {}
                    Ok(Some(Frame::Printed(bytes))) => {
                        if let Some(over) = self.print(&bytes) {
                            break 'run Some(over);
                        }
                    }
                    Ok(Some(Frame::Call(frame))) => {
                        let CallFrame {
                            id,
                            name,
                            args,
                            kwargs,
                        } = frame;
                        if self.calls >= self.limits.calls {
                            break 'run Some(self.limit_reached(ScriptLimit::Calls));
                        }
                        self.calls += 1;
                        let call = ScriptCall {
                            name,
                            args,
                            kwargs,
                            cancel: calls_over.clone(),
                        };
                        running.push(carry_out(host, &permits, id, Asked::Tool(call)));
                    }
                    Ok(Some(Frame::System(frame, content))) => {
                        let SystemFrame {
                            id,
                            operation,
                            args,
                        } = frame;
                        content_bytes += content.len();
                        let over = calls_over.child_token();
                        cancels.insert(id, over.clone());
                        let call = SystemCall {
                            operation,
                            args,
                            content,
                            cancel: over,
                        };
                        running.push(carry_out(host, &permits, id, Asked::System(call)));
                    }
                    Ok(Some(Frame::Cancel(id))) => {
                        if let Some(over) = cancels.get(&id) {
                            over.cancel();
                        }
                    }
                    Ok(Some(Frame::End(end))) => break 'run Some(self.end_of_script(end)),
                    Err(why) => {
                        let message = format!("the script broke its channel to the server: {why}");
                        let error = ScriptError::new(ScriptErrorKind::Crashed, message);
                        break 'run Some(ScriptEnd::Failed(error));
                    }
                }
            }
        };
        // Calls that still run are cancelled and get time to record that.
        calls_over.cancel();
        let _ = tokio::time::timeout(CALLS_END_TIMEOUT, async {
            while running.next().await.is_some() {}
        })
        .await;
        ending
    }

    /// Adds printed text; the end of the script if it is too much.
    fn print(&mut self, bytes: &[u8]) -> Option<ScriptEnd> {
        let max = usize::try_from(self.limits.output_bytes).unwrap_or(usize::MAX);
        let kept = bytes.len().min(max - self.output.len().min(max));
        self.output.extend_from_slice(&bytes[..kept]);
        self.host.printed(&String::from_utf8_lossy(&bytes[..kept]));
        (kept < bytes.len()).then(|| self.limit_reached(ScriptLimit::Output))
    }

    fn end_of_script(&mut self, end: EndFrame) -> ScriptEnd {
        self.cpu = Duration::from_micros(end.cpu_us);
        if let Some(error) = end.error {
            return ScriptEnd::Failed(self.script_error(error));
        }
        let value = end.value.unwrap_or_default();
        let bytes = self.output.len() as u64 + value.repr.len() as u64;
        if bytes > self.limits.output_bytes {
            return self.limit_reached(ScriptLimit::Output);
        }
        ScriptEnd::Value(value)
    }

    fn script_error(&self, frame: ErrorFrame) -> ScriptError {
        let limit = match frame.kind.as_str() {
            "memory" => Some(ScriptLimit::Memory),
            "recursion" => Some(ScriptLimit::Recursion),
            _ => None,
        };
        let kind = match frame.kind.as_str() {
            "syntax" => ScriptErrorKind::Syntax,
            "reserved" => ScriptErrorKind::Reserved,
            _ => ScriptErrorKind::Exception,
        };
        let error = match limit {
            Some(limit) => ScriptError::limit(limit, self.limits),
            None => ScriptError::new(kind, frame.message),
        };
        ScriptError {
            exception: frame.exception,
            line: frame.line,
            traceback: frame.traceback,
            ..error
        }
    }

    fn limit_reached(&self, limit: ScriptLimit) -> ScriptEnd {
        ScriptEnd::Failed(ScriptError::limit(limit, self.limits))
    }

    /// The end of a script whose interpreter ended without an end frame.
    fn lost(
        &self,
        finished: Result<llmc_exec::Result<RunReport>, tokio::task::JoinError>,
    ) -> ScriptEnd {
        let finished = match finished {
            Ok(Ok(finished)) => finished,
            Ok(Err(error)) => {
                let message = format!("the interpreter cannot be started: {error}");
                return ScriptEnd::Failed(ScriptError::new(ScriptErrorKind::Crashed, message));
            }
            Err(_) => {
                return ScriptEnd::Failed(ScriptError::new(
                    ScriptErrorKind::Crashed,
                    "the interpreter is lost",
                ));
            }
        };
        let xcpu = rustix::process::Signal::XCPU.as_raw();
        let message = match (finished.status.exit_code(), finished.status.signal()) {
            (_, Some(signal)) if signal == xcpu => return self.limit_reached(ScriptLimit::Cpu),
            (_, Some(signal)) => format!("signal {signal} ended the interpreter"),
            (Some(code), _) => format!("the interpreter ended itself with exit code {code}"),
            (None, None) if finished.timed_out => return self.limit_reached(ScriptLimit::Wall),
            (None, None) => "the interpreter was ended".to_owned(),
        };
        let mut error = ScriptError::new(ScriptErrorKind::Crashed, message);
        error.hint = Some(
            "a script ends by reaching its end; os._exit and replaced processes cannot answer"
                .to_owned(),
        );
        ScriptEnd::Failed(error)
    }
}
