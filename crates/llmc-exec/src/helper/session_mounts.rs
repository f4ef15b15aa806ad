//! Mounts that the runs of a session share: `/tmp`, `/dev` with its terminals and shared memory, and `/proc`.
//!
//! A session's first process makes them in a mount namespace of its own, on the broker's file system over [`STAGE_DIR`]. Each
//! run's mount namespace begins as a copy of that one, puts them in place, and covers [`STAGE_DIR`] with them.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

use super::limits;
use super::mounts::{self, fill_devices};
use super::stage::{STAGE_DIR, make_dir, tmpfs};
use crate::level::Feature;
use crate::plan::{Failure, SessionStart};

/// Its name in [`STAGE_DIR`]. Every session has a directory of that name, with mounts of its own.
const SESSION_DIR: &str = "session";
/// Of a terminal's owner and of the group that may write to it.
const PTS_OPTIONS: &str = "newinstance,ptmxmode=0666,mode=0620";

/// `/tmp` of the session.
pub(super) fn tmp_dir() -> PathBuf {
    Path::new(STAGE_DIR).join(SESSION_DIR).join("tmp")
}

/// `/dev` of the session.
pub(super) fn dev_dir() -> PathBuf {
    Path::new(STAGE_DIR).join(SESSION_DIR).join("dev")
}

/// Those that commands write.
pub(super) fn session_dirs() -> [PathBuf; 3] {
    let dev = dev_dir();
    [tmp_dir(), dev.join("shm"), dev.join("pts")]
}

/// Enters mounts of the session's own, with names and shared memory, and makes what its runs share. Returns a descriptor of
/// `/tmp` and, where there are terminals, of their folder.
pub(super) fn set_up(start: SessionStart) -> Result<Vec<OwnedFd>, Failure> {
    let failed = |step: &'static str| {
        move |error: io::Error| Failure::new(Some(Feature::MountSpace), step, error)
    };
    let spaces = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
    unshare(spaces).map_err(|errno| failed("a session's mounts")(errno.into()))?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(|errno| failed("a session's mounts")(errno.into()))?;
    let (tmp, dev) = (tmp_dir(), dev_dir());
    for dir in [&tmp, &dev] {
        make_dir(dir).map_err(failed("a session's folders"))?;
    }
    let made = tmpfs(&tmp, &format!("mode=1777,size={}", start.tmp_bytes));
    made.map_err(|errno| failed("a session's /tmp")(errno.into()))?;
    let has_terminals = devices(&dev, start.tmp_bytes)?;
    mounts::fresh_proc(|| limits::bound_pids(start.processes))
        .map_err(|errno| Failure::new(Some(Feature::FreshProc), "mounting /proc", errno))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = std::iter::once(tmp).chain(has_terminals.then(|| dev.join("pts")));
    opened
        .map(|dir| rustix::fs::open(dir, flags, Mode::empty()))
        .collect::<Result<_, _>>()
        .map_err(|errno| failed("a session's /tmp")(errno.into()))
}

/// Makes `/dev`, with terminals if they can be had.
fn devices(dev: &Path, bytes: u64) -> Result<bool, Failure> {
    let nodes = mounts::device_nodes();
    let filled = nodes.and_then(|nodes| fill_devices(dev, nodes, bytes));
    filled.map_err(|error| Failure::new(Some(error.feature), &error.step, error.errno))?;
    // Without terminals commands are as confined as with them.
    Ok(terminals(dev).is_ok())
}

fn terminals(dev: &Path) -> io::Result<()> {
    let pts = dev.join("pts");
    make_dir(&pts)?;
    // The group of terminals, where this user namespace knows it.
    let with_group = format!("{PTS_OPTIONS},gid=5");
    let mounted = [with_group.as_str(), PTS_OPTIONS]
        .into_iter()
        .map(|options| {
            let options = CString::new(options).map_err(|_| Errno::INVAL)?;
            let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
            mount("devpts", &pts, "devpts", flags, options.as_c_str())
        });
    let mut mounted = mounted.skip_while(Result::is_err);
    if mounted.next().is_none() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    std::os::unix::fs::symlink("pts/ptmx", dev.join("ptmx"))
}
