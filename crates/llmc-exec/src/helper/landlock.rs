//! Landlock: what may be written, whatever the mounts say, and what may be read where that is bounded too.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, LandlockStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope, path_beneath_rules,
};

use crate::plan::{Places, Plan, Sockets, Stage};

/// The newest rules known here; an older kernel enforces what it knows.
const NEWEST_ABI: ABI = ABI::V9;

/// Devices that every program expects to write to.
const DEVICES: [&str; 6] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/tty",
    "/dev/random",
    "/dev/urandom",
];

/// What every program needs to read, wherever the bounds are: its loader's list, the time zone, itself, its processes.
const ALWAYS_READABLE: [&str; 6] = [
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/proc/self/exe",
    "/proc",
    "/dev",
    "/tmp",
];

/// Restricts this process and returns the ABI that is really in force.
pub(super) fn restrict(plan: &Plan, stage: Option<&Stage>) -> io::Result<u32> {
    let written = AccessFs::from_write(NEWEST_ABI);
    let read = AccessFs::from_read(NEWEST_ABI);
    let handled = match plan.places.seen {
        Some(_) => AccessFs::from_all(NEWEST_ABI),
        None => written,
    };
    let mut ruleset = Ruleset::default().handle_access(handled).map_err(other)?;
    ruleset = ruleset.scope(Scope::from_all(NEWEST_ABI)).map_err(other)?;
    if plan.sockets == Sockets::Nothing {
        ruleset = ruleset
            .handle_access(AccessNet::from_all(NEWEST_ABI))
            .map_err(other)?;
    }
    let mut places: Vec<OsString> = if plan.features.mount {
        plan.places.write.clone()
    } else {
        around(&plan.places)
    };
    places.extend(DEVICES.map(OsString::from));
    // Only a /tmp of its own: the host's holds other people's files.
    if plan.features.mount {
        places.extend(["/tmp", "/dev/shm"].map(OsString::from));
        // What is written there ends in a private layer.
        let layers = stage
            .map(|stage| stage.layers.as_slice())
            .unwrap_or_default();
        places.extend(layers.iter().map(|layer| layer.path.clone()));
    }
    let mut seen = plan.places.seen.clone().unwrap_or_default();
    if plan.places.seen.is_some() {
        seen.extend(ALWAYS_READABLE.map(OsString::from));
    }
    let status = ruleset
        .create()
        .and_then(|created| created.add_rules(path_beneath_rules(places, written)))
        .and_then(|created| created.add_rules(path_beneath_rules(seen, read)))
        .and_then(|created| created.restrict_self())
        .map_err(other)?;
    // Best effort may well have enforced nothing.
    match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, _) => Err(io::ErrorKind::Unsupported.into()),
        (_, LandlockStatus::Available { effective_abi, .. }) => Ok(effective_abi as u32),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// The writable places without the system's directories in them. A rule cannot be narrowed, so where no mount makes those
/// read-only, a place that holds one is given entry by entry; new entries cannot be made beside them then.
fn around(places: &Places) -> Vec<OsString> {
    let mut found = Vec::new();
    let mut next: Vec<PathBuf> = places.write.iter().map(PathBuf::from).collect();
    while let Some(dir) = next.pop() {
        let below = |inner: &OsString| Path::new(inner).starts_with(&dir);
        if places.read_only.iter().any(|outer| dir.starts_with(outer)) {
            continue;
        }
        match places.read_only.iter().any(below) {
            true => {
                let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
                // A rule on a link would be one on what it leads to.
                let real =
                    entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
                next.extend(real.map(|entry| entry.path()));
            }
            false => found.push(dir.into_os_string()),
        }
    }
    found
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}
