//! The gates: who gets no answer, why, and in which order.

use std::io::{BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use llmc_testkit::{TEST_TIMEOUT, read_reply, request};
use serde_json::{Value, json};

use crate::http::mcp;
use crate::workspace;

const FIXTURE: &str = "\
//- a.txt
one
";

/// Waits for something that another process does.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !done() {
        assert!(
            Instant::now() < deadline,
            "not within {TEST_TIMEOUT:?}: {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The digest of a token, from the tool that tells a file's in full.
fn sha256(text: &str) -> String {
    llmc_host::sha256_hex(text.as_bytes())
}

#[test]
fn a_foreign_host_or_origin_is_refused_before_anything_else() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--mode", "hybrid"]);
    let address = server.address().to_string();
    for host in [
        "localhost",
        "LocalHost:99",
        "127.0.0.1",
        "[::1]:8080",
        &address,
    ] {
        server.send("GET", "/health", &[("Host", host)], b"").ok();
    }
    for host in [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.",
        "[::2]",
        "user@localhost",
    ] {
        let reply = server.send("GET", "/health", &[("Host", host)], b"");
        reply.refused(403, "FORBIDDEN");
        // The host is checked first, even in a request that is wrong in every other way.
        let large = "x".repeat(20_000);
        let wrong = [("Host", host), ("X-LLMC-Token", "no"), ("Large", &large)];
        server
            .send("DELETE", "/tool", &wrong, b"")
            .refused(403, "FORBIDDEN");
    }
    for origin in ["http://localhost:3000", "https://127.0.0.1"] {
        let reply = server.send("GET", "/health", &[("Origin", origin)], b"");
        reply.ok();
        assert_eq!(reply.header("access-control-allow-origin"), Some(origin));
    }
    for origin in [
        "https://evil.example",
        "null",
        "http://localhost.evil.example",
    ] {
        let reply = server.send("GET", "/health", &[("Origin", origin)], b"");
        reply.refused(403, "FORBIDDEN");
        assert!(reply.header("access-control-allow-origin").is_none());
    }
    let reply = server.raw(b"GET /health HTTP/1.1\r\n\r\n");
    reply.refused(400, "BAD_ARGS");
    let reply = server.raw(b"GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    reply.refused(403, "FORBIDDEN");
}

#[test]
fn an_allowed_origin_gets_cors_headers() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve([
        "--set",
        "mcp.server.allowed_origins=[\"https://app.example\"]",
    ]);
    let origin = ("Origin", "https://app.example");
    let ask = [origin, ("Access-Control-Request-Method", "POST")];
    let reply = server.send("OPTIONS", "/tool", &ask, b"");
    assert_eq!(reply.status, 204);
    assert_eq!(
        reply.header("access-control-allow-origin"),
        Some("https://app.example")
    );
    assert!(
        reply
            .header("access-control-allow-headers")
            .unwrap()
            .contains("x-llmc-token")
    );
    let reply = server.send("GET", "/api/summary", &[origin], b"");
    reply.refused(401, "AUTH_FAILED");
    server
        .send("GET", "/health", &[("Origin", "http://localhost")], b"")
        .ok();
    server
        .send("GET", "/health", &[("Origin", "http://localhost:1")], b"")
        .refused(403, "FORBIDDEN");
}

#[test]
fn tokens_are_checked_in_headers_and_nowhere_else() {
    let workspace = workspace(FIXTURE).with_env("LLMC_MCP_TOKEN", "correct-horse-battery");
    let server = workspace.serve(["--mode", "hybrid"]);
    assert_eq!(server.token, "", "none is made");
    assert!(!workspace.path(".llmc/token").exists());
    let get = |headers: &[(&str, &str)]| server.send("GET", "/api/config", headers, b"");
    get(&[("X-LLMC-Token", "correct-horse-battery")]).ok();
    get(&[("x-llmc-token", "correct-horse-battery")]).ok();
    get(&[("Authorization", "Bearer correct-horse-battery")]).ok();
    get(&[("Authorization", "bearer correct-horse-battery")]).ok();
    let long = "x".repeat(10_000);
    for headers in [
        vec![],
        vec![("X-LLMC-Token", "")],
        vec![("X-LLMC-Token", "wrong")],
        vec![("X-LLMC-Token", "correct-horse-batter")],
        vec![("X-LLMC-Token", "correct-horse-battery2")],
        vec![("X-LLMC-Token", "CORRECT-HORSE-BATTERY")],
        vec![("X-LLMC-Token", "ünïcödé")],
        vec![("X-LLMC-Token", &long)],
        vec![("Authorization", "Basic correct-horse-battery")],
        vec![("Authorization", "correct-horse-battery")],
        vec![("Authorization", "Bearer ")],
        vec![("Cookie", "token=correct-horse-battery")],
        // The configured header decides; two of one kind are ambiguous.
        vec![
            ("X-LLMC-Token", "wrong"),
            ("Authorization", "Bearer correct-horse-battery"),
        ],
        vec![
            ("X-LLMC-Token", "correct-horse-battery"),
            ("X-LLMC-Token", "correct-horse-battery"),
        ],
    ] {
        let reply = get(&headers);
        let body = reply.refused(401, "AUTH_FAILED");
        assert_eq!(
            reply.header("www-authenticate"),
            Some("Bearer"),
            "{headers:?}"
        );
        assert!(!body.to_string().contains("correct-horse"));
    }
    for query in ["token", "X-LLMC-Token", "access_token", "x-llmc-token"] {
        let path = format!("/api/config?{query}=correct-horse-battery");
        server
            .send("GET", &path, &[], b"")
            .refused(401, "AUTH_FAILED");
    }
    let reply = server.raw(&request(
        "GET",
        "/api/config",
        &[("X-LLMC-Token", &"y".repeat(1 << 20))],
        b"",
    ));
    reply.refused(431, "TOO_LARGE");
    let body = server.send(
        "GET",
        "/api/config",
        &[("X-LLMC-Token", "correct-horse-battery")],
        b"",
    );
    assert!(
        !body.text().contains("correct-horse"),
        "a secret is never shown"
    );
}

#[test]
fn a_token_is_made_once_and_only_for_its_owner() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--mode", "hybrid"]);
    let token = server.token.clone();
    assert_eq!(token.len(), 64);
    server.get("/api/summary").ok();
    let file = workspace.path(".llmc/token");
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&file), 0o600);
    // What the agent runs and reads cannot see it.
    for (tool, args) in [
        ("read_file", json!({"path": ".llmc/token"})),
        (
            "te_grep",
            json!({"pattern": "[0-9a-f]{64}", "path": ".llmc"}),
        ),
        ("run_cmd", json!({"argv": ["cat", ".llmc/token"]})),
    ] {
        let reply = server.tool(tool, args);
        assert!(!reply.text().contains(&token), "{tool}");
    }
    drop(server);
    assert_eq!(
        workspace.serve(["--mode", "te"]).token,
        token,
        "kept over a restart"
    );
    let refused = |what: &str, code: i32| {
        let ended = workspace.llmc(["serve", "--port", "0"]);
        assert_eq!(ended.code, Some(code), "{}", ended.stderr);
        let last = ended
            .stderr
            .lines()
            .rev()
            .find(|line| line.starts_with("llmc: "));
        assert!(last.unwrap().contains(what), "{}", ended.stderr);
        assert!(!ended.stderr.contains(&token));
    };
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    refused("chmod 600", 4);
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::write(&file, "").unwrap();
    refused("holds no token", 4);
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(workspace.outside("canary"), &file).unwrap();
    refused("token file", 4);
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    refused("token file", 4);
}

