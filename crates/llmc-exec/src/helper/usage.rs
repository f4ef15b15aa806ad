//! Bounds that no resource limit of the kernel sets: how many processes root may start, and memory that is in use.
//!
//! The helper looks at its run a few times a second, more often the closer a bound is. A control group, where there is one,
//! enforces the same without gaps; this holds everywhere.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid};
use rustix::system::sysinfo;

use super::reaper;
use crate::plan::Plan;

/// The settings of the bounds, for the reason that a caller is given.
const MEMORY_SETTING: &str = "mcp.exec.max_memory";
const PROCESSES_SETTING: &str = "mcp.exec.max_processes";
/// How long a run goes on unseen while it is far from its bounds, and near them.
const USUAL_INTERVAL: Duration = Duration::from_millis(250);
const CLOSE_INTERVAL: Duration = Duration::from_millis(40);
/// What part of a bound is near it.
const CLOSE_PART: u64 = 4;

/// Looks after one run.
pub(super) struct UsageCheck {
    processes: u64,
    /// Bytes of all processes together.
    memory: Option<u64>,
    /// Whether `/proc` shows the processes of this run and no others.
    has_own_proc: bool,
    /// The Landlock ABI in force, which may bound signals to this run.
    landlock: Option<u32>,
    /// Processes and threads of the machine when the run began; the kernel counts to this type's highest number.
    machine_before: u16,
    /// Processes at the last look.
    seen: usize,
    is_close: bool,
}

/// What one process uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Usage {
    threads: u64,
    /// Bytes in memory, pages of files aside.
    resident: u64,
}

impl UsageCheck {
    pub(super) fn new(plan: &Plan, landlock: Option<u32>) -> UsageCheck {
        UsageCheck {
            landlock,
            machine_before: sysinfo().procs,
            processes: plan.limits.processes,
            memory: plan.limits.memory_bytes,
            has_own_proc: plan.features.fresh_proc && plan.owns_pid_namespace(),
            seen: 0,
            // A run may begin with what brings it over a bound.
            is_close: true,
        }
    }

    /// When to look again.
    pub(super) fn interval(&self) -> Duration {
        match self.is_close {
            true => CLOSE_INTERVAL,
            false => USUAL_INTERVAL,
        }
    }

    /// Which bound the run is over, if any.
    pub(super) fn exceeded(&mut self) -> Option<String> {
        let enough = usize::try_from(self.processes).unwrap_or(usize::MAX);
        let pids = match self.has_own_proc {
            true => listed_pids(),
            // Listed one by one: among as many as there may be now this process gets too little time for that while they
            // run, so they pause.
            false if self.may_be_too_many() && reaper::signal_run(self.landlock, Signal::STOP) => {
                let pids = reaper::descendants(getpid(), enough);
                if pids.len() <= enough {
                    reaper::signal_run(self.landlock, Signal::CONT);
                }
                pids
            }
            false => reaper::descendants(getpid(), enough),
        };
        // Before any of them is looked at, which takes long where there are many: they may be doubling meanwhile.
        if pids.len() as u64 > self.processes {
            return Some(self.too_many());
        }
        let is_growing = pids.len() > self.seen;
        self.seen = pids.len();
        let used: Vec<(Pid, Usage)> = pids
            .into_iter()
            .filter_map(|pid| Some((pid, usage(pid)?)))
            .collect();
        let threads: u64 = used.iter().map(|(_, usage)| usage.threads).sum();
        if threads > self.processes {
            return Some(self.too_many());
        }
        let resident: u64 = used.iter().map(|(_, usage)| usage.resident).sum();
        let bound = self.memory.unwrap_or(u64::MAX);
        self.is_close =
            is_growing || threads > self.processes / CLOSE_PART || resident > bound / CLOSE_PART;
        // Shared pages are counted several times so far: an upper bound.
        if resident <= bound {
            return None;
        }
        // One that cannot be looked into belongs to another user; what it shares is not told apart.
        let own = used
            .iter()
            .map(|(pid, usage)| own_memory(*pid).unwrap_or(usage.resident));
        (own.sum::<u64>() > bound).then(|| {
            format!(
                "it used more than {} MiB of memory ({MEMORY_SETTING})",
                bound >> 20
            )
        })
    }

    /// Whether the whole machine has as many more processes than before as this run may have. One system call.
    fn may_be_too_many(&self) -> bool {
        let more = sysinfo()
            .procs
            .wrapping_sub(self.machine_before)
            .cast_signed();
        u64::try_from(more).is_ok_and(|more| more > self.processes)
    }

    fn too_many(&self) -> String {
        let bound = self.processes;
        format!("it had more than {bound} processes and threads ({PROCESSES_SETTING})")
    }
}

/// Every process of this pid namespace but its first.
fn listed_pids() -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Pid::from_raw)
        .filter(|pid| *pid != Pid::INIT)
        .collect()
}

fn usage(pid: Pid) -> Option<Usage> {
    parse_status(&kernel_file(pid, "status")?)
}

/// Threads and resident memory out of `/proc/PID/status`. A process that has ended has none.
fn parse_status(text: &str) -> Option<Usage> {
    Some(Usage {
        threads: number_after(text, "Threads:")?,
        resident: ["RssAnon:", "RssShmem:"]
            .iter()
            .filter_map(|name| number_after(text, name))
            .sum::<u64>()
            << 10,
    })
}

fn number_after(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Memory that would be free without this process: its own, and its part of what it shares, files aside.
fn own_memory(pid: Pid) -> Option<u64> {
    parse_rollup(&kernel_file(pid, "smaps_rollup")?)
}

fn parse_rollup(text: &str) -> Option<u64> {
    Some((number_after(text, "Pss_Anon:")? + number_after(text, "Pss_Shmem:")?) << 10)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a file of the kernel, not of the agent"
)]
fn kernel_file(pid: Pid, name: &str) -> Option<String> {
    let dir = Path::new("/proc").join(pid.as_raw_nonzero().to_string());
    std::fs::read_to_string(dir.join(name)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_understood() {
        let own = usage(getpid()).unwrap();
        assert!(own.threads > 0 && own.resident > 1 << 16, "{own:?}");
        let memory = own_memory(getpid()).unwrap();
        assert!(memory > 1 << 14 && memory < 1 << 40, "{memory}");
        let odd = "Name:\tThreads: 9\nState:\tS\nRssAnon:\t    15 kB\nRssFile:\t 9 kB\nRssShmem:\t 5 kB\nThreads:\t3\n";
        let wanted = Usage {
            threads: 3,
            resident: 20 << 10,
        };
        assert_eq!(parse_status(odd), Some(wanted));
    }
}
