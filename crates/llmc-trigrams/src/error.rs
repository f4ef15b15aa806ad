//! Errors of the trigram index.

use std::io;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A checksum or a length is wrong, or another version wrote it.
    #[error("the trigram index is damaged: {0}")]
    Damaged(&'static str),
    #[error("the trigram index cannot be read or written: {0}")]
    Io(#[from] io::Error),
}

impl From<rustix::io::Errno> for Error {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Io(errno.into())
    }
}
