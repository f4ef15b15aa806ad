//! Where below the write roots protected names are.
//!
//! Every directory is looked at before and after every run, at any depth: one status call for each, and a directory is read
//! again only when it has changed. The number of directories is bounded; what lies beyond is reported, not ignored.
//!
//! The whole file system as a root is looked at one level deep only: other programs make repositories there all the time,
//! and those are not a command's. Roots inside it, such as the workspace, are looked at in full.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use llmc_host::is_protected_name;
use rustix::fs::{AtFlags, CWD, FileType, Stat, statat};

/// Levels below the file system's root, where that is a root, that are looked at.
const FILE_SYSTEM_DEPTH: usize = 1;
/// How many directories are looked into, all roots together.
const MAX_DIRECTORIES: usize = 200_000;
/// A directory that changed this shortly before it was read may change again without its time moving on.
const MTIME_GRANULARITY: Duration = Duration::from_millis(50);

/// Finds directories that hold protected names, below the roots.
#[derive(Debug)]
pub(super) struct ProtectedDirFinder {
    roots: Vec<PathBuf>,
    trees: Vec<DirNode>,
    max_directories: usize,
}

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FoundDirs {
    /// Directories below the roots (not the roots themselves) that hold a protected name right now, outer ones first.
    pub(super) homes: Vec<PathBuf>,
    /// Whether every directory was looked at.
    pub(super) is_complete: bool,
}

/// What a directory held when it was last read.
#[derive(Debug, Default)]
struct DirNode {
    name: OsString,
    /// Levels below that are looked at.
    depth: usize,
    stamp: Option<Stamp>,
    is_home: bool,
    dirs: Vec<DirNode>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    dev: u64,
    ino: u64,
    mtime: (i64, u64),
    ctime: (i64, u64),
}

impl Stamp {
    fn of(status: &Stat) -> Stamp {
        Stamp {
            dev: status.st_dev,
            ino: status.st_ino,
            mtime: (status.st_mtime, status.st_mtime_nsec),
            ctime: (status.st_ctime, status.st_ctime_nsec),
        }
    }
}

impl ProtectedDirFinder {
    pub(super) fn new(roots: Vec<PathBuf>) -> ProtectedDirFinder {
        // A root inside another one is looked at with that.
        let is_inner = |root: &PathBuf| {
            let mut others = roots.iter();
            others.any(|other| root != other && root.starts_with(other) && !is_file_system(other))
        };
        let mut outer: Vec<PathBuf> = roots
            .iter()
            .filter(|root| !is_inner(root))
            .cloned()
            .collect();
        outer.sort();
        outer.dedup();
        let trees = outer.iter().map(|root| DirNode {
            name: root.clone().into_os_string(),
            depth: match is_file_system(root) {
                true => FILE_SYSTEM_DEPTH,
                false => usize::MAX,
            },
            ..DirNode::default()
        });
        ProtectedDirFinder {
            trees: trees.collect(),
            roots,
            max_directories: MAX_DIRECTORIES,
        }
    }

    pub(super) fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    pub(super) fn find(&mut self) -> FoundDirs {
        let mut look = Look {
            homes: Vec::new(),
            left: self.max_directories,
            is_complete: true,
            now: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
        };
        for tree in &mut self.trees {
            let mut path = PathBuf::from(&tree.name);
            look.visit(tree, &mut path);
        }
        look.is_complete &= !self.roots.iter().any(|root| is_file_system(root));
        look.homes.retain(|home| !self.roots.contains(home));
        look.homes.dedup();
        look.homes.sort_by_key(|home| home.components().count());
        FoundDirs {
            homes: look.homes,
            is_complete: look.is_complete,
        }
    }
}

/// One look at all directories.
struct Look {
    homes: Vec<PathBuf>,
    left: usize,
    is_complete: bool,
    now: Duration,
}

