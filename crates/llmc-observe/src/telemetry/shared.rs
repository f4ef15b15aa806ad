//! Telemetry in the database that the servers of a team share: written in batches, read by all.
//!
//! Numbers are given under a lock of the tenant, so that they become visible in their order: a follower that asks for
//! what is newer than the last number it saw misses none. Times are those of the database, less the age of a row.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use llmc_envelope::clock::{from_millis, millis};
use llmc_envelope::handles::HandleId;
use llmc_store::{Database, Row, TenantTransaction};
use serde_json::Value;

use super::row::{TelemetryRow, without_nul};
use super::{
    ArgsColumn, COLUMNS, CONTENTS_CHECK_ROWS, CallFilter, Error, MAX_ALL_CONTENTS_BYTES,
    PRUNE_INTERVAL, TelemetryOptions,
};
use crate::event::{CallEvent, EnvelopeMode};

/// Rows that are read in one transaction.
const ROWS_PER_READ: i64 = 5000;
/// Rows that one statement removes, and statements of one pruning.
const ROWS_PER_PRUNE: i64 = 5000;
const MAX_PRUNES: usize = 200;
/// Keeps the numbers of a tenant in the order in which they become visible.
const NUMBER_LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('llmc.calls ' || current_setting('llmc.tenant'), 0))";
/// Whether this batch is there already; it is among the newest if it is.
const IS_WRITTEN: &str = "SELECT 1 FROM llmc.calls WHERE seq > (SELECT coalesce(max(seq), 0) FROM llmc.calls) - 100000 \
                          AND batch = $1 LIMIT 1";
/// `$1`: the rows as JSON, `$2`: the batch, `$3`: the time of a test.
const INSERT: &str = "
WITH input AS MATERIALIZED (
    SELECT nextval('llmc.call_numbers') AS seq, given.* FROM jsonb_to_recordset($1::text::jsonb) AS given (
        age_ms bigint, source text, agent text, session text, model text, cmd text, mode text, bytes_in bigint,
        bytes_out bigint, tokens_in bigint, tokens_served bigint, tokens_withheld bigint, tokens_fetched_back bigint,
        latency_ms double precision, truncated boolean, handle text, error text, principal text, server text,
        client text, correlation_id text, path text, entry text, args text, content jsonb)
), made AS (
    INSERT INTO llmc.calls (seq, batch, time_ms, source, agent, session, model, cmd, mode, bytes_in, bytes_out, tokens_in,
        tokens_served, tokens_withheld, tokens_fetched_back, latency_ms, truncated, handle, error, principal, server, client,
        correlation_id, path, entry, args)
    SELECT seq, $2::text, coalesce($3::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint - age_ms), source, agent,
        session, model, cmd, mode, bytes_in, bytes_out, tokens_in, tokens_served, tokens_withheld, tokens_fetched_back,
        latency_ms, truncated, handle, error, principal, server, client, correlation_id, path, entry, args
    FROM input
)
INSERT INTO llmc.call_contents (seq, bytes, args_cut, answer_cut, args, answer)
SELECT seq, octet_length(content->>'args') + octet_length(content->>'answer'), (content->>'args_cut')::boolean,
    (content->>'answer_cut')::boolean, content->>'args', content->>'answer'
FROM input WHERE content IS NOT NULL";
/// Removes the oldest contents until the rest has at most `$1` bytes.
const DROP_CONTENTS: &str = "
DELETE FROM llmc.call_contents WHERE seq <= (SELECT seq FROM (SELECT seq, sum(bytes) OVER (ORDER BY seq DESC) AS kept
    FROM llmc.call_contents) AS sums WHERE kept > $1::bigint ORDER BY seq DESC LIMIT 1)";
/// Removes some rows from before `$1`, and their contents.
const PRUNE: &str = "
WITH old AS (
    SELECT seq FROM llmc.calls WHERE time_ms < $1 ORDER BY time_ms LIMIT $2 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM llmc.calls WHERE seq IN (SELECT seq FROM old)
), contents AS (
    DELETE FROM llmc.call_contents WHERE seq IN (SELECT seq FROM old)
)
SELECT count(*) FROM old";

/// The rows of one tenant.
pub(super) struct SharedCalls {
    pub(super) database: Database,
    written: AtomicU64,
    pruned_ms: AtomicI64,
}

impl SharedCalls {
    pub(super) fn new(database: Database) -> SharedCalls {
        SharedCalls {
            database,
            written: AtomicU64::new(0),
            pruned_ms: AtomicI64::new(0),
        }
    }

    /// Writes rows, all or none, once however often it is tried.
    pub(super) fn write(
        &self,
        rows: &[TelemetryRow],
        options: &TelemetryOptions,
    ) -> Result<(), Error> {
        let json = as_json(rows);
        let batch = uuid::Uuid::new_v4().to_string();
        let now = options.clock.manual_ms();
        let is_retry = Cell::new(false);
        let before = self.written.load(Ordering::Relaxed);
        let after = before + rows.len() as u64;
        let checks_contents = before / CONTENTS_CHECK_ROWS != after / CONTENTS_CHECK_ROWS;
        self.database
            .transaction(async |tx| {
                tx.query_one(NUMBER_LOCK, &[]).await?;
                // The first try may have been committed before its connection was lost.
                if is_retry.replace(true) && tx.query_opt(IS_WRITTEN, &[&batch]).await?.is_some() {
                    return Ok(());
                }
                tx.execute(INSERT, &[&json, &batch, &now]).await?;
                if checks_contents {
                    tx.execute(DROP_CONTENTS, &[&MAX_ALL_CONTENTS_BYTES])
                        .await?;
                }
                Ok(())
            })
            .map_err(Error::Shared)?;
        self.written.store(after, Ordering::Relaxed);
        self.prune_at_times(options)
    }

