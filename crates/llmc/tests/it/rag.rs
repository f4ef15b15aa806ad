//! The code index over MCP and from the shell.

use std::time::{Duration, Instant};

use llmc_envelope::te::parse;
use llmc_testkit::{McpClient, ModelAction, ModelRequest, ModelServer, TestWorkspace};
use serde_json::{Value, json};

use crate::{classic, keys, workspace};

pub(crate) const SHOP: &str = "\
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

pub(crate) fn document(client: &mut McpClient, tool: &str, args: Value) -> Value {
    let text = client.text(tool, args);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{tool}: {error}: {text}"))
}

pub(crate) fn refused(client: &mut McpClient, tool: &str, args: Value) -> (String, String) {
    let (is_error, text) = client.call_tool(tool, args);
    assert!(is_error, "{text}");
    let code = text.split_once(": ").map_or("", |(code, _)| code);
    (code.to_owned(), text)
}

/// A server whose index is ready: it builds one from its first question on.
pub(crate) fn ready(workspace: &TestWorkspace) -> McpClient {
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
    assert_eq!(keys(&lineage), ["direction", "nodes", "symbol", "total"]);
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
    assert!(found.is_whole(), "{found:?}");
    assert!(found.body.contains("src/pool.rs#L7-L10"), "{}", found.body);
    let answer = parse(&client.text("te_explain", json!({"symbol": "Pool::take"}))).unwrap();
    assert!(answer.is_whole(), "{answer:?}");
    assert!(
        answer.body.contains("callers: main src/main.rs#L1-L4"),
        "{}",
        answer.body
    );
    let (is_error, text) = client.call_tool("te_explain", json!({"symbol": "nowhere_at_all"}));
    assert!(is_error);
    assert_eq!(
        parse(&text).unwrap().header.error.as_deref(),
        Some("not_found")
    );
}

