//! Hostile paths, files, patterns and lines. Each gets its documented code, nothing outside is touched or revealed,
//! and the next call is answered.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use llmc_testkit::{McpClient, TestWorkspace, common_code, error_document};
use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::{Value, json};

use crate::{classic, workspace};

const FIXTURE: &str = "\
//- a.txt
one
//- d/inner.txt
inner
";

/// Every path argument of every tool, with arguments that are fine but for it.
fn path_arguments(client: &mut McpClient) -> Vec<(String, String, Value)> {
    let list = client.request("tools/list", json!({}));
    let mut found = Vec::new();
    for tool in list["result"]["tools"].as_array().unwrap() {
        let schema = &tool["inputSchema"];
        for key in schema["properties"].as_object().unwrap().keys() {
            if !["path", "root", "source", "target"].contains(&key.as_str()) {
                continue;
            }
            let mut args = json!({});
            for name in schema["required"].as_array().into_iter().flatten() {
                let name = name.as_str().unwrap();
                args[name] = match name {
                    "source" => json!("a.txt"),
                    "target" => json!("target.txt"),
                    "old_text" => json!("canary"),
                    "pattern" => json!("canary"),
                    _ => json!("x"),
                };
            }
            let name = tool["name"].as_str().unwrap();
            if name == "linux_fs_delete" {
                args["recursive"] = json!(true);
            }
            found.push((name.to_owned(), key.clone(), args));
        }
    }
    assert!(
        found.len() >= 13,
        "the catalogue's path arguments: {found:?}"
    );
    found
}

fn make_traps(workspace: &TestWorkspace) -> std::os::unix::net::UnixListener {
    let outside = workspace.outside("");
    symlink(&outside, workspace.path("abs")).unwrap();
    symlink("../outside", workspace.path("rel")).unwrap();
    symlink("rel", workspace.path("chain")).unwrap();
    symlink("../outside/canary", workspace.path("file-link")).unwrap();
    symlink("loop", workspace.path("loop")).unwrap();
    symlink("ring2", workspace.path("ring1")).unwrap();
    symlink("ring1", workspace.path("ring2")).unwrap();
    symlink("/proc/self/root", workspace.path("magic")).unwrap();
    symlink("/proc/self/fd/0", workspace.path("magic-fd")).unwrap();
    symlink("/nowhere/at/all", workspace.path("dangling-out")).unwrap();
    symlink("../outside/new", workspace.path("dangling-new")).unwrap();
    symlink("/dev/zero", workspace.path("zero")).unwrap();
    symlink(".llmc", workspace.path("state-link")).unwrap();
    mkfifoat(CWD, workspace.path("fifo"), Mode::RWXU).unwrap();
    std::fs::create_dir(workspace.base().join("wx")).unwrap();
    std::fs::write(workspace.base().join("wx/secret"), "canary-do-not-leak").unwrap();
    std::os::unix::net::UnixListener::bind(workspace.path("socket")).unwrap()
}

