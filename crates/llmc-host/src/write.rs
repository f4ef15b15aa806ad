//! Writing whole files: atomically, durably, under a lease, and only if the content is what the caller believes.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::Stat;
use sha2::{Digest, Sha256};

use crate::cancel::CancelToken;
use crate::edit;
use crate::error::{Error, Result};
use crate::lock::{Leases, Locks};
use crate::read::{self, Encoding, TAG_DIGITS};
use crate::roots::{Last, RootedPath, Roots};
use crate::rules::Access;
use crate::scratch::{Placed, Scratch, Watch};

/// How often a write starts over because another program changed the file under it.
const RETRIES: usize = 5;
/// The largest file that is edited in memory.
pub const EDIT_LIMIT: usize = 64 << 20;

/// The state a workspace's writers share: leases and a place for unfinished files.
#[derive(Debug)]
pub struct WriteState {
    pub(crate) locks: Locks,
    pub(crate) scratch: Scratch,
}

impl WriteState {
    /// Opens it in the state directory; clears what a crashed process left.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn open(state_dir: &Path, lease: Duration) -> Result<WriteState> {
        let locks = Locks::open(state_dir, lease)?;
        let scratch = Scratch::open(state_dir, &locks)?;
        Ok(WriteState { locks, scratch })
    }
}

/// Roots that can be written.
#[derive(Debug, Clone)]
pub struct Workspace {
    /// The doors.
    pub roots: Arc<Roots>,
    state: Option<Arc<WriteState>>,
}

/// Whether content replaces the file or goes behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMode {
    /// The content is the whole file.
    Rewrite,
    /// The content follows what is there.
    Append,
}

/// What a write did.
#[derive(Debug)]
pub struct Written {
    /// Where, resolved.
    pub path: RootedPath,
    /// Bytes this call put there.
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

    fn check(&self, asked: &str, sha256: &str) -> Result<()> {
        if sha256.starts_with(&self.0) {
            return Ok(());
        }
        let found = sha256[..TAG_DIGITS].to_owned();
        Err(Error::ShaMismatch {
            path: asked.to_owned(),
            expected: self.0.clone(),
            found,
        })
    }
}

impl Workspace {
    /// A workspace whose files can be changed when there is a place to keep leases.
    pub fn new(roots: Arc<Roots>, state: Option<Arc<WriteState>>) -> Workspace {
        Workspace { roots, state }
    }

    pub(crate) fn state(&self, asked: &str) -> Result<&WriteState> {
        self.state.as_deref().ok_or_else(|| Error::WriteFailed {
            path: asked.to_owned(),
            source: std::io::Error::other(
                "the state directory cannot be written, so nothing can be locked",
            ),
        })
    }

    /// Writes or appends text. Without the file, an expected hash is not checked.
    pub fn write(
        &self,
        asked: &str,
        content: &[u8],
        mode: WriteMode,
        expected: Option<&ExpectedHash>,
        owner: &str,
        cancel: &CancelToken,
    ) -> Result<Written> {
        self.update(asked, owner, cancel, |path, leases, state| {
            if asked.ends_with('/') || asked.ends_with("/.") {
                return Err(Error::IsDirectory {
                    path: asked.to_owned(),
                });
            }
            let Some((mut file, stat)) = existing(path)? else {
                let placed = state
                    .scratch
                    .create(path, leases, |new| put(new, content, asked))?;
                return Ok((placed, content.len() as u64, read::sha256_hex(content)));
            };
            let mut hash = Sha256::new();
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            let append = mode == WriteMode::Append;
            if append || expected.is_some() {
                let mut first = true;
                read::each_block(&mut file, asked, size, cancel, |block| {
                    if std::mem::take(&mut first) && append {
                        refuse_unlike_text(asked, block)?;
                    }
                    hash.update(block);
                    Ok(())
                })?;
            }
            if let Some(expected) = expected {
                expected.check(asked, &read::hex(&hash.clone().finalize()))?;
            }
            let sha256 = if append {
                hash.update(content);
                read::hex(&hash.finalize())
            } else {
                read::sha256_hex(content)
            };
            let watch = if append || expected.is_some() {
                Watch::Yes
            } else {
                Watch::No
            };
            let mut source = file.try_clone().map_err(|e| failed(asked, e))?;
            let placed = state
                .scratch
                .replace(path, (&file, &stat), watch, leases, |new| {
                    if append {
                        source.rewind().map_err(|e| failed(asked, e))?;
                        read::each_block(&mut source, asked, size, cancel, |block| {
                            put(new, block, asked)
                        })?;
                    }
                    put(new, content, asked)
                })?;
            Ok((placed, content.len() as u64, sha256))
        })
    }

