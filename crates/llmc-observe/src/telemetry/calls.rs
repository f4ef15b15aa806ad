//! Recorded calls, searched and shown; savings and sessions. Everything here only reads.

use std::time::Duration;

use jiff::Timestamp;
use llmc_store::TenantTransaction;
use rusqlite::{Connection, OptionalExtension, ToSql, params};
use serde::Serialize;

use super::follow::{bounded_columns, open_read_only, unavailable};
use super::location::TelemetryLocation;
use super::{Error, read_row, shared_calls};
use crate::event::CallEvent;
use crate::live::CallScope;
use crate::summary::CallTotals;
use crate::upstreams::{UpstreamLedger, UpstreamLedgers, UpstreamList};

/// Rows that a search looks at, newest first.
pub(super) const MAX_SEARCHED_ROWS: i64 = 200_000;
/// Groups of each list of savings.
pub(super) const MAX_GROUPS: i64 = 100;
pub(super) const MAX_SESSIONS: i64 = 200;
/// Characters of a content that are read; what this program writes is shorter.
const MAX_CONTENT_CHARS: usize = 64 << 10;

/// Which calls are listed; a field that is not set lets every call pass.
#[derive(Debug, Clone, Default)]
pub struct CallQuery {
    /// Words that tool, client, agent, session, path, error, arguments or answer contain, in any case.
    pub text: Option<String>,
    pub tool: Option<String>,
    pub agent: Option<String>,
    pub session: Option<String>,
    pub server: Option<String>,
    /// Only calls that failed.
    pub failed: bool,
    /// Calls recorded before this one.
    pub before: Option<i64>,
    /// Calls recorded after this one.
    pub after: Option<i64>,
    pub limit: usize,
}

/// Some calls, newest first.
#[derive(Debug, Default)]
pub struct CallPage {
    pub calls: Vec<CallEvent>,
    /// Where the next page begins, if there is one.
    pub next: Option<i64>,
}

/// One call with what is kept of its texts.
#[derive(Debug)]
pub struct CallDetail {
    pub call: CallEvent,
    /// Arguments, answer, and whether each is only the start; `None` if they are not kept, or no longer.
    pub content: Option<[(String, bool); 2]>,
}

/// Calls of one day, client or tool, added up.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SavingsGroup {
    pub name: String,
    #[serde(flatten)]
    pub totals: CallTotals,
}

/// What was served and what was kept out of contexts, over a time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SavingsReport {
    /// Oldest first.
    pub days: Vec<SavingsGroup>,
    /// Most tokens kept out first.
    pub clients: Vec<SavingsGroup>,
    pub tools: Vec<SavingsGroup>,
    /// In the order of the configuration.
    pub upstreams: Vec<UpstreamLedger>,
}

/// The calls of one session through one server.
#[derive(Debug)]
pub struct SessionActivity {
    pub totals: CallTotals,
    pub first: Timestamp,
    pub last: CallEvent,
}

/// Reads the telemetry of a workspace.
#[derive(Debug)]
pub struct CallReader {
    location: TelemetryLocation,
}

impl CallReader {
    /// Nothing is opened yet.
    pub fn new(location: impl Into<TelemetryLocation>) -> CallReader {
        CallReader {
            location: location.into(),
        }
    }

    /// The calls that pass, newest first.
    ///
    /// # Errors
    /// The file is no telemetry of this version, or cannot be read now, or the database is away.
    pub fn page(&self, query: &CallQuery, scope: CallScope<'_>) -> Result<CallPage, Error> {
        self.read(
            |conn| page(conn, query, scope),
            async |tx| shared_calls::page(tx, query, scope).await,
        )
    }

    /// One call, if this scope may see it.
    ///
    /// # Errors
    /// As [`CallReader::page`].
    pub fn show(&self, seq: i64, scope: CallScope<'_>) -> Result<Option<CallDetail>, Error> {
        self.read(
            |conn| show(conn, seq, scope),
            async |tx| shared_calls::show(tx, seq, scope).await,
        )
    }

    /// Savings of so long, by day (as clocks show it this many minutes east of UTC), client, tool and upstream.
    ///
    /// # Errors
    /// As [`CallReader::page`].
    pub fn savings(
        &self,
        back: Duration,
        offset_minutes: i64,
        scope: CallScope<'_>,
        lists: &[UpstreamList],
    ) -> Result<SavingsReport, Error> {
        let since = Timestamp::now() - back;
        self.read(
            |conn| savings(conn, since, offset_minutes, scope, lists),
            async |tx| shared_calls::savings(tx, since, offset_minutes, scope, lists).await,
        )
    }

