//! A command of the user's own, started from a shell: as it is, with the user's rights, input and environment.
//!
//! Not for agents: nothing here is confined. It is what `te grep x` at a prompt does, where the user could just as well
//! have typed `grep x`.

use std::io::{self, PipeReader, Read};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use llmc_host::ReadBlock;
use rustix::event::{PollFd, PollFlags, poll};

use super::exit_status::ExitStatus;
use super::follow::Stream;

/// How much is read at a time.
const READ_BLOCK_BYTES: usize = 64 << 10;

/// What takes a command's output; an error ends the reading.
pub type Sink<'a> = &'a mut dyn FnMut(Stream, &[u8]) -> io::Result<()>;

/// Starts a command found by the user's own `PATH` and waits for it. With a sink its output goes there, else where this
/// process's output goes.
///
/// # Errors
/// It cannot be started, or the sink took no more; then the command has lost its readers and has ended.
pub fn run_plain(argv: &[String], sink: Option<Sink<'_>>) -> io::Result<ExitStatus> {
    let (name, args) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = command(name);
    command.args(args);
    let Some(sink) = sink else {
        return Ok(command.spawn()?.wait()?.into());
    };
    let (out, their_out) = io::pipe()?;
    let (err, their_err) = io::pipe()?;
    command
        .stdout(Stdio::from(their_out))
        .stderr(Stdio::from(their_err));
    let mut child = command.spawn()?;
    // It holds the writing ends, and with them the reading would never end.
    drop(command);
    let read = pump([(out, Stream::Stdout), (err, Stream::Stderr)], sink);
    let status = child.wait()?;
    read.map(|()| status.into())
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is how llmc-exec starts programs"
)]
fn command(name: &str) -> Command {
    Command::new(name)
}

/// Reads both outputs to their ends, in the order in which they come.
fn pump(pipes: [(PipeReader, Stream); 2], sink: Sink<'_>) -> io::Result<()> {
    let mut open: Vec<(PipeReader, Stream)> = pipes.into();
    let mut block = ReadBlock::new(READ_BLOCK_BYTES);
    while !open.is_empty() {
        let mut watched: Vec<PollFd<'_>> = open
            .iter()
            .map(|(pipe, _)| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN))
            .collect();
        match poll(&mut watched, None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        let ready = watched.iter().position(|fd| !fd.revents().is_empty());
        let Some(at) = ready else { continue };
        let (pipe, stream) = &mut open[at];
        match pipe.read(&mut block) {
            Ok(0) => {
                open.remove(at);
            }
            Ok(read) => sink(*stream, &block[..read])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
