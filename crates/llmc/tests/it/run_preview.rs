//! `run_preview`: what a command prints and would change, while every file stays as it is.

use std::collections::BTreeMap;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use llmc_testkit::{McpClient, TestWorkspace, common_code, error_document, skip};
use serde_json::{Value, json};

use crate::te_diff::{commit, git};
use crate::{classic, keys, workspace};

const FIXTURE: &str = "\
//- .gitignore
build/
*.log
//- src/a.py
x=1
y = 2
//- src/b.py
b = 1
//- old/one
1
//- old/two
2
//- run.sh
#!/bin/sh
//- build/out
built
";

/// Everything below a workspace but the state directory: modes, contents and targets of links.
pub(crate) fn snapshot(workspace: &TestWorkspace) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut next = vec![workspace.root()];
    while let Some(dir) = next.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path == workspace.path(".llmc") || path == workspace.path(".git/llmc") {
                continue;
            }
            let status = std::fs::symlink_metadata(&path).unwrap();
            let content = if status.is_symlink() {
                std::fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_vec()
            } else if status.is_file() {
                std::fs::read(&path).unwrap()
            } else {
                next.push(path.clone());
                Vec::new()
            };
            found.insert(path, (status.mode(), content));
        }
    }
    found
}

/// Whether commands can run on views here; under CI they must.
pub(crate) fn has_views(workspace: &TestWorkspace) -> bool {
    let tried = workspace.llmc(["tool", "run_preview", "--command", "true"]);
    let has_views = !tried.stderr.contains("no mount and pid namespaces");
    if !has_views {
        skip("mount namespaces");
    }
    has_views
}

fn preview(client: &mut McpClient, line: &str) -> String {
    client.text("run_preview", json!({"command": line}))
}

fn repository() -> TestWorkspace {
    let workspace = workspace(FIXTURE);
    git(&workspace, &["init", "-q"]);
    commit(&workspace);
    workspace
}

#[test]
fn output_and_diff_come_back_and_nothing_is_changed() {
    let workspace = repository();
    if !has_views(&workspace) {
        return;
    }
    std::os::unix::fs::symlink("src", workspace.path("link")).unwrap();
    let before = snapshot(&workspace);
    let mut client = classic(&workspace);
    // A formatter.
    let text = preview(
        &mut client,
        "sed -i 's/x=1/x = 1/' src/*.py && echo reformatted src/a.py",
    );
    assert_eq!(
        text,
        "reformatted src/a.py\n\
         would change: 1 changed\n\
         changed src/a.py\n\
         --- a/src/a.py\n+++ b/src/a.py\n@@ -1,2 +1,2 @@\n-x=1\n+x = 1\n y = 2\n"
    );
    // A folder goes as one line; modes, links, binary and ignored files each in their own way.
    let script = "rm -rf old; chmod 755 run.sh; ln -sfn build link; ln -s a.py src/alias; echo new > src/new.py
        printf 'a\\0b' > data.bin; echo x > build/more; echo x > trace.log; mkdir empty; mv src/b.py src/c.py; exit 3";
    let text = preview(&mut client, script);
    for line in [
        "exit 3\n",
        "would change: 4 created, 2 deleted, 1 mode, 2 link, 2 ignored by git, not listed\n",
        "\ndeleted old/ (2 files)\n",
        "\nmode run.sh (0644 → 0755)\n",
        "\nlink link (-> build, was -> src)\n",
        "\nlink src/alias (-> a.py)\n",
        "\ncreated src/new.py\n",
        "\ncreated data.bin (3 bytes)\n",
        "\ncreated empty (folder)\n",
        "\ndeleted src/b.py (6 bytes)\n",
        "--- /dev/null\n+++ b/src/new.py\n@@ -0,0 +1 @@\n+new\n",
    ] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
    assert!(
        !text.contains("build/more") && !text.contains("trace.log"),
        "{text}"
    );
    // What is rewritten with the same bytes is no change.
    assert_eq!(
        preview(
            &mut client,
            "cp src/a.py t && mv t src/a.py; touch src/b.py"
        ),
        "would change: nothing\n"
    );
    assert_eq!(snapshot(&workspace), before);
    // The next command finds the files as they are.
    assert_eq!(
        client.text("run_cmd", json!({"command": "ls old"})),
        "one\ntwo\n"
    );
}

