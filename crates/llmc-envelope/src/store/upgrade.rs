//! Files of an older version that are taken over instead of moved aside.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::{
    SqlSchema, StoreUnavailable, beside, describe, describe_io, expected_shape, harden, is_damage,
    lock, settle, shape,
};

/// How a file of an older version becomes one of the present version.
#[derive(Clone, Copy)]
pub struct SqlUpgrade {
    /// The older version: its number, and the statements that made it.
    pub from: SqlSchema,
    /// Moves the older tables out of the way, before the present ones are created.
    pub before: &'static str,
    /// Copies what they hold, and drops them.
    pub after: &'static str,
}

/// Brings a file of an older version to the present one; any other file is left as it is.
///
/// The older file must have exactly the shape that this program gave it. It all happens in one transaction, so that a
/// process that ends meanwhile leaves the older file.
pub fn upgrade(
    path: &Path,
    to: &SqlSchema,
    upgrade: &SqlUpgrade,
    lock_timeout: Duration,
) -> Result<(), StoreUnavailable> {
    let is_file = fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0);
    if !is_file {
        return Ok(());
    }
    let path = settle(path).map_err(|e| describe_io(&e))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let version = |conn: &Connection| -> rusqlite::Result<i32> {
        conn.query_row("PRAGMA user_version", [], |row| row.get(0))
    };
    let upgraded = (|| {
        let conn = Connection::open_with_flags(&path, flags)?;
        harden(&conn)?;
        conn.busy_timeout(lock_timeout)?;
        if version(&conn)? != upgrade.from.version {
            return Ok(Ok(()));
        }
        let _lock = match lock(&beside(&path, ".lock"), lock_timeout) {
            Ok(lock) => lock,
            Err(error) => return Ok(Err(describe_io(&error))),
        };
        let tx = Transaction::new_unchecked(&conn, TransactionBehavior::Immediate)?;
        if version(&tx)? != upgrade.from.version || shape(&tx)? != expected_shape(&upgrade.from)? {
            return Ok(Ok(()));
        }
        tx.execute_batch(upgrade.before)?;
        tx.execute_batch(to.sql)?;
        tx.execute_batch(upgrade.after)?;
        tx.execute_batch(&format!("PRAGMA user_version = {}", to.version))?;
        tx.commit()?;
        Ok(Ok(()))
    })();
    match upgraded {
        Ok(done) => done,
        // Opening it moves it aside.
        Err(error) if is_damage(&error) => Ok(()),
        Err(error) => Err(describe(&error)),
    }
}
