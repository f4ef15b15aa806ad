//! Handles in the database that the servers of a team share.
//!
//! Times are those of the database, so that servers whose clocks differ agree on what has expired. Removing rows never
//! makes a reader wait, and two servers that remove rows at the same time take different ones.
//!
//! The size limit holds for a tenant. Adding up all rows at each write would cost more than the write, so a server does
//! that when it has written a sixty-fourth of the limit since it last did; the limit is exceeded by at most that much for
//! each server.

use std::sync::atomic::{AtomicU64, Ordering};

use llmc_store::{Database, IsLost, Row, TenantTransaction, ToSql};

use super::blocks::Packed;
use super::rows::{
    Found, FoundBlocks, HandleRows, Record, State, block_range, full_of_writes, meta_text,
    parse_meta, paused_too_long,
};
use super::{
    ChunkSpan, Draft, Error, HandleId, HandleInfo, Kept, Options, SourceStamp, Swept, Usage,
    WRITE_LEASE, damaged,
};
use crate::clock::{from_millis, millis};

/// The time: that of a test if it is given, else the database's.
const NOW: &str = "coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)";
/// Blocks that are sent in one statement.
const BLOCKS_PER_STATEMENT: usize = 16;
/// Expired results that one write removes at most.
const EXPIRED_PER_WRITE: i64 = 200;
/// The longest time to live, so that no sum overflows.
const MAX_TTL_MS: i64 = 1 << 50;
/// The columns that [`found_of`] reads.
const COLUMNS: &str = "seq, id, kind, meta, kept_file, total_bytes, created_ms, expires_ms, \
                       source_path, source_size, source_mtime, source_sha";

/// The rows of one tenant.
pub(super) struct PostgresHandles {
    database: Database,
    options: Options,
    /// Bytes written since the rows were last added up; more than any limit before the first time.
    unchecked_bytes: AtomicU64,
}

/// A failure inside a transaction.
enum Work {
    Own(Error),
    Store(llmc_store::Error),
}

impl PostgresHandles {
    pub(super) fn new(database: Database, options: Options) -> Self {
        Self {
            database,
            options,
            unchecked_bytes: AtomicU64::new(u64::MAX / 2),
        }
    }

    /// The time that statements go by: `None` for the database's own.
    fn now(&self) -> Option<i64> {
        self.options.clock.manual_ms()
    }

