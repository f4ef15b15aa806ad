//! `llmc install`: every client's settings, as people find them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use llmc_testkit::{ProcessOutput, TestScreen, TestWorkspace};
use serde_json::json;

use crate::workspace;

/// Where each client's entry goes by default, below the home folder or the project, and what its file is.
const USUAL: [(&str, &str, &str); 10] = [
    (
        "claude-desktop",
        "home/.config/Claude/claude_desktop_config.json",
        "mcpServers",
    ),
    ("claude-code", "home/.claude.json", "mcpServers"),
    ("codex", "home/.codex/config.toml", "mcp_servers"),
    ("cursor", "w/.cursor/mcp.json", "mcpServers"),
    ("vscode", "w/.vscode/mcp.json", "servers"),
    ("continue", "w/.continue/mcpServers/llmc.yaml", "mcpServers"),
    (
        "cline",
        "home/.config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        "mcpServers",
    ),
    ("zed", "w/.zed/settings.json", "context_servers"),
    ("gemini", "home/.gemini/settings.json", "mcpServers"),
    (
        "windsurf",
        "home/.codeium/windsurf/mcp_config.json",
        "mcpServers",
    ),
];

fn run(workspace: &TestWorkspace, args: &[&str]) -> ProcessOutput {
    workspace.llmc([&["install"], args].concat())
}

fn uninstall(workspace: &TestWorkspace, client: &str) -> ProcessOutput {
    workspace.llmc(["uninstall", client, "--yes"])
}

pub(crate) fn ok(ended: &ProcessOutput) -> &str {
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (Some(0), ""),
        "{ended:?}"
    );
    &ended.stdout
}

/// Every file below a folder, but for the server's own state.
fn files(folder: PathBuf) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.clone()];
    while let Some(next) = folders.pop() {
        for entry in next.read_dir().unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() && !path.is_symlink() {
                true => folders.push(path),
                false => found.push(path.strip_prefix(&folder).unwrap().display().to_string()),
            }
        }
    }
    found.sort();
    found
}

/// The program and arguments that a client would start, read from its file by another reader than the one that wrote it.
fn starts(text: &str, servers: &str) -> Vec<String> {
    let strings = |text: &str| -> Vec<String> { serde_json::from_str(text).unwrap() };
    if let Ok(json) = serde_json::from_str::<serde_json::Value>(text) {
        let entry = &json[servers]["llmc"];
        let mut words = vec![entry["command"].as_str().unwrap().to_owned()];
        words.extend(strings(&entry["args"].to_string()));
        return words;
    }
    // TOML and YAML, whose two lines are also JSON.
    let value = |key: &str| {
        let line = text
            .lines()
            .map(str::trim)
            .find(|line| line.starts_with(key));
        line.unwrap()[key.len()..]
            .trim_start_matches([' ', '=', ':'])
            .to_owned()
    };
    let mut words = vec![serde_json::from_str(&value("command")).unwrap()];
    words.extend(strings(&value("args")));
    words
}

