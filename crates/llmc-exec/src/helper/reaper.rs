//! Learns of children that have ended, and ends a process tree where there is no pid namespace of its own.
//!
//! The helper is a subreaper, so an orphan below it becomes its child, however often it forked and whatever session it
//! opened. Killing children until there are none therefore ends everything.

use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, getppid, kill_process, test_kill_process, wait,
};

use signal_hook::consts::SIGCHLD;

use crate::plan::Failure;

/// The first Landlock ABI that keeps signals inside the run.
const SCOPED_SIGNALS_ABI: u32 = 6;
/// How long stubborn processes (stuck in the kernel) are waited for.
const STUBBORN_PROCESS_TIMEOUT: Duration = Duration::from_secs(5);

/// Makes orphans below this process its children.
pub(super) fn adopt_orphans() -> Result<(), Errno> {
    rustix::process::set_child_subreaper(Some(getpid()))
}

/// Sends a signal to every process of the run at once, where Landlock lets this one signal no other (ABI 6 on): none can
/// fork away meanwhile. Returns whether it was sent.
pub(super) fn signal_run(landlock: Option<u32>, signal: Signal) -> bool {
    // Two proofs, since the signal would reach every process of the user without that scope: what the kernel said when the
    // rules were put on, and that the server, which has the same user, cannot be signalled.
    let server = getppid().filter(|pid| *pid != Pid::INIT);
    let is_scoped = landlock.is_some_and(|abi| abi >= SCOPED_SIGNALS_ABI)
        && server.is_some_and(|pid| test_kill_process(pid) == Err(Errno::PERM));
    let everyone = nix::unistd::Pid::from_raw(-1);
    let signal = nix::sys::signal::Signal::try_from(signal.as_raw()).ok();
    is_scoped && nix::sys::signal::kill(everyone, signal).is_ok()
}

/// Readable when a child has ended. No signal is blocked or ignored for it, since what this process starts would inherit that.
pub(super) struct ChildSignals(pub(super) UnixStream);

impl ChildSignals {
    pub(super) fn new() -> Result<ChildSignals, Failure> {
        let failed = |error| Failure::new(None, "watching for children", error);
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        signal_hook::low_level::pipe::register(SIGCHLD, theirs).map_err(failed)?;
        Ok(ChildSignals(ours))
    }

    /// Forgets what has been signalled; the children are to be reaped after that.
    pub(super) fn clear(&self) {
        while { &self.0 }.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
    }
}

/// Kills every descendant, as often as it takes until none is new.
pub(super) fn kill_all(landlock: Option<u32>) {
    signal_run(landlock, Signal::KILL);
    kill_until_none_is_new(|| descendants(getpid(), usize::MAX));
}

/// Kills processes and what is below them.
pub(super) fn kill_trees(roots: &[Pid]) {
    kill_until_none_is_new(|| {
        let below = roots.iter().flat_map(|root| descendants(*root, usize::MAX));
        roots.iter().copied().chain(below).collect()
    });
}

fn kill_until_none_is_new(find: impl Fn() -> Vec<Pid>) {
    let deadline = Instant::now() + STUBBORN_PROCESS_TIMEOUT;
    let mut killed: BTreeSet<i32> = BTreeSet::new();
    while Instant::now() < deadline {
        let found = find().into_iter();
        let new: Vec<Pid> = found
            .filter(|pid| killed.insert(pid.as_raw_nonzero().get()))
            .collect();
        if new.is_empty() {
            return;
        }
        // First all stop, so that those that are killed last start no others meanwhile.
        for signal in [Signal::STOP, Signal::KILL] {
            for pid in &new {
                let _ = kill_process(*pid, signal);
            }
        }
    }
}

/// Sends a signal to every descendant.
pub(super) fn signal_all(signal: Signal) {
    for pid in descendants(getpid(), usize::MAX) {
        let _ = kill_process(pid, signal);
    }
}

/// Kills and reaps every descendant.
pub(super) fn end_all(landlock: Option<u32>) {
    let deadline = Instant::now() + STUBBORN_PROCESS_TIMEOUT;
    loop {
        kill_all(landlock);
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        if Instant::now() >= deadline {
            return;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Processes below `pid`, deepest last, and no further than to `enough` of them: they may start others faster than these can
/// be listed. Read from `/proc`, so some may be gone and some not yet there: call again.
pub(super) fn descendants(pid: Pid, enough: usize) -> Vec<Pid> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        if found.len() > enough {
            break;
        }
        next += 1;
        found.extend(children(pid));
    }
    found.split_off(1)
}

/// The children of a process.
pub(super) fn children(pid: Pid) -> Vec<Pid> {
    let mut found = Vec::new();
    let tasks = Path::new("/proc")
        .join(pid.as_raw_nonzero().to_string())
        .join("task");
    for task in std::fs::read_dir(tasks).into_iter().flatten().flatten() {
        #[expect(
            clippy::disallowed_methods,
            reason = "a file of the kernel, not of the agent"
        )]
        let children = std::fs::read_to_string(task.path().join("children"));
        let children = children.unwrap_or_default();
        let pids = children.split_ascii_whitespace();
        found.extend(pids.filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
    }
    found
}
