//! Keeping the server's memory and environment, which hold its token, from its user's other processes; and knowing one of the
//! agent's processes.

use super::plan::OUTER;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Makes this process's memory, descriptors and environment unreadable for other processes of the same user.
///
/// The kernel gives `/proc/<pid>` to root then and refuses tracing. Programs started from here are not concerned: the flag
/// ends with exec. So the helper can still write the id maps of its own user namespace, and finding itself through
/// `/proc/self` is always allowed.
///
/// # Errors
/// The kernel refuses, which a filter around this process may make it do.
pub fn hide_process() -> std::io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Whether this is a process of a confined command: the first process of its process namespace is a helper. Without such a
/// namespace it is not known.
pub fn is_confined() -> bool {
    #[expect(
        clippy::disallowed_methods,
        reason = "a file of the kernel, not of the agent"
    )]
    let started = std::fs::read("/proc/1/cmdline").unwrap_or_default();
    let mut words = started.split(|byte| *byte == 0).skip(1);
    // All helpers' names begin with that of the first.
    words
        .next()
        .is_some_and(|word| word.starts_with(OUTER.as_bytes()))
}
