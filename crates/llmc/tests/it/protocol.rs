//! MCP as clients of three revisions speak it.

use llmc_testkit::{META_2026, McpClient};
use serde_json::{Value, json};

use crate::{classic, huge, workspace};

const TE: &str =
    "te_grep te_cat te_find te_ls te_head te_tail te_handle te_rag te_explain te_diff te_git";
const CLASSIC: &str = "\
    read_file list_dir stat linux_fs_read linux_fs_write linux_fs_edit linux_fs_list linux_fs_move \
    linux_fs_delete linux_fs_mkdirs linux_search_files linux_search_content linux_handle_read run_cmd run_preview run_compare \
    run_tests linux_proc_start linux_proc_read linux_proc_send linux_proc_stop linux_proc_list linux_proc_kill \
    linux_sys_snapshot te_grep te_cat te_find te_ls te_head te_tail te_handle te_run te_rag te_explain te_diff \
    te_git repo_read repo_write_patch run_pytest history undo rag_search rag_query rag_search_enriched rag_where_used \
    rag_lineage inspect look outline rag_plan rag_stats rag_bootload execute_code rlm_query get_metrics health init";
const HYBRID: &str = "read_file list_dir linux_fs_write linux_fs_edit run_cmd execute_code init";
const CODE_EXECUTION: &str = "read_file list_dir execute_code init";

fn names(answer: &Value) -> String {
    let tools = answer["result"]["tools"]
        .as_array()
        .unwrap_or_else(|| panic!("no tools: {answer}"));
    let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
    names.collect::<Vec<_>>().join(" ")
}

fn meta() -> Value {
    serde_json::from_str(META_2026).unwrap()
}

#[test]
fn each_mode_lists_its_tools_in_one_order() {
    let workspace = workspace("//- a\n");
    for (mode, expected) in [
        ("classic", CLASSIC),
        ("hybrid", HYBRID),
        ("code_execution", CODE_EXECUTION),
        ("te", TE),
    ] {
        let mut client = workspace.mcp(["--mode", mode]);
        let hello = client.initialize("2025-11-25");
        let words = hello["instructions"].as_str().unwrap_or_default();
        assert!(words.starts_with("LLMC"), "{mode}: {hello}");
        let first = client.request("tools/list", json!({}));
        assert_eq!(names(&first), expected, "{mode}");
        let second = client.request("tools/list", json!({}));
        assert_eq!(first["result"], second["result"], "{mode}: a stable prefix");
    }
    // Without a configuration file the mode is hybrid, with one that does not say it is classic.
    let mut client = workspace.mcp([""; 0]);
    assert_eq!(names(&client.request("tools/list", json!({}))), HYBRID);
    workspace.write("llmc.toml", "[mcp.tools]\nread_timeout = 9\n");
    let mut client = workspace.mcp([""; 0]);
    assert_eq!(names(&client.request("tools/list", json!({}))), CLASSIC);
}

#[test]
fn a_handshake_is_answered_in_the_revision_asked_for() {
    let workspace = workspace("//- a.txt\none\n");
    for revision in ["2025-06-18", "2025-11-25"] {
        let mut client = workspace.mcp(["--mode", "classic"]);
        let hello = client.initialize(revision);
        assert_eq!(hello["protocolVersion"], revision);
        assert_eq!(hello["serverInfo"]["name"], "llmc");
        assert!(hello["capabilities"]["tools"].is_object(), "{hello}");
        assert!(hello["capabilities"]["resources"].is_object(), "{hello}");
        let list = client.request("tools/list", json!({}));
        assert_eq!(names(&list), CLASSIC);
        assert!(list["result"].get("ttlMs").is_none(), "not in {revision}");
        client.assert_starts("read_file", json!({"path": "a.txt"}), "one\n");
        assert_eq!(client.request("ping", json!({}))["result"], json!({}));
        assert_eq!(client.finish().code, Some(0));
    }
}

#[test]
fn the_revision_without_a_handshake_is_served_request_by_request() {
    let workspace = workspace("//- a.txt\none\n");
    let mut client = workspace.mcp(["--mode", "classic"]);
    let found = client.request("server/discover", json!({"_meta": meta()}));
    let versions = found["result"]["supportedVersions"].clone();
    assert_eq!(versions, json!(["2025-06-18", "2025-11-25", "2026-07-28"]));
    let list = client.request("tools/list", json!({"_meta": meta()}));
    assert_eq!(names(&list), CLASSIC);
    assert!(list["result"]["ttlMs"].as_u64().unwrap() > 0, "{list}");
    assert_eq!(list["result"]["cacheScope"], "public");
    let call = json!({"name": "read_file", "arguments": {"path": "a.txt"}, "_meta": meta()});
    let answer = client.request("tools/call", call);
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        text.starts_with("one\n# LLMC: 1 lines, sha ") || text.starts_with("one\n# LLMC: 1 line"),
        "{text}"
    );
    let resources = client.request("resources/list", json!({"_meta": meta()}));
    assert!(resources["result"]["ttlMs"].is_u64(), "{resources}");
}

