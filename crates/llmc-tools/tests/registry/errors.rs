//! Errors that a model can correct name what is wrong and the nearest right thing.

use llmc_tools::{CallOutcome, Surface, catalog::TOOLS};
use serde_json::{Value, json};

use super::{app, call};

/// The text of a failed call.
async fn failed(dir: &tempfile::TempDir, toml: &str, name: &str, args: Value) -> String {
    let app = app(dir.path(), toml);
    said(call(&app, Surface::Mcp, name, args).await)
}

fn said(outcome: CallOutcome) -> String {
    let text = outcome.text();
    assert!(outcome.result.is_err(), "{text}");
    text
}

pub(super) fn project() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, content) in [
        ("src/app.py", "one\ntwo\nthree\nfour\nfive\nsix\n"),
        ("src/deep/models.py", "class User:\n    pass\n"),
        ("web/index.ts", "let x = 1;\n"),
        ("odd:7", "a file that really has this name\n"),
        ("notes.md", "# Notes\n"),
    ] {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    dir
}

const CLASSIC: &str = "[mcp]\nmode = \"classic\"\n";

/// Tools that read the file which `path` names, with further arguments.
const READERS: [&str; 6] = [
    "read_file",
    "linux_fs_read",
    "repo_read",
    "te_cat",
    "te_head",
    "te_tail",
];

#[tokio::test]
async fn a_path_may_name_lines_in_every_tool_that_reads() {
    let dir = project();
    let app = app(dir.path(), CLASSIC);
    for tool in READERS {
        for (path, lines) in [
            ("src/app.py:3", "three\n"),
            ("src/app.py:3:1", "three\n"),
            ("src/app.py#L3", "three\n"),
            ("src/app.py:3-5", "three\nfour\nfive\n"),
            ("src/app.py#L3-L5", "three\nfour\nfive\n"),
            ("src/app.py:5-900", "five\nsix\n"),
            ("odd:7", "a file that really has this name\n"),
        ] {
            let outcome = call(&app, Surface::Mcp, tool, json!({"path": path})).await;
            let text = outcome.text();
            assert!(outcome.result.is_ok(), "{tool} {path}: {text}");
            let text = match serde_json::from_str::<Value>(&text) {
                Ok(document) => document["content"].as_str().unwrap().to_owned(),
                Err(_) => text,
            };
            let shown = text.replace("\\n", "\n");
            assert!(shown.contains(lines.trim_end()), "{tool} {path}: {text}");
            for other in ["one", "two", "six"] {
                let wanted = lines.contains(other);
                assert_eq!(shown.contains(other), wanted, "{tool} {path}: {text}");
            }
        }
        for (path, why) in [
            ("src/app.py:0", "lines count from 1"),
            ("src/app.py:5-3", "lines count from 1"),
            ("src/app.py:7", "src/app.py has 6 lines, none from 7 on"),
        ] {
            let text = said(call(&app, Surface::Mcp, tool, json!({"path": path})).await);
            assert!(text.contains(why), "{tool} {path}: {text}");
        }
    }
    let args = json!({"path": "src/app.py:2-5", "lines": 2});
    let head = call(&app, Surface::Mcp, "te_head", args.clone())
        .await
        .text();
    assert!(
        head.contains("two\n") && head.contains("three") && !head.contains("four"),
        "{head}"
    );
    let tail = call(&app, Surface::Mcp, "te_tail", args).await.text();
    assert!(
        !tail.contains("three") && tail.contains("four\n") && tail.contains("five"),
        "{tail}"
    );
}

