//! The broker: makes one pid namespace for each session, and for each run that belongs to none, and prepares the latter in
//! advance.
//!
//! Entering namespaces and starting a large executable is most of what a confined run costs, and none of it depends on
//! the command. So it is done ahead of time, here, in a process without threads: the first processes of the next runs
//! already wait for their plans. They are made when a run has ended, since whatever is done earlier slows that run down.
//! The broker is itself pid 1 of a namespace around all runs; its end kills them. It never sees a plan or any output:
//! the server talks to each run directly.
//!
//! Network namespaces are reused: a run has one to itself, and leaves nothing behind in it, since no command may
//! change more of a network than its own sockets.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

use super::outer::leash;
use super::{namespaces, stage};
use crate::fds;
use crate::level::Feature;
use crate::plan::{self, Failure, INNER, Report, SESSION, Start, WANTS_SESSION};

/// How many wait for their plans.
const READY_RUNS: usize = 2;
/// How many networks wait for a run.
const MAX_IDLE_NETWORKS: usize = 4;
/// For how long nothing may happen before another one is made, though no run has ended.
const QUIET_BEFORE_NEXT_RUN: Duration = Duration::from_millis(20);

/// A run's first process, living or waiting for its plan.
struct Init {
    pidfd: OwnedFd,
    /// Its side of the socket to the server, kept open until it is reaped: the server reads the end of the run off it.
    theirs: UnixStream,
    /// The network namespace that is this run's alone.
    network: Option<OwnedFd>,
    /// The server closed its socket, and the broker killed it.
    ended: bool,
}

/// Serves requests until the server closes the socket.
pub(super) fn run() -> io::Result<()> {
    let server = leash()?;
    let Start { features, stage } = plan::receive(&server)?;
    rustix::process::chdir("/")?;
    // Its locks are held until the broker ends.
    let staged = match stage::set_up(stage.filter(|_| features.mount)) {
        Ok(staged) => staged,
        Err(failure) => return plan::send(&server, &Report::Failed(failure)),
    };
    let mut runs = Runs {
        home: namespace_of_this_process("pid")?,
        start: Start {
            features,
            stage: staged.stage.clone(),
        },
        inits: Vec::new(),
        networks: Vec::new(),
    };
    let layers = staged.stores.clone();
    plan::send(&server, &Report::Started { layers })?;
    let mut ready: Vec<UnixStream> = Vec::new();
    // If one cannot be made in advance, the next request reports the error.
    let mut able = true;
    loop {
        let timeout = match ready.len() {
            _ if !able => None,
            0 => Some(Duration::ZERO),
            READY_RUNS.. => None,
            _ => Some(QUIET_BEFORE_NEXT_RUN),
        };
        match runs.next(&server, timeout)? {
            News::Gone => return Ok(()),
            News::Nothing => {}
            News::Quiet | News::Ended if able && ready.len() < READY_RUNS => match runs.make(INNER)
            {
                Ok(slot) => ready.push(slot),
                Err(_) => able = false,
            },
            News::Quiet | News::Ended => {}
            News::Wish(what) => {
                let slot = match what {
                    INNER => ready.pop().map_or_else(|| runs.make(what), Ok),
                    _ => runs.make(what),
                };
                able = slot.is_ok();
                match slot {
                    Ok(slot) => {
                        plan::send(&server, &Report::Slot)?;
                        fds::send(&server, &[slot.as_fd()])?;
                    }
                    Err(failure) => plan::send(&server, &Report::Failed(failure))?,
                }
            }
        }
    }
}

