//! Looks at the workspace by the names that are known to be in it.
//!
//! This is the cost of a command where nothing is watched. A directory's stamp changes when a name comes or goes, so as long as
//! it is as it was, the names in it need not be read: each known file takes one status, no ignore rule is matched and no path
//! is built. Directories that changed are read. When ignore files changed, or a repository came or went, the workspace is
//! walked instead.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use llmc_host::walk::{IgnoreLookup, WalkGuard};
use llmc_host::{STATE_DIR, file_type, is_remote_file_system};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, fstatfs, openat, openat2,
    statat,
};

use crate::compare::{Compared, Comparer, is_rule};
use crate::entry::PathState;
use crate::error::{Error, Result};
use crate::snapshot::{Known, KnownDir, Snapshot, Stamp, is_within, join, now_ns};

/// Known files for which one thread is enough.
const FILES_PER_THREAD: u64 = 2_000;
const MAX_THREADS: usize = 8;
/// Directories that a thread takes at a time.
const DIRS_AT_ONCE: usize = 32;

/// How a directory was when its names were read.
#[derive(Debug, Clone)]
pub(crate) struct Listing {
    stamp: Stamp,
    rules: RuleStamps,
}

impl Listing {
    /// To be taken before the names are read, at `now_ns` or later.
    pub(crate) fn of(dir: BorrowedFd<'_>, stat: &Stat, now_ns: i64) -> Listing {
        Listing {
            stamp: Stamp::new(stat, now_ns),
            rules: RuleStamps::read(dir, now_ns),
        }
    }
}

/// A listing that counts once what was found with it is recorded.
#[derive(Debug)]
pub(crate) struct NewListing {
    pub(crate) dir: Vec<u8>,
    pub(crate) listing: Listing,
    /// Paths in the directory that must be known by then.
    pub(crate) names: Vec<Vec<u8>>,
}

/// What decides in a directory which names are ignored. Boxed, since few directories have such files and all have a listing.
#[derive(Debug, Clone)]
struct RuleStamps {
    dot_ignore: Option<Box<Stamp>>,
    git_ignore: Option<Box<Stamp>>,
    is_repository: bool,
    exclude: Option<Box<Stamp>>,
}

const EXCLUDE_FILE: &str = ".git/info/exclude";

impl RuleStamps {
    fn read(dir: BorrowedFd<'_>, now_ns: i64) -> RuleStamps {
        let stamp = |name: &str| {
            let stat = status(dir, name.as_bytes())?;
            Some(Box::new(Stamp::new(&stat, now_ns)))
        };
        let is_repository = status(dir, b".git").is_some();
        RuleStamps {
            dot_ignore: stamp(".ignore"),
            git_ignore: stamp(".gitignore"),
            is_repository,
            exclude: is_repository.then(|| stamp(EXCLUDE_FILE)).flatten(),
        }
    }

    /// Whether the same rules certainly hold still, where the directory has the same names.
    fn hold(&self, dir: BorrowedFd<'_>) -> bool {
        let holds = |known: &Option<Box<Stamp>>, name: &str| match known {
            None => true,
            Some(known) => is_proved(known, dir, name),
        };
        let has_exclude = || match &self.exclude {
            None => status(dir, EXCLUDE_FILE.as_bytes()).is_none(),
            Some(known) => is_proved(known, dir, EXCLUDE_FILE),
        };
        holds(&self.dot_ignore, ".ignore")
            && holds(&self.git_ignore, ".gitignore")
            && (!self.is_repository || has_exclude())
    }

    fn proves(&self, now: &RuleStamps) -> bool {
        let proves = |known: &Option<Box<Stamp>>, now: &Option<Box<Stamp>>| match (known, now) {
            (None, None) => true,
            (Some(known), Some(now)) => known.proves(now),
            _ => false,
        };
        self.is_repository == now.is_repository
            && proves(&self.dot_ignore, &now.dot_ignore)
            && proves(&self.git_ignore, &now.git_ignore)
            && proves(&self.exclude, &now.exclude)
    }
}

fn is_proved(known: &Stamp, dir: BorrowedFd<'_>, name: &str) -> bool {
    let now = status(dir, name.as_bytes());
    now.is_some_and(|now| known.proves(&Stamp::new(&now, i64::MAX)))
}

fn status(dir: BorrowedFd<'_>, name: &[u8]) -> Option<Stat> {
    statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()
}

