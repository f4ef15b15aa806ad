//! Writing whole files: atomically, durably, under a lease, and only if the content is what the caller expects.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use llmc_store::Database;
use rustix::fs::{self, FileType, Mode, OFlags, Stat};
use sha2::{Digest, Sha256};

use crate::cancel::CancelToken;
use crate::change_hook::ChangeHook;
use crate::edit;
use crate::error::{Error, Result};
use crate::journal::Journals;
use crate::lease::{LeaseTable, Leases};
use crate::read::{self, Encoding, TAG_DIGITS};
use crate::roots::{FinalLink, RootedPath, Roots, file_type, refuse_kernel_file_system};
use crate::rules::Access;
use crate::scratch::{IfChanged, PlaceOutcome, Scratch, write_failed};

/// How often a write starts over because another program changed the file under it.
const MAX_WRITE_RETRIES: usize = 5;
/// The largest file that is edited in memory.
pub(crate) const MAX_EDIT_BYTES: usize = 64 << 20;

/// The state a workspace's writers share: leases and a place for unfinished files.
#[derive(Debug)]
pub struct WriteState {
    pub(crate) locks: LeaseTable,
    pub(crate) scratch: Scratch,
    pub(crate) journals: Journals,
}

impl WriteState {
    /// Opens it in the state directory and removes what a crashed process left.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn open(state_dir: &Path, lease: Duration) -> Result<WriteState> {
        Self::open_shared(state_dir, lease, None)
    }

    /// The same with leases that hold on every machine that uses this database.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn open_shared(
        state_dir: &Path,
        lease: Duration,
        database: Option<Database>,
    ) -> Result<WriteState> {
        let locks = LeaseTable::open(state_dir, lease)?.shared_in(database);
        let scratch = Scratch::open(state_dir, &locks)?;
        let journals = Journals::open(state_dir, &locks)?;
        Ok(WriteState {
            locks,
            scratch,
            journals,
        })
    }
}

/// Roots and the state that writing to them needs.
#[derive(Debug, Clone)]
pub struct Workspace {
    pub roots: Arc<Roots>,
    state: Option<Arc<WriteState>>,
    pub(crate) change_hook: Option<ChangeHook>,
}

/// Whether content replaces the file or is appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMode {
    Rewrite,
    /// To text only.
    Append,
    /// To whatever the file holds.
    AppendBytes,
}

/// Attributes of a file or directory to set; what is absent stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NewAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Time of the last access and of the last change, in nanoseconds since 1970.
    pub times_ns: Option<(i64, i64)>,
}

#[derive(Debug)]
pub struct WriteReport {
    pub path: RootedPath,
    /// Bytes this call wrote.
    pub bytes_written: u64,
    /// The whole file's hash afterwards, 64 hex digits.
    pub sha256: String,
}

/// A hash or a prefix of one, checked for form.
#[derive(Debug, Clone)]
pub struct ExpectedHash(String);

impl ExpectedHash {
    /// Accepts 8 to 64 hex digits.
    ///
    /// # Errors
    /// [`Error::BadRequest`] for anything else.
    pub fn parse(text: &str) -> Result<ExpectedHash> {
        let digits = text.len();
        if !(TAG_DIGITS..=64).contains(&digits) || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(Error::BadRequest(format!(
                "expected_sha256 must be {TAG_DIGITS} to 64 hex digits, as reads print them"
            )));
        }
        Ok(ExpectedHash(text.to_ascii_lowercase()))
    }

    fn check(&self, requested: &str, sha256: &str) -> Result<()> {
        if sha256.starts_with(&self.0) {
            return Ok(());
        }
        let found = sha256[..TAG_DIGITS].to_owned();
        Err(Error::ShaMismatch {
            path: requested.to_owned(),
            expected: self.0.clone(),
            found,
        })
    }
}

