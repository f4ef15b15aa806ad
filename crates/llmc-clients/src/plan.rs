//! An edit that has been thought through and not yet made: it can be shown, asked about, and then applied.

use std::path::{Path, PathBuf};

use similar::TextDiff;

use crate::client::{Format, Scope};
use crate::edit::{Trouble, edited, fresh};
use crate::entry::Entry;
use crate::error::Error;
use crate::file::Found;

/// What to do to a file.
#[derive(Debug, Clone)]
pub enum Change {
    /// The entry shall be there and say this.
    Install(Entry),
    /// No entry of this name shall be there.
    Uninstall(Entry),
}

/// What becomes of an entry of the same name that starts something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// It stays, and the change is refused.
    Keep,
    /// It is replaced or removed.
    Replace,
}

/// What a change would do to a file.
#[derive(Debug)]
pub struct Plan {
    found: Found,
    after: Option<String>,
    scope: Scope,
}

/// What was done.
#[derive(Debug)]
pub struct Applied {
    /// The file, behind all links.
    pub file: PathBuf,
    /// Where the text before the change is kept; `None` when there was no file.
    pub backup: Option<PathBuf>,
}

impl Plan {
    /// Reads a settings file and thinks the change through. Nothing is written.
    ///
    /// # Errors
    /// The file cannot be read, does not parse, or holds something that the change would damage.
    pub fn new(
        path: &Path,
        format: Format,
        scope: Scope,
        change: &Change,
        others: Others,
    ) -> Result<Plan, Error> {
        let found = Found::read(path)?;
        let text = found.text().unwrap_or_default();
        let path = || found.path().to_owned();
        let after = edited(format, text, change, others).map_err(|trouble| match trouble {
            Trouble::Broken(reason) => Error::Broken {
                path: path(),
                reason,
            },
            Trouble::Unexpected(reason) => Error::Unexpected {
                path: path(),
                reason,
            },
            Trouble::Foreign(starts) => Error::Foreign {
                path: path(),
                name: match change {
                    Change::Install(entry) | Change::Uninstall(entry) => entry.name().to_owned(),
                },
                starts,
            },
            Trouble::WouldLose => Error::WouldLose { path: path() },
        })?;
        // Taking something away makes no file.
        let after = match change {
            Change::Uninstall(_) if found.text().is_none() => None,
            _ => after,
        };
        Ok(Plan {
            found,
            after,
            scope,
        })
    }

    /// A file that holds this entry and nothing else.
    ///
    /// # Errors
    /// None for an [`Entry`], whose name every format takes.
    pub fn alone(format: Format, entry: &Entry) -> Result<String, Error> {
        fresh(format, entry).map_err(|_| Error::WouldLose {
            path: PathBuf::from(entry.name()),
        })
    }

    /// Whether the file already is as it should be.
    pub fn is_nothing(&self) -> bool {
        self.found.text() == self.after.as_deref()
    }

    /// The file, behind all links.
    pub fn file(&self) -> &Path {
        self.found.path()
    }

    /// The change as a unified diff.
    pub fn diff(&self) -> String {
        let before = self.found.text().unwrap_or_default();
        let after = self.after.as_deref().unwrap_or_default();
        let shown = self.found.path().display().to_string();
        let name = |there: bool| match there {
            true => shown.as_str(),
            false => "/dev/null",
        };
        let old = name(self.found.text().is_some());
        let new = name(self.after.is_some());
        TextDiff::from_lines(before, after)
            .unified_diff()
            .header(old, new)
            .to_string()
    }

    /// Whether the file may be written, before anybody is asked.
    ///
    /// # Errors
    /// It or its folder is read-only.
    pub fn may_write(&self) -> Result<(), Error> {
        self.found.may_write()
    }

    /// Keeps what is there under another name and puts the new text in its place.
    ///
    /// # Errors
    /// The file is read-only or has changed since, or the disk does not take it. The file is then as it was.
    pub fn apply(&self) -> Result<Applied, Error> {
        let backup = self.found.replace(self.after.as_deref(), self.scope)?;
        Ok(Applied {
            file: self.found.path().to_owned(),
            backup,
        })
    }
}
