//! The statements of the history on SQLite.

use std::collections::HashSet;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Result as SqlResult, Row, ToSql, params};

use crate::compare::Finding;
use crate::entry::{
    ChangeAuthor, ChangeCounts, Entry, EntryFilter, EntryId, EntrySource, HistoryViewer, ObjectId,
    PathState,
};
use crate::history::HistoryCheck;
use crate::objects::PackedObject;
use crate::retention::{ENTRIES_AT_ONCE, OBJECTS_AT_ONCE};
use crate::snapshot::{Known, Stamp};
use crate::store::{
    ChangeRow, ChosenEntries, CommitWrite, NewEntry, PlanId, StoreState, StoredEntry, below,
    principal, snapshot_columns, source_number, source_of, state_columns, state_from,
};

pub(super) fn state(conn: &Connection) -> SqlResult<StoreState> {
    let newest: Option<i64> = conn
        .prepare_cached("SELECT MAX(id) FROM entries")?
        .query_row([], |row| row.get(0))?;
    Ok(StoreState {
        number: number(conn, "store")?,
        is_built: number(conn, "built")? != 0,
        generation: number(conn, "generation")?,
        looked_ns: number(conn, "looked_ns")?,
        newest_entry: newest.map(|id| EntryId(id.cast_unsigned())),
        has_plans: conn.prepare_cached("SELECT 1 FROM plans")?.exists([])?,
    })
}

/// Writes what was decided; the entry.
pub(super) fn apply(
    conn: &Connection,
    write: &CommitWrite<'_>,
    call: Option<&str>,
    now_ms: i64,
) -> SqlResult<Option<EntryId>> {
    for object in write.objects {
        add_object(conn, object, now_ms)?;
    }
    set_number(conn, "generation", write.generation)?;
    for finding in write.findings {
        put_snapshot(conn, finding, write.generation)?;
    }
    set_number(conn, "looked_ns", write.looked_ns)?;
    if let Some(call) = call {
        let sql = match write.is_checkpoint {
            true => {
                "UPDATE active SET shared = EXISTS (SELECT 1 FROM active WHERE call != ?1) WHERE call = ?1"
            }
            false => "DELETE FROM active WHERE call = ?1",
        };
        conn.execute(sql, [call])?;
    }
    if let Some(plan) = write.plan {
        remove_plan(conn, plan)?;
    }
    let Some(entry) = write.entry else {
        return Ok(None);
    };
    let id = add_entry(conn, entry, now_ms)?;
    for (entry, path) in write.taken_back {
        set_undone(conn, *entry, path, Some(id))?;
        // Taking back an undo puts in force what it took back.
        clear_undone(conn, *entry, path)?;
    }
    Ok(Some(id))
}

pub(super) fn remove_plan(conn: &Connection, id: &PlanId) -> SqlResult<()> {
    conn.execute("DELETE FROM plans WHERE id = CAST(?1 AS INTEGER)", [id])?;
    Ok(())
}

pub(super) fn stored(conn: &Connection, ids: &[ObjectId]) -> SqlResult<HashSet<ObjectId>> {
    let mut stored = HashSet::new();
    for id in ids {
        if has_object(conn, id)? {
            stored.insert(*id);
        }
    }
    Ok(stored)
}

pub(super) fn stored_entry(
    conn: &Connection,
    id: EntryId,
    viewer: &HistoryViewer,
) -> SqlResult<Option<StoredEntry>> {
    let Some((entry, steps)) = entry(conn, id, viewer)? else {
        return Ok(None);
    };
    let changes = changes_of(conn, id)?;
    Ok(Some(StoredEntry {
        entry,
        steps,
        changes,
    }))
}

impl ToSql for ObjectId {
    fn to_sql(&self) -> SqlResult<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Blob(&self.0)))
    }
}

impl FromSql for ObjectId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<ObjectId> {
        let bytes = value.as_blob()?;
        let id = bytes.try_into().map_err(|_| FromSqlError::InvalidType)?;
        Ok(ObjectId(id))
    }
}

/// The columns of a state, from `first` on.
fn state_row(row: &Row<'_>, first: usize) -> SqlResult<PathState> {
    Ok(state_from((
        row.get(first)?,
        row.get(first + 1)?,
        row.get(first + 2)?,
        row.get(first + 3)?,
        row.get(first + 4)?,
    )))
}

