//! Reads calls as other processes record them.
//!
//! A follower changes nothing: it creates no file, moves none aside, and holds no lock between two reads. A store that
//! does not exist yet has no calls yet.
#![allow(
    clippy::disallowed_methods,
    reason = "this is the store's own file, not the agent's"
)]

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use jiff::Timestamp;
use llmc_envelope::store::{describe, describe_io, harden, is_damage};
use rusqlite::{Connection, OpenFlags};

use super::location::TelemetryLocation;
use super::{COLUMNS, Error, SCHEMA, read_row, shared};
use crate::event::CallEvent;

/// How much of a text is read. What this program writes is shorter; a file from elsewhere may hold anything.
const MAX_TEXT_CHARS: usize = 4096;

/// A position in telemetry from which reading goes on.
pub struct TelemetryFollower {
    location: TelemetryLocation,
    since: Timestamp,
    open: Option<OpenFile>,
    /// The last number that was read from a shared database.
    shared_last: Option<i64>,
}

struct OpenFile {
    conn: Connection,
    /// Device and inode: a damaged store is moved aside and a new one takes its name.
    file: (u64, u64),
    last: i64,
}

impl TelemetryFollower {
    /// Follows the calls from this moment on. Nothing is opened yet.
    pub fn new(location: impl Into<TelemetryLocation>, since: Timestamp) -> TelemetryFollower {
        TelemetryFollower {
            location: location.into(),
            since,
            open: None,
            shared_last: None,
        }
    }

    /// Up to `limit` calls that were not read yet, oldest first; none while there is no file.
    ///
    /// # Errors
    /// The file is no telemetry of this version, or cannot be read now. The next read tries again.
    pub fn next(&mut self, limit: usize) -> Result<Vec<CallEvent>, Error> {
        let path = match &self.location {
            TelemetryLocation::File(path) => path,
            TelemetryLocation::Database(database) => {
                let last = match self.shared_last {
                    Some(last) => last,
                    None => shared::last_before(database, self.since)?,
                };
                let calls = shared::calls_after(database, last, limit)?;
                self.shared_last = calls.last().map_or(Some(last), |call| call.seq);
                return Ok(calls);
            }
        };
        match opened(&mut self.open, path, self.since)? {
            Some(open) => read(open, limit).map_err(unavailable),
            None => Ok(Vec::new()),
        }
    }
}

/// The file as it was opened before, or newly opened; `None` while there is none.
fn opened<'a>(
    open: &'a mut Option<OpenFile>,
    path: &Path,
    since: Timestamp,
) -> Result<Option<&'a mut OpenFile>, Error> {
    let Some(file) = identity(path)? else {
        *open = None;
        return Ok(None);
    };
    if open.as_ref().is_none_or(|open| open.file != file) {
        let Some(conn) = open_read_only(path)? else {
            return Ok(None);
        };
        let last = before(&conn, since).map_err(unavailable)?;
        *open = Some(OpenFile { conn, file, last });
    }
    Ok(open.as_mut())
}

