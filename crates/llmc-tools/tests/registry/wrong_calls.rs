//! Wrong calls to every tool: each error says what to do next, names the argument, and uses no words of Rust.

use llmc_tools::{Effect, ErrorKind, Surface, ToolDef, catalog::TOOLS};
use serde_json::{Map, Value, json};

use super::{app, call};

const CLASSIC: &str = "[mcp]\nmode = \"classic\"\n";

/// Words that tell of the implementation and not of the call.
const RUST_WORDS: [&str; 14] = [
    "i64",
    "u64",
    "i32",
    "f64",
    "usize",
    "Option",
    "invalid type",
    "missing field",
    "untagged",
    "variant",
    "deserial",
    "os error",
    "Err(",
    "floating point",
];

/// Values that an argument of a type does not take, however leniently it is read.
fn wrong_values(kind: &str) -> Vec<Value> {
    match kind {
        "string" => vec![json!(5), json!(true), json!({"a": 1}), json!(["x", "y"])],
        "integer" => vec![
            json!("x"),
            json!("5x"),
            json!(1.5),
            json!(true),
            json!({"a": 1}),
            json!([1]),
        ],
        "number" => vec![json!("x"), json!(true), json!({"a": 1}), json!([1])],
        "boolean" => vec![json!("maybe"), json!(2), json!({"a": 1}), json!([true])],
        "array" => vec![
            json!(5),
            json!(true),
            json!({"a": 1}),
            json!([5]),
            json!([{}]),
        ],
        other => panic!("no wrong values for {other}"),
    }
}

/// The arguments that a tool cannot do without, right ones.
fn required(tool: &ToolDef) -> Map<String, Value> {
    let names = tool.schema().get("required").and_then(Value::as_array);
    let names = names.cloned().unwrap_or_default();
    let value = |name: &str| match tool.schema()["properties"][name]["type"].as_str() {
        Some("string") if ["path", "source", "a"].contains(&name) => json!("src/app.py"),
        Some("string") if name == "root" => json!("."),
        Some("string") => json!("word"),
        Some("array") => json!(["word"]),
        _ => json!(999_999_999),
    };
    names
        .iter()
        .filter_map(Value::as_str)
        .map(|name| (name.to_owned(), value(name)))
        .collect()
}

/// Calls of a tool that are wrong, with the argument that is.
fn wrong_calls(tool: &ToolDef) -> Vec<(String, Map<String, Value>)> {
    let right = required(tool);
    let with = |name: &str, value: Value| {
        let mut args = right.clone();
        args.insert(name.to_owned(), value);
        (name.to_owned(), args)
    };
    let mut calls = vec![with("no_such_argument", json!(1))];
    for name in right.keys() {
        let mut args = right.clone();
        args.remove(name);
        calls.push((name.clone(), args));
    }
    for (name, schema) in tool.schema()["properties"].as_object().unwrap() {
        let kind = schema["type"].as_str().unwrap();
        let values = wrong_values(kind).into_iter();
        // A command as a list of words is right.
        let wrong = values.filter(|value| name != "command" || !value.is_array());
        calls.extend(wrong.map(|value| with(name, value)));
        let values: &[&str] = match name.as_str() {
            "pattern" if tool.name != "linux_search_files" && tool.name != "te_find" => {
                &["(", "[", "*", "\\", "a{99999999}", "[z-a]", ""]
            }
            "file_glob" => &["[", "{a", "\\"],
            "until" => &["(", "[", "*"],
            "expected_sha256" => &["xyz", "1234"],
            "patch" => &[
                "",
                "nope",
                "--- a/x\n+++ b/x\n",
                "@@ -1 +1 @@\n-a\n+b\n",
                "*** Begin Patch\n*** Update File: x\n",
            ],
            "signal" => &["NOPE", "99"],
            "scope" | "direction" | "mode" => &["nope"],
            _ => &[],
        };
        calls.extend(values.iter().map(|value| with(name, json!(value))));
        if kind == "integer" && name != "pid" {
            calls.push(with(name, json!(-1_000_000_000_000_i64)));
        }
    }
    calls
}

#[tokio::test]
async fn every_wrong_argument_is_named_with_a_hint_in_plain_words() {
    let dir = super::errors::project();
    let app = app(dir.path(), CLASSIC);
    let mut refused = 0;
    for tool in TOOLS {
        for (name, args) in wrong_calls(tool) {
            let shown = format!("{} {}", tool.name, Value::from(args.clone()));
            let outcome = call(&app, Surface::Mcp, tool.name, args.into()).await;
            let text = outcome.text();
            // Some take more than their schema says, or do without.
            let Err(error) = outcome.result else { continue };
            refused += 1;
            assert!(error.hint.is_some(), "no hint: {shown}: {text}");
            for word in RUST_WORDS {
                assert!(!text.contains(word), "{word:?}: {shown}: {text}");
            }
            let is_about_arguments =
                [ErrorKind::BadArgs, ErrorKind::BadPattern].contains(&error.kind);
            assert!(
                !is_about_arguments || text.contains(&name),
                "{name} is not named: {shown}: {text}"
            );
        }
    }
    assert!(refused > 500, "{refused}");
}

#[tokio::test]
async fn every_wrong_path_has_a_hint() {
    let dir = super::errors::project();
    let app = app(dir.path(), CLASSIC);
    std::os::unix::fs::symlink("/etc", dir.path().join("out")).unwrap();
    std::os::unix::fs::symlink("nowhere", dir.path().join("dangling")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.path().join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let long = "x".repeat(5000);
    let paths = [
        "src/app.p",
        "src/App.py",
        "srcs/app.py",
        "app.py",
        "src/app.py/",
        "src/app.py/x",
        "nope/nope",
        "src",
        ".",
        "/etc/passwd",
        "../x",
        " ",
        "src/app.py:99",
        "src/app.py#L99-L100",
        "src/app.py:5-2",
        "src/app.py::nope",
        "src\\app.py",
        "a\0b",
        ".llmc/token",
        "/proc/self/environ",
        "/dev/null",
        "src/**/*.py",
        "out",
        "out/passwd",
        "dangling",
        "pipe",
        &long,
    ];
    let mut refused = 0;
    for tool in TOOLS.iter().filter(|tool| tool.effect == Effect::Reads) {
        let named = ["path", "root", "a", "b"];
        let properties = tool.schema()["properties"].as_object().unwrap();
        for name in named
            .into_iter()
            .filter(|name| properties.contains_key(*name))
        {
            for path in paths {
                let mut args = required(tool);
                if tool.name == "te_diff" {
                    // Alone, the first is compared by git, which this process cannot start.
                    args.insert("b".to_owned(), json!("notes.md"));
                }
                args.insert(name.to_owned(), json!(path));
                let outcome = call(&app, Surface::Mcp, tool.name, args.into()).await;
                let text = outcome.text();
                let Err(error) = outcome.result else { continue };
                refused += 1;
                assert!(
                    error.hint.is_some(),
                    "{} {name}={path:?}: {text}",
                    tool.name
                );
                for word in RUST_WORDS {
                    assert!(
                        !text.contains(word),
                        "{} {name}={path:?}: {word:?}: {text}",
                        tool.name
                    );
                }
            }
        }
    }
    assert!(refused > 200, "{refused}");
}
