//! Failures of the sandbox itself. The failure of a script is an [`ScriptOutcome`](crate::Outcome).

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no worker can be started: {0}")]
    Start(#[source] io::Error),
    /// The worker started and cannot confine itself.
    #[error("the worker refuses: {0}")]
    Refused(String),
    #[error("the worker ended before it could answer")]
    Gone,
    /// A dump that this build cannot read.
    #[error("the stored session cannot be restored: {0}")]
    BadState(String),
    /// A session too large to be kept.
    #[error("{0}")]
    NotDumped(String),
}
