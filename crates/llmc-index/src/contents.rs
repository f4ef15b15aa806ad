//! The trigrams of the workspace's files: built in the walk of an update, used by searches for content.
//!
//! They lie beside the code index and are independent of it: each file is recognised by what the kernel reports about it
//! (see `llmc_trigrams`), so a file that is not there, or not there as it is now, is read by the search. Nothing that goes wrong
//! here fails an update or a search; a search then reads every file, as it does without an index.
#![allow(
    clippy::disallowed_methods,
    reason = "removes the index's own files, not the agent's"
)]

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use llmc_host::search::{
    ContentFilter, ContentMatches, ContentOptions, ContentPattern, NameMatches, NamePattern,
    read_indexable, search_content, search_content_filtered, search_content_watched, search_files,
    search_files_watched,
};
use llmc_host::walk::{WalkOptions, WatchedTree};
use llmc_host::{CancelToken, OpenDir, Roots, is_local_file_system, names};
use llmc_trigrams::{
    FileIdentity, PathHash, TrigramExtractor, TrigramIndex, TrigramWriter, WalkExtent,
};
use rustix::fs::Stat;
use rustix::process::setpriority_process;
use rustix::thread::gettid;

use crate::error::Result;
use crate::index::{FileVersion, Index, IndexPaths};
use crate::update;

/// Recently changed files that an update remembers for a later one.
const MAX_UNSETTLED_FILES: usize = 50_000;

/// The buffer of a thread that is kept from one file to the next.
const MAX_KEPT_BYTES: usize = 1 << 20;

/// The `nice` value of a look for changes without events.
const VERIFY_NICE: i32 = 15;
/// How much later than in the status a change may show by an event: a write is reported when it ends.
const EVENT_GRACE: Duration = Duration::from_millis(500);
/// Files that changed without an event of which the log names each.
const MAX_LOGGED_FILES: usize = 10;

/// The trigrams as a search last saw them.
#[derive(Debug)]
pub(crate) struct OpenTrigrams {
    version: FileVersion,
    index: Arc<TrigramIndex>,
}

/// Adds the trigrams of new and changed files while an update walks over all. Does nothing where it cannot write.
#[derive(Debug)]
pub(crate) struct TrigramPass {
    existing: TrigramIndex,
    writer: Mutex<Option<TrigramWriter>>,
    /// Files that changed too recently to be added, named as the index names them.
    unsettled: Mutex<Vec<String>>,
}

/// What one thread needs to read trigrams.
#[derive(Debug, Default)]
pub(crate) struct TrigramScratch {
    extractor: Option<TrigramExtractor>,
    buffer: Vec<u8>,
}

impl TrigramPass {
    /// The caller holds the writer's lock.
    pub(crate) fn open(paths: &IndexPaths, workspace: &Path) -> TrigramPass {
        let is_local =
            rustix::fs::statfs(workspace).is_ok_and(|found| is_local_file_system(&found));
        let opened = match is_local {
            false => None,
            true => TrigramWriter::open(&paths.trigrams())
                .inspect_err(|error| tracing::warn!(%error, "content searches read every file"))
                .ok(),
        };
        TrigramPass {
            existing: opened
                .as_ref()
                .map(TrigramWriter::existing)
                .unwrap_or_default(),
            writer: Mutex::new(opened),
            unsettled: Mutex::default(),
        }
    }

    /// Adds a file, given by its path below the workspace, unless it is there as it is now.
    pub(crate) fn visit(
        &self,
        path: &[u8],
        file: impl AsFd,
        stat: &Stat,
        scratch: &mut TrigramScratch,
    ) {
        let name = path;
        let path = PathHash::of(name);
        let identity = FileIdentity::of(stat);
        let fingerprint = identity.fingerprint();
        let is_known = self.existing.find(path, fingerprint).is_some();
        match &mut *llmc_host::lock(&self.writer) {
            None => return,
            Some(writer) if is_known => return writer.see(path),
            Some(_) => {}
        }
        if !identity.is_settled(now_ns()) {
            // A search reads it until a later update adds it.
            let mut unsettled = llmc_host::lock(&self.unsettled);
            if unsettled.len() < MAX_UNSETTLED_FILES {
                unsettled.push(names::escape(name));
            }
            return;
        }
        let Some(read) = read_indexable(file, stat, &mut scratch.buffer) else {
            return;
        };
        let extractor = scratch.extractor.get_or_insert_default();
        let trigrams = extractor.of(&read.text);
        let mut writer = llmc_host::lock(&self.writer);
        let added = writer
            .as_mut()
            .map(|writer| writer.add(path, fingerprint, read.kind, trigrams));
        if let Some(Err(error)) = added {
            tracing::warn!(%error, "content searches read every file");
            *writer = None;
        }
        drop(writer);
        if scratch.buffer.capacity() > MAX_KEPT_BYTES {
            scratch.buffer = Vec::new();
        }
    }

