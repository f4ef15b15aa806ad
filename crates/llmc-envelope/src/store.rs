//! Opens a versioned SQLite file so that nothing found on disk can stop the server.
//!
//! What these files hold is worth keeping but never worth a failed start: a file that is damaged, or written by another
//! version, is moved aside as `<name>.corrupt-<n>` or `<name>.version<v>-<n>` with a warning in the log, and a new one begins.
//! The first and the latest of these are kept. What cannot be helped by that, such as a full disk or a lock held too long,
//! is a [`StoreUnavailable`] that the caller reports and survives.
//!
//! Several processes share a file. Opening and moving aside happen under `<name>.lock`, so no process can move away
//! what another one has just created. SQLite itself notices that a file it has open was renamed and then leaves the
//! write-ahead log of the new one alone.
#![allow(
    clippy::disallowed_methods,
    reason = "these are the stores' own files, not the agent's"
)]

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use llmc_host::open_private;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

/// How long a call waits for another process before it fails as busy.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a call waits that follows another one which has waited in vain within this time.
const LOCKED_RETRY_TIMEOUT: Duration = Duration::from_millis(40);
const LOCKED_MEMORY: Duration = Duration::from_secs(10);
const LOCKED: &str = "locked by another process";

/// The shape of one kind of file.
#[derive(Clone, Copy)]
pub struct SqlSchema {
    /// Stored as `user_version`; a file with another number is not ours to read.
    pub version: i32,
    /// Creates everything in an empty database.
    pub sql: &'static str,
}

/// The store cannot do its work now; the text is fit to be shown and names no path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreUnavailable(pub String);

impl StoreUnavailable {
    /// Whether another process holds the store, so that a later try may succeed.
    pub fn is_locked(&self) -> bool {
        self.0 == LOCKED
    }
}

/// An open store: one connection behind a lock, reopened after the file turned out to be damaged.
pub struct SqlStore {
    place: SqlLocation,
    schema: SqlSchema,
    lock_timeout: Duration,
    state: Mutex<State>,
    /// When another process was last waited for in vain. The waits that follow are short, so that a call of many transactions
    /// waits once.
    locked: Mutex<Option<Instant>>,
}

/// Where the data lives.
#[derive(Debug, Clone)]
pub enum SqlLocation {
    File(PathBuf),
    Memory,
}

enum State {
    Open(Connection),
    /// Damage was seen; the next call starts a new file.
    Damaged,
}

impl SqlStore {
    pub fn open(place: SqlLocation, schema: SqlSchema) -> Result<Self, StoreUnavailable> {
        Self::open_within(place, schema, LOCK_TIMEOUT)
    }

    /// The same with another limit on the wait for other processes.
    pub fn open_within(
        place: SqlLocation,
        schema: SqlSchema,
        lock_timeout: Duration,
    ) -> Result<Self, StoreUnavailable> {
        let conn = place.open(&schema, Trust::Check, lock_timeout)?;
        Ok(Self {
            place,
            schema,
            lock_timeout,
            state: Mutex::new(State::Open(conn)),
            locked: Mutex::default(),
        })
    }

    /// Reads, in one consistent view.
    pub fn read<T, E>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, TransactionError<E>>
    where
        E: From<rusqlite::Error> + AsSql,
    {
        self.run(TransactionBehavior::Deferred, work)
    }

    /// Writes, all or nothing. The lock is taken up front: a read that turns into a write could not wait for its turn.
    pub fn write<T, E>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, TransactionError<E>>
    where
        E: From<rusqlite::Error> + AsSql,
    {
        self.run(TransactionBehavior::Immediate, work)
    }

