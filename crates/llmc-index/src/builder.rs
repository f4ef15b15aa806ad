//! Which process keeps an index current, and how urgent that is.
//!
//! One of the servers of a workspace builds and watches the index; the others use what it has committed. The role is a
//! lock on a file that holds the builder's process id, so the kernel frees it when the process ends. The builder renews
//! the time of that file; when it has not done so for a while (it may be suspended), the others update the index
//! themselves, one at a time under the writer's lock.
//!
//! A build runs at low priority unless a caller waits for it. Callers of all processes say so by the time of a second
//! file. Their scans of files that the index does not have yet take turns by a lock on a third, or the scans of many
//! servers would take the processors from the build; a question without a turn uses what is committed and does not wait.
#![allow(
    clippy::disallowed_methods,
    reason = "these are the index's own files, not the agent's"
)]

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use llmc_host::{CancelToken, open_private};

use crate::error::Result;
use crate::index::{Index, IndexPaths};

/// A builder that has not renewed its role for this long is taken for suspended.
const BUILDER_TIMEOUT: Duration = Duration::from_secs(60);
/// A caller is taken to wait for this long after it has said so.
const AWAITED_TIME: Duration = Duration::from_secs(10);
/// The role is renewed no more often than this.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(10);

/// How long a question waits for its turn to scan while nothing is committed, and how often it looks.
const MAX_TURN_WAIT: Duration = Duration::from_secs(1);
const TURN_INTERVAL: Duration = Duration::from_millis(50);

/// The right to build the index; free again when dropped.
#[derive(Debug)]
pub(crate) struct BuilderRole {
    file: File,
    renewed: Instant,
}

/// What became of an attempt to get the role.
pub(crate) enum Claim {
    Own(BuilderRole),
    /// Another process has it and is at work.
    Taken,
    /// No process that is at work has it.
    Open,
}

impl BuilderRole {
    pub(crate) fn claim(paths: &IndexPaths) -> Result<Claim> {
        paths.create_dir()?;
        let path = paths.builder();
        let mut file = open_private(&path)?;
        match file.try_lock() {
            Ok(()) => {
                // The id is for people; a full disk is no reason not to build.
                let _ = file.set_len(0);
                let _ = writeln!(file, "{}", std::process::id());
                let _ = file.set_modified(SystemTime::now());
                Ok(Claim::Own(BuilderRole {
                    file,
                    renewed: Instant::now(),
                }))
            }
            Err(TryLockError::WouldBlock) if is_recent(&path, BUILDER_TIMEOUT) => Ok(Claim::Taken),
            Err(TryLockError::WouldBlock) => Ok(Claim::Open),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }

    /// Shows that the builder is at work.
    pub(crate) fn renew(&mut self) {
        if self.renewed.elapsed() >= RENEWAL_INTERVAL {
            let _ = self.file.set_modified(SystemTime::now());
            self.renewed = Instant::now();
        }
    }
}

impl Index {
    /// Says that a caller waits for the index, to whichever process builds it.
    pub fn request_build(&self) {
        *llmc_host::lock(&self.awaited) = Some(SystemTime::now());
        // Before the first build there is no directory, and the builder will be this process or read this file later.
        if let Ok(file) = open_private(&self.paths().awaited()) {
            let _ = file.set_modified(SystemTime::now());
        }
    }

    /// The turn to scan files while the index is built. Waits for it only while the index has nothing to answer from.
    pub(crate) fn await_scan_turn(&self, stop: &CancelToken) -> Result<ScanTurn> {
        let Ok(file) = open_private(&self.paths().scan_lock()) else {
            // Before the first build there is no directory, and nothing to take the processors from.
            return Ok(ScanTurn::Own(None));
        };
        let end = Instant::now() + MAX_TURN_WAIT;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(ScanTurn::Own(Some(file))),
                Err(TryLockError::Error(_)) => return Ok(ScanTurn::Own(None)),
                Err(TryLockError::WouldBlock) => {}
            }
            stop.check()?;
            if Instant::now() >= end || self.has_committed() {
                return Ok(ScanTurn::Missed);
            }
            std::thread::sleep(TURN_INTERVAL);
        }
    }

    /// Whether the index has files that questions can be answered from.
    fn has_committed(&self) -> bool {
        let generation = self.with_parts(|_, text| text.generation());
        matches!(generation, Ok(Some(generation)) if generation > 0)
    }

    /// Whether a caller waits, here or in another process.
    pub(crate) fn is_awaited(&self) -> bool {
        let here = *llmc_host::lock(&self.awaited);
        here.is_some_and(|time| is_within(time, AWAITED_TIME))
            || is_recent(&self.paths().awaited(), AWAITED_TIME)
    }
}

/// Whether a question may scan files while the index is built.
#[derive(Debug)]
pub(crate) enum ScanTurn {
    /// Its turn lasts until this is dropped.
    Own(#[expect(dead_code, reason = "held for its lock")] Option<File>),
    /// Another question scans.
    Missed,
}

fn is_recent(path: &Path, age: Duration) -> bool {
    let modified = fs::symlink_metadata(path).and_then(|found| found.modified());
    modified.is_ok_and(|time| is_within(time, age))
}

/// Whether a time is at most this old. A time in the future is not: the clock was set back.
fn is_within(time: SystemTime, age: Duration) -> bool {
    SystemTime::now()
        .duration_since(time)
        .is_ok_and(|since| since <= age)
}
