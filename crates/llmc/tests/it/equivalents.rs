//! What the tools of Desktop Commander do, done here: the requirement "same functionality" of the Tool Envelope (S3 §11).
//!
//! Each row names a tool of version 0.2.52, and a check makes the calls that take its place, with the options that it has.

use llmc_testkit::{McpClient, TestWorkspace};
use serde_json::{Value, json};

use crate::workspace;

const FIXTURE: &str = "\
//- ten.txt
l1
l2
l3
l4
l5
l6
l7
l8
l9
l10
//- src/a.rs
fn alpha() {}
// TODO one
//- src/b.rs
// todo two
fn beta() {}
//- src/e.py
x = 'a.b'
y = 'aXb'
//- docs/c.md
TODO three
//- .hidden/d.txt
TODO four
";

type Check = fn(&TestWorkspace, &mut McpClient);

/// Tools that look at files: mode `te` has all it takes.
const READING: &[(&str, Check)] = &[
    ("read_file", |_, client| {
        // `offset: 0`, `offset: 3, length: 2`, `length: 2`, `offset: -3`.
        let whole = client.text("te_cat", json!({"path": "ten.txt"}));
        assert_eq!(whole.lines().count(), 10, "{whole}");
        for (tool, args, lines) in [
            ("te_cat", json!({"path": "ten.txt:4-5"}), "l4\nl5\n"),
            (
                "te_head",
                json!({"path": "ten.txt", "lines": 2}),
                "l1\nl2\n",
            ),
            (
                "te_tail",
                json!({"path": "ten.txt", "lines": 3}),
                "l8\nl9\nl10\n",
            ),
        ] {
            client.assert_starts(tool, args, lines);
        }
    }),
    ("list_directory", |_, client| {
        let here = client.text("te_ls", json!({}));
        let below = client.text("te_ls", json!({"path": "src"}));
        assert!(
            here.contains("src/\n") && here.contains("ten.txt"),
            "{here}"
        );
        assert!(
            below.starts_with("a.rs") && below.contains("e.py"),
            "{below}"
        );
    }),
    ("start_search", |_, client| {
        // `searchType: "content"`, with `ignoreCase`, `literalSearch` and a path; `searchType: "files"`.
        let exact = client.text("te_grep", json!({"pattern": "TODO"}));
        assert!(exact.contains("src/a.rs:2: // TODO one"), "{exact}");
        assert!(exact.contains("docs/c.md:1: TODO three"), "{exact}");
        assert!(!exact.contains("todo two"), "{exact}");
        client.assert_contains(
            "te_grep",
            json!({"pattern": "(?i)todo"}),
            "src/b.rs:1: // todo two",
        );
        let literal = client.text("te_grep", json!({"pattern": r"a\.b", "path": "src"}));
        assert!(
            literal.contains("'a.b'") && !literal.contains("aXb"),
            "{literal}"
        );
        // Hidden files where they are asked for.
        client.assert_contains(
            "te_grep",
            json!({"pattern": "four", "path": ".hidden"}),
            "TODO four",
        );
        let files = client.text("te_find", json!({"pattern": "*.rs"}));
        assert!(files.starts_with("src/a.rs\nsrc/b.rs\n"), "{files}");
        client.assert_starts(
            "te_find",
            json!({"pattern": "c.md", "path": "docs"}),
            "docs/c.md\n",
        );
    }),
    ("get_more_search_results", |workspace, client| {
        workspace.write("many.txt", "needle in hay\n".repeat(3000));
        let first = client.text("te_grep", json!({"pattern": "needle"}));
        assert!(first.contains(r#""matches":3000"#), "{first}");
        let handle = first.split(r#""handle":""#).nth(1).unwrap();
        let handle = &handle[..handle.find('"').unwrap()];
        let mut found = 0;
        for chunk in 0.. {
            let (failed, text) =
                client.call_tool("te_handle", json!({"handle": handle, "chunk": chunk}));
            if failed {
                assert!(chunk > 0 && text.contains("chunk"), "{text}");
                break;
            }
            found += text.matches("needle in hay").count();
        }
        assert_eq!(found, 3000);
    }),
];

/// Everything else, in mode `classic`.
const CHANGING: &[(&str, Check)] = &[
    ("read_multiple_files", |_, client| {
        let code = "for path in ['src/a.rs', 'docs/c.md']: print(open(path).read())";
        let both = client.text("execute_code", json!({"code": code}));
        assert!(
            both.contains("fn alpha") && both.contains("TODO three"),
            "{both}"
        );
    }),
    ("start_search", |_, client| {
        // `filePattern`, `literalSearch`, `contextLines`, `maxResults`.
        let search = json!({"root": ".", "pattern": "a.b", "literal": true, "file_glob": "*.py", "context_lines": 1});
        let found = client.json("linux_search_content", search);
        assert_eq!(
            found["hits"],
            json!([{"path": "src/e.py", "line": 1, "snippet": "x = 'a.b'\ny = 'aXb'"}])
        );
        let search = json!({"root": ".", "pattern": "todo", "ignore_case": true, "max_results": 1});
        let found = client.json("linux_search_content", search);
        assert_eq!(
            (&found["total_hits"], &found["truncated"]),
            (&json!(3), &json!(true)),
            "{found}"
        );
    }),
    ("list_directory", |_, client| {
        let tree = client.json("linux_fs_list", json!({"path": ".", "depth": 1}));
        let paths: Vec<&Value> = tree["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| &entry["path"])
            .collect();
        assert!(paths.contains(&&json!("src/a.rs")), "{tree}");
    }),
    ("write_file", |workspace, client| {
        // `mode: "rewrite"` and `mode: "append"`.
        client.json(
            "linux_fs_write",
            json!({"path": "new/w.txt", "content": "one\n"}),
        );
        client.json(
            "linux_fs_write",
            json!({"path": "new/w.txt", "content": "two\n", "mode": "append"}),
        );
        assert_eq!(workspace.read("new/w.txt"), "one\ntwo\n");
        client.json(
            "linux_fs_write",
            json!({"path": "new/w.txt", "content": "three\n"}),
        );
        assert_eq!(workspace.read("new/w.txt"), "three\n");
    }),
    ("edit_block", |workspace, client| {
        // Once, `expected_replacements`, and what comes back when the text is not there.
        client.json(
            "linux_fs_edit",
            json!({"path": "src/a.rs", "old_text": "alpha", "new_text": "gamma"}),
        );
        let twice = json!({"path": "src/e.py", "old_text": "'a", "new_text": "'c", "expected_replacements": 2});
        client.json("linux_fs_edit", twice);
        assert_eq!(workspace.read("src/a.rs"), "fn gamma() {}\n// TODO one\n");
        assert_eq!(workspace.read("src/e.py"), "x = 'c.b'\ny = 'cXb'\n");
        let missing = json!({"path": "src/a.rs", "old_text": "fn gama() {}", "new_text": ""});
        let error = client.error("linux_fs_edit", missing);
        assert!(
            error.to_string().contains("fn gamma() {}"),
            "the nearest lines: {error}"
        );
    }),
    ("create_directory", |workspace, client| {
        client.json("linux_fs_mkdirs", json!({"path": "deep/er/still"}));
        assert!(workspace.path("deep/er/still").is_dir());
    }),
    ("move_file", |workspace, client| {
        client.json(
            "linux_fs_move",
            json!({"source": "docs/c.md", "target": "docs/moved.md"}),
        );
        assert!(workspace.path("docs/moved.md").is_file() && !workspace.path("docs/c.md").exists());
    }),
    ("get_file_info", |_, client| {
        let info = client.json("stat", json!({"path": "ten.txt"}));
        assert_eq!(
            (&info["size"], &info["type"]),
            (&json!(31), &json!("file")),
            "{info}"
        );
    }),
    ("start_process", |_, client| {
        client.assert_starts("run_cmd", json!({"command": "printf hi | tr h H"}), "Hi");
    }),
    // One process: started, answered, read on, listed, ended.
    ("interact_with_process", |_, client| {
        let start = json!({"command": "read line; echo got $line; sleep 600"});
        let id = client.json("linux_proc_start", start)["proc_id"].clone();
        client.json("linux_proc_send", json!({"proc_id": id, "input": "word\n"}));
        let read = json!({"proc_id": id, "until": "got word", "timeout": 60});
        let read = client.json("linux_proc_read", read);
        assert_eq!(
            (&read["output"], &read["running"]),
            (&json!("got word\n"), &json!(true)),
            "{read}"
        );
        let list = client.json("linux_proc_list", json!({}));
        assert_eq!(list["processes"][0]["proc_id"], id, "{list}");
        client.json("linux_proc_stop", json!({"proc_id": id}));
        let read = client.json("linux_proc_read", json!({"proc_id": id, "timeout": 60}));
        assert_eq!(read["running"], false, "{read}");
    }),
    ("kill_process", |_, client| {
        let started = client.json("linux_proc_start", json!({"argv": ["sleep", "600"]}));
        let killed = client.json(
            "linux_proc_kill",
            json!({"pid": started["pid"], "signal": "KILL"}),
        );
        assert_eq!(killed["ok"], true, "{killed}");
        let read = json!({"proc_id": started["proc_id"], "timeout": 60});
        assert_eq!(client.json("linux_proc_read", read)["running"], false);
    }),
    ("list_processes", |_, client| {
        client.assert_contains("run_cmd", json!({"command": "ps -e -o pid,comm"}), "PID");
    }),
    ("get_config", |_, client| {
        assert_eq!(client.json("health", json!({}))["ok"], true);
    }),
    ("get_usage_stats", |_, client| {
        let metrics = client.json("get_metrics", json!({}));
        assert!(
            metrics["tools"]["linux_fs_write"]["calls"].as_u64() >= Some(3),
            "{metrics}"
        );
    }),
];

/// Done by a row above, since one process has several of their tools.
const WITHIN: &[(&str, &str)] = &[
    ("read_process_output", "interact_with_process"),
    ("list_sessions", "interact_with_process"),
    ("force_terminate", "interact_with_process"),
];

/// What is not here, and why.
const WITHOUT: &[(&str, &str)] = &[
    (
        "stop_search",
        "a search is one call, and a client cancels calls",
    ),
    ("list_searches", "a search is one call"),
    (
        "set_config_value",
        "no tool changes the configuration (D-4)",
    ),
    (
        "get_recent_tool_calls",
        "the log, the audit and `te analyze` have them; a model need not",
    ),
    ("get_prompts", "onboarding of that product"),
    ("give_feedback_to_desktop_commander", "about that product"),
    ("write_pdf", "documents are made with programs, by run_cmd"),
];

/// All tools of Desktop Commander 0.2.52.
const THEIRS: &str = "start_search read_file write_pdf start_process edit_block write_file list_directory read_process_output \
    get_prompts interact_with_process give_feedback_to_desktop_commander get_more_search_results get_file_info set_config_value \
    read_multiple_files get_recent_tool_calls get_config move_file create_directory list_sessions stop_search list_searches \
    kill_process get_usage_stats list_processes force_terminate";

#[test]
fn every_tool_of_desktop_commander_has_an_equivalent_or_a_reason() {
    let workspace = workspace(FIXTURE);
    for (mode, checks) in [("te", READING), ("classic", CHANGING)] {
        let mut client = workspace.mcp(["--mode", mode]);
        client.initialize("2025-11-25");
        for (_, check) in checks {
            check(&workspace, &mut client);
        }
        assert_eq!(client.finish().code, Some(0));
    }
    let checked = READING.iter().chain(CHANGING).map(|(name, _)| *name);
    let others = WITHIN.iter().chain(WITHOUT).map(|(name, _)| *name);
    let mut known: Vec<&str> = checked.chain(others).collect();
    known.sort_unstable();
    known.dedup();
    let mut theirs: Vec<&str> = THEIRS.split_whitespace().collect();
    theirs.sort_unstable();
    assert_eq!(known, theirs);
}
