//! Updates the index: one writer at a time, in steps that survive a crash.
//!
//! A step first commits the catalogue and then the text part, under one growing generation. If the process is killed between
//! the two, the next writer sees that the text part is behind, removes what the catalogue has added since, and lets the
//! update add it again. A reader meanwhile ignores what only one of the two has.
#![allow(
    clippy::disallowed_methods,
    reason = "opens and clears the index's own files, not the agent's"
)]

mod change_finder;

use std::collections::HashSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use llmc_host::walk::{self, FileVisitor, VisitOutcome};
use llmc_host::{CancelToken, Roots, open_private};
use llmc_trigrams::WalkExtent;

use crate::byte_limit::ByteLimit;
use crate::catalog::{Catalog, unit_id};
use crate::contents::{TrigramPass, TrigramScratch};
use crate::error::{Error, Result};
use crate::index::{FileVersion, IndexPaths};
use crate::prepare::{FileChange, FileLook, PreparedFile, look_at};
use crate::progress::IndexProgress;
use crate::text::{TextIndex, TextWriter, WriteScale};
use change_finder::{ChangeFinder, ChangeQueue, QueuedChange};

/// A step is committed after this many files or bytes; a crash costs at most one step.
const STEP_FILES: usize = 8000;
const STEP_BYTES: u64 = 24 << 20;
/// The first build also commits after this time, and then after twice as long each time up to the maximum, because
/// questions are answered from what it has committed.
const FIRST_STEP_TIME: Duration = Duration::from_millis(500);
const MAX_STEP_TIME: Duration = Duration::from_secs(10);
/// How often an update that waits for files checks whether the walk has ended.
const WALK_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Prepared files that wait for the writer, and about how much memory they take: enough for the threads of the walk to go on
/// while it commits.
const MAX_QUEUED_FILES: usize = 2000;
const MAX_QUEUED_BYTES: usize = 8 << 20;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UpdateReport {
    pub files: u64,
    /// New or changed files.
    pub changed: u64,
    pub removed: u64,
    /// Bytes of the new or changed files.
    pub bytes: u64,
}

/// The text part is merged from this many segments on.
const MERGE_SEGMENTS: usize = 8;

/// Both parts of an index, kept open between updates.
pub(crate) struct IdleWriter {
    catalog: Catalog,
    text: TextIndex,
    /// Of the catalogue's file and of the text part's list of segments.
    versions: (FileVersion, FileVersion),
}

impl std::fmt::Debug for IdleWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdleWriter")
            .field("versions", &self.versions)
            .finish()
    }
}

/// Writes the index; holds the lock until dropped.
pub(crate) struct UpdateWriter {
    paths: IndexPaths,
    catalog: Catalog,
    text: TextIndex,
    size: WriteScale,
    out: Option<TextWriter>,
    generation: i64,
    /// The open transaction.
    step: Option<OpenStep>,
    /// A step is committed after this time.
    step_time: Duration,
    report: UpdateReport,
    _lock: File,
}

struct OpenStep {
    since: Instant,
    files: usize,
    bytes: u64,
    /// Whether the text part changes too.
    text: bool,
}

impl OpenStep {
    fn begin() -> OpenStep {
        OpenStep {
            since: Instant::now(),
            files: 0,
            bytes: 0,
            text: false,
        }
    }
}

impl UpdateWriter {
    /// Takes the lock and opens both parts; an unusable index is removed and begun again.
    pub(crate) fn open(paths: &IndexPaths) -> Result<Self> {
        Self::reopen(paths, None)
    }

    /// The same with the parts that are still open, if no other process has written since.
    pub(crate) fn reopen(paths: &IndexPaths, idle: Option<IdleWriter>) -> Result<Self> {
        let lock = lock(paths)?;
        if paths.is_marked_damaged() {
            paths.clear()?;
        } else if let Some(idle) = idle.filter(|idle| idle.is_current(paths)) {
            return Self::reconciled(paths, idle.catalog, idle.text, lock);
        }
        match Self::open_parts(paths) {
            Ok((catalog, text)) => Self::reconciled(paths, catalog, text, lock),
            Err(Error::Damaged(why)) => {
                tracing::warn!(why, "the index is built again");
                paths.clear()?;
                let (catalog, text) = Self::open_parts(paths)?;
                Self::reconciled(paths, catalog, text, lock)
            }
            Err(error) => Err(error),
        }
    }