#[test]
fn no_path_argument_of_any_tool_leads_outside() {
    let workspace = workspace(FIXTURE);
    let socket = make_traps(&workspace);
    let mut client = classic(&workspace);
    let base = workspace.base().display().to_string();
    let long = format!("{}x", "a/".repeat(2048));
    assert_eq!(long.len(), 4097);
    let name = "n".repeat(256);
    let (sibling, canary) = (
        format!("{base}/wx/secret"),
        format!("{base}/outside/canary"),
    );
    let dotted = format!("{base}/w/../outside/canary");
    let hostile: Vec<&str> = vec![
        "",
        "..",
        "../",
        "../outside/canary",
        "../wx/secret",
        "d/../../outside/canary",
        "d/../../w/../outside",
        "nope/../../outside/canary",
        "/",
        "//",
        "//etc/passwd",
        "/etc/passwd",
        "/etc",
        "/dev/zero",
        "/dev/stdin",
        "/proc/self/environ",
        "/proc/self/root/etc/passwd",
        "/proc/self/fd/0",
        "/proc/self/cwd/a.txt",
        &base,
        &sibling,
        &canary,
        &dotted,
        "a\0b",
        "a.txt\0",
        &long,
        &name,
        "abs",
        "abs/",
        "abs/canary",
        "abs/new",
        "rel",
        "rel/canary",
        "chain/canary",
        "file-link",
        "loop",
        "loop/x",
        "ring1",
        "magic",
        "magic/etc/passwd",
        "magic-fd",
        "dangling-out",
        "dangling-new",
        "dangling-new/x",
        "zero",
        "rel/../outside/canary",
        ".llmc",
        ".llmc/",
        ".llmc/locks",
        ".llmc/te_telemetry.db",
        "./.llmc/../.llmc/x",
        "d/.llmc/x",
        "state-link",
        "state-link/te_handles",
        "fifo",
        "socket",
    ];
    let before = workspace.tree();
    for (tool, key, args) in path_arguments(&mut client) {
        for path in &hostile {
            let mut args = args.clone();
            args[&key] = json!(path);
            let (failed, text) = client.call_tool(&tool, args);
            let at = format!("{tool} {key}={path:.60?}: {text}");
            workspace.assert_no_leak(&text);
            assert!(!text.contains("root:x:0"), "{at}");
            // A status gives no access: what kind of file a FIFO or a link inside the root is may be revealed.
            let is_status = tool == "stat"
                && ["fifo", "socket", "zero", "magic", "magic-fd", "state-link"].contains(path);
            if is_status && !failed {
                let kind: Value = serde_json::from_str(&text).unwrap();
                assert!(
                    ["other", "symlink"].contains(&kind["type"].as_str().unwrap()),
                    "{at}"
                );
                continue;
            }
            // A link that does not lead outside may itself be moved or deleted; what it leads to may not.
            if *path == "state-link" && !failed {
                for name in ["state-link", "target.txt"] {
                    let _ = std::fs::remove_file(workspace.path(name));
                }
                symlink(".llmc", workspace.path("state-link")).unwrap();
                assert!(workspace.path(".llmc/locks").is_dir(), "{at}");
                continue;
            }
            // An empty optional path is one that was not given.
            if path.is_empty()
                && (!failed || text.contains("BAD_ARGS") || text.contains("invalid_args"))
            {
                continue;
            }
            // A FIFO, a socket or a link is there and is no directory; the codes for that are as good a refusal.
            assert!(failed, "{at}");
            let document = error_document(&text);
            let code = common_code(&document);
            let special = ["fifo", "socket", "state-link"].contains(path)
                && ["NOT_A_DIRECTORY", "ALREADY_EXISTS", "INVALID_PATH"].contains(&code);
            // What leads through something missing is missing, whatever comes after it.
            let missing = path.starts_with("nope/") && code == "NOT_FOUND";
            assert!(code == "INVALID_PATH" || special || missing, "{at}");
            // What was asked may be repeated; where it really leads may not.
            if !path.contains(&base) {
                assert!(!text.contains(&base), "{at}");
            }
        }
        client.text("stat", json!({"path": "a.txt"}));
    }
    workspace.assert_outside_untouched();
    let after = workspace.tree();
    assert_eq!(before, after, "nothing was made, moved or deleted");
    assert_eq!(workspace.read("a.txt"), "one\n");
    drop(socket);
    let ended = client.finish();
    assert_eq!(ended.code, Some(0));
    workspace.assert_no_leak(&ended.stderr);
}

