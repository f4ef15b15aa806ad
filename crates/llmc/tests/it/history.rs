//! Every call that changes the workspace leaves an entry, and undo gives back what was there.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use llmc_testkit::{McpClient, TestProcess, TestWorkspace};
use serde_json::{Value, json};

use crate::procs::eventually;
use crate::{classic, workspace};

pub(crate) const FIXTURE: &str = "\
//- a.txt
one
two
//- b.txt
bee
//- src/main.py
print(1)
//- src/deep/util.py
x = 1
//- run.sh
echo hello
";

/// Everything in a workspace: kind, mode, and content or target of each path.
pub(crate) fn state(workspace: &TestWorkspace) -> BTreeMap<Vec<u8>, (char, u32, Vec<u8>)> {
    fn look(dir: &Path, root: &Path, found: &mut BTreeMap<Vec<u8>, (char, u32, Vec<u8>)>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap();
            if name == Path::new(".llmc") || name == Path::new(".git") {
                continue;
            }
            let status = path.symlink_metadata().unwrap();
            let mode = status.permissions().mode() & 0o7777;
            let (kind, mode, content) = if status.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                ('l', 0, target.as_os_str().as_bytes().to_vec())
            } else if status.is_dir() {
                ('d', mode, Vec::new())
            } else {
                ('f', mode, fs::read(&path).unwrap())
            };
            found.insert(name.as_os_str().as_bytes().to_vec(), (kind, mode, content));
            if status.is_dir() {
                look(&path, root, found);
            }
        }
    }
    let mut found = BTreeMap::new();
    look(&workspace.root(), &workspace.root(), &mut found);
    found
}

/// The entries, newest first, as the user at a shell reads them.
pub(crate) fn entries(workspace: &TestWorkspace) -> Vec<Value> {
    let listed = workspace.llmc(["history", "--json", "-n", "500"]);
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    listed["entries"].as_array().unwrap().clone()
}

/// Entries of calls, newest first.
pub(crate) fn calls(workspace: &TestWorkspace) -> Vec<Value> {
    let mut list = entries(workspace);
    list.retain(|entry| entry["source"] == "call");
    list
}

pub(crate) fn id(entry: &Value) -> String {
    entry["entry"].as_str().unwrap().to_owned()
}

pub(crate) fn git(workspace: &TestWorkspace, args: &[&str]) -> String {
    let mut command = workspace.command_of("git");
    command
        .args(["-c", "user.name=A", "-c", "user.email=a@example.com"])
        .args(["-c", "init.defaultBranch=main"])
        .args(args);
    let done = TestProcess::start(command).finish();
    assert_eq!(done.code, Some(0), "git {args:?}: {}", done.stderr);
    done.stdout
}

/// Makes a call, checks that it left one entry of its own, undoes it, and undoes the undo.
fn there_and_back(workspace: &TestWorkspace, client: &mut McpClient, name: &str, args: Value) {
    let before = state(workspace);
    let (failed, text) = client.call_tool(name, args.clone());
    assert!(!failed, "{name} {args}: {text}");
    assert!(
        !text.contains("not undoable") && !text.contains("not_undoable"),
        "{args}: {text}"
    );
    let after = state(workspace);
    assert_ne!(before, after, "{name} {args} changed nothing");
    let newest = entries(workspace).remove(0);
    assert_eq!(newest["source"], "call", "{args}: {newest}");
    assert_eq!(newest["tool"], name, "{args}: {newest}");
    let said = client.text("undo", json!({"entry": id(&newest)}));
    assert_eq!(state(workspace), before, "{name} {args}: {said}");
    let undo = entries(workspace).remove(0);
    assert_eq!(undo["source"], "undo", "{args}: {undo}");
    assert_eq!(undo["undoes"], json!([id(&newest)]), "{args}");
    let said = client.text("undo", json!({"entry": id(&undo)}));
    assert_eq!(state(workspace), after, "{name} {args}: {said}");
}