    fn open_parts(paths: &IndexPaths) -> Result<(Catalog, TextIndex)> {
        let catalog = Catalog::open_for_writing(&paths.catalog())?;
        let text = TextIndex::open_or_create(&paths.text())?;
        let known = catalog.number("generation")?.unwrap_or(0);
        match text.generation()? {
            // After a crash the catalogue is ahead, never behind.
            Some(done) if done > known => Err(Error::Damaged("its parts do not match".into())),
            None if known > 1 => Err(Error::Damaged("its text part is gone".into())),
            _ => Ok((catalog, text)),
        }
    }

    fn reconciled(
        paths: &IndexPaths,
        catalog: Catalog,
        text: TextIndex,
        lock: File,
    ) -> Result<Self> {
        let generation = catalog.number("generation")?.unwrap_or(0);
        let done = text.generation()?.unwrap_or(0);
        let step_time = match catalog.number("complete")? {
            Some(1) => Duration::MAX,
            _ => FIRST_STEP_TIME,
        };
        let mut writer = Self {
            paths: paths.clone(),
            catalog,
            text,
            size: WriteScale::Many,
            out: None,
            generation,
            step: None,
            step_time,
            report: UpdateReport::default(),
            _lock: lock,
        };
        if done < generation {
            let lost = writer.catalog.newer_than(done)?;
            tracing::info!(files = lost.len(), "an interrupted update is resumed");
            writer.begin(0)?;
            writer.out()?;
            for id in lost {
                writer.catalog.remove(id)?;
            }
            writer.commit()?;
        }
        Ok(writer)
    }

    /// Opens a step if none is open.
    fn begin(&mut self, bytes: u64) -> Result<()> {
        if self.step.is_none() {
            self.catalog.begin()?;
        }
        let step = self.step.get_or_insert_with(OpenStep::begin);
        step.files += 1;
        step.bytes += bytes;
        Ok(())
    }

    /// The text part's writer, opened at its first use: an update without changes needs none.
    fn out(&mut self) -> Result<&mut TextWriter> {
        if let Some(step) = &mut self.step {
            step.text = true;
        }
        if self.out.is_none() {
            self.out = Some(self.text.writer(self.size)?);
        }
        self.out.as_mut().ok_or(Error::Busy)
    }

    fn commit(&mut self) -> Result<()> {
        let Some(step) = &self.step else {
            return Ok(());
        };
        if !step.text {
            self.catalog.commit()?;
            self.step = None;
            return Ok(());
        }
        let dead = self.catalog.removed_files()?;
        let out = self.out()?;
        for file in dead {
            out.remove(file);
        }
        self.generation += 1;
        self.catalog.set_number("generation", self.generation)?;
        self.catalog.set_number("updated", now())?;
        self.catalog.commit()?;
        self.step = None;
        let generation = self.generation;
        self.out()?.commit(generation)?;
        // If this is lost they are removed once more, which is harmless.
        self.catalog.clear_removed_files()
    }

    fn add_file(&mut self, prepared: PreparedFile) -> Result<()> {
        let PreparedFile {
            file,
            parts,
            words,
            old,
        } = prepared;
        // What is not indexed is only a row.
        let bytes = match file.skipped {
            Some(_) => 0,
            None => file.stamp.size,
        };
        self.begin(bytes)?;
        if let Some(old) = old {
            self.catalog.remove(old)?;
        }
        let id = self.catalog.add(&file, &parts, self.generation + 1)?;
        let out = self.out()?;
        for (place, words) in words.into_iter().enumerate() {
            let unit = u64::try_from(unit_id(id, place)).unwrap_or(0);
            out.add(id, unit, file.realm, words)?;
        }
        self.report.changed += 1;
        self.report.bytes += file.stamp.size;
        let is_full = self
            .step
            .as_ref()
            .is_some_and(|step| step.files >= STEP_FILES || step.bytes >= STEP_BYTES);
        if is_full || self.step_time_left() == Some(Duration::ZERO) {
            self.end_step()?;
        }
        Ok(())
    }

    /// The time until the open step is committed, where steps are limited in time.
    fn step_time_left(&self) -> Option<Duration> {
        let step = self.step.as_ref()?;
        let is_limited = self.step_time < Duration::MAX;
        is_limited.then(|| self.step_time.saturating_sub(step.since.elapsed()))
    }

