//! What a server tells its operator: logs, audit, telemetry, metrics; and handles over restarts.

use std::os::unix::fs::symlink;

use llmc_testkit::{McpClient, TestWorkspace};
use serde_json::{Value, json};

use crate::{classic, keys, workspace};

pub(crate) const FIXTURE: &str = "\
//- a.txt
top-secret-content line one
two
three
";

pub(crate) fn lines(stderr: &str) -> Vec<Value> {
    stderr
        .lines()
        .map(|line| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("not JSON ({error}): {line}"))
        })
        .collect()
}

/// A server with further settings, after a handshake.
pub(crate) fn serve(workspace: &TestWorkspace, settings: &[&str]) -> McpClient {
    let mut flags = vec!["--mode", "classic"];
    for setting in settings {
        flags.extend(["--set", setting]);
    }
    let mut client = workspace.mcp(flags);
    client.initialize("2025-11-25");
    client
}

const HEADER: &str = "timestamp,correlation_id,session_id,agent_id,tool,tokens_in,tokens_out,tokens_withheld,tokens_fetched_back,duration_ms,status";

#[test]
fn the_audit_is_a_safe_csv_and_only_there_when_asked_for() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    client.text("read_file", json!({"path": "a.txt"}));
    client.finish();
    assert!(!workspace.path("artifacts").exists(), "off by default");
    for _ in 0..2 {
        let mut client = serve(
            &workspace,
            &["mcp.observability.csv_token_audit_enabled=true"],
        );
        let read = json!({"name": "linux_fs_read", "arguments": {"path": "a.txt", "max_lines": 1}, "_meta": {"llmc/agentId": "=cmd|' /C calc'!A0", "llmc/sessionId": "+1,\"x\"\ny"}});
        client.request("tools/call", read);
        client.error("read_file", json!({"path": "nope"}));
        // The agent cannot touch it.
        client.assert_code(
            "linux_fs_delete",
            json!({"path": "artifacts/token_audit.csv"}),
            "INVALID_PATH",
        );
        client.finish();
    }
    let text = workspace.read("artifacts/token_audit.csv");
    assert_eq!(text.lines().next(), Some(HEADER));
    assert_eq!(
        text.matches("timestamp").count(),
        1,
        "one header over two servers"
    );
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 6);
    for cell in rows.iter().flatten() {
        assert!(
            !cell.starts_with(['=', '+', '-', '@', '\t', '\r']),
            "a formula: {cell}"
        );
    }
    assert_eq!(&rows[0][3], "'=cmd|' /C calc'!A0");
    assert_eq!(&rows[0][4], "linux_fs_read");
    assert!(rows[0][5].parse::<u64>().unwrap() > 0 && rows[0][6].parse::<u64>().unwrap() > 0);
    assert!(rows[0][7].parse::<u64>().unwrap() > 0, "withheld lines");
    assert!(rows[0][9].parse::<f64>().unwrap() > 0.0);
    let status: Vec<&str> = rows.iter().map(|row| &row[10]).collect();
    assert_eq!(status[..3], ["ok", "NOT_FOUND", "INVALID_PATH"]);
    assert!(!text.contains("secret-content"));
}

