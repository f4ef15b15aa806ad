//! Leases on files, between agents and between processes of one workspace.
//!
//! A writer takes a lease on each file it is about to change: a small record in the state directory that says who holds
//! it, until when, and under which token. The lease is advisory time; what makes it safe is the commit: the check that
//! the token is still the holder's and the rename happen while the record's own file is locked by the operating system
//! (`flock`). A holder that was suspended past its lease and lost the file to another finds another token there and
//! fails, however late it continues.
//!
//! Every process keeps one more file locked for as long as it lives. When another process gets that lock, the owner has ended, and
//! its leases are free at once instead of after their time. That needs neither `/proc` nor a shared pid namespace.

mod shared;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use llmc_store::Database;
use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::read::sha256_hex;

use shared::{SharedLease, SharedLeases, WantedLease};

/// How long a call waits for a leased file before it fails with [`Error::Busy`].
const LEASE_WAIT: Duration = Duration::from_millis(450);
/// How long a holder waits for its own record, which others lock only to look at it.
const OWN_RECORD_WAIT: Duration = Duration::from_secs(5);

/// The leases of one workspace, as one process sees them.
#[derive(Debug)]
pub struct LeaseTable {
    dir: OwnedFd,
    alive_name: String,
    /// Held open and locked: other processes take that as proof that this one runs.
    _alive_file: File,
    lease: Duration,
    /// Leases that hold on other machines as well.
    shared: Option<SharedLeases>,
}

/// What a lease file says.
#[derive(Debug, Serialize, Deserialize)]
struct LeaseRecord {
    token: String,
    owner: String,
    alive_name: String,
    until_ms: u64,
    path: String,
    /// A temporary file that a crashed holder may have left behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    temp_file: Option<PathBuf>,
}

/// Leases on one or two files; given back when dropped.
#[derive(Debug)]
pub struct Leases<'a> {
    locks: &'a LeaseTable,
    held: Vec<HeldLease>,
    shared: Vec<SharedLease>,
    requested: String,
    cancel: CancelToken,
}

/// One lease: the record's name and our token, or, where no record could be written, the locked file itself.
#[derive(Debug)]
struct HeldLease {
    name: String,
    token: String,
    locked: Option<File>,
}