    /// How long to wait for the next file. What is ready is committed even if the walk is busy with large files.
    fn next_wait(&self) -> Duration {
        let left = self.step_time_left();
        left.map_or(WALK_POLL_INTERVAL, |left| left.min(WALK_POLL_INTERVAL))
    }

    /// Commits the open step and lets the next one last longer.
    fn end_step(&mut self) -> Result<()> {
        self.commit()?;
        if self.step_time < MAX_STEP_TIME {
            self.step_time *= 2;
        }
        Ok(())
    }

    fn remove_file(&mut self, id: u64) -> Result<()> {
        self.begin(0)?;
        self.out()?;
        self.catalog.remove(id)?;
        self.report.removed += 1;
        Ok(())
    }

    fn apply(&mut self, found: FileChange, seen: &mut HashSet<u64>) -> Result<()> {
        self.report.files += 1;
        match found {
            FileChange::Same(id) => {
                seen.insert(id);
            }
            FileChange::Touched(id, stamp) => {
                seen.insert(id);
                self.begin(0)?;
                self.catalog.touch(id, stamp)?;
            }
            FileChange::Changed(prepared) => {
                seen.extend(prepared.old);
                self.add_file(*prepared)?;
            }
        }
        Ok(())
    }

    pub(crate) fn update_all(
        mut self,
        roots: &Roots,
        progress: &Arc<IndexProgress>,
        trigrams: &Arc<TrigramPass>,
        stop: &CancelToken,
    ) -> Result<UpdateReport> {
        let known = Arc::new(self.catalog.indexed_files()?);
        let dir = roots.open_dir(".")?;
        let options = dir.walk_options(roots)?;
        if self.catalog.number("complete")? != Some(1) {
            count_files(&dir.fd, &options, progress, stop);
            // For the answers of all servers.
            let total = i64::try_from(progress.total()).unwrap_or(i64::MAX);
            self.catalog.set_number("total", total)?;
        }
        let (sender, receiver) = sync_channel::<QueuedChange>(MAX_QUEUED_FILES);
        let room = Arc::new(ByteLimit::new(MAX_QUEUED_BYTES));
        let walking = {
            let (known, progress, stop) = (known.clone(), progress.clone(), stop.clone());
            let trigrams = trigrams.clone();
            std::thread::Builder::new()
                .name("index-walk".into())
                .spawn(move || {
                    walk::walk(&dir.fd, &options, &stop, || ChangeFinder {
                        trigrams: trigrams.clone(),
                        scratch: TrigramScratch::default(),
                        known: known.clone(),
                        progress: progress.clone(),
                        queue: ChangeQueue {
                            room: room.clone(),
                            sender: sender.clone(),
                        },
                    })
                })?
        };
        let mut seen = HashSet::with_capacity(known.len());
        let mut failed = Ok(());
        while failed.is_ok() {
            failed = match receiver.recv_timeout(self.next_wait()) {
                Ok(QueuedChange {
                    change,
                    room: _room,
                }) => self.apply(change, &mut seen),
                // A thread of a cancelled walk may hold its end for as long as a parser takes.
                Err(RecvTimeoutError::Timeout) if walking.is_finished() => break,
                Err(RecvTimeoutError::Timeout) if self.step_time_left() == Some(Duration::ZERO) => {
                    self.end_step()
                }
                Err(RecvTimeoutError::Timeout) => Ok(()),
                Err(RecvTimeoutError::Disconnected) => break,
            };
        }
        drop(receiver);
        // The walk ends when one of its threads finds the channel closed.
        let walked = walking
            .join()
            .map_err(|_| Error::Unwritable("the walk failed".into()))??;
        failed?;
        if !walked.complete {
            trigrams.finish(WalkExtent::Part);
            self.finish()?;
            stop.check()?;
            return Err(Error::Unwritable("the walk did not end".into()));
        }
        for gone in known.values().filter(|known| !seen.contains(&known.id)) {
            self.remove_file(gone.id)?;
        }
        // Readers may rely on the index only when both parts are complete.
        self.commit()?;
        if self.catalog.number("complete")? != Some(1) {
            self.begin(0)?;
            self.catalog.set_number("complete", 1)?;
            self.commit()?;
        }
        trigrams.finish(WalkExtent::Whole);
        self.finish()
    }