#[tokio::test]
async fn a_path_may_name_lines_where_a_file_is_inspected_or_compared() {
    let dir = project();
    std::fs::write(
        dir.path().join("src/new.py"),
        "one\nTWO\nthree\nFOUR\nfive\nsix\n",
    )
    .unwrap();
    let app = app(dir.path(), CLASSIC);
    for path in ["src/app.py:3-5", "src/app.py#L3-L5"] {
        let text = call(&app, Surface::Mcp, "inspect", json!({"path": path}))
            .await
            .text();
        let found: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(found["text"], "three\nfour\nfive\n", "{path}: {found}");
        assert_eq!(found["src"], "src/app.py#L3-L5", "{path}");
        let args = json!({"a": path, "b": path.replace("app", "new")});
        let text = call(&app, Surface::Mcp, "te_diff", args).await.text();
        assert!(text.contains("-four\n+FOUR\n"), "{path}: {text}");
        assert!(
            !text.contains("TWO") && !text.contains("six"),
            "{path}: {text}"
        );
    }
    for tool in ["inspect", "te_diff"] {
        let args = |path: &str| match tool {
            "inspect" => json!({"path": path}),
            _ => json!({"a": path, "b": "src/new.py"}),
        };
        for (path, why) in [
            ("src/app.py:0", "lines count from 1"),
            ("src/app.py:7", "src/app.py has 6 lines, none from 7 on"),
        ] {
            let text = said(call(&app, Surface::Mcp, tool, args(path)).await);
            assert!(text.contains(why), "{tool} {path}: {text}");
        }
    }
}

#[tokio::test]
async fn a_glob_that_finds_nothing_says_why_and_a_bare_ending_is_one() {
    let dir = project();
    let app = app(dir.path(), CLASSIC);
    let searches = |glob: &str| {
        [
            (
                "linux_fs_list",
                json!({"path": ".", "depth": 5, "file_glob": glob}),
            ),
            (
                "linux_search_files",
                json!({"root": ".", "pattern": "*", "file_glob": glob}),
            ),
            (
                "linux_search_content",
                json!({"root": ".", "pattern": ".", "file_glob": glob}),
            ),
        ]
    };
    // Every tool that takes one is looked at.
    let with_globs = TOOLS
        .iter()
        .filter(|tool| tool.schema()["properties"].get("file_glob").is_some());
    let with_globs: Vec<&str> = with_globs.map(|tool| tool.name).collect();
    assert_eq!(with_globs.len(), 3, "{with_globs:?}");
    for glob in ["*.py", "py", ".py", "", "*.zig", "zig", "src", "lib/*.py"] {
        for (tool, args) in searches(glob) {
            assert!(with_globs.contains(&tool));
            let text = call(&app, Surface::Mcp, tool, args).await.text();
            let found: Value = serde_json::from_str(&text).unwrap();
            let note = found["note"].as_str().unwrap_or_default();
            let names = found.get("hits").unwrap_or(&found["entries"]).to_string();
            let what = format!("{tool} {glob:?}: {text}");
            match glob {
                "" => {
                    assert!(
                        names.contains("app.py") && names.contains("index.ts"),
                        "{what}"
                    );
                    assert_eq!(note, "", "{what}");
                }
                "*.py" | "py" | ".py" => {
                    assert!(
                        names.contains("app.py") && names.contains("models.py"),
                        "{what}"
                    );
                    assert!(!names.contains("index.ts"), "{what}");
                    let read = format!("file_glob {glob} read as {glob} or *.py");
                    assert_eq!(note, if glob == "*.py" { "" } else { &read }, "{what}");
                }
                _ => {
                    assert_eq!(names, "[]", "{what}");
                    let why = format!("no file matches file_glob {glob}");
                    assert!(note.contains(&why), "{what}");
                }
            }
        }
    }
}

