//! The run's view of the file system: everything read-only but what it may write, a `/tmp`, `/dev` and `/proc` of its own.
//!
//! Writable places are cloned while they still are writable, then every mount becomes read-only, then the clones are put
//! back in place. Paths come from the server, link-free; they are opened without following links all the same, since
//! another run may be moving directories about at this very moment.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use llmc_host::unescaped_mount_point;
use rustix::fs::{self as rfs, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change,
    mount_remount, move_mount, open_tree,
};

use super::layered::Layers;
use super::session_mounts::dev_dir;
use super::stage::layer_dir;
use crate::level::Feature;
use crate::plan::{GitMount, HiddenPlace, LINKS_DIR, Layer, Plan, Stage, outermost};

/// Where a daemon's sockets are. `/var/run` is a link to the other almost everywhere.
const RUN_DIRS: [&str; 2] = ["/run", "/var/run"];
/// Files shown in place of others, in the run's own `/dev`.
const STAND_INS_PREFIX: &str = "/dev/.llmc-";

/// Nodes that programs expect; everything else in `/dev` is hardware.
const NODES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// What went wrong, and where.
#[derive(Debug)]
pub(super) struct MountError {
    pub(super) feature: Feature,
    pub(super) step: String,
    pub(super) errno: Errno,
}

type Result<T, E = MountError> = std::result::Result<T, E>;