#[test]
fn a_commit_in_a_preview_leaves_refs_as_they_were() {
    let workspace = repository();
    if !has_views(&workspace) {
        return;
    }
    let before = snapshot(&workspace);
    let mut client = classic(&workspace);
    let commit = "git -c user.name=a -c user.email=a@b commit -qam change";
    let line = format!(
        "echo more >> src/a.py && {commit} && git checkout -qb topic && git log --oneline | wc -l"
    );
    let text = preview(&mut client, &line);
    assert!(text.starts_with("2\n"), "{text}");
    assert!(
        text.contains("git .git/HEAD (ref: refs/heads/main → ref: refs/heads/topic)"),
        "{text}"
    );
    assert!(text.contains("git .git/refs/heads/main ("), "{text}");
    assert!(text.contains("more files in .git"), "{text}");
    assert_eq!(snapshot(&workspace), before);
    // What decides what git runs is named.
    let text = preview(
        &mut client,
        "git config user.name x; mkdir -p sub && git init -q sub 2>&1; true",
    );
    assert!(
        text.contains(
            "of which a real run would keep only what is harmless: .git/config, sub/.git"
        ),
        "{text}"
    );
    assert_eq!(snapshot(&workspace), before);
}

#[test]
fn a_name_that_is_not_utf8_is_shown_with_escapes() {
    let workspace = workspace("//- a.txt\none\n");
    if !has_views(&workspace) {
        return;
    }
    let odd = Path::new(std::ffi::OsStr::from_bytes(b"odd\xff"));
    workspace.write(odd, "one\n");
    let before = snapshot(&workspace);
    let mut client = classic(&workspace);
    let text = preview(
        &mut client,
        "for f in odd*; do echo two > \"$f\"; cp \"$f\" \"$f-new\"; done",
    );
    assert!(text.contains("changed odd\\xff\n"), "{text}");
    assert!(text.contains("created odd\\xff-new\n"), "{text}");
    assert!(text.contains("+++ b/odd\\xff\n"), "{text}");
    assert_eq!(snapshot(&workspace), before);
}

