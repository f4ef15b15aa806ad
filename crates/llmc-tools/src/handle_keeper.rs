//! The handle store as calls use it: opened when first needed, and each state of a file stored once.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use llmc_config::HandlesConfig;
use llmc_envelope::handles::{Draft, Options, Payload, SourceStamp};
use llmc_envelope::{HandleId, HandleStore};
use llmc_store::Database;

use crate::error::{Error, ErrorKind, Result};

/// The store's folder in the state directory.
const STORE_DIR: &str = "te_handles";
/// Stored files that are remembered, so that paging through one stores it once.
const MAX_REMEMBERED_FILES: usize = 64;

#[derive(Debug)]
pub(crate) struct HandleKeeper {
    /// The state directory; without one, handles live in memory.
    dir: Option<PathBuf>,
    /// The database that takes the place of the state directory: what other servers are to read is never in memory.
    database: Option<Database>,
    options: Options,
    store: OnceLock<Result<HandleStore>>,
    files: Mutex<VecDeque<StoredFile>>,
}

/// A stored file: whose, in which state, under which handle.
#[derive(Debug)]
struct StoredFile {
    principal: String,
    /// The tool that stored it: a handle is readable for those who may call that.
    tool: &'static str,
    stamp: SourceStamp,
    id: HandleId,
}

impl HandleKeeper {
    pub(crate) fn new(
        dir: Option<PathBuf>,
        database: Option<Database>,
        config: &HandlesConfig,
    ) -> HandleKeeper {
        HandleKeeper {
            dir,
            database,
            options: options_of(config),
            store: OnceLock::new(),
            files: Mutex::default(),
        }
    }

    /// The store, opened when first needed so that a start costs nothing for it.
    pub(crate) fn store(&self) -> Result<&HandleStore> {
        let opened = self.store.get_or_init(|| {
            if let Some(database) = &self.database {
                return Ok(HandleStore::shared(database.clone(), self.options.clone()));
            }
            if let Some(dir) = &self.dir {
                match open_store(dir, self.options.clone()) {
                    Ok(store) => return Ok(store),
                    Err(why) => tracing::warn!(why, "handle store falls back to memory"),
                }
            }
            HandleStore::in_memory(self.options.clone()).map_err(Error::from)
        });
        opened.as_ref().map_err(Clone::clone)
    }

    /// Stores a result. `None` when the store cannot take it: an answer is never lost for that.
    pub(crate) fn put<'a>(
        &self,
        draft: Draft,
        payload: impl Into<Payload<'a>>,
    ) -> Option<HandleId> {
        let stored = self.store();
        or_warn(stored.and_then(|store| store.put(draft, payload).map_err(Error::from)))
    }

    /// Stores what `write` writes, piece by piece, so that it never stands in memory twice; also its length.
    pub(crate) fn put_written(
        &self,
        draft: Draft,
        write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
    ) -> (Option<HandleId>, u64) {
        let mut bytes = 0;
        let stored = self.store().and_then(|store| {
            let mut writer = store.writer(draft)?;
            write(&mut writer)
                .map_err(|error| Error::new(ErrorKind::WriteFailed, error.to_string()))?;
            bytes = writer.written();
            Ok(writer.finish()?)
        });
        (or_warn(stored), bytes)
    }

    /// The handle under which this principal already has this state of this file.
    pub(crate) fn find_file(
        &self,
        principal: &str,
        tool: &'static str,
        stamp: &SourceStamp,
    ) -> Option<HandleId> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let id = files
            .iter()
            .find(|file| file.principal == principal && file.tool == tool && file.stamp == *stamp)?
            .id;
        drop(files);
        self.store().ok()?.info(principal, id).ok().map(|_| id)
    }

    pub(crate) fn remember_file(
        &self,
        principal: &str,
        tool: &'static str,
        stamp: &SourceStamp,
        id: HandleId,
    ) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.truncate(MAX_REMEMBERED_FILES - 1);
        files.push_front(StoredFile {
            principal: principal.to_owned(),
            tool,
            stamp: stamp.clone(),
            id,
        });
    }
}

fn or_warn(stored: Result<HandleId>) -> Option<HandleId> {
    stored
        .inspect_err(|error| tracing::warn!(error = %error, "handle store cannot take a result"))
        .ok()
}

fn options_of(config: &HandlesConfig) -> Options {
    Options {
        ttl: config.ttl(),
        max_bytes: config.max_bytes,
        ..Options::default()
    }
}

/// The handle store of a state directory. A link in its place could lead anywhere.
fn open_store(state: &Path, options: Options) -> Result<HandleStore, String> {
    let dir = state.join(STORE_DIR);
    if dir.is_symlink() {
        return Err("te_handles is a link".to_owned());
    }
    HandleStore::open(&dir, options).map_err(|error| error.to_string())
}