/// Builds the view from what the host has and the broker has staged; `tmp` is the session's. `/proc` comes later, from
/// [`fresh_proc`].
pub(super) fn build(
    plan: &Plan,
    stage: Option<&Stage>,
    tmp: Option<&Path>,
    own_layers: Option<&Layers>,
) -> Result<()> {
    let root = OsStr::new("/");
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(at("making mounts private", root))?;

    let writable = outermost(&plan.places.write);
    let whole = writable.contains(&root);
    let own_tmp = !writable
        .iter()
        .any(|path| Path::new("/tmp").starts_with(path));
    let clones = match own_layers {
        Some(own) => own.overlays(&writable)?,
        None => cloned(&writable)?,
    };
    let is_written = |path: &Path| writable.iter().any(|root| path.starts_with(root));
    let layers = stage
        .map(|stage| stage.layers.as_slice())
        .unwrap_or_default();
    let layers: Vec<LayerClone<'_>> = layers
        .iter()
        .filter(|layer| !is_written(Path::new(&layer.path)))
        .map(LayerClone::new)
        .collect::<Result<_>>()?;
    let own_run: Vec<&Path> = RUN_DIRS
        .map(Path::new)
        .into_iter()
        .filter(|dir| plan.view.private_run && !is_written(dir))
        .filter(|dir| dir.symlink_metadata().is_ok_and(|status| status.is_dir()))
        .collect();
    let resolver = resolver_file(&own_run)?;
    let run_links = own_run
        .iter()
        .flat_map(|dir| links_out_of(dir))
        .collect::<Vec<_>>();
    // Places that are covered, so that the way to what lies below has to be made anew.
    let mut covered: Vec<&Path> = own_run.clone();
    if own_tmp {
        covered.push(Path::new("/tmp"));
    }
    let is_in_hidden = |path: &Path| {
        let mut hidden = plan.view.hidden.iter().map(|place| Path::new(&place.path));
        hidden.any(|place| path != place && path.starts_with(place))
    };
    let is_covered = |path: &&OsStr| {
        is_in_hidden(Path::new(path))
            || covered.iter().any(|dir| Path::new(path).starts_with(dir))
            || layers
                .iter()
                .any(|layer| Path::new(path).starts_with(&layer.layer.path))
    };
    let shown: Vec<&OsStr> = outermost(&plan.places.read)
        .into_iter()
        .filter(is_covered)
        .filter(|path| !is_written(Path::new(path)))
        .collect();
    let around: Vec<&OsStr> = outermost(&plan.places.around)
        .into_iter()
        .filter(is_covered)
        .filter(|path| !is_written(Path::new(path)))
        .collect();
    let around_clones = cloned(&around)?;
    // Hidden places inside what is put back in place later have to be covered after that.
    let is_put_back =
        |path: &Path| is_written(path) || shown.iter().any(|dir| path.starts_with(dir));
    let (hidden_inside, hidden_first): (Vec<&HiddenPlace>, Vec<&HiddenPlace>) = plan
        .view
        .hidden
        .iter()
        .partition(|place| is_put_back(Path::new(&place.path)));
    let shown_clones = cloned(&shown)?;
    let git_dirs: Vec<GitClones<'_>> = plan
        .places
        .git
        .iter()
        .map(GitClones::new)
        .collect::<Result<_>>()?;
    let dev = match plan.is_member {
        true => DevClone::OfSession(cloned(&[dev_dir().as_os_str()])?.remove(0).1),
        false => DevClone::New(device_nodes()?),
    };
    let session_tmp = match tmp.filter(|_| own_tmp) {
        Some(dir) => {
            let opened = open(dir.as_os_str()).map_err(at("opening", dir.as_os_str()))?;
            Some(match own_layers {
                Some(own) => own.over_tmp(&opened)?,
                None => clone_mount(&opened, OpenTreeFlags::empty())
                    .map_err(at("opening", dir.as_os_str()))?,
            })
        }
        None => None,
    };

    let mounted = mount_table()?;
    for (path, options) in &mounted {
        let replaced = path.starts_with("/dev")
            || path.starts_with("/proc")
            || covered.iter().any(|dir| path.starts_with(dir));
        let system = plan
            .places
            .read_only
            .iter()
            .any(|dir| path.starts_with(dir));
        if !replaced && (!whole || system || path.starts_with("/sys")) {
            remount_read_only(path, *options)?;
        }
    }
    // Mounts of the host below a layer, which shows only what lies in the folder itself.
    let layer_dirs: Vec<&OsStr> = layers
        .iter()
        .map(|layer| layer.layer.path.as_os_str())
        .collect();
    let inner = inner_mounts(mounted.keys(), &layer_dirs, &is_written);
    // The same for the run's own layers: those mounts are shown, and stay read-only.
    let inner_written = match own_layers {
        Some(_) => inner_mounts(mounted.keys(), &writable, &|_| false),
        None => Vec::new(),
    };

    if own_tmp {
        let tmp = OsStr::new("/tmp");
        match &session_tmp {
            Some(clone) => attach(tmp, clone, &[])?,
            None => {
                let options = format!("mode=1777,size={}", plan.limits.tmp_bytes);
                tmpfs(tmp, &options, MountFlags::empty())?;
            }
        }
    }
    for dir in &own_run {
        tmpfs(dir.as_os_str(), "mode=755,size=1m", MountFlags::empty())?;
    }
    for (link, target) in run_links {
        let _ = std::os::unix::fs::symlink(target, link);
    }
    if let Some(python) = &plan.view.python
        && own_run.contains(&Path::new("/run"))
    {
        // A convenience: a run without it is as confined as one with it.
        let links = Path::new(LINKS_DIR);
        let mut builder = std::fs::DirBuilder::new();
        let _ = builder.mode(0o755).recursive(true).create(links);
        let _ = std::os::unix::fs::symlink(python, links.join("python"));
    }
    match dev {
        DevClone::New(nodes) => fill_devices(Path::new("/dev"), nodes, plan.limits.tmp_bytes)?,
        DevClone::OfSession(dev) => attach(OsStr::new("/dev"), &dev, &[])?,
    }
    // Before what lies inside.
    for (path, clone) in &around_clones {
        attach(path, clone, &covered)?;
        remount(clone, MountFlags::RDONLY).map_err(at("mounting", path))?;
    }
    for layer in &layers {
        layer.attach(&covered)?;
    }
    for (path, clone) in &inner {
        attach(path.as_os_str(), clone, &covered)?;
    }
    for place in hidden_first
        .iter()
        .filter(|place| Path::new(&place.path).is_dir())
    {
        // Writable for now: a write root may lie inside, and the way to it has to be made.
        tmpfs(&place.path, "mode=755,size=256k", MountFlags::empty())?;
        covered.push(Path::new(&place.path));
    }
    for (path, clone) in clones.iter().filter(|(path, _)| *path != root) {
        attach(path, clone, &covered)?;
        remount(clone, MountFlags::empty()).map_err(at("mounting", path))?;
    }
    for (path, clone) in &inner_written {
        // A base may have nothing at that place.
        if let Ok(onto) = open(path.as_os_str()) {
            move_onto(clone, &onto).map_err(at("mounting", path.as_os_str()))?;
        }
    }
    for (path, clone) in &shown_clones {
        attach(path, clone, &covered)?;
        remount(clone, MountFlags::RDONLY).map_err(at("mounting", path))?;
    }
    if let Some((path, clone)) = &resolver {
        attach_file(path, clone)?;
    }
    let mut stand_ins = StandIns::new();
    for place in hidden_first.iter().chain(&hidden_inside) {
        match open(&place.path).and_then(|fd| rfs::fstat(&fd)) {
            Ok(status) if rfs::FileType::from_raw_mode(status.st_mode).is_dir() => {
                if is_put_back(Path::new(&place.path)) {
                    tmpfs(&place.path, "mode=555,size=4k", MountFlags::RDONLY)?;
                } else {
                    // What a command wrote there would be lost in silence.
                    let hidden = open(&place.path).map_err(at("hiding", &place.path))?;
                    remount(&hidden, MountFlags::RDONLY).map_err(at("hiding", &place.path))?;
                }
            }
            Ok(_) => stand_ins.cover(&place.path, &place.text)?,
            Err(_) => {}
        }
    }
    for path in &plan.view.sockets {
        stand_ins.cover(path, "")?;
    }
    for path in &plan.places.read_only {
        bind(path, MountFlags::RDONLY)?;
    }
    for path in &plan.places.pinned {
        bind(path, MountFlags::empty())?;
    }
    for git in &git_dirs {
        git.attach(&covered)?;
    }
    for path in &plan.places.kept {
        bind(path, MountFlags::RDONLY)?;
    }
    for path in &plan.places.masked {
        if open(path).is_ok() {
            tmpfs(path, "mode=555,size=4k", MountFlags::RDONLY)?;
        }
    }
    stand_ins.remove_files();
    Ok(())
}

