//! Arguments that are out of bounds, unknown, missing, ill-typed or given twice.

use llmc_testkit::{McpClient, common_code};
use serde_json::{Value, json};

use crate::shapes::FIXTURE;
use crate::{classic, keys, workspace};

/// A call that is refused for its arguments alone: the document of a failure, whole.
fn refused(client: &mut McpClient, tool: &str, args: &Value) -> Value {
    let error = client.error(tool, args.clone());
    assert_eq!(keys(&error), ["error", "meta"], "{tool} {args}");
    assert!(!error["error"].as_str().unwrap().is_empty());
    let meta = &error["meta"];
    assert_eq!(common_code(&error), "BAD_ARGS", "{tool} {args}: {error}");
    assert_eq!(meta["retryable"], false);
    assert_eq!(meta["correlation_id"].as_str().unwrap().len(), 36, "a UUID");
    error
}

#[test]
fn numbers_out_of_bounds_are_refused() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    for (tool, args) in [
        ("read_file", json!({"path": "a.txt", "max_lines": 0})),
        ("read_file", json!({"path": "a.txt", "offset_lines": -1})),
        ("linux_fs_read", json!({"path": "a.txt", "max_lines": 0})),
        ("linux_fs_read", json!({"path": "a.txt", "max_lines": 2001})),
        ("linux_fs_read", json!({"path": "a.txt", "max_lines": -1})),
        (
            "linux_fs_read",
            json!({"path": "a.txt", "offset_lines": -1}),
        ),
        ("linux_fs_list", json!({"path": ".", "depth": 11})),
        ("linux_fs_list", json!({"path": ".", "depth": -1})),
        (
            "linux_fs_edit",
            json!({"path": "a.txt", "old_text": "one", "new_text": "1", "expected_replacements": 0}),
        ),
        (
            "linux_fs_edit",
            json!({"path": "a.txt", "old_text": "one", "new_text": "1", "expected_replacements": -1}),
        ),
        (
            "linux_search_content",
            json!({"root": ".", "pattern": "x", "context_lines": 11}),
        ),
        (
            "linux_search_content",
            json!({"root": ".", "pattern": "x", "context_lines": -1}),
        ),
        (
            "linux_search_content",
            json!({"root": ".", "pattern": "x", "max_results": 0}),
        ),
        (
            "linux_search_content",
            json!({"root": ".", "pattern": "x", "max_results": 1001}),
        ),
        ("linux_search_content", json!({"root": ".", "pattern": ""})),
        (
            "linux_search_files",
            json!({"root": ".", "pattern": "x", "max_results": 0}),
        ),
        (
            "linux_search_files",
            json!({"root": ".", "pattern": "x", "max_results": 2001}),
        ),
        ("linux_search_files", json!({"root": ".", "pattern": ""})),
    ] {
        refused(&mut client, tool, &args);
    }
    // The bounds themselves are fine.
    for (tool, args) in [
        (
            "linux_fs_read",
            json!({"path": "a.txt", "max_lines": 2000, "offset_lines": i64::MAX}),
        ),
        ("linux_fs_list", json!({"path": ".", "depth": 10})),
        (
            "linux_search_content",
            json!({"root": ".", "pattern": "x", "context_lines": 10, "max_results": 1000}),
        ),
        (
            "linux_search_files",
            json!({"root": ".", "pattern": "x", "max_results": 2000}),
        ),
    ] {
        client.json(tool, args);
    }
    assert!(workspace.read("a.txt").starts_with("one\n"));
}

/// Arguments that a tool would take, made up from its schema.
fn plausible(schema: &Value) -> Value {
    let mut args = json!({});
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().unwrap();
        args[name] = match schema["properties"][name]["type"].as_str().unwrap() {
            "integer" | "number" => json!(1),
            "boolean" => json!(false),
            "array" => json!([]),
            _ => json!("a.txt"),
        };
    }
    args
}

