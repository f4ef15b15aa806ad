//! Recorded calls of all servers, searched and shown, in the database that they share.

use jiff::Timestamp;
use llmc_envelope::clock::from_millis;
use llmc_store::{Result, Row, TenantTransaction, ToSql};

use super::COLUMNS;
use super::calls::{
    CallDetail, CallPage, CallQuery, MAX_GROUPS, MAX_SEARCHED_ROWS, MAX_SESSIONS, SavingsGroup,
    SavingsReport, SessionActivity, principal_of,
};
use super::row::without_nul;
use super::shared::call_of;
use crate::live::CallScope;
use crate::summary::CallTotals;
use crate::upstreams::{UpstreamLedger, UpstreamLedgers, UpstreamList};

/// Rows from a moment on that a principal may see: `$1` and `$2`.
const PASSES: &str = "time_ms >= $1 AND ($2::text IS NULL OR principal = $2)";
/// Sums in the order that [`totals_of`] reads them.
const TOTALS: &str = "count(*), count(error), count(*) FILTER (WHERE truncated), sum(bytes_in)::bigint, sum(bytes_out)::bigint, \
                      sum(tokens_in)::bigint, sum(tokens_served)::bigint, sum(tokens_withheld)::bigint, \
                      sum(tokens_fetched_back)::bigint";

pub(super) async fn page(
    tx: &TenantTransaction<'_>,
    query: &CallQuery,
    scope: CallScope<'_>,
) -> Result<CallPage> {
    let principal = principal_of(scope).map(without_nul);
    let plain = |text: &Option<String>| text.as_deref().map(without_nul);
    let (agent, session) = (plain(&query.agent), plain(&query.session));
    let (server, tool) = (plain(&query.server), plain(&query.tool));
    let text = plain(&query.text).map(|text| text.to_lowercase());
    // One more, to know whether there are more.
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX - 1) + 1;
    let found = ["cmd", "agent", "client", "session", "path", "error", "args"]
        .map(|column| format!("strpos(lower({column}), $6) > 0"))
        .join(" OR ");
    // `run_cmd make` is a call of `run_cmd` as well.
    let sql = format!(
        "SELECT {COLUMNS}, args FROM llmc.calls \
         WHERE seq > (SELECT coalesce(max(seq), 0) FROM llmc.calls) - {MAX_SEARCHED_ROWS} \
         AND ($1::text IS NULL OR principal = $1) AND ($2::text IS NULL OR agent = $2) \
         AND ($3::text IS NULL OR session = $3) AND ($4::text IS NULL OR server = $4) \
         AND ($5::text IS NULL OR cmd = $5 OR (strpos(cmd, ' ') > 0 AND split_part(cmd, ' ', 1) = $5)) \
         AND ($6::text IS NULL OR {found} OR EXISTS (SELECT 1 FROM llmc.call_contents AS contents \
         WHERE contents.seq = calls.seq AND (strpos(lower(contents.args), $6) > 0 OR strpos(lower(contents.answer), $6) > 0))) \
         AND ($7::bigint IS NULL OR seq < $7) AND ($8::bigint IS NULL OR seq > $8) \
         AND (NOT $9::boolean OR error IS NOT NULL) ORDER BY seq DESC LIMIT $10"
    );
    let values: [&(dyn ToSql + Sync); 10] = [
        &principal,
        &agent,
        &session,
        &server,
        &tool,
        &text,
        &query.before,
        &query.after,
        &query.failed,
        &limit,
    ];
    let rows = tx.query(&sql, &values).await?;
    let mut calls = rows.iter().map(call_of).collect::<Result<Vec<_>>>()?;
    let has_more = calls.len() > query.limit;
    calls.truncate(query.limit);
    let next = calls.last().filter(|_| has_more).and_then(|call| call.seq);
    Ok(CallPage { calls, next })
}

pub(super) async fn show(
    tx: &TenantTransaction<'_>,
    seq: i64,
    scope: CallScope<'_>,
) -> Result<Option<CallDetail>> {
    let principal = principal_of(scope).map(without_nul);
    let sql = format!(
        "SELECT {COLUMNS}, args FROM llmc.calls WHERE seq = $1 AND ($2::text IS NULL OR principal = $2)"
    );
    let Some(row) = tx.query_opt(&sql, &[&seq, &principal]).await? else {
        return Ok(None);
    };
    let sql = "SELECT args, args_cut, answer, answer_cut FROM llmc.call_contents WHERE seq = $1";
    let content = match tx.query_opt(sql, &[&seq]).await? {
        None => None,
        Some(row) => Some([
            (row.try_get(0)?, row.try_get(1)?),
            (row.try_get(2)?, row.try_get(3)?),
        ]),
    };
    Ok(Some(CallDetail {
        call: call_of(&row)?,
        content,
    }))
}

