//! What every tool answers, field by field, and how it refuses what it cannot take.

use serde_json::{Value, json};

use crate::{classic, keys, workspace};

pub(crate) const FIXTURE: &str = "\
//- a.txt
one
two
three
//- src/main.rs
fn main() {}
//- .hidden
secret
//- .gitignore
ignored.txt
//- ignored.txt
one
";

fn is_hex(value: &Value, digits: usize) -> bool {
    value.as_str().is_some_and(|text| {
        text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

#[test]
fn reads_count_lines_from_zero_and_report_what_follows() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    let tag = &llmc_host::sha256_hex(b"one\ntwo\nthree\n")[..8];
    // skip, max, content, truncated
    for (skip, max, content, truncated) in [
        (0, 200, "one\ntwo\nthree\n", false),
        (0, 3, "one\ntwo\nthree\n", false),
        (0, 2, "one\ntwo\n", true),
        (1, 1, "two\n", true),
        (2, 1, "three\n", false),
        (3, 1, "", false),
        (99, 2000, "", false),
    ] {
        let args = json!({"path": "a.txt", "offset_lines": skip, "max_lines": max});
        let read = client.json("linux_fs_read", args.clone());
        assert_eq!(keys(&read), ["content", "handle", "meta"], "{args}");
        assert_eq!(read["content"], content, "{args}");
        assert_eq!(
            keys(&read["meta"]),
            ["path", "sha256", "total_lines", "truncated"],
            "{args}"
        );
        assert_eq!(read["meta"]["path"], "a.txt");
        assert_eq!(read["meta"]["total_lines"], 3);
        assert_eq!(read["meta"]["truncated"], truncated, "{args}");
        assert_eq!(
            read["meta"]["sha256"], tag,
            "the eight digits that writes accept"
        );
        assert_eq!(read["handle"].is_string(), truncated, "{args}: {read}");
        assert!(truncated || read["handle"].is_null(), "{args}: {read}");
    }
    // Absolute paths inside the root are shown like relative ones.
    let path = workspace.path("a.txt").display().to_string();
    let read = client.json("linux_fs_read", json!({"path": path}));
    assert_eq!(read["meta"]["path"], "a.txt");
    let text = client.text("read_file", json!({"path": "a.txt"}));
    assert_eq!(text, format!("one\ntwo\nthree\n# LLMC: 3 lines, sha {tag}"));
}

#[test]
fn line_ends_and_odd_encodings_come_back_as_they_are() {
    let workspace = workspace("//- a\n");
    let mut client = classic(&workspace);
    // bytes, content, lines
    let cases: &[(&[u8], &str, u64)] = &[
        (b"", "", 0),
        (b"\n", "\n", 1),
        (b"a", "a", 1),
        (b"a\r\nb\r\n", "a\r\nb\r\n", 2),
        (b"a\rb", "a\rb", 1),
        ("\u{feff}x\n".as_bytes(), "\u{feff}x\n", 1),
        ("ä\u{2028}b\u{85}c\n".as_bytes(), "ä\u{2028}b\u{85}c\n", 1),
        (b"x\n\n\n", "x\n\n\n", 3),
    ];
    for (bytes, content, lines) in cases {
        workspace.write("f", bytes);
        let read = client.json("linux_fs_read", json!({"path": "f"}));
        assert_eq!(read["content"], *content, "{bytes:?}");
        assert_eq!(read["meta"]["total_lines"], *lines, "{bytes:?}");
        assert_eq!(read["meta"]["sha256"], llmc_host::sha256_hex(bytes)[..8]);
    }
    // Refused or edited, never silently changed.
    for bytes in [&b"a\0b"[..], b"\xff\xfea\0b\0", b"\xfe\xff\0a"] {
        workspace.write("f", bytes);
        for (tool, args) in [
            (
                "linux_fs_edit",
                json!({"path": "f", "old_text": "a", "new_text": "b"}),
            ),
            (
                "linux_fs_write",
                json!({"path": "f", "content": "b", "mode": "append"}),
            ),
        ] {
            client.assert_code(tool, args, "BAD_ARGS");
        }
        assert_eq!(std::fs::read(workspace.path("f")).unwrap(), bytes);
    }
    // An edit keeps what it does not replace: BOM, CRLF, the missing newline.
    workspace.write("f", "\u{feff}one\r\ntwo");
    client.json(
        "linux_fs_edit",
        json!({"path": "f", "old_text": "two", "new_text": "2"}),
    );
    assert_eq!(workspace.read("f"), "\u{feff}one\r\n2");
}

#[test]
fn writes_and_edits_answer_with_the_whole_files_hash() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    let wrote = client.json("linux_fs_write", json!({"path": "n", "content": "ä\n"}));
    assert_eq!(keys(&wrote), ["bytes_written", "new_sha256"]);
    assert_eq!(wrote["bytes_written"], 3);
    assert!(is_hex(&wrote["new_sha256"], 8), "{wrote}");
    let wrote = client.json(
        "linux_fs_write",
        json!({"path": "n", "content": "b", "mode": "append"}),
    );
    assert_eq!(wrote["bytes_written"], 1, "this call's bytes");
    assert_eq!(
        wrote["new_sha256"],
        llmc_host::sha256_hex("ä\nb".as_bytes())[..8]
    );
    let edited = client.json(
        "linux_fs_edit",
        json!({"path": "n", "old_text": "b", "new_text": "", "expected_sha256": wrote["new_sha256"]}),
    );
    assert_eq!(
        keys(&edited),
        ["bytes_written", "new_sha256", "replacements"]
    );
    assert_eq!(edited["replacements"], 1);
    assert_eq!(
        edited["new_sha256"],
        llmc_host::sha256_hex("ä\n".as_bytes())[..8]
    );

    // The tag of a read is enough; a stale one is refused and changes nothing.
    let tag = client.json("linux_fs_read", json!({"path": "a.txt"}))["meta"]["sha256"].clone();
    client.json(
        "linux_fs_write",
        json!({"path": "a.txt", "content": "new", "expected_sha256": tag}),
    );
    for args in [
        json!({"path": "a.txt", "content": "lost", "expected_sha256": tag}),
        json!({"path": "a.txt", "content": "lost", "mode": "append", "expected_sha256": tag}),
    ] {
        client.assert_code("linux_fs_write", args, "SHA_MISMATCH");
    }
    let args = json!({"path": "a.txt", "old_text": "new", "new_text": "x", "expected_sha256": tag});
    client.assert_code("linux_fs_edit", args, "SHA_MISMATCH");
    assert_eq!(workspace.read("a.txt"), "new");
    for bad in ["1234567", "zzzzzzzz", &"a".repeat(65), "1234567-"] {
        let args = json!({"path": "a.txt", "content": "x", "expected_sha256": bad});
        client.assert_code("linux_fs_write", args, "BAD_ARGS");
    }
    // No file, no check.
    client.json(
        "linux_fs_write",
        json!({"path": "fresh", "content": "x", "expected_sha256": "deadbeef"}),
    );
    // Missing parents are made.
    client.json(
        "linux_fs_write",
        json!({"path": "no/such/f", "content": "x"}),
    );
    assert_eq!(workspace.read("no/such/f"), "x");
}

#[test]
fn an_edit_that_does_not_fit_shows_the_nearest_lines() {
    let workspace = workspace(
        "//- m.rs\nfn alpha() {}\n\nfn beta(x: u32) -> u32 {\n    x + 1\n}\n\nfn gamma() {}\nlet same = 1;\nlet same = 1;\n",
    );
    let mut client = classic(&workspace);
    let before = workspace.read("m.rs");
    let error = client.error(
        "linux_fs_edit",
        json!({"path": "m.rs", "old_text": "fn beta(x: u64) -> u32 {\n    x + 1", "new_text": ""}),
    );
    assert_eq!(error["meta"]["error_code"], "NO_MATCH");
    let nearest = error["meta"]["nearest"].as_str().unwrap();
    assert!(
        nearest.contains('3') && nearest.contains("fn beta(x: u32) -> u32 {"),
        "{nearest}"
    );
    let error = client.error(
        "linux_fs_edit",
        json!({"path": "m.rs", "old_text": "let same = 1;", "new_text": ""}),
    );
    assert_eq!(error["meta"]["error_code"], "NO_MATCH");
    let message = error["error"].as_str().unwrap();
    assert!(
        message.contains('2') && message.contains('1'),
        "both counts: {message}"
    );
    client.assert_code(
        "linux_fs_edit",
        json!({"path": "m.rs", "old_text": "", "new_text": "x"}),
        "BAD_ARGS",
    );
    assert_eq!(workspace.read("m.rs"), before);
    let args = json!({"path": "m.rs", "old_text": "let same = 1;", "new_text": "let s = 1;", "expected_replacements": 2});
    assert_eq!(client.json("linux_fs_edit", args)["replacements"], 2);
    assert_eq!(workspace.read("m.rs").matches("let s = 1;").count(), 2);
}

#[test]
fn lists_are_ordered_and_complete() {
    let workspace = workspace(FIXTURE);
    std::os::unix::fs::symlink("a.txt", workspace.path("link")).unwrap();
    let mut client = classic(&workspace);
    let list = client.json("linux_fs_list", json!({"path": "."}));
    assert_eq!(
        keys(&list),
        ["entries", "handle", "total_entries", "truncated"]
    );
    assert_eq!(
        (&list["truncated"], &list["handle"]),
        (&json!(false), &Value::Null)
    );
    let entries = list["entries"].as_array().unwrap();
    assert_eq!(list["total_entries"], entries.len());
    let mut seen = Vec::new();
    for entry in entries {
        assert_eq!(keys(entry), ["mtime_iso", "path", "size_bytes", "type"]);
        let time = entry["mtime_iso"].as_str().unwrap();
        assert!(time.ends_with('Z') && time.as_bytes()[10] == b'T', "{time}");
        let kind = entry["type"].as_str().unwrap();
        if kind == "file" {
            assert!(entry["size_bytes"].is_u64(), "{entry}");
        }
        seen.push((entry["path"].as_str().unwrap(), kind));
    }
    let mut sorted = seen.clone();
    sorted.sort_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
    assert_eq!(seen, sorted, "by path bytes");
    assert!(
        seen.contains(&("src/main.rs", "file")) && seen.contains(&("link", "symlink")),
        "{seen:?}"
    );
    assert!(
        !seen.iter().any(|(path, _)| path.starts_with('.')),
        "{seen:?}"
    );
    let own = client.json("linux_fs_list", json!({"path": ".", "depth": 0}));
    assert!(
        !own.to_string().contains("main.rs"),
        "depth 0 is the directory's own: {own}"
    );
    let hidden = client.json(
        "linux_fs_list",
        json!({"path": ".", "include_hidden": true, "depth": 0}),
    );
    assert!(hidden.to_string().contains(".hidden"), "{hidden}");
    assert!(
        !hidden.to_string().contains(".llmc/"),
        "the state directory is closed: {hidden}"
    );
    let some = client.json("linux_fs_list", json!({"path": ".", "file_glob": "*.rs"}));
    assert!(
        some.to_string().contains("main.rs") && !some.to_string().contains("a.txt"),
        "{some}"
    );
    client.assert_code("linux_fs_list", json!({"path": "a.txt"}), "NOT_A_DIRECTORY");
    client.assert_code("linux_fs_list", json!({"path": "nope"}), "NOT_FOUND");

    for n in 0..620 {
        workspace.write(format!("many/{n:04}"), "");
    }
    let list = client.json("linux_fs_list", json!({"path": "many"}));
    assert_eq!(list["entries"].as_array().unwrap().len(), 500);
    assert_eq!(list["entries"][499]["path"], "many/0499");
    assert_eq!(
        (&list["total_entries"], &list["truncated"]),
        (&json!(620), &json!(true))
    );
    let handle = list["handle"].as_str().unwrap();
    let all: Value =
        serde_json::from_slice(&crate::resources::pages(&mut client, handle, 20_000)).unwrap();
    assert_eq!(all.as_array().unwrap().len(), 620);
    assert_eq!(all[0], list["entries"][0]);
    assert_eq!(all[619]["path"], "many/0619");
}

#[test]
fn status_has_four_fields() {
    let workspace = workspace(FIXTURE);
    std::os::unix::fs::symlink("a.txt", workspace.path("link")).unwrap();
    let mut client = classic(&workspace);
    for (path, kind) in [("a.txt", "file"), ("src", "dir"), ("link", "symlink")] {
        let stat = client.json("stat", json!({"path": path}));
        assert_eq!(keys(&stat), ["mode", "mtime", "size", "type"], "{path}");
        assert_eq!(stat["type"], kind, "{path}");
        assert!(
            stat["mtime"].as_i64().unwrap() > 1_600_000_000,
            "Unix seconds: {stat}"
        );
        let mode = stat["mode"].as_str().unwrap();
        assert!(
            mode.len() == 4 && mode.bytes().all(|b| (b'0'..=b'7').contains(&b)),
            "{mode}"
        );
    }
    client.assert_code("stat", json!({"path": "nope"}), "NOT_FOUND");
}

#[test]
fn moving_deleting_and_making_say_what_they_did() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    let moved = client.json(
        "linux_fs_move",
        json!({"source": "a.txt", "target": "src/b.txt"}),
    );
    assert_eq!(
        moved,
        json!({"ok": true, "source": "a.txt", "target": "src/b.txt"})
    );
    for (source, target, code) in [
        ("src/b.txt", "src/main.rs", "ALREADY_EXISTS"),
        // A directory is not moved into.
        ("src/b.txt", "src", "ALREADY_EXISTS"),
        ("nope", "x", "NOT_FOUND"),
        ("src/b.txt", "no/such/dir", "NOT_FOUND"),
    ] {
        client.assert_code(
            "linux_fs_move",
            json!({"source": source, "target": target}),
            code,
        );
    }
    let made = client.json("linux_fs_mkdirs", json!({"path": "x/y"}));
    assert_eq!(made, json!({"ok": true, "path": "x/y"}));
    client.json("linux_fs_mkdirs", json!({"path": "x/y"}));
    client.assert_code(
        "linux_fs_mkdirs",
        json!({"path": "x/y", "exist_ok": false}),
        "ALREADY_EXISTS",
    );
    let code = client.code("linux_fs_mkdirs", json!({"path": "src/main.rs"}));
    assert!(
        code == "ALREADY_EXISTS" || code == "NOT_A_DIRECTORY",
        "{code}"
    );
    assert_eq!(
        client.json("linux_fs_delete", json!({"path": "x", "recursive": true})),
        json!({"ok": true, "path": "x"})
    );
    client.assert_code("linux_fs_delete", json!({"path": "x"}), "NOT_FOUND");
    client.assert_code("linux_fs_read", json!({"path": "src"}), "IS_DIRECTORY");
    client.assert_code(
        "linux_fs_write",
        json!({"path": "src", "content": ""}),
        "IS_DIRECTORY",
    );
    client.assert_code(
        "read_file",
        json!({"path": "src/main.rs/x"}),
        "NOT_A_DIRECTORY",
    );
}

