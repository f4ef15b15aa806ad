//! Roots, protected names, the denylist and read-only servers, against every tool.

use std::os::unix::fs::symlink;

use llmc_testkit::{common_code, error_document};
use serde_json::{Value, json};

use crate::hostile::{FIXTURE, make_traps, path_arguments};
use crate::{classic, workspace};

#[test]
fn protected_names_are_the_operators() {
    let workspace = workspace(
        "//- llmc.toml\n[mcp]\nmode = \"classic\"\n//- .git/config\n[core]\n//- .git/hooks/pre-commit\n#!/bin/sh\n//- .git/info/exclude\n\n//- sub/.git/config\n[core]\n//- ok.txt\nok\n//- artifacts/x\n\n",
    );
    symlink(".git", workspace.path("gitlink")).unwrap();
    symlink("llmc.toml", workspace.path("conf")).unwrap();
    symlink(".git/hooks", workspace.path("hooks")).unwrap();
    let mut client = classic(&workspace);
    let before = workspace.tree();
    let protected = "\
        llmc.toml ./llmc.toml LLMC.TOML sub/llmc.toml deep/er/llmc.toml conf .llmc/x sub/.llmc/x .llmc .git \
        .git/config .GIT/config .git/hooks .git/hooks/pre-commit .git/hooks/new .git/config.worktree \
        .git/modules/m/config .git/worktrees/x/hooks/y sub/.git/config sub/.git/hooks/x gitlink/config \
        gitlink/hooks/x hooks/x hooks/pre-commit artifacts/token_audit.csv";
    for path in protected.split(' ') {
        let calls = [
            ("linux_fs_write", json!({"path": path, "content": "x"})),
            (
                "linux_fs_write",
                json!({"path": path, "content": "x", "mode": "append"}),
            ),
            (
                "linux_fs_edit",
                json!({"path": path, "old_text": "[", "new_text": "x"}),
            ),
            ("linux_fs_move", json!({"source": "ok.txt", "target": path})),
            ("linux_fs_move", json!({"source": path, "target": "stolen"})),
            ("linux_fs_delete", json!({"path": path, "recursive": true})),
            ("linux_fs_mkdirs", json!({"path": path})),
        ];
        for (tool, args) in calls {
            // A link to a protected file may go; what it points to may not change.
            let own = ["conf"].contains(&path)
                && (tool == "linux_fs_delete" || args.get("source") == Some(&json!(path)));
            let (failed, text) = client.call_tool(tool, args.clone());
            if own && !failed {
                let _ = std::fs::remove_file(workspace.path("stolen"));
                let _ = std::fs::remove_file(workspace.path("conf"));
                symlink("llmc.toml", workspace.path("conf")).unwrap();
                continue;
            }
            assert!(failed, "{tool} {args}: {text}");
            let document = error_document(&text);
            let code = document["meta"]["error_code"].as_str().unwrap();
            let there = path == "conf" && code == "ALREADY_EXISTS";
            assert!(code == "INVALID_PATH" || there, "{tool} {args}: {text}");
        }
    }
    // Carrying one in, inside a folder, or taking one away with its folder.
    workspace.write("bag/hooks/x", "evil");
    workspace.write("bag/config", "evil");
    for (source, target) in [
        ("bag", ".git"),
        ("bag", "other/.git"),
        ("bag", "artifacts/.git"),
        ("bag", "artifacts/.llmc"),
        ("bag/hooks", ".git/hooks2/hooks"),
        ("artifacts", "art2"),
        (".git", "git2"),
    ] {
        let code = client.code("linux_fs_move", json!({"source": source, "target": target}));
        assert!(
            code == "INVALID_PATH" || code == "NOT_FOUND",
            "{source} to {target}: {code}"
        );
    }
    for path in ["sub", "artifacts"] {
        client.assert_code(
            "linux_fs_delete",
            json!({"path": path, "recursive": true}),
            "INVALID_PATH",
        );
    }
    std::fs::remove_dir_all(workspace.path("bag")).unwrap();
    assert_eq!(workspace.tree(), before);
    assert_eq!(workspace.read("llmc.toml"), "[mcp]\nmode = \"classic\"\n");
    assert_eq!(workspace.read(".git/config"), "[core]\n");
    // Reading the configuration and git's is no secret, and the rest of .git can be written.
    client.assert_starts("read_file", json!({"path": "llmc.toml"}), "[mcp]");
    client.assert_starts("read_file", json!({"path": ".git/config"}), "[core]");
    client.json(
        "linux_fs_write",
        json!({"path": ".git/info/exclude", "content": "x\n"}),
    );
}

