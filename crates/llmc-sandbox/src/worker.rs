//! The worker's side: a process that confines itself and then serves requests.
//!
//! It serves one request after the other. An abort, a stack overflow or an exhausted memory in the interpreter ends this
//! process, which the server expects.

mod block;
mod hints;
mod library;
mod module;
mod nesting;
mod prepare;
mod printer;
mod rewrite;
mod script_error;
mod values;

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use monty::{Dump, MontyRepl, Session, SessionRef};
use monty_types::{CompileOptions, ResourceLimits, ResourceTracker};
use rustix::event::{PollFd, PollFlags, poll};

use crate::document::document_main;
use crate::names::ScriptNames;
use crate::parser::parser_main;
use crate::wire::{self, WorkerLimits, WorkerReport, WorkerRequest};
use block::BlockDriver;

/// The hidden argument that makes the executable a worker.
pub(crate) const WORKER_ARGUMENT: &str = "__sandbox";

/// The name under which blocks are known inside the interpreter.
const SCRIPT_NAME: &str = "script";

/// What the embedded interpreter cannot do, for those who write scripts for it.
pub const EMBEDDED_LIMITS: &str = "scripts run in the embedded interpreter, a subset of Python: no exec, no setters, no own \
exceptions or operators but + - * / and len, no generators without end, no packages; \
files, commands and the usual small modules work";

