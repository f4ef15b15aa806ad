//! Tantivy's directory: memory-mapped, without syncing to disk.
//!
//! The index can be built again from the files, so syncing every small update is not worth its time: a killed process
//! loses nothing, and after a power failure a torn index is detected and built again.
#![allow(
    clippy::disallowed_methods,
    reason = "these are the index's own files, not the agent's"
)]

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tantivy::directory::error::{DeleteError, LockError, OpenReadError, OpenWriteError};
use tantivy::directory::{
    AntiCallToken, Directory, DirectoryLock, FileHandle, Lock, MmapDirectory, TerminatingWrite,
    WatchCallback, WatchHandle, WritePtr,
};

use crate::error::Error;

#[derive(Debug, Clone)]
pub(super) struct IndexDirectory {
    mapped: MmapDirectory,
    path: PathBuf,
    write_errors: WriteErrors,
}

/// The last write error. Tantivy writes on threads of its own, and reports the failure of one without its cause.
#[derive(Debug, Clone, Default)]
pub(super) struct WriteErrors(Arc<Mutex<Option<io::ErrorKind>>>);

impl WriteErrors {
    /// The write error behind a failure, or the failure itself.
    pub(super) fn cause(&self, error: tantivy::TantivyError) -> Error {
        match *llmc_host::lock(&self.0) {
            Some(kind) => kind.into(),
            None => error.into(),
        }
    }

    pub(super) fn clear(&self) {
        *llmc_host::lock(&self.0) = None;
    }

    fn record<T>(&self, done: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &done
            && error.kind() != io::ErrorKind::Interrupted
        {
            *llmc_host::lock(&self.0) = Some(error.kind());
        }
        done
    }
}

impl IndexDirectory {
    pub(super) fn open(path: &Path) -> Option<Self> {
        Some(Self {
            mapped: MmapDirectory::open(path).ok()?,
            path: path.to_owned(),
            write_errors: WriteErrors::default(),
        })
    }

    pub(super) fn write_errors(&self) -> WriteErrors {
        self.write_errors.clone()
    }
}

struct UnsyncedFile(File, WriteErrors);

impl Write for UnsyncedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.record(self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl TerminatingWrite for UnsyncedFile {
    fn terminate_ref(&mut self, _: AntiCallToken) -> io::Result<()> {
        self.0.flush()
    }
}

impl Directory for IndexDirectory {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        self.mapped.get_file_handle(path)
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
            .write_errors
            .record(made)
            .map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => OpenWriteError::FileAlreadyExists(path.to_owned()),
                _ => OpenWriteError::wrap_io_error(error, path.to_owned()),
            })?;
        Ok(BufWriter::new(Box::new(UnsyncedFile(
            file,
            self.write_errors(),
        ))))
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
        self.write_errors.record(written)
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
