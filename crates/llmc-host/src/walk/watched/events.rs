//! What the kernel reports about watched directories.

use std::mem::MaybeUninit;
use std::sync::Arc;

use rustix::fs::inotify::{self, ReadFlags};
use rustix::io::Errno;

use super::listing::parent_of;
use super::{MAX_CHANGED_FILES, TreeChanges, TreeState};
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
                    self.note(event.wd(), event.events(), event.cookie(), name);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return self.lose(),
            }
        }
        if self.changes.files.len() + self.changes.touched.len() > MAX_CHANGED_FILES {
            self.changes = TreeChanges {
                needs_scan: true,
                ..TreeChanges::default()
            };
        }
        self.second_names.limit();
    }

    fn note(&mut self, watch: i32, flags: ReadFlags, cookie: u32, name: &[u8]) {
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
            // The parent of any other directory has an event too. Programs set the attributes of the workspace to what they are.
            match dir.is_empty() && flags.contains(ReadFlags::ATTRIB) {
                true => drop(self.dirty.insert(dir)),
                false if dir.is_empty() => self.lose(),
                false => {}
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
        let mut path = dir.to_vec();
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
        self.forget_file(&dir, name);
        self.second_names.note(&path, flags, cookie);
        if moved {
            self.dirty.insert(dir);
        }
        if is_hidden {
            return;
        }
        if moved || flags.contains(ReadFlags::CLOSE_WRITE) {
            self.changes.files.insert(path);
        } else if flags.contains(ReadFlags::ATTRIB) {
            self.changes.touched.insert(path);
        }
    }

    /// Has the parent of a directory listed again.
    fn relist_parent(&mut self, dir: &[u8]) {
        if dir.is_empty() {
            return self.lose();
        }
        self.dirty.insert(parent_of(dir).into());
        self.changes.needs_scan = true;
    }
}
