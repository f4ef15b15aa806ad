//! The run's view of the file system: everything read-only but what it may write, a `/tmp`, `/dev` and `/proc` of its own.
//!
//! Writable places are cloned while they still are writable, then every mount becomes read-only, then the clones are put
//! back in place. Paths come from the server, link-free; they are opened without following links all the same, since
//! another run may be moving directories about at this very moment.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{self as rfs, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change,
    mount_remount, move_mount, open_tree,
};

use crate::plan::Plan;

/// Nodes that programs expect; everything else in `/dev` is hardware.
const NODES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// What went wrong, and where.
pub(super) struct Trouble {
    pub(super) step: String,
    pub(super) errno: Errno,
}

type Result<T, E = Trouble> = std::result::Result<T, E>;

/// Builds the view. `/proc` comes later, from [`fresh_proc`].
pub(super) fn build(plan: &Plan) -> Result<()> {
    let root = OsStr::new("/");
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(at("making mounts private", root))?;

    let writable = outermost(&plan.places.write);
    let whole = writable.contains(&root);
    let own_tmp = !writable
        .iter()
        .any(|path| Path::new("/tmp").starts_with(path));
    let clones = cloned(&writable)?;
    let shown: Vec<&OsStr> = outermost(&plan.places.read)
        .into_iter()
        .filter(|path| own_tmp && Path::new(path).starts_with("/tmp"))
        .collect();
    let shown = cloned(&shown)?;
    let nodes = device_nodes()?;

    for (path, options) in mount_table()? {
        let replaced = path.starts_with("/dev")
            || path.starts_with("/proc")
            || (own_tmp && path.starts_with("/tmp"));
        let system = plan.places.sealed.iter().any(|dir| path.starts_with(dir));
        if !replaced && (!whole || system || path.starts_with("/sys")) {
            seal(&path, options)?;
        }
    }

    if own_tmp {
        let options = format!("mode=1777,size={}", plan.limits.tmp_bytes);
        tmpfs(OsStr::new("/tmp"), &options, MountFlags::empty())?;
    }
    devices(nodes, plan.limits.tmp_bytes)?;
    for (path, clone) in clones.iter().filter(|(path, _)| *path != root) {
        attach(path, clone, own_tmp)?;
        remount(clone, MountFlags::empty()).map_err(at("mounting", path))?;
    }
    for (path, clone) in &shown {
        attach(path, clone, own_tmp)?;
        remount(clone, MountFlags::RDONLY).map_err(at("mounting", path))?;
    }
    for path in &plan.places.sealed {
        bind(path, MountFlags::RDONLY)?;
    }
    for path in &plan.places.pinned {
        bind(path, MountFlags::empty())?;
    }
    for path in &plan.places.kept {
        bind(path, MountFlags::RDONLY)?;
    }
    for path in &plan.places.masked {
        if open(path).is_ok() {
            tmpfs(path, "mode=555,size=4k", MountFlags::RDONLY)?;
        }
    }
    Ok(())
}

/// Mounts a `/proc` that knows only this pid namespace. Read-only: as root, its switches are the host's.
pub(super) fn fresh_proc() -> Result<(), Errno> {
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None)
}

/// Paths that lie below no other of the list.
fn outermost(paths: &[OsString]) -> Vec<&OsStr> {
    let below = |path: &OsStr, other: &OsStr| path != other && Path::new(path).starts_with(other);
    let mut list: Vec<&OsStr> = Vec::new();
    for path in paths {
        let covered = paths.iter().any(|other| below(path, other));
        if !covered && !list.contains(&path.as_os_str()) {
            list.push(path);
        }
    }
    list
}

fn cloned<'a>(paths: &[&'a OsStr]) -> Result<Vec<(&'a OsStr, OwnedFd)>> {
    let clone = |path: &&'a OsStr| {
        let fd = open(path).and_then(|fd| clone_mount(&fd, OpenTreeFlags::AT_RECURSIVE));
        Ok((*path, fd.map_err(at("opening", path))?))
    };
    paths.iter().map(clone).collect()
}

/// Opens a place without following a link anywhere on the way.
fn open(path: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    loop {
        match rfs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
}

fn clone_mount(fd: &OwnedFd, flags: OpenTreeFlags) -> Result<OwnedFd, Errno> {
    let flags = flags
        | OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(fd, "", flags)
}

fn move_onto(clone: &OwnedFd, onto: &OwnedFd) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(clone, "", onto, "", flags)
}

/// Puts a clone in place; below the run's own `/tmp` the way there has to be made first.
fn attach(path: &OsStr, clone: &OwnedFd, own_tmp: bool) -> Result<()> {
    let made = Path::new(path);
    if own_tmp && made.starts_with("/tmp") {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(made)
            .map_err(|error| at("making the way to", path)(errno(&error)))?;
    }
    let onto = open(path).map_err(at("opening", path))?;
    move_onto(clone, &onto).map_err(at("mounting", path))
}

/// Mounts a file or directory onto itself. One that has vanished since is left to the check after the run.
fn bind(path: &OsStr, flags: MountFlags) -> Result<()> {
    let fd = match open(path) {
        Ok(fd) => fd,
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => return Ok(()),
        Err(errno) => return Err(at("opening", path)(errno)),
    };
    let bound = clone_mount(&fd, OpenTreeFlags::AT_RECURSIVE).and_then(|clone| {
        move_onto(&clone, &fd)?;
        remount(&clone, flags)
    });
    bound.map_err(at("mounting", path))
}

