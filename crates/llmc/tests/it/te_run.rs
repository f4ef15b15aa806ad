//! Commands through the Tool Envelope: condensed by the server, or by a `te` that the operator configured.

use std::os::unix::fs::PermissionsExt;

use llmc_envelope::te::parse;
use llmc_testkit::{McpClient, TestWorkspace, error_document};
use serde_json::{Value, json};

use crate::{classic, workspace};

fn server(workspace: &TestWorkspace, sets: &[&str]) -> McpClient {
    let mut flags = vec!["--mode", "classic"];
    for set in sets {
        flags.extend(["--set", set]);
    }
    let mut client = workspace.mcp(flags);
    client.initialize("2025-11-25");
    client
}

fn script(workspace: &TestWorkspace, path: &str, text: &str) {
    workspace.write(path, text);
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(workspace.path(path), mode).unwrap();
}

/// A `te` of the operator's that says how it was started.
const FOREIGN: &str = r#"#!/bin/sh
[ "$1" = --json ] && shift
out=$("$@" 2>&1); code=$?
printf '{"success":true,"mode":"enriched","command":"x","stdout":"foreign %s %s %s: %s\\n","stderr":"","exit_code":%d,"enrichment":null,"telemetry":{}}' \
  "$TE_AGENT_ID" "${TE_SESSION_ID:+session}" "$TE_MODEL" "$out" "$code"
"#;

#[test]
fn te_run_answers_in_an_envelope_with_the_exit_status() {
    let workspace = workspace("//- a.txt\none\ntwo\n");
    let mut client = classic(&workspace);
    let text = client.text("te_run", json!({"command": "cat a.txt"}));
    assert_eq!(text, "one\ntwo\n", "a whole answer is its body alone");
    let text = client.text("te_run", json!({"argv": ["sh", "-c", "echo x; exit 3"]}));
    assert_eq!(text, "x\nexit 3\n");
    let (failed, text) = client.call_tool("te_run", json!({"argv": ["no-such-program"]}));
    assert!(failed);
    assert_eq!(
        parse(&text).unwrap().header.error.as_deref(),
        Some("command_denied")
    );
    // The envelope's own name is always known, and what it runs is what the list decides on.
    let text = client.text("run_cmd", json!({"command": "te cat a.txt"}));
    assert_eq!(parse(&text).unwrap().body, "one\ntwo\n");
    let (failed, text) = client.call_tool("run_cmd", json!({"command": "te no-such-program x"}));
    assert!(failed);
    assert_eq!(
        error_document(&text)["meta"]["error_code"],
        "COMMAND_DENIED"
    );
    let text = client.text("run_cmd", json!({"command": "te --json grep -c two a.txt"}));
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&document["success"], &document["exit_code"]),
        (&json!(true), &json!(0))
    );
}

/// A log of so many lines, one of them an error.
fn log_with_one_error(lines: u32, error: u32) -> String {
    let line = |n: u32| match n == error {
        true => format!("2026-11-16T06:00:00Z ERROR db: connection lost at request {n}\n"),
        false => format!(
            "2026-11-16T06:00:00Z INFO http: request {n} served from the cache in {} ms, as expected\n",
            n % 90
        ),
    };
    (1..=lines).map(line).collect()
}

#[test]
fn one_error_in_a_long_log_is_counted_and_shown_however_it_is_read() {
    let workspace = workspace("//- a.txt\n");
    // The first is held in memory, the second is not.
    for lines in [60_000, 120_000] {
        let error = lines / 3 * 2 + 1;
        workspace.write("app.log", log_with_one_error(lines, error));
        let mut client = classic(&workspace);
        for (tool, args) in [
            ("te_cat", json!({"path": "app.log"})),
            ("run_cmd", json!({"command": "cat app.log"})),
            ("run_cmd", json!({"argv": ["sh", "-c", "cat app.log"]})),
            ("run_cmd", json!({"argv": ["sh", "-c", "cat app.log >&2"]})),
        ] {
            let text = client.text(tool, args.clone());
            let answer = parse(&text).unwrap_or_else(|| panic!("no envelope: {text}"));
            let thousands = |n: u32| format!("{},{:03}", n / 1000, n % 1000);
            let counts = format!(
                "{} lines: 1 ERROR, {} INFO\nerrors (1 line, 1 kind):\n{}: 2026-11-16T06:00:00Z ERROR db: connection lost",
                thousands(lines),
                thousands(lines - 1),
                thousands(error)
            );
            assert!(
                answer.body.starts_with(&counts),
                "{tool} {args}: {}",
                answer.body
            );
            assert_eq!(answer.header.lines, Some(u64::from(lines)), "{tool} {args}");
        }
    }
}

