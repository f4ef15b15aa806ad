//! Reading entries and their changes.

use std::collections::HashMap;
use std::time::Duration;

use llmc_store::{Row, TenantTransaction};

use super::{PostgresHistory, path_state, unavailable};
use crate::entry::{
    ChangeAuthor, ChangeCounts, Entry, EntryFilter, EntryId, EntrySource, HistoryViewer,
};
use crate::error::Result;
use crate::store::{
    ChangeRow, ChosenEntries, StoredEntry, below, principal, source_number, source_of,
};

/// How long reading very many changes may take.
const LONG_READ: Duration = Duration::from_secs(30);
/// The part of a path that an index has.
const KEY: &str = "FOR 200";

/// The columns of an entry `e` that [`entry_of`] reads.
const ENTRY: &str = "e.id, e.time_ms, e.source, e.principal, e.agent, e.session, e.tool, e.args, e.created, e.changed, \
    e.deleted, e.moved, e.not_kept, e.ignored, e.shared, e.head_before, e.head_after, e.undoes, e.not_undoable, \
    (SELECT max(undone_by) FROM llmc.history_changes AS c WHERE c.workspace = e.workspace AND c.entry = e.id), \
    (SELECT count(undone_by) FROM llmc.history_changes AS c \
      WHERE c.workspace = e.workspace AND c.entry = e.id AND moved_to IS NULL)";
/// How many they are.
const ENTRY_COLUMNS: usize = 21;

const CHANGE: &str = "entry, path, moved_from, moved_to, old_kind, old_mode, old_size, old_id, old_why, \
    new_kind, new_mode, new_size, new_id, new_why, shared, undone_by";

impl PostgresHistory {
    pub(super) fn list_entries(&self, filter: &EntryFilter) -> Result<Vec<Entry>> {
        let number = self.number()?;
        let sql = format!(
            "SELECT {ENTRY} FROM llmc.history_entries AS e \
             WHERE workspace = $1 AND ($2::bytea IS NULL OR principal = $2) AND ($3::bytea IS NULL OR session = $3) \
               AND id < $4 AND ($5::bigint IS NULL OR time_ms >= $5) \
               AND ($6::boolean OR id IN (SELECT entry FROM llmc.history_changes WHERE workspace = $1 AND ( \
                 (substring(path {KEY}) = substring($7::bytea {KEY}) AND path = $7) OR \
                 (substring(path {KEY}) BETWEEN substring($8::bytea {KEY}) AND substring($9::bytea {KEY}) \
                   AND path >= $8 AND path < $9)))) \
             ORDER BY id DESC LIMIT $10"
        );
        let principal = principal(&filter.viewer).map(str::as_bytes);
        let session = filter.session.as_deref().map(str::as_bytes);
        let before = filter.before.map_or(i64::MAX, id_number);
        let everything = filter.path.as_ref().is_none_or(Vec::is_empty);
        let (first, behind) = filter.path.as_deref().map(below).unzip();
        let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
        let rows = self.run(async |tx| {
            tx.query_and_commit(
                &sql,
                &[
                    &number,
                    &principal,
                    &session,
                    &before,
                    &filter.since_ms,
                    &everything,
                    &filter.path,
                    &first,
                    &behind,
                    &limit,
                ],
            )
            .await
        })?;
        let entries = rows.iter().map(entry_of);
        entries
            .collect::<llmc_store::Result<_>>()
            .map_err(unavailable)
    }

