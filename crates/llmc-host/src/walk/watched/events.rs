//! What the kernel reports about watched directories.

use std::mem::MaybeUninit;
use std::sync::Arc;

use rustix::fs::inotify::{self, ReadFlags};
use rustix::io::Errno;

use super::TreeState;
use super::listing::parent_of;
use crate::rules::STATE_DIR;

impl TreeState {
    /// Reads the events that have arrived.
    pub(super) fn read_events(&mut self) {
        let mut buffer = vec![MaybeUninit::uninit(); 64 << 10];
        let inotify = Arc::clone(&self.inotify);
        let mut reader = inotify::Reader::new(&*inotify, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event
                        .file_name()
                        .map_or(&[] as &[u8], |name| name.to_bytes());
                    self.note(event.wd(), event.events(), name);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => return self.lose(),
            }
        }
    }

    fn note(&mut self, watch: i32, flags: ReadFlags, name: &[u8]) {
        if flags.intersects(ReadFlags::QUEUE_OVERFLOW | ReadFlags::UNMOUNT) {
            return self.lose();
        }
        let Some(dir) = self.watches.get(&watch).cloned() else {
            return;
        };
        if flags.contains(ReadFlags::IGNORED) {
            // The directory is gone; an event of its parent may come later.
            self.watches.remove(&watch);
            if self
                .dirs
                .get(&dir)
                .is_some_and(|known| known.watch == watch)
            {
                self.forget(&dir);
                self.relist_parent(&dir);
            }
            return;
        }
        if name.is_empty() {
            // The parent of any other directory has an event too.
            if dir.is_empty() {
                self.lose();
            }
            return;
        }
        if matches!(name, b".gitignore" | b".ignore" | b".git") {
            return self.lose();
        }
        let moved = flags.intersects(
            ReadFlags::CREATE | ReadFlags::DELETE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO,
        );
        if name.eq_ignore_ascii_case(STATE_DIR.as_bytes()) {
            // It is hidden; only that it came or went counts.
            if moved {
                self.dirty.insert(dir);
            }
            return;
        }
        let mut path = dir.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let is_hidden = name.starts_with(b".");
        if flags.contains(ReadFlags::ISDIR) {
            // Also when its rights changed: it may have become readable, or not readable.
            self.forget(&path);
            self.dirty.insert(dir);
            self.changes.needs_scan |= !is_hidden;
            return;
        }
        if moved {
            self.dirty.insert(dir);
        }
        if !is_hidden && (moved || flags.contains(ReadFlags::CLOSE_WRITE)) {
            self.changes.files.insert(path);
        }
    }

    /// Has the parent of a directory listed again.
    fn relist_parent(&mut self, dir: &[u8]) {
        if dir.is_empty() {
            return self.lose();
        }
        let parent = parent_of(dir).to_vec();
        self.dirty.insert(parent);
        self.changes.needs_scan = true;
    }
}