#[test]
fn handles_are_reached_through_run_cmd_and_chunks_are_bounded() {
    let workspace = workspace("//- a.txt\n");
    let mut client = classic(&workspace);
    let text = client.text("run_cmd", json!({"argv": ["sh", "-c", "seq 30000"]}));
    let answer = parse(&text).expect("an envelope");
    assert_eq!(answer.header.lines, Some(30000));
    let handle = answer.header.handle.unwrap();
    let text = client.text(
        "run_cmd",
        json!({"command": format!("te --handle {handle} --chunk 1")}),
    );
    let chunk = parse(&text).expect("an envelope");
    assert_eq!(
        (chunk.header.cmd.as_str(), chunk.header.chunk),
        ("handle", Some(1))
    );
    assert!(
        llmc_tokens::count(&text) < 2200,
        "{}",
        llmc_tokens::count(&text)
    );
    let (failed, text) = client.call_tool(
        "run_cmd",
        json!({"command": format!("te --handle {handle} --chunk 99999")}),
    );
    assert!(failed && text.contains("chunks are 0 to"), "{text}");
    let listed = client.text("run_cmd", json!({"command": "te --list-handles"}));
    assert!(listed.contains(&handle.to_string()), "{listed}");
}

#[test]
fn an_operators_te_is_gated_confined_and_given_the_caller() {
    let workspace = workspace("//- a.txt\none\n");
    script(&workspace, "scripts/te", FOREIGN);
    let mut client = server(&workspace, &["mcp.te.script_path=\"scripts/te\""]);
    let text = client.text("run_cmd", json!({"command": "cat a.txt"}));
    assert_eq!(text, "foreign testkit session unknown: one\n");
    let text = client.text("te_run", json!({"command": "cat a.txt"}));
    assert!(
        text.contains("foreign testkit session unknown: one\n"),
        "{text}"
    );
    // The caller of each request, not of the server.
    script(
        &workspace,
        "scripts/who",
        "#!/bin/sh\necho \"$TE_AGENT_ID/$TE_SESSION_ID/$TE_MODEL\"\n",
    );
    let who = [
        "mcp.te.script_path=\"scripts/who\"",
        "mcp.te.json_mode=false",
    ];
    let mut asked = server(&workspace, &who);
    for (tool, agent) in [("te_run", "ann"), ("run_cmd", "bob")] {
        let meta = json!({"llmc/agentId": agent, "llmc/sessionId": "s-7", "llmc/model": "opus"});
        let params = json!({"name": tool, "arguments": {"command": "cat a.txt"}, "_meta": meta});
        let answer = asked.request("tools/call", params);
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(
            text.contains(&format!("{agent}/s-7/opus")),
            "{tool}: {text}"
        );
    }
    // The list decides on what it would run, before it runs.
    let (failed, text) = client.call_tool("run_cmd", json!({"argv": ["no-such-program"]}));
    assert!(failed);
    assert_eq!(
        error_document(&text)["meta"]["error_code"],
        "COMMAND_DENIED"
    );
    let outside = workspace.outside("planted").display().to_string();
    client.text(
        "run_cmd",
        json!({"argv": ["sh", "-c", format!("echo x > '{outside}'")]}),
    );
    workspace.assert_outside_untouched();
    // Nothing that the agent can do changes the script.
    let (failed, _) = client.call_tool(
        "linux_fs_write",
        json!({"path": "scripts/te", "content": "#!/bin/sh\n", "mode": "rewrite"}),
    );
    assert!(failed);
    client.text(
        "run_cmd",
        json!({"argv": ["sh", "-c", "echo '#!/bin/sh' > scripts/te; rm -f scripts/te"]}),
    );
    assert_eq!(workspace.read("scripts/te"), FOREIGN);
    let text = client.text("run_cmd", json!({"argv": ["sh", "-c", "seq -s, 20000"]}));
    let answer = parse(&text).expect("what is too much is put into an envelope by the server");
    let handle = answer.header.handle.unwrap().to_string();
    let page = client.json(
        "linux_handle_read",
        json!({"handle": handle, "limit": 100_000}),
    );
    assert!(
        page["data"]
            .as_str()
            .unwrap()
            .starts_with("foreign testkit"),
        "{page}"
    );
}

#[test]
fn what_an_operators_te_says_about_its_output_is_kept() {
    let workspace = workspace("//- a.txt\none\n");
    let enrichment =
        json!({"match_count": 47, "truncated": true, "handle": "theirs_7", "hot_zone": "src/"});
    let answer = format!(
        r#"{{"success":true,"mode":"enriched","command":"x","stdout":"ranked\n","stderr":"","exit_code":0,"enrichment":{enrichment},"telemetry":{{}}}}"#
    );
    workspace.write("answer.json", &answer);
    script(&workspace, "scripts/te", "#!/bin/sh\ncat answer.json\n");
    let set = "mcp.te.script_path=\"scripts/te\"";
    let mut client = server(&workspace, &[set]);
    for tool in ["run_cmd", "te_run"] {
        let text = client.text(tool, json!({"command": "grep x a.txt"}));
        assert!(text.contains("ranked"), "{tool}: {text}");
        assert!(
            text.contains("\"match_count\":47") && text.contains("\"hot_zone\":\"src/\""),
            "{tool}: {text}"
        );
    }
    let text = client.text("run_cmd", json!({"command": "te --json grep x a.txt"}));
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["enrichment"], enrichment, "{document}");
    assert_eq!(document["mode"], "enriched");
    let server = workspace.serve(["--mode", "classic", "--set", set]);
    let body = server
        .tool("run_cmd", json!({"command": "grep x a.txt"}))
        .ok();
    assert_eq!(body["data"]["stdout"], "ranked\n", "{body}");
    assert_eq!(body["meta"]["enrichment"], enrichment, "{body}");
    assert_eq!(body["meta"]["truncated"], true, "{body}");
}

