//! Vectors of units; see [`crate::vectors`].

use rusqlite::params;

use super::Catalog;
use super::rows::{file_of, signed, unsigned};
use crate::error::Result;

impl Catalog {
    /// The number of units.
    pub(crate) fn units(&self) -> Result<u64> {
        let count = self
            .conn
            .query_row("SELECT count(*) FROM units", [], |row| row.get(0));
        Ok(unsigned(count?))
    }

    /// Units without a vector, in the order of their ids: id, file, first and last line.
    pub(crate) fn without_vector(
        &self,
        after: i64,
        limit: usize,
    ) -> Result<Vec<(i64, u64, u32, u32)>> {
        let mut rows = self.conn.prepare_cached(
            "SELECT id, first, last FROM units WHERE id > ?
             AND NOT EXISTS (SELECT 1 FROM vectors WHERE unit = id) ORDER BY id LIMIT ?",
        )?;
        let rows = rows.query_map(params![after, signed(limit as u64)], |row| {
            let id: i64 = row.get(0)?;
            Ok((id, file_of(unsigned(id)), row.get(1)?, row.get(2)?))
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Stores vectors, without those of units that were removed meanwhile.
    pub(crate) fn put_vectors(&self, vectors: &[(i64, Vec<u8>)]) -> Result<()> {
        let mut put = self.conn.prepare_cached(
            "INSERT OR REPLACE INTO vectors SELECT id, ? FROM units WHERE id = ?",
        )?;
        for (unit, vector) in vectors {
            put.execute(params![vector, unit])?;
        }
        Ok(())
    }

    pub(crate) fn forget_vectors(&self) -> Result<()> {
        self.conn.execute("DELETE FROM vectors", [])?;
        Ok(())
    }

    /// Calls `take` with every vector.
    pub(crate) fn each_vector(&self, mut take: impl FnMut(i64, &[u8])) -> Result<()> {
        let mut rows = self
            .conn
            .prepare_cached("SELECT unit, vector FROM vectors")?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            if let Ok(vector) = row.get_ref(1)?.as_blob() {
                take(row.get(0)?, vector);
            }
        }
        Ok(())
    }
}
