//! What is at a path, without following links, and putting something else there if it is still that.
//!
//! History looks at paths and restores them as they were: files, links and directories, with their modes. Other tools follow
//! links; a restored path must be the very entry that was recorded.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::lease::Leases;
use crate::roots::{RootedPath, file_type, lstat_at, refuse_kernel_file_system};
use crate::rules::Access;
use crate::scratch::{IfChanged, PlaceOutcome, Scratch, is_same_version, sync_dir, write_failed};
use crate::walk::IgnoreLookup;
use crate::write::Workspace;

/// How often a look starts over because the name changed its meaning meanwhile.
const MAX_LOOKS: usize = 8;
/// The bits that are recorded and restored: permissions and the sticky bit, never the right to act as another user.
const MODE_BITS: u32 = 0o1777;

/// What is at a path.
#[derive(Debug)]
pub enum PathEntry {
    /// Nothing, or something on the way is no directory.
    Absent,
    /// `file` is missing when the file cannot be read.
    File {
        stat: Stat,
        file: Option<File>,
    },
    Link {
        stat: Stat,
        target: Vec<u8>,
    },
    Dir {
        stat: Stat,
    },
    /// A pipe, a socket, a device, or a file of the kernel.
    Special,
}

/// What to put at a path.
#[derive(Debug, Clone, Copy)]
pub enum NewEntry<'a> {
    Absent,
    File {
        mode: u32,
        content: &'a [u8],
    },
    Link {
        target: &'a [u8],
    },
    Dir {
        mode: u32,
    },
    /// The file or directory that is there, with other permission bits.
    Mode(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    Done,
    /// Something else than expected is there; it stays.
    Changed,
    /// A directory to be removed still has entries.
    NotEmpty,
}

impl RootedPath {
    /// What is here now.
    ///
    /// # Errors
    /// A directory on the way may not be searched, or reading failed.
    pub fn entry(&self) -> Result<PathEntry> {
        for _ in 0..MAX_LOOKS {
            let fd = match self.open_here() {
                Ok(fd) => fd,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(PathEntry::Absent),
                Err(errno) => return Err(Error::from_errno(self.requested(), errno)),
            };
            let stat = self.stat_of(&fd)?;
            match file_type(&stat) {
                FileType::Directory => return Ok(PathEntry::Dir { stat }),
                FileType::Symlink => {
                    let target = fs::readlinkat(&fd, "", Vec::new())
                        .map_err(|errno| Error::from_errno(self.requested(), errno))?;
                    let target = target.into_bytes();
                    return Ok(PathEntry::Link { stat, target });
                }
                FileType::RegularFile => {
                    if refuse_kernel_file_system(&fd, self.requested()).is_err() {
                        return Ok(PathEntry::Special);
                    }
                    let flags =
                        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
                    let Ok(opened) = self.open(flags) else {
                        match self.lstat() {
                            Ok(now) if same_inode(&now, &stat) => {
                                return Ok(PathEntry::File { stat, file: None });
                            }
                            _ => continue,
                        }
                    };
                    let stat_now = self.stat_of(&opened)?;
                    if same_inode(&stat_now, &stat) {
                        let file = Some(File::from(opened));
                        return Ok(PathEntry::File {
                            stat: stat_now,
                            file,
                        });
                    }
                }
                _ => return Ok(PathEntry::Special),
            }
        }
        Err(self.busy())
    }

    /// Whether a walk from its root would leave this path out.
    pub fn is_ignored(&self, is_dir: bool) -> Result<bool> {
        Ok(IgnoreLookup::new(self.root_dir()?).is_ignored(self.below_root(), is_dir))
    }

    fn stat_of(&self, fd: &OwnedFd) -> Result<Stat> {
        fs::fstat(fd).map_err(|errno| Error::from_errno(self.requested(), errno))
    }

    fn open_here(&self) -> Result<OwnedFd, Errno> {
        self.open_ancestor(self.below_root())
    }