#[test]
fn one_line_piped_in_without_a_handshake_is_answered() {
    let workspace = workspace("//- a.txt\none\n");
    let mut client = workspace.mcp(["--mode", "hybrid"]);
    client.send(br#"{"jsonrpc":"2.0","id":"l","method":"tools/list"}"#);
    client.send(br#"{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"read_file","arguments":{"path":"a.txt"}}}"#);
    client.process().close_stdin();
    assert_eq!(names(&client.answer(&"l".into())), HYBRID);
    let answer = client.answer(&"c".into());
    assert!(
        answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .starts_with("one\n")
    );
    let ended = client.wait();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""));
}

#[test]
fn tool_annotations_state_effects() {
    let workspace = workspace("//- a\n");
    let list = classic(&workspace).request("tools/list", json!({}));
    let writers = [
        // name, destructive, idempotent
        ("linux_fs_write", true, false),
        ("linux_fs_edit", true, false),
        ("linux_fs_move", false, false),
        ("linux_fs_delete", true, false),
        ("linux_fs_mkdirs", false, true),
        ("repo_write_patch", true, false),
        ("run_cmd", true, false),
        ("run_preview", false, true),
        ("run_compare", false, true),
        ("run_tests", true, false),
        ("te_run", true, false),
        ("run_pytest", true, false),
        ("linux_proc_start", true, false),
        ("linux_proc_send", true, false),
        ("linux_proc_stop", true, true),
        ("linux_proc_kill", true, false),
        ("undo", true, false),
        ("execute_code", true, false),
        ("rlm_query", false, false),
    ];
    for tool in list["result"]["tools"].as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        let hints = &tool["annotations"];
        assert_eq!(hints["openWorldHint"], name == "rlm_query", "{name}");
        match writers.iter().find(|(writer, ..)| *writer == name) {
            None => assert_eq!(hints["readOnlyHint"], true, "{name}"),
            Some((_, destructive, idempotent)) => {
                assert_eq!(hints["readOnlyHint"], false, "{name}");
                assert_eq!(hints["destructiveHint"], *destructive, "{name}");
                assert_eq!(hints["idempotentHint"], *idempotent, "{name}");
            }
        }
    }
}

#[test]
fn schemas_hold_only_what_every_client_takes() {
    let workspace = workspace("//- a\n");
    let list = classic(&workspace).request("tools/list", json!({}));
    for tool in list["result"]["tools"].as_array().unwrap() {
        let (name, schema) = (tool["name"].as_str().unwrap(), &tool["inputSchema"]);
        let good = name.len() <= 30
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        assert!(good, "{name}");
        let words = tool["description"]
            .as_str()
            .unwrap()
            .split_whitespace()
            .count();
        assert!((1..=15).contains(&words), "{name}: {words} words");
        assert_eq!(schema["type"], "object", "{name}");
        let text = schema.to_string();
        for noise in [
            "oneOf",
            "anyOf",
            "allOf",
            "$schema",
            "$ref",
            "\"format\"",
            "\"title\"",
            "\"null\"",
        ] {
            assert!(!text.contains(noise), "{name}: {noise} in {text}");
        }
        for (key, property) in schema["properties"].as_object().unwrap() {
            let kind = property["type"]
                .as_str()
                .unwrap_or_else(|| panic!("{name}.{key}: no type"));
            assert!(
                ["string", "integer", "number", "boolean", "array"].contains(&kind),
                "{name}.{key}: {kind}"
            );
            let words = property["description"]
                .as_str()
                .unwrap_or_default()
                .split_whitespace()
                .count();
            assert!(words <= 5, "{name}.{key}: {words} words");
        }
    }
}

