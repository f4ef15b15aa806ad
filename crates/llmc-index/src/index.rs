//! The index as its users hold it: where it lies, whether it is ready, and one view for readers.
#![allow(
    clippy::disallowed_methods,
    reason = "these are the index's own files, not the agent's"
)]

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use llmc_host::{CancelToken, Roots};
use rustix::fs::statvfs;
use serde::Serialize;

use crate::casualties;
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::text::{TextIndex, TextSearcher};
use crate::update::{self, Kept, Updated, Writer};
use crate::vectors::Embedder;

/// Catalogues that are kept open.
const MOST_CATALOGS: usize = 4;

/// An index of one workspace. Any number may exist for one directory, in any number of processes.
#[derive(Debug)]
pub struct Index {
    places: Places,
    /// Catalogues that nobody uses now: one for each question that was answered at the same time as others.
    catalogs: Mutex<Vec<OpenCatalog>>,
    /// The text part, which all questions share: mapped once for each, it would take its memory once for each.
    text: Mutex<Option<OpenText>>,
    /// What the last update had open, for the next one.
    kept: Mutex<Option<Kept>>,
    progress: Arc<Progress>,
    pub(crate) embedder: Option<Embedder>,
    /// Why the last update did not come to its end.
    trouble: Mutex<Option<String>>,
}

/// Whether questions can be answered from the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Yes.
    Ready,
    /// Somebody is building it.
    Building,
    /// There is none.
    None,
}

impl Index {
    /// The index in this directory. Nothing is opened or made yet.
    pub fn at(dir: &Path) -> Self {
        Self {
            places: Places {
                dir: dir.to_owned(),
                closed: None,
            },
            catalogs: Mutex::default(),
            text: Mutex::default(),
            kept: Mutex::default(),
            progress: Arc::default(),
            embedder: None,
            trouble: Mutex::default(),
        }
    }

    /// An index that can neither be read nor written, and why: every search goes over the files.
    pub fn nowhere(why: String) -> Self {
        // Nothing can ever exist below a device.
        let mut index = Self::at(Path::new("/dev/null/index"));
        index.places.closed = Some(why);
        index
    }

    /// How far an update of this process has come.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Whether the first build is done, under way, or has not begun.
    pub fn state(&self) -> State {
        let complete = self.with(|catalog, _| catalog.number("complete"));
        match complete {
            Ok(Some(1)) => State::Ready,
            _ if update::is_locked(&self.places.lock()) => State::Building,
            _ => State::None,
        }
    }

    /// Brings the index in line with all files of the workspace.
    ///
    /// # Errors
    /// [`Error::Busy`] while another one writes; [`Error::Unwritable`] with the reason.
    pub fn update(&self, roots: &Roots, stop: &CancelToken) -> Result<Updated> {
        let done = self.remember(|| {
            let writer = Writer::open(&self.places)?;
            casualties::watch(&self.places.parsing());
            self.progress.begin();
            let done = writer.update_all(roots, &self.progress, stop);
            self.progress.end();
            done
        });
        if let Err(Error::Full(_)) = done {
            self.make_room();
        }
        done
    }

    /// Takes away what was built of an index that did not fit: nobody can use it, and others need the room.
    fn make_room(&self) {
        let complete = self.with(|catalog, _| catalog.number("complete"));
        if let Ok(Some(1)) = complete {
            return;
        }
        *self.kept() = None;
        self.catalogs().clear();
        *self.text() = None;
        if let Err(error) = update::clear(&self.places) {
            tracing::warn!(error = %error, "what was built of the index is still there");
        }
    }