#[test]
fn the_denylist_keeps_names_from_every_tool_when_asked_to() {
    let workspace = workspace(
        "//- .env\nKEY=hush\n//- sub/My.PEM\nhush\n//- sub/id_rsa\nhush\n//- plain.txt\nhush\n//- a.txt\none\n",
    );
    symlink(".env", workspace.path("innocent")).unwrap();
    let mut client = classic(&workspace);
    client.assert_contains("read_file", json!({"path": ".env"}), "hush");
    let mut client = workspace.mcp([
        "--mode",
        "classic",
        "--set",
        "mcp.tools.denylist_reads=true",
    ]);
    client.initialize("2025-11-25");
    let args = path_arguments(&mut client);
    for path in [
        ".env",
        "sub/My.PEM",
        "sub/id_rsa",
        "innocent",
        "sub/../.env",
        "new.pem",
        "sub/.ENV",
    ] {
        for (tool, key, args) in &args {
            let mut args = args.clone();
            args[key] = json!(path);
            let (failed, text) = client.call_tool(tool, args);
            assert!(!text.contains("hush"), "{tool} {key}={path}: {text}");
            // A link's own name and status are not the denylisted file's.
            let own = path == "innocent"
                && ["stat", "linux_fs_delete", "linux_fs_move"].contains(&tool.as_str());
            if own && !failed {
                let _ = std::fs::remove_file(workspace.path("innocent"));
                let _ = std::fs::remove_file(workspace.path("target.txt"));
                symlink(".env", workspace.path("innocent")).unwrap();
                workspace.write("a.txt", "");
                continue;
            }
            assert!(failed, "{tool} {key}={path}: {text}");
            let document = error_document(&text);
            let code = common_code(&document);
            let there = path == "innocent" && code == "ALREADY_EXISTS";
            assert!(
                code == "INVALID_PATH" || there,
                "{tool} {key}={path}: {text}"
            );
        }
    }
    let found = client.json(
        "linux_search_content",
        json!({"root": ".", "pattern": "hush"}),
    );
    assert_eq!(
        found["hits"].as_array().unwrap().len(),
        1,
        "only the plain one: {found}"
    );
    assert_eq!(workspace.read(".env"), "KEY=hush\n");
}

#[test]
fn a_read_only_server_changes_nothing() {
    let workspace = workspace(FIXTURE);
    let mut client = workspace.mcp(["--mode", "classic", "--set", "mcp.tools.read_only=true"]);
    client.initialize("2025-11-25");
    let before = workspace.tree();
    let list = client.request("tools/list", json!({}));
    let mut writers = 0;
    for tool in list["result"]["tools"].as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        // A script may run; what it calls is refused like any other call.
        if tool["annotations"]["readOnlyHint"] == true || name == "execute_code" {
            continue;
        }
        writers += 1;
        let args = json!({"path": "a.txt", "content": "x", "old_text": "one", "new_text": "x", "source": "a.txt", "target": "t"});
        let wanted: Vec<&str> = tool["inputSchema"]["required"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|key| key.as_str().unwrap())
            .collect();
        let args: Value = wanted
            .iter()
            .map(|key| ((*key).to_owned(), args[*key].clone()))
            .collect::<serde_json::Map<_, _>>()
            .into();
        let (failed, text) = client.call_tool(name, args);
        // In the words of either family; recursive analysis has none of its own for it.
        let code = error_document(&text)["meta"]["error_code"].to_string();
        let refused = code.to_lowercase().contains("command_denied")
            || (name == "rlm_query" && code.contains("FORBIDDEN"));
        assert!(failed && refused, "{name}: {text}");
    }
    assert_eq!(writers, 18);
    let code = "tools.linux_fs_write(path='made', content='x')";
    client.assert_code("execute_code", json!({"code": code}), "COMMAND_DENIED");
    assert_eq!(workspace.tree(), before);
    client.text("read_file", json!({"path": "a.txt"}));
}

#[test]
fn no_roots_means_no_files() {
    let workspace = workspace(
        "//- a.txt\none\n//- llmc.toml\n[mcp]\nmode = \"classic\"\n[mcp.tools]\nallowed_roots = []\n",
    );
    let mut client = classic(&workspace);
    let path = workspace.path("a.txt").display().to_string();
    for (tool, key, args) in path_arguments(&mut client) {
        for path in ["a.txt", ".", "/", &path] {
            let mut args = args.clone();
            args[&key] = json!(path);
            let error = client.error(&tool, args);
            assert_eq!(common_code(&error), "INVALID_PATH", "{tool} {path}");
        }
    }
    assert_eq!(workspace.read("a.txt"), "one\n");
}

#[test]
fn the_whole_disk_as_root_still_keeps_the_kernel_and_devices_out() {
    let workspace = workspace(
        "//- a.txt\none\n//- llmc.toml\n[mcp]\nmode = \"classic\"\n[mcp.tools]\nallowed_roots = [\"/\"]\n",
    );
    make_traps(&workspace);
    let mut client = classic(&workspace);
    let outside = workspace.outside("canary").display().to_string();
    client.assert_contains("read_file", json!({"path": outside}), "canary");
    for path in [
        "/proc/self/environ",
        "/proc/1/status",
        "/sys/kernel",
        "/dev/zero",
        "/dev/stdin",
        "/proc",
        "fifo",
        "socket",
        "zero",
        "magic-fd",
    ] {
        for tool in ["read_file", "linux_fs_read", "linux_fs_list", "list_dir"] {
            let code = client.code(tool, json!({"path": path}));
            let kind = code == "NOT_A_DIRECTORY" && tool.contains("list")
                || code == "IS_DIRECTORY" && tool.contains("read");
            assert!(code == "INVALID_PATH" || kind, "{tool} {path}: {code}");
        }
        let code = client.code("linux_fs_write", json!({"path": path, "content": "x"}));
        assert!(
            ["INVALID_PATH", "IS_DIRECTORY"].contains(&code.as_str()),
            "{path}: {code}"
        );
    }
    for path in ["/", "/tmp/..", ".", &workspace.base().display().to_string()] {
        client.assert_code(
            "linux_fs_delete",
            json!({"path": path, "recursive": true}),
            "INVALID_PATH",
        );
        client.assert_code(
            "linux_fs_move",
            json!({"source": path, "target": "elsewhere"}),
            "INVALID_PATH",
        );
    }
    assert_eq!(workspace.read("a.txt"), "one\n");
}