impl LeaseTable {
    /// Opens the lock directory below the state directory.
    ///
    /// # Errors
    /// The state directory cannot be written.
    pub fn open(state_dir: &Path, lease: Duration) -> Result<LeaseTable> {
        let path = state_dir.join("locks");
        let failed = |source| Error::WriteFailed {
            path: ".llmc/locks".to_owned(),
            source,
        };
        let dir = crate::scratch::private_dir(&path).map_err(failed)?;
        // Another process's sweep may find the file before it is locked, take its process for ended and remove it.
        let (alive_name, alive_file) = loop {
            let name = format!("alive-{}", ulid::Ulid::new());
            let file = open_record(&dir, &name).map_err(|errno| failed(errno.into()))?;
            match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if is_linked(&file) => break (name, file),
                Ok(()) | Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(errno) => return Err(failed(errno.into())),
            }
        };
        let locks = LeaseTable {
            dir,
            alive_name,
            _alive_file: alive_file,
            lease,
            shared: None,
        };
        locks.sweep();
        Ok(locks)
    }

    /// Makes leases hold on every machine that uses this database.
    #[must_use]
    pub fn shared_in(mut self, database: Option<Database>) -> LeaseTable {
        self.shared = database.map(|database| SharedLeases::new(database, self.lease));
        self
    }

    /// A path below a directory that a call on another machine works on, and its holder.
    pub(crate) fn shared_holder_below(
        &self,
        dir: &Path,
        requested: &str,
    ) -> Result<Option<(PathBuf, String)>> {
        match &self.shared {
            Some(shared) => shared.holder_below(dir, requested),
            None => Ok(None),
        }
    }

    /// Name of the file that this process keeps locked while it runs.
    pub(crate) fn alive_name(&self) -> &str {
        &self.alive_name
    }

    /// Whether the process that owns this alive file has ended.
    pub(crate) fn is_dead(&self, alive_name: &str) -> bool {
        if alive_name == self.alive_name {
            return false;
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match fs::openat(&self.dir, alive_name, flags, Mode::empty()) {
            Ok(file) => fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok(),
            Err(errno) => errno == Errno::NOENT,
        }
    }

    /// Takes leases on `paths` (absolute, canonical), in sorted order, waiting a little for a busy one.
    ///
    /// # Errors
    /// [`Error::Busy`] with the holder when one stays taken.
    pub fn acquire(&self, paths: &[PathBuf], owner: &str, requested: &str) -> Result<Leases<'_>> {
        let mut paths = paths.to_vec();
        paths.sort();
        paths.dedup();
        let started = Instant::now();
        let mut leases = Leases {
            locks: self,
            held: Vec::new(),
            shared: Vec::new(),
            requested: requested.to_owned(),
            cancel: CancelToken::default(),
        };
        for path in &paths {
            leases
                .held
                .push(self.acquire_one(path, owner, requested, started)?);
        }
        // In the same order as above, so that no two calls wait for each other.
        if let Some(shared) = &self.shared {
            for (path, held) in paths.iter().zip(&leases.held) {
                let wanted = WantedLease {
                    name: &held.name,
                    path,
                    holder: owner,
                    requested,
                };
                leases
                    .shared
                    .push(shared.acquire(&wanted, started, LEASE_WAIT)?);
            }
        }
        Ok(leases)
    }

    fn acquire_one(
        &self,
        path: &Path,
        owner: &str,
        requested: &str,
        started: Instant,
    ) -> Result<HeldLease> {
        use std::os::unix::ffi::OsStrExt;
        let name = format!("f-{}", &sha256_hex(path.as_os_str().as_bytes())[..32]);
        let failed = |source| Error::WriteFailed {
            path: requested.to_owned(),
            source,
        };
        let mut holder = String::from("another call");
        loop {
            let file = open_record(&self.dir, &name).map_err(|errno| failed(errno.into()))?;
            if fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
                && is_linked(&file)
            {
                let mut file = file;
                match read_record(&mut file) {
                    Some(record) if self.is_held(&record) => holder = record.owner,
                    previous => {
                        if let Some(temp_file) = previous.and_then(|record| record.temp_file) {
                            remove_temp_file(&temp_file);
                        }
                        let record = LeaseRecord {
                            token: ulid::Ulid::new().to_string(),
                            owner: owner.to_owned(),
                            alive_name: self.alive_name.clone(),
                            until_ms: now_ms()
                                + u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX / 2),
                            path: path.to_string_lossy().into_owned(),
                            temp_file: None,
                        };
                        let mut held = HeldLease {
                            name,
                            token: record.token.clone(),
                            locked: None,
                        };
                        match write_record(&mut file, &record) {
                            Ok(()) => {}
                            // On a full disk deleting must still work: the lock alone is the lease then.
                            Err(error) if is_full(&error) => held.locked = Some(file),
                            Err(error) => return Err(failed(error)),
                        }
                        return Ok(held);
                    }
                }
            }
            let waited = started.elapsed();
            if waited >= LEASE_WAIT {
                return Err(Error::Busy {
                    path: requested.to_owned(),
                    holder,
                    waited_ms: waited.as_millis(),
                });
            }
            // Jitter keeps contenders from retrying in step.
            let jitter = u64::from(started.elapsed().subsec_nanos() % 3_000);
            std::thread::sleep(Duration::from_micros(1_000 + jitter));
        }
    }

    fn is_held(&self, record: &LeaseRecord) -> bool {
        now_ms() < record.until_ms && !self.is_dead(&record.alive_name)
    }

    /// Removes what ended processes left: their leases, the temporary files those name, their alive files.
    fn sweep(&self) {
        let Ok(dir) = fs::openat(
            &self.dir,
            ".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        ) else {
            return;
        };
        let Ok(entries) = fs::Dir::new(dir) else {
            return;
        };
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if name.starts_with("alive-") && name != self.alive_name {
                // Unlinked while locked, so that a process that is just starting notices.
                let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                if let Ok(file) = fs::openat(&self.dir, name, flags, Mode::empty())
                    && fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
                {
                    let _ = fs::unlinkat(&self.dir, name, AtFlags::empty());
                }
            } else if name.starts_with("f-") {
                let Ok(mut file) = open_record(&self.dir, name) else {
                    continue;
                };
                if fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
                    || !is_linked(&file)
                {
                    continue;
                }
                let record = read_record(&mut file);
                if record
                    .as_ref()
                    .is_none_or(|record| self.is_dead(&record.alive_name))
                {
                    if let Some(temp_file) = record.and_then(|record| record.temp_file) {
                        remove_temp_file(&temp_file);
                    }
                    let _ = fs::unlinkat(&self.dir, name, AtFlags::empty());
                }
            }
        }
    }

    /// The holder of a lease on this path (absolute, canonical), without taking a lease.
    pub(crate) fn holder_of(&self, path: &Path) -> Option<String> {
        use std::os::unix::ffi::OsStrExt;
        let name = format!("f-{}", &sha256_hex(path.as_os_str().as_bytes())[..32]);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mut file = File::from(fs::openat(&self.dir, name, flags, Mode::empty()).ok()?);
        // A record that is locked is being taken or used this very moment, and may be half written.
        let idle = fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok();
        match read_record(&mut file) {
            Some(record) => (is_linked(&file) && self.is_held(&record)).then_some(record.owner),
            None => (!idle).then(|| "another call".to_owned()),
        }
    }
}

