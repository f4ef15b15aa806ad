//! What every call cost and what it saved: one row per call in a SQLite file.
//!
//! This module holds all SQL about telemetry. A call must never fail because its row could not be written; whoever
//! records decides what to do with the error, which is to log it.

mod follow;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, ToSql, params};
use serde::Serialize;

use crate::clock::{Clock, from_millis, millis};
use crate::handles::HandleId;
use crate::store::{Failed, Place, Schema, Store, Unavailable};

pub use crate::mask::mask_secrets;
pub use follow::Follower;

/// Longest argument text that is kept.
const ARGS_LIMIT: usize = 2000;

/// How much of the arguments is looked at for that.
const ARGS_READ: usize = 64 * 1024;

/// How far from a cut a secret may go unseen.
const UNSURE: usize = 512;

/// How often recording also removes rows past their time.
const PRUNE_EVERY: Duration = Duration::from_secs(3600);

/// Pages given back to the file system at a time.
const SHRINK_PAGES: u32 = 1024;

const SCHEMA: Schema = Schema {
    version: 1,
    sql: "
CREATE TABLE calls (
    seq                 INTEGER PRIMARY KEY,
    time_ms             INTEGER NOT NULL,
    source              TEXT NOT NULL,
    agent               TEXT,
    session             TEXT,
    model               TEXT,
    cmd                 TEXT NOT NULL,
    mode                TEXT NOT NULL,
    bytes_in            INTEGER NOT NULL,
    bytes_out           INTEGER NOT NULL,
    tokens_in           INTEGER NOT NULL,
    tokens_served       INTEGER NOT NULL,
    tokens_withheld     INTEGER NOT NULL,
    tokens_fetched_back INTEGER NOT NULL,
    latency_ms          REAL NOT NULL,
    truncated           INTEGER NOT NULL,
    handle              TEXT,
    error               TEXT,
    args                TEXT
);
CREATE INDEX calls_by_time ON calls (time_ms);",
};

/// The telemetry store cannot work now; says why in words that may be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("telemetry store unavailable: {cause}")]
pub struct Error {
    /// Locked, full disk, read-only, …
    pub cause: String,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
        #[serde(rename_all = "lowercase")]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// As it is stored and printed.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(format!(concat!("expected one of", $(" ", $word,)* ", not {:?}"), text)),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

words! {
    /// Where a call came from.
    Source {
        /// An MCP client.
        Mcp = "mcp",
        /// REST.
        Http = "http",
        /// The command line.
        Cli = "cli",
        /// A script in `execute_code`.
        Code = "code",
    }
}

words! {
    /// What the envelope did with the answer.
    Mode {
        /// Ranked, cut, with header or receipt.
        Enriched = "enriched",
        /// Untouched, since it fitted.
        Passthrough = "passthrough",
        /// Untouched, since the caller asked for that.
        Raw = "raw",
    }
}

words! {
    /// What to add up by.
    Group {
        /// The tool or command.
        Cmd = "cmd",
        /// The agent.
        Agent = "agent",
        /// Where calls came from.
        Source = "source",
        /// The session.
        Session = "session",
    }
}

/// One call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Where it came from.
    pub source: Source,
    /// Who called.
    pub agent: Option<String>,
    /// In which session.
    pub session: Option<String>,
    /// With which model.
    pub model: Option<String>,
    /// The tool or command.
    pub cmd: String,
    /// What was done with the answer.
    pub mode: Mode,
    /// Bytes of the arguments.
    pub bytes_in: u64,
    /// Bytes of the answer.
    pub bytes_out: u64,
    /// Tokens of the arguments.
    pub tokens_in: u64,
    /// Tokens of the answer.
    pub tokens_served: u64,
    /// Tokens the answer left out.
    pub tokens_withheld: u64,
    /// Tokens of the answer that an earlier one had left out.
    pub tokens_fetched_back: u64,
    /// How long it took.
    pub latency_ms: f64,
    /// Whether the answer was cut.
    pub truncated: bool,
    /// The handle made for the rest, or read from.
    pub handle: Option<HandleId>,
    /// The error code, if it failed.
    pub error: Option<String>,
    /// The arguments; masked and shortened when they are recorded.
    pub args: Option<String>,
}

