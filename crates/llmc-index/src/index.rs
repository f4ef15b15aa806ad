//! The index of one workspace: its paths, its state, and one consistent view for readers.
#![allow(
    clippy::disallowed_methods,
    reason = "these are the index's own files, not the agent's"
)]

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use llmc_host::walk::WatchedTree;
use llmc_host::{CancelToken, Roots};
use rustix::fs::statvfs;
use schemars::JsonSchema;
use serde::Serialize;

use crate::builder::BuilderRole;
use crate::catalog::Catalog;
use crate::contents::{OpenTrigrams, TrigramPass};
use crate::error::{Error, Result};
use crate::live::LiveLimits;
use crate::progress::IndexProgress;
use crate::text::{TextIndex, TextSearcher};
use crate::update::{self, IdleWriter, UpdateReport, UpdateWriter};
use crate::vectors::Embedder;

/// Idle ones that are kept open.
const MAX_OPEN_CATALOGS: usize = 4;

/// The index of one workspace. Any number may be open for one directory, in any number of processes.
#[derive(Debug)]
pub struct Index {
    paths: IndexPaths,
    /// Idle catalogues: one for each question that was answered concurrently.
    catalogs: Mutex<Vec<OpenCatalog>>,
    /// The text part, shared by all questions because each mapping of it takes memory.
    text: Mutex<Option<OpenText>>,
    /// What the last update had open, for the next one.
    idle_writer: Mutex<Option<IdleWriter>>,
    progress: Arc<IndexProgress>,
    pub(crate) embedder: Option<Embedder>,
    /// Whether the vectors of words in the executable are used.
    pub(crate) uses_word_vectors: bool,
    /// Why the last update failed.
    failure: Mutex<Option<String>>,
    /// The right to build the index, while this process has it.
    pub(crate) role: Mutex<Option<BuilderRole>>,
    /// When a caller of this process last waited for the index.
    pub(crate) awaited: Mutex<Option<SystemTime>>,
    /// Whether this process keeps the index current, or waits for the right to.
    kept: AtomicBool,
    /// The trigrams that searches for content use.
    pub(crate) trigrams: Mutex<Option<OpenTrigrams>>,
    /// Whether a search found them damaged.
    pub(crate) are_trigrams_damaged: AtomicBool,
    /// Files whose trigrams a later update should add.
    pub(crate) unsettled: Mutex<BTreeSet<String>>,
    /// The workspace's files, while this process watches them.
    pub(crate) tree: Mutex<Option<Arc<WatchedTree>>>,
    /// How a question searches files while the index is built.
    pub(crate) limits_during_build: LiveLimits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum IndexState {
    /// The index answers questions.
    Ready,
    /// A process is building it.
    Building,
    None,
}

impl Index {
    /// The index in this directory. Nothing is opened or created yet.
    pub fn at(dir: &Path) -> Self {
        Self {
            paths: IndexPaths {
                dir: dir.to_owned(),
                unavailable: None,
            },
            catalogs: Mutex::default(),
            text: Mutex::default(),
            idle_writer: Mutex::default(),
            progress: Arc::default(),
            embedder: None,
            uses_word_vectors: true,
            failure: Mutex::default(),
            role: Mutex::default(),
            awaited: Mutex::default(),
            kept: AtomicBool::new(false),
            trigrams: Mutex::default(),
            are_trigrams_damaged: AtomicBool::new(false),
            unsettled: Mutex::default(),
            tree: Mutex::default(),
            limits_during_build: LiveLimits::DURING_BUILD,
        }
    }

    /// Sets how long a question may pass over files that are not indexed while the index is built; a second otherwise.
    #[must_use]
    pub fn with_scan_time(mut self, time: Duration) -> Self {
        self.limits_during_build = self.limits_during_build.scanning_for(time);
        self
    }

    /// An index that can neither be read nor written, and why: every search scans the files.
    pub fn unavailable(why: String) -> Self {
        // Nothing can ever exist below a device.
        let mut index = Self::at(Path::new("/dev/null/index"));
        index.paths.unavailable = Some(why);
        index
    }

    /// The progress of an update in this process.
    pub fn progress(&self) -> &Arc<IndexProgress> {
        &self.progress
    }

    /// Whether the first build is done, running, or has not begun.
    pub fn state(&self) -> IndexState {
        let complete = self.with(|catalog, _| catalog.number("complete"));
        match complete {
            Ok(Some(1)) => IndexState::Ready,
            _ if update::is_locked(&self.paths.lock())
                || update::is_locked(&self.paths.builder()) =>
            {
                IndexState::Building
            }
            _ => IndexState::None,
        }
    }

    /// Says that this process is about to keep the index current.
    pub fn mark_kept(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }

    /// Whether an index can be expected soon.
    pub(crate) fn is_expected(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
            && self.paths.unavailable.is_none()
            && self.failure().is_none()
    }

