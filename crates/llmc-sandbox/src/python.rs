//! The second backend: the system's Python, held by the kernel alone.
//!
//! For whoever needs what the embedded interpreter does not know. Python itself keeps nobody from anything, so the run is
//! bounded more tightly than a command: it sees the system's programs and libraries and an empty `/tmp` of its own, no
//! workspace; it has no network and may start no process. Whether all of that holds is tried out, for real, before the
//! first script runs. What a script wants from the world it asks for over a pipe, as in the other backend.

mod frames;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use llmc_exec::{
    Children, Confinement, Limits as Bounds, ProbeResult, Profile, Program, RunOwner, RunReport,
    Runner, Settings, Spec, Voice, run_probes,
};
use llmc_host::{CancelToken, OpenDir, PathRules, Roots};
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use self::frames::{Done, Inbox, Said};
use crate::host::{Host, HostCall, HostError};
use crate::limits::{Limit, Limits};
use crate::names::Names;
use crate::outcome::{Ending, Outcome, Shown, Trouble, TroubleKind};
use crate::session::advice;

/// What Python runs first.
const BOOT: &str = include_str!("python/boot.py");
/// What the interpreter takes to exist, beside the script's own memory.
const OWN_MEMORY: u64 = 64 << 20;
/// The private `/tmp`, and what one file in it may have.
const TMP: u64 = 64 << 20;
/// Calls of one script that run at the same time; the others wait.
const AT_ONCE: usize = 8;
/// How long calls that nobody waits for any more may take to notice.
const FAREWELL: Duration = Duration::from_secs(1);
/// All that the interpreter needs to read.
const SEEN: [&str; 7] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
];

/// The system's Python inside a boundary that was tried out.
#[derive(Debug)]
pub struct Python {
    held: Arc<Held>,
}

#[derive(Debug)]
struct Held {
    runner: Runner,
    program: Program,
    cwd: OpenDir,
}

impl Python {
    /// Finds Python and proves its boundary: every way out is tried, and one that works is the end of this backend.
    ///
    /// `settings` say where the server keeps its state and which executable helps; whatever they allow commands is not
    /// allowed here.
    ///
    /// # Errors
    /// [`llmc_host::Error::IsolationRequired`] names what is missing or which way out is open; or there is no Python.
    pub fn open(settings: &Settings, memory_bytes: u64) -> llmc_host::Result<Python> {
        let limits = Bounds {
            memory_bytes: Some(memory_bytes.saturating_add(OWN_MEMORY)),
            processes: 64,
            file_bytes: TMP,
            open_files: 256,
            tmp_bytes: TMP,
        };
        let bounded = |sees: Vec<PathBuf>| Settings {
            profile: Profile::Unrestricted,
            confinement: Confinement::Full,
            sees: Some(sees),
            children: Children::Refused,
            network: false,
            limits,
            state_dir: settings.state_dir.clone(),
            helper: settings.helper.clone(),
            ..Settings::default()
        };
        let seen: Vec<PathBuf> = SEEN
            .iter()
            .map(PathBuf::from)
            .filter(|dir| dir.exists())
            .collect();
        let mut runner = Runner::open(bounded(seen.clone()))?;
        let program = runner.find("python3")?;
        // A Python that is installed elsewhere and only linked from here brings its library along.
        let prefix = program.path.parent().and_then(Path::parent);
        if let Some(prefix) = prefix.filter(|dir| !seen.iter().any(|seen| dir.starts_with(seen))) {
            let mut seen = seen;
            seen.push(prefix.to_owned());
            runner = Runner::open(bounded(seen))?;
        }
        // The one directory that every view of the file system has.
        let root = Roots::open(
            Path::new("/"),
            &[PathBuf::from("/")],
            Arc::new(PathRules::default()),
        )?;
        let cwd = root.open_dir("/")?;
        proven(&runner, &cwd)?;
        Ok(Python {
            held: Arc::new(Held {
                runner,
                program,
                cwd,
            }),
        })
    }

