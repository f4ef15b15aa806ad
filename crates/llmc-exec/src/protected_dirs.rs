//! Where below the write roots protected names are.
//!
//! All directories are read once, at any depth, and watched from then on, so that a run costs what it has changed and not
//! what the workspace holds. Where directories cannot be watched, each of them is looked at before and after every run:
//! one status call for each, and a directory is read again only when it has changed. The number of directories is bounded;
//! what lies beyond is reported, not ignored.
//!
//! The whole file system as a root is looked at one level deep only: other programs make repositories there all the time,
//! and those are not a command's. Roots inside it, such as the workspace, are looked at in full.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use llmc_host::{GitDirParts, is_protected_name};
use rustix::fs::{AtFlags, CWD, FileType, Stat, statat};

use super::dir_watch::{DirEvent, DirWatch, Watched};

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
    tree: DirTree,
    /// Nothing where directories cannot be watched.
    watch: Option<DirWatch>,
    is_read: bool,
    max_directories: usize,
}

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FoundDirs {
    /// Directories below the roots (not the roots themselves) that hold a protected name right now, outer ones first.
    pub(super) homes: Vec<PathBuf>,
    /// Directories that git takes for a repository's although they are not called `.git`, roots among them.
    pub(super) bare: Vec<PathBuf>,
    /// Whether every directory was looked at.
    pub(super) is_complete: bool,
}

/// The directories that are known, by number.
#[derive(Debug, Default)]
struct DirTree {
    nodes: HashMap<NodeId, DirNode>,
    next: NodeId,
    tops: Vec<NodeId>,
    homes: HashSet<NodeId>,
    bare: HashSet<NodeId>,
    /// Directories that could not be watched, such as another user's.
    unwatched: HashSet<NodeId>,
    by_watch: HashMap<i32, Vec<NodeId>>,
    is_full: bool,
}

type NodeId = u64;

