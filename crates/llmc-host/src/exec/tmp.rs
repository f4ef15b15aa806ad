//! A directory for temporary files where a run cannot have a `/tmp` of its own.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use ulid::Ulid;

/// One run's temporary directory. Deleted when dropped, which must come after the run is dead.
#[derive(Debug)]
pub(super) struct OwnTmp(PathBuf);

impl OwnTmp {
    pub(super) fn new() -> std::io::Result<OwnTmp> {
        let path = Path::new("/tmp").join(format!("llmc-run-{}", Ulid::new()));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(OwnTmp(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for OwnTmp {
    #[expect(
        clippy::disallowed_methods,
        reason = "a directory of the server's own making"
    )]
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
