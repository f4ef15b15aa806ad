//! Sockets of the host's processes that lie where a run could reach them, so that they can be covered.
//!
//! The kernel's list of sockets has the name that was given to `bind`. A name may be relative to a working directory that only
//! the owner knows, and the file may have been renamed since, so a name is a hint where to look, not a place.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use llmc_host::{lock, unescaped_mount_point};

use super::settings::Settings;

/// Host sockets that are covered one by one.
const MAX_HOST_SOCKETS: usize = 512;
/// Folders of which a run has its own, so that nothing in them needs to be covered.
const PRIVATE_DIRS: [&str; 4] = ["/tmp", "/run", "/dev", "/proc"];
/// Where daemons keep sockets. A relative name is looked for below them when no process stands where it leads.
const USUAL_DIRS: [&str; 6] = [
    "/var/lib",
    "/var/spool",
    "/var/tmp",
    "/srv",
    "/opt",
    "/var/www",
];
/// How deep and how wide is looked below each of those, the roots and the home directory.
const SEARCH_DEPTH: usize = 3;
const MAX_SEARCHED_FOLDERS: usize = 4_000;
/// Descendants of this process that are looked at.
const MAX_OWN_PROCESSES: usize = 10_000;

/// What was found out about sockets so far.
#[derive(Debug, Default)]
pub(super) struct HostSockets {
    /// Where sockets with relative names are, by the kernel's numbers of the sockets. Nothing is looked for twice.
    relative: Mutex<BTreeMap<u64, Vec<PathBuf>>>,
}

impl HostSockets {
    /// Sockets of the host that lie where a run could reach them, write roots included. What the server's own commands have
    /// bound is not among them. One that is made later outside the run's own folders and the private layers is not covered
    /// for a run that has begun. `None` if there are too many to cover.
    pub(super) fn reachable(&self, settings: &Settings) -> Option<Vec<PathBuf>> {
        let (bound, mounts) = (
            kernel_file("/proc/net/unix"),
            kernel_file("/proc/self/mountinfo"),
        );
        let bound: Vec<Bound> = bound
            .split(|b| *b == b'\n')
            .filter_map(Bound::parse)
            .collect();
        // A socket that was mounted into a container is not on its list of sockets.
        let mounted = mounts
            .split(|b| *b == b'\n')
            .filter_map(|line| line.split(|b| *b == b' ').nth(4))
            .map(unescaped_mount_point);
        let mut found: Vec<PathBuf> = mounted.filter(|path| is_socket(path)).collect();
        let mut own = None;
        for socket in &bound {
            let places = self.places(socket, settings);
            let is_writable =
                |path: &PathBuf| settings.writable().any(|root| path.starts_with(root));
            // Only there can the server's commands have made one.
            if places.iter().any(is_writable)
                && own
                    .get_or_insert_with(sockets_of_descendants)
                    .contains(&socket.inode)
            {
                continue;
            }
            found.extend(places);
        }
        let mut found: Vec<PathBuf> = found
            .iter()
            .filter_map(|path| std::fs::canonicalize(path).ok())
            .filter(|path| is_in_view(path, settings))
            .collect();
        found.sort();
        found.dedup();
        (found.len() <= MAX_HOST_SOCKETS).then_some(found)
    }

    /// The socket files that a name may stand for.
    fn places(&self, socket: &Bound, settings: &Settings) -> Vec<PathBuf> {
        if socket.name.is_absolute() {
            return existing(&socket.name);
        }
        let mut relative = lock(&self.relative);
        let places = relative
            .entry(socket.inode)
            .or_insert_with(|| relative_places(&socket.name, settings));
        places.clone()
    }
}

/// A socket with a name.
#[derive(Debug, PartialEq, Eq)]
struct Bound {
    /// The kernel's number of the socket, not of its file.
    inode: u64,
    name: PathBuf,
}

impl Bound {
    /// Reads `Num RefCount Protocol Flags Type St Inode Path`. Abstract sockets have no file.
    fn parse(line: &[u8]) -> Option<Bound> {
        let mut rest = line;
        let mut field = || {
            rest = rest.trim_ascii_start();
            let end = rest.iter().position(u8::is_ascii_whitespace)?;
            let (field, left) = rest.split_at(end);
            rest = left;
            Some(field)
        };
        for _ in 0..6 {
            field()?;
        }
        let inode = std::str::from_utf8(field()?).ok()?.parse().ok()?;
        let name = rest.strip_prefix(b" ")?;
        (!name.is_empty() && name[0] != b'@').then(|| Bound {
            inode,
            name: OsString::from_vec(name.to_vec()).into(),
        })
    }
}

pub(super) fn is_socket(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|status| status.file_type().is_socket())
}

/// The socket of this name, or, where it has been renamed since, all of its folder.
fn existing(name: &Path) -> Vec<PathBuf> {
    if is_socket(name) {
        return vec![name.to_owned()];
    }
    let Some(dir) = name.parent().filter(|dir| !is_private(dir)) else {
        return Vec::new();
    };
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()))
        .map(|entry| entry.path())
        .collect()
}

