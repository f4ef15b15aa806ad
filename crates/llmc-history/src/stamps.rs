//! Walks a directory and compares the stamp of everything in it with the snapshot.
//!
//! Per file there is one status and one lookup: statuses are collected, and the snapshot is locked once for many of them.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use llmc_host::walk::{FileVisitor, VisitOutcome, WalkFile, WalkOptions, walk};
use llmc_host::{CancelToken, OpenDir, file_type, lock};
use rustix::fs::{FileType, Stat};

use crate::compare::{Comparer, SharedSnapshot};
use crate::entry::PathState;
use crate::error::{Error, Result};
use crate::listing::{Listing, NewListing};
use crate::snapshot::{Known, KnownDir, Snapshot, Stamp, now_ns, split};
use crate::watch::Watch;

/// Paths that are looked at before they are compared.
const COMPARE_BATCH: usize = 512;

/// What a walk saw.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    /// Paths whose stamp is not as recorded.
    pub(crate) suspects: Vec<Vec<u8>>,
    /// How many known paths are there.
    pub(crate) seen: u64,
    /// How directories were before their names were read; of a walk without a watch, which needs them later.
    pub(crate) listings: Vec<NewListing>,
}

/// Walks what is open as `start`, the path `dir`.
pub(crate) fn walk_stamps(
    start: &OpenDir,
    options: &WalkOptions,
    dir: &[u8],
    comparer: &Comparer<'_>,
    watch: Option<&Arc<Mutex<Watch>>>,
) -> Result<Walked> {
    comparer.snapshot.write().begin_walk();
    let max_files = comparer.settings.max_files;
    let started_ns = now_ns();
    let cancel = CancelToken::default();
    let shared = Arc::new(WalkShared {
        snapshot: comparer.snapshot.clone(),
        watch: watch.cloned(),
        walked: Mutex::default(),
        files: AtomicU64::new(0),
        max_files: max_files as u64,
        started_ns,
        cancel: cancel.clone(),
    });
    if watch.is_none()
        && let Ok(stat) = rustix::fs::fstat(&start.fd)
    {
        lock(&shared.walked).listings.push(NewListing {
            dir: dir.to_vec(),
            listing: Listing::of(start.fd.as_fd(), &stat, started_ns),
            names: Vec::new(),
        });
    }
    let mut prefix = dir.to_vec();
    if !prefix.is_empty() {
        prefix.push(b'/');
    }
    walk(&start.fd, options, &cancel, || StampVisitor {
        shared: Arc::clone(&shared),
        prefix: prefix.clone(),
        paths: Vec::new(),
        looked_at: Vec::new(),
        listings: Vec::new(),
    })?;
    if shared.files.load(Ordering::Relaxed) > shared.max_files {
        return Err(Error::TooManyFiles(max_files));
    }
    let walked = std::mem::take(&mut *lock(&shared.walked));
    Ok(walked)
}

impl Walked {
    /// Says of each listing which paths must become known for it to count.
    pub(crate) fn set_names(&mut self, snapshot: &Snapshot) {
        let mut dirs: HashMap<&[u8], usize> = HashMap::new();
        for (at, listing) in self.listings.iter().enumerate() {
            dirs.insert(&listing.dir, at);
        }
        let unknown = self
            .suspects
            .iter()
            .filter(|path| snapshot.get(path).is_none());
        let names: Vec<(usize, Vec<u8>)> = unknown
            .filter_map(|path| Some((*dirs.get(split(path).0)?, path.clone())))
            .collect();
        for (at, path) in names {
            self.listings[at].names.push(path);
        }
    }
}

struct WalkShared {
    snapshot: SharedSnapshot,
    watch: Option<Arc<Mutex<Watch>>>,
    walked: Mutex<Walked>,
    files: AtomicU64,
    max_files: u64,
    started_ns: i64,
    cancel: CancelToken,
}