    fn run<T, E>(
        &self,
        behavior: TransactionBehavior,
        work: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, TransactionError<E>>
    where
        E: From<rusqlite::Error> + AsSql,
    {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let conn = self
            .connection(&mut state)
            .map_err(TransactionError::Unavailable)?;
        let mut locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        let was_locked = locked.is_some_and(|at| at.elapsed() < LOCKED_MEMORY);
        let done = (|| {
            conn.busy_timeout(match was_locked {
                true => LOCKED_RETRY_TIMEOUT.min(self.lock_timeout),
                false => self.lock_timeout,
            })?;
            let tx = conn.transaction_with_behavior(behavior)?;
            let value = work(&tx)?;
            tx.commit()?;
            Ok(value)
        })();
        // A read does not show that writes work again.
        if done.is_ok() && matches!(behavior, TransactionBehavior::Immediate) {
            *locked = None;
        }
        done.map_err(|error: E| match error.as_sql() {
            Some(sql) => {
                let unavailable = describe(sql);
                if unavailable.is_locked() {
                    *locked = Some(Instant::now());
                }
                if is_damage(sql) {
                    *state = State::Damaged;
                }
                TransactionError::Unavailable(unavailable)
            }
            None => TransactionError::Work(error),
        })
    }

    /// Gives freed pages back to the file system, a bounded number at a time so that other processes wait briefly.
    pub fn shrink(&self, pages: u32) -> Result<(), StoreUnavailable> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let conn = self.connection(&mut state)?;
        (|| {
            let mut vacuum = conn.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
            let mut freed = vacuum.query([])?;
            // One empty row a page: it works only while it is asked for the next.
            while freed.next()?.is_some() {}
            Ok(())
        })()
        .map_err(|error| describe(&error))
    }

    /// Runs the first maintenance of a newly opened store.
    ///
    /// Only damage matters here: it is answered with a new file and a second try. That the store is busy does not.
    pub fn settle<T, E>(&self, maintain: impl Fn() -> Result<T, E>) -> Result<(), E> {
        if maintain().is_err() && self.is_damaged() {
            maintain()?;
        }
        Ok(())
    }

    fn is_damaged(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(*state, State::Damaged)
    }

    fn connection<'s>(
        &self,
        state: &'s mut MutexGuard<'_, State>,
    ) -> Result<&'s mut Connection, StoreUnavailable> {
        if matches!(**state, State::Damaged) {
            let opened = self
                .place
                .open(&self.schema, Trust::None, self.lock_timeout)?;
            **state = State::Open(opened);
        }
        match &mut **state {
            State::Open(conn) => Ok(conn),
            State::Damaged => Err(StoreUnavailable("the store is damaged".into())),
        }
    }
}

/// Why a transaction did not happen: the caller's own reason, or the store's.
#[derive(Debug)]
pub enum TransactionError<E> {
    Work(E),
    Unavailable(StoreUnavailable),
}

/// Lets a caller's error say that it is really SQLite's.
pub trait AsSql {
    fn as_sql(&self) -> Option<&rusqlite::Error>;
}

impl AsSql for rusqlite::Error {
    fn as_sql(&self) -> Option<&rusqlite::Error> {
        Some(self)
    }
}

/// The state of a file that is already there.
#[derive(Clone, Copy, PartialEq)]
enum Trust {
    Check,
    /// Reads from it have failed with damage. It is looked at closely: another process may have replaced it already.
    None,
}

/// Why a file is moved aside.
#[derive(Debug, Clone, Copy, PartialEq)]
enum WhyAside {
    Damaged,
    OtherVersion(i32),
}

enum Opened {
    Ready(Connection),
    /// Not ours to use.
    Foreign(WhyAside),
}