#[test]
fn what_file_tools_change_can_be_undone_and_undone_again() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    let patch = "--- a/b.txt\n+++ b/b.txt\n@@ -1 +1 @@\n-bee\n+bumblebee\n\
        --- /dev/null\n+++ b/lib/new.txt\n@@ -0,0 +1 @@\n+new\n\
        --- a/run.sh\n+++ /dev/null\n@@ -1 +0,0 @@\n-echo hello\n";
    for (name, args) in [
        (
            "linux_fs_write",
            json!({"path": "a.txt", "content": "other\n"}),
        ),
        (
            "linux_fs_write",
            json!({"path": "new/deep/c.txt", "content": "c\n"}),
        ),
        (
            "linux_fs_write",
            json!({"path": "a.txt", "content": "more\n", "mode": "append"}),
        ),
        (
            "linux_fs_edit",
            json!({"path": "src/main.py", "old_text": "1", "new_text": "2"}),
        ),
        (
            "linux_fs_move",
            json!({"source": "a.txt", "target": "src/a.txt"}),
        ),
        (
            "linux_fs_move",
            json!({"source": "src", "target": "source"}),
        ),
        ("linux_fs_mkdirs", json!({"path": "empty/one"})),
        ("repo_write_patch", json!({"patch": patch})),
        ("linux_fs_delete", json!({"path": "b.txt"})),
        (
            "linux_fs_delete",
            json!({"path": "source", "recursive": true}),
        ),
    ] {
        there_and_back(&workspace, &mut client, name, args);
    }
}

#[test]
fn what_a_command_changes_can_be_undone_whatever_it_did() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    for command in [
        "sed -i s/one/1/ a.txt",
        "echo more >> a.txt; rm b.txt",
        "chmod 755 run.sh",
        "chmod 700 src",
        "ln -s a.txt link; ln -s nowhere broken",
        "ln -sfn src/main.py link",
        "mv src source",
        "rm -rf source",
        "mkdir -p x/y/z && echo z > x/y/z/file",
        "rm a.txt && mkdir a.txt && echo in > a.txt/inside",
        "rm -rf x && ln -s run.sh x",
        "mkdir empty",
        "printf 'a\\0b' > binary; : > nothing",
        "printf x > \"$(printf 'bad\\377name')\"",
        "for i in 1 2 3 4 5 6 7 8 9; do echo $i > many$i; done",
        "cp run.sh copy.sh; printf '#!/bin/sh\\n' > run.sh; chmod +x run.sh",
    ] {
        there_and_back(
            &workspace,
            &mut client,
            "run_cmd",
            json!({"command": command}),
        );
    }
}

#[test]
fn a_command_that_changes_nothing_leaves_no_entry() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    assert_eq!(
        client.text("run_cmd", json!({"command": "cat b.txt"})),
        "bee\n"
    );
    client.text("run_cmd", json!({"command": "touch a.txt"}));
    client.text("read_file", json!({"path": "a.txt"}));
    client.assert_code(
        "linux_fs_edit",
        json!({"path": "a.txt", "old_text": "absent", "new_text": "x"}),
        "NO_MATCH",
    );
    assert_eq!(entries(&workspace), [] as [Value; 0]);
    client.assert_code("undo", json!({}), "NOT_FOUND");
}

#[test]
fn a_script_is_one_entry_with_its_steps() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    let before = state(&workspace);
    let code = "\
import os, subprocess
tools.linux_fs_edit(path='a.txt', old_text='one', new_text='1')
open('made.txt', 'w').write('made\\n')
os.remove('b.txt')
tools.run_cmd(command='echo more >> run.sh')
subprocess.run('mkdir -p d && echo d > d/e', shell=True)
print(tools.read_file(path='a.txt'))
";
    client.text("execute_code", json!({"code": code}));
    let list = entries(&workspace);
    assert_eq!(list.len(), 1, "{list:?}");
    assert_eq!(list[0]["tool"], "execute_code");
    let shown = workspace.llmc(["history", "show", &id(&list[0]), "--json"]);
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    let steps = shown["steps"].to_string();
    for step in [
        "linux_fs_edit(a.txt)",
        "made.txt",
        "b.txt",
        "run_cmd(echo more",
    ] {
        assert!(steps.contains(step), "{step}: {steps}");
    }
    client.text("undo", json!({}));
    assert_eq!(state(&workspace), before);
    // One that fails half way has changed something, too.
    let code = "open('half.txt', 'w').write('x')\nraise ValueError('stop')\n";
    let (failed, _) = client.call_tool("execute_code", json!({"code": code}));
    assert!(failed);
    assert_eq!(workspace.read("half.txt"), "x");
    client.text("undo", json!({}));
    assert_eq!(state(&workspace), before);
    // One that only looks leaves none.
    let count = entries(&workspace).len();
    client.text(
        "execute_code",
        json!({"code": "print(open('a.txt').read())"}),
    );
    assert_eq!(entries(&workspace).len(), count);
}

