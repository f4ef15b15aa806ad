//! Passes the files of a watched tree to the visitors of a search, in place of a walk.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::{TreeState, WatchedDir, WatchedTree, has_same_rules};
use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::names::escape;
use crate::sync::lock;
use crate::walk::dir::{NameBatch, open_below, open_dir, push_name};
use crate::walk::threads::{self, ThreadsEnd};
use crate::walk::{
    FileGlob, FileVisitor, Hidden, VisitLinks, VisitOutcome, WalkFile, WalkOptions, WalkStats,
};

/// Files of one directory that a thread takes at a time.
const MAX_TAKEN_FILES: usize = 128;

impl WatchedTree {
    /// Passes every file below `start`, where a walk with these options would begin, to the visitors that `new_visitor`
    /// makes, one for each thread. `None` if only a walk can answer.
    pub(crate) fn visit<V: FileVisitor>(
        &self,
        start: impl AsFd,
        options: &WalkOptions,
        cancel: &CancelToken,
        mut new_visitor: impl FnMut() -> V,
    ) -> Result<Option<WalkStats>> {
        let Some((dirs, known)) = self.listed_dirs(options) else {
            return Ok(None);
        };
        let error = |errno| Error::from_errno(&escape(options.ancestors.start()), errno);
        let shared = Arc::new(VisitShared {
            start: open_dir(start.as_fd(), c".").map_err(error)?,
            base: base_of(options),
            file_glob: options.file_glob.clone(),
            parts: parts_of(&dirs),
            dirs,
            next: AtomicUsize::new(0),
            total: Mutex::new(known),
            cancel: cancel.clone(),
        });
        let threads = options.threads.max(1).min(shared.parts.len().max(1));
        let jobs = (0..threads)
            .map(|_| {
                let (shared, mut visitor) = (Arc::clone(&shared), new_visitor());
                move || shared.work(&mut visitor)
            })
            .collect();
        let ended = threads::run(jobs, cancel)?;
        let mut walked = *lock(&shared.total);
        walked.complete &= ended == ThreadsEnd::AllFinished;
        Ok(Some(walked))
    }

    /// Passes the paths of all files below the start of a walk to `take`, relative to it. `None` if only a walk can answer.
    pub(crate) fn each_path(
        &self,
        options: &WalkOptions,
        cancel: &CancelToken,
        mut take: impl FnMut(&[u8]),
    ) -> Option<WalkStats> {
        let (dirs, mut known) = self.listed_dirs(options)?;
        for dir in dirs {
            if cancel.is_cancelled() {
                known.complete = false;
                break;
            }
            let mut path = below_start(&dir.path, base_of(options));
            let stem = path.len();
            for name in dir.names.iter() {
                path.truncate(stem);
                path.extend_from_slice(name.to_bytes());
                if is_meant(options.file_glob.as_ref(), &path) {
                    known.files += 1;
                    take(&path);
                }
            }
        }
        Some(known)
    }

    /// The directories of a walk with these options, and what it would leave out, after all events were read.
    fn listed_dirs(&self, options: &WalkOptions) -> Option<(Vec<ListedDir>, WalkStats)> {
        let mut state = lock(&self.state);
        if !state.is_searchable || !state.answers(options) || !state.refresh() {
            return None;
        }
        let start = options.ancestors.start();
        state.dirs.get(start)?;
        let mut known = WalkStats::default();
        let dirs = state.below(start).map(|(path, dir)| {
            dir.count_left_out(path, options, &mut known);
            ListedDir {
                path: path.clone(),
                names: Arc::clone(&dir.names),
                device: dir.device,
            }
        });
        let dirs = dirs.collect();
        // A file system that was found while directories were listed again.
        state.is_searchable.then_some((dirs, known))
    }
}

impl TreeState {
    /// Whether a walk with these options has the rules of this tree.
    fn answers(&self, options: &WalkOptions) -> bool {
        options.hidden == Hidden::Skip
            && options.links == VisitLinks::No
            && has_same_rules(&self.entries, options.guard.as_ref())
    }
}

