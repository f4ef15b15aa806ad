//! Moving away what a command planted, and putting back what it changed.
//!
//! Things are reached by descriptor and without following links: the run has ended by then, but others may still run.

use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use llmc_host::protected_git_entry;
use rustix::fs::{self as rfs, AtFlags, CWD, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use ulid::Ulid;

use super::git_vet::Rejection;

/// The directory in the state directory where things end up.
const SHELF: &str = "quarantine";
/// Files above this size are not copied, so not put back.
const COPY_LIMIT: u64 = 1 << 20;
/// Files of one directory that are copied.
const COPY_FILES: usize = 256;

/// Names of a run that are reported one by one.
const MAX_NAMED: usize = 6;
/// What a caller does about names of git that were not taken over.
const PROTECTED_IN_GIT: &str = "what makes git run programs, include files or use other directories is the user's to set, in \
their own shell";

/// Something that a run made or changed and that is not on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// Where it was.
    pub path: PathBuf,
    /// What of it, if it is not the whole file, and why it stays out.
    pub rejected: Option<RejectedItem>,
    /// Where it is now; `None` if it could not be moved.
    pub moved_to: Option<PathBuf>,
    /// Whether it could not be taken away and is still where it was.
    pub is_left: bool,
}

/// One thing of a git directory's file that was not taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedItem {
    /// The key, the verb or the line.
    pub item: String,
    pub reason: &'static str,
}

/// The messages about what was taken away after a run; `show` gives a path as the caller knows it.
pub fn quarantine_notes(taken: &[Quarantined], show: impl Fn(&Path) -> String) -> Vec<String> {
    let named = taken.iter().take(MAX_NAMED);
    let mut notes: Vec<String> = named.map(|one| one.note(&show)).collect();
    if taken.len() > MAX_NAMED {
        let more = taken.len() - MAX_NAMED;
        notes.push(format!("{more} more protected names were taken away"));
    }
    let is_git = |path: &Path| path.file_name().is_some_and(|name| name == ".git");
    // A git directory need not be called `.git`.
    let is_git_entry = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        protected_git_entry(&[name.as_bytes()]).is_some()
    };
    let is_gits = |one: &Quarantined| {
        one.rejected.is_some() || one.path.ancestors().any(is_git) || is_git_entry(&one.path)
    };
    if taken.iter().any(is_gits) {
        notes.push(PROTECTED_IN_GIT.to_owned());
    }
    notes
}

impl Quarantined {
    /// What the judgement of a file in a git directory left out.
    pub(super) fn rejected(git_dir: &Path, rejection: Rejection) -> Quarantined {
        Quarantined {
            path: git_dir.join(rejection.file),
            rejected: Some(RejectedItem {
                item: rejection.item,
                reason: rejection.reason,
            }),
            moved_to: None,
            is_left: false,
        }
    }

    fn note(&self, show: impl Fn(&Path) -> String) -> String {
        let shown = show(&self.path);
        if let Some(RejectedItem { item, reason }) = &self.rejected {
            let kept = match &self.moved_to {
                Some(place) => format!("; it is kept as {}", shown_place(place, &show)),
                None => String::new(),
            };
            return format!("{shown}: {item} was not taken over ({reason}){kept}");
        }
        if self.is_left {
            return format!("{shown} is protected and could not be taken away: delete it");
        }
        let kept = match &self.moved_to {
            Some(place) => format!("is kept as {}", shown_place(place, &show)),
            None => "is deleted".to_owned(),
        };
        format!("{shown} is protected: it was taken away and {kept}")
    }
}

/// A place in the quarantine. One outside of the workspace is named without its folder, which callers need not know.
fn shown_place(place: &Path, show: impl Fn(&Path) -> String) -> String {
    let shown = show(place);
    if !shown.starts_with('/') {
        return shown;
    }
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    format!("{SHELF}/{name} in the state directory")
}

/// Where planted things are moved to.
#[derive(Debug)]
pub(super) struct Store {
    state_dir: Option<PathBuf>,
}

impl Store {
    pub(super) fn new(state_dir: Option<PathBuf>) -> Store {
        Store { state_dir }
    }

