//! Resource limits of a run.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use rustix::system::uname;

use crate::plan::{Plan, SESSION_PROCESSES_FACTOR, SessionTmp};

/// A script that runs in a session has a low bound of its own, and is counted with the session's commands.
const MIN_PROCESSES_OF_SESSIONS: u64 = 2048;

/// Sets them for this process and all that come from it.
pub(super) fn set(plan: &Plan) -> Result<(), Errno> {
    let limits = &plan.limits;
    lower(Resource::Core, 0)?;
    if let Some(seconds) = plan.cpu_seconds {
        lower(Resource::Cpu, seconds)?;
    }
    if let Some(bytes) = limits.file_bytes {
        lower(Resource::Fsize, bytes)?;
    }
    if let Some(bytes) = limits.data_bytes {
        lower(Resource::Data, bytes)?;
    }
    lower(Resource::Nofile, limits.open_files)?;
    lower(Resource::Nproc, processes_of_user(plan))
}

/// How many processes and threads the user may have where the kernel counts this run's: in its user namespace, which all
/// sessions of a principal share, else anywhere. Root is exempt. The helper's own count bounds the run.
fn processes_of_user(plan: &Plan) -> u64 {
    let run = plan.limits.processes;
    match (plan.features.user, &plan.view.tmp) {
        (true, Some(SessionTmp::OfSession)) => run
            .max(MIN_PROCESSES_OF_SESSIONS)
            .saturating_mul(SESSION_PROCESSES_FACTOR),
        (true, _) => run,
        (false, _) => threads_of_user().saturating_add(run),
    }
}

/// Threads that this user has anywhere right now.
fn threads_of_user() -> u64 {
    let user = geteuid().as_raw();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter(|entry| {
        let name = entry.file_name();
        let is_process = name.as_bytes().first().is_some_and(u8::is_ascii_digit);
        is_process && entry.metadata().is_ok_and(|status| status.uid() == user)
    });
    // A directory has a link for each directory in it, and two of its own.
    let threads = processes.filter_map(|entry| entry.path().join("task").metadata().ok());
    threads.map(|status| status.nlink().saturating_sub(2)).sum()
}

/// Numbers that the kernel gives out only once: it begins again above them when it has reached the highest.
const RESERVED_PIDS: u64 = 300;
/// How far the kernel's bound is above the one that ends a run, so that a run that reaches it is seen to be over.
const SPARE_PIDS: u64 = 64;
/// Since this version each pid namespace has its highest number; before, it is the machine's.
const OWN_PID_MAX_VERSION: (u32, u32) = (6, 14);

/// Bounds the processes and threads of this pid namespace, those of root included, by their highest number. Without it the
/// helper's own count holds, and a run has as many as it can start between two of them.
pub(super) fn bound_pids(processes: u64) {
    let release = uname();
    if release.release().to_str().ok().and_then(version) < Some(OWN_PID_MAX_VERSION) {
        return;
    }
    let highest = RESERVED_PIDS
        .saturating_add(processes)
        .saturating_add(SPARE_PIDS);
    // Fails where there may be more than the kernel can number anyway.
    let _ = std::fs::write("/proc/sys/kernel/pid_max", highest.to_string());
}

/// The first two numbers of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Lowers a limit, hard and soft; one that is lower already stays.
pub(super) fn lower(resource: Resource, to: u64) -> Result<(), Errno> {
    let now = getrlimit(resource);
    let to = now.maximum.map_or(to, |maximum| maximum.min(to));
    setrlimit(
        resource,
        Rlimit {
            current: Some(to),
            maximum: Some(to),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_and_unknown_ones_are_old() {
        assert_eq!(version("6.18.2-generic"), Some((6, 18)));
        assert_eq!(version("5.15-rc1"), Some((5, 15)));
        assert_eq!(version("6.1.0-13-amd64"), Some((6, 1)));
        for odd in ["", "6", "linux", "x.6.18"] {
            assert!(version(odd) < Some(OWN_PID_MAX_VERSION), "{odd}");
        }
    }
}
