//! Leases that hold across machines, in the database that servers share.
//!
//! They come on top of the leases of this machine, which keep its own processes apart. A row says who holds a file until
//! when, by the clock of the database: clocks of machines may differ. A holder that ends without giving its lease back
//! loses it when that time has passed. Each time a file is taken it gets a token of its own. A change is committed with
//! the row locked, after a look at the token: a holder that was suspended past its lease finds another token there and
//! fails, and a successor waits until a change that has begun is made.
//!
//! A row of this very server is free for the server's next call: the leases of the machine, which are taken first, already
//! say that the call that made the row has ended. So an outage in which leases could not be given back blocks no file
//! for the server that held them.
//!
//! A path is the same file on every machine, so the workspace must be mounted at the same place everywhere.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use llmc_store::{Database, IsLost, TenantTransaction};

use crate::error::{Error, Result};

/// How often a busy lease is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// The holder of a row that is locked, which cannot be read without waiting.
const COMMITTING: &str = "a call on another server that is writing now";

/// How often leases that could not be given back are tried again.
const RETURN_PAUSE: Duration = Duration::from_millis(500);
const RETURN: &str = "DELETE FROM llmc.leases USING unnest($1::text[], $2::text[]) AS own (name, token) \
                      WHERE leases.name = own.name AND leases.token = own.token";

/// How often a server removes what killed servers left.
const SWEEP_INTERVAL: Duration = Duration::from_secs(3600);
/// Removes leases that ended long ago, except those that a transaction has locked.
const SWEEP: &str = "DELETE FROM llmc.leases WHERE name IN (SELECT name FROM llmc.leases \
                     WHERE expires_at < clock_timestamp() - interval '1 hour' LIMIT 1000 FOR UPDATE SKIP LOCKED)";

/// The leases of all servers of a team.
#[derive(Debug)]
pub(super) struct SharedLeases {
    database: Database,
    lease: Duration,
    /// Names this process in rows.
    server: String,
    swept: Mutex<Option<Instant>>,
    unreturned: Arc<UnreturnedLeases>,
}

/// Leases that could not be given back, because the database was away or busy. A thread gives them back as soon as it can,
/// so that files are not busy for other servers until their leases run out.
#[derive(Debug, Default)]
struct UnreturnedLeases(Mutex<Vec<SharedLease>>);

/// One lease in the database.
#[derive(Debug, Clone)]
pub(super) struct SharedLease {
    name: String,
    token: String,
}

/// A lease that was asked for.
pub(super) struct WantedLease<'a> {
    pub(super) name: &'a str,
    pub(super) path: &'a Path,
    /// Who asks.
    pub(super) holder: &'a str,
    /// The path as the caller wrote it.
    pub(super) requested: &'a str,
}

/// A failure inside a transaction.
enum Work {
    /// Another holder has the lease.
    Held(String),
    Store(llmc_store::Error),
}

impl SharedLeases {
    pub(super) fn new(database: Database, lease: Duration) -> SharedLeases {
        SharedLeases {
            database,
            lease,
            server: ulid::Ulid::new().to_string(),
            swept: Mutex::new(None),
            unreturned: Arc::default(),
        }
    }

    /// Takes a lease; a busy one is waited for until `wait` has passed since `started`.
    pub(super) fn acquire(
        &self,
        wanted: &WantedLease<'_>,
        started: Instant,
        wait: Duration,
    ) -> Result<SharedLease> {
        let token = ulid::Ulid::new().to_string();
        loop {
            match self.try_acquire(wanted, &token) {
                Ok(()) => {
                    return Ok(SharedLease {
                        name: wanted.name.to_owned(),
                        token,
                    });
                }
                Err(Work::Held(_)) if started.elapsed() < wait => {
                    std::thread::sleep(RETRY_PAUSE);
                }
                Err(Work::Held(holder)) => {
                    return Err(Error::Busy {
                        path: wanted.requested.to_owned(),
                        holder,
                        waited_ms: started.elapsed().as_millis(),
                    });
                }
                Err(Work::Store(why)) => return Err(unavailable(wanted.requested, &why)),
            }
        }
    }

