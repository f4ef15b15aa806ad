//! What the retrieval tools say about what they do not show.

use std::fmt::Write as _;

use llmc_envelope::te::parse;
use llmc_testkit::{McpClient, TestWorkspace};
use serde_json::{Value, json};

use crate::rag::{document, ready};
use crate::{keys, workspace};

const CALLERS: usize = 1500;
const TESTS: usize = 40;
const PAGES: usize = 20;

/// One function that everybody calls.
fn popular() -> TestWorkspace {
    let mut code = "def foo(x):\n    return x\n".to_owned();
    for n in 0..CALLERS {
        let _ = write!(code, "\ndef caller_{n}():\n    return foo({n})\n");
    }
    let mut tests = "from app.base import foo\n".to_owned();
    for n in 0..TESTS {
        let _ = write!(tests, "\ndef test_{n}():\n    assert foo({n}) == {n}\n");
    }
    let workspace = workspace("//- README.md\n# Popular\n");
    workspace.write("app/base.py", code);
    workspace.write("tests/test_base.py", tests);
    for n in 0..PAGES {
        let page = format!("# Page {n}\n\nCall `foo` first.\n");
        workspace.write(format!("docs/page_{n}.md"), page);
    }
    workspace
}

/// The document that a handle holds.
fn kept(client: &mut McpClient, answer: &Value) -> Value {
    let args = json!({"handle": answer["handle"], "limit": 8 << 20});
    let page = client.json("linux_handle_read", args);
    assert_eq!(page["eof"], true);
    serde_json::from_str(page["data"].as_str().unwrap()).unwrap()
}

fn count(list: &Value) -> usize {
    list.as_array()
        .unwrap_or_else(|| panic!("no list: {list}"))
        .len()
}

#[test]
fn a_lineage_says_how_many_there_are_and_keeps_them_all() {
    let workspace = popular();
    let mut client = ready(&workspace);
    for tool in ["rag_lineage", "rag_where_used"] {
        let found = document(&mut client, tool, json!({"symbol": "foo", "depth": 1}));
        let list = if tool == "rag_lineage" {
            "nodes"
        } else {
            "sites"
        };
        assert_eq!(count(&found[list]), 100, "{tool}");
        let total = found["total"].as_u64().unwrap() as usize;
        assert!(total >= CALLERS + TESTS, "{tool}: {total}");
        assert_eq!(found["truncated"], true, "{tool}");
        let all = kept(&mut client, &found);
        assert_eq!(count(&all[list]), total, "{tool}");
        assert_eq!(all[list][0], found[list][0], "{tool}");
    }
    // All is found after one step, and that the second was not taken is said.
    let found = document(&mut client, "rag_lineage", json!({"symbol": "foo"}));
    assert_eq!(found["total"], CALLERS + TESTS);
    assert_eq!(found["depth_reached"], 1);
    let few = json!({"symbol": "caller_7", "direction": "callees"});
    let few = document(&mut client, "rag_lineage", few);
    assert_eq!(keys(&few), ["direction", "nodes", "symbol", "total"]);
    assert_eq!(few["total"], 1);
    let printed = workspace.llmc(["rag", "lineage", "foo"]).stdout;
    assert!(
        printed.contains("1540 callers of foo, 100 shown"),
        "{printed}"
    );
}

#[test]
fn uses_of_a_common_symbol_are_marked_incomplete() {
    let workspace = workspace("//- base.py\ndef foo(x):\n    return x\n");
    for n in 0..310 {
        let text = format!("from base import foo\n\ndef caller_{n}():\n    return foo({n})\n");
        workspace.write(format!("m_{n}.py"), text);
    }
    let mut client = ready(&workspace);
    for tool in ["rag_where_used", "rag_lineage", "inspect"] {
        let found = document(&mut client, tool, json!({"symbol": "foo"}));
        assert_eq!(found["unread_files"], 10, "{tool}");
        assert_eq!(found["truncated"], true, "{tool}");
    }
    let explained = parse(&client.text("te_explain", json!({"symbol": "foo"}))).unwrap();
    assert!(explained.header.truncated, "{explained:?}");
}

