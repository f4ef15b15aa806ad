//! `run_compare`: one command on the workspace as it was and as it is, and what differs.

use std::os::unix::fs::PermissionsExt;

use llmc_testkit::{McpClient, TestWorkspace, common_code, error_document, skip};
use serde_json::{Value, json};

use crate::history::entries;
use crate::run_preview::{has_views, snapshot};
use crate::run_pytest::with_pytest;
use crate::te_diff::{commit, git};
use crate::{classic, keys, workspace};

fn compare(client: &mut McpClient, args: Value) -> String {
    let text = client.text("run_compare", args);
    llmc_envelope::te::parse(&text).map_or(text.clone(), |parsed| parsed.body)
}

fn repository(fixture: &str) -> TestWorkspace {
    let workspace = workspace(fixture);
    git(&workspace, &["init", "-q"]);
    commit(&workspace);
    workspace
}

const TESTS: &str = "\
//- .gitignore
.venv/
__pycache__/
.pytest_cache/
//- calc.py
def add(a, b):
    return a + b

def sub(a, b):
    return b - a
//- tests/test_calc.py
from calc import add, sub

def test_add():
    assert add(1, 2) == 3

def test_sub():
    assert sub(3, 1) == 2

def test_never():
    assert add(1, 1) == 3
//- tests/test_later.py
from later import value

def test_value():
    assert value == 1
";

#[test]
fn tests_that_newly_fail_and_newly_pass_are_told() {
    let workspace = repository(TESTS);
    if !has_views(&workspace) || !with_pytest(&workspace) {
        return;
    }
    // Of the same length as before, so that only their times tell them apart.
    workspace.write(
        "calc.py",
        "def add(a, b):\n    return a - b\n\ndef sub(a, b):\n    return a - b\n",
    );
    workspace.write("later.py", "value = 1\n");
    let before = snapshot(&workspace);
    let mut client = classic(&workspace);
    let argv = json!([".venv/bin/python", "-m", "pytest", "-q"]);
    let text = compare(&mut client, json!({"argv": argv}));
    assert!(text.starts_with("HEAD ("), "{text}");
    assert!(text.contains("): exit 1; now: exit 1\n"), "{text}");
    for line in [
        "\npytest: 2 failed, 1 error, 1 passed at the base; 2 failed, 2 passed now\n",
        "\nnewly failing (1):\nFAIL tests/test_calc.py::test_add",
        "\nnewly passing (1): tests/test_calc.py::test_sub\n",
        "\ncould not be collected at the base (1): tests/test_later.py\n",
        "\nfailing in both (1): tests/test_calc.py::test_never\n",
    ] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
    assert_eq!(snapshot(&workspace), before);
    // The other way round: what the change would undo, with fields for programs.
    git(&workspace, &["add", "-A"]);
    git(&workspace, &["commit", "-qm", "two"]);
    let args = json!({"argv": argv, "base": "HEAD~1"}).to_string();
    let ended = workspace.llmc(["tool", "run_compare", "--args", &args, "--json"]);
    let body: Value = serde_json::from_str(&ended.stdout).unwrap();
    let data = &body["data"];
    assert_eq!(data["kind"], "tests", "{data}");
    assert_eq!(
        data["newly_failing"],
        json!(["tests/test_calc.py::test_add"])
    );
    assert_eq!(
        data["not_collected_at_base"],
        json!(["tests/test_later.py"])
    );
    assert_eq!(
        (&data["exit_code"], &data["base_exit_code"]),
        (&json!(1), &json!(1))
    );
    assert!(body["meta"]["handle"].is_string(), "{body}");
}

