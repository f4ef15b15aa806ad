//! A run on a copy-on-write view: what is shown to it, and what it wrote.
//!
//! Both are directories of a file system in memory that the helper has made and handed over. Everything is reached from its
//! descriptor one name at a time, never through a link: what is in there was written by a command, or named by a repository.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    self as rfs, AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid,
};
use rustix::io::Errno;

use super::follow::RunReport;
use super::git_mirror::open_dir;
use super::layer_changes::LayerChanges;
use super::plan::{BASE_DIR, UPPER_DIR};

/// What helps where there is no view.
pub(super) const VIEW_HINT: &str =
    "llmc doctor shows what this kernel offers; run_cmd runs commands on the files themselves";

/// The result of a run on a view. Dropping it drops what the run wrote.
#[derive(Debug)]
pub struct LayeredRun {
    pub report: RunReport,
    pub(super) written: WrittenLayers,
}

impl LayeredRun {
    /// What the run would have changed below the writable places.
    ///
    /// # Errors
    /// The layers cannot be read.
    pub fn changes(&self) -> io::Result<LayerChanges<'_>> {
        LayerChanges::collect(&self.written)
    }

    /// The content of a file that the run has written, by its absolute path; `None` if it has written none there, or one with
    /// more bytes than `limit`.
    pub fn written_file(&self, path: &Path, limit: u64) -> Option<Vec<u8>> {
        let places = self.written.places.iter();
        let (place, below) = places
            .filter_map(|place| Some((place, path.strip_prefix(&place.path).ok()?)))
            .next()?;
        let mut parts: Vec<&OsStr> = Vec::new();
        for part in below.components() {
            match part {
                Component::Normal(part) => parts.push(part),
                _ => return None,
            }
        }
        let (name, dirs) = parts.split_last()?;
        let mut dir = rustix::io::fcntl_dupfd_cloexec(&place.upper, 0).ok()?;
        for part in dirs {
            dir = open_below(&dir, part).ok()?;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rfs::openat(&dir, *name, flags, Mode::empty()).ok()?);
        let status = file.metadata().ok()?;
        if !status.is_file() || status.len() > limit {
            return None;
        }
        let mut content = Vec::new();
        file.take(limit).read_to_end(&mut content).ok()?;
        Some(content)
    }

    /// Whether the layers have no room left, in which case the run could not write all that it wanted to.
    pub fn is_full(&self) -> bool {
        // A write that does not fit leaves a little behind.
        const ALMOST_NOTHING: u64 = 256;
        rfs::fstatvfs(&self.written.root)
            .is_ok_and(|room| room.f_bavail <= room.f_blocks / ALMOST_NOTHING || room.f_favail == 0)
    }

    /// Bytes that the layers may hold.
    pub fn capacity(&self) -> u64 {
        rfs::fstatvfs(&self.written.root).map_or(0, |room| room.f_blocks * room.f_frsize)
    }
}

/// The layers over the writable places.
#[derive(Debug)]
pub(super) struct WrittenLayers {
    root: OwnedFd,
    pub(super) places: Vec<LayeredPlace>,
}

/// A writable place and the layers over it.
#[derive(Debug)]
pub(super) struct LayeredPlace {
    pub(super) path: PathBuf,
    /// The place itself, as it is on the host.
    pub(super) lower: OwnedFd,
    pub(super) upper: OwnedFd,
    base: OwnedFd,
}

impl WrittenLayers {
    pub(super) fn open(root: OwnedFd, places: Vec<PathBuf>) -> io::Result<WrittenLayers> {
        let opened = places.into_iter().enumerate().map(|(at, path)| {
            let dir = open_below(&root, OsStr::new(&at.to_string()))?;
            Ok(LayeredPlace {
                lower: open_dir(&path, OFlags::RDONLY)?,
                upper: open_below(&dir, OsStr::new(UPPER_DIR))?,
                base: open_below(&dir, OsStr::new(BASE_DIR))?,
                path,
            })
        });
        let places = opened.collect::<io::Result<_>>()?;
        Ok(WrittenLayers { root, places })
    }
}

/// Files that a run on a view sees in place of those that are there.
#[derive(Debug)]
pub struct BaseLayer<'a> {
    layers: &'a WrittenLayers,
}