/// Compares stamps, on each thread of a walk.
struct StampVisitor {
    shared: Arc<WalkShared>,
    /// The walk's start in front of each path.
    prefix: Vec<u8>,
    /// The paths of `looked_at`, one after the other.
    paths: Vec<u8>,
    looked_at: Vec<LookedAt>,
    listings: Vec<NewListing>,
}

/// The status of a path that waits to be compared.
struct LookedAt {
    /// Where its path ends in the visitor's `paths`.
    end: usize,
    kind: FileType,
    mode: u32,
    stamp: Stamp,
}

impl LookedAt {
    fn is_unchanged(&self, known: &Known) -> bool {
        match known.state {
            PathState::File { .. } | PathState::FileNotKept { .. } => {
                self.kind == FileType::RegularFile && known.stamp.proves(&self.stamp)
            }
            PathState::Link { .. } => {
                self.kind == FileType::Symlink && known.stamp.proves(&self.stamp)
            }
            PathState::Dir { mode } => self.kind == FileType::Directory && self.mode == mode,
            PathState::Absent => false,
        }
    }
}

impl StampVisitor {
    fn add(&mut self, path: &[u8], stat: &Stat) {
        self.paths.extend_from_slice(&self.prefix);
        self.paths.extend_from_slice(path);
        self.looked_at.push(LookedAt {
            end: self.paths.len(),
            kind: file_type(stat),
            mode: stat.st_mode & 0o1777,
            // Only a stamp that is recorded needs the time.
            stamp: Stamp::new(stat, i64::MAX),
        });
        if self.looked_at.len() >= COMPARE_BATCH {
            self.compare();
        }
    }

    fn compare(&mut self) {
        let mut walked = Walked::default();
        {
            let snapshot = self.shared.snapshot.read();
            let mut start = 0;
            // Most paths follow others of their directory.
            let mut last: Option<(&[u8], Option<&KnownDir>)> = None;
            for looked_at in &self.looked_at {
                let path = &self.paths[start..looked_at.end];
                start = looked_at.end;
                let (dir, name) = split(path);
                let known_dir = match last {
                    Some((last, known)) if last == dir => known,
                    _ => snapshot.dir(dir),
                };
                last = Some((dir, known_dir));
                let known = known_dir.and_then(|dir| dir.children.get(name));
                if let Some(known) = known {
                    walked.seen += u64::from(snapshot.mark_seen(known));
                }
                if known.is_none_or(|known| !looked_at.is_unchanged(known)) {
                    walked.suspects.push(path.to_vec());
                }
            }
        }
        self.paths.clear();
        self.looked_at.clear();
        let mut all = lock(&self.shared.walked);
        all.seen += walked.seen;
        all.suspects.append(&mut walked.suspects);
        all.listings.append(&mut self.listings);
    }
}

impl FileVisitor for StampVisitor {
    fn visit(&mut self, file: &WalkFile<'_>) -> VisitOutcome {
        if self.shared.files.fetch_add(1, Ordering::Relaxed) >= self.shared.max_files {
            self.shared.cancel.cancel();
            return VisitOutcome::Stopped;
        }
        // The `.git` file of a worktree or submodule.
        let name = file.path().rsplit(|byte| *byte == b'/').next();
        if name == Some(b".git") {
            return VisitOutcome::Done;
        }
        if let Ok(stat) = file.lstat() {
            self.add(file.path(), &stat);
        }
        VisitOutcome::Done
    }

    fn visit_dir(&mut self, path: &[u8], dir: BorrowedFd<'_>) {
        if let Some(watch) = &self.shared.watch {
            lock(watch).add(&[self.prefix.as_slice(), path].concat());
        }
        if let Ok(stat) = rustix::fs::fstat(dir) {
            self.add(path, &stat);
            if self.shared.watch.is_none() {
                self.listings.push(NewListing {
                    dir: [self.prefix.as_slice(), path].concat(),
                    listing: Listing::of(dir, &stat, self.shared.started_ns),
                    names: Vec::new(),
                });
            }
        }
    }

    fn flush(&mut self) {
        if !self.looked_at.is_empty() || !self.listings.is_empty() {
            self.compare();
        }
    }
}