#[test]
fn what_is_written_starts_a_server_that_answers() {
    for (client, place, servers) in USUAL {
        let workspace = workspace("//- .git/HEAD\nref\n//- a.txt\none\n");
        let file = workspace.base().join(place);
        // Shown and not written, printed and not written, asked for without a terminal.
        assert!(ok(&run(&workspace, &[client, "--dry-run"])).contains("+++"));
        assert!(ok(&run(&workspace, &[client, "--print"])).contains("llmc"));
        let asked = run(&workspace, &[client]);
        assert_eq!(asked.code, Some(2));
        assert!(asked.stderr.contains("--yes"), "{}", asked.stderr);
        assert!(!file.exists(), "{client}");

        let said = run(&workspace, &[client, "--yes"]);
        assert!(
            ok(&said).contains(&format!("+++ {}", file.display())),
            "{said:?}"
        );
        let text = fs::read_to_string(&file).unwrap();
        let words = starts(&text, servers);
        let printed = run(&workspace, &[client, "--print"]);
        assert_eq!(ok(&printed), text, "printed is what a new file holds");
        // As the client starts it: in the project, or anywhere with the project named.
        let variable = "${workspaceFolder}";
        let root = workspace.root().display().to_string();
        let words: Vec<String> = words
            .iter()
            .map(|word| word.replace(variable, &root))
            .collect();
        let mut command = workspace.command_of(&words[0]);
        command.args(&words[1..]);
        if words.contains(&"--root".to_owned()) {
            command.current_dir("/");
        }
        let mut server = llmc_testkit::McpClient::new(llmc_testkit::TestProcess::start(command));
        server.initialize("2025-11-25");
        let answer = server.text("read_file", serde_json::json!({"path": "a.txt"}));
        assert!(answer.starts_with("one\n"), "{client}: {answer}");

        // Again: nothing to do, nothing kept aside.
        let again = run(&workspace, &[client, "--yes"]);
        assert!(ok(&again).contains("already installed"), "{again:?}");
        let around = file.parent().unwrap().read_dir().unwrap();
        assert_eq!(around.count(), 1, "{client}");
        // Other flags: renewed, with what was there kept.
        let other = run(&workspace, &[client, "--mode", "te", "--yes"]);
        assert!(ok(&other).contains("backup: "), "{other:?}");
        assert!(fs::read_to_string(&file).unwrap().contains("te"));
        // Shown, asked for, removed with a backup.
        let shown = workspace.llmc(["uninstall", client, "--dry-run"]);
        assert!(ok(&shown).contains("---"), "{shown:?}");
        assert_eq!(workspace.llmc(["uninstall", client]).code, Some(2));
        assert!(fs::read_to_string(&file).unwrap().contains("llmc"));
        assert!(ok(&uninstall(&workspace, client)).contains("backup: "));
        let left = fs::read_to_string(&file).unwrap_or_default();
        assert!(!left.contains("llmc"), "{client}: {left}");
        let gone = uninstall(&workspace, client);
        assert!(ok(&gone).contains("not installed"), "{gone:?}");
    }
}

/// Requests like those that Claude Desktop sends when it starts a server.
const CLAUDE_DESKTOP: [&str; 5] = [
    r#"{"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}},"clientInfo":{"name":"claude-ai","version":"0.1.0"}},"jsonrpc":"2.0","id":0}"#,
    r#"{"method":"notifications/initialized","jsonrpc":"2.0"}"#,
    r#"{"method":"tools/list","params":{},"jsonrpc":"2.0","id":1}"#,
    r#"{"method":"prompts/list","params":{},"jsonrpc":"2.0","id":2}"#,
    r#"{"method":"resources/list","params":{},"jsonrpc":"2.0","id":3}"#,
];