#[test]
fn unknown_missing_and_ill_typed_arguments_are_refused_with_the_usage() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    let before = workspace.tree();
    let list = client.request("tools/list", json!({}));
    for tool in list["result"]["tools"].as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        let schema = &tool["inputSchema"];
        let good = plausible(schema);
        let mut cases = Vec::new();
        let mut unknown = good.clone();
        unknown["no_such_key"] = json!(1);
        cases.push(unknown);
        for required in schema["required"].as_array().into_iter().flatten() {
            let mut missing = good.clone();
            missing
                .as_object_mut()
                .unwrap()
                .remove(required.as_str().unwrap());
            cases.push(missing);
        }
        for (key, property) in schema["properties"].as_object().unwrap() {
            let wrong = match property["type"].as_str().unwrap() {
                // A command as a list is one of words.
                "string" if key == "command" => vec![json!(7), json!([1]), json!({"a": 1})],
                "string" => vec![json!(7), json!(["a"]), json!({"a": 1}), json!(true)],
                "integer" => vec![json!("seven"), json!(1.5), json!([1]), json!(1e300)],
                "boolean" => vec![json!("yes"), json!(1)],
                "number" => vec![json!("text"), json!({"a": 1})],
                _ => vec![json!([1]), json!({"a": 1})],
            };
            for value in wrong {
                // A signal has a name and a number.
                if key == "signal" && value.is_number() {
                    continue;
                }
                let mut args = good.clone();
                args[key] = value;
                cases.push(args);
            }
        }
        for args in cases {
            let error = refused(&mut client, name, &args);
            let hint = error["meta"]["hint"].as_str().unwrap_or_default();
            assert!(
                hint.contains(name) && hint.contains("usage"),
                "{name} {args}: {error}"
            );
        }
    }
    assert_eq!(workspace.tree(), before);
    assert!(workspace.read("a.txt").starts_with("one\n"));
}

#[test]
fn a_key_given_twice_is_refused_at_any_level() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    for (n, line) in [
        r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"linux_fs_delete","arguments":{"path":"nope","path":"a.txt"}}}"#,
        r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"stat","name":"linux_fs_delete","arguments":{"path":"a.txt"}}}"#,
        r#"{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"linux_fs_delete","arguments":{"path":"a.txt","p\u0061th":"b"}}}"#,
        r#"{"jsonrpc":"2.0","id":ID,"method":"tools/list","method":"tools/call","params":{"name":"linux_fs_delete","arguments":{"path":"a.txt"}}}"#,
    ].iter().enumerate() {
        let id = format!("dup{n}");
        client.send(line.replace("ID", &format!("\"{id}\"")).as_bytes());
        let answer = client.answer(&id.into());
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
    }
    assert!(workspace.path("a.txt").exists());
}

#[test]
fn what_strict_clients_send_for_the_arguments_of_commands_and_writes() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    for (tool, args) in [
        (
            "run_cmd",
            json!({"command": "cat a.txt", "argv": [], "cwd": "", "timeout": 0, "proc": "", "input": ""}),
        ),
        (
            "run_cmd",
            json!({"command": "", "argv": ["cat", "a.txt"], "cwd": "", "timeout": "0"}),
        ),
        (
            "te_run",
            json!({"command": "cat a.txt", "argv": [], "cwd": "", "timeout": 0.0}),
        ),
        (
            "linux_fs_write",
            json!({"path": "a.txt", "content": "one\n", "mode": "", "expected_sha256": ""}),
        ),
        (
            "linux_fs_edit",
            json!({"path": "a.txt", "old_text": "one", "new_text": "1", "expected_replacements": null, "expected_sha256": ""}),
        ),
        (
            "execute_code",
            json!({"code": "print(1)", "session": "", "timeout": 0}),
        ),
    ] {
        let (failed, text) = client.call_tool(tool, args.clone());
        assert!(!failed, "{tool} {args}: {text}");
    }
    // Nothing at all is still too little.
    let args = json!({"command": "", "argv": [], "cwd": "", "timeout": 0});
    refused(&mut client, "run_cmd", &args);
}
