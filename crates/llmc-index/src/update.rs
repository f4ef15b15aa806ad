//! Brings the index in line with the files: one writer at a time, in steps that a crash cannot tear.
//!
//! A step first commits the catalogue and then the text part, under one growing generation. If the process dies between
//! the two, the next writer sees the text part lag behind, takes out what the catalogue had put in since, and lets the
//! update put it in again. A reader meanwhile drops what only one of the two knows.
#![allow(
    clippy::disallowed_methods,
    reason = "opens and clears the index's own files, not the agent's"
)]

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use llmc_host::walk::{self, FileVisitor, VisitOutcome};
use llmc_host::{CancelToken, Roots, names};
use rustix::fs::Stat;

use crate::catalog::{Catalog, Known, unit_id};
use crate::error::{Error, Result};
use crate::index::{Mark, Places};
use crate::prepare::{Found, Prepared, look_at};
use crate::progress::Progress;
use crate::text::{Size, TextIndex, TextWriter};

/// Files and bytes after which a step is committed; a crash costs at most one step.
const STEP_FILES: usize = 4000;
const STEP_BYTES: u64 = 48 << 20;
/// Prepared files that wait for the writer.
const QUEUE: usize = 16;

/// What an update did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Updated {
    /// Files looked at.
    pub files: u64,
    /// Files put in, new or changed.
    pub changed: u64,
    /// Files taken out.
    pub removed: u64,
    /// Bytes of the files put in.
    pub bytes: u64,
}

/// Pieces of the text part from which on it is tidied.
const MANY_PIECES: usize = 8;

/// Both parts of an index, open for writing, while nobody writes.
pub(crate) struct Kept {
    catalog: Catalog,
    text: TextIndex,
    /// The state they were left in: the catalogue's file, and the text part's list of pieces.
    at: (Mark, Mark),
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").field("at", &self.at).finish()
    }
}

/// The one who may write: holds the lock until dropped.
pub(crate) struct Writer {
    places: Places,
    catalog: Catalog,
    text: TextIndex,
    size: Size,
    out: Option<TextWriter>,
    generation: i64,
    /// What stands in the open transaction.
    step: Option<Step>,
    updated: Updated,
    _lock: File,
}

#[derive(Default)]
struct Step {
    files: usize,
    bytes: u64,
    /// Whether the text part changes too.
    text: bool,
}

impl Writer {
    /// Takes the lock and opens both parts; what cannot be used is cleared away and begun anew.
    pub(crate) fn open(places: &Places) -> Result<Self> {
        Self::reopen(places, None)
    }

    /// The same with what is still open from the last time, if nobody has written since.
    pub(crate) fn reopen(places: &Places, kept: Option<Kept>) -> Result<Self> {
        let lock = lock(places)?;
        if places.marked_damaged() {
            places.clear()?;
        } else if let Some(kept) = kept.filter(|kept| kept.is_as_left(places)) {
            return Self::reconciled(places, kept.catalog, kept.text, lock);
        }
        match Self::open_parts(places) {
            Ok((catalog, text)) => Self::reconciled(places, catalog, text, lock),
            Err(Error::Damaged(why)) => {
                tracing::warn!(why, "the index is built again");
                places.clear()?;
                let (catalog, text) = Self::open_parts(places)?;
                Self::reconciled(places, catalog, text, lock)
            }
            Err(error) => Err(error),
        }
    }

    fn open_parts(places: &Places) -> Result<(Catalog, TextIndex)> {
        let catalog = Catalog::open_for_writing(&places.catalog())?;
        let text = TextIndex::open_or_make(&places.text())?;
        let known = catalog.number("generation")?.unwrap_or(0);
        match text.generation()? {
            // The catalogue is ahead by what a crash left out, never behind.
            Some(done) if done > known => Err(Error::Damaged("its parts do not match".into())),
            None if known > 1 => Err(Error::Damaged("its text part is gone".into())),
            _ => Ok((catalog, text)),
        }
    }

