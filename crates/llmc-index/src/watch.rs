//! Keeps the index current while a server runs.
//!
//! Only folders that a walk enters are watched, so a build that fills `target/` causes no update. A change of a known file
//! updates that file; anything else (a new name, a removed one, an ignore file) causes a scan of the whole tree, at low
//! priority and with pauses. The first build runs at normal priority while a caller waits for it. Where the kernel gives no
//! more watches, and for changes that events miss, the tree is scanned periodically.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use llmc_host::walk::{TreeChanges, WatchedTree};
use llmc_host::{CancelToken, Roots, names};
use rustix::process::setpriority_process;
use rustix::thread::gettid;

use crate::builder::{BuilderRole, Claim};
use crate::error::Error;
use crate::index::{Index, IndexState};
use crate::update::UpdateReport;

/// Changes are collected until none comes for this long, or until the maximum.
const SETTLE_TIME: Duration = Duration::from_millis(100);
const MAX_SETTLE_TIME: Duration = Duration::from_secs(1);
/// Events are read no more often than this.
const EVENT_INTERVAL: Duration = Duration::from_millis(20);
/// How often cancellation is checked while waiting.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often a process that does not build the index checks whether it should.
const ROLE_INTERVAL: Duration = Duration::from_secs(1);
/// How often a build checks whether a caller waits for it.
const URGENCY_INTERVAL: Duration = Duration::from_millis(50);
/// Between scans of the tree without watches, and with them.
const UNWATCHED_RESCAN_INTERVAL: Duration = Duration::from_secs(15);
const RESCAN_INTERVAL: Duration = Duration::from_secs(600);
/// The `nice` value of a scan of the whole tree.
const SCAN_NICE: i32 = 10;
/// Searches that rely on events are verified after at least this long, and this many times the duration of the last time.
const MIN_VERIFY_PAUSE: Duration = Duration::from_secs(5);
const VERIFY_PAUSE_FACTOR: u32 = 20;
/// A scan of the whole tree is followed by a pause of this many times its duration.
const PAUSE_FACTOR: u32 = 10;
const MIN_PAUSE: Duration = Duration::from_millis(200);

impl Index {
    /// Keeps the index up to date until cancelled.
    pub fn keep_current(&self, roots: &Roots, stop: &CancelToken) {
        self.mark_kept();
        let mut tree: Option<Arc<WatchedTree>> = None;
        let mut verifier = Verifier::default();
        let mut checked = false;
        let mut logged = None;
        while !stop.is_cancelled() {
            if !self.may_build() {
                // What changed while another process kept the index is found by a scan.
                tree = None;
                self.set_watched_tree(None);
                std::thread::sleep(ROLE_INTERVAL);
                continue;
            }
            // Watched before it is scanned, so that no change comes between the two.
            if tree.as_ref().is_none_or(|tree| tree.is_lost()) {
                tree = watch_tree(roots, stop);
                self.set_watched_tree(tree.clone());
            }
            let started = Instant::now();
            match self.update_in_the_background(roots, tree.as_deref(), !checked, stop) {
                Ok(done) => {
                    logged = None;
                    tracing::debug!(?done, "index updated");
                }
                // A command of the shell writes, or a process that found the builder suspended.
                Err(Error::Busy) => {
                    std::thread::sleep(ROLE_INTERVAL);
                    continue;
                }
                Err(Error::Host(_)) if stop.is_cancelled() => break,
                Err(error @ (Error::Full(_) | Error::Unwritable(_))) => {
                    let why = error.to_string();
                    if logged.as_ref() != Some(&why) {
                        tracing::warn!(why, "the index waits until it can be written");
                        logged = Some(why);
                    }
                    self.leave_role();
                    self.wait_until_writable(&error, started.elapsed(), stop);
                    continue;
                }
                Err(error) => tracing::warn!(error = %error, "index not updated"),
            }
            checked = true;
            let rest = (started.elapsed() * PAUSE_FACTOR).max(MIN_PAUSE);
            let not_before = Instant::now() + rest;
            if let Err(error) = self.embed_new(roots, stop) {
                tracing::warn!(error = %error, "vectors are behind");
            }
            verifier.is_due = true;
            self.update_until_rescan(roots, tree.as_ref(), &mut verifier, not_before, stop);
        }
        self.set_watched_tree(None);
        self.leave_role();
    }

