//! What can go wrong with the agent's files, in the agent's words.
//!
//! Each variant says what and where. Paths in messages are the ones the agent gave, so nothing about the world outside
//! the roots leaks through an error. Codes, HTTP statuses and exit codes are given one crate up, in one table.

use std::io;

use rustix::io::Errno;

/// Shorthand used all over the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A file operation that was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path lies outside every root, or a link on the way leads there.
    #[error("{path}: outside the allowed roots")]
    OutsideRoots {
        /// As asked.
        path: String,
    },
    /// No roots are configured, so nothing may be touched.
    #[error("{path}: no roots are allowed")]
    NoRoots {
        /// As asked.
        path: String,
    },
    /// The path cannot name anything (empty, NUL, too long, a link loop).
    #[error("{path}: {why}")]
    BadPath {
        /// As asked.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A device, FIFO, socket, or something on a kernel file system.
    #[error("{path}: is a {what}; only regular files and directories are opened")]
    SpecialFile {
        /// As asked.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// A name that tools never write (or, for the state directory, never read).
    #[error("{path}: {what} is protected")]
    Protected {
        /// As asked.
        path: String,
        /// The protected thing.
        what: String,
    },
    /// The operator's denylist names it.
    #[error("{path}: the name is on the denylist (mcp.tools.denylist_globs)")]
    Denylisted {
        /// As asked.
        path: String,
    },
    /// Nothing there.
    #[error("{path}: no such file or directory")]
    NotFound {
        /// As asked.
        path: String,
    },
    /// The directory that should hold the new file is missing.
    #[error("{path}: the parent directory does not exist")]
    NoParent {
        /// As asked.
        path: String,
    },
    /// The operating system says no.
    #[error("{path}: permission denied by the operating system")]
    Permission {
        /// As asked.
        path: String,
    },
    /// A directory was needed.
    #[error("{path}: not a directory")]
    NotADirectory {
        /// As asked.
        path: String,
    },
    /// A file was needed.
    #[error("{path}: is a directory")]
    IsDirectory {
        /// As asked.
        path: String,
    },
    /// Something is there already.
    #[error("{path}: already exists")]
    AlreadyExists {
        /// As asked.
        path: String,
    },
    /// The content is not what the caller last saw.
    #[error("{path}: content has changed: expected sha256 {expected}, found {found}")]
    ShaMismatch {
        /// As asked.
        path: String,
        /// What the caller expected.
        expected: String,
        /// The tag of what is there.
        found: String,
    },
    /// The text to replace is not there as often as expected.
    #[error("{path}: {summary}")]
    NoMatch {
        /// As asked.
        path: String,
        /// How many matches there were against how many were expected.
        summary: String,
        /// How many there were.
        found: usize,
        /// Numbered lines that help to correct the call.
        nearest: String,
    },
    /// Another agent holds the file.
    #[error("{path}: locked by {holder}; waited {waited_ms} ms")]
    Busy {
        /// As asked.
        path: String,
        /// Who holds the lease.
        holder: String,
        /// How long this call waited.
        waited_ms: u128,
    },
    /// More than one answer may hold.
    #[error("{path}: {why}")]
    TooLarge {
        /// As asked.
        path: String,
        /// What is too large and what the limit is.
        why: String,
    },
    /// The file's bytes are not something this operation works on.
    #[error("{path}: {why}")]
    NotText {
        /// As asked.
        path: String,
        /// What it is instead.
        why: &'static str,
    },
    /// Arguments that contradict each other or the file system.
    #[error("{0}")]
    BadRequest(String),
    /// A search pattern or glob does not parse.
    #[error("invalid pattern: {0}")]
    BadPattern(String),
    /// A write did not reach the disk; the old content stands.
    #[error("{path}: write failed: {source}")]
    WriteFailed {
        /// As asked.
        path: String,
        /// The operating system's reason.
        source: io::Error,
    },
    /// Any other input or output failure.
    #[error("{path}: {source}")]
    Io {
        /// As asked.
        path: String,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The time limit struck.
    #[error("time limit reached")]
    TimedOut,
    /// The caller went away.
    #[error("cancelled")]
    Cancelled,
    /// A command that policy does not allow.
    #[error("{command}: {why}")]
    CommandDenied {
        /// As asked, clipped.
        command: String,
        /// Why not.
        why: String,
        /// What to do instead.
        hint: String,
    },
    /// Rules on commands that cannot be used: the server does not start with them.
    #[error("{what}")]
    BadPolicy {
        /// Where and what.
        what: String,
        /// What the operator can do.
        hint: String,
    },
    /// Confinement that was demanded and that this kernel does not give.
    #[error("commands cannot be confined as demanded: {missing}")]
    IsolationRequired {
        /// What is missing.
        missing: String,
        /// What the operator can do.
        hint: String,
    },
    /// The kernel lacks what containment needs.
    #[error("{0}")]
    Unsupported(String),
}

impl Error {
    /// Reads an errno of a read-side operation on the asked path.
    pub(crate) fn of(path: &str, errno: Errno) -> Error {
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

    /// Reads an errno of a write-side operation: what is no plain refusal is a failed write.
    pub(crate) fn of_write(path: &str, errno: Errno) -> Error {
        match Error::of(path, errno) {
            Error::Io { path, source } => Error::WriteFailed { path, source },
            other => other,
        }
    }
}
