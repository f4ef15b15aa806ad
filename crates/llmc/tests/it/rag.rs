//! The code index over MCP and from the shell.

use std::time::{Duration, Instant};

use llmc_envelope::te::parse;
use llmc_testkit::{McpClient, Workspace};
use serde_json::{Value, json};

use crate::{classic, keys, workspace};

const SHOP: &str = "\
//- src/pool.rs
/// Connections that wait to be used again.
pub struct Pool {
    idle: Vec<u8>,
}

impl Pool {
    /// Takes an idle connection, or opens one.
    pub fn take(&mut self) -> u8 {
        self.idle.pop().unwrap_or_else(open_connection)
    }
}

fn open_connection() -> u8 {
    1
}
//- src/main.rs
fn main() {
    let mut pool = Pool::default();
    Pool::take(&mut pool);
}
//- tests/pool.rs
#[test]
fn takes() {
    Pool::take(&mut pool());
}
//- docs/guide.md
# Guide

Call `take` to get a connection.
//- AGENTS.md
# Shop

## Workflow

Run the tests before you commit.
";

fn document(client: &mut McpClient, tool: &str, args: Value) -> Value {
    let text = client.text(tool, args);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{tool}: {error}: {text}"))
}

fn refused(client: &mut McpClient, tool: &str, args: Value) -> (String, String) {
    let (is_error, text) = client.call_tool(tool, args);
    assert!(is_error, "{text}");
    let error: Value = serde_json::from_str(&text).unwrap();
    let code = error["meta"]["error_code"].as_str().unwrap_or_default();
    (code.to_owned(), text)
}

/// A server whose index is ready: it builds one from its first question on.
fn ready(workspace: &Workspace) -> McpClient {
    let mut client = classic(workspace);
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let stats = document(&mut client, "rag_stats", json!({}));
        if stats["state"] == "ready" {
            return client;
        }
        assert!(Instant::now() < end, "{stats}");
    }
}

#[test]
fn answers_have_their_fields() {
    let workspace = workspace(SHOP);
    let mut client = ready(&workspace);
    let args = json!({"query": "take an idle connection or open one", "k": 2});
    let found = document(&mut client, "rag_search", args.clone());
    assert_eq!(
        keys(&found),
        ["freshness", "index", "provenance", "snippets"]
    );
    assert_eq!(found["freshness"], "FRESH");
    assert_eq!(found["index"], "ready");
    assert_eq!(found["provenance"], true);
    let first = &found["snippets"][0];
    assert_eq!(keys(first), ["kind", "score", "src", "symbol", "text"]);
    assert_eq!(first["src"], "src/pool.rs#L7-L10");
    assert_eq!(first["symbol"], "Pool::take");
    let lines = workspace.read("src/pool.rs");
    let lines: Vec<&str> = lines.lines().skip(6).take(4).collect();
    assert_eq!(first["text"], lines.join("\n"));
    assert_eq!(document(&mut client, "rag_query", args.clone()), found);
    let by_q = json!({"q": "take an idle connection or open one", "k": 2});
    assert_eq!(document(&mut client, "rag.search", by_q), found);
    let rich = document(&mut client, "rag_search_enriched", args);
    let near = rich["snippets"][0]["neighbours"].to_string();
    assert!(
        near.contains("main") && near.contains("open_connection"),
        "{near}"
    );

    let used = document(
        &mut client,
        "rag_where_used",
        json!({"symbol": "Pool::take"}),
    );
    assert_eq!(keys(&used), ["sites", "symbol", "total"]);
    assert_eq!(used["total"], 2);
    assert_eq!(
        keys(&used["sites"][0]),
        ["confidence", "line", "path", "symbol", "text"]
    );
    let args = json!({"symbol": "open_connection", "direction": "callers", "depth": 2});
    let lineage = document(&mut client, "rag_lineage", args);
    assert_eq!(keys(&lineage), ["direction", "nodes", "symbol"]);
    assert_eq!(lineage["direction"], "callers");
    assert_eq!(
        keys(&lineage["nodes"][0]),
        ["confidence", "depth", "src", "symbol"]
    );
    let all = document(&mut client, "inspect", json!({"symbol": "Pool::take"}));
    let fields = [
        "callees",
        "callers",
        "doc",
        "docs",
        "kind",
        "path",
        "signature",
        "src",
        "symbol",
        "tests",
        "text",
    ];
    assert_eq!(keys(&all), fields);
    assert_eq!(all["tests"][0]["symbol"], "takes");
    let file = document(&mut client, "inspect", json!({"path": "src/main.rs"}));
    assert!(
        file["text"].as_str().unwrap().contains("fn main()"),
        "{file}"
    );
    let plan = document(
        &mut client,
        "rag_plan",
        json!({"query": "open a connection"}),
    );
    assert_eq!(keys(&plan), ["confidence", "index", "query", "steps"]);
    assert_eq!(keys(&plan["steps"][0]), ["confidence", "src", "why"]);
    let args = json!({"session_id": "s", "task_id": "fix the idle connection pool"});
    let boot = document(&mut client, "rag_bootload", args);
    assert!(
        boot["plan"]
            .as_str()
            .unwrap()
            .contains("Run the tests before"),
        "{boot}"
    );
    assert_eq!(boot["scope"], "repo");
    assert_eq!(boot["provenance"], true);
    assert!(!boot["snippets"].as_array().unwrap().is_empty());
    let stats = document(&mut client, "rag_stats", json!({}));
    assert_eq!(stats["languages"]["Rust"], 3);
    assert!(
        stats["updated_iso"].as_str().unwrap().ends_with('Z'),
        "{stats}"
    );
}