    /// The files that a later update should add.
    pub(crate) fn take_unsettled(&self) -> Vec<String> {
        std::mem::take(&mut *llmc_host::lock(&self.unsettled))
    }

    /// Writes what was gathered.
    pub(crate) fn finish(&self, extent: WalkExtent) {
        let writer = llmc_host::lock(&self.writer).take();
        if let Some(Err(error)) = writer.map(|writer| writer.finish(extent)) {
            tracing::warn!(%error, "trigrams are not written");
        }
    }
}

impl Index {
    /// Finds the lines that match in the files below a directory, reading only those that can match. The answer is that of
    /// [`search_content`].
    ///
    /// # Errors
    /// As for [`search_content`].
    pub fn search_content(
        &self,
        roots: &Roots,
        dir: &OpenDir,
        pattern: &ContentPattern,
        walk: &WalkOptions,
        options: &ContentOptions,
        cancel: &CancelToken,
    ) -> llmc_host::Result<ContentMatches> {
        let filter = self.content_filter(roots, dir, pattern);
        if let Some(tree) = self.watched_tree_of(roots, dir) {
            let filter = filter.as_ref();
            let found =
                search_content_watched(&dir.fd, &tree, pattern, walk, options, filter, cancel)?;
            if let Some(found) = found {
                return Ok(found);
            }
        }
        match filter {
            Some(filter) => {
                search_content_filtered(&dir.fd, pattern, walk, options, &filter, cancel)
            }
            None => search_content(&dir.fd, pattern, walk, options, cancel),
        }
    }

    /// Finds the files below a directory whose names match, without a walk where the files are watched. The answer is that
    /// of [`search_files`].
    ///
    /// # Errors
    /// As for [`search_files`].
    pub fn search_files(
        &self,
        roots: &Roots,
        dir: &OpenDir,
        pattern: &NamePattern,
        walk: &WalkOptions,
        max_paths: usize,
        cancel: &CancelToken,
    ) -> llmc_host::Result<NameMatches> {
        let tree = self.watched_tree_of(roots, dir);
        let found =
            tree.and_then(|tree| search_files_watched(&tree, pattern, walk, max_paths, cancel));
        match found {
            Some(found) => Ok(found),
            None => search_files(&dir.fd, pattern, walk, max_paths, cancel),
        }
    }

    /// Files whose trigrams are known, older versions included.
    pub fn content_files(&self) -> u64 {
        self.open_trigrams().map_or(0, |index| index.documents())
    }

    /// Whether this process watches the workspace's files, so that a search need not walk.
    pub fn is_watching(&self) -> bool {
        let tree = llmc_host::lock(&self.tree).clone();
        tree.is_some_and(|tree| tree.is_searchable())
    }

    /// The tree that this process watches, if the directory is in it.
    fn watched_tree_of(&self, roots: &Roots, dir: &OpenDir) -> Option<Arc<WatchedTree>> {
        let tree = llmc_host::lock(&self.tree).clone();
        tree.filter(|_| dir.path.root_path() == roots.workspace())
    }

    /// Looks for changes of the watched files that no event showed, in the background and at low priority. The thread returns
    /// how long it took.
    pub(crate) fn verify_in_the_background(
        &self,
        tree: &Arc<WatchedTree>,
        stop: &CancelToken,
    ) -> Option<JoinHandle<Duration>> {
        let (tree, stop, index) = (Arc::clone(tree), stop.clone(), self.open_trigrams()?);
        let verify = move || {
            let _ = setpriority_process(Some(gettid()), VERIFY_NICE);
            let started = Instant::now();
            let found = tree.verify(&index, EVENT_GRACE, &stop);
            for path in found.unreported.iter().take(MAX_LOGGED_FILES) {
                let path = names::escape(path);
                tracing::warn!(path, "a file changed without an event; searches look at it");
            }
            let (unreported, took) = (found.unreported.len(), started.elapsed());
            tracing::debug!(files = found.files, unreported, ?took, "verified");
            took
        };
        let thread = std::thread::Builder::new().name("verify".to_owned());
        thread.spawn(verify).ok()
    }

