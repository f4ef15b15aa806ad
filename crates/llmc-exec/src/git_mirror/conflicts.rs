//! What the user's git and a command both changed, and what is said of that and of what stays out.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{self as rfs, Mode, OFlags};
use rustix::io::Errno;
use ulid::Ulid;

use super::packed_refs;
use super::side::{Entry, open_dir_at};
use super::sync::Sync;
use super::transfer::{HOST_LOCK_TIMEOUT, Problem, Source, place};
use crate::git_index::has_same_entries;
use crate::git_new::max_judged_bytes;
use crate::git_vet::Rejection;

/// A larger list of packed refs is not merged with another one.
const MAX_PACKED_REFS_BYTES: u64 = 256 << 20;
/// Where a commit is kept whose branch or `HEAD` could not be moved to it.
const KEPT_REFS: &str = "refs/llmc";
/// Names that many commands rewrite and none reads later, and what git makes anew from other data: that the user's stay is not
/// reported.
const FORGOTTEN: [&str; 8] = [
    "COMMIT_EDITMSG",
    "FETCH_HEAD",
    "ORIG_HEAD",
    "gc.log",
    "info/refs",
    "objects/info/packs",
    "objects/info/commit-graph",
    "commit-graph-chain",
];

impl Sync<'_> {
    /// The user's git and a command changed one name since both were last compared.
    pub(super) fn both_changed(
        &mut self,
        path: &Path,
        host: Option<Entry>,
        copy: Option<Entry>,
    ) -> Result<(), Problem> {
        let (ours, theirs) = (&self.mirror.host, &self.mirror.copy);
        let limit = max_judged_bytes(path);
        let is_file = |entry| matches!(entry, Some(Entry::File(_)));
        if is_file(host)
            && is_file(copy)
            && let (Ok(a), Ok(b)) = (ours.read(path, limit), theirs.read(path, limit))
            && a == b
        {
            self.settle_as(path, host, copy);
            return Ok(());
        }
        match path.to_str() {
            Some("index") => {
                let (host_index, copy_index) = (ours.open(path).ok(), theirs.open(path).ok());
                let is_refreshed = |now: &Option<File>| {
                    let before = self.state.index.as_ref();
                    before
                        .zip(now.as_ref())
                        .is_some_and(|(before, now)| has_same_entries(before, now))
                };
                if is_refreshed(&host_index) {
                    return self.update_host(path, host, copy);
                }
                if is_refreshed(&copy_index) {
                    return self.update_copy(path, host, copy);
                }
            }
            Some("packed-refs") => {
                let base = self
                    .state
                    .packed_refs
                    .as_ref()
                    .and_then(|file| bytes_of(file).ok());
                let (ours, theirs) = (
                    ours.read(path, MAX_PACKED_REFS_BYTES),
                    theirs.read(path, MAX_PACKED_REFS_BYTES),
                );
                let merged = match (base, ours, theirs) {
                    (base, Ok(ours), Ok(theirs)) => {
                        packed_refs::merged(&base.unwrap_or_default(), &ours, &theirs)
                    }
                    _ => None,
                };
                if let Some(merged) = merged {
                    let source = Source::Bytes(&merged);
                    let placed = place(&self.mirror.host, path, &source, host, HOST_LOCK_TIMEOUT)?;
                    return self.update_copy(path, placed, copy);
                }
            }
            _ => {}
        }
        Err(Problem::Changed)
    }

    /// Whether the user's index differs from the one that both sides had only in the times of files.
    pub(super) fn is_refreshed_index(&self, path: &Path) -> bool {
        let now = self.mirror.host.open(path).ok();
        let before = self
            .state
            .index
            .as_ref()
            .filter(|_| path == Path::new("index"));
        before
            .zip(now)
            .is_some_and(|(before, now)| has_same_entries(before, &now))
    }

    /// The user's version stays. A commit that only the copy's `HEAD` names is kept under a name of its own.
    pub(super) fn conflict(&mut self, path: &Path) {
        let shown = self.mirror.git_dir.join(path).display().to_string();
        let is_forgotten = FORGOTTEN.iter().any(|name| path.ends_with(name));
        if !is_forgotten {
            let kept = match path.file_name().is_some_and(|name| name == "HEAD") {
                true => self.keep_commit(path),
                false => None,
            };
            let kept = kept.map_or(String::new(), |name| {
                format!("; the command's commit is {name}")
            });
            self.state.report.notes.push(format!(
                "{shown} was changed by another program while a command changed it: that program's version was kept{kept}"
            ));
            self.state.report.has_conflict = true;
        }
        let (host, copy) = (self.mirror.host.entry(path), self.mirror.copy.entry(path));
        if let Err(Problem::Failed(errno)) = self.update_copy(path, host, copy) {
            self.fail(path, errno);
        }
    }

    /// Makes a ref of the commit that the copy's detached `HEAD` is.
    pub(super) fn keep_commit(&self, path: &Path) -> Option<String> {
        let head = self.mirror.copy.read(path, 256).ok()?;
        let head = String::from_utf8(head).ok()?;
        let oid = head.trim();
        if !matches!(oid.len(), 40 | 64) || !oid.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let name = format!("{KEPT_REFS}/{}", Ulid::new().to_string().to_lowercase());
        let refs = self.mirror.host.dir(Path::new("refs")).ok()?;
        match rfs::mkdirat(&refs, "llmc", Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(_) => return None,
        }
        let dir = open_dir_at(&refs, "llmc".as_ref()).ok()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let last = Path::new(&name).file_name()?;
        let file = rfs::openat(&dir, last, flags, Mode::from_raw_mode(0o644)).ok()?;
        io::Write::write_all(&mut File::from(file), format!("{oid}\n").as_bytes()).ok()?;
        Some(name)
    }

    pub(super) fn fail(&mut self, path: &Path, errno: Errno) {
        let shown = self.mirror.git_dir.join(path);
        let note = format!(
            "{} was not written to the repository: {errno}",
            shown.display()
        );
        if !self.state.report.notes.contains(&note) {
            self.state.report.notes.push(note);
        }
        self.state.report.has_conflict = true;
    }

    pub(super) fn reject(&mut self, path: &Path, item: &str, reason: &'static str) {
        self.report(Rejection {
            file: path.display().to_string(),
            item: item.to_owned(),
            reason,
        });
    }

    pub(super) fn report(&mut self, rejection: Rejection) {
        let rejected = (self.mirror.git_dir.clone(), rejection);
        // A command that had read the file before may write the same once more.
        if !self.state.report.rejected.contains(&rejected) {
            self.state.report.rejected.push(rejected);
        }
    }

    pub(super) fn withdraw(&mut self, path: &Path) {
        let git_dir = &self.mirror.git_dir;
        let is_other =
            |(dir, one): &(PathBuf, Rejection)| dir != git_dir || Path::new(&one.file) != path;
        self.state.report.rejected.retain(is_other);
    }
}

pub(super) fn bytes_of(file: &File) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    if length > MAX_PACKED_REFS_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    std::os::unix::fs::FileExt::read_exact_at(file, &mut bytes, 0)?;
    Ok(bytes)
}
