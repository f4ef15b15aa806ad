//! Every route of `llmc serve`, answered.

use llmc_testkit::{HttpReply, HttpServer};
use serde_json::{Value, json};

use crate::{keys, workspace};

pub(crate) const FIXTURE: &str = "\
//- a.txt
one
two
//- src/lib.rs
pub fn f() {}
";

/// A POST to `/mcp` in a revision, with further headers.
pub(crate) fn mcp(server: &HttpServer, headers: &[(&str, &str)], message: &Value) -> HttpReply {
    let mut all = vec![
        ("X-LLMC-Token", server.token.as_str()),
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
    ];
    all.extend(headers);
    server.send("POST", "/mcp", &all, message.to_string().as_bytes())
}

/// The session of a new handshake.
pub(crate) fn open_session(server: &HttpServer, token: &str, revision: &str) -> String {
    let open = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {
            "protocolVersion": revision, "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    });
    let headers = [
        ("X-LLMC-Token", token),
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
    ];
    let reply = server.send("POST", "/mcp", &headers, open.to_string().as_bytes());
    assert_eq!(reply.ok()["result"]["protocolVersion"], revision);
    reply.header("mcp-session-id").unwrap().to_owned()
}

#[test]
fn health_needs_no_token_and_reports_the_state() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--mode", "hybrid"]);
    let body = server.send("GET", "/health", &[], b"").ok();
    assert_eq!(
        keys(&body),
        ["confinement", "index", "ok", "profile", "version"]
    );
    assert_eq!(body["ok"], true);
    assert_eq!(body["version"], "v0");
    assert_eq!(body["index"], "none");
    assert_eq!(body, server.tool("health", json!({})).ok()["data"]);
    server
        .send("GET", "/nope", &[], b"")
        .refused(401, "AUTH_FAILED");
}

#[test]
fn tools_answer_undecorated_data() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--mode", "te"]);
    let body = server.tool("read_file", json!({"path": "a.txt"})).ok();
    assert_eq!(body["data"], "one\ntwo\n");
    assert_eq!(body["meta"]["path"], "a.txt");
    assert_eq!(body["meta"]["length"], 8);
    assert_eq!(body["meta"]["truncated"], false);
    let body = server.tool("list_dir", json!({"path": "."})).ok();
    assert_eq!(body["data"], json!(["a.txt", "src"]));
    let body = server.tool("stat", json!({"path": "a.txt"})).ok();
    assert_eq!(keys(&body["data"]), ["mode", "mtime", "size", "type"]);
    let body = server.tool("run_cmd", json!({"command": "cat a.txt"})).ok();
    let ran = json!({"stdout": "one\ntwo\n", "stderr": "", "exit_code": 0});
    assert_eq!(body["data"], ran, "a mode does not limit REST");
    // A session is optional, and so are arguments where a tool needs none.
    server.post("/tool", &json!({"name": "health"})).ok();
}

#[test]
fn an_error_carries_the_output_before_the_failure() {
    let workspace = workspace(FIXTURE);
    let kill = "mcp.exec.on_timeout=\"kill\"";
    let server = workspace.serve(["--mode", "classic", "--set", kill]);
    let slow = json!({"argv": ["sh", "-c", "echo early; sleep 60"], "timeout": 0.5});
    let body = server.tool("run_cmd", slow).refused(504, "TIMEOUT");
    assert_eq!(body["stdout"], "early\n", "{body}");
    let edit = json!({"path": "a.txt", "old_text": "ones", "new_text": "x"});
    let body = server.tool("linux_fs_edit", edit).refused(409, "CONFLICT");
    assert!(body["nearest"].to_string().contains("one"), "{body}");
}

