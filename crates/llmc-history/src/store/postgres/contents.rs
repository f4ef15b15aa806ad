//! Contents by blob id. A small one is one row; a large one is a row and chunks of it, so that no message is large.
//!
//! The size limit holds for a workspace. Adding up all rows at each write would cost more than the write, so a server does that
//! when it has written a sixty-fourth of the limit since it last did; the limit is exceeded by at most that much for each
//! server.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use llmc_host::lock;

use super::{LOCK, PostgresHistory, object_id, unavailable};
use crate::entry::ObjectId;
use crate::error::Result;
use crate::objects::PackedObject;

/// Bytes of a chunk, and of a content that is one row.
const CHUNK_BYTES: usize = 1 << 20;
/// Bytes that are sent or read in one transaction.
const MESSAGE_BYTES: usize = 4 << 20;
/// What a row weighs besides its content.
const ROW_BYTES: u64 = 200;

const ADD: &str = "INSERT INTO llmc.history_objects (workspace, id, size, is_compressed, bytes, is_complete, body) \
    SELECT $1, o.id, o.size, o.is_compressed, octet_length(o.body), true, o.body \
    FROM unnest($2::bytea[], $3::bigint[], $4::boolean[], $5::bytea[]) AS o (id, size, is_compressed, body) \
    ON CONFLICT (tenant, workspace, id) WHERE is_complete DO NOTHING";

/// How many bytes the workspace uses, as far as this server knows.
pub(super) struct UsedBytes {
    max: u64,
    counted: Mutex<Option<Counted>>,
}

#[derive(Clone, Copy)]
struct Counted {
    bytes: u64,
    added_since: u64,
}

impl UsedBytes {
    pub(super) fn new(max: u64) -> UsedBytes {
        UsedBytes {
            max,
            counted: Mutex::default(),
        }
    }

    pub(super) fn add(&self, objects: &[Arc<PackedObject>]) {
        let sizes = objects.iter().map(|object| weight(object));
        let bytes: u64 = sizes.sum();
        if let Some(counted) = lock(&self.counted).as_mut() {
            counted.bytes = counted.bytes.saturating_add(bytes);
            counted.added_since = counted.added_since.saturating_add(bytes);
        }
    }
}

fn weight(object: &PackedObject) -> u64 {
    object.body.len() as u64 + ROW_BYTES
}

/// Columns of contents that go into one statement.
#[derive(Default)]
pub(super) struct ObjectColumns<'a> {
    pub(super) ids: Vec<&'a [u8]>,
    pub(super) sizes: Vec<i64>,
    pub(super) are_compressed: Vec<bool>,
    pub(super) bodies: Vec<&'a [u8]>,
}

impl<'a> ObjectColumns<'a> {
    pub(super) fn of(objects: impl IntoIterator<Item = &'a Arc<PackedObject>>) -> Self {
        let mut columns = ObjectColumns::default();
        for object in objects {
            columns.ids.push(&object.id.0);
            columns.sizes.push(size_of(object));
            columns.are_compressed.push(object.is_compressed);
            columns.bodies.push(&object.body);
        }
        columns
    }
}

fn size_of(object: &PackedObject) -> i64 {
    i64::try_from(object.size).unwrap_or(i64::MAX)
}

impl PostgresHistory {
    /// Adds up all rows.
    pub(super) fn count_bytes(&self) -> Result<u64> {
        let number = self.number()?;
        let bytes = self.run(async |tx| {
            let sql = "SELECT coalesce(sum(bytes), 0)::bigint, count(*) FROM llmc.history_objects WHERE workspace = $1";
            let rows = tx.query_and_commit(sql, &[&number]).await?;
            let row = rows.first().ok_or(llmc_store::Error::Lost)?;
            let (bytes, rows): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            Ok(bytes.cast_unsigned() + rows.cast_unsigned() * ROW_BYTES)
        })?;
        *lock(&self.used.counted) = Some(Counted {
            bytes,
            added_since: 0,
        });
        Ok(bytes)
    }