impl Drop for LeaseTable {
    fn drop(&mut self) {
        let _ = fs::unlinkat(&self.dir, &self.alive_name, AtFlags::empty());
    }
}

impl Leases<'_> {
    /// Runs `op` if every lease still belongs to this call, with the lease records locked meanwhile.
    ///
    /// # Errors
    /// [`Error::Busy`] when a lease was taken over; else whatever `op` returns.
    pub fn commit<T>(&self, op: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut files = Vec::with_capacity(self.held.len());
        for held in self.held.iter().filter(|held| held.locked.is_none()) {
            files.push(self.lock_record(held, &self.cancel)?);
        }
        let op = || {
            // Last check: after a reported timeout the change must not be made.
            self.cancel.check()?;
            op()
        };
        match &self.locks.shared {
            Some(shared) => shared.commit(&self.shared, &self.requested, op),
            None => op(),
        }
    }

    /// Makes the leases end with the call: once it is cancelled, nothing is committed any more.
    #[must_use]
    pub(crate) fn with_cancel(mut self, cancel: &CancelToken) -> Self {
        self.cancel = cancel.clone();
        self
    }

    /// Notes a temporary file next to the target, so that a crash before the rename is cleaned up later.
    pub(crate) fn note_temp_file(&self, temp_file: Option<PathBuf>) -> Result<()> {
        let Some(held) = self.held.first().filter(|held| held.locked.is_none()) else {
            return Ok(());
        };
        let (mut file, mut record) = self.lock_record(held, &CancelToken::default())?;
        record.temp_file = temp_file;
        write_record(&mut file, &record).map_err(|source| Error::WriteFailed {
            path: self.requested.clone(),
            source,
        })
    }

    /// Locks the call's own record, which others hold only for a moment; waits no longer than the call may take.
    fn lock_record(&self, held: &HeldLease, cancel: &CancelToken) -> Result<(File, LeaseRecord)> {
        let lost = |holder: String| Error::Busy {
            path: self.requested.clone(),
            holder,
            waited_ms: 0,
        };
        let gone = || lost("a later holder (this call's lease ran out)".to_owned());
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd =
            fs::openat(&self.locks.dir, &*held.name, flags, Mode::empty()).map_err(|_| gone())?;
        let mut file = File::from(fd);
        let started = Instant::now();
        while let Err(errno) = fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if errno != Errno::WOULDBLOCK && errno != Errno::INTR {
                return Err(gone());
            }
            cancel.check()?;
            if started.elapsed() > OWN_RECORD_WAIT {
                return Err(lost("a process that keeps the lock".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        match read_record(&mut file) {
            Some(record) if record.token == held.token && is_linked(&file) => Ok((file, record)),
            Some(record) => Err(lost(record.owner)),
            None => Err(gone()),
        }
    }
}

impl Drop for Leases<'_> {
    fn drop(&mut self) {
        if let (Some(shared), false) = (&self.locks.shared, self.shared.is_empty()) {
            shared.release(&self.shared);
        }
        for held in &self.held {
            // Unlinked under its own lock, so no other call can hold a record that is about to be removed.
            if held.locked.is_some() || self.lock_record(held, &CancelToken::default()).is_ok() {
                let _ = fs::unlinkat(&self.locks.dir, held.name.as_str(), AtFlags::empty());
            }
        }
    }
}

/// Whether the disk or quota is full.
fn is_full(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
    )
}

fn open_record(dir: &OwnedFd, name: &str) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

/// False for a record that was unlinked while this call waited for its lock.
fn is_linked(file: &File) -> bool {
    fs::fstat(file).is_ok_and(|stat| stat.st_nlink > 0)
}

fn read_record(file: &mut File) -> Option<LeaseRecord> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.take(64 << 10).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn write_record(file: &mut File, record: &LeaseRecord) -> std::io::Result<()> {
    let text = serde_json::to_vec(record)?;
    file.seek(SeekFrom::Start(0))?;
    file.set_len(0)?;
    file.write_all(&text)
}

