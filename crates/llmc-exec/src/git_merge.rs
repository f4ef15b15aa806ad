//! Merging what a command changed in a git directory into the host's, once its last process has ended.
//!
//! The command worked on an overlay; its upper layer holds what is new or changed, and a marker for each name that was
//! deleted. Objects come first, then refs, the index last, and objects are deleted only after that, so that a program of
//! the host that looks meanwhile finds nothing that is missing. Protected names, links and special files are never merged.
//! Files that the host replaces as well are replaced as git does it, under `NAME.lock`. What the host changed while the
//! command ran stays, and is reported; its refs then keep the index too, which would not fit them.

mod change;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use llmc_host::protected_git_entry;
use rustix::fs::{
    self as rfs, AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat, renameat_with, statat,
    unlinkat,
};
use rustix::io::Errno;

use self::change::{Change, ChangeKind, Stage};
use super::git_index::has_same_entries;
use super::git_overlay::{GitLayer, open_dir};
use super::quarantine::{Quarantined, Store};

/// How long a lock of the host's git is waited for.
const HOST_LOCK_TIMEOUT: Duration = Duration::from_millis(500);
/// Changed names of one run.
const MAX_CHANGES: usize = 1 << 20;
/// Names that a report lists before it only counts.
const MAX_NAMES_IN_NOTE: usize = 8;

/// What was not merged.
#[derive(Debug, Default)]
pub(super) struct MergeReport {
    /// Protected names that the command had made.
    pub(super) quarantined: Vec<Quarantined>,
    pub(super) notes: Vec<String>,
}

/// Merges a layer into its git directory.
pub(super) fn merge(layer: &GitLayer, quarantine: &Store) -> MergeReport {
    let mut merge = Merge {
        layer,
        quarantine,
        changes: Vec::new(),
        conflicts: Vec::new(),
        failures: Vec::new(),
        report: MergeReport::default(),
        last_dir: None,
    };
    if let Err(error) = merge.carry_out() {
        let kept = quarantine.take_as(&layer.upper(), layer.git_dir.clone());
        merge.report.notes.push(format!(
            "what the command changed in {} could not be merged ({error}){}",
            layer.git_dir.display(),
            kept_at(&kept)
        ));
    }
    merge.finish()
}

fn kept_at(kept: &Quarantined) -> String {
    let moved = kept.moved_to.as_ref();
    moved.map_or(String::new(), |path| {
        format!("; it is in {}", path.display())
    })
}

struct Merge<'a> {
    layer: &'a GitLayer,
    quarantine: &'a Store,
    changes: Vec<Change>,
    /// Names that the host changed meanwhile, with the value that the command gave a ref.
    conflicts: Vec<String>,
    /// Names that could not be merged, and why.
    failures: Vec<String>,
    report: MergeReport,
    /// The directory that was used last, since most changes come in groups.
    last_dir: Option<(Vec<OsString>, OwnedFd)>,
}

/// Why a change was not merged.
enum Problem {
    HostChanged,
    Failed(Errno),
}

impl From<Errno> for Problem {
    fn from(errno: Errno) -> Problem {
        Problem::Failed(errno)
    }
}

