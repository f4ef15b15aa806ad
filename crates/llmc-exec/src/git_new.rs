//! Judging git's files where they lie: in repositories that a command has made, and where no mount keeps commands from the
//! ones that were there.
//!
//! What is harmless stays. Of a settings file the harmless part stays; anything else is moved away.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self as rfs, AtFlags, FileType, Mode, OFlags, statat};
use rustix::io::Errno;

use super::git_dirs::{config_text, named_repositories};
use super::git_mirror::open_dir;
use super::git_vet::{
    Rejection, Verdict, VetPlace, dot_git_target, is_index, object_format, vet_deletion, vet_file,
};
use super::quarantine::{Copy, Quarantined, Store};

/// A file that must be judged is read whole, up to this size.
const MAX_JUDGED_BYTES: u64 = 16 << 20;
/// The same of an index, which has an entry for every file.
const MAX_INDEX_BYTES: u64 = 256 << 20;
/// Files of one protected directory that are judged; one with more is moved away whole.
const MAX_FILES: usize = 10_000;
const MAX_DEPTH: usize = 8;
const SHA1_BYTES: usize = 20;
const SHA256_BYTES: usize = 32;

/// Judges files of one git directory.
pub(super) struct InPlace<'a> {
    pub(super) git_dir: &'a Path,
    pub(super) allowed: &'a [PathBuf],
    pub(super) store: &'a Store,
}

/// What a file was before a command changed it.
#[derive(Debug, Clone, Copy, Default)]
struct Before<'a> {
    /// What is put back where nothing of the new version is taken.
    own: Option<&'a [u8]>,
    /// What parts of the new version are compared with.
    known: Option<&'a [u8]>,
}

/// The lists of a rebase: git moves lines from one to the other.
const REBASE_LISTS: [&str; 2] = ["done", "git-rebase-todo"];

