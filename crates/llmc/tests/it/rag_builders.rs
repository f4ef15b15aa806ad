//! Several servers on one workspace while its code index is built.

use std::time::{Duration, Instant};

use llmc_testkit::{McpClient, TestWorkspace};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::rag::{SHOP, document};
use crate::{classic, workspace};

/// A workspace whose index is not built in an instant.
fn many_units() -> TestWorkspace {
    let workspace = workspace(SHOP);
    for n in 0..200 {
        let text: String = (0..40)
            .map(|i| format!("fn unit_{n}_{i}() {{\n    call_{i}()\n}}\n"))
            .collect();
        workspace.write(format!("src/part_{n}.rs"), text);
    }
    workspace
}

#[test]
fn servers_that_ask_during_a_build_are_all_answered() {
    let workspace = many_units();
    let mut clients: Vec<McpClient> = (0..4).map(|_| classic(&workspace)).collect();
    let end = Instant::now() + Duration::from_secs(120);
    let mut states = Vec::new();
    // All ask at the same time, until the index is there.
    loop {
        let ids: Vec<i64> = clients
            .iter_mut()
            .map(|client| client.send_call("rag_search", json!({"query": "unit_150_20"})))
            .collect();
        for (client, id) in clients.iter_mut().zip(ids) {
            let (is_error, text) = client.tool_answer(id);
            assert!(!is_error, "{text}");
            let found: Value = serde_json::from_str(&text).unwrap();
            states.push(found["index"].as_str().unwrap().to_owned());
            let note = found["note"].as_str().unwrap_or_default();
            let whole = !note.contains("not all files");
            let first = found["snippets"][0]["symbol"] == "unit_150_20";
            assert!(first || !whole, "{found}");
        }
        if states.iter().rev().take(4).all(|state| state == "ready") {
            break;
        }
        assert!(Instant::now() < end, "{states:?}");
    }
    let builder = std::fs::read_to_string(workspace.path(".llmc/index/builder.lock")).unwrap();
    let servers = clients.iter_mut().map(|client| client.process().pid());
    let ids: Vec<String> = servers
        .map(|pid| pid.as_raw_nonzero().to_string())
        .collect();
    assert!(
        ids.contains(&builder.trim().to_owned()),
        "{builder} {ids:?}"
    );
}

#[test]
fn when_the_builder_is_killed_another_server_takes_over() {
    let workspace = many_units();
    let mut clients: Vec<McpClient> = (0..3).map(|_| classic(&workspace)).collect();
    let role = workspace.path(".llmc/index/builder.lock");
    let end = Instant::now() + Duration::from_secs(120);
    let pid_of = |client: &mut McpClient| client.process().pid().as_raw_nonzero().to_string();
    let mut killed = Vec::new();
    // The second builder is killed, too.
    while clients.len() > 1 {
        for client in &mut clients {
            client.text("rag_search", json!({"query": "unit_150_20"}));
        }
        let holder = std::fs::read_to_string(&role).unwrap_or_default();
        let builder = clients
            .iter_mut()
            .position(|client| pid_of(client) == holder.trim());
        if let Some(builder) = builder {
            let mut client = clients.remove(builder);
            client.process().signal(Signal::KILL);
            client.wait();
            killed.push(holder.clone());
        }
        assert!(Instant::now() < end, "{holder} {killed:?}");
    }
    workspace.write("src/later.rs", "fn omega_point() {}\n");
    let last = &mut clients[0];
    while last
        .call_tool("inspect", json!({"symbol": "omega_point"}))
        .0
    {
        assert!(Instant::now() < end);
    }
    let stats = document(last, "rag_stats", json!({}));
    assert_eq!(stats["state"], "ready", "{stats}");
    let found = document(last, "rag_search", json!({"query": "unit_150_20"}));
    assert_eq!(found["snippets"][0]["symbol"], "unit_150_20", "{found}");
    let holder = std::fs::read_to_string(&role).unwrap();
    assert_eq!(holder.trim(), pid_of(last));
}
