//! The history in the database that the servers of a team share.
//!
//! A write locks the row of its workspace, which keeps all others out until it is committed. Every statement is a round trip that
//! other writers wait for, so a write sends as few as it can: contents go ahead of it, and the rest is one statement.
//!
//! Which servers run is known by what they write every few seconds while they have something to protect: a running call, an
//! undo, the first snapshot. Times are those of the database.

mod commit;
mod contents;
mod entries;
mod pulse;
mod sweep;

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use llmc_envelope::clock::Clock;
use llmc_host::lock;
use llmc_store::{Database, Row, TenantTransaction};

use super::{
    BuildClaim, ChangeRow, ChosenEntries, CommitWork, Committed, HistoryRows, PlanId, StoreState,
    StoredEntry, marker, state_from,
};
use crate::entry::{ChangeAuthor, Entry, EntryFilter, EntryId, HistoryViewer, ObjectId, PathState};
use crate::error::{Error, Result};
use crate::history::HistoryCheck;
use crate::objects::PackedObject;
use crate::snapshot::{Known, Stamp, now_ns};
use contents::UsedBytes;
use pulse::Pulse;

/// Rows of the snapshot that are read at a time.
const PAGE_ROWS: i64 = 10_000;
/// Files of the first snapshot that are stored at a time: each time costs some round trips.
const BUILD_BATCH: usize = 200;
/// Bytes of contents that go with the transaction of their entry.
const MAX_INLINE_BYTES: usize = 256 << 10;
/// After every key of a write.
const LAST_DIGEST: [u8; 33] = [0xff; 33];

/// A row whose server has not written for this long is that of a server that has ended, unless the database itself was away.
const DEAD: &str = "seen_at < clock_timestamp() - interval '12 seconds' \
                    AND pg_postmaster_start_time() < clock_timestamp() - interval '6 seconds'";

const LOCK: &str = "SELECT store_number, generation, last_entry FROM llmc.history_workspaces \
                    WHERE number = $1 FOR UPDATE";

/// The history of one workspace of one tenant.
pub(crate) struct PostgresHistory {
    database: Database,
    workspace: PathBuf,
    /// The number of the workspace, once it is known.
    number: Mutex<Option<i64>>,
    used: UsedBytes,
    pulse: Arc<Pulse>,
    clock: Clock,
}

impl PostgresHistory {
    pub(crate) fn new(database: Database, workspace: PathBuf, max_bytes: u64) -> PostgresHistory {
        PostgresHistory {
            pulse: Arc::new(Pulse::new(database.clone())),
            database,
            workspace,
            number: Mutex::default(),
            used: UsedBytes::new(max_bytes),
            clock: Clock::system(),
        }
    }

    fn run<T>(
        &self,
        work: impl AsyncFn(&TenantTransaction<'_>) -> llmc_store::Result<T>,
    ) -> Result<T> {
        self.database.transaction(work).map_err(unavailable)
    }

    /// The number of the workspace, for a look that makes nothing.
    fn existing_number(&self) -> Result<Option<i64>> {
        let known = *lock(&self.number);
        let key = marker::existing_key(&self.workspace).map_err(no_id)?;
        let (None, Some(key)) = (known, key) else {
            return Ok(known);
        };
        self.run(async |tx| {
            let sql = "SELECT number FROM llmc.history_workspaces WHERE key = $1";
            let rows = tx.query_and_commit(sql, &[&key]).await?;
            rows.first().map(|row| Ok(row.try_get(0)?)).transpose()
        })
    }

    /// The number of the workspace.
    fn number(&self) -> Result<i64> {
        let known = *lock(&self.number);
        match known {
            Some(number) => Ok(number),
            None => {
                self.open()?;
                lock(&self.number).ok_or_else(|| Error::Unavailable("it has no row".to_owned()))
            }
        }
    }
}

fn unavailable(error: llmc_store::Error) -> Error {
    Error::Unavailable(error.to_string())
}

fn no_id(error: std::io::Error) -> Error {
    Error::Unavailable(format!("the workspace has no id: {error}"))
}

impl HistoryRows for PostgresHistory {
    fn open(&self) -> Result<StoreState> {
        let key = marker::workspace_key(&self.workspace).map_err(no_id)?;
        let path = self.workspace.as_os_str().as_bytes();
        let store_number = now_ns();
        let (number, state) = self.run(async |tx| {
            let make = "INSERT INTO llmc.history_workspaces (key, path, store_number) VALUES ($1, $2, $3) \
                        ON CONFLICT (tenant, key) DO NOTHING";
            let find = format!(
                "SELECT {STATE}, number FROM llmc.history_workspaces AS w WHERE key = $1"
            );
            let (_, rows) = tx
                .query_both_and_commit(
                    (make, &[&key, &path, &store_number]),
                    (&find, &[&key]),
                )
                .await?;
            let row = rows.first().ok_or(llmc_store::Error::Lost)?;
            Ok((row.try_get::<_, i64>(STATE_COLUMNS)?, state_of(row)?))
        })?;
        *lock(&self.number) = Some(number);
        Ok(state)
    }