#[test]
fn searches_give_true_totals_and_what_they_skipped() {
    let workspace = workspace(FIXTURE);
    std::fs::create_dir(workspace.path(".git")).unwrap();
    workspace.write("blob.bin", b"one\0two");
    let mut client = classic(&workspace);
    let all = [
        "files_searched",
        "handle",
        "hits",
        "skipped",
        "total_hits",
        "truncated",
    ];
    let skipped = ["binary", "hidden", "ignored", "too_large", "unreadable"];
    let found = client.json("linux_search_content", json!({"root": ".", "pattern": "o"}));
    assert_eq!(keys(&found), all);
    assert_eq!(keys(&found["skipped"]), skipped);
    assert_eq!(
        found["total_hits"], 2,
        "one and two in a.txt, nothing ignored, hidden or binary: {found}"
    );
    assert_eq!(keys(&found["hits"][0]), ["line", "path", "snippet"]);
    assert_eq!(
        (&found["truncated"], &found["handle"]),
        (&json!(false), &Value::Null)
    );
    for what in ["binary", "hidden", "ignored"] {
        assert!(
            found["skipped"][what].as_u64().unwrap() > 0,
            "{what}: {found}"
        );
    }
    let cut = client.json(
        "linux_search_content",
        json!({"root": ".", "pattern": "o", "max_results": 1, "context_lines": 0}),
    );
    assert_eq!(
        (&cut["total_hits"], &cut["truncated"]),
        (&json!(2), &json!(true))
    );
    assert_eq!(
        cut["hits"],
        json!([{"path": "a.txt", "line": 1, "snippet": "one"}])
    );
    let handle = cut["handle"].as_str().unwrap();
    let kept: Value =
        serde_json::from_slice(&crate::resources::pages(&mut client, handle, 9999)).unwrap();
    assert_eq!(kept.as_array().unwrap().len(), 2);
    // literal, case, a file as root
    for (args, total) in [
        (
            json!({"root": ".", "pattern": "main()", "literal": true}),
            1,
        ),
        (
            json!({"root": ".", "pattern": "ONE", "ignore_case": false}),
            0,
        ),
        (json!({"root": ".", "pattern": "ONE"}), 1),
        (json!({"root": "a.txt", "pattern": "^t"}), 2),
        (
            json!({"root": ".", "pattern": "^t", "file_glob": "*.rs"}),
            0,
        ),
        (
            json!({"root": ".", "pattern": "fn|one", "file_glob": "*.rs"}),
            1,
        ),
        (
            json!({"root": ".", "pattern": "fn|one", "file_glob": "src/**"}),
            1,
        ),
        (
            json!({"root": ".", "pattern": "fn|one", "file_glob": "*.{rs,txt}"}),
            2,
        ),
    ] {
        let found = client.json("linux_search_content", args.clone());
        assert_eq!(found["total_hits"], total, "{args}: {found}");
    }
    let found = client.json(
        "linux_search_files",
        json!({"root": ".", "pattern": "MAIN"}),
    );
    assert_eq!(keys(&found), all);
    assert_eq!(
        found["hits"],
        json!([{"path": "src/main.rs"}]),
        "a substring in any case"
    );
    for (pattern, total) in [
        ("*.txt", 1),
        ("src/*.rs", 1),
        ("src", 0),
        ("*", 3),
        ("{a,main}.*", 2),
    ] {
        let found = client.json(
            "linux_search_files",
            json!({"root": ".", "pattern": pattern}),
        );
        assert_eq!(found["total_hits"], total, "{pattern}: {found}");
    }
    for (glob, total) in [("*.rs", 1), ("*.txt", 1), ("src/*", 1), ("*.md", 0)] {
        let args = json!({"root": ".", "pattern": "*", "file_glob": glob});
        let found = client.json("linux_search_files", args);
        assert_eq!(found["total_hits"], total, "{glob}: {found}");
    }
    // The roots hold for what is searched, whichever way leads out.
    std::os::unix::fs::symlink(workspace.outside(""), workspace.path("out")).unwrap();
    for root in ["..", "/", "/etc", "out", "src/../.."] {
        for tool in ["linux_search_files", "linux_search_content"] {
            let args = json!({"root": root, "pattern": "canary"});
            client.assert_code(tool, args, "INVALID_PATH");
        }
    }
    for tool in ["linux_search_files", "linux_search_content"] {
        let found = client.json(tool, json!({"root": ".", "pattern": "canary"}));
        assert_eq!(found["total_hits"], 0, "a link is not followed: {found}");
    }
    std::fs::remove_file(workspace.path("out")).unwrap();
    let cut = client.json(
        "linux_search_files",
        json!({"root": ".", "pattern": "*", "max_results": 1}),
    );
    assert_eq!(
        (&cut["total_hits"], &cut["truncated"]),
        (&json!(3), &json!(true))
    );
    assert!(cut["handle"].is_string());
}