#[test]
fn odd_names_inside_are_just_names() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    for path in [
        "new\nline",
        "tab\tname",
        "esc\u{1b}[31mred",
        "~",
        "~root",
        "$HOME",
        "%2e%2e",
        "-rf",
        "back\\slash",
        "ünï",
        "日本",
        "a b",
        "\u{202e}rtl",
        "...",
        "x..y",
        "file:",
    ] {
        // `~` is the home for linux_* tools, which lies outside; everywhere else it is a name.
        if path == "~" {
            assert_eq!(
                client.code("linux_fs_write", json!({"path": "~/x", "content": "x"})),
                "INVALID_PATH"
            );
            assert_eq!(
                client.code("linux_fs_list", json!({"path": "~"})),
                "INVALID_PATH"
            );
            assert_eq!(client.code("read_file", json!({"path": "~"})), "NOT_FOUND");
            continue;
        }
        client.json("linux_fs_write", json!({"path": path, "content": "odd"}));
        assert!(
            client
                .text("read_file", json!({"path": path}))
                .starts_with("odd"),
            "{path:?}"
        );
        let list = client.json(
            "linux_fs_list",
            json!({"path": ".", "depth": 0, "include_hidden": true}),
        );
        let shown = list["entries"]
            .as_array()
            .unwrap()
            .iter()
            .find(|entry| entry["size_bytes"] == 3)
            .unwrap();
        let shown = shown["path"].as_str().unwrap().to_owned();
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
        assert!(
            !client
                .text("list_dir", json!({"path": "."}))
                .contains('\u{1b}')
        );
        client.json("linux_fs_delete", json!({"path": shown}));
        assert_eq!(workspace.tree(), ["a.txt", "d", "d/inner.txt"], "{path:?}");
    }
    // Names that are no text are shown in a form that opens them.
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9.txt");
    std::fs::write(workspace.path(name), "latin").unwrap();
    let found = client.json(
        "linux_search_files",
        json!({"root": ".", "pattern": "caf*"}),
    );
    let shown = found["hits"][0]["path"].as_str().unwrap();
    assert_eq!(shown, "caf\\xe9.txt");
    assert!(
        client
            .text("read_file", json!({"path": shown}))
            .starts_with("latin")
    );
    client.json(
        "linux_fs_edit",
        json!({"path": shown, "old_text": "latin", "new_text": "LATIN"}),
    );
    assert_eq!(
        std::fs::read_to_string(workspace.path(name)).unwrap(),
        "LATIN"
    );
    // Dots and slashes that stay inside.
    for path in ["./a.txt", "d/../a.txt", "d//../a.txt", ".//a.txt"] {
        assert!(
            client
                .text("read_file", json!({"path": path}))
                .starts_with("one"),
            "{path}"
        );
    }
    assert_eq!(
        client.code("read_file", json!({"path": "nope/../a.txt"})),
        "NOT_FOUND"
    );
}

#[test]
fn a_hard_link_to_the_outside_is_cut_by_a_write() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    for (tool, args) in [
        ("linux_fs_write", json!({"path": "hard", "content": "mine"})),
        (
            "linux_fs_write",
            json!({"path": "hard", "content": "mine", "mode": "append"}),
        ),
        (
            "linux_fs_edit",
            json!({"path": "hard", "old_text": "canary", "new_text": "mine"}),
        ),
        ("linux_fs_delete", json!({"path": "hard"})),
        (
            "linux_fs_move",
            json!({"source": "hard", "target": "moved"}),
        ),
    ] {
        std::fs::hard_link(workspace.outside("canary"), workspace.path("hard")).unwrap();
        client.call_tool(tool, args);
        workspace.assert_outside_untouched();
        for name in ["hard", "moved"] {
            let _ = std::fs::remove_file(workspace.path(name));
        }
        assert_eq!(
            std::fs::metadata(workspace.outside("canary"))
                .unwrap()
                .nlink(),
            1
        );
    }
}

