//! TLS, sockets, and how a server starts, ends and notices that its clients are gone.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use llmc_testkit::{HttpServer, TEST_TIMEOUT, TestWorkspace, read_reply, request};
use rustix::process::Signal;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::json;

use crate::http::open_session;
use crate::http_gates::until;
use crate::workspace;

const FIXTURE: &str = "\
//- a.txt
one
";
const BASH: &str = "mcp.tools.run_cmd_allowlist=[\"bash\"]";

/// Sends a call of `run_cmd` with a bash script, without waiting for its answer.
fn start_script(server: &HttpServer, script: &str) -> TcpStream {
    let body = json!({"name": "run_cmd", "args": {"argv": ["bash", "-c", script]}}).to_string();
    let headers = [
        ("X-LLMC-Token", server.token.as_str()),
        ("Content-Type", "application/json"),
    ];
    let mut stream = server.connect();
    stream
        .write_all(&request("POST", "/tool", &headers, body.as_bytes()))
        .unwrap();
    stream
}

/// Whether a process runs with this among its arguments.
fn runs(mark: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let mark = format!("\0{mark}\0");
    lines
        .into_iter()
        .any(|line| String::from_utf8_lossy(&line).contains(&mark))
}

#[test]
fn tls_is_spoken_with_the_configured_certificate() {
    let workspace = workspace(FIXTURE);
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(workspace.outside("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(
        workspace.outside("key.pem"),
        made.signing_key.serialize_pem(),
    )
    .unwrap();
    let set = |key: &str, file: &str| format!("mcp.server.{key}={:?}", workspace.outside(file));
    let (cert, key) = (set("tls_cert", "cert.pem"), set("tls_key", "key.pem"));
    let flags = [
        "--set",
        "mcp.server.tls_enabled=true",
        "--set",
        &cert,
        "--set",
        &key,
    ];
    let server = workspace.serve(flags);
    assert!(server.url.starts_with("https://"), "{}", server.url);
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from(made.cert.der().to_vec()))
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = BufReader::new(rustls::StreamOwned::new(client, server.connect()));
    let headers = [("X-LLMC-Token", server.token.as_str())];
    for _ in 0..2 {
        stream
            .get_mut()
            .write_all(&request("GET", "/api/summary", &headers, b""))
            .unwrap();
        read_reply(&mut stream).ok();
    }
    // The health check knows the certificate by the same configuration.
    let port = server.address().port().to_string();
    let health = |cert: &str| {
        let cert = set("tls_cert", cert);
        let flags = [
            "health",
            "--port",
            &port,
            "--set",
            "mcp.server.tls_enabled=true",
            "--set",
            &cert,
        ];
        workspace.llmc(flags.into_iter().chain(["--set", &key]))
    };
    let healthy = health("cert.pem");
    assert_eq!(healthy.code, Some(0), "{}", healthy.stderr);
    assert!(healthy.stdout.contains("\"ok\":true"), "{}", healthy.stdout);
    // By its address, with TLS off in the configuration that is read.
    let url = format!("https://127.0.0.1:{port}");
    let by_url = workspace.llmc(["health", "--url", &url, "--set", &cert]);
    assert_eq!(by_url.code, Some(0), "{}", by_url.stderr);
    assert!(by_url.stdout.contains("\"ok\":true"), "{}", by_url.stdout);
    let unknown = workspace.llmc(["health", "--url", &url]);
    assert_eq!(unknown.code, Some(2), "{}", unknown.stdout);
    assert!(
        unknown.stderr.contains("mcp.server.tls_cert is not set"),
        "{}",
        unknown.stderr
    );
    let watched = workspace.llmc(["tui", "--summary", "--url", &url, "--set", &cert]);
    assert_eq!(watched.code, Some(0), "{}", watched.stderr);
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(workspace.outside("foreign.pem"), other.cert.pem()).unwrap();
    let foreign = health("foreign.pem");
    std::fs::remove_file(workspace.outside("foreign.pem")).unwrap();
    assert_eq!(foreign.code, Some(1), "{}", foreign.stdout);
    assert!(
        foreign.stderr.contains("another certificate"),
        "{}",
        foreign.stderr
    );
    // Plain HTTP gets no answer that could be taken for one.
    let mut plain = server.connect();
    plain
        .write_all(&request("GET", "/health", &[], b""))
        .unwrap();
    let mut answer = Vec::new();
    let _ = std::io::Read::read_to_end(&mut plain, &mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    // Another's key, no key, no certificate, no PEM.
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(
        workspace.outside("other.pem"),
        other.signing_key.serialize_pem(),
    )
    .unwrap();
    std::fs::write(workspace.outside("text.pem"), "text").unwrap();
    for (cert, key, code, what) in [
        ("cert.pem", "other.pem", 2, "cannot be used together"),
        ("cert.pem", "gone.pem", 3, "tls_key"),
        ("gone.pem", "key.pem", 3, "tls_cert"),
        ("text.pem", "key.pem", 2, "tls_cert"),
        ("cert.pem", "text.pem", 2, "tls_key"),
    ] {
        let (cert, key) = (set("tls_cert", cert), set("tls_key", key));
        let on = "mcp.server.tls_enabled=true";
        let ended = workspace.llmc([
            "serve", "--port", "0", "--set", on, "--set", &cert, "--set", &key,
        ]);
        assert_eq!(ended.code, Some(code), "{}", ended.stderr);
        assert!(ended.stderr.contains(what), "{what}: {}", ended.stderr);
    }
    for file in ["cert.pem", "key.pem", "other.pem", "text.pem"] {
        std::fs::remove_file(workspace.outside(file)).unwrap();
    }
    workspace.assert_outside_untouched();
}

#[test]
fn a_socket_file_is_for_its_owner_and_goes_with_the_server() {
    let workspace = workspace(FIXTURE);
    let path = workspace.base().join("s.sock");
    let listen = format!("unix:{}", path.display());
    let mut server = workspace.serve(["--listen", &listen]);
    assert_eq!(server.url, listen);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let ask = |headers: &[(&str, &str)]| {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream
            .write_all(&request("GET", "/api/summary", headers, b""))
            .unwrap();
        read_reply(&mut BufReader::new(stream))
    };
    ask(&[]).refused(401, "AUTH_FAILED");
    ask(&[("X-LLMC-Token", &server.token)]).ok();
    // In use: another server does not take it away.
    let ended = workspace.llmc(["serve", "--listen", &listen]);
    assert_eq!(ended.code, Some(6), "{}", ended.stderr);
    assert!(ended.stderr.contains("in use"), "{}", ended.stderr);
    ask(&[("X-LLMC-Token", &server.token)]).ok();
    server.process().signal(Signal::TERM);
    assert_eq!(server.wait().code, Some(0));
    assert!(!path.exists());
    // Left behind by one that was killed, it is taken over; another kind of file is not.
    let mut server = workspace.serve(["--listen", &listen]);
    server.process().signal(Signal::KILL);
    server.wait();
    assert!(path.exists());
    drop(workspace.serve(["--listen", &listen]));
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "mine").unwrap();
    let ended = workspace.llmc(["serve", "--listen", &listen]);
    assert_eq!(ended.code, Some(6), "{}", ended.stderr);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn an_address_in_use_is_reported() {
    let workspace = workspace(FIXTURE);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let ended = workspace.llmc(["serve", "--port", &port]);
    assert_eq!(ended.code, Some(6), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("in use") && ended.stderr.contains(&port),
        "{}",
        ended.stderr
    );
    let ended = workspace
        .with_env("LLMC_MCP_TOKEN", "a-token-0123456789")
        .llmc(["serve", "--host", "192.0.2.1"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("192.0.2.1"), "{}", ended.stderr);
}

#[test]
fn requests_in_work_are_answered_before_the_end() {
    let workspace = workspace(FIXTURE);
    let audit = "mcp.observability.csv_token_audit_enabled=true";
    let mut server = workspace.serve(["--set", BASH, "--set", audit]);
    let script = "touch started; until test -e go; do sleep 0.05; done; echo done";
    let call = start_script(&server, script);
    let mut idle = BufReader::new(server.connect());
    idle.get_mut()
        .write_all(&request("GET", "/health", &[], b""))
        .unwrap();
    read_reply(&mut idle).ok();
    until("the command runs", || workspace.path("started").exists());
    let address = server.address();
    server.process().signal(Signal::TERM);
    until("no further connection is taken", || {
        TcpStream::connect(address).is_err()
    });
    assert!(!server.process().has_ended());
    workspace.write("go", "");
    let reply = read_reply(&mut BufReader::new(call));
    assert_eq!(reply.ok()["data"]["stdout"], "done\n");
    let ended = server.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let id = reply.header("x-correlation-id").unwrap();
    assert!(
        workspace.read("artifacts/token_audit.csv").contains(id),
        "flushed"
    );
}

#[test]
fn what_does_not_end_in_time_is_ended_with_its_processes() {
    let workspace = workspace(FIXTURE);
    let mut server = workspace.serve(["--set", BASH]);
    let mark = "4001.25";
    let _call = start_script(
        &server,
        &format!("(setsid sleep {mark} &) ; touch started; sleep {mark}"),
    );
    until("the command runs", || {
        workspace.path("started").exists() && runs(mark)
    });
    server.process().signal(Signal::INT);
    let ended = server.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    until("its processes are gone", || !runs(mark));
}

#[test]
fn a_second_signal_ends_at_once() {
    let workspace = workspace(FIXTURE);
    let mut server = workspace.serve(["--set", BASH]);
    let mark = "4002.25";
    let _call = start_script(&server, &format!("touch started; sleep {mark}"));
    until("the command runs", || {
        workspace.path("started").exists() && runs(mark)
    });
    let address = server.address();
    server.process().signal(Signal::TERM);
    until("the first is heard", || {
        TcpStream::connect(address).is_err()
    });
    server.process().signal(Signal::TERM);
    let ended = server.wait();
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    assert!(ended.took.as_secs() < 20, "{:?}", ended.took);
    until("its processes are gone", || !runs(mark));
}

fn gone_clients(workspace: &TestWorkspace, server: &HttpServer, mark: &str, leave: impl Fn(&str)) {
    leave(&format!("touch started; sleep {mark}"));
    until("the processes of clients that left are gone", || {
        workspace.path("started").exists() && !runs(mark)
    });
    // The only place is free again.
    server.tool("read_file", json!({"path": "a.txt"})).ok();
}

#[test]
fn a_client_that_goes_away_cancels_its_call() {
    let workspace = workspace(FIXTURE);
    let one = "mcp.limits.concurrency_per_token=1";
    let mut server = workspace.serve(["--mode", "classic", "--set", BASH, "--set", one]);
    gone_clients(&workspace, &server, "4003.25", |script| {
        let call = start_script(&server, script);
        until("the command runs", || workspace.path("started").exists());
        drop(call);
    });
    std::fs::remove_file(workspace.path("started")).unwrap();
    gone_clients(&workspace, &server, "4004.25", |script| {
        let message = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "run_cmd", "arguments": {"argv": ["bash", "-c", script]}},
        });
        let headers = [
            ("X-LLMC-Token", server.token.as_str()),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        let body = message.to_string();
        let mut call = server.connect();
        call.write_all(&request("POST", "/mcp", &headers, body.as_bytes()))
            .unwrap();
        until("the command runs", || workspace.path("started").exists());
        drop(call);
    });
    let recorded = |stderr: &str| {
        let lines = stderr
            .lines()
            .filter(|line| line.contains("\"msg\":\"call\""));
        lines.filter(|line| line.contains("\"CANCELLED\"")).count()
    };
    until("both are on record as what they were", || {
        recorded(&server.process().stderr()) == 2
    });
}