    fn busy(&self) -> Error {
        Error::Busy {
            path: self.requested().to_owned(),
            holder: "another program that keeps changing the path".to_owned(),
            waited_ms: 0,
        }
    }
}

impl Workspace {
    /// Puts `new` at a path (see [`Roots::exact_path`](crate::Roots::exact_path)) if `is_expected` accepts what is there, under
    /// the path's lease. A file replaces a file in one step; between other kinds there is a moment with nothing.
    ///
    /// # Errors
    /// The path is protected or leased, or the file system refuses.
    pub fn put_entry(
        &self,
        path: &[u8],
        is_expected: impl FnOnce(&mut PathEntry) -> Result<bool>,
        new: NewEntry<'_>,
        owner: &str,
        cancel: &CancelToken,
    ) -> Result<PutOutcome> {
        let path = self.roots.exact_path(path, Access::Replace)?;
        let requested = path.requested();
        let state = self.state(requested)?;
        let leases = state
            .locks
            .acquire(&[path.absolute()], owner, requested)?
            .with_cancel(cancel);
        let mut found = path.entry()?;
        if matches!(found, PathEntry::Special) || !is_expected(&mut found)? {
            return Ok(PutOutcome::Changed);
        }
        let put = PutEntry {
            path: &path,
            leases: &leases,
            scratch: &state.scratch,
        };
        match (&found, new) {
            (PathEntry::File { stat, .. } | PathEntry::Dir { stat }, NewEntry::Mode(mode)) => {
                put.set_mode(stat, mode)
            }
            (PathEntry::Dir { stat }, NewEntry::Dir { mode }) => put.set_mode(stat, mode),
            (_, NewEntry::Mode(_)) => Ok(PutOutcome::Changed),
            (
                PathEntry::File {
                    stat,
                    file: Some(file),
                },
                NewEntry::File { mode, content },
            ) => {
                // The new file gets the old one's owner and attributes, and this mode.
                let mut with_mode = *stat;
                with_mode.st_mode = (stat.st_mode & !0o7777) | (mode & MODE_BITS);
                let placed = put.scratch.replace_any(
                    &path,
                    (file, &with_mode),
                    IfChanged::Abort,
                    &leases,
                    |new| {
                        new.write_all(content)
                            .map_err(|e| write_failed(requested, e))
                    },
                )?;
                Ok(outcome(placed))
            }
            (PathEntry::Absent, new) => put.create(new),
            (_, new) => match put.remove(&found)? {
                PutOutcome::Done => put.create(new),
                other => Ok(other),
            },
        }
    }
}

struct PutEntry<'a> {
    path: &'a RootedPath,
    leases: &'a Leases<'a>,
    scratch: &'a Scratch,
}