impl InPlace<'_> {
    /// Judges a protected name that was not there before, a file or a directory of files.
    pub(super) fn judge_new(&self, path: &Path, removed: &mut Vec<Quarantined>) {
        let mut left = MAX_FILES;
        self.judge_below(path, 0, &mut left, removed);
    }

    /// Judges a protected name that was something else before, or that is gone.
    pub(super) fn judge_changed(&self, path: &Path, before: &Copy, removed: &mut Vec<Quarantined>) {
        let now = std::fs::symlink_metadata(path).ok();
        match (before, now) {
            (_, None) => self.judge_deletion(path, before, removed),
            (Copy::File { bytes, .. }, Some(now)) if now.is_file() => {
                let (own, known) = (Some(&**bytes), Some(&**bytes));
                self.judge_file(path, Before { own, known }, removed);
            }
            (Copy::Dir(files), Some(now)) if now.is_dir() => {
                self.judge_changed_dir(path, files, removed);
            }
            _ => {
                removed.push(self.store.take_away(path.to_owned()));
                before.put_back(path);
            }
        }
    }

    fn judge_changed_dir(
        &self,
        path: &Path,
        files: &[(OsString, Copy)],
        removed: &mut Vec<Quarantined>,
    ) {
        let is_list = |name: &OsStr| {
            path.ends_with("rebase-merge") && REBASE_LISTS.iter().any(|list| name == *list)
        };
        let mut lists = Vec::new();
        for (_, copy) in files.iter().filter(|(name, _)| is_list(name)) {
            if let Copy::File { bytes, .. } = copy {
                lists.extend_from_slice(bytes);
            }
        }
        for (name, copy) in files {
            let path = path.join(name);
            match copy {
                _ if Copy::of(&path).as_ref() == Some(copy) => {}
                Copy::File { bytes, .. } if is_list(name) && path.is_file() => {
                    let (own, known) = (Some(&**bytes), Some(&*lists));
                    self.judge_file(&path, Before { own, known }, removed);
                }
                _ => self.judge_changed(&path, copy, removed),
            }
        }
        let Ok(entries) = std::fs::read_dir(path) else {
            removed.push(self.store.take_away(path.to_owned()));
            return;
        };
        let mut left = MAX_FILES;
        for name in entries.flatten().map(|entry| entry.file_name()) {
            let known = Some(&*lists).filter(|_| is_list(&name));
            let is_new = !files.iter().any(|(other, _)| *other == name);
            match is_new {
                true if known.is_some() => {
                    let before = Before { own: None, known };
                    self.judge_file(&path.join(name), before, removed);
                }
                true => self.judge_below(&path.join(name), 1, &mut left, removed),
                false => {}
            }
        }
    }

    /// Puts back what commands may not delete. A repository may be deleted as a whole.
    fn judge_deletion(&self, path: &Path, before: &Copy, removed: &mut Vec<Quarantined>) {
        let Ok(inner) = path.strip_prefix(self.git_dir) else {
            return;
        };
        if !self.git_dir.is_dir() {
            return;
        }
        if let Copy::Dir(files) = before {
            for (name, copy) in files {
                self.judge_deletion(&path.join(name), copy, removed);
            }
            return;
        }
        let parts: Vec<&[u8]> = inner.iter().map(OsStr::as_bytes).collect();
        if let Some(rejection) = vet_deletion(&parts) {
            if let Some(dir) = path.parent() {
                // What is there already is as good, and below what is gone nothing can be put back.
                let _ = std::fs::create_dir(dir);
            }
            before.put_back(path);
            removed.push(Quarantined::rejected(self.git_dir, rejection));
        }
    }

    fn judge_below(
        &self,
        path: &Path,
        depth: usize,
        left: &mut usize,
        removed: &mut Vec<Quarantined>,
    ) {
        let Ok(status) = std::fs::symlink_metadata(path) else {
            return;
        };
        *left = left.saturating_sub(1);
        let is_bounded = *left > 0 && depth < MAX_DEPTH;
        // What cannot be read cannot be judged either.
        let is_read = status.is_dir() && is_bounded;
        if let Some(Ok(entries)) = is_read.then(|| std::fs::read_dir(path)) {
            for entry in entries.flatten() {
                self.judge_below(&entry.path(), depth + 1, left, removed);
            }
        } else if status.is_file() && is_bounded {
            self.judge_file(path, Before::default(), removed);
        } else {
            removed.push(self.store.take_away(path.to_owned()));
        }
    }

    fn judge_file(&self, path: &Path, before: Before<'_>, removed: &mut Vec<Quarantined>) {
        let Ok(inner) = path.strip_prefix(self.git_dir) else {
            return;
        };
        let verdict = match read(path) {
            // Made, and not written yet: nothing that git obeys.
            Ok(content) if content.is_empty() && before.own.is_none() => Verdict::Harmless,
            Ok(content) => judged(self.git_dir, inner, &content, before.known, self.allowed),
            // It is gone again.
            Err(Errno::NOENT) => return,
            Err(_) => Verdict::Refused(Vec::new()),
        };
        let own = |rejected: Vec<Rejection>| {
            let rejected = rejected.into_iter();
            rejected.map(|one| Quarantined::rejected(self.git_dir, one))
        };
        match verdict {
            Verdict::Harmless => {}
            Verdict::Filtered { content, rejected } => match replace(path, &content) {
                Ok(()) => removed.extend(own(rejected)),
                Err(_) => removed.push(self.store.take_away(path.to_owned())),
            },
            Verdict::Refused(rejected) => {
                let taken = self.store.take_away(path.to_owned());
                match rejected.is_empty() || taken.is_left {
                    true => removed.push(taken),
                    false => removed.extend(own(rejected).map(|one| Quarantined {
                        moved_to: taken.moved_to.clone(),
                        ..one
                    })),
                }
                if let Some(before) = before.own {
                    // What was moved away can be looked at there; the file is as it was.
                    let _ = replace(path, before);
                }
            }
        }
    }
}

/// Judges what would be placed at a path below a git directory.
pub(super) fn judged(
    git_dir: &Path,
    path: &Path,
    new: &[u8],
    before: Option<&[u8]>,
    allowed: &[PathBuf],
) -> Verdict {
    let parts: Vec<&[u8]> = path.iter().map(OsStr::as_bytes).collect();
    let hash_bytes = object_hash_bytes(git_dir, path);
    if path.ends_with("config") && changes_hash(git_dir, path, new, hash_bytes) {
        return Verdict::Refused(vec![Rejection {
            file: path.display().to_string(),
            item: "extensions.objectFormat".to_owned(),
            reason: "the index would be read in another way than it was judged",
        }]);
    }
    let mut allowed = allowed.to_vec();
    // A remote may be any repository of this user that is there: no command can write one outside the places they may write.
    allowed.extend(named_repositories(new, git_dir));
    let place = VetPlace {
        git_dir,
        allowed: &allowed,
        hash_bytes,
    };
    vet_file(&parts, new, before, &place)
}

