//! Telemetry and audit of several servers: one record, whichever server is asked.

use std::time::Instant;

use llmc_testdb::TestCluster;
use llmc_testkit::TEST_TIMEOUT;
use serde_json::{Value, json};

use super::{fixture, server};

const AUDIT: &str = "mcp.observability.csv_token_audit_enabled=true";

#[test]
fn one_server_shows_the_calls_of_all() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let database = cluster.database();
    let workspace = fixture().with_env("LLMC_MCP__STORE__URL", &database.url());
    let mut stdio = server(&workspace, &database.url(), "one");
    stdio.text("read_file", json!({"path": "short.txt"}));
    let http = workspace.serve(["--set", "mcp.docker.data_volume=\"../other\""]);
    http.tool("stat", json!({"path": "short.txt"})).ok();
    let deadline = Instant::now() + TEST_TIMEOUT;
    let calls = loop {
        let page = http.get("/api/calls").ok();
        let calls = page["calls"].as_array().unwrap().clone();
        if calls.len() == 2 {
            break calls;
        }
        assert!(Instant::now() < deadline, "{page}");
    };
    let mut tools: Vec<&str> = (calls.iter())
        .map(|call| call["tool"].as_str().unwrap())
        .collect();
    tools.sort_unstable();
    assert_eq!(tools, ["read_file", "stat"]);
    let servers = [&calls[0]["server"], &calls[1]["server"]];
    assert_ne!(servers[0], servers[1]);
    let seen = http.get("/api/summary?of=workspace").ok();
    assert_eq!(seen["totals"]["calls"], 2, "{seen}");
    // The shell on a third machine sees them as well.
    let third = "mcp.docker.data_volume=\"../third\"";
    let analyzed = workspace.llmc(["--set", third, "te", "analyze", "--json"]);
    let analyzed: Value = serde_json::from_str(&analyzed.stdout).expect(&analyzed.stderr);
    assert_eq!(analyzed["all"]["calls"], 2, "{analyzed}");
    let text = workspace.llmc(["tui", "--summary"]).stdout;
    assert!(text.contains('2'), "{text}");
}

#[test]
fn every_answered_call_of_every_server_is_in_the_audit() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let database = cluster.database();
    let workspace = fixture().with_env("LLMC_MCP__STORE__URL", &database.url());
    for machine in ["one", "other"] {
        let volume = format!("mcp.docker.data_volume=\"../{machine}\"");
        let mut client = workspace.mcp([
            "--mode",
            "classic",
            "--set",
            AUDIT,
            "--set",
            volume.as_str(),
        ]);
        client.initialize("2025-11-25");
        client.text("read_file", json!({"path": "short.txt"}));
        let new = json!({"path": "new.txt", "content": machine});
        client.text("linux_fs_write", new);
        client.error("stat", json!({"path": "missing"}));
        // Answered means committed: a server that is killed now loses nothing.
        rustix::process::kill_process(client.process().pid(), rustix::process::Signal::KILL)
            .unwrap();
        client.wait();
    }
    let audit = workspace.llmc(["store", "audit"]);
    assert_eq!(audit.code, Some(0), "{}", audit.stderr);
    let mut calls: Vec<String> = (audit.stdout.lines().skip(1))
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            format!("{} {}", cells[4], cells[10])
        })
        .collect();
    calls.sort();
    assert_eq!(
        calls,
        [
            "linux_fs_write ok",
            "linux_fs_write ok",
            "read_file ok",
            "read_file ok",
            "stat NOT_FOUND",
            "stat NOT_FOUND"
        ]
    );
    assert!(!workspace.path("artifacts/token_audit.csv").exists());
}

#[test]
fn a_call_that_cannot_be_audited_is_not_carried_out() {
    let Some(cluster) = TestCluster::start() else {
        return;
    };
    let database = cluster.database();
    let workspace = fixture().with_env("LLMC_MCP__STORE__URL", &database.url());
    let mut client = workspace.mcp(["--mode", "classic", "--set", AUDIT]);
    client.initialize("2025-11-25");
    client.text("read_file", json!({"path": "short.txt"}));
    let printing = json!({"argv": ["sh", "-c", "echo first; sleep 600"]});
    let process = client.json("linux_proc_start", printing)["proc_id"].clone();
    cluster.stop("QUIT");
    let output = json!({"proc_id": process, "until": "first", "timeout": 60});
    let refused = client.error("linux_proc_read", output);
    assert_eq!(refused["meta"]["error_code"], "UNAVAILABLE", "{refused}");
    let hint = refused["meta"]["hint"].as_str().unwrap_or_default();
    let next_step = "call again in some seconds with offset=0; for the operator: check host";
    assert!(hint.starts_with(next_step), "{refused}");
    let run = json!({"command": "touch made"});
    let refused = client.error("run_cmd", run.clone());
    assert_eq!(refused["meta"]["error_code"], "UNAVAILABLE", "{refused}");
    assert!(
        refused["error"]
            .as_str()
            .unwrap()
            .contains("not carried out"),
        "{refused}"
    );
    assert!(!workspace.path("made").exists());
    let read = json!({"path": "short.txt"});
    client.assert_code("read_file", read.clone(), "UNAVAILABLE");
    cluster.run();
    let deadline = Instant::now() + TEST_TIMEOUT;
    while client.call_tool("read_file", read.clone()).0 {
        assert!(Instant::now() < deadline);
    }
    client.text("run_cmd", run);
    assert!(workspace.path("made").exists());
    let sql = "SELECT string_agg(tool || ' ' || status, ', ' ORDER BY time_ms) FROM llmc.audit";
    assert_eq!(
        cluster.sql(&database.name, sql),
        "read_file ok, linux_proc_start ok, read_file ok, run_cmd ok"
    );
    let again = client.json("linux_proc_read", json!({"proc_id": process, "offset": 0}));
    assert_eq!(again["output"], "first\n");
}
