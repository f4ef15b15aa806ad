//! What the user could do in a shell of their own: a failure that they would see as well is no refusal of the boundary.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use llmc_config::{LinkPolicy, read_regular_file};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::process::{Pid, Resource, geteuid, getrlimit, test_kill_process};

/// A larger file is not read.
const MAX_READ_BYTES: u64 = 1 << 20;

/// Whether the user may write a file, or make or remove an entry where it is or would be. What lies in a folder that is
/// not there fails for everybody.
pub(super) fn may_write(path: &Path) -> bool {
    let in_folder = path.parent().is_some_and(|dir| has(dir, Access::WRITE_OK));
    in_folder || has(path, Access::WRITE_OK)
}

/// Whether the user may write this very file, or make it where it is not.
pub(super) fn may_open_for_writing(path: &Path) -> bool {
    match path.symlink_metadata() {
        Ok(_) => has(path, Access::WRITE_OK),
        Err(_) => path.parent().is_some_and(|dir| has(dir, Access::WRITE_OK)),
    }
}

/// Whether there is something that the user may read.
pub(super) fn may_read(path: &Path) -> bool {
    has(path, Access::READ_OK)
}

/// Whether there is a socket that the user may connect to.
pub(super) fn may_connect(path: &Path) -> bool {
    is_socket(path) && has(path, Access::WRITE_OK)
}

/// Whether a socket is there.
pub(super) fn is_socket(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|status| status.file_type().is_socket())
}

fn has(path: &Path, access: Access) -> bool {
    // With the rights that the server's own system calls have.
    accessat(CWD, path, access, AtFlags::EACCESS).is_ok()
}

/// The real path: links of what is there are followed, the rest is taken by its text.
pub(super) fn real_path(path: &Path) -> PathBuf {
    let mut rest = Vec::new();
    let mut there = path;
    loop {
        if let Ok(mut real) = std::fs::canonicalize(there) {
            for part in rest.into_iter().rev() {
                match part {
                    std::path::Component::ParentDir => {
                        real.pop();
                    }
                    part => real.push(part),
                }
            }
            return real;
        }
        let (Some(parent), Some(last)) = (there.parent(), there.components().next_back()) else {
            return path.to_owned();
        };
        rest.push(last);
        there = parent;
    }
}

/// The content of a small regular file.
pub(super) fn read_small(path: &Path) -> Option<Vec<u8>> {
    let read = read_regular_file(path, MAX_READ_BYTES, LinkPolicy::Follow);
    read.ok().map(|file| file.bytes)
}

/// Whether a process of this number runs on the host and the user may send it signals.
pub(super) fn is_own_process(pid: i32) -> bool {
    let found = Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid).is_ok());
    found
        && Path::new("/proc")
            .join(pid.to_string())
            .metadata()
            .is_ok_and(|status| status.uid() == geteuid().as_raw())
}

/// Whether a program of the host listens on this TCP port.
pub(super) fn is_listening(port: u16) -> bool {
    const LISTENS: &str = "0A";
    let wanted = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|file| {
        #[expect(
            clippy::disallowed_methods,
            reason = "a file of the kernel, not of the agent"
        )]
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.lines().any(|line| {
            let mut fields = line.split_ascii_whitespace();
            let local = fields.nth(1).is_some_and(|local| local.ends_with(&wanted));
            local && fields.nth(1) == Some(LISTENS)
        })
    })
}

/// Whether the kernel lets the user's own programs trace others, and make user namespaces.
pub(super) fn may_trace() -> bool {
    const NOBODY_TRACES: &str = "3";
    setting("kernel/yama/ptrace_scope").is_none_or(|scope| scope != NOBODY_TRACES)
}

/// The same for namespaces.
pub(super) fn may_make_namespaces() -> bool {
    let is = |name: &str, value: &str| setting(name).is_some_and(|found| found == value);
    !is("user/max_user_namespaces", "0")
        && !is("kernel/unprivileged_userns_clone", "0")
        && !is("kernel/apparmor_restrict_unprivileged_userns", "1")
}

fn setting(name: &str) -> Option<String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a file of the kernel, not of the agent"
    )]
    let text = std::fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?;
    Some(text.trim().to_owned())
}

/// How much of something the user's own programs may have at the most.
pub(super) fn own_limit(resource: Resource) -> u64 {
    getrlimit(resource).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn rights_are_those_of_the_user() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        assert!(may_write(&file) && may_open_for_writing(&file) && !may_read(&file));
        std::fs::write(&file, "x").unwrap();
        assert!(may_read(&file) && !may_connect(&file));
        assert!(!may_write(&dir.path().join("missing/f")));
        let _bound = std::os::unix::net::UnixListener::bind(dir.path().join("s")).unwrap();
        assert!(may_connect(&dir.path().join("s")));
    }

    #[test]
    fn real_paths_go_through_links_and_beyond_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(dir.path()).unwrap();
        std::fs::create_dir(base.join("a")).unwrap();
        std::os::unix::fs::symlink("a", base.join("link")).unwrap();
        assert_eq!(real_path(&base.join("link/x/y")), base.join("a/x/y"));
        assert_eq!(real_path(&base.join("link/../x")), base.join("x"));
        assert_eq!(real_path(Path::new("/")), Path::new("/"));
    }

    #[test]
    fn processes_and_ports_of_the_host_are_seen() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(is_own_process(own));
        assert!(!is_own_process(i32::MAX));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(is_listening(port));
        drop(listener);
        assert!(!is_listening(port));
    }
}