impl WatchedDir {
    /// Counts what a walk would leave out here.
    fn count_left_out(&self, path: &[u8], options: &WalkOptions, known: &mut WalkStats) {
        let left_out = &self.left_out;
        let count = |names: &NameBatch| {
            let Some(glob) = &options.file_glob else {
                return names.len() as u64;
            };
            let mut entry = below_start(path, base_of(options));
            let stem = entry.len();
            let matches = names.iter().filter(|name| {
                entry.truncate(stem);
                entry.extend_from_slice(name.to_bytes());
                glob.matches(&entry)
            });
            matches.count() as u64
        };
        known.skipped.hidden += left_out.hidden_dirs + count(&left_out.hidden_files);
        known.skipped.ignored += left_out.ignored_dirs + count(&left_out.ignored_files);
        known.skipped.unreadable += left_out.unreadable;
    }
}

/// A directory as it was when its events were read.
struct ListedDir {
    /// Relative to the workspace.
    path: Vec<u8>,
    names: Arc<NameBatch>,
    device: u64,
}

/// Some files of a directory, which one thread takes.
struct DirPart {
    dir: usize,
    names: Range<usize>,
}

fn parts_of(dirs: &[ListedDir]) -> Vec<DirPart> {
    let parts = dirs.iter().enumerate().flat_map(|(dir, listed)| {
        let length = listed.names.len();
        let starts = (0..length).step_by(MAX_TAKEN_FILES);
        starts.map(move |start| DirPart {
            dir,
            names: start..length.min(start + MAX_TAKEN_FILES),
        })
    });
    parts.collect()
}

/// What the threads of one search share.
struct VisitShared {
    start: OwnedFd,
    base: usize,
    file_glob: Option<FileGlob>,
    dirs: Vec<ListedDir>,
    parts: Vec<DirPart>,
    next: AtomicUsize,
    total: Mutex<WalkStats>,
    cancel: CancelToken,
}

impl VisitShared {
    fn work<V: FileVisitor>(&self, visitor: &mut V) {
        let mut tally = WalkStats::default();
        let mut open: Option<(usize, OwnedFd)> = None;
        while tally.complete {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(part) = self.parts.get(at) else {
                break;
            };
            if open.as_ref().is_none_or(|(dir, _)| *dir != part.dir) {
                let path = &self.dirs[part.dir].path;
                let opened = match path.get(self.base..) {
                    None | Some([]) => open_dir(self.start.as_fd(), c"."),
                    Some(below) => open_below(self.start.as_fd(), below),
                };
                open = opened.ok().map(|fd| (part.dir, fd));
            }
            match &open {
                Some((_, fd)) => self.visit_part(part, fd, visitor, &mut tally),
                // It vanished after the events were read.
                None => tally.skipped.unreadable += 1,
            }
        }
        visitor.flush();
        let mut total = lock(&self.total);
        total.files += tally.files;
        total.skipped.add(&tally.skipped);
        total.complete &= tally.complete;
    }

    fn visit_part<V: FileVisitor>(
        &self,
        part: &DirPart,
        fd: &OwnedFd,
        visitor: &mut V,
        tally: &mut WalkStats,
    ) {
        let dir = &self.dirs[part.dir];
        let mut path = Vec::new();
        push_name(&mut path, &dir.path, c"");
        let stem = path.len();
        for at in part.names.clone() {
            if self.cancel.is_cancelled() {
                tally.complete = false;
                return;
            }
            let name = dir.names.get(at);
            path.truncate(stem);
            path.extend_from_slice(name.to_bytes());
            if !is_meant(self.file_glob.as_ref(), &path[self.base..]) {
                continue;
            }
            let visit = visitor.visit(&WalkFile {
                path: &path,
                base: self.base,
                name,
                dir: fd.as_fd(),
                device: dir.device,
            });
            tally.count(visit);
            if visit == VisitOutcome::Stopped {
                return;
            }
        }
    }
}

fn is_meant(glob: Option<&FileGlob>, path: &[u8]) -> bool {
    glob.is_none_or(|glob| glob.matches(path))
}

/// The path of a directory relative to the start of a walk, with a slash behind it unless it is the start.
fn below_start(path: &[u8], base: usize) -> Vec<u8> {
    let mut entry = Vec::new();
    push_name(&mut entry, path.get(base..).unwrap_or_default(), c"");
    entry
}

/// Bytes of a path below the workspace that lie before the start of a walk.
fn base_of(options: &WalkOptions) -> usize {
    match options.ancestors.start().len() {
        0 => 0,
        length => length + 1,
    }
}
