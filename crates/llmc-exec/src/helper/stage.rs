//! Mounts that outlive a run: the private layers over the user's folders, and each session's `/tmp` where there are no sessions
//! with processes of their own.
//!
//! The broker makes them in a mount namespace of its own, on a tmpfs of its own over [`STAGE_DIR`]. A run's first process
//! shares that namespace until it unshares its own, so it inherits whatever is staged and puts it in place. The copy of
//! an overlay mount refers to the same overlay, so an upper layer is never part of two.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount,
};

use crate::layer_limit::TOO_LARGE_MARK;
use crate::level::Feature;
use crate::plan::{Failure, Layer, LayerStore, Stage};

/// Where staged mounts are. A run covers `/dev` with its own, so no command can reach it.
pub(super) const STAGE_DIR: &str = "/dev/shm";
/// Folders that programs expect in a home directory.
const EXPECTED_FOLDERS: [&str; 4] = [".cache", ".local/bin", ".local/share", ".local/state"];
/// Servers of one workspace that keep their layers on the disk; further ones keep theirs in memory.
const MAX_STORES: u32 = 64;
/// Sessions whose `/tmp` is kept; the one that was used longest ago gives way.
const MAX_SESSION_TMPS: usize = 16;
/// How the names of the sessions' folders begin.
const TMP_PREFIX: &str = "tmp-";

/// What the broker has staged.
pub(super) struct Staged {
    /// The layers that are in place, for the runs.
    pub(super) stage: Option<Stage>,
    /// Where each layer keeps what is written, for the server; `None` for a layer that could not be made.
    pub(super) stores: Vec<Option<LayerStore>>,
    /// Held as long as the broker lives.
    _store: Option<Store>,
}

/// Enters a mount namespace of the broker's own and makes the layers. A layer that cannot be made is left out.
pub(super) fn set_up(stage: Option<Stage>) -> Result<Staged, Failure> {
    let mut staged = Staged {
        stage: None,
        stores: Vec::new(),
        _store: None,
    };
    let Some(stage) = stage else {
        return Ok(staged);
    };
    unshare(CloneFlags::CLONE_NEWNS)
        .map_err(|errno| Failure::new(Some(Feature::MountSpace), "the broker's mounts", errno))?;
    // What the host mounts from now on still arrives; nothing goes back.
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    let options = format!("mode=700,size={}", stage.tmp_bytes);
    let ready = mount_change("/", slave).and_then(|()| tmpfs(Path::new(STAGE_DIR), &options));
    if ready.is_err() {
        // No run sees a stage then: each gets a new `/tmp`, and the user's folders are read-only.
        staged.stores = stage.layers.iter().map(|_| None).collect();
        return Ok(staged);
    }
    let store = stage
        .store
        .as_ref()
        .and_then(|base| Store::take(Path::new(base)));
    let mut layers = Vec::new();
    for layer in stage.layers {
        match make_layer(&layer, store.as_ref()) {
            Ok(kept) => {
                staged.stores.push(Some(kept));
                layers.push(layer);
            }
            Err(_) => staged.stores.push(None),
        }
    }
    staged.stage = Some(Stage {
        layers,
        store: None,
        tmp_bytes: stage.tmp_bytes,
    });
    staged._store = store;
    Ok(staged)
}

/// The folder on the disk of this broker's layers. Locked as long as the broker lives: an upper layer belongs to one mount.
struct Store {
    dir: PathBuf,
    _lock: OwnedFd,
    /// Whether what was in it has been dropped.
    is_renewed: bool,
    is_full: bool,
}