#[test]
fn claude_desktop_lists_and_calls_every_tool_out_of_the_box() {
    for (flags, mode) in [(&[][..], "hybrid"), (&["--mode", "te"][..], "te")] {
        let workspace = workspace("//- .git/HEAD\nref\n//- a.txt\none\ntwo\n");
        ok(&run(
            &workspace,
            &[&["claude-desktop", "--yes"], flags].concat(),
        ));
        let file = workspace.base().join(USUAL[0].1);
        let words = starts(&fs::read_to_string(file).unwrap(), USUAL[0].2);
        // Started from anywhere, with little more than a home folder; every line of output is a message.
        let mut command = workspace.command_of(&words[0]);
        command.args(&words[1..]).current_dir("/");
        let mut client = llmc_testkit::McpClient::new(llmc_testkit::TestProcess::start(command));
        for line in CLAUDE_DESKTOP {
            client.send(line.as_bytes());
        }
        let hello = client.answer(&json!(0));
        assert_eq!(hello["result"]["protocolVersion"], "2025-06-18", "{hello}");
        assert!(hello["result"]["instructions"].is_string(), "{hello}");
        let prompts = client.answer(&json!(2));
        let none = prompts["error"]["code"] == -32601 || prompts["result"]["prompts"] == json!([]);
        assert!(none, "{prompts}");
        assert!(client.answer(&json!(3))["result"]["resources"].is_array());
        // What it and the model behind it take for a tool.
        let list = client.answer(&json!(1))["result"]["tools"].clone();
        let names: Vec<&str> = list
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        let core = match mode {
            "te" => vec![
                "te_grep",
                "te_cat",
                "te_find",
                "te_ls",
                "te_head",
                "te_tail",
                "te_handle",
            ],
            _ => vec![
                "read_file",
                "list_dir",
                "linux_fs_write",
                "linux_fs_edit",
                "run_cmd",
                "execute_code",
            ],
        };
        assert!(core.iter().all(|name| names.contains(name)), "{names:?}");
        for tool in list.as_array().unwrap() {
            let name = tool["name"].as_str().unwrap();
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
            assert!(name.len() <= 64 && name.chars().all(is_plain), "{name}");
            assert!(!tool["description"].as_str().unwrap().is_empty(), "{tool}");
            let schema = &tool["inputSchema"];
            assert_eq!(schema["type"], "object", "{tool}");
            for union in ["oneOf", "anyOf", "allOf"] {
                assert!(
                    schema.get(union).is_none(),
                    "refused by the model's interface: {tool}"
                );
            }
        }
        // A call to each, as the client writes them; then its end, which is the end of input.
        let handle = json!("res_00000000000000000000000000");
        for (id, name) in (10..).zip(&names) {
            let arguments = match *name {
                "te_grep" | "te_find" => json!({"pattern": "one"}),
                "te_ls" | "init" => json!({}),
                "te_handle" => json!({"handle": handle}),
                "te_rag" | "rag_search" => json!({"query": "one"}),
                "te_explain" => json!({"symbol": "one"}),
                "te_diff" => json!({"a": "a.txt", "b": "a.txt"}),
                "te_git" => json!({"args": ["status"]}),
                "list_dir" => json!({"path": "."}),
                "linux_fs_write" => json!({"path": "b.txt", "content": "three\n"}),
                "linux_fs_edit" => {
                    json!({"path": "b.txt", "old_text": "three", "new_text": "four"})
                }
                "run_cmd" => json!({"command": "cat b.txt"}),
                "execute_code" => json!({"code": "print(1 + 1)"}),
                _ => json!({"path": "a.txt"}),
            };
            let call = json!({"method": "tools/call", "params": {"name": name, "arguments": arguments}, "jsonrpc": "2.0", "id": id});
            client.send(call.to_string().as_bytes());
            let answer = client.answer(&json!(id));
            let content = &answer["result"]["content"][0];
            assert_eq!(content["type"], "text", "{name}: {answer}");
            // There is neither such a handle nor such a symbol, nor a whole repository.
            let may_fail = ["te_handle", "te_explain", "te_git"].contains(name);
            assert!(
                may_fail || answer["result"]["isError"] != true,
                "{name}: {answer}"
            );
            let expected = match *name {
                "te_cat" | "te_head" | "te_tail" | "read_file" => "two",
                "te_grep" => "a.txt:1: one",
                "te_ls" | "list_dir" => "a.txt",
                "run_cmd" => "four",
                "execute_code" => "2",
                _ => "",
            };
            let text = content["text"].as_str().unwrap();
            assert!(text.contains(expected), "{name}: {text}");
        }
        assert_eq!(client.finish().code, Some(0), "{mode}");
    }
}