    fn reconciled(places: &Places, catalog: Catalog, text: TextIndex, lock: File) -> Result<Self> {
        let generation = catalog.number("generation")?.unwrap_or(0);
        let done = text.generation()?.unwrap_or(0);
        let size = if generation == 0 {
            Size::Build
        } else {
            Size::Update
        };
        let mut writer = Self {
            places: places.clone(),
            catalog,
            text,
            size,
            out: None,
            generation,
            step: None,
            updated: Updated::default(),
            _lock: lock,
        };
        if done < generation {
            let lost = writer.catalog.newer_than(done)?;
            tracing::info!(files = lost.len(), "an interrupted update is taken up");
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
        let step = self.step.get_or_insert_default();
        step.files += 1;
        step.bytes += bytes;
        Ok(())
    }

    /// The text part's writer, opened at its first use: an update that changes nothing never needs it.
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
        let dead = self.catalog.dead()?;
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
        // If this is lost they are taken out once more, which does no harm.
        self.catalog.forget_dead()
    }

    fn put(&mut self, prepared: Prepared) -> Result<()> {
        let Prepared {
            file,
            cut,
            words,
            old,
        } = prepared;
        self.begin(file.stamp.size)?;
        if let Some(old) = old {
            self.catalog.remove(old)?;
        }
        let id = self.catalog.add(&file, &cut, self.generation + 1)?;
        let out = self.out()?;
        for (place, words) in words.into_iter().enumerate() {
            let unit = u64::try_from(unit_id(id, place)).unwrap_or(0);
            out.add(id, unit, file.realm, words)?;
        }
        self.updated.changed += 1;
        self.updated.bytes += file.stamp.size;
        let full = |step: &Step| step.files >= STEP_FILES || step.bytes >= STEP_BYTES;
        if self.step.as_ref().is_some_and(full) {
            self.commit()?;
        }
        Ok(())
    }

    fn take_out(&mut self, id: u64) -> Result<()> {
        self.begin(0)?;
        self.out()?;
        self.catalog.remove(id)?;
        self.updated.removed += 1;
        Ok(())
    }

    fn handle(&mut self, found: Found, seen: &mut HashSet<u64>) -> Result<()> {
        self.updated.files += 1;
        match found {
            Found::Same(id) => {
                seen.insert(id);
            }
            Found::Touched(id, stamp) => {
                seen.insert(id);
                self.begin(0)?;
                self.catalog.touch(id, stamp)?;
            }
            Found::Changed(prepared) => {
                seen.extend(prepared.old);
                self.put(*prepared)?;
            }
        }
        Ok(())
    }

    /// Looks at every file of the workspace.
    pub(crate) fn update_all(
        mut self,
        roots: &Roots,
        progress: &Arc<Progress>,
        stop: &CancelToken,
    ) -> Result<Updated> {
        let known = Arc::new(self.catalog.known()?);
        let dir = roots.open_dir(".")?;
        let options = dir.walk_options(roots)?;
        if known.is_empty() {
            count_files(&dir.fd, &options, progress, stop);
        }
        let (sender, receiver) = sync_channel::<Found>(QUEUE);
        let walking = {
            let (known, progress, stop) = (known.clone(), progress.clone(), stop.clone());
            std::thread::Builder::new()
                .name("index-walk".into())
                .spawn(move || {
                    walk::walk(&dir.fd, &options, &stop, || Looker {
                        known: known.clone(),
                        progress: progress.clone(),
                        sender: sender.clone(),
                    })
                })?
        };
        let mut seen = HashSet::with_capacity(known.len());
        let mut failed = Ok(());
        for found in receiver {
            failed = self.handle(found, &mut seen);
            if failed.is_err() {
                break;
            }
        }
        // The walk's threads find the channel closed and end, whatever they had left.
        let walked = walking
            .join()
            .map_err(|_| Error::Unwritable("the walk failed".into()))??;
        failed?;
        if !walked.complete {
            self.finish()?;
            stop.check()?;
            return Err(Error::Unwritable("the walk did not end".into()));
        }
        for gone in known.values().filter(|known| !seen.contains(&known.id)) {
            self.take_out(gone.id)?;
        }
        // Only when both parts hold everything may readers rely on them.
        self.commit()?;
        if self.catalog.number("complete")? != Some(1) {
            self.begin(0)?;
            self.catalog.set_number("complete", 1)?;
        }
        self.finish()
    }

