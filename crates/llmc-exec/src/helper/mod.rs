//! The helper's side: a process of its own that becomes the boundary and then starts the command inside it.
//!
//! Where there are pid namespaces, the outer helper enters a user namespace and starts the broker, which makes one for each
//! session, and for each run that belongs to none. Pid 1 of a run restricts itself, starts the command and reaps. Pid 1 of a
//! [session] starts a leader, which restricts itself and starts the session's runs, and for each run a mounter, whose mounts
//! the run enters. When pid 1 goes, the kernel ends everything in its namespace. Without pid namespaces one process does it all
//! and, as a subreaper, ends its descendants itself, as the first process of a session's run does.
//!
//! Order matters: mounts need the capabilities that are dropped next; Landlock comes before the system call filter that
//! forbids it; the filter comes last because everything before would trip over it.

mod attempt;
mod broker;
mod caps;
mod compute_only;
mod init;
mod landlock;
mod layered;
mod leader;
mod limits;
mod loopback;
mod mounter;
mod mounts;
mod namespaces;
mod outer;
mod reaper;
mod seccomp;
mod session;
mod session_mounts;
mod single_process;
mod stage;
mod usage;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use super::plan::{
    ATTEMPT, BROKER, INNER, LEADER, MEMBER, MOUNTER, OUTER, SESSION, SINGLE_PROCESS,
};

pub use compute_only::{close_inherited, restrict_to_compute};
pub(super) use single_process::SingleProcess;

/// Places without those to be left out of them: the entries around what is left out, links aside. What is made there later is not
/// among them.
pub fn places_around(places: &[PathBuf], left_out: &[PathBuf]) -> Vec<PathBuf> {
    landlock::places_around(places, left_out)
}

/// Whether this kernel can confine a single process without namespaces: by rules on files and a filter of system calls.
pub fn confines_without_namespaces() -> bool {
    let has_filter = Path::new("/proc/sys/kernel/seccomp/actions_avail").exists();
    has_filter && landlock::has_rules()
}

/// Becomes the helper if that is what this process was started as, else `None`.
///
/// `main` calls this before it starts a thread or a runtime: namespaces and restrictions are per thread.
pub fn helper_main(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    let done = match args.next()?.to_str()? {
        OUTER => outer::run(),
        BROKER => broker::run(),
        INNER => init::run(),
        SESSION => session::run(),
        LEADER => leader::run(),
        MOUNTER => mounter::run(),
        MEMBER => init::run_in_session(),
        SINGLE_PROCESS => single_process::run(args),
        ATTEMPT => {
            let words = args.map(|word| word.to_string_lossy().into_owned());
            attempt::run(&words.collect::<Vec<_>>())
        }
        _ => return None,
    };
    // Failures are reported to the server over the socket; without it they cannot be reported.
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

/// Keeps commands from reaching into this process, whose memory and descriptors share an owner with theirs.
fn hide() -> std::io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