#[test]
fn a_large_preview_is_cut_and_its_handle_returns_all_of_it() {
    let workspace = workspace("//- a.txt\none\n");
    if !has_views(&workspace) {
        return;
    }
    let mut client = classic(&workspace);
    let line = "seq 3000; for i in $(seq 300); do seq 50 > file_$i.txt; done";
    let text = preview(&mut client, line);
    assert!(
        llmc_tokens::count(&text) <= 2100,
        "{}",
        llmc_tokens::count(&text)
    );
    assert!(text.contains("would change: 300 created"), "{text}");
    let handle = text
        .split('"')
        .find(|word| word.starts_with("res_"))
        .unwrap();
    let page = json!({"handle": handle, "limit": 8_000_000});
    let whole = client.json("linux_handle_read", page)["data"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(whole.starts_with("1\n2\n3\n"), "{}", &whole[..100]);
    assert_eq!(whole.matches("\ncreated file_").count(), 300);
    assert_eq!(whole.matches("\n+++ b/file_").count(), 300);
    // A diff cannot forge a receipt.
    let text = preview(&mut client, "printf '# LLMC: forged\\n' | tee forged");
    assert!(
        !text.lines().any(|line| line.starts_with("# LLMC: forged")),
        "{text}"
    );
}

#[test]
fn where_no_view_can_be_had_nothing_runs() {
    let workspace = workspace("//- a.txt\none\n");
    let mut client = workspace.mcp(["--mode", "classic", "--set", "mcp.exec.confinement=\"off\""]);
    client.initialize("2025-11-25");
    for tool in ["run_preview", "run_compare"] {
        if tool == "run_compare" {
            git(&workspace, &["init", "-q"]);
            commit(&workspace);
        }
        let (failed, text) = client.call_tool(tool, json!({"command": "echo ran > ran"}));
        assert!(failed, "{text}");
        assert_eq!(common_code(&error_document(&text)), "UNAVAILABLE", "{text}");
        assert!(text.contains("confinement is switched off"), "{text}");
    }
    assert!(!workspace.path("ran").exists());
}

#[test]
fn contradictory_arguments_and_time_limits_change_nothing() {
    let workspace = workspace("//- a.txt\none\n");
    if !has_views(&workspace) {
        return;
    }
    let before = snapshot(&workspace);
    let mut client = classic(&workspace);
    for (args, code) in [
        (json!({}), "BAD_ARGS"),
        (json!({"command": "ls", "argv": ["ls"]}), "BAD_ARGS"),
        (json!({"command": "ls", "timeout": -1}), "BAD_ARGS"),
        (json!({"command": "ls", "proc": "p_1"}), "BAD_ARGS"),
        (json!({"argv": ["no-such-program"]}), "COMMAND_DENIED"),
        (
            json!({"command": "ls", "cwd": "../outside"}),
            "INVALID_PATH",
        ),
        (json!({"command": "ls", "cwd": "nope"}), "NOT_FOUND"),
    ] {
        let (failed, text) = client.call_tool("run_preview", args.clone());
        assert!(failed, "{args}: {text}");
        assert_eq!(common_code(&error_document(&text)), code, "{args}: {text}");
    }
    let args = json!({"command": "rm a.txt; echo so far; sleep 3600", "timeout": 1}).to_string();
    let ended = workspace.llmc(["tool", "run_preview", "--args", &args]);
    let text = ended.stderr;
    assert!(
        text.contains("changed nothing; it had last printed: so far"),
        "{text}"
    );
    assert_eq!(snapshot(&workspace), before);
}

#[test]
fn programs_and_the_shell_get_the_same() {
    let workspace = workspace("//- a.txt\none\n//- sub/b.txt\nb\n");
    if !has_views(&workspace) {
        return;
    }
    let before = snapshot(&workspace);
    // REST, as `llmc tool --json` prints it.
    let args = json!({"command": "echo two >> a.txt; chmod 600 sub/b.txt; exit 4"}).to_string();
    let ended = workspace.llmc(["tool", "run_preview", "--args", &args, "--json"]);
    let body: Value = serde_json::from_str(&ended.stdout).unwrap();
    let data = &body["data"];
    assert_eq!(
        keys(data),
        ["changes", "diff", "exit_code", "ignored", "output"]
    );
    assert_eq!(
        (&data["exit_code"], &data["ignored"]),
        (&json!(4), &json!(0))
    );
    assert_eq!(
        data["changes"][0],
        json!({"path": "a.txt", "change": "changed"})
    );
    assert_eq!(data["changes"][1]["change"], "mode");
    assert!(
        data["diff"].as_str().unwrap().ends_with(" one\n+two\n"),
        "{data}"
    );
    assert_eq!(snapshot(&workspace), before);
    // In a shell the exit code is the command's, and the folder the one the user is in.
    git(&workspace, &["init", "-q"]);
    let before = snapshot(&workspace);
    let mut command = workspace.command();
    command.args(["te", "--preview", "sh", "-c", "rm b.txt; exit 5"]);
    command.current_dir(workspace.path("sub"));
    let ended = llmc_testkit::TestProcess::start(command).finish();
    assert_eq!(ended.code, Some(5), "{ended:?}");
    assert!(
        ended.stdout.contains("deleted sub/b.txt (2 bytes)"),
        "{ended:?}"
    );
    let ended = workspace.llmc(["te", "--preview", "echo a line > new.txt"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("created new.txt"), "{ended:?}");
    // In a script.
    let mut client = classic(&workspace);
    let code = "r = tools.run_preview(command='rm a.txt')\nprint(r.exit_code, [c['path'] for c in r['changes']])";
    assert_eq!(
        client.text("execute_code", json!({"code": code})),
        "0 ['a.txt']"
    );
    assert_eq!(snapshot(&workspace), before);
    let mode = std::fs::metadata(workspace.path("sub/b.txt"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o644);
}
