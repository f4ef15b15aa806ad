//! What waits to be written to the shared database, and the thread that writes it.
//!
//! A build never waits here: when the database is slow or away, rows wait within a limit, and what does not fit is left
//! out, so that another server parses it once more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use llmc_store::{Database, Error};
use llmc_syntax::ANALYSIS_VERSION;

use super::UnitKey;

/// Rows of one transaction.
const BATCH_ROWS: usize = 200;
const BATCH_BYTES: usize = 4 << 20;
/// How long a row waits for others to be written with.
const BATCH_TIME: Duration = Duration::from_millis(500);
/// Rows that wait.
const MAX_WAITING_BYTES: usize = 32 << 20;
const MAX_WAITING_USES: usize = 100_000;
/// How long the thread waits after the database could not be used.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// How often a server removes rows that no server uses, how many at once, and how often in a row.
const PRUNE_INTERVAL: Duration = Duration::from_secs(6 * 3600);
const ROWS_PER_PRUNE: i64 = 500;
const MAX_PRUNES: usize = 1000;

/// `$1`, `$2`: hashes and languages, `$3`: data, `$4`: the format. In the order of the key, so that servers do not wait
/// for each other in a circle.
const PUT: &str = "
INSERT INTO llmc.index_units AS units (hash, language, format, used_on, data)
SELECT hash, language, $4, (clock_timestamp() AT TIME ZONE 'UTC')::date, data
FROM unnest($1::bytea[], $2::text[], $3::bytea[]) AS given (hash, language, data)
ON CONFLICT (tenant, hash, language, format) DO UPDATE SET data = excluded.data, used_on = excluded.used_on
WHERE units.data IS DISTINCT FROM excluded.data";
/// `$1`, `$2`: hashes and languages, `$3`: the format.
const RENEW: &str = "
WITH used AS (
    SELECT units.hash, units.language FROM llmc.index_units AS units
    JOIN unnest($1::bytea[], $2::text[]) AS given (hash, language)
        ON units.hash = given.hash AND units.language = given.language
    WHERE units.format = $3 FOR UPDATE OF units SKIP LOCKED
)
UPDATE llmc.index_units AS units SET used_on = (clock_timestamp() AT TIME ZONE 'UTC')::date
FROM used WHERE units.hash = used.hash AND units.language = used.language AND units.format = $3";
/// `$1`: days, `$2`: rows at most.
const PRUNE: &str = "
WITH old AS (
    SELECT hash, language, format FROM llmc.index_units
    WHERE used_on < (clock_timestamp() AT TIME ZONE 'UTC')::date - $1::integer
    ORDER BY used_on LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM llmc.index_units AS units USING old
WHERE units.hash = old.hash AND units.language = old.language AND units.format = old.format";

#[derive(Debug)]
pub(super) struct Uploads {
    database: Database,
    retention_days: i32,
    state: Mutex<UploadState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct UploadState {
    rows: BTreeMap<UnitKey, Vec<u8>>,
    /// Of all rows.
    bytes: usize,
    /// Rows whose day of last use is to be renewed.
    used: BTreeSet<UnitKey>,
    has_thread: bool,
    /// Whether the thread is using the database.
    is_writing: bool,
    /// Whether the last batch could not be written.
    is_failing: bool,
    is_closed: bool,
    /// Callers of [`Uploads::finish`].
    callers: usize,
    pruned: Option<Instant>,
}

/// What one transaction writes.
#[derive(Default)]
struct UploadBatch {
    rows: Vec<(UnitKey, Vec<u8>)>,
    used: Vec<UnitKey>,
}

impl Uploads {
    pub(super) fn new(database: Database, retention_days: i32) -> Uploads {
        Uploads {
            database,
            retention_days,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(super) fn put(self: &Arc<Self>, key: UnitKey, data: Vec<u8>) {
        let mut state = self.state();
        if state.bytes + data.len() > MAX_WAITING_BYTES {
            return;
        }
        state.add(key, data);
        self.wake(state);
    }

    pub(super) fn note_used(self: &Arc<Self>, keys: Vec<UnitKey>) {
        let mut state = self.state();
        if state.used.len() + keys.len() <= MAX_WAITING_USES {
            state.used.extend(keys);
        }
        // Rows are removed at times even if none is written.
        self.wake(state);
    }

    /// Waits until all is written and what is old is removed; whether all is written.
    pub(super) fn finish(&self, wait: Duration) -> bool {
        let is_busy = |state: &mut UploadState| {
            let has_work = state.is_writing || !state.is_empty() || state.is_prune_due();
            state.has_thread && !state.is_failing && has_work
        };
        let mut state = self.state();
        state.callers += 1;
        self.changed.notify_all();
        let waited = self.changed.wait_timeout_while(state, wait, is_busy);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.callers -= 1;
        state.is_empty() && !state.is_writing
    }

    /// Ends the thread when it has written what waits, or when this much time has passed.
    pub(super) fn close(&self, wait: Duration) {
        self.state().is_closed = true;
        self.changed.notify_all();
        self.finish(wait);
    }

    fn state(&self) -> MutexGuard<'_, UploadState> {
        llmc_host::lock(&self.state)
    }

    /// Starts the thread, or lets it look again.
    fn wake(self: &Arc<Self>, mut state: MutexGuard<'_, UploadState>) {
        if !state.has_thread {
            let uploads = Arc::clone(self);
            let spawned = std::thread::Builder::new()
                .name("index-uploads".to_owned())
                .spawn(move || uploads.run());
            state.has_thread = spawned.is_ok();
        }
        drop(state);
        self.changed.notify_all();
    }

    fn run(&self) {
        while let Some(batch) = self.next_batch() {
            let written = self.write(&batch);
            let mut state = self.state();
            state.is_writing = false;
            state.is_failing = written.is_err();
            match written {
                Ok(()) => {}
                // What the database will not have, it will not have the next time.
                Err(Error::Failed(why)) => {
                    tracing::warn!(why, "parsed files are not shared");
                }
                Err(_) => state.take_back(batch),
            }
            self.changed.notify_all();
            if state.is_failing && !state.is_closed {
                let paused = self
                    .changed
                    .wait_timeout_while(state, RETRY_PAUSE, |state| {
                        // Not for more rows.
                        !state.is_closed
                    });
                drop(paused);
            }
        }
    }

    /// Waits for something to write; `None` when there will be nothing.
    fn next_batch(&self) -> Option<UploadBatch> {
        let mut state = self.state();
        loop {
            if state.is_closed && (state.is_failing || state.is_empty()) {
                return None;
            }
            if !state.is_empty() {
                let is_small = |state: &mut UploadState| {
                    let is_full = state.rows.len() >= BATCH_ROWS || state.bytes >= BATCH_BYTES;
                    !is_full && !state.is_closed && state.callers == 0
                };
                let waited = self.changed.wait_timeout_while(state, BATCH_TIME, is_small);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                state.is_writing = true;
                return Some(state.next_batch());
            }
            if state.is_prune_due() {
                state.pruned = Some(Instant::now());
                state.is_writing = true;
                drop(state);
                self.prune();
                state = self.state();
                state.is_writing = false;
                self.changed.notify_all();
                continue;
            }
            let waited = self.changed.wait_timeout(state, PRUNE_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn write(&self, batch: &UploadBatch) -> llmc_store::Result<()> {
        let hashes: Vec<&[u8]> = batch.rows.iter().map(|(key, _)| &key.hash[..]).collect();
        let languages: Vec<&str> = batch.rows.iter().map(|(key, _)| key.language).collect();
        let data: Vec<&[u8]> = batch.rows.iter().map(|(_, data)| &data[..]).collect();
        let used_hashes: Vec<&[u8]> = batch.used.iter().map(|key| &key.hash[..]).collect();
        let used_languages: Vec<&str> = batch.used.iter().map(|key| key.language).collect();
        self.database.transaction(async |tx| {
            if !hashes.is_empty() {
                tx.execute(PUT, &[&hashes, &languages, &data, &ANALYSIS_VERSION])
                    .await?;
            }
            if !used_hashes.is_empty() {
                tx.execute(RENEW, &[&used_hashes, &used_languages, &ANALYSIS_VERSION])
                    .await?;
            }
            Ok(())
        })
    }

    /// Removes rows that no server has used for the time that they are kept.
    fn prune(&self) {
        for _ in 0..MAX_PRUNES {
            let removed = self.database.transaction(async |tx| {
                tx.execute(PRUNE, &[&self.retention_days, &ROWS_PER_PRUNE])
                    .await
            });
            let has_more = removed.is_ok_and(|removed| removed >= ROWS_PER_PRUNE as u64);
            if !has_more || self.state().is_closed {
                return;
            }
        }
    }
}

impl UploadState {
    fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.used.is_empty()
    }

    fn is_prune_due(&self) -> bool {
        let pruned = self.pruned;
        !self.is_closed && pruned.is_none_or(|at| at.elapsed() >= PRUNE_INTERVAL)
    }

    fn add(&mut self, key: UnitKey, data: Vec<u8>) {
        self.bytes += data.len();
        let before = self.rows.insert(key, data);
        self.bytes -= before.map_or(0, |data| data.len());
    }

    fn next_batch(&mut self) -> UploadBatch {
        let mut batch = UploadBatch::default();
        let mut bytes = 0;
        while batch.rows.len() < BATCH_ROWS && bytes < BATCH_BYTES {
            let Some((key, data)) = self.rows.pop_first() else {
                break;
            };
            bytes += data.len();
            batch.rows.push((key, data));
        }
        self.bytes -= bytes;
        while batch.used.len() < BATCH_ROWS {
            match self.used.pop_first() {
                Some(key) => batch.used.push(key),
                None => break,
            }
        }
        batch
    }

    /// Puts back what could not be written.
    fn take_back(&mut self, batch: UploadBatch) {
        self.used.extend(batch.used);
        for (key, data) in batch.rows {
            self.add(key, data);
        }
    }
}
