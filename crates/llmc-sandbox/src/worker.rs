//! The worker's side: a process that gives up the world, then runs what it is told.
//!
//! It reads a message, does it, answers, and reads the next. Whatever hostile code makes of the interpreter (an abort, a
//! stack that overflows, memory that runs out) ends this process, which its server expects.

mod drive;
mod hints;
mod objects;
mod printer;
mod source;
mod trouble;
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

use crate::names::Names;
use crate::wire::{self, Bounds, Said, Told};
use drive::Drive;

/// The hidden argument that makes an executable a worker.
pub(crate) const WORKER: &str = "__sandbox";

/// The name under which blocks are known inside the interpreter.
const SCRIPT: &str = "script";

/// Becomes a worker if that is what this process was started as, else `None`.
///
/// `main` calls this before it starts a thread or a runtime: what is given up is given up per thread.
pub fn worker_main(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    if args.next()?.to_str()? != WORKER {
        return None;
    }
    // Told by the server, which knows how much a script may ever take.
    let memory = args.next().and_then(|word| word.to_str()?.parse().ok());
    // Who is told about failures is the server, over the socket; without it there is nobody.
    Some(match work(memory.unwrap_or(0)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

fn work(memory: u64) -> io::Result<()> {
    llmc_exec::close_inherited()?;
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    leave_with(socket.try_clone()?, memory)?;
    if let Err(error) = llmc_exec::seal(memory) {
        let why = format!("the kernel does not filter its system calls: {error}");
        return wire::send(&socket, &Said::Refused(why), &[]);
    }
    if let Err(why) = monty_alloc::set_limit(None, false) {
        return wire::send(&socket, &Said::Refused(why.to_owned()), &[]);
    }
    wire::send(&socket, &Said::Ready, &[])?;
    let mut state: Option<State> = None;
    loop {
        let (told, tail) = match wire::receive::<Told>(&socket) {
            Ok(message) => message,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        match (told, &mut state) {
            (Told::Begin(names), _) => {
                // What the session before has left is gone before there is something new.
                drop(state.take());
                monty_alloc::set_limit(None, false).map_err(io::Error::other)?;
                match State::begin(names, &tail) {
                    Ok(begun) => {
                        state = Some(begun);
                        wire::send(&socket, &Said::Begun, &[])?;
                    }
                    Err(why) => wire::send(&socket, &Said::NotBegun(why), &[])?,
                }
            }
            (Told::Run(bounds), Some(state)) => state.run(&socket, &bounds, &tail)?,
            (Told::Dump { max_bytes }, Some(state)) => match state.dump(max_bytes) {
                Ok(bytes) => wire::send(&socket, &Said::Dumped, &bytes)?,
                Err(why) => wire::send(&socket, &Said::NotDumped(why), &[])?,
            },
            // The block that these were for has ended by itself in the meantime.
            (Told::Answer { .. } | Told::Abort(_), _) => {}
            (Told::Run(_) | Told::Dump { .. }, None) => {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }
}

/// Ends this process when its server goes away, also while a script computes and nobody reads the socket.
#[expect(
    clippy::disallowed_methods,
    reason = "nothing in a worker is worth keeping without its server"
)]
fn leave_with(socket: UnixStream, memory: u64) -> io::Result<()> {
    let watch = move || {
        if llmc_exec::seal(memory).is_err() {
            // The main thread finds the same and says so.
            return;
        }
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
        .name("leash".to_owned())
        .stack_size(64 << 10)
        .spawn(watch)?;
    Ok(())
}

/// A session.
struct State {
    names: Names,
    /// Not there while a block runs.
    repl: Option<MontyRepl>,
    /// How many blocks there were, also before it was dumped.
    blocks: u64,
}

impl State {
    fn begin(names: Names, dump: &[u8]) -> Result<State, String> {
        let (repl, blocks) = if dump.is_empty() {
            let tracker = ResourceTracker::new(ResourceLimits::default());
            (
                MontyRepl::new(SCRIPT, tracker, CompileOptions::default()),
                0,
            )
        } else {
            let (blocks, bytes) = dump.split_first_chunk::<8>().ok_or("it is cut off")?;
            let Session::Idle(repl) = Dump::load(bytes).map_err(|error| error.to_string())?.state
            else {
                return Err("it was written while a block ran".to_owned());
            };
            (*repl, u64::from_le_bytes(*blocks))
        };
        Ok(State {
            names,
            repl: Some(repl),
            blocks,
        })
    }

    fn run(&mut self, socket: &UnixStream, bounds: &Bounds, code: &[u8]) -> io::Result<()> {
        let repl = self.repl.take().ok_or(io::ErrorKind::InvalidData)?;
        let repl = limited(repl, bounds);
        let memory = usize::try_from(bounds.memory_bytes).ok();
        monty_alloc::set_limit(memory, false).map_err(io::Error::other)?;
        let code = String::from_utf8_lossy(code);
        let drive = Drive::new(socket, &self.names, bounds, self.blocks);
        self.blocks += 1;
        let repl = drive.run(repl, &code)?;
        monty_alloc::set_limit(None, false).map_err(io::Error::other)?;
        self.repl = Some(repl);
        Ok(())
    }

    fn dump(&self, max_bytes: u64) -> Result<Vec<u8>, String> {
        let repl = self.repl.as_ref().ok_or("a block is running")?;
        let dump = monty::dump(SCRIPT, None, SessionRef::Idle(repl));
        let dump = dump.map_err(|error| error.to_string())?;
        if dump.len() as u64 + 8 > max_bytes {
            return Err(format!(
                "the session's variables take {} bytes, more than the {max_bytes} that are kept",
                dump.len()
            ));
        }
        let mut bytes = self.blocks.to_le_bytes().to_vec();
        bytes.extend(dump);
        Ok(bytes)
    }
}

/// The limits of the next block, over what earlier ones have left.
fn limited(mut repl: MontyRepl, bounds: &Bounds) -> MontyRepl {
    let limits = ResourceLimits {
        max_duration: Some(Duration::from_micros(bounds.cpu_us)),
        max_memory: usize::try_from(bounds.memory_bytes).ok(),
        max_recursion_depth: bounds.recursion as usize,
        ..ResourceLimits::default()
    };
    *repl.tracker_mut() = ResourceTracker::new(limits);
    repl
}