/// Removes a temporary file of this program by its canonical path, and no other file.
fn remove_temp_file(path: &Path) {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return;
    };
    if !name
        .to_string_lossy()
        .starts_with(crate::scratch::TEMP_PREFIX)
    {
        return;
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = fs::ResolveFlags::NO_SYMLINKS;
    if let Ok(dir) = fs::openat2(fs::CWD, dir, flags, Mode::empty(), resolve) {
        let _ = fs::unlinkat(dir.as_fd(), name, AtFlags::empty());
    }
}

/// Milliseconds since boot, sleep included: all processes share this clock, and it cannot be set.
fn now_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000
        + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locks(dir: &Path, lease: Duration) -> LeaseTable {
        LeaseTable::open(dir, lease).unwrap()
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_held_file_names_its_holder_and_is_free_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (locks(dir.path(), LONG), locks(dir.path(), LONG));
        let path = [PathBuf::from("/w/a")];
        let lease = one.acquire(&path, "agent-1", "a").unwrap();
        match two.acquire(&path, "agent-2", "a") {
            Err(Error::Busy {
                holder, waited_ms, ..
            }) => {
                assert_eq!(holder, "agent-1");
                assert!(waited_ms <= 500, "{waited_ms}");
            }
            other => panic!("{other:?}"),
        }
        drop(lease);
        two.acquire(&path, "agent-2", "a").unwrap();
    }

    #[test]
    fn a_late_holder_cannot_commit_over_its_successor() {
        let dir = tempfile::tempdir().unwrap();
        let (slow, quick) = (locks(dir.path(), Duration::ZERO), locks(dir.path(), LONG));
        let path = [PathBuf::from("/w/a")];
        let late = slow.acquire(&path, "slow", "a").unwrap();
        let successor = quick.acquire(&path, "quick", "a").unwrap();
        let refused = late.commit(|| -> Result<()> { panic!("must not run") });
        assert!(matches!(refused, Err(Error::Busy { holder, .. }) if holder == "quick"));
        drop(late);
        successor.commit(|| Ok(())).unwrap();
    }

    #[test]
    fn a_cancelled_call_commits_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let locks = locks(dir.path(), LONG);
        let cancel = CancelToken::default();
        let lease = locks
            .acquire(&[PathBuf::from("/w/a")], "agent", "a")
            .unwrap()
            .with_cancel(&cancel);
        lease.commit(|| Ok(())).unwrap();
        cancel.cancel();
        let refused = lease.commit(|| -> Result<()> { panic!("must not run") });
        assert!(matches!(refused, Err(Error::Cancelled)));
    }

    #[test]
    fn a_dead_process_loses_its_leases_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = [PathBuf::from("/w/a")];
        let dead = locks(dir.path(), LONG);
        std::mem::forget(dead.acquire(&path, "dead", "a").unwrap());
        // What a crash does: the descriptors close, the files stay.
        let (alive_name, files) = (dead.alive_name.clone(), dir.path().join("locks"));
        drop(dead);
        assert!(!files.join(&alive_name).exists());
        locks(dir.path(), LONG).acquire(&path, "next", "a").unwrap();
    }

    #[test]
    fn processes_that_start_together_do_not_take_each_other_for_dead() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let locks = locks(dir.path(), LONG);
                        let alive_name = dir.path().join("locks").join(&locks.alive_name);
                        assert!(alive_name.exists(), "swept while alive");
                    }
                });
            }
        });
    }

    #[test]
    fn two_files_are_taken_in_one_order_by_everybody() {
        let dir = tempfile::tempdir().unwrap();
        let locks = locks(dir.path(), LONG);
        std::thread::scope(|scope| {
            for turn in 0..8 {
                let locks = &locks;
                scope.spawn(move || {
                    let mut pair = [PathBuf::from("/w/a"), PathBuf::from("/w/b")];
                    if turn % 2 == 0 {
                        pair.reverse();
                    }
                    for _ in 0..20 {
                        match locks.acquire(&pair, "x", "a") {
                            Ok(lease) => lease.commit(|| Ok(())).unwrap(),
                            Err(Error::Busy { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
        });
        let left: Vec<_> = std::fs::read_dir(dir.path().join("locks"))
            .unwrap()
            .flatten()
            .collect();
        assert_eq!(left.len(), 1, "only the alive file stays: {left:?}");
    }
}
