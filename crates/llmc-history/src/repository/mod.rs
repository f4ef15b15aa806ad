//! Contents that the workspace's own repository holds in its packs, read without git.
//!
//! The first snapshot leaves a content that the checked-out commit has in a pack where it is; [`crate::shared`] copies it when
//! an entry needs it. Only `.git/objects` of the workspace itself is read, through no link and no list of alternates, and
//! nothing in it is ever written. Loose objects are not relied on, as git's garbage collection moves them; a repository that is
//! unusual in any way has no packs here, and its files are copied like those of any folder.
//!
//! - `pack`: one pack and its index
//! - `tree`: the contents of a commit

#[cfg(test)]
mod fuzz;
mod pack;
mod tree;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex};

use flate2::bufread::ZlibDecoder;
use llmc_host::{Access, Roots, file_type, lock};
use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2};
use sha1::{Digest, Sha1};

use crate::entry::ObjectId;
use crate::head;
use crate::objects::blob_id;
use crate::snapshot::{Stamp, now_ns};

use self::pack::{PackFile, PackReader};

const OBJECTS_DIR: &[u8] = b".git/objects";
const PACK_DIR: &[u8] = b".git/objects/pack";
/// The packs that are kept open, the largest first: each takes two descriptors. `git gc` leaves one or two.
const MAX_OPEN_PACKS: usize = 16;
/// Names in the directory of packs that are looked at.
const MAX_PACK_NAMES: usize = 20_000;
/// A content with a larger object on the way to it is not read.
const MAX_BLOB_BYTES: u64 = 64 << 20;
/// Contents from this size on may lie behind something that is too large, since git makes deltas of things of like sizes.
const MIN_DOUBTED_BYTES: u64 = 64 << 10;
/// Bytes of a loose object as it lies on the disk.
const MAX_LOOSE_BYTES: u64 = 32 << 20;
/// `commit 12345` and the NUL after it.
const MAX_LOOSE_HEADER_BYTES: u64 = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GitObjectKind {
    Commit,
    Tree,
    Blob,
    Tag,
}

/// The objects of the workspace's repository, as they were when they were opened.
pub(crate) struct RepositoryObjects {
    /// The directory of objects; `None` without a repository.
    dir: Option<OwnedFd>,
    packs: Vec<PackFile>,
    /// Stands for the names of all packs; 0 without any.
    names_number: i64,
    /// Whether everything that is there could be opened.
    is_complete: bool,
    stamp: Option<Stamp>,
    reader: Mutex<PackReader>,
}

impl RepositoryObjects {
    /// The objects of no repository.
    pub(crate) fn none() -> RepositoryObjects {
        RepositoryObjects {
            dir: None,
            packs: Vec::new(),
            names_number: 0,
            is_complete: true,
            stamp: None,
            reader: Mutex::new(PackReader::new()),
        }
    }

    /// Opens the packs that there are now.
    pub(crate) fn open(roots: &Roots) -> RepositoryObjects {
        // Before the names are read: a pack that comes or goes meanwhile then shows as a change.
        let stamp = pack_dir_stamp(roots);
        let mut objects = RepositoryObjects {
            dir: open_dir(roots, OBJECTS_DIR),
            stamp,
            ..RepositoryObjects::none()
        };
        let Some(dir) = open_dir(roots, PACK_DIR) else {
            objects.is_complete = objects.stamp.is_none();
            return objects;
        };
        let Ok(names) = pack_names(&dir) else {
            objects.is_complete = false;
            return objects;
        };
        objects.names_number = number_of(&names);
        let mut sizes: BTreeMap<(u64, Vec<u8>), File> = BTreeMap::new();
        for name in names {
            match open_file(&dir, &[&name, &b".pack"[..]].concat()) {
                Some((file, stat)) => {
                    sizes.insert((stat.st_size.try_into().unwrap_or(0), name), file);
                    if sizes.len() > MAX_OPEN_PACKS {
                        sizes.pop_first();
                    }
                }
                None => objects.is_complete = false,
            }
        }
        for ((_, name), file) in sizes.into_iter().rev() {
            let index = open_file(&dir, &[&name, &b".idx"[..]].concat());
            objects.is_complete &= index.is_some();
            objects
                .packs
                .extend(index.and_then(|(index, _)| PackFile::open(index, file)));
        }
        objects
    }

    /// Whether packs may have come or gone since these were opened.
    pub(crate) fn is_current(&self, roots: &Roots) -> bool {
        match (&self.stamp, pack_dir_stamp(roots)) {
            (None, None) => true,
            (Some(known), Some(now)) => known.proves(&now) && self.is_intact(),
            _ => false,
        }
    }

    /// Whether no pack was overwritten.
    pub(crate) fn is_intact(&self) -> bool {
        self.packs.iter().all(PackFile::is_intact)
    }

    /// Whether every pack that there is could be opened; out of descriptors, for one, none can.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Equal numbers mean the same packs: git names them by what is in them.
    pub(crate) fn names_number(&self) -> i64 {
        self.names_number
    }

    /// Whether one of the packs holds the object.
    pub(crate) fn has(&self, id: &ObjectId) -> bool {
        self.packs.iter().any(|pack| pack.offset_of(id).is_some())
    }

    /// Whether a content can be read from one of the packs. Small ones are taken to be where an index says.
    pub(crate) fn is_readable(&self, id: &ObjectId, size: u64) -> bool {
        self.has(id) && (size < MIN_DOUBTED_BYTES || self.blob(id).is_some())
    }

    /// A content from one of the packs; it is what its id says.
    pub(crate) fn blob(&self, id: &ObjectId) -> Option<Arc<Vec<u8>>> {
        self.read_packed(id, GitObjectKind::Blob, MAX_BLOB_BYTES)
    }