impl SqlLocation {
    fn open(
        &self,
        schema: &SqlSchema,
        trust: Trust,
        lock_timeout: Duration,
    ) -> Result<Connection, StoreUnavailable> {
        let path = match self {
            SqlLocation::Memory => {
                let conn = Connection::open_in_memory().map_err(|e| describe(&e))?;
                let prepared = prepare(conn, schema, trust, lock_timeout);
                return match prepared.map_err(|e| describe(&e))? {
                    Opened::Ready(conn) => Ok(conn),
                    Opened::Foreign(_) => Err(StoreUnavailable("a new store is not empty".into())),
                };
            }
            SqlLocation::File(path) => path,
        };
        let path = settle(path).map_err(|e| describe_io(&e))?;
        let lock_file = beside(&path, ".lock");
        let _lock = lock(&lock_file, lock_timeout).map_err(|e| describe_io(&e))?;
        for trust in [trust, Trust::Check] {
            match try_open(&path, schema, trust, lock_timeout)? {
                Opened::Ready(conn) => return Ok(conn),
                Opened::Foreign(why) => move_aside(&path, why).map_err(|e| describe_io(&e))?,
            }
        }
        Err(StoreUnavailable("a new store could not be started".into()))
    }
}

/// Makes the folder (0700) and gives the path without links, which SQLite then refuses.
fn settle(path: &Path) -> io::Result<PathBuf> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let dir = if dir.as_os_str().is_empty() {
        Path::new(".")
    } else {
        dir
    };
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    Ok(dir.canonicalize()?.join(name))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn lock(path: &Path, timeout: Duration) -> io::Result<File> {
    let file = open_private(path)?;
    let until = Instant::now() + timeout;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

fn try_open(
    path: &Path,
    schema: &SqlSchema,
    trust: Trust,
    lock_timeout: Duration,
) -> Result<Opened, StoreUnavailable> {
    // SQLite gives its log files the mode of the database.
    open_private(path).map_err(|e| describe_io(&e))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let opened = Connection::open_with_flags(path, flags)
        .and_then(|conn| prepare(conn, schema, trust, lock_timeout));
    match opened {
        Ok(opened) => Ok(opened),
        Err(error) if is_damage(&error) => Ok(Opened::Foreign(WhyAside::Damaged)),
        Err(error) => Err(describe(&error)),
    }
}

fn prepare(
    conn: Connection,
    schema: &SqlSchema,
    trust: Trust,
    lock_timeout: Duration,
) -> rusqlite::Result<Opened> {
    harden(&conn)?;
    conn.busy_timeout(lock_timeout)?;
    let version: i32 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let objects: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0))?;
    let fresh = version == 0 && objects == 0;
    if !fresh && version != schema.version {
        return Ok(Opened::Foreign(WhyAside::OtherVersion(version)));
    }
    if trust == Trust::None {
        let verdict: String = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if verdict != "ok" || shape(&conn)? != expected_shape(schema)? {
            return Ok(Opened::Foreign(WhyAside::Damaged));
        }
    }
    if fresh {
        conn.execute_batch("PRAGMA auto_vacuum = INCREMENTAL")?;
    }
    // Answers with the mode it settled on, which in memory is another one.
    conn.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    // With a write-ahead log this outlives a killed process; only a power cut may cost the last few rows.
    conn.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = 16777216;")?;
    if fresh {
        conn.execute_batch(&format!(
            "BEGIN IMMEDIATE; {} PRAGMA user_version = {}; COMMIT;",
            schema.sql, schema.version
        ))?;
    }
    Ok(Opened::Ready(conn))
}

/// Waits for others, and distrusts the file: it may have come with a foreign repository, and its schema must
/// not be able to run anything.
pub fn harden(conn: &Connection) -> rusqlite::Result<()> {
    conn.busy_timeout(LOCK_TIMEOUT)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    Ok(())
}

/// The statements that made a database.
fn shape(conn: &Connection) -> rusqlite::Result<Vec<Option<String>>> {
    conn.prepare("SELECT sql FROM sqlite_schema ORDER BY name")?
        .query_map([], |row| row.get(0))?
        .collect()
}

fn expected_shape(schema: &SqlSchema) -> rusqlite::Result<Vec<Option<String>>> {
    let model = Connection::open_in_memory()?;
    model.execute_batch(schema.sql)?;
    shape(&model)
}

