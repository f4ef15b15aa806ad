//! Files that get a second name while they are watched.
//!
//! What is written through one name of a file is reported for that name only, and which other name it has is not known. So when a
//! name comes that belongs to a file with several, every file of the tree is looked at again, and those with several names each
//! time. A name that was written through and is gone before it could be looked at counts the same.

use std::collections::{HashMap, HashSet};

use rustix::fs::inotify::ReadFlags;
use rustix::fs::{FileType, Stat};

use super::{MAX_CHANGED_FILES, TreeState};

/// Names that came since the last look.
#[derive(Debug, Default)]
pub(super) struct SecondNames {
    /// Relative to the workspace, and whether they were written through.
    fresh: HashMap<Vec<u8>, bool>,
    /// Moves of such names out of their directories, by the numbers that the kernel gave them.
    moving: HashSet<u32>,
    /// Whether a name that was written through is gone.
    is_any_gone: bool,
}

impl SecondNames {
    /// Takes in an event for a name that is no directory.
    pub(super) fn note(&mut self, path: &[u8], flags: ReadFlags, cookie: u32) {
        if flags.contains(ReadFlags::MODIFY)
            && let Some(is_written) = self.fresh.get_mut(path)
        {
            *is_written = true;
        }
        if flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM)
            && self.fresh.remove(path) == Some(true)
        {
            match flags.contains(ReadFlags::MOVED_FROM) {
                true => drop(self.moving.insert(cookie)),
                false => self.is_any_gone = true,
            }
        }
        if flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            let is_written = flags.contains(ReadFlags::MOVED_TO) && self.moving.remove(&cookie);
            self.fresh.insert(path.to_vec(), is_written);
        }
    }

    /// Gives up on single names when there are many.
    pub(super) fn limit(&mut self) {
        if self.fresh.len() + self.moving.len() > MAX_CHANGED_FILES {
            *self = SecondNames {
                is_any_gone: true,
                ..SecondNames::default()
            };
        }
    }
}

impl TreeState {
    /// Looks at the names that came.
    pub(super) fn look_for_second_names(&mut self) {
        let names = std::mem::take(&mut self.second_names);
        let is_second = |(path, is_written): (&Vec<u8>, &bool)| match self.stat(path) {
            Some(stat) => has_second_name(&stat),
            None => *is_written,
        };
        if names.is_any_gone || !names.moving.is_empty() || names.fresh.iter().any(is_second) {
            self.forget_all_files();
        }
    }
}

pub(super) fn has_second_name(stat: &Stat) -> bool {
    stat.st_nlink > 1 && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}
