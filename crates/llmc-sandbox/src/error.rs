//! What can go wrong with a sandbox itself. What goes wrong in a script is an [`Outcome`](crate::Outcome).

use std::io;

/// Why there is no interpreter to run a script in.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The worker process cannot be started.
    #[error("no worker can be started: {0}")]
    Start(#[source] io::Error),
    /// The worker came up and refused to work.
    #[error("the worker refuses: {0}")]
    Refused(String),
    /// The worker went away.
    #[error("the worker ended before it could answer")]
    Gone,
    /// A dump that this build cannot read.
    #[error("the stored session cannot be restored: {0}")]
    BadState(String),
    /// A session too large to be kept.
    #[error("{0}")]
    NotDumped(String),
}