impl Workspace {
    /// Without `state`, files can only be read.
    pub fn new(roots: Arc<Roots>, state: Option<Arc<WriteState>>) -> Workspace {
        Workspace {
            roots,
            state,
            change_hook: None,
        }
    }

    pub(crate) fn state(&self, requested: &str) -> Result<&WriteState> {
        self.state.as_deref().ok_or_else(|| Error::WriteFailed {
            path: requested.to_owned(),
            source: std::io::Error::other(
                "the state directory cannot be written, so nothing can be locked",
            ),
        })
    }

    /// Writes or appends text. Without the file, an expected hash is not checked.
    pub fn write(
        &self,
        requested: &str,
        content: &[u8],
        mode: WriteMode,
        expected: Option<&ExpectedHash>,
        owner: &str,
        cancel: &CancelToken,
    ) -> Result<WriteReport> {
        self.update(requested, owner, cancel, |path, leases, state| {
            if requested.ends_with('/') || requested.ends_with("/.") {
                return Err(Error::IsDirectory {
                    path: requested.to_owned(),
                });
            }
            let Some((mut file, stat)) = open_existing(path)? else {
                let placed = state
                    .scratch
                    .create(path, leases, |new| write_bytes(new, content, requested))?;
                return Ok((placed, content.len() as u64, read::sha256_hex(content)));
            };
            let mut hash = Sha256::new();
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            let append = mode != WriteMode::Rewrite;
            if append || expected.is_some() {
                let mut first = true;
                read::for_each_block(&mut file, requested, size, cancel, |block| {
                    if std::mem::take(&mut first) && mode == WriteMode::Append {
                        refuse_non_text(requested, block)?;
                    }
                    hash.update(block);
                    Ok(())
                })?;
            }
            if let Some(expected) = expected {
                expected.check(requested, &read::hex(&hash.clone().finalize()))?;
            }
            let sha256 = if append {
                hash.update(content);
                read::hex(&hash.finalize())
            } else {
                read::sha256_hex(content)
            };
            let watch = if append || expected.is_some() {
                IfChanged::Abort
            } else {
                IfChanged::Overwrite
            };
            let mut source = file.try_clone().map_err(|e| write_failed(requested, e))?;
            let placed = state
                .scratch
                .replace(path, (&file, &stat), watch, leases, |new| {
                    if append {
                        source.rewind().map_err(|e| write_failed(requested, e))?;
                        read::for_each_block(&mut source, requested, size, cancel, |block| {
                            write_bytes(new, block, requested)
                        })?;
                    }
                    write_bytes(new, content, requested)
                })?;
            Ok((placed, content.len() as u64, sha256))
        })
    }

    /// Replaces `old_text` by `new_text` exactly `count` times.
    pub fn edit(
        &self,
        requested: &str,
        replacement: &edit::Replacement<'_>,
        expected: Option<&ExpectedHash>,
        owner: &str,
        cancel: &CancelToken,
    ) -> Result<WriteReport> {
        self.update(requested, owner, cancel, |path, leases, state| {
            let (mut file, stat) = open_existing(path)?.ok_or_else(|| Error::NotFound {
                path: requested.to_owned(),
            })?;
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            if size > MAX_EDIT_BYTES as u64 {
                let why = format!(
                    "{size} bytes; files above {MAX_EDIT_BYTES} bytes are not edited in place"
                );
                return Err(Error::TooLarge {
                    path: requested.to_owned(),
                    why,
                });
            }
            let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
            read::for_each_block(&mut file, requested, size, cancel, |block| {
                bytes.extend_from_slice(block);
                Ok(())
            })?;
            if let Some(expected) = expected {
                expected.check(requested, &read::sha256_hex(&bytes))?;
            }
            refuse_non_text(requested, &bytes)?;
            let edited = edit::apply(requested, &bytes, replacement)?;
            let placed =
                state
                    .scratch
                    .replace(path, (&file, &stat), IfChanged::Abort, leases, |new| {
                        write_bytes(new, &edited, requested)
                    })?;
            Ok((placed, edited.len() as u64, read::sha256_hex(&edited)))
        })
    }

