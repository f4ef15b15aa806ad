//! A prepared edit of a settings file: it can be shown as a diff, confirmed, and then applied.

use std::path::{Path, PathBuf};

use similar::TextDiff;

use crate::client::{SettingsFormat, SettingsScope};
use crate::edit::{EditError, args_of, edit_text, new_file, started_servers};
use crate::entry::ServerEntry;
use crate::error::Error;
use crate::file::SettingsFile;
use crate::others::OtherFileServer;
use crate::servers::ClientServer;

/// What to do to a file.
#[derive(Debug, Clone)]
pub enum SettingsChange {
    /// Add or update this entry.
    Install(ServerEntry),
    /// Remove the entry of this name.
    Uninstall(ServerEntry),
    /// Remove the entry of another file server.
    Retire(OtherFileServer),
}

/// What happens to an entry of the same name that starts another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameConflict {
    /// The change is refused.
    Refuse,
    /// It is replaced or removed.
    Replace,
}

/// What a change would do to a file.
#[derive(Debug)]
pub struct EditPlan {
    found: SettingsFile,
    after: Option<String>,
    scope: SettingsScope,
}

/// A change that was made.
#[derive(Debug)]
pub struct AppliedEdit {
    /// With links resolved.
    pub file: PathBuf,
    /// A copy of the old file; `None` when there was none.
    pub backup: Option<PathBuf>,
}

impl EditPlan {
    /// Reads a settings file and computes the change. Nothing is written.
    ///
    /// # Errors
    /// The file cannot be read, does not parse, or holds something that the change would damage.
    pub fn new(
        path: &Path,
        format: SettingsFormat,
        scope: SettingsScope,
        change: &SettingsChange,
        conflict: NameConflict,
    ) -> Result<EditPlan, Error> {
        let found = SettingsFile::read(path)?;
        let text = found.text().unwrap_or_default();
        let path = || found.path().to_owned();
        let after = edit_text(format, text, change, conflict).map_err(|trouble| match trouble {
            EditError::Broken(reason) => Error::Broken {
                path: path(),
                reason,
            },
            EditError::Unexpected(reason) => Error::Unexpected {
                path: path(),
                reason,
            },
            EditError::NameTaken(starts) => Error::NameTaken {
                path: path(),
                name: match change {
                    SettingsChange::Install(entry) | SettingsChange::Uninstall(entry) => {
                        entry.name().to_owned()
                    }
                    SettingsChange::Retire(other) => other.entry.clone(),
                },
                starts,
            },
            EditError::WouldLoseContent => Error::WouldLoseContent { path: path() },
        })?;
        // Removing an entry must not create a file.
        let after = match change {
            SettingsChange::Uninstall(_) | SettingsChange::Retire(_) if found.text().is_none() => {
                None
            }
            _ => after,
        };
        Ok(EditPlan {
            found,
            after,
            scope,
        })
    }

    /// Reads any text file and computes what `edit` makes of it. Nothing is written.
    ///
    /// # Errors
    /// The file cannot be read, or `edit` says why it does not fit.
    pub fn of_text(
        path: &Path,
        scope: SettingsScope,
        edit: impl FnOnce(&str) -> Result<String, String>,
    ) -> Result<EditPlan, Error> {
        let found = SettingsFile::read(path)?;
        let after = edit(found.text().unwrap_or_default()).map_err(|reason| Error::Broken {
            path: found.path().to_owned(),
            reason,
        })?;
        Ok(EditPlan {
            found,
            after: Some(after),
            scope,
        })
    }

    /// The arguments with which a settings file starts the server of this entry; `None` where it does not.
    pub fn installed_args(
        path: &Path,
        format: SettingsFormat,
        entry: &ServerEntry,
    ) -> Option<Vec<String>> {
        args_of(format, SettingsFile::read(path).ok()?.text()?, entry)
    }

    /// The servers of a settings file, in its order; none where there is no file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn servers(path: &Path, format: SettingsFormat) -> Result<Vec<ClientServer>, Error> {
        let found = SettingsFile::read(path)?;
        Ok(started_servers(format, found.text().unwrap_or_default()))
    }

    /// The entries of a settings file that start other file servers; none where the file cannot be read.
    pub fn other_file_servers(path: &Path, format: SettingsFormat) -> Vec<OtherFileServer> {
        let found = SettingsFile::read(path).ok();
        let text = found.as_ref().and_then(SettingsFile::text).unwrap_or("");
        let servers = started_servers(format, text).into_iter();
        servers
            .filter_map(|server| server.other_file_server())
            .collect()
    }

    /// A file that holds this entry and nothing else.
    ///
    /// # Errors
    /// None for an [`ServerEntry`], whose name every format takes.
    pub fn standalone(format: SettingsFormat, entry: &ServerEntry) -> Result<String, Error> {
        new_file(format, entry).map_err(|_| Error::WouldLoseContent {
            path: PathBuf::from(entry.name()),
        })
    }

    /// Whether the file already has the wanted content.
    pub fn is_unchanged(&self) -> bool {
        self.found.text() == self.after.as_deref()
    }

    /// With links resolved.
    pub fn file(&self) -> &Path {
        self.found.path()
    }

    /// The change as a unified diff.
    pub fn diff(&self) -> String {
        let before = self.found.text().unwrap_or_default();
        let after = self.after.as_deref().unwrap_or_default();
        let shown = self.found.path().display().to_string();
        let name = |there: bool| if there { shown.as_str() } else { "/dev/null" };
        let old = name(self.found.text().is_some());
        let new = name(self.after.is_some());
        TextDiff::from_lines(before, after)
            .unified_diff()
            .header(old, new)
            .to_string()
    }

    /// Checks permissions before the user is asked.
    ///
    /// # Errors
    /// It or its folder is read-only.
    pub fn check_writable(&self) -> Result<(), Error> {
        self.found.check_writable()
    }

    /// Backs the file up and replaces it.
    ///
    /// # Errors
    /// The file is read-only or has changed since, or the disk does not take it. The file is then as it was.
    pub fn apply(&self) -> Result<AppliedEdit, Error> {
        let backup = self.found.replace(self.after.as_deref(), self.scope)?;
        Ok(AppliedEdit {
            file: self.found.path().to_owned(),
            backup,
        })
    }
}
