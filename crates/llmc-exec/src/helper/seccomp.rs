//! The system call filter: ways out that neither mounts nor namespaces close.
//!
//! The program is laid out here rather than by the library that installs it: the kernel runs a new filter once for every
//! system call there is, and a search tree makes that ten times cheaper than a list. That matters, since every run pays.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use llmc_supervise::{Instruction, install};
use nix::libc;
use rustix::process::Pid;
use seccompiler::{apply_filter, sock_filter};

use crate::plan::Sockets;

/// Calls no command needs and every escape wants. Refused with `EPERM`.
const REFUSED: &[i64] = &[
    // Other processes' memory and descriptors.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // The mounts that make the boundary.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_setns,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    // The kernel itself.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    // Rings do file and socket work that no filter sees.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Keyrings are shared with the user's other sessions.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
];

/// The set-user-id and set-group-id bits. A file that a command gives them keeps them on the host, where they count.
const SET_ID_BITS: u32 = libc::S_ISUID | libc::S_ISGID;

/// Calls that take a mode, and which of their arguments it is. `mkdir` is not among them: the kernel drops the bits there.
const SET_MODE: &[(i64, u32)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (libc::SYS_fchmodat2, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
    (libc::SYS_mknodat, 2),
];

/// Calls that take a mode if their flags say that a file is made, and where the flags are. The mode follows them.
const CREATE: &[(i64, u32)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
    (libc::SYS_openat, 2),
];

/// Calls that a supervisor answers ([`supervise_renames`]); removals of directories by `unlinkat` too.
const SUPERVISED: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    libc::SYS_symlinkat,
];

/// The machine whose calls are numbered as above. Other ways into the kernel (32-bit code) number them differently.
#[cfg(target_arch = "x86_64")]
const MACHINE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const MACHINE: u32 = 0xc000_00b7;

/// From here on are the x86-64 kernel's calls for 32-bit pointers: the same calls under other numbers.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const IF_AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const IF_ANY_BIT: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const GO: u32 = libc::BPF_JMP | libc::BPF_JA;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// Where the kernel puts the call's number, its machine and the low half of an argument.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const fn argument(n: u32) -> u32 {
    16 + 8 * n
}

/// Part of a program that always ends in a verdict.
type Block = Vec<sock_filter>;

/// Which requests of `ptrace` pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tracing {
    Refused,
    /// Those by which LeakSanitizer stops the threads of its own program. For runs that see no processes of others, or that
    /// Landlock keeps from tracing them.
    OfLeakSanitizer,
}

/// To attach to a thread, let it go on, detach, and read registers in two ways. Nothing is written, and no system call followed.
const LEAK_SANITIZER_REQUESTS: [u32; 5] = [16, 7, 17, 12, 0x4204];

/// Filters this thread and all that come from it.
pub(super) fn filter(sockets: Sockets, tracing: Tracing) -> io::Result<()> {
    apply_filter(&program(sockets, tracing)?).map_err(io::Error::other)
}

/// Hands renames, new symbolic links and removals of directories of this thread, and of all that come from it, to a supervisor.
pub(super) fn supervise_renames() -> io::Result<OwnedFd> {
    let notify = || step(RETURN, libc::SECCOMP_RET_USER_NOTIF);
    let mut calls: BTreeMap<u32, Block> = BTreeMap::new();
    for call in SUPERVISED {
        let call = u32::try_from(*call).map_err(io::Error::other)?;
        calls.insert(call, vec![notify()]);
    }
    let mut removal = vec![
        step(LOAD, argument(2)),
        branch(IF_ANY_BIT, libc::AT_REMOVEDIR as u32, 0, 1),
        notify(),
    ];
    removal.extend(allow());
    calls.insert(
        u32::try_from(libc::SYS_unlinkat).map_err(io::Error::other)?,
        removal,
    );
    let calls: Vec<(u32, Block)> = calls.into_iter().collect();
    let mut program = preamble();
    program.extend(search(&calls, &allow()));
    let program: Vec<Instruction> = program
        .iter()
        .map(|one| Instruction {
            code: one.code,
            jt: one.jt,
            jf: one.jf,
            k: one.k,
        })
        .collect();
    install(&program)
}

/// Whether a program may change modes, owners, times and attributes of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Metadata {
    /// Read-only mounts and file systems of the run's own bound that.
    Allowed,
    /// No Landlock rule covers these, so they are refused where the files are the host's.
    Refused,
}

