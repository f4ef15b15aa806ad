//! `te_diff`: two paths, or one against HEAD, in real repositories that mean well or not.

use std::process::Command;

use llmc_envelope::te::{TeText, parse};
use llmc_testkit::{McpClient, TestWorkspace};
use serde_json::{Value, json};

use crate::{classic, workspace};

fn diff(client: &mut McpClient, args: Value) -> TeText {
    let text = client.text("te_diff", args);
    let parsed = parse(&text).unwrap_or_else(|| panic!("no envelope: {text}"));
    assert!(parsed.is_whole() || parsed.header.cmd == "diff", "{text}");
    parsed
}

/// Files and hunks: by the header, or by the body of a whole diff.
fn counts(answer: &TeText) -> (u64, u64) {
    let lines = |starts: &[&str]| {
        let has = |line: &&str| starts.iter().any(|start| line.starts_with(start));
        answer.body.lines().filter(has).count() as u64
    };
    (
        answer
            .header
            .files
            .unwrap_or_else(|| lines(&["--- ", "Binary files "])),
        answer.header.matches.unwrap_or_else(|| lines(&["@@ "])),
    )
}

fn failed(client: &mut McpClient, args: Value) -> (String, String, String) {
    let (is_error, text) = client.call_tool("te_diff", args);
    assert!(is_error, "{text}");
    let parsed = parse(&text).unwrap_or_else(|| panic!("no envelope: {text}"));
    let header = parsed.header;
    (
        header.error.unwrap_or_default(),
        parsed.body,
        header.hint.unwrap_or_default(),
    )
}

pub(crate) fn git(workspace: &TestWorkspace, words: &[&str]) {
    let done = Command::new("git")
        .args(["-c", "user.name=T", "-c", "user.email=t@example.org"])
        .args([
            "-c",
            "init.defaultBranch=main",
            "-c",
            "commit.gpgsign=false",
        ])
        .args(words)
        .current_dir(workspace.root())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(done.status.success(), "{words:?}: {done:?}");
}

pub(crate) fn commit(workspace: &TestWorkspace) {
    git(workspace, &["add", "-A"]);
    git(workspace, &["commit", "-q", "-m", "a state"]);
}

/// What diff(1) makes of two files but for the names' times.
fn whole(client: &mut McpClient, answer: &TeText) -> String {
    let handle = answer.header.handle.expect("a handle").to_string();
    let page = client.json(
        "linux_handle_read",
        json!({"handle": handle, "limit": 8_000_000}),
    );
    page["data"].as_str().unwrap().to_owned()
}

#[test]
fn two_files_and_what_makes_them_differ() {
    let workspace = workspace(
        "//- old.rs\nfn one() {\n    1\n}\n\nfn two() {\n    2\n}\n//- new.rs\nfn one() {\n    1\n}\n\nfn two() {\n    3\n}\n//- dir/old.rs\nx\n",
    );
    workspace.write("a.bin", b"\0\x01\x02");
    workspace.write("b.bin", b"\0\x01\x02\x03");
    workspace.write("latin.txt", b"caf\xe9 one\n");
    workspace.write("latin2.txt", b"caf\xe8 one\n");
    workspace.write("empty", "");
    let mut client = classic(&workspace);
    let changed = diff(&mut client, json!({"a": "old.rs", "b": "new.rs"}));
    assert_eq!(
        changed.body,
        "--- old.rs\n+++ new.rs\n@@ -3,5 +3,5 @@ fn one() {\n }\n \n fn two() {\n-    2\n+    3\n }\n"
    );
    assert!(changed.is_whole(), "{changed:?}");
    let same = diff(&mut client, json!({"a": "old.rs", "b": "./old.rs"}));
    assert!(same.body.starts_with("identical"), "{same:?}");
    assert_eq!(same.header.matches, Some(0));
    let binary = diff(&mut client, json!({"a": "a.bin", "b": "b.bin"}));
    assert_eq!(
        binary.body,
        "Binary files a.bin and b.bin differ (3 and 4 bytes)\n"
    );
    // Bytes that no text shows still make a difference.
    let odd = diff(&mut client, json!({"a": "latin.txt", "b": "latin2.txt"}));
    assert!(odd.body.contains("differ"), "{odd:?}");
    let emptied = diff(&mut client, json!({"a": "empty", "b": "old.rs"}));
    assert!(emptied.body.contains("@@ -0,0 +1,7 @@"), "{emptied:?}");
    // As diff does, a directory stands for the file of the same name in it.
    let below = diff(&mut client, json!({"a": "old.rs", "b": "dir"}));
    assert!(below.body.contains("+++ dir/old.rs\n"), "{below:?}");
}