impl<'a> BaseLayer<'a> {
    pub(super) fn new(layers: &'a WrittenLayers) -> BaseLayer<'a> {
        BaseLayer { layers }
    }

    /// Shows a file with this content at an absolute path.
    ///
    /// # Errors
    /// The path is outside the writable places or no plain path, something is shown there already, or there is no room.
    pub fn show_file(&self, path: &Path, content: &[u8], is_executable: bool) -> io::Result<()> {
        let (dir, name, lower) = self.parent(path)?;
        let mode = Mode::from_raw_mode(if is_executable { 0o755 } else { 0o644 });
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW;
        let mut file = File::from(rfs::openat(&dir, &name, flags | OFlags::CLOEXEC, mode)?);
        file.write_all(content)?;
        // Programs that keep what they made of a file tell by its time, in seconds, and size whether it is still the same.
        let now = rfs::fstat(&file)?.st_mtime;
        let there = lower.and_then(|dir| status_at(&dir, &name));
        if there.is_some_and(|there| there.st_mtime == now) {
            let later = Timespec {
                tv_sec: now + 1,
                tv_nsec: 0,
            };
            let times = Timestamps {
                last_access: later,
                last_modification: later,
            };
            rfs::futimens(&file, &times)?;
        }
        Ok(rfs::fchmod(&file, mode)?)
    }

    /// Shows a symbolic link.
    ///
    /// # Errors
    /// As [`BaseLayer::show_file`].
    pub fn show_link(&self, path: &Path, target: &[u8]) -> io::Result<()> {
        let (dir, name, _) = self.parent(path)?;
        Ok(rfs::symlinkat(OsStr::from_bytes(target), &dir, &name)?)
    }

    /// Shows nothing at a path, whatever is there.
    ///
    /// # Errors
    /// As [`BaseLayer::show_file`].
    pub fn hide(&self, path: &Path) -> io::Result<()> {
        let (dir, name, _) = self.parent(path)?;
        // What overlays take for a deleted name; anyone may make this one device.
        let made = rfs::mknodat(&dir, &name, FileType::CharacterDevice, Mode::empty(), 0);
        Ok(made?)
    }

    /// The directory of the layer that a path is in, made if need be, the path's last part, and the host's directory.
    fn parent(&self, path: &Path) -> io::Result<(OwnedFd, OsString, Option<OwnedFd>)> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let places = self.layers.places.iter();
        let (place, below) = places
            .filter_map(|place| Some((place, path.strip_prefix(&place.path).ok()?)))
            .next()
            .ok_or_else(invalid)?;
        let mut parts = Vec::new();
        for part in below.components() {
            match part {
                Component::Normal(part) => parts.push(part),
                _ => return Err(invalid()),
            }
        }
        let (name, dirs) = parts.split_last().ok_or_else(invalid)?;
        let mut dir = rustix::io::fcntl_dupfd_cloexec(&place.base, 0)?;
        let mut lower = rustix::io::fcntl_dupfd_cloexec(&place.lower, 0).ok();
        for part in dirs {
            lower = lower.and_then(|dir| open_below(&dir, part).ok());
            dir = make_below(&dir, part, lower.as_ref())?;
        }
        Ok((dir, (*name).to_owned(), lower))
    }
}

/// A directory of a layer, which looks as the one of the host does.
fn make_below(dir: &OwnedFd, name: &OsStr, like: Option<&OwnedFd>) -> io::Result<OwnedFd> {
    match rfs::mkdirat(dir, name, Mode::from_raw_mode(0o755)) {
        Ok(()) => {
            let made = open_below(dir, name)?;
            if let Some(status) = like.and_then(|like| rfs::fstat(like).ok()) {
                let (uid, gid) = (Uid::from_raw(status.st_uid), Gid::from_raw(status.st_gid));
                // Only root may; then the run's own user owns what it sees.
                let _ = rfs::fchown(&made, Some(uid), Some(gid));
                rfs::fchmod(&made, Mode::from_raw_mode(status.st_mode & 0o7777))?;
            }
            Ok(made)
        }
        Err(Errno::EXIST) => open_below(dir, name),
        Err(errno) => Err(errno.into()),
    }
}

/// Opens a directory by its name, not through a link.
pub(super) fn open_below(dir: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rfs::openat(dir, name, flags, Mode::empty())?)
}

/// The names in a directory.
pub(super) fn names_in(dir: &OwnedFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    names.sort();
    Ok(names)
}

pub(super) fn status_at(dir: &OwnedFd, name: &OsStr) -> Option<Stat> {
    rfs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()
}