/// Lets this process start threads but no process, no program but the one behind a descriptor, and reach no other process.
/// Comes on top of [`filter`].
pub(super) fn keep_alone(own: Pid, program: i32, metadata: Metadata) -> io::Result<()> {
    let own = own.as_raw_nonzero().get();
    apply_filter(&alone(own, program, metadata)?).map_err(io::Error::other)
}

/// Other processes, by number or by what all of a user share.
const REFUSED_TO_SINGLE: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_ptrace,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semctl,
    libc::SYS_semtimedop,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    // A file that no rule on places knows, and that could be started.
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
];

/// Calls that name a process, and in which argument. The program's own number passes, and 0 where that is itself.
const OF_ONE_PROCESS: &[(i64, u32)] = &[
    (libc::SYS_kill, 0),
    (libc::SYS_tkill, 0),
    (libc::SYS_tgkill, 0),
    (libc::SYS_rt_sigqueueinfo, 0),
    (libc::SYS_rt_tgsigqueueinfo, 0),
];
const OF_ONE_PROCESS_OR_SELF: &[(i64, u32)] = &[
    (libc::SYS_prlimit64, 0),
    (libc::SYS_sched_setaffinity, 0),
    (libc::SYS_sched_setattr, 0),
    (libc::SYS_sched_setparam, 0),
    (libc::SYS_sched_setscheduler, 0),
];

/// Calls that name a process, a group or a user by their first two arguments, and what says that it is a process.
const OF_ONE_KIND: &[(i64, u32)] = &[(libc::SYS_setpriority, 0), (libc::SYS_ioprio_set, 1)];

/// Changes of a file that is not open for writing. Numbers from `setxattrat` on are newer than some C libraries.
const METADATA: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SYS_SETXATTRAT,
    SYS_REMOVEXATTRAT,
    SYS_FILE_SETATTR,
    // They report names in folders that no rule lets the program list.
    libc::SYS_inotify_add_watch,
    libc::SYS_fanotify_init,
];
const SYS_SETXATTRAT: i64 = 463;
const SYS_REMOVEXATTRAT: i64 = 466;
const SYS_FILE_SETATTR: i64 = 469;

/// `F_SETOWN` and `F_SETOWN_EX`, and the same as `FIOSETOWN` and `SIOCSPGRP`: they send signals to another process.
const SET_OWNER: [u32; 2] = [8, 15];
const SET_OWNER_BY_IOCTL: [u32; 2] = [0x8901, 0x8902];
/// `FS_IOC_SETFLAGS`, `FS_IOC32_SETFLAGS`, `FS_IOC_FSSETXATTR`: attributes of a file that is open for reading.
const SET_ATTRIBUTES: [u32; 3] = [0x4008_6602, 0x4004_6602, 0x401c_5820];

fn alone(own: i32, program: i32, metadata: Metadata) -> io::Result<Block> {
    let mut calls: BTreeMap<u32, Block> = BTreeMap::new();
    let mut on = |call: i64, block: Block| {
        let call = u32::try_from(call).map_err(io::Error::other)?;
        calls.insert(call, block);
        io::Result::Ok(())
    };
    let number = |number: i32| u32::try_from(number).map_err(io::Error::other);
    let (own, program) = (number(own)?, number(program)?);
    for call in REFUSED_TO_SINGLE {
        on(*call, refuse(libc::EPERM))?;
    }
    on(libc::SYS_clone3, refuse(libc::ENOSYS))?;
    let mut thread = vec![
        step(LOAD, argument(0)),
        branch(IF_ANY_BIT, libc::CLONE_THREAD as u32, 1, 0),
    ];
    thread.extend(refuse(libc::EPERM));
    thread.extend(allow());
    on(libc::SYS_clone, thread)?;
    on(
        libc::SYS_execveat,
        only(argument(0), None, &[program], allow()),
    )?;
    for (call, at) in OF_ONE_PROCESS {
        on(*call, only(argument(*at), None, &[own], allow()))?;
    }
    for (call, at) in OF_ONE_PROCESS_OR_SELF {
        on(*call, only(argument(*at), None, &[own, 0], allow()))?;
    }
    for (call, process) in OF_ONE_KIND {
        let named = only(argument(1), None, &[own, 0], allow());
        on(*call, only(argument(0), None, &[*process], named))?;
    }
    on(libc::SYS_fcntl, unless(IF_EQUAL, argument(1), &SET_OWNER))?;
    let mut requests = SET_OWNER_BY_IOCTL.to_vec();
    if metadata == Metadata::Refused {
        requests.extend(SET_ATTRIBUTES);
        for call in METADATA {
            on(*call, refuse(libc::EPERM))?;
        }
    }
    on(libc::SYS_ioctl, unless(IF_EQUAL, argument(1), &requests))?;
    let calls: Vec<(u32, Block)> = calls.into_iter().collect();
    let mut program = preamble();
    program.extend(search(&calls, &allow()));
    Ok(program)
}

