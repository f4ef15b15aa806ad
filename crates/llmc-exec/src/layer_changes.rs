//! What a run on a copy-on-write view would have changed: its layers compared with what is on the host.
//!
//! A layer holds every file that the run wrote, whole, and a marker for each name that it deleted. A file that was only
//! opened for writing, or rewritten with the same bytes, is no change.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{self as rfs, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::layered_run::{LayeredPlace, WrittenLayers, names_in, open_below, status_at};

/// Changed names that are listed.
const MAX_CHANGES: usize = 100_000;
/// Levels of directories that are looked at.
const MAX_DEPTH: usize = 1024;
/// Compared at a time.
const BLOCK_BYTES: usize = 64 << 10;

/// Everything that a run would have changed, in the order of the paths.
#[derive(Debug)]
pub struct LayerChanges<'a> {
    layers: &'a WrittenLayers,
    pub list: Vec<LayerChange>,
    /// Whether the list has everything.
    pub is_complete: bool,
}

/// One name that would have been changed.
#[derive(Debug, Clone)]
pub struct LayerChange {
    /// Absolute.
    pub path: PathBuf,
    /// What is there; nothing for a name that would have been created.
    pub before: Option<LayerEntry>,
    /// What would have been there; nothing for a name that would have been deleted.
    pub after: Option<LayerEntry>,
    /// Which place it is in, and where below it.
    place: usize,
    below: Vec<OsString>,
}

/// A file, link or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerEntry {
    pub kind: LayerEntryKind,
    /// Permissions.
    pub mode: u32,
    /// Bytes of a file.
    pub size: u64,
}

/// What kind of thing a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerEntryKind {
    File,
    Directory,
    Link,
    /// A FIFO, a socket, a device.
    Special,
}

impl LayerEntry {
    fn of(status: &Stat) -> LayerEntry {
        LayerEntry {
            kind: match FileType::from_raw_mode(status.st_mode) {
                FileType::RegularFile => LayerEntryKind::File,
                FileType::Directory => LayerEntryKind::Directory,
                FileType::Symlink => LayerEntryKind::Link,
                _ => LayerEntryKind::Special,
            },
            mode: status.st_mode & 0o7777,
            size: u64::try_from(status.st_size).unwrap_or(0),
        }
    }
}

impl LayerChange {
    /// Which of the writable places it is in.
    pub fn place(&self) -> usize {
        self.place
    }

    /// The parts of its path below that place.
    pub fn below(&self) -> &[OsString] {
        &self.below
    }
}

