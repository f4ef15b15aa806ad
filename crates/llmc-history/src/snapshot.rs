//! The newest state that history knows of every path, with the stamp by which an unchanged file is recognised.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;

use crate::child_map::ChildMap;
use crate::entry::PathState;
use crate::listing::{Listing, NewListing};

/// A file that changed less than this before it was looked at can change again without a new time of change.
pub(crate) const RACY_NS: i64 = 50_000_000;

/// The same where a file system keeps whole seconds, or even ones.
const COARSE_RACY_NS: i64 = 2_100_000_000;
const SECOND_NS: i64 = 1_000_000_000;

/// The file changed so shortly before it was looked at that its stamp proves nothing.
const RACY: u32 = 1;
/// The file has further names, through which it can change without an event in its directory.
const LINKED: u32 = 2;

/// What tells an unchanged file without reading it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) size: u64,
    pub(crate) mtime_ns: i64,
    pub(crate) ctime_ns: i64,
    pub(crate) inode: u64,
    pub(crate) flags: u32,
}

impl Stamp {
    /// The stamp of a file looked at not before `now_ns`.
    #[allow(
        clippy::unnecessary_cast,
        reason = "the fields' types differ between targets"
    )]
    pub(crate) fn new(stat: &Stat, now_ns: i64) -> Stamp {
        let (mtime_ns, ctime_ns) = (llmc_host::mtime_ns(stat), llmc_host::ctime_ns(stat));
        let newest = mtime_ns.max(ctime_ns);
        let racy_ns = match ctime_ns % SECOND_NS {
            0 => COARSE_RACY_NS,
            _ => RACY_NS,
        };
        let mut flags = 0;
        // A time in the future, of a clock that was set back, proves nothing either.
        if newest > now_ns.saturating_sub(racy_ns) {
            flags |= RACY;
        }
        if stat.st_nlink as u64 > 1 {
            flags |= LINKED;
        }
        Stamp {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime_ns,
            ctime_ns,
            inode: stat.st_ino as u64,
            flags,
        }
    }

    /// Notes that the file has got a further name.
    fn set_linked(&mut self) {
        self.flags |= LINKED;
    }

    pub(crate) fn is_linked(&self) -> bool {
        self.flags & LINKED != 0
    }

    /// Whether a file with this recorded stamp is certainly unchanged when it now has the stamp `now`, whose flags do not
    /// matter.
    pub(crate) fn proves(&self, now: &Stamp) -> bool {
        self.flags & RACY == 0
            && (self.size, self.mtime_ns, self.ctime_ns, self.inode)
                == (now.size, now.mtime_ns, now.ctime_ns, now.inode)
    }
}

pub(crate) fn now_ns() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// What is known of a path.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) state: PathState,
    pub(crate) stamp: Stamp,
    /// The number of the walk that saw it last.
    seen: AtomicU32,
}

impl Known {
    pub(crate) fn new(state: PathState, stamp: Stamp) -> Known {
        Known {
            state,
            stamp,
            seen: AtomicU32::new(0),
        }
    }

    pub(crate) fn is_dir(&self) -> bool {
        matches!(self.state, PathState::Dir { .. })
    }
}

/// The known paths by directory, so that a look at the workspace finds what belongs to a directory in one place.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    dirs: BTreeMap<Box<[u8]>, KnownDir>,
    files: u64,
    /// Paths in the workspace, directories included; others are in further roots.
    inside: u64,
    walk: u32,
    /// Paths of files with further names.
    linked: BTreeSet<Vec<u8>>,
}

/// What is known to be in a directory.
#[derive(Debug, Default)]
pub(crate) struct KnownDir {
    pub(crate) children: ChildMap,
    /// How the directory was when its names were last read; `None` when this process has not read them.
    pub(crate) listing: Option<Listing>,
}

impl Snapshot {
    pub(crate) fn get(&self, path: &[u8]) -> Option<&Known> {
        let (dir, name) = split(path);
        self.dir(dir)?.children.get(name)
    }

    /// A directory whose entries are known, or which is known itself.
    pub(crate) fn dir(&self, dir: &[u8]) -> Option<&KnownDir> {
        self.dirs.get(dir)
    }

    pub(crate) fn state(&self, path: &[u8]) -> PathState {
        self.get(path)
            .map_or(PathState::Absent, |known| known.state)
    }

    /// Paths that are not directories.
    pub(crate) fn files(&self) -> u64 {
        self.files
    }

    /// Paths in the workspace that a walk of it should see.
    pub(crate) fn paths_inside(&self) -> u64 {
        self.inside
    }

    pub(crate) fn linked(&self) -> impl Iterator<Item = &[u8]> {
        self.linked.iter().map(AsRef::as_ref)
    }