#[test]
fn the_base_has_the_tracked_files_and_ignored_ones_as_they_are() {
    let workspace = repository(
        "//- .gitignore\nbuild/\n//- changed\nbase\n//- deleted/file\nbase\n//- same\nsame\n//- tool\n#!/bin/sh\n\
         //- was_file\nbase\n//- was_dir/file\nbase\n",
    );
    std::os::unix::fs::symlink("same", workspace.path("link")).unwrap();
    if !has_views(&workspace) {
        return;
    }
    commit(&workspace);
    workspace.write("changed", "now\n");
    std::fs::remove_dir_all(workspace.path("deleted")).unwrap();
    workspace.write("untracked", "now\n");
    workspace.write("package/__init__.py", "now\n");
    workspace.write("package/__pycache__/x.pyc", "now\n");
    workspace.write("mixed/new", "now\n");
    workspace.write("mixed/build/out", "ignored\n");
    workspace.write("build/out", "ignored\n");
    std::fs::remove_file(workspace.path("was_file")).unwrap();
    workspace.write("was_file/inner", "now\n");
    std::fs::remove_dir_all(workspace.path("was_dir")).unwrap();
    workspace.write("was_dir", "now\n");
    std::fs::remove_file(workspace.path("link")).unwrap();
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(workspace.path("tool"), mode).unwrap();
    let before = snapshot(&workspace);
    let mut client = classic(&workspace);
    let line = "find . -path ./.git -prune -o -path ./.llmc -prune -o -type f -print | LC_ALL=C sort | xargs grep -H .; test -x tool && echo tool; readlink link; test -d package && echo package; true";
    let args = json!({"command": format!("{{ {line}; }} > /tmp/list; cat /tmp/list")});
    let text = compare(&mut client, args);
    for gone in [
        "-./changed:base",
        "-./deleted/file:base",
        "-./was_file:base",
        "-./was_dir/file:base",
        "-same",
        "+./changed:now",
        "+./untracked:now",
        "+./package/__init__.py:now",
        "+./package/__pycache__/x.pyc:now",
        "+./mixed/new:now",
        "+./was_file/inner:now",
        "+./was_dir:now",
        "+tool",
        "+package",
    ] {
        assert!(text.lines().any(|line| line == gone), "{gone} in {text}");
    }
    let changed = |name: &str| {
        text.lines()
            .any(|line| line.starts_with(['+', '-']) && line.contains(name))
    };
    assert!(!changed("build/out") && !changed("./same"), "{text}");
    assert_eq!(snapshot(&workspace), before);
    // Neither run sees what the other wrote.
    let args = json!({"command": "ls mark 2>/dev/null; touch mark; echo done"});
    assert!(compare(&mut client, args).ends_with("the output is the same\n"));
    // Exit codes are told where nothing else differs.
    let text = compare(&mut client, json!({"command": "test -e untracked"}));
    assert!(
        text.contains("): exit 1; now: exit 0\nthe output is the same\n"),
        "{text}"
    );
    // A program that the base does not have.
    workspace.write("script.sh", "#!/bin/sh\necho hi\n");
    std::fs::set_permissions(
        workspace.path("script.sh"),
        std::fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    let text = compare(&mut client, json!({"argv": ["./script.sh"]}));
    assert!(text.contains("): exit 127; now: exit 0\n"), "{text}");
}

#[test]
fn environments_and_build_folders_are_as_they_are_now_though_git_does_not_ignore_them() {
    // As in a real project: git ignores a part of what is in the environment.
    let workspace =
        repository("//- .gitignore\n*.pyc\nbuild/\n//- a.txt\none\n//- tracked/CACHEDIR.TAG\nx\n");
    if !has_views(&workspace) {
        return;
    }
    for (path, text) in [
        (".venv/pyvenv.cfg", "home = /usr/bin\n"),
        (".venv/lib/site.py", "now\n"),
        (".venv/lib/site.pyc", "now\n"),
        ("web/node_modules/left/index.js", "now\n"),
        ("web/index.js", "now\n"),
        (
            "out/CACHEDIR.TAG",
            "Signature: 8a477f597d28d172789f06886806bc55\n",
        ),
        ("out/debug/app", "now\n"),
        ("pkg.egg-info/PKG-INFO", "now\n"),
        ("plain/file", "now\n"),
        ("tracked/new", "now\n"),
    ] {
        workspace.write(path, text);
    }
    let before = snapshot(&workspace);
    let mut client = classic(&workspace);
    let list =
        "find . -path ./.git -prune -o -path ./.llmc -prune -o -type f -print | LC_ALL=C sort";
    let whole = client.text("run_compare", json!({"command": list}));
    let text = llmc_envelope::te::parse(&whole).map_or(whole.clone(), |parsed| parsed.body);
    let added: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("+./"))
        .collect();
    assert_eq!(
        added,
        ["+./plain/file", "+./tracked/new", "+./web/index.js"],
        "{text}"
    );
    assert!(
        whole
            .contains("not in git, so the base has them as they are now: .venv, out, pkg.egg-info, web/node_modules"),
        "{whole}"
    );
    assert_eq!(snapshot(&workspace), before);
    // The same holds before an entry of the history that made one.
    client.text(
        "run_cmd",
        json!({"command": "mkdir env; touch env/pyvenv.cfg env/made; echo two > a.txt"}),
    );
    let calls = entries(&workspace);
    let entry = calls
        .iter()
        .find(|entry| entry["source"] == "call")
        .unwrap();
    let text = compare(
        &mut client,
        json!({"command": "ls env; cat a.txt", "base": entry["entry"]}),
    );
    assert!(
        text.contains(" made\n") && text.contains("-one\n+two\n"),
        "{text}"
    );
}