    /// Moves one thing away. Where the state directory is on another file system, it only gets a harmless name.
    pub(super) fn take_away(&self, path: PathBuf) -> Quarantined {
        let moved_to = self.try_take_away(&path).ok();
        Quarantined {
            path,
            rejected: None,
            is_left: moved_to.is_none(),
            moved_to,
        }
    }

    fn try_take_away(&self, path: &Path) -> Result<PathBuf, Errno> {
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::INVAL);
        };
        let from = open_dir(dir)?;
        let mut new_name = OsString::from(Ulid::new().to_string());
        new_name.push("-");
        new_name.push(name);
        if let Some(shelf) = self.shelf() {
            let to = open_dir(&shelf)?;
            match rename(&from, name, &to, &new_name) {
                Ok(()) => return Ok(shelf.join(new_name)),
                Err(Errno::XDEV) => {}
                Err(errno) => return Err(errno),
            }
        }
        let mut in_place = OsString::from("quarantined-");
        in_place.push(&new_name);
        rename(&from, name, &from, &in_place)?;
        Ok(dir.join(in_place))
    }

    fn shelf(&self) -> Option<PathBuf> {
        let state = std::fs::canonicalize(self.state_dir.as_ref()?).ok()?;
        let shelf = state.join(SHELF);
        match std::fs::DirBuilder::new().mode(0o700).create(&shelf) {
            Ok(()) => Some(shelf),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Some(shelf),
            Err(_) => None,
        }
    }
}

fn rename(from: &OwnedFd, name: &OsStr, to: &OwnedFd, new_name: &OsString) -> Result<(), Errno> {
    let attempt = || rfs::renameat_with(from, name, to, new_name, RenameFlags::NOREPLACE);
    match attempt() {
        // A directory's own parent entry changes, so it must be writable itself; its owner may make it so.
        Err(Errno::ACCESS) => {
            rfs::chmodat(from, name, Mode::RWXU, AtFlags::empty())?;
            attempt()
        }
        other => other,
    }
}

/// A copy of a protected thing, to compare with and to put back.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Copy {
    File { bytes: Vec<u8>, mode: u32 },
    Dir(Vec<(OsString, Copy)>),
    Link(PathBuf),
}

impl Copy {
    /// `None` for what is not there, too large, or of an odd kind.
    pub(super) fn of(path: &Path) -> Option<Copy> {
        let status = std::fs::symlink_metadata(path).ok()?;
        if status.is_symlink() {
            return std::fs::read_link(path).ok().map(Copy::Link);
        }
        if status.is_dir() {
            let entries = std::fs::read_dir(path).ok()?.flatten().take(COPY_FILES);
            let mut files: Vec<(OsString, Copy)> = entries
                .filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_dir()))
                .filter_map(|entry| Some((entry.file_name(), Copy::of(&entry.path())?)))
                .collect();
            files.sort_by(|a, b| a.0.cmp(&b.0));
            return Some(Copy::Dir(files));
        }
        if !status.is_file() || status.len() > COPY_LIMIT {
            return None;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rfs::open(path, flags, Mode::empty()).ok()?;
        let mut bytes = Vec::new();
        std::fs::File::from(file)
            .take(COPY_LIMIT + 1)
            .read_to_end(&mut bytes)
            .ok()?;
        Some(Copy::File {
            bytes,
            mode: status.permissions().mode(),
        })
    }

    /// Writes it back to where nothing is now.
    pub(super) fn put_back(&self, path: &Path) {
        // Whatever fails here was reported as changed already.
        match self {
            Copy::Link(target) => {
                let _ = std::os::unix::fs::symlink(target, path);
            }
            Copy::Dir(files) => {
                let _ = std::fs::create_dir(path);
                for (name, copy) in files {
                    copy.put_back(&path.join(name));
                }
            }
            Copy::File { bytes, mode } => {
                let flags = OFlags::WRONLY
                    | OFlags::CREATE
                    | OFlags::EXCL
                    | OFlags::NOFOLLOW
                    | OFlags::CLOEXEC;
                if let Ok(fd) = rfs::open(path, flags, Mode::from_raw_mode(0o600)) {
                    let mut file = std::fs::File::from(fd);
                    let _ = std::io::Write::write_all(&mut file, bytes);
                    let _ = file.set_permissions(Permissions::from_mode(*mode));
                }
            }
        }
    }
}

fn open_dir(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    loop {
        match rfs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
}
