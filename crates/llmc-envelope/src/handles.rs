//! Stores what an answer left out, for later calls.
//!
//! A result is stored once, in compressed blocks, and read back by byte range or in chunks that fit a token budget,
//! exactly as it was. It belongs to the owner that stored it: for anyone else it does not exist. It lives for a day
//! by default, and is removed earlier, oldest first, when the store is full. The store is one SQLite file that
//! several processes share and that outlives all of them.
//!
//! This module and the files below it hold all SQL about handles; a shared server database can take its place behind
//! the same methods.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use crate::clock::Clock;
use crate::store::{AsSql, SqlLocation, SqlStore, StoreUnavailable, TransactionError};

mod blocks;
mod chunker;
mod chunks;
mod id;
mod record;
mod rows;
mod writer;

use blocks::{BLOCK, Packed, Packer};
use rows::{Record, SCHEMA, State, find};

pub use rows::HANDLES_VERSION;

pub use chunker::{Chunk, ChunkSpan, Chunker};
pub use id::HandleId;
pub use record::{Draft, HandleInfo, Kept, Meta, Page, Payload, SourceStamp, Swept, Usage};
pub use writer::HandleWriter;

/// The store's file in its directory.
pub const HANDLES_FILE: &str = "handles.db";

/// A file above this size is kept as [`Payload::File`], by stamp instead of by bytes.
pub const BYTES_KEPT_LIMIT: u64 = 8 * 1024 * 1024;

/// How long a write may pause before it counts as abandoned.
const WRITE_LEASE: Duration = Duration::from_secs(3600);

/// Pages given back to the file system by one sweep.
const SHRINK_PAGES: u32 = 8192;

/// Why a handle could not be made or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Never existed, has expired, made room for newer ones, or belongs to another owner.
    #[error("handle unknown or expired")]
    Unknown,
    /// One result that the whole store could not hold.
    #[error("result takes {bytes} bytes or more compressed, the handle store holds {limit}")]
    TooLarge {
        /// What it takes, as far as it was written.
        bytes: u64,
        /// What the store holds.
        limit: u64,
    },
    /// The store cannot work now: locked, full disk, damaged.
    #[error("handle store unavailable: {cause}")]
    Unavailable {
        /// In words that may be shown.
        cause: String,
    },
    /// A place past the end.
    #[error("{unit} {asked} is past the end: the result has {count}")]
    BadRange {
        /// `byte` or `chunk`.
        unit: &'static str,
        /// What was asked for.
        asked: u64,
        /// How many there are.
        count: u64,
    },
    /// The handle stands for a file whose bytes the store does not have.
    #[error("the handle keeps only the stamp of a file")]
    StampOnly(Box<SourceStamp>),
}

/// How a store behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a result is kept.
    pub ttl: Duration,
    /// How many bytes, compressed, all results may take together.
    pub max_bytes: u64,
    /// Where the time comes from.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(24 * 3600),
            max_bytes: 1024 * 1024 * 1024,
            clock: Clock::system(),
        }
    }
}

/// The results kept for one workspace. Clones share the store.
#[derive(Clone)]
pub struct HandleStore {
    store: Arc<SqlStore>,
    options: Options,
}

impl HandleStore {
    /// Opens `handles.db` in this folder, making both when they are not there, and removes what has expired.
    pub fn open(dir: &Path, options: Options) -> Result<Self, Error> {
        Self::at(SqlLocation::File(dir.join(HANDLES_FILE)), options)
    }

    /// A store that ends with the process.
    pub fn in_memory(options: Options) -> Result<Self, Error> {
        Self::at(SqlLocation::Memory, options)
    }

    fn at(place: SqlLocation, options: Options) -> Result<Self, Error> {
        let handles = Self {
            store: Arc::new(SqlStore::open(place, SCHEMA)?),
            options,
        };
        handles.store.settle(|| handles.sweep())?;
        Ok(handles)
    }