impl Store {
    /// The first folder of this name, or of it and a number, that no other server has.
    fn take(base: &Path) -> Option<Store> {
        let name = base.file_name()?;
        for number in 1..=MAX_STORES {
            let mut name = name.to_owned();
            if number > 1 {
                name.push(format!(".{number}"));
            }
            let dir = base.with_file_name(name);
            match lock_store(&dir) {
                Ok(lock) => {
                    let is_renewed = dir.join(TOO_LARGE_MARK).exists();
                    if is_renewed {
                        clear_stores(&dir);
                    }
                    return Some(Store {
                        is_full: is_full(&dir),
                        dir,
                        _lock: lock,
                        is_renewed,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
        None
    }
}

/// Where a layer is staged.
pub(super) fn layer_dir(layer: &Layer) -> PathBuf {
    Path::new(STAGE_DIR).join(format!("layer-{}", layer.name))
}

/// Mounts one layer: on the disk if its folder there can be used, else with a tmpfs for what is written.
fn make_layer(layer: &Layer, store: Option<&Store>) -> io::Result<LayerStore> {
    let merged = layer_dir(layer);
    make_dir(&merged)?;
    let Some(store) = store else {
        in_memory(layer, &merged)?;
        return Ok(LayerStore::Memory);
    };
    if store.is_full {
        in_memory(layer, &merged)?;
        return Ok(LayerStore::MemoryBecauseFull);
    }
    let dir = store.dir.join(&layer.name);
    if mount_layer(layer, &dir, &merged).is_ok() {
        return Ok(match store.is_renewed {
            true => LayerStore::DiskRenewed,
            false => LayerStore::Disk,
        });
    }
    // It is only a cache: begin anew.
    if clear_store(&dir)
        .and_then(|()| mount_layer(layer, &dir, &merged))
        .is_ok()
    {
        return Ok(LayerStore::DiskRenewed);
    }
    in_memory(layer, &merged)?;
    Ok(LayerStore::Memory)
}

/// Whether the disk has no room for what commands write to their caches.
fn is_full(store: &Path) -> bool {
    const MIN_FREE_BYTES: u64 = 16 << 20;
    rustix::fs::statvfs(store)
        .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < MIN_FREE_BYTES)
}

fn in_memory(layer: &Layer, merged: &Path) -> io::Result<()> {
    let store = Path::new(STAGE_DIR).join(format!("store-{}", layer.name));
    make_dir(&store)?;
    mount_layer(layer, &store, merged)
}

fn mount_layer(layer: &Layer, store: &Path, merged: &Path) -> io::Result<()> {
    match layer.has_lower {
        true => mount_overlay(layer, store, merged),
        false => {
            let dir = store.join("upper");
            for folder in EXPECTED_FOLDERS {
                make_dir(&dir.join(folder))?;
            }
            mount_bind(&dir, merged)?;
            Ok(())
        }
    }
}

fn mount_overlay(layer: &Layer, store: &Path, merged: &Path) -> io::Result<()> {
    let (upper, work) = (store.join("upper"), store.join("work"));
    for dir in [&upper, &work] {
        make_dir(dir)?;
    }
    // A run in the user's folder must find it as its owner left it.
    let lower = std::fs::metadata(Path::new(&layer.path))?;
    std::fs::set_permissions(&upper, lower.permissions())?;
    let mut options = OsString::from("userxattr,index=off,lowerdir=");
    options.push(escaped(&layer.path));
    options.push(",upperdir=");
    options.push(escaped(upper.as_os_str()));
    options.push(",workdir=");
    options.push(escaped(work.as_os_str()));
    let options = CString::new(options.into_vec())?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("overlay", merged, "overlay", flags, options.as_c_str())?;
    // The kernel makes it without permissions, and then its owner can neither list nor delete the state directory.
    let _ = std::fs::set_permissions(work.join("work"), Permissions::from_mode(0o700));
    Ok(())
}

/// The kernel cuts its options at commas and lower layers at colons.
fn escaped(path: &OsStr) -> OsString {
    let mut out = Vec::with_capacity(path.len());
    for byte in path.as_bytes() {
        if matches!(byte, b'\\' | b',' | b':') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    OsString::from_vec(out)
}

/// Locks a layer's folder for this broker. Another server of the same workspace may hold it.
fn lock_store(store: &Path) -> io::Result<OwnedFd> {
    make_dir(store)?;
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(store, flags, Mode::empty())?;
    flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
    Ok(dir)
}

/// Drops all layers in a folder. What cannot be deleted is left to the mount, which fails.
#[expect(
    clippy::disallowed_methods,
    reason = "a folder of the server's own making"
)]
fn clear_stores(dir: &Path) {
    for layer in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let _ = clear_store(&layer.path());
    }
    let _ = std::fs::remove_file(dir.join(TOO_LARGE_MARK));
}

#[expect(
    clippy::disallowed_methods,
    reason = "a folder of the server's own making"
)]
fn clear_store(store: &Path) -> io::Result<()> {
    for name in ["upper", "work"] {
        let dir = store.join(name);
        match std::fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                // Not everything can be deleted (the kernel's own folder in there has no permissions): out of the way.
                let aside = store.join(format!("{name}.unusable"));
                let _ = std::fs::remove_dir_all(&aside);
                std::fs::rename(&dir, &aside)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Where a run mounts the file system for its layers, in a mount namespace of its own; made if need be.
pub(super) fn layers_mount_point() -> io::Result<PathBuf> {
    let dir = Path::new(STAGE_DIR).join("layers");
    make_dir(&dir)?;
    Ok(dir)
}

/// The staged `/tmp` of a session, made if need be. For a process that still shares the broker's mounts.
pub(super) fn session_tmp(session: &str, bytes: u64) -> io::Result<PathBuf> {
    let stage = Path::new(STAGE_DIR);
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let lock = rustix::fs::open(stage, flags, Mode::empty())?;
    // Two runs of a session may begin at the same time.
    flock(&lock, FlockOperation::LockExclusive)?;
    let dir = stage.join(format!("{TMP_PREFIX}{session}"));
    if !dir.exists() {
        drop_oldest_tmp(stage)?;
        make_dir(&dir)?;
        if let Err(error) = tmpfs(&dir, &format!("mode=1777,size={bytes}")) {
            let _ = std::fs::remove_dir(&dir);
            return Err(error.into());
        }
    }
    let now = rustix::fs::Timestamps {
        last_access: rustix::fs::Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_NOW,
        },
        last_modification: rustix::fs::Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_NOW,
        },
    };
    rustix::fs::utimensat(rustix::fs::CWD, &dir, &now, rustix::fs::AtFlags::empty())?;
    Ok(dir)
}

/// Makes room for one more session. A run that uses the dropped folder keeps it until it ends.
fn drop_oldest_tmp(stage: &Path) -> io::Result<()> {
    let mut kept: Vec<((i64, i64), PathBuf)> = std::fs::read_dir(stage)?
        .flatten()
        .filter(|entry| {
            entry
                .file_name()
                .as_bytes()
                .starts_with(TMP_PREFIX.as_bytes())
        })
        .filter_map(|entry| {
            // Of what is mounted there, not of the folder below.
            let status = std::fs::metadata(entry.path()).ok()?;
            Some(((status.mtime(), status.mtime_nsec()), entry.path()))
        })
        .collect();
    kept.sort();
    let surplus = (kept.len() + 1).saturating_sub(MAX_SESSION_TMPS);
    for (_, dir) in kept.into_iter().take(surplus) {
        unmount(&dir, UnmountFlags::DETACH)?;
        std::fs::remove_dir(&dir)?;
    }
    Ok(())
}

pub(super) fn make_dir(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).recursive(true).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

pub(super) fn tmpfs(dir: &Path, options: &str) -> Result<(), rustix::io::Errno> {
    let options = CString::new(options).map_err(|_| rustix::io::Errno::INVAL)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", dir, "tmpfs", flags, options.as_c_str())
}
