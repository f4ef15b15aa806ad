//! Checks a store's file without changing it, for `llmc doctor`.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

/// How long a look waits for another process.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads through a SQLite file and says what is wrong with it.
///
/// # Errors
/// The first thing that is wrong, in SQLite's words: damage, a lock held too long, no database at all.
pub fn integrity(path: &Path) -> Result<(), String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let verdict = Connection::open_with_flags(path, flags).and_then(|conn| {
        conn.busy_timeout(LOCK_TIMEOUT)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        conn.query_row("PRAGMA integrity_check(1)", [], |row| {
            row.get::<_, String>(0)
        })
    });
    match verdict {
        Ok(verdict) if verdict == "ok" => Ok(()),
        Ok(verdict) => Err(verdict),
        Err(error) => Err(error.to_string()),
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
        assert_eq!(integrity(&path), Ok(()));
        let mut bytes = std::fs::read(&path).unwrap();
        let half = bytes.len() / 2;
        bytes[100..half].fill(0xa5);
        std::fs::write(&path, bytes).unwrap();
        assert!(integrity(&path).is_err());
        std::fs::write(&path, "no database at all, whatever its name says").unwrap();
        assert!(integrity(&path).is_err());
        assert!(integrity(&dir.path().join("none")).is_err());
    }
}
