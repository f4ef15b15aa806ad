//! Keeps the index current while a server runs.
//!
//! Only folders that hold indexed files are watched, so a build that fills `target/` wakes nobody. A change of a known
//! file is taken in by itself; anything else (a new name, a vanished one, an ignore file) means another look at the
//! whole tree, at a pace that leaves the machine to others. Where the kernel gives no more watches, and for whatever
//! events miss, the tree is looked at every now and then.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use llmc_host::{CancelToken, Roots, names};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use rustix::process::setpriority_process;
use rustix::thread::gettid;

use crate::error::Error;
use crate::index::Index;
use crate::update::Updated;

/// How long after a change more changes are waited for, and for how long at most.
const CALM: Duration = Duration::from_millis(100);
const IMPATIENCE: Duration = Duration::from_secs(1);
/// How often somebody who waits looks whether to stop.
const BREATH: Duration = Duration::from_secs(1);
/// How often the tree is looked at without watches, and with them.
const BLIND_RESCAN: Duration = Duration::from_secs(15);
const RESCAN: Duration = Duration::from_secs(600);
/// The priority of a look at the whole tree, as for `nice`.
const PATIENT: i32 = 10;
/// A look at the whole tree is followed by a rest of this many times as long.
const REST: u32 = 10;
const SHORTEST_REST: Duration = Duration::from_millis(200);

impl Index {
    /// Brings the index up to date and keeps it so until told to stop.
    pub fn keep_current(&self, roots: &Roots, stop: &CancelToken) {
        let mut watch: Option<Watch> = None;
        let mut checked = false;
        let mut said = None;
        while !stop.is_cancelled() {
            let started = Instant::now();
            match self.update_in_the_background(roots, !checked, stop) {
                Ok(done) => {
                    said = None;
                    tracing::debug!(?done, "index updated");
                }
                // Another process keeps it; this one looks again later, should that one end.
                Err(Error::Busy) => {}
                Err(Error::Host(_)) if stop.is_cancelled() => return,
                Err(error @ (Error::Full(_) | Error::Unwritable(_))) => {
                    let why = error.to_string();
                    if said.as_ref() != Some(&why) {
                        tracing::warn!(why, "the index waits until it can be written");
                        said = Some(why);
                    }
                    self.until_it_may_fit(&error, started.elapsed() * REST, stop);
                    continue;
                }
                Err(error) => tracing::warn!(error = %error, "index not updated"),
            }
            checked = true;
            let rest = (started.elapsed() * REST).max(SHORTEST_REST);
            let not_before = Instant::now() + rest;
            let folders = self.with(|catalog, _| catalog.folders());
            if let Ok(folders) = folders {
                watch = Watch::on(watch, roots, &folders);
            }
            if let Err(error) = self.embed_new(roots, stop) {
                tracing::warn!(error = %error, "vectors are behind");
            }
            let more_watched = watch.as_ref().is_some_and(|watch| watch.grown);
            // What happened in a folder before it was watched is seen by looking once more.
            if more_watched {
                continue;
            }
            self.until_more_is_needed(roots, watch.as_mut(), not_before, stop);
        }
    }

    /// A look at the whole tree that lets others go first: it may take minutes, and somebody may be waiting for an answer.
    fn update_in_the_background(
        &self,
        roots: &Roots,
        check: bool,
        stop: &CancelToken,
    ) -> crate::Result<Updated> {
        std::thread::scope(|scope| {
            let updated = std::thread::Builder::new()
                .name("index-update".to_owned())
                .spawn_scoped(scope, || {
                    // The threads that this one starts are as patient.
                    let _ = setpriority_process(Some(gettid()), PATIENT);
                    if check {
                        self.look_for_damage();
                    }
                    self.update(roots, stop)
                })?;
            updated
                .join()
                .unwrap_or_else(|_| Err(Error::Unwritable("the update failed".into())))
        })
    }

    /// Waits until another attempt to write the index may succeed. On a full disk that is when there is clearly more room
    /// than there was: an attempt that fails again fills the disk for everybody.
    fn until_it_may_fit(&self, error: &Error, rest: Duration, stop: &CancelToken) {
        let had = self.room();
        let enough = had.saturating_add((had / 4).max(1));
        let again = match error {
            Error::Full(_) => RESCAN,
            _ => BLIND_RESCAN,
        };
        let started = Instant::now();
        while started.elapsed() < again.max(rest) && !stop.is_cancelled() {
            std::thread::sleep(BREATH);
            let fits = matches!(error, Error::Full(_)) && self.room() >= enough;
            if fits && started.elapsed() >= rest {
                return;
            }
        }
    }

