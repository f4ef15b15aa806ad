//! Landlock: what may be written, whatever the mounts say.

use std::ffi::OsString;
use std::io;

use landlock::{
    ABI, Access, AccessFs, AccessNet, LandlockStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope, path_beneath_rules,
};

use crate::exec::plan::{Plan, Sockets};

/// The newest rules known here; an older kernel enforces what it knows.
const NEWEST: ABI = ABI::V9;

/// Devices that every program expects to write to.
const DEVICES: [&str; 6] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/tty",
    "/dev/random",
    "/dev/urandom",
];

/// Restricts this process and returns the ABI that is really in force.
pub(super) fn restrict(plan: &Plan) -> io::Result<u32> {
    let written = AccessFs::from_write(NEWEST);
    let mut ruleset = Ruleset::default().handle_access(written).map_err(other)?;
    ruleset = ruleset.scope(Scope::from_all(NEWEST)).map_err(other)?;
    if plan.sockets == Sockets::Nothing {
        ruleset = ruleset
            .handle_access(AccessNet::from_all(NEWEST))
            .map_err(other)?;
    }
    let mut places: Vec<OsString> = plan.places.write.clone();
    places.extend(DEVICES.map(OsString::from));
    // Only a /tmp of its own: the host's holds other people's files.
    if plan.features.mount {
        places.extend(["/tmp", "/dev/shm"].map(OsString::from));
    }
    let status = ruleset
        .create()
        .and_then(|created| created.add_rules(path_beneath_rules(places, written)))
        .and_then(|created| created.restrict_self())
        .map_err(other)?;
    // Best effort may well have enforced nothing.
    match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, _) => Err(io::ErrorKind::Unsupported.into()),
        (_, LandlockStatus::Available { effective_abi, .. }) => Ok(effective_abi as u32),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}