/// The number of a file that was moved aside, from what follows its store's name.
fn aside_number(suffix: &str) -> Option<u64> {
    let (why, number) = suffix.strip_prefix('.')?.rsplit_once('-')?;
    let is_ours = match why.strip_prefix("version") {
        Some(version) => version.parse::<i32>().is_ok(),
        None => why == "corrupt",
    };
    number.parse().ok().filter(|_| is_ours)
}

/// Whether a file of this name was a store that was moved aside.
pub fn is_moved_aside(name: &str) -> bool {
    name.rfind(".db.")
        .is_some_and(|at| aside_number(&name[at + 3..]).is_some())
}

/// Keeps a file that cannot be used under a numbered name. The first of these and the newest stay.
fn move_aside(path: &Path, why: WhyAside) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut earlier: Vec<(u64, PathBuf)> = Vec::new();
    for entry in fs::read_dir(path.parent().unwrap_or(Path::new(".")))? {
        let entry = entry?;
        let found = entry.file_name();
        let suffix = found.to_str().and_then(|found| found.strip_prefix(&*name));
        if let Some(number) = suffix.and_then(aside_number) {
            earlier.push((number, entry.path()));
        }
    }
    earlier.sort();
    for (_, between) in earlier.iter().skip(1) {
        fs::remove_file(between)?;
    }
    let number = earlier.last().map_or(0, |(number, _)| *number) + 1;
    let (why, suffix) = match why {
        WhyAside::Damaged => ("it is damaged".to_owned(), format!(".corrupt-{number}")),
        WhyAside::OtherVersion(version) => (
            format!("it was written by another version ({version})"),
            format!(".version{version}-{number}"),
        ),
    };
    let aside = beside(path, &suffix);
    fs::rename(path, &aside)?;
    tracing::warn!(
        store = %name,
        kept_as = %aside.file_name().unwrap_or_default().display(),
        why,
        "a store cannot be used; a new one is created"
    );
    // Without their database the logs mean nothing, and the next one must not find them.
    for suffix in ["-wal", "-shm", "-journal"] {
        match fs::remove_file(beside(path, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

pub fn is_damage(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(failure, message) => match failure.code {
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => true,
            // The right version number over the wrong tables.
            ErrorCode::Unknown => message.as_deref().is_some_and(|message| {
                let signs = ["no such ", "has no column ", "cannot modify ", "malformed"];
                signs.iter().any(|sign| message.contains(sign))
            }),
            _ => false,
        },
        rusqlite::Error::SqlInputError { .. } => true,
        // A column that holds what we never put there.
        rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..) => true,
        _ => false,
    }
}

pub fn describe(error: &rusqlite::Error) -> StoreUnavailable {
    if is_damage(error) {
        return StoreUnavailable("the file is damaged; a new one is started".into());
    }
    let text = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => LOCKED.into(),
        Some(ErrorCode::DiskFull) => "the disk is full".into(),
        Some(ErrorCode::ReadOnly) => "the state directory is read-only".into(),
        Some(ErrorCode::PermissionDenied) => "no permission".into(),
        Some(ErrorCode::CannotOpen) => "the file cannot be opened".into(),
        Some(ErrorCode::SystemIoFailure) => "reading or writing the disk failed".into(),
        Some(ErrorCode::OutOfMemory) => "out of memory".into(),
        // SQLite's remaining messages name statements and tables, not paths.
        _ => error.to_string(),
    };
    StoreUnavailable(text)
}

