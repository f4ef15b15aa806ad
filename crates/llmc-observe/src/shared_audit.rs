//! The token audit of all servers, in the database that they share.
//!
//! A row is committed before its call is answered. A call that may change something has its row before it begins, so
//! that a server that is killed in the middle leaves one with the status `started`.

use std::fmt;
use std::io::{self, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use llmc_envelope::clock::from_millis;
use llmc_store::{Database, Result};

use crate::audit::HEADER;
use crate::csv_log::{csv_line, header_line};
use crate::event::UncountedCall;
use crate::lock::lock;
use crate::telemetry::without_nul;

/// The status of a call that has not ended, or whose server was killed.
const STARTED: &str = "started";
/// Longest text whose tokens are counted; those of a longer one are estimated.
const MAX_COUNTED_BYTES: usize = 256 << 10;
/// How often rows past their retention are removed, and how many at a time.
const PRUNE_INTERVAL: Duration = Duration::from_secs(3600);
const ROWS_PER_PRUNE: i64 = 5000;
/// Rows that are read in one transaction.
const ROWS_PER_READ: i64 = 5000;

const UPSERT: &str = "
INSERT INTO llmc.audit (id, time_ms, server, correlation_id, session_id, agent_id, tool, tokens_in, tokens_out,
    tokens_withheld, tokens_fetched_back, duration_ms, status)
VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
ON CONFLICT (tenant, id) DO UPDATE SET time_ms = excluded.time_ms, tokens_in = excluded.tokens_in,
    tokens_out = excluded.tokens_out, tokens_withheld = excluded.tokens_withheld,
    tokens_fetched_back = excluded.tokens_fetched_back, duration_ms = excluded.duration_ms, status = excluded.status";
const PRUNE: &str = "
DELETE FROM llmc.audit WHERE id IN (SELECT id FROM llmc.audit
    WHERE time_ms < (extract(epoch FROM clock_timestamp()) * 1000)::bigint - $1::bigint * 86400000
    ORDER BY time_ms LIMIT $2 FOR UPDATE SKIP LOCKED)";
const READ: &str = "
SELECT time_ms, id, correlation_id, session_id, agent_id, tool, tokens_in, tokens_out, tokens_withheld,
    tokens_fetched_back, duration_ms, status, server
FROM llmc.audit WHERE (time_ms, id) > ($1, $2) ORDER BY time_ms, id LIMIT $3";

/// Time and id of a row: the order in which rows are printed.
type RowPosition = (i64, String);

/// The audit that the servers of a team write.
pub struct SharedAudit {
    database: Database,
    /// Names this process in rows.
    server: String,
    /// 0 keeps everything.
    retention_days: u64,
    pruned: Mutex<Option<Instant>>,
}

/// One row.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditRow {
    correlation_id: String,
    session: String,
    agent: String,
    tool: String,
    tokens_in: i64,
    tokens_out: i64,
    tokens_withheld: i64,
    tokens_fetched_back: i64,
    duration_ms: f64,
    status: String,
}

impl AuditRow {
    /// The row of a call that is about to begin.
    pub fn started(correlation_id: &str, session: &str, agent: &str, tool: &str) -> AuditRow {
        AuditRow {
            correlation_id: without_nul(correlation_id),
            session: without_nul(session),
            agent: without_nul(agent),
            tool: without_nul(tool),
            tokens_in: 0,
            tokens_out: 0,
            tokens_withheld: 0,
            tokens_fetched_back: 0,
            duration_ms: 0.0,
            status: STARTED.to_owned(),
        }
    }

