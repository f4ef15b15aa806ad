//! A run that changes nothing: overlays over every place that it may write.
//!
//! The layers are kept in a file system in memory, whose size bounds them: a run that writes more gets `ENOSPC`. The server
//! holds a descriptor of it, so that it can show other files over a place before the overlay is made, and read what the run
//! has changed after its end. No command can reach it: it is mounted below `/dev`, which a run covers with its own.

use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{self as rfs, AtFlags, CWD, Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, mount,
};

use super::mounts::{MountError, open};
use super::stage;
use crate::fds;
use crate::level::Feature;
use crate::plan::{
    self, BASE_DIR, Failure, LAYERED_STEP, LayeredWrites, Plan, Report, SEEN, Stage, UPPER_DIR,
    WORK_DIR,
};

/// The layer over the session's `/tmp`.
const TMP_LAYER: &str = "tmp";
/// Memory that the kernel takes for a file without content, for the bound on their number.
const BYTES_PER_FILE: u64 = 2048;

/// The mounted file system and the directory it is mounted on.
pub(super) struct Layers {
    dir: PathBuf,
    places: Vec<PathBuf>,
}

/// Where the file system is mounted; `None` for a run without such layers. For a process that still shares the broker's mounts.
pub(super) fn mount_point(plan: &Plan, stage: Option<&Stage>) -> Result<Option<PathBuf>, Failure> {
    if plan.layered.is_none() {
        return Ok(None);
    }
    if stage.is_none() {
        return Err(failure("nothing can be mounted for it", Errno::NOSYS));
    }
    match stage::layers_mount_point() {
        Ok(dir) => Ok(Some(dir)),
        Err(error) => Err(failure(
            "a mount point",
            Errno::from_io_error(&error).unwrap_or(Errno::IO),
        )),
    }
}

/// A failure that the server reports as a view that cannot be had.
pub(super) fn failure(what: &str, errno: Errno) -> Failure {
    Failure::new(None, &format!("{LAYERED_STEP}{what}"), errno)
}

impl Layers {
    /// Mounts the file system and waits until the server has filled in what is shown over the places.
    pub(super) fn make(
        writes: &LayeredWrites,
        dir: &Path,
        leash: &UnixStream,
    ) -> Result<Layers, Failure> {
        let files = (writes.bytes / BYTES_PER_FILE).max(1024);
        let options = format!("mode=700,size={},nr_inodes={files}", writes.bytes);
        let options = std::ffi::CString::new(options)
            .map_err(|_| failure("its file system", Errno::INVAL))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("tmpfs", dir, "tmpfs", flags, options.as_c_str())
            .map_err(|errno| failure("its file system", errno))?;
        let layers = Layers {
            dir: dir.to_owned(),
            places: writes.places.iter().map(PathBuf::from).collect(),
        };
        for (at, place) in layers.places.iter().enumerate() {
            layers
                .prepare(&at.to_string(), place)
                .map_err(|errno| failure("its layers", errno))?;
        }
        layers.check_attributes().map_err(|errno| {
            failure("extended attributes in memory, which need Linux 6.6", errno)
        })?;
        layers.hand_over(leash).map_err(|error| {
            failure(
                "the server",
                Errno::from_io_error(&error).unwrap_or(Errno::IO),
            )
        })?;
        Ok(layers)
    }

    /// The overlays that stand for the writable places.
    pub(super) fn overlays<'a>(
        &self,
        writable: &[&'a OsStr],
    ) -> Result<Vec<(&'a OsStr, OwnedFd)>, MountError> {
        let overlay = |path: &&'a OsStr| {
            let at = self
                .places
                .iter()
                .position(|place| place == Path::new(path));
            let overlay = at.ok_or(Errno::INVAL).and_then(|at| {
                let lower = open(path)?;
                self.overlay(&at.to_string(), &lower)
            });
            Ok((*path, overlay.map_err(|errno| not_overlaid(path, errno))?))
        };
        writable.iter().map(overlay).collect()
    }

    /// The overlay over the session's `/tmp`.
    pub(super) fn over_tmp(&self, lower: &OwnedFd) -> Result<OwnedFd, MountError> {
        let tmp = OsStr::new("/tmp");
        let path = format!("/proc/self/fd/{}", lower.as_raw_fd());
        self.prepare(TMP_LAYER, Path::new(&path))
            .and_then(|()| self.overlay(TMP_LAYER, lower))
            .map_err(|errno| not_overlaid(tmp, errno))
    }

    /// Makes the directories of one layer. A run finds the place itself as its owner left it.
    fn prepare(&self, name: &str, place: &Path) -> Result<(), Errno> {
        let wrong = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let lower = std::fs::metadata(place).map_err(wrong)?;
        let dir = self.dir.join(name);
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(0o700).create(&dir).map_err(wrong)?;
        for name in [UPPER_DIR, WORK_DIR, BASE_DIR] {
            builder.create(dir.join(name)).map_err(wrong)?;
        }
        for name in [UPPER_DIR, BASE_DIR] {
            let layer = dir.join(name);
            // Of another user the owner cannot be kept; then the run's own user owns what it sees.
            let (uid, gid) = {
                use std::os::unix::fs::MetadataExt;
                (Uid::from_raw(lower.uid()), Gid::from_raw(lower.gid()))
            };
            let _ = rfs::chownat(CWD, &layer, Some(uid), Some(gid), AtFlags::empty());
            let mode = std::fs::Permissions::from_mode(lower.permissions().mode() & 0o7777);
            std::fs::set_permissions(&layer, mode).map_err(wrong)?;
        }
        Ok(())
    }

    /// Without them a directory that is deleted and made anew could not be kept apart from the one below.
    fn check_attributes(&self) -> Result<(), Errno> {
        let name = "user.llmc";
        rfs::setxattr(&self.dir, name, b"", XattrFlags::empty())?;
        rfs::removexattr(&self.dir, name)
    }

    /// Gives the server a descriptor of the file system, and waits for its answer.
    fn hand_over(&self, leash: &UnixStream) -> std::io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rfs::open(&self.dir, flags, Mode::empty())?;
        plan::send(leash, &Report::Layers)?;
        fds::send(leash, &[root.as_fd()])?;
        let mut answer = [SEEN];
        { leash }.read_exact(&mut answer)
    }

    fn overlay(&self, name: &str, lower: &OwnedFd) -> Result<OwnedFd, Errno> {
        let layer = self.dir.join(name);
        let dir = |name: &str| open(layer.join(name).as_os_str());
        let (upper, work, base) = (dir(UPPER_DIR)?, dir(WORK_DIR)?, dir(BASE_DIR)?);
        // By descriptor: no link is followed, and no character in a name is special.
        let by_fd = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
        let fs = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_flag(&fs, "userxattr")?;
        fsconfig_set_string(&fs, "index", "off")?;
        let lowers = format!("{}:{}", by_fd(&base), by_fd(lower));
        fsconfig_set_string(&fs, "lowerdir", lowers)?;
        fsconfig_set_string(&fs, "upperdir", by_fd(&upper))?;
        fsconfig_set_string(&fs, "workdir", by_fd(&work))?;
        fsconfig_create(&fs)?;
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, flags)
    }
}

fn not_overlaid(path: &OsStr, errno: Errno) -> MountError {
    MountError {
        feature: Feature::MountSpace,
        step: format!("{LAYERED_STEP}an overlay over {}", path.display()),
        errno,
    }
}
