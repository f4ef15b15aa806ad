//! Clients with strict schemas send every argument: one that says nothing is as if it were not there.

use std::path::Path;

use llmc_tools::{Surface, ToolDef, catalog::TOOLS};
use serde_json::{Map, Value, json};

use super::{app, call};

/// A call of a tool with what it requires and nothing else.
fn required_only(tool: &ToolDef) -> Value {
    let unknown = "p_01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let handle = "res_01ARZ3NDEKTSV4RRFFQ69G5FAV";
    match tool.name {
        "read_file" | "list_dir" | "stat" | "linux_fs_read" | "repo_read" | "te_cat"
        | "te_head" | "te_tail" | "linux_fs_delete" => json!({"path": "a.txt"}),
        "linux_fs_list" | "linux_fs_mkdirs" => json!({"path": "src"}),
        "linux_fs_write" => json!({"path": "new.txt", "content": "new"}),
        "linux_fs_edit" => json!({"path": "a.txt", "old_text": "two", "new_text": "2"}),
        "linux_fs_move" => json!({"source": "a.txt", "target": "b.txt"}),
        "linux_search_files" => json!({"root": ".", "pattern": "*.txt"}),
        "linux_search_content" => json!({"root": ".", "pattern": "two"}),
        "linux_handle_read" | "te_handle" => json!({"handle": handle}),
        "linux_proc_read" | "linux_proc_stop" => json!({"proc_id": unknown}),
        "linux_proc_send" => json!({"proc_id": unknown, "input": "x"}),
        "linux_proc_kill" => json!({"pid": 1}),
        "linux_proc_start" | "run_cmd" | "run_preview" | "run_compare" | "run_tests" | "te_run" => {
            json!({"command": "cat a.txt"})
        }
        "run_pytest" | "te_ls" | "health" | "get_metrics" | "init" | "linux_proc_list"
        | "linux_sys_snapshot" | "rag_stats" | "history" | "undo" => json!({}),
        "te_grep" => json!({"pattern": "two"}),
        "te_find" => json!({"pattern": "*.txt"}),
        "te_diff" => json!({"a": "a.txt", "b": "src/a.py"}),
        "te_git" => json!({"args": ["status"]}),
        "repo_write_patch" => {
            json!({"patch": "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"})
        }
        "te_rag" | "rag_search" | "rag_query" | "rag_search_enriched" => {
            json!({"query": "open_store"})
        }
        "te_explain" | "rag_where_used" | "rag_lineage" => json!({"symbol": "f"}),
        "inspect" | "outline" => json!({"path": "src/a.py"}),
        "look" => json!({"query": "f"}),
        "rag_plan" => json!({"query": "change f"}),
        "rag_bootload" => json!({"session_id": "s", "task_id": "t"}),
        "rlm_query" => json!({"task": "?", "path": "a.txt"}),
        "execute_code" => json!({"code": "print(1)"}),
        other => panic!("{other}: add the call to this table"),
    }
}

/// The value with which a client fills in an argument that it does not want to give.
fn nothing(name: &str, schema: &Value) -> Value {
    match schema["type"].as_str().unwrap() {
        "string" => json!(""),
        "array" => json!([]),
        "number" | "integer" if name == "timeout" => json!(0),
        _ => Value::Null,
    }
}

fn filled_in(tool: &ToolDef) -> Value {
    let mut args = required_only(tool);
    let given = args.as_object_mut().unwrap();
    for (name, schema) in tool.schema()["properties"].as_object().unwrap() {
        if !given.contains_key(name) {
            given.insert(name.clone(), nothing(name, schema));
        }
    }
    args
}

/// What does not depend on when and where a call is made.
fn settled(text: &str, dir: &Path) -> String {
    // This test is no program that could be its own helper: commands get as far as being started.
    let text = match text.split_once("probing the kernel") {
        Some((before, _)) => before,
        None => text,
    };
    let text = text.replace(dir.to_str().unwrap(), "DIR");
    let mut settled = String::new();
    for word in text.split_inclusive([' ', '\n', '"', ',', ';']) {
        let is_name = word.starts_with("res_") || word.starts_with("p_");
        settled.push_str(if is_name { "ID " } else { word });
    }
    settled
}

#[tokio::test]
async fn an_argument_that_says_nothing_is_not_given() {
    let toml = "[mcp]\nmode = \"classic\"\n";
    // Answers that hold the time, what the machine is doing, or how far the index is.
    let changing = [
        "health",
        "get_metrics",
        "init",
        "stat",
        "linux_fs_list",
        "linux_sys_snapshot",
        "linux_proc_list",
        "linux_proc_start",
        "run_pytest",
        "inspect",
        "te_explain",
        "te_rag",
        "look",
    ];
    let is_changing =
        |tool: &ToolDef| changing.contains(&tool.name) || tool.name.starts_with("rag_");
    let mut filled = 0;
    for tool in TOOLS {
        let mut answers = Vec::new();
        for args in [required_only(tool), filled_in(tool)] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("a.txt"), "one\ntwo\n").unwrap();
            std::fs::create_dir(dir.path().join("src")).unwrap();
            std::fs::write(dir.path().join("src/a.py"), "def f():\n    return 1\n").unwrap();
            let app = app(dir.path(), toml);
            let outcome = call(&app, Surface::Mcp, tool.name, args.clone()).await;
            let text = settled(&outcome.text(), dir.path());
            app.processes().close();
            answers.push((outcome.result.is_ok(), text, args));
        }
        let (plain, with_nothing) = (&answers[0], &answers[1]);
        let what = format!("{}: {with_nothing:?} and {plain:?}", tool.name);
        assert_eq!(plain.0, with_nothing.0, "{what}");
        if !is_changing(tool) || !plain.0 {
            assert_eq!(plain.1, with_nothing.1, "{what}");
        }
        assert!(!plain.1.contains("BAD_ARGS"), "{what}");
        let count = |value: &Value| value.as_object().map_or(0, Map::len);
        filled += count(&with_nothing.2) - count(&plain.2);
    }
    assert!(filled > 50, "{filled}");
}