#[test]
fn all_about_a_symbol_counts_what_it_does_not_list() {
    let workspace = popular();
    let mut client = ready(&workspace);
    let found = document(&mut client, "inspect", json!({"symbol": "foo"}));
    for (list, total) in [("callers", CALLERS), ("tests", TESTS), ("docs", PAGES)] {
        assert_eq!(count(&found[list]), 8, "{list}");
        assert_eq!(found[format!("{list}_total")], total, "{list}");
    }
    assert_eq!(found["truncated"], true);
    assert!(found.get("callees_total").is_none(), "{found}");
    let all = kept(&mut client, &found);
    assert_eq!(count(&all["callers"]), CALLERS);
    assert_eq!(count(&all["tests"]), TESTS);
    assert_eq!(count(&all["docs"]), PAGES);
    assert_eq!(all["callers"][7], found["callers"][7]);
    let printed = workspace.llmc(["rag", "inspect", "foo"]).stdout;
    assert!(printed.contains("1492 more"), "{printed}");

    let explained = parse(&client.text("te_explain", json!({"symbol": "foo"}))).unwrap();
    assert!(explained.header.truncated);
    for line in [
        "callers (8 of 1,500): ",
        "tests (8 of 40): ",
        "docs (8 of 20): ",
    ] {
        assert!(explained.body.contains(line), "{line}: {}", explained.body);
    }
    let handle = explained.header.handle.unwrap().to_string();
    let args = json!({"handle": handle, "limit": 8 << 20});
    let all = client.json("linux_handle_read", args);
    let all = all["data"].as_str().unwrap();
    assert!(
        all.contains("caller_1499 ") && all.contains("test_39 "),
        "{all}"
    );

    let few = document(&mut client, "inspect", json!({"symbol": "caller_7"}));
    assert!(
        few.get("truncated").is_none() && few.get("handle").is_none(),
        "{few}"
    );
    let explained = parse(&client.text("te_explain", json!({"symbol": "caller_7"}))).unwrap();
    assert!(!explained.header.truncated);
    assert!(explained.body.contains("calls: foo "), "{}", explained.body);
}

#[test]
fn a_text_that_is_cut_says_how_long_it_is() {
    let body: String = (0..3000).map(|n| format!("    step_{n}()\n")).collect();
    let workspace = workspace(&format!("//- long.py\ndef long_work():\n{body}"));
    let mut client = ready(&workspace);
    let found = document(&mut client, "inspect", json!({"symbol": "long_work"}));
    assert_eq!(found["lines_total"], 3001);
    assert_eq!(found["truncated"], true);
    assert!(found["text"].as_str().unwrap().lines().count() < 3001);
}

#[test]
fn neighbours_are_counted() {
    let workspace = popular();
    let mut client = ready(&workspace);
    let args = json!({"query": "foo", "k": 1});
    let found = document(&mut client, "rag_search_enriched", args);
    let first = &found["snippets"][0];
    assert_eq!(first["symbol"], "foo", "{found}");
    assert_eq!(count(&first["neighbours"]), 8);
    assert_eq!(first["neighbours_total"], CALLERS + TESTS);
    assert_eq!(found["truncated"], true);
    let all = kept(&mut client, &found);
    assert_eq!(count(&all["snippets"][0]["neighbours"]), CALLERS + TESTS);
    assert_eq!(all["snippets"][0]["text"], first["text"]);
    let args = json!({"query": "caller_7", "k": 1});
    let few = document(&mut client, "rag_search_enriched", args);
    assert_eq!(count(&few["snippets"][0]["neighbours"]), 1, "{few}");
    assert!(
        few["snippets"][0].get("neighbours_total").is_none(),
        "{few}"
    );
    assert!(
        few.get("truncated").is_none() && few.get("handle").is_none(),
        "{few}"
    );
}

const SIZES: &str = "\
//- src/pool.rs
/// Connections that wait in the pool until a caller takes one of them, opened when there is none.
pub fn take_idle_connection_from_pool() -> u8 {
    open_one_more_connection_to_the_server_of_the_pool()
}

fn idle() -> u8 { 1 }
";

