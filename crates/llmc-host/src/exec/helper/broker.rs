//! The broker: makes pid namespaces to order, one per run, and has the next one ready.
//!
//! Entering namespaces and starting a large executable is most of what a confined run costs, and none of it depends on
//! the command. So it is done ahead of time, here, in a process without threads: while one run goes on, the first process
//! of the next already waits for its plan. The broker is itself pid 1 of a namespace around all runs; if it dies, so do
//! they. It never sees a plan or any output: the server talks to each run directly.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, setns};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

use super::outer::leash;
use super::spaces;
use crate::exec::fds;
use crate::exec::level::Feature;
use crate::exec::plan::{self, Failure, INNER, Report, Start};

/// A run's first process, living or waiting for its plan.
struct Init {
    pidfd: OwnedFd,
    /// Its side of the socket to the server, kept open until it is reaped: the server reads the end of the run off it.
    theirs: UnixStream,
    /// The server has let go of it, and it was killed for that.
    ended: bool,
}

/// Serves the server until it goes away.
pub(super) fn run() -> io::Result<()> {
    let server = leash()?;
    let start: Start = plan::receive(&server)?;
    let home = rustix::fs::open(
        "/proc/self/ns/pid",
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    rustix::process::chdir("/")?;
    plan::send(&server, &Report::Started)?;
    let mut inits: Vec<Init> = Vec::new();
    let mut spare: Option<UnixStream> = None;
    loop {
        match next(&server, &mut inits)? {
            Wish::End => return Ok(()),
            Wish::Nothing => {}
            Wish::Slot => {
                let slot = match spare.take() {
                    Some(slot) => Ok(slot),
                    None => make(&start, &home, &mut inits),
                };
                match slot {
                    Ok(slot) => {
                        plan::send(&server, &Report::Slot)?;
                        fds::send(&server, &[slot.as_fd()])?;
                    }
                    Err(failure) => plan::send(&server, &Report::Failed(failure))?,
                }
                // If that fails, the next wish finds out why.
                spare = make(&start, &home, &mut inits).ok();
            }
        }
    }
}

/// What the server wants.
enum Wish {
    Slot,
    End,
    Nothing,
}

/// Waits for the server or for the end of a run.
fn next(server: &UnixStream, inits: &mut Vec<Init>) -> io::Result<Wish> {
    let mut watched = vec![PollFd::new(server, PollFlags::IN)];
    for init in inits.iter() {
        watched.push(PollFd::new(&init.pidfd, PollFlags::IN));
        // Its end is asked for once: it would be true again and again until the process is reaped.
        watched.push(match init.ended {
            true => PollFd::new(&init.pidfd, PollFlags::IN),
            false => PollFd::new(&init.theirs, PollFlags::RDHUP),
        });
    }
    match poll(&mut watched, None) {
        Err(rustix::io::Errno::INTR) => return Ok(Wish::Nothing),
        other => other?,
    };
    let ready: Vec<bool> = watched.iter().map(|fd| !fd.revents().is_empty()).collect();
    drop(watched);
    // From the back, so that what is left keeps its place.
    for at in (0..inits.len()).rev() {
        if ready[1 + 2 * at] {
            let init = inits.swap_remove(at);
            let _ = waitid(WaitId::PidFd(init.pidfd.as_fd()), WaitIdOptions::EXITED);
        } else if ready[2 + 2 * at] && !inits[at].ended {
            // It has seen the server go, too; this is for one that is stuck.
            let _ = pidfd_send_signal(&inits[at].pidfd, Signal::KILL);
            inits[at].ended = true;
        }
    }
    if !ready[0] {
        return Ok(Wish::Nothing);
    }
    match { server }.read(&mut [0])? {
        0 => Ok(Wish::End),
        _ => Ok(Wish::Slot),
    }
}

/// Starts the first process of a run. Returns the server's side of its socket.
fn make(start: &Start, home: &OwnedFd, inits: &mut Vec<Init>) -> Result<UnixStream, Failure> {
    let failed = |step, error| Failure::new(Some(Feature::PidSpace), step, error);
    let (ours, theirs) = UnixStream::pair().map_err(|error| failed("a socket", error))?;
    spaces::pid()?;
    let pidfd = spawn(&theirs);
    // Back home, or there could be no second namespace.
    setns(home, CloneFlags::CLONE_NEWPID)
        .map_err(|errno| failed("leaving a pid namespace", errno.into()))?;
    let pidfd = pidfd.map_err(|error| failed("starting pid 1", error))?;
    plan::send(&ours, start).map_err(|error| failed("talking to pid 1", error))?;
    inits.push(Init {
        pidfd,
        theirs,
        ended: false,
    });
    Ok(ours)
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is how llmc-host starts programs"
)]
fn spawn(leash: &UnixStream) -> io::Result<OwnedFd> {
    let init = Command::new("/proc/self/exe")
        .arg0("llmc")
        .arg(INNER)
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(leash.try_clone()?)))
        .spawn()?;
    Ok(pidfd_open(Pid::from_child(&init), PidfdFlags::empty())?)
}