/// What becomes `/dev`.
enum DevClone {
    /// Nodes of the host, for a new one.
    New(Vec<(&'static str, OwnedFd)>),
    OfSession(OwnedFd),
}

/// What is mounted for a private layer.
struct LayerClone<'a> {
    layer: &'a Layer,
    clone: OwnedFd,
}

impl<'a> LayerClone<'a> {
    fn new(layer: &'a Layer) -> Result<LayerClone<'a>> {
        let clone = open(layer_dir(layer).as_os_str())
            .and_then(|fd| clone_mount(&fd, OpenTreeFlags::empty()))
            .map_err(at("opening", &layer.path))?;
        Ok(LayerClone { layer, clone })
    }

    fn attach(&self, covered: &[&Path]) -> Result<()> {
        let path = &self.layer.path;
        attach(path, &self.clone, covered)?;
        remount(&self.clone, MountFlags::empty()).map_err(at("mounting", path))
    }
}

/// What is mounted for a git directory, opened while it still can be written.
struct GitClones<'a> {
    git: &'a GitMount,
    top: OwnedFd,
    /// Directories below it, with how they are mounted.
    inner: Vec<(PathBuf, OwnedFd, MountFlags)>,
}

impl<'a> GitClones<'a> {
    fn new(git: &'a GitMount) -> Result<GitClones<'a>> {
        let clone = |path: &OsStr| {
            open(path)
                .and_then(|fd| clone_mount(&fd, OpenTreeFlags::empty()))
                .map_err(at("opening", path))
        };
        let dir = Path::new(&git.git_dir);
        let mut inner = Vec::new();
        let direct = git.direct.iter().map(|name| (name, MountFlags::empty()));
        let read_only = git.read_only.iter().map(|name| (name, MountFlags::RDONLY));
        for (name, flags) in direct.chain(read_only) {
            let path = dir.join(name);
            let opened = clone(path.as_os_str())?;
            inner.push((path, opened, flags));
        }
        let info = clone(&git.objects_info)?;
        inner.push((dir.join("objects/info"), info, MountFlags::empty()));
        Ok(GitClones {
            git,
            top: clone(&git.top)?,
            inner,
        })
    }

    fn attach(&self, covered: &[&Path]) -> Result<()> {
        let path = &self.git.git_dir;
        attach(path, &self.top, covered)?;
        remount(&self.top, MountFlags::empty()).map_err(at("mounting", path))?;
        for (path, clone, flags) in &self.inner {
            let path = path.as_os_str();
            let onto = open(path).map_err(at("opening", path))?;
            move_onto(clone, &onto)
                .and_then(|()| remount(clone, *flags))
                .map_err(at("mounting", path))?;
        }
        Ok(())
    }
}

/// Mounts a `/proc` that knows only this pid namespace. Read-only: as root, its switches are the host's. Calls `before`
/// while it can still be written.
pub(super) fn fresh_proc(before: impl FnOnce()) -> Result<(), Errno> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None)?;
    before();
    mount_remount("/proc", flags | MountFlags::RDONLY, c"")
}

