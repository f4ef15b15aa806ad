//! Handles under a policy that was narrowed after they were made.

use llmc_testkit::{McpClient, TestWorkspace, common_code, error_document};
use serde_json::{Value, json};

use crate::workspace;

fn server(workspace: &TestWorkspace, settings: &[&str]) -> McpClient {
    let mut flags = vec!["--mode", "classic"];
    for setting in settings {
        flags.extend(["--set", *setting]);
    }
    let mut client = workspace.mcp(flags);
    client.initialize("2025-11-25");
    client
}

fn handle_of(client: &mut McpClient, tool: &str, args: Value) -> String {
    let text = client.text(tool, args);
    let at = text
        .find("res_")
        .unwrap_or_else(|| panic!("{tool}: {text}"));
    text[at..at + 30].to_owned()
}

/// Every way to read a handle, and what each answers.
fn reads(workspace: &TestWorkspace, settings: &[&str], handle: &str) -> Vec<(String, String)> {
    let mut client = server(workspace, settings);
    let mut found = Vec::new();
    for (tool, args) in [
        ("te_handle", json!({"handle": handle})),
        ("read_file", json!({"path": handle})),
        (
            "read_file",
            json!({"path": format!("llmc://handle/{handle}")}),
        ),
        ("linux_handle_read", json!({"handle": handle})),
        ("run_cmd", json!({"argv": ["te", "--handle", handle]})),
    ] {
        let (failed, text) = client.call_tool(tool, args);
        let code = match failed {
            true => common_code(&error_document(&text)).to_owned(),
            false => "ok".to_owned(),
        };
        found.push((code, text));
    }
    let uri = format!("llmc://handle/{handle}");
    let resource = client.request("resources/read", json!({"uri": uri}));
    let code = match resource.get("error") {
        Some(_) => "INVALID_PATH",
        None => "ok",
    };
    found.push((code.to_owned(), resource.to_string()));
    let mut flags = Vec::new();
    for setting in settings {
        flags.extend(["--set", *setting]);
    }
    let server = workspace.serve(flags);
    let reply = server.tool("te_handle", json!({"handle": handle}));
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    let code = if reply.status == 200 {
        "ok"
    } else {
        "INVALID_PATH"
    };
    found.push((code.to_owned(), text));
    found
}

fn assert_refused(workspace: &TestWorkspace, settings: &[&str], handle: &str) {
    for (at, (code, text)) in reads(workspace, settings, handle).into_iter().enumerate() {
        assert!(!text.contains("line-of-text"), "way {at}: {text}");
        assert_eq!(code, "INVALID_PATH", "way {at}: {text}");
    }
}

fn assert_readable(workspace: &TestWorkspace, settings: &[&str], handle: &str) {
    for (at, (code, text)) in reads(workspace, settings, handle).into_iter().enumerate() {
        assert_eq!(code, "ok", "way {at}: {text}");
        assert!(text.contains("line-of-text"), "way {at}: {text}");
    }
}

fn lines() -> String {
    (0..5000).map(|n| format!("line-of-text {n}\n")).collect()
}

const DENIED: &str = "mcp.tools.denylist_globs=[\"**/notes.txt\"]";
const ON_READS: &str = "mcp.tools.denylist_reads=true";

#[test]
fn a_handle_of_a_file_ends_with_the_right_to_read_the_file() {
    let workspace = workspace("");
    workspace.write("notes.txt", lines());
    workspace.write("other.txt", lines());
    let mut client = server(&workspace, &[]);
    let handle = handle_of(&mut client, "te_cat", json!({"path": "notes.txt"}));
    let other = handle_of(&mut client, "te_cat", json!({"path": "other.txt"}));
    drop(client);
    assert_readable(&workspace, &[], &handle);
    assert_refused(&workspace, &[DENIED, ON_READS], &handle);
    // Another file's handle is not affected, and neither is a handle whose file is gone.
    assert_readable(&workspace, &[DENIED, ON_READS], &other);
    std::fs::remove_file(workspace.path("other.txt")).unwrap();
    assert_readable(&workspace, &[DENIED, ON_READS], &other);
}

#[test]
fn a_handle_ends_with_the_root_that_its_content_came_from() {
    let workspace = workspace("");
    let outside = workspace.outside("data");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("notes.txt"), lines()).unwrap();
    let wide = format!("mcp.tools.allowed_roots=[\".\", \"{}\"]", outside.display());
    let mut client = server(&workspace, &[&wide]);
    let path = outside.join("notes.txt").display().to_string();
    let of_file = handle_of(&mut client, "te_cat", json!({"path": path}));
    let of_search = handle_of(
        &mut client,
        "te_grep",
        json!({"pattern": "line-of", "path": outside.display().to_string()}),
    );
    drop(client);
    for handle in [&of_file, &of_search] {
        assert_readable(&workspace, &[&wide], handle);
        assert_refused(&workspace, &[], handle);
    }
}

#[test]
fn a_search_is_refused_once_more_names_are_denied() {
    let workspace = workspace("");
    workspace.write("notes.txt", lines());
    let mut client = server(&workspace, &[]);
    let handle = handle_of(&mut client, "te_grep", json!({"pattern": "line-of"}));
    drop(client);
    assert_readable(&workspace, &[], &handle);
    assert_refused(&workspace, &[DENIED, ON_READS], &handle);
}