#[test]
fn a_handle_page_has_its_fields() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    let read = client.json("linux_fs_read", json!({"path": "a.txt", "max_lines": 1}));
    let handle = read["handle"].as_str().unwrap();
    assert!(handle.starts_with("res_") && handle.len() == 30, "{handle}");
    let page = client.json(
        "linux_handle_read",
        json!({"handle": handle, "offset": 4, "limit": 4}),
    );
    assert_eq!(
        page,
        json!({
            "data": "two\n", "encoding": "utf-8", "offset": 4, "length": 4, "total_bytes": 14, "eof": false,
            "stale": false, "meta": {"kind": "file_content", "path": "a.txt"},
        })
    );
    let last = client.json("linux_handle_read", json!({"handle": handle, "offset": 14}));
    assert_eq!(
        (&last["data"], &last["length"], &last["eof"]),
        (&json!(""), &json!(0), &json!(true))
    );
    for args in [
        json!({"handle": handle, "offset": 15}),
        json!({"handle": handle, "offset": -1}),
        json!({"handle": handle, "limit": 0}),
        json!({"handle": handle, "limit": (8 << 20) + 1}),
    ] {
        client.assert_code("linux_handle_read", args.clone(), "BAD_ARGS");
    }
    for unknown in [
        "",
        "res_",
        "res_01M7GFGEJWS7V5170GW98RR9C9",
        "x",
        "res_../../etc",
        &handle[..29],
        &format!("{handle}x"),
    ] {
        client.assert_code(
            "linux_handle_read",
            json!({"handle": unknown}),
            "HANDLE_EXPIRED",
        );
    }
}
