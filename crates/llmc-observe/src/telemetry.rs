//! The telemetry store: one row per call, in a SQLite file or in the database that the servers of a team share.
//!
//! This module holds all SQL about telemetry. A call never fails because its row could not be written: the observer logs
//! the error and goes on.

mod calls;
mod follow;
mod location;
mod row;
mod schema;
mod shared;
mod shared_calls;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use llmc_envelope::clock::{Clock, from_millis, millis};
use llmc_envelope::handles::HandleId;
use llmc_envelope::store::{SqlLocation, SqlStore, StoreUnavailable, TransactionError};
use llmc_store::Database;
use rusqlite::params;

use crate::aggregate::Aggregator;
use crate::content::CallContent;
use crate::event::{CallEvent, EnvelopeMode};
use crate::summary::Summary;

pub use calls::{
    CallDetail, CallPage, CallQuery, CallReader, SavingsGroup, SavingsReport, SessionActivity,
};
pub use follow::TelemetryFollower;
pub use location::TelemetryLocation;
pub(crate) use row::{TelemetryRow, without_nul};
use schema::SCHEMA;
pub use schema::TELEMETRY_VERSION;
use shared::SharedCalls;

/// Bytes of all contents that are kept; the oldest go first.
const MAX_ALL_CONTENTS_BYTES: i64 = 64 << 20;
/// How many rows are written between two looks at that limit.
const CONTENTS_CHECK_ROWS: u64 = 256;
/// How often recording also removes rows past their retention.
const PRUNE_INTERVAL: Duration = Duration::from_secs(3600);
/// Pages given back to the file system at a time.
const MAX_FREED_PAGES: u32 = 1024;

/// The telemetry store cannot be used now; the text names no path and may be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("telemetry store unavailable: {0}")]
    Unavailable(#[source] StoreUnavailable),
    #[error("telemetry store unavailable: it is no regular file")]
    NotAFile,
    #[error("telemetry store unavailable: it was written by another version ({version})")]
    OtherVersion { version: i32 },
    #[error(
        "telemetry store unavailable: the file is damaged; the next process that records moves it aside"
    )]
    Damaged,
    #[error("telemetry store unavailable: {0}")]
    Shared(#[source] llmc_store::Error),
}

impl Error {
    /// Whether another process holds the store, so that a later try may succeed.
    pub fn is_locked(&self) -> bool {
        matches!(self, Error::Unavailable(why) if why.is_locked())
    }
}

impl From<StoreUnavailable> for Error {
    fn from(unavailable: StoreUnavailable) -> Error {
        Error::Unavailable(unavailable)
    }
}

impl From<TransactionError<rusqlite::Error>> for Error {
    fn from(error: TransactionError<rusqlite::Error>) -> Error {
        Error::Unavailable(match error {
            TransactionError::Unavailable(unavailable) => unavailable,
            TransactionError::Work(error) => llmc_envelope::store::describe(&error),
        })
    }
}

/// Which calls to read; a field that is not set lets every call pass.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CallFilter {
    /// From this moment on.
    pub since: Option<Timestamp>,
    pub session: Option<String>,
}

/// How a store behaves.
#[derive(Debug, Clone, Default)]
pub struct TelemetryOptions {
    /// Days that rows are kept; 0 keeps them for ever.
    pub retention_days: u32,
    /// How long opening and recording wait for other processes, if not as long as other stores.
    pub lock_timeout: Option<Duration>,
    pub clock: Clock,
}

/// What [`read_row`] reads, in its order, before the arguments.
const COLUMNS: &str = "time_ms, source, agent, session, model, cmd, mode, bytes_in, bytes_out, tokens_in, \
                       tokens_served, tokens_withheld, tokens_fetched_back, latency_ms, truncated, handle, error, principal, server, \
                       client, correlation_id, path, entry, seq";

/// Whether recorded arguments are read too; they are most of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArgsColumn {
    Read,
    Skip,
}

/// The calls of one workspace.
pub struct Telemetry {
    store: TelemetryStore,
    options: TelemetryOptions,
}

enum TelemetryStore {
    File(CallFile),
    Shared(SharedCalls),
}

/// The rows of one SQLite file.
struct CallFile {
    store: SqlStore,
    pruned_ms: AtomicI64,
}