/// How large a file may be that is judged.
pub(super) fn max_judged_bytes(path: &Path) -> u64 {
    let parts: Vec<&[u8]> = path.iter().map(OsStr::as_bytes).collect();
    match is_index(&parts) {
        true => MAX_INDEX_BYTES,
        false => MAX_JUDGED_BYTES,
    }
}

/// Length of the names of objects where a file lies: the nearest configuration says it.
fn object_hash_bytes(git_dir: &Path, path: &Path) -> usize {
    let dirs = path.ancestors().skip(1).map(|dir| git_dir.join(dir));
    let nearest = dirs.into_iter().find(|dir| dir.join("config").is_file());
    nearest.map_or(SHA1_BYTES, |dir| hash_bytes_of(&config_text(&dir)))
}

fn hash_bytes_of(config: &[u8]) -> usize {
    match object_format(config).is_some_and(|format| format.eq_ignore_ascii_case(b"sha256")) {
        true => SHA256_BYTES,
        false => SHA1_BYTES,
    }
}

/// Whether a configuration gives an index that is there names of another length.
fn changes_hash(git_dir: &Path, path: &Path, new: &[u8], hash_bytes: usize) -> bool {
    let dir = git_dir.join(path.parent().unwrap_or(Path::new("")));
    let has_index = ["index", "worktrees"]
        .iter()
        .any(|name| dir.join(name).exists());
    has_index && hash_bytes_of(new) != hash_bytes
}

/// Whether a `.git` file leads where git puts one: to one of the known git directories, or to a working tree's or submodule's
/// directory in one.
pub(super) fn leads_into(file: &Path, git_dirs: &[PathBuf]) -> bool {
    let Some(dir) = file.parent() else {
        return false;
    };
    let target = read(file)
        .ok()
        .and_then(|text| dot_git_target(&text, dir).ok());
    target.is_some_and(|target| {
        git_dirs.iter().any(|git_dir| {
            let inner = target.strip_prefix(git_dir).ok();
            let first = inner.and_then(|inner| inner.iter().next());
            inner.is_some_and(|inner| inner == Path::new(""))
                || first.is_some_and(|first| first == "worktrees" || first == "modules")
        })
    })
}

/// Reads a regular file without following a link anywhere on the way.
fn read(path: &Path) -> Result<Vec<u8>, Errno> {
    let (dir, name) = parent(path)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rfs::openat(&dir, name, flags, Mode::empty())?;
    let status = rfs::fstat(&file)?;
    let size = u64::try_from(status.st_size).unwrap_or(u64::MAX);
    let limit = max_judged_bytes(Path::new(name));
    if !FileType::from_raw_mode(status.st_mode).is_file() || size > limit {
        return Err(Errno::INVAL);
    }
    let mut content = Vec::new();
    let read = File::from(file).take(limit).read_to_end(&mut content);
    read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(content)
}

/// Puts a new file in place, so that no command holds a descriptor of it.
fn replace(path: &Path, content: &[u8]) -> Result<(), Errno> {
    let (dir, name) = parent(path)?;
    let mode = match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(status) => Mode::from_raw_mode(status.st_mode & 0o666),
        Err(_) => Mode::from_raw_mode(0o644),
    };
    let mut new_name = name.to_owned();
    new_name.push(".llmc.lock");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let _ = rfs::unlinkat(&dir, &new_name, AtFlags::empty());
    let file = rfs::openat(&dir, &new_name, flags, mode)?;
    File::from(file)
        .write_all(content)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    rfs::renameat(&dir, &new_name, &dir, name)
}

fn parent(path: &Path) -> Result<(OwnedFd, &OsStr), Errno> {
    let name = path.file_name().ok_or(Errno::INVAL)?;
    let dir = path.parent().ok_or(Errno::INVAL)?;
    Ok((open_dir(dir, OFlags::PATH)?, name))
}