    /// The sessions that called in so long, the latest first.
    ///
    /// # Errors
    /// As [`CallReader::page`].
    pub fn sessions(
        &self,
        back: Duration,
        scope: CallScope<'_>,
    ) -> Result<Vec<SessionActivity>, Error> {
        let since = Timestamp::now() - back;
        self.read(
            |conn| sessions(conn, since, scope),
            async |tx| shared_calls::sessions(tx, since, scope).await,
        )
    }

    fn read<T: Default>(
        &self,
        in_file: impl FnOnce(&Connection) -> rusqlite::Result<T>,
        shared: impl AsyncFn(&TenantTransaction<'_>) -> llmc_store::Result<T>,
    ) -> Result<T, Error> {
        match &self.location {
            TelemetryLocation::Database(database) => {
                database.transaction(shared).map_err(Error::Shared)
            }
            TelemetryLocation::File(path) => match open_read_only(path)? {
                Some(conn) => in_file(&conn).map_err(unavailable),
                None => Ok(T::default()),
            },
        }
    }
}

pub(super) fn principal_of<'a>(scope: CallScope<'a>) -> Option<&'a str> {
    match scope {
        CallScope::All => None,
        CallScope::Principal(principal) => Some(principal),
    }
}

fn page(conn: &Connection, query: &CallQuery, scope: CallScope<'_>) -> rusqlite::Result<CallPage> {
    let principal = principal_of(scope);
    let text = query.text.as_deref().map(str::to_lowercase);
    let mut sql = format!(
        "SELECT {} FROM calls WHERE seq > (SELECT coalesce(max(seq), 0) FROM calls) - {MAX_SEARCHED_ROWS}",
        bounded_columns()
    );
    let mut values: Vec<&dyn ToSql> = Vec::new();
    let equals = [
        (
            "principal",
            principal.as_ref().map(|value| value as &dyn ToSql),
        ),
        (
            "agent",
            query.agent.as_ref().map(|value| value as &dyn ToSql),
        ),
        (
            "session",
            query.session.as_ref().map(|value| value as &dyn ToSql),
        ),
        (
            "server",
            query.server.as_ref().map(|value| value as &dyn ToSql),
        ),
    ];
    for (column, value) in equals {
        if let Some(value) = value {
            values.push(value);
            sql.push_str(&format!(" AND {column} = ?{}", values.len()));
        }
    }
    if let Some(tool) = &query.tool {
        values.push(tool);
        let at = values.len();
        // `run_cmd make` is a call of `run_cmd` as well.
        sql.push_str(&format!(
            " AND (cmd = ?{at} OR (instr(cmd, ' ') > 0 AND substr(cmd, 1, instr(cmd, ' ') - 1) = ?{at}))"
        ));
    }
    if let Some(before) = &query.before {
        values.push(before);
        sql.push_str(&format!(" AND seq < ?{}", values.len()));
    }
    if let Some(after) = &query.after {
        values.push(after);
        sql.push_str(&format!(" AND seq > ?{}", values.len()));
    }
    if query.failed {
        sql.push_str(" AND error IS NOT NULL");
    }
    if let Some(text) = &text {
        values.push(text);
        let at = values.len();
        let columns = ["cmd", "agent", "client", "session", "path", "error", "args"];
        let found = columns.map(|column| format!("instr(lower({column}), ?{at}) > 0"));
        sql.push_str(&format!(
            " AND ({} OR EXISTS (SELECT 1 FROM contents WHERE contents.seq = calls.seq AND \
             (instr(lower(contents.args), ?{at}) > 0 OR instr(lower(contents.answer), ?{at}) > 0)))",
            found.join(" OR ")
        ));
    }
    // One more, to know whether there are more.
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX - 1) + 1;
    values.push(&limit);
    sql.push_str(&format!(" ORDER BY seq DESC LIMIT ?{}", values.len()));
    let mut statement = conn.prepare(&sql)?;
    let rows = statement.query_map(values.as_slice(), read_row)?;
    let mut calls: Vec<CallEvent> = rows.collect::<rusqlite::Result<_>>()?;
    let has_more = calls.len() > query.limit;
    calls.truncate(query.limit);
    let next = calls.last().filter(|_| has_more).and_then(|call| call.seq);
    Ok(CallPage { calls, next })
}

fn show(conn: &Connection, seq: i64, scope: CallScope<'_>) -> rusqlite::Result<Option<CallDetail>> {
    let sql = format!(
        "SELECT {} FROM calls WHERE seq = ?1 AND (?2 IS NULL OR principal = ?2)",
        bounded_columns()
    );
    let call = conn
        .query_row(&sql, params![seq, principal_of(scope)], read_row)
        .optional()?;
    let Some(call) = call else { return Ok(None) };
    let sql = format!(
        "SELECT substr(args, 1, {MAX_CONTENT_CHARS}), args_cut, substr(answer, 1, {MAX_CONTENT_CHARS}), answer_cut \
         FROM contents WHERE seq = ?1"
    );
    let content = conn
        .query_row(&sql, [seq], |row| {
            Ok([(row.get(0)?, row.get(1)?), (row.get(2)?, row.get(3)?)])
        })
        .optional()?;
    Ok(Some(CallDetail { call, content }))
}