    /// Updates the index with all files of the workspace.
    ///
    /// # Errors
    /// [`Error::Busy`] while another process writes; [`Error::Unwritable`] with the reason.
    pub fn update(&self, roots: &Roots, stop: &CancelToken) -> Result<UpdateReport> {
        let done = self.record_failure(|| {
            let writer = UpdateWriter::open(&self.paths)?;
            let trigrams = Arc::new(TrigramPass::open(&self.paths, roots.workspace()));
            self.progress.begin();
            let done = writer.update_all(roots, &self.progress, &trigrams, stop);
            self.note_unsettled(&trigrams);
            self.progress.end();
            done
        });
        if let Err(Error::Full(_)) = done {
            self.remove_incomplete();
        }
        done
    }

    /// Removes an incomplete index that did not fit on the disk.
    fn remove_incomplete(&self) {
        let complete = self.with(|catalog, _| catalog.number("complete"));
        if let Ok(Some(1)) = complete {
            return;
        }
        *self.idle_writer() = None;
        self.catalogs().clear();
        *self.text() = None;
        self.remove_trigrams();
        if let Err(error) = update::clear(&self.paths) {
            tracing::warn!(error = %error, "the incomplete index cannot be removed");
        }
    }

    /// Free bytes on the disk of the index.
    pub(crate) fn free_bytes(&self) -> u64 {
        let there = self.paths.dir.ancestors().find(|place| place.exists());
        let found = there.and_then(|place| statvfs(place).ok());
        found.map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize))
    }

    /// Checks every byte of the text part, which takes too long for every opening of a large one. The next update builds
    /// a damaged index again.
    pub(crate) fn check_for_damage(&self) {
        if let Ok(false) = self.with_parts(|_, text| text.is_sound()) {
            tracing::warn!("the text part of the index is damaged");
            self.paths.mark_damaged();
        }
        self.check_trigrams();
    }

    /// Why there is no index, or why it is not up to date.
    pub fn unavailable_reason(&self) -> Option<String> {
        self.failure()
            .or_else(|| match update::can_lock(&self.paths) {
                Err(error @ (Error::Unwritable(_) | Error::Full(_))) => Some(error.to_string()),
                _ => None,
            })
    }

    /// Why the last update of this process failed.
    pub fn failure(&self) -> Option<String> {
        llmc_host::lock(&self.failure).clone()
    }

    fn record_failure<T>(&self, update: impl FnOnce() -> Result<T>) -> Result<T> {
        let done = update();
        let failure = match &done {
            Ok(_) => None,
            // Another process writes, or the update was cancelled.
            Err(Error::Busy | Error::Host(_) | Error::Missing) => return done,
            Err(error) => Some(error.to_string()),
        };
        *llmc_host::lock(&self.failure) = failure;
        done
    }

    /// Updates the index with these files, named as the index names them; unknown ones are ignored.
    ///
    /// # Errors
    /// As for [`Index::update`].
    pub fn update_files(&self, roots: &Roots, paths: &[String]) -> Result<UpdateReport> {
        self.record_failure(|| {
            let kept = self.idle_writer().take();
            let (updated, kept) =
                UpdateWriter::reopen(&self.paths, kept)?.update_some(roots, paths)?;
            *self.idle_writer() = kept;
            Ok(updated)
        })
    }

    /// Merges what small updates have left; to be called when idle.
    ///
    /// # Errors
    /// As for [`Index::update`].
    pub fn tidy(&self) -> Result<()> {
        *self.idle_writer() = None;
        UpdateWriter::open(&self.paths)?.tidy()
    }

    pub(crate) fn paths(&self) -> &IndexPaths {
        &self.paths
    }

    pub(crate) fn writer(&self) -> Result<UpdateWriter> {
        UpdateWriter::open(&self.paths)
    }

    fn idle_writer(&self) -> MutexGuard<'_, Option<IdleWriter>> {
        llmc_host::lock(&self.idle_writer)
    }

    /// The size of the index on disk.
    pub fn bytes(&self) -> u64 {
        let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
        let parts = [self.paths.text(), self.paths.trigrams()];
        let entries = parts.iter().flat_map(fs::read_dir).flatten().flatten();
        let parts: u64 = entries
            .map(|entry| entry.metadata().map_or(0, |found| found.len()))
            .sum();
        parts + size(&self.paths.catalog())
    }

    /// Runs `work` on a consistent view, opened or refreshed first.
    pub(crate) fn with<T>(
        &self,
        work: impl FnOnce(&Catalog, &TextSearcher) -> Result<T>,
    ) -> Result<T> {
        self.with_parts(|catalog, text| work(catalog, &text.searcher()?))
    }

    /// The same with the text part itself.
    pub(crate) fn with_parts<T>(
        &self,
        work: impl FnOnce(&Catalog, &TextIndex) -> Result<T>,
    ) -> Result<T> {
        let mut open = self.catalogs().pop();
        // A manipulated file can make a library panic; that is damage like any other.
        let done = catch_unwind(AssertUnwindSafe(|| {
            let (catalog, text) = self.refreshed(&mut open)?;
            work(catalog, &text)
        }));
        let done = done.unwrap_or_else(|_| Err(Error::Damaged("reading it failed".into())));
        if let Err(Error::Damaged(why)) = &done {
            tracing::warn!(why, "the index is damaged");
            *self.text() = None;
            self.paths.mark_damaged();
        } else if let Some(open) = open.filter(|_| !matches!(done, Err(Error::Missing))) {
            let mut catalogs = self.catalogs();
            if catalogs.len() < MAX_OPEN_CATALOGS {
                catalogs.push(open);
            }
        }
        done
    }

    fn catalogs(&self) -> MutexGuard<'_, Vec<OpenCatalog>> {
        llmc_host::lock(&self.catalogs)
    }

    fn text(&self) -> MutexGuard<'_, Option<OpenText>> {
        llmc_host::lock(&self.text)
    }

    /// Both parts in their current version.
    fn refreshed<'c>(
        &self,
        open: &'c mut Option<OpenCatalog>,
    ) -> Result<(&'c Catalog, Arc<TextIndex>)> {
        let mut text = self.text();
        if self.paths.is_marked_damaged() {
            (*open, *text) = (None, None);
            return Err(Error::Missing);
        }
        let inode = FileVersion::of(&self.paths.catalog())
            .ok_or(Error::Missing)?
            .inode;
        let segments = FileVersion::of(&self.paths.segment_list()).ok_or(Error::Missing)?;
        // Another inode is another index, built anew.
        if open.as_ref().is_none_or(|open| open.inode != inode) {
            *open = Some(OpenCatalog {
                catalog: Catalog::open(&self.paths.catalog())?,
                inode,
            });
        }
        match text.as_mut().filter(|text| text.inode == inode) {
            Some(text) => {
                if text.version != segments {
                    text.text.reload()?;
                    text.version = segments;
                }
            }
            None => {
                *text = Some(OpenText {
                    text: Arc::new(TextIndex::open(&self.paths.text())?),
                    inode,
                    version: segments,
                });
            }
        }
        let catalog = open.as_ref().map(|open| &open.catalog);
        let text = text.as_ref().map(|text| text.text.clone());
        catalog.zip(text).ok_or(Error::Missing)
    }
}

