//! Remembers the sources whose parsing crashed a process, so that they do not crash every later process.
//!
//! Grammars are C code, and a crash in one cannot be caught. Each process therefore notes what it is parsing in a file
//! that it holds a lock on; a file without a lock shows that its process crashed, and what it was parsing. A process may
//! also be killed from outside while it parses something, so a source is skipped only after two crashes in a row. It is
//! then split into windows, until its text or the program's version changes. Nothing is synced: a note has to outlive
//! its process, not the machine.
#![allow(
    clippy::disallowed_methods,
    reason = "these are the index's own files, not the agent's"
)]

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;

/// A source is not parsed after this many crashes.
const CRASHES_BEFORE_SKIP: u32 = 2;
/// Concurrent parses that are noted.
const MAX_NOTES: usize = 64;
const NOTE_BYTES: usize = 256;
/// The list of sources whose parsing crashed a process.
const CRASH_LIST: &str = "deaths";
const MAX_LISTED_SOURCES: usize = 1000;

static STARTED: Once = Once::new();

thread_local! {
    /// The file that this thread parses.
    static PARSED_PATH: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Starts to note what this process parses, in this folder; only the first folder counts.
pub(crate) fn start(dir: &Path) {
    STARTED.call_once(|| match CrashLog::open(dir) {
        Ok(log) => {
            let log = Arc::new(log);
            llmc_syntax::set_parse_gate(move |source| CrashLog::enter(&log, source));
        }
        Err(error) => tracing::debug!(%error, "the crash log cannot be written"),
    });
}

/// Files that are not parsed because that crashed two processes.
pub(crate) fn skipped_files(dir: &Path) -> Vec<String> {
    let crashes = read_crashes(dir).into_values();
    let skipped = crashes.filter(|(times, _)| *times >= CRASHES_BEFORE_SKIP);
    let paths: BTreeSet<String> = skipped.map(|(_, path)| path).collect();
    paths.into_iter().collect()
}

/// Runs `parse` with the path that a note about it has.
pub(crate) fn with_path<T>(path: &str, parse: impl FnOnce() -> T) -> T {
    PARSED_PATH.with_borrow_mut(|name| path.clone_into(name));
    let done = parse();
    PARSED_PATH.with_borrow_mut(String::clear);
    done
}

struct CrashLog {
    dir: PathBuf,
    /// Its lock is held until this process ends.
    notes: File,
    free: Mutex<Vec<usize>>,
    skipped: HashSet<u64>,
    /// Sources with fewer crashes.
    suspects: Mutex<HashSet<u64>>,
}

/// The crashes of each source, and its path.
type CrashCounts = BTreeMap<u64, (u32, String)>;

impl CrashLog {
    fn open(dir: &Path) -> io::Result<Self> {
        if dir.is_symlink() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        fs::create_dir_all(dir)?;
        let _lock = lock(dir)?;
        let mut crashes = read_crashes(dir);
        let mut changed = false;
        for entry in fs::read_dir(dir)?.flatten() {
            if !entry.file_name().to_string_lossy().starts_with("run-") {
                continue;
            }
            // The kernel releases the lock when the process ends.
            let found = own_file(OpenOptions::new().read(true), &entry.path());
            let Some(file) = found.ok().filter(|file| file.try_lock().is_ok()) else {
                continue;
            };
            let mut notes = Vec::new();
            file.take((MAX_NOTES * NOTE_BYTES) as u64)
                .read_to_end(&mut notes)?;
            for (source, path) in parse_notes(&notes) {
                let known = crashes.entry(source).or_insert((0, path));
                known.0 += 1;
                changed = true;
                let (times, path) = known;
                tracing::warn!(path, times, "a process crashed while it parsed this file");
            }
            fs::remove_file(entry.path())?;
        }
        if changed {
            write_crashes(dir, &crashes)?;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_nanos();
        let name = format!("run-{}-{now}", std::process::id());
        let notes = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(dir.join(name))?;
        notes.try_lock()?;
        let (skipped, suspects) = crashes
            .into_iter()
            .partition::<CrashCounts, _>(|(_, known)| known.0 >= CRASHES_BEFORE_SKIP);
        Ok(Self {
            dir: dir.to_owned(),
            notes,
            free: Mutex::new((0..MAX_NOTES).rev().collect()),
            skipped: skipped.into_keys().collect(),
            suspects: Mutex::new(suspects.into_keys().collect()),
        })
    }

    fn enter(log: &Arc<Self>, source: &str) -> Option<Box<dyn Any>> {
        let mut hasher = DefaultHasher::new();
        source.hash(&mut hasher);
        let source = hasher.finish();
        if log.skipped.contains(&source) {
            return None;
        }
        let free = log.free().pop();
        let slot = free.unwrap_or(usize::MAX);
        if free.is_some() {
            let mut note = PARSED_PATH.with_borrow(|path| format!("{source:016x} {path}"));
            note.truncate(note.floor_char_boundary(NOTE_BYTES - 1));
            log.note(slot, note.as_bytes());
        }
        Some(Box::new(NotedParse {
            log: log.clone(),
            source,
            slot,
        }))
    }

    /// A source that cannot be noted is parsed all the same.
    fn note(&self, slot: usize, text: &[u8]) {
        let mut bytes = [0; NOTE_BYTES];
        bytes[..text.len()].copy_from_slice(text);
        let _ = self.notes.write_all_at(&bytes, (slot * NOTE_BYTES) as u64);
    }

    /// A successful parse removes the crashes of a source.
    fn forget_crashes(&self, source: u64) {
        let suspects = self.suspects.lock();
        if !suspects
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&source)
        {
            return;
        }
        let Ok(_lock) = lock(&self.dir) else { return };
        let mut crashes = read_crashes(&self.dir);
        if crashes.remove(&source).is_some() {
            let _ = write_crashes(&self.dir, &crashes);
        }
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        llmc_host::lock(&self.free)
    }
}

/// A running parse; its note is removed on drop.
struct NotedParse {
    log: Arc<CrashLog>,
    source: u64,
    slot: usize,
}

impl Drop for NotedParse {
    fn drop(&mut self) {
        self.log.forget_crashes(self.source);
        if self.slot < MAX_NOTES {
            self.log.note(self.slot, b"");
            self.log.free().push(self.slot);
        }
    }
}

/// Opens a regular file without following links: the folder may have come with a repository.
fn own_file(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let file = options.custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    }
}