#[test]
fn hits_for_which_the_budget_is_too_small_are_named() {
    let workspace = workspace(SIZES);
    let mut client = ready(&workspace);
    let ask = |client: &mut McpClient, query: &str, budget: u32| {
        let args = json!({"query": query, "budget_tokens": budget});
        document(client, "rag_search", args)
    };
    let whole = ask(&mut client, "take idle connection from pool", 500);
    let best = whole["snippets"][0]["src"].as_str().unwrap().to_owned();
    assert_eq!(best, "src/pool.rs#L1-L4");
    assert!(whole.get("note").is_none(), "{whole}");
    let hits = count(&whole["snippets"]);
    for budget in [1, 5] {
        let none = ask(&mut client, "take idle connection from pool", budget);
        assert_eq!(none["snippets"], json!([]), "{none}");
        assert_eq!(none["truncated"], true);
        let note = none["note"].as_str().unwrap();
        let begin = format!("{hits} of {hits} hits left out, {budget} tokens are too few");
        assert!(note.starts_with(&begin) && note.contains(&best), "{note}");
        // With as many tokens as the note names it is shown, be it in part because there are others.
        let needs = note.split(&best).nth(1).unwrap();
        let digits = needs.chars().filter(char::is_ascii_digit);
        let needed: u32 = digits.collect::<String>().parse().unwrap();
        let shown = ask(&mut client, "take idle connection from pool", needed);
        let first = shown["snippets"][0]["src"].as_str().unwrap();
        assert!(first.starts_with("src/pool.rs#L1-"), "{needed}: {shown}");
    }
    // No hit is something else.
    let nothing = ask(&mut client, "zxqvwy", 1);
    assert!(
        nothing.get("note").is_none() && nothing.get("truncated").is_none(),
        "{nothing}"
    );
    let printed = workspace
        .llmc(["rag", "search", "--budget-tokens", "1", "idle pool"])
        .stdout;
    assert!(
        printed.contains("left out") && !printed.contains("nothing found"),
        "{printed}"
    );
}

#[test]
fn the_best_hit_comes_before_room_for_a_lesser_one() {
    let workspace = workspace(SIZES);
    let mut client = ready(&workspace);
    for budget in 1..80 {
        let args = json!({"query": "take idle connection from pool", "budget_tokens": budget});
        let found = document(&mut client, "rag_search", args);
        let Some(first) = found["snippets"].get(0) else {
            continue;
        };
        let best = first["symbol"] == "take_idle_connection_from_pool";
        let named = found["note"]
            .as_str()
            .is_some_and(|note| note.contains("src/pool.rs#L1-L4"));
        assert!(best || named, "{budget}: {found}");
    }
}

/// Every number with a fraction in a document.
fn fractions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Number(number) if number.is_f64() => found.push(number.to_string()),
        Value::Array(all) => all.iter().for_each(|one| fractions(one, found)),
        Value::Object(all) => all.values().for_each(|one| fractions(one, found)),
        _ => {}
    }
}

#[test]
fn scores_have_three_decimals_at_most() {
    let workspace = workspace(crate::rag::SHOP);
    let mut client = ready(&workspace);
    let query = json!({"query": "take an idle connection or open one"});
    let symbol = json!({"symbol": "open_connection", "depth": 3});
    let server = workspace.serve(["--mode", "hybrid"]);
    let asked = json!({"q": "take an idle connection or open one"});
    let task = json!({"session_id": "s", "task_id": "take an idle connection"});
    for (tool, answer) in [
        (
            "rag_search",
            document(&mut client, "rag_search", query.clone()),
        ),
        (
            "rag_query",
            document(&mut client, "rag_query", query.clone()),
        ),
        (
            "enriched",
            document(&mut client, "rag_search_enriched", query.clone()),
        ),
        ("rag_plan", document(&mut client, "rag_plan", query)),
        (
            "where_used",
            document(&mut client, "rag_where_used", symbol.clone()),
        ),
        ("lineage", document(&mut client, "rag_lineage", symbol)),
        (
            "bootload",
            document(&mut client, "rag_bootload", task.clone()),
        ),
        ("/rag/search", server.post("/rag/search", &asked).ok()),
        ("/rag/bootload", server.post("/rag/bootload", &task).ok()),
    ] {
        let mut numbers = Vec::new();
        fractions(&answer, &mut numbers);
        assert!(!numbers.is_empty(), "{tool}: {answer}");
        for number in numbers {
            let decimals = number.split_once('.').map_or(0, |(_, after)| after.len());
            assert!(decimals <= 3, "{tool}: {number}");
        }
    }
}