impl Row {
    /// A call that cost nothing yet.
    pub fn new(source: Source, cmd: impl Into<String>, mode: Mode) -> Self {
        Self {
            source,
            agent: None,
            session: None,
            model: None,
            cmd: cmd.into(),
            mode,
            bytes_in: 0,
            bytes_out: 0,
            tokens_in: 0,
            tokens_served: 0,
            tokens_withheld: 0,
            tokens_fetched_back: 0,
            latency_ms: 0.0,
            truncated: false,
            handle: None,
            error: None,
            args: None,
        }
    }
}

/// A row and when it was written.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recorded {
    /// When.
    #[serde(serialize_with = "as_text")]
    pub time: Timestamp,
    /// What.
    #[serde(flatten)]
    pub row: Row,
}

/// Which calls to look at; what is not set does not matter.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Filter {
    /// From this moment on.
    pub since: Option<Timestamp>,
    /// Before this moment.
    pub until: Option<Timestamp>,
    /// From here.
    pub source: Option<Source>,
    /// By this agent.
    pub agent: Option<String>,
    /// In this session.
    pub session: Option<String>,
    /// Of this tool or command.
    pub cmd: Option<String>,
    /// With this done to the answer.
    pub mode: Option<Mode>,
}

/// Calls added up.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Totals {
    /// How many.
    pub calls: u64,
    /// How many failed.
    pub errors: u64,
    /// How many were cut.
    pub truncated: u64,
    /// Bytes of arguments.
    pub bytes_in: u64,
    /// Bytes of answers.
    pub bytes_out: u64,
    /// Tokens of arguments.
    pub tokens_in: u64,
    /// Tokens of answers.
    pub tokens_served: u64,
    /// Tokens left out.
    pub tokens_withheld: u64,
    /// Tokens left out first and then asked for after all.
    pub tokens_fetched_back: u64,
    /// Half of the calls were no slower.
    pub p50_ms: f64,
    /// Nineteen in twenty were no slower.
    pub p95_ms: f64,
}

/// How a store behaves.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Days that rows are kept; 0 keeps them for ever.
    pub retention_days: u32,
    /// Where the time comes from.
    pub clock: Clock,
}

/// What a row is read from.
const COLUMNS: &str = "time_ms, source, agent, session, model, cmd, mode, bytes_in, bytes_out, tokens_in, \
                       tokens_served, tokens_withheld, tokens_fetched_back, latency_ms, truncated, handle, error, args";

/// The filter as a condition, over the values of [`Bounds`].
const PASSES: &str = "(?1 IS NULL OR time_ms >= ?1) AND (?2 IS NULL OR time_ms < ?2) AND (?3 IS NULL OR source = ?3) \
                      AND (?4 IS NULL OR agent = ?4) AND (?5 IS NULL OR session = ?5) AND (?6 IS NULL OR cmd = ?6) \
                      AND (?7 IS NULL OR mode = ?7)";

/// A filter in the types of the store.
struct Bounds<'a> {
    since: Option<i64>,
    until: Option<i64>,
    source: Option<&'static str>,
    mode: Option<&'static str>,
    filter: &'a Filter,
}

impl<'a> Bounds<'a> {
    fn of(filter: &'a Filter) -> Self {
        Self {
            since: filter.since.map(Timestamp::as_millisecond),
            until: filter.until.map(Timestamp::as_millisecond),
            source: filter.source.map(Source::as_str),
            mode: filter.mode.map(Mode::as_str),
            filter,
        }
    }

    fn values(&self) -> Vec<&dyn ToSql> {
        vec![
            &self.since,
            &self.until,
            &self.source,
            &self.filter.agent,
            &self.filter.session,
            &self.filter.cmd,
            &self.mode,
        ]
    }
}

/// The calls of one workspace.
pub struct Telemetry {
    store: Store,
    options: Options,
    pruned_ms: AtomicI64,
}

impl Telemetry {
    /// Opens this file, making it when it is not there, and removes rows past their time.
    pub fn open(path: &Path, options: Options) -> Result<Self, Error> {
        Self::at(Place::File(path.into()), options)
    }

    /// A store that ends with the process.
    pub fn in_memory(options: Options) -> Result<Self, Error> {
        Self::at(Place::Memory, options)
    }

    fn at(place: Place, options: Options) -> Result<Self, Error> {
        let telemetry = Self {
            store: Store::open(place, SCHEMA)?,
            pruned_ms: AtomicI64::new(options.clock.now_ms()),
            options,
        };
        telemetry.store.settle(|| telemetry.prune())?;
        Ok(telemetry)
    }

