//! Which workspace this is, for servers on several machines.
//!
//! A path is not enough: in containers every workspace is `/workspace`, and two clones in one history would undo each other's
//! files. So an id lies in the workspace itself, where every machine that shares the files reads the same.
#![allow(
    clippy::disallowed_methods,
    reason = "this is history's own file, not the agent's"
)]

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use llmc_host::STATE_DIR;
use rustix::fs::OFlags;
use sha1::{Digest, Sha1};

const ID_FILE: &str = "history-id";
/// Length of an id.
const ID_CHARS: usize = 26;

/// What names the workspace in the database: its id, which is made if there is none, and a digest of its path.
pub(crate) fn workspace_key(workspace: &Path) -> io::Result<String> {
    let dir = workspace.join(STATE_DIR);
    let id = match read_id(&dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_id(&dir)?;
            read_id(&dir)?
        }
        read => read?,
    };
    Ok(key(&id, workspace))
}

/// The same for a look that makes nothing; `None` without an id.
pub(crate) fn existing_key(workspace: &Path) -> io::Result<Option<String>> {
    match read_id(&workspace.join(STATE_DIR)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(|id| Some(key(&id, workspace))),
    }
}

fn key(id: &str, workspace: &Path) -> String {
    let mut key = format!("{id}-");
    for byte in Sha1::digest(workspace.as_os_str().as_bytes()) {
        key.push_str(&format!("{byte:02x}"));
    }
    key
}

fn read_id(dir: &Path) -> io::Result<String> {
    if dir.is_symlink() {
        let why = format!("{STATE_DIR} of the workspace is a link; it must be a directory");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
        .open(dir.join(ID_FILE))?;
    let mut id = String::new();
    file.take(ID_CHARS as u64 + 1).read_to_string(&mut id)?;
    match id.len() == ID_CHARS && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        true => Ok(id),
        false => {
            let why = format!("{STATE_DIR}/{ID_FILE} of the workspace is damaged; remove it");
            Err(io::Error::new(io::ErrorKind::InvalidData, why))
        }
    }
}

/// Makes the file in one step: another machine may do the same at the same time.
fn make_id(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o755).create(dir) {
        Ok(()) => fs::write(dir.join(".gitignore"), "*\n")?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let id = ulid::Ulid::new().to_string();
    let new = dir.join(format!("{ID_FILE}.{id}"));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(&new)?;
    file.write_all(id.as_bytes())?;
    file.sync_all()?;
    let linked = fs::hard_link(&new, dir.join(ID_FILE));
    fs::remove_file(&new)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_has_one_id_and_another_place_another_key() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        fs::create_dir(&one).unwrap();
        let keys: Vec<String> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| workspace_key(&one).unwrap()))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
        assert_eq!(fs::read(one.join(".llmc/.gitignore")).unwrap(), b"*\n");
        let left: Vec<_> = fs::read_dir(one.join(STATE_DIR)).unwrap().collect();
        assert_eq!(left.len(), 2, "{left:?}");
        // A copy at another place is another workspace, and so is another clone at the same place.
        fs::rename(&one, &other).unwrap();
        assert_ne!(workspace_key(&other).unwrap(), keys[0]);
        fs::create_dir(&one).unwrap();
        assert_ne!(workspace_key(&one).unwrap(), keys[0]);
    }

    #[test]
    fn an_id_that_is_damaged_or_behind_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        workspace_key(dir.path()).unwrap();
        let file = dir.path().join(STATE_DIR).join(ID_FILE);
        fs::write(&file, "short").unwrap();
        assert!(workspace_key(dir.path()).is_err());
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &file).unwrap();
        assert!(workspace_key(dir.path()).is_err());
        fs::remove_dir_all(dir.path().join(STATE_DIR)).unwrap();
        std::os::unix::fs::symlink("/tmp", dir.path().join(STATE_DIR)).unwrap();
        assert!(workspace_key(dir.path()).is_err());
    }
}
