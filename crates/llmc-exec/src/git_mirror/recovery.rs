//! What servers that were killed have left: changes that had not been compared with the user's side yet.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self as rfs, AtFlags, CWD, FlockOperation, Mode, OFlags, flock};

use super::side::Entry;
use super::{AllowedDirs, DIRECT_DIRS, GIT_DIR_FILE, Mirror, SYNCED_FILE, open_dir, transfer};

/// Locks of one repository that are looked for.
const MAX_LEFT_LOCKS: usize = 1000;

/// Takes over the mirrors of servers that no longer run, and says what there was.
pub(super) fn take_over(mirrors: &Path, allowed: &AllowedDirs) -> Vec<String> {
    let mut notes = Vec::new();
    for server in entries(mirrors) {
        let locked = open_dir(&server, OFlags::RDONLY)
            .and_then(|dir| flock(&dir, FlockOperation::NonBlockingLockExclusive).map(|()| dir));
        let Ok(_lock) = locked else {
            continue;
        };
        for dir in entries(&server).into_iter().filter(|dir| dir.is_dir()) {
            if let Some(mirror) = left_mirror(&dir, allowed) {
                notes.extend(mirror.finish());
            }
        }
        remove(&server);
    }
    notes
}

fn left_mirror(dir: &Path, allowed: &AllowedDirs) -> Option<Mirror> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a file of the server's own making"
    )]
    let git_dir = std::fs::read(dir.join(GIT_DIR_FILE)).ok()?;
    let git_dir = Path::new(OsStr::from_bytes(&git_dir));
    // The state directory may have come with an archive.
    if !allowed.get().iter().any(|place| git_dir.starts_with(place)) {
        return None;
    }
    Mirror::open(git_dir, dir.to_owned(), allowed.clone()).ok()
}

impl Mirror {
    /// Carries over what commands changed after both sides were last the same, where the user has not gone on since.
    fn finish(&self) -> Option<String> {
        let synced = std::fs::metadata(self.dir.join(SYNCED_FILE)).ok()?;
        let synced = (
            synced.mtime(),
            u64::try_from(synced.mtime_nsec()).unwrap_or(0),
        );
        let direct: BTreeSet<PathBuf> = DIRECT_DIRS
            .into_iter()
            .chain([llmc_host::GIT_STATE_DIR])
            .map(PathBuf::from)
            .collect();
        let host = self.host.list(&direct).ok()?;
        let copy = self.copy.list(&direct).ok()?;
        let is_new = |entry: &Entry| !entry.is_dir() && entry.modified() >= synced;
        let mut done = Vec::new();
        for (path, entry) in copy.iter().filter(|(_, entry)| is_new(entry)) {
            let own = host.get(path);
            if own.is_some_and(|own| {
                own.is_same_file(*entry)
                    || own.is_copy_of(*entry)
                    || own.modified() > entry.modified()
            }) {
                continue;
            }
            if self.take_over(path, own.copied(), *entry) {
                done.push(path.display().to_string());
            }
        }
        done.extend(self.remove_left_locks());
        let rejected = self.take_report().rejected;
        let left = match rejected.is_empty() {
            true => String::new(),
            false => format!(
                "; not taken over: {}",
                rejected
                    .iter()
                    .map(|(_, one)| one.file.clone())
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        };
        (!done.is_empty() || !left.is_empty()).then(|| {
            format!(
                "a server that was killed left {} unfinished: put in order now: {}{left}",
                self.git_dir.display(),
                done.join(", ")
            )
        })
    }
}

impl Mirror {
    /// Deletes git's locks that commands of the killed server have left, which would keep every git out. Returns their names.
    fn remove_left_locks(&self) -> Vec<String> {
        let Ok(begun) = std::fs::metadata(self.dir.join(GIT_DIR_FILE)) else {
            return Vec::new();
        };
        let begun = (
            begun.mtime(),
            u64::try_from(begun.mtime_nsec()).unwrap_or(0),
        );
        if is_git_running(&self.git_dir) {
            return Vec::new();
        }
        let mut removed = Vec::new();
        let mut next = vec![PathBuf::from("refs")];
        let mut names: Vec<PathBuf> = Vec::new();
        if let Ok(top) = self.host.dir(Path::new("")) {
            names.extend(locks_in(&top, Path::new(""), None));
        }
        while let Some(path) = next.pop().filter(|_| names.len() < MAX_LEFT_LOCKS) {
            if let Ok(dir) = self.host.dir(&path) {
                names.extend(locks_in(&dir, &path, Some(&mut next)));
            }
        }
        for path in names {
            let entry = self.host.entry(&path);
            if let Some(entry @ Entry::File(_)) = entry
                && entry.modified() >= begun
                && transfer::remove(&self.host, &path, entry).is_ok()
            {
                removed.push(path.display().to_string());
            }
        }
        removed
    }
}

/// Git's locks in one directory; directories in it are added to `dirs`.
fn locks_in(dir: &OwnedFd, path: &Path, dirs: Option<&mut Vec<PathBuf>>) -> Vec<PathBuf> {
    let mut locks = Vec::new();
    let mut inner = Vec::new();
    for entry in rfs::Dir::read_from(dir).into_iter().flatten().flatten() {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name.as_bytes().ends_with(b".lock") {
            locks.push(path.join(name));
        } else if entry.file_type().is_dir() && name != "." && name != ".." {
            inner.push(path.join(name));
        }
    }
    if let Some(dirs) = dirs {
        dirs.append(&mut inner);
    }
    locks
}

/// Whether a git of the user's may be at work in a repository: one that stands in it or in its working tree.
fn is_git_running(git_dir: &Path) -> bool {
    let tree = match git_dir.ends_with(".git") {
        true => git_dir.parent().unwrap_or(git_dir),
        false => git_dir,
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.map(|entry| entry.path()).any(|process| {
        #[expect(
            clippy::disallowed_methods,
            reason = "a file of the kernel, not of the agent"
        )]
        let name = std::fs::read_to_string(process.join("comm")).unwrap_or_default();
        let is_git = name.starts_with("git");
        is_git && std::fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(tree))
    })
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Deletes a directory of which no command uses anything any more.
#[expect(
    clippy::disallowed_methods,
    reason = "a directory of the server's own making"
)]
pub(super) fn remove(dir: &Path) {
    if std::fs::remove_dir_all(dir).is_err() {
        make_writable(dir);
        let _ = std::fs::remove_dir_all(dir);
    }
}

/// A command may have taken the permissions of its own directories away.
fn make_writable(dir: &Path) {
    let _ = rfs::chmodat(CWD, dir, Mode::RWXU, AtFlags::empty());
    let dirs = std::fs::read_dir(dir).into_iter().flatten().flatten();
    dirs.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .for_each(|entry| make_writable(&entry.path()));
}
