//! MCP at `/mcp`: revisions, sessions, and requests that contradict themselves.

use llmc_testkit::META_2026;
use serde_json::{Value, json};

use crate::http::{FIXTURE, mcp, open_session};
use crate::procs::eventually;
use crate::workspace;

#[test]
fn mcp_speaks_all_three_revisions_at_one_address() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--mode", "hybrid"]);
    let mut lists = Vec::new();
    for revision in ["2025-06-18", "2025-11-25"] {
        let open = json!({
            "jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": {
                "protocolVersion": revision, "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        });
        let reply = mcp(&server, &[], &open);
        assert_eq!(reply.ok()["result"]["protocolVersion"], revision);
        let session = reply.header("mcp-session-id").unwrap().to_owned();
        let headers = [
            ("MCP-Protocol-Version", revision),
            ("Mcp-Session-Id", session.as_str()),
        ];
        let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(mcp(&server, &headers, &note).status, 202);
        let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
        lists.push(mcp(&server, &headers, &list).ok()["result"]["tools"].clone());
        let call = json!({
            "jsonrpc": "2.0", "id": "three", "method": "tools/call",
            "params": {"name": "read_file", "arguments": {"path": "a.txt", "max_lines": 1}},
        });
        let body = mcp(&server, &headers, &call).ok();
        assert_eq!(body["id"], "three");
        let text = body["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with("one\n# LLMC: "), "{text}");
    }
    let meta: Value = serde_json::from_str(META_2026).unwrap();
    let headers = [
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/list"),
    ];
    let list =
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {"_meta": meta}});
    let reply = mcp(&server, &headers, &list);
    assert!(
        reply.header("mcp-session-id").is_none(),
        "this revision has no sessions"
    );
    lists.push(reply.ok()["result"]["tools"].clone());
    assert!(
        lists.windows(2).all(|pair| pair[0] == pair[1]),
        "one list for all"
    );
    assert!(
        lists[0]
            .as_array()
            .unwrap()
            .iter()
            .any(|tool| tool["name"] == "read_file")
    );
}

#[test]
fn a_client_without_clientinfo_is_named_by_its_user_agent() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--mode", "hybrid"]);
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "read_file", "arguments": {"path": "a.txt"}},
    });
    for (user_agent, agent) in [
        ("coder/1.2 (linux)", "coder"),
        ("Mozilla/5.0 (X11)", "unknown"),
    ] {
        let session = open_session(&server, &server.token, "2025-11-25");
        let headers = [
            ("MCP-Protocol-Version", "2025-11-25"),
            ("Mcp-Session-Id", session.as_str()),
            ("User-Agent", user_agent),
        ];
        mcp(&server, &headers, &call).ok();
        eventually("the call is recorded", || {
            let summary = server.get("/api/summary").ok();
            let sessions = summary["sessions"].as_array().unwrap().clone();
            let entry = sessions
                .iter()
                .find(|entry| entry["session"] == session.as_str());
            entry.is_some_and(|entry| {
                assert_eq!(entry["agent"], agent, "{entry}");
                true
            })
        });
    }
}

#[test]
fn a_session_is_one_that_was_issued_and_not_ended() {
    let workspace = workspace(FIXTURE).with_env("CI_TOKEN", "ci-token-0123456789");
    let tokens = "mcp.auth.tokens=[{name=\"ci\", token_env=\"CI_TOKEN\"}]";
    let server = workspace.serve(["--mode", "hybrid", "--set", tokens]);
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    let list_in = |session: &str| mcp(&server, &[("Mcp-Session-Id", session)], &list);
    let session = open_session(&server, &server.token, "2025-11-25");
    let foreign = open_session(&server, "ci-token-0123456789", "2025-11-25");
    list_in(&session).ok();
    let forged = session.replace(|c: char| c.is_ascii_digit(), "f");
    for unknown in ["bogus", "", &forged, &foreign] {
        let reply = list_in(unknown);
        let refusal = reply.refused(404, "NOT_FOUND");
        assert!(refusal["hint"].as_str().unwrap().contains("initialize"));
        assert_eq!(reply.json()["id"], 2);
    }
    let delete = |session: &str| {
        let headers = [
            ("X-LLMC-Token", server.token.as_str()),
            ("Mcp-Session-Id", session),
        ];
        server.send("DELETE", "/mcp", &headers, b"")
    };
    assert_eq!(delete("bogus").status, 404);
    assert_eq!(delete(&session).status, 204);
    assert_eq!(delete(&session).status, 404);
    assert_eq!(list_in(&session).status, 404);
    let token = [("X-LLMC-Token", server.token.as_str())];
    let none = server.send("DELETE", "/mcp", &token, b"");
    none.refused(400, "BAD_ARGS");
    // A session outlives the process that issued it.
    let kept = open_session(&server, &server.token, "2025-06-18");
    drop(server);
    let server = workspace.serve(["--mode", "hybrid", "--set", tokens]);
    mcp(&server, &[("Mcp-Session-Id", &kept)], &list).ok();
}

