//! The process that makes the mounts of one run in a session, which the run itself could not: its rules forbid mounting.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::sched::{CloneFlags, setns, unshare};
use rustix::fs::{Mode, OFlags};

use super::mounts;
use super::outer::leash;
use super::session_mounts::tmp_dir;
use crate::fds;
use crate::level::Feature;
use crate::plan::{self, Failure, Plan, Report, Stage, Start};

/// Waits for a plan, makes its mounts and hands them over.
pub(super) fn run() -> io::Result<()> {
    let member = leash()?;
    super::hide()?;
    let Start { stage, .. } = plan::receive(&member)?;
    let plan: Plan = plan::receive(&member)?;
    match make(&plan, stage.as_ref()) {
        Ok(namespace) => {
            plan::send(&member, &Report::Mounted)?;
            fds::send(&member, &[namespace.as_fd()])
        }
        Err(failure) => plan::send(&member, &Report::Failed(failure)),
    }
}

fn make(plan: &Plan, stage: Option<&Stage>) -> Result<OwnedFd, Failure> {
    const STEP: &str = "new mount namespace";
    unshare(CloneFlags::CLONE_NEWNS)
        .map_err(|errno| Failure::new(Some(Feature::MountSpace), STEP, errno))?;
    mounts::build(plan, stage, Some(&tmp_dir()), None)
        .map_err(|error| Failure::new(Some(error.feature), &error.step, error.errno))?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::open("/proc/self/ns/mnt", flags, Mode::empty())
        .map_err(|errno| Failure::new(Some(Feature::MountSpace), STEP, errno))
}

/// Has the mounts of a plan made, and enters them.
pub(super) fn enter_mounts(plan: &Plan, mounter: &UnixStream) -> Result<(), Failure> {
    let wrong = |error| Failure::new(None, "waiting for mounts", error);
    plan::forgive_gone(plan::send(mounter, plan)).map_err(wrong)?;
    match plan::receive(mounter).map_err(wrong)? {
        Report::Mounted => {}
        Report::Failed(failure) => return Err(failure),
        _ => return Err(wrong(io::ErrorKind::InvalidData.into())),
    }
    let namespace = fds::receive(mounter).map_err(wrong)?.pop();
    let namespace = namespace.ok_or_else(|| wrong(io::ErrorKind::InvalidData.into()))?;
    setns(namespace, CloneFlags::CLONE_NEWNS).map_err(|errno| {
        Failure::new(
            Some(Feature::MountSpace),
            "entering a mount namespace",
            errno,
        )
    })
}
