//! Landlock: what may be written, whatever the mounts say, and what may be read where that is bounded too.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, LandlockStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope, path_beneath_rules,
};

use crate::plan::{Plan, Sockets, Stage};

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
    let has_bounds = plan.places.seen.is_some();
    let leaves_out = !has_bounds && !plan.places.unreadable.is_empty();
    let handled = match has_bounds || leaves_out {
        true => AccessFs::from_all(NEWEST_ABI),
        false => written,
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
        around(&plan.places.write, &plan.places.read_only)
    };
    places.extend(DEVICES.map(OsString::from));
    // Only a /tmp of its own: the host's holds other people's files.
    if plan.features.mount {
        places.extend(["/tmp", "/dev/shm"].map(OsString::from));
        places.extend(plan.places.git.iter().map(|git| git.git_dir.clone()));
        // What is written there ends in a private layer.
        let layers = stage
            .map(|stage| stage.layers.as_slice())
            .unwrap_or_default();
        places.extend(layers.iter().map(|layer| layer.path.clone()));
    }
    let mut seen = plan.places.seen.clone().unwrap_or_default();
    let mut listed = None;
    if has_bounds {
        seen.extend(ALWAYS_READABLE.map(OsString::from));
    }
    if leaves_out {
        let root = OsString::from("/");
        seen = around(std::slice::from_ref(&root), &plan.places.unreadable);
        seen.extend(plan.places.write.iter().cloned());
        // Names can be seen everywhere.
        listed = Some(root);
    }
    let status = ruleset
        .create()
        .and_then(|created| created.add_rules(path_beneath_rules(places, written)))
        .and_then(|created| created.add_rules(path_beneath_rules(seen, read)))
        .and_then(|created| created.add_rules(path_beneath_rules(listed, AccessFs::ReadDir)))
        .and_then(|created| created.restrict_self())
        .map_err(other)?;
    // Best effort may well have enforced nothing.
    match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, _) => Err(io::ErrorKind::Unsupported.into()),
        (_, LandlockStatus::Available { effective_abi, .. }) => Ok(effective_abi as u32),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Places without those to be left out of them. A rule cannot be narrowed, so where no mount covers what is left out, a place
/// that holds such a thing is given entry by entry; new entries beside them are not part of it then.
fn around(places: &[OsString], left_out: &[OsString]) -> Vec<OsString> {
    let mut found = Vec::new();
    let mut next: Vec<PathBuf> = places.iter().map(PathBuf::from).collect();
    while let Some(dir) = next.pop() {
        let below = |inner: &OsString| Path::new(inner).starts_with(&dir);
        if left_out.iter().any(|outer| dir.starts_with(outer)) {
            continue;
        }
        match left_out.iter().any(below) {
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
