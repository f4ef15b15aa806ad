//! Tantivy's directory: memory-mapped, without syncing to disk.
//!
//! The index can be built again from the files, so syncing every small update is not worth its time: a killed process
//! loses nothing, and after a power failure a torn index is detected and built again.
//!
//! Posting lists, which are most of an index, are not mapped but read: mapped pages of all searches, or of all segments that
//! are merged, would count as memory of the server. A search reads the lists it needs; merging reads them in order, a block
//! at a time. Only a check of all bytes maps them, file by file. The rest, mapped, is given back when many pages are resident
//! (`MappedFiles`).
#![allow(
    clippy::disallowed_methods,
    reason = "these are the index's own files, not the agent's"
)]

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use llmc_memory::MappedFile;
use tantivy::HasLen;
use tantivy::directory::error::{DeleteError, LockError, OpenReadError, OpenWriteError};
use tantivy::directory::{
    AntiCallToken, Directory, DirectoryLock, FileHandle, Lock, MmapDirectory, OwnedBytes,
    TerminatingWrite, WatchCallback, WatchHandle, WritePtr,
};

use crate::error::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DirectoryUse {
    Searching,
    Writing,
    Checking,
}

/// How much of a posting list's file merging reads at once.
const MERGE_BLOCK_BYTES: usize = 64 << 10;
/// Resident pages of files above which those of the index are given back.
const MAX_RESIDENT_FILE_BYTES: usize = 96 << 20;

#[derive(Debug, Clone)]
pub(super) struct IndexDirectory {
    mapped: MmapDirectory,
    path: PathBuf,
    usage: DirectoryUse,
    write_errors: WriteErrors,
    mapped_files: MappedFiles,
}

/// The files that searches have mapped, by name.
#[derive(Debug, Clone, Default)]
struct MappedFiles(Arc<Mutex<HashMap<PathBuf, MappedFile>>>);

impl MappedFiles {
    /// Gives the pages back if this process has many of files: those that all questions so far have used would add up to most
    /// of the index. A page that is used again is in the page cache. Freed heap is given back with them: the server does so
    /// only when no call is in progress, and questions may come one after the other for a long time.
    fn limit_resident_pages(&self) {
        let mut files = llmc_host::lock(&self.0);
        // A segment that was merged into another one is used no more, and its files take up disk space while they are mapped.
        files.retain(|_, file| file.is_shared());
        if llmc_memory::resident_file_bytes() > MAX_RESIDENT_FILE_BYTES {
            files.values().for_each(MappedFile::unmap_pages);
            llmc_memory::trim_heap();
        }
    }

    /// Maps a file, once for all that use it.
    fn map(&self, dir: &Path, name: &Path) -> io::Result<MappedFile> {
        let mut files = llmc_host::lock(&self.0);
        if let Some(file) = files.get(name) {
            return Ok(file.clone());
        }
        let file = MappedFile::map(&File::open(dir.join(name))?)?;
        files.insert(name.to_owned(), file.clone());
        Ok(file)
    }
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
    pub(super) fn open(path: &Path, usage: DirectoryUse) -> Option<Self> {
        Some(Self {
            mapped: MmapDirectory::open(path).ok()?,
            path: path.to_owned(),
            usage,
            write_errors: WriteErrors::default(),
            mapped_files: MappedFiles::default(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn limit_resident_pages(&self) {
        self.mapped_files.limit_resident_pages();
    }

    pub(super) fn write_errors(&self) -> WriteErrors {
        self.write_errors.clone()
    }
}

/// A file that is read in ranges instead of mapped.
#[derive(Debug)]
struct UnmappedFile {
    file: File,
    len: usize,
    /// The last block and where it starts; none for random access.
    block: Option<Mutex<(usize, OwnedBytes)>>,
}

impl UnmappedFile {
    fn read(&self, range: Range<usize>) -> io::Result<OwnedBytes> {
        let mut bytes = vec![0; range.len()];
        self.file.read_exact_at(&mut bytes, range.start as u64)?;
        Ok(OwnedBytes::new(bytes))
    }
}

impl HasLen for UnmappedFile {
    fn len(&self) -> usize {
        self.len
    }
}

impl FileHandle for UnmappedFile {
    fn read_bytes(&self, range: Range<usize>) -> io::Result<OwnedBytes> {
        if range.start > range.end || range.end > self.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some(block) = self
            .block
            .as_ref()
            .filter(|_| range.len() < MERGE_BLOCK_BYTES)
        else {
            return self.read(range);
        };
        let mut block = llmc_host::lock(block);
        let held = block.0..block.0 + block.1.len();
        if range.start < held.start || range.end > held.end {
            let end = self.len.min(range.start + MERGE_BLOCK_BYTES);
            *block = (range.start, self.read(range.start..end)?);
        }
        let start = range.start - block.0;
        Ok(block.1.slice(start..start + range.len()))
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
        let posting_lists = path.extension().is_some_and(|end| end == "idx");
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => OpenReadError::FileDoesNotExist(path.to_owned()),
            _ => OpenReadError::wrap_io_error(error, path.to_owned()),
        };
        if self.usage == DirectoryUse::Searching && !posting_lists {
            let file = self.mapped_files.map(&self.path, path).map_err(failed)?;
            return Ok(Arc::new(OwnedBytes::new(file)));
        }
        if self.usage == DirectoryUse::Checking || !posting_lists {
            return self.mapped.get_file_handle(path);
        }
        let file = File::open(self.path.join(path)).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let block =
            (self.usage == DirectoryUse::Writing).then(|| Mutex::new((0, OwnedBytes::empty())));
        Ok(Arc::new(UnmappedFile { file, len, block }))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_give_the_bytes_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
        std::fs::write(dir.path().join("a.idx"), &bytes).unwrap();
        for usage in [
            DirectoryUse::Searching,
            DirectoryUse::Writing,
            DirectoryUse::Checking,
        ] {
            let directory = IndexDirectory::open(dir.path(), usage).unwrap();
            let file = directory.get_file_handle(Path::new("a.idx")).unwrap();
            for range in [
                0..10,
                5..60_000,
                60_000..70_000,
                65_530..65_540,
                199_990..200_000,
                3..3,
                0..200_000,
                1..2,
            ] {
                let read = file.read_bytes(range.clone()).unwrap();
                assert_eq!(read.as_slice(), &bytes[range], "{usage:?}");
            }
        }
        let directory = IndexDirectory::open(dir.path(), DirectoryUse::Writing).unwrap();
        let file = directory.get_file_handle(Path::new("a.idx")).unwrap();
        assert!(file.read_bytes(199_990..200_001).is_err());
    }
}