    /// Replaces `old_text` by `new_text` exactly `count` times.
    pub fn edit(
        &self,
        asked: &str,
        change: &edit::Change<'_>,
        expected: Option<&ExpectedHash>,
        owner: &str,
        cancel: &CancelToken,
    ) -> Result<Written> {
        self.update(asked, owner, cancel, |path, leases, state| {
            let (mut file, stat) = existing(path)?.ok_or_else(|| Error::NotFound {
                path: asked.to_owned(),
            })?;
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            if size > EDIT_LIMIT as u64 {
                let why =
                    format!("{size} bytes; files above {EDIT_LIMIT} bytes are not edited in place");
                return Err(Error::TooLarge {
                    path: asked.to_owned(),
                    why,
                });
            }
            let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
            read::each_block(&mut file, asked, size, cancel, |block| {
                bytes.extend_from_slice(block);
                Ok(())
            })?;
            if let Some(expected) = expected {
                expected.check(asked, &read::sha256_hex(&bytes))?;
            }
            refuse_unlike_text(asked, &bytes)?;
            let edited = edit::apply(asked, &bytes, change)?;
            let placed =
                state
                    .scratch
                    .replace(path, (&file, &stat), Watch::Yes, leases, |new| {
                        put(new, &edited, asked)
                    })?;
            Ok((placed, edited.len() as u64, read::sha256_hex(&edited)))
        })
    }

    /// Takes the lease and runs `step` until no other program interferes.
    fn update(
        &self,
        asked: &str,
        owner: &str,
        cancel: &CancelToken,
        mut step: impl FnMut(&RootedPath, &Leases<'_>, &WriteState) -> Result<(Placed, u64, String)>,
    ) -> Result<Written> {
        let state = self.state(asked)?;
        for _ in 0..RETRIES {
            let path = self.roots.resolve(asked, Last::Follow, Access::Write)?;
            let leases = state
                .locks
                .acquire(&[path.absolute()], owner, asked)?
                .until(cancel);
            let (placed, bytes_written, sha256) = step(&path, &leases, state)?;
            if placed == Placed::Done {
                return Ok(Written {
                    path,
                    bytes_written,
                    sha256,
                });
            }
        }
        Err(Error::Busy {
            path: asked.to_owned(),
            holder: "another program that keeps changing the file".to_owned(),
            waited_ms: 0,
        })
    }
}

/// The file there is, opened and known to be a regular one; `None` when there is none.
fn existing(path: &RootedPath) -> Result<Option<(File, Stat)>> {
    match read::open_regular(path) {
        Ok(found) => Ok(Some(found)),
        // Missing: the file itself, or the directory for it (then creating it says so).
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Text cannot be added to what is not text without breaking it.
fn refuse_unlike_text(asked: &str, start: &[u8]) -> Result<()> {
    let why = match Encoding::sniff(start) {
        Encoding::Utf16Le | Encoding::Utf16Be => {
            "is UTF-16; only UTF-8 text is edited or appended to"
        }
        Encoding::Binary => "is binary; only text is edited or appended to",
        _ => return Ok(()),
    };
    Err(Error::NotText {
        path: asked.to_owned(),
        why,
    })
}

fn put(file: &mut File, content: &[u8], asked: &str) -> Result<()> {
    file.write_all(content).map_err(|e| failed(asked, e))
}

fn failed(asked: &str, source: std::io::Error) -> Error {
    Error::WriteFailed {
        path: asked.to_owned(),
        source,
    }
}