/// Sets a mount's own flags beside those it has. Devices and set-uid bits never work inside.
fn remount(mounted: &OwnedFd, flags: MountFlags) -> Result<(), Errno> {
    let has = rfs::fstatvfs(mounted)?.f_flag;
    let mut flags = flags | MountFlags::BIND | MountFlags::NODEV | MountFlags::NOSUID;
    if has.contains(rfs::StatVfsMountFlags::RDONLY) {
        flags |= MountFlags::RDONLY;
    }
    if has.contains(rfs::StatVfsMountFlags::NOEXEC) {
        flags |= MountFlags::NOEXEC;
    }
    mount_remount(format!("/proc/self/fd/{}", mounted.as_raw_fd()), flags, "")
}

/// Makes one mount of the host read-only.
fn seal(path: &Path, options: MountFlags) -> Result<()> {
    let sealed = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID;
    if options.contains(sealed) {
        return Ok(());
    }
    match mount_remount(path, options | sealed | MountFlags::BIND, "") {
        // Out of this user's reach, so out of the command's; or covered by another mount.
        Ok(()) | Err(Errno::ACCESS | Errno::NOENT | Errno::INVAL) => Ok(()),
        Err(errno) => Err(at("making read-only", path.as_os_str())(errno)),
    }
}

/// The host's mounts with the flags that a user namespace may not take away. Where mounts are stacked, the top one.
fn mount_table() -> Result<BTreeMap<PathBuf, MountFlags>> {
    let table = OsStr::new("/proc/self/mountinfo");
    // The kernel does not say how long it is: room for it at once spares most of the reads.
    let mut text = Vec::with_capacity(64 << 10);
    #[expect(
        clippy::disallowed_methods,
        reason = "a file of the kernel, not of the agent"
    )]
    std::fs::File::open(table)
        .and_then(|mut file| file.read_to_end(&mut text))
        .map_err(|error| at("reading", table)(errno(&error)))?;
    let mut mounts = BTreeMap::new();
    for line in text.split(|b| *b == b'\n') {
        let mut fields = line.split(|b| *b == b' ');
        let (Some(path), Some(options)) = (fields.nth(4), fields.next()) else {
            continue;
        };
        let mut flags = MountFlags::empty();
        for option in options.split(|b| *b == b',') {
            flags |= match option {
                b"ro" => MountFlags::RDONLY,
                b"nosuid" => MountFlags::NOSUID,
                b"nodev" => MountFlags::NODEV,
                b"noexec" => MountFlags::NOEXEC,
                _ => MountFlags::empty(),
            };
        }
        mounts.insert(unescaped(path), flags);
    }
    Ok(mounts)
}

/// Mount points are listed with `\040` for a space and so on.
fn unescaped(path: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, tail)) = rest.split_first() {
        let octal = (*first == b'\\').then(|| tail.get(..3)).flatten();
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &tail[3..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsStr::from_bytes(&out))
}

fn tmpfs(path: &OsStr, options: &str, flags: MountFlags) -> Result<()> {
    let options = CString::new(options).map_err(|_| at("mounting", path)(Errno::INVAL))?;
    let flags = flags | MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", path, "tmpfs", flags, options.as_c_str()).map_err(at("mounting", path))
}

/// The host's nodes, cloned before devices stop working.
fn device_nodes() -> Result<Vec<(&'static str, OwnedFd)>> {
    let mut nodes = Vec::new();
    for name in NODES {
        let path = Path::new("/dev").join(name);
        match open(path.as_os_str()).and_then(|fd| clone_mount(&fd, OpenTreeFlags::empty())) {
            Ok(clone) => nodes.push((name, clone)),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(at("opening", path.as_os_str())(errno)),
        }
    }
    Ok(nodes)
}

/// A `/dev` with a few harmless nodes and room for shared memory.
fn devices(nodes: Vec<(&'static str, OwnedFd)>, bytes: u64) -> Result<()> {
    let dev = Path::new("/dev");
    tmpfs(
        dev.as_os_str(),
        &format!("mode=755,size={bytes}"),
        MountFlags::NOEXEC,
    )?;
    let wrong = |step| move |error: std::io::Error| at(step, dev.as_os_str())(errno(&error));
    for (name, clone) in nodes {
        let path = dev.join(name);
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let made = rfs::open(&path, flags, Mode::from_raw_mode(0o666));
        let mounted = made.and_then(|onto| move_onto(&clone, &onto));
        mounted.map_err(at("mounting", path.as_os_str()))?;
    }
    for (name, to) in [
        ("fd", "fd"),
        ("stdin", "fd/0"),
        ("stdout", "fd/1"),
        ("stderr", "fd/2"),
    ] {
        std::os::unix::fs::symlink(Path::new("/proc/self").join(to), dev.join(name))
            .map_err(wrong("filling"))?;
    }
    let shared = dev.join("shm");
    std::fs::create_dir(&shared).map_err(wrong("filling"))?;
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o1777))
        .map_err(wrong("filling"))
}

fn at(step: &'static str, path: &OsStr) -> impl FnOnce(Errno) -> Trouble {
    let step = format!("{step} {}", path.display());
    move |errno| Trouble { step, errno }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
