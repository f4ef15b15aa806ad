//! Passes the files of a watched tree to the visitors of a search, in place of a walk.
//!
//! A search with a filter is given candidates and files that are not known; the others are counted only.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::dirs::{FilePlace, WatchedDir};
use super::known::{ComparedFile, KnownState};
use super::{TreeState, WatchedTree, has_same_rules};
use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::names::escape;
use crate::search::ContentFilter;
use crate::sync::lock;
use crate::walk::dir::{NameBatch, open_below, open_dir, push_name};
use crate::walk::threads::{self, ThreadsEnd};
use crate::walk::{
    FileGlob, FileVisitor, Hidden, VisitLinks, VisitOutcome, WalkFile, WalkOptions, WalkStats,
};

/// Files of one directory that a thread takes at a time.
const MAX_TAKEN_FILES: usize = 128;
/// Marks a file whose status is to be compared, among the places of chosen files.
const COMPARED: u32 = 1 << 31;

/// A visit of the files that a search has to look at.
pub(crate) struct TreeVisit {
    pub(crate) walked: WalkStats,
    shared: Arc<VisitShared>,
}

/// A file of one visit: which of its directories, and which of the names there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreePlace {
    dir: u32,
    at: u32,
}

impl WatchedTree {
    /// Passes the files below `start`, where a walk with these options would begin, to the visitors that `new_visitor`
    /// makes, one for each thread. Those of which the filter says that they cannot match, and which are known, are only
    /// counted. `None` if only a walk can answer.
    pub(crate) fn visit<V: FileVisitor>(
        &self,
        start: impl AsFd,
        options: &WalkOptions,
        filter: Option<&ContentFilter>,
        cancel: &CancelToken,
        mut new_visitor: impl FnMut() -> V,
    ) -> Result<Option<TreeVisit>> {
        let Some(chosen) = self.choose_files(options, filter) else {
            return Ok(None);
        };
        let error = |errno| Error::from_errno(&escape(options.ancestors.start()), errno);
        let shared = Arc::new(VisitShared {
            start: open_dir(start.as_fd(), c".").map_err(error)?,
            base: base_of(options),
            parts: chosen.parts(),
            total: Mutex::new(chosen.known),
            chosen,
            next: AtomicUsize::new(0),
            cancel: cancel.clone(),
        });
        let threads = options.threads.max(1).min(shared.parts.len());
        let jobs = (0..threads)
            .map(|_| {
                let (shared, mut visitor) = (Arc::clone(&shared), new_visitor());
                move || shared.work(&mut visitor)
            })
            .collect();
        let ended = threads::run(jobs, cancel)?;
        let mut walked = *lock(&shared.total);
        walked.complete &= ended == ThreadsEnd::AllFinished;
        Ok(Some(TreeVisit { walked, shared }))
    }

    /// Takes files for known that a visit found to be as the index has them.
    pub(crate) fn end_visit(&self, visit: &TreeVisit, compared: &[(TreePlace, ComparedFile)]) {
        let chosen = &visit.shared.chosen;
        let Some(check) = chosen.check else {
            return;
        };
        let mut state = lock(&self.state);
        for (place, compared) in compared {
            let dir = &chosen.dirs[place.dir as usize];
            let now = state.place_now(dir.number, &dir.path, &dir.names, place.at);
            if let Some(now) = now {
                state.end_check_of(now, check, compared);
            }
        }
    }

    /// Passes the paths of all files below the start of a walk to `take`, relative to it. `None` if only a walk can answer.
    pub(crate) fn each_path(
        &self,
        options: &WalkOptions,
        cancel: &CancelToken,
        mut take: impl FnMut(&[u8]),
    ) -> Option<WalkStats> {
        let chosen = self.choose_files(options, None)?;
        let mut known = chosen.known;
        for dir in &chosen.dirs {
            if cancel.is_cancelled() {
                known.complete = false;
                break;
            }
            let mut path = below_start(&dir.path, base_of(options));
            let stem = path.len();
            for at in &chosen.files[dir.files.clone()] {
                path.truncate(stem);
                path.extend_from_slice(dir.names.get((at & !COMPARED) as usize).to_bytes());
                known.files += 1;
                take(&path);
            }
        }
        Some(known)
    }