#[test]
fn a_pasted_traceback_leads_to_who_raised_and_then_its_callers() {
    let workspace = workspace(
        "//- shop/web.py
from shop.db import Pool

def checkout(pool):
    return pool.take(\"eu\")
//- shop/db.py
class Pool:
    def take(self, key):
        return self.find(key)

    def find(self, key):
        return self.idle[key]
//- shop/take.py
def take_the_key_from_the_pool(pool, key):
    return pool.take(key)
",
    );
    workspace.write("run.py", "from shop.db import Pool\nfrom shop.web import checkout\n\npool = Pool()\npool.idle = {}\ncheckout(pool)\n");
    // What Python itself prints, where there is one.
    let printed = workspace
        .command_of("python3")
        .arg("run.py")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .map(|ended| String::from_utf8_lossy(&ended.stderr).into_owned())
        .unwrap_or_default();
    let trace = if printed.contains("KeyError") {
        printed
    } else {
        let frame = |path: &str, line: u32| format!("  File \"/x/{path}\", line {line}, in f\n");
        let frames = [
            ("run.py", 6),
            ("shop/web.py", 4),
            ("shop/db.py", 3),
            ("shop/db.py", 6),
        ];
        let frames = frames.map(|(path, line)| frame(path, line)).concat();
        format!("Traceback (most recent call last):\n{frames}KeyError: 'eu'\n")
    };
    let expected = ["shop/db.py#L5-L6", "shop/db.py#L2-L3", "shop/web.py#L3-L4"];
    let mut client = classic(&workspace);
    let before = document(&mut client, "rag_search", json!({"query": trace}));
    drop(client);
    let mut client = ready(&workspace);
    let after = document(&mut client, "rag_search", json!({"query": trace}));
    for found in [before, after] {
        let sources = found["snippets"].as_array().unwrap().iter();
        let sources: Vec<&str> = sources.map(|one| one["src"].as_str().unwrap()).collect();
        assert_eq!(sources[..3], expected, "{trace}\n{found}");
    }
    let text = parse(&client.text("te_rag", json!({"query": trace}))).unwrap();
    assert!(text.body.starts_with(expected[0]), "{}", text.body);
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
    let note = found["note"].as_str().unwrap();
    assert!(
        note.starts_with("searched live; the index cannot be written: "),
        "{note}"
    );
    assert!(!found["snippets"].as_array().unwrap().is_empty());
    let (code, text) = refused(&mut client, "rag_where_used", json!({"symbol": "take"}));
    assert_eq!(code, "NOT_FOUND", "{text}");
    let ended = workspace.llmc(["rag", "index"]);
    assert_eq!(ended.code, Some(74), "{}", ended.stderr);
}

#[test]
fn a_repository_is_indexed_before_the_first_question() {
    let repository = workspace(SHOP);
    std::fs::create_dir(repository.path(".git")).unwrap();
    let mut client = classic(&repository);
    client.request("tools/list", json!({}));
    let end = Instant::now() + Duration::from_secs(30);
    while client.json("health", json!({}))["index"] != "ready" {
        assert!(Instant::now() < end);
    }
    // A folder without a repository may be a home directory; and a mode without retrieval does not ask.
    let folder = workspace(SHOP);
    let mut client = classic(&folder);
    client.request("tools/list", json!({}));
    assert_eq!(client.json("health", json!({}))["index"], "none");
    assert!(!folder.path(".llmc/index").exists());
    let other = workspace(SHOP);
    std::fs::create_dir(other.path(".git")).unwrap();
    let mut client = other.mcp(["--mode", "code_execution"]);
    client.initialize("2025-06-18");
    client.request("tools/list", json!({}));
    assert!(!other.path(".llmc/index").exists());
}

#[test]
fn a_call_that_waits_for_the_index_reports_progress() {
    let workspace = workspace(SHOP);
    for n in 0..300 {
        let text: String = (0..40)
            .map(|i| format!("fn unit_{n}_{i}() {{\n    call_{i}()\n}}\n"))
            .collect();
        workspace.write(format!("src/part_{n}.rs"), text);
    }
    let mut client = classic(&workspace);
    let params = json!({
        "name": "rag_where_used", "arguments": {"symbol": "Pool::take"}, "_meta": {"progressToken": "p"},
    });
    let id = client.send_request("tools/call", params);
    let note = client.next_message().unwrap();
    assert_eq!(note["method"], "notifications/progress", "{note}");
    let message = note["params"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("rag_where_used: indexing, ") && message.contains(" files"),
        "{message}"
    );
    let (is_error, text) = client.tool_answer(id);
    assert!(!is_error && text.contains("src/main.rs"), "{text}");
}

/// A model that knows three things and which words stand for them.
fn meanings(asked: &ModelRequest) -> ModelAction {
    let texts = match &asked.body["input"] {
        Value::Array(texts) => texts.clone(),
        one => vec![one.clone()],
    };
    let vector = |text: &Value| {
        let text = text.as_str().unwrap_or_default().to_lowercase();
        let has = |words: &[&str]| f32::from(words.iter().any(|word| text.contains(word)));
        vec![
            has(&["idle", "reuse", "spare socket"]),
            has(&["guide", "documentation"]),
            0.1,
        ]
    };
    ModelAction::Vectors(texts.iter().map(vector).collect())
}

#[test]
fn vectors_find_what_shares_no_word() {
    for provider in ["ollama", "openai"] {
        let model = ModelServer::start(meanings);
        let workspace = workspace(SHOP).with_env("OPENAI_API_KEY", "sk-test");
        workspace.write("src/api_token.txt", "idle secret");
        let embedding = [
            format!("mcp.rag.embedding.provider=\"{provider}\""),
            format!("mcp.rag.embedding.base_url=\"{}\"", model.url()),
            "mcp.rag.embedding.model=\"three\"".to_owned(),
        ];
        let flags = embedding.iter().flat_map(|set| ["--set", set.as_str()]);
        let flags: Vec<&str> = flags.collect();
        let ended = workspace.llmc(["rag", "index"].iter().chain(&flags));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let sent = model.requests();
        assert!(sent.iter().any(|asked| asked.raw.contains("idle.pop")));
        assert!(
            sent.iter().all(|asked| !asked.raw.contains("idle secret")),
            "what is on the denylist is not sent"
        );
        let ask = |query: &str| {
            let search = ["rag", "search", query, "--json"];
            let ended = workspace.llmc(search.iter().chain(&flags));
            serde_json::from_str::<Value>(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"))
        };
        let found = ask("spare socket");
        let first = found["snippets"][0]["src"].as_str().unwrap_or_default();
        assert!(first.starts_with("src/pool.rs#"), "{found}");
        assert!(found.get("note").is_none(), "{found}");
        // Words still count: what has both comes first.
        let both = ask("take an idle connection");
        assert_eq!(both["snippets"][0]["symbol"], "Pool::take", "{both}");
        drop(model);
        let without = ask("take an idle connection");
        assert_eq!(without["snippets"][0]["symbol"], "Pool::take", "{without}");
        let note = without["note"].as_str().unwrap();
        assert!(note.starts_with("ranked without vectors: "), "{note}");
    }
}

#[test]
fn very_many_uses_are_listed_in_part_and_kept_whole() {
    let workspace = workspace("//- a.rs\npub fn popular_one() {}\n");
    for n in 0..310 {
        workspace.write(
            format!("users/user_{n}.rs"),
            format!("fn user_{n}() {{\n    popular_one();\n}}\n"),
        );
    }
    let mut client = ready(&workspace);
    let found = document(
        &mut client,
        "rag_where_used",
        json!({"symbol": "popular_one"}),
    );
    assert_eq!(found["sites"].as_array().unwrap().len(), 100);
    assert_eq!(
        (&found["total"], &found["unread_files"]),
        (&json!(300), &json!(10))
    );
    assert!(found["hint"].as_str().unwrap().starts_with("10 more files"));
    let handle = found["handle"].as_str().unwrap();
    let rest = client.text("te_handle", json!({"handle": handle}));
    assert!(rest.contains("popular_one();"), "{rest}");
}

#[test]
fn from_the_shell() {
    let workspace = workspace(SHOP);
    let before = workspace.llmc(["rag", "search", "idle", "connection"]);
    assert!(
        before.stdout.contains("there is no index yet"),
        "{}",
        before.stdout
    );
    let built = workspace.llmc(["rag", "index"]);
    assert!(
        built
            .stdout
            .starts_with("Indexed 5 files (5 new or changed"),
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
        (&["doctor"], "no damage found"),
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
