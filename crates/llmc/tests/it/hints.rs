//! No text leads into a dead end: whatever an error, a hint, a receipt or a breadcrumb tells its reader to call can be
//! called in the mode it is read in, with the arguments it names.

use std::collections::{BTreeMap, BTreeSet};

use llmc_testkit::{McpClient, TestWorkspace};
use serde_json::{Value, json};

use crate::workspace;

const MODES: [&str; 4] = ["te", "hybrid", "code_execution", "classic"];

/// Tools and the names of their arguments.
type Tools = BTreeMap<String, BTreeSet<String>>;

fn tools(client: &mut McpClient) -> Tools {
    let list = client.request("tools/list", json!({}));
    let tools = list["result"]["tools"].as_array().unwrap();
    let of = |tool: &Value| {
        let arguments = tool["inputSchema"]["properties"].as_object();
        let arguments = arguments.map(|all| all.keys().cloned().collect());
        (
            tool["name"].as_str().unwrap().to_owned(),
            arguments.unwrap_or_default(),
        )
    };
    tools.iter().map(of).collect()
}

fn server(workspace: &TestWorkspace, mode: &str) -> McpClient {
    let mut client = workspace.mcp(["--mode", mode]);
    client.initialize("2025-11-25");
    client
}

/// What a text tells its reader to call that the reader cannot call so.
fn dead_ends(text: &str, all: &Tools, listed: &Tools) -> Vec<String> {
    let scripts = listed.contains_key("execute_code");
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = text[at..].find(is_word).map(|start| at + start) {
        let end = text[start..]
            .find(|c| !is_word(c))
            .map_or(text.len(), |length| start + length);
        at = end;
        let (word, rest) = (&text[start..end], &text[end..]);
        // `stat`, `inspect` and `health` are English words as well.
        let Some(arguments) = all.get(word).filter(|_| word.contains('_')) else {
            continue;
        };
        let in_script = text[..start].ends_with("tools.") || rest.starts_with(" in execute_code");
        if !(listed.contains_key(word) || (scripts && in_script)) {
            found.push(word.to_owned());
        }
        // `read_file path=res_…` and `tools.read_file(path=…`.
        let named = rest.trim_start_matches([' ', '(']);
        if let Some((argument, _)) = named.split_once('=')
            && argument.chars().all(is_word)
            && !argument.is_empty()
            && !arguments.contains(argument)
        {
            found.push(format!("{word} {argument}="));
        }
    }
    found
}

#[test]
fn dead_ends_are_recognised() {
    let tools = |names: &[&str]| -> Tools {
        let of = |name: &&str| ((*name).to_owned(), BTreeSet::from(["path".to_owned()]));
        names.iter().map(of).collect()
    };
    let all = tools(&["read_file", "te_handle", "execute_code"]);
    let hybrid = tools(&["read_file", "execute_code"]);
    for (text, wrong) in [
        ("read_file path=res_1 returns the rest", vec![]),
        ("read_file handle=res_1", vec!["read_file handle="]),
        ("te_handle path=res_1", vec!["te_handle"]),
        ("tools.te_handle(path=1)", vec![]),
        ("use te_handle in execute_code", vec![]),
    ] {
        assert_eq!(dead_ends(text, &all, &hybrid), wrong, "{text}");
    }
    assert_eq!(
        dead_ends("tools.te_handle(path=1)", &all, &tools(&["read_file"])),
        ["te_handle"]
    );
}