#[test]
fn limits_are_applied_and_named() {
    let workspace = workspace(SHOP);
    let mut client = classic(&workspace);
    let args = json!({"query": "connection", "k": 1_000_000_000_i64, "budget_tokens": 1_000_000});
    let found = document(&mut client, "rag_search", args);
    assert_eq!(found["clamped"], json!(["k", "budget_tokens"]));
    assert!(found["snippets"].as_array().unwrap().len() <= 3);
    for (args, word) in [
        (json!({"query": "x y", "k": 0}), "k must be at least 1"),
        (json!({"query": "x y", "k": -5}), "k must be at least 1"),
        (
            json!({"query": "x y", "budget_tokens": 0}),
            "budget_tokens must be at least 1",
        ),
        (
            json!({"query": "x y", "scope": "all"}),
            "repo, docs or both",
        ),
        (json!({"query": ""}), "no words"),
        (json!({"query": "  \u{1} "}), "no words"),
        (json!({}), "query"),
    ] {
        let (code, text) = refused(&mut client, "rag_search", args);
        assert_eq!(code, "BAD_ARGS", "{text}");
        assert!(text.contains(word), "{text}");
    }
    let long = "connection pool ".repeat(7000);
    let found = document(&mut client, "rag_search", json!({"query": long}));
    assert!(!found["snippets"].as_array().unwrap().is_empty());
    let (code, text) = refused(
        &mut client,
        "rag_where_used",
        json!({"symbol": "Pol::take"}),
    );
    assert_eq!(code, "NOT_FOUND");
    assert!(text.contains("Pool::take"), "{text}");
    let (code, _) = refused(
        &mut client,
        "rag_lineage",
        json!({"symbol": "take", "direction": "up"}),
    );
    assert_eq!(code, "BAD_ARGS");
    let (code, _) = refused(&mut client, "inspect", json!({}));
    assert_eq!(code, "BAD_ARGS");
    let (code, _) = refused(&mut client, "inspect", json!({"path": "../outside/canary"}));
    assert_eq!(code, "INVALID_PATH");
}

#[test]
fn the_envelope_finds_and_explains() {
    let workspace = workspace(SHOP);
    let mut client = ready(&workspace);
    let found = parse(&client.text("te_rag", json!({"query": "take idle connection"}))).unwrap();
    assert_eq!(found.header.cmd, "rag");
    assert!(found.body.contains("src/pool.rs#L7-L10"), "{}", found.body);
    let told = parse(&client.text("te_explain", json!({"symbol": "Pool::take"}))).unwrap();
    assert_eq!(told.header.cmd, "explain");
    assert!(
        told.body.contains("callers: main src/main.rs#L1-L4"),
        "{}",
        told.body
    );
    let (is_error, text) = client.call_tool("te_explain", json!({"symbol": "nowhere_at_all"}));
    assert!(is_error);
    assert_eq!(
        parse(&text).unwrap().header.error.as_deref(),
        Some("not_found")
    );
}