pub(super) fn number(conn: &Connection, name: &str) -> SqlResult<i64> {
    let found = conn
        .prepare_cached("SELECT value FROM numbers WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()?;
    Ok(found.unwrap_or(0))
}

pub(super) fn set_number(conn: &Connection, name: &str, value: i64) -> SqlResult<()> {
    conn.prepare_cached("INSERT OR REPLACE INTO numbers VALUES (?1, ?2)")?
        .execute(params![name, value])?;
    Ok(())
}

/// Bytes of the store that are in use.
pub(super) fn used_bytes(conn: &Connection) -> SqlResult<u64> {
    let pragma = |name: &str| -> SqlResult<i64> {
        conn.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
    };
    let pages = pragma("page_count")? - pragma("freelist_count")?;
    Ok(u64::try_from(pages.saturating_mul(pragma("page_size")?)).unwrap_or(0))
}

pub(super) fn has_object(conn: &Connection, id: &ObjectId) -> SqlResult<bool> {
    conn.prepare_cached("SELECT 1 FROM objects WHERE id = ?1")?
        .exists([id])
}

pub(super) fn add_object(conn: &Connection, object: &PackedObject, now_ms: i64) -> SqlResult<()> {
    conn.prepare_cached(
        "INSERT OR IGNORE INTO objects (id, size, compressed, added_ms, body) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![
        object.id,
        i64::try_from(object.size).unwrap_or(i64::MAX),
        object.is_compressed,
        now_ms,
        object.body
    ])?;
    Ok(())
}

pub(super) fn object(conn: &Connection, id: &ObjectId) -> SqlResult<Option<PackedObject>> {
    conn.prepare_cached("SELECT size, compressed, body FROM objects WHERE id = ?1")?
        .query_row([id], |row| {
            let size: i64 = row.get(0)?;
            Ok(PackedObject {
                id: *id,
                size: u64::try_from(size).unwrap_or(0),
                is_compressed: row.get(1)?,
                body: row.get(2)?,
            })
        })
        .optional()
}

/// Calls `each` with every path whose state changed after the write `since`; a path that is gone has no `Known`.
pub(super) fn snapshot_since(
    conn: &Connection,
    since: i64,
    each: &mut dyn FnMut(Vec<u8>, Option<Known>),
) -> SqlResult<()> {
    let mut select = conn.prepare_cached(
        "SELECT path, kind, mode, size, id, why, mtime_ns, ctime_ns, inode, flags FROM snapshot WHERE gen > ?1",
    )?;
    let mut rows = select.query([since])?;
    while let Some(row) = rows.next()? {
        let state = state_row(row, 1)?;
        let inode: i64 = row.get(8)?;
        let stamp = Stamp {
            size: u64::try_from(row.get::<_, i64>(3)?).unwrap_or(0),
            mtime_ns: row.get(6)?,
            ctime_ns: row.get(7)?,
            inode: inode.cast_unsigned(),
            flags: row.get(9)?,
        };
        let known = (state != PathState::Absent).then(|| Known::new(state, stamp));
        each(row.get(0)?, known);
    }
    Ok(())
}

/// Whether any server has said something of a path, its absence included.
pub(super) fn is_in_snapshot(conn: &Connection, path: &[u8]) -> SqlResult<bool> {
    conn.prepare_cached("SELECT 1 FROM snapshot WHERE path = ?1")?
        .exists([path])
}

