//! What `rlm_query` takes and answers, on every surface that has it.

use llmc_testkit::{ModelAction, ModelServer};
use serde_json::{Value, json};

use super::{alone, ask, client, code_of, fail, with_models};
use crate::keys;

fn final_server() -> ModelServer {
    ModelServer::start(|_| ModelAction::code("FINAL('found')"))
}

#[test]
fn a_success_has_data_and_meta_and_no_error() {
    let server = final_server();
    let workspace = with_models(&server, "");
    let answer = ask(&workspace);
    assert_eq!(keys(&answer), ["data", "meta"]);
    assert_eq!(
        keys(&answer["data"]),
        ["answer", "budget_summary", "session_id"]
    );
    assert_eq!(
        keys(&answer["meta"]),
        ["model_used", "source", "sub_model_used", "trace_included"]
    );
    let size = workspace.read("hay.txt").len();
    let source = json!({"type": "path", "path": "hay.txt", "bytes_read": size, "truncated": false});
    assert_eq!(answer["meta"]["source"], source);
    assert_eq!(answer["meta"]["model_used"], "ollama/lead");
    assert_eq!(answer["meta"]["trace_included"], false);
    let budget = &answer["data"]["budget_summary"];
    assert_eq!(
        keys(budget),
        [
            "by_model",
            "calls",
            "tokens_cached",
            "tokens_in",
            "tokens_out",
            "total_cost_usd",
            "turns"
        ]
    );
    assert_eq!(
        (
            &budget["calls"],
            &budget["turns"],
            &budget["total_cost_usd"]
        ),
        (&json!(1), &json!(1), &json!(0.0))
    );
    assert_eq!(budget["tokens_in"], server.requests()[0].tokens());
    let context = json!({"task": "?", "context": "some words"});
    let answer = client(&workspace).json("rlm_query", context);
    let source = json!({"type": "context", "bytes_read": 10, "truncated": false});
    assert_eq!(answer["meta"]["source"], source);
}

#[test]
fn an_error_has_a_message_a_code_and_whether_to_retry() {
    let server = final_server();
    let workspace = with_models(&server, "");
    let error = fail(&workspace, json!({"context": "both"}));
    assert_eq!(keys(&error), ["error", "meta"]);
    assert_eq!(code_of(&error), "invalid_args");
    assert_eq!(error["meta"]["retryable"], false);
    assert!(error["meta"]["correlation_id"].as_str().unwrap().len() >= 32);
}

