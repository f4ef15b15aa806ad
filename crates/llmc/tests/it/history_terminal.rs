//! `llmc history` and `llmc undo` at a terminal: the pager, and the question about shared files.

use llmc_testkit::{TestScreen, TestWorkspace};
use serde_json::json;

use crate::history::{FIXTURE, calls, id};
use crate::procs::eventually;
use crate::{classic, workspace};

fn at_terminal(workspace: &TestWorkspace, args: &[&str], pager: &str) -> TestScreen {
    let mut command = workspace.command();
    command.args(args).env("PAGER", pager);
    TestScreen::start(command)
}

#[test]
fn a_list_opens_in_the_pager_and_without_one_is_printed() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    client.text("run_cmd", json!({"command": "echo two >> a.txt"}));
    for args in [&["history"][..], &["history", "show", "h1"]] {
        let mut screen = at_terminal(&workspace, args, "sed s/^/paged:/");
        screen.wait_for_output("paged:");
        let (text, code, raw) = screen.ended();
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("paged:h1"), "{text}");
        assert!(raw.contains("\u{1b}["), "colours: {raw:?}");
        // One that does not start, and one that fails before it has shown anything.
        for pager in ["no-such-program", "false"] {
            let (text, code, _) = at_terminal(&workspace, args, pager).ended();
            assert_eq!(code, Some(0), "{text}");
            assert!(text.contains("h1") && text.contains("1 changed"), "{text}");
        }
    }
    // A program reads no pager and no colours.
    let said = workspace.llmc(["history"]);
    assert!(!said.stdout.contains('\u{1b}'), "{:?}", said.stdout);
}

#[test]
fn shared_files_are_asked_about_one_by_one() {
    let workspace = workspace(FIXTURE);
    let (mut one, mut two) = (classic(&workspace), classic(&workspace));
    let until = |path: &str| format!("until [ -e {path} ]; do sleep 0.05; done");
    let long = format!("echo 1 > shared1.txt; {}", until("go"));
    let waiting = one.send_call("run_cmd", json!({"command": long}));
    let short = format!("{}; echo 2 > shared2.txt", until("shared1.txt"));
    eventually("the first command runs", || {
        workspace.path("shared1.txt").exists()
    });
    two.text("run_cmd", json!({"command": short}));
    let newest = calls(&workspace).remove(0);
    assert_eq!(newest["shared"], true, "{newest}");
    workspace.write("go", "");
    let (failed, text) = one.tool_answer(waiting);
    assert!(!failed, "{text}");
    let entry = id(&newest);

    // Without a terminal both stay.
    let said = workspace.llmc(["undo", &entry]);
    assert_eq!(said.code, Some(0), "{said:?}");
    for path in ["shared1.txt", "shared2.txt"] {
        assert!(said.stdout.contains(&format!("shared {path}")), "{said:?}");
        assert!(workspace.path(path).exists(), "{path}");
    }
    let mut screen = at_terminal(&workspace, &["undo", &entry], "");
    screen.wait_for_output("shared1.txt may hold another writer's change");
    screen.press("n\n");
    screen.wait_for_output("shared2.txt may hold another writer's change");
    screen.press("y\n");
    let (text, code, _) = screen.ended();
    assert_eq!(code, Some(0), "{text}");
    assert!(workspace.path("shared1.txt").exists(), "{text}");
    assert!(!workspace.path("shared2.txt").exists(), "{text}");
}