    /// The files that a search with these options has to look at, and what is known of the others, after all events were read.
    fn choose_files(
        &self,
        options: &WalkOptions,
        filter: Option<&ContentFilter>,
    ) -> Option<ChosenFiles> {
        let mut state = lock(&self.state);
        if !state.is_searchable || !state.answers(options) || !state.refresh() {
            return None;
        }
        if !state.dirs.contains(options.ancestors.start()) {
            return None;
        }
        let filter =
            filter.filter(|filter| filter.device() == state.device && state.follow(filter.index()));
        let chosen = state.choose(options, filter);
        if filter.is_some() {
            self.is_unverified.store(true, Ordering::Relaxed);
        }
        #[cfg(debug_assertions)]
        state.check_known_files();
        // A file system that was found while directories were listed again.
        state.is_searchable.then_some(chosen)
    }
}

/// What a search looks at.
struct ChosenFiles {
    dirs: Vec<ListedDir>,
    /// Places among the names of the directories.
    files: Vec<u32>,
    /// What is counted without a look.
    known: WalkStats,
    /// The check that files become known by.
    check: Option<u32>,
}

/// A directory as it was when its events were read.
struct ListedDir {
    number: u32,
    /// Relative to the workspace.
    path: Arc<[u8]>,
    names: Arc<NameBatch>,
    device: u64,
    /// Which of the chosen files are in it.
    files: Range<usize>,
}

/// Some files of a directory, which one thread takes.
struct DirPart {
    dir: u32,
    files: Range<usize>,
}

impl ChosenFiles {
    fn parts(&self) -> Vec<DirPart> {
        let parts = (0_u32..).zip(&self.dirs).flat_map(|(dir, listed)| {
            let files = listed.files.clone();
            let starts = files.clone().step_by(MAX_TAKEN_FILES);
            starts.map(move |start| DirPart {
                dir,
                files: start..files.end.min(start + MAX_TAKEN_FILES),
            })
        });
        parts.collect()
    }
}

impl TreeState {
    /// Divides the files below a start into those that a search looks at and those that are known not to match.
    fn choose(&mut self, options: &WalkOptions, filter: Option<&ContentFilter>) -> ChosenFiles {
        let mut known = WalkStats::default();
        let mut numbers = Vec::new();
        // The order of the directories in the answer, by their numbers.
        let mut ranks = vec![u32::MAX; self.dirs.bound()];
        // The rank of a directory in the upper half, and a place among its names in the lower.
        let mut files: Vec<u64> = Vec::new();
        for (rank, (number, dir)) in (0_u32..).zip(self.dirs.below(options.ancestors.start())) {
            dir.count_left_out(options, &mut known);
            numbers.push(number);
            ranks[number as usize] = rank;
            let chosen = |at: u32| u64::from(rank) << 32 | u64::from(at);
            match (filter, &options.file_glob) {
                (None, None) => files.extend((0..dir.names.len() as u32).map(chosen)),
                (None, Some(glob)) => {
                    files.extend(dir.matching(glob, options).map(chosen));
                }
                (Some(_), None) => {
                    let (texts, binaries) = dir.known_counts();
                    known.files += texts;
                    known.skipped.binary += binaries;
                    if !dir.is_all_known() {
                        files.extend(dir.unknown().map(|at| chosen(at | COMPARED)));
                    }
                }
                (Some(filter), Some(glob)) => {
                    for at in dir.matching(glob, options) {
                        let file = dir.known(at as usize);
                        match file.state {
                            KnownState::Binary => known.skipped.binary += 1,
                            KnownState::Text => {
                                let document = self.files.number_and_position(file);
                                match document.is_some_and(|at| !filter.is_candidate_at(at)) {
                                    true => known.files += 1,
                                    false => files.push(chosen(at)),
                                }
                            }
                            _ => files.push(chosen(at | COMPARED)),
                        }
                    }
                }
            }
        }
        if let Some(filter) = filter
            && options.file_glob.is_none()
        {
            let places = self.files.places(|number| filter.candidates_in(number));
            for place in places {
                let rank = ranks[place.dir as usize];
                let dir = self.dirs.by_number(place.dir);
                let is_text =
                    |dir: &WatchedDir| dir.known(place.at as usize).state == KnownState::Text;
                if rank != u32::MAX && dir.is_some_and(is_text) {
                    known.files -= 1;
                    files.push(u64::from(rank) << 32 | u64::from(place.at));
                }
            }
            files.sort_unstable();
        }
        let mut chosen = ChosenFiles {
            dirs: Vec::new(),
            files: Vec::with_capacity(files.len()),
            known,
            check: filter.map(|_| self.files.begin_check()),
        };
        for of_dir in files.chunk_by(|one, next| one >> 32 == next >> 32) {
            let number = numbers[(of_dir[0] >> 32) as usize];
            let start = chosen.files.len();
            let places = of_dir.iter().map(|file| (file & 0xffff_ffff) as u32);
            chosen.files.extend(places);
            if let Some(check) = chosen.check {
                for at in chosen.files[start..]
                    .iter()
                    .filter(|at| *at & COMPARED != 0)
                {
                    let at = at & !COMPARED;
                    self.begin_check_of(FilePlace { dir: number, at }, check);
                }
            }
            chosen
                .dirs
                .extend(self.dirs.by_number(number).map(|dir| ListedDir {
                    number,
                    path: Arc::clone(&dir.path),
                    names: Arc::clone(&dir.names),
                    device: dir.device,
                    files: start..chosen.files.len(),
                }));
        }
        chosen
    }

