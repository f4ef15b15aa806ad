//! Removing what is too old, a few rows at a time, and looking for damage.

use super::{LOCK, PostgresHistory, object_id, unavailable};
use crate::entry::ObjectId;
use crate::error::Result;
use crate::history::HistoryCheck;
use crate::retention::{
    ABSENCE_GENERATIONS, DAY_MS, ENTRIES_AT_ONCE, OBJECTS_AT_ONCE, UNUSED_OBJECT_AGE,
};

/// The newest contents that a check reads.
const CHECKED_OBJECTS: i64 = 200;
/// Days after which a workspace that no server has used is removed, and how often rows of it are at a time.
const ABANDONED_DAYS: i32 = 90;
const ABANDONED_BATCHES: usize = 50;

impl PostgresHistory {
    pub(super) fn remove_old_entries(&self, keep_days: u32) -> Result<u64> {
        self.remove_entries(Some(i64::from(keep_days) * DAY_MS))
    }

    pub(super) fn remove_oldest_entries(&self) -> Result<u64> {
        self.remove_entries(None)
    }

    /// Removes some entries from the old end up to the first that is younger than this, whatever the clock did since.
    fn remove_entries(&self, keep_ms: Option<i64>) -> Result<u64> {
        let number = self.number()?;
        let now = self.clock.manual_ms();
        let removed = self.run(async |tx| {
            let sql = "WITH young AS (SELECT min(id) AS id FROM llmc.history_entries WHERE workspace = $1 AND time_ms >= \
                         coalesce($2::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) - $3::bigint), \
                       last AS (SELECT max(id) AS id FROM (SELECT e.id FROM llmc.history_entries AS e, young \
                         WHERE workspace = $1 AND (young.id IS NULL OR e.id < young.id) ORDER BY e.id LIMIT $4) AS old), \
                       changes AS (DELETE FROM llmc.history_changes AS c USING last \
                         WHERE c.workspace = $1 AND c.entry <= last.id), \
                       entries AS (DELETE FROM llmc.history_entries AS e USING last \
                         WHERE e.workspace = $1 AND e.id <= last.id RETURNING 1) \
                       SELECT count(*) FROM entries";
            let (_, rows) = tx
                .query_both_and_commit(
                    (LOCK, &[&number]),
                    (sql, &[&number, &now, &keep_ms, &ENTRIES_AT_ONCE]),
                )
                .await?;
            let row = rows.first().ok_or(llmc_store::Error::Lost)?;
            Ok(row.try_get::<_, i64>(0)?)
        })?;
        Ok(removed.cast_unsigned())
    }

    pub(super) fn remove_unused_objects(&self, from: i64) -> Result<(u64, Option<i64>)> {
        let number = self.number()?;
        let age_s = i64::try_from(UNUSED_OBJECT_AGE.as_secs()).unwrap_or(i64::MAX);
        self.run(async |tx| {
            let sql = "WITH page AS (SELECT max(number) AS last FROM (SELECT number FROM llmc.history_objects \
                         WHERE workspace = $1 AND number > $2 ORDER BY number LIMIT $3) AS part), \
                       gone AS (DELETE FROM llmc.history_objects AS o USING page \
                         WHERE o.workspace = $1 AND o.number > $2 AND o.number <= page.last \
                           AND o.added_at < clock_timestamp() - $4::bigint * interval '1 second' \
                           AND (NOT o.is_complete OR ( \
                             NOT EXISTS (SELECT 1 FROM llmc.history_snapshot AS s WHERE s.workspace = $1 AND s.id = o.id) \
                             AND NOT EXISTS (SELECT 1 FROM llmc.history_changes AS c WHERE c.workspace = $1 AND c.old_id = o.id) \
                             AND NOT EXISTS (SELECT 1 FROM llmc.history_changes AS c WHERE c.workspace = $1 AND c.new_id = o.id))) \
                         RETURNING 1) \
                       SELECT (SELECT count(*) FROM gone), (SELECT last FROM page)";
            let (_, rows) = tx
                .query_both_and_commit(
                    (LOCK, &[&number]),
                    (sql, &[&number, &from, &OBJECTS_AT_ONCE, &age_s]),
                )
                .await?;
            let row = rows.first().ok_or(llmc_store::Error::Lost)?;
            Ok((row.try_get::<_, i64>(0)?.cast_unsigned(), row.try_get(1)?))
        })
    }

    /// Removes rows of paths that went so long ago that every server has learnt of it, in all likelihood: one that has not
    /// finds the path missing by itself.
    pub(super) fn remove_rest(&self) -> Result<()> {
        let number = self.number()?;
        self.remove_abandoned(number)?;
        self.run(async |tx| {
            let sql = "DELETE FROM llmc.history_snapshot AS s USING llmc.history_workspaces AS w \
                       WHERE s.workspace = $1 AND w.number = $1 AND s.kind = 0 AND s.gen < w.generation - $2::bigint";
            tx.query_both_and_commit((LOCK, &[&number]), (sql, &[&number, &ABSENCE_GENERATIONS]))
                .await?;
            Ok(())
        })
    }

