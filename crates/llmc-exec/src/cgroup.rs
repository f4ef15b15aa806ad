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

use super::settings::Limits;

/// Where the hierarchy is mounted.
const MOUNT: &str = "/sys/fs/cgroup";
/// What a group must bound.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];
/// How often, and with what pauses, a group whose processes were killed is removed: the kernel takes a moment.
const REMOVE_ATTEMPTS: u32 = 200;
const REMOVE_PAUSE: Duration = Duration::from_millis(5);

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
                Some(bytes) => write(&dir.join("memory.max"), &bytes.to_string()),
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
#[allow(
    clippy::disallowed_methods,
    reason = "tests start programs and read the kernel's files"
)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command, Stdio};
    use std::time::Instant;

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

    /// Where the kernel's hierarchy is mounted, and the group of this process in it.
    fn own_group() -> Option<(PathBuf, PathBuf)> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let mount = mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let place = words.next()?;
            (words.next()? == "cgroup2").then(|| PathBuf::from(place))
        })?;
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let own = mount.join(own.trim_end_matches('/'));
        Some((mount, own))
    }

    /// A group of this test in another one; removed with everything in it.
    struct TestGroup(PathBuf);

    impl TestGroup {
        /// Nothing where this user may make none.
        fn new(parent: &Path) -> Option<TestGroup> {
            let dir = parent.join(format!("llmc-test-{}", Ulid::new()));
            std::fs::create_dir(&dir).ok().map(|()| TestGroup(dir))
        }
    }

    impl Drop for TestGroup {
        fn drop(&mut self) {
            for inner in std::fs::read_dir(&self.0).into_iter().flatten().flatten() {
                if inner.path().is_dir() {
                    let _ = std::fs::remove_dir(inner.path());
                }
            }
            let _ = std::fs::remove_dir(&self.0);
        }
    }

    /// A shell that joins a group and runs a script there.
    fn shell_in(group: &Path, script: &str) -> Child {
        let script = format!("echo 0 > \"$1/cgroup.procs\" && {{ {script}; }}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, "sh"]).arg(group);
        shell.stderr(Stdio::null()).spawn().unwrap()
    }

    /// Waits until a group has this many processes.
    fn wait_for_processes(group: &Path, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(30);
        let there = || {
            let text = std::fs::read_to_string(group.join("cgroup.procs")).unwrap();
            text.lines().count()
        };
        while there() < count {
            assert!(
                Instant::now() < deadline,
                "{} of {count} processes",
                there()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_dropped_group_takes_its_processes_along() {
        // Without the hierarchy, or the right to make a group in it, no run ever has a group.
        let Some(outer) = own_group().and_then(|(_, own)| TestGroup::new(&own)) else {
            return;
        };
        let dir = outer.0.join("run");
        std::fs::create_dir(&dir).unwrap();
        let processes = File::options().write(true).open(dir.join("cgroup.procs"));
        let group = RunCgroup {
            dir: dir.clone(),
            processes: processes.unwrap(),
        };
        let mut shell = shell_in(
            &dir,
            "setsid sleep 1000 & trap '' TERM HUP; sleep 1000 & wait",
        );
        wait_for_processes(&dir, 3);
        drop(group);
        assert!(!dir.exists(), "the group is left");
        assert_eq!(shell.wait().unwrap().signal(), Some(9));
    }

    #[test]
    fn a_group_bounds_the_processes_and_the_memory_of_a_run() {
        let Some((mount, own)) = own_group() else {
            return;
        };
        // A group with processes cannot pass controllers on, so it is made beside this one.
        let around = own.parent().filter(|dir| dir.starts_with(&mount));
        let Some(outer) = around
            .filter(|dir| has_controllers(dir))
            .and_then(TestGroup::new)
        else {
            return;
        };
        write(&outer.0.join("cgroup.subtree_control"), "+memory +pids").unwrap();
        let server = outer.0.join("server");
        std::fs::create_dir(&server).unwrap();
        let name = server.strip_prefix(&mount).unwrap().display();
        let groups = Cgroups::find_in(&format!("0::/{name}\n"), &mount);
        assert_eq!(groups.parent.as_deref(), Some(outer.0.as_path()));
        let limits = Limits {
            processes: 20,
            memory_bytes: Some(64 << 20),
            ..Limits::default()
        };
        let group = groups.make(&limits).unwrap();
        let dir = group.dir.clone();
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
        assert_eq!(read("pids.max"), "20\n");
        let bytes = read("memory.max").trim().parse::<u64>().unwrap();
        assert!(bytes <= 64 << 20, "{bytes}");
        let mut shell = shell_in(
            &dir,
            "for n in $(seq 100); do sleep 1000 & done; sleep 1000",
        );
        // A shell that may start no more may end.
        wait_for_processes(&dir, 19);
        let current = read("pids.current").trim().parse::<u64>().unwrap();
        assert!(current <= 20, "{current}");
        drop(group);
        assert!(!dir.exists(), "the group is left");
        shell.wait().unwrap();
    }
}