    /// Whether a walk with these options has the rules of this tree.
    fn answers(&self, options: &WalkOptions) -> bool {
        options.hidden == Hidden::Skip
            && options.links == VisitLinks::No
            && has_same_rules(&self.entries, options.guard.as_ref())
    }
}

impl WatchedDir {
    /// The files that have to be looked at.
    fn unknown(&self) -> impl Iterator<Item = u32> {
        let places = 0..self.names.len() as u32;
        places.filter(|at| !self.known(*at as usize).is_known())
    }

    /// The files that a glob means.
    fn matching(&self, glob: &FileGlob, options: &WalkOptions) -> impl Iterator<Item = u32> {
        matching(&self.names, glob, below_start(&self.path, base_of(options)))
    }

    /// Counts what a walk would leave out here.
    fn count_left_out(&self, options: &WalkOptions, known: &mut WalkStats) {
        let left_out = &self.left_out;
        let count = |names: &NameBatch| match &options.file_glob {
            None => names.len() as u64,
            Some(glob) => {
                let path = below_start(&self.path, base_of(options));
                matching(names, glob, path).count() as u64
            }
        };
        known.skipped.hidden += left_out.hidden_dirs + count(&left_out.hidden_files);
        known.skipped.ignored += left_out.ignored_dirs + count(&left_out.ignored_files);
        known.skipped.unreadable += left_out.unreadable;
    }
}

/// What the threads of one search share.
struct VisitShared {
    start: OwnedFd,
    base: usize,
    chosen: ChosenFiles,
    parts: Vec<DirPart>,
    next: AtomicUsize,
    total: Mutex<WalkStats>,
    cancel: CancelToken,
}

impl VisitShared {
    fn work<V: FileVisitor>(&self, visitor: &mut V) {
        let mut tally = WalkStats::default();
        let mut open: Option<(u32, OwnedFd)> = None;
        while tally.complete {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(part) = self.parts.get(at) else {
                break;
            };
            if open.as_ref().is_none_or(|(dir, _)| *dir != part.dir) {
                let path = &self.chosen.dirs[part.dir as usize].path;
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
        let dir = &self.chosen.dirs[part.dir as usize];
        let mut path = Vec::new();
        push_name(&mut path, &dir.path, c"");
        let stem = path.len();
        for file in &self.chosen.files[part.files.clone()] {
            if self.cancel.is_cancelled() {
                tally.complete = false;
                return;
            }
            let at = file & !COMPARED;
            let name = dir.names.get(at as usize);
            path.truncate(stem);
            path.extend_from_slice(name.to_bytes());
            let visit = visitor.visit(&WalkFile {
                path: &path,
                base: self.base,
                name,
                dir: fd.as_fd(),
                device: dir.device,
                place: Some(TreePlace { dir: part.dir, at }),
                is_compared: file & COMPARED == 0 && self.chosen.check.is_some(),
            });
            tally.count(visit);
            if visit == VisitOutcome::Stopped {
                return;
            }
        }
    }
}

/// The names that a glob means in a directory, given by its path below the start.
fn matching(names: &NameBatch, glob: &FileGlob, mut path: Vec<u8>) -> impl Iterator<Item = u32> {
    let stem = path.len();
    let places = 0..names.len() as u32;
    places.filter(move |at| {
        path.truncate(stem);
        path.extend_from_slice(names.get(*at as usize).to_bytes());
        glob.matches(&path)
    })
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