    /// Stores one result. When this returns, the handle outlives the process.
    pub fn put<'a>(
        &self,
        draft: Draft,
        payload: impl Into<Payload<'a>>,
    ) -> Result<HandleId, Error> {
        let (mut draft, bytes) = (draft, payload.into());
        let mut record = match &bytes {
            Payload::Bytes(bytes) => Record::new(self.now(), Kept::Bytes, bytes.len() as u64)?,
            Payload::File(stamp) => {
                draft.source = Some(stamp.clone());
                Record::new(self.now(), Kept::File, stamp.size)?
            }
        };
        let packed: Vec<Packed> = match bytes {
            Payload::Bytes(bytes) => {
                let mut packer = Packer::default();
                bytes.chunks(BLOCK).map(|raw| packer.pack(raw)).collect()
            }
            Payload::File(_) => Vec::new(),
        };
        record.payload_stored = packed.iter().map(Packed::stored_len).sum();
        self.check_size(record.payload_stored)?;
        self.write(|conn| {
            let seq = self.insert(conn, &record, &draft, State::Complete)?;
            for (n, block) in packed.iter().enumerate() {
                block.insert(conn, seq, n as u64)?;
            }
            self.make_room(conn, seq)
        })?;
        Ok(record.id)
    }

    /// Stores a result while it is being made; memory stays small however long it gets.
    pub fn writer(&self, draft: Draft) -> Result<HandleWriter, Error> {
        HandleWriter::new(self.clone(), draft)
    }

    /// What is known about a result.
    pub fn info(&self, owner: &str, id: HandleId) -> Result<HandleInfo, Error> {
        self.look(|conn| Ok(find(conn, owner, id, self.now())?.info))
    }

    /// At most `limit` bytes from `offset` on; an empty last page when `offset` is the end.
    pub fn read(
        &self,
        owner: &str,
        id: HandleId,
        offset: u64,
        limit: usize,
    ) -> Result<Page, Error> {
        let (total, first, packed) = self.look(|conn| {
            let found = find(conn, owner, id, self.now())?.with_bytes()?;
            let total = found.info.total_bytes;
            if offset > total {
                return Err(Work::Own(Error::BadRange {
                    unit: "byte",
                    asked: offset,
                    count: total,
                }));
            }
            let end = total.min(offset.saturating_add(limit as u64));
            let first = offset / BLOCK as u64;
            let packed = if end > offset {
                blocks::fetch(conn, found.seq, first, (end - 1) / BLOCK as u64)?
            } else {
                Vec::new()
            };
            Ok((total, first, packed))
        })?;
        let end = total.min(offset.saturating_add(limit as u64));
        // Not by what the record claims: a damaged one may claim anything.
        let mut bytes = Vec::with_capacity(limit.min(packed.len() * BLOCK));
        for (n, block) in (first..).zip(packed) {
            let start = n * BLOCK as u64;
            let raw = block
                .unpack(blocks::raw_len(total, n))
                .ok_or_else(damaged)?;
            let from = offset.saturating_sub(start) as usize;
            let to = raw.len().min((end - start) as usize);
            bytes.extend_from_slice(&raw[from..to]);
        }
        if bytes.len() as u64 != end - offset {
            return Err(damaged());
        }
        Ok(Page {
            bytes,
            offset,
            total_bytes: total,
            eof: end == total,
        })
    }

    /// All results of this owner, newest first.
    pub fn list(&self, owner: &str) -> Result<Vec<HandleInfo>, Error> {
        self.look(|conn| Ok(rows::list(conn, owner, self.now())?))
    }

    /// How full the store is, over all owners.
    pub fn usage(&self) -> Result<Usage, Error> {
        self.look(|conn| {
            Ok(conn.query_row(
                "SELECT count(*) FILTER (WHERE pending = 0 AND expires_ms > ?1), coalesce(sum(stored_bytes), 0) \
                 FROM handles",
                [self.now()],
                |row| {
                    Ok(Usage {
                        count: row.get::<_, i64>(0)? as u64,
                        bytes: row.get::<_, i64>(1)? as u64,
                    })
                },
            )?)
        })
    }

    /// Removes what has expired and, while the store is over its limit, the oldest.
    ///
    /// Nothing depends on this being called: an expired result is never given out, and every write makes its own room.
    pub fn sweep(&self) -> Result<Swept, Error> {
        // Most of the time there is nothing to do, and the check takes no lock.
        if !self.look(|conn| Ok(self.is_due(conn)?))? {
            return Ok(Swept::default());
        }
        let swept = self.write(|conn| {
            let expired = self.drop_expired(conn)?;
            let evicted = self.evict(conn, None)?.evicted;
            Ok(Swept { expired, evicted })
        })?;
        if swept != Swept::default() {
            // Smaller is nicer; free pages are used again anyway.
            let _ = self.store.shrink(SHRINK_PAGES);
        }
        Ok(swept)
    }

    fn now(&self) -> i64 {
        self.options.clock.now_ms()
    }

    fn look<T>(&self, work: impl FnOnce(&Connection) -> Result<T, Work>) -> Result<T, Error> {
        Ok(self.store.read(work)?)
    }

    fn write<T>(&self, work: impl FnOnce(&Connection) -> Result<T, Work>) -> Result<T, Error> {
        Ok(self.store.write(work)?)
    }
}

impl fmt::Debug for HandleStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandleStore")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// A failure inside a transaction.
#[derive(Debug)]
enum Work {
    Own(Error),
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for Work {
    fn from(error: rusqlite::Error) -> Self {
        Work::Sql(error)
    }
}

impl AsSql for Work {
    fn as_sql(&self) -> Option<&rusqlite::Error> {
        match self {
            Work::Sql(error) => Some(error),
            Work::Own(_) => None,
        }
    }
}

impl From<StoreUnavailable> for Error {
    fn from(StoreUnavailable(cause): StoreUnavailable) -> Self {
        Error::Unavailable { cause }
    }
}

impl From<TransactionError<Work>> for Error {
    fn from(failed: TransactionError<Work>) -> Self {
        match failed {
            TransactionError::Unavailable(unavailable) => unavailable.into(),
            TransactionError::Work(Work::Own(error)) => error,
            TransactionError::Work(Work::Sql(error)) => Error::Unavailable {
                cause: error.to_string(),
            },
        }
    }
}

fn damaged() -> Error {
    Error::Unavailable {
        cause: "this result is damaged".into(),
    }
}