impl Telemetry {
    /// Opens this file, creating it when it is missing, and removes rows past their retention.
    pub fn open(path: &Path, options: TelemetryOptions) -> Result<Self, Error> {
        Self::at(SqlLocation::File(path.into()), options)
    }

    /// A store that ends with the process.
    pub fn in_memory(options: TelemetryOptions) -> Result<Self, Error> {
        Self::at(SqlLocation::Memory, options)
    }

    /// The calls of all servers that share this database. Connects to nothing yet.
    pub fn shared(database: Database, options: TelemetryOptions) -> Self {
        Self {
            store: TelemetryStore::Shared(SharedCalls::new(database)),
            options,
        }
    }

    fn at(location: SqlLocation, options: TelemetryOptions) -> Result<Self, Error> {
        let store = match options.lock_timeout {
            Some(timeout) => SqlStore::open_within(location, SCHEMA, timeout)?,
            None => SqlStore::open(location, SCHEMA)?,
        };
        let file = CallFile {
            store,
            pruned_ms: AtomicI64::new(options.clock.now_ms()),
        };
        file.store.settle(|| file.prune(&options))?;
        Ok(Self {
            store: TelemetryStore::File(file),
            options,
        })
    }

    /// Writes one row with the time of the store's clock, its secrets masked.
    pub fn record(&self, call: &CallEvent) -> Result<(), Error> {
        self.record_with(call, None)
    }

    /// The same, with what the call was given and what it answered: the start of each, secrets masked.
    pub fn record_with(
        &self,
        call: &CallEvent,
        content: Option<&CallContent>,
    ) -> Result<(), Error> {
        self.write(&[TelemetryRow::new(call, content)])
    }

    /// Writes rows; into a shared database all or none of them.
    pub(crate) fn write(&self, rows: &[TelemetryRow]) -> Result<(), Error> {
        match &self.store {
            TelemetryStore::Shared(calls) => calls.write(rows, &self.options),
            TelemetryStore::File(file) => {
                (rows.iter()).try_for_each(|row| file.write(row, &self.options))
            }
        }
    }

    /// All calls that pass the filter, added up.
    pub fn summary(&self, filter: &CallFilter) -> Result<Summary, Error> {
        let mut aggregator = Aggregator::unbounded();
        self.each(filter, ArgsColumn::Skip, |call| aggregator.add(&call))?;
        Ok(aggregator.summary(self.options.clock.now()))
    }

    /// Every call that passes the filter, oldest first.
    pub(crate) fn each(
        &self,
        filter: &CallFilter,
        args: ArgsColumn,
        take: impl FnMut(Arc<CallEvent>),
    ) -> Result<(), Error> {
        match &self.store {
            TelemetryStore::File(file) => file.each(filter, args, take),
            TelemetryStore::Shared(calls) => calls.each(filter, args, take),
        }
    }
}

