//! The newest state that history knows of every path, with the stamp by which an unchanged file is recognised.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;

use crate::entry::PathState;

/// A file that changed less than this before it was looked at can change again without a new time of change.
const RACY_NS: i64 = 50_000_000;

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
        let mut flags = 0;
        // A time in the future, of a clock that was set back, proves nothing either.
        if newest > now_ns.saturating_sub(RACY_NS) {
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
}

/// The known paths: a walk asks for each of them by name, so a lookup must be cheap; `order` serves questions about a
/// directory.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    paths: HashMap<Arc<[u8]>, Known>,
    order: BTreeSet<Arc<[u8]>>,
    files: u64,
    /// Paths in the workspace, directories included; others are in further roots.
    inside: u64,
    walk: u32,
    /// Paths of files with further names.
    linked: BTreeSet<Arc<[u8]>>,
}

impl Snapshot {
    pub(crate) fn get(&self, path: &[u8]) -> Option<&Known> {
        self.paths.get(path)
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
        let is_file = |known: &Known| !matches!(known.state, PathState::Dir { .. });
        let is_inside = is_inside(&path);
        let key = match self.paths.get_key_value(path.as_slice()) {
            Some((key, _)) => Arc::clone(key),
            None => Arc::from(path),
        };
        let is_linked = |known: &Known| known.stamp.is_linked() && is_file(known);
        if known.as_ref().is_some_and(is_linked) {
            self.linked.insert(Arc::clone(&key));
        } else {
            self.linked.remove(&key);
        }
        self.files += u64::from(known.as_ref().is_some_and(is_file));
        let old = match known {
            Some(known) => {
                known.seen.store(self.walk, Ordering::Relaxed);
                let old = self.paths.insert(Arc::clone(&key), known);
                if old.is_none() {
                    self.order.insert(key);
                    self.inside += u64::from(is_inside);
                }
                old
            }
            None => {
                let old = self.paths.remove(&key);
                if old.is_some() {
                    self.order.remove(&key);
                    self.inside -= u64::from(is_inside);
                }
                old
            }
        };
        self.files -= u64::from(old.as_ref().is_some_and(is_file));
    }

    /// The known names in the workspace of these files.
    pub(crate) fn files_of(&self, inodes: &HashSet<u64>) -> Vec<Vec<u8>> {
        let is_of = |known: &Known| {
            inodes.contains(&known.stamp.inode) && !matches!(known.state, PathState::Dir { .. })
        };
        let paths = self.paths.iter();
        paths
            .filter(|(path, known)| is_inside(path) && is_of(known))
            .map(|(path, _)| path.to_vec())
            .collect()
    }

    /// Notes of these files that they have further names: an event tells of one name only.
    pub(crate) fn set_linked(&mut self, inodes: &HashSet<u64>) {
        for (path, known) in &mut self.paths {
            if inodes.contains(&known.stamp.inode)
                && !known.stamp.is_linked()
                && !matches!(known.state, PathState::Dir { .. })
            {
                known.stamp.set_linked();
                self.linked.insert(Arc::clone(path));
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Snapshot {
            walk: self.walk,
            ..Snapshot::default()
        };
    }

    /// The known paths below a directory, without itself; below the workspace for the empty path.
    pub(crate) fn below(&self, dir: &[u8]) -> impl Iterator<Item = &Arc<[u8]>> {
        let mut first = dir.to_vec();
        if !dir.is_empty() {
            first.push(b'/');
        }
        let is_workspace = dir.is_empty();
        let from: (Bound<&[u8]>, Bound<&[u8]>) =
            (Bound::Included(first.as_slice()), Bound::Unbounded);
        let range = self.order.range::<[u8], _>(from);
        range
            .take_while(move |path| path.starts_with(&first))
            .filter(move |path| !is_workspace || is_inside(path))
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
        self.below(dir)
            .filter(|path| {
                let known = self.paths.get(*path);
                known.is_some_and(|known| known.seen.load(Ordering::Relaxed) != self.walk)
            })
            .map(|path| path.to_vec())
            .collect()
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
                .map(|path| String::from_utf8_lossy(path).into_owned())
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
