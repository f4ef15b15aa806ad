//! The rows of the handle table, and the rules by which they come and go.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{
    Draft, Error, HandleId, HandleInfo, HandleStore, Kept, Meta, SourceStamp, WRITE_LEASE, Work,
    damaged,
};
use crate::clock::{from_millis, millis};
use crate::store::SqlSchema;

/// What a record weighs besides its payload, so that empty results cannot fill the store unseen.
const RECORD_BYTES: u64 = 512;

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

/// Where the rules of a result are kept in the column `meta`; no fact is called that.
const RULES_KEY: &str = "llmc:rules";

/// The columns that [`Found::from_row`] reads.
const COLUMNS: &str = "seq, id, kind, meta, kept, total_bytes, created_ms, expires_ms, \
                       source_path, source_size, source_mtime, source_sha";

/// A result and the number its blocks go by.
pub(super) struct Found {
    pub(super) seq: i64,
    pub(super) info: HandleInfo,
}

impl Found {
    pub(super) fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
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
        let mut meta: Meta =
            serde_json::from_str(&row.get::<_, String>(3)?).map_err(|_| broken(3))?;
        let rules = meta.remove(RULES_KEY);
        Ok(Self {
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

    /// Itself, if there is something to read.
    pub(super) fn with_bytes(self) -> Result<Self, Work> {
        match (self.info.kept, self.info.source.clone()) {
            (Kept::File, Some(stamp)) => Err(Work::Own(Error::StampOnly(Box::new(stamp)))),
            (Kept::File, None) => Err(Work::Own(damaged())),
            (Kept::Bytes, _) => Ok(self),
        }
    }
}

/// The result of this name and owner, unless its time is over. Whatever the reason, there is one answer for "no".
pub(super) fn find(
    conn: &Connection,
    owner: &str,
    id: HandleId,
    now_ms: i64,
) -> Result<Found, Work> {
    conn.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM handles \
         WHERE id = ?1 AND owner = ?2 AND pending = 0 AND expires_ms > ?3"
    ))?
    .query_row(params![id.to_string(), owner, now_ms], Found::from_row)
    .optional()?
    .ok_or(Work::Own(Error::Unknown))
}

/// All results of an owner, newest first.
pub(super) fn list(
    conn: &Connection,
    owner: &str,
    now_ms: i64,
) -> rusqlite::Result<Vec<HandleInfo>> {
    conn.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM handles WHERE owner = ?1 AND pending = 0 AND expires_ms > ?2 \
         ORDER BY created_ms DESC, seq DESC"
    ))?
    .query_map(params![owner, now_ms], Found::from_row)?
    .map(|row| row.map(|found| found.info))
    .collect()
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

impl HandleStore {
    pub(super) fn insert(
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

    pub(super) fn end_of_life(&self, draft: &Draft) -> i64 {
        let ttl = draft.ttl.unwrap_or(self.options.ttl);
        self.now().saturating_add(millis(ttl))
    }

    pub(super) fn lease_end(&self) -> i64 {
        self.now().saturating_add(millis(WRITE_LEASE))
    }

    pub(super) fn check_size(&self, payload_stored: u64) -> Result<(), Error> {
        let limit = self.options.max_bytes;
        if payload_stored.saturating_add(RECORD_BYTES) > limit {
            return Err(Error::TooLarge {
                bytes: payload_stored,
                limit,
            });
        }
        Ok(())
    }

    /// Brings the store back under its limit without touching `keep`, or fails and so undoes the caller's write.
    pub(super) fn make_room(&self, conn: &Connection, keep: i64) -> Result<(), Work> {
        let left = self.evict(conn, Some(keep))?.bytes_left;
        if left <= self.options.max_bytes {
            return Ok(());
        }
        Err(Work::Own(Error::Unavailable {
            cause: "full of results that are still being written".into(),
        }))
    }

    /// Whether a sweep would find something.
    pub(super) fn is_due(&self, conn: &Connection) -> rusqlite::Result<bool> {
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

    pub(super) fn evict(&self, conn: &Connection, keep: Option<i64>) -> Result<Evicted, Work> {
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

    pub(super) fn drop_expired(&self, conn: &Connection) -> Result<u64, Work> {
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

pub(super) struct Evicted {
    pub(super) evicted: u64,
    pub(super) bytes_left: u64,
}

pub(super) fn delete(conn: &Connection, seq: i64) -> rusqlite::Result<()> {
    for sql in [
        "DELETE FROM chunks WHERE handle = ?1",
        "DELETE FROM blocks WHERE handle = ?1",
        "DELETE FROM handles WHERE seq = ?1",
    ] {
        conn.prepare_cached(sql)?.execute([seq])?;
    }
    Ok(())
}

/// The column `meta`: the facts, and the rules beside them.
pub(super) fn meta_text(draft: &Draft) -> String {
    let mut meta = draft.meta.clone();
    if let Some(rules) = &draft.rules {
        meta.insert(RULES_KEY.to_owned(), rules.clone());
    }
    serde_json::to_string(&meta).unwrap_or_else(|_| "{}".into())
}