impl CallFile {
    fn write(&self, row: &TelemetryRow, options: &TelemetryOptions) -> Result<(), Error> {
        let now = options.clock.now_ms();
        self.store.write(|conn| {
            conn.prepare_cached(&format!(
                "INSERT INTO calls ({COLUMNS}, args) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, \
                 ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, NULL, ?24)",
            ))?
            .execute(params![
                now,
                row.source,
                row.agent,
                row.session,
                row.model,
                row.cmd,
                row.mode,
                row.bytes_in,
                row.bytes_out,
                row.tokens_in,
                row.tokens_served,
                row.tokens_withheld,
                row.tokens_fetched_back,
                row.latency_ms,
                row.truncated,
                row.handle,
                row.error,
                row.principal,
                row.server,
                row.client,
                row.correlation_id,
                row.path,
                row.entry,
                row.args,
            ])?;
            let seq = conn.last_insert_rowid();
            if let Some(content) = &row.content {
                conn.prepare_cached(
                    "INSERT OR REPLACE INTO contents (seq, bytes, args_cut, answer_cut, args, answer) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                )?
                .execute(params![
                    seq,
                    (content.args.len() + content.answer.len()) as i64,
                    content.args_cut,
                    content.answer_cut,
                    content.args,
                    content.answer,
                ])?;
            }
            if seq.unsigned_abs() % CONTENTS_CHECK_ROWS == 0 {
                drop_oldest_contents(conn, MAX_ALL_CONTENTS_BYTES)?;
            }
            Ok::<_, rusqlite::Error>(())
        })?;
        let last = self.pruned_ms.load(Ordering::Relaxed);
        if now.saturating_sub(last) >= millis(PRUNE_INTERVAL) {
            self.prune(options)?;
        }
        Ok(())
    }

    fn each(
        &self,
        filter: &CallFilter,
        args: ArgsColumn,
        mut take: impl FnMut(Arc<CallEvent>),
    ) -> Result<(), Error> {
        let since = filter.since.map(Timestamp::as_millisecond);
        let args = match args {
            ArgsColumn::Read => "args",
            ArgsColumn::Skip => "NULL",
        };
        self.store.read(|conn| {
            let mut query = conn.prepare_cached(&format!(
                "SELECT {COLUMNS}, {args} FROM calls WHERE (?1 IS NULL OR time_ms >= ?1) AND (?2 IS NULL OR session = ?2) \
                 ORDER BY seq"
            ))?;
            for call in query.query_map(params![since, filter.session], read_row)? {
                take(Arc::new(call?));
            }
            Ok::<_, rusqlite::Error>(())
        })?;
        Ok(())
    }

    /// Removes rows past their retention; recording does this too, from time to time.
    fn prune(&self, options: &TelemetryOptions) -> Result<(), Error> {
        let now = options.clock.now_ms();
        self.pruned_ms.store(now, Ordering::Relaxed);
        if options.retention_days == 0 {
            return Ok(());
        }
        let kept = Duration::from_secs(u64::from(options.retention_days) * 24 * 3600);
        let before = now.saturating_sub(millis(kept));
        let removed = self.store.write(|conn| {
            conn.execute(
                "DELETE FROM contents WHERE seq IN (SELECT seq FROM calls WHERE time_ms < ?1)",
                [before],
            )?;
            conn.execute("DELETE FROM calls WHERE time_ms < ?1", [before])
        })?;
        if removed > 0 {
            // A smaller file is a nicety: free pages are used again anyway.
            let _ = self.store.shrink(MAX_FREED_PAGES);
        }
        Ok(())
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Removes the oldest contents until the rest has at most this many bytes.
fn drop_oldest_contents(conn: &rusqlite::Connection, max_bytes: i64) -> rusqlite::Result<()> {
    conn.execute(
        "DELETE FROM contents WHERE seq <= (SELECT seq FROM (SELECT seq, sum(bytes) OVER (ORDER BY seq DESC) AS kept \
         FROM contents) WHERE kept > ?1 ORDER BY seq DESC LIMIT 1)",
        [max_bytes],
    )?;
    Ok(())
}

fn read_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<CallEvent> {
    let number = |column| row.get::<_, i64>(column).map(|n| n as u64);
    let text = |column| {
        row.get::<_, Option<String>>(column)
            .map(Option::unwrap_or_default)
    };
    let mode = EnvelopeMode::parse(&row.get::<_, String>(6)?).ok_or_else(|| {
        rusqlite::Error::InvalidColumnType(6, String::new(), rusqlite::types::Type::Text)
    })?;
    Ok(CallEvent {
        time: from_millis(row.get(0)?),
        source: row.get(1)?,
        agent: text(2)?,
        session: text(3)?,
        model: text(4)?,
        tool: row.get(5)?,
        mode,
        bytes_in: number(7)?,
        bytes_out: number(8)?,
        tokens_in: number(9)?,
        tokens_served: number(10)?,
        tokens_withheld: number(11)?,
        tokens_fetched_back: number(12)?,
        duration_ms: row.get(13)?,
        truncated: row.get(14)?,
        handle: row
            .get::<_, Option<String>>(15)?
            .as_deref()
            .and_then(HandleId::parse),
        error_code: row.get(16)?,
        principal: text(17)?,
        server: text(18)?,
        client: row.get(19)?,
        correlation_id: text(20)?,
        path: row.get(21)?,
        entry: row.get(22)?,
        seq: row.get(23)?,
        args: row.get(24)?,
        ..CallEvent::default()
    })
}
