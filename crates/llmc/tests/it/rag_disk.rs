//! The code index where it cannot be written: what a server says then, and that it goes on by itself.
//!
//! Disks are real ones of a few hundred kilobytes, each mounted in namespaces of its own, invisible to other processes.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use llmc_testkit::{McpClient, TestProcess, TestWorkspace, skip};
use serde_json::{Value, json};

use crate::rag::{SHOP, document, refused};
use crate::workspace;

/// Why the index is not there, as answers end with it.
const FULL: &str = "the index cannot be written: the disk is full";

/// The program with its state on a disk of its own, made ready by `script`.
fn on_a_disk(workspace: &TestWorkspace, script: &str) -> Command {
    let state = workspace.path(".llmc");
    std::fs::create_dir_all(state).unwrap();
    let mut command = workspace.command_of("unshare");
    command
        .args(["--map-root-user", "--mount", "sh", "-c"])
        .arg(format!("{script} && exec \"$@\""))
        .arg("sh")
        .arg(workspace.program());
    command
}

/// Whether this machine lets its users have disks of their own.
fn can_mount(workspace: &TestWorkspace) -> bool {
    let mut command = workspace.command_of("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c"]);
    command.arg("mount -t tmpfs none /tmp");
    let tried = command.output();
    let can = tried.is_ok_and(|tried| tried.status.success());
    if !can {
        skip("mounts in a user namespace");
    }
    can
}

/// More words than a small disk has room for.
fn many_words() -> String {
    (0..40_000)
        .map(|n| format!("word{n} other{n}x\n"))
        .collect()
}

/// Asks until the answer is as it should be.
fn until(client: &mut McpClient, what: &str, query: &str, right: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let found = document(client, "rag_search", json!({"query": query}));
        assert!(
            !found["snippets"].as_array().unwrap().is_empty(),
            "{what}: {found}"
        );
        if right(&found) {
            return found;
        }
        assert!(Instant::now() < end, "{what}: {found}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn note(document: &Value) -> &str {
    document["note"].as_str().unwrap_or_default()
}

#[test]
fn a_full_disk_is_reported_and_searched_live() {
    let workspace = workspace(SHOP);
    if !can_mount(&workspace) {
        return;
    }
    workspace.write("docs/many.md", many_words());
    let disk = "mount -t tmpfs -o size=200k none .llmc";
    let mut index = on_a_disk(&workspace, disk);
    let index = index.args(["rag", "index"]).output().unwrap();
    let error = String::from_utf8_lossy(&index.stderr);
    assert_eq!(index.status.code(), Some(74), "{error}");
    assert!(error.contains(FULL), "{error}");
    let mut search = on_a_disk(&workspace, disk);
    let found = search.args(["rag", "search", "take an idle connection", "--json"]);
    let found: Value = serde_json::from_slice(&found.output().unwrap().stdout).unwrap();
    assert_eq!(found["index"], "none");
    assert!(!found["snippets"].as_array().unwrap().is_empty(), "{found}");
}

#[test]
fn a_full_disk_is_an_error_and_the_server_recovers() {
    let workspace = workspace(SHOP);
    if !can_mount(&workspace) {
        return;
    }
    workspace.write("docs/many.md", many_words());
    // What the test writes to the pipe is done on the disk that only the server sees.
    let pipe = workspace.outside("pipe");
    let script = format!(
        "mount -t tmpfs -o size=16m none .llmc && head -c 16000k /dev/zero > .llmc/filler && mkfifo {0} \
         && {{ (timeout 100 cat {0}; timeout 100 cat {0}) | sh >/dev/null 2>&1 & }}",
        pipe.display()
    );
    let later = |command: &str| {
        let mut pipe = OpenOptions::new().write(true).open(&pipe).unwrap();
        writeln!(pipe, "{command}").unwrap();
    };
    let mut command = on_a_disk(&workspace, &script);
    command.args(["mcp", "--mode", "classic"]);
    let mut client = McpClient::new(TestProcess::start(command));
    client.initialize("2025-11-25");

    let found = until(&mut client, "full", "take an idle connection", |found| {
        note(found) == format!("searched live; {FULL}")
    });
    assert_eq!(found["index"], "none");
    assert_eq!(found["snippets"][0]["symbol"], "Pool::take");
    let ask = json!({"query": "take an idle connection"});
    let plan = document(&mut client, "rag_plan", ask.clone());
    assert!(note(&plan).ends_with(FULL), "{plan}");
    let enriched = document(&mut client, "rag_search_enriched", ask.clone());
    assert!(note(&enriched).ends_with(FULL), "{enriched}");
    let text = client.text("te_rag", ask);
    assert!(
        text.contains(FULL) && text.contains("src/pool.rs#L"),
        "{text}"
    );
    let boot = json!({"session_id": "s", "task_id": "fix the idle connection pool"});
    let boot = document(&mut client, "rag_bootload", boot);
    assert!(boot["notes"].as_str().unwrap().contains(FULL), "{boot}");
    let stats = document(&mut client, "rag_stats", json!({}));
    assert_eq!(stats["last_error"], FULL, "{stats}");
    assert_eq!(client.json("health", json!({}))["index_error"], FULL);
    // What needs an index says why it cannot answer instead of waiting for one.
    let (code, text) = refused(
        &mut client,
        "rag_where_used",
        json!({"symbol": "Pool::take"}),
    );
    assert_eq!(code, "NOT_FOUND");
    assert!(text.contains(FULL), "{text}");

    later("rm .llmc/filler");
    until(&mut client, "room", "take an idle connection", |found| {
        found["index"] == "ready" && found["note"].is_null()
    });
    let used = document(
        &mut client,
        "rag_where_used",
        json!({"symbol": "Pool::take"}),
    );
    assert_eq!(used["total"], 2);
    let health = client.json("health", json!({}));
    assert!(health.get("index_error").is_none(), "{health}");

    // A disk that fills up later: the index stays, and answers say that it is behind.
    let filled = workspace.outside("filled");
    later(&format!(
        "cat /dev/zero > .llmc/filler; touch {}",
        filled.display()
    ));
    let end = Instant::now() + Duration::from_secs(60);
    while !filled.exists() {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(20));
    }
    workspace.write("src/later.rs", many_words());
    until(
        &mut client,
        "full again",
        "take an idle connection",
        |found| found["index"] == "ready" && note(found) == FULL,
    );
}

#[test]
fn a_read_only_disk_is_reported_and_searched_live() {
    let workspace = workspace(SHOP);
    if !can_mount(&workspace) {
        return;
    }
    for script in [
        "mount -t tmpfs -o ro none .llmc",
        // With an index on it that was built before.
        "mount --bind .llmc .llmc && \"$1\" rag index >/dev/null && mount -o remount,bind,ro .llmc",
    ] {
        let mut command = on_a_disk(&workspace, script);
        command.args(["mcp", "--mode", "classic"]);
        let mut client = McpClient::new(TestProcess::start(command));
        client.initialize("2025-11-25");
        let found = document(
            &mut client,
            "rag_search",
            json!({"query": "take an idle connection"}),
        );
        assert_eq!(found["snippets"][0]["symbol"], "Pool::take", "{script}");
        assert_eq!(found["freshness"], "FRESH");
        assert!(
            note(&found).starts_with("searched live; the index cannot be written: ")
                && note(&found).to_lowercase().contains("read-only"),
            "{script}: {found}"
        );
    }
}
