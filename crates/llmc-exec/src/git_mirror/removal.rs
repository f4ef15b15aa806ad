//! Removing a git directory, or a directory in it that is a mount.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use llmc_host::{GIT_STATE_DIR, lock};
use rustix::fs::{self as rfs, AtFlags};
use rustix::io::Errno;

use super::Mirror;
use super::side::{Entry, OBJECTS_INFO};
use super::supervise::{DirId, id_of};
use super::sync::Sync;
use super::transfer::{empty, empty_but, remove};

impl Mirror {
    /// Removes a directory that is mounted somewhere in the copy, or is the whole; nothing for any other directory.
    ///
    /// Where the server keeps its own state in the git directory, that stays, and the history with it. The directory is only
    /// emptied then, what is mounted in it too, so that a repository which is made there next is this mirror's.
    pub(super) fn remove_mounted(&self, dir: DirId) -> Option<Result<(), Errno>> {
        let keeps_state = self.keeps_state();
        let top = self.copy.dir(Path::new("")).ok()?;
        if id_of(&top) == Some(dir) {
            let mut state = lock(&self.state);
            let mounted: Vec<&str> = state
                .skipped
                .iter()
                .filter(|_| keeps_state)
                .filter_map(|path| path.iter().next()?.to_str())
                .collect();
            if !is_empty_dir(&top, &mounted) {
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
        if let Ok(copy) = self.copy.dir(info)
            && id_of(&copy) == Some(dir)
        {
            if keeps_state {
                return Some(
                    is_empty_dir(&copy, &[])
                        .then_some(())
                        .ok_or(Errno::NOTEMPTY),
                );
            }
            let objects = self.host.dir(Path::new("objects"));
            return Some(objects.and_then(|dir| rfs::unlinkat(&dir, "info", AtFlags::REMOVEDIR)));
        }
        let skipped = lock(&self.state).skipped.clone();
        let is_it = |path: &&PathBuf| self.host.dir(path).ok().and_then(id_of) == Some(dir);
        let path = skipped.iter().find(is_it)?;
        let stays: &[&str] = if keeps_state { &["info"] } else { &[] };
        if !self
            .host
            .dir(path)
            .is_ok_and(|dir| is_empty_dir(&dir, stays))
        {
            return Some(Err(Errno::NOTEMPTY));
        }
        if keeps_state {
            return Some(Ok(()));
        }
        // Made by a command before it was mounted, the copy's directory still has the files of that time.
        let emptied = self.copy.dir(path).and_then(|dir| empty(&dir));
        // The mount goes with the directory that it is on; what was in it is looked at when the whole is removed.
        Some(emptied.and_then(|()| remove(&self.copy, path, Entry::Directory)))
    }

    /// Whether a command removed the repository and has made no other there.
    pub(super) fn is_emptied(&self) -> bool {
        lock(&self.state).is_emptied && self.copy.entry(Path::new("HEAD")).is_none()
    }

    pub(super) fn is_top(&self, dir: DirId) -> bool {
        let top = self.copy.dir(Path::new(""));
        top.is_ok_and(|top| id_of(&top) == Some(dir))
    }

    /// Whether the server's own state lies in the git directory.
    fn keeps_state(&self) -> bool {
        let state = self.host.entry(Path::new(GIT_STATE_DIR));
        state.is_some_and(Entry::is_dir)
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
        let host = &self.mirror.host;
        self.state.base.clear();
        if self.mirror.keeps_state() {
            let mounted = self.state.skipped.iter();
            let tops = mounted.filter_map(|path| path.iter().next()?.to_str());
            empty_but(&host.dir(Path::new(""))?, &tops.collect::<Vec<_>>())?;
            if let Ok(info) = host.dir(Path::new(OBJECTS_INFO)) {
                empty(&info)?;
            }
            self.state.is_emptied = true;
            return Ok(());
        }
        empty(&host.dir(Path::new(""))?)?;
        // Only if nothing else has been made there meanwhile.
        let _ = std::fs::remove_dir(&self.mirror.git_dir);
        Ok(())
    }

    /// Removes what was left of an emptied git directory for the sake of its mounts, if no repository was made there since.
    pub(super) fn remove_emptied(&mut self, copy: &BTreeMap<PathBuf, Entry>) {
        if !std::mem::take(&mut self.state.is_emptied) || copy.contains_key(Path::new("HEAD")) {
            return;
        }
        let host = &self.mirror.host;
        let below_objects = [Path::new(OBJECTS_INFO)];
        let mounted = self.state.skipped.iter().map(PathBuf::as_path);
        for path in below_objects.into_iter().chain(mounted) {
            // What is not empty stays: the state is among them.
            let _ = remove(host, path, Entry::Directory);
        }
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