    fn load(&self, since: i64, each: &mut dyn FnMut(Vec<u8>, Option<Known>)) -> Result<StoreState> {
        let number = self.number()?;
        // One statement, so that what the store says of itself and its rows fit together.
        let sql = format!(
            "SELECT {STATE}, s.gen, s.digest, {SNAPSHOT} FROM llmc.history_workspaces AS w \
             LEFT JOIN LATERAL (SELECT * FROM llmc.history_snapshot WHERE workspace = $1 AND w.generation > $4 \
               AND (gen, digest) > ($2, $3) ORDER BY gen, digest LIMIT {PAGE_ROWS}) AS s ON true \
             WHERE w.number = $1"
        );
        let mut after: (i64, Vec<u8>) = (since, LAST_DIGEST.to_vec());
        let mut first = None;
        loop {
            let rows = self.run(async |tx| {
                let (gen_after, digest) = &after;
                tx.query_and_commit(&sql, &[&number, gen_after, digest, &since])
                    .await
            })?;
            let count = rows.len();
            for row in &rows {
                first.get_or_insert(state_of(row).map_err(unavailable)?);
                let Some((last, path, known)) = snapshot_row(row).map_err(unavailable)? else {
                    continue;
                };
                after = last;
                each(path, known);
            }
            if i64::try_from(count).unwrap_or(i64::MAX) < PAGE_ROWS {
                // Without a row there is another store, or none.
                return Ok(first.unwrap_or_default());
            }
        }
    }

    fn list(&self, filter: &EntryFilter) -> Result<Vec<Entry>> {
        self.list_entries(filter)
    }

    fn entry(&self, id: EntryId, viewer: &HistoryViewer) -> Result<Option<StoredEntry>> {
        let mut found = self.choose(&ChosenEntries::Range(id, id), viewer, usize::MAX)?;
        Ok(found.pop())
    }

    fn choose(
        &self,
        chosen: &ChosenEntries<'_>,
        viewer: &HistoryViewer,
        max_changes: usize,
    ) -> Result<Vec<StoredEntry>> {
        self.chosen_entries(chosen, viewer, max_changes)
    }

    fn oldest_changes_since(
        &self,
        id: EntryId,
        viewer: &HistoryViewer,
    ) -> Result<Option<Vec<ChangeRow>>> {
        self.oldest_changes(id, viewer)
    }

    fn newest_entries(&self, paths: &[&[u8]]) -> Result<HashMap<Vec<u8>, EntryId>> {
        self.newest_entries_of(paths)
    }

    fn give_to_call(&self, id: EntryId, author: &ChangeAuthor, paths: &[Vec<u8>]) -> Result<bool> {
        self.give_entry_to_call(id, author, paths)
    }

    fn is_surely_stored(&self, _id: &ObjectId) -> bool {
        false
    }

    fn stored(&self, ids: &[ObjectId]) -> Result<HashSet<ObjectId>> {
        self.stored_of(ids)
    }

    fn object(&self, id: &ObjectId) -> Result<Option<PackedObject>> {
        self.read_object(id)
    }

    fn add_objects(&self, objects: &[Arc<PackedObject>], max_bytes: u64) -> Result<bool> {
        self.upload(objects, max_bytes)
    }

    fn max_inline_bytes(&self) -> Option<usize> {
        Some(MAX_INLINE_BYTES)
    }

    fn set_built(&self) -> Result<()> {
        let number = self.number()?;
        self.run(async |tx| {
            let sql = "UPDATE llmc.history_workspaces SET is_built = true WHERE number = $1";
            tx.query_and_commit(sql, &[&number]).await?;
            Ok(())
        })
    }

