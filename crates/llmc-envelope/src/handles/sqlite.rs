//! Handles in a SQLite file, or in memory.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::blocks::Packed;
use super::rows::{
    Found, FoundBlocks, HandleRows, Record, State, block_range, full_of_writes, meta_text,
    parse_meta, paused_too_long,
};
use super::{
    ChunkSpan, Draft, Error, HandleId, HandleInfo, Kept, Options, SourceStamp, Swept, Usage,
    WRITE_LEASE,
};
use crate::clock::{from_millis, millis};
use crate::store::{AsSql, SqlLocation, SqlSchema, SqlStore, StoreUnavailable, TransactionError};

/// Pages given back to the file system by one sweep.
const SHRINK_PAGES: u32 = 8192;

/// The version of the store's file.
pub const HANDLES_VERSION: i32 = 1;

pub(super) const SCHEMA: SqlSchema = SqlSchema {
    version: HANDLES_VERSION,
    sql: "
CREATE TABLE handles (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL UNIQUE,
    owner        TEXT NOT NULL,
    kind         TEXT NOT NULL,
    meta         TEXT NOT NULL,
    pending      INTEGER NOT NULL,
    kept         INTEGER NOT NULL,
    total_bytes  INTEGER NOT NULL,
    stored_bytes INTEGER NOT NULL,
    created_ms   INTEGER NOT NULL,
    expires_ms   INTEGER NOT NULL,
    source_path  BLOB,
    source_size  INTEGER,
    source_mtime INTEGER,
    source_sha   TEXT
);
CREATE INDEX handles_by_age ON handles (created_ms, seq, pending, stored_bytes);
CREATE INDEX handles_by_end ON handles (expires_ms);
CREATE INDEX handles_by_owner ON handles (owner, created_ms);
CREATE TABLE blocks (
    handle INTEGER NOT NULL,
    n      INTEGER NOT NULL,
    codec  INTEGER NOT NULL,
    data   BLOB NOT NULL,
    PRIMARY KEY (handle, n)
);
CREATE TABLE chunks (
    handle INTEGER NOT NULL,
    budget INTEGER NOT NULL,
    n      INTEGER NOT NULL,
    start  INTEGER NOT NULL,
    len    INTEGER NOT NULL,
    PRIMARY KEY (handle, budget, n)
) WITHOUT ROWID;",
};

/// The columns that [`found_of`] reads.
const COLUMNS: &str = "seq, id, kind, meta, kept, total_bytes, created_ms, expires_ms, \
                       source_path, source_size, source_mtime, source_sha";

/// The rows in one file.
pub(super) struct SqliteHandles {
    store: SqlStore,
    options: Options,
}