    /// Sets permission bits and times of a file or directory, under its lease.
    ///
    /// # Errors
    /// Set-uid and set-gid bits that it does not have yet are [`Error::Permission`].
    pub fn set_attributes(
        &self,
        requested: &str,
        new: NewAttributes,
        owner: &str,
        cancel: &CancelToken,
    ) -> Result<RootedPath> {
        let state = self.state(requested)?;
        let path = self
            .roots
            .resolve(requested, FinalLink::Follow, Access::Write)?;
        let leases = state
            .locks
            .acquire(&[path.absolute()], owner, requested)?
            .with_cancel(cancel);
        let failed = |errno| Error::from_write_errno(requested, errno);
        let file = path.open(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC)?;
        refuse_kernel_file_system(&file, requested)?;
        let stat = fs::fstat(&file).map_err(failed)?;
        if file_type(&stat) != FileType::Directory {
            read::refuse_special(&stat, requested)?;
        }
        self.before_change(&path);
        leases.commit(|| {
            if let Some(mode) = new.mode {
                if mode & 0o6000 & !stat.st_mode != 0 {
                    return Err(Error::Permission {
                        path: requested.to_owned(),
                    });
                }
                fs::fchmod(&file, Mode::from_raw_mode(mode & 0o7777)).map_err(failed)?;
            }
            if let Some((access, change)) = new.times_ns {
                let times = fs::Timestamps {
                    last_access: timespec(access),
                    last_modification: timespec(change),
                };
                fs::futimens(&file, &times).map_err(failed)?;
            }
            Ok(())
        })?;
        Ok(path)
    }

    /// Takes the lease and runs `step`, again when another program changed the file meanwhile.
    fn update(
        &self,
        requested: &str,
        owner: &str,
        cancel: &CancelToken,
        mut step: impl FnMut(
            &RootedPath,
            &Leases<'_>,
            &WriteState,
        ) -> Result<(PlaceOutcome, u64, String)>,
    ) -> Result<WriteReport> {
        let state = self.state(requested)?;
        for _ in 0..MAX_WRITE_RETRIES {
            let path = self
                .roots
                .resolve(requested, FinalLink::Follow, Access::Write)?;
            let leases = state
                .locks
                .acquire(&[path.absolute()], owner, requested)?
                .with_cancel(cancel);
            self.before_change(&path);
            let (placed, bytes_written, sha256) = step(&path, &leases, state)?;
            if placed == PlaceOutcome::Done {
                return Ok(WriteReport {
                    path,
                    bytes_written,
                    sha256,
                });
            }
        }
        Err(Error::Busy {
            path: requested.to_owned(),
            holder: "another program that keeps changing the file".to_owned(),
            waited_ms: 0,
        })
    }
}

fn timespec(ns: i64) -> fs::Timespec {
    fs::Timespec {
        tv_sec: ns.div_euclid(1_000_000_000),
        tv_nsec: ns.rem_euclid(1_000_000_000),
    }
}

/// Opens the file if it exists; `None` when it does not.
fn open_existing(path: &RootedPath) -> Result<Option<(File, Stat)>> {
    match read::open_regular(path) {
        Ok(found) => Ok(Some(found)),
        // Missing: the file itself, or the directory for it (then creating it fails).
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn refuse_non_text(requested: &str, start: &[u8]) -> Result<()> {
    let why = match Encoding::sniff(start) {
        Encoding::Utf16Le | Encoding::Utf16Be => {
            "is UTF-16; only UTF-8 text is edited or appended to"
        }
        Encoding::Binary => "is binary; only text is edited or appended to",
        _ => return Ok(()),
    };
    Err(Error::NotText {
        path: requested.to_owned(),
        why,
    })
}

fn write_bytes(file: &mut File, content: &[u8], requested: &str) -> Result<()> {
    file.write_all(content)
        .map_err(|e| write_failed(requested, e))
}
