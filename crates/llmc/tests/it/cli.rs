//! The verbs of the command line: results on standard output, errors on standard error, codes that scripts can read.

use llmc_testkit::ProcessOutput;
use serde_json::{Value, json};

use crate::{keys, workspace};

pub(crate) const FIXTURE: &str = "\
//- a.txt
one
two
three
//- src/main.rs
fn main() {}
";

pub(crate) fn ok(ended: &ProcessOutput) -> &str {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stderr, "", "nothing to complain about");
    &ended.stdout
}

/// Fails with this code, and says something on standard error alone.
pub(crate) fn fails(ended: &ProcessOutput, code: i32) -> &str {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    assert_eq!(ended.stdout, "", "errors do not go to standard output");
    assert!(!ended.stderr.is_empty());
    &ended.stderr
}

#[test]
fn a_tools_arguments_are_flags() {
    let workspace = workspace(FIXTURE);
    let text = workspace.llmc([
        "tool",
        "read_file",
        "--path",
        "a.txt",
        "--offset-lines",
        "1",
        "--max-lines",
        "1",
    ]);
    assert!(
        ok(&text).starts_with("two\n# LLMC: lines 2-2 of 3"),
        "{text:?}"
    );
    // Underscores as in the schema, arguments as JSON, both together, aliases.
    for args in [
        &["tool", "read_file", "--path=a.txt", "--offset_lines", "2"][..],
        &[
            "tool",
            "read_file",
            "--args",
            r#"{"path": "a.txt", "offset_lines": 2}"#,
        ],
        &[
            "tool",
            "read_file",
            "--args",
            r#"{"path": "nope"}"#,
            "--path",
            "a.txt",
            "--offset-lines=2",
        ],
    ] {
        assert!(ok(&workspace.llmc(args)).starts_with("three\n"), "{args:?}");
    }
    let made = workspace.llmc(["tool", "linux.fs_mkdir", "--path", "new"]);
    assert_eq!(ok(&made), "{\"ok\":true,\"path\":\"new\"}\n");
    // A switch alone is true; a tool's own --root is the tool's.
    workspace.write(".dot", "");
    let list = workspace.llmc([
        "tool",
        "linux_fs_list",
        "--path",
        ".",
        "--include-hidden",
        "--depth",
        "0",
    ]);
    assert!(ok(&list).contains(".dot"), "{list:?}");
    assert!(!list.stdout.contains("main.rs"), "{list:?}");
    let found = workspace.llmc([
        "tool",
        "linux_search_files",
        "--root",
        "src",
        "--pattern",
        "*",
    ]);
    let found: Value = serde_json::from_str(ok(&found)).unwrap();
    assert_eq!(found["hits"], json!([{"path": "src/main.rs"}]));
    // Values that begin with a hyphen are values.
    ok(&workspace.llmc(["tool", "linux_fs_write", "--path", "h", "--content", "-x"]));
    assert_eq!(workspace.read("h"), "-x");
    // Any tool, whatever the mode lists.
    ok(&workspace.llmc([
        "--mode",
        "code_execution",
        "tool",
        "linux_fs_delete",
        "--path",
        "h",
    ]));
    // From elsewhere, with --root before the verb.
    let mut command = workspace.command();
    command
        .current_dir("/")
        .arg("--root")
        .arg(workspace.root())
        .args(["tool", "stat", "--path", "a.txt"]);
    let stat = llmc_testkit::TestProcess::start(command).finish();
    assert!(ok(&stat).contains("\"size\":14"), "{stat:?}");
    let help = workspace.llmc(["tool", "read_file", "--help"]);
    assert!(ok(&help).contains("--offset-lines"), "{help:?}");
}

