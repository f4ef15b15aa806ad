//! Landlock: what may be written, whatever the mounts say, and what may be read where that is bounded too.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, LandlockStatus, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope, path_beneath_rules,
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

/// The same where `/dev` and `/tmp` are the host's. The helper needs `/proc`; what it starts gets less.
const ALWAYS_READABLE_OF_HOST: [&str; 4] = [
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/proc/self/exe",
    "/proc",
];

/// What a single process reads of the host's `/proc`.
const OWN_PROC: [&str; 4] = ["/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat"];

/// A terminal of the host's, if the run has none of its own.
const TERMINAL: &str = "/dev/tty";

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
        let shares_devices = plan.places.seen.is_some() && !plan.features.mount;
        let devices = DEVICES
            .iter()
            .filter(|name| !(shares_devices && **name == TERMINAL));
        write.extend(devices.map(OsString::from));
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
            Some(seen) if shares_devices => {
                let always = ALWAYS_READABLE_OF_HOST.map(OsString::from);
                let seen = seen.iter().chain(&write).cloned();
                (Some(seen.chain(always).collect()), None)
            }
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

/// Restricts what this process may read to these places, and to its own entry in `/proc`. Comes on top of [`restrict`].
pub(super) fn restrict_reading(mut places: Vec<PathBuf>) -> io::Result<()> {
    places.extend(DEVICES.iter().chain(&OWN_PROC).map(PathBuf::from));
    places.extend(ALWAYS_READABLE_OF_HOST.map(PathBuf::from));
    places.retain(|place| place != Path::new("/proc") && place != Path::new(TERMINAL));
    let seen = AccessFs::from_read(NEWEST_ABI);
    let status = Ruleset::default()
        .handle_access(seen)
        .and_then(|rules| rules.create())
        .and_then(|created| created.add_rules(path_beneath_rules(places, seen)))
        .and_then(|created| created.restrict_self())
        .map_err(other)?;
    match status.ruleset {
        RulesetStatus::NotEnforced => Err(io::ErrorKind::Unsupported.into()),
        _ => Ok(()),
    }
}

/// Whether the kernel has the rules without which no files of the host are safe from a program: those up to `truncate`.
pub(super) fn has_rules() -> bool {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V3))
        .and_then(|rules| rules.create())
        .is_ok()
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

/// As [`around`], for those who name places to be read.
pub(super) fn places_around(places: &[PathBuf], left_out: &[PathBuf]) -> Vec<PathBuf> {
    let named = |places: &[PathBuf]| -> Vec<OsString> {
        places.iter().map(|place| place.clone().into()).collect()
    };
    let found = around(&named(places), &named(left_out)).into_iter();
    found.map(PathBuf::from).collect()
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}
