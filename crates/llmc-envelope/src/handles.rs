//! Stores what an answer left out, for later calls.
//!
//! A result is stored once, in compressed blocks, and read back by byte range or in chunks that fit a token budget,
//! exactly as it was. It belongs to the owner that stored it: for anyone else it does not exist. It lives for a day
//! by default, and is removed earlier, oldest first, when the store is full. The store is one SQLite file that
//! several processes share and that outlives all of them, or the database of a team, which its servers share.
//!
//! This module and the files below it hold all SQL about handles: `sqlite.rs` and `postgres.rs` keep the rows.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use llmc_store::Database;

use crate::clock::Clock;
use crate::store::SqlLocation;

mod blocks;
mod chunker;
mod chunks;
mod id;
mod postgres;
mod record;
mod rows;
mod sqlite;
mod writer;

use blocks::{BLOCK, Packed, Packer};
use postgres::PostgresHandles;
use rows::{FoundBlocks, HandleRows, RECORD_BYTES, Record};
use sqlite::SqliteHandles;

pub use sqlite::HANDLES_VERSION;

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
    rows: Arc<dyn HandleRows>,
    options: Options,
}

impl HandleStore {
    /// Opens `handles.db` in this folder, making both when they are not there, and removes what has expired.
    pub fn open(dir: &Path, options: Options) -> Result<Self, Error> {
        let rows = SqliteHandles::open(SqlLocation::File(dir.join(HANDLES_FILE)), options.clone())?;
        Ok(Self::with(rows, options))
    }

    /// A store that ends with the process.
    pub fn in_memory(options: Options) -> Result<Self, Error> {
        let rows = SqliteHandles::open(SqlLocation::Memory, options.clone())?;
        Ok(Self::with(rows, options))
    }

    /// The store that all servers of a team share. Connects to nothing yet.
    pub fn shared(database: Database, options: Options) -> Self {
        Self::with(PostgresHandles::new(database, options.clone()), options)
    }

    fn with(rows: impl HandleRows + 'static, options: Options) -> Self {
        Self {
            rows: Arc::new(rows),
            options,
        }
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
        self.rows.put(&record, &draft, &packed)?;
        Ok(record.id)
    }

    /// Stores a result while it is being made; memory stays small however long it gets.
    pub fn writer(&self, draft: Draft) -> Result<HandleWriter, Error> {
        HandleWriter::new(self.clone(), draft)
    }

    /// What is known about a result.
    pub fn info(&self, owner: &str, id: HandleId) -> Result<HandleInfo, Error> {
        Ok(self.rows.find(owner, id)?.info)
    }

    /// At most `limit` bytes from `offset` on; an empty last page when `offset` is the end.
    pub fn read(
        &self,
        owner: &str,
        id: HandleId,
        offset: u64,
        limit: usize,
    ) -> Result<Page, Error> {
        let FoundBlocks {
            total,
            first,
            packed,
        } = self.rows.blocks(owner, id, offset, limit)?;
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
        self.rows.list(owner)
    }

    /// How full the store is, over all owners.
    pub fn usage(&self) -> Result<Usage, Error> {
        self.rows.usage()
    }

    /// Removes what has expired and, while the store is over its limit, the oldest.
    ///
    /// Nothing depends on this being called: an expired result is never given out, and every write makes its own room.
    pub fn sweep(&self) -> Result<Swept, Error> {
        self.rows.sweep()
    }

    fn now(&self) -> i64 {
        self.options.clock.now_ms()
    }

    fn check_size(&self, payload_stored: u64) -> Result<(), Error> {
        let limit = self.options.max_bytes;
        if payload_stored.saturating_add(RECORD_BYTES) > limit {
            return Err(Error::TooLarge {
                bytes: payload_stored,
                limit,
            });
        }
        Ok(())
    }
}

impl fmt::Debug for HandleStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandleStore")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

fn damaged() -> Error {
    Error::Unavailable {
        cause: "this result is damaged".into(),
    }
}