/// Refuses this thread, and all that come from it, every call but these.
pub(super) fn only_these(calls: &[i64]) -> io::Result<()> {
    apply_filter(&allowlist(calls)?).map_err(io::Error::other)
}

fn allowlist(calls: &[i64]) -> io::Result<Block> {
    let numbers = calls
        .iter()
        .map(|call| u32::try_from(*call).map_err(io::Error::other));
    let allowed: BTreeMap<u32, Block> = numbers
        .map(|call| Ok((call?, allow())))
        .collect::<io::Result<_>>()?;
    let allowed: Vec<(u32, Block)> = allowed.into_iter().collect();
    let mut program = preamble();
    program.extend(search(&allowed, &refuse(libc::EPERM)));
    Ok(program)
}

fn program(sockets: Sockets, tracing: Tracing) -> io::Result<Block> {
    let mut calls: BTreeMap<u32, Block> = BTreeMap::new();
    let mut on = |call: i64, block: Block| {
        let call = u32::try_from(call).map_err(io::Error::other)?;
        calls.insert(call, block);
        io::Result::Ok(())
    };
    for call in REFUSED {
        on(*call, refuse(libc::EPERM))?;
    }
    if tracing == Tracing::OfLeakSanitizer {
        let requests = &LEAK_SANITIZER_REQUESTS;
        on(libc::SYS_ptrace, only(argument(0), None, requests, allow()))?;
    }
    // Its flags are in memory, where no filter can look; without it the C library takes clone.
    on(libc::SYS_clone3, refuse(libc::ENOSYS))?;
    let new_user = libc::CLONE_NEWUSER as u32;
    for call in [libc::SYS_clone, libc::SYS_unshare] {
        on(call, unless(IF_ANY_BIT, argument(0), &[new_user]))?;
    }
    // Typing into the terminal that started the server.
    let typing = [libc::TIOCSTI as u32, libc::TIOCLINUX as u32];
    on(libc::SYS_ioctl, unless(IF_EQUAL, argument(1), &typing))?;
    on(libc::SYS_socket, socket(sockets))?;
    on(libc::SYS_socketpair, socketpair(sockets))?;
    for (call, mode) in SET_MODE {
        on(*call, unless(IF_ANY_BIT, argument(*mode), &[SET_ID_BITS]))?;
    }
    for (call, flags) in CREATE {
        on(*call, create(*flags))?;
    }
    // Its mode is in memory, where no filter can look; without it programs take openat.
    on(libc::SYS_openat2, refuse(libc::ENOSYS))?;

    let calls: Vec<(u32, Block)> = calls.into_iter().collect();
    let mut program = preamble();
    program.extend(search(&calls, &allow()));
    Ok(program)
}