    pub(super) fn chosen_entries(
        &self,
        chosen: &ChosenEntries<'_>,
        viewer: &HistoryViewer,
        max_changes: usize,
    ) -> Result<Vec<StoredEntry>> {
        let number = self.number()?;
        let sql = format!(
            "SELECT {ENTRY}, steps, (SELECT count(*) FROM llmc.history_changes AS c \
               WHERE c.workspace = e.workspace AND c.entry = e.id) \
             FROM llmc.history_entries AS e WHERE workspace = $1 AND id BETWEEN $2 AND $3 \
               AND ($4::bytea IS NULL OR session = $4) AND ($5::boolean OR source <> 1) \
               AND ($6::bytea IS NULL OR principal = $6) \
               AND id > coalesce((SELECT max(id) FROM llmc.history_entries WHERE workspace = $1 AND time_ms <= $7), 0) \
             ORDER BY id DESC"
        );
        let (first, last, session, with_outside, after_ms) = match chosen {
            ChosenEntries::Range(first, last) => {
                (id_number(*first), id_number(*last), None, true, None)
            }
            ChosenEntries::Session(session) => (0, i64::MAX, Some(session.as_bytes()), false, None),
            ChosenEntries::Since(time_ms) => (0, i64::MAX, None, false, Some(*time_ms)),
        };
        let principal = principal(viewer).map(str::as_bytes);
        let read = async |tx: &TenantTransaction<'_>| {
            tx.allow_statements(LONG_READ).await?;
            let rows = tx
                .query(
                    &sql,
                    &[
                        &number,
                        &first,
                        &last,
                        &session,
                        &with_outside,
                        &principal,
                        &after_ms,
                    ],
                )
                .await?;
            let mut found = Vec::new();
            let mut ids = Vec::new();
            let mut changes = 0;
            for row in &rows {
                let entry = entry_of(row)?;
                ids.push(id_number(entry.id));
                let steps = text(row, ENTRY_COLUMNS)?;
                found.push(StoredEntry {
                    entry,
                    steps: steps.lines().map(str::to_owned).collect(),
                    changes: Vec::new(),
                });
                let count: i64 = row.try_get(ENTRY_COLUMNS + 1)?;
                changes += usize::try_from(count).unwrap_or(0);
                if changes > max_changes {
                    break;
                }
            }
            let mut at: HashMap<u64, usize> = HashMap::new();
            for (index, stored) in found.iter().enumerate() {
                at.insert(stored.entry.id.0, index);
            }
            let sql = format!(
                "SELECT {CHANGE} FROM llmc.history_changes WHERE workspace = $1 AND entry = ANY($2) ORDER BY path"
            );
            for row in &tx.query_and_commit(&sql, &[&number, &ids]).await? {
                let change = change_of(row)?;
                if let Some(index) = at.get(&change.entry.0) {
                    found[*index].changes.push(change);
                }
            }
            Ok::<_, llmc_store::Error>(found)
        };
        let limit = LONG_READ + LONG_READ;
        let read = self.database.transaction_within(limit, read);
        read.map_err(unavailable)
    }

    pub(super) fn oldest_changes(
        &self,
        id: EntryId,
        viewer: &HistoryViewer,
    ) -> Result<Option<Vec<ChangeRow>>> {
        let number = self.number()?;
        let first = id_number(id);
        let principal = principal(viewer).map(str::as_bytes);
        let (found, rows) = self.run(async |tx| {
            let exists = "SELECT 1 FROM llmc.history_entries WHERE workspace = $1 AND id = $2 \
                          AND ($3::bytea IS NULL OR principal = $3)";
            let changes = format!(
                "SELECT DISTINCT ON (path) {CHANGE} FROM llmc.history_changes \
                 WHERE workspace = $1 AND entry >= $2 ORDER BY path, entry"
            );
            tx.query_both_and_commit(
                (exists, &[&number, &first, &principal]),
                (&changes, &[&number, &first]),
            )
            .await
        })?;
        if found.is_empty() {
            return Ok(None);
        }
        let rows = rows.iter().map(change_of);
        let rows = rows.collect::<llmc_store::Result<_>>();
        rows.map(Some).map_err(unavailable)
    }

    pub(super) fn newest_entries_of(&self, paths: &[&[u8]]) -> Result<HashMap<Vec<u8>, EntryId>> {
        let number = self.number()?;
        let rows = self.run(async |tx| {
            let sql = format!(
                "SELECT named.path, max(c.entry) FROM unnest($2::bytea[]) AS named (path) \
                 JOIN llmc.history_changes AS c ON c.workspace = $1 AND c.path = named.path \
                   AND substring(c.path {KEY}) = substring(named.path {KEY}) GROUP BY named.path"
            );
            tx.query_and_commit(&sql, &[&number, &paths]).await
        })?;
        let newest = rows.iter().map(|row| {
            let id: i64 = row.try_get(1)?;
            Ok((row.try_get(0)?, EntryId(id.cast_unsigned())))
        });
        newest
            .collect::<llmc_store::Result<_>>()
            .map_err(unavailable)
    }

    pub(super) fn give_entry_to_call(
        &self,
        id: EntryId,
        author: &ChangeAuthor,
        paths: &[Vec<u8>],
    ) -> Result<bool> {
        let number = self.number()?;
        let texts = [
            &author.principal,
            &author.agent,
            &author.session,
            &author.tool,
            &author.args_short,
        ];
        let [principal, agent, session, tool, args] = texts.map(|text| text.as_bytes());
        let (call, outside) = (
            source_number(EntrySource::Call),
            source_number(EntrySource::Outside),
        );
        let given = self.run(async |tx| {
            let sql = "UPDATE llmc.history_entries AS e SET source = $3, principal = $4, agent = $5, session = $6, \
                         tool = $7, args = $8 \
                       WHERE e.workspace = $1 AND e.id = $2 AND e.source = $9 AND NOT EXISTS ( \
                         SELECT 1 FROM llmc.history_changes AS c \
                         WHERE c.workspace = $1 AND c.entry = $2 AND c.path <> ALL ($10::bytea[])) \
                       RETURNING 1";
            tx.query_and_commit(
                sql,
                &[
                    &number,
                    &id_number(id),
                    &call,
                    &principal,
                    &agent,
                    &session,
                    &tool,
                    &args,
                    &outside,
                    &paths,
                ],
            )
            .await
        })?;
        Ok(!given.is_empty())
    }
}