impl Look {
    /// Looks at a directory and everything below it. `false` if it is no directory any more.
    fn visit(&mut self, node: &mut DirNode, path: &mut PathBuf) -> bool {
        if self.left == 0 {
            self.is_complete = false;
            return true;
        }
        self.left -= 1;
        let Ok(status) = statat(CWD, &*path, AtFlags::SYMLINK_NOFOLLOW) else {
            return false;
        };
        if !FileType::from_raw_mode(status.st_mode).is_dir() {
            return false;
        }
        let stamp = Stamp::of(&status);
        if node.stamp != Some(stamp) {
            self.read(node, path);
            let changed = Duration::new(
                u64::try_from(status.st_mtime).unwrap_or(0),
                u32::try_from(status.st_mtime_nsec).unwrap_or(0),
            );
            let is_settled = self.now.saturating_sub(changed) > MTIME_GRANULARITY;
            node.stamp = is_settled.then_some(stamp);
        }
        if node.is_home {
            self.homes.push(path.clone());
        }
        if node.depth == 0 {
            return true;
        }
        node.dirs.retain_mut(|dir| {
            path.push(&dir.name);
            let is_there = self.visit(dir, path);
            path.pop();
            is_there
        });
        true
    }

    /// Reads a directory's entries, and keeps what is known of the directories in it.
    fn read(&mut self, node: &mut DirNode, path: &Path) {
        let mut known = std::mem::take(&mut node.dirs);
        node.is_home = false;
        let entries = match std::fs::read_dir(path) {
            Ok(entries) => entries,
            // Another user's: commands, which run as this one, cannot write there either.
            Err(_) => return,
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if is_protected_name(name.as_bytes()) {
                node.is_home = true;
            } else if node.depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                node.dirs.push(DirNode {
                    name,
                    depth: node.depth - 1,
                    ..DirNode::default()
                });
            }
        }
        node.dirs.sort_by(|a, b| a.name.cmp(&b.name));
        known.sort_by(|a, b| a.name.cmp(&b.name));
        for dir in &mut node.dirs {
            if let Ok(at) = known.binary_search_by(|other| other.name.cmp(&dir.name)) {
                *dir = std::mem::take(&mut known[at]);
                known[at].name.clone_from(&dir.name);
            }
        }
    }
}

fn is_file_system(root: &Path) -> bool {
    root.parent().is_none()
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
        dir("1/2/3/4/5/6/7/8/9/10/11/12/.git");
        for n in 0..600 {
            dir(&format!("many/{n}"));
        }
        dir("many/zzz/.git");
        let mut finder = ProtectedDirFinder::new(vec![root.path().to_owned()]);
        let below = |paths: &[&str]| -> Vec<PathBuf> {
            paths.iter().map(|path| root.path().join(path)).collect()
        };
        let deep = "1/2/3/4/5/6/7/8/9/10/11/12";
        let homes = below(&["a/b", "many/zzz", "node_modules/x", "a/b/c/d/e", deep]);
        assert_eq!(finder.find().homes, homes);
        std::fs::write(root.path().join("a/llmc.toml"), "").unwrap();
        let homes = below(&["a", "a/b", "many/zzz", "node_modules/x", "a/b/c/d/e", deep]);
        assert_eq!(finder.find().homes, homes);
        std::thread::sleep(MTIME_GRANULARITY * 2);
        assert_eq!(finder.find().homes, homes);
        assert_eq!(finder.find().homes, homes, "and from what is known, too");
        std::fs::remove_dir(root.path().join("a/b/.git")).unwrap();
        let homes = below(&["a", "many/zzz", "node_modules/x", "a/b/c/d/e", deep]);
        assert_eq!(
            finder.find(),
            FoundDirs {
                homes,
                is_complete: true
            }
        );
    }

    #[test]
    fn repositories_that_other_programs_make_on_the_disk_are_not_found() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join("ws/a/b/.git")).unwrap();
        std::fs::create_dir_all(home.path().join("other/.git")).unwrap();
        let workspace = home.path().join("ws");
        let mut finder = ProtectedDirFinder::new(vec!["/".into(), workspace.clone()]);
        let found = finder.find();
        assert!(found.homes.contains(&workspace.join("a/b")), "{found:?}");
        assert!(
            !found.homes.contains(&home.path().join("other")),
            "{found:?}"
        );
        assert!(!found.is_complete);
    }

    #[test]
    fn a_look_that_is_cut_short_says_so() {
        let root = tempfile::tempdir().unwrap();
        for n in 0..20 {
            std::fs::create_dir_all(root.path().join(format!("{n}/.git"))).unwrap();
        }
        let mut finder = ProtectedDirFinder::new(vec![root.path().to_owned()]);
        finder.max_directories = 10;
        let found = finder.find();
        assert_eq!(found.homes.len(), 9);
        assert!(!found.is_complete);
    }
}