    /// Watches the workspace's files from now on, or no longer.
    pub(crate) fn set_watched_tree(&self, tree: Option<Arc<WatchedTree>>) {
        *llmc_host::lock(&self.tree) = tree;
    }

    fn content_filter(
        &self,
        roots: &Roots,
        dir: &OpenDir,
        pattern: &ContentPattern,
    ) -> Option<Arc<ContentFilter>> {
        // The index names files by their paths below the workspace.
        if dir.path.root_path() != roots.workspace() {
            return None;
        }
        let index = self.open_trigrams()?;
        match ContentFilter::new(index, pattern, &dir.fd) {
            Ok(filter) => filter.map(Arc::new),
            Err(error) => {
                self.note_damage(&error);
                None
            }
        }
    }

    /// The trigrams as the last update left them.
    fn open_trigrams(&self) -> Option<Arc<TrigramIndex>> {
        let dir = self.paths().trigrams();
        let version = FileVersion::of(&TrigramIndex::list_path(&dir))?;
        let mut open = llmc_host::lock(&self.trigrams);
        if open.as_ref().is_none_or(|open| open.version != version) {
            let older = open.take().map(|open| open.index).unwrap_or_default();
            if TrigramWriter::is_marked_damaged(&dir) {
                return None;
            }
            match older.reopen(&dir) {
                Ok(index) => {
                    let index = Arc::new(index);
                    *open = Some(OpenTrigrams { version, index });
                }
                Err(error) => self.note_damage(&error),
            }
        }
        open.as_ref().map(|open| Arc::clone(&open.index))
    }

    /// Lets the next update build the trigrams again.
    fn note_damage(&self, error: &llmc_trigrams::Error) {
        tracing::warn!(%error, "content searches read every file");
        if matches!(error, llmc_trigrams::Error::Damaged(_)) {
            TrigramWriter::mark_damaged(&self.paths().trigrams());
            self.are_trigrams_damaged.store(true, Ordering::Relaxed);
        }
    }

    /// Reads every byte of the trigrams; the next update builds damaged ones again.
    pub(crate) fn check_trigrams(&self) {
        if let Some(Err(error)) = self.open_trigrams().map(|index| index.check()) {
            self.note_damage(&error);
        }
    }

    /// Adds the trigrams of these files, named as the index names them.
    pub(crate) fn update_contents<'a>(
        &self,
        roots: &Roots,
        paths: impl Iterator<Item = &'a String>,
    ) -> Result<()> {
        let _lock = update::lock(self.paths())?;
        let pass = TrigramPass::open(self.paths(), roots.workspace());
        let mut scratch = TrigramScratch::default();
        for path in paths {
            let Ok(file) = roots.open_file(path) else {
                continue;
            };
            let file = file.into_file();
            if let Ok(stat) = rustix::fs::fstat(&file) {
                pass.visit(&names::unescape(path), &file, &stat, &mut scratch);
            }
        }
        pass.finish(WalkExtent::Part);
        self.note_unsettled(&pass);
        Ok(())
    }

    /// Adds the trigrams of files that have changed and are at rest now.
    pub(crate) fn update_unsettled(&self, roots: &Roots) {
        let mut paths = std::mem::take(&mut *llmc_host::lock(&self.unsettled));
        let resting = paths.extract_if(.., |path| is_at_rest(roots, path));
        let resting: Vec<String> = resting.collect();
        if !resting.is_empty() && self.update_contents(roots, resting.iter()).is_err() {
            // Another process writes.
            paths.extend(resting);
        }
        llmc_host::lock(&self.unsettled).extend(paths);
    }

    /// Remembers the files that changed too recently to be added.
    pub(crate) fn note_unsettled(&self, pass: &TrigramPass) {
        llmc_host::lock(&self.unsettled).extend(pass.take_unsettled());
    }

    /// Removes the trigrams, because the disk is full.
    pub(crate) fn remove_trigrams(&self) {
        let _ = std::fs::remove_dir_all(self.paths().trigrams());
    }
}

/// Whether a file is gone, or has not changed for so long that its trigrams can be added.
fn is_at_rest(roots: &Roots, path: &str) -> bool {
    let Ok(file) = roots.open_file(path) else {
        return true;
    };
    let stat = rustix::fs::fstat(file.into_file());
    stat.map_or(true, |stat| FileIdentity::of(&stat).is_settled(now_ns()))
}

fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(0)
}