#[test]
fn telemetry_has_a_row_for_every_call() {
    let workspace = workspace(FIXTURE)
        .with_env("TE_AGENT_ID", "env-agent")
        .with_env("TE_MODEL", "env-model");
    let mut client = classic(&workspace);
    let cut = client.json("linux_fs_read", json!({"path": "a.txt", "max_lines": 1}));
    client.json("linux_handle_read", json!({"handle": cut["handle"]}));
    client.error("read_file", json!({"path": "nope"}));
    client.json(
        "linux_fs_write",
        json!({"path": "b", "content": "written-secret-content"}),
    );
    client.json(
        "linux_search_content",
        json!({"root": ".", "pattern": "password=hunter2hunter2"}),
    );
    let meta = json!({"name": "stat", "arguments": {"path": "a.txt"}, "_meta": {"llmc/agentId": "meta-agent", "llmc/sessionId": "meta-session", "llmc/model": "meta-model"}});
    client.request("tools/call", meta);
    client.finish();
    workspace.llmc(["tool", "stat", "--path", "a.txt"]);
    let db = rusqlite::Connection::open(workspace.path(".llmc/te_telemetry.db")).unwrap();
    let mut query = db
        .prepare("SELECT source, cmd, agent, model, session, tokens_in, tokens_served, tokens_withheld, tokens_fetched_back, truncated, handle, error, args, latency_ms FROM calls ORDER BY seq")
        .unwrap();
    let rows: Vec<Value> = query
        .query_map([], |row| {
            Ok(json!({
                "source": row.get::<_, String>(0)?, "cmd": row.get::<_, String>(1)?, "agent": row.get::<_, String>(2)?,
                "model": row.get::<_, String>(3)?, "session": row.get::<_, String>(4)?, "in": row.get::<_, i64>(5)?,
                "served": row.get::<_, i64>(6)?, "withheld": row.get::<_, i64>(7)?, "fetched": row.get::<_, i64>(8)?,
                "truncated": row.get::<_, bool>(9)?, "handle": row.get::<_, Option<String>>(10)?,
                "error": row.get::<_, Option<String>>(11)?, "args": row.get::<_, Option<String>>(12)?, "ms": row.get::<_, f64>(13)?,
            }))
        })
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let commands: Vec<&str> = rows
        .iter()
        .map(|row| row["cmd"].as_str().unwrap())
        .collect();
    assert_eq!(
        commands,
        [
            "linux_fs_read",
            "linux_handle_read",
            "read_file",
            "linux_fs_write",
            "linux_search_content",
            "stat",
            "stat"
        ]
    );
    for row in &rows {
        assert!(
            row["in"].as_u64().unwrap() > 0
                && row["served"].as_u64().unwrap() > 0
                && row["ms"].as_f64().unwrap() > 0.0,
            "{row}"
        );
    }
    assert_eq!(
        (&rows[0]["truncated"], &rows[0]["handle"]),
        (&json!(true), &cut["handle"])
    );
    assert!(rows[0]["withheld"].as_u64().unwrap() > 0, "{}", rows[0]);
    assert!(rows[1]["fetched"].as_u64().unwrap() > 0, "{}", rows[1]);
    assert_eq!(rows[0]["fetched"], 0);
    assert_eq!(rows[2]["error"], "NOT_FOUND");
    assert_eq!(
        (&rows[0]["agent"], &rows[0]["model"], &rows[0]["source"]),
        (&json!("env-agent"), &json!("env-model"), &json!("mcp"))
    );
    assert_eq!(
        (&rows[5]["agent"], &rows[5]["model"], &rows[5]["session"]),
        (
            &json!("meta-agent"),
            &json!("meta-model"),
            &json!("meta-session")
        )
    );
    assert_eq!(rows[6]["source"], "cli");
    assert!(rows[0]["args"].as_str().unwrap().contains("a.txt"));
    let all = Value::from(rows.clone()).to_string();
    assert!(!all.contains("secret-content"), "a file's content: {all}");
    assert!(
        !all.contains("hunter2hunter2"),
        "a secret is masked: {}",
        rows[4]
    );
}