pub fn describe_io(error: &io::Error) -> StoreUnavailable {
    StoreUnavailable(match error.kind() {
        io::ErrorKind::WouldBlock => LOCKED.into(),
        io::ErrorKind::StorageFull => "the disk is full".into(),
        io::ErrorKind::ReadOnlyFilesystem => "the state directory is read-only".into(),
        // The kind's words alone: the full message may hold a path.
        kind => kind.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const SCHEMA: &str = "CREATE TABLE t (x INTEGER);";

    fn schema(version: i32) -> SqlSchema {
        SqlSchema {
            version,
            sql: SCHEMA,
        }
    }

    fn open(path: &Path, version: i32) -> Result<SqlStore, StoreUnavailable> {
        SqlStore::open(SqlLocation::File(path.into()), schema(version))
    }

    fn insert(store: &SqlStore) -> Result<usize, TransactionError<rusqlite::Error>> {
        store.write(|c| c.execute("INSERT INTO t VALUES (1)", []))
    }

    fn rows(store: &SqlStore) -> i64 {
        store
            .read(|c| c.query_row("SELECT count(*) FROM t", [], |r| r.get(0)))
            .unwrap_or_else(|e: TransactionError<rusqlite::Error>| panic!("{e:?}"))
    }

    fn aside(path: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(path.parent().unwrap())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .filter(|n| is_moved_aside(n))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_private_and_last() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("state/deep/s.db");
        let store = open(&path, 1).unwrap();
        insert(&store).unwrap();
        let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        for name in ["s.db", "s.db-wal", "s.db-shm", "s.db.lock"] {
            assert_eq!(mode(&path.with_file_name(name)), 0o600, "{name}");
        }
        drop(store);
        assert_eq!(rows(&open(&path, 1).unwrap()), 1);
        assert!(aside(&path).is_empty());
    }

    #[test]
    fn garbage_and_other_versions_are_moved_aside_and_the_first_is_never_deleted() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("s.db");
        insert(&open(&path, 1).unwrap()).unwrap();
        assert_eq!(rows(&open(&path, 2).unwrap()), 0, "newer than the file");
        assert_eq!(aside(&path), ["s.db.version1-1"]);
        let first = fs::read(tmp.path().join("s.db.version1-1")).unwrap();
        assert_eq!(rows(&open(&path, 1).unwrap()), 0, "older than the file");
        assert_eq!(aside(&path), ["s.db.version1-1", "s.db.version2-2"]);
        fs::write(
            &path,
            "not a database at all, and long enough to be read".repeat(100),
        )
        .unwrap();
        insert(&open(&path, 1).unwrap()).unwrap();
        assert_eq!(aside(&path), ["s.db.corrupt-3", "s.db.version1-1"]);
        let kept = fs::read(tmp.path().join("s.db.version1-1")).unwrap();
        assert_eq!(kept, first);
        // Right number, wrong tables: seen at the first use, healed at the second.
        drop(fs::remove_file(&path));
        let other = Connection::open(&path).unwrap();
        other
            .execute_batch("CREATE TABLE other (y); PRAGMA user_version = 1")
            .unwrap();
        drop(other);
        let store = open(&path, 1).unwrap();
        assert!(matches!(
            insert(&store),
            Err(TransactionError::Unavailable(_))
        ));
        insert(&store).unwrap();
    }

    #[test]
    fn damage_under_an_open_store_is_reported_once_and_healed() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("s.db");
        let store = open(&path, 1).unwrap();
        insert(&store).unwrap();
        drop(store);
        let store = open(&path, 1).unwrap();
        let len = fs::metadata(&path).unwrap().len() as usize;
        fs::write(&path, vec![0x55; len]).unwrap();
        assert!(matches!(
            insert(&store),
            Err(TransactionError::Unavailable(_))
        ));
        insert(&store).unwrap();
        assert_eq!(rows(&store), 1);
    }

    #[test]
    fn a_link_in_place_of_the_file_is_refused() {
        let tmp = tempfile::tempdir().unwrap();
        let target = tmp.path().join("elsewhere");
        let path = tmp.path().join("s.db");
        symlink(&target, &path).unwrap();
        assert!(open(&path, 1).is_err());
        assert_eq!(fs::read(&target).unwrap_or_default(), b"");
    }

    #[test]
    fn what_cannot_be_opened_is_an_error_without_a_path() {
        let tmp = tempfile::tempdir().unwrap();
        fs::write(tmp.path().join("file"), "").unwrap();
        let error = open(&tmp.path().join("file/s.db"), 1).err().unwrap();
        assert!(!error.to_string().contains('/'), "{error}");
    }
}