    fn run<T>(
        &self,
        work: impl AsyncFn(&TenantTransaction<'_>) -> Result<T, Work>,
    ) -> Result<T, Error> {
        self.database
            .transaction(work)
            .map_err(|failed| match failed {
                Work::Own(error) => error,
                Work::Store(error) => Error::Unavailable {
                    cause: error.to_string(),
                },
            })
    }

    fn ttl_ms(&self, draft: &Draft) -> i64 {
        millis(draft.ttl.unwrap_or(self.options.ttl)).min(MAX_TTL_MS)
    }

    fn max_bytes(&self) -> i64 {
        i64::try_from(self.options.max_bytes).unwrap_or(i64::MAX)
    }

    /// Makes a row, and its number. A row that is there already was made by the same call before its connection was lost.
    async fn insert(
        &self,
        tx: &TenantTransaction<'_>,
        record: &Record,
        draft: &Draft,
        state: State,
    ) -> Result<i64, Work> {
        let meta = meta_text(draft);
        let lives_ms = match state {
            State::Pending => millis(WRITE_LEASE),
            State::Complete => self.ttl_ms(draft),
        };
        let id = record.id.to_string();
        let source = draft.source.as_ref();
        let sql = format!(
            "INSERT INTO llmc.handles (id, owner, kind, meta, pending, kept_file, total_bytes, stored_bytes, \
             created_ms, expires_ms, source_path, source_size, source_mtime, source_sha) \
             SELECT $2::text, $3::bytea, $4::bytea, $5::text, $6::boolean, $7::boolean, $8::bigint, $9::bigint, \
             now_ms, now_ms + $10::bigint, $11::bytea, $12::bigint, $13::bigint, $14::text \
             FROM (SELECT {NOW} AS now_ms) AS clock \
             ON CONFLICT (tenant, id) DO NOTHING RETURNING seq"
        );
        let made = tx
            .query_opt(
                &sql,
                &[
                    &self.now(),
                    &id,
                    &draft.owner.as_bytes(),
                    &draft.kind.as_bytes(),
                    &meta,
                    &(state == State::Pending),
                    &(record.kept == Kept::File),
                    &(record.total as i64),
                    &(record.stored(&meta) as i64),
                    &lives_ms,
                    &source.map(|source| source.path.as_os_str().as_encoded_bytes()),
                    &source.map(|source| source.size as i64),
                    &source.map(|source| source.mtime_ns),
                    &source.map(|source| source.sha256.as_str()),
                ],
            )
            .await?;
        let row = match made {
            Some(row) => row,
            None => {
                tx.query_one("SELECT seq FROM llmc.handles WHERE id = $1", &[&id])
                    .await?
            }
        };
        field(&row, 0)
    }

    /// Brings the tenant back under its limit without touching `keep`, or fails and so undoes the caller's write.
    async fn make_room(
        &self,
        tx: &TenantTransaction<'_>,
        keep: i64,
        written: u64,
    ) -> Result<(), Work> {
        let unchecked = self.unchecked_bytes.fetch_add(written, Ordering::Relaxed);
        if unchecked.saturating_add(written) <= self.options.max_bytes / 64 {
            return Ok(());
        }
        self.drop_expired(tx).await?;
        let left = self.evict(tx, Some(keep)).await?.bytes_left;
        if left > self.options.max_bytes {
            return Err(Work::Own(full_of_writes()));
        }
        self.unchecked_bytes.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Removes expired rows that no other server is removing.
    async fn drop_expired(&self, tx: &TenantTransaction<'_>) -> Result<u64, Work> {
        let sql = format!(
            "DELETE FROM llmc.handles WHERE seq IN (SELECT seq FROM llmc.handles WHERE expires_ms <= {NOW} \
             ORDER BY expires_ms LIMIT $2::bigint FOR UPDATE SKIP LOCKED)"
        );
        Ok(tx.execute(&sql, &[&self.now(), &EXPIRED_PER_WRITE]).await?)
    }

    /// Removes the oldest rows while there are more bytes than the limit allows.
    async fn evict(&self, tx: &TenantTransaction<'_>, keep: Option<i64>) -> Result<Evicted, Work> {
        let stored = "SELECT coalesce(sum(stored_bytes), 0)::bigint FROM llmc.handles";
        let stored: i64 = field(&tx.query_one(stored, &[]).await?, 0)?;
        let excess = stored.saturating_sub(self.max_bytes());
        if excess <= 0 {
            return Ok(Evicted {
                count: 0,
                bytes_left: stored as u64,
            });
        }
        // Those before which fewer bytes are freed than must be.
        let oldest = "SELECT seq FROM (SELECT seq, stored_bytes, \
                      sum(stored_bytes) OVER (ORDER BY created_ms, seq) AS freed FROM llmc.handles \
                      WHERE NOT pending AND seq IS DISTINCT FROM $1::bigint) AS aged \
                      WHERE freed - stored_bytes < $2::bigint";
        let oldest: Vec<i64> = tx
            .query(oldest, &[&keep, &excess])
            .await?
            .iter()
            .map(|row| field(row, 0))
            .collect::<Result<_, _>>()?;
        let removed = tx
            .query(
                "DELETE FROM llmc.handles WHERE seq IN (SELECT seq FROM llmc.handles WHERE seq = ANY($1) \
                 ORDER BY seq FOR UPDATE SKIP LOCKED) RETURNING stored_bytes",
                &[&oldest],
            )
            .await?;
        let mut freed: i64 = 0;
        for row in &removed {
            freed += field::<i64>(row, 0)?;
        }
        // What another server is removing at this moment is as good as gone.
        let taken_by_others = oldest.len() > removed.len();
        let left = stored.saturating_sub(freed).max(0) as u64;
        Ok(Evicted {
            count: removed.len() as u64,
            bytes_left: match taken_by_others {
                true => left.min(self.options.max_bytes),
                false => left,
            },
        })
    }

    async fn find_row(
        &self,
        tx: &TenantTransaction<'_>,
        owner: &str,
        id: HandleId,
    ) -> Result<Found, Work> {
        let sql = format!(
            "SELECT {COLUMNS} FROM llmc.handles \
             WHERE id = $2 AND owner = $3 AND NOT pending AND expires_ms > {NOW}"
        );
        let found = tx
            .query_opt(&sql, &[&self.now(), &id.to_string(), &owner.as_bytes()])
            .await?;
        found_of(&found.ok_or(Work::Own(Error::Unknown))?)
    }
}

struct Evicted {
    count: u64,
    bytes_left: u64,
}

impl HandleRows for PostgresHandles {
    fn put(&self, record: &Record, draft: &Draft, blocks: &[Packed]) -> Result<(), Error> {
        self.run(async |tx| {
            let seq = self.insert(tx, record, draft, State::Complete).await?;
            insert_blocks(tx, seq, 0, blocks).await?;
            self.make_room(tx, seq, record.stored("")).await
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
        self.run(async |tx| {
            let seq = match row {
                Some(seq) => {
                    let sql = format!(
                        "UPDATE llmc.handles SET stored_bytes = $2::bigint, expires_ms = {NOW} + $3::bigint \
                         WHERE seq = $4 AND id = $5"
                    );
                    let params: &[&(dyn ToSql + Sync)] = &[
                        &self.now(),
                        &(record.stored("") as i64),
                        &millis(WRITE_LEASE),
                        &seq,
                        &record.id.to_string(),
                    ];
                    still_there(tx.execute(&sql, params).await?)?;
                    seq
                }
                None => self.insert(tx, record, draft, State::Pending).await?,
            };
            insert_blocks(tx, seq, n, std::slice::from_ref(block)).await?;
            self.make_room(tx, seq, block.stored_len()).await?;
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
        self.run(async |tx| {
            let seq = match row {
                Some(seq) => {
                    let meta = meta_text(draft);
                    let sql = format!(
                        "UPDATE llmc.handles SET pending = false, meta = $2, total_bytes = $3::bigint, \
                         stored_bytes = $4::bigint, created_ms = {NOW}, expires_ms = {NOW} + $5::bigint \
                         WHERE seq = $6 AND id = $7"
                    );
                    let params: &[&(dyn ToSql + Sync)] = &[
                        &self.now(),
                        &meta,
                        &(record.total as i64),
                        &(record.stored(&meta) as i64),
                        &self.ttl_ms(draft),
                        &seq,
                        &record.id.to_string(),
                    ];
                    still_there(tx.execute(&sql, params).await?)?;
                    seq
                }
                None => self.insert(tx, record, draft, State::Complete).await?,
            };
            let mut written = record.stored("");
            if let Some((n, block)) = last {
                insert_blocks(tx, seq, n, std::slice::from_ref(block)).await?;
                written = block.stored_len();
            }
            self.make_room(tx, seq, written).await
        })
    }

    fn abandon(&self, row: i64, id: HandleId) -> Result<(), Error> {
        self.run(async |tx| {
            let sql = "DELETE FROM llmc.handles WHERE seq = $1 AND id = $2";
            tx.execute(sql, &[&row, &id.to_string()]).await?;
            Ok(())
        })
    }

    fn find(&self, owner: &str, id: HandleId) -> Result<Found, Error> {
        self.run(async |tx| self.find_row(tx, owner, id).await)
    }

    fn blocks(
        &self,
        owner: &str,
        id: HandleId,
        offset: u64,
        limit: usize,
    ) -> Result<FoundBlocks, Error> {
        self.run(async |tx| {
            let found = self.find_row(tx, owner, id).await?;
            let found = found.with_bytes().map_err(Work::Own)?;
            let total = found.info.total_bytes;
            let Some((first, last)) = block_range(total, offset, limit).map_err(Work::Own)? else {
                return Ok(FoundBlocks {
                    total,
                    first: 0,
                    packed: Vec::new(),
                });
            };
            let sql = "SELECT codec, data FROM llmc.handle_blocks \
                       WHERE handle = $1 AND n BETWEEN $2 AND $3 ORDER BY n";
            let rows = tx
                .query(sql, &[&found.seq, &as_i64(first), &as_i64(last)])
                .await?;
            let mut packed = Vec::with_capacity(rows.len());
            for row in &rows {
                packed.push(Packed {
                    codec: field(row, 0)?,
                    data: field(row, 1)?,
                });
            }
            Ok(FoundBlocks {
                total,
                first,
                packed,
            })
        })
    }

    fn list(&self, owner: &str) -> Result<Vec<HandleInfo>, Error> {
        let sql = format!(
            "SELECT {COLUMNS} FROM llmc.handles WHERE owner = $2 AND NOT pending AND expires_ms > {NOW} \
             ORDER BY created_ms DESC, seq DESC"
        );
        self.run(async |tx| {
            let rows = tx.query(&sql, &[&self.now(), &owner.as_bytes()]).await?;
            rows.iter()
                .map(|row| found_of(row).map(|found| found.info))
                .collect()
        })
    }

    fn usage(&self) -> Result<Usage, Error> {
        let sql = format!(
            "SELECT count(*) FILTER (WHERE NOT pending AND expires_ms > {NOW}), \
             coalesce(sum(stored_bytes), 0)::bigint FROM llmc.handles"
        );
        self.run(async |tx| {
            let row = tx.query_one(&sql, &[&self.now()]).await?;
            Ok(Usage {
                count: field::<i64>(&row, 0)? as u64,
                bytes: field::<i64>(&row, 1)? as u64,
            })
        })
    }

    fn sweep(&self) -> Result<Swept, Error> {
        let mut swept = Swept::default();
        loop {
            let expired = self.run(async |tx| self.drop_expired(tx).await)?;
            swept.expired += expired;
            if (expired as i64) < EXPIRED_PER_WRITE {
                break;
            }
        }
        swept.evicted = self.run(async |tx| Ok(self.evict(tx, None).await?.count))?;
        Ok(swept)
    }

    fn last_chunk(
        &self,
        owner: &str,
        id: HandleId,
        budget: usize,
    ) -> Result<(Found, Option<(u64, u64)>), Error> {
        self.run(async |tx| {
            let found = self.find_row(tx, owner, id).await?;
            let found = found.with_bytes().map_err(Work::Own)?;
            let sql = "SELECT n, start + len FROM llmc.handle_chunks WHERE handle = $1 AND budget = $2 \
                       ORDER BY n DESC LIMIT 1";
            let last = tx
                .query_opt(sql, &[&found.seq, &as_i64(budget as u64)])
                .await?;
            let last = match last {
                Some(row) => Some((
                    field::<i64>(&row, 0)? as u64,
                    field::<i64>(&row, 1)? as u64,
                )),
                None => None,
            };
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
        let sql = "SELECT n, start, len FROM llmc.handle_chunks \
                   WHERE handle = $1 AND budget = $2 AND n BETWEEN $3 AND $4 ORDER BY n";
        self.run(async |tx| {
            let budget = as_i64(budget as u64);
            let rows = tx
                .query(sql, &[&row, &budget, &as_i64(first), &as_i64(last)])
                .await?;
            let mut spans = Vec::with_capacity(rows.len());
            for row in &rows {
                spans.push(ChunkSpan {
                    index: field::<i64>(row, 0)? as u64,
                    offset: field::<i64>(row, 1)? as u64,
                    len: field::<i64>(row, 2)? as u64,
                });
            }
            Ok(spans)
        })
    }

    fn remember(&self, found: &Found, budget: usize, spans: &[ChunkSpan]) -> Result<(), Error> {
        let numbers = |of: fn(&ChunkSpan) -> u64| -> Vec<i64> {
            spans.iter().map(|span| of(span) as i64).collect()
        };
        let index = numbers(|span| span.index);
        let start = numbers(|span| span.offset);
        let len = numbers(|span| span.len);
        let sql = "INSERT INTO llmc.handle_chunks (handle, budget, n, start, len) \
                   SELECT seq, $2::bigint, span.n, span.start, span.len FROM llmc.handles, \
                   unnest($3::bigint[], $4::bigint[], $5::bigint[]) AS span (n, start, len) \
                   WHERE seq = $1 AND id = $6 ON CONFLICT DO NOTHING";
        self.run(async |tx| {
            let (budget, id) = (as_i64(budget as u64), found.info.id.to_string());
            tx.execute(sql, &[&found.seq, &budget, &index, &start, &len, &id])
                .await?;
            Ok(())
        })
    }
}

async fn insert_blocks(
    tx: &TenantTransaction<'_>,
    handle: i64,
    first: u64,
    blocks: &[Packed],
) -> Result<(), Work> {
    let sql = "INSERT INTO llmc.handle_blocks (handle, n, codec, data) \
               SELECT $1::bigint, block.n, block.codec, block.data \
               FROM unnest($2::bigint[], $3::bigint[], $4::bytea[]) AS block (n, codec, data) \
               ON CONFLICT DO NOTHING";
    let mut n = as_i64(first);
    for part in blocks.chunks(BLOCKS_PER_STATEMENT) {
        let numbers: Vec<i64> = (n..).take(part.len()).collect();
        let codecs: Vec<i64> = part.iter().map(|block| block.codec).collect();
        let data: Vec<&[u8]> = part.iter().map(|block| block.data.as_slice()).collect();
        tx.execute(sql, &[&handle, &numbers, &codecs, &data])
            .await?;
        n += part.len() as i64;
    }
    Ok(())
}

fn found_of(row: &Row) -> Result<Found, Work> {
    use std::os::unix::ffi::OsStringExt;
    let broken = || Work::Own(damaged());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|_| broken());
    let source = match field::<Option<Vec<u8>>>(row, 8)? {
        Some(path) => Some(SourceStamp {
            path: std::ffi::OsString::from_vec(path).into(),
            size: field::<i64>(row, 9)? as u64,
            mtime_ns: field(row, 10)?,
            sha256: field(row, 11)?,
        }),
        None => None,
    };
    let (meta, rules) = parse_meta(field(row, 3)?).ok_or_else(broken)?;
    Ok(Found {
        seq: field(row, 0)?,
        info: HandleInfo {
            id: HandleId::parse(field(row, 1)?).ok_or_else(broken)?,
            kind: text(field(row, 2)?)?,
            meta,
            rules,
            kept: if field(row, 4)? {
                Kept::File
            } else {
                Kept::Bytes
            },
            total_bytes: field::<i64>(row, 5)? as u64,
            created: from_millis(field(row, 6)?),
            expires: from_millis(field(row, 7)?),
            source,
        },
    })
}

/// A column; what is not there or of another type is a failure of the store.
fn field<'r, T: llmc_store::FromSql<'r>>(row: &'r Row, column: usize) -> Result<T, Work> {
    row.try_get(column)
        .map_err(|error| Work::Store(error.into()))
}

fn as_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn still_there(changed: u64) -> Result<(), Work> {
    match changed {
        1 => Ok(()),
        _ => Err(Work::Own(paused_too_long())),
    }
}

impl From<llmc_store::Error> for Work {
    fn from(error: llmc_store::Error) -> Self {
        Work::Store(error)
    }
}

impl IsLost for Work {
    fn is_lost(&self) -> bool {
        matches!(self, Work::Store(error) if error.is_lost())
    }
}
