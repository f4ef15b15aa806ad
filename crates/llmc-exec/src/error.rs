//! Errors of commands.
//!
//! `llmc-tools` maps the variants to codes, HTTP statuses and exit codes.

use std::io;
use std::path::PathBuf;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A command that was refused or could not be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A command that policy does not allow.
    #[error("{command}: {why}")]
    CommandDenied {
        command: String,
        why: String,
        hint: String,
    },
    /// The program is allowed and the kernel cannot execute it.
    #[error("{program}: the system cannot start it: {source}")]
    NotExecutable { program: String, source: io::Error },
    /// Arguments that no kernel takes or that contradict each other.
    #[error("{0}")]
    BadRequest(String),
    #[error("the working directory: no such file or directory")]
    NoWorkingDirectory,
    /// Command rules that cannot be used; the server does not start with them.
    #[error("{what}")]
    BadPolicy {
        what: String,
        /// What the operator can do.
        hint: String,
    },
    /// The operator's policy file cannot be read; the server does not start without it.
    #[error("{}: {source}", .path.display())]
    UnreadablePolicy { path: PathBuf, source: io::Error },
    /// Confinement that the settings require and that this kernel does not give.
    #[error("commands cannot be confined as the configuration requires: {missing}")]
    IsolationRequired {
        missing: String,
        /// What the operator can do.
        hint: String,
    },
    /// A run that changes nothing is not possible here.
    #[error("commands cannot be run on a copy-on-write view: {why}")]
    NoView {
        why: String,
        /// What the operator can do.
        hint: &'static str,
    },
    /// As many runs on views as may be are under way.
    #[error("{0} commands already run on copy-on-write views")]
    TooManyViews(usize),
    /// The helper, or a step of preparing a run, failed.
    #[error("{step}: {source}")]
    Failed { step: String, source: io::Error },
    /// A root or a path was refused.
    #[error(transparent)]
    Host(#[from] llmc_host::Error),
}
