//! Recorded answers of every tool on one fixture workspace: over MCP in every mode, over REST, and on the command line.
//!
//! `tests/goldens/calls.txt` lists the calls, one a line: the tool's name and its arguments as JSON. Each surface's
//! answers stand in a file of their own beside it. Run with `UPDATE_GOLDENS=1` to record them anew after an intended
//! change; `git diff` then shows what the change does to what a model reads.

use std::fmt::Write as _;
use std::path::PathBuf;

use llmc_testkit::{TestProcess, TestWorkspace};
use serde_json::{Value, json};

use crate::workspace;

/// Enough for every kind of answer: code with callers and tests, a log, tables, long lines, ignored and hidden files.
fn fixture() -> TestWorkspace {
    let workspace = workspace(include_str!("../goldens/fixture.txt"));
    let mut log = String::new();
    for n in 0..400 {
        let level = if n % 90 == 65 { "ERROR" } else { "INFO" };
        let _ = writeln!(
            log,
            "2026-01-02T03:{:02}:{:02}Z {level} worker {} handled request {n}",
            n / 60 % 60,
            n % 60,
            n % 7
        );
    }
    workspace.write("logs/app.log", log);
    let rows: String = (0..900)
        .map(|n| format!("{n},name{n},{}\n", n * n))
        .collect();
    workspace.write("data/rows.csv", format!("id,name,square\n{rows}"));
    workspace.write(
        "data/wide.txt",
        format!("needle {}\nshort needle\n", "x".repeat(9000)),
    );
    workspace.write("data/blob.bin", [0_u8, 159, 146, 150, 0, 1, 2]);
    let git = |args: &[&str]| {
        let mut command = workspace.command_of("git");
        command
            .args([
                "-c",
                "user.name=A",
                "-c",
                "user.email=a@example.com",
                "-c",
                "init.defaultBranch=main",
            ])
            .args(args)
            .env("GIT_AUTHOR_DATE", "2026-01-02T03:04:05Z")
            .env("GIT_COMMITTER_DATE", "2026-01-02T03:04:05Z");
        let done = TestProcess::start(command).finish();
        assert!(done.code == Some(0), "git {args:?}: {}", done.stderr);
    };
    git(&["init", "-q"]);
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", "Start"]);
    workspace.write(
        "src/shop/cart.py",
        workspace
            .read("src/shop/cart.py")
            .replace("total = 0", "total = 0.0"),
    );
    // Listings put the newest first, and the index is built before the first call: both are the same in every run.
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_767_323_045);
    for path in workspace.tree() {
        let path = workspace.path(path);
        if path.is_file() {
            std::fs::File::open(path)
                .unwrap()
                .set_modified(time)
                .unwrap();
        }
    }
    let indexed = workspace.llmc(["rag", "index"]);
    assert_eq!(indexed.code, Some(0), "{}", indexed.stderr);
    workspace
}

fn calls() -> Vec<(String, Value)> {
    include_str!("../goldens/calls.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (name, args) = line.split_once(' ').unwrap_or((line, "{}"));
            let args = serde_json::from_str(args).unwrap_or_else(|error| panic!("{line}: {error}"));
            (name.to_owned(), args)
        })
        .collect()
}

