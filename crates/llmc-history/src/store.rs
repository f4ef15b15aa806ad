//! The history's SQL: one file that all servers of a workspace share.
//!
//! A write is one immediate transaction. `snapshot` carries the newest state of every path with the number of the write that
//! last changed it (`gen`), so that a server learns what others have recorded since its own last write.

use llmc_envelope::store::SqlSchema;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Result, Row, ToSql, params};

use crate::entry::{
    ChangeAction, ChangeAuthor, ChangeCounts, Entry, EntryFilter, EntryId, EntrySource,
    HistoryViewer, NotKeptReason, ObjectId, PathChange, PathState,
};
use crate::objects::PackedObject;
use crate::snapshot::{Known, Stamp};

/// The store's file in the state directory.
pub(crate) const STORE_FILE: &str = "history.db";

pub(crate) const SCHEMA: SqlSchema = SqlSchema {
    version: 2,
    sql: "
CREATE TABLE numbers (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE objects (
    number INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, size INTEGER NOT NULL,
    compressed INTEGER NOT NULL, added_ms INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE snapshot (
    path BLOB PRIMARY KEY, gen INTEGER NOT NULL,
    kind INTEGER NOT NULL, mode INTEGER NOT NULL, size INTEGER NOT NULL, id BLOB, why INTEGER,
    mtime_ns INTEGER NOT NULL, ctime_ns INTEGER NOT NULL, inode INTEGER NOT NULL, flags INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX snapshot_gen ON snapshot (gen);
CREATE INDEX snapshot_id ON snapshot (id);
CREATE TABLE entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT, time_ms INTEGER NOT NULL, source INTEGER NOT NULL,
    principal TEXT NOT NULL, agent TEXT NOT NULL, session TEXT NOT NULL, tool TEXT NOT NULL, args TEXT NOT NULL,
    created INTEGER NOT NULL, changed INTEGER NOT NULL, deleted INTEGER NOT NULL, moved INTEGER NOT NULL,
    not_kept INTEGER NOT NULL, ignored INTEGER NOT NULL, shared INTEGER NOT NULL, head_before TEXT, head_after TEXT,
    undoes TEXT NOT NULL, steps TEXT NOT NULL, not_undoable TEXT);
CREATE INDEX entries_session ON entries (session);
CREATE TABLE changes (
    entry INTEGER NOT NULL, path BLOB NOT NULL, moved_from BLOB, moved_to BLOB,
    old_kind INTEGER NOT NULL, old_mode INTEGER NOT NULL, old_size INTEGER NOT NULL, old_id BLOB, old_why INTEGER,
    new_kind INTEGER NOT NULL, new_mode INTEGER NOT NULL, new_size INTEGER NOT NULL, new_id BLOB, new_why INTEGER,
    shared INTEGER NOT NULL, undone_by INTEGER, PRIMARY KEY (entry, path)) WITHOUT ROWID;
CREATE INDEX changes_path ON changes (path);
CREATE INDEX changes_old ON changes (old_id);
CREATE INDEX changes_new ON changes (new_id);
CREATE INDEX changes_undone ON changes (undone_by) WHERE undone_by IS NOT NULL;
CREATE TABLE active (call TEXT PRIMARY KEY, server TEXT NOT NULL, since_ms INTEGER NOT NULL, shared INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE plans (id INTEGER PRIMARY KEY AUTOINCREMENT, server TEXT NOT NULL, plan TEXT NOT NULL);
",
};

/// Columns of a [`PathState`].
type StateColumns = (i64, i64, i64, Option<ObjectId>, Option<i64>);

impl ToSql for ObjectId {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
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

const REASONS: [NotKeptReason; 7] = [
    NotKeptReason::TooLarge,
    NotKeptReason::Denied,
    NotKeptReason::Ignored,
    NotKeptReason::Unreadable,
    NotKeptReason::StoreFull,
    NotKeptReason::Building,
    NotKeptReason::GitRemoved,
];

pub(crate) fn state_columns(state: &PathState) -> StateColumns {
    let size = |size: u64| i64::try_from(size).unwrap_or(i64::MAX);
    match *state {
        PathState::Absent => (0, 0, 0, None, None),
        PathState::File {
            mode,
            size: bytes,
            content,
        } => (1, i64::from(mode), size(bytes), Some(content), None),
        PathState::Link { content } => (2, 0, 0, Some(content), None),
        PathState::Dir { mode } => (3, i64::from(mode), 0, None, None),
        PathState::FileNotKept {
            mode,
            size: bytes,
            why,
        } => {
            let why = REASONS.iter().position(|reason| *reason == why);
            let why = why.and_then(|at| i64::try_from(at).ok());
            (4, i64::from(mode), size(bytes), None, why)
        }
    }
}

pub(crate) fn state_from(columns: StateColumns) -> PathState {
    let (kind, mode, size, content, why) = columns;
    let mode = u32::try_from(mode).unwrap_or(0);
    let size = u64::try_from(size).unwrap_or(0);
    match (kind, content) {
        (1, Some(content)) => PathState::File {
            mode,
            size,
            content,
        },
        (2, Some(content)) => PathState::Link { content },
        (3, _) => PathState::Dir { mode },
        (1 | 4, _) => PathState::FileNotKept {
            mode,
            size,
            why: why
                .and_then(|at| REASONS.get(usize::try_from(at).ok()?).copied())
                .unwrap_or(NotKeptReason::Unreadable),
        },
        _ => PathState::Absent,
    }
}

/// The columns of a state, from `first` on.
fn state_row(row: &Row<'_>, first: usize) -> Result<PathState> {
    Ok(state_from((
        row.get(first)?,
        row.get(first + 1)?,
        row.get(first + 2)?,
        row.get(first + 3)?,
        row.get(first + 4)?,
    )))
}

/// One change of an entry as it is stored: a move is two of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChangeRow {
    pub(crate) entry: EntryId,
    pub(crate) path: Vec<u8>,
    pub(crate) before: PathState,
    pub(crate) after: PathState,
    pub(crate) moved_from: Option<Vec<u8>>,
    pub(crate) moved_to: Option<Vec<u8>>,
    pub(crate) shared: bool,
    pub(crate) undone_by: Option<EntryId>,
}

impl ChangeRow {
    /// The change as it is shown; `None` for the source of a move, which is shown at its target.
    pub(crate) fn shown(self) -> Option<PathChange> {
        if self.moved_to.is_some() {
            return None;
        }
        let action = match (self.moved_from, self.before, self.after) {
            (Some(from), ..) => ChangeAction::Moved { from },
            (None, PathState::Absent, _) => ChangeAction::Created,
            (None, _, PathState::Absent) => ChangeAction::Deleted,
            _ => ChangeAction::Changed,
        };
        Some(PathChange {
            path: self.path,
            action,
            before: self.before,
            after: self.after,
            shared: self.shared,
            undone_by: self.undone_by,
        })
    }
}

/// An entry to be written.
#[derive(Debug, Clone, Default)]
pub(crate) struct NewEntryRow {
    pub(crate) author: ChangeAuthor,
    pub(crate) undoes: Vec<EntryId>,
    pub(crate) steps: Vec<String>,
    pub(crate) head_before: Option<String>,
    pub(crate) head_after: Option<String>,
    pub(crate) shared: bool,
    pub(crate) not_undoable: Option<String>,
}

/// How many paths had which change; `ignored` ones have no row.
pub(crate) fn count_changes(changes: &[ChangeRow]) -> ChangeCounts {
    let mut counts = ChangeCounts::default();
    for change in changes {
        if change
            .before
            .not_kept()
            .or(change.after.not_kept())
            .is_some()
        {
            counts.not_kept += 1;
        }
        match (&change.moved_from, &change.moved_to) {
            (_, Some(_)) => {}
            (Some(_), _) => counts.moved += 1,
            _ if change.before == PathState::Absent => counts.created += 1,
            _ if change.after == PathState::Absent => counts.deleted += 1,
            _ => counts.changed += 1,
        }
    }
    counts
}

pub(crate) fn number(conn: &Connection, name: &str) -> Result<i64> {
    let found = conn
        .prepare_cached("SELECT value FROM numbers WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()?;
    Ok(found.unwrap_or(0))
}

pub(crate) fn set_number(conn: &Connection, name: &str, value: i64) -> Result<()> {
    conn.prepare_cached("INSERT OR REPLACE INTO numbers VALUES (?1, ?2)")?
        .execute(params![name, value])?;
    Ok(())
}

/// Bytes of the store that are in use.
pub(crate) fn used_bytes(conn: &Connection) -> Result<u64> {
    let pragma = |name: &str| -> Result<i64> {
        conn.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
    };
    let pages = pragma("page_count")? - pragma("freelist_count")?;
    Ok(u64::try_from(pages.saturating_mul(pragma("page_size")?)).unwrap_or(0))
}

pub(crate) fn has_object(conn: &Connection, id: &ObjectId) -> Result<bool> {
    conn.prepare_cached("SELECT 1 FROM objects WHERE id = ?1")?
        .exists([id])
}

pub(crate) fn add_object(conn: &Connection, object: &PackedObject, now_ms: i64) -> Result<()> {
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

pub(crate) fn object(conn: &Connection, id: &ObjectId) -> Result<Option<PackedObject>> {
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

/// The paths of the snapshot whose contents are not stored, with these contents, as far as `is_wanted`.
pub(crate) fn unstored(
    conn: &Connection,
    mut is_wanted: impl FnMut(&ObjectId, u64) -> bool,
) -> Result<Vec<(Vec<u8>, ObjectId)>> {
    let mut found = Vec::new();
    let mut select = conn.prepare_cached(
        "SELECT path, id, size FROM snapshot WHERE id IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM objects WHERE objects.id = snapshot.id)",
    )?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let id = row.get(1)?;
        let size: i64 = row.get(2)?;
        if is_wanted(&id, u64::try_from(size).unwrap_or(0)) {
            found.push((row.get(0)?, id));
        }
    }
    Ok(found)
}

/// Calls `each` with every path whose state changed after the write `since`; a path that is gone has no `Known`.
pub(crate) fn snapshot_since(
    conn: &Connection,
    since: i64,
    mut each: impl FnMut(Vec<u8>, Option<Known>),
) -> Result<()> {
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
pub(crate) fn is_in_snapshot(conn: &Connection, path: &[u8]) -> Result<bool> {
    conn.prepare_cached("SELECT 1 FROM snapshot WHERE path = ?1")?
        .exists([path])
}

/// The newest entry that has a change of this path; the newest of all without one.
pub(crate) fn newest_entry(conn: &Connection, path: Option<&[u8]>) -> Result<Option<EntryId>> {
    let newest: Option<i64> = match path {
        Some(path) => conn
            .prepare_cached("SELECT MAX(entry) FROM changes WHERE path = ?1")?
            .query_row([path], |row| row.get(0))?,
        None => conn
            .prepare_cached("SELECT MAX(id) FROM entries")?
            .query_row([], |row| row.get(0))?,
    };
    Ok(newest.map(|id| EntryId(id.cast_unsigned())))
}

/// Stores a path's newest state; a path that is gone keeps a row so that other servers learn of it.
pub(crate) fn put_snapshot(
    conn: &Connection,
    path: &[u8],
    known: Option<&Known>,
    generation: i64,
) -> Result<()> {
    let absent = Known::new(PathState::Absent, Stamp::default());
    let known = known.unwrap_or(&absent);
    let (kind, mode, _, id, why) = state_columns(&known.state);
    conn.prepare_cached(
        "INSERT OR REPLACE INTO snapshot VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?
    .execute(params![
        path,
        generation,
        kind,
        mode,
        i64::try_from(known.stamp.size).unwrap_or(i64::MAX),
        id,
        why,
        known.stamp.mtime_ns,
        known.stamp.ctime_ns,
        known.stamp.inode.cast_signed(),
        known.stamp.flags,
    ])?;
    Ok(())
}

pub(crate) fn add_entry(
    conn: &Connection,
    source: EntrySource,
    entry: &NewEntryRow,
    changes: &[ChangeRow],
    counts: &ChangeCounts,
    now_ms: i64,
) -> Result<EntryId> {
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
        source_number(source),
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
    for change in changes {
        let old = state_columns(&change.before);
        let new = state_columns(&change.after);
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
            new.0,
            new.1,
            new.2,
            new.3,
            new.4,
            change.shared,
        ])?;
    }
    Ok(EntryId(id.cast_unsigned()))
}

fn source_number(source: EntrySource) -> i64 {
    match source {
        EntrySource::Call => 0,
        EntrySource::Outside => 1,
        EntrySource::Undo => 2,
    }
}

const ENTRY_COLUMNS: &str = "id, time_ms, source, principal, agent, session, tool, args, created, changed, deleted, moved, not_kept,
    ignored, shared, head_before, head_after, undoes, not_undoable,
    (SELECT max(undone_by) FROM changes WHERE entry = entries.id),
    (SELECT count(undone_by) FROM changes WHERE entry = entries.id AND moved_to IS NULL)";
/// How many they are.
const ENTRY_COLUMN_COUNT: usize = 21;

fn entry_row(row: &Row<'_>) -> Result<Entry> {
    let count = |at: usize| -> Result<u64> { Ok(row.get::<_, i64>(at)?.cast_unsigned()) };
    let undoes: String = row.get(17)?;
    let undone_by: Option<i64> = row.get(19)?;
    Ok(Entry {
        id: EntryId(count(0)?),
        time_ms: row.get(1)?,
        source: match row.get::<_, i64>(2)? {
            0 => EntrySource::Call,
            1 => EntrySource::Outside,
            _ => EntrySource::Undo,
        },
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

/// The principal whose entries are meant; `None` for all.
fn principal(viewer: &HistoryViewer) -> Option<&str> {
    match viewer {
        HistoryViewer::All => None,
        HistoryViewer::Principal(name) => Some(name),
    }
}

pub(crate) fn list_entries(conn: &Connection, filter: &EntryFilter) -> Result<Vec<Entry>> {
    let mut below = filter.path.clone();
    if let Some(below) = &mut below
        && !below.is_empty()
    {
        below.push(b'/');
    }
    // A prefix is a range of keys: `/` is followed by `0`.
    let mut behind = below.clone();
    if let Some(last) = behind.as_mut().and_then(|path| path.last_mut()) {
        *last = b'0';
    }
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

pub(crate) fn entry(
    conn: &Connection,
    id: EntryId,
    viewer: &HistoryViewer,
) -> Result<Option<(Entry, Vec<String>)>> {
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

fn change_row(row: &Row<'_>) -> Result<ChangeRow> {
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
pub(crate) fn changes_of(conn: &Connection, id: EntryId) -> Result<Vec<ChangeRow>> {
    let sql = format!("SELECT {CHANGE_COLUMNS} FROM changes WHERE entry = ?1 ORDER BY path");
    conn.prepare_cached(&sql)?
        .query_map([id.0.cast_signed()], change_row)?
        .collect()
}

/// Of every path that an entry from `id` on changed, the oldest of these changes.
pub(crate) fn oldest_changes_since(conn: &Connection, id: EntryId) -> Result<Vec<ChangeRow>> {
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
pub(crate) fn set_undone(
    conn: &Connection,
    entry: EntryId,
    path: &[u8],
    by: Option<EntryId>,
) -> Result<()> {
    conn.prepare_cached("UPDATE changes SET undone_by = ?3 WHERE entry = ?1 AND path = ?2")?
        .execute(params![
            entry.0.cast_signed(),
            path,
            by.map(|id| id.0.cast_signed())
        ])?;
    Ok(())
}

/// What `undo` took back of a path is in force again.
pub(crate) fn clear_undone(conn: &Connection, undo: EntryId, path: &[u8]) -> Result<()> {
    conn.prepare_cached("UPDATE changes SET undone_by = NULL WHERE undone_by = ?1 AND path = ?2")?
        .execute(params![undo.0.cast_signed(), path])?;
    Ok(())
}