impl PutEntry<'_> {
    fn failed(&self, errno: Errno) -> Error {
        Error::from_write_errno(self.path.requested(), errno)
    }

    fn set_mode(&self, expected: &Stat, mode: u32) -> Result<PutOutcome> {
        let fd = self.path.open_here().map_err(|errno| self.failed(errno))?;
        let stat = fs::fstat(&fd).map_err(|errno| self.failed(errno))?;
        if !same_inode(&stat, expected) {
            return Ok(PutOutcome::Changed);
        }
        refuse_kernel_file_system(&fd, self.path.requested())?;
        // A descriptor that needs no right to read can be changed by this name only; it is no link.
        let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let mode = Mode::from_raw_mode((stat.st_mode & 0o6000) | (mode & MODE_BITS));
        self.leases.commit(|| {
            fs::chmodat(fs::CWD, name, mode, AtFlags::empty()).map_err(|errno| self.failed(errno))
        })?;
        Ok(PutOutcome::Done)
    }

    fn create(&self, new: NewEntry<'_>) -> Result<PutOutcome> {
        let requested = self.path.requested();
        let made = match new {
            NewEntry::Absent => return Ok(PutOutcome::Done),
            NewEntry::Mode(_) => return Ok(PutOutcome::Changed),
            NewEntry::File { mode, content } => {
                let placed = self.scratch.create(self.path, self.leases, |file| {
                    file.write_all(content)
                        .map_err(|e| write_failed(requested, e))?;
                    fs::fchmod(&*file, Mode::from_raw_mode(mode & MODE_BITS))
                        .map_err(|errno| self.failed(errno))
                })?;
                return Ok(outcome(placed));
            }
            NewEntry::Link { target } => {
                let (dir, name) = self.path.parent()?;
                self.leases
                    .commit(|| Ok(fs::symlinkat(target, &dir, name)))?
            }
            NewEntry::Dir { mode } => {
                let (dir, name) = self.path.parent()?;
                let made = self
                    .leases
                    .commit(|| Ok(fs::mkdirat(&dir, name, Mode::RWXU)))?;
                if made.is_ok() {
                    let stat = self.path.lstat()?;
                    self.set_mode(&stat, mode)?;
                }
                made
            }
        };
        match made {
            Ok(()) => {
                let (dir, _) = self.path.parent()?;
                sync_dir(&dir, requested).map(|()| PutOutcome::Done)
            }
            Err(Errno::EXIST) => Ok(PutOutcome::Changed),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    /// Removes a file, a link or an empty directory that is still the one that was looked at.
    fn remove(&self, found: &PathEntry) -> Result<PutOutcome> {
        let (stat, flags) = match found {
            PathEntry::File { stat, .. } | PathEntry::Link { stat, .. } => (stat, AtFlags::empty()),
            PathEntry::Dir { stat } => (stat, AtFlags::REMOVEDIR),
            PathEntry::Absent | PathEntry::Special => return Ok(PutOutcome::Changed),
        };
        let (dir, name) = self.path.parent()?;
        let gone = self.leases.commit(|| {
            let is_same = lstat_at(&dir, name).is_ok_and(|now| match found {
                PathEntry::Dir { .. } => same_inode(&now, stat),
                _ => is_same_version(&now, stat),
            });
            if !is_same {
                return Ok(Err(Errno::STALE));
            }
            Ok(fs::unlinkat(&dir, name, flags))
        })?;
        match gone {
            Ok(()) => sync_dir(&dir, self.path.requested()).map(|()| PutOutcome::Done),
            Err(Errno::STALE | Errno::NOENT) => Ok(PutOutcome::Changed),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(PutOutcome::NotEmpty),
            Err(errno) => Err(self.failed(errno)),
        }
    }
}

fn same_inode(a: &Stat, b: &Stat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino) && file_type(a) == file_type(b)
}