/// Replaces what differs between two runs on the same files.
fn normalised(workspace: &TestWorkspace, text: &str) -> String {
    let mut text = text.replace(&*workspace.base().to_string_lossy(), "<BASE>");
    for (pattern, with) in [
        (r"res_[0-9A-HJKMNP-TV-Z]{26}", "res_<ULID>"),
        (
            r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            "<UUID>",
        ),
        (r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<TIME>"),
        (r#""mtime":\d+"#, r#""mtime":<N>"#),
        (
            r#""(pid|cpu_count|uptime_s|mem_total_bytes|mem_available_bytes|total_bytes|free_bytes|p50|p95|p99|max|latency_ms|duration_ms|score|index_bytes|bytes)":[\d.]+"#,
            r#""$1":<N>"#,
        ),
        (r#","index_progress":\{[^}]*\}"#, ""),
        (r#""load":\[[\d., ]*\]"#, r#""load":<N>"#),
        (r"p_[0-9A-HJKMNP-TV-Z]{26}", "p_<ULID>"),
        (r"\bin \d+\.\d+s\b", "in <S>s"),
        (r" \(pytest is not installed\)", ""),
        (r"programs found: .*", "programs found: <LIST>"),
        (r"\d+\.\d+ ?m?s\b", "<DURATION>"),
        (r#"(#L\d+-L\d+) \d\.\d\d"#, "$1 <SCORE>"),
    ] {
        text = regex::Regex::new(pattern)
            .unwrap()
            .replace_all(&text, with)
            .into_owned();
    }
    text
}

fn compare(name: &str, recorded: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/goldens")
        .join(name);
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(&path, recorded).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    if expected == recorded {
        return;
    }
    let differs = expected
        .lines()
        .zip(recorded.lines())
        .position(|(a, b)| a != b);
    let at = differs.unwrap_or_else(|| expected.lines().count().min(recorded.lines().count()));
    let around = |text: &str| {
        text.lines()
            .skip(at.saturating_sub(3))
            .take(8)
            .collect::<Vec<_>>()
            .join("\n")
    };
    panic!(
        "{name} differs from line {}:\n--- recorded\n{}\n--- now\n{}\nif the change is intended: UPDATE_GOLDENS=1",
        at + 1,
        around(&expected),
        around(recorded)
    );
}

fn over_mcp(mode: &str) {
    let workspace = fixture();
    let mut client = workspace.mcp(["--mode", mode, "--set", "mcp.te.budget_tokens=600"]);
    let hello = client.initialize("2025-11-25");
    let mut out = format!(
        "== instructions\n{}\n",
        hello["instructions"].as_str().unwrap_or_default()
    );
    let list = client.request("tools/list", json!({}));
    let tools = list["result"]["tools"].as_array().unwrap().clone();
    for tool in &tools {
        let _ = writeln!(
            out,
            "== list {}",
            json!({"name": tool["name"], "description": tool["description"], "inputSchema": tool["inputSchema"]})
        );
    }
    for (name, args) in calls() {
        let _ = writeln!(out, "== {name} {args}");
        let answer = client.request("tools/call", json!({"name": name, "arguments": args}));
        let text = match answer.get("error") {
            Some(error) => format!("protocol error {} {}", error["code"], error["message"]),
            None => {
                let result = &answer["result"];
                let failed = if result["isError"] == true {
                    "isError\n"
                } else {
                    ""
                };
                let content = result["content"].as_array().unwrap();
                let texts: Vec<&str> = content
                    .iter()
                    .filter_map(|part| part["text"].as_str())
                    .collect();
                format!("{failed}{}", texts.join("\n"))
            }
        };
        let _ = writeln!(out, "{}", normalised(&workspace, &text));
    }
    compare(&format!("mcp-{mode}.txt"), &out);
}

#[test]
fn classic_mode_answers_as_recorded() {
    over_mcp("classic");
}

#[test]
fn hybrid_mode_answers_as_recorded() {
    over_mcp("hybrid");
}

#[test]
fn te_mode_answers_as_recorded() {
    over_mcp("te");
}

#[test]
fn code_execution_mode_answers_as_recorded() {
    over_mcp("code_execution");
}

#[test]
fn rest_answers_as_recorded() {
    let workspace = fixture();
    let server = workspace.serve(["--set", "mcp.te.budget_tokens=600"]);
    let mut out = String::new();
    for (name, args) in calls() {
        let reply = server.tool(&name, args.clone());
        let _ = writeln!(
            out,
            "== {name} {args}\n{} {}",
            reply.status,
            normalised(&workspace, &reply.text())
        );
    }
    compare("rest.txt", &out);
}

#[test]
fn the_command_line_answers_as_recorded() {
    let workspace = fixture();
    let mut out = String::new();
    for (name, args) in calls() {
        let done = workspace.llmc([
            "tool",
            &name,
            "--args",
            &args.to_string(),
            "--set",
            "mcp.te.budget_tokens=600",
            "--log-level",
            "error",
        ]);
        let _ = writeln!(
            out,
            "== {name} {args}\nexit {:?}\n{}{}",
            done.code,
            normalised(&workspace, &done.stdout),
            normalised(&workspace, &done.stderr)
        );
    }
    compare("cli.txt", &out);
}