    /// The bytes in use, within a sixty-fourth of the limit for each server.
    pub(super) fn used_about(&self) -> Result<u64> {
        let counted = *lock(&self.used.counted);
        match counted {
            Some(counted) if counted.added_since <= self.used.max / 64 => Ok(counted.bytes),
            _ => self.count_bytes(),
        }
    }

    pub(super) fn stored_of(&self, ids: &[ObjectId]) -> Result<HashSet<ObjectId>> {
        if ids.is_empty() {
            return Ok(HashSet::new());
        }
        let number = self.number()?;
        let ids: Vec<&[u8]> = ids.iter().map(|id| id.0.as_slice()).collect();
        let rows = self.run(async |tx| {
            // What is about to be referred to counts as new, so that retention leaves it.
            let touch = "UPDATE llmc.history_objects SET added_at = clock_timestamp() WHERE workspace = $1 AND is_complete \
                         AND id = ANY($2) AND added_at < clock_timestamp() - interval '30 minutes'";
            let find = "SELECT id FROM llmc.history_objects WHERE workspace = $1 AND is_complete AND id = ANY($2)";
            let params: [&(dyn llmc_store::ToSql + Sync); 2] = [&number, &ids];
            let (_, rows) = tx
                .query_both_and_commit((touch, &params), (find, &params))
                .await?;
            Ok(rows)
        })?;
        let ids = rows.iter().filter_map(|row| object_id(row, 0).transpose());
        ids.collect::<llmc_store::Result<_>>().map_err(unavailable)
    }

    /// Stores contents; `false` when there was no room for all of them.
    pub(super) fn upload(&self, objects: &[Arc<PackedObject>], max_bytes: u64) -> Result<bool> {
        let ids: Vec<ObjectId> = objects.iter().map(|object| object.id).collect();
        let mut stored = self.stored_of(&ids)?;
        let mut used = self.used_about()?;
        let mut batch: Vec<Arc<PackedObject>> = Vec::new();
        let mut batch_bytes = 0;
        let mut fits = true;
        for object in objects {
            if !stored.insert(object.id) {
                continue;
            }
            if used > max_bytes {
                fits = false;
                break;
            }
            used += weight(object);
            if object.body.len() > CHUNK_BYTES {
                self.upload_in_chunks(object)?;
                continue;
            }
            batch_bytes += object.body.len();
            batch.push(Arc::clone(object));
            if batch_bytes > MESSAGE_BYTES {
                self.upload_batch(&std::mem::take(&mut batch))?;
                batch_bytes = 0;
            }
        }
        self.upload_batch(&batch)?;
        Ok(fits)
    }

    fn upload_batch(&self, objects: &[Arc<PackedObject>]) -> Result<()> {
        if objects.is_empty() {
            return Ok(());
        }
        let number = self.number()?;
        let columns = ObjectColumns::of(objects);
        self.run(async |tx| {
            let ObjectColumns {
                ids,
                sizes,
                are_compressed,
                bodies,
            } = &columns;
            tx.query_and_commit(ADD, &[&number, ids, sizes, are_compressed, bodies])
                .await?;
            Ok(())
        })?;
        self.used.add(objects);
        Ok(())
    }

