//! The step between a helper and a program that may start no other.
//!
//! The helper has to start the program, so the filter that forbids starting anything cannot be its own: this executable,
//! started inside the boundary, puts it on and becomes the program. It knows the number of its process, which the program
//! keeps, so that the filter can tell the program's own threads from other processes.

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use nix::fcntl::AtFlags;
use nix::unistd::execveat;
use rustix::fs::{Mode, OFlags};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getpid, getrlimit};
use serde::{Deserialize, Serialize};

use super::limits::lower;
use super::seccomp::{self, Metadata};
use super::{caps, close_inherited, landlock};

/// What the server decides about such a program. It travels on the command line of this step and holds no secret.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SingleProcess {
    pub(crate) program: PathBuf,
    /// All that it may read beside its own entry in `/proc`, where `/proc` and the files are the host's.
    pub(crate) host_files: Option<Vec<PathBuf>>,
}

/// Becomes the program: what is decided about it, the name it is called by, its arguments. Comes back only with an error.
pub(super) fn run(mut words: impl Iterator<Item = OsString>) -> io::Result<()> {
    let decided = words.next().ok_or(io::ErrorKind::InvalidInput)?;
    let SingleProcess {
        program,
        host_files,
    } = serde_json::from_slice(&decided.into_vec())?;
    close_inherited()?;
    let argv: Vec<CString> = words
        .map(|word| CString::new(word.into_vec()))
        .collect::<Result<_, _>>()?;
    let env: Vec<CString> = std::env::vars_os()
        .map(|(name, value)| {
            let parts = [name.into_vec(), b"=".to_vec(), value.into_vec()];
            CString::new(parts.concat())
        })
        .collect::<Result<_, _>>()?;
    let program = rustix::fs::open(program, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    // The last number that a descriptor can have, and after the next line none can: once the program runs, nothing is left
    // that the filter lets start.
    let most = getrlimit(Resource::Nofile).current.unwrap_or(1 << 10);
    let last = i32::try_from(most.saturating_sub(1)).unwrap_or(i32::MAX);
    let program = fcntl_dupfd_cloexec(&program, last)?;
    lower(Resource::Nofile, u64::try_from(last).unwrap_or(0))?;
    let metadata = match host_files {
        Some(files) => {
            caps::drop_all()?;
            landlock::restrict_reading(files)?;
            Metadata::Refused
        }
        None => Metadata::Allowed,
    };
    seccomp::keep_alone(getpid(), program.as_raw_fd(), metadata)?;
    match execveat(&program, c"", &argv, &env, AtFlags::AT_EMPTY_PATH) {
        Err(errno) => Err(errno.into()),
    }
}