    /// Writes one row, with its secrets masked.
    pub fn record(&self, row: &Row) -> Result<(), Error> {
        let now = self.options.clock.now_ms();
        let args = row.args.as_deref().map(kept_args);
        let cmd = mask_secrets(&row.cmd);
        let error = row.error.as_deref().map(mask_secrets);
        self.store.write(|conn| {
            conn.prepare_cached(
                "INSERT INTO calls (time_ms, source, agent, session, model, cmd, mode, bytes_in, bytes_out, tokens_in, \
                 tokens_served, tokens_withheld, tokens_fetched_back, latency_ms, truncated, handle, error, args) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)",
            )?
            .execute(params![
                now,
                row.source.as_str(),
                row.agent,
                row.session,
                row.model,
                cmd,
                row.mode.as_str(),
                row.bytes_in as i64,
                row.bytes_out as i64,
                row.tokens_in as i64,
                row.tokens_served as i64,
                row.tokens_withheld as i64,
                row.tokens_fetched_back as i64,
                if row.latency_ms.is_finite() { row.latency_ms } else { 0.0 },
                row.truncated,
                row.handle.map(|id| id.to_string()),
                error,
                args,
            ])
        })?;
        let last = self.pruned_ms.load(Ordering::Relaxed);
        if now.saturating_sub(last) >= millis(PRUNE_EVERY) {
            self.prune()?;
        }
        Ok(())
    }

