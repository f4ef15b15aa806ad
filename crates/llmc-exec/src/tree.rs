//! The server's handle on one run: the helper, its socket, its output.
//!
//! The end of a run is the end of the socket: both helpers hold it and neither exits before every process below has.
//! Most runs end a little earlier, when pid 1 reports that it is the last process: the kernel's clean-up after that is
//! not waited for. A pipe proves nothing, since any descendant may hold it open. Dropping the handle ends the run.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use llmc_host::ReadBlock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::cgroup::RunCgroup;
use super::fds;
use super::follow::Stream;
use super::outer::Outer;
use super::plan::{self, Failure, Plan, Report, SEEN};
use super::runner::Slot;
use super::sessions::Session;
use super::stdio::{ServerEnds, StdioEnds};

/// How long a helper may take to read a message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a stopped run may take before its helper is killed.
const RUN_END_TIMEOUT: Duration = Duration::from_secs(6);
/// Pieces of output that are read before the helper is listened to, whether there is more or not.
const MAX_UNHEARD_OUTPUTS: u32 = 64;
/// How much is read at a time: the size of a pipe.
const READ_BLOCK_BYTES: usize = 64 << 10;

/// A run that is going on.
pub(super) struct Tree {
    /// The run's own helper, where no broker looks after it.
    helper: Option<Child>,
    leash: UnixStream,
    inbox: Vec<u8>,
    out: Option<File>,
    err: Option<File>,
    input: Option<File>,
    gone: bool,
    block: ReadBlock,
    /// Readable when something else has happened that the follower looks at.
    wake: Option<OwnedFd>,
    is_woken: bool,
    /// Pieces of output since the helper was last listened to.
    unheard: u32,
    /// Whether the helper has said that no other process of the run is left.
    is_alone: bool,
    /// The session among whose processes it runs.
    session: Option<Arc<Session>>,
    /// Removed last, when no process is left in it.
    _cgroup: Option<RunCgroup>,
}

/// What has happened since the last call.
#[derive(Debug)]
pub(super) enum Event {
    /// This much output, now in the block.
    Output(Stream, usize),
    Report(Report),
    /// Every process of the run has ended.
    Gone,
    /// The timeout passed.
    Nothing,
}

impl Tree {
    /// Starts a run in namespaces that are made already; `slot` is the socket to its first process.
    pub(super) fn in_slot(
        Slot {
            socket: slot,
            session,
        }: Slot,
        cwd: &OwnedFd,
        plan: &Plan,
        ends: StdioEnds,
        cgroup: Option<RunCgroup>,
    ) -> io::Result<Tree> {
        slot.set_write_timeout(Some(MESSAGE_TIMEOUT))?;
        slot.set_read_timeout(Some(MESSAGE_TIMEOUT))?;
        let mut tree = Tree::new(slot, None, ends.ours);
        tree._cgroup = cgroup;
        tree.session = session;
        let theirs = ends.theirs;
        let mut sent = vec![cwd.as_fd(), theirs.out.as_fd(), theirs.err.as_fd()];
        sent.extend(theirs.input.as_ref().map(AsFd::as_fd));
        sent.extend(tree._cgroup.as_ref().map(RunCgroup::processes));
        plan::forgive_gone(fds::send(&tree.leash, &sent))?;
        tree.send(plan)?;
        Ok(tree)
    }

    /// Starts a run with a helper of its own, where there are no pid namespaces.
    pub(super) fn with_own_helper(
        helper: &Path,
        cwd: &OwnedFd,
        plan: &Plan,
        ends: StdioEnds,
    ) -> io::Result<Result<Tree, Failure>> {
        let StdioEnds { ours, theirs } = ends;
        let (out, err) = (theirs.out.into(), theirs.err.into());
        let outer = Outer::start(helper, cwd, plan.features, out, err)?;
        Ok(match outer {
            Ok(Outer { process, leash }) => {
                let tree = Tree::new(leash, Some(process), ours);
                tree.send(plan)?;
                if let Some(input) = &theirs.input {
                    plan::forgive_gone(fds::send(&tree.leash, &[input.as_fd()]))?;
                }
                Ok(tree)
            }
            Err(failure) => Err(failure),
        })
    }

