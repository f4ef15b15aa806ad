//! `llmc rlm query`.

use llmc_testkit::{ModelAction, ModelServer, TestProcess};
use serde_json::Value;

use super::{alone, leading, with_models};

const QUERY: [&str; 5] = ["rlm", "query", "Where is the needle?", "--file", "hay.txt"];

#[test]
fn the_answer_goes_to_standard_output_and_the_rest_to_standard_error() {
    let server = alone(&[
        "print(context_search('needle')['total'])",
        "FINAL('line 1235')",
    ]);
    let workspace = with_models(&server, "");
    let ended = workspace.llmc(QUERY.into_iter().chain(["--progress"]));
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(0), "line 1235\n")
    );
    assert!(
        ended.stderr.contains("turn 1/5, 1 calls"),
        "{}",
        ended.stderr
    );
    assert!(
        ended.stderr.contains("context_search \"needle\""),
        "{}",
        ended.stderr
    );
    assert!(
        ended.stderr.contains("ollama/lead, 2 turns, 2 calls"),
        "{}",
        ended.stderr
    );
    let ended = workspace.llmc(QUERY.into_iter().chain(["--json"]));
    let document: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(document["data"]["answer"], "line 1235");
    assert_eq!(ended.stderr, "");
}

#[test]
fn paths_are_relative_to_the_shells_directory() {
    let server = ModelServer::start(|asked| {
        let named = asked.prompt().contains("(sub/deep.txt)");
        ModelAction::code(&format!("FINAL('{named} ' + context_slice(0, 4))"))
    });
    let workspace = with_models(&server, "");
    workspace.write("sub/deep.txt", "deep words");
    let mut command = workspace.command();
    command.current_dir(workspace.path("sub"));
    let root = workspace.root();
    command.args([
        "--root",
        root.to_str().unwrap(),
        "rlm",
        "query",
        "?",
        "--file",
        "deep.txt",
    ]);
    let ended = TestProcess::start(command).finish();
    assert_eq!(ended.stdout, "true deep\n", "{}", ended.stderr);
    let mut command = workspace.command();
    command.args(["rlm", "query", "?", "--file", "-"]);
    let mut process = TestProcess::start(command);
    process.write(b"piped words");
    let ended = process.finish();
    assert_eq!(ended.stdout, "false pipe\n", "{}", ended.stderr);
}

#[test]
fn flags_bound_the_query_and_exit_codes_tell_its_end() {
    let server = ModelServer::start(|asked| match asked.model() {
        "other" => ModelAction::code("FINAL('other')"),
        _ => ModelAction::Say("no code".into()),
    });
    let workspace = with_models(&server, "");
    let run = |more: &[&str]| workspace.llmc(QUERY.iter().chain(more));
    assert_eq!(run(&["--model", "ollama/other"]).stdout, "other\n");
    let ended = run(&["--max-turns", "1"]);
    assert_eq!(ended.code, Some(7), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("spent: 1 turns, 1 calls"),
        "{}",
        ended.stderr
    );
    for (flags, code) in [
        (&["--model", "openai/gpt-5"][..], 4),
        (&["--model", "ollama/../openai/x"], 4),
        (&["--max-turns", "0"], 2),
        (&["--max-turns", "11"], 2),
        (&["--budget-usd", "0"], 2),
        (&["--budget-usd", "-1"], 2),
        (&["--budget-usd", "NaN"], 2),
        (&["--budget-usd", "inf"], 2),
        (&["--budget-usd", "1e9"], 2),
        (&["--max-bytes", "10"], 7),
        (&["--trace", "no/such/folder/x"], 74),
        (&["--replay", "missing.jsonl"], 3),
        (&["--replay", "hay.txt"], 2),
        (&["--replay", "x", "--trace", "y"], 2),
        (&["--redact"], 2),
    ] {
        let ended = run(flags);
        assert_eq!(ended.code, Some(code), "{flags:?}: {}", ended.stderr);
    }
    let ended = workspace.llmc(["rlm", "query", "?", "--file", "missing.txt", "--json"]);
    assert_eq!(ended.code, Some(3));
    let error: Value = serde_json::from_str(&ended.stderr).unwrap();
    assert_eq!(error["meta"]["error_code"], "file_not_found");
    let dead = ModelServer::start(|_| ModelAction::Status(401, "{}".into()));
    let workspace = with_models(&dead, "");
    assert_eq!(workspace.llmc(QUERY).code, Some(9));
}

