//! The history's SQL on SQLite: one file that all servers of a workspace on this machine share.
//!
//! A write is one immediate transaction. Which servers run is known by files that they keep locked.

mod rows;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use llmc_envelope::clock::{Clock, millis};
use llmc_envelope::store::{SqlLocation, SqlSchema, SqlStore};
use rusqlite::{Connection, OptionalExtension, Result as SqlResult, params};

use super::{
    BuildClaim, ChangeRow, ChosenEntries, CommitFound, CommitWork, Committed, HistoryRows, PlanId,
    StoreState, StoredEntry,
};
use crate::entry::{ChangeAuthor, Entry, EntryFilter, EntryId, HistoryViewer, ObjectId};
use crate::error::Result;
use crate::history::HistoryCheck;
use crate::objects::PackedObject;
use crate::retention::{ABSENCE_GENERATIONS, DAY_MS, UNUSED_OBJECT_AGE};
use crate::server::ServerMark;
use crate::snapshot::{Known, now_ns};
use rows::{
    add_object, apply, check, chosen_ids, entry, give_to_call, has_object, is_in_snapshot,
    list_entries, number, object, oldest_changes_since, remove_before, remove_plan,
    remove_unused_objects, set_number, snapshot_since, state, stored, stored_entry, used_bytes,
};

/// The store's file in the state directory.
pub const HISTORY_FILE: &str = "history.db";
/// The version of that file.
pub const HISTORY_VERSION: i32 = 1;
/// How long a call waits for what other servers record, all its transactions together: a stopped server may never release
/// it, and the answer then says that the change is not recorded.
const LOCK_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Pages given back to the file system at a time.
const SHRINK_PAGES: u32 = 2_000;
/// Files of the first snapshot that are read while calls wait.
const BUILD_BATCH: usize = 16;

