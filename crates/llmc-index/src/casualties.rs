//! Remembers the sources that a parser died on, so that it does not kill every process that comes after.
//!
//! Grammars are C code, and a crash in one cannot be caught. Each process therefore notes what it is parsing in a file
//! that it holds a lock on; whoever finds such a file without a lock knows that its process has died, and in the middle
//! of what. A process may also be killed from outside while it happens to parse something, so a source is given up only
//! when two in a row have died over it. It is then cut into windows, until its text changes or another version of the program
//! comes. Nothing is synced: a note has to outlive its process, not the machine.
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

/// Deaths after which a source is given up.
const ENOUGH: u32 = 2;
/// Parses at one time that are noted, and the bytes of a note.
const SLOTS: usize = 64;
const NOTE: usize = 256;
/// The list of sources that somebody died over.
const DEATHS: &str = "deaths";
/// Sources that are remembered.
const MOST: usize = 1000;

static WATCHED: Once = Once::new();

thread_local! {
    /// The file that this thread parses, for telling people.
    static PATH: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Notes from now on what this process parses, in this folder; only the first folder counts.
pub(crate) fn watch(dir: &Path) {
    WATCHED.call_once(|| match Ledger::open(dir) {
        Ok(ledger) => {
            let ledger = Arc::new(ledger);
            llmc_syntax::set_parse_gate(move |source| Ledger::enter(&ledger, source));
        }
        Err(error) => tracing::debug!(%error, "what is parsed is not noted"),
    });
}

/// Files that are not parsed because two processes died over them, by what the folder says.
pub(crate) fn given_up(dir: &Path) -> Vec<String> {
    let given_up = read_deaths(dir).into_values();
    let given_up = given_up.filter(|(times, _)| *times >= ENOUGH);
    let paths: BTreeSet<String> = given_up.map(|(_, path)| path).collect();
    paths.into_iter().collect()
}

/// Parses under a name.
pub(crate) fn named<T>(path: &str, parse: impl FnOnce() -> T) -> T {
    PATH.with_borrow_mut(|name| path.clone_into(name));
    let done = parse();
    PATH.with_borrow_mut(String::clear);
    done
}

struct Ledger {
    dir: PathBuf,
    /// Its lock is held for as long as this process lives.
    notes: File,
    free: Mutex<Vec<usize>>,
    given_up: HashSet<u64>,
    /// Those that somebody died over, but not often enough.
    suspects: Mutex<HashSet<u64>>,
}

/// How often processes died over a source, and what it was called.
type Deaths = BTreeMap<u64, (u32, String)>;

impl Ledger {
    fn open(dir: &Path) -> io::Result<Self> {
        if dir.is_symlink() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        fs::create_dir_all(dir)?;
        let _alone = lock(dir)?;
        let mut deaths = read_deaths(dir);
        let mut news = false;
        for entry in fs::read_dir(dir)?.flatten() {
            if !entry.file_name().to_string_lossy().starts_with("run-") {
                continue;
            }
            // The lock goes with its process, however that ends.
            let found = own_file(OpenOptions::new().read(true), &entry.path());
            let Some(file) = found.ok().filter(|file| file.try_lock().is_ok()) else {
                continue;
            };
            let mut notes = Vec::new();
            file.take((SLOTS * NOTE) as u64).read_to_end(&mut notes)?;
            for (source, path) in notes_of(&notes) {
                let known = deaths.entry(source).or_insert((0, path));
                known.0 += 1;
                news = true;
                let (times, path) = known;
                tracing::warn!(path, times, "a process died while it parsed this");
            }
            fs::remove_file(entry.path())?;
        }
        if news {
            write_deaths(dir, &deaths)?;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_nanos();
        let name = format!("run-{}-{now}", std::process::id());
        let notes = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(dir.join(name))?;
        notes.try_lock()?;
        let (given_up, suspects) = deaths
            .into_iter()
            .partition::<Deaths, _>(|(_, known)| known.0 >= ENOUGH);
        Ok(Self {
            dir: dir.to_owned(),
            notes,
            free: Mutex::new((0..SLOTS).rev().collect()),
            given_up: given_up.into_keys().collect(),
            suspects: Mutex::new(suspects.into_keys().collect()),
        })
    }

    fn enter(ledger: &Arc<Self>, source: &str) -> Option<Box<dyn Any>> {
        let mut hasher = DefaultHasher::new();
        source.hash(&mut hasher);
        let source = hasher.finish();
        if ledger.given_up.contains(&source) {
            return None;
        }
        let free = ledger.free().pop();
        let slot = free.unwrap_or(usize::MAX);
        if free.is_some() {
            let mut note = PATH.with_borrow(|path| format!("{source:016x} {path}"));
            note.truncate(note.floor_char_boundary(NOTE - 1));
            ledger.note(slot, note.as_bytes());
        }
        Some(Box::new(Parse {
            ledger: ledger.clone(),
            source,
            slot,
        }))
    }

    /// What cannot be noted is parsed all the same.
    fn note(&self, slot: usize, text: &[u8]) {
        let mut bytes = [0; NOTE];
        bytes[..text.len()].copy_from_slice(text);
        let _ = self.notes.write_all_at(&bytes, (slot * NOTE) as u64);
    }

    /// Whoever survives a source takes back what was held against it.
    fn survived(&self, source: u64) {
        let suspects = self.suspects.lock();
        if !suspects
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&source)
        {
            return;
        }
        let Ok(_alone) = lock(&self.dir) else { return };
        let mut deaths = read_deaths(&self.dir);
        if deaths.remove(&source).is_some() {
            let _ = write_deaths(&self.dir, &deaths);
        }
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A parse that is noted until it is over.
struct Parse {
    ledger: Arc<Ledger>,
    source: u64,
    slot: usize,
}

impl Drop for Parse {
    fn drop(&mut self) {
        self.ledger.survived(self.source);
        if self.slot < SLOTS {
            self.ledger.note(self.slot, b"");
            self.ledger.free().push(self.slot);
        }
    }
}

/// One of these files, and not what somebody may have put in its place: the folder may have come with a repository.
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

/// What a process was parsing when it died.
fn notes_of(bytes: &[u8]) -> Vec<(u64, String)> {
    let notes = bytes.chunks(NOTE).filter_map(|note| {
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

/// One line a source: the program's version, how often, which source, its path.
fn write_deaths(dir: &Path, deaths: &Deaths) -> io::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let lines = deaths.iter().take(MOST).map(|(source, (times, path))| {
        let path = path.replace('\n', " ");
        format!("{version} {times} {source:016x} {path}\n")
    });
    let new = dir.join("deaths.new");
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).open(&new)?;
    file.write_all(lines.collect::<String>().as_bytes())?;
    fs::rename(new, dir.join(DEATHS))
}

fn read_deaths(dir: &Path) -> Deaths {
    let mut text = String::new();
    if let Ok(file) = own_file(OpenOptions::new().read(true), &dir.join(DEATHS)) {
        let _ = file
            .take((2 * MOST * NOTE) as u64)
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

    /// A process that parses these one after the other and dies over the last; which of them it would not parse.
    fn dies_over(dir: &Path, sources: &[&'static str]) -> Vec<&'static str> {
        let ledger = Arc::new(Ledger::open(dir).unwrap());
        let mut refused = Vec::new();
        let mut last = None;
        for source in sources {
            last = named(source, || Ledger::enter(&ledger, source));
            if last.is_none() {
                refused.push(*source);
            }
        }
        // While one lives, another does not take its notes for those of a dead one.
        Ledger::open(dir).unwrap();
        // Who dies takes no leave, but its lock goes.
        std::mem::forget(last);
        ledger.notes.unlock().unwrap();
        refused
    }

    #[test]
    fn a_source_is_given_up_when_two_have_died_over_it() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("parsing");
        for _ in 0..2 {
            assert!(dies_over(&dir, &["fine", "bad"]).is_empty());
        }
        assert_eq!(dies_over(&dir, &["bad", "fine"]), ["bad"]);
        assert_eq!(given_up(&dir), ["bad"]);
        // Killed from outside over one that others survive, time and again.
        for _ in 0..3 {
            assert_eq!(dies_over(&dir, &["fine", "bad", "other"]), ["bad"]);
            assert_eq!(dies_over(&dir, &["other", "bad", "fine"]), ["bad"]);
        }
        assert_eq!(given_up(&dir), ["bad"]);
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
        Ledger::open(&dir).unwrap();
        assert_eq!(read_deaths(&dir).len(), 1);
        assert_eq!(fs::read(&outside).unwrap(), b"mine");
        std::os::unix::fs::symlink(&dir, base.path().join("link")).unwrap();
        assert!(Ledger::open(&base.path().join("link")).is_err());
    }
}