    pub(crate) fn set(&mut self, path: Vec<u8>, known: Option<Known>) {
        let is_linked = |known: &Known| known.stamp.is_linked() && !known.is_dir();
        let is_dir = known.as_ref().is_some_and(Known::is_dir);
        let is_file = known.is_some() && !is_dir;
        let is_inside = u64::from(is_inside(&path));
        if known.as_ref().is_some_and(is_linked) {
            self.linked.insert(path.clone());
        } else {
            self.linked.remove(&path);
        }
        let (dir, name) = split(&path);
        let old = match known {
            Some(known) => {
                known.seen.store(self.walk, Ordering::Relaxed);
                let old = match self.dirs.get_mut(dir) {
                    Some(dir) => dir.children.insert(name.into(), known),
                    None => {
                        let new = self.dirs.entry(dir.into()).or_default();
                        new.children.insert(name.into(), known)
                    }
                };
                self.inside += is_inside * u64::from(old.is_none());
                old
            }
            None => {
                let old = self
                    .dirs
                    .get_mut(dir)
                    .and_then(|dir| dir.children.remove(name));
                self.inside -= is_inside * u64::from(old.is_some());
                self.drop_empty(dir);
                old
            }
        };
        let was_dir = old.as_ref().is_some_and(Known::is_dir);
        self.files += u64::from(is_file);
        self.files -= u64::from(old.is_some() && !was_dir);
        if is_dir && !self.dirs.contains_key(path.as_slice()) {
            self.dirs.insert(path.into(), KnownDir::default());
        } else if was_dir && !is_dir {
            self.drop_empty(&path);
        }
    }

    /// Forgets a directory in which nothing is known, unless it is known itself.
    fn drop_empty(&mut self, dir: &[u8]) {
        let is_empty = self.dir(dir).is_some_and(|dir| dir.children.is_empty());
        if is_empty && !dir.is_empty() && !self.get(dir).is_some_and(Known::is_dir) {
            self.dirs.remove(dir);
        }
    }

    /// The known names in the workspace of these files.
    pub(crate) fn files_of(&self, inodes: &HashSet<u64>) -> Vec<Vec<u8>> {
        let mut paths = Vec::new();
        for (dir, known) in self.dirs_inside() {
            for (name, known) in known.children.iter() {
                if inodes.contains(&known.stamp.inode) && !known.is_dir() {
                    paths.push(join(dir, name));
                }
            }
        }
        paths
    }

    /// Notes of these files that they have further names: an event tells of one name only.
    pub(crate) fn set_linked(&mut self, inodes: &HashSet<u64>) {
        for (dir, known_dir) in &mut self.dirs {
            for (name, known) in known_dir.children.iter_mut() {
                if inodes.contains(&known.stamp.inode)
                    && !known.stamp.is_linked()
                    && !known.is_dir()
                {
                    known.stamp.set_linked();
                    self.linked.insert(join(dir, name));
                }
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Snapshot {
            walk: self.walk,
            ..Snapshot::default()
        };
    }

    /// The directories in the workspace, itself among them.
    pub(crate) fn dirs_inside(&self) -> impl Iterator<Item = (&[u8], &KnownDir)> {
        let dirs = self.dirs.iter().filter(|(dir, _)| is_inside(dir));
        dirs.map(|(dir, known)| (dir.as_ref(), known))
    }

    /// The known paths below a directory, without itself; below the workspace for the empty path.
    pub(crate) fn below(&self, dir: &[u8]) -> impl Iterator<Item = Vec<u8>> {
        self.known_below(dir).map(|(dir, name, _)| join(dir, name))
    }

    fn known_below(&self, dir: &[u8]) -> impl Iterator<Item = (&[u8], &[u8], &Known)> {
        let mut prefix = dir.to_vec();
        if !dir.is_empty() {
            prefix.push(b'/');
        }
        let is_workspace = dir.is_empty();
        let from: (Bound<&[u8]>, Bound<&[u8]>) =
            (Bound::Included(prefix.as_slice()), Bound::Unbounded);
        let range = self.dirs.range::<[u8], _>(from);
        let own = self.dirs.get_key_value(dir).filter(|_| !is_workspace);
        let dirs = range
            .take_while(move |(dir, _)| dir.starts_with(&prefix))
            .filter(move |(dir, _)| !is_workspace || is_inside(dir));
        own.into_iter().chain(dirs).flat_map(|(dir, known)| {
            let children = known.children.iter();
            children.map(move |(name, known)| (dir.as_ref(), name, known))
        })
    }

    /// Begins a walk; paths that it does not mark are missing.
    pub(crate) fn begin_walk(&mut self) {
        self.walk = self.walk.wrapping_add(1).max(1);
    }

    /// Marks a path as seen by the walk; whether it was the first time.
    pub(crate) fn mark_seen(&self, known: &Known) -> bool {
        known.seen.swap(self.walk, Ordering::Relaxed) != self.walk
    }

    /// The known paths below `dir` that the walk has not seen.
    pub(crate) fn unseen(&self, dir: &[u8]) -> Vec<Vec<u8>> {
        self.known_below(dir)
            .filter(|(.., known)| known.seen.load(Ordering::Relaxed) != self.walk)
            .map(|(dir, name, _)| join(dir, name))
            .collect()
    }

    /// Takes over how directories were when their names were read, but for those with names that did not become known.
    pub(crate) fn set_listings(&mut self, listings: Vec<NewListing>) {
        for new in listings {
            let known = |path: &Vec<u8>| self.get(path).is_some();
            let listing = new.names.iter().all(known).then_some(new.listing);
            if let Some(dir) = self.dirs.get_mut(new.dir.as_slice()) {
                dir.listing = listing;
            } else if new.dir.is_empty() {
                let dir = self.dirs.entry(Box::default()).or_default();
                dir.listing = listing;
            }
        }
    }
}

/// The directory of a path, and its name in it.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        None => (b"", path),
        Some(slash) => (&path[..slash.max(1)], &path[slash + 1..]),
    }
}