    /// Takes a lease that is free, has expired, or is this server's own from a call that has ended.
    fn try_acquire(&self, wanted: &WantedLease<'_>, token: &str) -> Result<(), Work> {
        use std::os::unix::ffi::OsStrExt;
        let lease_ms = i64::try_from(self.lease.as_millis()).unwrap_or(i64::MAX / 2);
        let path = wanted.path.as_os_str().as_bytes();
        let holder = wanted.holder.as_bytes();
        let done = self.database.transaction(async |tx| {
            tx.wait_for_locks_at_most(RETRY_PAUSE).await?;
            let taken = tx
                .execute(
                    "INSERT INTO llmc.leases AS held (name, path, holder, server, token, expires_at) \
                     VALUES ($1, $2, $3, $4, $5, clock_timestamp() + $6::bigint * interval '1 millisecond') \
                     ON CONFLICT (tenant, name) DO UPDATE SET path = excluded.path, holder = excluded.holder, \
                     server = excluded.server, token = excluded.token, expires_at = excluded.expires_at \
                     WHERE held.expires_at <= clock_timestamp() OR held.server = excluded.server",
                    &[&wanted.name, &path, &holder, &self.server, &token, &lease_ms],
                )
                .await?;
            if taken == 1 {
                return Ok(());
            }
            let held = holder_in(tx, wanted.name).await?;
            Err(Work::Held(held.unwrap_or_else(|| "another call".to_owned())))
        });
        match done {
            Err(Work::Store(llmc_store::Error::Locked)) => Err(Work::Held(COMMITTING.to_owned())),
            done => done,
        }
    }

    /// Runs `op` if every lease still belongs to this call, with their rows locked meanwhile.
    pub(super) fn commit<T>(
        &self,
        leases: &[SharedLease],
        requested: &str,
        op: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let names: Vec<&str> = leases.iter().map(|lease| lease.name.as_str()).collect();
        let tokens: Vec<&str> = leases.iter().map(|lease| lease.token.as_str()).collect();
        let (op, done) = (Cell::new(Some(op)), Cell::new(None));
        let checked = self.database.transaction(async |tx| {
            // The rows stay locked however long this process is suspended, and no longer than its connection lives.
            tx.keep_locks_while_connected().await?;
            let ours = tx
                .query(
                    "SELECT 1 FROM llmc.leases JOIN unnest($1::text[], $2::text[]) AS own (name, token) \
                     USING (name, token) ORDER BY name FOR UPDATE OF leases",
                    &[&names, &tokens],
                )
                .await?;
            if ours.len() != names.len() {
                return Err(Work::Held("a later holder (this call's lease ran out)".to_owned()));
            }
            // After a lost connection this runs again, and the change is made once.
            if let Some(op) = op.take() {
                done.set(Some(op()));
            }
            Ok(())
        });
        match (done.take(), checked) {
            (Some(result), _) => result,
            (None, Err(Work::Held(holder))) => Err(Error::Busy {
                path: requested.to_owned(),
                holder,
                waited_ms: 0,
            }),
            (None, Err(Work::Store(why))) => Err(unavailable(requested, &why)),
            (None, Ok(())) => Err(unavailable(requested, &llmc_store::Error::Lost)),
        }
    }

    /// Gives leases back, or has a thread do it later. What cannot be given back in its time expires.
    pub(super) fn release(&self, leases: &[SharedLease]) {
        if give_back(&self.database, leases, self.is_time_to_sweep()).is_ok() {
            return;
        }
        let mut waiting = self.unreturned.lock();
        let has_thread = !waiting.is_empty();
        waiting.extend_from_slice(leases);
        if has_thread {
            return;
        }
        let (database, unreturned) = (self.database.clone(), self.unreturned.clone());
        let until = Instant::now() + self.lease;
        let thread = std::thread::Builder::new().name("llmc-leases".to_owned());
        let started = thread.spawn(move || unreturned.give_back(&database, until));
        if started.is_err() {
            waiting.clear();
        }
    }