    /// The latest `n` calls, newest first.
    pub fn recent(&self, n: usize) -> Result<Vec<Recorded>, Error> {
        Ok(self.store.read(|conn| {
            conn.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM calls ORDER BY time_ms DESC, seq DESC LIMIT ?1"
            ))?
            .query_map([i64::try_from(n).unwrap_or(i64::MAX)], recorded)?
            .collect()
        })?)
    }

    /// All calls that pass the filter, added up.
    pub fn summary(&self, filter: &Filter) -> Result<Totals, Error> {
        let mut all = self.totals("''", filter)?;
        Ok(all.pop_first().map_or_else(Totals::default, |(_, sum)| sum))
    }

    /// The same per command, agent, source or session, most tokens served first. Calls without one are under `""`.
    pub fn by(&self, group: Group, filter: &Filter) -> Result<Vec<(String, Totals)>, Error> {
        let column = match group {
            Group::Cmd => "cmd",
            Group::Agent => "coalesce(agent, '')",
            Group::Source => "source",
            Group::Session => "coalesce(session, '')",
        };
        let mut groups: Vec<_> = self.totals(column, filter)?.into_iter().collect();
        // Stable: equal ones stay in the order of their names.
        groups.sort_by_key(|(_, sum)| std::cmp::Reverse((sum.tokens_served, sum.calls)));
        Ok(groups)
    }

    /// Removes rows past their time and says how many; recording does this by itself from time to time.
    pub fn prune(&self) -> Result<u64, Error> {
        let now = self.options.clock.now_ms();
        self.pruned_ms.store(now, Ordering::Relaxed);
        if self.options.retention_days == 0 {
            return Ok(0);
        }
        let kept = Duration::from_secs(u64::from(self.options.retention_days) * 24 * 3600);
        let before = now.saturating_sub(millis(kept));
        let gone = self
            .store
            .write(|conn| conn.execute("DELETE FROM calls WHERE time_ms < ?1", [before]))?;
        if gone > 0 {
            // Smaller is nicer; free pages are used again anyway.
            let _ = self.store.shrink(SHRINK_PAGES);
        }
        Ok(gone as u64)
    }

    /// The `n` calls that took longest.
    pub fn slowest(&self, n: usize, filter: &Filter) -> Result<Vec<Recorded>, Error> {
        let n = i64::try_from(n).unwrap_or(i64::MAX);
        let bounds = Bounds::of(filter);
        let mut passing = bounds.values();
        passing.push(&n);
        let query = format!(
            "SELECT {COLUMNS} FROM calls WHERE {PASSES} ORDER BY latency_ms DESC, seq LIMIT ?8"
        );
        Ok(self.store.read(|conn| {
            conn.prepare_cached(&query)?
                .query_map(&passing[..], recorded)?
                .collect()
        })?)
    }

    fn totals(&self, key: &str, filter: &Filter) -> Result<BTreeMap<String, Totals>, Error> {
        let bounds = Bounds::of(filter);
        let passing = bounds.values();
        let passes = PASSES;
        Ok(self.store.read(|conn| {
            let mut sums = sums(conn, key, passes, &passing)?;
            let mut query = conn.prepare(&format!(
                "SELECT {key} AS k, latency_ms FROM calls WHERE {passes} ORDER BY k, latency_ms"
            ))?;
            let mut seen: BTreeMap<String, u64> = BTreeMap::new();
            let mut rows = query.query(&passing[..])?;
            while let Some(row) = rows.next()? {
                let name: String = row.get(0)?;
                let latency: f64 = row.get(1)?;
                if let Some(sum) = sums.get_mut(&name) {
                    let rank = seen.entry(name).or_default();
                    *rank += 1;
                    if *rank == nearest_rank(50, sum.calls) {
                        sum.p50_ms = latency;
                    }
                    if *rank == nearest_rank(95, sum.calls) {
                        sum.p95_ms = latency;
                    }
                }
            }
            Ok::<_, rusqlite::Error>(sums)
        })?)
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl From<Unavailable> for Error {
    fn from(Unavailable(cause): Unavailable) -> Self {
        Self { cause }
    }
}

impl From<Failed<rusqlite::Error>> for Error {
    fn from(failed: Failed<rusqlite::Error>) -> Self {
        match failed {
            Failed::Unavailable(unavailable) => unavailable.into(),
            Failed::Work(error) => Self {
                cause: error.to_string(),
            },
        }
    }
}

/// As `2026-01-02T03:04:05.678Z`.
fn as_text<S: serde::Serializer>(time: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(time)
}

/// Where in `count` sorted values the percentile stands, from 1.
fn nearest_rank(percent: u64, count: u64) -> u64 {
    (count * percent).div_ceil(100).max(1)
}

/// The masked start of the arguments, which may be as long as the file they write.
fn kept_args(args: &str) -> String {
    let head = &args[..args.floor_char_boundary(ARGS_READ)];
    // Masked before it is cut to size: a cut could take away what a secret is known by. Where the head itself was cut
    // that may have happened, so its end is not kept.
    let mut kept = mask_secrets(head);
    let sure = if head.len() < args.len() {
        kept.len().saturating_sub(UNSURE)
    } else {
        kept.len()
    };
    let limit = sure.min(ARGS_LIMIT);
    if limit < kept.len() {
        kept.truncate(kept.floor_char_boundary(limit));
        kept.push('…');
    }
    kept
}

fn sums(
    conn: &Connection,
    key: &str,
    passes: &str,
    passing: &[&dyn ToSql],
) -> rusqlite::Result<BTreeMap<String, Totals>> {
    conn.prepare(&format!(
        "SELECT {key} AS k, count(*), count(error), sum(truncated), sum(bytes_in), sum(bytes_out), sum(tokens_in), \
         sum(tokens_served), sum(tokens_withheld), sum(tokens_fetched_back) \
         FROM calls WHERE {passes} GROUP BY k"
    ))?
    .query_map(passing, |row| {
        let number = |column| row.get::<_, i64>(column).map(|n| n as u64);
        Ok((
            row.get(0)?,
            Totals {
                calls: number(1)?,
                errors: number(2)?,
                truncated: number(3)?,
                bytes_in: number(4)?,
                bytes_out: number(5)?,
                tokens_in: number(6)?,
                tokens_served: number(7)?,
                tokens_withheld: number(8)?,
                tokens_fetched_back: number(9)?,
                p50_ms: 0.0,
                p95_ms: 0.0,
            },
        ))
    })?
    .collect()
}

fn recorded(row: &rusqlite::Row<'_>) -> rusqlite::Result<Recorded> {
    let broken =
        |n| rusqlite::Error::InvalidColumnType(n, String::new(), rusqlite::types::Type::Text);
    let number = |column| row.get::<_, i64>(column).map(|n| n as u64);
    Ok(Recorded {
        time: from_millis(row.get(0)?),
        row: Row {
            source: row.get::<_, String>(1)?.parse().map_err(|_| broken(1))?,
            agent: row.get(2)?,
            session: row.get(3)?,
            model: row.get(4)?,
            cmd: row.get(5)?,
            mode: row.get::<_, String>(6)?.parse().map_err(|_| broken(6))?,
            bytes_in: number(7)?,
            bytes_out: number(8)?,
            tokens_in: number(9)?,
            tokens_served: number(10)?,
            tokens_withheld: number(11)?,
            tokens_fetched_back: number(12)?,
            latency_ms: row.get(13)?,
            truncated: row.get(14)?,
            handle: row
                .get::<_, Option<String>>(15)?
                .as_deref()
                .and_then(HandleId::parse),
            error: row.get(16)?,
            args: row.get(17)?,
        },
    })
}
