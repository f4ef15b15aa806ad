//! Files, units and symbols, in SQLite. The catalogue is the authority on what the index holds.
//!
//! All SQL is here. Ids of files only grow and a changed file gets a new one, so entries of the text part about an older
//! version of a file are recognised by their id and ignored. A unit's id is its file's id and its position in the file.
#![allow(
    clippy::disallowed_methods,
    reason = "this is the index's own file, not the agent's"
)]

mod rows;
mod vectors;

use std::collections::{HashMap, HashSet};
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use llmc_syntax::ParseFailure;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use crate::classify::{Origin, Realm, SkipReason, file_name};
use crate::error::{Error, Result};
use crate::units::{FileParts, Symbol, Unit};

pub(crate) use rows::{file_of, language_name, unit_id};
use rows::{file_row, pick, signed, stamp, symbol_row, unit_row, unsigned};

/// Increased with every change of the tables, of the words or of the units: an older index is built again.
pub(crate) const FORMAT_VERSION: i32 = 1;

const SCHEMA: &str = "
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE files (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    path TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    hash BLOB NOT NULL,
    size INTEGER NOT NULL,
    mtime INTEGER NOT NULL,
    ctime INTEGER NOT NULL,
    realm INTEGER NOT NULL,
    origin INTEGER NOT NULL,
    language TEXT NOT NULL,
    passed INTEGER,
    crashed INTEGER NOT NULL,
    generation INTEGER NOT NULL
);
CREATE INDEX files_name ON files (name);
CREATE TABLE units (
    id INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,
    symbol TEXT NOT NULL,
    scope TEXT NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    head INTEGER NOT NULL
);
CREATE TABLE symbols (
    file INTEGER NOT NULL,
    place INTEGER NOT NULL,
    name TEXT NOT NULL,
    scope TEXT NOT NULL,
    kind INTEGER NOT NULL,
    first INTEGER NOT NULL,
    line INTEGER NOT NULL,
    last INTEGER NOT NULL,
    PRIMARY KEY (file, place)
) WITHOUT ROWID;
CREATE INDEX symbols_name ON symbols (name);
CREATE TABLE dead (file INTEGER PRIMARY KEY);
CREATE TABLE vectors (unit INTEGER PRIMARY KEY, vector BLOB NOT NULL);
";

/// Size and times of a file: the cheap check that it did not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FileStamp {
    pub(crate) size: u64,
    pub(crate) mtime: i64,
    pub(crate) ctime: i64,
}

/// The first half of a SHA-256.
pub(crate) type ContentHash = [u8; 16];

/// A file of the index, as an update compares it.
#[derive(Debug, Clone)]
pub(crate) struct IndexedFile {
    pub(crate) id: u64,
    pub(crate) stamp: FileStamp,
    pub(crate) hash: ContentHash,
}

#[derive(Debug)]
pub(crate) struct NewFile {
    pub(crate) path: String,
    pub(crate) hash: ContentHash,
    pub(crate) stamp: FileStamp,
    pub(crate) realm: Realm,
    pub(crate) origin: Origin,
    pub(crate) skipped: Option<SkipReason>,
}

#[derive(Debug, Clone)]
pub(crate) struct FileRow {
    pub(crate) path: String,
    pub(crate) hash: ContentHash,
    pub(crate) origin: Origin,
    pub(crate) realm: Realm,
}

#[derive(Debug, Clone)]
pub(crate) struct UnitRow {
    pub(crate) file: u64,
    pub(crate) unit: Unit,
}

#[derive(Debug, Clone)]
pub(crate) struct SymbolRow {
    pub(crate) file: u64,
    pub(crate) symbol: Symbol,
}

/// Counts for `rag_stats`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    pub(crate) files: u64,
    pub(crate) units: u64,
    pub(crate) symbols: u64,
    pub(crate) bytes: u64,
    pub(crate) languages: Vec<(String, u64)>,
    pub(crate) skipped: Vec<(SkipReason, u64)>,
}

pub(crate) struct Catalog {
    conn: Connection,
}

