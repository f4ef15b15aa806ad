//! The outer helper: enters a user namespace, then becomes the run, or starts the broker and sees it off.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

use super::{init, namespaces};
use crate::level::Feature;
use crate::plan::{self, BROKER, Failure, Report, Start};

/// Runs as the outer helper until what it started is over.
pub(super) fn run() -> io::Result<()> {
    close_strangers()?;
    // Fails only for a group leader, which a freshly started process is not unless its parent made it one.
    let _ = rustix::process::setsid();
    let leash = leash()?;
    let Start { features, .. } = plan::receive(&leash)?;
    let entered = namespaces::user(features, &leash);
    let done = match (entered, features.pid) {
        (Ok(()), true) => broker(&leash),
        (Ok(()), false) => return init::run_here(features, &leash),
        (Err(failure), _) => Err(failure),
    };
    match done {
        Ok(()) => Ok(()),
        Err(failure) => plan::send(&leash, &Report::Failed(failure)),
    }
}

/// The socket to the server, which is this process's standard input.
pub(super) fn leash() -> io::Result<UnixStream> {
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

/// Closes whatever the server had inherited from its own parent and left open: a command gets three descriptors.
fn close_strangers() -> io::Result<()> {
    let listed = std::fs::read_dir("/proc/self/fd")?;
    let open: Vec<i32> = listed
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        // The listing's own descriptor is among them and already gone.
        let _ = nix::unistd::close(fd);
    }
    Ok(())
}

/// Starts the broker as pid 1 of its namespace and waits until it is gone, and with it every run.
#[expect(
    clippy::disallowed_methods,
    reason = "this is how llmc-exec starts programs"
)]
fn broker(leash: &UnixStream) -> Result<(), Failure> {
    let failed = |step, error| Failure::new(Some(Feature::PidSpace), step, error);
    namespaces::pid()?;
    let broker = Command::new("/proc/self/exe")
        .arg0("llmc")
        .arg(BROKER)
        .env_clear()
        .spawn()
        .map_err(|error| failed("starting the broker", error))?;
    let pid = rustix::process::Pid::from_child(&broker);
    let pidfd = pidfd_open(pid, PidfdFlags::empty())
        .map_err(|errno| failed("watching the broker", errno.into()))?;
    let mut watched = [
        // Data on the socket is for the broker; only its end matters here.
        PollFd::new(leash, PollFlags::RDHUP),
        PollFd::new(&pidfd, PollFlags::IN),
    ];
    while poll(&mut watched, None).is_err() {}
    if !watched[0].revents().is_empty() {
        // The broker has seen it too; this is for one that is stuck.
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    }
    while let Err(rustix::io::Errno::INTR) =
        waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED)
    {}
    Ok(())
}