fn put_snapshot(conn: &Connection, finding: &Finding, generation: i64) -> SqlResult<()> {
    let ((kind, mode, size, id, why), stamp) = snapshot_columns(finding);
    conn.prepare_cached(
        "INSERT OR REPLACE INTO snapshot VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?
    .execute(params![
        finding.path,
        generation,
        kind,
        mode,
        size,
        id,
        why,
        stamp.mtime_ns,
        stamp.ctime_ns,
        stamp.inode.cast_signed(),
        stamp.flags,
    ])?;
    Ok(())
}

fn add_entry(conn: &Connection, new: &NewEntry, now_ms: i64) -> SqlResult<EntryId> {
    let (entry, counts) = (&new.row, &new.counts);
    let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let undoes: Vec<String> = entry.undoes.iter().map(|id| id.0.to_string()).collect();
    let author = &entry.author;
    conn.prepare_cached(
        "INSERT INTO entries (time_ms, source, principal, agent, session, tool, args, created, changed, deleted, moved,
         not_kept, ignored, shared, head_before, head_after, undoes, steps, not_undoable)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
    )?
    .execute(params![
        now_ms,
        source_number(new.source),
        author.principal,
        author.agent,
        author.session,
        author.tool,
        author.args_short,
        count(counts.created),
        count(counts.changed),
        count(counts.deleted),
        count(counts.moved),
        count(counts.not_kept),
        count(counts.ignored),
        entry.shared,
        entry.head_before,
        entry.head_after,
        undoes.join(","),
        entry.steps.join("\n"),
        entry.not_undoable,
    ])?;
    let id = conn.last_insert_rowid();
    for change in &new.changes {
        let old = state_columns(&change.before);
        let after = state_columns(&change.after);
        conn.prepare_cached(
            "INSERT INTO changes VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, NULL)",
        )?
        .execute(params![
            id,
            change.path,
            change.moved_from,
            change.moved_to,
            old.0,
            old.1,
            old.2,
            old.3,
            old.4,
            after.0,
            after.1,
            after.2,
            after.3,
            after.4,
            change.shared,
        ])?;
    }
    Ok(EntryId(id.cast_unsigned()))
}

const ENTRY_COLUMNS: &str = "id, time_ms, source, principal, agent, session, tool, args, created, changed, deleted, moved, not_kept,
    ignored, shared, head_before, head_after, undoes, not_undoable,
    (SELECT max(undone_by) FROM changes WHERE entry = entries.id),
    (SELECT count(undone_by) FROM changes WHERE entry = entries.id AND moved_to IS NULL)";
/// How many they are.
const ENTRY_COLUMN_COUNT: usize = 21;

fn entry_row(row: &Row<'_>) -> SqlResult<Entry> {
    let count = |at: usize| -> SqlResult<u64> { Ok(row.get::<_, i64>(at)?.cast_unsigned()) };
    let undoes: String = row.get(17)?;
    let undone_by: Option<i64> = row.get(19)?;
    Ok(Entry {
        id: EntryId(count(0)?),
        time_ms: row.get(1)?,
        source: source_of(row.get(2)?),
        author: ChangeAuthor {
            principal: row.get(3)?,
            agent: row.get(4)?,
            session: row.get(5)?,
            tool: row.get(6)?,
            args_short: row.get(7)?,
        },
        counts: ChangeCounts {
            created: count(8)?,
            changed: count(9)?,
            deleted: count(10)?,
            moved: count(11)?,
            not_kept: count(12)?,
            ignored: count(13)?,
        },
        shared: row.get(14)?,
        head_before: row.get(15)?,
        head_after: row.get(16)?,
        undoes: undoes
            .split(',')
            .filter_map(|id| id.parse().ok())
            .map(EntryId)
            .collect(),
        not_undoable: row.get(18)?,
        undone_by: undone_by.map(|id| EntryId(id.cast_unsigned())),
        undone: count(20)?,
    })
}

pub(super) fn list_entries(conn: &Connection, filter: &EntryFilter) -> SqlResult<Vec<Entry>> {
    let range = filter.path.as_deref().map(below);
    let (below, behind) = range.unzip();
    let everything = filter.path.as_ref().is_none_or(Vec::is_empty);
    let sql = format!(
        "SELECT {ENTRY_COLUMNS} FROM entries
         WHERE (?1 IS NULL OR principal = ?1) AND (?2 IS NULL OR session = ?2) AND id < ?3
           AND (?4 IS NULL OR time_ms >= ?4)
           AND (?5 OR id IN (SELECT entry FROM changes WHERE path = ?6 OR (path >= ?7 AND path < ?8)))
         ORDER BY id DESC LIMIT ?9"
    );
    let before = filter
        .before
        .map_or(i64::MAX, |id| i64::try_from(id.0).unwrap_or(i64::MAX));
    conn.prepare_cached(&sql)?
        .query_map(
            params![
                principal(&filter.viewer),
                filter.session,
                before,
                filter.since_ms,
                everything,
                filter.path,
                below,
                behind,
                i64::try_from(filter.limit).unwrap_or(i64::MAX)
            ],
            entry_row,
        )?
        .collect()
}