    /// Runs one script. Nothing of it is left afterwards but what it did through calls.
    ///
    /// Does not fail: whatever happens to the script, and to its interpreter, is in the outcome.
    pub async fn run<H: Host>(
        &self,
        code: &str,
        names: &Names,
        limits: &Limits,
        host: &H,
        cancel: &CancellationToken,
    ) -> Outcome {
        let started = Instant::now();
        let stop = CancelToken::default();
        // However this future ends, the run ends with it.
        let _ends = Ends(stop.clone());
        let (chunks, heard) = mpsc::channel(16);
        let (answers, spoken) = std::sync::mpsc::channel::<Vec<u8>>();
        let first = frames::packed(&json!({
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
        let (held, told) = (self.held.clone(), stop.clone());
        let wall = limits.wall;
        let process = tokio::task::spawn_blocking(move || {
            held.converse(wall, spoken, &told, &mut |bytes| {
                // Full: the script waits until it is heard. Closed: nobody listens, and it is being ended.
                let _ = chunks.blocking_send(bytes.to_vec());
            })
        });
        let mut block = Block {
            limits,
            host,
            cancel,
            deadline: started + limits.wall.min(Duration::from_secs(365 * 24 * 3600)),
            output: Vec::new(),
            calls: 0,
            cpu: Duration::ZERO,
        };
        let ending = block.drive(heard, &answers).await;
        stop.cancel();
        drop(answers);
        let finished = process.await;
        let ending = ending.unwrap_or_else(|| block.died(finished));
        Outcome {
            ending,
            output: String::from_utf8_lossy(&block.output).into_owned(),
            calls: block.calls,
            elapsed: started.elapsed(),
            cpu: block.cpu,
            rolled_back: false,
        }
    }
}

/// Ends a run when nobody waits for it any more.
struct Ends(CancelToken);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Held {
    /// Runs the interpreter to its end, saying what is to be said and handing on what it prints.
    fn converse(
        &self,
        wall: Duration,
        spoken: std::sync::mpsc::Receiver<Vec<u8>>,
        stop: &CancelToken,
        on_output: &mut dyn FnMut(&[u8]),
    ) -> llmc_host::Result<RunReport> {
        let argv = ["python3", "-I", "-B", "-X", "utf8", "-c", BOOT].map(str::to_owned);
        let env = [
            ("HOME", "/tmp"),
            ("USER", "nobody"),
            ("LOGNAME", "nobody"),
            ("MALLOC_ARENA_MAX", "2"),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let spec = Spec {
            argv: &argv,
            program: Some(&self.program),
            cwd: &self.cwd,
            // The block has the clock; this is for a server that has lost sight of it.
            timeout: wall + Duration::from_secs(5),
            env: &env,
            max_output: u64::MAX,
            owner: RunOwner::default(),
        };
        let speaking = stop.clone();
        let begin = move |mut voice: Voice| {
            // A script that does not listen must hold up nobody else.
            let speak = move || {
                while let Ok(bytes) = spoken.recv() {
                    if !voice.say(&bytes, &speaking) {
                        break;
                    }
                }
            };
            let spawned = std::thread::Builder::new()
                .name("llmc-python".to_owned())
                .spawn(speak);
            if let Err(error) = spawned {
                tracing::warn!(%error, "no thread to talk to a script");
            }
        };
        self.runner.converse(&spec, begin, on_output, stop)
    }
}

/// A script while it runs.
struct Block<'a, H> {
    limits: &'a Limits,
    host: &'a H,
    cancel: &'a CancellationToken,
    deadline: Instant,
    output: Vec<u8>,
    calls: u64,
    cpu: Duration,
}

impl<H: Host> Block<'_, H> {
    /// Carries messages until the script has ended. `None` if its interpreter died.
    async fn drive(
        &mut self,
        mut heard: mpsc::Receiver<Vec<u8>>,
        answers: &std::sync::mpsc::Sender<Vec<u8>>,
    ) -> Option<Ending> {
        let calls_over = self.cancel.child_token();
        let _over = calls_over.clone().drop_guard();
        let (host, cancel) = (self.host, self.cancel);
        let places = Semaphore::new(AT_ONCE);
        let mut running = FuturesUnordered::new();
        let mut inbox = Inbox::default();
        let ending = 'driven: loop {
            tokio::select! {
                chunk = heard.recv() => match chunk {
                    Some(chunk) => inbox.add(&chunk),
                    None => break None,
                },
                Some((id, reply)) = running.next() => {
                    let reply = match reply {
                        Ok(value) => json!({"id": id, "value": value}),
                        Err(HostError::Raise(exception, message)) => {
                            json!({"id": id, "raise": [frames::class(exception), message]})
                        }
                        Err(HostError::Stop) => break Some(Ending::Stopped),
                    };
                    let _ = answers.send(frames::packed(&reply));
                }
                () = tokio::time::sleep_until(self.deadline.into()) => {
                    break Some(self.struck(Limit::Wall));
                }
                () = cancel.cancelled() => {
                    let trouble = Trouble::new(TroubleKind::Cancelled, "cancelled");
                    break Some(Ending::Failed(trouble));
                }
            }
            loop {
                match inbox.next() {
                    Ok(None) => break,
                    Ok(Some(Said::Printed(bytes))) => {
                        if let Some(over) = self.print(&bytes) {
                            break 'driven Some(over);
                        }
                    }
                    Ok(Some(Said::Call {
                        id,
                        name,
                        args,
                        kwargs,
                    })) => {
                        if self.calls >= self.limits.calls {
                            break 'driven Some(self.struck(Limit::Calls));
                        }
                        self.calls += 1;
                        let call = HostCall {
                            name,
                            args,
                            kwargs,
                            cancel: calls_over.clone(),
                        };
                        let places = &places;
                        running.push(async move {
                            let _place = places.acquire().await;
                            (id, host.call(call).await)
                        });
                    }
                    Ok(Some(Said::Done(done))) => break 'driven Some(self.done(done)),
                    Err(why) => {
                        let message = format!("the script broke its channel to the server: {why}");
                        let trouble = Trouble::new(TroubleKind::Crashed, message);
                        break 'driven Some(Ending::Failed(trouble));
                    }
                }
            }
        };
        // What still runs is told, and gets the time to say so in its own records.
        calls_over.cancel();
        let _ =
            tokio::time::timeout(FAREWELL, async { while running.next().await.is_some() {} }).await;
        ending
    }

    /// Takes down what was printed. An ending if it is too much.
    fn print(&mut self, bytes: &[u8]) -> Option<Ending> {
        let most = usize::try_from(self.limits.output_bytes).unwrap_or(usize::MAX);
        let kept = bytes.len().min(most - self.output.len().min(most));
        self.output.extend_from_slice(&bytes[..kept]);
        self.host.printed(&String::from_utf8_lossy(&bytes[..kept]));
        (kept < bytes.len()).then(|| self.struck(Limit::Output))
    }

    fn done(&mut self, done: Done) -> Ending {
        self.cpu = Duration::from_micros(done.cpu_us);
        match (done.trouble, done.value) {
            (Some(told), _) => Ending::Failed(self.trouble(told)),
            (None, value) => {
                let value = value.unwrap_or_default();
                let all = self.output.len() as u64 + value.repr.len() as u64;
                if all > self.limits.output_bytes {
                    return self.struck(Limit::Output);
                }
                Ending::Value(Shown {
                    repr: value.repr,
                    json: value.json,
                })
            }
        }
    }

    fn trouble(&self, told: frames::Trouble) -> Trouble {
        let limit = match told.kind.as_str() {
            "memory" => Some(Limit::Memory),
            "recursion" => Some(Limit::Recursion),
            _ => None,
        };
        let kind = match (limit, told.kind.as_str()) {
            (Some(limit), _) => TroubleKind::Limit(limit),
            (None, "syntax") => TroubleKind::Syntax,
            (None, "reserved") => TroubleKind::Reserved,
            (None, _) => TroubleKind::Exception,
        };
        Trouble {
            kind,
            exception: told.exception,
            message: limit.map_or(told.message, |limit| self.limits.told(limit)),
            line: told.line,
            traceback: told.traceback,
            hint: limit.map(|limit| advice(limit).to_owned()),
        }
    }

    fn struck(&self, limit: Limit) -> Ending {
        let mut trouble = Trouble::new(TroubleKind::Limit(limit), self.limits.told(limit));
        trouble.hint = Some(advice(limit).to_owned());
        Ending::Failed(trouble)
    }

    /// What the end of an interpreter means that has not said a last word.
    fn died(
        &self,
        finished: Result<llmc_host::Result<RunReport>, tokio::task::JoinError>,
    ) -> Ending {
        let finished = match finished {
            Ok(Ok(finished)) => finished,
            Ok(Err(error)) => {
                let message = format!("the interpreter cannot be started: {error}");
                return Ending::Failed(Trouble::new(TroubleKind::Crashed, message));
            }
            Err(_) => {
                return Ending::Failed(Trouble::new(
                    TroubleKind::Crashed,
                    "the interpreter is lost",
                ));
            }
        };
        let xcpu = rustix::process::Signal::XCPU.as_raw();
        let message = match (finished.status.exit_code(), finished.status.signal()) {
            (_, Some(signal)) if signal == xcpu => return self.struck(Limit::Cpu),
            (_, Some(signal)) => format!("signal {signal} ended the interpreter"),
            (Some(code), _) => format!("the interpreter ended itself with exit code {code}"),
            (None, None) if finished.timed_out => return self.struck(Limit::Wall),
            (None, None) => "the interpreter was ended".to_owned(),
        };
        let mut trouble = Trouble::new(TroubleKind::Crashed, message);
        trouble.hint = Some(
            "a script ends by reaching its end; os._exit and replaced processes cannot answer"
                .to_owned(),
        );
        Ending::Failed(trouble)
    }
}

/// Tries every way out of the boundary.
fn proven(runner: &Runner, cwd: &OpenDir) -> llmc_host::Result<()> {
    let tried = run_probes(runner, cwd);
    let required = |missing: String| {
        llmc_host::Error::IsolationRequired {
        missing,
        hint: "llmc doctor tells what this kernel gives; mcp.code_execution.sandbox = \"monty\" needs none of it"
            .to_owned(),
    }
    };
    for probe in &tried {
        match &probe.result {
            ProbeResult::Held(_) => {}
            ProbeResult::Escaped => {
                return Err(required(format!(
                    "a live probe got out of the boundary: {}",
                    probe.what
                )));
            }
            ProbeResult::Open(why) => {
                return Err(required(format!(
                    "a live probe could {}: {why}",
                    probe.what
                )));
            }
            ProbeResult::Untried(why) => {
                tracing::debug!(what = probe.what, why = %why, "not tried");
            }
        }
    }
    // What could not be tried proves nothing; something must have been.
    match tried
        .iter()
        .any(|probe| matches!(probe.result, ProbeResult::Held(_)))
    {
        true => Ok(()),
        false => Err(required("no live probe could be made".to_owned())),
    }
}