#[test]
fn tests_run_at_the_base_with_an_environment_that_git_does_not_ignore() {
    let workspace = repository(&TESTS.replace(".venv/\n", ""));
    if !has_views(&workspace) || !with_pytest(&workspace) {
        return;
    }
    workspace.write(
        "calc.py",
        "def add(a, b):\n    return a - b\n\ndef sub(a, b):\n    return a - b\n",
    );
    let mut client = classic(&workspace);
    let text = compare(
        &mut client,
        json!({"command": ".venv/bin/python -m pytest -q tests/test_calc.py"}),
    );
    for line in [
        "\npytest: 2 failed, 1 passed at the base; 2 failed, 1 passed now\n",
        "\nnewly failing (1):\nFAIL tests/test_calc.py::test_add",
    ] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
}

#[test]
fn a_base_without_a_test_run_is_not_compared() {
    let workspace =
        repository("//- run\n#!/bin/sh\necho \"run: No module named pytest\"\nexit 1\n");
    if !has_views(&workspace) {
        return;
    }
    let summary = "#!/bin/sh\necho '=== short test summary info ==='\n\
        echo 'FAILED tests/test_a.py::test_one - assert 0'\necho '=== 1 failed, 832 passed in 0.01s ==='\nexit 1\n";
    workspace.write("run", summary);
    let mut client = classic(&workspace);
    let text = compare(&mut client, json!({"command": "sh run"}));
    for line in [
        "): exit 1; now: exit 1\npytest: cannot compare: no test run at the base\n",
        "\nfailing now, not run at the base (1):\nFAIL tests/test_a.py::test_one",
        "\n[last lines at the base, exit 1]\nrun: No module named pytest\n",
    ] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
    assert!(!text.contains("newly"), "{text}");
    let ended = workspace.llmc(["te", "--compare", "--json", "sh", "run"]);
    let body: Value = serde_json::from_str(&ended.stdout).unwrap();
    let data = &body["data"];
    assert_eq!(data["cannot_compare"], "no test run at the base", "{data}");
    assert_eq!(data["newly_failing"], json!([]));
    assert_eq!(
        data["failing_unrun_at_base"],
        json!(["tests/test_a.py::test_one"])
    );
}

