//! Restricts a worker that runs an untrusted script, or a parser of untrusted files, to computing.

use std::io;

use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetStatus, Scope};
use nix::libc;
use rustix::process::Resource;

use super::limits::lower;
use super::{caps, seccomp};

/// All that an interpreter, an allocator and a socket need. Nothing here takes a path, an address or another process.
const WORKER_CALLS: &[i64] = &[
    // The socket, and its end.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_ppoll,
    libc::SYS_close,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    // Memory.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    // Existing threads, time, random numbers, exit.
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_tgkill,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Closes every descriptor but the standard three: the server's parent process may have passed on others.
///
/// For a process that has just begun and owns none itself.
///
/// # Errors
/// The kernel does not say which there are.
pub fn close_inherited() -> io::Result<()> {
    let listed = std::fs::read_dir("/proc/self/fd")?;
    let fds: Vec<i32> = listed
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    for fd in fds {
        // The listing's own is closed by now.
        let _ = nix::unistd::close(fd);
    }
    Ok(())
}

/// Gives up files, sockets, programs and capabilities for good, in all threads that this one starts and in itself, and
/// bounds memory that no allocator counts. A kernel without one of the means is served with the others.
///
/// # Errors
/// The kernel has no filter for system calls, or refuses this one: without it nothing would hold.
pub fn restrict_to_compute(memory_bytes: u64) -> io::Result<()> {
    lower(Resource::Core, 0)?;
    lower(Resource::Fsize, 0)?;
    lower(Resource::Data, memory_bytes)?;
    let _ = caps::drop_all();
    // The filter leaves nothing for Landlock to refuse; Landlock is a second layer.
    let _ = landlocked();
    seccomp::only_these(WORKER_CALLS)
}

fn landlocked() -> Result<RulesetStatus, landlock::RulesetError> {
    let newest = ABI::V9;
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(newest))?
        .handle_access(AccessNet::from_all(newest))?
        .scope(Scope::from_all(newest))?
        .create()?
        .restrict_self()?;
    Ok(status.ruleset)
}