#[test]
fn an_interrupt_stops_spending_at_once() {
    let server = leading(&["llm_query_batched(['p'] * 30)"], |_| ModelAction::Hang);
    let workspace = with_models(&server, "");
    let mut command = workspace.command();
    command.args(QUERY);
    let process = TestProcess::start(command);
    server.wait_for(9);
    process.signal(rustix::process::Signal::INT);
    let ended = process.wait();
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    server.wait_for_hang_ups(8);
    assert_eq!(server.requests().len(), 9);
}

#[test]
fn a_trace_replays_to_the_same_end_without_a_provider() {
    let server = leading(
        &[
            "print(llm_query_batched(['same', 'same', 'fails', 'other'], [[0, 9], [0, 9], [0, 9], [9, 20]]))",
            "FINAL({'n': context_search('needle')['total'], 'child': rlm_query('sum up', 0, 3000)})",
        ],
        |asked| {
            if asked.system().contains("FINAL") {
                return ModelAction::code("FINAL('child of ' + str(context_len))");
            }
            match asked.prompt() {
                prompt if prompt.starts_with("fails") => ModelAction::Status(400, "{}".into()),
                _ => ModelAction::Say(format!("answer {}", asked.number)),
            }
        },
    );
    let workspace = with_models(&server, "");
    let traced = workspace.llmc(QUERY.into_iter().chain(["--json", "--trace", "run.jsonl"]));
    assert_eq!(traced.code, Some(0), "{}", traced.stderr);
    let redacted = workspace.llmc(QUERY.into_iter().chain([
        "--json",
        "--trace",
        "redacted.jsonl",
        "--redact",
    ]));
    assert_eq!(redacted.code, Some(0), "{}", redacted.stderr);
    let asked = server.requests().len();
    drop(server);
    let replay = |trace: &str, more: &[&str]| {
        workspace.llmc(
            QUERY
                .iter()
                .copied()
                .chain(["--json", "--replay", trace])
                .chain(more.iter().copied()),
        )
    };
    let replayed = replay("run.jsonl", &[]);
    assert_eq!(replayed.code, Some(0), "{}", replayed.stderr);
    let without_id = |text: &str| {
        let mut document: Value = serde_json::from_str(text).unwrap();
        document["data"]
            .as_object_mut()
            .unwrap()
            .shift_remove("session_id")
            .unwrap();
        document
    };
    let first = without_id(&traced.stdout);
    assert_eq!(first, without_id(&replayed.stdout));
    assert_eq!(first["data"]["structured"]["child"], "child of 3000");
    assert_eq!(
        first["data"]["budget_summary"]["calls"].as_u64().unwrap() as usize + 1,
        asked / 2
    );
    // Readable by its owner only, and nothing in it when it is redacted.
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(workspace.path("run.jsonl"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = workspace.read("redacted.jsonl");
    for word in ["needle", "of hay", "answer ", "context_search", "sum up"] {
        assert!(workspace.read("run.jsonl").contains(word), "{word}");
        assert!(!text.contains(word), "{word}");
    }
    for (trace, change, word) in [
        ("redacted.jsonl", None, "redacted"),
        ("run.jsonl", Some("other words"), "the text has changed"),
    ] {
        if let Some(change) = change {
            workspace.write("hay.txt", change);
        }
        let refused = replay(trace, &[]);
        assert_eq!(refused.code, Some(2), "{trace}");
        assert!(refused.stderr.contains(word), "{}", refused.stderr);
    }
    let other = workspace.llmc([
        "rlm",
        "query",
        "Else?",
        "--file",
        "hay.txt",
        "--replay",
        "run.jsonl",
    ]);
    assert!(other.stderr.contains("another task"), "{}", other.stderr);
}