pub(super) fn entry(
    conn: &Connection,
    id: EntryId,
    viewer: &HistoryViewer,
) -> SqlResult<Option<(Entry, Vec<String>)>> {
    let Ok(number) = i64::try_from(id.0) else {
        return Ok(None);
    };
    let sql = format!(
        "SELECT {ENTRY_COLUMNS}, steps FROM entries WHERE id = ?1 AND (?2 IS NULL OR principal = ?2)"
    );
    conn.prepare_cached(&sql)?
        .query_row(params![number, principal(viewer)], |row| {
            let steps: String = row.get(ENTRY_COLUMN_COUNT)?;
            Ok((entry_row(row)?, steps.lines().map(str::to_owned).collect()))
        })
        .optional()
}

const CHANGE_COLUMNS: &str =
    "entry, path, moved_from, moved_to, old_kind, old_mode, old_size, old_id, old_why,
    new_kind, new_mode, new_size, new_id, new_why, shared, undone_by";

fn change_row(row: &Row<'_>) -> SqlResult<ChangeRow> {
    let entry: i64 = row.get(0)?;
    let undone_by: Option<i64> = row.get(15)?;
    Ok(ChangeRow {
        entry: EntryId(entry.cast_unsigned()),
        path: row.get(1)?,
        moved_from: row.get(2)?,
        moved_to: row.get(3)?,
        before: state_row(row, 4)?,
        after: state_row(row, 9)?,
        shared: row.get(14)?,
        undone_by: undone_by.map(|id| EntryId(id.cast_unsigned())),
    })
}

/// The changes of one entry, by path.
fn changes_of(conn: &Connection, id: EntryId) -> SqlResult<Vec<ChangeRow>> {
    let sql = format!("SELECT {CHANGE_COLUMNS} FROM changes WHERE entry = ?1 ORDER BY path");
    conn.prepare_cached(&sql)?
        .query_map([id.0.cast_signed()], change_row)?
        .collect()
}

/// Of every path that an entry from `id` on changed, the oldest of these changes.
pub(super) fn oldest_changes_since(conn: &Connection, id: EntryId) -> SqlResult<Vec<ChangeRow>> {
    let sql = format!(
        "SELECT {CHANGE_COLUMNS} FROM changes AS c WHERE entry >= ?1
           AND NOT EXISTS (SELECT 1 FROM changes WHERE path = c.path AND entry >= ?1 AND entry < c.entry)
         ORDER BY path"
    );
    conn.prepare_cached(&sql)?
        .query_map([id.0.cast_signed()], change_row)?
        .collect()
}

/// Marks a change as taken back by `by`, or as in force again.
fn set_undone(
    conn: &Connection,
    entry: EntryId,
    path: &[u8],
    by: Option<EntryId>,
) -> SqlResult<()> {
    conn.prepare_cached("UPDATE changes SET undone_by = ?3 WHERE entry = ?1 AND path = ?2")?
        .execute(params![
            entry.0.cast_signed(),
            path,
            by.map(|id| id.0.cast_signed())
        ])?;
    Ok(())
}

/// What `undo` took back of a path is in force again.
fn clear_undone(conn: &Connection, undo: EntryId, path: &[u8]) -> SqlResult<()> {
    conn.prepare_cached("UPDATE changes SET undone_by = NULL WHERE undone_by = ?1 AND path = ?2")?
        .execute(params![undo.0.cast_signed(), path])?;
    Ok(())
}

/// The ids that an undo means, newest first.
pub(super) fn chosen_ids(conn: &Connection, chosen: &ChosenEntries<'_>) -> SqlResult<Vec<EntryId>> {
    let number = |id: &EntryId| i64::try_from(id.0).unwrap_or(i64::MAX);
    let (first, last, session, with_outside) = match chosen {
        ChosenEntries::Range(first, last) => (number(first), number(last), None, true),
        ChosenEntries::Session(session) => (0, i64::MAX, Some(session), false),
        ChosenEntries::Since(time_ms) => {
            let before: i64 = conn.query_row(
                "SELECT coalesce(max(id), 0) FROM entries WHERE time_ms <= ?1",
                [time_ms],
                |row| row.get(0),
            )?;
            (before + 1, i64::MAX, None, false)
        }
    };
    conn.prepare_cached(
        "SELECT id FROM entries WHERE id BETWEEN ?1 AND ?2 AND (?3 IS NULL OR session = ?3) AND (?4 OR source != 1)
         ORDER BY id DESC",
    )?
    .query_map(params![first, last, session, with_outside], |row| {
        Ok(EntryId(row.get::<_, i64>(0)?.cast_unsigned()))
    })?
    .collect()
}