#[test]
fn an_index_that_cannot_be_written_is_done_without() {
    let workspace = workspace(SHOP);
    workspace.write(".llmc/index", "in the way");
    let mut client = classic(&workspace);
    let found = document(
        &mut client,
        "rag_search",
        json!({"query": "idle connection"}),
    );
    assert_eq!(found["index"], "none");
    assert!(!found["snippets"].as_array().unwrap().is_empty());
    let (code, text) = refused(&mut client, "rag_where_used", json!({"symbol": "take"}));
    assert_eq!(code, "NOT_FOUND", "{text}");
    let ended = workspace.llmc(["rag", "index"]);
    assert_eq!(ended.code, Some(74), "{}", ended.stderr);
}

#[test]
fn from_the_shell() {
    let workspace = workspace(SHOP);
    let before = workspace.llmc(["rag", "search", "idle", "connection"]);
    assert!(
        before.stdout.contains("no index was used"),
        "{}",
        before.stdout
    );
    let built = workspace.llmc(["rag", "index"]);
    assert!(
        built.stdout.starts_with("5 files, 5 read again"),
        "{}",
        built.stdout
    );
    let found = workspace.llmc(["rag", "search", "idle", "connection", "-k", "1"]);
    assert!(found.stdout.contains("src/pool.rs#L"), "{}", found.stdout);
    // What changed since is taken in before the question is asked.
    workspace.write("src/new.rs", "pub fn quite_new() {}\n");
    let found = workspace.llmc(["rag", "search", "quite_new", "--json"]);
    let found: Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(found["snippets"][0]["src"], "src/new.rs#L1-L1");
    for (words, expected) in [
        (
            &["where-used", "Pool::take"] as &[_],
            "src/main.rs:3: Pool::take(&mut pool);  [main]",
        ),
        (
            &["lineage", "open_connection"],
            "  Pool::take  src/pool.rs#L8-L10",
        ),
        (&["inspect", "Pool::take"], "callees  open_connection"),
        (&["inspect", "src/main.rs"], "fn main()"),
        (&["plan", "open a connection"], "confidence"),
        (&["stats"], "state    ready"),
        (&["doctor"], "the index is sound"),
    ] {
        let ended = workspace.llmc(["rag"].iter().chain(words));
        assert_eq!(ended.code, Some(0), "{words:?}: {}", ended.stderr);
        assert!(
            ended.stdout.contains(expected),
            "{words:?}: {}",
            ended.stdout
        );
    }
    let ended = workspace.llmc(["rag", "search", "x y", "--scope", "everywhere"]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.contains("repo, docs or both"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_killed_update_costs_nothing() {
    let workspace = workspace("//- a.rs\nfn first_one() {}\n");
    for n in 0..400 {
        let body: String = (0..30)
            .map(|i| format!("fn unit_{n}_{i}() {{\n    call_{i}()\n}}\n"))
            .collect();
        workspace.write(format!("src/f{n}.rs"), body);
    }
    for nth in 0..12 {
        // Something new each time, so that there is something to be in the middle of.
        workspace.write(
            format!("src/f{nth}.rs"),
            format!("fn changed_{nth}() {{}}\n"),
        );
        let mut command = workspace.command();
        let mut child = command
            .args(["rag", "index"])
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(15 * (nth + 1)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let ended = workspace.llmc(["rag", "index"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(workspace.llmc(["rag", "doctor"]).code, Some(0));
    for name in ["changed_0", "changed_11", "unit_399_29", "first_one"] {
        let found = workspace.llmc(["rag", "search", name, "-k", "1", "--json"]);
        let found: Value = serde_json::from_str(&found.stdout).unwrap();
        assert_eq!(found["index"], "ready");
        assert_eq!(found["snippets"][0]["symbol"], name, "{found}");
    }
    let gone = workspace.llmc(["rag", "where-used", "unit_0_0"]);
    assert_eq!(gone.code, Some(3), "{}", gone.stdout);
}