pub(super) async fn savings(
    tx: &TenantTransaction<'_>,
    since: Timestamp,
    offset_minutes: i64,
    scope: CallScope<'_>,
    lists: &[UpstreamList],
) -> Result<SavingsReport> {
    let day = format!(
        "to_char(to_timestamp(time_ms / 1000 + {offset_minutes} * 60) AT TIME ZONE 'UTC', 'YYYY-MM-DD')"
    );
    let by_savings = "sum(tokens_withheld) - sum(tokens_fetched_back) DESC";
    Ok(SavingsReport {
        days: groups(tx, &day, "1", since, scope).await?,
        clients: groups(tx, "agent", by_savings, since, scope).await?,
        tools: groups(tx, "cmd", by_savings, since, scope).await?,
        upstreams: ledgers(tx, since, scope, lists).await?,
    })
}

async fn groups(
    tx: &TenantTransaction<'_>,
    name: &str,
    order: &str,
    since: Timestamp,
    scope: CallScope<'_>,
) -> Result<Vec<SavingsGroup>> {
    let principal = principal_of(scope).map(without_nul);
    let sql = format!(
        "SELECT left({name}, 200), {TOTALS} FROM llmc.calls WHERE {PASSES} GROUP BY 1 ORDER BY {order} LIMIT {MAX_GROUPS}"
    );
    let rows = tx
        .query(&sql, &[&since.as_millisecond(), &principal])
        .await?;
    let group = |row: &Row| {
        Ok(SavingsGroup {
            name: row.try_get(0)?,
            totals: totals_of(row, 1)?,
        })
    };
    rows.iter().map(group).collect()
}

/// The ledgers, of the rows that matter to one: calls of upstreams' tools, what was fetched back, and one call of each
/// conversation.
async fn ledgers(
    tx: &TenantTransaction<'_>,
    since: Timestamp,
    scope: CallScope<'_>,
    lists: &[UpstreamList],
) -> Result<Vec<UpstreamLedger>> {
    if lists.is_empty() {
        return Ok(Vec::new());
    }
    let principal = principal_of(scope).map(without_nul);
    let sql = format!(
        "SELECT {COLUMNS}, NULL::text FROM llmc.calls WHERE {PASSES} AND (strpos(cmd, '.') > 0 OR tokens_fetched_back > 0 \
         OR seq IN (SELECT min(seq) FROM llmc.calls WHERE {PASSES} AND source = 'mcp' GROUP BY server, principal, session)) \
         ORDER BY seq"
    );
    let rows = tx
        .query(&sql, &[&since.as_millisecond(), &principal])
        .await?;
    let mut ledgers = UpstreamLedgers::default();
    for row in &rows {
        ledgers.add(&call_of(row)?);
    }
    Ok(ledgers.of(lists))
}

pub(super) async fn sessions(
    tx: &TenantTransaction<'_>,
    since: Timestamp,
    scope: CallScope<'_>,
) -> Result<Vec<SessionActivity>> {
    let principal = principal_of(scope).map(without_nul);
    let sql = format!(
        "SELECT max(seq), min(time_ms), {TOTALS} FROM llmc.calls WHERE {PASSES} \
         GROUP BY server, principal, agent, session ORDER BY 1 DESC LIMIT {MAX_SESSIONS}"
    );
    let sums = tx
        .query(&sql, &[&since.as_millisecond(), &principal])
        .await?;
    let newest = sums.iter().map(|row| Ok(row.try_get(0)?));
    let newest = newest.collect::<Result<Vec<i64>>>()?;
    let sql = format!(
        "SELECT {COLUMNS}, NULL::text FROM llmc.calls WHERE seq = ANY($1::bigint[]) ORDER BY seq DESC"
    );
    let last = tx.query(&sql, &[&newest]).await?;
    let session = |(sums, last): (&Row, &Row)| {
        Ok(SessionActivity {
            totals: totals_of(sums, 2)?,
            first: from_millis(sums.try_get(1)?),
            last: call_of(last)?,
        })
    };
    sums.iter().zip(&last).map(session).collect()
}

fn totals_of(row: &Row, from: usize) -> Result<CallTotals> {
    CallTotals::from_sums(|at| Ok(row.try_get(from + at)?))
}