    /// Whether it is for this process to build the index: it has the role, or no process at work has it.
    fn may_build(&self) -> bool {
        let mut role = llmc_host::lock(&self.role);
        if role.is_none() {
            match BuilderRole::claim(self.paths()) {
                Ok(Claim::Own(own)) => *role = Some(own),
                Ok(Claim::Taken) => return false,
                // Without the role, or where it cannot be had: the update itself says why it cannot be written.
                Ok(Claim::Open) | Err(_) => {}
            }
        }
        if let Some(role) = &mut *role {
            role.renew();
        }
        true
    }

    fn leave_role(&self) {
        *llmc_host::lock(&self.role) = None;
    }

    fn renew_role(&self) {
        if let Some(role) = &mut *llmc_host::lock(&self.role) {
            role.renew();
        }
    }

    /// A scan of the whole tree, at low priority unless a caller waits for the first build.
    ///
    /// A process without privileges cannot raise the priority of its threads again, so a build at low priority for
    /// which a caller begins to wait is ended and taken up by new threads at normal priority.
    fn update_in_the_background(
        &self,
        roots: &Roots,
        tree: Option<&WatchedTree>,
        check: bool,
        stop: &CancelToken,
    ) -> crate::Result<UpdateReport> {
        let is_urgent = || self.is_awaited() && self.state() != IndexState::Ready;
        let mut urgent = is_urgent();
        loop {
            self.progress().set_urgent(urgent);
            let pause = CancelToken::default();
            let mut hurried = false;
            let this_thread = std::thread::current();
            let updated = std::thread::scope(|scope| {
                let update = std::thread::Builder::new()
                    .name("index-update".to_owned())
                    .spawn_scoped(scope, || {
                        if !urgent {
                            // Threads and parsers started by this thread inherit the priority.
                            let _ = setpriority_process(Some(gettid()), SCAN_NICE);
                        }
                        if check {
                            self.check_for_damage();
                        }
                        let done = self.update(roots, &pause);
                        this_thread.unpark();
                        done
                    })?;
                while !update.is_finished() {
                    if stop.is_cancelled() {
                        pause.cancel();
                    } else if !urgent && is_urgent() {
                        hurried = true;
                        pause.cancel();
                    }
                    self.renew_role();
                    if let Some(tree) = tree {
                        tree.read_events();
                    }
                    std::thread::park_timeout(URGENCY_INTERVAL);
                }
                update
                    .join()
                    .unwrap_or_else(|_| Err(Error::Unwritable("the update failed".into())))
            });
            match updated {
                Err(Error::Host(_)) if hurried && !stop.is_cancelled() => urgent = true,
                done => {
                    self.progress().set_urgent(false);
                    return done;
                }
            }
        }
    }

    /// Waits until another attempt to write the index may succeed. On a full disk that is when there is clearly more free
    /// space than before: a failing attempt fills the disk for all programs. The next attempt comes earlier when a caller
    /// waits for it.
    fn wait_until_writable(&self, error: &Error, took: Duration, stop: &CancelToken) {
        let had = self.free_bytes();
        let enough = had.saturating_add((had / 4).max(1));
        let again = match error {
            Error::Full(_) => RESCAN_INTERVAL,
            _ => UNWATCHED_RESCAN_INTERVAL,
        };
        let started = Instant::now();
        while started.elapsed() < again.max(took * PAUSE_FACTOR) && !stop.is_cancelled() {
            std::thread::sleep(POLL_INTERVAL);
            let rest = match self.is_awaited() {
                true => took,
                false => took * PAUSE_FACTOR,
            };
            let fits = matches!(error, Error::Full(_)) && self.free_bytes() >= enough;
            if fits && started.elapsed() >= rest {
                return;
            }
        }
    }

    /// Waits for a scan whose time has not come; events are read meanwhile, lest their queue overflows.
    fn wait_until(
        &self,
        time: Instant,
        tree: Option<&Arc<WatchedTree>>,
        verifier: &mut Verifier,
        stop: &CancelToken,
    ) {
        while Instant::now() < time && !stop.is_cancelled() {
            self.renew_role();
            if let Some(tree) = tree {
                tree.read_events();
                verifier.work(self, tree, stop);
            }
            let left = time.saturating_duration_since(Instant::now());
            std::thread::sleep(POLL_INTERVAL.min(left));
        }
    }