impl Merge<'_> {
    fn carry_out(&mut self) -> io::Result<()> {
        let upper = open_dir(&self.layer.upper(), OFlags::RDONLY)?;
        let lower = self.layer.lower.try_clone()?;
        self.collect(&upper, Some(&lower), &mut Vec::new())?;
        let mut changes = std::mem::take(&mut self.changes);
        changes.sort_by(|a, b| (a.stage(), a.kind, &a.parts).cmp(&(b.stage(), b.kind, &b.parts)));
        let mut refs_differ = false;
        for change in &changes {
            let stage = change.stage();
            if refs_differ && stage >= Stage::Index {
                if stage == Stage::Index {
                    self.conflicts.push(change.shown());
                }
                continue;
            }
            let merged = match change.kind {
                ChangeKind::Directory => self.dir(&change.parts).map(drop),
                ChangeKind::File => self.file(&upper, change),
                ChangeKind::Deleted => self.delete(&change.parts),
            };
            match merged {
                Ok(()) => {}
                Err(Problem::HostChanged) => {
                    refs_differ |= (Stage::PackedRefs..=Stage::Head).contains(&stage);
                    self.note_conflict(change);
                }
                Err(Problem::Failed(errno)) => {
                    refs_differ |= (Stage::PackedRefs..=Stage::Head).contains(&stage);
                    self.failures.push(format!("{} ({errno})", change.shown()));
                }
            }
        }
        Ok(())
    }

    fn finish(mut self) -> MergeReport {
        if !self.conflicts.is_empty() {
            self.report.notes.push(format!(
                "the repository changed while the command ran, and its own state was kept: {} (the command's objects are there)",
                listed(&self.conflicts)
            ));
        }
        if !self.failures.is_empty() {
            self.report.notes.push(format!(
                "not written to the repository: {}",
                listed(&self.failures)
            ));
        }
        self.report
    }

    /// Lists what the command changed below one directory, and takes away what is not to be merged.
    fn collect(
        &mut self,
        upper: &OwnedFd,
        lower: Option<&OwnedFd>,
        parts: &mut Vec<OsString>,
    ) -> io::Result<()> {
        let mut names = Vec::new();
        for entry in Dir::read_from(upper)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        if self.changes.len() + names.len() > MAX_CHANGES {
            return Err(io::Error::other("too many files"));
        }
        if let Some(lower) = lower.filter(|_| is_opaque(upper)) {
            self.collect_hidden(lower, &names, parts)?;
        }
        for name in names {
            let status = statat(upper, &name, AtFlags::SYMLINK_NOFOLLOW)?;
            parts.push(name);
            self.collect_entry(upper, lower, parts, &status)?;
            parts.pop();
        }
        Ok(())
    }

    fn collect_entry(
        &mut self,
        upper: &OwnedFd,
        lower: Option<&OwnedFd>,
        parts: &mut Vec<OsString>,
        status: &Stat,
    ) -> io::Result<()> {
        let Some(name) = parts.last().cloned() else {
            return Ok(());
        };
        let kind = match FileType::from_raw_mode(status.st_mode) {
            FileType::CharacterDevice if status.st_rdev == 0 => ChangeKind::Deleted,
            FileType::RegularFile => ChangeKind::File,
            FileType::Directory => ChangeKind::Directory,
            // No program that can be asked outlives the run.
            FileType::Socket => return Ok(()),
            _ => {
                self.reject(parts);
                return Ok(());
            }
        };
        let change = Change {
            parts: parts.clone(),
            kind,
        };
        if kind == ChangeKind::Deleted {
            if !is_protected(parts) && lower.is_some_and(|dir| exists(dir, &name)) {
                self.changes.push(change);
            }
            return Ok(());
        }
        if is_protected(parts) {
            self.reject(parts);
            return Ok(());
        }
        if kind == ChangeKind::File {
            if !change.is_left_over() {
                self.changes.push(change);
            }
            return Ok(());
        }
        let inner = open_below(upper, &name)?;
        let below = lower.and_then(|dir| open_at(dir, &name).ok());
        // A submodule or a working tree without its configuration would be of no use.
        let is_nested = matches!(parts[0].as_bytes(), b"modules" | b"worktrees");
        if below.is_none() && is_nested && holds_protected(&inner, parts)? {
            self.reject(parts);
            return Ok(());
        }
        if below.is_none() {
            self.changes.push(change);
        }
        self.collect(&inner, below.as_ref(), parts)
    }

    /// Names of the host that a directory made anew hides.
    fn collect_hidden(
        &mut self,
        lower: &OwnedFd,
        shown: &[OsString],
        parts: &mut Vec<OsString>,
    ) -> io::Result<()> {
        for entry in Dir::read_from(lower)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
            if name == "." || name == ".." || shown.contains(&name) {
                continue;
            }
            parts.push(name);
            if !is_protected(parts) {
                self.changes.push(Change {
                    parts: parts.clone(),
                    kind: ChangeKind::Deleted,
                });
            }
            parts.pop();
        }
        Ok(())
    }

    /// Moves a name out of the layer into the quarantine.
    fn reject(&mut self, parts: &[OsString]) {
        let inner: PathBuf = parts.iter().collect();
        let from = self.layer.upper().join(&inner);
        let taken = self
            .quarantine
            .take_as(&from, self.layer.git_dir.join(&inner));
        self.report.quarantined.push(taken);
    }

    /// The host's directory of this name, made if it is missing.
    fn dir(&mut self, parts: &[OsString]) -> Result<OwnedFd, Problem> {
        if let Some((known, dir)) = &self.last_dir
            && known == parts
        {
            return dir.try_clone().map_err(|_| Errno::MFILE.into());
        }
        let mut dir = rustix::io::fcntl_dupfd_cloexec(&self.layer.lower, 0)?;
        for part in parts {
            dir = match open_at(&dir, part) {
                Ok(next) => next,
                Err(errno @ (Errno::NOENT | Errno::NOTDIR)) => {
                    if errno == Errno::NOTDIR {
                        // A branch gave way to a folder of branches.
                        self.remove_file(&dir, part)?;
                    }
                    match rfs::mkdirat(&dir, part, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                    open_at(&dir, part)?
                }
                Err(errno) => return Err(errno.into()),
            };
        }
        let kept = dir.try_clone().map_err(|_| Errno::MFILE)?;
        self.last_dir = Some((parts.to_vec(), kept));
        Ok(dir)
    }

    /// Puts a file of the layer in place.
    fn file(&mut self, upper: &OwnedFd, change: &Change) -> Result<(), Problem> {
        let Some((name, parents)) = change.parts.split_last() else {
            return Ok(());
        };
        let mut from = rustix::io::fcntl_dupfd_cloexec(upper, 0)?;
        for part in parents {
            from = open_at(&from, part)?;
        }
        let to = self.dir(parents)?;
        let status = statat(&from, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let mode = Mode::from_raw_mode(status.st_mode & 0o777);
        if status.st_mode & 0o7000 != 0 {
            rfs::chmodat(&from, name, mode, AtFlags::empty())?;
        }
        if change.is_named_by_content() {
            return match move_file(&from, name, &to, name, mode) {
                Err(Errno::EXIST) => Ok(()),
                other => Ok(other?),
            };
        }
        let mut lock_name = name.clone();
        lock_name.push(".lock");
        let deadline = Instant::now() + HOST_LOCK_TIMEOUT;
        loop {
            match move_file(&from, name, &to, &lock_name, mode) {
                Ok(()) => break,
                Err(Errno::EXIST) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(Errno::EXIST) => return Err(Problem::HostChanged),
                Err(errno) => return Err(errno.into()),
            }
        }
        let placed = self
            .check_unchanged(&to, name, change.stage())
            .and_then(|()| match rfs::renameat(&to, &lock_name, &to, name) {
                Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => {
                    self.remove_dir(&to, &change.parts)?;
                    Ok(rfs::renameat(&to, &lock_name, &to, name)?)
                }
                other => Ok(other?),
            });
        match &placed {
            Ok(()) => {
                let path = format!("/proc/self/fd/{}", to.as_raw_fd());
                // The overlay's own mark of where the file came from.
                let _ = rfs::lremovexattr(Path::new(&path).join(name), "user.overlay.origin");
            }
            Err(_) => {
                // Back, so that its value can be reported.
                let _ = renameat_with(&to, &lock_name, &from, name, RenameFlags::NOREPLACE)
                    .or_else(|_| unlinkat(&to, &lock_name, AtFlags::empty()));
            }
        }
        placed
    }

    /// Deletes a name on the host that the command has deleted.
    fn delete(&mut self, parts: &[OsString]) -> Result<(), Problem> {
        let Some((name, parents)) = parts.split_last() else {
            return Ok(());
        };
        let mut dir = rustix::io::fcntl_dupfd_cloexec(&self.layer.lower, 0)?;
        for part in parents {
            dir = match open_at(&dir, part) {
                Ok(next) => next,
                Err(Errno::NOENT) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            };
        }
        match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) if FileType::from_raw_mode(status.st_mode).is_dir() => {
                self.remove_dir(&dir, parts)
            }
            Ok(_) => self.remove_file(&dir, name),
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn remove_file(&self, dir: &OwnedFd, name: &OsStr) -> Result<(), Problem> {
        let status = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if !FileType::from_raw_mode(status.st_mode).is_file() || self.is_newer(&status) {
            return Err(Problem::HostChanged);
        }
        match unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Deletes a directory whose files the command has deleted. Protected names in it, and files that are new, stay.
    fn remove_dir(&self, dir: &OwnedFd, parts: &[OsString]) -> Result<(), Problem> {
        let Some(name) = parts.last() else {
            return Ok(());
        };
        let inner = open_at(dir, name)?;
        let mut newer = false;
        for entry in Dir::read_from(&inner)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let below = [parts, &[name.to_owned()]].concat();
            let removed = match entry.file_type() {
                _ if is_protected(&below) => Ok(()),
                FileType::Directory => self.remove_dir(&inner, &below),
                _ => self.remove_file(&inner, name),
            };
            match removed {
                Err(Problem::HostChanged) => newer = true,
                other => other?,
            }
        }
        if newer {
            return Err(Problem::HostChanged);
        }
        match unlinkat(dir, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Refuses to replace what the host changed while the command ran.
    fn check_unchanged(&self, dir: &OwnedFd, name: &OsStr, stage: Stage) -> Result<(), Problem> {
        let status = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        };
        if FileType::from_raw_mode(status.st_mode).is_symlink() {
            return Err(Problem::HostChanged);
        }
        let is_same_index = || {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let now = rfs::openat(dir, name, flags, Mode::empty()).ok();
            let before = self.layer.index.as_ref();
            stage == Stage::Index
                && before
                    .zip(now.map(File::from))
                    .is_some_and(|(before, now)| has_same_entries(before, &now))
        };
        match self.is_newer(&status) && !is_same_index() {
            true => Err(Problem::HostChanged),
            false => Ok(()),
        }
    }

    fn is_newer(&self, status: &Stat) -> bool {
        (status.st_ctime, status.st_ctime_nsec) > self.layer.started
    }

    fn note_conflict(&mut self, change: &Change) {
        let mut shown = change.shown();
        if matches!(change.stage(), Stage::Refs | Stage::Head) && change.kind == ChangeKind::File {
            let path = self.layer.upper().join(&shown);
            if let Some(value) = short_text(&path) {
                shown.push_str(&format!(" (the command's: {value})"));
            }
        }
        if change.stage() != Stage::Logs {
            self.conflicts.push(shown);
        }
    }
}

fn listed(names: &[String]) -> String {
    let mut text = names[..names.len().min(MAX_NAMES_IN_NOTE)].join(", ");
    if names.len() > MAX_NAMES_IN_NOTE {
        text.push_str(&format!(" and {} more", names.len() - MAX_NAMES_IN_NOTE));
    }
    text
}

fn is_protected(parts: &[OsString]) -> bool {
    let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
    protected_git_entry(&parts).is_some()
}

/// Whether a protected name lies anywhere below a directory of the layer.
fn holds_protected(dir: &OwnedFd, parts: &[OsString]) -> io::Result<bool> {
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let inner = [parts, &[name.to_owned()]].concat();
        let below = match entry.file_type() {
            FileType::Directory => Some(open_below(dir, name)?),
            _ => None,
        };
        let is_deeper = || below.map_or(Ok(false), |below| holds_protected(&below, &inner));
        if is_protected(&inner) || is_deeper()? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a directory of the layer hides what the host has of that name.
fn is_opaque(dir: &OwnedFd) -> bool {
    let mut value = [0; 1];
    rfs::fgetxattr(dir, "user.overlay.opaque", &mut value).is_ok_and(|_| value == *b"y")
}

fn exists(dir: impl AsFd, name: &OsStr) -> bool {
    statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

fn open_at(dir: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rfs::openat(dir, name, flags, Mode::empty())
}

/// Opens a directory of the layer, whatever permissions the command has given it.
fn open_below(dir: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    match open_at(dir, name) {
        Err(Errno::ACCESS) => {
            rfs::chmodat(dir, name, Mode::RWXU, AtFlags::empty())?;
            open_at(dir, name)
        }
        other => other,
    }
}

/// Moves a file to a name that is free; across file systems it is copied.
fn move_file(
    from: &OwnedFd,
    name: &OsStr,
    to: &OwnedFd,
    new_name: &OsStr,
    mode: Mode,
) -> Result<(), Errno> {
    match renameat_with(from, name, to, new_name, RenameFlags::NOREPLACE) {
        Err(Errno::XDEV) => {}
        other => return other,
    }
    let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let write = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut source = File::from(rfs::openat(from, name, read, Mode::empty())?);
    let mut copy = File::from(rfs::openat(to, new_name, write, Mode::RUSR | Mode::WUSR)?);
    let copied = io::copy(&mut source, &mut copy)
        .and_then(|_| Ok(rfs::fchmod(&copy, mode)?))
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
    match copied {
        Ok(()) => unlinkat(from, name, AtFlags::empty()),
        Err(errno) => {
            let _ = unlinkat(to, new_name, AtFlags::empty());
            Err(errno)
        }
    }
}

/// The value of a ref, for a report: printable and short.
fn short_text(path: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rfs::open(path, flags, Mode::empty()).ok()?);
    let mut text = String::new();
    io::Read::read_to_string(&mut io::Read::take(file, 80), &mut text).ok()?;
    let line = text.lines().next()?.trim().to_owned();
    let is_plain = !line.is_empty() && line.chars().all(|c| c.is_ascii_graphic() || c == ' ');
    is_plain.then_some(line)
}