#[test]
fn shifted_diagnostics_of_a_compiler_are_no_change() {
    let workspace =
        repository("//- a.c\nint main(void) {\n    int unused;\n    return missing;\n}\n");
    if !has_views(&workspace) {
        return;
    }
    if !std::path::Path::new("/usr/bin/gcc").exists() {
        return skip("gcc");
    }
    workspace.write(
        "a.c",
        "/* two\n   lines */\nint main(void) {\n    int unused;\n    return other;\n}\n",
    );
    let mut client = classic(&workspace);
    let text = compare(&mut client, json!({"command": "gcc -Wall -c a.c -o a.o"}));
    assert!(
        text.contains("1 new diagnostic, 1 gone, 1 unchanged\n"),
        "{text}"
    );
    assert!(
        text.contains("new (1):\na.c:5: error: 'other' undeclared")
            || text.contains("‘other’ undeclared"),
        "{text}"
    );
    assert!(!text.contains("unused"), "{text}");
}

#[test]
fn a_base_that_is_none_runs_nothing() {
    let plain = workspace("//- a.txt\none\n");
    let mut client = classic(&plain);
    let refused = |client: &mut McpClient, args: Value, code: &str| {
        let (failed, text) = client.call_tool("run_compare", args.clone());
        assert!(failed, "{args}: {text}");
        assert_eq!(common_code(&error_document(&text)), code, "{args}: {text}");
        text
    };
    let text = refused(&mut client, json!({"command": "touch ran"}), "NOT_FOUND");
    assert!(text.contains("is in no git repository"), "{text}");
    let empty = workspace("//- a.txt\none\n");
    git(&empty, &["init", "-q"]);
    let mut client = classic(&empty);
    refused(&mut client, json!({"command": "touch ran"}), "NOT_FOUND");
    let workspace = repository("//- a.txt\none\n");
    if !has_views(&workspace) {
        return;
    }
    workspace.write("new/file", "now\n");
    let before = snapshot(&workspace);
    let mut client = classic(&workspace);
    for base in [
        "no-such-branch",
        "HEAD~99",
        "--all",
        "-h",
        "HEAD:a.txt",
        "h_01ABC",
        "h99",
        "a\nb",
        &"f".repeat(40),
    ] {
        refused(
            &mut client,
            json!({"command": "touch ran", "base": base}),
            "NOT_FOUND",
        );
    }
    let text = refused(
        &mut client,
        json!({"command": "touch ran", "cwd": "new"}),
        "NOT_FOUND",
    );
    assert!(text.contains("new is not there at HEAD ("), "{text}");
    // In a shell, where nothing can wait on for it, it ends with its call.
    let args =
        json!({"command": "rm -rf a.txt new; echo one; echo hangs here; sleep 3600", "timeout": 1});
    let ended = workspace.llmc(["tool", "run_compare", "--args", &args.to_string()]);
    let text = ended.stderr;
    assert!(
        text.contains("the run at HEAD (")
            && text.contains(
                ") was ended after 1 s and changed nothing; it had last printed: hangs here"
            ),
        "{text}"
    );
    assert!(text.contains("at most 600 s"), "{text}");
    assert_eq!(snapshot(&workspace), before);
}

#[test]
fn nothing_of_the_repository_runs_on_the_way_to_its_base() {
    let workspace = repository("//- a.txt\none\n//- .gitattributes\n* filter=evil diff=evil\n");
    if !has_views(&workspace) {
        return;
    }
    let ran = workspace.outside("ran");
    let touch = format!("touch {}", ran.display());
    for key in [
        "filter.evil.smudge",
        "filter.evil.clean",
        "filter.evil.process",
        "diff.evil.textconv",
        "diff.evil.command",
        "core.fsmonitor",
        "core.pager",
        "core.sshCommand",
    ] {
        git(&workspace, &["config", key, &touch]);
    }
    workspace.write("a.txt", "two\n");
    let mut client = classic(&workspace);
    let text = compare(&mut client, json!({"command": "cat a.txt"}));
    assert!(text.contains("-one\n+two\n"), "{text}");
    assert!(!ran.exists());
    workspace.assert_outside_untouched();
}

