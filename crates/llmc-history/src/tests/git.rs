//! Workspaces that are repositories: history depends on nothing that git keeps.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::TestHistory;
use crate::history::HistorySettings;

/// Runs git without the user's settings; `script` is for a shell.
pub(super) fn git(root: &Path, script: &str) -> bool {
    let ran = Command::new("sh")
        .args(["-c", script])
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_NAME", "a")
        .env("GIT_AUTHOR_EMAIL", "a@example.org")
        .env("GIT_COMMITTER_NAME", "a")
        .env("GIT_COMMITTER_EMAIL", "a@example.org")
        .status();
    ran.unwrap().success()
}

pub(super) const COMMIT: &str = "git init -q -b main . && git config gc.auto 0 && \
    echo .llmc >> .git/info/exclude && git add -A && git commit -q --allow-empty -m one";

/// Leaves a commit without files, and nothing that leads to another one.
const FORGET_ALL: &str = "git checkout -q --orphan empty && git rm -rq --cached . && git commit -q --allow-empty -m two && \
    git branch -D main && git reflog expire --expire=now --all && git gc -q --prune=now";

fn repository() -> TestHistory {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    fs::create_dir(root.join("d")).unwrap();
    for path in ["a", "b", "d/x", "d/y"] {
        fs::write(root.join(path), format!("{path} as committed\n")).unwrap();
    }
    assert!(git(&root, &format!("{COMMIT} && git gc -q --prune=now")));
    let mut test = TestHistory::open(&root, HistorySettings::default());
    test.history.build().unwrap();
    test._dir = Some(dir);
    test
}

#[test]
fn what_a_command_makes_git_forget_comes_back() {
    for forget in [
        FORGET_ALL,
        "rm -rf .git",
        "cd .git/objects/pack && chmod +w *.pack && truncate -s 0 *.pack",
    ] {
        let test = repository();
        let before = test.tree();
        let id = test.command_id(|| {
            assert!(git(&test.root, forget), "{forget}");
            fs::remove_dir_all(test.path("d")).unwrap();
            test.write("a", "a1");
        });
        let report = test.undo(id);
        assert_eq!(TestHistory::conflicts(&report), [""; 0], "{forget}");
        assert_eq!(test.tree(), before, "{forget}");
    }
}

#[test]
fn what_git_forgot_while_no_server_ran_comes_back() {
    let test = repository();
    let before = test.tree();
    let root = &test.root;
    assert!(git(root, FORGET_ALL));
    fs::write(root.join("a"), "from outside\n").unwrap();
    let next = TestHistory::open(root, HistorySettings::default());
    let id = next.command_id(|| fs::remove_dir_all(next.path("d")).unwrap());
    next.undo(id);
    // The change from outside is an entry of its own.
    next.undo(crate::entry::EntryId(id.0 - 1));
    assert_eq!(next.tree(), before);
}