    /// Bytes that are free where the index lies.
    pub(crate) fn room(&self) -> u64 {
        let there = self.places.dir.ancestors().find(|place| place.exists());
        let found = there.and_then(|place| statvfs(place).ok());
        found.map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize))
    }

    /// Looks at every byte of the text part, which is too long a look for every opening of a large one; what is damaged
    /// is built again by the next update.
    pub(crate) fn look_for_damage(&self) {
        if let Ok(false) = self.with_parts(|_, text| text.is_sound()) {
            tracing::warn!("the text part of the index is damaged");
            self.places.mark_damaged();
        }
    }

    /// Why there is no index, or none that is up to date; nothing where all is well.
    pub fn trouble(&self) -> Option<String> {
        self.failure()
            .or_else(|| match update::can_lock(&self.places) {
                Err(error @ (Error::Unwritable(_) | Error::Full(_))) => Some(error.to_string()),
                _ => None,
            })
    }

    /// Why the last update of this process failed.
    pub fn failure(&self) -> Option<String> {
        let trouble = self.trouble.lock();
        trouble.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn remember<T>(&self, update: impl FnOnce() -> Result<T>) -> Result<T> {
        let done = update();
        let trouble = match &done {
            Ok(_) => None,
            // Somebody else is at it, or it was told to stop.
            Err(Error::Busy | Error::Host(_) | Error::Missing) => return done,
            Err(error) => Some(error.to_string()),
        };
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
        done
    }

    /// Brings the index in line with these files, named as the index names them; those it does not know are left alone.
    ///
    /// # Errors
    /// As for [`Index::update`].
    pub fn update_files(&self, roots: &Roots, paths: &[String]) -> Result<Updated> {
        self.remember(|| {
            let kept = self.kept().take();
            let (updated, kept) = Writer::reopen(&self.places, kept)?.update_some(roots, paths)?;
            *self.kept() = kept;
            Ok(updated)
        })
    }

    /// Puts right what updates in a hurry have left for later; to be called when there is time.
    ///
    /// # Errors
    /// As for [`Index::update`].
    pub fn tidy(&self) -> Result<()> {
        *self.kept() = None;
        Writer::open(&self.places)?.tidy()
    }

    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    pub(crate) fn writer(&self) -> Result<Writer> {
        Writer::open(&self.places)
    }

    fn kept(&self) -> MutexGuard<'_, Option<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that the index takes on disk.
    pub fn bytes(&self) -> u64 {
        let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
        let text = fs::read_dir(self.places.text());
        let text: u64 = text
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.metadata().map_or(0, |found| found.len()))
            .sum();
        text + size(&self.places.catalog())
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
        // Files that somebody has tampered with can make a library panic; that is damage like any other.
        let done = catch_unwind(AssertUnwindSafe(|| {
            let (catalog, text) = self.refreshed(&mut open)?;
            work(catalog, &text)
        }));
        let done = done.unwrap_or_else(|_| Err(Error::Damaged("reading it failed".into())));
        if let Err(Error::Damaged(why)) = &done {
            tracing::warn!(why, "the index is damaged");
            *self.text() = None;
            self.places.mark_damaged();
        } else if let Some(open) = open.filter(|_| !matches!(done, Err(Error::Missing))) {
            let mut catalogs = self.catalogs();
            if catalogs.len() < MOST_CATALOGS {
                catalogs.push(open);
            }
        }
        done
    }

    fn catalogs(&self) -> MutexGuard<'_, Vec<OpenCatalog>> {
        self.catalogs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn text(&self) -> MutexGuard<'_, Option<OpenText>> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Both parts as they are now.
    fn refreshed<'c>(
        &self,
        open: &'c mut Option<OpenCatalog>,
    ) -> Result<(&'c Catalog, Arc<TextIndex>)> {
        let mut text = self.text();
        if self.places.marked_damaged() {
            (*open, *text) = (None, None);
            return Err(Error::Missing);
        }
        let inode = Mark::of(&self.places.catalog())
            .ok_or(Error::Missing)?
            .inode;
        let pieces = Mark::of(&self.places.pieces()).ok_or(Error::Missing)?;
        // Another inode is another index, built anew.
        if open.as_ref().is_none_or(|open| open.inode != inode) {
            *open = Some(OpenCatalog {
                catalog: Catalog::open(&self.places.catalog())?,
                inode,
            });
        }
        match text.as_mut().filter(|text| text.inode == inode) {
            Some(text) => {
                if text.at != pieces {
                    text.text.reload()?;
                    text.at = pieces;
                }
            }
            None => {
                *text = Some(OpenText {
                    text: Arc::new(TextIndex::open(&self.places.text())?),
                    inode,
                    at: pieces,
                });
            }
        }
        let catalog = open.as_ref().map(|open| &open.catalog);
        let text = text.as_ref().map(|text| text.text.clone());
        catalog.zip(text).ok_or(Error::Missing)
    }
}

/// A catalogue, and which file it was.
struct OpenCatalog {
    catalog: Catalog,
    inode: u64,
}

/// The text part, of which catalogue's index it was, and the state of its list of pieces.
struct OpenText {
    text: Arc<TextIndex>,
    inode: u64,
    at: Mark,
}

impl std::fmt::Debug for OpenCatalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenCatalog").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for OpenText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenText").field("at", &self.at).finish()
    }
}

/// Tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) inode: u64,
    size: u64,
    mtime: (i64, i64),
}

impl Mark {
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let found = fs::symlink_metadata(path).ok()?;
        found.is_file().then(|| Self {
            inode: found.ino(),
            size: found.size(),
            mtime: (found.mtime(), found.mtime_nsec()),
        })
    }
}

/// Where the parts of an index lie.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    dir: PathBuf,
    /// Why nothing can be kept there.
    closed: Option<String>,
}

impl Places {
    pub(crate) fn catalog(&self) -> PathBuf {
        self.dir.join("catalog.db")
    }

    pub(crate) fn text(&self) -> PathBuf {
        self.dir.join("text")
    }

    /// The text part's list of its pieces.
    pub(crate) fn pieces(&self) -> PathBuf {
        self.text().join("meta.json")
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.dir.join("writer.lock")
    }

    /// What processes are parsing, and what they died on.
    pub(crate) fn parsing(&self) -> PathBuf {
        self.dir.join("parsing")
    }

    fn damaged(&self) -> PathBuf {
        self.dir.join("damaged")
    }

    /// Makes the directory, closed to others.
    pub(crate) fn make(&self) -> Result<()> {
        if let Some(why) = &self.closed {
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

    /// Asks the next writer to begin anew.
    pub(crate) fn mark_damaged(&self) {
        let _ = File::create(self.damaged());
    }

    pub(crate) fn marked_damaged(&self) -> bool {
        self.damaged().exists()
    }

    /// Removes everything but the lock. The caller holds the lock.
    pub(crate) fn clear(&self) -> Result<()> {
        let gone = |done: std::io::Result<()>| match done {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        for suffix in ["", "-wal", "-shm"] {
            let mut path = self.catalog().into_os_string();
            path.push(suffix);
            gone(fs::remove_file(PathBuf::from(path)))?;
        }
        gone(fs::remove_dir_all(self.text()))?;
        gone(fs::remove_file(self.damaged()))?;
        Ok(())
    }
}