#[test]
fn a_nested_repository_is_compared_with_its_own_commits() {
    let workspace = repository("//- .gitignore\nsub/\n//- a.txt\nold a\n");
    if !has_views(&workspace) {
        return;
    }
    workspace.write("sub/b.txt", "old b\n");
    let sub = workspace.path("sub");
    for words in [
        vec!["init", "-q", "sub"],
        vec!["-C", "sub", "add", "-A"],
        vec!["-C", "sub", "commit", "-qm", "b"],
    ] {
        git(&workspace, &words);
    }
    std::fs::write(sub.join("b.txt"), "new b\n").unwrap();
    workspace.write("a.txt", "new a\n");
    let mut client = classic(&workspace);
    let text = compare(
        &mut client,
        json!({"command": "cat b.txt ../a.txt", "cwd": "sub"}),
    );
    assert!(text.contains("-old b\n+new b\n new a\n"), "{text}");
    let text = compare(&mut client, json!({"command": "cat sub/b.txt a.txt"}));
    assert!(text.contains(" new b\n-old a\n+new a\n"), "{text}");
}

#[test]
fn a_shell_gets_the_comparison_and_the_exit_code_of_now() {
    let workspace = repository("//- a.txt\none\n");
    if !has_views(&workspace) {
        return;
    }
    workspace.write("a.txt", "two\n");
    let ended = workspace.llmc([
        "te",
        "--compare",
        "--base",
        "HEAD",
        "sh",
        "-c",
        "cat a.txt; exit 7",
    ]);
    assert_eq!(ended.code, Some(7), "{ended:?}");
    assert!(ended.stdout.contains("-one\n+two\n"), "{ended:?}");
    let ended = workspace.llmc(["te", "--compare", "--json", "cat", "a.txt"]);
    let body: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(
        keys(&body["data"]),
        [
            "base",
            "base_exit_code",
            "cannot_compare",
            "diff",
            "exit_code",
            "failing_in_both",
            "failing_unrun_at_base",
            "flaky",
            "gone",
            "kind",
            "new",
            "new_failing_at_base",
            "new_passing_at_base",
            "new_tests",
            "newly_failing",
            "newly_passing",
            "not_collected",
            "not_collected_at_base",
            "not_run",
        ]
    );
    assert_eq!(body["data"]["kind"], "output");
}

#[test]
fn an_entry_of_the_history_is_a_base_too() {
    let workspace = workspace("//- a.txt\none\n//- sub/old.txt\nold\n");
    if !has_views(&workspace) {
        return;
    }
    let mut client = classic(&workspace);
    let change = "echo two > a.txt; echo made > made.txt; rm -r sub; mkdir new; echo x > new/x; ln -s a.txt link";
    client.text("run_cmd", json!({"command": change}));
    client.text("run_cmd", json!({"command": "echo three > a.txt"}));
    let calls = entries(&workspace);
    let calls = calls.iter().filter(|entry| entry["source"] == "call");
    let ids: Vec<&str> = calls
        .map(|entry| entry["entry"].as_str().unwrap())
        .collect();
    let before = snapshot(&workspace);
    let shown = "cat a.txt; find . -path ./.llmc -prune -o -type f -print -o -type l -print | sort";
    let text = compare(&mut client, json!({"command": shown, "base": ids[1]}));
    assert!(
        text.contains(&format!("before {}: exit 0", ids[1])),
        "{text}"
    );
    for line in [
        "-one",
        "+three",
        "-./sub/old.txt",
        "+./made.txt",
        "+./new/x",
        "+./link",
    ] {
        assert!(text.lines().any(|said| said == line), "{line}: {text}");
    }
    let text = compare(&mut client, json!({"command": shown, "base": ids[0]}));
    assert!(text.contains("-two") && text.contains("+three"), "{text}");
    assert!(!text.contains("+./made.txt"), "{text}");
    assert_eq!(snapshot(&workspace), before);
}
