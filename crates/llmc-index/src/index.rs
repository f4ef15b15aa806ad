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

use llmc_host::{Roots, Stop};
use serde::Serialize;

use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::text::{TextIndex, TextSearcher};
use crate::update::{self, Progress, Updated, Writer};

/// Views that are kept open.
const MOST_VIEWS: usize = 4;

/// An index of one workspace. Any number may exist for one directory, in any number of processes.
#[derive(Debug)]
pub struct Index {
    places: Places,
    /// Views that nobody uses now: one for each question that was answered at the same time as others.
    views: Mutex<Vec<View>>,
    progress: Arc<Progress>,
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
            places: Places(dir.to_owned()),
            views: Mutex::default(),
            progress: Arc::default(),
        }
    }

    /// An index that can neither be read nor written: every search goes over the files.
    pub fn nowhere() -> Self {
        // Nothing can ever exist below a device.
        Self::at(Path::new("/dev/null/index"))
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
    pub fn update(&self, roots: &Roots, stop: &Stop) -> Result<Updated> {
        Writer::open(&self.places)?.update_all(roots, &self.progress, stop)
    }

    /// Brings the index in line with these files, named as the index names them; those it does not know are left alone.
    ///
    /// # Errors
    /// As for [`Index::update`].
    pub fn update_files(&self, roots: &Roots, paths: &[String]) -> Result<Updated> {
        Writer::open(&self.places)?.update_some(roots, paths)
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
        self.with_parts(|catalog, text| work(catalog, &text.searcher()))
    }

    /// The same with the text part itself.
    pub(crate) fn with_parts<T>(
        &self,
        work: impl FnOnce(&Catalog, &TextIndex) -> Result<T>,
    ) -> Result<T> {
        let mut view = self.views().pop();
        // Files that somebody has tampered with can make a library panic; that is damage like any other.
        let done = catch_unwind(AssertUnwindSafe(|| {
            let view = self.refreshed(&mut view)?;
            work(&view.catalog, &view.text)
        }));
        let done = done.unwrap_or_else(|_| Err(Error::Damaged("reading it failed".into())));
        if let Err(Error::Damaged(why)) = &done {
            tracing::warn!(why, "the index is damaged");
            self.places.mark_damaged();
        } else if let Some(view) = view {
            let mut views = self.views();
            if views.len() < MOST_VIEWS {
                views.push(view);
            }
        }
        done
    }

    fn views(&self) -> MutexGuard<'_, Vec<View>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refreshed<'v>(&self, view: &'v mut Option<View>) -> Result<&'v View> {
        if self.places.marked_damaged() {
            *view = None;
            return Err(Error::Missing);
        }
        let catalog = Mark::of(&self.places.catalog()).ok_or(Error::Missing)?;
        let text = Mark::of(&self.places.text().join("meta.json")).ok_or(Error::Missing)?;
        if view
            .as_ref()
            .is_some_and(|view| view.at.0.inode != catalog.inode)
        {
            *view = None;
        }
        match view {
            Some(view) => {
                if view.at.1 != text {
                    view.text.reload()?;
                    view.at.1 = text;
                }
            }
            None => {
                *view = Some(View {
                    catalog: Catalog::open(&self.places.catalog())?,
                    text: TextIndex::open(&self.places.text())?,
                    at: (catalog, text),
                });
            }
        }
        view.as_ref().ok_or(Error::Missing)
    }
}

struct View {
    catalog: Catalog,
    text: TextIndex,
    /// The files that were opened: the catalogue's and the text part's list of segments.
    at: (Mark, Mark),
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("at", &self.at).finish()
    }
}

/// Tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    inode: u64,
    size: u64,
    mtime: (i64, i64),
}

impl Mark {
    fn of(path: &Path) -> Option<Self> {
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
pub(crate) struct Places(PathBuf);

impl Places {
    pub(crate) fn catalog(&self) -> PathBuf {
        self.0.join("catalog.db")
    }

    pub(crate) fn text(&self) -> PathBuf {
        self.0.join("text")
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.0.join("writer.lock")
    }

    fn damaged(&self) -> PathBuf {
        self.0.join("damaged")
    }

    /// Makes the directory, closed to others.
    pub(crate) fn make(&self) -> Result<()> {
        if self.0.is_symlink() {
            return Err(Error::Unwritable("its folder is a link".into()));
        }
        Ok(DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.0)?)
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