#[test]
fn a_failing_te_is_bypassed_only_if_configured() {
    let workspace = workspace("//- a.txt\none\n");
    script(&workspace, "broken", "#!/bin/sh\necho no json\nexit 1\n");
    for path in ["broken", "missing", "a.txt"] {
        let set = format!("mcp.te.script_path={path:?}");
        let mut client = server(&workspace, &[&set]);
        assert_eq!(
            client.text("run_cmd", json!({"command": "cat a.txt"})),
            "one\n",
            "{path}"
        );
        // The way round has the same gate.
        let (failed, text) = client.call_tool("run_cmd", json!({"argv": ["no-such-program"]}));
        assert!(failed && text.contains("COMMAND_DENIED"), "{path}: {text}");
        let mut client = server(&workspace, &[&set, "mcp.te.passthrough_on_failure=false"]);
        let (failed, text) = client.call_tool("run_cmd", json!({"command": "cat a.txt"}));
        assert!(
            failed && text.contains("passthrough_on_failure"),
            "{path}: {text}"
        );
    }
    // Without JSON, what it prints is the output.
    let mut client = server(
        &workspace,
        &["mcp.te.script_path=\"broken\"", "mcp.te.json_mode=false"],
    );
    assert_eq!(
        client.text("run_cmd", json!({"command": "cat a.txt"})),
        "no json\nexit 1"
    );
}

#[test]
fn without_the_envelope_much_output_is_cut_under_a_receipt() {
    let workspace = workspace("//- a.txt\n");
    let mut client = server(&workspace, &["mcp.te.enabled=false"]);
    let text = client.text(
        "run_cmd",
        json!({"argv": ["sh", "-c", "seq 30000; exit 4"]}),
    );
    assert!(text.starts_with("1\n2\n"), "{text}");
    let receipt = text.lines().last().unwrap();
    assert!(
        receipt.starts_with("# LLMC: ") && receipt.contains("of 30000 lines shown"),
        "{receipt}"
    );
    assert!(
        receipt.contains("handle=res_") && text.contains("\nexit 4"),
        "{receipt}"
    );
}

#[test]
fn commands_are_enveloped_over_rest_as_over_mcp() {
    let workspace = workspace("//- a.txt\none\n");
    for te in [true, false] {
        let set = format!("mcp.te.enabled={te}");
        let server = workspace.serve(["--mode", "classic", "--set", &set]);
        let lines = "for i in $(seq 1 9000); do echo step $i; done; echo warned >&2; exit 3";
        let body = server.tool("run_cmd", json!({"command": lines})).ok();
        assert_eq!(body["meta"]["truncated"], true, "{te}");
        assert_eq!(body["data"]["exit_code"], 3);
        let (stdout, stderr) = (&body["data"]["stdout"], &body["data"]["stderr"]);
        let shown = format!("{}{}", stdout.as_str().unwrap(), stderr.as_str().unwrap());
        assert!(llmc_tokens::count(&shown) <= 2000, "{} bytes", shown.len());
        assert!(
            shown.contains("step 1\n") && shown.contains("step 9000"),
            "{shown}"
        );
        assert!(
            !shown.contains("# LLMC:") && !shown.contains("# TE:"),
            "{shown}"
        );
        let handle = body["meta"]["handle"].as_str().expect("a handle");
        let page = server.tool(
            "linux_handle_read",
            json!({"handle": handle, "limit": 1_000_000}),
        );
        let page = page.ok()["data"]["data"].as_str().unwrap().to_owned();
        assert_eq!(page.lines().count(), 9001);
        // What fits is there as it was printed, a test run too.
        let small = "echo '=== 3 passed in 0.1s ==='; echo no >&2";
        let body = server.tool("run_cmd", json!({"command": small})).ok();
        let printed =
            json!({"stdout": "=== 3 passed in 0.1s ===\n", "stderr": "no\n", "exit_code": 0});
        assert_eq!(body["data"], printed);
        assert_eq!(body["meta"]["truncated"], false);
        assert!(body["meta"].get("handle").is_none(), "{body}");
    }
    // A shell's user gets the same body.
    let ended = workspace.llmc(["tool", "run_cmd", "--command", "seq 1 60000", "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.len() < 20_000, "{} bytes", ended.stdout.len());
    assert!(ended.stdout.contains("\"truncated\":true"));
}