fn lock(dir: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    let file = own_file(&mut options, &dir.join("lock"))?;
    for _ in 0..50 {
        if file.try_lock().is_ok() {
            return Ok(file);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// The notes of a process that crashed.
fn parse_notes(bytes: &[u8]) -> Vec<(u64, String)> {
    let notes = bytes.chunks(NOTE_BYTES).filter_map(|note| {
        let end = note
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(note.len());
        let text = std::str::from_utf8(&note[..end]).ok()?;
        let (source, path) = text.split_once(' ')?;
        Some((u64::from_str_radix(source, 16).ok()?, path.to_owned()))
    });
    notes.collect()
}

/// One line for each source: the program's version, crashes, hash, path.
fn write_crashes(dir: &Path, crashes: &CrashCounts) -> io::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let lines = crashes
        .iter()
        .take(MAX_LISTED_SOURCES)
        .map(|(source, (times, path))| {
            let path = path.replace('\n', " ");
            format!("{version} {times} {source:016x} {path}\n")
        });
    let new = dir.join("deaths.new");
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).open(&new)?;
    file.write_all(lines.collect::<String>().as_bytes())?;
    fs::rename(new, dir.join(CRASH_LIST))
}

fn read_crashes(dir: &Path) -> CrashCounts {
    let mut text = String::new();
    if let Ok(file) = own_file(OpenOptions::new().read(true), &dir.join(CRASH_LIST)) {
        let _ = file
            .take((2 * MAX_LISTED_SOURCES * NOTE_BYTES) as u64)
            .read_to_string(&mut text);
    }
    let known = text.lines().filter_map(|line| {
        let mut parts = line.splitn(4, ' ');
        let version = parts.next()?;
        let times = parts.next()?.parse().ok()?;
        let source = u64::from_str_radix(parts.next()?, 16).ok()?;
        let path = parts.next()?.to_owned();
        (version == env!("CARGO_PKG_VERSION")).then_some((source, (times, path)))
    });
    known.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that parses these in order and crashes at the last; returns those it does not parse.
    fn crash_at_last(dir: &Path, sources: &[&'static str]) -> Vec<&'static str> {
        let log = Arc::new(CrashLog::open(dir).unwrap());
        let mut refused = Vec::new();
        let mut last = None;
        for source in sources {
            last = with_path(source, || CrashLog::enter(&log, source));
            if last.is_none() {
                refused.push(*source);
            }
        }
        // The notes of a living process are not crashes.
        CrashLog::open(dir).unwrap();
        // A crash runs no destructor, but the lock is released.
        std::mem::forget(last);
        log.notes.unlock().unwrap();
        refused
    }

    #[test]
    fn a_source_is_skipped_after_two_crashes() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("parsing");
        for _ in 0..2 {
            assert!(crash_at_last(&dir, &["fine", "bad"]).is_empty());
        }
        assert_eq!(crash_at_last(&dir, &["bad", "fine"]), ["bad"]);
        assert_eq!(skipped_files(&dir), ["bad"]);
        // Killed from outside while it parses a source that others parse without a crash.
        for _ in 0..3 {
            assert_eq!(crash_at_last(&dir, &["fine", "bad", "other"]), ["bad"]);
            assert_eq!(crash_at_last(&dir, &["other", "bad", "fine"]), ["bad"]);
        }
        assert_eq!(skipped_files(&dir), ["bad"]);
    }

    #[test]
    fn what_a_repository_brought_is_not_followed() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("parsing");
        fs::create_dir(&dir).unwrap();
        let outside = base.path().join("outside");
        fs::write(&outside, "mine").unwrap();
        for name in ["deaths.new", "deaths"] {
            std::os::unix::fs::symlink(&outside, dir.join(name)).unwrap();
        }
        std::os::unix::fs::symlink("/dev/zero", dir.join("run-1-1")).unwrap();
        fs::write(dir.join("run-2-2"), "no note at all").unwrap();
        fs::write(dir.join("run-3-3"), "00000000000000ff src/a.rs").unwrap();
        CrashLog::open(&dir).unwrap();
        assert_eq!(read_crashes(&dir).len(), 1);
        assert_eq!(fs::read(&outside).unwrap(), b"mine");
        std::os::unix::fs::symlink(&dir, base.path().join("link")).unwrap();
        assert!(CrashLog::open(&base.path().join("link")).is_err());
    }
}
