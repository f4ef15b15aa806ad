//! Lists directories for a watched tree, by the rules of a walk.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use llmc_trigrams::FileIdentity;
use rustix::fs::inotify::{self, WatchFlags};
use rustix::fs::{AtFlags, FileType, fstat, fstatfs, statat};
use rustix::io::Errno;

use super::dirs::WatchedDir;
use super::second_names::has_second_name;
use super::{RULE_FILES, RuleFile, TreeState, is_too_deep, join};
use crate::cancel::CancelToken;
use crate::mounts::is_local_file_system;
use crate::walk::EntryClass;
use crate::walk::dir::{
    DirReader, MoreEntries, NameBatch, is_kernel_file_system, open_below, open_dir, push_name,
};
use crate::walk::ignores::{IgnoreFilesPresent, IgnoreRules};

/// What one look at a directory found.
struct Listing {
    dir: WatchedDir,
    subdirs: Vec<CString>,
}

/// Which ignore rules hold inside a directory.
enum RulesInside {
    /// Those above it and its own files, to be read.
    Above(Option<Arc<IgnoreRules>>),
    /// Known from an earlier look.
    Known(Option<Arc<IgnoreRules>>),
}

/// What can be expected of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileSystemKind {
    /// Every change of its names is reported.
    Local,
    /// Changes may go unnoticed.
    Other,
    /// It shows the kernel's state; a walk does not enter it.
    Kernel,
}

impl TreeState {
    /// Adds a directory and all that a walk would enter below it.
    pub(super) fn add_tree(
        &mut self,
        path: Vec<u8>,
        above: Option<Arc<IgnoreRules>>,
        cancel: &CancelToken,
    ) {
        let mut waiting = vec![(path, above)];
        while let Some((path, above)) = waiting.pop() {
            if self.is_lost || cancel.is_cancelled() {
                return;
            }
            let listed = self
                .open(&path)
                .and_then(|fd| self.list(&path, &fd, RulesInside::Above(above)));
            match listed {
                Ok(Some(listing)) => {
                    let rules = &listing.dir.rules;
                    for name in listing.subdirs {
                        waiting.push((join(&path, &name), rules.clone()));
                    }
                    self.dirs.insert(listing.dir, &mut self.files);
                }
                Ok(None) => self.count_left_out(&path, |dir| dir.left_out.ignored_dirs += 1),
                // Not readable, or gone: then an event follows.
                Err(Errno::ACCESS | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                    self.count_left_out(&path, |dir| dir.left_out.unreadable += 1);
                }
                Err(_) => self.lose(),
            }
        }
    }

    /// Notes in its parent that a directory is not entered.
    fn count_left_out(&mut self, path: &[u8], count: impl FnOnce(&mut WatchedDir)) {
        match self.dirs.get_mut(parent_of(path)) {
            Some(parent) if !path.is_empty() => count(parent),
            _ => self.lose(),
        }
    }

    /// Lists a directory again after names in it came or went.
    pub(super) fn list_again(&mut self, path: &[u8]) {
        let Some(old) = self.dirs.get(path) else {
            return;
        };
        let rules = RulesInside::Known(old.rules.clone());
        let listed = self.open(path).and_then(|fd| self.list(path, &fd, rules));
        let Ok(Some(listing)) = listed else {
            // Gone, or not readable any more: its parent shows which.
            self.forget(path);
            if path.is_empty() {
                self.lose();
            } else {
                self.dirty.insert(parent_of(path).into());
            }
            return;
        };
        let rules = listing.dir.rules.clone();
        let subdirs: BTreeSet<Vec<u8>> = listing
            .subdirs
            .iter()
            .map(|name| join(path, name))
            .collect();
        self.dirs.insert(listing.dir, &mut self.files);
        let below = self.dirs.below(path).map(|(_, dir)| &dir.path);
        let is_gone =
            |below: &[u8]| below != path && parent_of(below) == path && !subdirs.contains(below);
        let gone: Vec<Arc<[u8]>> = below.filter(|below| is_gone(below)).cloned().collect();
        for gone in gone {
            self.forget(&gone);
        }
        for subdir in subdirs {
            if !self.dirs.contains(&subdir) {
                self.add_tree(subdir, rules.clone(), &CancelToken::default());
            }
        }
    }

    fn open(&self, path: &[u8]) -> rustix::io::Result<OwnedFd> {
        match path.is_empty() {
            true => open_dir(self.root.as_fd(), c"."),
            false => open_below(self.root.as_fd(), path),
        }
    }

    /// Watches a directory, then reads its names; `None` for one that a walk does not enter.
    fn list(
        &mut self,
        path: &[u8],
        fd: &OwnedFd,
        rules: RulesInside,
    ) -> rustix::io::Result<Option<Listing>> {
        if is_too_deep(path) {
            self.lose();
            return Err(Errno::NAMETOOLONG);
        }
        let device = fstat(fd)?.st_dev;
        match self.file_system_kind(device, fd)? {
            FileSystemKind::Kernel => return Ok(None),
            FileSystemKind::Other => self.is_searchable = false,
            FileSystemKind::Local => {}
        }
        let is_new = !self.dirs.contains(path);
        let mut dir = WatchedDir::new(path.into(), self.watch(path, fd)?, device);
        let mut reader = self.reader.take().unwrap_or_else(DirReader::new);
        let (mut more, mut result) = reader.next_batch(fd.as_fd());
        dir.rules = match rules {
            RulesInside::Known(rules) => rules,
            RulesInside::Above(above) => {
                let present = self.note_rule_files(path, &reader.names, more);
                let (above, compiler) = (above.as_ref(), &self.compiler);
                IgnoreRules::inside(above, fd.as_fd(), device, path, &present, compiler)
            }
        };
        let mut subdirs = Vec::new();
        let mut names = NameBatch::default();
        loop {
            dir.left_out.unreadable += u64::from(result.is_err());
            self.classify(path, &reader, &mut dir, &mut names, &mut subdirs);
            if more == MoreEntries::No {
                break;
            }
            (more, result) = reader.next_batch(fd.as_fd());
        }
        self.reader = Some(reader);
        dir.names = Arc::new(names.sorted());
        if self.is_built && is_new && holds_second_names(fd, &dir) {
            self.forget_all_files();
        }
        Ok(Some(Listing { dir, subdirs }))
    }

