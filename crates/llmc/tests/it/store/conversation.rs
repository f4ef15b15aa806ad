//! One MCP conversation whose requests go to three servers in turn.

use llmc_testdb::TestCluster;
use llmc_testkit::HttpServer;
use serde_json::{Value, json};

use super::fixture;
use crate::http::open_session;

#[test]
fn a_conversation_goes_on_whichever_server_is_asked() {
    let Some(cluster) = TestCluster::shared() else {
        return;
    };
    let database = cluster.database();
    let workspace = fixture().with_env("LLMC_MCP__STORE__URL", &database.url());
    let added = workspace.llmc(["token", "add", "ann"]);
    assert_eq!(added.code, Some(0), "{}", added.stderr);
    let token = added.stdout.trim();
    let servers = ["one", "two", "three"].map(|machine| {
        let volume = format!("mcp.docker.data_volume=\"../{machine}\"");
        workspace.serve(["--mode", "classic", "--set", &volume])
    });
    let mut conversation = Conversation {
        session: open_session(&servers[0], token, "2025-11-25"),
        token,
        servers: &servers,
        requests: 0,
    };
    let cut = conversation.call("te_cat", json!({"path": "long.txt"}));
    let header: Value = serde_json::from_str(cut.lines().nth(1).unwrap()).unwrap();
    let handle = header["handle"].as_str().expect(&cut).to_owned();
    let mut log = String::new();
    for turn in 0..9 {
        let line = format!("line {turn}\n");
        let append = json!({"path": "log.txt", "content": line, "mode": "append"});
        conversation.call("linux_fs_write", append);
        log.push_str(&line);
        assert_eq!(workspace.read("log.txt"), log);
        let part = json!({"handle": handle, "offset": turn * 7, "limit": 7});
        let text = conversation.call("linux_handle_read", part);
        assert!(text.contains("line"), "turn {turn}: {text}");
    }
    // Each of the 19 requests went to the server after the last one's.
    assert_eq!(conversation.requests, 19);
    let leases = cluster.sql(&database.name, "SELECT count(*) FROM llmc.leases");
    assert_eq!(leases, "0", "all were given back");
}

/// A conversation that asks another server each time.
struct Conversation<'a> {
    session: String,
    token: &'a str,
    servers: &'a [HttpServer; 3],
    requests: usize,
}

impl Conversation<'_> {
    fn call(&mut self, name: &str, args: Value) -> String {
        self.requests += 1;
        let server = &self.servers[self.requests % self.servers.len()];
        let headers = [
            ("X-LLMC-Token", self.token),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            ("MCP-Protocol-Version", "2025-11-25"),
            ("Mcp-Session-Id", self.session.as_str()),
        ];
        let call = json!({
            "jsonrpc": "2.0", "id": self.requests, "method": "tools/call",
            "params": {"name": name, "arguments": args},
        });
        let call = call.to_string();
        let answer = server.send("POST", "/mcp", &headers, call.as_bytes()).ok();
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str();
        let text = text.unwrap_or_else(|| panic!("{answer}"));
        assert_ne!(result["isError"], true, "{name}: {text}");
        text.to_owned()
    }
}
