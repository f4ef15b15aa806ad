//! Makes, moves and deletes directories, always by descriptor and name.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::lease::{LeaseTable, Leases};
use crate::mounts::mounts_below;
use crate::read::{open_regular, refuse_special};
use crate::roots::{FinalLink, RootedPath, file_type, lstat_at, refuse_kernel_file_system};
use crate::rules::Access;
use crate::scratch::{PlaceOutcome, is_same_version, keep_attributes, sync_dir};
use crate::write::Workspace;

/// How deep a deleted tree may be; no project nests deeper, an attacker might.
const MAX_TREE_DEPTH: usize = 512;

/// Whether `make_dirs` accepts a directory that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingDir {
    Accept,
    Refuse,
}

/// Whether a move may take a name that is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingTarget {
    Refuse,
    /// A file replaces a file and a directory an empty directory, in one step, as `rename(2)` does.
    Replace,
}

/// Whether a directory is deleted with its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteScope {
    /// Only files, and directories not at all.
    FileOnly,
    /// Only a directory that has nothing in it.
    EmptyDir,
    /// Everything below.
    Recursive,
}

impl Workspace {
    /// Makes a directory and the missing ones above it.
    pub fn make_dirs(&self, requested: &str, existing: ExistingDir) -> Result<RootedPath> {
        let path = self
            .roots
            .resolve(requested, FinalLink::Follow, Access::Write)?;
        if path.below_root().is_empty() {
            return if existing == ExistingDir::Accept {
                Ok(path)
            } else {
                Err(Error::AlreadyExists {
                    path: requested.to_owned(),
                })
            };
        }
        let mut made = false;
        let mut dir: Option<OwnedFd> = None;
        for rel in path.ancestors_below_root() {
            let name = rel.rsplit(|b| *b == b'/').next().unwrap_or(rel);
            let here = match path.open_ancestor(rel) {
                Ok(fd) => fd,
                Err(Errno::NOENT) => {
                    let parent = match &dir {
                        Some(dir) => dir.try_clone().map_err(|source| Error::Io {
                            path: requested.to_owned(),
                            source,
                        })?,
                        None => path.root_dir()?,
                    };
                    refuse_kernel_file_system(&parent, requested)?;
                    if !made {
                        self.refuse_protected_below(&path, rel.len())?;
                    }
                    self.before_change(&path.ancestor(rel));
                    match fs::mkdirat(&parent, OsStr::from_bytes(name), Mode::from_raw_mode(0o777))
                    {
                        Ok(()) => {
                            made = true;
                            sync_dir(&parent, requested)?;
                        }
                        Err(Errno::EXIST) => {}
                        Err(errno) => return Err(Error::from_write_errno(requested, errno)),
                    }
                    path.open_ancestor(rel)
                        .map_err(|errno| Error::from_write_errno(requested, errno))?
                }
                Err(errno) => return Err(Error::from_errno(requested, errno)),
            };
            refuse_kernel_file_system(&here, requested)?;
            let stat = fs::fstat(&here).map_err(|errno| Error::from_errno(requested, errno))?;
            if file_type(&stat) != FileType::Directory {
                let whole = rel.len() == path.below_root().len();
                let path = requested.to_owned();
                return Err(if whole {
                    Error::AlreadyExists { path }
                } else {
                    Error::NotADirectory { path }
                });
            }
            dir = Some(here);
        }
        if !made && existing == ExistingDir::Refuse {
            return Err(Error::AlreadyExists {
                path: requested.to_owned(),
            });
        }
        Ok(path)
    }

    /// Refuses to make a protected directory (`.git` among them) on the way, before any directory is made.
    fn refuse_protected_below(&self, path: &RootedPath, missing_from: usize) -> Result<()> {
        let whole = path.absolute();
        let deepest = path.below_root().len();
        let missing = path
            .ancestors_below_root()
            .filter(|rel| (missing_from..=deepest).contains(&rel.len()))
            .count();
        for place in whole.ancestors().take(missing) {
            self.roots
                .rules()
                .check_name(place, path.requested(), Access::Write)?;
        }
        Ok(())
    }