impl<'a> LayerChanges<'a> {
    pub(super) fn collect(layers: &'a WrittenLayers) -> io::Result<LayerChanges<'a>> {
        let mut changes = LayerChanges {
            layers,
            list: Vec::new(),
            is_complete: true,
        };
        for (at, place) in layers.places.iter().enumerate() {
            let lower = open_again(&place.lower)?;
            let upper = open_again(&place.upper)?;
            let mut cursor = Cursor {
                changes: &mut changes,
                place: at,
                below: Vec::new(),
            };
            cursor.directory(&upper, Some(&lower))?;
        }
        changes.list.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(changes)
    }

    /// The host's directory of that number.
    pub fn place_dir(&self, place: usize) -> Option<&OwnedFd> {
        let place = self.layers.places.get(place);
        place.map(|place| &place.lower)
    }

    /// What is there: the bytes of a file or the target of a link. `None` if it is something else or has more bytes than `limit`.
    ///
    /// # Errors
    /// It cannot be read any more.
    pub fn content_before(&self, change: &LayerChange, limit: u64) -> io::Result<Option<Vec<u8>>> {
        self.content(
            change,
            |place| &place.lower,
            open_file,
            change.before,
            limit,
        )
    }

    /// The same of what would have been there.
    ///
    /// # Errors
    /// As [`LayerChanges::content_before`].
    pub fn content_after(&self, change: &LayerChange, limit: u64) -> io::Result<Option<Vec<u8>>> {
        self.content(
            change,
            |place| &place.upper,
            open_own_file,
            change.after,
            limit,
        )
    }

    fn content(
        &self,
        change: &LayerChange,
        layer: fn(&LayeredPlace) -> &OwnedFd,
        open: fn(&OwnedFd, &OsStr) -> io::Result<File>,
        entry: Option<LayerEntry>,
        limit: u64,
    ) -> io::Result<Option<Vec<u8>>> {
        let (Some(entry), Some(place)) = (entry, self.layers.places.get(change.place)) else {
            return Ok(None);
        };
        let Some((name, dirs)) = change.below.split_last() else {
            return Ok(None);
        };
        let mut dir = open_again(layer(place))?;
        for part in dirs {
            dir = open_below(&dir, part)?;
        }
        match entry.kind {
            LayerEntryKind::Link => {
                let target = rfs::readlinkat(&dir, name, Vec::new())?;
                Ok(Some(target.into_bytes()))
            }
            LayerEntryKind::File if entry.size <= limit => {
                let mut content = Vec::new();
                // It may have grown since.
                let file = open(&dir, name)?;
                file.take(limit + 1).read_to_end(&mut content)?;
                Ok((content.len() as u64 <= limit).then_some(content))
            }
            _ => Ok(None),
        }
    }
}

/// A place in the walk over the layers.
struct Cursor<'c, 'a> {
    changes: &'c mut LayerChanges<'a>,
    place: usize,
    below: Vec<OsString>,
}

impl Cursor<'_, '_> {
    /// Lists what differs below one directory of the layer.
    fn directory(&mut self, upper: &OwnedFd, lower: Option<&OwnedFd>) -> io::Result<()> {
        if self.below.len() >= MAX_DEPTH {
            self.changes.is_complete = false;
            return Ok(());
        }
        let names = names_in(upper)?;
        if let Some(lower) = lower.filter(|_| is_opaque(upper)) {
            for name in names_in(lower)? {
                if names.binary_search(&name).is_err() {
                    self.below.push(name);
                    self.deleted(lower)?;
                    self.below.pop();
                }
            }
        }
        for name in names {
            self.below.push(name);
            self.entry(upper, lower)?;
            self.below.pop();
        }
        Ok(())
    }

    /// Compares the name at the cursor, which is in the layer.
    fn entry(&mut self, upper: &OwnedFd, lower: Option<&OwnedFd>) -> io::Result<()> {
        let Some(name) = self.below.last().cloned() else {
            return Ok(());
        };
        let Some(status) = status_at(upper, &name) else {
            return Ok(());
        };
        let was = lower.and_then(|dir| status_at(dir, &name));
        if FileType::from_raw_mode(status.st_mode) == FileType::CharacterDevice
            && status.st_rdev == 0
        {
            return match lower {
                Some(lower) if was.is_some() => self.deleted(lower),
                _ => Ok(()),
            };
        }
        let (is, was) = (LayerEntry::of(&status), was.as_ref().map(LayerEntry::of));
        if is.kind != LayerEntryKind::Directory {
            if let (Some(was), Some(lower)) = (was, lower)
                && was.kind == LayerEntryKind::Directory
            {
                // The directory gave way to something else.
                self.deleted(lower)?;
                self.push(None, Some(is));
                return Ok(());
            }
            let is_same = match (was, lower) {
                (Some(was), Some(lower)) => {
                    was.kind == is.kind
                        && (is.kind == LayerEntryKind::Link || was.mode == is.mode)
                        && has_same_content(upper, lower, &name, is, was).unwrap_or(false)
                }
                _ => false,
            };
            if !is_same {
                self.push(was, Some(is));
            }
            return Ok(());
        }
        let inner = open_own(upper, &name)?;
        let below = match was {
            Some(was) if was.kind == LayerEntryKind::Directory => {
                if was.mode != is.mode {
                    self.push(Some(was), Some(is));
                }
                lower.and_then(|dir| open_below(dir, &name).ok())
            }
            was => {
                self.push(was, Some(is));
                None
            }
        };
        self.directory(&inner, below.as_ref())
    }