    /// Looks at these files only; they are named as the index names them. Unknown ones are left to [`Writer::update_all`].
    /// Also what can be kept open for the next time.
    pub(crate) fn update_some(
        mut self,
        roots: &Roots,
        paths: &[String],
    ) -> Result<(Updated, Option<Kept>)> {
        self.size = Size::Few;
        self.catalog.leave_log_alone()?;
        let mut seen = HashSet::new();
        for path in paths {
            let Some(known) = self.catalog.known_of(path)? else {
                continue;
            };
            match roots.open_file(path) {
                Ok(file) => {
                    let file = file.into_file();
                    let found = match rustix::fs::fstat(&file) {
                        Ok(stat) => look_at(path.clone(), file, &stat, Some(&known)),
                        Err(_) => continue,
                    };
                    self.handle(found, &mut seen)?;
                }
                Err(_) => self.take_out(known.id)?,
            }
        }
        self.close()?;
        let places = self.places.clone();
        let at = Mark::of(&places.catalog()).zip(Mark::of(&places.pieces()));
        let kept = at.map(|at| Kept {
            catalog: self.catalog,
            text: self.text,
            at,
        });
        Ok((self.updated, kept))
    }

    /// Joins the pieces that small updates leave behind, and takes the catalogue's log into its file.
    pub(crate) fn tidy(mut self) -> Result<()> {
        if self.text.pieces()? >= MANY_PIECES {
            self.begin(0)?;
            self.out()?;
            self.commit()?;
        }
        self.catalog.take_log_in()?;
        self.finish().map(|_| ())
    }

    /// Makes room for the vectors of a model; those of another are of no use.
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

    fn finish(mut self) -> Result<Updated> {
        self.close()?;
        Ok(self.updated)
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

impl Kept {
    fn is_as_left(&self, places: &Places) -> bool {
        let now = Mark::of(&places.catalog()).zip(Mark::of(&places.pieces()));
        now.is_some_and(|now| now.0.inode == self.at.0.inode && now.1 == self.at.1)
    }
}

/// Whether the place can be written at all.
pub(crate) fn can_lock(places: &Places) -> Result<()> {
    open_lock(places).map(|_| ())
}

/// Takes away everything but the lock.
pub(crate) fn clear(places: &Places) -> Result<()> {
    let _lock = lock(places)?;
    places.clear()
}

fn open_lock(places: &Places) -> Result<File> {
    places.make()?;
    Ok(OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0))
        .open(places.lock())?)
}

fn lock(places: &Places) -> Result<File> {
    let file = open_lock(places)?;
    // Who only asks whether somebody writes holds the lock for a moment.
    for _ in 0..50 {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
    }
    Err(Error::Busy)
}

/// Whether somebody is writing the index now.
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
    progress: &Arc<Progress>,
    stop: &CancelToken,
) {
    struct Counter(Arc<Progress>);
    impl FileVisitor for Counter {
        fn visit(&mut self, _: &walk::WalkFile<'_>) -> VisitOutcome {
            self.0.count();
            VisitOutcome::Done
        }
    }
    // Only for show: what goes wrong here goes wrong again where it matters.
    let _ = walk::walk(fd, options, stop, || Counter(progress.clone()));
}

/// One thread of the walk.
struct Looker {
    known: Arc<HashMap<String, Known>>,
    progress: Arc<Progress>,
    sender: SyncSender<Found>,
}

impl FileVisitor for Looker {
    fn visit(&mut self, file: &walk::WalkFile<'_>) -> VisitOutcome {
        let path = names::escape(file.path());
        let opened: llmc_host::Result<(OwnedFd, Stat)> = file.open();
        self.progress.step();
        let Ok((fd, stat)) = opened else {
            return VisitOutcome::Unreadable;
        };
        let known = self.known.get(&path);
        let found = look_at(path, File::from(fd), &stat, known);
        match self.sender.send(found) {
            Ok(()) => VisitOutcome::Done,
            Err(_) => VisitOutcome::Stopped,
        }
    }
}