/// Ends in the call's number, once it is sure what the number means.
fn preamble() -> Block {
    let mut program = vec![
        step(LOAD, ARCHITECTURE),
        branch(IF_EQUAL, MACHINE, 1, 0),
        step(RETURN, libc::SECCOMP_RET_KILL_PROCESS),
        step(LOAD, NUMBER),
    ];
    #[cfg(target_arch = "x86_64")]
    program.extend([
        branch(IF_AT_LEAST, X32, 0, 1),
        step(RETURN, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    ]);
    program
}

/// Internet sockets (and netlink, by which programs list interfaces), local ones where the host's are out of reach, or none.
fn socket(sockets: Sockets) -> Block {
    match sockets {
        Sockets::Nothing => refuse(libc::EPERM),
        Sockets::Internet => {
            let families = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
            only(
                argument(0),
                None,
                &families.map(|family| family as u32),
                allow(),
            )
        }
        Sockets::InternetAndLocal => {
            let families = [
                libc::AF_INET,
                libc::AF_INET6,
                libc::AF_NETLINK,
                libc::AF_UNIX,
            ];
            only(
                argument(0),
                None,
                &families.map(|family| family as u32),
                allow(),
            )
        }
    }
}

/// Connected pairs stay, but where no other local socket may be made only such as cannot be connected again: a datagram
/// socket could address a daemon.
fn socketpair(sockets: Sockets) -> Block {
    let kinds = [libc::SOCK_STREAM as u32, libc::SOCK_SEQPACKET as u32];
    let by_kind = match sockets {
        Sockets::InternetAndLocal => allow(),
        Sockets::Internet | Sockets::Nothing => only(argument(1), Some(0xf), &kinds, allow()),
    };
    only(argument(0), None, &[libc::AF_UNIX as u32], by_kind)
}

/// Goes on with `then` if a word of the call, behind its mask, is one of `values`; refuses otherwise.
fn only(word: u32, mask: Option<u32>, values: &[u32], then: Block) -> Block {
    let mut block = vec![step(LOAD, word)];
    block.extend(mask.map(|mask| step(AND, mask)));
    for (at, value) in values.iter().enumerate() {
        // Over the values that are left and the refusal.
        let over = (values.len() - at) as u8;
        block.push(branch(IF_EQUAL, *value, over, 0));
    }
    block.extend(refuse(libc::EPERM));
    block.extend(then);
    block
}

/// Refuses if a word of the call compares with one of `values`; allows otherwise.
fn unless(compare: u32, word: u32, values: &[u32]) -> Block {
    let mut block = vec![step(LOAD, word)];
    for (at, value) in values.iter().enumerate() {
        let over = (values.len() - at) as u8;
        block.push(branch(compare, *value, over, 0));
    }
    block.extend(allow());
    block.extend(refuse(libc::EPERM));
    block
}

/// Refuses to make a file with a set-id bit. Without the flags the mode means nothing and may be anything.
fn create(flags: u32) -> Block {
    // `O_TMPFILE` without the flag for directories, which it includes.
    let makes = (libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u32;
    let mut block = vec![step(LOAD, argument(flags)), branch(IF_ANY_BIT, makes, 1, 0)];
    block.extend(allow());
    block.extend(unless(IF_ANY_BIT, argument(flags + 1), &[SET_ID_BITS]));
    block
}

/// A search tree over the calls' numbers, with a verdict of one step for a call that is not among them.
fn search(calls: &[(u32, Block)], otherwise: &[sock_filter]) -> Block {
    match calls {
        [] => otherwise.to_vec(),
        [(call, block)] => {
            let mut tree = vec![branch(IF_EQUAL, *call, otherwise.len() as u8, 0)];
            tree.extend(otherwise.iter().cloned());
            tree.extend(block.iter().cloned());
            tree
        }
        _ => {
            let (low, high) = calls.split_at(calls.len() / 2);
            let (below, above) = (search(low, otherwise), search(high, otherwise));
            // A branch reaches 255 steps, a jump any number.
            let mut tree = vec![
                branch(IF_AT_LEAST, high[0].0, 0, 1),
                step(GO, below.len() as u32),
            ];
            tree.extend(below);
            tree.extend(above);
            tree
        }
    }
}

fn allow() -> Block {
    vec![step(RETURN, libc::SECCOMP_RET_ALLOW)]
}

fn refuse(errno: i32) -> Block {
    vec![step(RETURN, libc::SECCOMP_RET_ERRNO | errno as u32)]
}

fn step(code: u32, k: u32) -> sock_filter {
    branch(code, k, 0, 0)
}

fn branch(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    let code = code as u16;
    sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
    const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;

    /// What the kernel would say to a call.
    fn verdict(program: &[sock_filter], call: i64, arguments: impl AsRef<[u64]>) -> u32 {
        let (mut at, mut a) = (0, 0_u32);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            let taken = match u32::from(code) {
                LOAD => {
                    a = match k {
                        NUMBER => call as u32,
                        ARCHITECTURE => MACHINE,
                        k if k >= 16 => {
                            let at = (k as usize - 16) / 8;
                            arguments.as_ref().get(at).copied().unwrap_or(0) as u32
                        }
                        _ => panic!("reads {k}"),
                    };
                    continue;
                }
                AND => {
                    a &= k;
                    continue;
                }
                GO => {
                    at += k as usize;
                    continue;
                }
                RETURN => return k,
                IF_EQUAL => a == k,
                IF_AT_LEAST => a >= k,
                IF_ANY_BIT => a & k != 0,
                _ => panic!("step {code}"),
            };
            at += usize::from(if taken { jt } else { jf });
        }
    }

    #[test]
    fn what_is_listed_is_refused_and_nothing_else() {
        let program = program(Sockets::Internet, Tracing::Refused).unwrap();
        let special = [
            libc::SYS_clone3,
            libc::SYS_openat2,
            libc::SYS_socket,
            libc::SYS_socketpair,
        ];
        for call in (0..600).filter(|call| !special.contains(call)) {
            let wanted = if REFUSED.contains(&call) {
                REFUSE
            } else {
                ALLOW
            };
            assert_eq!(verdict(&program, call, [0, 0]), wanted, "call {call}");
            #[cfg(target_arch = "x86_64")]
            assert_ne!(verdict(&program, call | i64::from(X32), [0, 0]), ALLOW);
        }
    }

    #[test]
    fn a_program_may_stop_its_own_threads_and_read_no_memory() {
        let program = program(Sockets::Internet, Tracing::OfLeakSanitizer).unwrap();
        for request in 0..0x4300_u32 {
            let found = verdict(&program, libc::SYS_ptrace, [u64::from(request)]);
            let passes = [7, 12, 16, 17, 0x4204].contains(&request);
            assert_eq!(found == ALLOW, passes, "{request}");
        }
    }

    #[test]
    fn no_call_gives_a_file_a_set_id_bit() {
        let program = program(Sockets::Internet, Tracing::Refused).unwrap();
        for bit in [0o4755, 0o2755, 0o6000] {
            for (call, mode) in SET_MODE {
                let mut arguments = [0; 6];
                arguments[*mode as usize] = bit;
                assert_eq!(verdict(&program, *call, arguments), REFUSE, "{call}");
                arguments[*mode as usize] = 0o1777;
                assert_eq!(verdict(&program, *call, arguments), ALLOW, "{call}");
            }
            for (call, flags) in CREATE {
                let mut arguments = [0; 6];
                arguments[*flags as usize + 1] = bit;
                assert_eq!(verdict(&program, *call, arguments), ALLOW, "{call} reads");
                for flag in [libc::O_CREAT, libc::O_TMPFILE] {
                    arguments[*flags as usize] = flag as u64 | libc::O_RDWR as u64;
                    assert_eq!(verdict(&program, *call, arguments), REFUSE, "{call}");
                }
                arguments[*flags as usize] = libc::O_DIRECTORY as u64;
                assert_eq!(verdict(&program, *call, arguments), ALLOW, "{call} lists");
            }
        }
        assert_ne!(verdict(&program, libc::SYS_openat2, [0, 0]), ALLOW);
    }

    #[test]
    fn a_program_that_is_alone_starts_threads_and_reaches_no_other_process() {
        let program = alone(42, 255, Metadata::Allowed).unwrap();
        let thread = (libc::CLONE_THREAD | libc::CLONE_VM | libc::CLONE_SIGHAND) as u64;
        let spawn = (libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD) as u64;
        for (call, arguments, wanted) in [
            (libc::SYS_clone, [thread, 0], ALLOW),
            (libc::SYS_clone, [spawn, 0], REFUSE),
            (libc::SYS_clone, [17, 0], REFUSE),
            (libc::SYS_execveat, [255, 0], ALLOW),
            (libc::SYS_execveat, [3, 0], REFUSE),
            (libc::SYS_execveat, [u64::MAX - 99, 0], REFUSE),
            (libc::SYS_kill, [42, 9], ALLOW),
            (libc::SYS_kill, [43, 9], REFUSE),
            (libc::SYS_kill, [0, 9], REFUSE),
            (libc::SYS_kill, [u64::MAX, 9], REFUSE),
            (libc::SYS_tgkill, [42, 44], ALLOW),
            (libc::SYS_tgkill, [44, 44], REFUSE),
            (libc::SYS_prlimit64, [0, 7], ALLOW),
            (libc::SYS_prlimit64, [1, 7], REFUSE),
            (libc::SYS_setpriority, [0, 0], ALLOW),
            (libc::SYS_setpriority, [0, 1], REFUSE),
            (libc::SYS_setpriority, [2, 0], REFUSE),
            (libc::SYS_ioprio_set, [1, 0], ALLOW),
            (libc::SYS_ioprio_set, [3, 0], REFUSE),
            (libc::SYS_fcntl, [3, 8], REFUSE),
            (libc::SYS_fcntl, [3, libc::F_GETFD as u64], ALLOW),
            (libc::SYS_ioctl, [3, 0x8901], REFUSE),
            (libc::SYS_ioctl, [3, libc::TCGETS], ALLOW),
            (libc::SYS_read, [0, 0], ALLOW),
            (libc::SYS_fchmod, [3, 0o700], ALLOW),
        ] {
            let found = verdict(&program, call, arguments);
            assert_eq!(found, wanted, "{call} {arguments:?}");
        }
        for call in REFUSED_TO_SINGLE {
            assert_eq!(verdict(&program, *call, [0, 0]), REFUSE, "{call}");
        }
        assert_ne!(verdict(&program, libc::SYS_clone3, [0, 0]), ALLOW);
    }

    #[test]
    fn what_no_rule_on_files_covers_is_refused_where_they_are_the_hosts() {
        let program = alone(42, 255, Metadata::Refused).unwrap();
        for call in METADATA {
            assert_eq!(verdict(&program, *call, [0, 0]), REFUSE, "{call}");
        }
        for request in SET_ATTRIBUTES {
            let found = verdict(&program, libc::SYS_ioctl, [3, u64::from(request)]);
            assert_eq!(found, REFUSE, "{request:x}");
        }
        assert_eq!(verdict(&program, libc::SYS_openat, [0, 0]), ALLOW);
    }

    #[test]
    fn a_worker_may_call_what_is_listed_and_nothing_else() {
        let needed = [libc::SYS_read, libc::SYS_futex, libc::SYS_exit_group];
        let program = allowlist(&needed).unwrap();
        for call in 0..600 {
            let wanted = if needed.contains(&call) {
                ALLOW
            } else {
                REFUSE
            };
            assert_eq!(verdict(&program, call, [0, 0]), wanted, "call {call}");
        }
    }

    #[test]
    fn arguments_decide_where_they_matter() {
        let program = program(Sockets::Internet, Tracing::Refused).unwrap();
        let (unix, inet) = (libc::AF_UNIX as u64, libc::AF_INET as u64);
        let (stream, dgram) = (libc::SOCK_STREAM as u64, libc::SOCK_DGRAM as u64);
        let flags = (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u64;
        let new_user = libc::CLONE_NEWUSER as u64;
        let cases = [
            (libc::SYS_socket, [unix, stream], REFUSE),
            (libc::SYS_socket, [unix | 1 << 32, stream], REFUSE),
            (libc::SYS_socket, [libc::AF_VSOCK as u64, stream], REFUSE),
            (libc::SYS_socket, [libc::AF_ALG as u64, stream], REFUSE),
            (libc::SYS_socket, [inet, stream], ALLOW),
            (libc::SYS_socket, [libc::AF_INET6 as u64, dgram], ALLOW),
            (libc::SYS_socketpair, [unix, stream | flags], ALLOW),
            (
                libc::SYS_socketpair,
                [unix, libc::SOCK_SEQPACKET as u64],
                ALLOW,
            ),
            (libc::SYS_socketpair, [unix, dgram | flags], REFUSE),
            (libc::SYS_socketpair, [unix, libc::SOCK_RAW as u64], REFUSE),
            (libc::SYS_socketpair, [inet, stream], REFUSE),
            (libc::SYS_clone, [new_user | 17, 0], REFUSE),
            (libc::SYS_clone, [17, 0], ALLOW),
            (libc::SYS_unshare, [new_user, 0], REFUSE),
            (libc::SYS_unshare, [libc::CLONE_FILES as u64, 0], ALLOW),
            (libc::SYS_ioctl, [0, libc::TIOCSTI], REFUSE),
            (libc::SYS_ioctl, [0, libc::TCGETS], ALLOW),
            (
                libc::SYS_clone3,
                [0, 0],
                libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
            ),
        ];
        for (call, arguments, wanted) in cases {
            assert_eq!(
                verdict(&program, call, arguments),
                wanted,
                "{call} {arguments:?}"
            );
        }
        let local = super::program(Sockets::InternetAndLocal, Tracing::Refused).unwrap();
        for (call, arguments, wanted) in [
            (libc::SYS_socket, [unix, stream], ALLOW),
            (libc::SYS_socket, [unix, dgram], ALLOW),
            (libc::SYS_socket, [inet, stream], ALLOW),
            (libc::SYS_socket, [libc::AF_VSOCK as u64, stream], REFUSE),
            (libc::SYS_socketpair, [unix, dgram], ALLOW),
            (libc::SYS_socketpair, [inet, stream], REFUSE),
        ] {
            assert_eq!(
                verdict(&local, call, arguments),
                wanted,
                "{call} {arguments:?}"
            );
        }
        let none = super::program(Sockets::Nothing, Tracing::Refused).unwrap();
        assert_eq!(verdict(&none, libc::SYS_socket, [inet, stream]), REFUSE);
        assert_eq!(verdict(&none, libc::SYS_socketpair, [unix, stream]), ALLOW);
    }
}