    fn prune_at_times(&self, options: &TelemetryOptions) -> Result<(), Error> {
        let now = options.clock.now_ms();
        let last = self.pruned_ms.load(Ordering::Relaxed);
        if options.retention_days == 0 || now.saturating_sub(last) < millis(PRUNE_INTERVAL) {
            return Ok(());
        }
        self.pruned_ms.store(now, Ordering::Relaxed);
        let kept = Duration::from_secs(u64::from(options.retention_days) * 24 * 3600);
        let before = now.saturating_sub(millis(kept));
        for _ in 0..MAX_PRUNES {
            let removed = self.database.transaction(async |tx| {
                let removed = tx.query_one(PRUNE, &[&before, &ROWS_PER_PRUNE]).await?;
                Ok(removed.try_get::<_, i64>(0)?)
            });
            if removed.map_err(Error::Shared)? < ROWS_PER_PRUNE {
                break;
            }
        }
        Ok(())
    }

    /// Every call that passes the filter, oldest first.
    pub(super) fn each(
        &self,
        filter: &CallFilter,
        args: ArgsColumn,
        mut take: impl FnMut(Arc<CallEvent>),
    ) -> Result<(), Error> {
        let since = filter.since.map(Timestamp::as_millisecond);
        let args = match args {
            ArgsColumn::Read => "args",
            ArgsColumn::Skip => "NULL::text",
        };
        let sql = format!(
            "SELECT {COLUMNS}, {args} FROM llmc.calls WHERE seq > $1 AND ($2::bigint IS NULL OR time_ms >= $2) \
             AND ($3::text IS NULL OR session = $3) ORDER BY seq LIMIT $4"
        );
        let session = filter.session.as_deref().map(without_nul);
        let mut last = 0_i64;
        loop {
            let rows = self.read(async |tx| {
                tx.query(&sql, &[&last, &since, &session, &ROWS_PER_READ])
                    .await
            })?;
            let is_last = (rows.len() as i64) < ROWS_PER_READ;
            for call in calls_of(&rows)? {
                last = call.seq.unwrap_or(last);
                take(Arc::new(call));
            }
            if is_last {
                return Ok(());
            }
        }
    }

    pub(super) fn read<T>(
        &self,
        work: impl AsyncFn(&TenantTransaction<'_>) -> llmc_store::Result<T>,
    ) -> Result<T, Error> {
        self.database.transaction(work).map_err(Error::Shared)
    }
}

/// The number of the last row before this moment.
pub(super) fn last_before(database: &Database, since: Timestamp) -> Result<i64, Error> {
    let sql = "SELECT coalesce((SELECT min(seq) - 1 FROM llmc.calls WHERE time_ms >= $1), (SELECT max(seq) FROM llmc.calls), 0)";
    let since = since.as_millisecond();
    let last = database.transaction(async |tx| {
        let last = tx.query_one(sql, &[&since]).await?;
        Ok(last.try_get(0)?)
    });
    last.map_err(Error::Shared)
}

/// Up to `limit` calls after a number, oldest first.
pub(super) fn calls_after(
    database: &Database,
    last: i64,
    limit: usize,
) -> Result<Vec<CallEvent>, Error> {
    let sql =
        format!("SELECT {COLUMNS}, args FROM llmc.calls WHERE seq > $1 ORDER BY seq LIMIT $2");
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = database
        .transaction(async |tx| tx.query(&sql, &[&last, &limit]).await)
        .map_err(Error::Shared)?;
    calls_of(&rows)
}

pub(super) fn calls_of(rows: &[Row]) -> Result<Vec<CallEvent>, Error> {
    let calls = rows.iter().map(|row| call_of(row).map_err(Error::Shared));
    calls.collect()
}

/// The call of a row with [`COLUMNS`] and the arguments.
pub(super) fn call_of(row: &Row) -> llmc_store::Result<CallEvent> {
    let number = |column| {
        row.try_get::<_, i64>(column)
            .map(|number| u64::try_from(number).unwrap_or(0))
    };
    let mode: &str = row.try_get(6)?;
    Ok(CallEvent {
        time: from_millis(row.try_get(0)?),
        source: row.try_get(1)?,
        agent: row.try_get(2)?,
        session: row.try_get(3)?,
        model: row.try_get(4)?,
        tool: row.try_get(5)?,
        // A mode of a newer program is as good as the usual one.
        mode: EnvelopeMode::parse(mode).unwrap_or_default(),
        bytes_in: number(7)?,
        bytes_out: number(8)?,
        tokens_in: number(9)?,
        tokens_served: number(10)?,
        tokens_withheld: number(11)?,
        tokens_fetched_back: number(12)?,
        duration_ms: row.try_get(13)?,
        truncated: row.try_get(14)?,
        handle: row
            .try_get::<_, Option<&str>>(15)?
            .and_then(HandleId::parse),
        error_code: row.try_get(16)?,
        principal: row.try_get(17)?,
        server: row.try_get(18)?,
        client: row.try_get(19)?,
        correlation_id: row.try_get(20)?,
        path: row.try_get(21)?,
        entry: row.try_get(22)?,
        seq: row.try_get(23)?,
        args: row.try_get(24)?,
        ..CallEvent::default()
    })
}

/// Rows as one JSON document, each with its age.
fn as_json(rows: &[TelemetryRow]) -> String {
    let rows = rows.iter().map(|row| {
        let mut value = serde_json::to_value(row).unwrap_or_default();
        value["age_ms"] = millis(row.made.elapsed()).into();
        value
    });
    Value::from(rows.collect::<Vec<_>>()).to_string()
}
