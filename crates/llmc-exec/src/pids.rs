//! Numbers of processes, and which of them may be sent a signal.
//!
//! A number alone may mean another process a moment later. So a process is first taken hold of by a descriptor, then
//! looked at by its number; if the descriptor still holds a living process afterwards, what was seen is about it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::signal::Signal as Named;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, getpid, pidfd_open, pidfd_send_signal};

/// More ancestors than any process has.
const MAX_PROCESS_DEPTH: usize = 4096;

/// Why a process is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotKilled {
    /// Zero and negative numbers mean groups.
    #[error("only single processes are sent signals, no groups")]
    Group,
    /// The first process of the system.
    #[error("it is the system's first process")]
    Init,
    /// This process.
    #[error("it is this server")]
    Server,
    /// A process above this one.
    #[error("it started this server")]
    Ancestor,
    /// Part of the kernel.
    #[error("it belongs to the kernel")]
    Kernel,
    /// Another user's.
    #[error("it belongs to another user")]
    OtherUser,
    /// Below this server, but not below the caller's own processes.
    #[error("it is the server's, not one of your processes")]
    NotYours,
    /// Outside the caller's own processes, where only those are allowed.
    #[error("only your own processes may be sent signals here")]
    HostProcess,
    /// There is no such process.
    #[error("no such process")]
    Gone,
    /// The kernel refuses.
    #[error("the system does not permit it")]
    Refused,
}

/// A process that may be sent a signal.
#[derive(Debug)]
pub struct SignalTarget(OwnedFd);

/// Takes hold of a process, unless it must be left alone. `helpers` are those of the caller's own processes;
/// `any_process` also allows processes that this server did not start.
///
/// # Errors
/// The reason.
pub fn find_signal_target(
    pid: i64,
    helpers: &[i32],
    any_process: bool,
) -> Result<SignalTarget, NotKilled> {
    if pid <= 0 {
        return Err(NotKilled::Group);
    }
    let number = i32::try_from(pid).map_err(|_| NotKilled::Gone)?;
    let own = getpid().as_raw_nonzero().get();
    if number == 1 {
        return Err(NotKilled::Init);
    }
    if number == own {
        return Err(NotKilled::Server);
    }
    let pid = Pid::from_raw(number).ok_or(NotKilled::Gone)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| NotKilled::Gone)?;
    let checked = check(number, own, helpers, any_process);
    // Gone by now: what was seen may be another's.
    let mut ended = [PollFd::new(&pidfd, PollFlags::IN)];
    if poll(&mut ended, Some(&Timespec::default())) != Ok(0) {
        return Err(NotKilled::Gone);
    }
    checked?;
    Ok(SignalTarget(pidfd))
}

impl SignalTarget {
    /// Sends it.
    ///
    /// # Errors
    /// It has ended meanwhile, or the system refuses.
    pub fn fire(&self, signal: i32) -> Result<(), NotKilled> {
        let signal = Signal::from_named_raw(signal).ok_or(NotKilled::Refused)?;
        match pidfd_send_signal(&self.0, signal) {
            Ok(()) => Ok(()),
            Err(Errno::SRCH) => Err(NotKilled::Gone),
            Err(_) => Err(NotKilled::Refused),
        }
    }
}

fn check(number: i32, own: i32, helpers: &[i32], any_process: bool) -> Result<(), NotKilled> {
    if ancestors(own).contains(&number) {
        return Err(NotKilled::Ancestor);
    }
    let above = ancestors(number);
    // Only these have no memory of their own.
    if field(number, "VmSize:").is_none() {
        return Err(NotKilled::Kernel);
    }
    // All four of them: a set-uid program is not the user's to end.
    let me = geteuid().as_raw();
    let users = field(number, "Uid:").ok_or(NotKilled::Gone)?;
    if !users
        .split_ascii_whitespace()
        .all(|user| user.parse() == Ok(me))
    {
        return Err(NotKilled::OtherUser);
    }
    let ours = above.contains(&own);
    let yours = above.iter().any(|pid| helpers.contains(pid));
    match (yours, ours) {
        (true, _) => Ok(()),
        (false, true) => Err(NotKilled::NotYours),
        (false, false) if any_process => Ok(()),
        (false, false) => Err(NotKilled::HostProcess),
    }
}

/// The number of a signal given as `TERM`, `SIGTERM` or `15`.
pub fn signal_number(text: &str) -> Option<i32> {
    let number = match text.parse::<i32>() {
        Ok(number) => number,
        Err(_) => {
            let upper = text.to_ascii_uppercase();
            let name = match upper.starts_with("SIG") {
                true => upper,
                false => format!("SIG{upper}"),
            };
            name.parse::<Named>().ok()? as i32
        }
    };
    Signal::from_named_raw(number).map(Signal::as_raw)
}

/// The number under which this process knows the one that a descriptor holds.
pub(super) fn of(pidfd: &OwnedFd) -> io::Result<i32> {
    let path = format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd());
    let number = value(&path, "Pid:").and_then(|text| text.parse().ok());
    number
        .filter(|pid| *pid > 0)
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The parent's number, if the process is still there.
pub(super) fn parent(pid: i32) -> Option<i32> {
    field(pid, "PPid:")?.parse().ok()
}

/// Parent, grandparent and so on.
fn ancestors(pid: i32) -> Vec<i32> {
    let next = |pid: &i32| parent(*pid).filter(|parent| *parent > 0);
    std::iter::successors(next(&pid), next)
        .take(MAX_PROCESS_DEPTH)
        .collect()
}

fn field(pid: i32, name: &str) -> Option<String> {
    value(&format!("/proc/{pid}/status"), name)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a file of the kernel, not of the agent"
)]
fn value(path: &str, name: &str) -> Option<String> {
    // Not all of it is UTF-8: a process chooses its own name.
    let text = std::fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        for (text, number) in [
            ("TERM", Some(15)),
            ("sigkill", Some(9)),
            ("9", Some(9)),
            ("INT", Some(2)),
            ("0", None),
            ("-9", None),
            ("999", None),
            ("", None),
            ("SIG", None),
            ("BOGUS", None),
        ] {
            assert_eq!(signal_number(text), number, "{text:?}");
        }
    }

    #[test]
    fn who_must_be_left_alone_is() {
        let own = i64::from(std::process::id());
        let parent = i64::from(parent(own as i32).unwrap());
        for (pid, why) in [
            (0, NotKilled::Group),
            (-1, NotKilled::Group),
            (-own, NotKilled::Group),
            (1, NotKilled::Init),
            (own, NotKilled::Server),
            (i64::MAX, NotKilled::Gone),
            (i64::from(i32::MAX), NotKilled::Gone),
        ] {
            assert_eq!(
                find_signal_target(pid, &[], true).unwrap_err(),
                why,
                "{pid}"
            );
        }
        // In a container the parent may be the first process.
        let why = find_signal_target(parent, &[], true).unwrap_err();
        assert!(
            matches!(why, NotKilled::Ancestor | NotKilled::Init),
            "{why:?}"
        );
    }
}