    /// Updates single files until the whole tree has to be scanned.
    fn update_until_rescan(
        &self,
        roots: &Roots,
        tree: Option<&Arc<WatchedTree>>,
        verifier: &mut Verifier,
        not_before: Instant,
        stop: &CancelToken,
    ) {
        let Some(tree) = tree else {
            let time = Instant::now() + UNWATCHED_RESCAN_INTERVAL;
            return self.wait_until(time, None, verifier, stop);
        };
        let rescan = Instant::now() + RESCAN_INTERVAL;
        let mut untidy = false;
        while Instant::now() < rescan && !stop.is_cancelled() {
            self.renew_role();
            let TreeChanges {
                files,
                touched,
                needs_scan,
            } = settled_changes(tree, stop);
            verifier.work(self, tree, stop);
            if !touched.is_empty() {
                let touched = touched.iter().map(|path| names::escape(path));
                llmc_host::lock(&self.unsettled).extend(touched);
            }
            let is_quiet = files.is_empty() && !needs_scan && !stop.is_cancelled();
            if is_quiet && untidy {
                let tidied = self.tidy();
                let embedded = self.embed_new(roots, stop);
                tracing::debug!(?tidied, ?embedded, "tidied");
                untidy = false;
            }
            if is_quiet {
                self.update_unsettled(roots);
            }
            if self.are_trigrams_damaged.swap(false, Ordering::Relaxed) {
                return self.wait_until(not_before, Some(tree), verifier, stop);
            }
            if !files.is_empty() {
                untidy = true;
                let files: Vec<String> = files.iter().map(|path| names::escape(path)).collect();
                llmc_host::lock(&self.unsettled).extend(files.iter().cloned());
                let unknown = match self.with(|catalog, _| {
                    let known =
                        |path: &String| catalog.indexed_file(path).map(|found| found.is_some());
                    files
                        .iter()
                        .map(known)
                        .collect::<Result<Vec<bool>, Error>>()
                }) {
                    Ok(known) => known.contains(&false),
                    Err(_) => true,
                };
                let started = Instant::now();
                let updated = self.update_files(roots, &files);
                tracing::debug!(?updated, took = ?started.elapsed(), "changed files updated");
                if updated.is_err() || unknown {
                    return self.wait_until(not_before, Some(tree), verifier, stop);
                }
            }
            if needs_scan {
                return self.wait_until(not_before, Some(tree), verifier, stop);
            }
        }
    }
}

/// When files are looked at whose events searches rely on: after a scan, and after searches, with pauses.
#[derive(Default)]
struct Verifier {
    is_due: bool,
    running: Option<JoinHandle<Duration>>,
    not_before: Option<Instant>,
}

impl Verifier {
    /// Begins a look if one is due and none runs.
    fn work(&mut self, index: &Index, tree: &Arc<WatchedTree>, stop: &CancelToken) {
        if let Some(thread) = self.running.take_if(|thread| thread.is_finished()) {
            let took = thread.join().unwrap_or_default();
            let pause = (took * VERIFY_PAUSE_FACTOR).max(MIN_VERIFY_PAUSE);
            self.not_before = Some(Instant::now() + pause);
        }
        let rests = self.not_before.is_some_and(|time| Instant::now() < time);
        if self.running.is_some() || (rests && !self.is_due) {
            return;
        }
        // In this order: after a scan a search that relied on events is verified, too.
        if tree.take_unverified() || self.is_due {
            self.is_due = false;
            self.running = index.verify_in_the_background(tree, stop);
        }
    }
}

/// Lists and watches the files. Without that the tree is scanned periodically.
fn watch_tree(roots: &Roots, stop: &CancelToken) -> Option<Arc<WatchedTree>> {
    let dir = roots.open_dir(".").ok()?;
    let tree = WatchedTree::build(roots, &dir, stop).map(Arc::new);
    if tree.is_none() {
        tracing::debug!("the files cannot all be watched; they are scanned instead");
    }
    tree
}

/// Waits for changes and until they settle; empty after the poll interval without any.
fn settled_changes(tree: &WatchedTree, stop: &CancelToken) -> TreeChanges {
    let came = tree.wait(POLL_INTERVAL);
    // A search may have taken them in already.
    let mut changes = tree.take_changes();
    if !came || stop.is_cancelled() {
        return changes;
    }
    let deadline = Instant::now() + MAX_SETTLE_TIME;
    while Instant::now() < deadline && tree.wait(SETTLE_TIME) {
        // A program that writes without a pause has an event for every write.
        std::thread::sleep(EVENT_INTERVAL);
        let more = tree.take_changes();
        changes.files.extend(more.files);
        changes.touched.extend(more.touched);
        changes.needs_scan |= more.needs_scan;
    }
    changes
}