/// The path of a name in a directory.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match dir {
        b"" => name.to_vec(),
        b"/" => [dir, name].concat(),
        _ => [dir, b"/", name].concat(),
    }
}

/// Whether a path lies in the workspace; those of further roots are absolute.
fn is_inside(path: &[u8]) -> bool {
    !path.starts_with(b"/")
}

/// Whether `path` is `dir` or lies below it; everything lies below the empty path.
pub(crate) fn is_within(path: &[u8], dir: &[u8]) -> bool {
    dir.is_empty()
        || path
            .strip_prefix(dir)
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// The directory that holds a path; `None` for the workspace itself and for a name in it.
pub(crate) fn parent(path: &[u8]) -> Option<&[u8]> {
    let slash = path.iter().rposition(|byte| *byte == b'/')?;
    (slash > 0).then(|| &path[..slash])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(paths: &[&str]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for path in paths {
            let state = PathState::Dir { mode: 0o755 };
            snapshot.set(
                path.as_bytes().to_vec(),
                Some(Known::new(state, Stamp::default())),
            );
        }
        snapshot
    }

    #[test]
    fn below_means_in_the_directory() {
        let snapshot = snapshot(&["a", "a/b", "a/b/c", "a.txt", "a0", "ab", "/other/x"]);
        let below = |dir: &str| -> Vec<String> {
            let paths = snapshot.below(dir.as_bytes());
            paths
                .map(|path| String::from_utf8_lossy(&path).into_owned())
                .collect()
        };
        assert_eq!(below("a"), ["a/b", "a/b/c"]);
        assert_eq!(below("a/b"), ["a/b/c"]);
        assert_eq!(below("/other"), ["/other/x"]);
        assert_eq!(below("").len(), 6);
        assert_eq!(snapshot.paths_inside(), 6);
        assert!(is_within(b"a/b", b"a") && is_within(b"a", b"a") && !is_within(b"ab", b"a"));
        assert_eq!(parent(b"a/b/c"), Some(&b"a/b"[..]));
        assert_eq!(parent(b"a"), None);
    }

    #[test]
    fn a_directory_is_there_while_it_or_something_in_it_is_known() {
        let mut snapshot = snapshot(&["a", "a/b", "a/b/c", "/other/x"]);
        assert_eq!(snapshot.dirs_inside().count(), 4, "and the workspace");
        snapshot.set(b"a/b".to_vec(), None);
        assert!(snapshot.dir(b"a/b").is_some(), "it holds c");
        snapshot.set(b"a/b/c".to_vec(), None);
        assert!(snapshot.dir(b"a/b").is_none() && snapshot.dir(b"a/b/c").is_none());
        snapshot.set(b"a".to_vec(), None);
        assert_eq!(
            (snapshot.dirs_inside().count(), snapshot.paths_inside()),
            (1, 0)
        );
        assert!(snapshot.get(b"/other/x").is_some());
        for path in [&b"a"[..], b"a/b", b"/a", b"/a/b"] {
            let (dir, name) = split(path);
            assert_eq!(join(dir, name), path);
        }
    }

    #[test]
    fn a_stamp_proves_nothing_while_the_file_may_change_within_a_tick() {
        let old = Stamp {
            size: 1,
            mtime_ns: 5,
            ctime_ns: 5,
            inode: 9,
            flags: 0,
        };
        assert!(old.proves(&old));
        assert!(!Stamp { flags: RACY, ..old }.proves(&old));
        assert!(!old.proves(&Stamp { ctime_ns: 6, ..old }));
    }
}