#[test]
fn lists_and_instructions_stay_under_their_ceilings() {
    let workspace = workspace("//- a\n");
    // mode, tokens, bytes
    for (mode, tokens, bytes) in [
        ("classic", 2900, usize::MAX),
        ("hybrid", 620, 3000),
        ("code_execution", 260, usize::MAX),
        ("te", 550, usize::MAX),
    ] {
        let mut client = workspace.mcp(["--mode", mode]);
        let hello = client.initialize("2025-11-25");
        let words = hello["instructions"].as_str().unwrap();
        assert!(llmc_tokens::count(words) <= 150, "{mode}: instructions");
        let list = client.request("tools/list", json!({}));
        let lean: Vec<Value> = list["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| json!({"name": tool["name"], "description": tool["description"], "inputSchema": tool["inputSchema"]}))
            .collect();
        let text = Value::from(lean).to_string();
        assert!(
            llmc_tokens::count(&text) <= tokens,
            "{mode}: {} tokens",
            llmc_tokens::count(&text)
        );
        assert!(text.len() <= bytes, "{mode}: {} bytes", text.len());
    }
}

#[test]
fn aliases_are_taken_and_never_listed() {
    let workspace = workspace("//- a.txt\none\n");
    let mut client = classic(&workspace);
    let hello = client.text("init", json!({}));
    assert_eq!(client.text("00_INIT", json!({})), hello);
    assert!(hello.starts_with("LLMC"), "{hello}");
    let read = client.json("linux.fs_read", json!({"path": "a.txt"}));
    assert_eq!(read["content"], "one\n");
    for (alias, dir) in [
        ("linux_fs_mkdir", "d1"),
        ("linux.fs_mkdir", "d2"),
        ("linux.fs_mkdirs", "d3"),
    ] {
        client.json(alias, json!({"path": dir}));
        assert!(workspace.path(dir).is_dir(), "{alias}");
    }
    for (alias, args) in [
        ("linux.fs_list", json!({"path": "."})),
        ("linux.fs_write", json!({"path": "w.txt", "content": "x"})),
        (
            "linux.fs_edit",
            json!({"path": "w.txt", "old_text": "x", "new_text": "y"}),
        ),
        (
            "linux.fs_move",
            json!({"source": "w.txt", "target": "v.txt"}),
        ),
        ("linux.fs_delete", json!({"path": "v.txt"})),
        ("linux.search_files", json!({"root": ".", "pattern": "a"})),
        (
            "linux.search_content",
            json!({"root": ".", "pattern": "one"}),
        ),
    ] {
        client.json(alias, args);
    }
    client.assert_code(
        "linux.handle_read",
        json!({"handle": "res_0"}),
        "HANDLE_EXPIRED",
    );
}

fn unknown(client: &mut McpClient, name: &str) -> Value {
    let answer = client.request("tools/call", json!({"name": name, "arguments": {}}));
    assert_eq!(answer["error"]["code"], -32602, "{name}: {answer}");
    assert!(answer.get("result").is_none());
    answer["error"]["message"].clone()
}

#[test]
fn a_tool_that_is_not_listed_is_unknown() {
    let workspace = workspace("//- a.txt\none\n");
    let mut client = workspace.mcp(["--mode", "hybrid"]);
    client.initialize("2025-11-25");
    // Outside the mode, by its name and its alias; unknown; hostile.
    for (name, tool) in [
        ("linux_fs_delete", "linux_fs_delete"),
        ("linux.fs_delete", "linux_fs_delete"),
        ("get_metrics", "get_metrics"),
    ] {
        let said = format!("Unknown tool: {name}; in execute_code: tools.{tool}(…)");
        assert_eq!(unknown(&mut client, name), said);
    }
    for name in ["nope", "x\",\"a\":\"b", "", "\u{0}", "../x"] {
        let said = unknown(&mut client, name);
        let said = said.as_str().unwrap();
        assert!(said.starts_with(&format!("Unknown tool: {name}")), "{said}");
    }
    let long = "n".repeat(100_000);
    unknown(&mut client, &long);
    assert!(workspace.path("a.txt").exists());
    client.text("read_file", json!({"path": "a.txt"}));
}

#[test]
fn every_file_tool_does_its_work() {
    let workspace = workspace("//- src/a.txt\none\ntwo\nthree\n//- src/b.rs\nfn main() {}\n");
    let mut client = classic(&workspace);
    let text = client.text(
        "read_file",
        json!({"path": "src/a.txt", "offset_lines": 1, "max_lines": 1}),
    );
    assert!(
        text.starts_with("two\n# LLMC: lines 2-2 of 3, sha "),
        "{text}"
    );
    assert!(text.contains("offset_lines=2"), "{text}");
    let text = client.text("list_dir", json!({"path": "."}));
    assert_eq!(text.lines().next(), Some("src/"), "{text}");
    let stat = client.json("stat", json!({"path": "src/a.txt"}));
    assert_eq!((&stat["size"], &stat["type"]), (&json!(14), &json!("file")));

    client.json("linux_fs_mkdirs", json!({"path": "new/deep"}));
    client.json(
        "linux_fs_write",
        json!({"path": "new/deep/n.txt", "content": "hello\n"}),
    );
    client.json(
        "linux_fs_write",
        json!({"path": "new/deep/n.txt", "content": "again\n", "mode": "append"}),
    );
    assert_eq!(workspace.read("new/deep/n.txt"), "hello\nagain\n");
    client.json(
        "linux_fs_edit",
        json!({"path": "new/deep/n.txt", "old_text": "hello", "new_text": "HELLO"}),
    );
    assert_eq!(workspace.read("new/deep/n.txt"), "HELLO\nagain\n");
    client.json(
        "linux_fs_move",
        json!({"source": "new/deep/n.txt", "target": "moved.txt"}),
    );
    assert_eq!(workspace.read("moved.txt"), "HELLO\nagain\n");
    client.json("linux_fs_delete", json!({"path": "moved.txt"}));
    client.assert_code("linux_fs_delete", json!({"path": "new"}), "IS_DIRECTORY");
    client.json("linux_fs_delete", json!({"path": "new", "recursive": true}));
    assert_eq!(workspace.tree(), ["src", "src/a.txt", "src/b.rs"]);

    let found = client.json(
        "linux_search_files",
        json!({"root": ".", "pattern": "*.rs"}),
    );
    assert_eq!(found["hits"], json!([{"path": "src/b.rs"}]));
    let found = client.json(
        "linux_search_content",
        json!({"root": ".", "pattern": "TWO", "context_lines": 1}),
    );
    assert_eq!(found["hits"][0]["path"], "src/a.txt");
    assert_eq!(found["hits"][0]["line"], 2);
    let snippet = found["hits"][0]["snippet"].as_str().unwrap();
    assert!(
        snippet.contains("one") && snippet.contains("two") && snippet.contains("three"),
        "{snippet}"
    );
    assert_eq!(client.json("health", json!({}))["ok"], true);
}

#[test]
fn a_cancelled_call_stops_and_the_next_is_answered() {
    let workspace = workspace("//- a.txt\none\n");
    huge(&workspace, "huge");
    let mut client = workspace.mcp(["--mode", "classic", "--set", "mcp.tools.read_timeout=600"]);
    client.initialize("2025-11-25");
    let id = client.send_call("linux_fs_read", json!({"path": "huge", "max_lines": 1}));
    client.notify("notifications/cancelled", json!({"requestId": id}));
    client.text("read_file", json!({"path": "a.txt"}));
    let metrics = loop {
        // The cancelled call is counted when its work has stopped.
        let metrics = client.json("get_metrics", json!({}));
        if metrics["tools"].get("linux_fs_read").is_some() {
            break metrics;
        }
    };
    assert_eq!(metrics["errors_by_code"]["CANCELLED"], 1, "{metrics}");
}

#[test]
fn a_long_call_reports_progress_and_ends_at_its_time_limit() {
    let workspace = workspace("//- a.txt\none\n");
    huge(&workspace, "huge");
    let mut client = workspace.mcp(["--mode", "classic", "--set", "mcp.tools.read_timeout=3"]);
    client.initialize("2025-11-25");
    let params = json!({"name": "linux_fs_read", "arguments": {"path": "huge", "max_lines": 1}, "_meta": {"progressToken": "p"}});
    let started = std::time::Instant::now();
    let id = client.send_request("tools/call", params);
    let answer = client.answer(&id.into());
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("TIMEOUT: "), "{text}");
    assert_eq!(answer["result"]["_meta"]["error_code"], "TIMEOUT");
    assert_eq!(answer["result"]["_meta"]["retryable"], true);
    let note = client.next_message().unwrap();
    assert_eq!(note["method"], "notifications/progress", "{note}");
    assert_eq!(note["params"]["progressToken"], "p");
}

#[test]
fn an_agent_has_the_name_it_gives_or_else_its_clients() {
    let workspace = workspace("//- a.txt\none\n");
    let agent = |workspace: &llmc_testkit::TestWorkspace, id: Option<&str>| {
        let mut client = workspace.mcp(["--mode", "classic"]);
        client.initialize("2025-11-25");
        let mut params =
            json!({"name": "run_cmd", "arguments": {"argv": ["sh", "-c", "echo $TE_AGENT_ID"]}});
        if let Some(id) = id {
            params["_meta"] = json!({"llmc/agentId": id});
        }
        let answer = client.request("tools/call", params);
        let text = answer["result"]["content"][0]["text"].as_str();
        text.unwrap_or_default().trim().to_owned()
    };
    assert_eq!(agent(&workspace, None), "testkit");
    assert_eq!(agent(&workspace, Some("mine")), "mine");
    let named = workspace.with_env("TE_AGENT_ID", "from-outside");
    assert_eq!(agent(&named, None), "from-outside");
}