    /// What can be expected of the file system of an open directory. Its own device says it, but for the first time.
    fn file_system_kind(
        &mut self,
        device: u64,
        fd: &OwnedFd,
    ) -> rustix::io::Result<FileSystemKind> {
        if let Some(known) = self.devices.get(&device) {
            return Ok(*known);
        }
        let file_system = fstatfs(fd)?;
        let kind = if is_kernel_file_system(&file_system) {
            FileSystemKind::Kernel
        } else if is_local_file_system(&file_system) {
            FileSystemKind::Local
        } else {
            FileSystemKind::Other
        };
        self.devices.insert(device, kind);
        Ok(kind)
    }

    /// Remembers the ignore files of a directory as they are before they are read.
    fn note_rule_files(
        &mut self,
        path: &[u8],
        names: &NameBatch,
        more: MoreEntries,
    ) -> IgnoreFilesPresent {
        let has = |wanted: &CStr| names.iter().any(|name| name == wanted);
        let [dot_ignore, git_ignore, git] =
            [c".ignore", c".gitignore", c".git"].map(|name| more == MoreEntries::Yes || has(name));
        for (name, is_there) in RULE_FILES.into_iter().zip([dot_ignore, git_ignore, git]) {
            if is_there {
                let file = join(path, name);
                let stat = self.stat(&file);
                let is_in_watched_dir = !name.to_bytes().contains(&b'/');
                let is_reported = is_in_watched_dir && !stat.as_ref().is_some_and(has_second_name);
                let identity = stat.map(|stat| FileIdentity::of(&stat));
                let noted = RuleFile {
                    identity,
                    is_reported,
                };
                self.rule_files.insert(file, noted);
            }
        }
        match more {
            MoreEntries::Yes => IgnoreFilesPresent::Unknown,
            MoreEntries::No => IgnoreFilesPresent::Known {
                dot_ignore,
                git_ignore,
                git,
            },
        }
    }

    /// Divides the names just read as a walk does.
    fn classify(
        &self,
        path: &[u8],
        reader: &DirReader,
        dir: &mut WatchedDir,
        names: &mut NameBatch,
        subdirs: &mut Vec<CString>,
    ) {
        let left_out = &mut dir.left_out;
        let rules = dir.rules.as_deref();
        let mut entry = Vec::new();
        for (name, kind) in reader.names.iter().zip(&reader.kinds) {
            let is_dir = match kind {
                FileType::RegularFile => false,
                FileType::Directory => true,
                FileType::Unknown => {
                    left_out.unreadable += 1;
                    continue;
                }
                _ => continue,
            };
            entry.clear();
            push_name(&mut entry, path, name);
            match (self.entries.class(&entry, name, is_dir, rules), is_dir) {
                (EntryClass::Visited, false) => names.push(name),
                (EntryClass::Visited, true) => subdirs.push(name.to_owned()),
                (EntryClass::Hidden, false) => left_out.hidden_files.push(name),
                (EntryClass::Hidden, true) => left_out.hidden_dirs += 1,
                (EntryClass::Ignored, false) => left_out.ignored_files.push(name),
                (EntryClass::Ignored, true) => left_out.ignored_dirs += 1,
            }
        }
    }

    /// Watches the directory that is open, wherever it is moved meanwhile.
    fn watch(&mut self, path: &[u8], fd: &OwnedFd) -> rustix::io::Result<i32> {
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::MOVE_SELF
            | WatchFlags::DELETE_SELF
            | WatchFlags::ONLYDIR
            | WatchFlags::EXCL_UNLINK;
        let number = inotify::add_watch(&*self.inotify, link_to(fd.as_fd()), flags)?;
        let old = self.watches.insert(number, path.into());
        if old.is_some_and(|old| *old != *path && self.dirs.contains(&old)) {
            // One directory in two places: mounted twice, or moved since the events were read.
            let has_mounts = self.mount_points.iter().any(|at| *at != self.workspace);
            match has_mounts {
                true => self.is_searchable = false,
                false => self.lose(),
            }
        }
        Ok(number)
    }
}

/// Whether a directory that came later has files with a second name, which may be one in the tree.
fn holds_second_names(fd: &OwnedFd, dir: &WatchedDir) -> bool {
    let left_out = &dir.left_out;
    let names = dir.names.iter().chain(left_out.hidden_files.iter());
    let mut names = names.chain(left_out.ignored_files.iter());
    names.any(|name| {
        let stat = statat(fd, name, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| has_second_name(&stat))
    })
}

/// The kernel's name for an open directory.
fn link_to(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

pub(super) fn parent_of(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    &path[..end]
}