    /// Moves a file, link or directory. A directory that holds something protected stays.
    pub fn move_path(
        &self,
        source: &str,
        target: &str,
        existing: ExistingTarget,
        owner: &str,
        cancel: &CancelToken,
    ) -> Result<(RootedPath, RootedPath)> {
        let state = self.state(source)?;
        let from = self
            .roots
            .resolve(source, FinalLink::NoFollow, Access::Replace)?;
        let to = self
            .roots
            .resolve(target, FinalLink::NoFollow, Access::Replace)?;
        for (path, requested) in [(&from, source), (&to, target)] {
            if self.roots.contains_root(path) {
                return Err(Error::Protected {
                    path: requested.to_owned(),
                    what: "a root".to_owned(),
                });
            }
        }
        for (path, requested) in [(&from, source), (&to, target)] {
            refuse_kernel_path(path, requested)?;
        }
        let stat = from.lstat()?;
        if !matches!(file_type(&stat), FileType::Directory | FileType::Symlink) {
            refuse_special(&stat, source)?;
        }
        if file_type(&stat) != FileType::Directory && target.ends_with('/') {
            return Err(Error::NotADirectory {
                path: target.to_owned(),
            });
        }
        let (from_abs, to_abs) = (from.absolute(), to.absolute());
        let replaced = to.lstat().ok();
        match &replaced {
            None => {}
            Some(_) if existing == ExistingTarget::Refuse => {
                return Err(Error::AlreadyExists {
                    path: target.to_owned(),
                });
            }
            Some(_) if from_abs == to_abs => return Ok((from, to)),
            Some(old) => refuse_other_kind(&stat, old, target)?,
        }
        if to_abs.starts_with(&from_abs) {
            return Err(Error::BadRequest(format!(
                "{target}: a directory cannot be moved into itself"
            )));
        }
        let paths = [from_abs.clone(), to_abs.clone()];
        let leases = state
            .locks
            .acquire(&paths, owner, source)?
            .with_cancel(cancel);
        let (from_dir, from_name) = from.parent()?;
        let (to_dir, to_name) = to.parent()?;
        if file_type(&stat) == FileType::Directory {
            let operation = TreeOperation {
                workspace: self,
                locks: &state.locks,
                requested: source,
                cancel,
            };
            operation.check(&from_dir, from_name, (&from_abs, Some(&to_abs)), 0)?;
        }
        if file_type(&stat) != FileType::RegularFile {
            // What a name means to git depends on what is around it, and a directory can be filled, or a link's target
            // changed, after it was looked at.
            let rules = self.roots.rules();
            for (path, requested) in [(&from_abs, source), (&to_abs, target)] {
                if rules.is_in_git(path) {
                    return Err(Error::Protected {
                        path: requested.to_owned(),
                        what: "git's directory (only files are moved into it or out of it)"
                            .to_owned(),
                    });
                }
            }
        }
        let flags = if replaced.is_some() {
            RenameFlags::empty()
        } else {
            RenameFlags::NOREPLACE
        };
        self.before_change(&from);
        self.before_change(&to);
        let renamed = leases.commit(|| {
            Ok(fs::renameat_with(
                &from_dir, from_name, &to_dir, to_name, flags,
            ))
        })?;
        drop(leases);
        match renamed {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                return Err(Error::AlreadyExists {
                    path: target.to_owned(),
                });
            }
            Err(Errno::XDEV) if file_type(&stat) == FileType::RegularFile => {
                self.copy_across(&from, &to, owner, cancel)?;
            }
            Err(Errno::XDEV) => {
                return Err(Error::BadRequest(format!(
                    "{source}: only files can be moved to another file system; move its files one by one"
                )));
            }
            Err(errno) => return Err(Error::from_write_errno(source, errno)),
        }
        sync_dir(&to_dir, target)?;
        sync_dir(&from_dir, source)?;
        Ok((from, to))
    }

    /// Moves a file between file systems: a full durable copy first, then the source goes.
    fn copy_across(
        &self,
        from: &RootedPath,
        to: &RootedPath,
        owner: &str,
        cancel: &CancelToken,
    ) -> Result<()> {
        let state = self.state(from.requested())?;
        let leases = state
            .locks
            .acquire(&[to.absolute(), from.absolute()], owner, from.requested())?
            .with_cancel(cancel);
        let (mut file, stat) = open_regular(from)?;
        let mut made = None;
        let placed = state.scratch.create(to, &leases, |new: &mut File| {
            use std::io::Write;
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            crate::read::for_each_block(&mut file, from.requested(), size, cancel, |block| {
                new.write_all(block).map_err(|source| Error::WriteFailed {
                    path: to.requested().to_owned(),
                    source,
                })
            })?;
            keep_attributes((&file, &stat), new, to.requested())?;
            let failed = |errno| Error::from_write_errno(to.requested(), errno);
            made = Some(fs::fstat(&*new).map_err(failed)?);
            Ok(())
        })?;
        if placed == PlaceOutcome::Changed {
            return Err(Error::AlreadyExists {
                path: to.requested().to_owned(),
            });
        }
        let taken = remove_source(from, &stat, &leases);
        if taken.is_err()
            && let Some(made) = made
        {
            remove_copy(to, &made);
        }
        taken
    }

    /// Deletes a file or link, or a directory with everything in it.
    pub fn delete(
        &self,
        requested: &str,
        depth: DeleteScope,
        owner: &str,
        cancel: &CancelToken,
    ) -> Result<RootedPath> {
        let state = self.state(requested)?;
        let path = self
            .roots
            .resolve(requested, FinalLink::NoFollow, Access::Replace)?;
        if self.roots.contains_root(&path) {
            return Err(Error::Protected {
                path: requested.to_owned(),
                what: "a root".to_owned(),
            });
        }
        refuse_kernel_path(&path, requested)?;
        let stat = path.lstat()?;
        let is_dir = file_type(&stat) == FileType::Directory;
        if !is_dir && depth == DeleteScope::EmptyDir {
            return Err(Error::NotADirectory {
                path: requested.to_owned(),
            });
        }
        if is_dir && depth == DeleteScope::FileOnly {
            return Err(Error::IsDirectory {
                path: requested.to_owned(),
            });
        }
        if !is_dir && requested.ends_with('/') {
            return Err(Error::NotADirectory {
                path: requested.to_owned(),
            });
        }
        if !is_dir && file_type(&stat) != FileType::Symlink {
            refuse_special(&stat, requested)?;
        }
        let leases = state
            .locks
            .acquire(&[path.absolute()], owner, requested)?
            .with_cancel(cancel);
        let (dir, name) = path.parent()?;
        self.before_change(&path);
        if depth == DeleteScope::EmptyDir {
            let gone = leases.commit(|| Ok(fs::unlinkat(&dir, name, AtFlags::REMOVEDIR)))?;
            gone.map_err(|errno| Error::from_write_errno(requested, errno))?;
        } else if is_dir {
            let operation = TreeOperation {
                workspace: self,
                locks: &state.locks,
                requested,
                cancel,
            };
            let absolute = path.absolute();
            operation.refuse_mounts(&absolute)?;
            operation.check(&dir, name, (&absolute, None), 0)?;
            leases.commit(|| operation.delete(&dir, name, &absolute))?;
        } else {
            let gone = leases.commit(|| Ok(fs::unlinkat(&dir, name, AtFlags::empty())))?;
            gone.map_err(|errno| Error::from_write_errno(requested, errno))?;
        }
        sync_dir(&dir, requested)?;
        Ok(path)
    }
}

