//! The server's path rules, applied below the start of a walk.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::roots::RootedPath;
use crate::rules::{Access, PathRules};

/// Excludes from a walk what the agent may not read.
#[derive(Clone, Debug)]
pub struct WalkGuard {
    rules: Arc<PathRules>,
    start: PathBuf,
}

impl WalkGuard {
    /// The rules for a walk that starts at `start`.
    pub fn new(rules: Arc<PathRules>, start: &RootedPath) -> Self {
        Self {
            rules,
            start: start.absolute(),
        }
    }

    /// Whether it applies the rules that another one does, wherever they start.
    pub(crate) fn has_rules_of(&self, other: &WalkGuard) -> bool {
        Arc::ptr_eq(&self.rules, &other.rules)
    }

    /// Whether the directory at `path`, relative to the start, may not be entered.
    pub fn refuses_dir(&self, path: &[u8]) -> bool {
        let path = self.start.join(OsStr::from_bytes(path));
        self.rules.check(&path, "", Access::Read).is_err()
    }

    /// Whether the file `name` may not be read; the directory that holds it has been checked already.
    pub fn refuses_file(&self, name: &[u8]) -> bool {
        self.rules.denylist_reads() && self.rules.is_denylisted(Path::new(OsStr::from_bytes(name)))
    }
}