impl SqliteHandles {
    pub(super) fn open(place: SqlLocation, options: Options) -> Result<Self, Error> {
        let handles = Self {
            store: SqlStore::open(place, SCHEMA)?,
            options,
        };
        handles.store.settle(|| handles.sweep())?;
        Ok(handles)
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

impl HandleRows for SqliteHandles {
    fn put(&self, record: &Record, draft: &Draft, blocks: &[Packed]) -> Result<(), Error> {
        self.write(|conn| {
            let seq = self.insert(conn, record, draft, State::Complete)?;
            for (n, block) in blocks.iter().enumerate() {
                insert_block(conn, seq, n as u64, block)?;
            }
            self.make_room(conn, seq)
        })
    }

    fn append(
        &self,
        row: Option<i64>,
        record: &Record,
        draft: &Draft,
        n: u64,
        block: &Packed,
    ) -> Result<i64, Error> {
        self.write(|conn| {
            let seq = match row {
                Some(seq) => {
                    let changed = conn
                        .prepare_cached(
                            "UPDATE handles SET stored_bytes = ?2, expires_ms = ?3 WHERE seq = ?1 AND id = ?4",
                        )?
                        .execute(params![
                            seq,
                            record.stored("") as i64,
                            self.lease_end(),
                            record.id.to_string(),
                        ])?;
                    still_there(changed)?;
                    seq
                }
                None => self.insert(conn, record, draft, State::Pending)?,
            };
            insert_block(conn, seq, n, block)?;
            self.make_room(conn, seq)?;
            Ok(seq)
        })
    }

    fn finish(
        &self,
        row: Option<i64>,
        record: &Record,
        draft: &Draft,
        last: Option<(u64, &Packed)>,
    ) -> Result<(), Error> {
        self.write(|conn| {
            let seq = match row {
                Some(seq) => {
                    let meta = meta_text(draft);
                    let changed = conn.execute(
                        "UPDATE handles SET pending = 0, meta = ?2, total_bytes = ?3, stored_bytes = ?4, \
                         created_ms = ?5, expires_ms = ?6 WHERE seq = ?1 AND id = ?7",
                        params![
                            seq,
                            meta,
                            record.total as i64,
                            record.stored(&meta) as i64,
                            record.created_ms,
                            self.end_of_life(draft),
                            record.id.to_string(),
                        ],
                    )?;
                    still_there(changed)?;
                    seq
                }
                None => self.insert(conn, record, draft, State::Complete)?,
            };
            if let Some((n, block)) = last {
                insert_block(conn, seq, n, block)?;
            }
            self.make_room(conn, seq)
        })
    }

    fn abandon(&self, row: i64, id: HandleId) -> Result<(), Error> {
        self.write(|conn| {
            let ours = conn.execute(
                "UPDATE handles SET expires_ms = 0 WHERE seq = ?1 AND id = ?2",
                params![row, id.to_string()],
            )?;
            if ours == 1 {
                delete(conn, row)?;
            }
            Ok(())
        })
    }

    fn find(&self, owner: &str, id: HandleId) -> Result<Found, Error> {
        self.look(|conn| find(conn, owner, id, self.now()))
    }

    fn blocks(
        &self,
        owner: &str,
        id: HandleId,
        offset: u64,
        limit: usize,
    ) -> Result<FoundBlocks, Error> {
        self.look(|conn| {
            let found = find(conn, owner, id, self.now())?
                .with_bytes()
                .map_err(Work::Own)?;
            let total = found.info.total_bytes;
            let range = block_range(total, offset, limit).map_err(Work::Own)?;
            Ok(FoundBlocks {
                total,
                first: range.map_or(0, |(first, _)| first),
                packed: match range {
                    Some((first, last)) => fetch_blocks(conn, found.seq, first, last)?,
                    None => Vec::new(),
                },
            })
        })
    }

    fn list(&self, owner: &str) -> Result<Vec<HandleInfo>, Error> {
        self.look(|conn| Ok(list(conn, owner, self.now())?))
    }

    fn usage(&self) -> Result<Usage, Error> {
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

    fn sweep(&self) -> Result<Swept, Error> {
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

    fn last_chunk(
        &self,
        owner: &str,
        id: HandleId,
        budget: usize,
    ) -> Result<(Found, Option<(u64, u64)>), Error> {
        self.look(|conn| {
            let found = find(conn, owner, id, self.now())?
                .with_bytes()
                .map_err(Work::Own)?;
            let last = conn
                .prepare_cached(
                    "SELECT n, start + len FROM chunks WHERE handle = ?1 AND budget = ?2 \
                     ORDER BY n DESC LIMIT 1",
                )?
                .query_row(params![found.seq, budget as i64], |row| {
                    Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64))
                })
                .optional()?;
            Ok((found, last))
        })
    }

    fn spans(
        &self,
        row: i64,
        budget: usize,
        first: u64,
        last: u64,
    ) -> Result<Vec<ChunkSpan>, Error> {
        let last = i64::try_from(last).unwrap_or(i64::MAX);
        self.look(|conn| {
            let spans = conn
                .prepare_cached(
                    "SELECT n, start, len FROM chunks WHERE handle = ?1 AND budget = ?2 AND n BETWEEN ?3 AND ?4 \
                     ORDER BY n",
                )?
                .query_map(params![row, budget as i64, first as i64, last], |row| {
                    Ok(ChunkSpan {
                        index: row.get::<_, i64>(0)? as u64,
                        offset: row.get::<_, i64>(1)? as u64,
                        len: row.get::<_, i64>(2)? as u64,
                    })
                })?
                .collect::<Result<_, _>>()?;
            Ok(spans)
        })
    }

    fn remember(&self, found: &Found, budget: usize, spans: &[ChunkSpan]) -> Result<(), Error> {
        let id = found.info.id.to_string();
        self.write(|conn| {
            // The result may have gone in the meantime; its boundaries must not stay behind.
            let mut insert = conn.prepare_cached(
                "INSERT OR IGNORE INTO chunks (handle, budget, n, start, len) \
                 SELECT seq, ?2, ?3, ?4, ?5 FROM handles WHERE seq = ?1 AND id = ?6",
            )?;
            for span in spans {
                insert.execute(params![
                    found.seq,
                    budget as i64,
                    span.index as i64,
                    span.offset as i64,
                    span.len as i64,
                    id,
                ])?;
            }
            Ok(())
        })
    }
}

/// How rows come and go.
impl SqliteHandles {
    fn insert(
        &self,
        conn: &Connection,
        record: &Record,
        draft: &Draft,
        state: State,
    ) -> Result<i64, Work> {
        let meta = meta_text(draft);
        let source = draft.source.as_ref();
        conn.prepare_cached(
            "INSERT INTO handles (id, owner, kind, meta, pending, kept, total_bytes, stored_bytes, created_ms, \
             expires_ms, source_path, source_size, source_mtime, source_sha) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        )?
        .execute(params![
            record.id.to_string(),
            draft.owner,
            draft.kind,
            meta,
            state == State::Pending,
            record.kept == Kept::File,
            record.total as i64,
            record.stored(&meta) as i64,
            record.created_ms,
            match state {
                State::Pending => self.lease_end(),
                State::Complete => self.end_of_life(draft),
            },
            source.map(|s| s.path.as_os_str().as_encoded_bytes()),
            source.map(|s| s.size as i64),
            source.map(|s| s.mtime_ns),
            source.map(|s| s.sha256.as_str()),
        ])?;
        Ok(conn.last_insert_rowid())
    }

    fn end_of_life(&self, draft: &Draft) -> i64 {
        let ttl = draft.ttl.unwrap_or(self.options.ttl);
        self.now().saturating_add(millis(ttl))
    }

    fn lease_end(&self) -> i64 {
        self.now().saturating_add(millis(WRITE_LEASE))
    }

    /// Brings the store back under its limit without touching `keep`, or fails and so undoes the caller's write.
    fn make_room(&self, conn: &Connection, keep: i64) -> Result<(), Work> {
        let left = self.evict(conn, Some(keep))?.bytes_left;
        if left <= self.options.max_bytes {
            return Ok(());
        }
        Err(Work::Own(full_of_writes()))
    }

    /// Whether a sweep would find something.
    fn is_due(&self, conn: &Connection) -> rusqlite::Result<bool> {
        conn.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM handles WHERE expires_ms <= ?1) \
             OR (SELECT coalesce(sum(stored_bytes), 0) FROM handles) > ?2",
        )?
        .query_row(
            params![
                self.now(),
                i64::try_from(self.options.max_bytes).unwrap_or(i64::MAX)
            ],
            |row| row.get(0),
        )
    }

    fn evict(&self, conn: &Connection, keep: Option<i64>) -> Result<Evicted, Work> {
        let limit = self.options.max_bytes;
        let total = |conn: &Connection| {
            conn.prepare_cached("SELECT coalesce(sum(stored_bytes), 0) FROM handles")?
                .query_row([], |row| row.get::<_, i64>(0))
        };
        let mut bytes_left = total(conn)? as u64;
        if bytes_left > limit {
            self.drop_expired(conn)?;
            bytes_left = total(conn)? as u64;
        }
        let mut gone = Vec::new();
        if bytes_left > limit {
            let mut query = conn.prepare_cached(
                "SELECT seq, stored_bytes FROM handles WHERE pending = 0 AND seq IS NOT ?1 \
                 ORDER BY created_ms, seq",
            )?;
            let mut rows = query.query([keep])?;
            while let Some(row) = rows.next()? {
                if bytes_left <= limit {
                    break;
                }
                gone.push(row.get::<_, i64>(0)?);
                bytes_left = bytes_left.saturating_sub(row.get::<_, i64>(1)? as u64);
            }
        }
        for seq in &gone {
            delete(conn, *seq)?;
        }
        Ok(Evicted {
            evicted: gone.len() as u64,
            bytes_left,
        })
    }

    fn drop_expired(&self, conn: &Connection) -> Result<u64, Work> {
        let gone: Vec<i64> = conn
            .prepare_cached("SELECT seq FROM handles WHERE expires_ms <= ?1")?
            .query_map([self.now()], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        for seq in &gone {
            delete(conn, *seq)?;
        }
        Ok(gone.len() as u64)
    }
}

struct Evicted {
    evicted: u64,
    bytes_left: u64,
}

fn delete(conn: &Connection, seq: i64) -> rusqlite::Result<()> {
    for sql in [
        "DELETE FROM chunks WHERE handle = ?1",
        "DELETE FROM blocks WHERE handle = ?1",
        "DELETE FROM handles WHERE seq = ?1",
    ] {
        conn.prepare_cached(sql)?.execute([seq])?;
    }
    Ok(())
}

/// The result of this name and owner, unless its time is over. Whatever the reason, there is one answer for "no".
fn find(conn: &Connection, owner: &str, id: HandleId, now_ms: i64) -> Result<Found, Work> {
    conn.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM handles \
         WHERE id = ?1 AND owner = ?2 AND pending = 0 AND expires_ms > ?3"
    ))?
    .query_row(params![id.to_string(), owner, now_ms], found_of)
    .optional()?
    .ok_or(Work::Own(Error::Unknown))
}

