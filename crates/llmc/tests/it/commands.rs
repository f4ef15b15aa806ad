//! `run_cmd`: allowed programs, no shell, inside the kernel's boundary.

use llmc_testkit::{McpClient, Workspace, error_document};
use serde_json::{Value, json};

use crate::{classic, workspace};

fn hybrid(workspace: &Workspace) -> McpClient {
    let mut client = workspace.mcp(["--mode", "hybrid"]);
    client.initialize("2025-11-25");
    client
}

fn sh(client: &mut McpClient, script: &str) -> String {
    client.text("run_cmd", json!({"argv": ["sh", "-c", script]}))
}

fn code(client: &mut McpClient, args: Value) -> String {
    let (failed, text) = client.call_tool("run_cmd", args.clone());
    assert!(failed, "{args}: {text}");
    let document = error_document(&text);
    document["meta"]["error_code"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn output_comes_back_as_it_is_and_failure_is_data() {
    let workspace = workspace("//- a.txt\none\n");
    let mut client = hybrid(&workspace);
    assert_eq!(
        client.text("run_cmd", json!({"command": "cat a.txt"})),
        "one\n"
    );
    assert_eq!(
        client.text("run_cmd", json!({"command": "cat 'a.txt'"})),
        "one\n"
    );
    assert_eq!(
        sh(&mut client, "echo out; echo err >&2; exit 3"),
        "out\nerr\nexit 3"
    );
    assert_eq!(
        sh(&mut client, "cat; echo $?"),
        "0\n",
        "standard input is closed"
    );
    assert_eq!(sh(&mut client, "kill -9 $$"), "signal 9");
    // What a shell would interpret is plain text in argv.
    assert_eq!(
        client
            .text("run_cmd", json!({"argv": ["ls", "$(id);a"]}))
            .lines()
            .last(),
        Some("exit 2")
    );
}

#[test]
fn what_is_not_allowed_or_makes_no_sense_is_refused() {
    let workspace = workspace("//- a.txt\none\n");
    let mut client = hybrid(&workspace);
    for (args, expected) in [
        (json!({"command": "ls; rm -rf /"}), "COMMAND_DENIED"),
        (json!({"command": "ls && id"}), "COMMAND_DENIED"),
        (json!({"command": "cat $(id)"}), "COMMAND_DENIED"),
        (json!({"command": "wget example.org"}), "COMMAND_DENIED"),
        (json!({"argv": ["/tmp/own"]}), "COMMAND_DENIED"),
        (json!({"argv": ["./sh"]}), "COMMAND_DENIED"),
        (json!({}), "BAD_ARGS"),
        (json!({"argv": [], "command": "ls"}), "BAD_ARGS"),
        (json!({"argv": []}), "BAD_ARGS"),
        (json!({"argv": ["ls"], "timeout": 0}), "BAD_ARGS"),
        (json!({"argv": ["ls"], "timeout": -1}), "BAD_ARGS"),
        (json!({"argv": ["ls"], "cwd": "../outside"}), "INVALID_PATH"),
        (json!({"argv": ["ls"], "cwd": "nope"}), "NOT_FOUND"),
        (json!({"argv": ["ls"], "cwd": "a.txt"}), "NOT_A_DIRECTORY"),
    ] {
        assert_eq!(code(&mut client, args.clone()), expected, "{args}");
    }
    assert_eq!(
        client.text("run_cmd", json!({"command": "cat a.txt"})),
        "one\n"
    );
}

#[test]
fn a_command_changes_the_workspace_and_nothing_else() {
    let workspace = workspace("//- a.txt\none\n//- llmc.toml\n[mcp]\nmode = \"classic\"\n");
    let mut client = classic(&workspace);
    let health = client.json("health", json!({}));
    let level = health["confinement"].as_str().unwrap().to_owned();
    assert_eq!(sh(&mut client, "echo two > b.txt && cat b.txt"), "two\n");
    assert_eq!(workspace.read("b.txt"), "two\n");
    let outside = workspace.outside("planted").display().to_string();
    if level.contains("landlock") || level.contains("mntns") {
        let text = sh(
            &mut client,
            &format!("echo x > '{outside}' || echo refused"),
        );
        assert!(text.contains("refused"), "{level}: {text}");
    }
    if level.contains("protected=mount") {
        let text = sh(
            &mut client,
            "echo '[mcp]' > llmc.toml || echo refused; ls .llmc",
        );
        assert!(
            text.contains("refused") && !text.contains("locks"),
            "{level}: {text}"
        );
    }
    assert!(workspace.read("llmc.toml").contains("classic"));
    workspace.assert_outside_untouched();
    let secrets = sh(&mut client, "env");
    assert!(!secrets.contains("LLMC_"), "{secrets}");
}

#[test]
fn time_limits_end_the_whole_tree() {
    let workspace = workspace("//- a.txt\n");
    let mut client = hybrid(&workspace);
    let script = "trap '' TERM; echo started; (setsid sleep 300 &) ; sleep 300";
    let (failed, text) = client.call_tool(
        "run_cmd",
        json!({"argv": ["sh", "-c", script], "timeout": 1}),
    );
    assert!(failed, "{text}");
    let document = error_document(&text);
    assert_eq!(document["meta"]["error_code"], "TIMEOUT");
    assert_eq!(
        document["meta"]["stdout"], "started\n",
        "the output so far is told"
    );
    // With everything dead, the descriptor count is back and the next call runs.
    assert_eq!(sh(&mut client, "echo next"), "next\n");
}

#[test]
fn much_output_is_condensed_and_kept() {
    let workspace = workspace("//- a.txt\n");
    let mut client = classic(&workspace);
    let text = sh(
        &mut client,
        "for i in $(seq 1 20000); do echo line $i; done; echo 'Error: at the end' >&2; exit 1",
    );
    let parsed = llmc_envelope::te::parse(&text).unwrap_or_else(|| panic!("{text}"));
    assert!(parsed.header.truncated);
    assert!(
        llmc_tokens::count(&text) < 2300,
        "{}",
        llmc_tokens::count(&text)
    );
    assert!(
        parsed.body.contains("Error: at the end") && parsed.body.contains("exit 1"),
        "{}",
        parsed.body
    );
    let handle = parsed.header.handle.unwrap().to_string();
    let page = client.json(
        "linux_handle_read",
        json!({"handle": handle, "limit": 8_000_000}),
    );
    let raw = page["data"].as_str().unwrap();
    assert!(raw.starts_with("line 1\nline 2\n") && raw.contains("line 20000\n"));
    let flood = sh(&mut client, "yes");
    assert!(
        flood.contains("MiB of output"),
        "{}",
        &flood[flood.len().saturating_sub(300)..]
    );
}

#[test]
fn commands_can_be_switched_off() {
    let workspace = workspace(
        "//- llmc.toml\n[mcp]\nmode = \"classic\"\n[mcp.tools]\nenable_run_cmd = false\n",
    );
    let mut client = classic(&workspace);
    let list = client.request("tools/list", json!({}));
    assert!(!list.to_string().contains("run_cmd"), "{list}");
    let ended = workspace.llmc(["tool", "run_cmd", "--command", "ls"]);
    assert_eq!(ended.code, Some(4));
}