#[test]
fn scripts_of_other_modes_reach_history_and_undo() {
    let workspace = workspace(FIXTURE);
    let mut client = workspace.mcp(["--mode", "hybrid"]);
    client.initialize("2025-11-25");
    client.text("linux_fs_write", json!({"path": "a.txt", "content": "x"}));
    let code = "\
found = tools.history(path='a.txt')
print(found.entries[0].entry, found.entries[0].tool)
print(tools.history(entry=found.entries[0].entry).diff)
print(tools.undo(entry=found.entries[0].entry).restored)
";
    let text = client.text("execute_code", json!({"code": code}));
    assert!(
        text.contains("linux_fs_write") && text.contains("-one"),
        "{text}"
    );
    assert_eq!(workspace.read("a.txt"), "one\ntwo\n");
    let (failed, text) =
        client.call_tool("execute_code", json!({"code": "tools.undo(entry='h999')"}));
    assert!(failed && text.contains("NOT_FOUND"), "{text}");
}

/// `print(result)` in a script is what a model reads of the same call, in both backends.
#[test]
fn scripts_print_the_text_of_documents() {
    let workspace = workspace(FIXTURE);
    git(&workspace, &["init", "-q"]);
    crate::te_diff::commit(&workspace);
    let mut client = classic(&workspace);
    client.text("linux_fs_write", json!({"path": "a.txt", "content": "x"}));
    let entry = id(&calls(&workspace)[0]);
    let mut cases = vec![
        ("history", json!({}), String::new()),
        (
            "history",
            json!({"entry": entry}),
            format!("entry='{entry}'"),
        ),
        (
            "undo",
            json!({"entry": entry, "dry_run": true}),
            format!("entry='{entry}', dry_run=True"),
        ),
    ];
    if crate::run_preview::has_views(&workspace) {
        for (name, command) in [
            ("run_preview", "echo hello; rm b.txt"),
            ("run_compare", "cat a.txt"),
        ] {
            cases.push((
                name,
                json!({"command": command}),
                format!("command='{command}'"),
            ));
        }
    }
    let mut scripts = workspace.mcp(["--mode", "hybrid"]);
    scripts.initialize("2025-11-25");
    for (name, args, written) in &cases {
        let read = client.text(name, args.clone());
        // The header of a cut answer is the answer's, not the value's.
        let read = llmc_envelope::te::parse(&read).map_or(read.clone(), |text| text.body);
        for code in [
            format!("print(tools.{name}({written}))"),
            format!("tools.{name}({written})"),
        ] {
            let printed = scripts.text("execute_code", json!({"code": code}));
            assert_eq!(printed.trim_end(), read.trim_end(), "{code}");
        }
    }
    let code = format!("print(tools.undo(entry='{entry}', dry_run=True)['restored'])");
    let printed = scripts.text("execute_code", json!({"code": code}));
    assert_eq!(printed, "['a.txt']");
}

#[test]
fn a_checkout_is_undone_in_files_and_not_in_git() {
    let workspace = workspace(FIXTURE);
    git(&workspace, &["init", "-q"]);
    git(&workspace, &["add", "-A"]);
    git(&workspace, &["commit", "-q", "-m", "one"]);
    git(&workspace, &["checkout", "-q", "-b", "other"]);
    workspace.write("a.txt", "other\n");
    fs::remove_file(workspace.path("b.txt")).unwrap();
    git(&workspace, &["commit", "-q", "-am", "two"]);
    git(&workspace, &["checkout", "-q", "main"]);
    let before = state(&workspace);
    let mut client = classic(&workspace);
    client.text("run_cmd", json!({"command": "git checkout -q other"}));
    assert_eq!(workspace.read("a.txt"), "other\n");
    let newest = entries(&workspace).remove(0);
    assert!(newest["head"].is_array(), "{newest}");
    let said = client.text("undo", json!({}));
    assert_eq!(state(&workspace), before);
    assert!(said.contains("git "), "{said}");
    assert_eq!(git(&workspace, &["branch", "--show-current"]), "other\n");
}