#[test]
fn an_open_server_does_not_start() {
    let workspace = workspace(FIXTURE);
    let refused = |flags: &[&str], what: &str| {
        let ended = workspace.llmc([&["serve", "--port", "0"], flags].concat());
        assert_eq!(ended.code, Some(2), "{flags:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(what), "{flags:?}: {}", ended.stderr);
    };
    refused(&["--host", "0.0.0.0"], "LLMC_MCP_TOKEN");
    refused(
        &["--host", "0.0.0.0", "--set", "mcp.auth.mode=\"none\""],
        "allow_unauthenticated",
    );
    refused(&["--set", "mcp.enabled=false"], "mcp.enabled");
    refused(&["--listen", "tcp:80"], "unix:PATH");
    refused(
        &[
            "--set",
            "mcp.auth.tokens=[{name=\"ci\", token_env=\"NOT_SET\"}]",
        ],
        "NOT_SET",
    );
    refused(
        &[
            "--set",
            &format!(
                "mcp.auth.tokens=[{{name=\"local\", sha256=\"{}\"}}]",
                "0".repeat(64)
            ),
        ],
        "local",
    );
    let broken = workspace.with_env("LLMC_MCP_TOKEN", "two words");
    let ended = broken.llmc(["serve", "--port", "0"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("LLMC_MCP_TOKEN") && !ended.stderr.contains("two words"));
}

#[test]
fn without_authentication_everybody_on_loopback_is_local() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--set", "mcp.auth.mode=\"none\""]);
    assert_eq!(server.token, "");
    let body = server.send("GET", "/api/summary", &[], b"").ok();
    assert_eq!(body["server"]["principal"], "local");
    server
        .send("GET", "/api/summary", &[("Host", "evil.example")], b"")
        .refused(403, "FORBIDDEN");
}