fn cloned<'a>(paths: &[&'a OsStr]) -> Result<Vec<(&'a OsStr, OwnedFd)>> {
    let clone = |path: &&'a OsStr| {
        let fd = open(path).and_then(|fd| clone_mount(&fd, OpenTreeFlags::AT_RECURSIVE));
        Ok((*path, fd.map_err(at("opening", path))?))
    };
    paths.iter().map(clone).collect()
}

/// Opens a place without following a link anywhere on the way.
pub(super) fn open(path: &OsStr) -> Result<OwnedFd, Errno> {
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

/// Files that stand in for others.
struct StandIns {
    /// Runs of a session share `/dev`.
    dir: PathBuf,
    made: usize,
}

impl StandIns {
    fn new() -> StandIns {
        StandIns {
            dir: format!("{STAND_INS_PREFIX}{}", std::process::id()).into(),
            made: 0,
        }
    }

    /// What is mounted stays.
    fn remove_files(self) {
        for number in 1..=self.made {
            let _ = rfs::unlink(self.dir.join(number.to_string()));
        }
        let _ = rfs::rmdir(&self.dir);
    }

    /// Shows a file with another text, read-only. One that is gone needs no cover.
    fn cover(&mut self, path: &OsStr, text: &str) -> Result<()> {
        let Ok(onto) = open(path) else {
            return Ok(());
        };
        let dir = &self.dir;
        let wrong = |error: std::io::Error| at("covering", path)(errno(&error));
        if self.made == 0 {
            std::fs::DirBuilder::new()
                .mode(0o755)
                .create(dir)
                .map_err(wrong)?;
        }
        self.made += 1;
        let file = dir.join(self.made.to_string());
        std::fs::write(&file, text).map_err(wrong)?;
        open(file.as_os_str())
            .and_then(|fd| clone_mount(&fd, OpenTreeFlags::empty()))
            .and_then(|clone| match move_onto(&clone, &onto) {
                // It was deleted after it was opened: sockets come and go.
                Err(Errno::NOENT) => Ok(()),
                moved => moved.and_then(|()| remount(&clone, MountFlags::RDONLY)),
            })
            .map_err(at("covering", path))
    }
}

/// Mounts strictly below a layer, as they are now. The ones out of this user's reach are left out.
fn inner_mounts<'a>(
    mounted: impl Iterator<Item = &'a PathBuf>,
    layers: &[&OsStr],
    is_written: &dyn Fn(&Path) -> bool,
) -> Vec<(&'a PathBuf, OwnedFd)> {
    let mut found: Vec<(&PathBuf, OwnedFd)> = Vec::new();
    for path in mounted {
        let below = |dir: &Path| path != dir && path.starts_with(dir);
        let known = found.iter().any(|(dir, _)| below(dir));
        if known || is_written(path) || !layers.iter().any(|dir| below(Path::new(dir))) {
            continue;
        }
        let clone =
            open(path.as_os_str()).and_then(|fd| clone_mount(&fd, OpenTreeFlags::AT_RECURSIVE));
        found.extend(clone.map(|clone| (path, clone)));
    }
    found
}