/// Calls that fail or leave something out.
fn calls() -> Vec<(&'static str, Value)> {
    let gone = "res_01ARZ3NDEKTSV4RRFFQ69G5FAV";
    vec![
        ("read_file", json!({})),
        ("read_file", json!({"path": 5})),
        ("read_file", json!({"path": "gone.txt"})),
        ("read_file", json!({"path": "src"})),
        ("read_file", json!({"path": "/etc/passwd"})),
        ("read_file", json!({"path": gone})),
        ("read_file", json!({"path": "src/a.py::nothing"})),
        ("read_file", json!({"path": "a.txt", "max_lines": 0})),
        ("read_file", json!({"path": "a.txt", "lines": 3})),
        ("read_file", json!({"path": "many.txt"})),
        ("read_file", json!({"path": "long.txt"})),
        ("list_dir", json!({"path": "a.txt"})),
        ("list_dir", json!({"path": "gone"})),
        ("list_dir", json!({"path": "crowd"})),
        ("stat", json!({"path": "gone"})),
        ("linux_fs_read", json!({"path": "gone"})),
        ("linux_fs_read", json!({"path": "many.txt"})),
        (
            "linux_fs_write",
            json!({"path": ".git/config", "content": "x"}),
        ),
        ("linux_fs_write", json!({"path": "src", "content": "x"})),
        ("linux_fs_write", json!({"path": "a.txt/b", "content": "x"})),
        (
            "linux_fs_write",
            json!({"path": "a.txt", "content": "x", "expected_sha256": "00000000"}),
        ),
        (
            "linux_fs_write",
            json!({"path": "a.txt", "content": "x", "mode": "insert"}),
        ),
        (
            "linux_fs_edit",
            json!({"path": "a.txt", "old_text": "zzz", "new_text": "x"}),
        ),
        (
            "linux_fs_edit",
            json!({"path": "a.txt", "old_text": "", "new_text": "x"}),
        ),
        (
            "linux_fs_edit",
            json!({"path": "many.txt", "old_text": "line", "new_text": "x"}),
        ),
        (
            "linux_fs_edit",
            json!({"path": "gone", "old_text": "a", "new_text": "x"}),
        ),
        (
            "linux_fs_move",
            json!({"source": "a.txt", "target": "many.txt"}),
        ),
        ("linux_fs_move", json!({"source": "gone", "target": "b"})),
        ("linux_fs_delete", json!({"path": "src"})),
        ("linux_fs_delete", json!({"path": "."})),
        ("linux_fs_mkdirs", json!({"path": "src", "exist_ok": false})),
        ("linux_fs_mkdirs", json!({"path": "a.txt/b"})),
        ("linux_fs_list", json!({"path": "a.txt"})),
        (
            "linux_search_files",
            json!({"root": "gone", "pattern": "x"}),
        ),
        ("linux_search_content", json!({"root": ".", "pattern": "("})),
        (
            "linux_search_content",
            json!({"root": ".", "pattern": "line", "max_results": 5}),
        ),
        ("linux_handle_read", json!({"handle": gone})),
        ("linux_proc_start", json!({})),
        ("linux_proc_read", json!({"proc_id": "p_gone"})),
        (
            "linux_proc_send",
            json!({"proc_id": "p_gone", "input": "x"}),
        ),
        (
            "linux_proc_stop",
            json!({"proc_id": "p_gone", "signal": "NOPE"}),
        ),
        ("linux_proc_kill", json!({"pid": 1})),
        ("linux_proc_kill", json!({"pid": 2147483646})),
        ("run_cmd", json!({})),
        ("run_cmd", json!({"command": "true", "argv": ["true"]})),
        ("run_cmd", json!({"argv": ["no-such-program"]})),
        ("run_cmd", json!({"command": "true", "timeout": -1})),
        ("run_cmd", json!({"command": "true", "timeout": 100000})),
        ("run_cmd", json!({"command": "true", "cwd": "gone"})),
        ("run_cmd", json!({"proc": "p_gone"})),
        ("run_cmd", json!({"command": "te --preview ls"})),
        ("run_preview", json!({})),
        ("run_preview", json!({"command": "seq 20000"})),
        ("run_preview", json!({"command": "true", "cwd": "gone"})),
        ("run_compare", json!({"command": "true"})),
        (
            "run_compare",
            json!({"command": "true", "base": "no-such-commit"}),
        ),
        ("run_compare", json!({"command": "true", "base": "h_1"})),
        ("run_cmd", json!({"proc": "p_gone", "command": "true"})),
        (
            "run_cmd",
            json!({"command": "echo begun; sleep 60", "timeout": 0.2}),
        ),
        ("run_cmd", json!({"command": "cat many.txt"})),
        ("run_cmd", json!({"command": "cat long.txt"})),
        ("run_cmd", json!({"command": "seq 20000"})),
        ("run_cmd", json!({"command": "git config user.name x"})),
        ("te_run", json!({})),
        ("te_run", json!({"command": "seq 20000"})),
        ("te_grep", json!({"pattern": "("})),
        ("te_grep", json!({"pattern": "nothing-matches-this"})),
        ("te_grep", json!({"pattern": "line"})),
        ("te_grep", json!({"pattern": "line", "path": "gone"})),
        ("te_cat", json!({"path": "gone"})),
        ("te_cat", json!({"path": "/etc/passwd"})),
        ("te_cat", json!({"path": "many.txt"})),
        ("te_head", json!({"path": "src"})),
        ("te_tail", json!({"path": "many.txt", "lines": 5000})),
        ("te_find", json!({"pattern": "nothing-like-it"})),
        ("te_ls", json!({"path": "gone"})),
        ("te_ls", json!({"path": "crowd"})),
        ("te_handle", json!({"handle": gone})),
        ("te_handle", json!({"handle": "nonsense"})),
        ("te_diff", json!({"a": "gone"})),
        ("te_git", json!({"args": ["push"]})),
        ("te_explain", json!({"symbol": "nothing_called_so"})),
        ("te_rag", json!({"query": ""})),
        ("repo_read", json!({"path": "gone"})),
        ("repo_read", json!({"path": "many.txt", "max_bytes": 100})),
        ("repo_write_patch", json!({"patch": "nonsense"})),
        (
            "repo_write_patch",
            json!({"patch": "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-no\n+yes\n"}),
        ),
        ("run_pytest", json!({"args": ["--basetemp=/etc"]})),
        ("rag_search", json!({"query": ""})),
        ("rag_search", json!({"query": "line", "k": 0})),
        ("rag_where_used", json!({"symbol": "nothing_called_so"})),
        (
            "rag_lineage",
            json!({"symbol": "nothing_called_so", "direction": "up"}),
        ),
        ("inspect", json!({})),
        ("inspect", json!({"symbol": "x", "path": "y"})),
        ("rlm_query", json!({})),
        (
            "rlm_query",
            json!({"task": "t", "context": "c", "model": "openai/gpt-5"}),
        ),
        ("execute_code", json!({"code": ""})),
        ("execute_code", json!({"code": "def"})),
        ("execute_code", json!({"code": "print('a b ' * 40000)"})),
        ("execute_code", json!({"code": "tools.no_such_tool()"})),
        (
            "execute_code",
            json!({"code": "print('x\\n' * 9000); 1 / 0"}),
        ),
        ("init", json!({})),
        ("read_fil", json!({"path": "a.txt"})),
    ]
}

