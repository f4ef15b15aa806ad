//! Very many connections without a token: those with one are served all the same.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use llmc_testkit::{HttpServer, TestProcess, read_reply, request};
use serde_json::json;

use crate::workspace;

/// A server that may open so few files that it takes 64 connections.
fn small_server(workspace: &llmc_testkit::TestWorkspace) -> HttpServer {
    let mut command = workspace.command_of("sh");
    command
        .args(["-c", "ulimit -n 320; exec \"$0\" \"$@\""])
        .arg(workspace.program())
        .args(["serve", "--port", "0"]);
    HttpServer::new(TestProcess::start(command))
}

/// Whether the server has closed it.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream
        .set_read_timeout(Some(Duration::from_millis(1)))
        .unwrap();
    matches!(stream.read(&mut [0]), Ok(0))
}

#[test]
fn silent_connections_do_not_shut_out_those_with_a_token() {
    let workspace = workspace("//- a.txt\none\n");
    let server = small_server(&workspace);
    // A client with a token, between two requests.
    let token = ("X-LLMC-Token", server.token.as_str());
    let mut known = server.connect();
    let ask = request("GET", "/metrics", &[token], b"");
    known.write_all(&ask).unwrap();
    let mut known = BufReader::new(known);
    assert_eq!(read_reply(&mut known).status, 200);
    let mut silent: Vec<TcpStream> = Vec::new();
    for n in 0..200 {
        silent.push(server.connect());
        if n % 50 == 49 {
            server.tool("read_file", json!({"path": "a.txt"})).ok();
        }
    }
    let closed = silent
        .iter_mut()
        .filter_map(|one| is_closed(one).then_some(()));
    assert!(closed.count() >= 200 - 64, "the oldest made room");
    known.get_mut().write_all(&ask).unwrap();
    assert_eq!(
        read_reply(&mut known).status,
        200,
        "its connection was kept"
    );
}

#[test]
fn a_connection_without_a_first_byte_is_closed_soon() {
    let workspace = workspace("//- a.txt\none\n");
    let server = workspace.serve(["--mode", "hybrid"]);
    let mut silent = server.connect();
    let started = Instant::now();
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "{:?}",
        started.elapsed()
    );
    // One that has asked before may idle for longer.
    let mut asked = server.connect();
    asked
        .write_all(&request("GET", "/health", &[], b""))
        .unwrap();
    let mut asked = BufReader::new(asked);
    assert_eq!(read_reply(&mut asked).status, 200);
    server.tool("read_file", json!({"path": "a.txt"})).ok();
    assert!(!is_closed(asked.get_mut()));
}
