//! What dashboards read: live calls, sums, stored results, the configuration.

use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use llmc_testkit::{HttpServer, read_chunk, read_reply, request};
use serde_json::{Value, json};

use crate::{keys, workspace};

const FIXTURE: &str = "\
//- a.txt
one
";

/// An open stream of events.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(server: &HttpServer, token: &str) -> Events {
        Events::with_first(server, token).0
    }

    /// Also the gauges that come at once.
    fn with_first(server: &HttpServer, token: &str) -> (Events, Value) {
        let mut stream = server.connect();
        let headers = [("X-LLMC-Token", token), ("Accept", "text/event-stream")];
        stream
            .write_all(&request("GET", "/api/events", &headers, b""))
            .unwrap();
        let mut stream = BufReader::new(stream);
        // The head alone; the body has no end.
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            std::io::BufRead::read_line(&mut stream, &mut line).unwrap();
            if line.starts_with("HTTP/1.1 ") {
                assert!(line.contains(" 200 "), "{line}");
            }
        }
        let mut events = Events(stream);
        let (kind, first) = events.next().unwrap();
        assert_eq!(kind, "gauges", "at once: {first}");
        (events, first)
    }

    fn next(&mut self) -> Option<(String, Value)> {
        loop {
            let text = String::from_utf8(read_chunk(&mut self.0)?).unwrap();
            let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
            if let (Some(kind), Some(data)) = (field("event: "), field("data: ")) {
                return Some((kind.to_owned(), serde_json::from_str(data).unwrap()));
            }
        }
    }

    fn call(&mut self) -> Value {
        loop {
            let (kind, event) = self.next().expect("the stream goes on");
            if kind == "call" {
                return event;
            }
        }
    }
}

#[test]
fn a_call_is_seen_as_it_ends() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--mode", "hybrid"]);
    let mut events = Events::open(&server, &server.token);
    let reply = server.tool("read_file", json!({"path": "a.txt"}));
    let call = events.call();
    assert_eq!(call["tool"], "read_file");
    assert_eq!(call["status"], "ok");
    assert_eq!(call["path"], "a.txt");
    assert_eq!(call["source"], "http");
    assert_eq!(call["principal"], "local");
    assert_eq!(call["session"], "test");
    assert_eq!(
        call["correlation_id"],
        reply.header("x-correlation-id").unwrap()
    );
    server.tool("read_file", json!({"path": "gone"}));
    let call = events.call();
    assert_eq!(call["status"], "error");
    assert_eq!(call["error_code"], "NOT_FOUND");
}

#[test]
fn the_stream_ends_with_the_server() {
    let workspace = workspace(FIXTURE);
    let mut server = workspace.serve(["--mode", "hybrid"]);
    let token = server.token.clone();
    let mut events = Events::open(&server, &token);
    server.process().signal(rustix::process::Signal::TERM);
    while events.next().is_some() {}
    assert_eq!(server.wait().code, Some(0));
}

#[test]
fn a_wrong_scope_is_refused_as_the_description_says() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--mode", "hybrid"]);
    let document = server.get("/openapi.json").ok();
    for path in ["/api/events", "/api/summary"] {
        for query in ["of=planet", "of=workspace&of=workspace", "of=%ff"] {
            server
                .get(&format!("{path}?{query}"))
                .refused(422, "BAD_ARGS");
        }
        let described = &document["paths"][path]["get"]["responses"]["422"];
        assert!(described.is_object(), "{path}: {document}");
    }
}

