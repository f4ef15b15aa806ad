//! Resource limits of a run.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::plan::Plan;

/// Sets them for this process and all that come from it.
pub(super) fn set(plan: &Plan) -> Result<(), Errno> {
    let limits = &plan.limits;
    lower(Resource::Core, 0)?;
    lower(Resource::Cpu, plan.cpu_seconds)?;
    lower(Resource::Fsize, limits.file_bytes)?;
    lower(Resource::Nofile, limits.open_files)?;
    if let Some(bytes) = limits.memory_bytes {
        lower(Resource::Data, bytes)?;
    }
    // Outside a namespace of its own this would count every process the user has anywhere.
    if plan.features.user {
        lower(Resource::Nproc, limits.processes)?;
    }
    Ok(())
}

/// Lowers a limit, hard and soft; one that is lower already stays.
pub(super) fn lower(resource: Resource, to: u64) -> Result<(), Errno> {
    let now = getrlimit(resource);
    let to = now.maximum.map_or(to, |maximum| maximum.min(to));
    setrlimit(
        resource,
        Rlimit {
            current: Some(to),
            maximum: Some(to),
        },
    )
}
