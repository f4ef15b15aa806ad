//! Capabilities: those needed to build the boundary, then those a command keeps.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
};

/// What helpers need while they build: mounts, entering them, dropping capabilities, the loopback's switch. The kernel gives an
/// overlay a working folder without permissions, so the process that mounts one needs the capability to pass them.
const BUILDER_CAPABILITIES: [CapabilitySet; 5] = [
    CapabilitySet::SYS_ADMIN,
    CapabilitySet::SYS_CHROOT,
    CapabilitySet::DAC_OVERRIDE,
    CapabilitySet::SETPCAP,
    CapabilitySet::NET_ADMIN,
];

/// What a command keeps when the server is root: work on files of other users, as root is used to. The mounts bound it.
const COMMAND_CAPABILITIES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID);

/// Lets the capabilities that came with a new user namespace survive the next exec, as a user who is not root.
pub(super) fn keep_over_exec() -> Result<(), Errno> {
    let mut sets = capabilities(None)?;
    if rustix::process::geteuid().is_root() || !sets.permitted.contains(CapabilitySet::SYS_ADMIN) {
        return Ok(());
    }
    sets.inheritable = sets.permitted;
    set_capabilities(None, sets)?;
    for capability in BUILDER_CAPABILITIES {
        configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

/// Bounds the capabilities of every program started from here. Those of this process are unchanged, so
/// this can be done long before there is a command.
pub(super) fn bound_programs() -> Result<(), Errno> {
    let sets = capabilities(None)?;
    if !sets.effective.contains(CapabilitySet::SETPCAP) {
        return Ok(());
    }
    let kept = kept(sets);
    for bit in 0..63 {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        if !kept.contains(capability)
            && remove_capability_from_bounding_set(capability) == Err(Errno::INVAL)
        {
            // The kernel knows no more than these.
            break;
        }
    }
    Ok(())
}

fn kept(sets: CapabilitySets) -> CapabilitySet {
    if rustix::process::geteuid().is_root() {
        COMMAND_CAPABILITIES & sets.permitted
    } else {
        CapabilitySet::empty()
    }
}

/// Drops every capability that a command does not keep.
pub(super) fn drop_most() -> Result<(), Errno> {
    let kept = kept(capabilities(None)?);
    clear_ambient_capability_set()?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )
}

/// Drops every capability, for a program that shares files with the host.
pub(super) fn drop_all() -> Result<(), Errno> {
    let none = CapabilitySet::empty();
    clear_ambient_capability_set()?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )
}
