//! `te_git` and `te_diff` in repositories that lead git to one outside the roots.

use std::path::Path;
use std::process::Command;

use llmc_testkit::{McpClient, TestWorkspace};
use serde_json::json;

use crate::{classic, workspace};

const SECRET: &str = "SECRET-OF-ANOTHER-REPOSITORY";

fn git(dir: &Path, words: &[&str]) -> String {
    let done = Command::new("git")
        .args(["-c", "user.name=T", "-c", "user.email=t@example.org"])
        .args(["-c", "init.defaultBranch=main"])
        .args(["-c", "commit.gpgsign=false"])
        .args(words)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(done.status.success(), "{words:?}: {done:?}");
    String::from_utf8(done.stdout).unwrap()
}

/// A repository with one commit.
fn repository(dir: &Path, file: &str, text: &str) {
    std::fs::create_dir_all(dir).unwrap();
    git(dir, &["init", "-q"]);
    std::fs::write(dir.join(file), text).unwrap();
    git(dir, &["add", "-A"]);
    git(dir, &["commit", "-q", "-m", text]);
}

/// The workspace is a repository; another one lies outside.
fn two_repositories() -> TestWorkspace {
    let workspace = workspace("");
    repository(&workspace.root(), "f.txt", "mine");
    repository(&workspace.outside("private"), "f.txt", SECRET);
    workspace
}

/// Every call is refused with the code for paths outside, and says nothing of what lies there.
fn assert_refused(client: &mut McpClient, calls: &[(&str, serde_json::Value)]) {
    for (tool, args) in calls {
        let (failed, text) = client.call_tool(tool, args.clone());
        assert!(!text.contains(SECRET), "{tool}: {text}");
        assert!(failed && text.contains("path_denied"), "{tool}: {text}");
        assert!(text.contains("allowed_roots"), "a hint: {text}");
    }
}

#[test]
fn alternates_do_not_lead_to_another_repository() {
    let workspace = two_repositories();
    let outside = workspace.outside("private");
    let commit = git(&outside, &["rev-parse", "HEAD"]);
    let objects = outside.join(".git/objects");
    let list = format!("{}\n", objects.display());
    workspace.write(".git/objects/info/alternates", list);
    workspace.write(".git/refs/heads/main", &commit);
    // Plain git shows it: the attack works.
    assert!(git(&workspace.root(), &["show", "HEAD:f.txt"]).contains(SECRET));
    let mut client = classic(&workspace);
    let commit = commit.trim();
    assert_refused(
        &mut client,
        &[
            ("te_git", json!({"args": ["log"]})),
            ("te_git", json!({"args": ["show", commit]})),
            ("te_diff", json!({"a": "f.txt"})),
            ("te_diff", json!({"a": "."})),
        ],
    );
    // Nor may the agent write that list.
    std::fs::remove_file(workspace.path(".git/objects/info/alternates")).unwrap();
    client.assert_code(
        "linux_fs_write",
        json!({"path": ".git/objects/info/alternates", "content": "x"}),
        "INVALID_PATH",
    );
}

#[test]
fn a_git_file_or_link_does_not_lead_to_another_repository() {
    let workspace = two_repositories();
    let private = workspace.outside("private/.git");
    let pointer = format!("gitdir: {}\n", private.display());
    workspace.write("pointer/.git", pointer);
    workspace.write("pointer/f.txt", "x");
    std::fs::create_dir(workspace.path("linked")).unwrap();
    std::os::unix::fs::symlink(&private, workspace.path("linked/.git")).unwrap();
    workspace.write("linked/f.txt", "x");
    assert!(git(&workspace.path("pointer"), &["show", "HEAD:f.txt"]).contains(SECRET));
    let mut client = classic(&workspace);
    assert_refused(
        &mut client,
        &[
            ("te_diff", json!({"a": "pointer/f.txt"})),
            ("te_diff", json!({"a": "pointer"})),
            ("te_diff", json!({"a": "linked/f.txt"})),
        ],
    );
    // The repository around them is still read.
    assert!(
        client
            .text("te_git", json!({"args": ["log"]}))
            .contains("mine")
    );
}

#[test]
fn objects_as_a_link_do_not_lead_to_another_repository() {
    let workspace = two_repositories();
    let commit = git(&workspace.outside("private"), &["rev-parse", "HEAD"]);
    workspace.write(".git/refs/heads/main", &commit);
    let objects = workspace.path(".git/objects");
    std::fs::remove_dir_all(&objects).unwrap();
    let private = workspace.outside("private/.git/objects");
    std::os::unix::fs::symlink(private, &objects).unwrap();
    assert!(git(&workspace.root(), &["show", "HEAD:f.txt"]).contains(SECRET));
    let mut client = classic(&workspace);
    assert_refused(
        &mut client,
        &[
            ("te_git", json!({"args": ["log"]})),
            ("te_diff", json!({"a": "f.txt"})),
        ],
    );
}

#[test]
fn a_worktree_is_read_when_its_main_repository_is_inside_the_roots() {
    let workspace = workspace("");
    std::fs::remove_dir(workspace.root()).unwrap();
    let main = workspace.outside("main");
    repository(&main, "f.txt", "one\n");
    let tree = workspace.root().display().to_string();
    git(&main, &["worktree", "add", "-q", &tree]);
    workspace.write("f.txt", "two\n");
    let calls = [
        ("te_git", json!({"args": ["log"]})),
        ("te_diff", json!({"a": "f.txt"})),
    ];
    assert_refused(&mut classic(&workspace), &calls);
    let roots = format!("mcp.tools.allowed_roots=[\".\", \"{}\"]", main.display());
    let mut client = workspace.mcp(["--mode", "classic", "--set", &roots]);
    client.initialize("2025-11-25");
    for (tool, args) in calls {
        let text = client.text(tool, args);
        assert!(text.contains("one"), "{tool}: {text}");
    }
}
