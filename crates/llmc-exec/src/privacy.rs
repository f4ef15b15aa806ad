//! Keeping the server's memory and environment, which hold its token, from its user's other processes.

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
