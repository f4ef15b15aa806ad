//! What the boundary refuses is explained in the answer, on every way to a command; other failures are not.

use std::path::Path;

use llmc_testkit::{McpClient, TestWorkspace, skip};
use serde_json::json;

use crate::workspace;

/// A client of a workspace beside which there are a neighbour and a key, or none where commands have no mounts.
fn client(project: &TestWorkspace) -> Option<McpClient> {
    let home = project.base().join("home");
    std::fs::create_dir_all(home.join(".ssh")).unwrap();
    std::fs::write(home.join(".ssh/id_rsa"), "PRIVATE KEY").unwrap();
    std::fs::write(home.join("notes.txt"), "a note\n").unwrap();
    let mut client = project.mcp::<&str>([]);
    client.initialize("2025-11-25");
    let level = client.text("run_cmd", json!({"command": "ls ~/.ssh; touch ~/probe"}));
    if !level.contains("Read-only") {
        skip("mounts for commands");
        return None;
    }
    Some(client)
}

fn last_line(text: &str) -> &str {
    text.lines().next_back().unwrap_or_default()
}

#[test]
fn each_cause_is_explained_in_full_once_and_then_short() {
    let project = workspace("//- a\none\n");
    let Some(mut client) = client(&project) else {
        return;
    };
    let mut run = |line: &str| client.text("run_cmd", json!({"command": line}));
    let first =
        run("strace_like() { echo 'ptrace: Operation not permitted' >&2; false; }; strace_like");
    assert!(!first.contains("LLMC"), "{first}");
    let full = run("ln ~/notes.txt b");
    assert!(
        full.contains("is on another mount for commands: the boundary"),
        "{full}"
    );
    let short = run("ln ~/notes.txt c");
    assert!(
        last_line(&short).starts_with("# LLMC: ~/notes.txt is on another mount"),
        "{short}"
    );
    assert!(!short.contains("the boundary"), "{short}");
    // The probe of the fixture was the first of its kind.
    let write = run("echo more >>~/notes.txt");
    let allow = "~/notes.txt is read-only for commands (llmc allow --write ~/notes.txt)";
    assert!(last_line(&write).contains(allow), "{write}");
    client.finish();
}

#[test]
fn failures_of_the_commands_own_are_not_explained() {
    let project = workspace("//- a\none\n");
    let Some(mut client) = client(&project) else {
        return;
    };
    for line in [
        "cat missing",
        "cat ~/missing",
        "cat ~/.ssh/missing",
        "cd missing",
        "echo 'sh: /srv/x: Read-only file system' >&2; exit 1",
        "python3 -c 'raise OSError(30, \"Read-only file system\", \"a\")'",
        "kill 4194300",
        "ulimit -n 5; cat a b c",
    ] {
        let text = client.text("run_cmd", json!({"command": line}));
        assert!(!text.contains("# LLMC"), "{line}: {text}");
    }
    client.finish();
}

#[test]
fn a_script_learns_what_its_commands_were_refused() {
    let project = workspace("//- a\none\n");
    let Some(mut client) = client(&project) else {
        return;
    };
    for code in [
        "print(tools.run_cmd(command='echo x >~/new.txt'))",
        "import subprocess\nprint(subprocess.run('echo x >~/new.txt', shell=True, capture_output=True).stderr.decode())",
        "import subprocess\nsubprocess.run('echo x >~/new.txt', shell=True, check=True)",
    ] {
        let (_, text) = client.call_tool("execute_code", json!({"code": code}));
        assert!(
            text.contains("~/new.txt is read-only for commands"),
            "{code}: {text}"
        );
    }
    client.finish();
}

#[test]
fn what_a_command_installs_for_the_user_is_said_to_be_private() {
    let project = workspace("//- a\none\n");
    for dir in ["home/.local/bin", "home/.cache"] {
        std::fs::create_dir_all(project.base().join(dir)).unwrap();
    }
    let Some(mut client) = client(&project) else {
        return;
    };
    let mut run = |line: &str| client.text("run_cmd", json!({"command": line}));
    let cached = run("mkdir -p ~/.cache/x && echo x >~/.cache/x/y");
    assert!(!cached.contains("# LLMC"), "{cached}");
    let installed = run("echo '#!/bin/sh' >~/.local/bin/mytool");
    let wanted = "~/.local/bin/mytool went to a private layer";
    assert!(last_line(&installed).contains(wanted), "{installed}");
    assert!(!run("true").contains("private"), "said once");
    client.finish();
    assert!(!Path::new(&project.base().join("home/.local/bin/mytool")).exists());
}

#[test]
fn a_withheld_variable_is_named_where_it_is_missed() {
    let project = workspace("//- a\none\n").with_env("MY_API_KEY", "Zk3vQ9tLx7Rw2bNf8sHd");
    let Some(mut client) = client(&project) else {
        return;
    };
    for line in [
        "python3 -c 'import os; os.environ[\"MY_API_KEY\"]'",
        "echo \"[$MY_API_KEY]\"",
        ": \"${MY_API_KEY:?is not set}\"",
    ] {
        let text = client.text("run_cmd", json!({"command": line}));
        assert!(
            last_line(&text).contains("llmc allow --env MY_API_KEY"),
            "{line}: {text}"
        );
    }
    client.finish();
}

#[test]
fn a_background_process_learns_it_as_well() {
    let project = workspace("//- a\none\n//- llmc.toml\n[mcp]\nmode = \"classic\"\n");
    let Some(mut client) = client(&project) else {
        return;
    };
    let started = client.json("linux_proc_start", json!({"command": "echo x >~/new.txt"}));
    let id = started["proc_id"].as_str().unwrap().to_owned();
    let read = client.text(
        "linux_proc_read",
        json!({"proc_id": id, "until": "system", "timeout": 20}),
    );
    assert!(
        read.contains("~/new.txt is read-only for commands"),
        "{read}"
    );
    client.finish();
}