#[test]
fn what_does_not_fit_is_counted_and_kept_byte_for_byte() {
    let workspace = workspace("//- a.txt\n");
    let lines = |step: usize| -> String {
        (0..9000)
            .map(|n| match n % step {
                0 => format!("line {n} of version {step}\n"),
                _ => format!("line {n}\n"),
            })
            .collect()
    };
    workspace.write("a.txt", lines(40));
    workspace.write("b.txt", lines(50));
    let mut client = classic(&workspace);
    let answer = diff(&mut client, json!({"a": "a.txt", "b": "b.txt"}));
    assert!(answer.header.truncated, "{answer:?}");
    let raw = whole(&mut client, &answer);
    let hunks = raw.lines().filter(|line| line.starts_with("@@ ")).count() as u64;
    assert_eq!(answer.header.matches, Some(hunks));
    let shown = answer
        .body
        .lines()
        .filter(|line| line.contains("@@ "))
        .count() as u64;
    assert_eq!(answer.header.shown.unwrap_or(hunks), shown);
    let left = format!("{} more hunks", hunks - shown);
    assert!(
        answer
            .breadcrumbs
            .iter()
            .any(|crumb| crumb.replace(',', "").contains(&left)),
        "{left}: {answer:?}"
    );
    // It is a diff that others understand: applied, it makes the one file the other.
    workspace.write("patch", &raw);
    let patched = Command::new("git")
        .args(["apply", "-p0", "-R", "--recount", "patch"])
        .current_dir(workspace.root())
        .output()
        .unwrap();
    assert!(patched.status.success(), "{patched:?}");
    assert_eq!(workspace.read("b.txt"), lines(40));
}

#[test]
fn a_file_against_head() {
    let workspace =
        workspace("//- src/lib.rs\nfn a() {}\n//- gone.txt\nlast words\n//- same.txt\ns\n");
    git(&workspace, &["init", "-q"]);
    let mut client = classic(&workspace);
    let first = diff(&mut client, json!({"a": "same.txt"}));
    assert!(
        first
            .breadcrumbs
            .iter()
            .any(|crumb| crumb.contains("no commit yet")),
        "{first:?}"
    );
    commit(&workspace);
    workspace.write("src/lib.rs", "fn a() {}\nfn b() {}\n");
    workspace.write("src/new \n:(top)*.rs", "fn c() {}\n");
    std::fs::remove_file(workspace.path("gone.txt")).unwrap();
    let changed = diff(&mut client, json!({"a": "src/lib.rs"}));
    assert_eq!(
        changed.body,
        "--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -1 +1,2 @@\n fn a() {}\n+fn b() {}\n"
    );
    let same = diff(&mut client, json!({"a": "same.txt"}));
    assert_eq!(same.body, "identical: same.txt and HEAD\n");
    let gone = diff(&mut client, json!({"a": "gone.txt"}));
    assert!(
        gone.body
            .contains("+++ /dev/null\n@@ -1 +0,0 @@\n-last words\n"),
        "{gone:?}"
    );
    let new = diff(&mut client, json!({"a": "src/new \n:(top)*.rs"}));
    assert!(new.body.contains("+fn c() {}"), "{new:?}");
    assert!(
        new.breadcrumbs
            .iter()
            .any(|crumb| crumb.contains("not in HEAD")),
        "{new:?}"
    );
    let (code, _, hint) = failed(&mut client, json!({"a": "HEAD~1"}));
    assert_eq!(code, "not_found");
    assert!(hint.contains("te_git"), "{hint}");
    let (code, _, hint) = failed(&mut client, json!({"a": "same.txt", "b": "main"}));
    assert_eq!(
        (code.as_str(), hint.contains("te_git")),
        ("not_found", true)
    );
}