#[test]
fn the_summary_adds_up() {
    let workspace = workspace(FIXTURE);
    workspace.write("big.txt", "line of text\n".repeat(5000));
    let server = workspace.serve(["--mode", "hybrid"]);
    let mut events = Events::open(&server, &server.token);
    server.tool("read_file", json!({"path": "a.txt"})).ok();
    server.tool("te_cat", json!({"path": "big.txt"})).ok();
    server.tool("stat", json!({"path": "gone"}));
    for _ in 0..3 {
        events.call();
    }
    let summary = server.get("/api/summary").ok();
    assert_eq!(summary["totals"]["calls"], 3);
    assert_eq!(summary["totals"]["errors"], 1);
    assert!(summary["totals"]["tokens"]["withheld"].as_u64().unwrap() > 10_000);
    assert_eq!(
        summary["errors"],
        json!([{"code": "NOT_FOUND", "count": 1}])
    );
    let tools: Vec<_> = summary["tools"].as_array().unwrap().iter().collect();
    assert_eq!(tools.len(), 3);
    for tool in tools {
        assert_eq!(tool["calls"], 1);
        assert_eq!(keys(&tool["latency_ms"]), ["p50", "p95", "p99"]);
    }
    let sessions = summary["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0]["session"], "test");
    assert_eq!(sessions[0]["calls"], 3);
    let steps = summary["over_time"]["steps"].as_array().unwrap();
    let calls: u64 = steps
        .iter()
        .map(|step| step["calls"].as_u64().unwrap())
        .sum();
    assert_eq!(calls, 3);
    assert_eq!(summary["recent"].as_array().unwrap().len(), 3);
    assert_eq!(summary["recent"][0]["tool"], "stat", "newest first");
    assert_eq!(summary["server"]["mode"], "hybrid");
    assert_eq!(summary["gauges"]["watchers"], 1);
    assert_eq!(summary["gauges"]["handles"]["count"], 1);
}

#[test]
fn the_build_of_the_index_can_be_followed() {
    const FILES: u64 = 2000;
    let workspace = workspace("");
    for n in 0..FILES {
        let text: String = (0..20)
            .map(|i| format!("fn unit_{n}_{i}() {{\n    call_{i}()\n}}\n"))
            .collect();
        workspace.write(format!("src/part_{n}.rs"), text);
    }
    let server = workspace.serve(["--mode", "hybrid"]);
    assert_eq!(server.get("/health").ok()["index"], "none");
    let gauge = |name: &str| {
        let text = server.get("/metrics").text();
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value.unwrap().trim().parse::<u64>().unwrap()
    };
    // In the middle: all are counted, some are done.
    let midway = |done: u64, total: u64| total == FILES && (1..FILES).contains(&done);
    let is_progress = |progress: &Value| {
        progress["done"]
            .as_u64()
            .zip(progress["total"].as_u64())
            .is_some_and(|(done, total)| midway(done, total))
    };
    // The first question begins it.
    server.post("/rag/search", &json!({"q": "unit"})).ok();
    let mut seen = std::collections::BTreeSet::new();
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        let health = server.get("/health").ok();
        if health["index"] == "ready" {
            break;
        }
        if health["index"] == "building" && is_progress(&health["index_progress"]) {
            seen.insert("health");
        }
        let (done, total) = (
            gauge("llmc_index_files_done"),
            gauge("llmc_index_files_total"),
        );
        if midway(done, total) {
            seen.insert("metrics");
        }
        let summary = server.get("/api/summary").ok();
        if summary["server"]["index"] == "building"
            && is_progress(&summary["gauges"]["index_progress"])
        {
            seen.insert("summary");
        }
        let (_, gauges) = Events::with_first(&server, &server.token);
        if is_progress(&gauges["index_progress"]) {
            seen.insert("events");
        }
        assert!(Instant::now() < end, "{health}");
    }
    let all = ["events", "health", "metrics", "summary"];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), all);
    assert!(gauge("llmc_index_bytes") > 0);
}