/// Sums in the order that [`read_totals`] reads them.
const TOTALS: &str = "count(*), count(error), sum(truncated), sum(bytes_in), sum(bytes_out), sum(tokens_in), \
                      sum(tokens_served), sum(tokens_withheld), sum(tokens_fetched_back)";

fn read_totals(row: &rusqlite::Row<'_>, from: usize) -> rusqlite::Result<CallTotals> {
    CallTotals::from_sums(|at| row.get(from + at))
}

fn savings(
    conn: &Connection,
    since: Timestamp,
    offset_minutes: i64,
    scope: CallScope<'_>,
    lists: &[UpstreamList],
) -> rusqlite::Result<SavingsReport> {
    let day = format!("date(time_ms / 1000 + {offset_minutes} * 60, 'unixepoch')");
    let by_savings = "sum(tokens_withheld) - sum(tokens_fetched_back) DESC";
    Ok(SavingsReport {
        days: groups(conn, &day, "1", since, scope)?,
        clients: groups(conn, "coalesce(agent, '')", by_savings, since, scope)?,
        tools: groups(conn, "cmd", by_savings, since, scope)?,
        upstreams: ledgers(conn, since, scope, lists)?,
    })
}

fn groups(
    conn: &Connection,
    name: &str,
    order: &str,
    since: Timestamp,
    scope: CallScope<'_>,
) -> rusqlite::Result<Vec<SavingsGroup>> {
    let mut statement = conn.prepare(&format!(
        "SELECT substr({name}, 1, 200), {TOTALS} FROM calls WHERE time_ms >= ?1 AND (?2 IS NULL OR principal = ?2) \
         GROUP BY 1 ORDER BY {order} LIMIT {MAX_GROUPS}"
    ))?;
    let rows = statement.query_map(
        params![since.as_millisecond(), principal_of(scope)],
        |row| {
            Ok(SavingsGroup {
                name: row.get(0)?,
                totals: read_totals(row, 1)?,
            })
        },
    )?;
    rows.collect()
}

/// The ledger of each of these upstreams, of the rows that matter to one: calls of their tools, what was fetched back, and
/// one call of each conversation.
fn ledgers(
    conn: &Connection,
    since: Timestamp,
    scope: CallScope<'_>,
    lists: &[UpstreamList],
) -> rusqlite::Result<Vec<UpstreamLedger>> {
    if lists.is_empty() {
        return Ok(Vec::new());
    }
    let passes = "time_ms >= ?1 AND (?2 IS NULL OR principal = ?2)";
    let mut statement = conn.prepare(&format!(
        "SELECT {} FROM calls WHERE {passes} AND (instr(cmd, '.') > 0 OR tokens_fetched_back > 0 OR seq IN \
         (SELECT min(seq) FROM calls WHERE {passes} AND source = 'mcp' GROUP BY server, principal, session)) ORDER BY seq",
        bounded_columns()
    ))?;
    let rows = statement.query_map(
        params![since.as_millisecond(), principal_of(scope)],
        read_row,
    )?;
    let mut ledgers = UpstreamLedgers::default();
    for call in rows {
        ledgers.add(&call?);
    }
    Ok(ledgers.of(lists))
}

fn sessions(
    conn: &Connection,
    since: Timestamp,
    scope: CallScope<'_>,
) -> rusqlite::Result<Vec<SessionActivity>> {
    let mut statement = conn.prepare(&format!(
        "SELECT max(seq), min(time_ms), {TOTALS} FROM calls WHERE time_ms >= ?1 AND (?2 IS NULL OR principal = ?2) \
         GROUP BY server, principal, agent, session ORDER BY 1 DESC LIMIT {MAX_SESSIONS}"
    ))?;
    let rows = statement.query_map(
        params![since.as_millisecond(), principal_of(scope)],
        |row| {
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, i64>(1)?,
                read_totals(row, 2)?,
            ))
        },
    )?;
    let rows: Vec<_> = rows.collect::<rusqlite::Result<_>>()?;
    let mut last = conn.prepare(&format!(
        "SELECT {} FROM calls WHERE seq = ?1",
        bounded_columns()
    ))?;
    let mut sessions = Vec::new();
    for (seq, first, totals) in rows {
        sessions.push(SessionActivity {
            totals,
            first: llmc_envelope::clock::from_millis(first),
            last: last.query_row([seq], read_row)?,
        });
    }
    Ok(sessions)
}
