//! A control group for each run, where the system lets this server make one (cgroup v2, delegated).
//!
//! Bounds processes and memory of a run without exceptions: for root, for shared mappings, for files in memory. Whatever
//! fails here leaves the run without a group; the helper's own checks hold all the same.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ulid::Ulid;

use super::memory::run_memory_bytes;
use super::settings::Limits;

/// Where the hierarchy is mounted.
const MOUNT: &str = "/sys/fs/cgroup";
/// What a group must bound.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];
/// How often, and with what pauses, a group whose processes have ended is removed: the kernel takes a moment.
const REMOVE_ATTEMPTS: u32 = 20;
const REMOVE_PAUSE: Duration = Duration::from_millis(1);

/// Where groups for runs can be made.
#[derive(Debug, Default)]
pub(super) struct Cgroups {
    parent: Option<PathBuf>,
}

/// The group of one run. Dropped after the run, it kills what is left in it and removes it.
#[derive(Debug)]
pub(super) struct RunCgroup {
    dir: PathBuf,
    processes: File,
}

impl Cgroups {
    pub(super) fn find() -> Cgroups {
        #[expect(
            clippy::disallowed_methods,
            reason = "a file of the kernel, not of the agent"
        )]
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Cgroups::find_in(&own, Path::new(MOUNT))
    }

    /// The server's own group if it may have others inside, or the one around it.
    fn find_in(own: &str, mount: &Path) -> Cgroups {
        let path = own.lines().find_map(|line| line.strip_prefix("0::/"));
        let own = path.map(|path| mount.join(path.trim_end_matches('/')));
        let around = own
            .as_ref()
            .and_then(|dir| dir.parent().map(Path::to_owned));
        let candidates = own.into_iter().chain(around);
        let mut inside = candidates.filter(|dir| dir.starts_with(mount));
        Cgroups {
            parent: inside.find(|dir| has_controllers(dir) && can_hold_groups(dir)),
        }
    }

    pub(super) fn is_available(&self) -> bool {
        self.parent.is_some()
    }

    /// A new group with these bounds; `None` if there can be none.
    pub(super) fn make(&self, limits: &Limits) -> Option<RunCgroup> {
        let parent = self.parent.as_ref()?;
        RunCgroup::new(parent, limits).ok()
    }
}

impl RunCgroup {
    fn new(parent: &Path, limits: &Limits) -> io::Result<RunCgroup> {
        let dir = parent.join(format!("llmc-{}-{}", std::process::id(), Ulid::new()));
        std::fs::create_dir(&dir)?;
        let opened = write(&dir.join("pids.max"), &limits.processes.to_string())
            .and_then(|()| match limits.memory_bytes {
                Some(bytes) => write(
                    &dir.join("memory.max"),
                    &run_memory_bytes(bytes).to_string(),
                ),
                None => Ok(()),
            })
            .and_then(|()| File::options().write(true).open(dir.join("cgroup.procs")));
        match opened {
            Ok(processes) => Ok(RunCgroup { dir, processes }),
            Err(error) => {
                let _ = std::fs::remove_dir(&dir);
                Err(error)
            }
        }
    }

    /// A process that writes `0` to this file joins the group.
    pub(super) fn processes(&self) -> BorrowedFd<'_> {
        self.processes.as_fd()
    }
}

impl Drop for RunCgroup {
    fn drop(&mut self) {
        if std::fs::remove_dir(&self.dir).is_ok() {
            return;
        }
        let _ = write(&self.dir.join("cgroup.kill"), "1");
        for _ in 0..REMOVE_ATTEMPTS {
            if std::fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(REMOVE_PAUSE);
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a file of the kernel, not of the agent"
)]
fn has_controllers(dir: &Path) -> bool {
    let text = std::fs::read_to_string(dir.join("cgroup.subtree_control")).unwrap_or_default();
    let enabled: Vec<&str> = text.split_ascii_whitespace().collect();
    CONTROLLERS.iter().all(|name| enabled.contains(name))
}

fn can_hold_groups(dir: &Path) -> bool {
    let probe = Cgroups {
        parent: Some(dir.to_owned()),
    };
    probe.make(&Limits::default()).is_some()
}

fn write(file: &Path, value: &str) -> io::Result<()> {
    // Never makes a file: on a system that is not as expected nothing is left behind.
    File::options()
        .write(true)
        .open(file)?
        .write_all(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(mount: &Path, path: &str, controllers: &str) {
        let dir = mount.join(path);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("cgroup.subtree_control"), controllers).unwrap();
    }

    #[test]
    fn a_group_without_its_controllers_is_not_used() {
        let mount = tempfile::tempdir().unwrap();
        group(mount.path(), "user/app", "memory pids cpu\n");
        group(mount.path(), "user/app/server", "");
        for own in [
            "",
            "0::/user/app/server\n",
            "0::/elsewhere/x\n",
            "4:memory:/user/app\n",
            "0::/../../x\n",
        ] {
            // A plain directory has none of the kernel's files, so even the right one cannot hold a group.
            let found = Cgroups::find_in(own, mount.path());
            assert!(!found.is_available(), "{own}: {found:?}");
        }
        let left = std::fs::read_dir(mount.path().join("user/app")).unwrap();
        assert_eq!(left.count(), 2, "a failed attempt leaves nothing");
        assert!(has_controllers(&mount.path().join("user/app")));
        assert!(!has_controllers(&mount.path().join("user/app/server")));
    }
}