#[test]
fn a_named_token_has_its_own_rights_handles_and_rate() {
    let workspace = workspace(FIXTURE);
    workspace.write("big.txt", "line of text\n".repeat(5000));
    let tokens = format!(
        "mcp.auth.tokens=[\
         {{name=\"reader\", sha256=\"{}\", read_only=true}},\
         {{name=\"ci\", sha256=\"{}\", tools=[\"linux.fs_read\", \"health\", \"linux_handle_read\"]}},\
         {{name=\"slow\", sha256=\"{}\", rate_limit_rps=1}}]",
        sha256("reader-token-0123456789"),
        sha256("ci-token-0123456789"),
        sha256("slow-token-0123456789"),
    );
    let burst = "mcp.limits.rate_limit_burst=3";
    let server = workspace.serve(["--set", &tokens, "--set", burst]);
    let call = |token: &str, name: &str, args: Value| {
        server.post_as(
            token,
            "/tool",
            &json!({"session_id": "s", "name": name, "args": args}),
        )
    };
    let reader = "reader-token-0123456789";
    call(reader, "read_file", json!({"path": "a.txt"})).ok();
    let write = json!({"path": "new", "content": "x"});
    call(reader, "linux_fs_write", write.clone()).refused(403, "FORBIDDEN");
    call(reader, "run_cmd", json!({"command": "ls"})).refused(403, "FORBIDDEN");
    assert!(!workspace.path("new").exists());
    let ci = "ci-token-0123456789";
    let page = json!({"path": "big.txt", "max_lines": 10});
    let read = call(ci, "linux_fs_read", page).ok();
    let handle = read["meta"]["handle"].as_str().unwrap().to_owned();
    let body = call(ci, "read_file", json!({"path": "a.txt"})).refused(403, "FORBIDDEN");
    assert!(
        body["message"].as_str().unwrap().contains("token"),
        "{body}"
    );
    call(ci, "linux_handle_read", json!({"handle": handle})).ok();
    // Another principal's handle does not exist.
    let other = call(
        &server.token,
        "linux_handle_read",
        json!({"handle": handle}),
    );
    other.refused(410, "GONE");
    let path = format!("/api/handles/{handle}");
    server.get(&path).refused(410, "GONE");
    let own = [("X-LLMC-Token", ci)];
    assert_eq!(server.send("GET", &path, &own, b"").ok()["offset"], 0);
    // Its rate is its own: three at once, then one a second; the others do not notice.
    let slow = [("X-LLMC-Token", "slow-token-0123456789")];
    let statuses: Vec<u16> = (0..6)
        .map(|_| server.send("GET", "/openapi.json", &slow, b"").status)
        .collect();
    assert_eq!(statuses[..3], [200; 3]);
    assert!(statuses[4..].contains(&429), "{statuses:?}");
    server.get("/openapi.json").ok();
}

#[test]
fn the_rate_is_kept_and_says_when_to_come_back() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve([
        "--set",
        "mcp.limits.rate_limit_rps=1",
        "--set",
        "mcp.limits.rate_limit_burst=5",
    ]);
    let started = Instant::now();
    let replies: Vec<_> = (0..30).map(|_| server.get("/openapi.json")).collect();
    let refilled = started.elapsed().as_secs() as usize + 1;
    let passed = replies.iter().filter(|reply| reply.status == 200).count();
    assert!((5..=5 + refilled).contains(&passed), "{passed} of 30");
    let refused = replies.iter().find(|reply| reply.status != 200).unwrap();
    refused.refused(429, "RATE_LIMITED");
    assert_eq!(refused.header("retry-after"), Some("1"));
    // What is public is not counted, and what is refused earlier neither.
    for _ in 0..30 {
        server.send("GET", "/health", &[], b"").ok();
        server
            .send("GET", "/tool", &[], b"")
            .refused(401, "AUTH_FAILED");
    }
}

/// Calls that may wait without a slot; one more keeps its slot.
const MAX_WAITING_CALLS: usize = 120;