#[test]
fn a_locked_database_holds_up_neither_the_end_nor_the_logs() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    client.text("read_file", json!({"path": "a.txt"}));
    // Under a name that the tool does not have.
    let wrong = json!({"path": "b", "contents": "misnamed-secret-content"});
    client.error("linux_fs_write", wrong);
    client.finish();
    let db = rusqlite::Connection::open(workspace.path(".llmc/te_telemetry.db")).unwrap();
    let args: Vec<Option<String>> = db
        .prepare("SELECT args FROM calls ORDER BY seq")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(args, [Some(r#"{"path":"a.txt"}"#.to_owned()), None]);
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    let audit = ["mcp.observability.csv_token_audit_enabled=true"];
    let mut client = serve(&workspace, &audit);
    for _ in 0..6 {
        client.text("read_file", json!({"path": "a.txt"}));
    }
    let ended = client.finish();
    assert!(ended.took.as_millis() < 10_000, "{:?}", ended.took);
    let calls = lines(&ended.stderr);
    let calls = calls.iter().filter(|line| line["msg"] == "call").count();
    assert_eq!(calls, 6, "{}", ended.stderr);
    let audit = workspace.read("artifacts/token_audit.csv");
    assert_eq!(audit.lines().count(), 7, "{audit}");
}

#[test]
fn metrics_count_calls_errors_and_tokens() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    for _ in 0..5 {
        client.text("read_file", json!({"path": "a.txt"}));
    }
    client.error("read_file", json!({"path": "nope"}));
    client.error("linux_fs_read", json!({"path": "/etc/passwd"}));
    let cut = client.json("linux_fs_read", json!({"path": "a.txt", "max_lines": 1}));
    client.json("linux_handle_read", json!({"handle": cut["handle"]}));
    let metrics = client.json("get_metrics", json!({}));
    assert_eq!(
        (&metrics["calls"], &metrics["errors"]),
        (&json!(9), &json!(2)),
        "{metrics}"
    );
    assert_eq!(
        metrics["errors_by_code"],
        json!({"INVALID_PATH": 1, "NOT_FOUND": 1})
    );
    let tool = &metrics["tools"]["read_file"];
    assert_eq!((&tool["calls"], &tool["errors"]), (&json!(6), &json!(1)));
    for series in [&metrics, tool] {
        let latency = &series["latency_ms"];
        assert_eq!(keys(latency), ["p50", "p95", "p99"]);
        let [p50, p95, p99] = ["p50", "p95", "p99"].map(|name| latency[name].as_f64().unwrap());
        assert!(0.0 < p50 && p50 <= p95 && p95 <= p99, "{latency}");
    }
    for what in ["in", "served", "withheld", "fetched_back"] {
        assert!(
            metrics["tokens"][what].as_u64().unwrap() > 0,
            "{what}: {metrics}"
        );
    }
    assert_eq!(metrics["events_dropped"], 0);
    assert_eq!(metrics["handles"]["count"], 1);
    // Switched off, everything still works and counts nothing.
    let mut client = serve(&workspace, &["mcp.observability.enabled=false"]);
    client.text("read_file", json!({"path": "a.txt"}));
    assert_eq!(client.json("get_metrics", json!({}))["calls"], 0);
}

#[test]
fn handles_survive_restarts_and_know_when_they_are_stale() {
    let workspace = workspace(FIXTURE);
    let before = workspace.read("a.txt");
    let mut client = classic(&workspace);
    let handle =
        client.json("linux_fs_read", json!({"path": "a.txt", "max_lines": 1}))["handle"].clone();
    // Killed, not ended: an answered handle is there all the same.
    client.process().signal(rustix::process::Signal::KILL);
    client.wait();
    let mut client = classic(&workspace);
    let page = client.json("linux_handle_read", json!({"handle": handle}));
    assert_eq!(
        (&page["data"], &page["stale"]),
        (&json!(before), &json!(false))
    );
    // Touched but the same is not stale; changed is, and what was stored is still there.
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(workspace.path("a.txt"))
        .unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    assert_eq!(
        client.json("linux_handle_read", json!({"handle": handle}))["stale"],
        false
    );
    client.json(
        "linux_fs_write",
        json!({"path": "a.txt", "content": "changed\n"}),
    );
    let page = client.json("linux_handle_read", json!({"handle": handle}));
    assert_eq!(
        (&page["data"], &page["stale"]),
        (&json!(before), &json!(true))
    );
    client.json("linux_fs_delete", json!({"path": "a.txt"}));
    assert_eq!(
        client.json("linux_handle_read", json!({"handle": handle}))["stale"],
        true
    );
}

#[test]
fn a_handle_of_a_large_file_keeps_its_name_and_hash() {
    let workspace = workspace("//- a\n");
    let line = "0123456789abcdef0123456789abcdef\n";
    let text = line.repeat((9 << 20) / line.len());
    workspace.write("large", &text);
    let mut client = classic(&workspace);
    let handle = client.json("linux_fs_read", json!({"path": "large", "max_lines": 1}))["handle"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(crate::resources::pages(&mut client, &handle, 4 << 20) == text.as_bytes());
    let store = std::fs::read_dir(workspace.path(".llmc/te_handles")).unwrap();
    let kept: u64 = store
        .flatten()
        .map(|entry| entry.metadata().unwrap().len())
        .sum();
    assert!(kept < 4 << 20, "{kept} bytes kept of a file above 8 MiB");
    // Too large for one answer, and says how to get at it.
    let answer = client.request(
        "resources/read",
        json!({"uri": format!("llmc://handle/{handle}")}),
    );
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("linux_handle_read"), "{message}");
    workspace.write("large", text.replace('0', "x"));
    let page = client.json("linux_handle_read", json!({"handle": handle}));
    assert_eq!((&page["stale"], &page["eof"]), (&json!(true), &json!(true)));
    assert_eq!(
        page["data"], "",
        "the old bytes are gone, and new ones are not passed off as them"
    );
}

#[test]
fn handles_end_with_their_time() {
    let workspace = workspace(FIXTURE);
    let mut client = serve(&workspace, &["mcp.handles.ttl_hours=1"]);
    let handle =
        client.json("linux_fs_read", json!({"path": "a.txt", "max_lines": 1}))["handle"].clone();
    client.finish();
    let file = std::fs::read_dir(workspace.path(".llmc/te_handles"))
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .find(|path| {
            path.extension()
                .is_some_and(|end| end == "db" || end == "sqlite")
        })
        .expect("a store");
    let db = rusqlite::Connection::open(&file).unwrap();
    let life: i64 = db
        .query_row("SELECT expires_ms - created_ms FROM handles", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert!((3_600_000..3_601_000).contains(&life), "{life} ms");
    db.execute("UPDATE handles SET expires_ms = created_ms - 1", [])
        .unwrap();
    drop(db);
    let mut client = classic(&workspace);
    client.assert_code(
        "linux_handle_read",
        json!({"handle": handle}),
        "HANDLE_EXPIRED",
    );
    let answer = client.request(
        "resources/read",
        json!({"uri": format!("llmc://handle/{}", handle.as_str().unwrap())}),
    );
    assert!(answer.get("error").is_some(), "{answer}");
    assert_eq!(client.json("get_metrics", json!({}))["handles"]["count"], 0);
}

#[test]
fn without_a_place_for_state_files_are_read_only() {
    let workspace = workspace(FIXTURE);
    symlink(workspace.outside(""), workspace.path(".llmc")).unwrap();
    let mut client = classic(&workspace);
    let cut = client.json("linux_fs_read", json!({"path": "a.txt", "max_lines": 1}));
    let page = client.json("linux_handle_read", json!({"handle": cut["handle"]}));
    let data = page["data"].as_str().unwrap();
    assert!(data.starts_with("top-secret"), "handles live in memory");
    let code = client.code("linux_fs_write", json!({"path": "b", "content": "x"}));
    assert_eq!(code, "WRITE_FAILED");
    client.finish();
    workspace.assert_outside_untouched();
}

#[test]
fn links_that_came_with_the_repository_lead_no_store_outside() {
    let workspace = workspace(FIXTURE);
    for name in [
        "te_handles",
        "te_telemetry.db",
        "servers",
        "locks",
        "tmp",
        ".gitignore",
    ] {
        let state = workspace.path(".llmc");
        std::fs::create_dir(&state).unwrap();
        // To a folder that is there, and to a file that is not.
        for target in ["", "new"] {
            symlink(workspace.outside(target), state.join(name)).unwrap();
            let mut client = serve(&workspace, &[]);
            client.json("linux_fs_read", json!({"path": "a.txt", "max_lines": 1}));
            client.call_tool(
                "linux_fs_write",
                json!({"path": "a.txt", "content": "one\ntwo\n"}),
            );
            assert_eq!(client.finish().code, Some(0), "{name}");
            workspace.assert_outside_untouched();
            let link = state.join(name);
            if link.is_symlink() {
                std::fs::remove_file(link).unwrap();
            } else {
                let _ = std::fs::remove_dir_all(&link).or_else(|_| std::fs::remove_file(&link));
            }
        }
        std::fs::remove_dir_all(state).unwrap();
    }
}

#[test]
fn telemetry_that_cannot_be_used_is_kept_and_reported() {
    let workspace = workspace(FIXTURE);
    let store = workspace.path(".llmc/te_telemetry.db");
    let read = || {
        let mut client = classic(&workspace);
        client.text("read_file", json!({"path": "a.txt"}));
        client.finish().stderr
    };
    read();
    let doctor = || {
        let ended = workspace.llmc(["doctor", "--json"]);
        let document: Value = serde_json::from_str(&ended.stdout).unwrap();
        document["warnings"].to_string()
    };
    assert!(!doctor().contains("te_telemetry"), "{}", doctor());
    // Written by another version, then damaged twice.
    rusqlite::Connection::open(&store)
        .unwrap()
        .execute_batch("PRAGMA user_version = 9")
        .unwrap();
    let warned = doctor();
    assert!(
        warned.contains("te_telemetry.db is of another version (9)"),
        "{warned}"
    );
    let log = read();
    let kept = "te_telemetry.db.version9-1";
    assert!(
        log.contains(kept) && log.contains("another version (9)"),
        "{log}"
    );
    let first = std::fs::read(workspace.path(".llmc").join(kept)).unwrap();
    for number in [2, 3] {
        for log in ["db-wal", "db-shm"] {
            let _ = std::fs::remove_file(store.with_extension(log));
        }
        std::fs::write(&store, vec![0xa5; 16384]).unwrap();
        let log = read();
        let aside = format!("te_telemetry.db.corrupt-{number}");
        assert!(log.contains(&aside) && log.contains("damaged"), "{log}");
        assert!(workspace.path(".llmc").join(aside).exists());
    }
    let kept_bytes = std::fs::read(workspace.path(".llmc").join(kept)).unwrap();
    assert!(kept_bytes == first, "the first copy stays as it is");
    let warned = doctor();
    assert!(
        warned.contains(kept) && warned.contains("te_telemetry.db.corrupt-3"),
        "{warned}"
    );
}

#[test]
fn what_a_script_reads_is_not_served_to_the_model() {
    let workspace = workspace(FIXTURE);
    workspace.write("big.txt", "many words in a line\n".repeat(5_000));
    let mut client = workspace.mcp(["--mode", "hybrid"]);
    client.initialize("2025-11-25");
    let code = "print(len(tools.read_file(path='big.txt')), len(str(tools.run_cmd(command='cat big.txt'))) > 90000)";
    let text = client.text("execute_code", json!({"code": code}));
    assert_eq!(text, "105000 True");
    assert_eq!(client.finish().code, Some(0));
    let ended = workspace.llmc(["te", "analyze", "--by", "source", "--json"]);
    let analysis: Value = serde_json::from_str(&ended.stdout).unwrap();
    let group = |name: &str| {
        let groups = analysis["groups"].as_array().unwrap();
        let group = groups.iter().find(|group| group["name"] == name);
        group
            .unwrap_or_else(|| panic!("{name} in {analysis}"))
            .clone()
    };
    let inside = group("code");
    assert_eq!(inside["calls"], 2, "{analysis}");
    for key in ["tokens_served", "tokens_withheld", "tokens_fetched_back"] {
        assert_eq!(inside[key], 0, "{key}: {analysis}");
    }
    let served = group("mcp")["tokens_served"].as_u64().unwrap();
    assert!(served < 50, "{analysis}");
}