#[test]
fn a_failed_tool_has_the_status_and_codes_of_the_table() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--mode", "classic"]);
    let cases = r#"
        404 NOT_FOUND NOT_FOUND      read_file      {"path": "gone"}
        403 FORBIDDEN INVALID_PATH   read_file      {"path": "/etc/passwd"}
        409 CONFLICT  IS_DIRECTORY   read_file      {"path": "src"}
        422 BAD_ARGS  BAD_ARGS       read_file      {"pat": "a"}
        422 BAD_ARGS  BAD_ARGS       read_file      {"path": 3}
        422 BAD_ARGS  BAD_ARGS       no_such_tool   {}
        403 FORBIDDEN COMMAND_DENIED run_cmd        {"argv": ["no-such-program"]}
        404 NOT_FOUND not_found      te_cat         {"path": "gone"}
        410 GONE      handle_expired te_handle      {"handle": "res_01ARZ3NDEKTSV4RRFFQ69G5FAV"}
        409 CONFLICT  SHA_MISMATCH   linux_fs_write {"path": "a.txt", "content": "x", "expected_sha256": "00000000"}
    "#;
    for case in cases.trim().lines().map(str::trim) {
        let (words, args) = case.split_at(case.find('{').unwrap());
        let [status, code, own, name] = words.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("{case}");
        };
        let reply = server.tool(name, serde_json::from_str(args).unwrap());
        let body = reply.refused(status.parse().unwrap(), code);
        assert_eq!(body["error_code"], own, "{case}");
    }
    workspace.assert_outside_untouched();
}

#[test]
fn retrieval_answers_while_the_index_is_still_being_built() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--mode", "hybrid"]);
    let body = server.post("/rag/search", &json!({"q": "first"})).ok();
    assert_eq!(body["provenance"], true);
    let state = body["index"].as_str().unwrap();
    assert!(["none", "building", "ready"].contains(&state), "{body}");
    assert!(body["snippets"].is_array() && body.get("clamped").is_none());
    let wide = json!({"q": "first", "scope": "both", "k": 50, "budget_tokens": 100_000});
    let body = server.post("/rag/search", &wide).ok();
    assert_eq!(body["clamped"], json!(["k", "budget_tokens"]));
    for bad in [
        json!({}),
        json!({"q": "first", "k": 0}),
        json!({"q": "first", "budget_tokens": -1}),
        json!({"q": "first", "scope": "elsewhere"}),
        json!({"q": 1}),
        json!({"q": "first", "unknown": 1}),
        json!([]),
    ] {
        server.post("/rag/search", &bad).refused(422, "BAD_ARGS");
    }
    let asked = json!({"session_id": "s", "task_id": "t"});
    let body = server.post("/rag/bootload", &asked).ok();
    for key in ["plan", "scope", "notes", "snippets", "provenance"] {
        assert!(body.get(key).is_some(), "{key}: {body}");
    }
    server
        .post("/rag/bootload", &json!({"session_id": "s"}))
        .refused(422, "BAD_ARGS");
}

#[test]
fn a_message_for_an_agent_is_received() {
    let workspace = workspace(FIXTURE);
    let message =
        json!({"session_id": "S", "role": "Otto", "user_msg": "hi", "inject_context": ""});
    let server = workspace.serve(["--mode", "hybrid"]);
    let body = server.post("/invoke_agent", &message).ok();
    let text = "[MCP v0] received; use /rag/search for pre-call context";
    assert_eq!(body, json!({"text": text, "context": []}));
    server
        .post("/invoke_agent", &json!({"session_id": "S"}))
        .refused(422, "BAD_ARGS");
    // With an index, what the message is about comes with it.
    drop(server);
    workspace.write(
        "src/pool.rs",
        "/// Takes an idle connection.\npub fn take_connection() {}\n",
    );
    drop(crate::rag::ready(&workspace));
    let server = workspace.serve(["--mode", "hybrid"]);
    let about = json!({"session_id": "S", "role": "Otto", "user_msg": "take an idle connection", "inject_context": ""});
    let body = server.post("/invoke_agent", &about).ok();
    let first = &body["context"][0];
    assert_eq!(first["symbol"], "take_connection", "{body}");
    assert!(
        first["text"]
            .as_str()
            .unwrap()
            .contains("pub fn take_connection"),
        "{body}"
    );
    assert!(
        first["src"].as_str().unwrap().starts_with("src/pool.rs#L"),
        "{body}"
    );
    drop(server);
    let server = workspace.serve(["--set", "mcp.rag.jit_context_enabled=false"]);
    let body = server.post("/invoke_agent", &about).ok();
    assert_eq!(body, json!({"text": text}));
}