/// Device and inode of the file; `None` while there is none.
fn identity(path: &Path) -> Result<Option<(u64, u64)>, Error> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => Err(Error::NotAFile),
        Ok(found) => Ok(Some((found.dev(), found.ino()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(describe_io(&error).into()),
    }
}

/// A telemetry file that is only read; `None` while there is none, or none with tables.
pub(super) fn open_read_only(path: &Path) -> Result<Option<Connection>, Error> {
    if identity(path)?.is_none() || fs::symlink_metadata(path).is_ok_and(|found| found.len() == 0) {
        return Ok(None);
    }
    let conn = connect(path).map_err(unavailable)?;
    let version: i32 = conn
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .map_err(unavailable)?;
    match version {
        0 => Ok(None),
        version if version == SCHEMA.version => Ok(Some(conn)),
        version => Err(Error::OtherVersion { version }),
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    // SQLite's flag against links at the end of a path refuses links anywhere in it.
    let path = match (path.parent(), path.file_name()) {
        (Some(dir), Some(name)) => dir.canonicalize().unwrap_or(dir.into()).join(name),
        _ => path.to_owned(),
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let conn = Connection::open_with_flags(path, flags)?;
    harden(&conn)?;
    Ok(conn)
}

/// What [`read_row`] reads, each text cut to a length.
pub(super) fn bounded_columns() -> String {
    let column = |name: &str| match name {
        "agent" | "session" | "model" | "cmd" | "error" | "principal" | "server" | "client"
        | "correlation_id" | "path" | "args" => format!("substr({name}, 1, {MAX_TEXT_CHARS})"),
        "handle" | "entry" => format!("substr({name}, 1, 64)"),
        name => name.to_owned(),
    };
    let columns: Vec<String> = (COLUMNS.split(", ").chain(["args"])).map(column).collect();
    columns.join(", ")
}

impl fmt::Debug for TelemetryFollower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TelemetryFollower")
            .field("location", &self.location)
            .field("since", &self.since)
            .finish_non_exhaustive()
    }
}

/// The number of the last row before this moment.
fn before(conn: &Connection, since: Timestamp) -> rusqlite::Result<i64> {
    conn.query_row(
        "SELECT coalesce((SELECT min(seq) - 1 FROM calls WHERE time_ms >= ?1), (SELECT max(seq) FROM calls), 0)",
        [since.as_millisecond()],
        |row| row.get(0),
    )
}

fn read(open: &mut OpenFile, limit: usize) -> rusqlite::Result<Vec<CallEvent>> {
    let newest: i64 = open
        .conn
        .prepare_cached("SELECT coalesce(max(seq), 0) FROM calls")?
        .query_row([], |row| row.get(0))?;
    if newest < open.last {
        // Every row was removed for its age; numbers begin again.
        open.last = 0;
    }
    if newest == open.last {
        return Ok(Vec::new());
    }
    let mut query = open.conn.prepare_cached(&format!(
        "SELECT {} FROM calls WHERE seq > ?1 ORDER BY seq LIMIT ?2",
        bounded_columns()
    ))?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = query.query_map([open.last, limit], read_row)?;
    let mut calls = Vec::new();
    for row in rows {
        let call = row?;
        open.last = call.seq.unwrap_or(open.last);
        calls.push(call);
    }
    Ok(calls)
}

pub(super) fn unavailable(error: rusqlite::Error) -> Error {
    if is_damage(&error) {
        return Error::Damaged;
    }
    describe(&error).into()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use llmc_envelope::clock::Clock;

    use crate::telemetry::{Telemetry, TelemetryOptions};

    fn store(path: &Path) -> Telemetry {
        Telemetry::open(path, TelemetryOptions::default()).unwrap()
    }

    fn record(store: &Telemetry, cmd: &str) {
        let call = CallEvent {
            tool: cmd.to_owned(),
            ..CallEvent::default()
        };
        store.record(&call).unwrap();
    }

    fn names(follower: &mut TelemetryFollower) -> Vec<String> {
        let calls = follower.next(10).unwrap();
        calls.into_iter().map(|call| call.tool).collect()
    }

    #[test]
    fn every_call_is_read_once_and_nothing_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/te.db");
        let mut follower = TelemetryFollower::new(&path, Timestamp::UNIX_EPOCH);
        assert_eq!(names(&mut follower), [""; 0]);
        assert!(!path.parent().unwrap().exists(), "a watcher makes nothing");
        let store = store(&path);
        assert_eq!(names(&mut follower), [""; 0]);
        record(&store, "a");
        record(&store, "b");
        assert_eq!(follower.next(1).unwrap().len(), 1);
        assert_eq!(names(&mut follower), ["b"]);
        record(&store, "c");
        assert_eq!(names(&mut follower), ["c"]);
        assert_eq!(names(&mut follower), [""; 0]);
    }

    #[test]
    fn reading_begins_at_a_moment() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("te.db");
        let clock = Clock::manual(Timestamp::from_second(1_000_000).unwrap());
        let options = TelemetryOptions {
            clock: clock.clone(),
            ..TelemetryOptions::default()
        };
        let store = Telemetry::open(&path, options).unwrap();
        record(&store, "old");
        clock.advance(Duration::from_secs(60));
        record(&store, "new");
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(
            names(&mut TelemetryFollower::new(&path, at(1_000_001))),
            ["new"]
        );
        let mut later = TelemetryFollower::new(&path, at(1_000_100));
        assert_eq!(names(&mut later), [""; 0]);
        record(&store, "next");
        assert_eq!(names(&mut later), ["next"]);
    }

    #[test]
    fn a_store_that_began_anew_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("te.db");
        let mut follower = TelemetryFollower::new(&path, Timestamp::UNIX_EPOCH);
        let first = store(&path);
        record(&first, "a");
        assert_eq!(names(&mut follower), ["a"]);
        drop(first);
        fs::rename(&path, dir.path().join("aside")).unwrap();
        let second = store(&path);
        record(&second, "b");
        assert_eq!(names(&mut follower), ["b"]);
    }

    #[test]
    fn what_is_no_telemetry_is_refused_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("te.db");
        for (content, what) in [
            (
                "this is no database at all, but long enough to look like one",
                "garbage",
            ),
            ("", "nothing"),
        ] {
            fs::write(&path, content).unwrap();
            let read = TelemetryFollower::new(&path, Timestamp::UNIX_EPOCH).next(10);
            assert_eq!(read.is_err(), !content.is_empty(), "{what}");
            assert_eq!(fs::read_to_string(&path).unwrap(), content, "{what}");
        }
        fs::remove_file(&path).unwrap();
        let foreign = Connection::open(&path).unwrap();
        foreign
            .execute_batch("CREATE VIEW calls AS SELECT 1; PRAGMA user_version = 1;")
            .unwrap();
        let error = TelemetryFollower::new(&path, Timestamp::UNIX_EPOCH).next(10);
        assert!(error.is_err(), "a view runs what its author wrote");
        drop(foreign);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        let error = TelemetryFollower::new(&path, Timestamp::UNIX_EPOCH).next(10);
        assert_eq!(error.unwrap_err(), Error::NotAFile);
    }
}