#[test]
fn a_session_can_cancel_its_own_calls_only() {
    let workspace = workspace(FIXTURE).with_env("CI_TOKEN", "ci-token-0123456789");
    let tokens = "mcp.auth.tokens=[{name=\"ci\", token_env=\"CI_TOKEN\"}]";
    let server = workspace.serve(["--mode", "classic", "--set", BASH, "--set", tokens]);
    let post = |token: &str, session: &str, message: &serde_json::Value| {
        let headers = [
            ("X-LLMC-Token", token),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            ("MCP-Protocol-Version", "2025-11-25"),
            ("Mcp-Session-Id", session),
        ];
        let mut stream = server.connect();
        let body = message.to_string();
        stream
            .write_all(&request("POST", "/mcp", &headers, body.as_bytes()))
            .unwrap();
        BufReader::new(stream)
    };
    let mark = "4005.25";
    let script = format!("touch started; sleep {mark}");
    let call = json!({
        "jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": "run_cmd", "arguments": {"argv": ["bash", "-c", script]}},
    });
    let ci = "ci-token-0123456789";
    let one = open_session(&server, &server.token, "2025-11-25");
    let two = open_session(&server, &server.token, "2025-11-25");
    let foreign = open_session(&server, ci, "2025-11-25");
    let mut call = post(&server.token, &one, &call);
    until("the command runs", || {
        workspace.path("started").exists() && runs(mark)
    });
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    for (token, session, status) in [
        (ci, &one, 404),
        (ci, &foreign, 202),
        (server.token.as_str(), &two, 202),
    ] {
        let reply = read_reply(&mut post(token, session, &cancel));
        assert_eq!(reply.status, status, "{}", reply.text());
    }
    assert!(runs(mark), "another's request does not count");
    assert_eq!(
        read_reply(&mut post(&server.token, &one, &cancel)).status,
        202
    );
    let reply = read_reply(&mut call);
    assert_eq!(
        (reply.status, reply.text().as_str()),
        (202, ""),
        "no answer"
    );
    until("its processes are gone", || !runs(mark));
}