/// What differs from the snapshot, before it is examined.
#[derive(Debug, Default)]
struct NameCheck {
    /// Known paths whose status is not as recorded.
    suspects: Vec<Vec<u8>>,
    /// Directories that came or went.
    trees: Vec<Vec<u8>>,
    /// Files and links that came.
    new: Vec<Vec<u8>>,
    listings: Vec<NewListing>,
}

impl Comparer<'_> {
    /// Compares the workspace by its known names; `None` when it has to be walked.
    pub(crate) fn by_names(&self) -> Result<Option<Compared>> {
        let top = self.roots.open_dir(".").map_err(Error::from)?;
        if !fstatfs(&top.fd).is_ok_and(|file_system| !is_remote_file_system(&file_system)) {
            return Ok(None);
        }
        let guard = top.guard(self.roots);
        let Some(found) = check_names(&self.snapshot.read(), top.fd.as_fd(), &guard) else {
            return Ok(None);
        };
        let NameCheck {
            mut suspects,
            mut trees,
            new,
            mut listings,
        } = found;
        let known_files = self.snapshot.read().files();
        if known_files + new.len() as u64 > self.settings.max_files as u64 {
            return Ok(None);
        }
        let mut ignored: HashSet<Vec<u8>> = HashSet::new();
        if !new.is_empty() || !trees.is_empty() {
            let mut ignores = IgnoreLookup::new(top.fd);
            trees.sort();
            let mut last: Option<Vec<u8>> = None;
            for dir in trees {
                if last.as_ref().is_some_and(|last| is_within(&dir, last)) {
                    continue;
                }
                let within = self.suspects_within(&dir, None, &mut ignores)?;
                if within.suspects.is_empty() {
                    ignored.insert(dir.clone());
                }
                suspects.extend(within.suspects);
                listings.extend(within.listings);
                last = Some(dir);
            }
            for path in new {
                match ignores.is_ignored(&path, false) {
                    true => ignored.insert(path),
                    false => {
                        suspects.push(path);
                        continue;
                    }
                };
            }
        }
        for listing in &mut listings {
            listing.names.retain(|path| !ignored.contains(path));
        }
        suspects.sort();
        suspects.dedup();
        Ok(Some(Compared {
            findings: self.examine_all(suspects),
            // What is ignored is not compared.
            ignored: 0,
            listings,
        }))
    }
}

