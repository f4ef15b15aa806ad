//! What a server logs: JSON for programs, short lines for people.

use llmc_testkit::TestScreen;
use serde_json::{Value, json};

use crate::observe::{FIXTURE, lines, serve};
use crate::{classic, workspace};

#[test]
fn every_log_line_is_json_and_every_call_has_one() {
    let workspace = workspace(FIXTURE).with_env("LLMC_MCP_TOKEN", "sekrit-token-value");
    let mut client = classic(&workspace);
    client.text("read_file", json!({"path": "a.txt"}));
    client.json("linux_fs_read", json!({"path": "a.txt", "max_lines": 1}));
    client.json(
        "linux_fs_write",
        json!({"path": "b.txt", "content": "written-secret-content"}),
    );
    let error = client.error("linux_fs_edit", json!({"path": "a.txt", "old_text": "searched-secret-content", "new_text": "new-secret-content"}));
    client.error("read_file", json!({"path": "/etc/shadow"}));
    client.json(
        "linux_search_content",
        json!({"root": ".", "pattern": "two"}),
    );
    // What a model put into the wrong argument, and what looks like a secret wherever it stands.
    let wrong = json!({"path": "b.txt", "content": "x", "mode": "misplaced-secret-content"});
    client.error("linux_fs_write", wrong);
    let wrong = json!({"path": "a.txt", "max_lines": "misplaced-secret-content"});
    client.error("read_file", wrong);
    client.error("read_file", json!({"path": "password=hunter2hunter2"}));
    let ended = client.finish();
    assert_eq!(ended.stdout, "");
    let lines = lines(&ended.stderr);
    for line in &lines {
        assert!(line["ts"].as_str().unwrap().ends_with('Z'), "{line}");
        assert!(
            ["error", "warn", "info"].contains(&line["level"].as_str().unwrap()),
            "{line}"
        );
        assert!(line["msg"].is_string(), "{line}");
    }
    assert_eq!(lines[0]["msg"], "start");
    let effective: Value = serde_json::from_str(lines[0]["config"].as_str().unwrap()).unwrap();
    assert_eq!(
        effective["mcp.tools.read_only"], "false",
        "the effective configuration"
    );
    assert_eq!(lines.last().unwrap()["msg"], "end");
    let calls: Vec<&Value> = lines.iter().filter(|line| line["msg"] == "call").collect();
    assert_eq!(calls.len(), 9);
    for call in &calls {
        assert_eq!(call["correlation_id"].as_str().unwrap().len(), 36, "{call}");
        assert!(
            call["tool"].is_string() && call["truncated"].is_boolean(),
            "{call}"
        );
        assert!(call["duration_ms"].is_f64(), "{call}");
        assert!(
            call["tokens_in"].as_u64().unwrap() > 0 && call["tokens_out"].as_u64().unwrap() > 0,
            "{call}"
        );
        let failed = call["status"] == "error";
        assert!(failed || call["status"] == "ok", "{call}");
        assert_eq!(call.get("error_code").is_some(), failed, "{call}");
    }
    assert_eq!(calls[0]["tool"], "read_file");
    assert_eq!(calls[0]["path"], "a.txt");
    assert_eq!(calls[1]["truncated"], true);
    assert_eq!(calls[3]["error_code"], "NO_MATCH");
    assert_eq!(
        calls[3]["correlation_id"], error["meta"]["correlation_id"],
        "the id of the answer is that of the log"
    );
    assert_eq!(calls[4]["error_code"], "INVALID_PATH");
    for secret in ["secret-content", "sekrit", "hunter2hunter2"] {
        assert!(
            !ended.stderr.contains(secret),
            "{secret} in the log:\n{}",
            ended.stderr
        );
    }
}

#[test]
fn logs_can_be_text_and_quieter() {
    let workspace = workspace(FIXTURE);
    let mut client = serve(&workspace, &["mcp.observability.log_format=\"text\""]);
    client.text("read_file", json!({"path": "a.txt"}));
    client.error(
        "read_file",
        json!({"path": "evil\n2026-01-01T00:00:00Z info  forged"}),
    );
    let ended = client.finish();
    assert!(
        ended
            .stderr
            .lines()
            .any(|line| line.contains(" call tool=read_file ")),
        "{}",
        ended.stderr
    );
    assert!(
        !ended
            .stderr
            .lines()
            .any(|line| line.starts_with('{')
                || line.starts_with("2026-01-01T00:00:00Z info  forged")),
        "{}",
        ended.stderr
    );
    let mut client = workspace.mcp(["--mode", "classic", "--log-level", "error"]);
    client.text("read_file", json!({"path": "a.txt"}));
    assert_eq!(client.finish().stderr, "");
    let mut client = serve(
        &workspace,
        &["mcp.observability.include_correlation_id=false"],
    );
    client.text("read_file", json!({"path": "a.txt"}));
    assert!(
        !client.finish().stderr.contains("correlation_id\":\""),
        "as asked"
    );
}

#[test]
fn on_a_terminal_logs_are_short_text_lines() {
    let workspace = workspace(FIXTURE);
    let serve = |flags: &[&str]| {
        let mut command = workspace.command();
        command.args(["serve", "--port", "0"]).args(flags);
        let mut screen = TestScreen::start(command);
        screen.wait_for_output("listening");
        // What follows may have arrived in part only.
        let raw = screen.raw();
        let end = raw.find("listening").unwrap();
        raw[..end].to_owned()
    };
    let shown = serve(&[]);
    let is_time = |text: &str| {
        let digits = |c: char| if c.is_ascii_digit() { '0' } else { c };
        text.chars().map(digits).eq("00:00:00 ".chars())
    };
    assert!(
        shown.lines().all(|line| line.get(..9).is_some_and(is_time)),
        "{shown}"
    );
    assert!(shown.contains("start version="), "{shown}");
    for absent in [
        "{",
        "mcp.tools.allowed_roots",
        "correlation_id",
        "sidecar",
        "warn",
    ] {
        assert!(!shown.contains(absent), "{absent} in:\n{shown}");
    }
    let asked = ["--set", "mcp.observability.log_format=\"json\""];
    assert!(serve(&asked).contains("{\"ts\":"), "JSON when asked for");
}

#[test]
fn optional_sidecars_that_are_missing_are_no_warning() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    client.text("read_file", json!({"path": "a.txt"}));
    let ended = client.finish();
    for line in lines(&ended.stderr) {
        assert_eq!(line["level"], "info", "{line}");
    }
}