#[test]
fn metrics_count_calls_requests_and_refusals() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--mode", "hybrid"]);
    server.tool("read_file", json!({"path": "a.txt"})).ok();
    server.tool("read_file", json!({"path": "gone"}));
    server.tool("te_cat", json!({"path": "a.txt"})).ok();
    // A command passes the envelope whichever tool runs it.
    server.tool("run_cmd", json!({"command": "sleep 0.3"})).ok();
    server
        .send("GET", "/metrics", &[], b"")
        .refused(401, "AUTH_FAILED");
    let reply = server.get("/metrics");
    assert!(
        reply
            .header("content-type")
            .unwrap()
            .starts_with("text/plain; version=0.0.4")
    );
    let text = reply.text();
    for line in [
        "llmc_tool_calls_total{tool=\"read_file\"} 2",
        "llmc_tool_duration_seconds_count{tool=\"read_file\"} 2",
        "llmc_http_request_duration_seconds_count{route=\"/tool\"} 4",
        "llmc_http_requests_total{route=\"/tool\",status=\"404\"} 1",
        "llmc_errors_total{code=\"NOT_FOUND\"} 1",
        "llmc_errors_total{code=\"AUTH_FAILED\"} 1",
        "llmc_auth_failures_total 1",
        "llmc_rate_limited_total 0",
        "llmc_te_duration_seconds_count 2",
        "llmc_handle_store_handles 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let sum = text
        .lines()
        .find_map(|line| line.strip_prefix("llmc_te_duration_seconds_sum "));
    let sum: f64 = sum.expect("a sum").parse().unwrap();
    assert!(sum >= 0.3, "{sum}: the time of the command is in it");
    assert!(text.contains("llmc_confinement_info{level="));
    for direction in ["in", "served", "withheld", "fetched_back"] {
        assert!(text.contains(&format!("llmc_tokens_total{{direction=\"{direction}\"}}")));
    }
    // Every sample belongs to a metric that was introduced.
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let base = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .filter(|base| base.ends_with("seconds"))
            .unwrap_or(name);
        assert!(text.contains(&format!("# TYPE {base} ")), "{line}");
    }
}

#[test]
fn metrics_can_be_switched_off_and_moved() {
    let workspace = workspace(FIXTURE);
    for off in [
        "mcp.observability.metrics_prometheus_enabled=false",
        "mcp.observability.metrics_enabled=false",
        "mcp.observability.enabled=false",
    ] {
        let server = workspace.serve(["--set", off]);
        server.get("/metrics").refused(404, "NOT_FOUND");
        server.tool("health", json!({})).ok();
    }
    let server = workspace.serve(["--set", "mcp.observability.metrics_path=\"/internal/prom\""]);
    server.get("/metrics").refused(404, "NOT_FOUND");
    assert_eq!(server.get("/internal/prom").status, 200);
    for taken in ["/tool", "/", "/mcp", "/api/summary", "/{x}", "/a b"] {
        let set = format!("mcp.observability.metrics_path=\"{taken}\"");
        let ended = workspace.llmc(["serve", "--port", "0", "--set", &set]);
        assert_eq!(ended.code, Some(2), "{taken}: {}", ended.stderr);
        assert!(ended.stderr.contains("metrics_path"), "{}", ended.stderr);
    }
}