/// Checks every known directory of the workspace, on several threads where that pays.
fn check_names(snapshot: &Snapshot, top: BorrowedFd<'_>, guard: &WalkGuard) -> Option<NameCheck> {
    snapshot.dir(b"")?.listing.as_ref()?;
    let dirs: Vec<(&[u8], &KnownDir)> = snapshot.dirs_inside().collect();
    let check = DirCheck {
        snapshot,
        top,
        guard,
        now_ns: now_ns(),
        dirs: &dirs,
        next: AtomicUsize::new(0),
        needs_walk: AtomicBool::new(false),
    };
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let enough = usize::try_from(snapshot.files() / FILES_PER_THREAD).unwrap_or(usize::MAX);
    let threads = enough.clamp(1, cores.min(MAX_THREADS));
    let all = std::thread::scope(|scope| {
        let spawn = |_| {
            let thread = std::thread::Builder::new().name("history-names".to_owned());
            thread.spawn_scoped(scope, || check.run()).ok()
        };
        let others: Vec<_> = (1..threads).filter_map(spawn).collect();
        let mut all = check.run();
        for other in others {
            match other.join() {
                Ok(found) => all.append(found),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    (!check.needs_walk.load(Ordering::Relaxed)).then_some(all)
}

impl NameCheck {
    fn append(&mut self, mut other: NameCheck) {
        self.suspects.append(&mut other.suspects);
        self.trees.append(&mut other.trees);
        self.new.append(&mut other.new);
        self.listings.append(&mut other.listings);
    }
}

struct DirCheck<'a> {
    snapshot: &'a Snapshot,
    top: BorrowedFd<'a>,
    /// What a walk would leave out.
    guard: &'a WalkGuard,
    now_ns: i64,
    dirs: &'a [(&'a [u8], &'a KnownDir)],
    next: AtomicUsize,
    /// Whether other names may be ignored than before.
    needs_walk: AtomicBool,
}

impl DirCheck<'_> {
    fn run(&self) -> NameCheck {
        let mut found = NameCheck::default();
        loop {
            let first = self.next.fetch_add(DIRS_AT_ONCE, Ordering::Relaxed);
            let Some(rest) = self.dirs.get(first..).filter(|rest| !rest.is_empty()) else {
                return found;
            };
            for (dir, known) in rest.iter().take(DIRS_AT_ONCE) {
                if self.needs_walk.load(Ordering::Relaxed) {
                    return found;
                }
                self.check(dir, known, &mut found);
            }
        }
    }

    fn check(&self, dir: &[u8], known: &KnownDir, found: &mut NameCheck) {
        let opened = open_dir(self.top, dir).and_then(|fd| Ok((fstat(&fd)?, fd)));
        let Ok((stat, fd)) = opened else {
            found.trees.push(dir.to_vec());
            return;
        };
        let is_as_known = match self.snapshot.state(dir) {
            PathState::Dir { mode } => mode == stat.st_mode & 0o1777,
            _ => dir.is_empty(),
        };
        if !is_as_known {
            found.suspects.push(dir.to_vec());
        }
        let now = Stamp::new(&stat, self.now_ns);
        let has_rules = match &known.listing {
            Some(listing) if listing.stamp.proves(&now) => listing.rules.hold(fd.as_fd()),
            _ => self.read_names(dir, known, &fd, &stat, found),
        };
        if !has_rules {
            self.needs_walk.store(true, Ordering::Relaxed);
            return;
        }
        for (name, child) in known.children.iter() {
            // A directory is looked at by itself.
            if child.is_dir() || is_unchanged(child, status(fd.as_fd(), name).as_ref()) {
                continue;
            }
            if is_rule(name) {
                self.needs_walk.store(true, Ordering::Relaxed);
            }
            found.suspects.push(join(dir, name));
        }
    }

    /// Reads a directory's names; whether the rules are still the same.
    fn read_names(
        &self,
        dir: &[u8],
        known: &KnownDir,
        fd: &OwnedFd,
        stat: &Stat,
        found: &mut NameCheck,
    ) -> bool {
        let listing = Listing::of(fd.as_fd(), stat, self.now_ns);
        let old = known.listing.as_ref();
        if old.is_some_and(|old| !old.rules.proves(&listing.rules)) {
            return false;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(fd, ".", flags, Mode::empty());
        // What is known in it is looked at all the same.
        let Ok(entries) = opened.and_then(Dir::new) else {
            return true;
        };
        let mut names = Vec::new();
        for entry in entries {
            let Ok(entry) = entry else { return true };
            let name = entry.file_name().to_bytes();
            let is_passed_over = matches!(name, b"." | b".." | b".git")
                || name.eq_ignore_ascii_case(STATE_DIR.as_bytes());
            let child = known.children.get(name);
            let kind = entry.file_type();
            if is_passed_over
                || child.is_some_and(|child| child.is_dir() || kind != FileType::Directory)
            {
                continue;
            }
            let path = join(dir, name);
            let is_refused = match kind {
                FileType::Directory => self.guard.refuses_dir(&path),
                _ => self.guard.refuses_file(name),
            };
            if is_refused {
                continue;
            }
            match kind {
                FileType::RegularFile | FileType::Symlink if is_rule(name) => return false,
                FileType::RegularFile | FileType::Symlink => found.new.push(path.clone()),
                FileType::Directory | FileType::Unknown => found.trees.push(path.clone()),
                _ => continue,
            }
            names.push(path);
        }
        found.listings.push(NewListing {
            dir: dir.to_vec(),
            listing,
            names,
        });
        true
    }
}

fn open_dir(top: BorrowedFd<'_>, dir: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let dir = if dir.is_empty() { b"." } else { dir };
    openat2(top, dir, flags, Mode::empty(), resolve)
}

/// Whether a known file or link is certainly as it was.
fn is_unchanged(known: &Known, now: Option<&Stat>) -> bool {
    let Some(now) = now else { return false };
    let kind = match known.state {
        PathState::File { .. } | PathState::FileNotKept { .. } => FileType::RegularFile,
        PathState::Link { .. } => FileType::Symlink,
        PathState::Dir { .. } | PathState::Absent => return false,
    };
    // Only a stamp that is recorded needs the time.
    file_type(now) == kind && known.stamp.proves(&Stamp::new(now, i64::MAX))
}