#[tokio::test]
async fn what_is_not_there_names_the_closest_that_is() {
    let dir = project();
    let app = app(dir.path(), CLASSIC);
    for (path, wanted) in [
        ("src/ap.py", "did you mean src/app.py?"),
        ("src/App.py", "did you mean src/app.py?"),
        ("app.py", "did you mean src/app.py?"),
        ("sorce/app.py", "src/app.py"),
        ("srcs/deep/models.py", "src/deep/models.py"),
        ("web/index.js", "did you mean web/index.ts?"),
        ("models.py", "did you mean src/deep/models.py?"),
        (
            "src/nothing-like-it.zig",
            "list_dir path=src shows what is there",
        ),
    ] {
        let mut tools = 0;
        for tool in TOOLS {
            let Some(args) = naming(tool.name, path) else {
                continue;
            };
            let text = said(call(&app, Surface::Mcp, tool.name, args).await);
            assert!(text.contains(path), "{}: {text}", tool.name);
            assert!(text.contains(wanted), "{} {path}: {text}", tool.name);
            tools += 1;
        }
        assert!(tools > 12, "{tools}");
    }
    // Where a tool takes no lines, the path without them is named.
    let args = json!({"path": "src/app.py:3", "old_text": "a", "new_text": "b"});
    let text = said(call(&app, Surface::Mcp, "linux_fs_edit", args).await);
    assert!(
        text.contains("src/app.py is there; give the path without the line numbers"),
        "{text}"
    );
}

/// A call of a tool that needs the file or directory at this path.
fn naming(tool: &str, path: &str) -> Option<Value> {
    Some(match tool {
        "read_file" | "list_dir" | "stat" | "linux_fs_read" | "linux_fs_list" | "te_cat"
        | "te_ls" | "te_head" | "te_tail" | "repo_read" | "linux_fs_delete" => {
            json!({"path": path})
        }
        "linux_fs_edit" => json!({"path": path, "old_text": "a", "new_text": "b"}),
        "linux_fs_move" => json!({"source": path, "target": "elsewhere"}),
        "linux_search_files" | "linux_search_content" => json!({"root": path, "pattern": "x"}),
        "te_grep" | "te_find" => json!({"pattern": "x", "path": path}),
        _ => return None,
    })
}

#[tokio::test]
async fn the_wrong_kind_of_thing_says_which_call_fits() {
    let dir = project();
    for (mode, tool, args, wanted) in [
        (
            "classic",
            "read_file",
            json!({"path": "src"}),
            "list_dir path=src shows what is there",
        ),
        (
            "hybrid",
            "read_file",
            json!({"path": "src"}),
            "list_dir path=src shows what is there",
        ),
        (
            "te",
            "te_cat",
            json!({"path": "src"}),
            "te_ls path=src shows what is there",
        ),
        (
            "classic",
            "linux_fs_read",
            json!({"path": "src"}),
            "list_dir path=src",
        ),
        (
            "classic",
            "linux_fs_delete",
            json!({"path": "src"}),
            "recursive=true",
        ),
        (
            "classic",
            "linux_fs_write",
            json!({"path": "src", "content": "x"}),
            "name a file in that directory",
        ),
        (
            "classic",
            "list_dir",
            json!({"path": "notes.md"}),
            "read_file path=notes.md reads it",
        ),
        (
            "te",
            "te_ls",
            json!({"path": "notes.md/x"}),
            "te_cat path=notes.md shows it",
        ),
        (
            "classic",
            "linux_fs_delete",
            json!({"path": "."}),
            "a root is protected",
        ),
        (
            "classic",
            "linux_fs_delete",
            json!({"path": "."}),
            "a root itself stays; name something inside it",
        ),
    ] {
        let text = failed(&dir, &format!("[mcp]\nmode = \"{mode}\"\n"), tool, args).await;
        assert!(text.contains(wanted), "{mode} {tool}: {text}");
    }
}

#[tokio::test]
async fn unknown_tools_are_answered_with_the_one_that_does_the_same() {
    let dir = project();
    for mode in ["classic", "hybrid", "code_execution", "te"] {
        let app = app(dir.path(), &format!("[mcp]\nmode = \"{mode}\"\n"));
        for (surface, wanted) in [
            (Surface::Mcp, (mode != "te").then_some("read_file")),
            (Surface::Mcp, (mode == "te").then_some("te_cat")),
            (Surface::Http, Some("read_file")),
            (Surface::Cli, Some("read_file")),
            (Surface::Code, Some("read_file")),
        ] {
            let Some(wanted) = wanted else { continue };
            let error = call(&app, surface, "view_file", json!({}))
                .await
                .result
                .unwrap_err();
            assert_eq!(
                error.message,
                format!("Unknown tool: view_file; did you mean {wanted}?"),
                "{mode} {surface:?}"
            );
        }
    }
}

