//! One Python process: started ahead or for a script, kept for a session, ended when this is dropped.

use std::sync::Arc;
use std::time::Duration;

use llmc_exec::{CommandInput, ExecRequest, RunOwner, RunReport};
use llmc_host::CancelToken;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::frames::{self, Frame, FrameBuffer};
use super::interpreter::Interpreter;

/// The program that Python runs first.
const BOOT_SCRIPT: &str = concat!(
    include_str!("images.py"),
    include_str!("files.py"),
    include_str!("programs.py"),
    include_str!("results.py"),
    include_str!("boot.py"),
);
/// The oldest Python that scripts run in.
const MIN_VERSION: (u32, u32) = (3, 8);
/// How long an interpreter may take to start.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(20);
/// No process lives longer; the clock of each script ends it far earlier.
const MAX_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// A running interpreter.
#[derive(Debug)]
pub(super) struct PythonProcess {
    /// What it says, in pieces of any size.
    pub(super) output: mpsc::Receiver<Vec<u8>>,
    pub(super) inbox: FrameBuffer,
    /// Whether it has said that it is ready.
    pub(super) is_ready: bool,
    answers: std::sync::mpsc::Sender<Vec<u8>>,
    ended: oneshot::Receiver<llmc_exec::Result<RunReport>>,
    stop: CancelToken,
}

impl PythonProcess {
    /// Starts one; whether that works is found out later.
    pub(super) fn start(interpreter: &Arc<Interpreter>) -> PythonProcess {
        let stop = CancelToken::default();
        let (chunks, output) = mpsc::channel(16);
        let (answers, messages) = std::sync::mpsc::channel::<Vec<u8>>();
        let (report, ended) = oneshot::channel();
        let (interpreter, cancelled) = (interpreter.clone(), stop.clone());
        let live = move || {
            let finished = interpreter.run(MAX_LIFE, messages, &cancelled, &mut |bytes| {
                // A full channel makes the script wait; a closed one means that it is being ended.
                let _ = chunks.blocking_send(bytes.to_vec());
            });
            let _ = report.send(finished);
        };
        let spawned = std::thread::Builder::new()
            .name("llmc-python".to_owned())
            .spawn(live);
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread for a script");
        }
        PythonProcess {
            output,
            inbox: FrameBuffer::default(),
            is_ready: false,
            answers,
            ended,
            stop,
        }
    }

    /// Sends a message.
    pub(super) fn say(&self, message: &mut Value, contents: &[Vec<u8>]) {
        // That it has ended shows in its output.
        let _ = self.answers.send(frames::pack_with(message, contents));
    }

    /// Whether it runs, as far as is known.
    pub(super) fn is_running(&mut self) -> bool {
        matches!(
            self.ended.try_recv(),
            Err(oneshot::error::TryRecvError::Empty)
        )
    }

    /// How it ended by itself; `None` if that is not known.
    pub(super) async fn end(&mut self) -> Option<llmc_exec::Result<RunReport>> {
        (&mut self.ended).await.ok()
    }
}

impl Drop for PythonProcess {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Interpreter {
    /// Starts the interpreter and lets it end: its version if it runs.
    pub(super) fn start_once(&self) -> Result<String, String> {
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
        timeout: Duration,
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
            timeout,
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
                .name("llmc-python-in".to_owned())
                .spawn(send);
            if let Err(error) = spawned {
                tracing::warn!(%error, "no thread to send messages to a script");
            }
        };
        self.runner.run_interactive(&spec, begin, on_output, stop)
    }
}
