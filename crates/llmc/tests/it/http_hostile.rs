//! Hostile requests: none may hang, crash or leak, and each is answered with an error body.

use std::io::{BufReader, Read, Write};

use llmc_testkit::{HttpServer, read_reply, request};
use serde_json::{Value, json};

use crate::http_gates::until;
use crate::workspace;

const FIXTURE: &str = "\
//- a.txt
one
";

fn post(server: &HttpServer, headers: &[(&str, &str)], body: &[u8]) -> llmc_testkit::HttpReply {
    let token = ("X-LLMC-Token", server.token.as_str());
    server.send("POST", "/tool", &[&[token], headers].concat(), body)
}

/// The server answers a good request; nothing that came before has hurt it.
fn assert_answers(server: &HttpServer) {
    server.tool("read_file", json!({"path": "a.txt"})).ok();
}

#[test]
fn bodies_that_are_not_one_plain_document_are_refused() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--mode", "hybrid"]);
    let kind = ("Content-Type", "application/json");
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let nested = format!(
        r#"{{"name":"stat","args":{}1{}}}"#,
        r#"{"a":"#.repeat(100),
        "}".repeat(100)
    );
    for body in [
        "",
        "{",
        "nonsense",
        "{}}",
        "{\"name\":}",
        "\u{feff}{}",
        "1e999",
        "NaN",
        &deep,
        &nested,
        r#"{"name":"read_file","name":"run_cmd","args":{"path":"a.txt"}}"#,
        r#"{"name":"read_file","args":{"path":"a.txt","path":"b.txt"}}"#,
    ] {
        let reply = post(&server, &[kind], body.as_bytes());
        reply.refused(400, "BAD_ARGS");
    }
    post(&server, &[kind], b"{\"name\":\"\xff\xfe\"}").refused(400, "BAD_ARGS");
    for body in [
        "[]",
        r#"["s","stat",{"path":"a.txt"}]"#,
        "null",
        "3",
        "\"x\"",
        "{}",
        r#"{"name":3}"#,
        r#"{"name":"stat","args":[]}"#,
        r#"{"name":"stat","more":1}"#,
        r#"{"name":"health","session_id":null}"#,
    ] {
        post(&server, &[kind], body.as_bytes()).refused(422, "BAD_ARGS");
    }
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/json; charset=utf-16",
    ] {
        post(&server, &[("Content-Type", kind)], b"{}").refused(415, "BAD_ARGS");
    }
    post(&server, &[], b"{}").refused(415, "BAD_ARGS");
    for encoding in ["gzip", "br", "deflate", "zstd", "gzip, gzip"] {
        // What it would unpack to does not matter: it is not unpacked.
        let reply = post(
            &server,
            &[kind, ("Content-Encoding", encoding)],
            b"\x1f\x8b\x08",
        );
        reply.refused(415, "BAD_ARGS");
    }
    assert_answers(&server);
}

#[test]
fn bodies_that_are_too_long_are_refused_however_they_come() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--set", "mcp.limits.max_request_bytes=1000"]);
    let kind = ("Content-Type", "application/json");
    let long = format!(r#"{{"name":"{}"}}"#, "x".repeat(1000));
    post(&server, &[kind], long.as_bytes()).refused(413, "TOO_LARGE");
    // A length that is never sent is refused by its number.
    post(&server, &[kind, ("Content-Length", "99999999999")], b"{").refused(413, "TOO_LARGE");
    let whole = "x".repeat(4 << 20);
    post(&server, &[kind], whole.as_bytes()).refused(413, "TOO_LARGE");
    // In pieces, without a length.
    let mut chunked = Vec::new();
    for _ in 0..20 {
        chunked.extend_from_slice(format!("64\r\n{}\r\n", " ".repeat(100)).as_bytes());
    }
    let reply = post(&server, &[kind, ("Transfer-Encoding", "chunked")], &chunked);
    reply.refused(413, "TOO_LARGE");
    // These bodies are not read, and their answers arrive all the same.
    let token = ("X-LLMC-Token", server.token.as_str());
    let body = vec![b'x'; 900];
    for _ in 0..20 {
        server
            .send("POST", "/nope", &[token], &body)
            .refused(404, "NOT_FOUND");
        server
            .send("PUT", "/health", &[], &body)
            .refused(405, "METHOD_NOT_ALLOWED");
        server.send("GET", "/health", &[], &body).ok();
    }
    // Refused before the token is looked at, as the order of the gates says.
    let reply = server.send("POST", "/tool", &[kind, ("Content-Length", "5000")], b"");
    reply.refused(413, "TOO_LARGE");
    assert_answers(&server);
}