#[test]
fn arguments_out_of_bounds_are_refused_before_anything_is_asked() {
    let server = final_server();
    let workspace = with_models(&server, "");
    let mut client = client(&workspace);
    let path = |more: Value| {
        let mut args = json!({"task": "?", "path": "hay.txt"});
        args.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        args
    };
    let cases = [
        json!({"path": "hay.txt"}),
        json!({"task": "?"}),
        json!({"task": "?", "path": "hay.txt", "context": "x"}),
        json!({"task": "", "path": "hay.txt"}),
        json!({"task": " \n", "path": "hay.txt"}),
        json!({"task": "x".repeat(5_001), "path": "hay.txt"}),
        json!({"task": 5, "path": "hay.txt"}),
        json!({"task": "?", "context": ""}),
        path(json!({"budget_usd": 0})),
        path(json!({"budget_usd": -1})),
        path(json!({"budget_usd": 0.009})),
        path(json!({"budget_usd": 1e9})),
        path(json!({"budget_usd": "NaN"})),
        path(json!({"max_turns": 0})),
        path(json!({"max_turns": 11})),
        path(json!({"max_turns": 2.5})),
        path(json!({"max_bytes": 0})),
        path(json!({"max_bytes": -5})),
        path(json!({"timeout_s": 0})),
        path(json!({"timeout_s": -1})),
        path(json!({"language": "cobol"})),
        path(json!({"file_path": "hay.txt"})),
        path(json!({"trace": "x"})),
    ];
    for args in cases {
        client.assert_code("rlm_query", args.clone(), "invalid_args");
    }
    // At the bounds it works.
    let most =
        json!({"task": "ä".repeat(5_000), "path": "hay.txt", "budget_usd": 0.01, "max_turns": 10});
    client.json("rlm_query", most);
    client.json(
        "rlm_query",
        path(json!({"budget_usd": 100, "max_turns": 1, "timeout_s": 60})),
    );
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn files_that_cannot_be_read_have_codes_of_their_own() {
    let server = final_server();
    let workspace = with_models(&server, "");
    workspace.write("binary.dat", b"\x7fELF\0\0\0\0text");
    workspace.write("empty.txt", "");
    workspace.write("latin.txt", b"caf\xe9 au lait");
    let mut client = client(&workspace);
    for (path, code) in [
        ("missing.txt", "file_not_found"),
        ("binary.dat", "invalid_args"),
        ("empty.txt", "invalid_args"),
        (".", "invalid_args"),
    ] {
        let args = json!({"task": "?", "path": path});
        client.assert_code("rlm_query", args, code);
    }
    let small = json!({"task": "?", "path": "hay.txt", "max_bytes": 100});
    let error = client.error("rlm_query", small);
    assert_eq!(code_of(&error), "file_too_large");
    assert!(
        error["meta"]["hint"]
            .as_str()
            .unwrap()
            .contains("max_bytes")
    );
    let context = json!({"task": "?", "context": "x".repeat(101), "max_bytes": 100});
    client.assert_code("rlm_query", context, "file_too_large");
    // The default is 262,144 bytes, for both.
    workspace.write("big.txt", "x".repeat(262_145));
    client.assert_code(
        "rlm_query",
        json!({"task": "?", "path": "big.txt"}),
        "file_too_large",
    );
    let context = json!({"task": "?", "context": "x".repeat(262_145)});
    client.assert_code("rlm_query", context, "file_too_large");
    // A file of no more bytes on disk than it needs for its size.
    let sparse = std::fs::File::create(workspace.path("sparse.txt")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    client.assert_code(
        "rlm_query",
        json!({"task": "?", "path": "sparse.txt", "max_bytes": 268_435_456}),
        "file_too_large",
    );
    assert_eq!(server.requests().len(), 0);
    workspace.write("fits.txt", "x".repeat(262_144));
    for args in [
        json!({"task": "?", "path": "fits.txt"}),
        json!({"task": "?", "context": "x".repeat(262_144)}),
    ] {
        let fits = client.json("rlm_query", args);
        assert_eq!(fits["meta"]["source"]["bytes_read"], 262_144);
    }
    assert_eq!(
        llmc_config::Config::default().mcp.rlm.default_timeout_s,
        300
    );
    let odd = client.json("rlm_query", json!({"task": "?", "path": "latin.txt"}));
    assert_eq!(odd["data"]["answer"], "found");
}

#[test]
fn a_file_that_changes_or_vanishes_under_the_reader_is_no_disaster() {
    let server = final_server();
    let workspace = with_models(&server, "");
    let mut client = client(&workspace);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let mut answers = Vec::new();
    std::thread::scope(|scope| {
        let path = workspace.path("moving.txt");
        let stop = &stop;
        scope.spawn(move || {
            let mut round = 0_usize;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                round += 1;
                if round.is_multiple_of(5) {
                    let _ = std::fs::remove_file(&path);
                } else {
                    std::fs::write(&path, "words\n".repeat(round % 7_000)).unwrap();
                }
            }
        });
        for _ in 0..30 {
            let args = json!({"task": "?", "path": "moving.txt"});
            answers.push(client.call_tool("rlm_query", args));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    for (failed, text) in answers {
        if failed {
            let (code, _) = text.split_once(':').unwrap_or((&text, ""));
            let expected = ["file_not_found", "internal_error", "invalid_args"];
            assert!(expected.contains(&code), "{text}");
        } else {
            serde_json::from_str::<Value>(&text).unwrap();
        }
    }
}

#[test]
fn it_is_listed_where_it_should_be() {
    let server = final_server();
    let workspace = with_models(&server, "");
    let listed = |flags: &[&str]| {
        let mut client = workspace.mcp(flags);
        client.initialize("2025-11-25");
        let tools = client.request("tools/list", json!({}));
        let tools = tools["result"]["tools"].as_array().unwrap().clone();
        tools.into_iter().find(|tool| tool["name"] == "rlm_query")
    };
    let tool = listed(&[]).expect("classic lists it");
    let properties = keys(&tool["inputSchema"]["properties"]);
    assert_eq!(
        properties,
        [
            "budget_usd",
            "context",
            "language",
            "max_bytes",
            "max_turns",
            "model",
            "path",
            "task",
            "timeout_s"
        ]
    );
    assert_eq!(tool["inputSchema"]["required"], json!(["task"]));
    assert!(listed(&["--mode", "hybrid"]).is_none());
    let promoted = [
        "--mode",
        "hybrid",
        "--set",
        "mcp.hybrid.promoted_tools=['rlm_query']",
    ];
    assert!(listed(&promoted).is_some());
    let mut client = workspace.mcp(promoted);
    client.initialize("2025-11-25");
    let answer = client.json("rlm_query", json!({"task": "?", "path": "hay.txt"}));
    assert_eq!(answer["data"]["answer"], "found");
    assert!(listed(&["--mode", "te"]).is_none());
    assert!(listed(&["--set", "mcp.rlm.enabled=false"]).is_none());
    let ended = workspace.llmc([
        "tool",
        "rlm_query",
        "--task",
        "?",
        "--path",
        "hay.txt",
        "--set",
        "mcp.rlm.enabled=false",
    ]);
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
}

#[test]
fn over_http_analysis_exists_only_if_configured() {
    let server = final_server();
    let workspace = with_models(&server, "");
    let args = json!({"task": "?", "path": "hay.txt"});
    let closed = workspace.serve::<&str>([]);
    let reply = closed.tool("rlm_query", args.clone());
    assert_eq!(reply.status, 403, "{}", reply.text());
    assert_eq!(reply.json()["error_code"], "egress_denied");
    assert_eq!(server.requests().len(), 0);
    let open = workspace.serve(["--set", "mcp.rlm.allow_http=true"]);
    let reply = open.tool("rlm_query", args);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let document = reply.json();
    assert_eq!(keys(&document), ["data", "meta"]);
    assert_eq!(document["data"]["answer"], "found");
    assert_eq!(document["meta"]["model_used"], "ollama/lead");
    assert!(document["meta"]["correlation_id"].is_string());
}

#[test]
fn progress_says_turn_tokens_cost_and_what_it_looks_at() {
    let server = alone(&["print(context_search('needle')['total'])", "FINAL('x')"]);
    let workspace = with_models(&server, "");
    let mut client = client(&workspace);
    let params = json!({
        "name": "rlm_query",
        "arguments": {"task": "?", "path": "hay.txt"},
        "_meta": {"progressToken": "p"},
    });
    let id = client.send_request("tools/call", params);
    let mut lines = Vec::new();
    loop {
        let message = client.next_message().expect("an answer");
        if message["id"] == json!(id) {
            break;
        }
        lines.push(
            message["params"]["message"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        );
    }
    assert!(
        lines.iter().any(|line| line
            .starts_with("rlm_query: turn 1/5, 0 calls, 0 tokens, $0.0000: asking ollama/lead")),
        "{lines:?}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("rlm_query: turn 1/5, 1 calls")
                && line.contains("context_search \"needle\"")),
        "{lines:?}"
    );
}

#[test]
fn the_audit_names_every_model_that_was_asked_and_every_refused_call() {
    let server = super::leading(
        &["parts = llm_query_batched(['a?', 'b?', 'c?', 'd?', 'e?'])\nFINAL(str(len(parts)))"],
        |_| ModelAction::Say("part".to_owned()),
    );
    let workspace = with_models(&server, "");
    let mut client = client(&workspace);
    client.json("rlm_query", json!({"task": "How many?", "path": "hay.txt"}));
    let calls = server.requests().len() as u64;
    client.error("rlm_query", json!({"path": "hay.txt"}));
    client.error("rlm_query", json!({"task": 5, "path": "hay.txt"}));
    client.error("rlm_query", json!({"task": "?", "no_such": 1}));
    let log = client.finish().stderr;
    let audit = workspace.read(".llmc/rlm_audit.csv");
    let mut reader = csv::Reader::from_reader(audit.as_bytes());
    let titles = reader.headers().unwrap().clone();
    let at = |name: &str| titles.iter().position(|title| title == name).unwrap();
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 4, "{audit}");
    assert_eq!(
        &rows[0][at("models")],
        "ollama/lead=1 ollama/part=5",
        "{audit}"
    );
    assert_eq!(&rows[0][at("model")], "ollama/lead");
    assert_eq!(rows[0][at("calls")], calls.to_string());
    assert_eq!(rows[0][at("cost_usd")].parse::<f64>().unwrap(), 0.0);
    for row in &rows[1..] {
        assert_eq!(
            (&row[at("error_code")], &row[at("calls")]),
            ("invalid_args", "0"),
            "{audit}"
        );
        assert_eq!(&row[at("models")], "", "{audit}");
        assert!(row[at("correlation_id")].len() >= 32, "{audit}");
        assert!(log.contains(&row[at("correlation_id")]), "{log}");
    }
    assert!(log.contains("ollama/lead=1 ollama/part=5"), "{log}");
}

#[test]
fn the_preview_is_as_long_as_configured_for_children_too() {
    for (preview, shown) in [("", true), ("preview_chars = 0\n", false)] {
        let server = super::leading(
            &["print(context_len)", "FINAL(rlm_query('part?', 0, 50000))"],
            |_| ModelAction::code("FINAL('child')"),
        );
        let workspace = with_models(&server, preview);
        ask(&workspace);
        let asked = server.requests();
        let first = asked.iter().find(|one| one.model() == "lead").unwrap();
        let child = asked
            .iter()
            .find(|one| one.model() == "part")
            .expect("a child");
        for one in [first, child] {
            assert_eq!(
                one.prompt().contains("of hay, nothing to see"),
                shown,
                "{}",
                one.prompt()
            );
        }
    }
}

#[test]
fn through_a_script_it_takes_its_own_time_and_keeps_its_meta() {
    // Twice as long as the script itself may compute.
    let server = ModelServer::start(|_| {
        std::thread::sleep(std::time::Duration::from_secs(2));
        ModelAction::code("FINAL('slow but sure')")
    });
    let workspace = with_models(&server, "");
    let mut client = workspace.mcp(["--mode", "hybrid", "--set", "mcp.code_execution.timeout=1"]);
    client.initialize("2025-11-25");
    let code = "r = tools.rlm_query(task='Where?', path='hay.txt')\n\
                print(r['answer'], r['meta']['model_used'], r['meta'].get('partial', False))\n\
                print(r['meta']['source']['path'])";
    let text = client.text("execute_code", json!({"code": code}));
    assert_eq!(text, "slow but sure ollama/lead False\nhay.txt");
    let help = client.text(
        "execute_code",
        json!({"code": "print(tools.help('rlm_query'))"}),
    );
    assert!(help.contains("meta") && help.contains("partial"), "{help}");
}

#[test]
fn a_path_may_name_lines() {
    let server = final_server();
    let workspace = with_models(&server, "");
    let mut client = client(&workspace);
    for path in ["hay.txt:2-3", "hay.txt#L2-L3"] {
        let answer = client.json("rlm_query", json!({"task": "?", "path": path}));
        let bytes = "line 1 of hay, nothing to see\nline 2 of hay, nothing to see\n".len();
        let source = json!({"type": "path", "path": "hay.txt", "lines": "2-3", "bytes_read": bytes, "truncated": false});
        assert_eq!(answer["meta"]["source"], source, "{path}");
    }
    client.assert_code(
        "rlm_query",
        json!({"task": "?", "path": "hay.txt:9000"}),
        "invalid_args",
    );
    workspace.write(".env", "SECRET=1\n");
    for path in [".env:1", "../hay.txt:1", "/etc/passwd:1"] {
        client.assert_code(
            "rlm_query",
            json!({"task": "?", "path": path}),
            "path_denied",
        );
    }
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn rows_end_with_their_time() {
    let server = ModelServer::start(|_| ModelAction::code("FINAL('done')"));
    let workspace = with_models(&server, "");
    let ask = |days: u32| {
        let kept = format!("mcp.observability.retention_days={days}");
        let mut client = workspace.mcp(["--set", &kept]);
        client.initialize("2025-11-25");
        client.json("rlm_query", json!({"task": "Is it?", "path": "hay.txt"}));
        client.finish();
    };
    let file = ".llmc/rlm_audit.csv";
    ask(0);
    let row = workspace.read(file).lines().last().unwrap().to_owned();
    let (_, rest) = row.split_once(',').unwrap();
    let aged = format!("{}2020-01-01T00:00:00Z,{rest}\n", workspace.read(file));
    std::fs::write(workspace.path(file), aged).unwrap();
    ask(0);
    assert_eq!(workspace.read(file).matches("2020-01-01").count(), 1);
    ask(30);
    let audit = workspace.read(file);
    assert_eq!(audit.matches("2020-01-01").count(), 0, "{audit}");
    assert_eq!(audit.lines().count(), 1 + 3, "{audit}");
}

#[test]
fn every_call_leaves_a_row_and_no_word_of_its_content() {
    let server = ModelServer::start(|asked| {
        if asked.prompt().contains("canary") {
            ModelAction::Status(400, "{\"error\":\"canary-echo\"}".into())
        } else {
            ModelAction::code("print(context_search('needle')['hits'])\nFINAL('the canary-answer')")
        }
    });
    let workspace = with_models(&server, "");
    let mut client = workspace.mcp(["--log-level", "debug"]);
    client.initialize("2025-11-25");
    client.json(
        "rlm_query",
        json!({"task": "Where is it?", "path": "hay.txt"}),
    );
    client.error(
        "rlm_query",
        json!({"task": "A canary-task?", "context": "a canary-context"}),
    );
    client.error(
        "rlm_query",
        json!({"task": "A canary-task?", "path": "missing"}),
    );
    let log = client.finish().stderr;
    let audit = workspace.read(".llmc/rlm_audit.csv");
    let rows: Vec<Vec<String>> = csv::Reader::from_reader(audit.as_bytes())
        .records()
        .map(|row| row.unwrap().iter().map(str::to_owned).collect())
        .collect();
    assert_eq!(rows.len(), 3, "{audit}");
    let column = |name: &str| {
        audit
            .lines()
            .next()
            .unwrap()
            .split(',')
            .position(|title| title == name)
            .unwrap()
    };
    let cell = |row: usize, name: &str| rows[row][column(name)].as_str();
    assert_eq!(
        cell(0, "bytes_read"),
        workspace.read("hay.txt").len().to_string()
    );
    assert_eq!(cell(0, "model"), "ollama/lead");
    assert_eq!(
        (cell(0, "calls"), cell(0, "turns"), cell(0, "error_code")),
        ("1", "1", "")
    );
    assert_eq!(
        cell(0, "tokens_in"),
        server.requests()[0].tokens().to_string()
    );
    assert!(cell(0, "duration_ms").parse::<f64>().unwrap() > 0.0);
    assert!(log.contains(cell(0, "correlation_id")), "{log}");
    assert_eq!(
        (cell(1, "error_code"), cell(2, "error_code")),
        ("provider_error", "file_not_found")
    );
    for place in [&log, &audit] {
        for word in ["canary", "Where is it", "needle", "of hay"] {
            assert!(!place.contains(word), "{word} in {place}");
        }
    }
    // Through SQLite: a row may be in the write-ahead log and not yet in the file.
    let telemetry = rusqlite::Connection::open(workspace.path(".llmc/te_telemetry.db")).unwrap();
    let mut query = telemetry
        .prepare("SELECT * FROM calls WHERE cmd = 'rlm_query'")
        .unwrap();
    let columns = query.column_count();
    let mut calls = query.query([]).unwrap();
    let mut seen = 0;
    while let Some(row) = calls.next().unwrap() {
        let cells = (0..columns).map(|column| format!("{:?}", row.get_ref(column).unwrap()));
        let cells: Vec<String> = cells.collect();
        // SQLite's text is shown as its bytes.
        let text = cells.join(" ");
        for word in ["canary", "Where is it", "needle", "of hay"] {
            let bytes = format!("{:?}", word.as_bytes());
            let bytes = bytes.trim_matches(['[', ']']);
            assert!(
                !text.contains(word) && !text.contains(bytes),
                "{word} in {text}"
            );
        }
        seen += 1;
    }
    assert_eq!(seen, 3, "every call has its row");
}