#[test]
fn bad_files_are_never_damaged() {
    for (client, place, servers) in USUAL {
        let (broken, foreign) = match client {
            "codex" => (
                "model = \n".to_owned(),
                "[mcp_servers.llmc] # theirs\ncommand = \"npx\"\n".to_owned(),
            ),
            // A file that is not ours stays as it is, whatever its first line holds.
            "continue" => ("- {\n".to_owned(), "name: llmc # theirs\n".to_owned()),
            _ => (
                format!("{{\n  \"{servers}\": {{\n"),
                format!(
                    "{{\n  // theirs\n  \"{servers}\": {{\"llmc\": {{\"command\": \"npx\"}}}},\n}}\n"
                ),
            ),
        };
        let workspace = workspace("//- .git/HEAD\nref\n");
        let file = workspace.base().join(place);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let refused = |code: i32, hint: &str| {
            let before = fs::read(&file).unwrap();
            for ended in [
                run(&workspace, &[client, "--yes"]),
                uninstall(&workspace, client),
            ] {
                assert_eq!(ended.code, Some(code), "{client}: {ended:?}");
                assert!(ended.stderr.contains(hint), "{client}: {}", ended.stderr);
                assert!(ended.stderr.contains(file.to_str().unwrap()));
            }
            assert_eq!(fs::read(&file).unwrap(), before, "{client}");
            let around = file.parent().unwrap().read_dir().unwrap();
            assert_eq!(around.count(), 1, "{client}: nothing beside it");
        };
        fs::write(&file, &broken).unwrap();
        match client {
            "continue" => refused(6, "--force"),
            _ => refused(2, "correct the file"),
        }
        fs::write(&file, &foreign).unwrap();
        refused(6, "--name");
        // By another name, beside theirs.
        let beside = run(&workspace, &[client, "--name", "llmc-2", "--yes"]);
        ok(&beside);
        assert!(fs::read_to_string(&file).unwrap().contains("theirs"));
        // Replaced on request, with their settings kept.
        let forced = run(&workspace, &[client, "--force", "--yes"]);
        let backup = ok(&forced)
            .lines()
            .find_map(|line| line.strip_prefix("backup: "));
        assert!(
            fs::read_to_string(backup.unwrap())
                .unwrap()
                .contains("theirs")
        );
        assert!(
            run(&workspace, &[client, "--yes"])
                .stdout
                .contains("already")
        );

        // Read-only: shown, refused, untouched.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
        let before = fs::read_to_string(&file).unwrap();
        let ended = run(&workspace, &[client, "--mode", "te", "--yes"]);
        assert_eq!(ended.code, Some(4), "{ended:?}");
        assert!(ended.stderr.contains("read-only"), "{ended:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), before);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();

        // A link, as those have who keep their settings elsewhere.
        let kept = workspace.base().join("home/dotfiles");
        fs::rename(&file, &kept).unwrap();
        symlink(&kept, &file).unwrap();
        ok(&run(&workspace, &[client, "--mode", "te", "--yes"]));
        assert!(file.is_symlink(), "{client}");
        assert!(fs::read_to_string(&kept).unwrap().contains("te"));
        fs::remove_file(&kept).unwrap();
        let ended = run(&workspace, &[client, "--yes"]);
        assert_eq!(ended.code, Some(3), "{ended:?}");
        assert!(file.is_symlink() && !kept.exists());
    }
}

#[test]
fn scopes_roots_and_flags() {
    let workspace = workspace("//- .git/HEAD\nref\n//- my.toml\n[mcp]\n");
    let root = workspace.root().display().to_string();
    let printed = |args: &[&str]| ok(&run(&workspace, &[args, &["--print"]].concat())).to_owned();
    let cases: [(&[&str], &str); 7] = [
        (&["claude-code"], r#"["mcp"]"#),
        (&["claude-code", "--scope", "project"], r#"["mcp"]"#),
        (&["vscode"], r#"["mcp", "--root", "${workspaceFolder}"]"#),
        (&["vscode", "--scope", "user"], r#"["mcp", "--root", "W"]"#),
        (&["claude-desktop"], r#"["mcp", "--root", "W"]"#),
        (&["gemini", "--root", "."], r#"["mcp", "--root", "W"]"#),
        (
            &[
                "gemini",
                "--config",
                "my.toml",
                "--mode",
                "te",
                "--log-level",
                "warn",
                "--set",
                "mcp.tools.exec_timeout=5",
            ],
            r#"["mcp", "--config", "W/my.toml", "--mode", "te", "--log-level", "warn", "--set", "mcp.tools.exec_timeout=5"]"#,
        ),
    ];
    for (args, expected) in cases {
        let text = printed(args);
        assert!(
            text.contains(&expected.replace('W', &root)),
            "{args:?}: {text}"
        );
    }
    assert!(
        printed(&["codex", "--command", "llmc", "--name", "x-1"])
            .starts_with("[mcp_servers.x-1]\ncommand = \"llmc\"\n")
    );
    for (args, says) in [
        (
            &["windsurf", "--scope", "project", "--yes"][..],
            "no settings in a project",
        ),
        (&["emacs"], "windsurf"),
        (
            &["cursor", "--name", "a b", "--print"],
            "not a valid server name",
        ),
        (&["cursor", "--mode", "fast", "--print"], "hybrid"),
        (&["--print"], "which client"),
        (&["cursor", "--print", "--dry-run"], "cannot be used with"),
        (&["cursor", "--all"], "cannot be used with"),
        (&["cursor", "--uninstall"], "unexpected argument"),
    ] {
        let ended = run(&workspace, args);
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (Some(2), ""),
            "{args:?}"
        );
        assert!(ended.stderr.contains(says), "{args:?}: {}", ended.stderr);
    }
    assert_eq!(workspace.tree(), [".git", ".git/HEAD", "my.toml"]);
    assert_eq!(files(workspace.base().join("home")), [""; 0]);
}

#[test]
fn without_a_client_it_reports_the_state() {
    let workspace = workspace(
        "//- .git/HEAD\nref\n//- .cursor/mcp.json\n{broken\n//- .zed/settings.json\n{\"context_servers\": {\"llmc\": {\"command\": \"x\"}}}\n",
    );
    ok(&run(&workspace, &["gemini", "--yes"]));
    ok(&run(&workspace, &["claude-code", "--mode", "te", "--yes"]));
    let flags = ["--log-level", "debug", "--set", "mcp.te.budget_tokens=500"];
    for client in ["codex", "continue"] {
        ok(&run(&workspace, &[&[client, "--yes"], &flags[..]].concat()));
    }
    // Another executable, and a mode that there is not.
    let other = ["--command", "/elsewhere/llmc", "--yes"];
    ok(&run(&workspace, &[&["windsurf"], &other[..]].concat()));
    ok(&run(
        &workspace,
        &["claude-desktop", "--mode", "te", "--yes"],
    ));
    let desktop = workspace
        .base()
        .join("home/.config/Claude/claude_desktop_config.json");
    let text = std::fs::read_to_string(&desktop).unwrap();
    std::fs::write(&desktop, text.replace("\"te\"", "\"fast\"")).unwrap();
    let said = run(&workspace, &[]);
    let said = ok(&said);
    for (client, state) in [
        ("gemini", "installed"),
        // With a mode of its own it is as the user wanted it.
        ("claude-code", "installed"),
        ("codex", "installed"),
        ("cursor", "unusable"),
        ("zed", "name taken"),
        ("continue", "installed"),
        ("windsurf", "out of date"),
        ("claude-desktop", "out of date"),
        ("vscode", "not installed"),
    ] {
        let row = said.lines().find(|line| line.starts_with(client)).unwrap();
        assert!(row[client.len()..].trim_start().starts_with(state), "{row}");
    }
}

#[test]
fn continues_other_file_is_looked_at() {
    let workspace = workspace(
        "//- .git/HEAD\nref\n//- .continue/config.yaml\nmcpServers:\n  - name: \"llmc\"\n    command: npx\n",
    );
    let ended = run(&workspace, &["continue", "--yes"]);
    assert_eq!(ended.code, Some(6), "{ended:?}");
    assert!(ended.stderr.contains("config.yaml"), "{ended:?}");
    ok(&run(&workspace, &["continue", "--name", "llmc-2", "--yes"]));
}

#[test]
fn a_person_is_asked() {
    for (key, written) in [("n", false), ("y", true)] {
        let workspace = workspace("//- .git/HEAD\nref\n");
        let mut command = workspace.command();
        command.args(["install", "gemini"]);
        let mut screen = TestScreen::start(command);
        screen.shows("+++");
        screen.press(&format!("{key}\r"));
        let (_, code, raw) = screen.ended();
        assert_eq!(code, Some(0));
        assert!(raw.contains("\x1b[32m+"), "in colour: {raw}");
        assert_eq!(
            workspace.base().join("home/.gemini/settings.json").exists(),
            written
        );
    }
}

#[test]
fn files_in_other_places() {
    let workspace = workspace("//- .git/HEAD\nref\n//- mine.json\n{\"a\": 1}\n");
    ok(&run(
        &workspace,
        &["windsurf", "--file", "mine.json", "--yes"],
    ));
    assert!(workspace.read("mine.json").contains("\"a\": 1"));
    assert!(workspace.read("mine.json").contains("mcpServers"));
    // Where the variables that clients themselves read move them.
    let moved = workspace.base().join("moved");
    let workspace = workspace
        .with_env("XDG_CONFIG_HOME", moved.to_str().unwrap())
        .with_env("CODEX_HOME", moved.to_str().unwrap());
    ok(&run(&workspace, &["claude-desktop", "--yes"]));
    ok(&run(&workspace, &["codex", "--yes"]));
    assert!(moved.join("Claude/claude_desktop_config.json").is_file());
    assert!(moved.join("config.toml").is_file());
    let homeless = workspace.with_env("HOME", "");
    assert_eq!(run(&homeless, &["gemini", "--yes"]).code, Some(2));
}
