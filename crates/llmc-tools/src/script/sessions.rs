//! Variables that last from one script to the next: one file for each session, in the state directory.
//!
//! A session belongs to its principal; another principal's session of the same name is another session. Two scripts in
//! one session take turns. A session that was not used for the lifetime of a handle expires, and its next call fails with that reason.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use tokio::sync::OwnedMutexGuard;

use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};

/// The most that one session's variables may take when they are written down.
pub(super) const MAX_STATE_BYTES: u64 = 8 << 20;
/// The most sessions that are kept; the one that was not used for longest makes room.
const MAX_SESSIONS: usize = 64;
/// Longest name.
const MAX_NAME_CHARS: usize = 64;
/// The directory, in the state directory.
const DIR: &str = "code_sessions";

/// What is kept in place of variables while a Python process holds them.
pub(super) const PYTHON_STATE: &[u8] = b"python process";

/// Whether a kept state stands for a Python process.
pub(super) fn is_python(state: &[u8]) -> bool {
    state == PYTHON_STATE
}

/// ScriptSessions by key: when each was last used, and its variables.
type InMemory = Arc<Mutex<BTreeMap<String, (SystemTime, Vec<u8>)>>>;

/// The sessions' turns, and the sessions themselves where there is no state directory.
#[derive(Debug, Default)]
pub(crate) struct ScriptSessions {
    turns: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
    in_memory: InMemory,
}

/// A session while a script uses it.
#[derive(Debug)]
pub(super) struct ScriptSession {
    key: String,
    storage: SessionStorage,
    lives: Duration,
    _turn: OwnedMutexGuard<()>,
}

#[derive(Debug)]
enum SessionStorage {
    Dir(PathBuf),
    Memory(InMemory),
}

fn check_name(name: &str) -> Result<()> {
    let fits = !name.is_empty() && name.chars().count() <= MAX_NAME_CHARS;
    if fits && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Error::bad_args(format!(
        "session must be a name of 1 to {MAX_NAME_CHARS} characters"
    )))
}

impl ScriptSessions {
    /// Waits for this principal's turn in the session of this name.
    pub(super) async fn enter(&self, cx: &Cx, name: &str) -> Result<ScriptSession> {
        check_name(name)?;
        let key = session_key(&cx.caller().principal, name);
        cx.app().claim_script_session(name, &key).await?;
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            turns.entry(key.clone()).or_default().clone()
        };
        let turn = tokio::select! {
            turn = tokio::time::timeout(super::MAX_QUEUE_WAIT, turn.lock_owned()) => turn,
            () = cx.cancel().cancelled() => return Err(Error::new(ErrorKind::Cancelled, "cancelled")),
        };
        let Ok(turn) = turn else {
            let busy = Error::new(ErrorKind::Busy, "another script is at work in this session");
            return Err(busy.hint("try again, or use another session name"));
        };
        let storage = match cx.app().stores() {
            Some(dir) => SessionStorage::Dir(dir.join(DIR)),
            None => SessionStorage::Memory(self.in_memory.clone()),
        };
        Ok(ScriptSession {
            key,
            storage,
            lives: cx.app().config().mcp.handles.ttl(),
            _turn: turn,
        })
    }
}

impl ScriptSession {
    /// Principal and name in one.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// What the last script has left; nothing if there was none.
    pub(super) fn load(&self) -> Result<Option<Vec<u8>>> {
        let found = match &self.storage {
            SessionStorage::Dir(dir) => read(&dir.join(&self.key)),
            SessionStorage::Memory(all) => {
                let all = all.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(all.get(&self.key).cloned())
            }
        };
        let found = found.map_err(|error| {
            Error::new(
                ErrorKind::Internal,
                format!("the session cannot be read: {error}"),
            )
        })?;
        let Some((used, state)) = found else {
            return Ok(None);
        };
        // A clock that was set back is no reason to lose anything.
        let age = used.elapsed().unwrap_or_default();
        if age < self.lives {
            return Ok(Some(state));
        }
        self.forget();
        Err(Error::new(
            ErrorKind::HandleExpired,
            format!(
                "the session has expired: it was not used for {} h",
                age.as_secs() / 3600
            ),
        )
        .hint("call again to start a new one"))
    }

    /// Keeps what a script has left.
    pub(super) fn store(&self, state: &[u8]) -> Result<()> {
        let stored = match &self.storage {
            SessionStorage::Dir(dir) => write(dir, &self.key, state),
            SessionStorage::Memory(all) => {
                let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                all.insert(self.key.clone(), (SystemTime::now(), state.to_vec()));
                while all.len() > MAX_SESSIONS {
                    let oldest = all.iter().min_by_key(|(_, (used, _))| *used);
                    let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                        break;
                    };
                    all.remove(&oldest);
                }
                Ok(())
            }
        };
        stored.map_err(|error| {
            Error::new(
                ErrorKind::WriteFailed,
                format!("the session cannot be kept: {error}"),
            )
        })
    }

    /// Begins anew next time.
    pub(super) fn forget(&self) {
        match &self.storage {
            SessionStorage::Dir(dir) => remove(&dir.join(&self.key)),
            SessionStorage::Memory(all) => {
                let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                all.remove(&self.key);
            }
        }
    }
}

/// A file name that tells nothing and cannot lead anywhere.
pub(crate) fn session_key(principal: &str, name: &str) -> String {
    let digest = Sha256::new()
        .chain_update((principal.len() as u64).to_le_bytes())
        .chain_update(principal)
        .chain_update(name)
        .finalize();
    digest
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a file of the server's own, in its state directory"
)]
fn read(path: &Path) -> io::Result<Option<(SystemTime, Vec<u8>)>> {
    let used = match std::fs::metadata(path) {
        Ok(file) => file.modified()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some((used, std::fs::read(path)?)))
}

fn write(dir: &Path, key: &str, state: &[u8]) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(state)?;
    file.persist(dir.join(key))?;
    make_room(dir)
}

/// Removes the sessions that were not used for longest, and what a crash has left of a write.
fn make_room(dir: &Path) -> io::Result<()> {
    let mut all: Vec<(SystemTime, PathBuf)> = std::fs::read_dir(dir)?
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    if all.len() > MAX_SESSIONS {
        all.sort();
        for (_, path) in &all[..all.len() - MAX_SESSIONS] {
            remove(path);
        }
    }
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "a file of the server's own, in its state directory"
)]
fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
}