/// What a directory held when it was last read.
#[derive(Debug, Default)]
struct DirNode {
    name: OsString,
    parent: Option<NodeId>,
    /// Levels below that are looked at.
    depth: usize,
    dirs: Vec<NodeId>,
    watch: Option<i32>,
    stamp: Option<Stamp>,
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
        let watch = DirWatch::new().ok();
        ProtectedDirFinder {
            tree: DirTree::default(),
            watch: watch.filter(|_| !roots.is_empty()),
            roots,
            is_read: false,
            max_directories: MAX_DIRECTORIES,
        }
    }

    pub(super) fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// Whether a look costs what has changed, and not what there is.
    pub(super) fn is_watching(&self) -> bool {
        self.watch.is_some() && self.is_read
    }

    pub(super) fn find(&mut self) -> FoundDirs {
        match self.changed() {
            Some(changed) => self.look(changed),
            None => self.read_all(),
        }
        let mut homes: Vec<PathBuf> = self
            .tree
            .homes
            .iter()
            .map(|home| self.tree.path(*home))
            .filter(|home| !self.roots.contains(home))
            .collect();
        homes.sort_by(|a, b| {
            let depth = |path: &Path| path.components().count();
            depth(a).cmp(&depth(b)).then_with(|| a.cmp(b))
        });
        let bare = self.tree.bare.iter().map(|dir| self.tree.path(*dir));
        let mut bare: Vec<PathBuf> = bare.collect();
        bare.sort();
        FoundDirs {
            homes,
            bare,
            is_complete: !self.tree.is_full && !self.roots.iter().any(|root| is_file_system(root)),
        }
    }

    /// The directories that have changed since the last look, or nothing if all must be looked at.
    fn changed(&mut self) -> Option<Vec<NodeId>> {
        let watch = self.watch.as_mut().filter(|_| self.is_read)?;
        let events = watch.events()?;
        let mut changed: HashSet<NodeId> = self.tree.unwatched.clone();
        for event in events {
            let DirEvent { watch, dir, .. } = &event;
            let nodes = self.tree.by_watch.get(watch).cloned().unwrap_or_default();
            if event.is_gone {
                self.tree.by_watch.remove(watch);
            }
            for id in nodes {
                changed.insert(id);
                if event.is_gone {
                    if let Some(node) = self.tree.nodes.get_mut(&id) {
                        node.watch = None;
                    }
                } else if let Some(name) = dir {
                    // Another directory may stand there under the same name.
                    self.forget_child(id, name);
                }
            }
        }
        Some(changed.into_iter().collect())
    }

    /// Starts anew: every directory is looked at.
    fn read_all(&mut self) {
        if self.is_read && self.watch.is_some() {
            // Changes were lost. What is known is worth nothing, nor are the watches.
            self.tree = DirTree::default();
            self.watch = DirWatch::new().ok();
        }
        if self.tree.tops.is_empty() {
            self.add_roots();
        }
        self.is_read = true;
        self.tree.is_full = false;
        self.look(self.tree.tops.clone());
    }

    fn add_roots(&mut self) {
        let roots = &self.roots;
        // A root inside another one is looked at with that.
        let is_inner = |root: &PathBuf| {
            let mut others = roots.iter();
            others.any(|other| root != other && root.starts_with(other) && !is_file_system(other))
        };
        let outer: HashSet<&PathBuf> = roots.iter().filter(|root| !is_inner(root)).collect();
        for root in outer {
            let depth = match is_file_system(root) {
                true => FILE_SYSTEM_DEPTH,
                false => usize::MAX,
            };
            let id = self.tree.add(root.clone().into_os_string(), None, depth);
            self.tree.tops.push(id);
        }
    }

    /// Looks at directories, and below them at what is new or, where directories are not watched, at everything.
    fn look(&mut self, mut pending: Vec<NodeId>) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        while let Some(id) = pending.pop() {
            if !self.tree.nodes.contains_key(&id) {
                continue;
            }
            let path = self.tree.path(id);
            let is_changed = match &self.watch {
                Some(_) => self.watch_dir(id, &path),
                None => self.compare(id, &path, now),
            };
            match is_changed {
                None => self.forget(id),
                Some(true) => pending.extend(self.read(id, &path)),
                Some(false) => pending.extend(&self.tree.nodes[&id].dirs),
            }
        }
    }

    /// Watches a directory before it is read, so that no change is missed. Nothing if it is no directory any more.
    fn watch_dir(&mut self, id: NodeId, path: &Path) -> Option<bool> {
        let watch = self.watch.as_mut()?;
        let node = self.tree.nodes.get_mut(&id)?;
        if node.watch.is_some() {
            return Some(true);
        }
        match watch.add(path) {
            Watched::Number(number) => {
                node.watch = Some(number);
                self.tree.unwatched.remove(&id);
                self.tree.by_watch.entry(number).or_default().push(id);
            }
            Watched::Refused => {
                self.tree.unwatched.insert(id);
            }
            Watched::NoDirectory if node.parent.is_some() => return None,
            // A root that is not there now may be there later.
            Watched::NoDirectory => {
                self.tree.unwatched.insert(id);
            }
            // From now on every directory is looked at every time.
            Watched::TooMany => self.watch = None,
        }
        Some(true)
    }

    /// Whether a directory must be read again. Nothing if it is no directory any more.
    fn compare(&mut self, id: NodeId, path: &Path, now: Duration) -> Option<bool> {
        let node = self.tree.nodes.get_mut(&id)?;
        let status = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok();
        let Some(status) = status.filter(|status| FileType::from_raw_mode(status.st_mode).is_dir())
        else {
            node.stamp = None;
            return node.parent.is_none().then_some(true);
        };
        let stamp = Stamp::of(&status);
        if node.stamp == Some(stamp) {
            return Some(false);
        }
        let changed = Duration::new(
            u64::try_from(status.st_mtime).unwrap_or(0),
            u32::try_from(status.st_mtime_nsec).unwrap_or(0),
        );
        let is_settled = now.saturating_sub(changed) > MTIME_GRANULARITY;
        node.stamp = is_settled.then_some(stamp);
        Some(true)
    }

    /// Reads a directory's entries, and keeps what is known of the directories in it. Returns those to look at next.
    fn read(&mut self, id: NodeId, path: &Path) -> Vec<NodeId> {
        let Some(node) = self.tree.nodes.get_mut(&id) else {
            return Vec::new();
        };
        let depth = node.depth;
        let dirs = std::mem::take(&mut node.dirs);
        let mut known: HashMap<OsString, NodeId> = HashMap::new();
        for dir in dirs {
            let name = self.tree.nodes.get(&dir).map(|node| node.name.clone());
            known.extend(name.map(|name| (name, dir)));
        }
        self.tree.homes.remove(&id);
        let mut parts = GitDirParts::default();
        let mut next = Vec::new();
        // What cannot be read is another user's: commands, which run as this one, cannot write there either.
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            let name = entry.file_name();
            parts.add(name.as_bytes());
            if is_protected_name(name.as_bytes()) {
                self.tree.homes.insert(id);
            } else if depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let child = match known.remove(&name) {
                    Some(child) => {
                        if self.watch.is_none() {
                            next.push(child);
                        }
                        child
                    }
                    None if self.tree.nodes.len() >= self.max_directories => {
                        self.tree.is_full = true;
                        continue;
                    }
                    None => {
                        let child = self.tree.add(name, Some(id), depth - 1);
                        next.push(child);
                        child
                    }
                };
                if let Some(node) = self.tree.nodes.get_mut(&id) {
                    node.dirs.push(child);
                }
            }
        }
        match parts.is_git_dir() {
            true => self.tree.bare.insert(id),
            false => self.tree.bare.remove(&id),
        };
        for gone in known.into_values() {
            self.forget(gone);
        }
        next
    }

    fn forget_child(&mut self, id: NodeId, name: &OsStr) {
        let children = self.tree.nodes.get(&id).map(|node| node.dirs.iter());
        let is_named = |child: &&NodeId| {
            let node = self.tree.nodes.get(child);
            node.is_some_and(|node| node.name == name)
        };
        if let Some(child) = children.and_then(|mut all| all.find(is_named)).copied() {
            self.forget(child);
        }
    }

    /// Forgets a directory and everything below it.
    fn forget(&mut self, id: NodeId) {
        let mut gone = vec![id];
        while let Some(id) = gone.pop() {
            let Some(node) = self.tree.nodes.remove(&id) else {
                continue;
            };
            gone.extend(node.dirs);
            self.tree.homes.remove(&id);
            self.tree.bare.remove(&id);
            self.tree.unwatched.remove(&id);
            if let Some(parent) = node
                .parent
                .and_then(|parent| self.tree.nodes.get_mut(&parent))
            {
                parent.dirs.retain(|dir| *dir != id);
            }
            let Some(number) = node.watch else { continue };
            // One that was moved is watched under the same number in its new place.
            let Some(nodes) = self.tree.by_watch.get_mut(&number) else {
                continue;
            };
            nodes.retain(|other| *other != id);
            if nodes.is_empty() {
                self.tree.by_watch.remove(&number);
                if let Some(watch) = &self.watch {
                    watch.remove(number);
                }
            }
        }
    }
}

