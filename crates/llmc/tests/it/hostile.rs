//! Hostile paths, files, patterns and lines. Each gets its documented code, nothing outside is touched or revealed,
//! and the next call is answered.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use llmc_testkit::{McpClient, TestWorkspace, common_code, error_document};
use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::{Value, json};

use crate::{classic, workspace};

pub(crate) const FIXTURE: &str = "\
//- a.txt
one
//- d/inner.txt
inner
";

/// Every path argument of every tool, with arguments that are fine but for it.
pub(crate) fn path_arguments(client: &mut McpClient) -> Vec<(String, String, Value)> {
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

pub(crate) fn make_traps(workspace: &TestWorkspace) -> std::os::unix::net::UnixListener {
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
    let words = "\
        .. ../ ../outside/canary ../wx/secret d/../../outside/canary d/../../w/../outside nope/../../outside/canary \
        / // //etc/passwd /etc/passwd /etc /dev/zero /dev/stdin /proc/self/environ /proc/self/root/etc/passwd \
        /proc/self/fd/0 /proc/self/cwd/a.txt abs abs/ abs/canary abs/new rel rel/canary chain/canary file-link loop \
        loop/x ring1 magic magic/etc/passwd magic-fd dangling-out dangling-new dangling-new/x zero \
        rel/../outside/canary .llmc .llmc/ .llmc/locks .llmc/te_telemetry.db ./.llmc/../.llmc/x d/.llmc/x \
        state-link state-link/te_handles fifo socket";
    let computed = [
        "", &base, &sibling, &canary, &dotted, "a\0b", "a.txt\0", &long, &name,
    ];
    let hostile: Vec<&str> = words.split(' ').chain(computed).collect();
    let before = workspace.tree();
    for (tool, key, args) in path_arguments(&mut client) {
        for path in &hostile {
            let mut args = args.clone();
            args[&key] = json!(path);
            if tool == "undo" {
                // It would take back what other calls of this test did.
                args["dry_run"] = json!(true);
            }
            let link = workspace.path(path.trim_end_matches('/').replace('\0', "-"));
            let leads_to = std::fs::read_link(&link).ok();
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
            // A link may itself be moved or deleted, wherever it leads; what it leads to may not.
            let is_change = ["linux_fs_delete", "linux_fs_move"].contains(&tool.as_str());
            if let Some(leads_to) = leads_to.filter(|_| is_change) {
                let codes = ["ALREADY_EXISTS", "NOT_A_DIRECTORY", "INVALID_PATH"];
                if failed {
                    let document = error_document(&text);
                    assert!(codes.contains(&common_code(&document)), "{at}");
                } else {
                    let moved = workspace.path("target.txt");
                    if moved.is_symlink() {
                        std::fs::remove_file(moved).unwrap();
                    }
                    assert!(!link.is_symlink(), "{at}");
                    symlink(leads_to, &link).unwrap();
                }
                assert!(workspace.path(".llmc/locks").is_dir(), "{at}");
                workspace.assert_outside_untouched();
                continue;
            }
            // To these a path selects among recorded changes; nothing is opened for it.
            let has_no_such_change = text.contains("CONFLICT") || text.contains("NOT_FOUND");
            if tool == "history" && !failed || tool == "undo" && (!failed || has_no_such_change) {
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
            client.assert_code(
                "linux_fs_write",
                json!({"path": "~/x", "content": "x"}),
                "INVALID_PATH",
            );
            client.assert_code("linux_fs_list", json!({"path": "~"}), "INVALID_PATH");
            client.assert_code("read_file", json!({"path": "~"}), "NOT_FOUND");
            continue;
        }
        client.json("linux_fs_write", json!({"path": path, "content": "odd"}));
        client.assert_starts("read_file", json!({"path": path}), "odd");
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
    client.assert_starts("read_file", json!({"path": shown}), "latin");
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
        client.assert_starts("read_file", json!({"path": path}), "one");
    }
    client.assert_code("read_file", json!({"path": "nope/../a.txt"}), "NOT_FOUND");
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
        "(?:a?){5000}a{5000}",
        "(",
        "[",
        "a{999999999}",
        "(?P<x",
        "\\",
        "*",
        &"(".repeat(5000),
    ] {
        client.assert_code(
            "linux_search_content",
            json!({"root": ".", "pattern": pattern}),
            "BAD_ARGS",
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
        "(?:x?){1900}x{1900}[^x]",
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
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
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
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xc3\x28\"}".to_vec(), json!(1), -32700),
        (b"[]".to_vec(), Value::Null, -32600),
        (b"null".to_vec(), Value::Null, -32600),
        (br#"{"jsonrpc":"2.0","id":"d","id":"e","method":"ping"}"#.to_vec(), Value::Null, -32600),
        (br#"{"jsonrpc":"2.0","id":"d","method":"ping","params":{"a":1,"a":2}}"#.to_vec(), json!("d"), -32600),
        (deep(128).into_bytes(), json!("deep"), -32600),
        (deep(100_000).into_bytes(), json!("deep"), -32600),
        ([b"\"".as_slice(), &vec![b'x'; 17 << 20], b"\""].concat(), Value::Null, -32600),
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
        client.assert_starts("read_file", json!({"path": "a.txt"}), "one");
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
    client.assert_code("read_file", json!({"path": "a.txt"}), "PERMISSION_DENIED");
}

#[test]
fn a_write_beyond_the_limit_of_file_sizes_fails_and_the_server_goes_on() {
    let workspace = workspace(FIXTURE);
    let mut command = workspace.command_of("sh");
    command
        .args(["-c", "ulimit -f 4096; exec \"$0\" \"$@\""])
        .arg(workspace.program())
        .args(["mcp", "--mode", "classic"]);
    let mut client = McpClient::new(llmc_testkit::TestProcess::start(command));
    client.initialize("2025-11-25");
    let content = "x".repeat(6 << 20);
    for path in ["new.txt", "a.txt"] {
        client.assert_code(
            "linux_fs_write",
            json!({"path": path, "content": content}),
            "WRITE_FAILED",
        );
    }
    assert_eq!(
        client
            .text("read_file", json!({"path": "a.txt"}))
            .lines()
            .next(),
        Some("one")
    );
    assert_eq!(workspace.tree(), ["a.txt", "d", "d/inner.txt"]);
    assert_eq!(client.finish().code, Some(0));
}

#[test]
fn a_mount_inside_a_tree_is_found_before_anything_is_deleted() {
    let workspace =
        workspace("//- t/a/one.txt\n1\n//- t/z/two.txt\n2\n//- t/file.txt\nf\n//- t/m/x\n");
    std::fs::create_dir(workspace.outside("data")).unwrap();
    std::fs::write(workspace.outside("data/kept"), "kept").unwrap();
    for (from, to) in [("data", "t/m"), ("data/kept", "t/file.txt")] {
        let mut command = workspace.command_of("unshare");
        command
            .args(["-rm", "sh", "-c"])
            .arg("mount --bind \"$1\" \"$2\" && shift 2 && exec \"$0\" \"$@\"")
            .arg(workspace.program())
            .args([workspace.outside(from), workspace.path(to)])
            .args([
                "tool",
                "linux_fs_delete",
                "--path",
                "t",
                "--recursive",
                "true",
            ]);
        let ended = llmc_testkit::TestProcess::start(command).finish();
        assert_eq!(ended.code, Some(4), "{}", ended.stderr);
        assert!(ended.stderr.contains("the mount at t/"), "{}", ended.stderr);
        assert_eq!(
            std::fs::read(workspace.outside("data/kept")).unwrap(),
            b"kept"
        );
        for file in ["t/a/one.txt", "t/z/two.txt", "t/file.txt", "t/m/x"] {
            assert!(workspace.path(file).exists(), "{file}");
        }
    }
}

#[test]
fn names_that_read_as_receipts_or_hide_letters_can_be_opened_as_they_are_printed() {
    let workspace = workspace("");
    for name in ["d/# LLMC: 3 lines", "d/# TE: more", "d/a\u{61c}b.txt"] {
        workspace.write(name, "found\n");
    }
    let mut client = classic(&workspace);
    let listed = client.text("list_dir", json!({"path": "d"}));
    let names: Vec<&str> = listed.lines().take(3).collect();
    assert!(!listed.contains('\u{61c}'), "{listed:?}");
    for name in names {
        let path = format!("d/{name}");
        let text = client.text("read_file", json!({"path": path}));
        assert!(text.starts_with("found\n"), "{path}: {text}");
    }
}