    /// Lists the name at the cursor as deleted, with all that is below it.
    fn deleted(&mut self, lower: &OwnedFd) -> io::Result<()> {
        let Some(name) = self.below.last().cloned() else {
            return Ok(());
        };
        let Some(status) = status_at(lower, &name) else {
            return Ok(());
        };
        let was = LayerEntry::of(&status);
        self.push(Some(was), None);
        if was.kind != LayerEntryKind::Directory || self.below.len() >= MAX_DEPTH {
            return Ok(());
        }
        let Ok(inner) = open_below(lower, &name) else {
            self.changes.is_complete = false;
            return Ok(());
        };
        let Ok(names) = names_in(&inner) else {
            self.changes.is_complete = false;
            return Ok(());
        };
        for name in names {
            if !self.changes.is_complete {
                break;
            }
            self.below.push(name);
            self.deleted(&inner)?;
            self.below.pop();
        }
        Ok(())
    }

    fn push(&mut self, before: Option<LayerEntry>, after: Option<LayerEntry>) {
        if self.changes.list.len() >= MAX_CHANGES {
            self.changes.is_complete = false;
            return;
        }
        let place = &self.changes.layers.places[self.place].path;
        let path = place.join(self.below.iter().collect::<PathBuf>());
        self.changes.list.push(LayerChange {
            path,
            before,
            after,
            place: self.place,
            below: self.below.clone(),
        });
    }
}

/// Whether a directory of the layer hides what is below it on the host.
fn is_opaque(dir: &OwnedFd) -> bool {
    let mut value = [0; 1];
    let path = format!("/proc/self/fd/{}", dir.as_raw_fd());
    matches!(rfs::getxattr(path, "user.overlay.opaque", &mut value), Ok(1) if value == *b"y")
}

fn has_same_content(
    upper: &OwnedFd,
    lower: &OwnedFd,
    name: &OsStr,
    is: LayerEntry,
    was: LayerEntry,
) -> io::Result<bool> {
    match is.kind {
        LayerEntryKind::Link => {
            let target = |dir| rfs::readlinkat(dir, name, Vec::new());
            Ok(target(upper)?.as_bytes() == target(lower)?.as_bytes())
        }
        LayerEntryKind::File if is.size == was.size => {
            let (mut new, mut old) = (open_own_file(upper, name)?, open_file(lower, name)?);
            let (mut a, mut b) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
            loop {
                let (read, other) = (fill(&mut new, &mut a)?, fill(&mut old, &mut b)?);
                if a[..read] != b[..other] {
                    return Ok(false);
                }
                if read == 0 {
                    return Ok(true);
                }
            }
        }
        _ => Ok(false),
    }
}

/// Reads until the block is full or the file ends.
fn fill(file: &mut File, block: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < block.len() {
        match file.read(&mut block[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Opens a regular file by its name, without waiting for a FIFO that stands in its place.
fn open_file(dir: &OwnedFd, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rfs::openat(dir, name, flags, Mode::empty())?;
    match FileType::from_raw_mode(rfs::fstat(&file)?.st_mode).is_file() {
        true => Ok(File::from(file)),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// The same in a layer, where a command may have taken its own permissions away.
fn open_own_file(dir: &OwnedFd, name: &OsStr) -> io::Result<File> {
    let permitted = |errno: &io::Error| Errno::from_io_error(errno) != Some(Errno::ACCESS);
    match open_file(dir, name) {
        Err(error) if !permitted(&error) => {
            rfs::chmodat(dir, name, Mode::RUSR, AtFlags::empty())?;
            open_file(dir, name)
        }
        other => other,
    }
}

fn open_own(dir: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    match open_below(dir, name) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::ACCESS) => {
            rfs::chmodat(dir, name, Mode::RWXU, AtFlags::empty())?;
            open_below(dir, name)
        }
        other => other,
    }
}

/// Another descriptor of a directory, to be read from its start.
fn open_again(dir: &OwnedFd) -> io::Result<OwnedFd> {
    open_below(dir, OsStr::new("."))
}