#[test]
fn an_unfinished_body_times_out_and_frees_its_slot() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve([
        "--set",
        "mcp.tools.read_timeout=2",
        "--set",
        "mcp.limits.concurrency_per_token=1",
    ]);
    let token = ("X-LLMC-Token", server.token.as_str());
    let kind = ("Content-Type", "application/json");
    let mut slow = server.connect();
    let head = request(
        "POST",
        "/tool",
        &[token, kind, ("Content-Length", "100")],
        b"{\"name\"",
    );
    slow.write_all(&head).unwrap();
    let mut endless = server.connect();
    let head = request(
        "POST",
        "/tool",
        &[token, kind, ("Transfer-Encoding", "chunked")],
        b"1\r\n{\r\n",
    );
    endless.write_all(&head).unwrap();
    // With one place for this token, the others are served while these two dawdle.
    assert_answers(&server);
    read_reply(&mut BufReader::new(slow)).refused(408, "TIMEOUT");
    read_reply(&mut BufReader::new(endless)).refused(408, "TIMEOUT");
    assert_answers(&server);
}

#[test]
fn a_body_that_is_cut_off_is_no_call() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--mode", "hybrid"]);
    let body = br#"{"name":"linux_fs_write","args":{"path":"new","content":"x"}}"#;
    let headers = [
        ("X-LLMC-Token", server.token.as_str()),
        ("Content-Type", "application/json"),
        ("Content-Length", "500"),
    ];
    let mut stream = server.connect();
    stream
        .write_all(&request("POST", "/tool", &headers, body))
        .unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert_answers(&server);
    assert!(!workspace.path("new").exists());
}

#[test]
fn a_head_that_does_not_end_or_make_sense_is_cut_off() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--set", "mcp.tools.read_timeout=1"]);
    for part in [
        "G",
        "GET /health HTTP/1.1\r\n",
        "GET /health HTTP/1.1\r\nHost: localhost\r\nX: ",
    ] {
        let mut stream = server.connect();
        stream.write_all(part.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // Closed by the server; the test's own patience would be an error here.
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"", "{part}");
    }
    for nonsense in [
        "nonsense\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: localhost\r\nBad Header: x\r\n\r\n",
        "GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n",
        "GET /hea lth HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "\x16\x03\x01\x02\0\x01\0\x01\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    ] {
        let reply = server.raw(nonsense.as_bytes());
        reply.refused(400, "BAD_ARGS");
    }
    let many: String = (0..500).map(|n| format!("X-{n}: y\r\n")).collect();
    let reply =
        server.raw(format!("GET /health HTTP/1.1\r\nHost: localhost\r\n{many}\r\n").as_bytes());
    reply.refused(431, "TOO_LARGE");
    for size in [17_000, 70_000, 3 << 20] {
        let reply = server.send("GET", "/health", &[("X-Large", &"x".repeat(size))], b"");
        reply.refused(431, "TOO_LARGE");
    }
    let reply = server.send("GET", &format!("/{}", "x".repeat(17_000)), &[], b"");
    reply.refused(431, "TOO_LARGE");
    assert_answers(&server);
}

