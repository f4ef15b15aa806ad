//! Errors of the index. Their messages are shown to users and name no path outside the workspace.

use std::io;

use rusqlite::{ErrorCode, ffi};
use tantivy::directory::error::OpenWriteError;

pub type Result<T, E = Error> = std::result::Result<T, E>;

const DISK_FULL: &str = "the disk is full";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("another process is updating the index")]
    Busy,
    /// There is no index, or none of this version.
    #[error("there is no index yet")]
    Missing,
    #[error("the index is damaged ({0}); it will be built again")]
    Damaged(String),
    #[error("the index cannot be written: {0}")]
    Unwritable(String),
    #[error("the index cannot be written: {0}")]
    Full(&'static str),
    #[error("no vectors: {0}")]
    Embedding(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// There is no definition of that name.
    #[error("no symbol {name:?} in the index")]
    NoSymbol {
        name: String,
        /// Similar names.
        nearest: Vec<String>,
    },
    #[error("{0}")]
    BadRequest(String),
    /// The files cannot be read; cancelled or timed out.
    #[error(transparent)]
    Host(#[from] llmc_host::Error),
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            Some(ErrorCode::DiskFull) => Self::Full(DISK_FULL),
            Some(ErrorCode::ReadOnly) => Self::Unwritable("the place is read-only".into()),
            Some(ErrorCode::PermissionDenied) => Self::Unwritable("no permission".into()),
            Some(ErrorCode::CannotOpen) => Self::Missing,
            // SQLite's shared file could not grow by a page.
            Some(ErrorCode::SystemIoFailure)
                if error.sqlite_error().map(|error| error.extended_code)
                    == Some(ffi::SQLITE_IOERR_SHMSIZE) =>
            {
                Self::Full(DISK_FULL)
            }
            Some(ErrorCode::SystemIoFailure) => {
                Self::Unwritable("reading or writing the disk failed".into())
            }
            // SQLite's messages name statements and tables, not paths.
            _ => Self::Damaged(error.to_string()),
        }
    }
}

impl From<tantivy::TantivyError> for Error {
    fn from(error: tantivy::TantivyError) -> Self {
        use tantivy::TantivyError as T;
        match error {
            T::LockFailure(..) => Self::Busy,
            T::IoError(error) => error.kind().into(),
            T::OpenWriteError(OpenWriteError::IoError { io_error, .. }) => io_error.kind().into(),
            T::OpenWriteError(_) => Self::Unwritable("a file cannot be created".into()),
            T::OpenDirectoryError(_) | T::OpenReadError(_) => {
                Self::Damaged("a part of it is missing".into())
            }
            T::DataCorruption(_) => Self::Damaged("its text part is corrupt".into()),
            T::IncompatibleIndex(_) => Self::Damaged("another version wrote it".into()),
            _ => Self::Damaged("its text part cannot be used".into()),
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        // Only the kind: the full message may hold a path.
        error.kind().into()
    }
}

impl From<io::ErrorKind> for Error {
    fn from(kind: io::ErrorKind) -> Self {
        match kind {
            io::ErrorKind::NotFound => Self::Missing,
            io::ErrorKind::StorageFull => Self::Full(DISK_FULL),
            io::ErrorKind::QuotaExceeded => Self::Full("the disk quota is used up"),
            io::ErrorKind::ReadOnlyFilesystem => Self::Unwritable("the place is read-only".into()),
            kind => Self::Unwritable(kind.to_string()),
        }
    }
}