#[test]
fn the_page_is_public_and_locked_down() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--mode", "hybrid"]);
    for (path, kind) in [
        ("/", "text/html"),
        ("/app.js", "text/javascript"),
        ("/live.js", "text/javascript"),
        ("/style.css", "text/css"),
        ("/favicon.svg", "image/svg+xml"),
    ] {
        let reply = server.send("GET", path, &[], b"");
        assert_eq!(reply.status, 200, "{path}");
        assert!(
            reply.header("content-type").unwrap().starts_with(kind),
            "{path}"
        );
        let policy = reply.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"));
        assert_eq!(reply.header("x-frame-options"), Some("DENY"));
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        assert!(!reply.text().contains(&server.token));
        assert!(!reply.text().contains(workspace.root().to_str().unwrap()));
    }
    server
        .send("POST", "/", &[], b"")
        .refused(405, "METHOD_NOT_ALLOWED");
}

#[test]
fn the_description_of_the_routes_is_of_these_routes() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--mode", "hybrid"]);
    let document = server.get("/openapi.json").ok();
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 23, "{:?}", paths.keys());
    for (path, methods) in paths {
        let path = path.replace("{handle}", "res_01ARZ3NDEKTSV4RRFFQ69G5FAV");
        let path = path.replace("{entry}", "h12").replace("{id}", "12");
        let path = path
            .replace("{server}", "1-a")
            .replace("{target}", "p_1a2b3c4d");
        for (method, operation) in methods.as_object().unwrap() {
            let allowed = operation["responses"].as_object().unwrap();
            let reply = match method.as_str() {
                // The stream does not end; that it begins is tested where its events are.
                "get" if path == "/api/events" => continue,
                "get" => server.get(&path),
                _ => server.post(&path, &json!({})),
            };
            assert_ne!(reply.status, 405, "{path}");
            let status = reply.status.to_string();
            assert!(
                allowed.contains_key(&status),
                "{method} {path}: {status} is not documented"
            );
            let other = if method == "get" { "POST" } else { "GET" };
            let token = [("X-LLMC-Token", server.token.as_str())];
            let reply = server.send(
                other,
                &path,
                &token,
                if other == "POST" { b"{}" } else { b"" },
            );
            reply.refused(405, "METHOD_NOT_ALLOWED");
            assert!(reply.header("allow").is_some(), "{path}");
        }
    }
    // Every reference leads somewhere.
    let text = document.to_string();
    for part in text.split("\"$ref\":\"#").skip(1) {
        let pointer = part.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer}");
    }
}

#[test]
fn a_correlation_id_is_kept_made_and_found_in_every_line() {
    let workspace = workspace(FIXTURE);
    let mut server = workspace.serve(["--mode", "hybrid"]);
    let token = server.token.clone();
    let send = |id: &str| {
        let headers = [
            ("X-LLMC-Token", token.as_str()),
            ("X-Correlation-Id", id),
            ("Content-Type", "application/json"),
        ];
        let body = json!({"name": "read_file", "args": {"path": "a.txt"}});
        server.send("POST", "/tool", &headers, body.to_string().as_bytes())
    };
    let reply = send("My.own_id-42");
    assert_eq!(reply.header("x-correlation-id"), Some("My.own_id-42"));
    assert_eq!(reply.ok()["meta"]["correlation_id"], "My.own_id-42");
    for unfit in [
        "short",
        "has space in it",
        "a\"quote-in-it",
        &"x".repeat(65),
        "",
    ] {
        let reply = send(unfit);
        let id = reply.header("x-correlation-id").unwrap();
        assert_eq!(id.len(), 36, "{unfit}: {id}");
        assert_eq!(reply.ok()["meta"]["correlation_id"], id);
    }
    for msg in ["call", "request"] {
        server.process().wait_for_stderr(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            (line["msg"] == msg && line["correlation_id"] == "My.own_id-42").then_some(())
        });
    }
}