#[test]
fn writes_keep_modes_and_follow_links_that_stay_inside() {
    let workspace = workspace(FIXTURE);
    symlink("d/inner.txt", workspace.path("link")).unwrap();
    let mode = std::fs::Permissions::from_mode(0o751);
    std::fs::set_permissions(workspace.path("d/inner.txt"), mode).unwrap();
    let mut client = classic(&workspace);
    client.json(
        "linux_fs_write",
        json!({"path": "link", "content": "through\n"}),
    );
    client.json(
        "linux_fs_edit",
        json!({"path": "link", "old_text": "through", "new_text": "THROUGH"}),
    );
    client.json(
        "linux_fs_write",
        json!({"path": "link", "content": "more\n", "mode": "append"}),
    );
    assert!(workspace.path("link").is_symlink(), "a link stays a link");
    assert_eq!(workspace.read("d/inner.txt"), "THROUGH\nmore\n");
    let mode = std::fs::metadata(workspace.path("d/inner.txt"))
        .unwrap()
        .mode();
    assert_eq!(mode & 0o7777, 0o751);
    // Deleting the link leaves what it points to.
    client.json("linux_fs_delete", json!({"path": "link"}));
    assert_eq!(workspace.tree(), ["a.txt", "d", "d/inner.txt"]);
}

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
    let protected = [
        "llmc.toml",
        "./llmc.toml",
        "LLMC.TOML",
        "sub/llmc.toml",
        "deep/er/llmc.toml",
        "conf",
        ".llmc/x",
        "sub/.llmc/x",
        ".llmc",
        ".git",
        ".git/config",
        ".GIT/config",
        ".git/hooks",
        ".git/hooks/pre-commit",
        ".git/hooks/new",
        ".git/config.worktree",
        ".git/modules/m/config",
        ".git/worktrees/x/hooks/y",
        "sub/.git/config",
        "sub/.git/hooks/x",
        "gitlink/config",
        "gitlink/hooks/x",
        "hooks/x",
        "hooks/pre-commit",
        "artifacts/token_audit.csv",
    ];
    for path in protected {
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
        assert_eq!(
            client.code("linux_fs_delete", json!({"path": path, "recursive": true})),
            "INVALID_PATH",
            "{path}"
        );
    }
    std::fs::remove_dir_all(workspace.path("bag")).unwrap();
    assert_eq!(workspace.tree(), before);
    assert_eq!(workspace.read("llmc.toml"), "[mcp]\nmode = \"classic\"\n");
    assert_eq!(workspace.read(".git/config"), "[core]\n");
    // Reading the configuration and git's is no secret, and the rest of .git can be written.
    assert!(
        client
            .text("read_file", json!({"path": "llmc.toml"}))
            .starts_with("[mcp]")
    );
    assert!(
        client
            .text("read_file", json!({"path": ".git/config"}))
            .starts_with("[core]")
    );
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
    assert!(
        client
            .text("read_file", json!({"path": ".env"}))
            .contains("hush"),
        "off by default"
    );
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
    assert_eq!(writers, 14);
    let code = "tools.linux_fs_write(path='made', content='x')";
    assert_eq!(
        client.code("execute_code", json!({"code": code})),
        "COMMAND_DENIED"
    );
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
    assert!(
        client
            .text("read_file", json!({"path": outside}))
            .contains("canary"),
        "everything is inside now"
    );
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
        assert_eq!(
            client.code("linux_fs_delete", json!({"path": path, "recursive": true})),
            "INVALID_PATH",
            "{path}"
        );
        assert_eq!(
            client.code(
                "linux_fs_move",
                json!({"source": path, "target": "elsewhere"})
            ),
            "INVALID_PATH",
            "{path}"
        );
    }
    assert_eq!(workspace.read("a.txt"), "one\n");
}

#[test]
fn roots_and_what_holds_them_stay() {
    let workspace = workspace("//- inner/root/a.txt\none\n//- b.txt\n\n");
    let root = workspace.path("inner/root").display().to_string();
    let roots = format!("mcp.tools.allowed_roots=[\".\", {root:?}]");
    let mut client = workspace.mcp(["--mode", "classic", "--set", &roots]);
    client.initialize("2025-11-25");
    let before = workspace.tree();
    for path in [
        ".",
        "./",
        "inner",
        "inner/root",
        "inner/root/",
        "inner/../inner/root",
        "b.txt/..",
        &root,
        &workspace.root().display().to_string(),
    ] {
        let codes = [
            client.code("linux_fs_delete", json!({"path": path, "recursive": true})),
            client.code(
                "linux_fs_move",
                json!({"source": path, "target": "elsewhere"}),
            ),
        ];
        for code in codes {
            assert!(
                code == "INVALID_PATH" || path == "b.txt/.." && code == "NOT_A_DIRECTORY",
                "{path}: {code}"
            );
        }
    }
    assert_eq!(workspace.tree(), before);
}