    fn claim_build(&self) -> Result<Option<BuildClaim>> {
        let number = self.number()?;
        let server = self.pulse.server();
        let claimed = self.run(async |tx| {
            let dead = DEAD.replace("seen_at", "builder_seen_at");
            let sql = format!(
                "UPDATE llmc.history_workspaces SET builder = $2, builder_seen_at = clock_timestamp() \
                 WHERE number = $1 AND (builder IS NULL OR builder = $2 OR ({dead})) RETURNING 1"
            );
            let rows = tx.query_and_commit(&sql, &[&number, &server]).await?;
            Ok(!rows.is_empty())
        })?;
        Ok(claimed.then(|| BuildClaim {
            _release: Box::new(self.pulse.build(number)),
        }))
    }

    fn build_batch(&self) -> usize {
        BUILD_BATCH
    }

    fn now_ms(&self) -> Result<i64> {
        self.run(async |tx| {
            let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
            let rows = tx.query_and_commit(sql, &[]).await?;
            let row = rows.first().ok_or(llmc_store::Error::Lost)?;
            Ok(row.try_get(0)?)
        })
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn begin_call(&self, call: &str) -> Result<bool> {
        let number = self.number()?;
        let server = self.pulse.server();
        let are_others = self.run(async |tx| {
            let sql = format!(
                "WITH dead AS (DELETE FROM llmc.history_active WHERE workspace = $1 AND {DEAD}), \
                 others AS (UPDATE llmc.history_active SET shared = true \
                   WHERE workspace = $1 AND call <> $2 AND NOT ({DEAD}) RETURNING 1), \
                 own AS (INSERT INTO llmc.history_active (workspace, call, server, shared) \
                   SELECT $1, $2, $3, EXISTS (SELECT 1 FROM others) ON CONFLICT (tenant, workspace, call) DO NOTHING) \
                 SELECT EXISTS (SELECT 1 FROM others)"
            );
            let (_, rows) = tx
                .query_both_and_commit(
                    (LOCK, &[&number]),
                    (&sql, &[&number, &call, &server]),
                )
                .await?;
            let row = rows.first().ok_or(llmc_store::Error::Lost)?;
            Ok(row.try_get(0)?)
        })?;
        self.pulse.begin_call(number, call);
        Ok(are_others)
    }

    fn end_call(&self, call: &str) -> Result<()> {
        self.pulse.end_call(call);
        let number = self.number()?;
        self.run(async |tx| {
            let sql = "DELETE FROM llmc.history_active WHERE workspace = $1 AND call = $2";
            tx.query_and_commit(sql, &[&number, &call]).await?;
            Ok(())
        })
    }

    fn active_calls(&self) -> Result<usize> {
        let number = self.number()?;
        let count = self.run(async |tx| {
            let sql = format!(
                "SELECT count(*) FROM llmc.history_active WHERE workspace = $1 AND NOT ({DEAD})"
            );
            let rows = tx.query_and_commit(&sql, &[&number]).await?;
            let row = rows.first().ok_or(llmc_store::Error::Lost)?;
            Ok(row.try_get::<_, i64>(0)?)
        })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    fn add_plan(&self, plan: &str) -> Result<PlanId> {
        let number = self.number()?;
        let id = ulid::Ulid::new().to_string();
        let server = self.pulse.server();
        self.run(async |tx| {
            let sql = "INSERT INTO llmc.history_plans (workspace, id, server, plan) VALUES ($1, $2, $3, $4) \
                       ON CONFLICT (tenant, workspace, id) DO NOTHING";
            tx.query_and_commit(sql, &[&number, &id, &server, &plan])
                .await?;
            Ok(())
        })?;
        self.pulse.begin_plan(number, &id);
        Ok(id)
    }

    fn take_plans(&self) -> Result<Vec<(PlanId, String)>> {
        let number = self.number()?;
        let server = self.pulse.server();
        // Of several processes one finishes it.
        let rows = self.run(async |tx| {
            let sql = format!(
                "UPDATE llmc.history_plans SET server = $2, seen_at = clock_timestamp() \
                 WHERE workspace = $1 AND (server = $2 OR ({DEAD})) RETURNING id, plan"
            );
            tx.query_and_commit(&sql, &[&number, &server]).await
        })?;
        let taken = rows
            .iter()
            .map(|row| Ok((row.try_get::<_, String>(0)?, row.try_get(1)?)))
            .collect::<llmc_store::Result<Vec<_>>>()
            .map_err(unavailable)?;
        for (id, _) in &taken {
            self.pulse.begin_plan(number, id);
        }
        Ok(taken)
    }

    fn remove_plan(&self, id: &PlanId) -> Result<()> {
        self.pulse.end_plan(id);
        let number = self.number()?;
        self.run(async |tx| {
            let sql = "DELETE FROM llmc.history_plans WHERE workspace = $1 AND id = $2";
            tx.query_and_commit(sql, &[&number, id]).await?;
            Ok(())
        })
    }

    fn commit(&self, work: &mut dyn CommitWork) -> Result<Option<Committed>> {
        self.commit_work(work)
    }

    fn remove_old(&self, keep_days: u32) -> Result<u64> {
        self.remove_old_entries(keep_days)
    }

    fn remove_oldest(&self) -> Result<u64> {
        self.remove_oldest_entries()
    }

    fn remove_unused(&self, from: i64) -> Result<(u64, Option<i64>)> {
        self.remove_unused_objects(from)
    }

    fn tidy(&self) -> Result<()> {
        self.remove_rest()
    }

    fn used_bytes(&self) -> Result<u64> {
        self.count_bytes()
    }

    fn check(&self) -> Result<HistoryCheck> {
        self.check_rows()
    }

    fn objects_to_check(&self, after: i64) -> Result<Vec<(i64, ObjectId)>> {
        self.sample_objects(after)
    }

    #[cfg(test)]
    fn set_clock(&mut self, clock: Clock) {
        self.clock = clock;
    }

    #[cfg(test)]
    fn server_name(&self) -> String {
        self.pulse.server().to_owned()
    }
}

/// The columns of a workspace `w` that [`state_of`] reads.
const STATE: &str = "w.store_number, w.is_built, w.generation, w.looked_ns, w.last_entry, \
    EXISTS (SELECT 1 FROM llmc.history_plans AS p WHERE p.workspace = w.number)";
/// How many they are.
const STATE_COLUMNS: usize = 6;

fn state_of(row: &Row) -> llmc_store::Result<StoreState> {
    let last_entry: i64 = row.try_get(4)?;
    Ok(StoreState {
        number: row.try_get(0)?,
        is_built: row.try_get(1)?,
        generation: row.try_get(2)?,
        looked_ns: row.try_get(3)?,
        newest_entry: (last_entry > 0).then_some(EntryId(last_entry.cast_unsigned())),
        has_plans: row.try_get(5)?,
    })
}

/// The columns of a row `s` of the snapshot, after its `gen` and `digest`.
const SNAPSHOT: &str =
    "s.path, s.kind, s.mode, s.size, s.id, s.why, s.mtime_ns, s.ctime_ns, s.inode, s.flags";

type SnapshotRow = ((i64, Vec<u8>), Vec<u8>, Option<Known>);

/// A row of the snapshot after the state; `None` where there is none.
fn snapshot_row(row: &Row) -> llmc_store::Result<Option<SnapshotRow>> {
    let Some(number) = row.try_get::<_, Option<i64>>(STATE_COLUMNS)? else {
        return Ok(None);
    };
    let key = (number, row.try_get(STATE_COLUMNS + 1)?);
    let (path, known) = known_of(row, STATE_COLUMNS + 2)?;
    Ok(Some((key, path, known)))
}

/// The columns [`SNAPSHOT`], from `first` on.
fn known_of(row: &Row, first: usize) -> llmc_store::Result<(Vec<u8>, Option<Known>)> {
    let state = path_state(row, first + 1)?;
    let stamp = Stamp {
        size: row.try_get::<_, i64>(first + 3)?.cast_unsigned(),
        mtime_ns: row.try_get(first + 6)?,
        ctime_ns: row.try_get(first + 7)?,
        inode: row.try_get::<_, i64>(first + 8)?.cast_unsigned(),
        flags: u32::try_from(row.try_get::<_, i64>(first + 9)?).unwrap_or(0),
    };
    let known = (state != PathState::Absent).then(|| Known::new(state, stamp));
    Ok((row.try_get(first)?, known))
}

/// Kind, mode, size, content and reason, from `first` on.
fn path_state(row: &Row, first: usize) -> llmc_store::Result<PathState> {
    Ok(state_from((
        row.try_get(first)?,
        row.try_get(first + 1)?,
        row.try_get(first + 2)?,
        object_id(row, first + 3)?,
        row.try_get(first + 4)?,
    )))
}

fn object_id(row: &Row, column: usize) -> llmc_store::Result<Option<ObjectId>> {
    let bytes: Option<&[u8]> = row.try_get(column)?;
    let id = bytes.map(|bytes| bytes.try_into().map(ObjectId));
    id.transpose().map_err(|_| damaged())
}

fn damaged() -> llmc_store::Error {
    llmc_store::Error::Failed("a row of the history is damaged".to_owned())
}