/// Refuses what lies on a kernel file system, the directory it is mounted on among it.
fn refuse_kernel_path(path: &RootedPath, requested: &str) -> Result<()> {
    match path.open(OFlags::PATH | OFlags::NOFOLLOW) {
        Ok(fd) => refuse_kernel_file_system(&fd, requested),
        Err(_) => Ok(()),
    }
}

/// What `rename(2)` may replace: a directory only by a directory, a file only by a file.
fn refuse_other_kind(source: &Stat, target: &Stat, requested: &str) -> Result<()> {
    let is_dir = |stat| file_type(stat) == FileType::Directory;
    let path = requested.to_owned();
    match (is_dir(source), is_dir(target)) {
        (true, false) => Err(Error::NotADirectory { path }),
        (false, true) => Err(Error::IsDirectory { path }),
        (true, true) => Ok(()),
        (false, false) if file_type(target) == FileType::Symlink => Ok(()),
        (false, false) => refuse_special(target, requested),
    }
}

/// Removes the source of a copy if it is still the file that was copied.
fn remove_source(from: &RootedPath, copied: &Stat, leases: &Leases<'_>) -> Result<()> {
    let (dir, name) = from.parent()?;
    leases.commit(|| {
        if !lstat_at(&dir, name).is_ok_and(|now| is_same_version(&now, copied)) {
            return Err(Error::Busy {
                path: from.requested().to_owned(),
                holder: "another program that changed the file meanwhile".to_owned(),
                waited_ms: 0,
            });
        }
        fs::unlinkat(&dir, name, AtFlags::empty())
            .map_err(|errno| Error::from_write_errno(from.requested(), errno))
    })
}

