//! The background thread of a server: takes the first snapshot, keeps the watch drained, applies retention.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use llmc_host::lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::setpriority_process;
use rustix::thread::gettid;

use crate::commit::CommitRequest;
use crate::compare::Effect;
use crate::entry::EntrySource;
use crate::error::{Error, Result};
use crate::history::{Inner, Work};

/// Between batches, so that calls get their turn.
const BUILD_PAUSE: Duration = Duration::from_millis(1);
const BUILD_NICE: i32 = 10;
/// How often a process looks whether another one has finished the first snapshot, or the thread whether it should end.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Events are collected for this long before they are read, so that a busy writer does not keep the thread busy.
const SETTLE_TIME: Duration = Duration::from_millis(100);
/// After a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// The same with a store that others share: it may be away for a moment.
const SHARED_RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// How often a server looks whether another one was killed in the middle of an undo.
const TAKE_OVER_INTERVAL: Duration = Duration::from_secs(10);
const SWEEP_INTERVAL: Duration = Duration::from_secs(3600);
const FIRST_SWEEP: Duration = Duration::from_secs(60);

pub(crate) fn start(inner: &Arc<Inner>) {
    let weak = Arc::downgrade(inner);
    let spawned = std::thread::Builder::new()
        .name("history".to_owned())
        .spawn(move || {
            let _ = setpriority_process(Some(gettid()), BUILD_NICE);
            keep(&weak);
        });
    if let Err(error) = spawned {
        tracing::warn!(%error, "history has no background thread");
    }
}

fn keep(weak: &Weak<Inner>) {
    let mut next_sweep = Instant::now() + FIRST_SWEEP;
    let mut next_take_over = Instant::now() + TAKE_OVER_INTERVAL;
    let mut is_prepared = false;
    let mut last_error = None;
    loop {
        let Some(inner) = weak.upgrade() else { return };
        // A store that was replaced is built anew.
        if !is_prepared || !lock(&inner.status).is_built {
            match inner.prepare() {
                Ok(()) => is_prepared = true,
                Err(Error::TooManyFiles(_)) => return,
                Err(error) => {
                    let interval = match inner.store.is_shared() {
                        true => SHARED_RETRY_INTERVAL,
                        false => RETRY_INTERVAL,
                    };
                    let said = error.to_string();
                    if last_error.as_ref() != Some(&said) {
                        tracing::warn!(%error, "history waits until it can be written");
                    }
                    last_error = Some(said);
                    drop(inner);
                    wait(weak, interval);
                    continue;
                }
            }
        }
        if Instant::now() >= next_sweep {
            next_sweep = Instant::now() + SWEEP_INTERVAL;
            if let Err(error) = inner.sweep() {
                tracing::warn!(%error, "history was not tidied");
            }
        }
        if inner.store.is_shared() && Instant::now() >= next_take_over {
            next_take_over = Instant::now() + TAKE_OVER_INTERVAL;
            if let Err(error) = inner.take_over() {
                tracing::debug!(%error, "no look for undos of killed servers");
            }
        }
        let fd = lock(&inner.work)
            .watch
            .as_ref()
            .map(|watch| lock(watch).fd());
        // The history may end while the thread waits.
        drop(inner);
        let Some(fd) = fd else {
            std::thread::sleep(POLL_INTERVAL);
            continue;
        };
        let mut fds = [PollFd::new(&*fd, PollFlags::IN)];
        let time = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        if matches!(poll(&mut fds, Some(&time)), Ok(ready) if ready > 0) {
            std::thread::sleep(SETTLE_TIME);
            if let Some(inner) = weak.upgrade() {
                let work = &mut *lock(&inner.work);
                if let Some(watch) = &work.watch {
                    lock(watch).drain(&mut work.dirty);
                }
            }
        }
    }
}

fn wait(weak: &Weak<Inner>, time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until && weak.strong_count() > 0 {
        std::thread::sleep(POLL_INTERVAL);
    }
}

impl Inner {
    /// Takes the first snapshot, or compares with the last one: after that a watch tells what changes.
    fn prepare(&self) -> Result<()> {
        lock(&self.work).wants_watch = true;
        self.build(BUILD_PAUSE)?;
        let mut work = lock(&self.work);
        self.load(&mut work)?;
        if work.watch.is_none() && self.store.active_calls()? == 0 {
            self.record_outside(&mut work)?;
        }
        Ok(())
    }

    /// Finishes the undos of servers that were killed.
    pub(crate) fn take_over(&self) -> Result<()> {
        let mut work = lock(&self.work);
        self.load(&mut work)?;
        self.finish_plans(&mut work);
        Ok(())
    }

    /// Records what changed since the last look as a change from outside.
    pub(crate) fn record_outside(&self, work: &mut Work) -> Result<()> {
        let compared = self.look(work)?;
        if !compared.findings.is_empty() {
            let request = CommitRequest {
                ignored: compared.ignored,
                ..CommitRequest::default()
            };
            self.commit(work, compared.findings, EntrySource::Outside, &request)?;
        }
        self.snapshot.write().set_listings(compared.listings);
        Ok(())
    }

    pub(crate) fn build(&self, pause: Duration) -> Result<()> {
        let built = self.try_build(pause);
        if let Err(error @ Error::TooManyFiles(_)) = &built {
            lock(&self.status).off = Some(error.to_string());
        }
        built
    }

    fn try_build(&self, pause: Duration) -> Result<()> {
        let claim = loop {
            {
                let mut work = lock(&self.work);
                self.load(&mut work)?;
                if work.is_built {
                    return Ok(());
                }
            }
            match self.store.claim_build()? {
                Some(claim) => break claim,
                None if self.store.is_shared() => std::thread::sleep(POLL_INTERVAL / 2),
                None => std::thread::sleep(POLL_INTERVAL / 10),
            }
        };
        let mut suspects = {
            let mut work = lock(&self.work);
            self.load(&mut work)?;
            if work.is_built {
                return Ok(());
            }
            work.watch = self.new_watch(&work);
            let watch = work.watch.clone();
            let walked =
                self.compare(&mut work, |comparer, _| comparer.walk(b"", watch.as_ref()))?;
            walked.suspects
        };
        let request = CommitRequest {
            is_first_snapshot: true,
            ..CommitRequest::default()
        };
        // In the order of a walk, so that what is near is read together.
        suspects.sort();
        for batch in suspects.chunks(self.store.build_batch()) {
            let mut work = lock(&self.work);
            // A path that a call is changing, or has changed since the walk, is that call's to record.
            let mut paths = batch.to_vec();
            paths.retain(|path| !self.is_claimed(path) && self.snapshot.read().get(path).is_none());
            let mut findings =
                self.compare(&mut work, |comparer, _| Ok(comparer.examine_all(paths)))?;
            for finding in &mut findings {
                finding.effect = Effect::Adopt;
            }
            self.commit(&mut work, findings, EntrySource::Outside, &request)?;
            drop(work);
            self.built_files
                .fetch_add(batch.len() as u64, Ordering::Relaxed);
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
        }
        let mut work = lock(&self.work);
        self.store.set_built()?;
        work.is_built = true;
        self.set_built(&work);
        drop(claim);
        Ok(())
    }
}
