//! Errors of file operations.
//!
//! Paths in messages are as the caller wrote them, so an error reveals nothing about files outside the roots. `llmc-tools`
//! maps the variants to codes, HTTP statuses and exit codes.

use std::io;

use rustix::io::Errno;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A file operation that was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path lies outside every root, or a link on the way leads there.
    #[error("{path}: outside the allowed roots")]
    OutsideRoots { path: String },
    /// No roots are configured, so nothing may be touched.
    #[error("{path}: no roots are allowed")]
    NoRoots { path: String },
    /// The path cannot name anything (empty, NUL, too long, a link loop).
    #[error("{path}: {why}")]
    BadPath { path: String, why: &'static str },
    /// A device, FIFO, socket, or something on a kernel file system.
    #[error("{path}: is a {what}; only regular files and directories are opened")]
    SpecialFile { path: String, what: &'static str },
    /// A name that tools never write (or, for the state directory, never read).
    #[error("{path}: {what} is protected")]
    Protected { path: String, what: String },
    /// git would read a repository elsewhere.
    #[error("{path}: git would be led outside the allowed roots by {what}")]
    ForeignRepository { path: String, what: String },
    /// The operator's denylist names it.
    #[error("{path}: the name is on the denylist (mcp.tools.denylist_globs)")]
    Denylisted { path: String },
    #[error("{path}: no such file or directory")]
    NotFound { path: String },
    /// The directory that should hold the new file is missing.
    #[error("{path}: the parent directory does not exist")]
    NoParent { path: String },
    #[error("{path}: permission denied by the operating system")]
    Permission { path: String },
    #[error("{path}: not a directory")]
    NotADirectory { path: String },
    #[error("{path}: is a directory")]
    IsDirectory { path: String },
    #[error("{path}: already exists")]
    AlreadyExists { path: String },
    /// The content is not what the caller last saw.
    #[error("{path}: content has changed: expected sha256 {expected}, found {found}")]
    ShaMismatch {
        path: String,
        expected: String,
        /// The tag of what is there.
        found: String,
    },
    /// The text to replace is not there as often as expected.
    #[error("{path}: {summary}")]
    NoMatch {
        path: String,
        /// How many matches there were against how many were expected.
        summary: String,
        found: usize,
        /// Numbered lines that help to correct the call.
        nearest: String,
    },
    /// Another call holds the lease on the file.
    #[error("{path}: locked by {holder}; waited {waited_ms} ms")]
    Busy {
        path: String,
        holder: String,
        waited_ms: u128,
    },
    /// The database that keeps leases of all servers cannot be used, so that nothing may be changed.
    #[error("{path}: not changed: the store of leases is unavailable: {why}")]
    NoSharedLease { path: String, why: String },
    /// More than one answer may hold.
    #[error("{path}: {why}")]
    TooLarge {
        path: String,
        /// What is too large and what the limit is.
        why: String,
    },
    /// The file's bytes are not something this operation works on.
    #[error("{path}: {why}")]
    NotText { path: String, why: &'static str },
    /// Arguments that contradict each other or the file system.
    #[error("{0}")]
    BadRequest(String),
    /// A search pattern does not parse.
    #[error("invalid pattern: {0}")]
    BadPattern(String),
    /// A glob does not parse.
    #[error("invalid pattern: glob `{glob}`: {why}")]
    BadGlob { glob: String, why: String },
    /// A patch does not parse.
    #[error("the patch cannot be read: {0}")]
    BadPatch(String),
    /// A write did not reach the disk; the old content stands.
    #[error("{path}: write failed: {source}")]
    WriteFailed { path: String, source: io::Error },
    /// A recursive deletion that stopped half way.
    #[error(
        "{path}: stopped after {deleted} entries were deleted; {remaining} entries of it remain: {cause}"
    )]
    PartlyDeleted {
        path: String,
        /// Files and directories that are gone.
        deleted: u64,
        /// The first of them.
        deleted_names: Vec<String>,
        /// Entries of the directory itself that are still there.
        remaining: u64,
        /// The first of them.
        remaining_names: Vec<String>,
        /// Why it stopped.
        #[source]
        cause: Box<Error>,
    },
    /// Any other input or output failure.
    #[error("{path}: {source}")]
    Io { path: String, source: io::Error },
    #[error("time limit reached")]
    TimedOut,
    /// The caller cancelled the call or disconnected.
    #[error("cancelled")]
    Cancelled,
    /// The kernel lacks a system call that path containment needs.
    #[error("{0}")]
    Unsupported(String),
}

impl Error {
    /// Maps an errno of a read-side operation on the requested path.
    pub(crate) fn from_errno(path: &str, errno: Errno) -> Error {
        let path = path.to_owned();
        match errno {
            Errno::NOENT => Error::NotFound { path },
            Errno::NOTDIR => Error::NotADirectory { path },
            Errno::ISDIR => Error::IsDirectory { path },
            Errno::EXIST | Errno::NOTEMPTY => Error::AlreadyExists { path },
            Errno::ACCESS | Errno::PERM => Error::Permission { path },
            Errno::XDEV => Error::OutsideRoots { path },
            Errno::LOOP => Error::BadPath {
                path,
                why: "too many levels of symbolic links",
            },
            Errno::NAMETOOLONG => Error::BadPath {
                path,
                why: "path or file name is too long",
            },
            Errno::NXIO | Errno::NODEV => Error::SpecialFile {
                path,
                what: "special file",
            },
            errno => Error::Io {
                path,
                source: errno.into(),
            },
        }
    }

    /// Maps an errno of a write-side operation: errors that are not plain refusals become [`Error::WriteFailed`].
    pub(crate) fn from_write_errno(path: &str, errno: Errno) -> Error {
        match Error::from_errno(path, errno) {
            Error::Io { path, source } => Error::WriteFailed { path, source },
            other => other,
        }
    }
}
