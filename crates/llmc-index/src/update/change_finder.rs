//! The threads of an update's walk: they compare files with the index and pass changed ones to the writer.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use llmc_host::names;
use llmc_host::walk::{self, FileVisitor, VisitOutcome};
use rustix::fs::Stat;

use crate::byte_limit::{ByteLimit, TakenBytes};
use crate::catalog::IndexedFile;
use crate::contents::{TrigramPass, TrigramScratch};
use crate::prepare::{FileChange, FileLook, look_at};
use crate::progress::IndexProgress;

/// Finds changed files, on one thread of the walk.
pub(super) struct ChangeFinder {
    pub(super) trigrams: Arc<TrigramPass>,
    pub(super) scratch: TrigramScratch,
    pub(super) known: Arc<HashMap<String, IndexedFile>>,
    pub(super) progress: Arc<IndexProgress>,
    pub(super) queue: ChangeQueue,
}

/// The way to the writer.
pub(super) struct ChangeQueue {
    pub(super) room: Arc<ByteLimit>,
    pub(super) sender: SyncSender<QueuedChange>,
}

/// A prepared file that waits for the writer.
pub(super) struct QueuedChange {
    pub(super) change: FileChange,
    pub(super) room: TakenBytes,
}

/// The writer has ended.
struct QueueClosed;

impl ChangeQueue {
    fn send(&self, change: FileChange) -> std::result::Result<(), QueueClosed> {
        let room = self.room.take(change.bytes());
        let sent = self.sender.send(QueuedChange { change, room });
        sent.map_err(|_| QueueClosed)
    }
}

impl FileVisitor for ChangeFinder {
    fn visit(&mut self, file: &walk::WalkFile<'_>) -> VisitOutcome {
        let path = names::escape(file.path());
        let opened: llmc_host::Result<(OwnedFd, Stat)> = file.open();
        self.progress.step();
        let Ok((fd, stat)) = opened else {
            return VisitOutcome::Unreadable;
        };
        let (trigrams, scratch) = (&self.trigrams, &mut self.scratch);
        trigrams.visit(file.path(), &fd, &stat, scratch);
        let known = self.known.get(&path);
        let change = match look_at(path, File::from(fd), &stat, known) {
            FileLook::Unchanged(change) => change,
            FileLook::Changed(read) => read.prepare(),
        };
        match self.queue.send(change) {
            Ok(()) => VisitOutcome::Done,
            Err(QueueClosed) => VisitOutcome::Stopped,
        }
    }
}