fn outcome(placed: PlaceOutcome) -> PutOutcome {
    match placed {
        PlaceOutcome::Done => PutOutcome::Done,
        PlaceOutcome::Changed => PutOutcome::Changed,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::roots::Roots;
    use crate::rules::PathRules;
    use crate::write::WriteState;

    fn workspace(dir: &std::path::Path) -> Workspace {
        let rules = PathRules::new(Some(dir.join(".llmc")), Vec::new());
        let roots = Roots::open(dir, &[PathBuf::from(".")], Arc::new(rules)).unwrap();
        let state = WriteState::open(&dir.join(".llmc"), Duration::from_secs(30)).unwrap();
        Workspace::new(Arc::new(roots), Some(Arc::new(state)))
    }

    fn put(files: &Workspace, path: &[u8], new: NewEntry<'_>) -> Result<PutOutcome> {
        files.put_entry(path, |_| Ok(true), new, "test", &CancelToken::default())
    }

    fn kind(files: &Workspace, path: &[u8]) -> &'static str {
        let path = files.roots.exact_path(path, Access::Read).unwrap();
        match path.entry().unwrap() {
            PathEntry::Absent => "absent",
            PathEntry::File { .. } => "file",
            PathEntry::Link { .. } => "link",
            PathEntry::Dir { .. } => "dir",
            PathEntry::Special => "special",
        }
    }

    #[test]
    fn every_kind_takes_the_place_of_every_other() {
        let dir = tempfile::tempdir().unwrap();
        let files = workspace(&dir.path().canonicalize().unwrap());
        let name = b"n\xff\\me";
        let all = [
            (NewEntry::Absent, "absent"),
            (
                NewEntry::File {
                    mode: 0o640,
                    content: b"text",
                },
                "file",
            ),
            (
                NewEntry::Link {
                    target: b"../x\xfe",
                },
                "link",
            ),
            (NewEntry::Dir { mode: 0o750 }, "dir"),
        ];
        for (first, before) in all {
            for (second, after) in all {
                assert_eq!(put(&files, name, first).unwrap(), PutOutcome::Done);
                assert_eq!(kind(&files, name), before);
                assert_eq!(put(&files, name, second).unwrap(), PutOutcome::Done);
                assert_eq!(kind(&files, name), after, "{before} to {after}");
                let path = dir.path().join(std::ffi::OsStr::from_bytes(name));
                let mode = |mode| {
                    let found = path.symlink_metadata().unwrap().permissions().mode();
                    assert_eq!(found & 0o7777, mode, "{before} to {after}");
                };
                match after {
                    "file" => mode(0o640),
                    "dir" => mode(0o750),
                    "link" => assert_eq!(
                        path.read_link().unwrap().as_os_str().as_bytes(),
                        b"../x\xfe"
                    ),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn links_are_never_followed_and_protected_names_never_put() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "theirs").unwrap();
        symlink(outside.path(), dir.path().join("out")).unwrap();
        symlink(outside.path().join("secret"), dir.path().join("link")).unwrap();
        let files = workspace(&dir.path().canonicalize().unwrap());
        let new = NewEntry::File {
            mode: 0o644,
            content: b"ours",
        };
        assert!(put(&files, b"out/secret", new).is_err());
        assert!(put(&files, b"out/new", new).is_err());
        assert_eq!(put(&files, b"link", new).unwrap(), PutOutcome::Done);
        for name in [
            &b".git/hooks/x"[..],
            b"llmc.toml",
            b".llmc/x",
            b"../x",
            b".",
        ] {
            assert!(put(&files, name, new).is_err(), "{name:?}");
        }
        let theirs = std::fs::read(outside.path().join("secret")).unwrap();
        assert_eq!(theirs, b"theirs");
        assert_eq!(std::fs::read(dir.path().join("link")).unwrap(), b"ours");
    }

    #[test]
    fn a_directory_with_entries_stays_and_so_does_what_is_not_expected() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        std::fs::write(dir.path().join("d/f"), "x").unwrap();
        let files = workspace(&dir.path().canonicalize().unwrap());
        let absent = NewEntry::Absent;
        assert_eq!(put(&files, b"d", absent).unwrap(), PutOutcome::NotEmpty);
        let refused = files.put_entry(
            b"d/f",
            |_| Ok(false),
            absent,
            "test",
            &CancelToken::default(),
        );
        assert_eq!(refused.unwrap(), PutOutcome::Changed);
        assert!(dir.path().join("d/f").exists());
    }

    #[test]
    fn ignored_paths_are_those_that_walks_leave_out() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(dir.path().join(".gitignore"), "target/\n*.log\n").unwrap();
        std::fs::write(dir.path().join("a/.gitignore"), "!keep.log\n").unwrap();
        let files = workspace(&dir.path().canonicalize().unwrap());
        for (path, is_dir, expected) in [
            (&b"x.log"[..], false, true),
            (b"a/keep.log", false, false),
            (b"a/b/x.log", false, true),
            (b"target", true, true),
            (b"target", false, false),
            (b"target/x", false, true),
            (b".git/config", false, true),
            (b".llmc", true, true),
            (b"a/b", true, false),
        ] {
            let exact = files.roots.exact_path(path, Access::Read).unwrap();
            assert_eq!(exact.is_ignored(is_dir).unwrap(), expected, "{path:?}");
        }
    }
}