    fn is_time_to_sweep(&self) -> bool {
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        let is_time = swept.is_none_or(|at| at.elapsed() >= SWEEP_INTERVAL);
        if is_time {
            *swept = Some(Instant::now());
        }
        is_time
    }

    /// A path below a directory that is held, and its holder: one question for a whole tree.
    pub(super) fn holder_below(
        &self,
        dir: &Path,
        requested: &str,
    ) -> Result<Option<(PathBuf, String)>> {
        use std::os::unix::ffi::{OsStrExt, OsStringExt};
        let mut start = dir.as_os_str().as_bytes().to_vec();
        start.push(b'/');
        let found = self.database.transaction(async |tx| {
            let sql = "SELECT path, holder FROM llmc.leases WHERE expires_at > clock_timestamp() \
                       AND substring(path FOR octet_length($1::bytea)) = $1 LIMIT 1";
            let Some(row) = tx.query_opt(sql, &[&start]).await? else {
                return Ok(None);
            };
            let column = |n| {
                row.try_get::<_, Vec<u8>>(n)
                    .map_err(|error| Work::Store(error.into()))
            };
            let path = std::ffi::OsString::from_vec(column(0)?);
            Ok(Some((
                path.into(),
                String::from_utf8_lossy(&column(1)?).into_owned(),
            )))
        });
        found.map_err(|failed| match failed {
            Work::Store(why) => unavailable(requested, &why),
            Work::Held(holder) => Error::Busy {
                path: requested.to_owned(),
                holder,
                waited_ms: 0,
            },
        })
    }
}

impl UnreturnedLeases {
    /// Tries until all are given back; until then, since they have expired by that time.
    fn give_back(&self, database: &Database, until: Instant) {
        loop {
            std::thread::sleep(RETURN_PAUSE);
            let leases = self.lock().clone();
            let is_done = give_back(database, &leases, false).is_ok();
            let mut waiting = self.lock();
            if is_done {
                waiting.drain(..leases.len());
            }
            if waiting.is_empty() || Instant::now() > until {
                waiting.clear();
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<SharedLease>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the rows of leases, and perhaps what killed servers left.
fn give_back(database: &Database, leases: &[SharedLease], sweeps: bool) -> llmc_store::Result<()> {
    let names: Vec<&str> = leases.iter().map(|lease| lease.name.as_str()).collect();
    let tokens: Vec<&str> = leases.iter().map(|lease| lease.token.as_str()).collect();
    database.transaction(async |tx| {
        tx.execute(RETURN, &[&names, &tokens]).await?;
        if sweeps {
            tx.execute(SWEEP, &[]).await?;
        }
        Ok(())
    })
}

async fn holder_in(tx: &TenantTransaction<'_>, name: &str) -> Result<Option<String>, Work> {
    let sql = "SELECT holder FROM llmc.leases WHERE name = $1 AND expires_at > clock_timestamp()";
    let Some(row) = tx.query_opt(sql, &[&name]).await? else {
        return Ok(None);
    };
    let holder: Vec<u8> = row.try_get(0).map_err(|error| Work::Store(error.into()))?;
    Ok(Some(String::from_utf8_lossy(&holder).into_owned()))
}

fn unavailable(requested: &str, why: &llmc_store::Error) -> Error {
    Error::NoSharedLease {
        path: requested.to_owned(),
        why: why.to_string(),
    }
}

impl From<llmc_store::Error> for Work {
    fn from(error: llmc_store::Error) -> Self {
        Work::Store(error)
    }
}

impl IsLost for Work {
    fn is_lost(&self) -> bool {
        matches!(self, Work::Store(error) if error.is_lost())
    }
}