/// Runs as a worker if this process was started as one, else returns `None`.
///
/// `main` calls this before it starts a thread or a runtime: confinement applies per thread.
pub fn worker_main(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let args: Vec<OsString> = args.into_iter().collect();
    let other = parser_main(args.iter().cloned()).or_else(|| document_main(args.iter().cloned()));
    if other.is_some() {
        return other;
    }
    let mut args = args.into_iter().skip(1);
    if args.next()?.to_str()? != WORKER_ARGUMENT {
        return None;
    }
    // The largest memory limit of any script, from the server.
    let memory = args.next().and_then(|word| word.to_str()?.parse().ok());
    // Failures are reported over the socket; without it there is no other channel.
    Some(match serve(memory.unwrap_or(0)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

fn serve(memory: u64) -> io::Result<()> {
    llmc_exec::close_inherited()?;
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // File calls take precedence over scripts, which only compute.
    let _ = rustix::process::setpriority_process(None, 5);
    exit_with_server(socket.try_clone()?, memory, llmc_exec::restrict_to_compute)?;
    if let Err(error) = llmc_exec::restrict_to_compute(memory) {
        let why = format!("the kernel does not filter its system calls: {error}");
        return wire::send(&socket, &WorkerReport::Refused(why), &[]);
    }
    if let Err(why) = monty_alloc::set_limit(None, false) {
        return wire::send(&socket, &WorkerReport::Refused(why.to_owned()), &[]);
    }
    wire::send(&socket, &WorkerReport::Ready, &[])?;
    let mut state: Option<InterpreterState> = None;
    loop {
        let (request, tail) = match wire::receive::<WorkerRequest>(&socket) {
            Ok(message) => message,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        match (request, &mut state) {
            (WorkerRequest::Begin(names), _) => {
                // Frees the memory of the session before.
                drop(state.take());
                monty_alloc::set_limit(None, false).map_err(io::Error::other)?;
                match InterpreterState::begin(names, &tail) {
                    Ok(begun) => {
                        state = Some(begun);
                        wire::send(&socket, &WorkerReport::Begun, &[])?;
                    }
                    Err(why) => wire::send(&socket, &WorkerReport::NotBegun(why), &[])?,
                }
            }
            (WorkerRequest::Run(limits), Some(state)) => state.run(&socket, &limits, &tail)?,
            (WorkerRequest::Dump { max_bytes }, Some(state)) => match state.dump(max_bytes) {
                Ok(bytes) => wire::send(&socket, &WorkerReport::Dumped, &bytes)?,
                Err(why) => wire::send(&socket, &WorkerReport::NotDumped(why), &[])?,
            },
            // The block that these were for has ended by itself in the meantime.
            (WorkerRequest::Answer { .. } | WorkerRequest::Abort(_), _) => {}
            (WorkerRequest::Run(_) | WorkerRequest::Dump { .. }, None) => {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }
}

/// Ends this process when the server closes the socket, also while it computes. Returns when the thread that does so is
/// confined: code that takes over this process could make a thread that is not do anything.
#[expect(
    clippy::disallowed_methods,
    reason = "a worker without its server has nothing to keep"
)]
pub(crate) fn exit_with_server(
    socket: UnixStream,
    memory: u64,
    confine: fn(u64) -> io::Result<()>,
) -> io::Result<()> {
    let (confined, is_confined) = std::sync::mpsc::channel();
    let watch = move || {
        // The main thread fails the same way and reports it.
        let _ = confine(memory);
        let _ = confined.send(());
        loop {
            let mut fds = [PollFd::new(&socket, PollFlags::RDHUP)];
            match poll(&mut fds, None) {
                Ok(_) if fds[0].revents().is_empty() => {}
                Err(rustix::io::Errno::INTR) => {}
                _ => std::process::exit(0),
            }
        }
    };
    std::thread::Builder::new()
        .name("server-watch".to_owned())
        .stack_size(64 << 10)
        .spawn(watch)?;
    is_confined.recv().map_err(io::Error::other)
}

struct InterpreterState {
    names: ScriptNames,
    /// `None` while a block runs.
    repl: Option<MontyRepl>,
    progress: Progress,
}

/// What a session has run, before a dump included.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// The number of blocks, libraries included.
    blocks: u64,
    /// The libraries that are loaded, as bits.
    libraries: u64,
}

impl Progress {
    const BYTES: usize = 16;

    fn to_bytes(self) -> [u8; Progress::BYTES] {
        let mut bytes = [0; Progress::BYTES];
        bytes[..8].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[8..].copy_from_slice(&self.libraries.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; Progress::BYTES]) -> Progress {
        let [a, b, c, d, e, f, g, h, rest @ ..] = *bytes;
        Progress {
            blocks: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            libraries: u64::from_le_bytes(rest),
        }
    }
}

impl InterpreterState {
    fn begin(names: ScriptNames, dump: &[u8]) -> Result<InterpreterState, String> {
        let (repl, progress) = if dump.is_empty() {
            let tracker = ResourceTracker::new(ResourceLimits::default());
            (
                MontyRepl::new(SCRIPT_NAME, tracker, CompileOptions::default()),
                Progress::default(),
            )
        } else {
            let (progress, bytes) = dump
                .split_first_chunk::<{ Progress::BYTES }>()
                .ok_or("it is cut off")?;
            let Session::Idle(repl) = Dump::load(bytes).map_err(|error| error.to_string())?.state
            else {
                return Err("it was written while a block ran".to_owned());
            };
            (*repl, Progress::from_bytes(progress))
        };
        Ok(InterpreterState {
            names,
            repl: Some(repl),
            progress,
        })
    }

    fn run(&mut self, socket: &UnixStream, limits: &WorkerLimits, code: &[u8]) -> io::Result<()> {
        let repl = self.repl.take().ok_or(io::ErrorKind::InvalidData)?;
        let repl = limited(repl, limits);
        let memory = usize::try_from(limits.memory_bytes).ok();
        monty_alloc::set_limit(memory, false).map_err(io::Error::other)?;
        let code = String::from_utf8_lossy(code);
        let driver = BlockDriver::new(socket, &self.names, limits, self.progress);
        let (repl, progress) = driver.run(repl, &code)?;
        self.progress = progress;
        monty_alloc::set_limit(None, false).map_err(io::Error::other)?;
        self.repl = Some(repl);
        Ok(())
    }

    fn dump(&self, max_bytes: u64) -> Result<Vec<u8>, String> {
        let repl = self.repl.as_ref().ok_or("a block is running")?;
        let dump = monty::dump(SCRIPT_NAME, None, SessionRef::Idle(repl));
        let dump = dump.map_err(|error| error.to_string())?;
        if (dump.len() + Progress::BYTES) as u64 > max_bytes {
            return Err(format!(
                "the session's variables take {} bytes, more than the {max_bytes} that are kept",
                dump.len()
            ));
        }
        let mut bytes = self.progress.to_bytes().to_vec();
        bytes.extend(dump);
        Ok(bytes)
    }
}

/// The limits of the next block, over what earlier ones have left.
fn limited(mut repl: MontyRepl, limits: &WorkerLimits) -> MontyRepl {
    let limits = ResourceLimits {
        max_duration: Some(Duration::from_micros(limits.cpu_us)),
        max_memory: usize::try_from(limits.memory_bytes).ok(),
        max_recursion_depth: limits.recursion as usize,
        ..ResourceLimits::default()
    };
    *repl.tracker_mut() = ResourceTracker::new(limits);
    repl
}
