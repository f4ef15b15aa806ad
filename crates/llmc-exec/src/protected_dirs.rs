//! Where below the write roots protected names are.
//!
//! Looking everywhere before and after every run would cost more than the run. So the look is bounded, breadth first, and
//! a directory is read again only when it has changed: the common case is one status call per known directory.

use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use llmc_host::{CONFIG_FILE, STATE_DIR};

/// How deep below a root directories are looked into. Nearer ones come first, so this bounds only small trees.
const MAX_DEPTH: usize = 8;
/// Directories of the kernel and the system, which hold no repositories; reached only from a root above them all.
const SKIPPED: [&str; 7] = ["/boot", "/dev", "/lib", "/proc", "/run", "/sys", "/usr"];
/// How many directories are looked into, all roots together.
const MAX_DIRECTORIES: usize = 256;
/// How many directories with protected names are reported; each costs a run a few mounts.
const MAX_HOMES: usize = 16;
/// A directory that changed this shortly before it was read may change again without its time moving on.
const MTIME_GRANULARITY: Duration = Duration::from_millis(50);

/// Finds directories that hold protected names, below the roots.
#[derive(Debug)]
pub(super) struct ProtectedDirFinder {
    roots: Vec<PathBuf>,
    known: HashMap<PathBuf, Listing>,
}

/// What a directory held when it was last read.
#[derive(Debug, Clone)]
struct Listing {
    stamp: Option<Stamp>,
    dirs: Vec<OsString>,
    home: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    dev: u64,
    ino: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
}

impl ProtectedDirFinder {
    pub(super) fn new(roots: Vec<PathBuf>) -> ProtectedDirFinder {
        ProtectedDirFinder {
            roots,
            known: HashMap::new(),
        }
    }

    pub(super) fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// Directories below the roots (not the roots themselves) that hold a protected name right now.
    pub(super) fn homes(&mut self) -> Vec<PathBuf> {
        let mut homes = Vec::new();
        let mut next: VecDeque<(PathBuf, usize)> =
            self.roots.iter().map(|root| (root.clone(), 0)).collect();
        let mut known = std::mem::take(&mut self.known);
        while let Some((dir, depth)) = next.pop_front() {
            if self.known.len() >= MAX_DIRECTORIES {
                break;
            }
            let Some(listing) = listing(&dir, known.remove(&dir)) else {
                continue;
            };
            if depth > 0 && listing.home && homes.len() < MAX_HOMES && !self.roots.contains(&dir) {
                homes.push(dir.clone());
            }
            if depth < MAX_DEPTH {
                let below = listing.dirs.iter().map(|name| dir.join(name));
                let below =
                    below.filter(|dir| !SKIPPED.iter().any(|skipped| dir == Path::new(skipped)));
                next.extend(below.map(|dir| (dir, depth + 1)));
            }
            self.known.insert(dir, listing);
        }
        homes
    }
}

fn listing(dir: &Path, known: Option<Listing>) -> Option<Listing> {
    let status = std::fs::symlink_metadata(dir)
        .ok()
        .filter(|status| status.is_dir())?;
    let stamp = Stamp {
        dev: status.dev(),
        ino: status.ino(),
        mtime: (status.mtime(), status.mtime_nsec()),
        ctime: (status.ctime(), status.ctime_nsec()),
    };
    if let Some(known) = known.filter(|known| known.stamp == Some(stamp)) {
        return Some(known);
    }
    let settled = status
        .modified()
        .ok()
        .and_then(|changed| SystemTime::now().duration_since(changed).ok())
        .is_some_and(|age| age > MTIME_GRANULARITY);
    let mut listing = Listing {
        stamp: settled.then_some(stamp),
        dirs: Vec::new(),
        home: false,
    };
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if is_protected(&name) {
            listing.home = true;
        } else if listing.dirs.len() < MAX_DIRECTORIES
            && name != "node_modules"
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
        {
            listing.dirs.push(name);
        }
    }
    listing.dirs.sort();
    Some(listing)
}

/// Names that decide over the agent or run programs, in any case.
fn is_protected(name: &OsStr) -> bool {
    [CONFIG_FILE, STATE_DIR, ".git"]
        .iter()
        .any(|other| name.as_bytes().eq_ignore_ascii_case(other.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_repositories_are_found_and_changes_are_seen() {
        let root = tempfile::tempdir().unwrap();
        let dir = |path: &str| std::fs::create_dir_all(root.path().join(path)).unwrap();
        dir("a/b/.git");
        dir("a/b/c/d/e/.git");
        dir(".git");
        dir("node_modules/x/.git");
        let mut finder = ProtectedDirFinder::new(vec![root.path().to_owned()]);
        let deep = root.path().join("a/b/c/d/e");
        assert_eq!(finder.homes(), [root.path().join("a/b"), deep.clone()]);
        std::fs::write(root.path().join("a/llmc.toml"), "").unwrap();
        let homes = [root.path().join("a"), root.path().join("a/b"), deep.clone()];
        assert_eq!(finder.homes(), homes);
        std::thread::sleep(MTIME_GRANULARITY * 2);
        assert_eq!(finder.homes(), homes);
        assert_eq!(finder.homes(), homes, "and from what is known, too");
        std::fs::remove_dir(root.path().join("a/b/.git")).unwrap();
        assert_eq!(finder.homes(), [root.path().join("a"), deep]);
    }

    #[test]
    fn the_look_is_bounded() {
        let root = tempfile::tempdir().unwrap();
        for n in 0..MAX_DIRECTORIES * 2 {
            std::fs::create_dir_all(root.path().join(format!("{n}/.git"))).unwrap();
        }
        let mut finder = ProtectedDirFinder::new(vec![root.path().to_owned()]);
        assert_eq!(finder.homes().len(), MAX_HOMES);
        assert_eq!(finder.known.len(), MAX_DIRECTORIES);
    }
}
