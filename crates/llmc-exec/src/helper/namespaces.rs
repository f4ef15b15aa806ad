//! Namespaces.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;

use nix::sched::{CloneFlags, unshare};

use super::{caps, loopback};
use crate::level::{Feature, Features};
use crate::plan::{self, Failure, Report};

/// Enters a new user namespace, with its capabilities kept over the next exec.
pub(super) fn user(features: Features, server: &UnixStream) -> Result<(), Failure> {
    if !features.user {
        return Ok(());
    }
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let failed = |step, error| Failure::new(Some(Feature::UserSpace), step, error);
    unshare(CloneFlags::CLONE_NEWUSER)
        .map_err(|errno| failed("new user namespace", errno.into()))?;
    if features.full_map {
        // Only a process outside, with its capabilities there, may map more than one id.
        plan::send(server, &Report::Unmapped)
            .and_then(|()| { server }.read_exact(&mut [0]))
            .map_err(|error| Failure::new(None, "waiting for the id maps", error))?;
    } else {
        map_self(uid, gid).map_err(|error| failed("mapping the user's own id", error))?;
    }
    caps::keep_over_exec().map_err(|errno| failed("ambient capabilities", errno.into()))
}

fn map_self(uid: u32, gid: u32) -> io::Result<()> {
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// Makes this process's next child pid 1 of a namespace.
pub(super) fn pid() -> Result<(), Failure> {
    unshare(CloneFlags::CLONE_NEWPID)
        .map_err(|errno| Failure::new(Some(Feature::PidSpace), "new pid namespace", errno))
}

/// Enters a network that leads nowhere but to itself.
pub(super) fn net(features: Features) -> Result<(), Failure> {
    if !features.net {
        return Ok(());
    }
    unshare(CloneFlags::CLONE_NEWNET)
        .map_err(|errno| Failure::new(Some(Feature::NetSpace), "new network namespace", errno))?;
    // Without it programs that talk to themselves fail, but nothing gets out: no reason to refuse the run.
    let _ = loopback::up();
    Ok(())
}

/// Enters mounts of its own, and with them names and shared memory of its own.
pub(super) fn mount(features: Features) -> Result<(), Failure> {
    if !features.mount {
        return Ok(());
    }
    let spaces = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
    unshare(spaces)
        .map_err(|errno| Failure::new(Some(Feature::MountSpace), "new mount namespace", errno))
}
