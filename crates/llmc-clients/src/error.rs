//! Why a settings file was not changed.

use std::io;
use std::path::PathBuf;

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("{path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A folder, a pipe, a device.
    #[error("{path} is not a regular file")]
    NotAFile {
        /// What was found.
        path: PathBuf,
    },
    /// A link to nothing.
    #[error("{path} is a link to {to}, which does not exist")]
    DanglingLink {
        /// The link.
        path: PathBuf,
        /// What it names.
        to: PathBuf,
    },
    /// Far larger than settings are.
    #[error("{path} has {bytes} bytes, too many for a settings file")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// It does not parse.
    #[error("{path} is broken: {reason}")]
    Broken {
        /// The file.
        path: PathBuf,
        /// Where and why.
        reason: String,
    },
    /// It parses, but is not what the client writes.
    #[error("{path} is not as expected: {reason}")]
    Unexpected {
        /// The file.
        path: PathBuf,
        /// What is different.
        reason: String,
    },
    /// The name is taken.
    #[error("{path} has an entry `{name}` that starts something else: {starts}")]
    NameTaken {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
        /// What that entry starts.
        starts: String,
    },
    /// The file or its folder has no write permission.
    #[error("{path} is read-only")]
    ReadOnly {
        /// The file or its folder.
        path: PathBuf,
    },
    /// Another program wrote the file after it was read.
    #[error("{path} was changed by another program meanwhile")]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The edited text lacks something that was there.
    #[error("{path} could not be changed without losing something else in it")]
    WouldLoseContent {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be written.
    #[error("{path}: {source}")]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Error {
    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::Unreadable { .. } => {
                "make it readable, or --print the entry and paste it yourself"
            }
            Error::NotAFile { .. } => "move it out of the way, or name another file with --file",
            Error::DanglingLink { .. } => "make the file it names, or remove the link",
            Error::TooLarge { .. } => "--print the entry and paste it yourself",
            Error::Broken { .. } => {
                "nothing was changed; correct the file, or --print the entry and paste it yourself"
            }
            Error::Unexpected { .. } => {
                "nothing was changed; --print the entry and paste it where it belongs"
            }
            Error::NameTaken { .. } => {
                "nothing was changed; choose another name with --name, or replace that entry with --force"
            }
            Error::ReadOnly { .. } => {
                "nothing was changed; make it writable (chmod u+w), or --print the entry and paste it yourself"
            }
            Error::Changed { .. } => "nothing was changed; run this again",
            Error::WouldLoseContent { .. } => {
                "nothing was changed; --print the entry and paste it yourself"
            }
            Error::Unwritable { .. } => {
                "nothing was changed; check the folder and its free space, then run this again"
            }
        }
    }
}