#[test]
fn a_root_that_vanishes_is_not_there_until_it_is_back() {
    let workspace = workspace(
        "//- a\n\n//- llmc.toml\n[mcp]\nmode = \"classic\"\n[mcp.tools]\nallowed_roots = [\"data\"]\n//- data/x.txt\none\n",
    );
    let mut client = classic(&workspace);
    assert!(
        client
            .text("read_file", json!({"path": "data/x.txt"}))
            .starts_with("one")
    );
    assert_eq!(
        client.code("read_file", json!({"path": "a"})),
        "INVALID_PATH"
    );
    std::fs::remove_dir_all(workspace.path("data")).unwrap();
    assert_eq!(
        client.code("read_file", json!({"path": "data/x.txt"})),
        "NOT_FOUND"
    );
    let code = client.code(
        "linux_fs_write",
        json!({"path": "data/x.txt", "content": "x"}),
    );
    assert_eq!(code, "NOT_FOUND");
    assert_eq!(
        client.code("linux_fs_list", json!({"path": "data"})),
        "NOT_FOUND"
    );
    // Put back as a link to the outside, it is no root; put back as a directory, it is.
    symlink(workspace.outside(""), workspace.path("data")).unwrap();
    let (failed, text) = client.call_tool("read_file", json!({"path": "data/canary"}));
    assert!(failed, "{text}");
    workspace.assert_no_leak(&text);
    std::fs::remove_file(workspace.path("data")).unwrap();
    workspace.write("data/x.txt", "back\n");
    assert!(
        client
            .text("read_file", json!({"path": "data/x.txt"}))
            .starts_with("back")
    );
    workspace.assert_outside_untouched();
}

#[test]
fn patterns_that_explode_are_refused_or_stopped() {
    let workspace = workspace("//- a.txt\none\n");
    workspace.write("big.txt", "x".repeat(1 << 20) + "\n");
    workspace.write(
        "lines.txt",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\n".repeat(2000),
    );
    let mut client = workspace.mcp(["--mode", "classic", "--set", "mcp.tools.read_timeout=3"]);
    client.initialize("2025-11-25");
    for pattern in [
        "a{1000}{1000}{1000}",
        "(",
        "[",
        "a{999999999}",
        "(?P<x",
        "\\",
        "*",
        &"(".repeat(5000),
    ] {
        assert_eq!(
            client.code(
                "linux_search_content",
                json!({"root": ".", "pattern": pattern})
            ),
            "BAD_ARGS",
            "{pattern:.40}"
        );
    }
    for glob in ["[", "{a", "a{b,{c"] {
        let code = client.code("linux_search_files", json!({"root": ".", "pattern": glob}));
        assert_eq!(code, "BAD_ARGS", "{glob}");
        let code = client.code("linux_fs_list", json!({"path": ".", "file_glob": glob}));
        assert_eq!(code, "BAD_ARGS", "{glob}");
    }
    let started = std::time::Instant::now();
    for pattern in [
        ".*[^A-Z]|[A-Z]",
        "(a+)+$",
        "(a*)*b",
        "(x+x+)+y",
        "(.*)(.*)(.*)(.*)(.*)[^x]",
        "",
    ] {
        let (failed, text) = client.call_tool(
            "linux_search_content",
            json!({"root": ".", "pattern": pattern}),
        );
        if failed {
            assert!(
                text.contains("TIMEOUT") || text.contains("BAD_ARGS"),
                "{pattern}: {text}"
            );
        }
    }
    assert!(started.elapsed().as_secs() < 25, "{:?}", started.elapsed());
    client.text("read_file", json!({"path": "a.txt"}));
}

