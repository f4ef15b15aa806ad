//! What an engine keeps of handles: records, blocks and chunk boundaries, behind one trait.
//!
//! [`HandleStore`](super::HandleStore) compresses, cuts and checks; an engine only keeps rows. There are two: a SQLite
//! file, and the database that a team shares.

use serde_json::Value;

use super::blocks::{BLOCK, Packed};
use super::{ChunkSpan, Draft, Error, HandleId, HandleInfo, Kept, Meta, Swept, Usage, damaged};

/// What a record weighs besides its payload, so that empty results cannot fill the store unseen.
pub(super) const RECORD_BYTES: u64 = 512;

/// Where the rules of a result are kept among its facts; no fact is called that.
const RULES_KEY: &str = "llmc:rules";

/// The rows of one store. Every method is one transaction.
///
/// "Unknown" is the one answer for a result that never was, has expired, is not finished, or is another owner's.
pub(super) trait HandleRows: Send + Sync {
    /// Keeps a whole result, and makes room for it.
    fn put(&self, record: &Record, draft: &Draft, blocks: &[Packed]) -> Result<(), Error>;

    /// Keeps block `n` of a result in the making, whose row is made with its first block; the number of that row.
    fn append(
        &self,
        row: Option<i64>,
        record: &Record,
        draft: &Draft,
        n: u64,
        block: &Packed,
    ) -> Result<i64, Error>;

    /// Makes a result readable, with the last of its blocks.
    fn finish(
        &self,
        row: Option<i64>,
        record: &Record,
        draft: &Draft,
        last: Option<(u64, &Packed)>,
    ) -> Result<(), Error>;

    /// Removes a result in the making.
    fn abandon(&self, row: i64, id: HandleId) -> Result<(), Error>;

    fn find(&self, owner: &str, id: HandleId) -> Result<Found, Error>;

    /// The blocks that hold a range of bytes.
    fn blocks(
        &self,
        owner: &str,
        id: HandleId,
        offset: u64,
        limit: usize,
    ) -> Result<FoundBlocks, Error>;

    /// All results of an owner, newest first.
    fn list(&self, owner: &str) -> Result<Vec<HandleInfo>, Error>;

    fn usage(&self) -> Result<Usage, Error>;

    fn sweep(&self) -> Result<Swept, Error>;

    /// A result with the number and the end of the last chunk whose boundaries are known.
    fn last_chunk(
        &self,
        owner: &str,
        id: HandleId,
        budget: usize,
    ) -> Result<(Found, Option<(u64, u64)>), Error>;

    /// Boundaries `first..=last` in order, as far as they are known.
    fn spans(
        &self,
        row: i64,
        budget: usize,
        first: u64,
        last: u64,
    ) -> Result<Vec<ChunkSpan>, Error>;

    /// Keeps boundaries of a result, unless it has gone in the meantime.
    fn remember(&self, found: &Found, budget: usize, spans: &[ChunkSpan]) -> Result<(), Error>;
}

/// A result and the number its blocks go by.
pub(super) struct Found {
    pub(super) seq: i64,
    pub(super) info: HandleInfo,
}

impl Found {
    /// Itself, if there is something to read.
    pub(super) fn with_bytes(self) -> Result<Self, Error> {
        match (self.info.kept, self.info.source.clone()) {
            (Kept::File, Some(stamp)) => Err(Error::StampOnly(Box::new(stamp))),
            (Kept::File, None) => Err(damaged()),
            (Kept::Bytes, _) => Ok(self),
        }
    }
}

/// Blocks of a result, from number `first` on.
pub(super) struct FoundBlocks {
    pub(super) total: u64,
    pub(super) first: u64,
    pub(super) packed: Vec<Packed>,
}

/// The first and last block of a range of bytes; nothing for an empty range.
pub(super) fn block_range(
    total: u64,
    offset: u64,
    limit: usize,
) -> Result<Option<(u64, u64)>, Error> {
    if offset > total {
        return Err(Error::BadRange {
            unit: "byte",
            asked: offset,
            count: total,
        });
    }
    let end = total.min(offset.saturating_add(limit as u64));
    Ok((end > offset).then(|| (offset / BLOCK as u64, (end - 1) / BLOCK as u64)))
}

/// A record on its way into the store.
pub(super) struct Record {
    pub(super) id: HandleId,
    pub(super) kept: Kept,
    pub(super) total: u64,
    pub(super) payload_stored: u64,
    pub(super) created_ms: i64,
}

impl Record {
    pub(super) fn new(now_ms: i64, kept: Kept, total: u64) -> Result<Self, Error> {
        Ok(Self {
            id: HandleId::new(now_ms)?,
            kept,
            total,
            payload_stored: 0,
            created_ms: now_ms,
        })
    }

    pub(super) fn stored(&self, meta: &str) -> u64 {
        // A large meta counts for what it is; a small one is part of the record's flat weight.
        self.payload_stored + RECORD_BYTES.max(meta.len() as u64)
    }
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum State {
    Pending,
    Complete,
}

/// The column `meta`: the facts, and the rules beside them.
pub(super) fn meta_text(draft: &Draft) -> String {
    let mut meta = draft.meta.clone();
    if let Some(rules) = &draft.rules {
        meta.insert(RULES_KEY.to_owned(), rules.clone());
    }
    serde_json::to_string(&meta).unwrap_or_else(|_| "{}".into())
}

/// Facts and rules of the column `meta`, unless it holds what was never put there.
pub(super) fn parse_meta(text: &str) -> Option<(Meta, Option<Value>)> {
    let mut meta: Meta = serde_json::from_str(text).ok()?;
    let rules = meta.remove(RULES_KEY);
    Some((meta, rules))
}

/// The error of a writer whose row was swept.
pub(super) fn paused_too_long() -> Error {
    Error::Unavailable {
        cause: "the write paused too long and was dropped".into(),
    }
}

/// The error of a store in which nothing can be removed.
pub(super) fn full_of_writes() -> Error {
    Error::Unavailable {
        cause: "full of results that are still being written".into(),
    }
}