const SCHEMA: SqlSchema = SqlSchema {
    version: HISTORY_VERSION,
    sql: "
CREATE TABLE numbers (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE objects (
    number INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, size INTEGER NOT NULL,
    compressed INTEGER NOT NULL, added_ms INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE snapshot (
    path BLOB PRIMARY KEY, gen INTEGER NOT NULL,
    kind INTEGER NOT NULL, mode INTEGER NOT NULL, size INTEGER NOT NULL, id BLOB, why INTEGER,
    mtime_ns INTEGER NOT NULL, ctime_ns INTEGER NOT NULL, inode INTEGER NOT NULL, flags INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX snapshot_gen ON snapshot (gen);
CREATE INDEX snapshot_id ON snapshot (id);
CREATE TABLE entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT, time_ms INTEGER NOT NULL, source INTEGER NOT NULL,
    principal TEXT NOT NULL, agent TEXT NOT NULL, session TEXT NOT NULL, tool TEXT NOT NULL, args TEXT NOT NULL,
    created INTEGER NOT NULL, changed INTEGER NOT NULL, deleted INTEGER NOT NULL, moved INTEGER NOT NULL,
    not_kept INTEGER NOT NULL, ignored INTEGER NOT NULL, shared INTEGER NOT NULL, head_before TEXT, head_after TEXT,
    undoes TEXT NOT NULL, steps TEXT NOT NULL, not_undoable TEXT);
CREATE INDEX entries_session ON entries (session);
CREATE TABLE changes (
    entry INTEGER NOT NULL, path BLOB NOT NULL, moved_from BLOB, moved_to BLOB,
    old_kind INTEGER NOT NULL, old_mode INTEGER NOT NULL, old_size INTEGER NOT NULL, old_id BLOB, old_why INTEGER,
    new_kind INTEGER NOT NULL, new_mode INTEGER NOT NULL, new_size INTEGER NOT NULL, new_id BLOB, new_why INTEGER,
    shared INTEGER NOT NULL, undone_by INTEGER, PRIMARY KEY (entry, path)) WITHOUT ROWID;
CREATE INDEX changes_path ON changes (path);
CREATE INDEX changes_old ON changes (old_id);
CREATE INDEX changes_new ON changes (new_id);
CREATE INDEX changes_undone ON changes (undone_by) WHERE undone_by IS NOT NULL;
CREATE TABLE active (call TEXT PRIMARY KEY, server TEXT NOT NULL, since_ms INTEGER NOT NULL, shared INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE plans (id INTEGER PRIMARY KEY AUTOINCREMENT, server TEXT NOT NULL, plan TEXT NOT NULL);
",
};

/// The history in a file.
pub(crate) struct SqliteHistory {
    store: SqlStore,
    server: ServerMark,
    clock: Clock,
}

impl SqliteHistory {
    pub(crate) fn open(state_dir: &Path) -> Result<SqliteHistory> {
        let file = SqlLocation::File(state_dir.join(HISTORY_FILE));
        let store = SqlStore::open_within(file, SCHEMA, LOCK_TIMEOUT)?;
        let server = ServerMark::new(state_dir)
            .map_err(|error| llmc_envelope::store::describe_io(&error))?;
        Ok(SqliteHistory {
            store,
            server,
            clock: Clock::system(),
        })
    }

    fn read<T>(&self, work: impl FnOnce(&Connection) -> SqlResult<T>) -> Result<T> {
        Ok(self.store.read(work)?)
    }

    fn write<T>(&self, work: impl FnOnce(&Connection) -> SqlResult<T>) -> Result<T> {
        Ok(self.store.write(work)?)
    }

    /// Counts the running calls, having removed those of servers that have ended.
    fn live_calls(&self, conn: &Connection) -> SqlResult<usize> {
        let rows: Vec<(String, String)> = conn
            .prepare_cached("SELECT call, server FROM active")?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<SqlResult<_>>()?;
        let mut live = 0;
        for (call, server) in rows {
            if self.server.is_dead(&server) {
                conn.execute("DELETE FROM active WHERE call = ?1", [call])?;
            } else {
                live += 1;
            }
        }
        Ok(live)
    }
}

impl HistoryRows for SqliteHistory {
    fn open(&self) -> Result<StoreState> {
        self.write(|conn| {
            if number(conn, "store")? == 0 {
                set_number(conn, "store", now_ns())?;
            }
            state(conn)
        })
    }

    fn load(&self, since: i64, each: &mut dyn FnMut(Vec<u8>, Option<Known>)) -> Result<StoreState> {
        self.read(|conn| {
            let state = state(conn)?;
            if state.generation > since {
                snapshot_since(conn, since, each)?;
            }
            Ok(state)
        })
    }

    fn list(&self, filter: &EntryFilter) -> Result<Vec<Entry>> {
        self.read(|conn| list_entries(conn, filter))
    }

    fn entry(&self, id: EntryId, viewer: &HistoryViewer) -> Result<Option<StoredEntry>> {
        self.read(|conn| stored_entry(conn, id, viewer))
    }

    fn choose(
        &self,
        chosen: &ChosenEntries<'_>,
        viewer: &HistoryViewer,
        max_changes: usize,
    ) -> Result<Vec<StoredEntry>> {
        self.read(|conn| {
            let mut found = Vec::new();
            let mut changes = 0;
            for id in chosen_ids(conn, chosen)? {
                let Some(entry) = stored_entry(conn, id, viewer)? else {
                    continue;
                };
                changes += entry.changes.len();
                found.push(entry);
                if changes > max_changes {
                    break;
                }
            }
            Ok(found)
        })
    }

    fn oldest_changes_since(
        &self,
        id: EntryId,
        viewer: &HistoryViewer,
    ) -> Result<Option<Vec<ChangeRow>>> {
        self.read(|conn| match entry(conn, id, viewer)? {
            None => Ok(None),
            Some(_) => Ok(Some(oldest_changes_since(conn, id)?)),
        })
    }

    fn newest_entries(&self, paths: &[&[u8]]) -> Result<HashMap<Vec<u8>, EntryId>> {
        self.read(|conn| {
            let mut newest = HashMap::new();
            let mut select =
                conn.prepare_cached("SELECT MAX(entry) FROM changes WHERE path = ?1")?;
            for path in paths {
                let id: Option<i64> = select.query_row([path], |row| row.get(0))?;
                newest.extend(id.map(|id| (path.to_vec(), EntryId(id.cast_unsigned()))));
            }
            Ok(newest)
        })
    }

    fn give_to_call(&self, id: EntryId, author: &ChangeAuthor, paths: &[Vec<u8>]) -> Result<bool> {
        self.write(|conn| give_to_call(conn, id, author, paths))
    }

    fn is_surely_stored(&self, id: &ObjectId) -> bool {
        self.read(|conn| has_object(conn, id)).unwrap_or(false)
    }

    fn stored(&self, ids: &[ObjectId]) -> Result<HashSet<ObjectId>> {
        self.read(|conn| stored(conn, ids))
    }

    fn object(&self, id: &ObjectId) -> Result<Option<PackedObject>> {
        self.read(|conn| object(conn, id))
    }

    fn add_objects(&self, objects: &[Arc<PackedObject>], max_bytes: u64) -> Result<bool> {
        let now_ms = self.clock.now_ms();
        self.write(|conn| {
            let mut used = used_bytes(conn)?;
            for object in objects {
                if used > max_bytes {
                    return Ok(false);
                }
                add_object(conn, object, now_ms)?;
                used += object.body.len() as u64;
            }
            Ok(true)
        })
    }

    fn max_inline_bytes(&self) -> Option<usize> {
        None
    }

    fn set_built(&self) -> Result<()> {
        self.write(|conn| set_number(conn, "built", 1))
    }

    fn claim_build(&self) -> Result<Option<BuildClaim>> {
        let claim = self.server.claim_build();
        Ok(claim.map(|file| BuildClaim {
            _release: Box::new(file),
        }))
    }

    fn build_batch(&self) -> usize {
        BUILD_BATCH
    }

    fn now_ms(&self) -> Result<i64> {
        Ok(self.clock.now_ms())
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn begin_call(&self, call: &str) -> Result<bool> {
        let now_ms = self.clock.now_ms();
        self.write(|conn| {
            let are_others = self.live_calls(conn)? > 0;
            if are_others {
                conn.execute("UPDATE active SET shared = 1", [])?;
            }
            conn.prepare_cached("INSERT INTO active VALUES (?1, ?2, ?3, ?4)")?
                .execute(params![call, self.server.name(), now_ms, are_others])?;
            Ok(are_others)
        })
    }

    fn end_call(&self, call: &str) -> Result<()> {
        self.write(|conn| conn.execute("DELETE FROM active WHERE call = ?1", [call]))?;
        Ok(())
    }

    fn active_calls(&self) -> Result<usize> {
        self.write(|conn| self.live_calls(conn))
    }

    fn add_plan(&self, plan: &str) -> Result<PlanId> {
        self.write(|conn| {
            conn.execute(
                "INSERT INTO plans (server, plan) VALUES (?1, ?2)",
                [self.server.name(), plan],
            )?;
            Ok(conn.last_insert_rowid().to_string())
        })
    }

    fn take_plans(&self) -> Result<Vec<(PlanId, String)>> {
        let plans = self.read(|conn| {
            conn.prepare_cached("SELECT id, server, plan FROM plans")?
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
                .collect::<SqlResult<Vec<(i64, String, String)>>>()
        })?;
        let mut taken = Vec::new();
        for (id, server, plan) in plans {
            if server != self.server.name() && !self.server.is_dead(&server) {
                continue;
            }
            // Of several processes one finishes it.
            let claimed = self.write(|conn| {
                conn.execute(
                    "UPDATE plans SET server = ?1 WHERE id = ?2 AND server = ?3",
                    params![self.server.name(), id, server],
                )
            });
            if matches!(claimed, Ok(1)) {
                taken.push((id.to_string(), plan));
            }
        }
        Ok(taken)
    }

    fn remove_plan(&self, id: &PlanId) -> Result<()> {
        self.write(|conn| remove_plan(conn, id))
    }

    fn commit(&self, work: &mut dyn CommitWork) -> Result<Option<Committed>> {
        let now_ms = self.clock.now_ms();
        self.write(|conn| {
            let state = state(conn)?;
            if state.number != work.store_number() {
                // Another process found the file damaged and began a new one.
                return Ok(None);
            }
            let mut learned = Vec::new();
            snapshot_since(conn, work.generation(), &mut |path, known| {
                learned.push((path, known));
            })?;
            work.learn(learned);
            let mut found = CommitFound {
                generation: state.generation,
                used_bytes: used_bytes(conn)?,
                ..CommitFound::default()
            };
            found.stored = stored(conn, &work.contents_to_check(found.used_bytes))?;
            for path in work.paths_to_check() {
                if is_in_snapshot(conn, path)? {
                    found.known_paths.insert(path.to_vec());
                }
            }
            let call = work.call().map(str::to_owned);
            if let Some(call) = &call {
                let mut select =
                    conn.prepare_cached("SELECT shared FROM active WHERE call = ?1")?;
                let shared = select.query_row([call], |row| row.get(0)).optional()?;
                found.was_shared = shared.unwrap_or(false);
            }
            let write = work.decide(found);
            let entry = apply(conn, &write, call.as_deref(), now_ms)?;
            Ok(Some(Committed {
                generation: write.generation,
                entry,
            }))
        })
    }

    fn remove_old(&self, keep_days: u32) -> Result<u64> {
        let oldest_ms = self.clock.now_ms() - i64::from(keep_days) * DAY_MS;
        self.write(|conn| {
            let young: i64 = conn.query_row(
                "SELECT coalesce(min(id), ?2) FROM entries WHERE time_ms >= ?1",
                params![oldest_ms, i64::MAX],
                |row| row.get(0),
            )?;
            remove_before(conn, young)
        })
    }

    fn remove_oldest(&self) -> Result<u64> {
        self.write(|conn| remove_before(conn, i64::MAX))
    }

    fn remove_unused(&self, from: i64) -> Result<(u64, Option<i64>)> {
        let before_ms = self.clock.now_ms() - millis(UNUSED_OBJECT_AGE);
        self.write(|conn| remove_unused_objects(conn, from, before_ms))
    }

    fn tidy(&self) -> Result<()> {
        // Rows that tell other servers of a path's absence, once every server has written since, in all likelihood: one
        // that has not finds the path missing by itself.
        self.write(|conn| {
            conn.execute(
                "DELETE FROM snapshot WHERE kind = 0 AND gen < ?1",
                [number(conn, "generation")? - ABSENCE_GENERATIONS],
            )
        })?;
        Ok(self.store.shrink(SHRINK_PAGES)?)
    }

    fn used_bytes(&self) -> Result<u64> {
        self.read(used_bytes)
    }

    fn check(&self) -> Result<HistoryCheck> {
        self.read(check)
    }

    fn objects_to_check(&self, after: i64) -> Result<Vec<(i64, ObjectId)>> {
        self.read(|conn| {
            let sql = "SELECT number, id FROM objects WHERE number > ?1 ORDER BY number LIMIT 200";
            conn.prepare_cached(sql)?
                .query_map([after], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })
    }

    #[cfg(test)]
    fn set_clock(&mut self, clock: Clock) {
        self.clock = clock;
    }

    #[cfg(test)]
    fn server_name(&self) -> String {
        self.server.name().to_owned()
    }
}