impl DirTree {
    fn add(&mut self, name: OsString, parent: Option<NodeId>, depth: usize) -> NodeId {
        let id = self.next;
        self.next += 1;
        let node = DirNode {
            name,
            parent,
            depth,
            ..DirNode::default()
        };
        self.nodes.insert(id, node);
        id
    }

    fn path(&self, id: NodeId) -> PathBuf {
        let mut names = Vec::new();
        let mut at = Some(id);
        while let Some(node) = at.and_then(|id| self.nodes.get(&id)) {
            names.push(&node.name);
            at = node.parent;
        }
        names.into_iter().rev().collect()
    }
}

fn is_file_system(root: &Path) -> bool {
    root.parent().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With watched directories, and without.
    fn both(roots: &[PathBuf]) -> [ProtectedDirFinder; 2] {
        let watching = ProtectedDirFinder::new(roots.to_vec());
        assert!(watching.watch.is_some());
        let mut comparing = ProtectedDirFinder::new(roots.to_vec());
        comparing.watch = None;
        [watching, comparing]
    }

    #[test]
    fn nested_repositories_are_found_and_changes_are_seen() {
        for which in [0, 1] {
            changes_are_seen(which);
        }
    }

    fn changes_are_seen(which: usize) {
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
        let [watching, comparing] = both(&[root.path().to_owned()]);
        let mut finder = if which == 0 { watching } else { comparing };
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
                is_complete: true,
                ..FoundDirs::default()
            }
        );
    }

    #[test]
    fn repositories_that_other_programs_make_on_the_disk_are_not_found() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join("ws/a/b/.git")).unwrap();
        std::fs::create_dir_all(home.path().join("other/.git")).unwrap();
        let workspace = home.path().join("ws");
        for mut finder in both(&["/".into(), workspace.clone()]) {
            let found = finder.find();
            assert!(found.homes.contains(&workspace.join("a/b")), "{found:?}");
            assert!(
                !found.homes.contains(&home.path().join("other")),
                "{found:?}"
            );
            assert!(!found.is_complete);
        }
    }

    #[test]
    fn a_look_that_is_cut_short_says_so() {
        let root = tempfile::tempdir().unwrap();
        for n in 0..20 {
            std::fs::create_dir_all(root.path().join(format!("{n}/.git"))).unwrap();
        }
        for mut finder in both(&[root.path().to_owned()]) {
            finder.max_directories = 10;
            for _ in 0..2 {
                let found = finder.find();
                assert_eq!(found.homes.len(), 9);
                assert!(!found.is_complete);
            }
        }
    }

    /// Random changes of a tree: what is found from changes is what a fresh look finds.
    #[test]
    fn what_is_found_from_changes_is_what_is_there() {
        let base = tempfile::tempdir().unwrap();
        let (root, outside) = (base.path().join("root"), base.path().join("outside"));
        std::fs::create_dir_all(&root).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let mut below = |most: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % most
        };
        let mut finder = ProtectedDirFinder::new(vec![root.clone()]);
        let (mut moved_out, mut seen, mut bare) = (0, 0, 0);
        for round in 0..400 {
            for _ in 0..below(6) {
                let mut dir = |name: u64| {
                    let mut path = root.clone();
                    for _ in 0..=below(3) {
                        path.push(format!("d{}", below(4)));
                    }
                    match name {
                        0 => path,
                        1 => path.join(".git"),
                        _ => path.join("llmc.toml"),
                    }
                };
                // Each of these may fail; what matters is what is there afterwards.
                let (one, other, git, file) = (dir(0), dir(0), dir(1), dir(2));
                let part = ["HEAD", "objects", "refs"][below(3) as usize];
                let _ = match below(14) {
                    0 | 1 => std::fs::create_dir_all(&one),
                    2 => std::fs::create_dir_all(&git),
                    3 => std::fs::write(&file, ""),
                    4 => std::fs::rename(&one, &other),
                    5 => std::fs::remove_dir_all(&one),
                    6 => std::fs::remove_dir_all(&git),
                    7 => rustix::fs::renameat_with(
                        CWD,
                        &one,
                        CWD,
                        &other,
                        rustix::fs::RenameFlags::EXCHANGE,
                    )
                    .map_err(Into::into),
                    9..12 if part == "HEAD" => std::fs::write(one.join(part), ""),
                    9..12 => std::fs::create_dir(one.join(part)),
                    12 => std::fs::remove_file(one.join("HEAD")),
                    _ => {
                        moved_out += 1;
                        let away = outside.join(moved_out.to_string());
                        let gone = std::fs::rename(&one, &away);
                        let planted = std::fs::create_dir_all(away.join("x/.git"));
                        gone.and(planted)
                            .and_then(|()| std::fs::rename(&away, &other))
                    }
                };
            }
            let mut fresh = ProtectedDirFinder::new(vec![root.clone()]);
            fresh.watch = None;
            let found = finder.find();
            assert_eq!(found, fresh.find(), "round {round}");
            seen += found.homes.len();
            bare += found.bare.len();
        }
        assert!(bare > 20, "the tree holds bare repositories: {bare}");
        assert!(seen > 400, "the tree holds protected names: {seen}");
        assert!(finder.watch.is_some());
        let watches: usize = finder.tree.by_watch.values().map(Vec::len).sum();
        assert_eq!(watches, finder.tree.nodes.len());
    }

    #[test]
    fn lost_changes_are_found_by_looking_at_everything() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("a/b")).unwrap();
        let mut finder = ProtectedDirFinder::new(vec![root.path().to_owned()]);
        assert_eq!(finder.find().homes, Vec::<PathBuf>::new());
        let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        let limit: usize = limit.trim().parse().unwrap();
        for n in 0..=limit {
            std::fs::write(root.path().join(format!("a/{}", n % 2)), "").unwrap();
            std::fs::remove_file(root.path().join(format!("a/{}", n % 2))).unwrap();
        }
        std::fs::create_dir_all(root.path().join("a/b/.git")).unwrap();
        assert_eq!(finder.find().homes, [root.path().join("a/b")]);
        std::fs::create_dir_all(root.path().join("a/b/c/.git")).unwrap();
        assert_eq!(finder.find().homes.len(), 2);
    }
}