/// Removes a copy whose source stays, unless something else has taken its name.
fn remove_copy(to: &RootedPath, made: &Stat) {
    if let Ok((dir, name)) = to.parent()
        && lstat_at(&dir, name)
            .is_ok_and(|now| (now.st_dev, now.st_ino) == (made.st_dev, made.st_ino))
    {
        let _ = fs::unlinkat(&dir, name, AtFlags::empty());
    }
}

/// One recursive move or deletion: first check every entry, then act, never following a link.
struct TreeOperation<'a> {
    workspace: &'a Workspace,
    locks: &'a LeaseTable,
    requested: &'a str,
    cancel: &'a CancelToken,
}

/// Deleted entries that are named in the report of a deletion that stopped half way.
const MAX_NAMED_ENTRIES: usize = 20;

/// What a recursive deletion has done so far.
#[derive(Default)]
struct Deleted {
    count: u64,
    /// The first of them, as shown.
    names: Vec<String>,
}

impl TreeOperation<'_> {
    /// Refuses a tree that holds something protected (where it is, or where it would be), something that another call
    /// is working on, another file system, or that is too deep.
    fn check(
        &self,
        dir: &OwnedFd,
        name: &OsStr,
        (absolute, target): (&Path, Option<&Path>),
        level: usize,
    ) -> Result<()> {
        let here = self.enter(dir, name, level)?;
        if level == 0
            && let Some((path, holder)) =
                self.locks.shared_holder_below(absolute, self.requested)?
        {
            return Err(Error::Busy {
                path: self.workspace.roots.display_absolute(&path),
                holder,
                waited_ms: 0,
            });
        }
        for (name, file_type) in entries(&here, self.requested)? {
            self.cancel.check()?;
            let path = absolute.join(&name);
            let target: Option<PathBuf> = target.map(|target| target.join(&name));
            self.refuse_protected(&path)?;
            if let Some(target) = &target {
                self.refuse_protected(target)?;
            }
            if let Some(holder) = self.locks.holder_of(&path) {
                return Err(Error::Busy {
                    path: self.workspace.roots.display_absolute(&path),
                    holder,
                    waited_ms: 0,
                });
            }
            if file_type == FileType::Directory {
                self.check(&here, &name, (&path, target.as_deref()), level + 1)?;
            }
        }
        Ok(())
    }

    fn refuse_protected(&self, path: &Path) -> Result<()> {
        let roots = &self.workspace.roots;
        let Some(what) = roots.rules().protected_part(path, Access::Replace) else {
            return Ok(());
        };
        Err(Error::Protected {
            path: self.requested.to_owned(),
            what: format!("{what} at {}", roots.display_absolute(path)),
        })
    }

    /// Refuses a tree with something mounted in it, a file among them, before anything is deleted.
    fn refuse_mounts(&self, absolute: &Path) -> Result<()> {
        match mounts_below(absolute).first() {
            Some(mount) => Err(self.mounted(mount)),
            None => Ok(()),
        }
    }

    fn mounted(&self, mount: &Path) -> Error {
        let shown = self.workspace.roots.display_absolute(mount);
        Error::Protected {
            path: self.requested.to_owned(),
            what: format!("the mount at {shown}"),
        }
    }

    /// Deletes the tree. When it stops half way, the error says what is gone and what remains.
    fn delete(&self, dir: &OwnedFd, name: &OsStr, absolute: &Path) -> Result<()> {
        let mut deleted = Deleted::default();
        let done = self.remove(dir, name, absolute, 0, &mut deleted);
        done.map_err(|cause| {
            if deleted.count == 0 {
                return cause;
            }
            let remaining = self
                .enter(dir, name, 0)
                .and_then(|here| entries(&here, self.requested))
                .unwrap_or_default();
            Error::PartlyDeleted {
                path: self.requested.to_owned(),
                deleted: deleted.count,
                deleted_names: deleted.names,
                remaining: remaining.len() as u64,
                remaining_names: remaining
                    .iter()
                    .take(MAX_NAMED_ENTRIES)
                    .map(|(name, _)| self.workspace.roots.display_absolute(&absolute.join(name)))
                    .collect(),
                cause: Box::new(cause),
            }
        })
    }

    fn remove(
        &self,
        dir: &OwnedFd,
        name: &OsStr,
        absolute: &Path,
        level: usize,
        deleted: &mut Deleted,
    ) -> Result<()> {
        let here = self.enter(dir, name, level)?;
        for (name, file_type) in entries(&here, self.requested)? {
            self.cancel.check()?;
            let path = absolute.join(&name);
            // Checked again: the entry may have appeared after the first check.
            self.refuse_protected(&path)?;
            if file_type == FileType::Directory {
                self.remove(&here, &name, &path, level + 1, deleted)?;
            } else {
                self.ignore_missing(fs::unlinkat(&here, &name, AtFlags::empty()))?;
                self.note(deleted, &path);
            }
        }
        self.ignore_missing(fs::unlinkat(dir, name, AtFlags::REMOVEDIR))?;
        self.note(deleted, absolute);
        Ok(())
    }

    fn note(&self, deleted: &mut Deleted, path: &Path) {
        deleted.count += 1;
        if deleted.names.len() < MAX_NAMED_ENTRIES {
            let shown = self.workspace.roots.display_absolute(path);
            deleted.names.push(shown);
        }
    }

    fn enter(&self, dir: &OwnedFd, name: &OsStr, level: usize) -> Result<OwnedFd> {
        if level > MAX_TREE_DEPTH {
            let why = format!("deeper than {MAX_TREE_DEPTH} directories");
            return Err(Error::TooLarge {
                path: self.requested.to_owned(),
                why,
            });
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Also a mount of the same file system is not entered.
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        fs::openat2(dir, name, flags, Mode::empty(), resolve).map_err(|errno| match errno {
            Errno::XDEV => self.mounted(Path::new(name)),
            errno => Error::from_errno(self.requested, errno),
        })
    }

    /// An entry that another program has deleted meanwhile counts as deleted.
    fn ignore_missing(&self, result: Result<(), Errno>) -> Result<()> {
        match result {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(Error::from_write_errno(self.requested, errno)),
        }
    }
}

/// A directory's entries with their types.
fn entries(dir: &OwnedFd, requested: &str) -> Result<Vec<(std::ffi::OsString, FileType)>> {
    let mut list = Vec::new();
    for entry in fs::Dir::read_from(dir).map_err(|errno| Error::from_errno(requested, errno))? {
        let entry = entry.map_err(|errno| Error::from_errno(requested, errno))?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let name = OsStr::from_bytes(name).to_os_string();
        let file_type = match entry.file_type() {
            FileType::Unknown => {
                lstat_at(dir, &name).map_or(FileType::Unknown, |stat| file_type(&stat))
            }
            known => known,
        };
        list.push((name, file_type));
    }
    Ok(list)
}

#[cfg(test)]
mod tests;