    /// Removes some rows of a workspace that no server has used for long: its folder may be gone.
    fn remove_abandoned(&self, own: i64) -> Result<()> {
        let found = self.run(async |tx| {
            let keep = "UPDATE llmc.history_workspaces SET used_on = current_date WHERE number = $1 AND used_on < current_date";
            // A server that comes back to it finds another store, and begins anew.
            let find = "UPDATE llmc.history_workspaces SET key = 'abandoned ' || number, store_number = 0 WHERE number = ( \
                        SELECT number FROM llmc.history_workspaces WHERE used_on < current_date - $1::integer LIMIT 1) \
                        RETURNING number";
            let (_, rows) = tx
                .query_both_and_commit((keep, &[&own]), (find, &[&ABANDONED_DAYS]))
                .await?;
            let number = rows.first().map(|row| row.try_get::<_, i64>(0));
            Ok(number.transpose()?)
        })?;
        let Some(abandoned) = found else {
            return Ok(());
        };
        for _ in 0..ABANDONED_BATCHES {
            let removed = self.run(async |tx| {
                let some = |table: &str| {
                    format!(
                        "DELETE FROM llmc.{table} WHERE ctid = ANY(ARRAY( \
                         SELECT ctid FROM llmc.{table} WHERE workspace = $1 LIMIT {OBJECTS_AT_ONCE})) RETURNING 1"
                    )
                };
                let sql = format!(
                    "WITH entries AS ({}), changes AS ({}), states AS ({}), contents AS ({}), calls AS ({}), plans AS ({}) \
                     SELECT (SELECT count(*) FROM entries) + (SELECT count(*) FROM changes) + \
                       (SELECT count(*) FROM states) + (SELECT count(*) FROM contents)",
                    some("history_entries"),
                    some("history_changes"),
                    some("history_snapshot"),
                    some("history_objects"),
                    some("history_active"),
                    some("history_plans"),
                );
                let (_, rows) = tx
                    .query_both_and_commit((LOCK, &[&abandoned]), (&sql, &[&abandoned]))
                    .await?;
                let row = rows.first().ok_or(llmc_store::Error::Lost)?;
                Ok(row.try_get::<_, i64>(0)?)
            })?;
            if removed == 0 {
                return self.run(async |tx| {
                    let sql = "DELETE FROM llmc.history_workspaces WHERE number = $1 \
                               AND used_on < current_date - $2::integer";
                    tx.query_and_commit(sql, &[&abandoned, &ABANDONED_DAYS])
                        .await?;
                    Ok(())
                });
            }
        }
        Ok(())
    }

    pub(super) fn check_rows(&self) -> Result<HistoryCheck> {
        let Some(number) = self.existing_number()? else {
            return Ok(HistoryCheck::default());
        };
        let bytes = self.count_bytes()?;
        let (entries, objects, lost, plans) = self.run(async |tx| {
            let sql = "SELECT (SELECT count(*) FROM llmc.history_entries WHERE workspace = $1), \
                       (SELECT count(*) FROM llmc.history_objects WHERE workspace = $1 AND is_complete), \
                       (SELECT count(*) FROM llmc.history_changes AS c WHERE workspace = $1 AND old_id IS NOT NULL \
                         AND NOT EXISTS (SELECT 1 FROM llmc.history_objects AS o \
                           WHERE o.workspace = $1 AND o.is_complete AND o.id = c.old_id)), \
                       (SELECT count(*) FROM llmc.history_plans WHERE workspace = $1)";
            let rows = tx.query_and_commit(sql, &[&number]).await?;
            let row = rows.first().ok_or(llmc_store::Error::Lost)?;
            let count = |column| -> llmc_store::Result<u64> {
                Ok(row.try_get::<_, i64>(column)?.cast_unsigned())
            };
            Ok((count(0)?, count(1)?, count(2)?, count(3)?))
        })?;
        let mut problems = Vec::new();
        if lost > 0 {
            problems.push(format!(
                "the earlier contents of {lost} changes are missing"
            ));
        }
        if plans > 0 {
            problems.push("an undo is unfinished; the next call finishes it".to_owned());
        }
        Ok(HistoryCheck {
            entries,
            objects,
            bytes,
            problems,
        })
    }

    pub(super) fn sample_objects(&self, after: i64) -> Result<Vec<(i64, ObjectId)>> {
        let Some(number) = self.existing_number()? else {
            return Ok(Vec::new());
        };
        let rows = self.run(async |tx| {
            let sql = "SELECT number, id FROM (SELECT number, id FROM llmc.history_objects \
                         WHERE workspace = $1 AND is_complete ORDER BY number DESC LIMIT $3) AS newest \
                       WHERE number > $2 ORDER BY number";
            tx.query_and_commit(sql, &[&number, &after, &CHECKED_OBJECTS])
                .await
        })?;
        let mut found = Vec::new();
        for row in &rows {
            let number = row.try_get(0).map_err(|error| unavailable(error.into()))?;
            let id = object_id(row, 1).map_err(unavailable)?;
            found.extend(id.map(|id| (number, id)));
        }
        Ok(found)
    }
}