pub(super) fn id_number(id: EntryId) -> i64 {
    i64::try_from(id.0).unwrap_or(i64::MAX)
}

fn text(row: &Row, column: usize) -> llmc_store::Result<String> {
    let bytes: &[u8] = row.try_get(column)?;
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

fn optional_text(row: &Row, column: usize) -> llmc_store::Result<Option<String>> {
    let bytes: Option<&[u8]> = row.try_get(column)?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}

fn entry_of(row: &Row) -> llmc_store::Result<Entry> {
    let count =
        |at: usize| -> llmc_store::Result<u64> { Ok(row.try_get::<_, i64>(at)?.cast_unsigned()) };
    let undoes: Vec<i64> = row.try_get(17)?;
    let undone_by: Option<i64> = row.try_get(19)?;
    Ok(Entry {
        id: EntryId(count(0)?),
        time_ms: row.try_get(1)?,
        source: source_of(row.try_get(2)?),
        author: ChangeAuthor {
            principal: text(row, 3)?,
            agent: text(row, 4)?,
            session: text(row, 5)?,
            tool: text(row, 6)?,
            args_short: text(row, 7)?,
        },
        counts: ChangeCounts {
            created: count(8)?,
            changed: count(9)?,
            deleted: count(10)?,
            moved: count(11)?,
            not_kept: count(12)?,
            ignored: count(13)?,
        },
        shared: row.try_get(14)?,
        head_before: optional_text(row, 15)?,
        head_after: optional_text(row, 16)?,
        undoes: undoes
            .into_iter()
            .map(|id| EntryId(id.cast_unsigned()))
            .collect(),
        not_undoable: optional_text(row, 18)?,
        undone_by: undone_by.map(|id| EntryId(id.cast_unsigned())),
        undone: count(20)?,
    })
}

fn change_of(row: &Row) -> llmc_store::Result<ChangeRow> {
    let entry: i64 = row.try_get(0)?;
    let undone_by: Option<i64> = row.try_get(15)?;
    Ok(ChangeRow {
        entry: EntryId(entry.cast_unsigned()),
        path: row.try_get(1)?,
        moved_from: row.try_get(2)?,
        moved_to: row.try_get(3)?,
        before: path_state(row, 4)?,
        after: path_state(row, 9)?,
        shared: row.try_get(14)?,
        undone_by: undone_by.map(|id| EntryId(id.cast_unsigned())),
    })
}