    /// Updates these files only, named as the index names them; unknown ones are left to [`UpdateWriter::update_all`].
    /// Also returns what can stay open for the next update.
    pub(crate) fn update_some(
        mut self,
        roots: &Roots,
        paths: &[String],
    ) -> Result<(UpdateReport, Option<IdleWriter>)> {
        self.size = WriteScale::Few;
        self.catalog.disable_auto_checkpoint()?;
        let mut seen = HashSet::new();
        for path in paths {
            let Some(known) = self.catalog.indexed_file(path)? else {
                continue;
            };
            match roots.open_file(path) {
                Ok(file) => {
                    let file = file.into_file();
                    let look = match rustix::fs::fstat(&file) {
                        Ok(stat) => look_at(path.clone(), file, &stat, Some(&known)),
                        Err(_) => continue,
                    };
                    let found = match look {
                        FileLook::Unchanged(found) => found,
                        FileLook::Changed(read) => read.prepare(),
                    };
                    self.apply(found, &mut seen)?;
                }
                Err(_) => self.remove_file(known.id)?,
            }
        }
        self.close()?;
        let paths = self.paths.clone();
        let versions =
            FileVersion::of(&paths.catalog()).zip(FileVersion::of(&paths.segment_list()));
        let idle = versions.map(|versions| IdleWriter {
            catalog: self.catalog,
            text: self.text,
            versions,
        });
        Ok((self.report, idle))
    }

    /// Merges the segments that small updates leave, and checkpoints the catalogue.
    pub(crate) fn tidy(mut self) -> Result<()> {
        if self.text.segments()? >= MERGE_SEGMENTS {
            self.begin(0)?;
            self.out()?;
            self.commit()?;
        }
        self.catalog.checkpoint()?;
        self.finish().map(|_| ())
    }

    /// Removes the vectors of any other model.
    pub(crate) fn use_model(self, model: i64) -> Result<()> {
        if self.catalog.number("embedding")? == Some(model) {
            return Ok(());
        }
        self.catalog.begin()?;
        self.catalog.forget_vectors()?;
        self.catalog.set_number("embedding", model)?;
        self.catalog.commit()
    }

    pub(crate) fn put_vectors(self, vectors: &[(i64, Vec<u8>)]) -> Result<()> {
        self.catalog.begin()?;
        self.catalog.put_vectors(vectors)?;
        self.catalog.commit()
    }

    fn finish(mut self) -> Result<UpdateReport> {
        self.close()?;
        Ok(self.report)
    }

    fn close(&mut self) -> Result<()> {
        let done = self.commit();
        if done.is_err() {
            self.catalog.roll_back();
        }
        done?;
        match self.out.take() {
            Some(out) => out.finish(),
            None => Ok(()),
        }
    }
}

impl IdleWriter {
    fn is_current(&self, paths: &IndexPaths) -> bool {
        let now = FileVersion::of(&paths.catalog()).zip(FileVersion::of(&paths.segment_list()));
        now.is_some_and(|now| now.0.inode == self.versions.0.inode && now.1 == self.versions.1)
    }
}

/// Whether the directory can be written.
pub(crate) fn can_lock(paths: &IndexPaths) -> Result<()> {
    open_lock(paths).map(|_| ())
}

/// Removes everything but the lock.
pub(crate) fn clear(paths: &IndexPaths) -> Result<()> {
    let _lock = lock(paths)?;
    paths.clear()
}

fn open_lock(paths: &IndexPaths) -> Result<File> {
    paths.create_dir()?;
    Ok(open_private(&paths.lock())?)
}

pub(crate) fn lock(paths: &IndexPaths) -> Result<File> {
    let file = open_lock(paths)?;
    // `is_locked` of another process holds the lock for a moment.
    for _ in 0..50 {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
    }
    Err(Error::Busy)
}

/// Whether a process is writing the index.
pub(crate) fn is_locked(path: &Path) -> bool {
    let Ok(file) = OpenOptions::new().read(true).open(path) else {
        return false;
    };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_secs()).unwrap_or(0)
}

fn count_files(
    fd: &OwnedFd,
    options: &walk::WalkOptions,
    progress: &Arc<IndexProgress>,
    stop: &CancelToken,
) {
    struct FileCounter(Arc<IndexProgress>);
    impl FileVisitor for FileCounter {
        fn visit(&mut self, _: &walk::WalkFile<'_>) -> VisitOutcome {
            self.0.count();
            VisitOutcome::Done
        }
    }
    // Only for the progress display; the update itself reports errors.
    let _ = walk::walk(fd, options, stop, || FileCounter(progress.clone()));
}