#[test]
fn a_background_process_has_an_entry_when_it_ends() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    let before = state(&workspace);
    let command = "read go; echo made > made.txt; rm b.txt";
    let started = client.json("linux_proc_start", json!({"command": command}));
    let proc_id = started["proc_id"].as_str().unwrap();
    client.json(
        "linux_proc_send",
        json!({"proc_id": proc_id, "input": "go\n"}),
    );
    eventually("an entry of the process", || !calls(&workspace).is_empty());
    let newest = calls(&workspace).remove(0);
    assert_eq!(newest["tool"], "linux_proc_start", "{newest}");
    assert_eq!(
        (&newest["created"], &newest["deleted"]),
        (&json!(1), &json!(1)),
        "{newest}"
    );
    client.text("undo", json!({"entry": id(&newest)}));
    assert_eq!(state(&workspace), before);
}

#[test]
fn a_command_that_runs_on_has_entries_when_it_is_waited_for() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    let before = state(&workspace);
    let command =
        "echo 1 > first.txt; until [ -e a.txt.go ]; do sleep 0.05; done; echo 2 > second.txt";
    let args = json!({"command": command, "timeout": 2});
    let text = client.text("run_cmd", args);
    let (_, rest) = text
        .split_once("run_cmd proc=")
        .unwrap_or_else(|| panic!("{text}"));
    let proc_id = rest.split(' ').next().unwrap().to_owned();
    let first = calls(&workspace);
    assert_eq!(first.len(), 1, "{first:?}");
    assert_eq!(first[0]["created"], 1, "{first:?}");
    workspace.write("a.txt.go", "");
    client.text("run_cmd", json!({"proc": proc_id, "timeout": 20}));
    let both = calls(&workspace);
    assert_eq!(both.len(), 2, "{both:?}");
    assert_eq!(both[0]["created"], 2, "{both:?}");
    let range = format!("{}..{}", id(&both[1]), id(&both[0]));
    client.text("undo", json!({"entry": range}));
    assert_eq!(state(&workspace), before);
}

#[test]
fn what_others_change_is_recorded_as_theirs() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    client.text("run_cmd", json!({"command": "echo x > mine.txt"}));
    workspace.write("a.txt", "by an editor\n");
    client.text("run_cmd", json!({"command": "echo y >> mine.txt"}));
    let list = entries(&workspace);
    let sources: Vec<&str> = list
        .iter()
        .map(|entry| entry["source"].as_str().unwrap())
        .collect();
    assert_eq!(sources, ["call", "outside", "call"], "{list:?}");
    assert_eq!(list[1]["changed"], 1, "{list:?}");
    // Without a name, undo takes the newest call, and then the one before: never the editor's work.
    client.text("undo", json!({}));
    assert_eq!(workspace.read("mine.txt"), "x\n");
    client.text("undo", json!({}));
    assert!(!workspace.path("mine.txt").exists());
    assert_eq!(workspace.read("a.txt"), "by an editor\n");
    client.assert_code("undo", json!({}), "NOT_FOUND");
}

#[test]
fn two_servers_record_into_one_history() {
    let workspace = workspace(FIXTURE);
    let (mut one, mut two) = (classic(&workspace), classic(&workspace));
    for n in 0..6 {
        one.text(
            "linux_fs_write",
            json!({"path": format!("one{n}"), "content": "1"}),
        );
        two.text("run_cmd", json!({"command": format!("echo 2 > two{n}")}));
    }
    let list = entries(&workspace);
    assert_eq!(list.len(), 12, "{list:?}");
    assert!(list.iter().all(|entry| entry["created"] == 1), "{list:?}");
    // One sees and undoes what the other did.
    one.text("undo", json!({"entry": id(&list[0])}));
    assert!(!workspace.path("two5").exists());
    two.text("undo", json!({"entry": id(&list[1])}));
    assert!(!workspace.path("one5").exists());
}

