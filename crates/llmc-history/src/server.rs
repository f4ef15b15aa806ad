//! Which servers of the workspace run: each keeps a file locked for as long as it lives.
//!
//! The lock is the proof, so that neither a reused process id nor a server in another pid namespace is mistaken.
#![allow(
    clippy::disallowed_methods,
    reason = "these are history's own files, not the agent's"
)]

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use llmc_host::open_private;

const SERVERS_DIR: &str = "history-servers";
const BUILD_LOCK: &str = "build.lock";

/// This process among those that use the history.
#[derive(Debug)]
pub(crate) struct ServerMark {
    dir: PathBuf,
    name: String,
    _file: File,
}

impl ServerMark {
    pub(crate) fn new(state_dir: &Path) -> io::Result<ServerMark> {
        let dir = state_dir.join(SERVERS_DIR);
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let name = ulid::Ulid::new().to_string();
        let file = open_private(&dir.join(&name))?;
        file.lock()?;
        Ok(ServerMark {
            dir,
            name,
            _file: file,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the server of this name has ended.
    pub(crate) fn is_dead(&self, name: &str) -> bool {
        if name == self.name || name.contains('/') {
            return false;
        }
        let path = self.dir.join(name);
        if !path.exists() {
            return true;
        }
        let Ok(file) = open_private(&path) else {
            return false;
        };
        match file.try_lock() {
            Ok(()) => {
                let _ = fs::remove_file(&path);
                true
            }
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => false,
        }
    }

    /// The right to take the first snapshot; `None` while another process has it.
    pub(crate) fn claim_build(&self) -> Option<File> {
        let file = open_private(&self.dir.join(BUILD_LOCK)).ok()?;
        file.try_lock().ok().map(|()| file)
    }
}

impl Drop for ServerMark {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.dir.join(&self.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_dead_when_its_file_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let one = ServerMark::new(dir.path()).unwrap();
        let two = ServerMark::new(dir.path()).unwrap();
        assert!(!one.is_dead(two.name()) && !two.is_dead(one.name()));
        let name = two.name().to_owned();
        let build = two.claim_build().unwrap();
        assert!(one.claim_build().is_none());
        drop(build);
        assert!(one.claim_build().is_some());
        drop(two);
        assert!(one.is_dead(&name));
        assert!(one.is_dead("unknown"));
    }
}
