//! The first process of a session: it makes what the session's runs share, and its end is theirs.
//!
//! It has a process namespace, mounts and, unless commands use the host's, a network of its own. A run gets its own mounts,
//! since what has to be covered differs from run to run, but is one process tree among others: numbers, signals, terminals
//! and sockets mean the same to all of them. The first process of a run adopts what loses its parent, so a process that comes
//! to this one has lost its run's.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

use super::broker::{namespace_of_this_process, spawn};
use super::outer::leash;
use super::reaper::ChildSignals;
use super::{namespaces, reaper, session_mounts};
use crate::fds;
use crate::level::{Feature, Features};
use crate::plan::{
    self, Failure, INNER, LEADER, MOUNTER, Report, SessionRequest, SessionRules, SessionStart,
    Stage, Start,
};

/// Sets of rules whose leaders are kept; the one that was used longest ago gives way.
const MAX_LEADERS: usize = 4;
/// For how long nothing may happen before the next run's helpers are started in advance.
const QUIET_BEFORE_NEXT_RUN: Duration = Duration::from_millis(20);
/// How long orphans are killed as they come.
const ORPHANS_END_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves requests until the server closes the socket.
pub(super) fn run() -> io::Result<()> {
    let server = leash()?;
    let _ = rustix::process::setsid();
    super::hide()?;
    let Start { features, stage } = plan::receive(&server)?;
    let start: SessionStart = plan::receive(&server)?;
    let made = session_mounts::set_up(start)
        .and_then(|dirs| Ok((dirs, ChildSignals::new()?, Session::new(features, stage)?)));
    let (dirs, signals, mut session) = match made {
        Ok(made) => made,
        Err(failure) => return plan::send(&server, &Report::Failed(failure)),
    };
    plan::send(&server, &Report::Session)?;
    fds::send(&server, &dirs.iter().map(AsFd::as_fd).collect::<Vec<_>>())?;
    drop(dirs);
    loop {
        let timeout = session.lacks_next_run().then_some(QUIET_BEFORE_NEXT_RUN);
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut watched = [
            PollFd::new(&server, PollFlags::IN),
            PollFd::new(&signals.0, PollFlags::IN),
        ];
        match poll(&mut watched, timeout.as_ref()) {
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
            Ok(0) => session.prepare_next_run(),
            Ok(_) => {}
        }
        let is_asked = !watched[0].revents().is_empty();
        if !watched[1].revents().is_empty() {
            signals.clear();
            session.reap();
        }
        if is_asked {
            let slot = match plan::receive(&server)? {
                SessionRequest::Member(rules) => session.member(&rules),
                SessionRequest::Apart { with_layers } => session.apart(with_layers),
                SessionRequest::EndOrphans => {
                    session.end_orphans();
                    continue;
                }
            };
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

struct Session {
    start: Start,
    /// The session's own process namespace.
    home: OwnedFd,
    /// The one that was used last comes last.
    leaders: Vec<Leader>,
    /// What this process has started itself and not reaped.
    children: HashSet<Pid>,
}

struct Leader {
    rules: SessionRules,
    pid: Pid,
    socket: UnixStream,
    /// The socket to the first process of the next run, which waits with its mounter.
    next: Option<UnixStream>,
    /// Whether that could be made when it was last tried.
    is_able: bool,
}

impl Session {
    fn new(features: Features, stage: Option<Stage>) -> Result<Session, Failure> {
        let home = namespace_of_this_process("pid")
            .map_err(|error| Failure::new(Some(Feature::PidSpace), "a pid namespace", error))?;
        Ok(Session {
            start: Start { features, stage },
            home,
            leaders: Vec::new(),
            children: HashSet::new(),
        })
    }

    fn lacks_next_run(&self) -> bool {
        let last = self.leaders.last();
        last.is_some_and(|leader| leader.next.is_none() && leader.is_able)
    }

    fn prepare_next_run(&mut self) {
        let Some(mut leader) = self.leaders.pop() else {
            return;
        };
        leader.next = self.new_member(&leader).ok();
        leader.is_able = leader.next.is_some();
        self.leaders.push(leader);
    }

    /// The socket to the first process of a run under these rules.
    fn member(&mut self, rules: &SessionRules) -> Result<UnixStream, Failure> {
        let known = self
            .leaders
            .iter()
            .position(|leader| leader.rules == *rules);
        if let Some(at) = known {
            let mut leader = self.leaders.remove(at);
            if self.children.contains(&leader.pid) {
                let member = match leader.next.take() {
                    Some(member) => Ok(member),
                    None => self.new_member(&leader),
                };
                // A leader that a command has ended makes way for another one.
                if let Ok(member) = member {
                    leader.is_able = true;
                    self.leaders.push(leader);
                    return Ok(member);
                }
                let _ = kill_process(leader.pid, Signal::KILL);
            }
        }
        let leader = self.new_leader(rules)?;
        let member = self.new_member(&leader)?;
        if self.leaders.len() >= MAX_LEADERS {
            // Its runs go on without it.
            self.leaders.remove(0);
        }
        self.leaders.push(leader);
        Ok(member)
    }

    fn new_leader(&mut self, rules: &SessionRules) -> Result<Leader, Failure> {
        let failed = |error| Failure::new(None, "starting a helper", error);
        let (socket, theirs) = UnixStream::pair().map_err(failed)?;
        let pid = self.spawn(LEADER, &theirs).map_err(failed)?;
        drop(theirs);
        plan::send(&socket, &self.start)
            .and_then(|()| plan::send(&socket, rules))
            .map_err(failed)?;
        match plan::receive(&socket).map_err(failed)? {
            Report::Session => Ok(Leader {
                rules: rules.clone(),
                pid,
                socket,
                next: None,
                is_able: true,
            }),
            Report::Failed(failure) => Err(failure),
            _ => Err(failed(io::ErrorKind::InvalidData.into())),
        }
    }

    /// A first process of a run, with the process that will make its mounts.
    fn new_member(&mut self, leader: &Leader) -> Result<UnixStream, Failure> {
        let failed = |error| Failure::new(None, "starting a helper", error);
        io::Write::write_all(&mut &leader.socket, b"m").map_err(failed)?;
        match plan::receive(&leader.socket).map_err(failed)? {
            Report::Slot => {}
            Report::Failed(failure) => return Err(failure),
            _ => return Err(failed(io::ErrorKind::InvalidData.into())),
        }
        let member = fds::receive(&leader.socket).map_err(failed)?.pop();
        let member = member.ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
        let member = UnixStream::from(member);
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        self.spawn(MOUNTER, &theirs).map_err(failed)?;
        plan::send(&ours, &self.start)
            .and_then(|()| fds::send(&member, &[ours.as_fd()]))
            .map_err(failed)?;
        Ok(member)
    }

    /// The socket to the first process of a run with processes of its own.
    fn apart(&mut self, with_layers: bool) -> Result<UnixStream, Failure> {
        let failed = |step, error| Failure::new(Some(Feature::PidSpace), step, error);
        let (ours, theirs) = UnixStream::pair().map_err(|error| failed("a socket", error))?;
        namespaces::pid()?;
        let pid = self.spawn(INNER, &theirs);
        setns(&self.home, CloneFlags::CLONE_NEWPID)
            .map_err(|errno| failed("leaving a pid namespace", errno.into()))?;
        pid.map_err(|error| failed("starting pid 1", error))?;
        let start = Start {
            features: self.start.features,
            stage: self.start.stage.clone().filter(|_| with_layers),
        };
        plan::send(&ours, &start).map_err(|error| failed("talking to pid 1", error))?;
        Ok(ours)
    }

    fn spawn(&mut self, what: &str, theirs: &UnixStream) -> io::Result<Pid> {
        let pid = spawn(what, theirs)?;
        self.children.insert(pid);
        Ok(pid)
    }

    fn reap(&mut self) {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, _))) => {
                    self.children.remove(&pid);
                }
                Err(Errno::INTR) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Ends processes whose run's first process has gone before them, as when a command has killed it.
    fn end_orphans(&mut self) {
        let deadline = Instant::now() + ORPHANS_END_TIMEOUT;
        loop {
            self.reap();
            let own = reaper::children(Pid::INIT);
            let orphans = own.into_iter().filter(|pid| !self.children.contains(pid));
            let orphans: Vec<Pid> = orphans.collect();
            if orphans.is_empty() || Instant::now() >= deadline {
                return;
            }
            reaper::kill_trees(&orphans);
        }
    }
}
