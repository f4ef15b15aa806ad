//! Comparisons and previews that take longer than their call waits: they go on, and later calls wait for them.

use llmc_testkit::{McpClient, common_code, error_document};
use serde_json::{Value, json};

use crate::run_preview::{has_views, snapshot};
use crate::te_diff::{commit, git};
use crate::{classic, workspace};

/// The id under which an answer says that a run goes on.
fn proc_id(text: &str) -> String {
    let (_, rest) = text
        .split_once(" s as ")
        .unwrap_or_else(|| panic!("{text}"));
    rest.split([',', ';']).next().unwrap().to_owned()
}

fn running(client: &mut McpClient) -> Vec<Value> {
    let list = client.json("linux_proc_list", json!({}));
    let list = list["processes"].as_array().unwrap().clone();
    list.into_iter()
        .filter(|one| one["running"] == true)
        .collect()
}

#[test]
fn a_comparison_that_outlives_its_wait_is_waited_for_by_a_later_call() {
    let workspace = workspace("//- a.txt\none\n");
    git(&workspace, &["init", "-q"]);
    commit(&workspace);
    if !has_views(&workspace) {
        return;
    }
    workspace.write("a.txt", "two\n");
    let before = snapshot(&workspace);
    let mut client = classic(&workspace);
    let line = "echo begun; sleep 2; cat a.txt";
    let text = client.text("run_compare", json!({"command": line, "timeout": 1}));
    assert!(
        text.starts_with("begun\n") && text.contains("\n# LLMC: still running after "),
        "{text}"
    );
    assert!(text.contains("running on HEAD ("), "{text}");
    let id = proc_id(&text);
    assert!(
        text.contains(&format!("run_cmd proc={id} waits on")),
        "{text}"
    );
    let list = running(&mut client);
    assert_eq!(list[0]["proc_id"], id.as_str(), "{list:?}");
    assert_eq!(list[0]["command"], format!("run_compare {line}"));
    let text = client.text("run_cmd", json!({"proc": id, "timeout": 60}));
    assert!(text.contains("-one\n+two\n"), "{text}");
    assert_eq!(running(&mut client), [Value::Null; 0]);
    // The result stays for a while.
    let again = client.text("run_cmd", json!({"proc": id}));
    assert!(again.contains("-one\n+two\n"), "{again}");
    let (failed, text) = client.call_tool("run_cmd", json!({"proc": id, "input": "x"}));
    assert!(failed && text.contains("reads no input"), "{text}");
    assert_eq!(snapshot(&workspace), before);
}

#[test]
fn a_script_waits_on_for_a_preview() {
    let workspace = workspace("//- a.txt\none\n");
    if !has_views(&workspace) {
        return;
    }
    let mut client = classic(&workspace);
    let code = "first = tools.run_preview('sleep 2; echo two > a.txt', timeout=1)\n\
                print(first.exit_code, first.changes)\n\
                last = tools.run_cmd(proc=first.proc_id, timeout=60)\n\
                print(last.exit_code, '+two' in last.diff, '+two' in last.stdout)\n\
                print(open('a.txt').read())";
    let text = client.text("execute_code", json!({"code": code}));
    assert_eq!(text, "None \n0 True True\none");
}

#[test]
fn a_run_can_be_stopped_and_belongs_to_its_session() {
    let workspace = workspace("//- a.txt\none\n");
    if !has_views(&workspace) {
        return;
    }
    let mut client = classic(&workspace);
    let args = json!({"command": "sleep 3600", "timeout": 1});
    let id = proc_id(&client.text("run_preview", args));
    let args = json!({"proc_id": id});
    let (failed, text) = client.call_tool("linux_proc_read", args.clone());
    assert!(
        failed && text.contains(&format!("run_cmd proc={id}")),
        "{text}"
    );
    let mut other = classic(&workspace);
    let (failed, text) = other.call_tool("run_cmd", json!({"proc": id}));
    assert!(failed, "{text}");
    assert_eq!(common_code(&error_document(&text)), "NOT_FOUND");
    client.text("linux_proc_stop", args);
    let (failed, text) = client.call_tool("run_cmd", json!({"proc": id}));
    assert!(failed, "{text}");
    assert_eq!(common_code(&error_document(&text)), "CANCELLED", "{text}");
}
