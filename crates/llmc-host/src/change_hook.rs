//! Reports each path that is about to change.
//!
//! History keeps what a file held before a call changes it. The code that resolves a path and holds its lease knows which
//! file that is, so the workspace reports it and no tool has to.

use std::fmt;
use std::sync::Arc;

use crate::roots::{RootedPath, Roots};
use crate::write::Workspace;

/// Called with each path that is about to change.
#[derive(Clone)]
pub(crate) struct ChangeHook(Arc<dyn Fn(&RootedPath) + Send + Sync>);

impl fmt::Debug for ChangeHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChangeHook")
    }
}

impl Workspace {
    /// The same files through other roots.
    pub fn with_roots(&self, roots: Roots) -> Workspace {
        let mut files = self.clone();
        files.roots = Arc::new(roots);
        files
    }

    /// The same files; `before` is called with each path that is about to be created, changed, moved or deleted, under
    /// its lease. Of a directory that is moved or deleted, only the directory itself is given.
    pub fn with_change_hook(
        &self,
        before: impl Fn(&RootedPath) + Send + Sync + 'static,
    ) -> Workspace {
        let mut files = self.clone();
        files.change_hook = Some(ChangeHook(Arc::new(before)));
        files
    }

    pub(crate) fn before_change(&self, path: &RootedPath) {
        if let Some(hook) = &self.change_hook {
            (hook.0)(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use crate::{
        CancelToken, DeleteScope, ExistingDir, ExistingTarget, NewAttributes, PathRules, Roots,
        WriteMode, WriteState, edit,
    };

    fn told(top: &Path, work: impl FnOnce(&Workspace, &CancelToken)) -> Vec<String> {
        let state = WriteState::open(&top.join(".llmc"), Duration::from_secs(30)).unwrap();
        let rules = Arc::new(PathRules::new(Some(top.join(".llmc")), Vec::new()));
        let roots = Roots::open(top, &[top.to_owned()], rules).unwrap();
        let files = Workspace::new(Arc::new(roots), Some(Arc::new(state)));
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = told.clone();
        let hooked = files.with_change_hook(move |path| {
            let held = path.lstat().is_ok();
            let name = String::from_utf8_lossy(path.below_root()).into_owned();
            kept.lock().unwrap().push(format!("{name} {held}"));
        });
        work(&hooked, &CancelToken::default());
        told.lock().unwrap().clone()
    }

    #[test]
    fn every_change_is_told_before_it_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        fs::create_dir(top.join(".llmc")).unwrap();
        fs::write(top.join("old"), "a\n").unwrap();
        let patch = "--- a/old\n+++ b/old\n@@ -1 +1 @@\n-b\n+c\n";
        let told = told(&top, |files, cancel| {
            let rewrite = WriteMode::Rewrite;
            files
                .write("new", b"x", rewrite, None, "me", cancel)
                .unwrap();
            let replacement = edit::Replacement {
                old_text: "a",
                new_text: "b",
                count: 1,
            };
            files.edit("old", &replacement, None, "me", cancel).unwrap();
            files.apply_patch(patch, "me", cancel).unwrap();
            let mode = NewAttributes {
                mode: Some(0o600),
                ..NewAttributes::default()
            };
            files.set_attributes("old", mode, "me", cancel).unwrap();
            files.make_dirs("d/e", ExistingDir::Refuse).unwrap();
            let refuse = ExistingTarget::Refuse;
            files
                .move_path("old", "d/e/old", refuse, "me", cancel)
                .unwrap();
            let all = DeleteScope::Recursive;
            files.delete("d", all, "me", cancel).unwrap();
        });
        let wanted = [
            "new false",
            "old true",
            "old true",
            "old true",
            "d false",
            "d/e false",
            "old true",
            "d/e/old false",
            "d true",
        ];
        assert_eq!(told, wanted);
    }

    #[test]
    fn what_is_refused_is_not_told() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        fs::create_dir(top.join(".llmc")).unwrap();
        let told = told(&top, |files, cancel| {
            let rewrite = WriteMode::Rewrite;
            assert!(
                files
                    .write("llmc.toml", b"", rewrite, None, "me", cancel)
                    .is_err()
            );
            assert!(
                files
                    .write("../x", b"", rewrite, None, "me", cancel)
                    .is_err()
            );
            let all = DeleteScope::Recursive;
            assert!(files.delete("missing", all, "me", cancel).is_err());
        });
        assert_eq!(told, [""; 0]);
    }
}
