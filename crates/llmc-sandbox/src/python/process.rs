//! One Python process: started ahead or for a script, kept for a session, ended when this is dropped.

use std::sync::Arc;
use std::time::Duration;

use llmc_exec::{CommandInput, ExecRequest, GitAccess, RunOwner, RunReport};
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
/// The kernel's bound on one argument is 128 KiB.
const _: () = assert!(BOOT_SCRIPT.len() < 120 << 10);
/// Prints the compiled form of the program that follows. Compiling takes most of a start.
const COMPILE: &str = "import sys,marshal,binascii as b\n\
    code = compile(sys.argv[1], '<boot>', 'exec', 0, True, 2)\n\
    sys.stdout.write(b.b2a_base64(marshal.dumps(code), newline=False).decode())\n";
/// Runs a compiled program: how many arguments hold it, and those.
const LOAD: &str = "import sys,marshal,binascii as b\n\
    exec(marshal.loads(b.a2b_base64(''.join(sys.argv.pop(1) for _ in range(int(sys.argv.pop(1)))))))\n";
/// The compiled program in one argument.
const MAX_PART_BYTES: usize = 100 << 10;
const MAX_COMPILED_BYTES: usize = 1 << 20;
/// More than an interpreter says before its first script.
const MAX_HELLO_BYTES: usize = 64 << 10;
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
    pub(super) fn start_once(&mut self) -> Result<String, String> {
        self.program_arguments = vec![COMPILE.to_owned(), BOOT_SCRIPT.to_owned()];
        let (compiled, _) = self.run_silent(MAX_COMPILED_BYTES);
        let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
        self.program_arguments = match String::from_utf8(compiled) {
            Ok(text) if !text.is_empty() && text.bytes().all(|byte| is_base64(&byte)) => {
                let parts = text.as_bytes().chunks(MAX_PART_BYTES);
                let parts = parts.map(|part| String::from_utf8_lossy(part).into_owned());
                let count = text.len().div_ceil(MAX_PART_BYTES).to_string();
                [LOAD.to_owned(), count].into_iter().chain(parts).collect()
            }
            _ => vec![BOOT_SCRIPT.to_owned()],
        };
        let mut inbox = FrameBuffer::default();
        let (hello, ended) = self.run_silent(MAX_HELLO_BYTES);
        inbox.add(&hello);
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

    /// What the interpreter prints when nothing is sent to it, and how it ended.
    fn run_silent(&self, max_bytes: usize) -> (Vec<u8>, llmc_exec::Result<RunReport>) {
        let (_, silence) = std::sync::mpsc::channel();
        let (stop, mut printed) = (CancelToken::default(), Vec::new());
        let ended = self.run(
            START_TIMEOUT,
            silence,
            &stop,
            &mut |bytes| match printed.len() + bytes.len() <= max_bytes {
                true => printed.extend_from_slice(bytes),
                false => stop.cancel(),
            },
        );
        (printed, ended)
    }

    /// Runs the interpreter to its end, sending it messages and passing on its output.
    fn run(
        &self,
        timeout: Duration,
        messages: std::sync::mpsc::Receiver<Vec<u8>>,
        stop: &CancelToken,
        on_output: &mut dyn FnMut(&[u8]),
    ) -> llmc_exec::Result<RunReport> {
        let options = ["python3", "-I", "-S", "-B", "-X", "utf8", "-c"].map(str::to_owned);
        let argv: Vec<String> = options
            .into_iter()
            .chain(self.program_arguments.iter().cloned())
            .chain([self.argument.clone()])
            .collect();
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
            git: GitAccess::ReadOnly,
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