struct OpenCatalog {
    catalog: Catalog,
    inode: u64,
}

struct OpenText {
    text: Arc<TextIndex>,
    /// Of the catalogue it belongs to.
    inode: u64,
    /// Of its list of segments.
    version: FileVersion,
}

impl std::fmt::Debug for OpenCatalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenCatalog").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for OpenText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenText")
            .field("version", &self.version)
            .finish()
    }
}

/// Distinguishes one version of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileVersion {
    pub(crate) inode: u64,
    size: u64,
    mtime: (i64, i64),
}

impl FileVersion {
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let found = fs::symlink_metadata(path).ok()?;
        found.is_file().then(|| Self {
            inode: found.ino(),
            size: found.size(),
            mtime: (found.mtime(), found.mtime_nsec()),
        })
    }
}

/// The paths of an index's parts.
#[derive(Debug, Clone)]
pub(crate) struct IndexPaths {
    dir: PathBuf,
    /// Why there can be no index.
    unavailable: Option<String>,
}

impl IndexPaths {
    pub(crate) fn catalog(&self) -> PathBuf {
        self.dir.join("catalog.db")
    }

    pub(crate) fn text(&self) -> PathBuf {
        self.dir.join("text")
    }

    /// The text part's list of its segments.
    pub(crate) fn segment_list(&self) -> PathBuf {
        self.text().join("meta.json")
    }

    /// The trigrams of all files.
    pub(crate) fn trigrams(&self) -> PathBuf {
        self.dir.join("trigrams")
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.dir.join("writer.lock")
    }

    /// The lock of the process that builds the index.
    pub(crate) fn builder(&self) -> PathBuf {
        self.dir.join("builder.lock")
    }

    /// The lock of the question that scans files while the index is built.
    pub(crate) fn scan_lock(&self) -> PathBuf {
        self.dir.join("scan.lock")
    }

    /// Its time is when a caller last waited for the index.
    pub(crate) fn awaited(&self) -> PathBuf {
        self.dir.join("awaited")
    }

    fn damaged(&self) -> PathBuf {
        self.dir.join("damaged")
    }

    /// Creates the directory, private to the user.
    pub(crate) fn create_dir(&self) -> Result<()> {
        if let Some(why) = &self.unavailable {
            return Err(Error::Unwritable(why.clone()));
        }
        if self.dir.is_symlink() {
            return Err(Error::Unwritable("its folder is a link".into()));
        }
        Ok(DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)?)
    }

    /// Makes the next writer build the index again.
    pub(crate) fn mark_damaged(&self) {
        let _ = File::create(self.damaged());
    }

    pub(crate) fn is_marked_damaged(&self) -> bool {
        self.damaged().exists()
    }

    /// Removes everything but the lock. The caller holds the lock.
    pub(crate) fn clear(&self) -> Result<()> {
        let ignore_missing = |done: std::io::Result<()>| match done {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        for suffix in ["", "-wal", "-shm"] {
            let mut path = self.catalog().into_os_string();
            path.push(suffix);
            ignore_missing(fs::remove_file(PathBuf::from(path)))?;
        }
        ignore_missing(fs::remove_dir_all(self.text()))?;
        ignore_missing(fs::remove_file(self.damaged()))?;
        Ok(())
    }
}