#[test]
fn json_is_the_rest_body() {
    let workspace = workspace(FIXTURE);
    let body = |args: &[&str]| -> Value {
        let ended = workspace.llmc([&["tool"], args, &["--json"]].concat());
        serde_json::from_str(ok(&ended)).unwrap()
    };
    let read = body(&["read_file", "--path", "a.txt"]);
    assert_eq!(keys(&read), ["data", "meta"]);
    assert_eq!(read["data"], "one\ntwo\nthree\n", "bare, without a receipt");
    assert_eq!(
        keys(&read["meta"]),
        ["correlation_id", "length", "path", "truncated"]
    );
    assert_eq!(
        (&read["meta"]["path"], &read["meta"]["length"]),
        (&json!("a.txt"), &json!(14))
    );
    assert_eq!(read["meta"]["correlation_id"].as_str().unwrap().len(), 36);
    assert_eq!(
        body(&["list_dir", "--path", "."])["data"],
        json!(["a.txt", "src"])
    );
    // The whole file unless a slice is asked for.
    let lines: String = (0..450).map(|n| format!("line {n}\n")).collect();
    workspace.write("src/long.txt", &lines);
    let long = body(&["read_file", "--path", "src/long.txt"]);
    assert_eq!(
        (&long["data"], &long["meta"]["truncated"]),
        (&json!(lines), &json!(false))
    );
    let slice = body(&["read_file", "--path", "src/long.txt", "--max-lines", "2"]);
    assert_eq!(
        (&slice["data"], &slice["meta"]["truncated"]),
        (&json!("line 0\nline 1\n"), &json!(true))
    );
    let stat = body(&["stat", "--path", "src"]);
    assert_eq!(stat["data"]["type"], "dir");
    let cut = body(&["linux_fs_read", "--path", "a.txt", "--max-lines", "1"]);
    assert_eq!(cut["meta"]["truncated"], true);
    assert_eq!(cut["meta"]["handle"], cut["data"]["handle"]);
    // The handle outlives the process that made it.
    let page = body(&[
        "linux_handle_read",
        "--handle",
        cut["data"]["handle"].as_str().unwrap(),
    ]);
    assert_eq!(page["data"]["data"], "one\ntwo\nthree\n");
    let error = workspace.llmc(["tool", "stat", "--path", "nope", "--json"]);
    let error: Value = serde_json::from_str(fails(&error, 3)).unwrap();
    assert_eq!(
        keys(&error),
        ["code", "correlation_id", "error_code", "hint", "message"]
    );
    assert_eq!(error["code"], "NOT_FOUND");
}

#[test]
fn the_tools_are_listed_with_their_cost() {
    let workspace = workspace(FIXTURE);
    let all = workspace.llmc(["tools"]);
    let text = ok(&all);
    for name in ["read_file", "linux_search_content", "health"] {
        assert!(text.contains(name), "{text}");
    }
    for mode in ["classic", "*hybrid", "code_execution", "te "] {
        assert!(text.contains(mode), "{text}");
    }
    // The cost is that of the list an MCP client is sent.
    let line = text
        .lines()
        .find(|line| line.starts_with("*hybrid"))
        .unwrap();
    let list = workspace
        .mcp(["--mode", "hybrid"])
        .request("tools/list", json!({}));
    let lean: Vec<String> = list["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| {
            let named =
                json!({"name": tool["name"], "description": tool["description"]}).to_string();
            format!("{named}{}", tool["inputSchema"])
        })
        .collect();
    let tokens: usize = line.split_whitespace().nth(3).unwrap().parse().unwrap();
    let about = llmc_tokens::count(&lean.join(","));
    assert!(
        tokens.abs_diff(about) * 10 < tokens,
        "{tokens} against {about}"
    );
    let some = workspace.llmc(["--mode", "code_execution", "tools"]);
    assert!(
        !ok(&some).contains("linux_fs_write"),
        "only that mode's: {some:?}"
    );
    let schemas = workspace.llmc(["tools", "--schemas"]);
    assert!(ok(&schemas).contains("\"inputSchema\""));
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let workspace = workspace(FIXTURE);
    for args in [
        &["tool", "read_file", "--path", "a.txt"][..],
        &["tool", "read_file", "--help"],
        &["tools"],
        &["config", "show"],
        &["--help"],
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let mut command = workspace.command();
        command.args(args).stdout(full.unwrap());
        let ended = command.output().unwrap();
        assert_eq!(ended.status.code(), Some(74), "{args:?}");
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(said.contains("standard output"), "{args:?}: {said}");
        // A reader that went away wanted no more.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = workspace.command();
        command.args(args).stdout(writer);
        let ended = command.output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(
            (ended.status.code(), said.as_str()),
            (Some(0), ""),
            "{args:?}"
        );
    }
}

#[test]
fn help_that_was_asked_for_is_no_mistake() {
    let workspace = workspace(FIXTURE);
    for args in [["tool", "--help"], ["tool", "-h"]] {
        let ended = workspace.llmc(args);
        assert!(ok(&ended).contains("usage: llmc tool NAME"), "{ended:?}");
        assert!(ended.stdout.contains("read_file"), "{ended:?}");
    }
    for args in [&["tool"][..], &["tool", "--nonsense"]] {
        let ended = workspace.llmc(args);
        assert!(fails(&ended, 2).contains("usage: llmc tool NAME"));
    }
}
