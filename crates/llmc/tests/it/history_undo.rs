//! Which changes an undo takes back, and which it keeps.

use llmc_testkit::McpClient;
use serde_json::{Value, json};

use crate::history::{FIXTURE, calls, git, id, state};
use crate::{classic, workspace};

#[test]
fn newer_content_is_kept_and_reported() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    client.text(
        "run_cmd",
        json!({"command": "echo x > a.txt; echo x > b.txt; echo x > new.txt"}),
    );
    let entry = id(&calls(&workspace)[0]);
    workspace.write("b.txt", "newer\n");
    // All or nothing.
    let error = client.error("undo", json!({"entry": entry, "atomic": true}));
    assert_eq!(error["meta"]["error_code"], "CONFLICT", "{error}");
    assert!(error.to_string().contains("b.txt"), "{error}");
    assert_eq!(workspace.read("a.txt"), "x\n");
    // A dry run says it and changes nothing.
    let said = client.text("undo", json!({"entry": entry, "dry_run": true}));
    assert!(
        said.contains("CONFLICT b.txt") && said.contains("would undo"),
        "{said}"
    );
    assert_eq!(workspace.read("a.txt"), "x\n");
    // The rest is undone.
    let said = client.text("undo", json!({"entry": entry}));
    assert!(said.contains("CONFLICT b.txt"), "{said}");
    assert_eq!(workspace.read("a.txt"), "one\ntwo\n");
    assert_eq!(workspace.read("b.txt"), "newer\n");
    assert!(!workspace.path("new.txt").exists());
    // Where there is nothing else to undo, it is an error.
    client.text(
        "linux_fs_edit",
        json!({"path": "a.txt", "old_text": "one", "new_text": "1"}),
    );
    workspace.write("a.txt", "newer\n");
    client.assert_code("undo", json!({}), "CONFLICT");
    assert_eq!(workspace.read("a.txt"), "newer\n");
}

#[test]
fn the_history_outlives_the_repository_that_it_lies_in() {
    let workspace = workspace(FIXTURE);
    let init = "rm -rf .git && git init -q && ls .git";
    git(&workspace, &["init", "-q"]);
    let mut client = classic(&workspace);
    client.text(
        "linux_fs_write",
        json!({"path": "b.txt", "content": "two\n"}),
    );
    let entry = id(&calls(&workspace)[0]);
    let listed = client.text("run_cmd", json!({"command": init}));
    assert!(listed.contains("HEAD"), "{listed}");
    client.text("run_cmd", json!({"command": "rm -rf .git"}));
    assert!(!workspace.path(".git/HEAD").exists());
    client.text("undo", json!({"entry": entry}));
    assert!(!workspace.path("b.txt").exists() || workspace.read("b.txt") != "two\n");
    drop(client);
    let mut client = classic(&workspace);
    let history = client.text("history", json!({}));
    assert!(history.contains(&entry), "{history}");
}

#[test]
fn entries_are_chosen_by_path_range_session_and_time() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    let before = state(&workspace);
    let other = |client: &mut McpClient, args: Value| {
        let params =
            json!({"name": "run_cmd", "arguments": args, "_meta": {"llmc/sessionId": "other"}});
        assert_ne!(
            client.request("tools/call", params)["result"]["isError"],
            true
        );
    };
    client.text(
        "run_cmd",
        json!({"command": "echo 1 > a.txt; echo 1 > b.txt"}),
    );
    other(&mut client, json!({"command": "echo o > others.txt"}));
    client.text("run_cmd", json!({"command": "echo 2 > c.txt"}));
    client.text("run_cmd", json!({"command": "echo 3 > src/d.txt"}));
    let list = calls(&workspace);
    assert_eq!(list.len(), 4, "{list:?}");
    // By path.
    let text = client.text("history", json!({"path": "src"}));
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("1 created"), "{text}");
    client.text("undo", json!({"entry": id(&list[3]), "path": "b.txt"}));
    assert_eq!(
        (workspace.read("a.txt"), workspace.read("b.txt")),
        ("1\n".into(), "bee\n".into())
    );
    // By session.
    let text = client.text("history", json!({"session": "other"}));
    assert_eq!(text.lines().count(), 1, "{text}");
    client.text("undo", json!({"session": "other"}));
    assert!(!workspace.path("others.txt").exists());
    assert!(workspace.path("c.txt").exists());
    // A range.
    client.text(
        "undo",
        json!({"entry": format!("{}..{}", id(&list[1]), id(&list[0]))}),
    );
    assert!(!workspace.path("c.txt").exists() && !workspace.path("src/d.txt").exists());
    // Everything since a time.
    client.text("undo", json!({"to": "1h"}));
    let now = state(&workspace);
    assert_eq!(now[&b"a.txt"[..]], before[&b"a.txt"[..]]);
    // What cannot be meant.
    for args in [
        json!({"entry": "nonsense"}),
        json!({"entry": "h9..h2"}),
        json!({"to": "yesterday"}),
        json!({"entry": "h1", "to": "1h"}),
    ] {
        client.assert_code("undo", args, "BAD_ARGS");
    }
    client.assert_code(
        "undo",
        json!({"entry": "h1", "path": "../outside"}),
        "INVALID_PATH",
    );
    client.assert_code("history", json!({"entry": "h12345"}), "NOT_FOUND");
}

#[test]
fn an_entry_is_undone_once() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    client.text("linux_fs_write", json!({"path": "a.txt", "content": "x"}));
    let entry = id(&calls(&workspace)[0]);
    client.text("undo", json!({"entry": entry}));
    let error = client.error("undo", json!({"entry": entry}));
    assert_eq!(error["meta"]["error_code"], "CONFLICT", "{error}");
    assert!(
        error["error"].as_str().unwrap().contains("was undone by"),
        "{error}"
    );
    client.assert_code("undo", json!({"entry": "h999"}), "NOT_FOUND");
}