#[test]
fn a_directory_against_head_matches_git() {
    let workspace = workspace("//- .gitignore\ntarget/\n");
    for n in 0..60 {
        workspace.write(format!("src/file{n}.txt"), format!("file {n}\nend\n"));
    }
    workspace.write("pic.png", b"\x89PNG\r\n\x1a\n\0\0");
    std::os::unix::fs::symlink("file1.txt", workspace.path("src/link")).unwrap();
    git(&workspace, &["init", "-q"]);
    commit(&workspace);
    for n in (0..60).step_by(3) {
        workspace.write(
            format!("src/file{n}.txt"),
            format!("file {n}\nmiddle\nend\n"),
        );
    }
    std::fs::remove_file(workspace.path("src/file1.txt")).unwrap();
    workspace.write("pic.png", b"\x89PNG\r\n\x1a\n\0\0\0");
    workspace.write("added.txt", "fresh\n");
    workspace.write("target/out.txt", "ignored\n");
    let mut client = classic(&workspace);
    let answer = diff(&mut client, json!({"a": "."}));
    assert_eq!(counts(&answer), (23, 22), "{answer:?}");
    assert!(
        answer
            .breadcrumbs
            .iter()
            .any(|crumb| crumb == "1 not in HEAD, shown as new")
    );
    assert!(
        answer
            .breadcrumbs
            .iter()
            .any(|crumb| crumb.starts_with("1 linked")),
        "{answer:?}"
    );
    assert!(
        answer
            .breadcrumbs
            .iter()
            .any(|crumb| crumb == "1 ignored, not compared"),
        "{answer:?}"
    );
    assert!(!answer.body.contains("out.txt"));
    let below = diff(&mut client, json!({"a": "src"}));
    assert_eq!(counts(&below).0, 21, "{below:?}");
}

#[test]
fn a_linked_working_tree_has_a_head_too() {
    let workspace = workspace("//- main/f.txt\none\n");
    let git_in = |dir: &str, words: &[&str]| {
        let path = workspace.path(dir).display().to_string();
        git(&workspace, &[&["-C", &path], words].concat());
    };
    git_in("main", &["init", "-q"]);
    git_in("main", &["add", "-A"]);
    git_in("main", &["commit", "-q", "-m", "a state"]);
    git_in("main", &["worktree", "add", "-q", "../linked"]);
    workspace.write("linked/f.txt", "two\n");
    let mut client = classic(&workspace);
    let answer = diff(&mut client, json!({"a": "linked"}));
    assert_eq!(
        answer.body,
        "--- a/linked/f.txt\n+++ b/linked/f.txt\n@@ -1 +1 @@\n-one\n+two\n"
    );
    assert!(answer.breadcrumbs.is_empty(), "{answer:?}");
}

#[test]
fn two_directories() {
    let workspace = workspace(
        "//- one/same.txt\ns\n//- one/gone.txt\ng\n//- one/deep/x.txt\n1\n//- two/same.txt\ns\n//- two/deep/x.txt\n2\n//- two/deep/new.txt\nn\n",
    );
    let mut client = classic(&workspace);
    let answer = diff(&mut client, json!({"a": "one", "b": "two"}));
    assert_eq!(counts(&answer), (3, 3), "{answer:?}");
    for part in [
        "--- /dev/null\n+++ two/deep/new.txt\n",
        "--- one/deep/x.txt\n+++ two/deep/x.txt\n@@ -1 +1 @@\n-1\n+2\n",
        "--- one/gone.txt\n+++ /dev/null\n",
    ] {
        assert!(answer.body.contains(part), "{part:?} in {}", answer.body);
    }
    assert!(
        diff(&mut client, json!({"a": "one", "b": "one"}))
            .body
            .starts_with("identical")
    );
}