    /// The row of a call that has ended.
    pub fn finished(call: &UncountedCall<'_>) -> AuditRow {
        let mut event = call.event.clone();
        event.bytes_out = call.answer.len() as u64;
        event.tokens_served = tokens_of(&call.answer);
        event.estimate_withheld(call.withheld_bytes, call.fetched_back);
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        AuditRow {
            tokens_in: number(tokens_of(&call.args)),
            tokens_out: number(event.tokens_served),
            tokens_withheld: number(event.tokens_withheld),
            tokens_fetched_back: number(event.tokens_fetched_back),
            duration_ms: event.duration_ms,
            status: event.error_code.clone().unwrap_or_else(|| "ok".to_owned()),
            ..AuditRow::started(
                &event.correlation_id,
                &event.session,
                &event.agent,
                &event.tool,
            )
        }
    }
}

impl SharedAudit {
    /// Connects to nothing yet.
    pub fn new(database: Database, server: String, retention_days: u64) -> SharedAudit {
        SharedAudit {
            database,
            server: without_nul(&server),
            retention_days,
            pruned: Mutex::new(None),
        }
    }

    /// Writes the row of this id, or replaces the one that its call began with. When this returns, it is committed.
    ///
    /// # Errors
    /// Why the database cannot be used; the row is not acknowledged then.
    pub fn write(&self, id: &str, row: &AuditRow) -> Result<()> {
        let prunes = self.is_time_to_prune();
        let days = i64::try_from(self.retention_days).unwrap_or(i64::MAX / 86_400_000);
        self.database.transaction(async |tx| {
            tx.execute(
                UPSERT,
                &[
                    &id,
                    &self.server,
                    &row.correlation_id,
                    &row.session,
                    &row.agent,
                    &row.tool,
                    &row.tokens_in,
                    &row.tokens_out,
                    &row.tokens_withheld,
                    &row.tokens_fetched_back,
                    &row.duration_ms,
                    &row.status,
                ],
            )
            .await?;
            if prunes {
                tx.execute(PRUNE, &[&days, &ROWS_PER_PRUNE]).await?;
            }
            Ok(())
        })
    }

    /// Prints every row as CSV, oldest first: the columns of the file of one machine, and the server.
    ///
    /// # Errors
    /// The database cannot be read, or the output not be written.
    pub fn export(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut header = HEADER.to_vec();
        header.push("server");
        out.write_all(&header_line(&header))?;
        let mut last = (i64::MIN, String::new());
        loop {
            let rows = self.rows_after(&last).map_err(io::Error::other)?;
            let Some((next, _)) = rows.last() else {
                return Ok(());
            };
            last = next.clone();
            for (_, cells) in &rows {
                out.write_all(&csv_line(cells))?;
            }
        }
    }

    /// Some rows after a position: the position of each, and its cells.
    fn rows_after(&self, last: &RowPosition) -> Result<Vec<(RowPosition, Vec<String>)>> {
        self.database.transaction(async |tx| {
            let rows = tx.query(READ, &[&last.0, &last.1, &ROWS_PER_READ]).await?;
            let read = rows.iter().map(|row| {
                let position: RowPosition = (row.try_get(0)?, row.try_get(1)?);
                let mut cells = vec![from_millis(position.0).to_string()];
                for column in 2..=5 {
                    cells.push(row.try_get(column)?);
                }
                for column in 6..=9 {
                    cells.push(row.try_get::<_, i64>(column)?.to_string());
                }
                cells.push(format!("{:.3}", row.try_get::<_, f64>(10)?));
                cells.push(row.try_get(11)?);
                cells.push(row.try_get(12)?);
                Ok((position, cells))
            });
            read.collect()
        })
    }

    fn is_time_to_prune(&self) -> bool {
        let mut pruned = lock(&self.pruned);
        let is_time =
            self.retention_days > 0 && pruned.is_none_or(|at| at.elapsed() >= PRUNE_INTERVAL);
        if is_time {
            *pruned = Some(Instant::now());
        }
        is_time
    }
}

impl fmt::Debug for SharedAudit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedAudit")
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

fn tokens_of(text: &str) -> u64 {
    match text.len() <= MAX_COUNTED_BYTES {
        true => llmc_tokens::count(text) as u64,
        false => llmc_tokens::estimate(text.as_bytes()).tokens as u64,
    }
}