fn fixture() -> TestWorkspace {
    let workspace = workspace(
        "//- a.txt\none\ntwo\n//- src/a.py\ndef f():\n    pass\n//- .git/HEAD\nref: refs/heads/main\n",
    );
    let many: String = (0..3000).map(|n| format!("line {n} of many\n")).collect();
    workspace.write("many.txt", many);
    workspace.write("long.txt", "word ".repeat(20_000));
    for n in 0..700 {
        workspace.write(format!("crowd/file-{n}-with-a-long-name.txt"), "");
    }
    workspace
}

/// The text of an answer, also of one that is an error of the protocol.
fn said(answer: &Value) -> String {
    match answer["error"]["message"].as_str() {
        // A refusal repeats the name that it refuses.
        Some(message) => match message.strip_prefix("Unknown tool: ") {
            Some(rest) => rest
                .trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_')
                .to_owned(),
            None => message.to_owned(),
        },
        None => answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("no text: {answer}"))
            .to_owned(),
    }
}

#[test]
fn every_text_names_what_its_reader_can_call() {
    let workspace = fixture();
    let all = tools(&mut server(&workspace, "classic"));
    let mut codes = BTreeSet::new();
    let mut naming = 0;
    let mut wrong = Vec::new();
    for mode in MODES {
        let mut client = server(&workspace, mode);
        let listed = tools(&mut client);
        let mut check = |what: String, text: &str| {
            naming += usize::from(
                all.keys()
                    .any(|name| name.contains('_') && text.contains(name)),
            );
            let ends = dead_ends(text, &all, &listed);
            if !ends.is_empty() {
                wrong.push(format!("{mode}: {what}: {ends:?} in {text}"));
            }
        };
        for (tool, args) in calls() {
            let params = json!({"name": tool, "arguments": args});
            let answer = client.request("tools/call", params);
            let text = said(&answer);
            if let Some(code) = answer["result"]["_meta"]["error_code"].as_str() {
                codes.insert(code.to_ascii_uppercase());
            }
            // A list of what scripts call, each with a description in which the reader is the script.
            let text = match text.split_once("In scripts also, as tools.NAME(…)") {
                Some((before, list)) => {
                    let names = list.lines().filter_map(|line| line.split_once(": "));
                    let names: Vec<String> =
                        names.map(|(name, _)| format!("tools.{name}")).collect();
                    format!("{before}{}", names.join("\n"))
                }
                None => text,
            };
            check(format!("{tool} {args}"), &text);
            // The same from a script, whose reader is the caller of execute_code.
            if listed.contains_key("execute_code") && tool != "execute_code" && tool != "init" {
                let code = format!(
                    "print(tools.{tool}(**__import__('json').loads({:?})))",
                    args.to_string()
                );
                let params = json!({"name": "execute_code", "arguments": {"code": code}});
                let text = said(&client.request("tools/call", params));
                // The failing line repeats the call itself, and a header names its tool.
                let text: Vec<&str> = text
                    .lines()
                    .filter(|line| !line.contains("print(tools.") && !line.starts_with("{\"v\":1,"))
                    .collect();
                check(format!("script {tool} {args}"), &text.join("\n"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} dead ends:\n{}",
        wrong.len(),
        wrong.join("\n\n")
    );
    assert!(naming > 60, "only {naming} texts name a tool");
    for code in [
        "BAD_ARGS",
        "INVALID_ARGS",
        "INVALID_PATTERN",
        "INVALID_PATH",
        "PATH_DENIED",
        "COMMAND_DENIED",
        "EGRESS_DENIED",
        "NOT_FOUND",
        "NOT_A_DIRECTORY",
        "IS_DIRECTORY",
        "WRONG_KIND",
        "SHA_MISMATCH",
        "NO_MATCH",
        "PATCH_FAILED",
        "ALREADY_EXISTS",
        "HANDLE_EXPIRED",
    ] {
        assert!(codes.contains(code), "{code} is not provoked: {codes:?}");
    }
}