#[test]
fn nothing_of_the_repository_runs_and_nothing_outside_is_read() {
    let workspace = workspace("//- f.txt\none\n//- .gitattributes\n*.txt filter=evil diff=evil\n");
    git(&workspace, &["init", "-q"]);
    commit(&workspace);
    let flag = workspace.path("planted");
    let evil = format!("sh -c 'echo x > {}; cat'", flag.display());
    for (key, value) in [
        ("filter.evil.smudge", evil.as_str()),
        ("filter.evil.clean", &evil),
        ("diff.evil.textconv", &evil),
        ("diff.evil.command", &evil),
        ("diff.external", &evil),
        ("core.fsmonitor", &evil),
        ("core.pager", &evil),
        ("pager.show", &evil),
        ("core.sshCommand", &evil),
        ("log.showSignature", "true"),
        ("gpg.program", &evil),
        ("alias.show", &format!("!{evil}")),
        ("alias.ls-tree", &format!("!{evil}")),
    ] {
        git(&workspace, &["config", key, value]);
    }
    workspace.write("f.txt", "two\n");
    let mut client = classic(&workspace);
    for path in ["f.txt", "."] {
        let answer = diff(&mut client, json!({"a": path}));
        assert!(answer.body.contains("-one\n+two\n"), "{answer:?}");
    }
    assert!(!flag.exists(), "something of the repository ran");
    for args in [
        json!({"a": "../outside/canary"}),
        json!({"a": "f.txt", "b": "../outside/canary"}),
        json!({"a": "/etc", "b": "."}),
    ] {
        let (code, message, _) = failed(&mut client, args.clone());
        assert_eq!(code, "path_denied", "{args}: {message}");
        workspace.assert_no_leak(&message);
    }
    std::os::unix::fs::symlink(workspace.outside("canary"), workspace.path("leak")).unwrap();
    assert_eq!(failed(&mut client, json!({"a": "leak"})).0, "path_denied");
    assert_eq!(
        failed(&mut client, json!({"a": "f.txt", "b": "leak"})).0,
        "path_denied"
    );
    workspace.assert_outside_untouched();
}

#[test]
fn outside_of_a_repository_the_hint_names_the_argument() {
    let workspace = workspace("//- f.txt\none\n");
    let mut client = classic(&workspace);
    for path in ["f.txt", "."] {
        let (code, message, hint) = failed(&mut client, json!({"a": path}));
        assert_eq!(code, "not_found", "{message}");
        assert!(
            message.contains("no git repository") && hint.contains("give b"),
            "{message}: {hint}"
        );
    }
}

#[test]
fn lines_of_a_file_against_head() {
    let numbered = |changed: &[u32]| -> String {
        let line = |n| match changed.contains(&n) {
            true => format!("CHANGED {n}\n"),
            false => format!("line {n}\n"),
        };
        (1..=60).map(line).collect()
    };
    let workspace = workspace("//- b.txt\nx\n");
    workspace.write("a.txt", numbered(&[]));
    git(&workspace, &["init", "-q"]);
    commit(&workspace);
    workspace.write("a.txt", numbered(&[10, 50]));
    let mut client = classic(&workspace);
    for (path, shown, hidden) in [
        ("a.txt:8-12", "CHANGED 10", "CHANGED 50"),
        ("a.txt#L50-L60", "CHANGED 50", "CHANGED 10"),
    ] {
        let answer = diff(&mut client, json!({"a": path}));
        assert!(answer.body.contains(shown), "{path}: {}", answer.body);
        assert!(!answer.body.contains(hidden), "{path}: {}", answer.body);
        assert!(
            answer.body.contains("--- a/a.txt"),
            "{path}: {}",
            answer.body
        );
    }
    let answer = diff(&mut client, json!({"a": "a.txt:25-35"}));
    assert!(answer.body.starts_with("identical"), "{}", answer.body);
    let (code, ..) = failed(&mut client, json!({"a": "gone.txt:3"}));
    assert_eq!(code, "not_found");
}