/// Where a relative name leads from where processes stand, else from the usual folders.
fn relative_places(name: &Path, settings: &Settings) -> Vec<PathBuf> {
    let stand: BTreeSet<PathBuf> = processes()
        .filter_map(|pid| std::fs::read_link(format!("/proc/{pid}/cwd")).ok())
        .collect();
    let found: Vec<PathBuf> = stand
        .iter()
        .map(|dir| dir.join(name))
        .filter(|path| is_socket(path))
        .collect();
    if !found.is_empty() {
        return found;
    }
    // The owner has gone elsewhere since, or is another user's process.
    let usual = USUAL_DIRS.iter().map(PathBuf::from);
    let own = settings.writable().chain(&settings.home).cloned();
    let mut found = Vec::new();
    for dir in own.chain(usual) {
        look_below(&dir, name, &mut found);
    }
    found
}

fn look_below(dir: &Path, name: &Path, found: &mut Vec<PathBuf>) {
    let mut left = MAX_SEARCHED_FOLDERS;
    let mut level = vec![dir.to_owned()];
    for depth in 0..=SEARCH_DEPTH {
        let mut next = Vec::new();
        for dir in level {
            let path = dir.join(name);
            if is_socket(&path) {
                found.push(path);
            }
            if depth == SEARCH_DEPTH {
                continue;
            }
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                if left > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    left -= 1;
                    next.push(entry.path());
                }
            }
        }
        level = next;
    }
}

fn is_private(path: &Path) -> bool {
    PRIVATE_DIRS.iter().any(|dir| path.starts_with(dir))
}

/// Whether a run sees a place of the host: all but its own folders, in which the roots are the host's all the same.
fn is_in_view(path: &Path, settings: &Settings) -> bool {
    let mut shown = settings
        .writable()
        .chain(&settings.read_roots)
        .chain(&settings.git_dirs);
    !is_private(path) || shown.any(|dir| path.starts_with(dir))
}

/// The sockets that processes below this one hold.
fn sockets_of_descendants() -> BTreeSet<u64> {
    let mut parents: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for pid in processes() {
        if let Some(parent) = parent_of(pid) {
            parents.entry(parent).or_default().push(pid);
        }
    }
    let mut next = vec![std::process::id()];
    let mut own: Vec<u32> = Vec::new();
    while let Some(pid) = next.pop() {
        let children = parents.remove(&pid).unwrap_or_default();
        own.extend(&children);
        next.extend(children);
        if own.len() > MAX_OWN_PROCESSES {
            break;
        }
    }
    let descriptors = own
        .into_iter()
        .filter_map(|pid| std::fs::read_dir(format!("/proc/{pid}/fd")).ok())
        .flat_map(|entries| entries.flatten());
    descriptors
        .filter_map(|entry| socket_number(std::fs::read_link(entry.path()).ok()?.as_os_str()))
        .collect()
}

/// `socket:[123]` as a number.
fn socket_number(link: &OsStr) -> Option<u64> {
    let number = link
        .as_bytes()
        .strip_prefix(b"socket:[")?
        .strip_suffix(b"]")?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parent_of(pid: u32) -> Option<u32> {
    let text = kernel_file(&format!("/proc/{pid}/stat"));
    // The name, in parentheses, may hold anything.
    let end = text.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(&text[end + 1..]).ok()?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[expect(
    clippy::disallowed_methods,
    reason = "files of the kernel, not of the agent"
)]
fn kernel_file(path: &str) -> Vec<u8> {
    std::fs::read(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_kernels_list_is_understood() {
        let line = b"ffff8881: 00000002 00000000 00010000 0001 01 24719 /srv/a b.sock";
        let wanted = Bound {
            inode: 24719,
            name: "/srv/a b.sock".into(),
        };
        assert_eq!(Bound::parse(line), Some(wanted));
        let relative = b"0000: 00000002 00000000 00010000 0001 01 24 public/pickup";
        assert_eq!(
            Bound::parse(relative).unwrap().name,
            Path::new("public/pickup")
        );
        for none in [
            &b"0000: 00000002 00000000 00010000 0001 01 24 @abstract"[..],
            b"0000: 00000003 00000000 00000000 0001 03 24",
            b"Num       RefCount Protocol Flags    Type St Inode Path",
            b"",
        ] {
            assert_eq!(Bound::parse(none), None);
        }
        assert_eq!(socket_number(OsStr::new("socket:[77]")), Some(77));
        assert_eq!(socket_number(OsStr::new("pipe:[77]")), None);
        assert_eq!(
            parent_of(std::process::id()),
            Some(std::os::unix::process::parent_id())
        );
    }

    #[test]
    fn a_renamed_socket_is_found_in_its_folder_and_a_relative_one_below_the_roots() {
        let dir = tempfile::Builder::new().tempdir_in("/var/tmp").unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        let inner = root.join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        let _listener = UnixListener::bind(inner.join("new")).unwrap();
        let renamed = inner.join("service.sock");
        std::fs::rename(inner.join("new"), &renamed).unwrap();
        assert_eq!(existing(&inner.join("new")), std::slice::from_ref(&renamed));
        let settings = Settings {
            write_roots: vec![root],
            ..Settings::default()
        };
        let found = relative_places(Path::new("b/service.sock"), &settings);
        assert!(found.contains(&renamed), "{found:?}");
    }
}
