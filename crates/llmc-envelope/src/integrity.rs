//! Checks a store's file without changing it, for `llmc doctor`.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

/// How long a look waits for another process.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads through a SQLite file.
///
/// # Errors
/// The first thing that is wrong: damage and locks held too long in SQLite's words, or another version than `expected`
/// (`None` means any).
pub fn integrity(path: &Path, expected: Option<i32>) -> Result<(), String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let looked = Connection::open_with_flags(path, flags).and_then(|conn| {
        conn.busy_timeout(LOCK_TIMEOUT)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        let verdict = conn.query_row("PRAGMA integrity_check(1)", [], |row| {
            row.get::<_, String>(0)
        })?;
        let written_by = conn.query_row("PRAGMA user_version", [], |row| row.get::<_, i32>(0))?;
        let objects = "SELECT count(*) FROM sqlite_schema";
        let objects = conn.query_row(objects, [], |row| row.get::<_, i64>(0))?;
        Ok((verdict, written_by, objects > 0))
    });
    match looked {
        Ok((verdict, ..)) if verdict != "ok" => Err(format!("damaged ({verdict})")),
        Ok((_, written_by, true)) if expected.is_some_and(|expected| expected != written_by) => {
            Err(format!("of another version ({written_by})"))
        }
        Ok(_) => Ok(()),
        Err(error) => Err(format!("damaged ({error})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let store = crate::HandleStore::open(dir.path(), crate::handles::Options::default());
        drop(store.unwrap());
        let path = dir.path().join("handles.db");
        assert_eq!(integrity(&path, Some(1)), Ok(()));
        assert_eq!(integrity(&path, None), Ok(()));
        let other = integrity(&path, Some(2)).unwrap_err();
        assert_eq!(other, "of another version (1)");
        let mut bytes = std::fs::read(&path).unwrap();
        let half = bytes.len() / 2;
        bytes[100..half].fill(0xa5);
        std::fs::write(&path, bytes).unwrap();
        assert!(integrity(&path, Some(1)).is_err());
        std::fs::write(&path, "no database at all, whatever its name says").unwrap();
        assert!(integrity(&path, Some(1)).is_err());
        assert!(integrity(&dir.path().join("none"), None).is_err());
    }
}