/// The list of name servers, where it lies in a folder that is covered: without it no name is found.
fn resolver_file(covered: &[&Path]) -> Result<Option<(PathBuf, OwnedFd)>> {
    let Ok(path) = std::fs::canonicalize("/etc/resolv.conf") else {
        return Ok(None);
    };
    if !covered.iter().any(|dir| path.starts_with(dir)) || !path.is_file() {
        return Ok(None);
    }
    let clone = open(path.as_os_str()).and_then(|fd| clone_mount(&fd, OpenTreeFlags::empty()));
    Ok(clone.ok().map(|clone| (path, clone)))
}

/// Links of a folder that lead elsewhere, as some systems keep their programs behind one.
fn links_out_of(dir: &Path) -> Vec<(PathBuf, PathBuf)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let target = std::fs::read_link(entry.path()).ok()?;
            (target.is_absolute() && !target.starts_with(dir)).then(|| (entry.path(), target))
        })
        .collect()
}

/// Puts a file in place in a folder that was covered.
fn attach_file(path: &Path, clone: &OwnedFd) -> Result<()> {
    let wrong = |error: std::io::Error| at("making the way to", path.as_os_str())(errno(&error));
    make_way(path, false).map_err(wrong)?;
    let onto = open(path.as_os_str()).map_err(at("opening", path.as_os_str()))?;
    move_onto(clone, &onto)
        .and_then(|()| remount(clone, MountFlags::RDONLY))
        .map_err(at("mounting", path.as_os_str()))
}

/// Puts a clone in place; below a folder that was covered the way there has to be made first.
fn attach(path: &OsStr, clone: &OwnedFd, covered: &[&Path]) -> Result<()> {
    let made = Path::new(path);
    if covered.iter().any(|dir| made.starts_with(dir)) {
        let status = rfs::fstat(clone).map_err(at("mounting", path))?;
        let is_dir = rfs::FileType::from_raw_mode(status.st_mode).is_dir();
        make_way(made, is_dir).map_err(|error| at("making the way to", path)(errno(&error)))?;
    }
    let onto = open(path).map_err(at("opening", path))?;
    move_onto(clone, &onto).map_err(at("mounting", path))
}

/// Makes a folder or an empty file to mount on, with the folders above it.
fn make_way(path: &Path, is_dir: bool) -> std::io::Result<()> {
    let mut folders = std::fs::DirBuilder::new();
    folders.recursive(true).mode(0o755);
    if is_dir {
        return folders.create(path);
    }
    if let Some(dir) = path.parent() {
        folders.create(dir)?;
    }
    std::fs::write(path, "")
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
fn remount_read_only(path: &Path, options: MountFlags) -> Result<()> {
    let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID;
    if options.contains(flags) {
        return Ok(());
    }
    match mount_remount(path, options | flags | MountFlags::BIND, "") {
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
        mounts.insert(unescaped_mount_point(path), flags);
    }
    Ok(mounts)
}

fn tmpfs(path: &OsStr, options: &str, flags: MountFlags) -> Result<()> {
    let options = CString::new(options).map_err(|_| at("mounting", path)(Errno::INVAL))?;
    let flags = flags | MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", path, "tmpfs", flags, options.as_c_str()).map_err(at("mounting", path))
}

/// The host's nodes, cloned before devices stop working.
pub(super) fn device_nodes() -> Result<Vec<(&'static str, OwnedFd)>> {
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

/// Mounts a `/dev` with a few harmless nodes and room for shared memory.
pub(super) fn fill_devices(
    dev: &Path,
    nodes: Vec<(&'static str, OwnedFd)>,
    bytes: u64,
) -> Result<()> {
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

fn at(step: &'static str, path: &OsStr) -> impl FnOnce(Errno) -> MountError {
    let step = format!("{step} {}", path.display());
    move |errno| MountError {
        feature: Feature::MountSpace,
        step,
        errno,
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
