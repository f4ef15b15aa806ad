//! Landlock: what may be written, whatever the mounts say, and what may be read where that is bounded too.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, LandlockStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope, path_beneath_rules,
};

use super::session_mounts::session_dirs;
use super::stage::layer_dir;
use crate::plan::{Plan, SessionRules, Sockets, Stage};

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

/// What a process and those that come from it may do with files.
pub(super) struct Bounds {
    write: Vec<OsString>,
    /// All that may be read; everything without.
    read: Option<Vec<OsString>>,
    /// Below it names can be seen.
    listed: Option<OsString>,
    has_network: bool,
}

impl Bounds {
    /// Of a run with rules of its own. Its mounts are made.
    pub(super) fn of_run(plan: &Plan, stage: Option<&Stage>) -> Bounds {
        let mut write: Vec<OsString> = if plan.features.mount {
            plan.places.write.clone()
        } else {
            around(&plan.places.write, &plan.places.read_only)
        };
        write.extend(DEVICES.map(OsString::from));
        // Only a /tmp of its own: the host's holds other people's files.
        if plan.features.mount {
            write.extend(["/tmp", "/dev/shm"].map(OsString::from));
            write.extend(plan.places.git.iter().map(|git| git.git_dir.clone()));
            // What is written there ends in a private layer.
            let layers = stage
                .map(|stage| stage.layers.as_slice())
                .unwrap_or_default();
            write.extend(layers.iter().map(|layer| layer.path.clone()));
        }
        let root = OsString::from("/");
        let (read, listed) = match &plan.places.seen {
            Some(seen) => {
                let always = ALWAYS_READABLE.map(OsString::from);
                (Some(seen.iter().cloned().chain(always).collect()), None)
            }
            None if plan.places.unreadable.is_empty() => (None, None),
            None => {
                let mut read = around(std::slice::from_ref(&root), &plan.places.unreadable);
                read.extend(plan.places.write.iter().cloned());
                (Some(read), Some(root))
            }
        };
        Bounds {
            write,
            read,
            listed,
            has_network: plan.sockets != Sockets::Nothing,
        }
    }

    /// Of a session's runs, by names that they have before a run's mounts are made. A rule holds for what it names wherever
    /// that is mounted.
    pub(super) fn of_session(rules: &SessionRules, stage: &Stage) -> Bounds {
        let mut write = rules.write.clone();
        write.extend(DEVICES.map(OsString::from));
        write.extend(session_dirs().map(PathBuf::into_os_string));
        write.extend(rules.git_copies.iter().cloned());
        write.extend(
            stage
                .layers
                .iter()
                .map(|layer| layer_dir(layer).into_os_string()),
        );
        Bounds {
            write,
            read: None,
            listed: None,
            has_network: rules.has_network,
        }
    }
}

/// Restricts this process and returns the ABI that is really in force.
pub(super) fn restrict(bounds: Bounds) -> io::Result<u32> {
    let Bounds {
        write,
        read,
        listed,
        has_network,
    } = bounds;
    let written = AccessFs::from_write(NEWEST_ABI);
    let seen = AccessFs::from_read(NEWEST_ABI);
    let handled = match read {
        Some(_) => AccessFs::from_all(NEWEST_ABI),
        None => written,
    };
    let mut ruleset = Ruleset::default().handle_access(handled).map_err(other)?;
    ruleset = ruleset.scope(Scope::from_all(NEWEST_ABI)).map_err(other)?;
    if !has_network {
        ruleset = ruleset
            .handle_access(AccessNet::from_all(NEWEST_ABI))
            .map_err(other)?;
    }
    let status = ruleset
        .create()
        .and_then(|created| created.add_rules(path_beneath_rules(write, written)))
        .and_then(|created| created.add_rules(path_beneath_rules(read.unwrap_or_default(), seen)))
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