#[test]
fn a_reader_that_stalls_is_dropped() {
    let workspace = workspace(FIXTURE);
    workspace.write("large.txt", "0123456789abcde\n".repeat(500_000));
    let server = workspace.serve([
        "--set",
        "mcp.tools.idle_timeout=1",
        "--set",
        "mcp.limits.concurrency_per_token=1",
    ]);
    let body = json!({"name": "read_file", "args": {"path": "large.txt"}}).to_string();
    let headers = [
        ("X-LLMC-Token", server.token.as_str()),
        ("Content-Type", "application/json"),
    ];
    let stalled: Vec<_> = (0..4)
        .map(|_| {
            let mut stream = server.connect();
            stream
                .write_all(&request("POST", "/tool", &headers, body.as_bytes()))
                .unwrap();
            stream
        })
        .collect();
    let connections = || server.get("/api/summary").ok()["gauges"]["connections"].as_u64();
    until("the stalled readers are dropped", || {
        connections() == Some(1)
    });
    drop(stalled);
    assert_answers(&server);
}

#[test]
fn an_idle_connection_is_closed_and_a_used_one_is_kept() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--set", "mcp.tools.idle_timeout=1"]);
    let mut stream = BufReader::new(server.connect());
    for _ in 0..3 {
        stream
            .get_mut()
            .write_all(&request("GET", "/health", &[], b""))
            .unwrap();
        read_reply(&mut stream).ok();
    }
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"", "closed without an answer");
}

#[test]
fn strange_paths_are_unknown_routes_and_strange_methods_wrong_ones() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--mode", "hybrid"]);
    let token = [("X-LLMC-Token", server.token.as_str())];
    for path in [
        "/nope",
        "/..%2f..%2fetc%2fpasswd",
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//health",
        "/health/",
        "/tool/",
        "/app.js%00",
        "/dashboard/../app.js",
        "/.llmc/token",
        "/%",
        "/app.js/..",
        "/api/",
        "/api/handles/a/b",
        "/?x=%zz/..",
    ] {
        let reply = server.send("GET", path, &token, b"");
        if path.starts_with("/?") {
            assert_eq!(reply.status, 200, "a query does not make a route");
            continue;
        }
        reply.refused(404, "NOT_FOUND");
        workspace.assert_no_leak(&reply.text());
    }
    for method in ["PUT", "DELETE", "PATCH", "TRACE", "OPTIONS", "BREW"] {
        let reply = server.send(method, "/tool", &token, b"");
        reply.refused(405, "METHOD_NOT_ALLOWED");
        server
            .send(method, "/health", &[], b"")
            .refused(405, "METHOD_NOT_ALLOWED");
    }
    let reply = server.raw(b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost:80\r\n\r\n");
    assert!((400..500).contains(&reply.status), "{}", reply.status);
    assert_answers(&server);
}

#[test]
fn nothing_of_a_request_leaks_into_the_log() {
    let workspace = workspace(FIXTURE);
    let mut server = workspace.serve(["--log-level", "trace"]);
    let token = server.token.clone();
    let body =
        json!({"name": "linux_fs_write", "args": {"path": "n", "content": "secret-content"}});
    server.post("/tool", &body).ok();
    let wrong = [
        ("X-LLMC-Token", "wrong-secret-token"),
        ("X-Correlation-Id", "wrong-one"),
    ];
    server
        .send("GET", "/tool?token=query-secret", &wrong, b"")
        .refused(401, "AUTH_FAILED");
    server.process().signal(rustix::process::Signal::TERM);
    let ended = server.wait();
    assert_eq!(ended.code, Some(0));
    assert_eq!(ended.stdout, "");
    for secret in [
        &token,
        "secret-content",
        "wrong-secret-token",
        "query-secret",
    ] {
        assert!(!ended.stderr.contains(secret), "{secret}\n{}", ended.stderr);
    }
    for line in ended.stderr.lines() {
        let line: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let about_a_request = line["msg"] == "request" || line["msg"] == "call";
        assert_eq!(
            about_a_request,
            line["correlation_id"].is_string(),
            "{line}"
        );
    }
}