#[test]
fn a_wrong_cursor_and_an_unknown_method_are_explained() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--mode", "hybrid"]);
    let ask = |method: &str, params: Value| {
        let message = json!({"jsonrpc": "2.0", "id": 2, "method": method, "params": params});
        mcp(&server, &[], &message).json()
    };
    for method in ["tools/list", "resources/list", "resources/templates/list"] {
        let error = ask(method, json!({"cursor": "page2"}))["error"].take();
        assert_eq!(error["code"], -32602, "{method}: {error}");
        assert!(error["message"].as_str().unwrap().contains("cursor"));
        let answer = ask(method, json!({"cursor": ""}));
        assert!(answer["result"].is_object(), "{method}: {answer}");
    }
    for (method, named) in [
        ("tool/list", "did you mean tools/list?"),
        ("resource/read", "did you mean resources/read?"),
        (
            "prompts/list",
            "this server has initialize, ping, resources/list",
        ),
        ("completion/complete", "this server has"),
        ("zzz", "this server has"),
    ] {
        let params = json!({"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": "b"}});
        let error = ask(method, params)["error"].take();
        assert_eq!(error["code"], -32601, "{method}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains(named) && message.contains(method),
            "{message}"
        );
    }
}

#[test]
fn mcp_refuses_what_contradicts_itself() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--mode", "hybrid"]);
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    for revision in ["2024-11-05", "2025-03-26", "1999-01-01", "", "nonsense"] {
        let reply = mcp(&server, &[("MCP-Protocol-Version", revision)], &list);
        reply.refused(400, "BAD_ARGS");
    }
    let meta: Value = serde_json::from_str(META_2026).unwrap();
    let modern =
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {"_meta": meta}});
    for headers in [
        // The body's revision is not the header's, or there is no header.
        vec![
            ("MCP-Protocol-Version", "2025-11-25"),
            ("Mcp-Method", "tools/list"),
        ],
        vec![("Mcp-Method", "tools/list")],
        // The header names another method.
        vec![
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/call"),
        ],
    ] {
        let reply = mcp(&server, &headers, &modern);
        assert_eq!(reply.status, 400, "{headers:?}: {}", reply.text());
        assert!(reply.header("x-correlation-id").is_some());
    }
    let mut unsupported = modern.clone();
    unsupported["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2099-01-01".into();
    let headers = [
        ("MCP-Protocol-Version", "2099-01-01"),
        ("Mcp-Method", "tools/list"),
    ];
    let reply = mcp(&server, &headers, &unsupported);
    assert_eq!(reply.status, 400, "{}", reply.text());
    assert!(reply.json()["error"]["code"].is_i64(), "{}", reply.text());
    // What a line would be refused for is refused here.
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
        r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
        r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
        "{",
        "",
    ] {
        let headers = [
            ("X-LLMC-Token", server.token.as_str()),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        let reply = server.send("POST", "/mcp", &headers, body.as_bytes());
        assert_eq!(reply.status, 400, "{body}: {}", reply.text());
        assert!(reply.json()["error"]["code"].is_i64(), "{}", reply.text());
    }
    let plain = [
        ("X-LLMC-Token", server.token.as_str()),
        ("Content-Type", "application/json"),
    ];
    let reply = server.send("POST", "/mcp", &plain, list.to_string().as_bytes());
    reply.refused(406, "BAD_ARGS");
}