#[test]
fn ignored_and_secret_files_are_not_kept_and_the_answer_says_so() {
    let fixture = format!("{FIXTURE}//- .gitignore\nbuild/\n//- .env\nSECRET=swordfish-77\n");
    let workspace = workspace(&fixture);
    let mut client = classic(&workspace);
    let args = json!({"path": "build/out.txt", "content": "x"});
    let answer = client.json("linux_fs_write", args);
    assert!(
        answer["not_undoable"].as_str().unwrap().contains("ignored"),
        "{answer}"
    );
    client.text(
        "run_cmd",
        json!({"command": "echo SECRET=swordfish-78 > .env; echo x > a.txt"}),
    );
    let entry = id(&calls(&workspace)[0]);
    let shown = workspace.llmc(["history", "show", &entry]);
    assert!(!shown.stdout.contains("swordfish"), "{}", shown.stdout);
    assert!(shown.stdout.contains("-one"), "{}", shown.stdout);
    assert!(
        !client
            .text("history", json!({"entry": entry}))
            .contains("swordfish")
    );
    drop(client);
    let mut stores = vec![workspace.path(".llmc")];
    while let Some(dir) = stores.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() && !path.is_symlink() {
                stores.push(path);
            } else if path.to_string_lossy().contains("history") {
                let bytes = fs::read(&path).unwrap();
                let found = bytes.windows(9).any(|window| window == b"swordfish");
                assert!(!found, "{}", path.display());
            }
        }
    }
}

#[test]
fn undo_leaves_protected_names_alone() {
    let workspace = workspace(&format!(
        "{FIXTURE}//- llmc.toml\n[mcp]\nmode = \"classic\"\n"
    ));
    git(&workspace, &["init", "-q"]);
    let mut client = classic(&workspace);
    let config = fs::read(workspace.path(".git/config")).unwrap();
    client.text("run_cmd", json!({"command": "git add -A; echo x > a.txt"}));
    let index = fs::read(workspace.path(".git/index")).unwrap();
    client.text("undo", json!({}));
    assert_eq!(workspace.read("a.txt"), "one\ntwo\n");
    assert_eq!(fs::read(workspace.path(".git/index")).unwrap(), index);
    assert_eq!(fs::read(workspace.path(".git/config")).unwrap(), config);
    for entry in entries(&workspace) {
        let shown = workspace.llmc(["history", "show", &id(&entry)]);
        assert!(!shown.stdout.contains(".git/"), "{}", shown.stdout);
    }
}

#[test]
fn a_history_that_is_switched_off_is_silent() {
    let off = "//- llmc.toml\n[mcp]\nmode = \"classic\"\n[mcp.history]\nenabled = false\n";
    let workspace = workspace(&format!("{FIXTURE}{off}"));
    let mut client = classic(&workspace);
    let answer = client.json("linux_fs_write", json!({"path": "a.txt", "content": "x"}));
    assert!(answer.get("not_undoable").is_none(), "{answer}");
    assert_eq!(
        client.text("run_cmd", json!({"command": "echo x > b.txt; echo hi"})),
        "hi\n"
    );
    client.assert_code("history", json!({}), "UNAVAILABLE");
    client.assert_code("undo", json!({}), "UNAVAILABLE");
    // A repository cannot switch it off by itself.
    let workspace = workspace.untrusted();
    workspace.write(
        "llmc.toml",
        "[mcp]\nmode = \"classic\"\n[mcp.history]\nenabled = false\nkeep_days = 1\n",
    );
    let mut client = classic(&workspace);
    client.text("linux_fs_write", json!({"path": "a.txt", "content": "y"}));
    client.text("undo", json!({}));
    assert_eq!(workspace.read("a.txt"), "x");
}

#[test]
fn a_damaged_store_stops_no_call() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    client.text("linux_fs_write", json!({"path": "a.txt", "content": "x"}));
    drop(client);
    let mut damaged = 0;
    for entry in fs::read_dir(workspace.path(".llmc")).unwrap().flatten() {
        let path = entry.path();
        if path.is_file() && path.to_string_lossy().contains("history") {
            fs::write(&path, "this is no database").unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 0, "no store was found");
    let mut client = classic(&workspace);
    client.text("linux_fs_write", json!({"path": "a.txt", "content": "y"}));
    client.text("run_cmd", json!({"command": "echo z > b.txt"}));
    assert_eq!(
        (workspace.read("a.txt"), workspace.read("b.txt")),
        ("y".into(), "z\n".into())
    );
}