#[tokio::test]
async fn what_only_the_argument_type_refuses_is_named_too() {
    let dir = project();
    let app = app(dir.path(), CLASSIC);
    for (tool, args, wanted) in [
        (
            "rag_search",
            json!({"q": 5}),
            "q must be a string, not the number 5",
        ),
        (
            "linux_proc_stop",
            json!({"proc_id": "p_1", "signal": "NOPE"}),
            "signal: \"NOPE\" is no signal; give a name such as TERM, or a number",
        ),
        ("read_file", json!({}), "read_file: path is missing"),
        (
            "read_file",
            json!({"path": "a", "lines": 3}),
            "unknown argument lines; did you mean",
        ),
    ] {
        let text = said(call(&app, Surface::Mcp, tool, args).await);
        assert!(text.contains(wanted), "{tool}: {text}");
        assert!(text.contains(&format!("usage: {tool}(")), "{tool}: {text}");
    }
}

#[tokio::test]
async fn a_patch_in_either_form_changes_all_files_or_none() {
    let dir = project();
    let app = app(dir.path(), CLASSIC);
    let patch = "*** Begin Patch\n*** Update File: src/app.py\n@@ two\n-three\n+3\n four\n*** Add File: new/a.txt\n+hello\n\
                 *** Update File: notes.md\n*** Move to: docs/notes.md\n*** Delete File: odd:7\n*** End Patch\n";
    // The last file does not fit: nothing is changed.
    let broken = patch.replace(
        "*** End Patch",
        "*** Update File: web/index.ts\n-no such line\n+x\n*** End Patch",
    );
    let text = said(
        call(
            &app,
            Surface::Mcp,
            "repo_write_patch",
            json!({"patch": broken}),
        )
        .await,
    );
    assert!(
        text.contains("change 1 of 1 does not apply; expected these lines"),
        "{text}"
    );
    let read = |path: &str| std::fs::read_to_string(dir.path().join(path)).ok();
    assert_eq!(
        read("src/app.py").unwrap(),
        "one\ntwo\nthree\nfour\nfive\nsix\n"
    );
    assert_eq!((read("new/a.txt"), read("docs/notes.md")), (None, None));
    assert!(read("odd:7").is_some());

    let outcome = call(
        &app,
        Surface::Mcp,
        "repo_write_patch",
        json!({"patch": patch}),
    )
    .await;
    let text = outcome.text();
    assert!(outcome.result.is_ok(), "{text}");
    for line in [
        "modified src/app.py",
        "created new/a.txt",
        "renamed to docs/notes.md",
        "deleted odd:7",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert_eq!(
        read("src/app.py").unwrap(),
        "one\ntwo\n3\nfour\nfive\nsix\n"
    );
    assert_eq!(read("new/a.txt").unwrap(), "hello\n");
    assert_eq!(read("docs/notes.md").unwrap(), "# Notes\n");
    assert_eq!((read("odd:7"), read("notes.md")), (None, None));

    for (patch, wanted) in [
        ("nonsense", "line 1: no file is named"),
        (
            "--- a/x\n+++ b/x\n@@ nowhere @@\n-a\n+b\n",
            "line 3: a hunk begins with @@ -LINE,COUNT +LINE,COUNT @@",
        ),
        (
            "--- a/x\n+++ b/x\n@@ -1,3 +1,1 @@\n-a\n+b\n",
            "line 5: the hunk ends early",
        ),
        (
            "*** Begin Patch\n*** Update File: a\noops\n*** End Patch",
            "line 3: lines of a change start with",
        ),
    ] {
        let text = said(
            call(
                &app,
                Surface::Mcp,
                "repo_write_patch",
                json!({"patch": patch}),
            )
            .await,
        );
        assert!(text.contains(wanted), "{text}");
    }
}
