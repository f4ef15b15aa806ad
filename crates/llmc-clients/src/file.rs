//! Settings files on disk: read, backed up, replaced by a rename.

use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use jiff::{Timestamp, tz::TimeZone};
use rustix::fs::{Access, access};

use crate::client::SettingsScope;
use crate::error::Error;

/// Some clients keep their history in the same file; a larger file is not a settings file.
const MAX_SETTINGS_BYTES: u64 = 64 << 20;

/// A settings file that may or may not exist.
#[derive(Debug)]
pub(crate) struct SettingsFile {
    /// With links resolved, so that a link stays a link.
    path: PathBuf,
    /// `None` when there is no file.
    content: Option<(String, Metadata)>,
}

impl SettingsFile {
    pub(crate) fn read(path: &Path) -> Result<SettingsFile, Error> {
        let unreadable = |source| Error::Unreadable {
            path: path.to_owned(),
            source,
        };
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(SettingsFile {
                    path: path.to_owned(),
                    content: None,
                });
            }
            Err(error) => return Err(unreadable(error)),
            Ok(_) => {}
        }
        let path = path.canonicalize().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::DanglingLink {
                path: path.to_owned(),
                to: path.read_link().unwrap_or_default(),
            },
            _ => unreadable(error),
        })?;
        let metadata = path.metadata().map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(Error::NotAFile { path });
        }
        if metadata.len() > MAX_SETTINGS_BYTES {
            let bytes = metadata.len();
            return Err(Error::TooLarge { path, bytes });
        }
        let text = content(&path).map_err(unreadable)?;
        let text = String::from_utf8(text).map_err(|_| Error::Broken {
            path: path.clone(),
            reason: "it is not UTF-8 text".to_owned(),
        })?;
        Ok(SettingsFile {
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

    /// Checks the file's own permission, too: a rename needs only the folder's, but a read-only file should stay unchanged.
    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        let read_only = |path: &Path| Error::ReadOnly {
            path: path.to_owned(),
        };
        if let Some((_, metadata)) = &self.content {
            // Root may write anything; the missing permission still states the owner's intent.
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
        scope: SettingsScope,
    ) -> Result<Option<PathBuf>, Error> {
        self.check_writable()?;
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
        // Clients write these files, too; checked as late as possible.
        if SettingsFile::read(&self.path)?.text() != self.text() {
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
    fn beside(&self, text: &str, scope: SettingsScope) -> io::Result<TempFile> {
        let mode = match (&self.content, scope) {
            (Some((_, metadata)), _) => metadata.mode() & 0o7777,
            // Settings of a user may hold secrets one day; those of a project are shared.
            (None, SettingsScope::User) => 0o600,
            (None, SettingsScope::Project) => 0o644,
        };
        let (file, path) = create(&self.path, |nth| format!(".llmc-new-{nth}"))?;
        let unfinished = TempFile(Some(path));
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

/// A temporary file, removed on drop unless it was renamed.
struct TempFile(Option<PathBuf>);

impl TempFile {
    fn rename(mut self, to: &Path) -> io::Result<()> {
        let from = self.0.as_ref();
        from.map_or(Ok(()), |from| fs::rename(from, to))?;
        self.0 = None;
        Ok(())
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = remove(path);
        }
    }
}

/// Creates a new file beside another, under its name with a suffix.
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
    file.take(MAX_SETTINGS_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a client's settings, changed on the user's request; no tool reaches this"
)]
fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path)
}

/// Makes the rename durable; a file system that cannot sync a folder still has the rename.
fn sync(folder: &Path) {
    if let Ok(folder) = OpenOptions::new().read(true).open(folder) {
        let _ = folder.sync_all();
    }
}