/// What has happened.
enum News {
    /// The server wants the first process of a run or of a session.
    Wish(&'static str),
    /// The server closed its socket.
    Gone,
    /// A run ended.
    Ended,
    /// The timeout passed.
    Quiet,
    /// An event that needs no action.
    Nothing,
}

/// All that was made and has not been reaped.
struct Runs {
    start: Start,
    /// The broker's own pid namespace.
    home: OwnedFd,
    inits: Vec<Init>,
    /// Networks without a run.
    networks: Vec<OwnedFd>,
}

impl Runs {
    /// Waits for the server or for the end of a run.
    fn next(&mut self, server: &UnixStream, timeout: Option<Duration>) -> io::Result<News> {
        let timeout = timeout
            .map(Timespec::try_from)
            .transpose()
            .map_err(io::Error::other)?;
        let inits = &mut self.inits;
        let mut watched = vec![PollFd::new(server, PollFlags::IN)];
        for init in inits.iter() {
            watched.push(PollFd::new(&init.pidfd, PollFlags::IN));
            // Its end is asked for once: it would be true again and again until the process is reaped.
            watched.push(if init.ended {
                PollFd::new(&init.pidfd, PollFlags::IN)
            } else {
                PollFd::new(&init.theirs, PollFlags::RDHUP)
            });
        }
        match poll(&mut watched, timeout.as_ref()) {
            Err(rustix::io::Errno::INTR) => return Ok(News::Nothing),
            Ok(0) => return Ok(News::Quiet),
            other => other?,
        };
        let ready: Vec<bool> = watched.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(watched);
        let mut news = News::Nothing;
        // From the back, so that what is left keeps its place.
        for at in (0..inits.len()).rev() {
            if ready[1 + 2 * at] {
                let init = inits.swap_remove(at);
                let reaped = waitid(WaitId::PidFd(init.pidfd.as_fd()), WaitIdOptions::EXITED);
                if reaped.is_ok() && self.networks.len() < MAX_IDLE_NETWORKS {
                    self.networks.extend(init.network);
                }
                news = News::Ended;
            } else if ready[2 + 2 * at] && !inits[at].ended {
                // It has seen the server go, too; this is for one that is stuck.
                let _ = pidfd_send_signal(&inits[at].pidfd, Signal::KILL);
                inits[at].ended = true;
            }
        }
        if !ready[0] {
            return Ok(news);
        }
        let mut wish = [0];
        match { server }.read(&mut wish)? {
            0 => Ok(News::Gone),
            _ if wish[0] == WANTS_SESSION => Ok(News::Wish(SESSION)),
            _ => Ok(News::Wish(INNER)),
        }
    }

    /// Starts the first process of a run or of a session. Returns the server's side of its socket.
    fn make(&mut self, what: &str) -> Result<UnixStream, Failure> {
        let failed = |step, error| Failure::new(Some(Feature::PidSpace), step, error);
        let network = self.enter_network()?;
        let (ours, theirs) = UnixStream::pair().map_err(|error| failed("a socket", error))?;
        namespaces::pid()?;
        let pidfd = spawn(what, &theirs).and_then(|pid| Ok(pidfd_open(pid, PidfdFlags::empty())?));
        // Back to the broker's own pid namespace: the kernel allows only one `unshare` from it at a time.
        setns(&self.home, CloneFlags::CLONE_NEWPID)
            .map_err(|errno| failed("leaving a pid namespace", errno.into()))?;
        let pidfd = pidfd.map_err(|error| failed("starting pid 1", error))?;
        plan::send(&ours, &self.start).map_err(|error| failed("talking to pid 1", error))?;
        self.inits.push(Init {
            pidfd,
            theirs,
            network,
            ended: false,
        });
        Ok(ours)
    }

    /// Goes where the next process is to start. The broker itself has no use for a network, so it stays there.
    fn enter_network(&mut self) -> Result<Option<OwnedFd>, Failure> {
        let features = self.start.features;
        if !features.net {
            return Ok(None);
        }
        let failed = |step, error| Failure::new(Some(Feature::NetSpace), step, error);
        if let Some(network) = self.networks.pop() {
            setns(&network, CloneFlags::CLONE_NEWNET)
                .map_err(|errno| failed("entering a network namespace", errno.into()))?;
            return Ok(Some(network));
        }
        namespaces::net(features)?;
        let network = namespace_of_this_process("net")
            .map_err(|error| failed("a network namespace", error))?;
        Ok(Some(network))
    }
}

/// A namespace this process is in.
pub(super) fn namespace_of_this_process(kind: &str) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/ns/{kind}");
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Starts this executable again as a helper whose standard input is a socket.
#[expect(
    clippy::disallowed_methods,
    reason = "this is how llmc-exec starts programs"
)]
pub(super) fn spawn(what: &str, socket: &UnixStream) -> io::Result<Pid> {
    let helper = Command::new("/proc/self/exe")
        .arg0("llmc")
        .arg(what)
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(socket.try_clone()?)))
        .spawn()?;
    Ok(Pid::from_child(&helper))
}