#[test]
fn progress_comes_before_the_answer_when_it_is_asked_for() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve(["--mode", "classic", "--set", BASH]);
    let script = "until test -e go; do sleep 0.05; done; echo done";
    let call = json!({
        "jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {
            "name": "run_cmd", "arguments": {"argv": ["bash", "-c", script]},
            "_meta": {"progressToken": "p"},
        },
    });
    let headers = [
        ("X-LLMC-Token", server.token.as_str()),
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", "2025-11-25"),
    ];
    let mut stream = server.connect();
    let body = call.to_string();
    stream
        .write_all(&request("POST", "/mcp", &headers, body.as_bytes()))
        .unwrap();
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while !line.contains("notifications/progress") {
        line.clear();
        stream.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the stream goes on");
    }
    workspace.write("go", "");
    while !line.contains("\"result\"") {
        line.clear();
        stream.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the stream goes on");
    }
    assert!(line.contains("done"), "{line}");
}

#[test]
fn an_unread_log_does_not_block_calls() {
    let workspace = workspace(FIXTURE);
    let path = workspace.base().join("s.sock");
    let mut command = workspace.command();
    command
        .args(["serve", "--listen", &format!("unix:{}", path.display())])
        .stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    until("it listens", || UnixStream::connect(&path).is_ok());
    let stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut stream = BufReader::new(stream);
    // Each is logged; a pipe holds the lines of a few hundred.
    for _ in 0..2000 {
        let health = request("GET", "/health", &[], b"");
        stream.get_mut().write_all(&health).unwrap();
        read_reply(&mut stream).ok();
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}