pub(super) fn check(conn: &Connection) -> SqlResult<HistoryCheck> {
    let count = |sql: &str| -> SqlResult<u64> {
        let count: i64 = conn.query_row(sql, [], |row| row.get(0))?;
        Ok(count.cast_unsigned())
    };
    let verdict: String = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    let mut problems = Vec::new();
    if verdict != "ok" {
        problems.push(format!("the store's file is damaged: {verdict}"));
    }
    let lost = count(
        "SELECT count(*) FROM changes WHERE old_id IS NOT NULL AND old_id NOT IN (SELECT id FROM objects)",
    )?;
    if lost > 0 {
        problems.push(format!(
            "the earlier contents of {lost} changes are missing"
        ));
    }
    if count("SELECT count(*) FROM plans")? > 0 {
        problems.push("an undo is unfinished; the next call finishes it".to_owned());
    }
    Ok(HistoryCheck {
        entries: count("SELECT count(*) FROM entries")?,
        objects: count("SELECT count(*) FROM objects")?,
        bytes: used_bytes(conn)?,
        problems,
    })
}

pub(super) fn remove_before(conn: &Connection, before: i64) -> SqlResult<u64> {
    let last: Option<i64> = conn.query_row(
        "SELECT max(id) FROM (SELECT id FROM entries WHERE id < ?1 ORDER BY id LIMIT ?2)",
        params![before, ENTRIES_AT_ONCE],
        |row| row.get(0),
    )?;
    let Some(last) = last else { return Ok(0) };
    conn.execute("DELETE FROM changes WHERE entry <= ?1", [last])?;
    let removed = conn.execute("DELETE FROM entries WHERE id <= ?1", [last])?;
    Ok(removed as u64)
}

/// Removes contents that neither an entry nor the snapshot refers to; where to go on.
pub(super) fn remove_unused_objects(
    conn: &Connection,
    from: i64,
    before_ms: i64,
) -> SqlResult<(u64, Option<i64>)> {
    let last: Option<i64> = conn.query_row(
        "SELECT max(number) FROM (SELECT number FROM objects WHERE number > ?1 ORDER BY number LIMIT ?2)",
        params![from, OBJECTS_AT_ONCE],
        |row| row.get(0),
    )?;
    let Some(last) = last else {
        return Ok((0, None));
    };
    let removed = conn.execute(
        "DELETE FROM objects WHERE number > ?1 AND number <= ?2 AND added_ms < ?3
           AND NOT EXISTS (SELECT 1 FROM snapshot WHERE snapshot.id = objects.id)
           AND NOT EXISTS (SELECT 1 FROM changes WHERE old_id = objects.id)
           AND NOT EXISTS (SELECT 1 FROM changes WHERE new_id = objects.id)",
        params![from, last, before_ms],
    )?;
    Ok((removed as u64, Some(last)))
}

/// Makes an entry of changes from outside that of a call, if all of its changes are at these paths.
pub(super) fn give_to_call(
    conn: &Connection,
    id: EntryId,
    author: &ChangeAuthor,
    paths: &[Vec<u8>],
) -> SqlResult<bool> {
    let id = id.0.cast_signed();
    let mut select = conn.prepare_cached("SELECT path FROM changes WHERE entry = ?1")?;
    let changed = select.query_map([id], |row| row.get::<_, Vec<u8>>(0))?;
    for path in changed {
        if !paths.contains(&path?) {
            return Ok(false);
        }
    }
    let given = conn
        .prepare_cached(
            "UPDATE entries SET source = ?2, principal = ?3, agent = ?4, session = ?5, tool = ?6, args = ?7
             WHERE id = ?1 AND source = ?8",
        )?
        .execute(params![
            id,
            source_number(EntrySource::Call),
            author.principal,
            author.agent,
            author.session,
            author.tool,
            author.args_short,
            source_number(EntrySource::Outside),
        ])?;
    Ok(given > 0)
}