#[test]
fn slots_are_limited_and_waiting_for_one_ends() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve([
        "--mode",
        "classic",
        "--set",
        "mcp.limits.concurrency_per_token=1",
        "--set",
        "mcp.limits.rate_limit_rps=100000",
        "--set",
        "mcp.limits.rate_limit_burst=100000",
    ]);
    let script = "until test -e go; do sleep 0.05; done; echo ready; sleep 60";
    let in_session =
        |name: &str, args: Value| json!({"session_id": "one", "name": name, "args": args});
    let start = in_session("linux_proc_start", json!({"argv": ["sh", "-c", script]}));
    let started = server.post("/tool", &start);
    let id = started.ok()["data"]["proc_id"].as_str().unwrap().to_owned();
    let args = json!({"proc_id": id, "until": "ready", "timeout": 300, "offset": 0});
    let body = in_session("linux_proc_read", args).to_string();
    let headers = [
        ("X-LLMC-Token", server.token.as_str()),
        ("Content-Type", "application/json"),
    ];
    let mut waiting = Vec::new();
    for _ in 0..=MAX_WAITING_CALLS {
        let mut stream = server.connect();
        let call = request("POST", "/tool", &headers, body.as_bytes());
        stream.write_all(&call).unwrap();
        waiting.push(stream);
    }
    until("the slot is taken", || {
        server.get("/openapi.json").status == 429
    });
    let reply = server.get("/openapi.json");
    reply.refused(429, "RATE_LIMITED");
    assert_eq!(reply.header("retry-after"), Some("1"));
    server.send("GET", "/health", &[], b"").ok();
    // An MCP request is refused in its own form and under its id, and control messages need no slot.
    let list = json!({"jsonrpc": "2.0", "id": "nine", "method": "tools/list"});
    let reply = mcp(&server, &[], &list);
    reply.refused(429, "RATE_LIMITED");
    assert_eq!(reply.json()["id"], "nine");
    assert_eq!(reply.json()["error"]["code"], -32000);
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(mcp(&server, &[], &ping).ok()["result"], json!({}));
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    assert_eq!(mcp(&server, &[], &cancel).status, 202);
    workspace.write("go", "");
    for stream in waiting {
        let reply = read_reply(&mut BufReader::new(stream)).ok();
        assert_eq!(reply["data"]["output"], "ready\n", "{reply}");
    }
    server.get("/openapi.json").ok();
}

#[test]
fn a_waiting_call_occupies_no_slot() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve([
        "--mode",
        "classic",
        "--set",
        "mcp.limits.concurrency_per_token=1",
    ]);
    let script = "touch started; until test -e go; do sleep 0.05; done; echo done";
    let args = json!({"argv": ["sh", "-c", script], "timeout": 300});
    let body = json!({"name": "run_cmd", "args": args}).to_string();
    let headers = [
        ("X-LLMC-Token", server.token.as_str()),
        ("Content-Type", "application/json"),
    ];
    let mut first = server.connect();
    first
        .write_all(&request("POST", "/tool", &headers, body.as_bytes()))
        .unwrap();
    until("the command runs", || workspace.path("started").exists());
    server.tool("run_cmd", json!({"command": "touch go"})).ok();
    let reply = read_reply(&mut BufReader::new(first));
    assert_eq!(reply.ok()["data"]["stdout"], "done\n");
}

#[test]
fn mcp_is_refused_in_its_own_form() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve([
        "--set",
        "mcp.limits.max_request_bytes=1000",
        "--set",
        "mcp.limits.rate_limit_rps=1",
        "--set",
        "mcp.limits.rate_limit_burst=1",
    ]);
    let list = |padding: usize| {
        let params = json!({"_meta": {"padding": "x".repeat(padding)}});
        json!({"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": params})
    };
    let reply = mcp(&server, &[], &list(1000));
    reply.refused(413, "TOO_LARGE");
    assert_eq!(reply.json()["error"]["code"], -32600);
    assert_eq!(reply.json()["id"], Value::Null, "its body is not read");
    until("the rate is used up", || {
        mcp(&server, &[], &list(0)).status == 429
    });
    let reply = mcp(&server, &[], &list(0));
    reply.refused(429, "RATE_LIMITED");
    assert_eq!(reply.json()["error"]["code"], -32000);
    assert_eq!(reply.header("retry-after"), Some("1"));
}

#[test]
fn a_forged_forwarding_header_changes_nothing() {
    let workspace = workspace(FIXTURE);
    for (trust, client) in [("false", "127.0.0.1"), ("true", "203.0.113.7")] {
        let trust = format!("mcp.server.trust_proxy={trust}");
        let mut server = workspace.serve(["--set", &trust]);
        let forged = [
            ("X-Forwarded-For", "10.0.0.1, 203.0.113.7"),
            ("X-Forwarded-Host", "localhost"),
            ("X-Correlation-Id", "forwarded-1"),
        ];
        server
            .send("GET", "/api/config", &forged, b"")
            .refused(401, "AUTH_FAILED");
        let logged = server.process().wait_for_stderr(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            (line["correlation_id"] == "forwarded-1").then_some(line)
        });
        assert_eq!(logged["client"], client, "{trust}");
        let host = [("Host", "evil.example"), ("X-Forwarded-Host", "localhost")];
        server
            .send("GET", "/health", &host, b"")
            .refused(403, "FORBIDDEN");
    }
}