    /// Takes in single files until the whole tree has to be looked at.
    fn until_more_is_needed(
        &self,
        roots: &Roots,
        watch: Option<&mut Watch>,
        not_before: Instant,
        stop: &CancelToken,
    ) {
        let wait_until = |time: Instant| {
            while Instant::now() < time && !stop.is_cancelled() {
                std::thread::sleep(BREATH.min(time.saturating_duration_since(Instant::now())));
            }
        };
        let Some(watch) = watch else {
            return wait_until(Instant::now() + BLIND_RESCAN);
        };
        let rescan = Instant::now() + RESCAN;
        let mut untidy = false;
        while Instant::now() < rescan && !stop.is_cancelled() {
            let Changes { files, more } = watch.changes(stop);
            if files.is_empty() && !more && untidy && !stop.is_cancelled() {
                let tidied = self.tidy();
                let embedded = self.embed_new(roots, stop);
                tracing::debug!(?tidied, ?embedded, "tidied");
                untidy = false;
            }
            if !files.is_empty() {
                untidy = true;
                let files: Vec<String> = files.into_iter().collect();
                let unknown = match self.with(|catalog, _| {
                    let known = |path: &String| catalog.known_of(path).map(|found| found.is_some());
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
                tracing::debug!(?updated, took = ?started.elapsed(), "changed files taken in");
                if updated.is_err() || unknown {
                    return wait_until(not_before);
                }
            }
            if more {
                return wait_until(not_before);
            }
        }
    }
}

/// What happened: files that were written, and whether something happened that a look at single files cannot catch.
#[derive(Debug, Default)]
struct Changes {
    files: BTreeSet<String>,
    more: bool,
}

struct Watch {
    fd: OwnedFd,
    folders: HashMap<i32, String>,
    watched: BTreeSet<String>,
    /// Whether folders were added the last time.
    grown: bool,
}

impl Watch {
    /// Watches these folders too; `None` if not all of them can be watched.
    fn on(old: Option<Watch>, roots: &Roots, folders: &BTreeSet<String>) -> Option<Watch> {
        let mut watch = match old {
            Some(watch) => watch,
            None => Watch {
                fd: inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?,
                folders: HashMap::new(),
                watched: BTreeSet::new(),
                grown: false,
            },
        };
        watch.grown = false;
        let flags = WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::ONLYDIR
            | WatchFlags::DONT_FOLLOW;
        for folder in folders.difference(&watch.watched.clone()) {
            let name = names::unescape(folder);
            let path = roots.workspace().join(OsStr::from_bytes(&name));
            match inotify::add_watch(&watch.fd, &path, flags) {
                Ok(number) => {
                    watch.folders.insert(number, folder.clone());
                    watch.watched.insert(folder.clone());
                    watch.grown = true;
                }
                // Gone already; the event of its end is on its way.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => {}
                Err(errno) => {
                    tracing::warn!(%errno, "folders cannot all be watched; the tree is looked at instead");
                    return None;
                }
            }
        }
        Some(watch)
    }

    /// Waits for changes, then for calm. Nothing, after a while without any.
    fn changes(&mut self, stop: &CancelToken) -> Changes {
        let mut changes = Changes::default();
        if !self.wait(BREATH) || stop.is_cancelled() {
            return changes;
        }
        let until = Instant::now() + IMPATIENCE;
        loop {
            self.read(&mut changes);
            if Instant::now() > until || !self.wait(CALM) {
                return changes;
            }
        }
    }

    fn wait(&self, time: Duration) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let time = Timespec::try_from(time).unwrap_or(Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        });
        matches!(poll(&mut fds, Some(&time)), Ok(ready) if ready > 0)
    }

    fn read(&mut self, changes: &mut Changes) {
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut reader = inotify::Reader::new(&self.fd, &mut buffer);
        while let Ok(event) = reader.next() {
            let flags = event.events();
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                changes.more = true;
                continue;
            }
            if flags.contains(ReadFlags::IGNORED) {
                if let Some(folder) = self.folders.remove(&event.wd()) {
                    self.watched.remove(&folder);
                }
                changes.more = true;
                continue;
            }
            let Some(folder) = self.folders.get(&event.wd()) else {
                continue;
            };
            let name = event
                .file_name()
                .map_or(&[] as &[u8], |name| name.to_bytes());
            if name.starts_with(b".") {
                changes.more |= matches!(name, b".gitignore" | b".ignore");
                continue;
            }
            if flags.contains(ReadFlags::ISDIR) {
                changes.more = true;
                continue;
            }
            let mut path = names::unescape(folder).into_owned();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            changes.files.insert(names::escape(&path));
        }
    }
}
