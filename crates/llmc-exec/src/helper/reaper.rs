//! Ends a process tree where there is no pid namespace.
//!
//! The helper is a subreaper, so an orphan below it becomes its child, however often it forked and whatever session it
//! opened. Killing children until there are none therefore ends everything.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};

/// How long stubborn processes (stuck in the kernel) are waited for.
const STUBBORN_PROCESS_TIMEOUT: Duration = Duration::from_secs(5);

/// Makes orphans below this process its children.
pub(super) fn adopt_orphans() -> Result<(), Errno> {
    rustix::process::set_child_subreaper(Some(getpid()))
}

/// Kills every descendant, as often as it takes until none is new.
pub(super) fn kill_all() {
    let deadline = Instant::now() + STUBBORN_PROCESS_TIMEOUT;
    let mut killed: BTreeSet<i32> = BTreeSet::new();
    while Instant::now() < deadline {
        let found = descendants(getpid()).into_iter();
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

/// Kills and reaps every descendant.
pub(super) fn end_all() {
    let deadline = Instant::now() + STUBBORN_PROCESS_TIMEOUT;
    loop {
        kill_all();
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

/// Processes below `pid`, deepest last. Read from `/proc`, so some may be gone and some not yet there: call again.
pub(super) fn descendants(pid: Pid) -> Vec<Pid> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
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
    }
    found.split_off(1)
}
