//! A journal that makes a patch of several files all-or-none, also when the process is killed half way.
//!
//! Before the first file changes, what every file held is written to one file in the state directory and synced. When the
//! patch is complete, or was taken back, the journal is removed. A journal whose process has ended is found at the next
//! start: files that hold what the patch made are given back what they held before. One that was changed since is left
//! alone and reported.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{self, AtFlags, Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::lease::LeaseTable;
use crate::scratch::{private_dir, sync_dir};

/// The state directory's folder for journals.
const JOURNAL_DIR: &str = "journal";
/// How a journal's name ends once it is complete.
const COMPLETE: &str = ".patch";
/// A journal above this size is not read.
const MAX_JOURNAL_BYTES: u64 = 1 << 30;

/// One file of a patch, before it was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JournalEntry {
    /// Absolute, in the form that file names are shown in.
    pub(crate) path: String,
    /// Permission bits; without any the file did not exist.
    pub(crate) mode: Option<u32>,
    /// Bytes that it held; they follow the head, in the order of the entries.
    pub(crate) bytes: u64,
    /// Hash of what the patch makes of it; none where the patch deletes it.
    pub(crate) new_sha256: Option<String>,
}

/// The folder of journals.
#[derive(Debug)]
pub(crate) struct Journals {
    dir: OwnedFd,
    alive: String,
}

/// The journal of a patch that is being applied. Removed by [`Journal::end`] only: dropped, it stays for the next start.
#[derive(Debug)]
pub(crate) struct Journal<'a> {
    journals: &'a Journals,
    name: String,
}

/// What a process that has ended left half done.
#[derive(Debug)]
pub(crate) struct Unfinished {
    name: String,
    /// The entries and what each file held.
    pub(crate) entries: Vec<(JournalEntry, Vec<u8>)>,
}

impl Journals {
    pub(crate) fn open(state_dir: &Path, locks: &LeaseTable) -> Result<Journals> {
        let dir = private_dir(&state_dir.join(JOURNAL_DIR)).map_err(failed)?;
        Ok(Journals {
            dir,
            alive: locks.alive_name().to_owned(),
        })
    }

    /// Writes a journal. When this returns, it outlives the process.
    pub(crate) fn begin(&self, entries: &[(JournalEntry, &[u8])]) -> Result<Journal<'_>> {
        let name = format!("{}.{}", self.alive, ulid::Ulid::new());
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = fs::openat(&self.dir, &name, flags, Mode::RUSR | Mode::WUSR);
        let mut file = File::from(open.map_err(|errno| failed(errno.into()))?);
        let written = write_journal(&mut file, entries).and_then(|()| {
            let complete = format!("{name}{COMPLETE}");
            fs::renameat(&self.dir, &name, &self.dir, &complete)?;
            Ok(complete)
        });
        match written {
            Ok(name) => {
                sync_dir(&self.dir, JOURNAL_DIR)?;
                Ok(Journal {
                    journals: self,
                    name,
                })
            }
            Err(error) => {
                let _ = fs::unlinkat(&self.dir, &name, AtFlags::empty());
                Err(failed(error))
            }
        }
    }

    /// The journals of processes that have ended. One that was never completed is removed: its patch had not begun.
    pub(crate) fn unfinished(&self, locks: &LeaseTable) -> Vec<Unfinished> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let list = fs::openat(&self.dir, ".", flags, Mode::empty()).and_then(fs::Dir::new);
        let mut found = Vec::new();
        for entry in list.into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            let owner = name.split_once('.').map(|(owner, _)| owner);
            if !owner.is_some_and(|owner| owner.starts_with("alive-") && locks.is_dead(owner)) {
                continue;
            }
            match self.read(name) {
                Some(entries) if name.ends_with(COMPLETE) => found.push(Unfinished {
                    name: name.to_owned(),
                    entries,
                }),
                _ => self.remove(name),
            }
        }
        // Oldest first: names end in the time at which they were made.
        found.sort_by(|a, b| a.name.rsplit('.').nth(1).cmp(&b.name.rsplit('.').nth(1)));
        found
    }

    /// Removes a journal whose files are as they should be.
    pub(crate) fn settle(&self, done: &Unfinished) {
        self.remove(&done.name);
    }

    fn read(&self, name: &str) -> Option<Vec<(JournalEntry, Vec<u8>)>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(fs::openat(&self.dir, name, flags, Mode::empty()).ok()?);
        let mut bytes = Vec::new();
        file.take(MAX_JOURNAL_BYTES).read_to_end(&mut bytes).ok()?;
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let entries: Vec<JournalEntry> = serde_json::from_slice(&bytes[..end]).ok()?;
        let mut rest = &bytes[end + 1..];
        let mut found = Vec::with_capacity(entries.len());
        for entry in entries {
            let (content, behind) = rest.split_at_checked(usize::try_from(entry.bytes).ok()?)?;
            found.push((entry, content.to_vec()));
            rest = behind;
        }
        Some(found)
    }

    fn remove(&self, name: &str) {
        let _ = fs::unlinkat(&self.dir, name, AtFlags::empty());
        let _ = sync_dir(&self.dir, JOURNAL_DIR);
    }
}

impl Journal<'_> {
    /// Removes the journal: the patch is complete, or taken back.
    pub(crate) fn end(self) {
        self.journals.remove(&self.name);
    }
}

fn write_journal(file: &mut File, entries: &[(JournalEntry, &[u8])]) -> std::io::Result<()> {
    let head: Vec<&JournalEntry> = entries.iter().map(|(entry, _)| entry).collect();
    file.write_all(&serde_json::to_vec(&head).map_err(std::io::Error::from)?)?;
    file.write_all(b"\n")?;
    for (_, bytes) in entries {
        file.write_all(bytes)?;
    }
    file.sync_all()
}

fn failed(source: std::io::Error) -> Error {
    Error::WriteFailed {
        path: "patch".to_owned(),
        source,
    }
}