    /// Whether one of the packs gives exactly this content back.
    pub(crate) fn holds(&self, id: &ObjectId, content: &[u8]) -> bool {
        let packed = self.read_packed(id, GitObjectKind::Blob, MAX_BLOB_BYTES);
        packed.is_some_and(|packed| *packed == content)
    }

    /// Whether there is nothing to read.
    pub(crate) fn is_empty(&self) -> bool {
        self.packs.is_empty()
    }

    /// The ids of the checked-out commit's files and links. Git keeps them as long as a branch or HEAD leads to that commit.
    pub(crate) fn blobs_of_head(&self, roots: &Roots) -> HashSet<ObjectId> {
        match head::commit(roots) {
            Some(commit) if !self.packs.is_empty() => tree::blobs_of(self, &commit),
            _ => HashSet::new(),
        }
    }

    fn read_packed(
        &self,
        id: &ObjectId,
        wanted: GitObjectKind,
        limit: u64,
    ) -> Option<Arc<Vec<u8>>> {
        let reader = &mut *lock(&self.reader);
        self.packs.iter().enumerate().find_map(|(number, pack)| {
            let offset = pack.offset_of(id)?;
            let (kind, content) = pack.read(reader, number, offset, limit)?;
            // Another pack may have the right one.
            let is_it = kind == wanted && (kind != GitObjectKind::Blob || blob_id(&content) == *id);
            is_it.then_some(content)
        })
    }

    /// An object from a pack, or one that lies alone: the newest commits do.
    fn read_any(&self, id: &ObjectId, wanted: GitObjectKind, limit: u64) -> Option<Arc<Vec<u8>>> {
        self.read_packed(id, wanted, limit)
            .or_else(|| self.read_loose(id, wanted, limit).map(Arc::new))
    }

    fn read_loose(&self, id: &ObjectId, wanted: GitObjectKind, limit: u64) -> Option<Vec<u8>> {
        let hex = id.to_string();
        let path = format!("{}/{}", &hex[..2], &hex[2..]);
        let (mut file, stat) = open_file(self.dir.as_ref()?, path.as_bytes())?;
        let packed_bytes = u64::try_from(stat.st_size).ok()?;
        if packed_bytes > MAX_LOOSE_BYTES {
            return None;
        }
        let mut packed = Vec::new();
        file.by_ref()
            .take(MAX_LOOSE_BYTES)
            .read_to_end(&mut packed)
            .ok()?;
        parse_loose(&packed, wanted, limit)
    }
}

/// A loose object: kind, space, length, NUL, content, all in one stream.
fn parse_loose(packed: &[u8], wanted: GitObjectKind, limit: u64) -> Option<Vec<u8>> {
    let mut whole = ZlibDecoder::new(packed).take(limit + MAX_LOOSE_HEADER_BYTES);
    let mut content = Vec::new();
    whole.read_to_end(&mut content).ok()?;
    let nul = content
        .iter()
        .take(MAX_LOOSE_HEADER_BYTES as usize)
        .position(|byte| *byte == 0)?;
    let header = std::str::from_utf8(&content[..nul]).ok()?;
    let (kind, size) = header.split_once(' ')?;
    let is_wanted = match wanted {
        GitObjectKind::Commit => kind == "commit",
        GitObjectKind::Tree => kind == "tree",
        GitObjectKind::Blob => kind == "blob",
        GitObjectKind::Tag => kind == "tag",
    };
    let is_whole = size.parse() == Ok(content.len() - nul - 1);
    content.drain(..=nul);
    (is_wanted && is_whole).then_some(content)
}

fn open_dir(roots: &Roots, path: &[u8]) -> Option<OwnedFd> {
    let path = roots.exact_path(path, Access::Read).ok()?;
    path.open(OFlags::RDONLY | OFlags::DIRECTORY).ok()
}

/// Opens a regular file in a directory, through no link.
fn open_file(dir: &OwnedFd, name: &[u8]) -> Option<(File, Stat)> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let fd = openat2(dir, OsStr::from_bytes(name), flags, Mode::empty(), resolve).ok()?;
    let stat = fstat(&fd).ok()?;
    (file_type(&stat) == FileType::RegularFile).then(|| (File::from(fd), stat))
}

/// The stamp of the directory of packs, which changes when one comes or goes.
fn pack_dir_stamp(roots: &Roots) -> Option<Stamp> {
    let looked_ns = now_ns();
    let path = roots.exact_path(PACK_DIR, Access::Read).ok()?;
    Some(Stamp::new(&path.lstat().ok()?, looked_ns))
}

/// The packs with an index, without their endings. Those of unreachable objects (`.mtimes`) are left out: git is about to
/// remove what is in them.
fn pack_names(dir: &OwnedFd) -> rustix::io::Result<BTreeSet<Vec<u8>>> {
    let mut indexed = BTreeSet::new();
    let mut cruft = BTreeSet::new();
    for entry in Dir::read_from(dir)?.take(MAX_PACK_NAMES) {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if let Some(stem) = name.strip_suffix(b".idx") {
            indexed.insert(stem.to_vec());
        } else if let Some(stem) = name.strip_suffix(b".mtimes") {
            cruft.insert(stem.to_vec());
        }
    }
    indexed.retain(|name| name.starts_with(b"pack-") && !cruft.contains(name));
    Ok(indexed)
}

fn number_of(names: &BTreeSet<Vec<u8>>) -> i64 {
    if names.is_empty() {
        return 0;
    }
    let mut hash = Sha1::new();
    for name in names {
        hash.update(name);
        hash.update([0]);
    }
    let bytes: [u8; 20] = hash.finalize().into();
    let number = bytes
        .iter()
        .take(7)
        .fold(0, |number, byte| number << 8 | i64::from(*byte));
    number.max(1)
}