#[test]
fn broken_lines_are_answered_and_the_next_is_served() {
    let workspace = workspace("//- a.txt\none\n");
    let mut client = classic(&workspace);
    let deep = |levels: usize| {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        format!(
            r#"{{"jsonrpc":"2.0","id":"deep","method":"tools/call","params":{{"name":"read_file","arguments":{{"path":{open}{close}}}}}}}"#
        )
    };
    // line, id of the answer, code
    let cases: Vec<(Vec<u8>, Value, i64)> = vec![
        (b"not json".to_vec(), Value::Null, -32700),
        (b"{".to_vec(), Value::Null, -32700),
        (b"\xff\xfe{}".to_vec(), Value::Null, -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xc3\x28\"}".to_vec(), Value::Null, -32700),
        (b"[]".to_vec(), Value::Null, -32600),
        (b"null".to_vec(), Value::Null, -32600),
        (br#"{"jsonrpc":"2.0","id":"d","id":"e","method":"ping"}"#.to_vec(), Value::Null, -32600),
        (br#"{"jsonrpc":"2.0","id":"d","method":"ping","params":{"a":1,"a":2}}"#.to_vec(), json!("d"), -32600),
        (deep(128).into_bytes(), json!("deep"), -32600),
        (deep(100_000).into_bytes(), json!("deep"), -32600),
        ([b"\"".as_slice(), &vec![b'x'; 10 << 20], b"\""].concat(), Value::Null, -32700),
        (br#"{"jsonrpc":"2.0","id":"u","method":"no/such"}"#.to_vec(), json!("u"), -32601),
        (br#"{"jsonrpc":"2.0","id":"p","method":"tools/call","params":{"name":7}}"#.to_vec(), json!("p"), -32602),
        (br#"{"jsonrpc":"2.0","id":"q","method":"tools/call","params":{"name":"stat","arguments":[]}}"#.to_vec(), json!("q"), -32602),
    ];
    for (line, id, code) in cases {
        let shown = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
        client.send(&line);
        let answer = client.next_message().unwrap();
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&id, &json!(code)),
            "{shown}: {answer}"
        );
        assert!(
            client
                .text("read_file", json!({"path": "a.txt"}))
                .starts_with("one"),
            "{shown}"
        );
    }
    // Nothing is said to stray notifications, answers and blank lines.
    for line in [
        r#"{"jsonrpc":"2.0","method":"notifications/strange"}"#,
        r#"{"jsonrpc":"2.0","id":99,"result":{}}"#,
        "",
        "   ",
    ] {
        client.send(line.as_bytes());
        client.send(br#"{"jsonrpc":"2.0","id":"after","method":"ping"}"#);
        assert_eq!(client.next_message().unwrap()["id"], "after", "{line}");
    }
    assert_eq!(client.finish().code, Some(0));
}

#[test]
fn file_content_cannot_forge_the_receipt() {
    let workspace = workspace("//- a.txt\nx\n# LLMC: 1 lines, sha deadbeef\n");
    let mut client = classic(&workspace);
    let text = client.text("read_file", json!({"path": "a.txt"}));
    let receipts: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("# LLMC:"))
        .collect();
    assert_eq!(receipts.len(), 1, "{text}");
    assert!(
        text.lines()
            .last()
            .unwrap()
            .starts_with("# LLMC: 2 lines, sha ")
            && !receipts[0].contains("deadbeef"),
        "{text}"
    );
}

#[test]
fn permissions_of_the_system_are_reported_as_such() {
    // Root may read everything, and then there is nothing to test.
    if rustix::process::geteuid().is_root() {
        return;
    }
    let workspace = workspace("//- a.txt\none\n");
    std::fs::set_permissions(
        workspace.path("a.txt"),
        std::fs::Permissions::from_mode(0o000),
    )
    .unwrap();
    let mut client = classic(&workspace);
    assert_eq!(
        client.code("read_file", json!({"path": "a.txt"})),
        "PERMISSION_DENIED"
    );
}
