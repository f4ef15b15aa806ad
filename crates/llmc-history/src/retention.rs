//! How long entries stay, and whether the store is sound.

use std::time::Duration;

use rusqlite::{Connection, params};

use crate::error::Result;
use crate::history::{HistoryCheck, HistorySwept, Inner};
use crate::store;

const DAY_MS: i64 = 24 * 3600 * 1000;
/// Entries removed in one transaction, and objects looked at: other processes wait meanwhile.
const ENTRIES_AT_ONCE: i64 = 200;
const OBJECTS_AT_ONCE: i64 = 2_000;
/// A content without an entry may belong to one that is about to be written.
const UNUSED_OBJECT_AGE: Duration = Duration::from_secs(3600);
/// When the store is full, the oldest entries go until this part of it is used.
const FILL_TARGET_PERCENT: u64 = 90;
/// Writes for which the absence of a path is remembered.
const ABSENCE_GENERATIONS: i64 = 10_000;
/// Pages given back to the file system at a time.
const SHRINK_PAGES: u32 = 2_000;
/// Damaged contents that a check names.
const MAX_PROBLEMS: usize = 10;

impl Inner {
    /// Removes entries that are too old, the oldest while the store is too large, and contents without an entry.
    pub(crate) fn sweep(&self) -> Result<HistorySwept> {
        let now_ms = self.clock.now_ms();
        let oldest_ms = now_ms.saturating_sub(i64::from(self.settings.keep_days) * DAY_MS);
        let mut swept = HistorySwept::default();
        loop {
            let removed = self.store.write(|conn| remove_old(conn, oldest_ms))?;
            swept.entries += removed;
            if removed == 0 {
                break;
            }
        }
        swept.objects += self.remove_unused(now_ms, UNUSED_OBJECT_AGE)?;
        let target = self.settings.max_bytes / 100 * FILL_TARGET_PERCENT;
        let mut is_full = self.store.read(used)? > self.settings.max_bytes;
        while is_full {
            let removed = self.store.write(remove_oldest)?;
            swept.entries += removed;
            swept.objects += self.remove_unused(now_ms, UNUSED_OBJECT_AGE)?;
            is_full = removed > 0 && self.store.read(used)? > target;
        }
        self.store.write(remove_old_absences)?;
        self.store.shrink(SHRINK_PAGES)?;
        Ok(swept)
    }

    fn remove_unused(&self, now_ms: i64, age: Duration) -> Result<u64> {
        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        let before_ms = now_ms.saturating_sub(age);
        let mut removed = 0;
        let mut from = 0;
        loop {
            let (count, next) = self
                .store
                .write(|conn| remove_unused_objects(conn, from, before_ms))?;
            removed += count;
            match next {
                Some(next) => from = next,
                None => return Ok(removed),
            }
        }
    }

    /// Looks for damage: of the file, and of every content.
    pub(crate) fn check(&self) -> Result<HistoryCheck> {
        let mut check = self.store.read(|conn| {
            let count = |table: &str| -> rusqlite::Result<u64> {
                let sql = format!("SELECT count(*) FROM {table}");
                let count: i64 = conn.query_row(&sql, [], |row| row.get(0))?;
                Ok(count.cast_unsigned())
            };
            let verdict: String = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
            let mut problems = Vec::new();
            if verdict != "ok" {
                problems.push(format!("the store's file is damaged: {verdict}"));
            }
            let lost: i64 = conn.query_row(
                "SELECT count(*) FROM changes WHERE old_id IS NOT NULL AND old_id NOT IN (SELECT id FROM objects)",
                [],
                |row| row.get(0),
            )?;
            if lost > 0 {
                problems.push(format!("the earlier contents of {lost} changes are missing"));
            }
            let plans: i64 = conn.query_row("SELECT count(*) FROM plans", [], |row| row.get(0))?;
            if plans > 0 {
                problems.push("an undo is unfinished; the next call finishes it".to_owned());
            }
            Ok::<_, rusqlite::Error>(HistoryCheck {
                entries: count("entries")?,
                objects: count("objects")?,
                bytes: store::used_bytes(conn)?,
                problems,
            })
        })?;
        let mut from = 0;
        while check.problems.len() < MAX_PROBLEMS {
            let ids = self.store.read(|conn| {
                conn.prepare_cached(
                    "SELECT number, id FROM objects WHERE number > ?1 ORDER BY number LIMIT 200",
                )?
                .query_map([from], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<rusqlite::Result<Vec<(i64, crate::entry::ObjectId)>>>()
            })?;
            let Some((last, _)) = ids.last() else { break };
            from = *last;
            for (_, id) in &ids {
                if let Err(error) = self.content(id) {
                    check.problems.push(error.to_string());
                }
            }
        }
        Ok(check)
    }
}

fn used(conn: &Connection) -> rusqlite::Result<u64> {
    store::used_bytes(conn)
}

/// Removes some entries from the old end up to the first that is young enough, whatever the clock did since.
fn remove_old(conn: &Connection, oldest_ms: i64) -> rusqlite::Result<u64> {
    let young: i64 = conn.query_row(
        "SELECT coalesce(min(id), ?2) FROM entries WHERE time_ms >= ?1",
        params![oldest_ms, i64::MAX],
        |row| row.get(0),
    )?;
    remove_before(conn, young)
}

/// Removes rows that tell other servers of a path's absence, once every server has written since, in all likelihood: one that
/// has not finds the path missing by itself.
fn remove_old_absences(conn: &Connection) -> rusqlite::Result<usize> {
    let generation = store::number(conn, "generation")?;
    conn.execute(
        "DELETE FROM snapshot WHERE kind = 0 AND gen < ?1",
        [generation - ABSENCE_GENERATIONS],
    )
}

fn remove_oldest(conn: &Connection) -> rusqlite::Result<u64> {
    remove_before(conn, i64::MAX)
}

fn remove_before(conn: &Connection, before: i64) -> rusqlite::Result<u64> {
    let last: Option<i64> = conn.query_row(
        "SELECT max(id) FROM (SELECT id FROM entries WHERE id < ?1 ORDER BY id LIMIT ?2)",
        params![before, ENTRIES_AT_ONCE],
        |row| row.get(0),
    )?;
    let Some(last) = last else { return Ok(0) };
    conn.execute("DELETE FROM changes WHERE entry <= ?1", [last])?;
    let removed = conn.execute("DELETE FROM entries WHERE id <= ?1", [last])?;
    Ok(removed as u64)
}

/// Removes contents that neither an entry nor the snapshot refers to; where to go on.
fn remove_unused_objects(
    conn: &Connection,
    from: i64,
    before_ms: i64,
) -> rusqlite::Result<(u64, Option<i64>)> {
    let last: Option<i64> = conn.query_row(
        "SELECT max(number) FROM (SELECT number FROM objects WHERE number > ?1 ORDER BY number LIMIT ?2)",
        params![from, OBJECTS_AT_ONCE],
        |row| row.get(0),
    )?;
    let Some(last) = last else {
        return Ok((0, None));
    };
    let removed = conn.execute(
        "DELETE FROM objects WHERE number > ?1 AND number <= ?2 AND added_ms < ?3
           AND NOT EXISTS (SELECT 1 FROM snapshot WHERE snapshot.id = objects.id)
           AND NOT EXISTS (SELECT 1 FROM changes WHERE old_id = objects.id)
           AND NOT EXISTS (SELECT 1 FROM changes WHERE new_id = objects.id)",
        params![from, last, before_ms],
    )?;
    Ok((removed as u64, Some(last)))
}
