//! Settings files on disk: read as they are found, kept aside, replaced in one step.

use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use jiff::{Timestamp, tz::TimeZone};
use rustix::fs::{Access, access};

use crate::client::Scope;
use crate::error::Error;

/// Some clients keep histories beside their servers; nothing sensible is larger.
const MOST: u64 = 64 << 20;

/// What there is at a path.
#[derive(Debug)]
pub(crate) struct Found {
    /// Behind all links, so that a link stays one.
    path: PathBuf,
    /// `None` when there is no file.
    content: Option<(String, Metadata)>,
}

impl Found {
    pub(crate) fn read(path: &Path) -> Result<Found, Error> {
        let unreadable = |source| Error::Unreadable {
            path: path.to_owned(),
            source,
        };
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Found {
                    path: path.to_owned(),
                    content: None,
                });
            }
            Err(error) => return Err(unreadable(error)),
            Ok(_) => {}
        }
        let path = path.canonicalize().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::Dangling {
                path: path.to_owned(),
                to: path.read_link().unwrap_or_default(),
            },
            _ => unreadable(error),
        })?;
        let metadata = path.metadata().map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(Error::NotAFile { path });
        }
        if metadata.len() > MOST {
            let bytes = metadata.len();
            return Err(Error::TooLarge { path, bytes });
        }
        let text = content(&path).map_err(unreadable)?;
        let text = String::from_utf8(text).map_err(|_| Error::Broken {
            path: path.clone(),
            reason: "it is not UTF-8 text".to_owned(),
        })?;
        Ok(Found {
            path,
            content: Some((text, metadata)),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn text(&self) -> Option<&str> {
        self.content.as_ref().map(|(text, _)| text.as_str())
    }

    /// A file without write permission is meant to stay as it is, although replacing it would need only its folder's.
    pub(crate) fn may_write(&self) -> Result<(), Error> {
        let read_only = |path: &Path| Error::ReadOnly {
            path: path.to_owned(),
        };
        if let Some((_, metadata)) = &self.content {
            // Root may write anything; the missing permission still says what its owner wants.
            let unwanted = metadata.permissions().mode() & 0o222 == 0;
            if unwanted || access(&self.path, Access::WRITE_OK).is_err() {
                return Err(read_only(&self.path));
            }
        }
        let folder = self.path.ancestors().skip(1).find(|path| path.exists());
        match folder {
            Some(folder) if access(folder, Access::WRITE_OK | Access::EXEC_OK).is_err() => {
                Err(read_only(folder))
            }
            _ => Ok(()),
        }
    }

    /// Puts a new text in place of the old, or removes the file; returns where the old one is kept.
    pub(crate) fn replace(
        &self,
        text: Option<&str>,
        scope: Scope,
    ) -> Result<Option<PathBuf>, Error> {
        self.may_write()?;
        let unwritable = |source| Error::Unwritable {
            path: self.path.clone(),
            source,
        };
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder).map_err(unwritable)?;
        let new = match text {
            Some(text) => Some(self.beside(text, scope).map_err(unwritable)?),
            None => None,
        };
        // Clients write these files too. The later this is looked at, the less can slip through.
        if Found::read(&self.path)?.text() != self.text() {
            return Err(Error::Changed {
                path: self.path.clone(),
            });
        }
        let backup = self.back_up().map_err(unwritable)?;
        match new {
            Some(new) => new.rename(&self.path).map_err(unwritable)?,
            None if self.content.is_some() => remove(&self.path).map_err(unwritable)?,
            None => {}
        }
        sync(folder);
        Ok(backup)
    }

    /// The new text in a finished file of its own, beside the old one and with its owner and permissions.
    fn beside(&self, text: &str, scope: Scope) -> io::Result<Unfinished> {
        let mode = match (&self.content, scope) {
            (Some((_, metadata)), _) => metadata.mode() & 0o7777,
            // Settings of a user may hold secrets one day; those of a project are shared.
            (None, Scope::User) => 0o600,
            (None, Scope::Project) => 0o644,
        };
        let (file, path) = create(&self.path, |nth| format!(".llmc-new-{nth}"))?;
        let unfinished = Unfinished(Some(path));
        let mut file = file;
        file.write_all(text.as_bytes())?;
        if let Some((_, metadata)) = &self.content {
            // Fails for other people's files unless we are root; what matters then are the permissions.
            let _ = fchown(&file, Some(metadata.uid()), Some(metadata.gid()));
        }
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        Ok(unfinished)
    }

    fn back_up(&self) -> io::Result<Option<PathBuf>> {
        let Some((text, metadata)) = &self.content else {
            return Ok(None);
        };
        let now = Timestamp::now().to_zoned(TimeZone::UTC);
        let stamp = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let (mut file, path) = create(&self.path, |nth| match nth {
            0 => format!(".bak-{stamp}"),
            _ => format!(".bak-{stamp}-{nth}"),
        })?;
        file.write_all(text.as_bytes())?;
        file.set_permissions(fs::Permissions::from_mode(metadata.mode() & 0o7777))?;
        file.sync_all()?;
        Ok(Some(path))
    }
}

/// A file that is removed again unless it takes its place.
struct Unfinished(Option<PathBuf>);

impl Unfinished {
    fn rename(mut self, to: &Path) -> io::Result<()> {
        let from = self.0.as_ref();
        from.map_or(Ok(()), |from| fs::rename(from, to))?;
        self.0 = None;
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = remove(path);
        }
    }
}

/// Makes a file that was not there, beside another, under its name and this ending.
fn create(beside: &Path, ending: impl Fn(u32) -> String) -> io::Result<(fs::File, PathBuf)> {
    let name = beside.file_name().unwrap_or_default();
    let mut nth = 0;
    loop {
        let mut name = name.to_owned();
        name.push(ending(nth));
        let path = beside.with_file_name(name);
        let mut options = OpenOptions::new();
        match options.write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && nth < 99 => nth += 1,
            Err(error) => return Err(error),
        }
    }
}

fn content(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let file = OpenOptions::new().read(true).open(path)?;
    file.take(MOST).read_to_end(&mut text)?;
    Ok(text)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a client's settings, at the user's word; no agent reaches this"
)]
fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path)
}

/// Makes the rename last through a power cut; where that cannot be had, the rename itself still happened.
fn sync(folder: &Path) {
    if let Ok(folder) = OpenOptions::new().read(true).open(folder) {
        let _ = folder.sync_all();
    }
}