    /// Stores a large content in several transactions; it counts when all of it is there. What a killed server leaves is
    /// removed by retention.
    fn upload_in_chunks(&self, object: &Arc<PackedObject>) -> Result<()> {
        let number = self.number()?;
        let (id, size) = (object.id.0.as_slice(), size_of(object));
        let bytes = i64::try_from(object.body.len()).unwrap_or(i64::MAX);
        let row: i64 = self.run(async |tx| {
            let sql = "INSERT INTO llmc.history_objects (workspace, id, size, is_compressed, bytes, is_complete) \
                       VALUES ($1, $2, $3, $4, $5, false) RETURNING number";
            let params: [&(dyn llmc_store::ToSql + Sync); 5] =
                [&number, &id, &size, &object.is_compressed, &bytes];
            let rows = tx.query_and_commit(sql, &params).await?;
            let row = rows.first().ok_or(llmc_store::Error::Lost)?;
            Ok(row.try_get(0)?)
        })?;
        let chunks: Vec<&[u8]> = object.body.chunks(CHUNK_BYTES).collect();
        let per_message = MESSAGE_BYTES / CHUNK_BYTES;
        for (at, part) in chunks.chunks(per_message).enumerate() {
            let first = i64::try_from(at * per_message).unwrap_or(0);
            self.run(async |tx| {
                let sql = "INSERT INTO llmc.history_chunks (object, n, data) \
                           SELECT $1, $2::bigint + part.n - 1, part.data \
                           FROM unnest($3::bytea[]) WITH ORDINALITY AS part (data, n) \
                           ON CONFLICT (tenant, object, n) DO NOTHING";
                tx.query_and_commit(sql, &[&row, &first, &part]).await?;
                Ok(())
            })?;
        }
        self.run(async |tx| {
            // Another server may have stored the same meanwhile, and one row is enough.
            let complete = "UPDATE llmc.history_objects SET is_complete = true WHERE number = $2 AND NOT EXISTS ( \
                            SELECT 1 FROM llmc.history_objects WHERE workspace = $1 AND is_complete AND id = $3)";
            tx.query_both_and_commit((LOCK, &[&number]), (complete, &[&number, &row, &id]))
                .await?;
            Ok(())
        })?;
        self.used.add(std::slice::from_ref(object));
        Ok(())
    }

    pub(super) fn read_object(&self, id: &ObjectId) -> Result<Option<PackedObject>> {
        let number = self.number()?;
        let key = id.0.as_slice();
        let rows = self.run(async |tx| {
            let sql = "SELECT number, size, is_compressed, bytes, body FROM llmc.history_objects \
                       WHERE workspace = $1 AND is_complete AND id = $2";
            tx.query_and_commit(sql, &[&number, &key]).await
        })?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let number = |column| -> llmc_store::Result<i64> { Ok(row.try_get(column)?) };
        let (object, size, bytes) = (number(0), number(1), number(3));
        let is_compressed: llmc_store::Result<bool> = row.try_get(2).map_err(Into::into);
        let body: llmc_store::Result<Option<Vec<u8>>> = row.try_get(4).map_err(Into::into);
        let (object, size) = (object.map_err(unavailable)?, size.map_err(unavailable)?);
        let bytes = bytes.map_err(unavailable)?;
        let is_compressed = is_compressed.map_err(unavailable)?;
        let body = body.map_err(unavailable)?;
        let body = match body {
            Some(body) => body,
            None => self.read_chunks(object, usize::try_from(bytes).unwrap_or(0))?,
        };
        Ok(Some(PackedObject {
            id: *id,
            size: u64::try_from(size).unwrap_or(0),
            is_compressed,
            body,
        }))
    }

    fn read_chunks(&self, object: i64, bytes: usize) -> Result<Vec<u8>> {
        let mut body = Vec::with_capacity(bytes);
        let per_message = i64::try_from(MESSAGE_BYTES / CHUNK_BYTES).unwrap_or(1);
        let mut from: i64 = 0;
        while body.len() < bytes {
            let rows = self.run(async |tx| {
                let sql = "SELECT data FROM llmc.history_chunks WHERE object = $1 AND n >= $2 AND n < $2 + $3 ORDER BY n";
                tx.query_and_commit(sql, &[&object, &from, &per_message])
                    .await
            })?;
            if rows.is_empty() {
                // Shorter than it should be, which its hash tells.
                break;
            }
            for row in &rows {
                let data: llmc_store::Result<&[u8]> = row.try_get(0).map_err(Into::into);
                body.extend_from_slice(data.map_err(unavailable)?);
            }
            from += per_message;
        }
        Ok(body)
    }
}