    fn new(leash: UnixStream, helper: Option<Child>, ours: ServerEnds) -> Tree {
        Tree {
            helper,
            leash,
            inbox: Vec::new(),
            out: Some(ours.out),
            err: ours.err,
            input: ours.input,
            gone: false,
            block: ReadBlock::new(READ_BLOCK_BYTES),
            wake: None,
            is_woken: false,
            unheard: 0,
            is_alone: false,
            session: None,
            _cgroup: None,
        }
    }

    fn send(&self, message: &impl serde::Serialize) -> io::Result<()> {
        plan::forgive_gone(plan::send(&self.leash, message))
    }

    /// Waits until the first process of a run in a session has its plan.
    pub(super) fn joined(&mut self) -> io::Result<()> {
        match plan::receive(&self.leash) {
            Ok(Report::Joined) => Ok(()),
            Ok(_) => Err(io::ErrorKind::InvalidData.into()),
            Err(error) => {
                self.gone = error.kind() == io::ErrorKind::UnexpectedEof
                    || error.kind() == io::ErrorKind::ConnectionReset;
                Err(error)
            }
        }
    }

    /// Waits for the file system that holds the layers of a run. Returns a descriptor of its root.
    pub(super) fn layers(&mut self) -> io::Result<Result<OwnedFd, Failure>> {
        self.descriptor_after(|report| matches!(report, Report::Layers))
    }

