//! Sessions whose variables last from one script to the next. A Python process holds them; that there was one is one file for
//! each session in the state directory, so that a later server can say that the variables are gone.
//!
//! A session belongs to its principal; another principal's session of the same name is another session. Two scripts in
//! one session take turns. A session that was not used for the lifetime of a handle expires, and its next call fails with that reason.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use tokio::sync::OwnedMutexGuard;

use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};

/// The most sessions that are kept; the one that was not used for longest makes room.
const MAX_SESSIONS: usize = 64;
/// Longest name.
const MAX_NAME_CHARS: usize = 64;
/// The directory, in the state directory.
const DIR: &str = "code_sessions";

/// Sessions by key: when each was begun.
type InMemory = Arc<Mutex<BTreeMap<String, SystemTime>>>;

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

    /// Whether an earlier script began it.
    pub(super) fn is_known(&self) -> Result<bool> {
        let found = match &self.storage {
            SessionStorage::Dir(dir) => last_use(&dir.join(&self.key)),
            SessionStorage::Memory(all) => {
                let all = all.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(all.get(&self.key).copied())
            }
        };
        let found = found.map_err(|error| {
            Error::new(
                ErrorKind::Internal,
                format!("the session cannot be read: {error}"),
            )
        })?;
        let Some(used) = found else {
            return Ok(false);
        };
        // A clock that was set back is no reason to lose anything.
        let is_young = used.elapsed().unwrap_or_default() < self.lives;
        if !is_young {
            self.forget();
        }
        Ok(is_young)
    }

    /// Notes that a script has begun it.
    pub(super) fn begin(&self) -> Result<()> {
        let stored = match &self.storage {
            SessionStorage::Dir(dir) => write(dir, &self.key),
            SessionStorage::Memory(all) => {
                let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                all.insert(self.key.clone(), SystemTime::now());
                while all.len() > MAX_SESSIONS {
                    let oldest = all.iter().min_by_key(|(_, used)| **used);
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

    fn forget(&self) {
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

fn last_use(path: &Path) -> io::Result<Option<SystemTime>> {
    match std::fs::metadata(path) {
        Ok(file) => file.modified().map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn write(dir: &Path, key: &str) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let file = tempfile::NamedTempFile::new_in(dir)?;
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
