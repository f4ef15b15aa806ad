//! Removing a git directory, or a directory in it that is a mount.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use llmc_host::lock;
use rustix::fs::{self as rfs, AtFlags};
use rustix::io::Errno;

use super::Mirror;
use super::side::{Entry, OBJECTS_INFO};
use super::supervise::{DirId, id_of};
use super::sync::Sync;
use super::transfer::{empty, remove};

impl Mirror {
    /// Removes a directory that is mounted somewhere in the copy, or is the whole; nothing for any other directory.
    pub(super) fn remove_mounted(&self, dir: DirId) -> Option<Result<(), Errno>> {
        let top = self.copy.dir(Path::new("")).ok()?;
        if id_of(&top) == Some(dir) {
            let mut state = lock(&self.state);
            if !is_empty_dir(&top, &[]) {
                return Some(Err(Errno::NOTEMPTY));
            }
            let mut sync = Sync {
                mirror: self,
                state: &mut state,
            };
            let removed = sync.remove_repository();
            return Some(
                removed.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            );
        }
        let info = Path::new(OBJECTS_INFO);
        if self.copy.dir(info).ok().and_then(id_of) == Some(dir) {
            let objects = self.host.dir(Path::new("objects"));
            return Some(objects.and_then(|dir| rfs::unlinkat(&dir, "info", AtFlags::REMOVEDIR)));
        }
        let skipped = lock(&self.state).skipped.clone();
        let is_it = |path: &&PathBuf| self.host.dir(path).ok().and_then(id_of) == Some(dir);
        let path = skipped.iter().find(is_it)?;
        if !self.host.dir(path).is_ok_and(|dir| is_empty_dir(&dir, &[])) {
            return Some(Err(Errno::NOTEMPTY));
        }
        // Made by a command before it was mounted, the copy's directory still has the files of that time.
        let emptied = self.copy.dir(path).and_then(|dir| empty(&dir));
        // The mount goes with the directory that it is on; what was in it is looked at when the whole is removed.
        Some(emptied.and_then(|()| remove(&self.copy, path, Entry::Directory)))
    }
}

impl Sync<'_> {
    /// Whether a command deleted the whole repository: `rm -rf`, to whose end only what is mounted is left.
    pub(super) fn is_removed(&self, copy: &BTreeMap<PathBuf, Entry>) -> bool {
        let has_none = ["HEAD", "config"]
            .iter()
            .all(|name| !copy.contains_key(Path::new(name)));
        let had = ["HEAD", "config"]
            .iter()
            .all(|name| self.state.base.contains_key(Path::new(name)));
        let is_empty = |name: &str| {
            let dir = self.mirror.host.dir(Path::new(name));
            dir.is_ok_and(|dir| is_empty_dir(&dir, &["info"]))
        };
        has_none && had && is_empty("objects") && is_empty("refs")
    }

    pub(super) fn remove_repository(&mut self) -> io::Result<()> {
        empty(&self.mirror.host.dir(Path::new(""))?)?;
        self.state.base.clear();
        // Only if nothing else has been made there meanwhile.
        let _ = std::fs::remove_dir(&self.mirror.git_dir);
        Ok(())
    }
}

/// Whether a directory holds nothing but empty directories of these names.
fn is_empty_dir(dir: &std::os::fd::OwnedFd, but: &[&str]) -> bool {
    let Ok(entries) = rfs::Dir::read_from(dir) else {
        return false;
    };
    entries.flatten().all(|entry| {
        let name = entry.file_name().to_bytes();
        name == b"." || name == b".." || but.iter().any(|known| name == known.as_bytes())
    })
}