    /// Waits for the descriptor from which the run's renames are received; nothing where the kernel gives none.
    pub(super) fn renames(&mut self) -> io::Result<Result<Option<OwnedFd>, Failure>> {
        match plan::receive(&self.leash)? {
            Report::Failed(failure) => Ok(Err(failure)),
            Report::Renames {
                are_supervised: false,
            } => Ok(Ok(None)),
            Report::Renames {
                are_supervised: true,
            } => {
                let descriptor = fds::receive(&self.leash)?.pop();
                Ok(Ok(Some(descriptor.ok_or(io::ErrorKind::InvalidData)?)))
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Waits for the start of a command that has an input. Returns a descriptor of its process.
    pub(super) fn running(&mut self) -> io::Result<Result<OwnedFd, Failure>> {
        self.descriptor_after(|report| matches!(report, Report::Running))
    }

    fn descriptor_after(
        &mut self,
        is_expected: impl FnOnce(&Report) -> bool,
    ) -> io::Result<Result<OwnedFd, Failure>> {
        match plan::receive(&self.leash)? {
            Report::Failed(failure) => return Ok(Err(failure)),
            report if is_expected(&report) => {}
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        let fd = fds::receive(&self.leash)?.pop();
        Ok(Ok(fd.ok_or(io::ErrorKind::InvalidData)?))
    }

    /// Tells the helper to go on: the server has what it needs of what was reported.
    pub(super) fn seen(&self) -> io::Result<()> {
        plan::forgive_gone((&self.leash).write_all(&[SEEN]))
    }

    /// Another handle on the control socket: closing its writing side ends the run, a byte written is a signal.
    pub(super) fn leash(&self) -> io::Result<UnixStream> {
        self.leash.try_clone()
    }

    /// Where the command's input is written, if it has one.
    pub(super) fn take_input(&mut self) -> Option<File> {
        self.input.take()
    }

    /// The command's output, for a caller that reads it itself; none of it is an event then.
    pub(super) fn take_output(&mut self) -> Option<File> {
        self.out.take()
    }

    /// Makes [`Tree::next`] return early when this descriptor can be read.
    pub(super) fn wake_on(&mut self, wake: Option<OwnedFd>) {
        self.wake = wake;
    }

    /// Whether it could be, since this was last asked.
    pub(super) fn take_wake(&mut self) -> bool {
        std::mem::take(&mut self.is_woken)
    }

    /// What happens next, waiting at most `timeout`.
    pub(super) fn next(&mut self, timeout: Duration) -> io::Result<Event> {
        match plan::take(&mut self.inbox)? {
            Some(Report::Alone) => {
                self.gone = true;
                self.is_alone = true;
                return Ok(Event::Gone);
            }
            Some(report) => return Ok(Event::Report(report)),
            None => {}
        }
        let mut watched = Vec::with_capacity(4);
        let mut owners = Vec::with_capacity(4);
        for (fd, owner) in [
            (self.out.as_ref().map(AsFd::as_fd), Owner::Out),
            (self.err.as_ref().map(AsFd::as_fd), Owner::Err),
            ((!self.gone).then(|| self.leash.as_fd()), Owner::Leash),
            (
                self.wake
                    .as_ref()
                    .filter(|_| !(self.gone || self.is_woken))
                    .map(AsFd::as_fd),
                Owner::Wake,
            ),
        ] {
            if let Some(fd) = fd {
                watched.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
                owners.push(owner);
            }
        }
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        match poll(&mut watched, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => return Ok(Event::Nothing),
            other => other?,
        };
        let mut ready = watched
            .iter()
            .zip(&owners)
            .filter(|(fd, _)| !fd.revents().is_empty());
        // What the command has printed comes before its end, but output without end does not hide it.
        let is_due = self.unheard >= MAX_UNHEARD_OUTPUTS;
        let leash = ready
            .clone()
            .find(|(_, owner)| is_due && matches!(owner, Owner::Leash));
        let Some((_, &owner)) = leash.or_else(|| ready.next()) else {
            return Ok(Event::Nothing);
        };
        self.unheard = match owner {
            Owner::Out | Owner::Err => self.unheard.saturating_add(1),
            Owner::Leash | Owner::Wake => 0,
        };
        match owner {
            Owner::Wake => {
                self.is_woken = true;
                Ok(Event::Nothing)
            }
            Owner::Out => {
                let read = read(&mut self.out, &mut self.block)?;
                Ok(Event::Output(Stream::Stdout, read))
            }
            Owner::Err => {
                let read = read(&mut self.err, &mut self.block)?;
                Ok(Event::Output(Stream::Stderr, read))
            }
            Owner::Leash => {
                let mut bytes = [0; 4096];
                match (&self.leash).read(&mut bytes) {
                    Ok(0) => {
                        self.gone = true;
                        Ok(Event::Gone)
                    }
                    Ok(read) => {
                        self.inbox.extend_from_slice(&bytes[..read]);
                        Ok(Event::Nothing)
                    }
                    // The helper died with something unread in its socket.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                        self.gone = true;
                        Ok(Event::Gone)
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Event::Nothing),
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// The bytes of the last [`Event::Output`].
    pub(super) fn block(&self) -> &[u8] {
        &self.block
    }

    /// Whether output can still come.
    pub(super) fn silent(&self) -> bool {
        self.out.is_none() && self.err.is_none()
    }

    /// Closes the control socket: the run ends at once. What it has written so far can still be read.
    pub(super) fn end(&self) {
        let _ = self.leash.shutdown(Shutdown::Write);
    }

    /// Waits until the helper is reaped, and kills it if it does not end by itself.
    fn reap(&mut self) {
        let deadline = Instant::now() + RUN_END_TIMEOUT;
        while !self.gone && Instant::now() < deadline {
            match self.next(Duration::from_millis(50)) {
                Ok(_) => {}
                Err(_) => break,
            }
        }
        if let Some(helper) = &mut self.helper {
            if !self.gone {
                let _ = helper.kill();
            }
            let _ = helper.wait();
        }
        if let Some(session) = self.session.take().filter(|_| !self.is_alone) {
            match self.gone {
                // A command may have ended the run's first process before the others.
                true => session.end_orphans(),
                // Nothing else ends what is left.
                false => session.end(),
            }
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if !self.gone {
            self.end();
        }
        self.reap();
    }
}

#[derive(Debug, Clone, Copy)]
enum Owner {
    Out,
    Err,
    Leash,
    Wake,
}

/// Reads what is there, and lets go of what has ended.
fn read(from: &mut Option<File>, block: &mut [u8]) -> io::Result<usize> {
    let Some(file) = from else { return Ok(0) };
    match file.read(block) {
        Ok(0) => *from = None,
        Ok(read) => return Ok(read),
        // A terminal without an open end on the other side.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::IO) => *from = None,
        Err(error) => match error.kind() {
            io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => {}
            _ => return Err(error),
        },
    }
    Ok(0)
}
