//! Errors of history.

use llmc_envelope::store::{StoreUnavailable, TransactionError};

use crate::entry::EntryId;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A request to history that was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such entry, or it belongs to another principal.
    #[error("no entry {0} in the history")]
    UnknownEntry(EntryId),
    /// Every change of the entry has been taken back.
    #[error("{entry} was undone by {by}; undo {by} to have its changes again")]
    AlreadyUndone { entry: EntryId, by: EntryId },
    /// Arguments that cannot be meant.
    #[error("{0}")]
    BadRequest(String),
    /// The store cannot be used now.
    #[error("the history cannot be used: {0}")]
    Unavailable(String),
    /// The stored content is not what its id says.
    #[error("the content {0} is damaged in the history")]
    DamagedContent(String),
    #[error("the workspace has more than {0} files; only changes of file tools are recorded")]
    TooManyFiles(usize),
    #[error(transparent)]
    Host(#[from] llmc_host::Error),
}

impl From<StoreUnavailable> for Error {
    fn from(error: StoreUnavailable) -> Error {
        Error::Unavailable(error.0)
    }
}

impl From<TransactionError<rusqlite::Error>> for Error {
    fn from(error: TransactionError<rusqlite::Error>) -> Error {
        match error {
            TransactionError::Unavailable(error) => error.into(),
            TransactionError::Work(error) => llmc_envelope::store::describe(&error).into(),
        }
    }
}
