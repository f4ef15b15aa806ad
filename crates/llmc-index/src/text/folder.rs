//! Where tantivy keeps its files: a mapped folder that does not wait for the disk.
//!
//! What the index holds can be built again from the files, so waiting for the disk at every small update buys nothing: a
//! killed process loses nothing that way, and after a power cut a torn index is seen and built anew.
//!
//! Who searches does not map the long lists of who has which word but reads those a question needs: mapped, whatever was
//! ever asked for would count as memory of a server that runs for weeks. Merging reads everything once and maps it.
#![allow(
    clippy::disallowed_methods,
    reason = "these are the index's own files, not the agent's"
)]

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tantivy::HasLen;
use tantivy::directory::error::{DeleteError, LockError, OpenReadError, OpenWriteError};
use tantivy::directory::{
    AntiCallToken, Directory, DirectoryLock, FileHandle, Lock, MmapDirectory, OwnedBytes,
    TerminatingWrite, WatchCallback, WatchHandle, WritePtr,
};

use crate::error::Error;

/// What the folder is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    Searching,
    Writing,
}

#[derive(Debug, Clone)]
pub(super) struct Folder {
    mapped: MmapDirectory,
    path: PathBuf,
    what: For,
    refusal: Refusal,
}

/// Why the disk last refused to take something. Tantivy writes on threads of its own, and when one of them fails it tells
/// that it did but not why.
#[derive(Debug, Clone, Default)]
pub(super) struct Refusal(Arc<Mutex<Option<io::ErrorKind>>>);

impl Refusal {
    /// What is behind a failure: what the disk said, if it said something.
    pub(super) fn behind(&self, error: tantivy::TantivyError) -> Error {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(kind) => kind.into(),
            None => error.into(),
        }
    }

    pub(super) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn noted<T>(&self, done: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &done
            && error.kind() != io::ErrorKind::Interrupted
        {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.kind());
        }
        done
    }
}

impl Folder {
    pub(super) fn open(path: &Path, what: For) -> Option<Self> {
        Some(Self {
            mapped: MmapDirectory::open(path).ok()?,
            path: path.to_owned(),
            what,
            refusal: Refusal::default(),
        })
    }

    pub(super) fn refusal(&self) -> Refusal {
        self.refusal.clone()
    }
}

/// A file that is read piece by piece.
#[derive(Debug)]
struct Lists {
    file: File,
    len: usize,
}

impl HasLen for Lists {
    fn len(&self) -> usize {
        self.len
    }
}

impl FileHandle for Lists {
    fn read_bytes(&self, range: Range<usize>) -> io::Result<OwnedBytes> {
        if range.start > range.end || range.end > self.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = vec![0; range.len()];
        self.file.read_exact_at(&mut bytes, range.start as u64)?;
        Ok(OwnedBytes::new(bytes))
    }
}

struct Unsynced(File, Refusal);

impl Write for Unsynced {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.noted(self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl TerminatingWrite for Unsynced {
    fn terminate_ref(&mut self, _: AntiCallToken) -> io::Result<()> {
        self.0.flush()
    }
}

impl Directory for Folder {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        let lists = path.extension().is_some_and(|end| end == "idx");
        if self.what == For::Writing || !lists {
            return self.mapped.get_file_handle(path);
        }
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => OpenReadError::FileDoesNotExist(path.to_owned()),
            _ => OpenReadError::wrap_io_error(error, path.to_owned()),
        };
        let file = File::open(self.path.join(path)).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        Ok(Arc::new(Lists { file, len }))
    }

    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        self.mapped.delete(path)
    }

    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        self.mapped.exists(path)
    }

    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        let made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(self.path.join(path));
        let file = self
            .refusal
            .noted(made)
            .map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => OpenWriteError::FileAlreadyExists(path.to_owned()),
                _ => OpenWriteError::wrap_io_error(error, path.to_owned()),
            })?;
        Ok(BufWriter::new(Box::new(Unsynced(file, self.refusal()))))
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        self.mapped.atomic_read(path)
    }

    fn atomic_write(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let new = self.path.join(name);
        let written =
            std::fs::write(&new, data).and_then(|()| std::fs::rename(new, self.path.join(path)));
        self.refusal.noted(written)
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn acquire_lock(&self, lock: &Lock) -> Result<DirectoryLock, LockError> {
        self.mapped.acquire_lock(lock)
    }

    fn watch(&self, callback: WatchCallback) -> tantivy::Result<WatchHandle> {
        self.mapped.watch(callback)
    }
}
