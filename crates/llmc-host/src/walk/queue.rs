//! The work of a walk, shared among its threads.
//!
//! One stack behind one lock: an item is a whole directory or a batch of files, so the lock is taken rarely, and last
//! in, first out keeps the walk depth-first and the number of open directories small.

use std::ffi::CString;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::dir::{Dir, NameBatch};
use crate::sync::lock;

pub(super) enum WorkItem {
    /// Read the directory the walk starts from.
    Start(Dir),
    /// Open and read a directory.
    Dir { parent: Arc<Dir>, name: CString },
    /// Visit files of a directory.
    Files { dir: Arc<Dir>, names: NameBatch },
}

#[derive(Default)]
pub(super) struct WorkQueue {
    stack: Mutex<WorkStack>,
    changed: Condvar,
    idle: AtomicUsize,
    /// The number of items, to be read without the lock.
    waiting: AtomicUsize,
}

#[derive(Default)]
struct WorkStack {
    items: Vec<WorkItem>,
    /// Threads at work on an item, which may bring more.
    busy: usize,
    closed: bool,
}

impl WorkQueue {
    pub(super) fn push(&self, items: impl Iterator<Item = WorkItem>) {
        let mut stack = lock(&self.stack);
        let before = stack.items.len();
        stack.items.extend(items);
        let added = stack.items.len() - before;
        self.waiting.store(stack.items.len(), Ordering::Relaxed);
        drop(stack);
        for _ in 0..added.min(self.idle.load(Ordering::Relaxed)) {
            self.changed.notify_one();
        }
    }

    /// The first item of a thread.
    pub(super) fn first(&self) -> Option<WorkItem> {
        self.take(lock(&self.stack))
    }

    /// The next item of a thread that has done its last one. `None` means that all is done.
    pub(super) fn next(&self) -> Option<WorkItem> {
        let mut stack = lock(&self.stack);
        stack.busy -= 1;
        self.take(stack)
    }

    /// Whether a thread waits for work and there is none.
    pub(super) fn is_short(&self) -> bool {
        self.idle.load(Ordering::Relaxed) > 0 && self.waiting.load(Ordering::Relaxed) == 0
    }

    /// Drops all work; every thread ends at its next request.
    pub(super) fn close(&self) {
        let mut stack = lock(&self.stack);
        stack.closed = true;
        let items = std::mem::take(&mut stack.items);
        drop(stack);
        drop(items);
        self.changed.notify_all();
    }

    fn take(&self, mut stack: MutexGuard<'_, WorkStack>) -> Option<WorkItem> {
        loop {
            if stack.closed {
                return None;
            }
            if let Some(item) = stack.items.pop() {
                stack.busy += 1;
                self.waiting.store(stack.items.len(), Ordering::Relaxed);
                return Some(item);
            }
            if stack.busy == 0 {
                self.changed.notify_all();
                return None;
            }
            self.idle.fetch_add(1, Ordering::Relaxed);
            stack = self
                .changed
                .wait(stack)
                .unwrap_or_else(PoisonError::into_inner);
            self.idle.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