/// All results of an owner, newest first.
fn list(conn: &Connection, owner: &str, now_ms: i64) -> rusqlite::Result<Vec<HandleInfo>> {
    conn.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM handles WHERE owner = ?1 AND pending = 0 AND expires_ms > ?2 \
         ORDER BY created_ms DESC, seq DESC"
    ))?
    .query_map(params![owner, now_ms], found_of)?
    .map(|row| row.map(|found| found.info))
    .collect()
}

fn found_of(row: &Row<'_>) -> rusqlite::Result<Found> {
    let broken = |column: usize| {
        rusqlite::Error::InvalidColumnType(column, String::new(), rusqlite::types::Type::Text)
    };
    let source = row
        .get::<_, Option<Vec<u8>>>(8)?
        .map(|path| -> rusqlite::Result<_> {
            use std::os::unix::ffi::OsStringExt;
            Ok(SourceStamp {
                path: std::ffi::OsString::from_vec(path).into(),
                size: row.get::<_, i64>(9)? as u64,
                mtime_ns: row.get(10)?,
                sha256: row.get(11)?,
            })
        })
        .transpose()?;
    let (meta, rules) = parse_meta(&row.get::<_, String>(3)?).ok_or_else(|| broken(3))?;
    Ok(Found {
        seq: row.get(0)?,
        info: HandleInfo {
            id: HandleId::parse(&row.get::<_, String>(1)?).ok_or_else(|| broken(1))?,
            kind: row.get(2)?,
            meta,
            rules,
            kept: if row.get(4)? { Kept::File } else { Kept::Bytes },
            total_bytes: row.get::<_, i64>(5)? as u64,
            created: from_millis(row.get(6)?),
            expires: from_millis(row.get(7)?),
            source,
        },
    })
}

fn insert_block(conn: &Connection, handle: i64, n: u64, block: &Packed) -> rusqlite::Result<()> {
    conn.prepare_cached("INSERT INTO blocks (handle, n, codec, data) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![handle, n as i64, block.codec, block.data])?;
    Ok(())
}

/// Fetches blocks `first..=last` in order.
fn fetch_blocks(
    conn: &Connection,
    handle: i64,
    first: u64,
    last: u64,
) -> rusqlite::Result<Vec<Packed>> {
    conn.prepare_cached(
        "SELECT codec, data FROM blocks WHERE handle = ?1 AND n BETWEEN ?2 AND ?3 ORDER BY n",
    )?
    .query_map(params![handle, first as i64, last as i64], |row| {
        Ok(Packed {
            codec: row.get(0)?,
            data: row.get(1)?,
        })
    })?
    .collect()
}

fn still_there(changed: usize) -> Result<(), Work> {
    match changed {
        1 => Ok(()),
        _ => Err(Work::Own(paused_too_long())),
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
