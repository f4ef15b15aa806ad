//! `te` in a shell: real commands, real pipes, real exit codes.

use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};

use llmc_envelope::te::parse;
use llmc_testkit::TestWorkspace;
use serde_json::Value;

use crate::workspace;

fn te(workspace: &TestWorkspace) -> Command {
    let mut command = workspace.command_of(env!("CARGO_BIN_EXE_te"));
    command
        .env_remove("TE_SESSION_ID")
        .env("TE_AGENT_ID", "tester");
    command
}

fn run(workspace: &TestWorkspace, args: &[&str]) -> Output {
    te(workspace).args(args).output().expect("te runs")
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn json(workspace: &TestWorkspace, args: &[&str]) -> Value {
    let mut all = vec!["--json"];
    all.extend(args);
    let output = run(workspace, &all);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn a_link_named_te_is_te() {
    let workspace = workspace("//- a.txt\none\ntwo\n");
    let link = workspace.path("bin/te");
    std::fs::create_dir(workspace.path("bin")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_llmc"), &link).unwrap();
    let by_link = workspace
        .command_of(&link)
        .args(["grep", "two", "a.txt"])
        .output()
        .unwrap();
    assert_eq!(by_link.status.code(), Some(0), "{by_link:?}");
    assert_eq!(
        text(&by_link),
        text(&run(&workspace, &["grep", "two", "a.txt"]))
    );
}

/// A file of many functions, more than a budget holds.
fn source(functions: usize) -> String {
    (0..functions)
        .map(|n| format!("fn helper_{n}() {{ target(); }}\n"))
        .chain(["pub fn target() {}\n".to_owned()])
        .collect()
}

#[test]
fn flags_end_at_the_command_and_exit_codes_are_the_commands_own() {
    let workspace = workspace("//- a.txt\none\nTwo\n");
    let output = run(&workspace, &["grep", "-i", "two", "a.txt"]);
    assert_eq!(output.status.code(), Some(0));
    let answer = parse(text(&output).trim_end_matches('\n')).expect("an envelope");
    assert!(answer.is_whole(), "{answer:?}");
    assert!(answer.body.contains("Two"));

    assert_eq!(
        run(&workspace, &["grep", "nowhere", "a.txt"]).status.code(),
        Some(1)
    );
    let output = run(&workspace, &["cat", "missing.txt"]);
    assert_eq!(output.status.code(), Some(1));
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(complaint.contains("missing.txt"), "{complaint}");
    assert_eq!(
        run(&workspace, &["sh", "-c", "exit 37"]).status.code(),
        Some(37)
    );
    assert_eq!(
        run(&workspace, &["sh", "-c", "kill -9 $$"]).status.code(),
        Some(137)
    );
    assert_eq!(
        run(&workspace, &["no-such-command"]).status.code(),
        Some(127)
    );
    for bad in [&["--jsno", "ls"][..], &[], &["--chunk", "1"], &["--handle"]] {
        let output = run(&workspace, bad);
        assert_eq!(output.status.code(), Some(2), "{bad:?}");
        assert!(
            !output.stderr.is_empty() && output.stdout.is_empty(),
            "{bad:?}"
        );
    }
}

#[test]
fn unknown_commands_pass_through_unchanged_and_pipes_work() {
    let workspace = workspace("//- a.txt\n");
    let odd = "a\u{1b}[31m red\u{1b}[0m # TE: no\n\u{0}\u{ff}";
    let mut child = te(&workspace)
        .args(["tee", "copy.bin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("te runs");
    child
        .stdin
        .take()
        .unwrap()
        .write_all(odd.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, odd.as_bytes());
    let plain = Command::new("seq").arg("20000").output().unwrap().stdout;
    assert_eq!(run(&workspace, &["seq", "20000"]).stdout, plain);
    assert_eq!(
        run(&workspace, &["--raw", "cat", "copy.bin"]).stdout,
        odd.as_bytes()
    );
}

#[test]
fn a_reader_that_goes_away_ends_the_command() {
    let workspace = workspace("//- a.txt\n");
    let mut child = te(&workspace)
        .arg("yes")
        .stdout(Stdio::piped())
        .spawn()
        .expect("te runs");
    let mut few = [0; 4];
    child.stdout.take().unwrap().read_exact(&mut few).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(141));
}

#[test]
fn json_always_has_its_eight_keys() {
    let workspace = workspace("//- a.txt\none\n");
    workspace.write("big.rs", source(600));
    let keys = [
        "success",
        "mode",
        "command",
        "stdout",
        "stderr",
        "exit_code",
        "enrichment",
        "telemetry",
    ];
    for (args, mode, success, code) in [
        (&["grep", "one", "a.txt"][..], "enriched", true, 0),
        (&["grep", "nowhere", "a.txt"], "enriched", true, 1),
        (&["grep", "x", "missing"], "enriched", false, 2),
        (&["sh", "-c", "echo x; exit 3"], "passthrough", false, 3),
        (&["no-such-command"], "passthrough", false, 127),
    ] {
        let answer = json(&workspace, args);
        let found: Vec<&String> = answer.as_object().unwrap().keys().collect();
        assert_eq!(found, keys, "{args:?}");
        assert_eq!(answer["mode"], mode, "{args:?}");
        assert_eq!(answer["success"], success, "{args:?}");
        assert_eq!(answer["exit_code"], code, "{args:?}");
        assert_eq!(answer["command"], args.join(" "), "{args:?}");
        assert_eq!(
            answer["enrichment"].is_null(),
            mode != "enriched",
            "{args:?}"
        );
        assert_eq!(answer["telemetry"]["agent_id"], "tester");
        assert!(answer["telemetry"]["budget_remaining"].is_null());
    }
    let answer = json(&workspace, &["grep", "-n", "target", "big.rs"]);
    assert_eq!(answer["enrichment"]["match_count"], 601);
    assert_eq!(answer["enrichment"]["truncated"], true);
    let raw = run(&workspace, &["--json", "--raw", "cat", "a.txt"]);
    let raw: Value = serde_json::from_slice(&raw.stdout).unwrap();
    assert_eq!(
        (&raw["mode"], &raw["stdout"]),
        (&"raw".into(), &"one\n".into())
    );
}

#[test]
fn definitions_come_first_and_the_handle_has_every_byte() {
    let workspace = workspace("//- a.txt\n");
    workspace.write("big.rs", source(600));
    let plain = Command::new("grep")
        .args(["-rn", "target", "."])
        .current_dir(workspace.path("."))
        .output()
        .unwrap();
    let output = run(&workspace, &["grep", "-rn", "target", "."]);
    let answer = parse(text(&output).trim_end_matches('\n')).expect("an envelope");
    let first = answer.body.lines().next().unwrap();
    assert!(
        first.contains("pub fn target()") && first.ends_with("# definition"),
        "{first}"
    );
    assert!(answer.header.truncated);
    let handle = answer.header.handle.unwrap().to_string();
    let whole = run(&workspace, &["--handle", &handle]);
    assert!(whole.stdout == plain.stdout, "all of it, byte for byte");
    let mut joined = Vec::new();
    for chunk in 0.. {
        let part = run(
            &workspace,
            &["--handle", &handle, "--chunk", &chunk.to_string()],
        );
        if part.status.code() != Some(0) {
            let complaint = String::from_utf8_lossy(&part.stderr).into_owned();
            assert_eq!(part.status.code(), Some(2), "{complaint}");
            assert!(
                complaint.contains(&format!("0 to {}", chunk - 1)),
                "{complaint}"
            );
            break;
        }
        joined.extend(part.stdout);
    }
    assert!(joined == plain.stdout, "and in chunks");
    for (args, code) in [
        (["--handle", &handle, "--chunk", "-1"], 2),
        (
            ["--handle", "res_00000000000000000000000000", "--chunk", "0"],
            3,
        ),
        (["--handle", "nonsense", "--chunk", "0"], 3),
    ] {
        assert_eq!(run(&workspace, &args).status.code(), Some(code), "{args:?}");
    }
    let listed = text(&run(&workspace, &["--list-handles"]));
    assert!(
        listed.contains(&handle) && listed.contains("grep -rn target ."),
        "{listed}"
    );
}

#[test]
fn searches_without_line_numbers_are_ranked_too() {
    let workspace = workspace("//- a.txt\n");
    workspace.write("src/big.rs", source(600));
    let output = run(&workspace, &["grep", "-r", "target", "src"]);
    let answer = parse(text(&output).trim_end_matches('\n')).expect("an envelope");
    let first = answer.body.lines().next().unwrap();
    assert!(
        first.starts_with("src/big.rs:601: pub fn target()"),
        "{first}"
    );
}

#[test]
fn calls_are_recorded_and_what_was_fetched_back_is_no_saving() {
    let workspace = workspace("//- a.txt\n");
    workspace.write("big.rs", source(900));
    let answer = json(&workspace, &["grep", "-n", "target", "big.rs"]);
    run(&workspace, &["seq", "5000"]);
    let handle = answer["enrichment"]["handle"].as_str().unwrap();
    run(&workspace, &["--handle", handle]);
    let analysis = |by: &str| -> Value {
        let output = run(&workspace, &["analyze", "--by", by, "--json"]);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let by_cmd = analysis("cmd");
    let named = |name: &str| -> Value {
        let groups = by_cmd["groups"].as_array().unwrap();
        let found = groups.iter().find(|group| group["name"] == name);
        found
            .unwrap_or_else(|| panic!("{name} in {by_cmd}"))
            .clone()
    };
    let number = |value: &Value, key: &str| value[key].as_i64().unwrap();
    assert!(number(&named("grep"), "tokens_withheld") > 5000);
    assert!(number(&named("handle"), "tokens_fetched_back") > 5000);
    let all = &by_cmd["all"];
    let net = number(all, "tokens_withheld") - number(all, "tokens_fetched_back");
    assert_eq!(number(all, "net_saved"), net);
    assert!(net < number(all, "tokens_withheld") / 2, "{all}");
    assert_eq!(by_cmd["candidates"][0]["name"], "seq");
    assert!(!by_cmd["slowest"].as_array().unwrap().is_empty());
    assert_eq!(analysis("agent")["groups"][0]["name"], "tester");
    assert_eq!(analysis("source")["groups"][0]["name"], "cli");
    let stats = text(&run(&workspace, &["--stats"]));
    assert!(
        stats.contains("net saved") && stats.contains("fetched back"),
        "{stats}"
    );
}

#[test]
fn a_broken_store_neither_fails_nor_slows_a_command() {
    let workspace = workspace("//- a.txt\none\n");
    run(&workspace, &["cat", "a.txt"]);
    for name in ["te_telemetry.db", "te_handles/handles.db"] {
        let path = workspace.path(".llmc").join(name);
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).unwrap();
        }
        std::fs::write(
            &path,
            b"this is no database, and long enough to be taken for one".repeat(100),
        )
        .unwrap();
    }
    workspace.write("big.rs", source(600));
    let output = run(&workspace, &["grep", "-n", "target", "big.rs"]);
    assert_eq!(output.status.code(), Some(0));
    let answer = parse(text(&output).trim_end_matches('\n')).expect("an envelope");
    assert_eq!(answer.header.matches, Some(601));
}

#[test]
fn an_agent_gets_less_when_its_session_is_spent() {
    let workspace = workspace(
        "//- llmc.toml\n[mcp]\nmode = \"te\"\n[mcp.te.agents.\"tester\"]\nbudget_tokens = 300\nsession_budget_tokens = 500\n",
    );
    workspace.write("big.rs", source(600));
    let args = ["grep", "-n", "target", "big.rs"];
    let call = || -> Value {
        let output = te(&workspace)
            .env("TE_SESSION_ID", "one")
            .arg("--json")
            .args(args)
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let (first, second, third) = (call(), call(), call());
    let tokens = |answer: &Value| answer["enrichment"]["tokens_estimate"].as_u64().unwrap();
    assert!(tokens(&first) <= 330, "{first}");
    assert!(tokens(&third) < tokens(&first), "{second} {third}");
    assert!(third["enrichment"]["handle"].is_string(), "{third}");
    assert_eq!(third["enrichment"]["match_count"], 601);
    // What is left is told as it is after the call.
    let left = |answer: &Value| answer["telemetry"]["budget_remaining"].as_u64().unwrap();
    assert!(left(&first) < 500, "{first}");
    assert!(left(&first).abs_diff(500 - tokens(&first)) < 40, "{first}");
    assert!(left(&second) < left(&first), "{second}");
}

#[test]
fn failed_calls_are_recorded_and_models_are_told_apart() {
    let workspace = workspace("//- a.txt\none\n");
    let unknown = "res_01ARZ3NDEKTSV4RRFFQ69G5FAV";
    for (model, args) in [
        ("opus", &["cat", "a.txt"][..]),
        ("opus", &["no-such-program-here"]),
        ("opus", &["--json", "no-such-program-here"]),
        ("haiku", &["--handle", unknown]),
        ("haiku", &["--no-such-flag"]),
        ("haiku", &["--chunk", "1"]),
    ] {
        te(&workspace)
            .env("TE_MODEL", model)
            .args(args)
            .output()
            .unwrap();
    }
    let analysis = |by: &str| -> Value {
        let output = run(&workspace, &["analyze", "--json", "--by", by]);
        serde_json::from_str(&text(&output)).unwrap()
    };
    let by_model = analysis("model");
    let calls = |name: &str| {
        let groups = by_model["groups"].as_array().unwrap();
        let group = groups.iter().find(|group| group["name"] == name);
        let group = group.unwrap_or_else(|| panic!("{name} in {by_model}"));
        (
            group["calls"].as_u64().unwrap(),
            group["errors"].as_u64().unwrap(),
        )
    };
    assert_eq!(calls("opus"), (3, 2), "{by_model}");
    assert_eq!(calls("haiku"), (3, 3), "{by_model}");
    let words = text(&run(&workspace, &["analyze", "--by", "model"]));
    assert!(words.contains("opus") && words.contains("haiku"), "{words}");
    let wrong = run(&workspace, &["analyze", "--by", "colour"]);
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn grep_without_a_path_searches_the_folder_unless_something_is_piped_in() {
    let workspace = workspace("//- src/a.txt\nalpha\nbeta\n//- .git/config\nbeta\n");
    let grep = |stdin: Stdio| {
        let mut command = te(&workspace);
        let output = command
            .args(["grep", "beta"])
            .stdin(stdin)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let found = grep(Stdio::null());
    assert!(
        found.contains("src/a.txt") && found.contains("beta"),
        "{found}"
    );
    assert!(!found.contains(".git"), "{found}");
    let input = std::fs::File::open(workspace.path("src/a.txt")).unwrap();
    let found = grep(Stdio::from(input));
    assert!(
        found.contains("beta") && !found.contains("a.txt"),
        "{found}"
    );
}

#[test]
fn the_index_is_asked_and_commands_run_as_for_an_agent() {
    let workspace = workspace("//- src/lib.rs\n/// Counts tokens.\npub fn count_tokens() {}\n");
    let say = |args: &[&str]| {
        let output = te(&workspace).args(args).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    for args in [
        &["rag", "counts", "tokens"][..],
        &["explain", "count_tokens"],
    ] {
        let (code, found) = say(args);
        assert_eq!(code, Some(0), "{args:?}: {found}");
        assert!(found.contains("src/lib.rs"), "{args:?}: {found}");
    }
    assert_eq!(
        say(&["run", "echo", "hello"]),
        (Some(0), "hello\n".to_owned())
    );
    assert_eq!(say(&["rag"]).0, Some(2));
}

#[test]
fn a_program_is_booked_under_one_name_and_times_have_units() {
    let workspace = workspace("//- a.txt\nalpha\n");
    te(&workspace)
        .args(["grep", "alpha", "a.txt"])
        .output()
        .unwrap();
    for call in [
        &["te_grep", "--pattern", "alpha"][..],
        &["run_cmd", "--command", "grep alpha a.txt"],
        &["te_run", "--command", "grep alpha a.txt"],
    ] {
        let ended = workspace.llmc(["tool"].iter().chain(call));
        assert_eq!(ended.code, Some(0), "{call:?}: {}", ended.stderr);
    }
    for since in ["24h", "7d", "7", "90m", "all"] {
        let output = te(&workspace)
            .args(["analyze", "--json", "--since", since])
            .output()
            .unwrap();
        let analysis: Value = serde_json::from_slice(&output.stdout).unwrap();
        let groups = analysis["groups"].as_array().unwrap();
        assert_eq!(groups.len(), 1, "{since}: {analysis}");
        assert_eq!(
            (&groups[0]["name"], &groups[0]["calls"]),
            (&serde_json::json!("grep"), &serde_json::json!(4)),
            "{since}"
        );
    }
    let wrong = te(&workspace)
        .args(["analyze", "--since", "yesterday"])
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn hints_in_a_shell_are_shell_commands() {
    let workspace = workspace("//- a.txt\nalpha\n");
    let ended = workspace.llmc(["tool", "linux_proc_read", "--proc-id", "p_nothing"]);
    assert!(
        ended
            .stderr
            .contains("hint: llmc tool linux_proc_list shows yours"),
        "{}",
        ended.stderr
    );
    // The usage of a tool is a line that can be pasted.
    for (tool, name) in [("read_file", "PATH"), ("stat", "PATH")] {
        let ended = workspace.llmc(["tool", tool, "--args", "{}"]);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        let usage = ended
            .stderr
            .lines()
            .find_map(|line| line.trim().strip_prefix("hint: usage: "));
        let usage = usage.unwrap_or_else(|| panic!("{}", ended.stderr));
        let line = usage.split(';').next().unwrap().replace(name, "a.txt");
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[0], "llmc", "{line}");
        let pasted = workspace.llmc(&words[1..]);
        assert_eq!(pasted.code, Some(0), "{line}: {}", pasted.stderr);
    }
}