#[test]
fn stored_results_can_be_listed_and_paged_without_being_counted() {
    let workspace = workspace(FIXTURE);
    let text = "line of text\n".repeat(5000);
    workspace.write("big.txt", &text);
    let server = workspace.serve(["--mode", "hybrid"]);
    let read = json!({"path": "big.txt", "max_lines": 3});
    let made = server.tool("linux_fs_read", read).ok()["meta"]["handle"].clone();
    let list = server.get("/api/handles").ok();
    assert_eq!(list["total"], 1);
    let entry = &list["handles"][0];
    assert_eq!(entry["handle"], made);
    assert_eq!(entry["total_bytes"], text.len());
    assert_eq!(entry["meta"]["path"], "big.txt");
    assert_eq!(
        server.get("/api/handles?limit=0").ok()["handles"],
        json!([])
    );
    let path = format!("/api/handles/{}", made.as_str().unwrap());
    let mut joined = String::new();
    loop {
        let page = server
            .get(&format!("{path}?offset={}&limit=30000", joined.len()))
            .ok();
        joined.push_str(page["data"].as_str().unwrap());
        if page["eof"] == true {
            break;
        }
    }
    assert_eq!(joined, text);
    server
        .get(&format!("{path}?offset=65001"))
        .refused(422, "BAD_ARGS");
    server
        .get(&format!("{path}?offset=-1"))
        .refused(422, "BAD_ARGS");
    server
        .get(&format!("{path}?limit=x"))
        .refused(422, "BAD_ARGS");
    server.get("/api/handles/nonsense").refused(410, "GONE");
    server
        .get("/api/handles/..%2f..%2fetc%2fpasswd")
        .refused(410, "GONE");
    server
        .get("/api/handles?limit=1001")
        .refused(422, "BAD_ARGS");
    // Calls are counted on a thread of its own.
    let deadline = std::time::Instant::now() + llmc_testkit::TEST_TIMEOUT;
    loop {
        let calls = server.get("/api/summary").ok()["totals"]["calls"].clone();
        if calls != 0 || std::time::Instant::now() > deadline {
            assert_eq!(calls, 1, "looking is no call");
            break;
        }
        std::thread::yield_now();
    }
}

#[test]
fn the_configuration_is_shown_with_sources_and_without_secrets() {
    let workspace = workspace(
        "//- llmc.toml\n[mcp]\nmode = \"te\"\n[[mcp.auth.tokens]]\nname = \"ci\"\nsha256 = \
         \"1111111111111111111111111111111111111111111111111111111111111111\"\n",
    );
    let server = workspace.serve(["--set", "mcp.tools.read_only=true"]);
    let reply = server.get("/api/config");
    let body = reply.ok();
    let entry = |key: &str| {
        let entries = body["entries"].as_array().unwrap();
        entries
            .iter()
            .find(|entry| entry["key"] == key)
            .unwrap()
            .clone()
    };
    assert_eq!(entry("mcp.mode")["source"], "llmc.toml:2");
    assert_eq!(entry("mcp.mode")["value"], "\"te\"");
    assert_eq!(entry("mcp.tools.read_only")["source"], "--set");
    assert_eq!(entry("mcp.auth.tokens[0].sha256")["value"], "***");
    assert!(!reply.text().contains("11111111") && !reply.text().contains(&server.token));
}

#[test]
fn a_named_token_watches_its_own_calls_alone() {
    let workspace = workspace(FIXTURE).with_env("CI_TOKEN", "ci-token-0123456789");
    let tokens = "mcp.auth.tokens=[{name=\"ci\", token_env=\"CI_TOKEN\"}]";
    let server = workspace.serve(["--set", tokens]);
    let mut own = Events::open(&server, "ci-token-0123456789");
    let mut all = Events::open(&server, &server.token);
    server.tool("read_file", json!({"path": "a.txt"})).ok();
    let body = json!({"name": "stat", "args": {"path": "a.txt"}});
    server.post_as("ci-token-0123456789", "/tool", &body).ok();
    assert_eq!(own.call()["tool"], "stat", "the other call is not its own");
    assert_eq!(
        [all.call(), all.call()].map(|call| call["tool"].clone()),
        ["read_file", "stat"]
    );
    let headers = [("X-LLMC-Token", "ci-token-0123456789")];
    let summary = server.send("GET", "/api/summary", &headers, b"").ok();
    assert_eq!(summary["totals"]["calls"], 1);
    assert_eq!(summary["server"]["sees_all"], false);
    assert_eq!(server.get("/api/summary").ok()["totals"]["calls"], 2);
    let mut stream = server.connect();
    stream
        .write_all(&request("GET", "/api/events", &[], b""))
        .unwrap();
    read_reply(&mut BufReader::new(stream)).refused(401, "AUTH_FAILED");
}