impl Catalog {
    /// Opens for reading; [`Error::Missing`] if there is none of this version.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let catalog = Self { conn };
        match catalog.version()? {
            FORMAT_VERSION => Ok(catalog),
            0 => Err(Error::Missing),
            _ => Err(Error::Damaged("another version wrote it".into())),
        }
    }

    /// Opens for writing, creating it if needed. An unusable file is [`Error::Damaged`].
    pub(crate) fn open_for_writing(path: &Path) -> Result<Self> {
        // SQLite would not report why it cannot create a file. An existing one is not opened here: closing it again would
        // release the locks that SQLite holds on it.
        match OpenOptions::new().write(true).create_new(true).open(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.into()),
            _ => {}
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
        let conn = connect(path, flags)?;
        let catalog = Self { conn };
        catalog
            .conn
            .query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        catalog.conn.execute_batch(
            "PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = 16777216; PRAGMA cache_size = -16384;",
        )?;
        match catalog.version()? {
            FORMAT_VERSION => {}
            0 => catalog.conn.execute_batch(&format!(
                "BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {FORMAT_VERSION}; COMMIT;"
            ))?,
            _ => return Err(Error::Damaged("another version wrote it".into())),
        }
        Ok(catalog)
    }

    fn version(&self) -> Result<i32> {
        Ok(self
            .conn
            .query_row("PRAGMA user_version", [], |row| row.get(0))?)
    }

    /// Checks the file's structure.
    pub(crate) fn is_sound(&self) -> Result<bool> {
        let verdict: String = self
            .conn
            .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        Ok(verdict == "ok")
    }

    pub(crate) fn begin(&self) -> Result<()> {
        Ok(self.conn.execute_batch("BEGIN IMMEDIATE")?)
    }

    pub(crate) fn commit(&self) -> Result<()> {
        Ok(self.conn.execute_batch("COMMIT")?)
    }

    /// Leaves checkpoints to [`Catalog::checkpoint`], since they wait for the disk.
    pub(crate) fn disable_auto_checkpoint(&self) -> Result<()> {
        Ok(self
            .conn
            .query_row("PRAGMA wal_autocheckpoint = 0", [], |_| Ok(()))?)
    }

    /// Moves the log into the file, as far as readers allow.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        Ok(self
            .conn
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?)
    }

    pub(crate) fn roll_back(&self) {
        // Nothing to do when there is no transaction.
        let _ = self.conn.execute_batch("ROLLBACK");
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<i64>> {
        let mut found = self
            .conn
            .prepare_cached("SELECT value FROM meta WHERE key = ?")?;
        Ok(found.query_row([key], |row| row.get(0)).optional()?)
    }

    pub(crate) fn set_number(&self, key: &str, value: i64) -> Result<()> {
        let mut put = self
            .conn
            .prepare_cached("INSERT OR REPLACE INTO meta VALUES (?, ?)")?;
        put.execute(params![key, value])?;
        Ok(())
    }

    /// All files, by path.
    pub(crate) fn indexed_files(&self) -> Result<HashMap<String, IndexedFile>> {
        let mut rows = self
            .conn
            .prepare("SELECT path, id, size, mtime, ctime, hash FROM files")?;
        let rows = rows.query_map([], |row| {
            let known = IndexedFile {
                id: unsigned(row.get(1)?),
                stamp: stamp(row, 2)?,
                hash: row.get(5)?,
            };
            Ok((row.get(0)?, known))
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// The number of files that were added up to this generation.
    pub(crate) fn count(&self, generation: i64) -> Result<u64> {
        let mut row = self
            .conn
            .prepare_cached("SELECT count(*) FROM files WHERE generation <= ?")?;
        Ok(unsigned(row.query_row([generation], |row| row.get(0))?))
    }

    /// The paths of all files that were added up to this generation.
    pub(crate) fn paths(&self, generation: i64) -> Result<HashSet<String>> {
        let mut rows = self
            .conn
            .prepare("SELECT path FROM files WHERE generation <= ?")?;
        let rows = rows.query_map([generation], |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    pub(crate) fn indexed_file(&self, path: &str) -> Result<Option<IndexedFile>> {
        let mut row = self
            .conn
            .prepare_cached("SELECT id, size, mtime, ctime, hash FROM files WHERE path = ?")?;
        let found = row.query_row([path], |row| {
            Ok(IndexedFile {
                id: unsigned(row.get(0)?),
                stamp: stamp(row, 1)?,
                hash: row.get(4)?,
            })
        });
        Ok(found.optional()?)
    }

    /// Adds a file and returns its id.
    pub(crate) fn add(&self, file: &NewFile, parts: &FileParts, generation: i64) -> Result<u64> {
        let language = parts.language.map_or("", language_name);
        let mut put = self.conn.prepare_cached(
            "INSERT INTO files (path, name, hash, size, mtime, ctime, realm, origin, language, passed, crashed,
             generation) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?;
        put.execute(params![
            file.path,
            file_name(&file.path),
            file.hash,
            signed(file.stamp.size),
            file.stamp.mtime,
            file.stamp.ctime,
            file.realm as u8,
            file.origin as u8,
            language,
            file.skipped.map(|reason| reason as u8),
            parts.parse_failure == Some(ParseFailure::Crashed),
            generation,
        ])?;
        let id = self.conn.last_insert_rowid();
        let mut put = self
            .conn
            .prepare_cached("INSERT INTO units VALUES (?, ?, ?, ?, ?, ?, ?)")?;
        for (place, unit) in parts.units.iter().enumerate() {
            put.execute(params![
                unit_id(unsigned(id), place),
                unit.kind as u8,
                unit.symbol,
                unit.scope,
                unit.first,
                unit.last,
                unit.head,
            ])?;
        }
        let mut put = self
            .conn
            .prepare_cached("INSERT INTO symbols VALUES (?, ?, ?, ?, ?, ?, ?, ?)")?;
        for (place, symbol) in parts.symbols.iter().enumerate() {
            put.execute(params![
                id,
                signed(place as u64),
                symbol.name,
                symbol.scope,
                symbol.kind as u8,
                symbol.first,
                symbol.line,
                symbol.last,
            ])?;
        }
        Ok(unsigned(id))
    }

    /// Removes a file and notes that the text part has to, too.
    pub(crate) fn remove(&self, id: u64) -> Result<()> {
        let (first, last) = (unit_id(id, 0), unit_id(id + 1, 0) - 1);
        let id = signed(id);
        self.conn
            .prepare_cached("DELETE FROM units WHERE id BETWEEN ? AND ?")?
            .execute([first, last])?;
        self.conn
            .prepare_cached("DELETE FROM vectors WHERE unit BETWEEN ? AND ?")?
            .execute([first, last])?;
        self.conn
            .prepare_cached("DELETE FROM symbols WHERE file = ?")?
            .execute([id])?;
        self.conn
            .prepare_cached("DELETE FROM files WHERE id = ?")?
            .execute([id])?;
        self.conn
            .prepare_cached("INSERT OR IGNORE INTO dead VALUES (?)")?
            .execute([id])?;
        Ok(())
    }

    /// Sets new timestamps; the content is the same.
    pub(crate) fn touch(&self, id: u64, stamp: FileStamp) -> Result<()> {
        self.conn
            .prepare_cached("UPDATE files SET size = ?, mtime = ?, ctime = ? WHERE id = ?")?
            .execute(params![
                signed(stamp.size),
                stamp.mtime,
                stamp.ctime,
                signed(id)
            ])?;
        Ok(())
    }

    /// Removed files that the text part may still hold.
    pub(crate) fn removed_files(&self) -> Result<Vec<u64>> {
        let mut rows = self.conn.prepare_cached("SELECT file FROM dead")?;
        let rows = rows.query_map([], |row| Ok(unsigned(row.get(0)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    pub(crate) fn clear_removed_files(&self) -> Result<()> {
        self.conn.prepare_cached("DELETE FROM dead")?.execute([])?;
        Ok(())
    }

    /// Files added after that generation.
    pub(crate) fn newer_than(&self, generation: i64) -> Result<Vec<u64>> {
        let mut rows = self
            .conn
            .prepare("SELECT id FROM files WHERE generation > ?")?;
        let rows = rows.query_map([generation], |row| Ok(unsigned(row.get(0)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    pub(crate) fn file(&self, id: u64) -> Result<Option<FileRow>> {
        let mut row = self
            .conn
            .prepare_cached("SELECT path, hash, origin, realm FROM files WHERE id = ?")?;
        Ok(row.query_row([signed(id)], file_row).optional()?)
    }

    /// Files of that name in any folder; a name that very many files have identifies none.
    pub(crate) fn files_named(&self, name: &str) -> Result<Vec<FileRow>> {
        let mut rows = self.conn.prepare_cached(
            "SELECT path, hash, origin, realm FROM files WHERE name = ? LIMIT 2000",
        )?;
        let rows = rows.query_map([name], file_row)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    pub(crate) fn unit(&self, id: u64) -> Result<Option<UnitRow>> {
        let mut row = self.conn.prepare_cached(
            "SELECT id, kind, symbol, scope, first, last, head FROM units WHERE id = ?",
        )?;
        Ok(row.query_row([signed(id)], unit_row).optional()?)
    }

    /// The symbols of exactly that name.
    pub(crate) fn symbols_named(&self, name: &str, limit: usize) -> Result<Vec<SymbolRow>> {
        let mut rows = self.conn.prepare_cached(
            "SELECT file, name, scope, kind, first, line, last FROM symbols WHERE name = ? ORDER BY file, place LIMIT ?",
        )?;
        let rows = rows.query_map(params![name, signed(limit as u64)], symbol_row)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Calls `take` with every different name of a symbol.
    pub(crate) fn each_name(&self, mut take: impl FnMut(&str)) -> Result<()> {
        let mut rows = self.conn.prepare("SELECT DISTINCT name FROM symbols")?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            if let Ok(name) = row.get_ref(0)?.as_str() {
                take(name);
            }
        }
        Ok(())
    }

    /// Files over which the parser crashed.
    pub(crate) fn unparsed_files(&self, limit: usize) -> Result<Vec<String>> {
        let mut rows = self
            .conn
            .prepare("SELECT path FROM files WHERE crashed ORDER BY path LIMIT ?")?;
        let rows = rows.query_map([signed(limit as u64)], |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    pub(crate) fn counts(&self) -> Result<Counts> {
        let count = |sql: &str| -> Result<u64> {
            Ok(unsigned(self.conn.query_row(sql, [], |row| row.get(0))?))
        };
        let mut languages = self.conn.prepare(
            "SELECT language, count(*) FROM files WHERE language <> '' GROUP BY 1 ORDER BY 2 DESC, 1",
        )?;
        let languages = languages.query_map([], |row| Ok((row.get(0)?, unsigned(row.get(1)?))))?;
        let languages = languages.collect::<rusqlite::Result<_>>()?;
        let mut skipped = self.conn.prepare(
            "SELECT passed, count(*) FROM files WHERE passed IS NOT NULL GROUP BY 1 ORDER BY 1",
        )?;
        let skipped = skipped.query_map([], |row| {
            Ok((pick(&SkipReason::ALL, row.get(0)?), unsigned(row.get(1)?)))
        })?;
        Ok(Counts {
            files: count("SELECT count(*) FROM files")?,
            units: count("SELECT count(*) FROM units")?,
            symbols: count("SELECT count(*) FROM symbols")?,
            bytes: count("SELECT coalesce(sum(size), 0) FROM files")?,
            languages,
            skipped: skipped.collect::<rusqlite::Result<_>>()?,
        })
    }
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection> {
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(Duration::from_secs(2))?;
    conn.set_prepared_statement_cache_capacity(32);
    // The file may have come with a repository: its schema must not run anything.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    Ok(conn)
}
