//! `run_cmd`: shell lines and programs inside the kernel's boundary, waited for or in the background.

use llmc_testkit::{McpClient, TestWorkspace, error_document};
use serde_json::{Value, json};

use crate::{classic, workspace};

fn hybrid(workspace: &TestWorkspace) -> McpClient {
    let mut client = workspace.mcp(["--mode", "hybrid"]);
    client.initialize("2025-11-25");
    client
}

fn sh(client: &mut McpClient, script: &str) -> String {
    client.text("run_cmd", json!({"argv": ["sh", "-c", script]}))
}

fn code(client: &mut McpClient, args: Value) -> String {
    let (failed, text) = client.call_tool("run_cmd", args.clone());
    assert!(failed, "{args}: {text}");
    let document = error_document(&text);
    document["meta"]["error_code"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn output_comes_back_as_it_is_and_failure_is_data() {
    let workspace = workspace("//- a.txt\none\n//- sub/b.txt\ntwo\n");
    let mut client = hybrid(&workspace);
    for (line, expected) in [
        ("cat a.txt", "one\n"),
        ("cat 'a.txt'", "one\n"),
        ("echo out; echo err >&2; exit 3", "out\nerr\nexit 3"),
        ("cat; echo $?", "0\n"),
        ("kill -9 $$", "signal KILL"),
        (
            "printf 'b\\na\\n' | sort && cd sub && cat *.txt",
            "a\nb\ntwo\n",
        ),
        (
            "x=5; cat <<EOF | tr a-z A-Z\nvalue $((x+1))\nEOF",
            "VALUE 6\n",
        ),
        ("no-such-program-here 2>/dev/null", "exit 127"),
    ] {
        assert_eq!(
            client.text("run_cmd", json!({"command": line})),
            expected,
            "{line}"
        );
    }
    // What a shell would interpret is plain text in argv.
    assert_eq!(
        client
            .text("run_cmd", json!({"argv": ["ls", "$(id);a"]}))
            .lines()
            .last(),
        Some("exit 2")
    );
}

#[test]
fn input_is_the_standard_input() {
    let workspace = workspace("//- a.txt\none\n");
    let mut client = hybrid(&workspace);
    let run = |client: &mut McpClient, line: &str, input: &str| {
        client.text("run_cmd", json!({"command": line, "input": input}))
    };
    assert_eq!(
        run(&mut client, "cat; echo end", "one\ntwo"),
        "one\ntwoend\n"
    );
    let large = "line of input\n".repeat(200_000);
    assert_eq!(
        run(&mut client, "wc -c", &large),
        format!("{}\n", large.len())
    );
    let text = run(&mut client, "head -c 4", &large);
    assert!(
        text.starts_with("line") && text.contains("bytes of input"),
        "{text}"
    );
}

#[test]
fn contradictory_arguments_are_refused() {
    let workspace = workspace("//- a.txt\none\n");
    let mut client = hybrid(&workspace);
    for (args, expected) in [
        (json!({"argv": ["no-such-program"]}), "COMMAND_DENIED"),
        (json!({"argv": ["./a.txt"]}), "COMMAND_DENIED"),
        (json!({}), "BAD_ARGS"),
        (json!({"argv": ["ls"], "command": "ls"}), "BAD_ARGS"),
        (json!({"argv": []}), "BAD_ARGS"),
        (json!({"command": "  "}), "BAD_ARGS"),
        (json!({"command": "echo \u{0}"}), "BAD_ARGS"),
        (json!({"argv": ["ls"], "timeout": -1}), "BAD_ARGS"),
        (json!({"argv": ["ls"], "cwd": "../outside"}), "INVALID_PATH"),
        (json!({"argv": ["ls"], "cwd": "nope"}), "NOT_FOUND"),
        (json!({"argv": ["ls"], "cwd": "a.txt"}), "NOT_A_DIRECTORY"),
        (json!({"proc": "p_00000000"}), "NOT_FOUND"),
        (json!({"proc": "p_00000000", "command": "ls"}), "BAD_ARGS"),
    ] {
        assert_eq!(code(&mut client, args.clone()), expected, "{args}");
    }
    let zero = json!({"command": "cat a.txt", "timeout": 0});
    assert_eq!(client.text("run_cmd", zero), "one\n");
}

#[test]
fn an_operators_list_without_a_shell_has_no_shell_lines() {
    let workspace = workspace("//- a.txt\none\n");
    let list = "mcp.tools.run_cmd_allowlist=[\"ls\", \"cat\"]";
    let mut client = workspace.mcp(["--mode", "hybrid", "--set", list]);
    client.initialize("2025-11-25");
    for args in [
        json!({"command": "ls; rm -rf /"}),
        json!({"command": "ls && id"}),
        json!({"command": "cat $(id)"}),
        json!({"command": "wget example.org"}),
        json!({"argv": ["/tmp/own"]}),
        json!({"argv": ["./sh"]}),
    ] {
        assert_eq!(code(&mut client, args.clone()), "COMMAND_DENIED", "{args}");
    }
    assert_eq!(
        client.text("run_cmd", json!({"command": "cat a.txt"})),
        "one\n"
    );
}

/// The id in the receipt of a command that goes on.
fn proc_id(text: &str) -> String {
    let receipt = text.lines().last().unwrap();
    let id = receipt
        .split(" as ")
        .nth(1)
        .and_then(|rest| rest.split(';').next());
    let id = id.unwrap_or_else(|| panic!("no id: {text}"));
    assert!(
        receipt.starts_with("# LLMC: still running after ") && receipt.ends_with(&going_on(id)),
        "{receipt}"
    );
    id.to_owned()
}

/// The calls that are named for a command that goes on.
fn going_on(id: &str) -> String {
    format!("run_cmd proc={id} waits on; linux_proc_stop proc_id={id} ends it")
}

#[test]
fn the_call_that_ends_a_running_command_is_one_that_the_mode_has() {
    let workspace = workspace("//- a.txt\n");
    let mut client = workspace.mcp(["--mode", "hybrid"]);
    client.initialize("2025-11-25");
    let line = "echo begun; while [ ! -e go ]; do sleep 0.05; done";
    let text = client.text("run_cmd", json!({"command": line, "timeout": 0.5}));
    let (_, calls) = text.split_once("waits on; ").unwrap();
    let call = calls.strip_suffix(" in execute_code ends it");
    let call = call.unwrap_or_else(|| panic!("{text}"));
    let answer = client.text(
        "execute_code",
        json!({"code": format!("{call}; print('ok')")}),
    );
    assert_eq!(answer, "ok");
    let list = "print([p['running'] for p in tools.linux_proc_list()['processes']])";
    let running = client.text("execute_code", json!({"code": list}));
    assert!(!running.contains("True"), "{running}");
}

#[test]
fn a_command_as_a_list_of_words_is_started_without_a_shell() {
    let workspace = workspace("//- a.txt\n");
    let mut client = classic(&workspace);
    let words = json!({"command": ["echo", "a; b"]});
    assert_eq!(client.text("run_cmd", words), "a; b\n");
    let both = json!({"command": ["echo"], "argv": ["echo"]});
    let error = client.error("run_cmd", both);
    assert!(error.to_string().contains("argv is given twice"), "{error}");
}

#[test]
fn a_job_in_the_background_goes_on_and_the_answer_says_so() {
    let workspace = workspace("//- a.txt\n");
    let mut client = classic(&workspace);
    let text = client.text(
        "run_cmd",
        json!({"command": "sleep 600 >/dev/null & echo begun"}),
    );
    let is_left = text.starts_with("begun\n# LLMC: what it started goes on as p_");
    assert!(
        is_left || text.starts_with("begun\n# LLMC: what & started has ended"),
        "{text}"
    );
    for line in ["true && echo begun", "sleep 0 & echo begun; wait"] {
        assert_eq!(client.text("run_cmd", json!({"command": line})), "begun\n");
    }
    let argv = json!({"argv": ["echo", "a & b"]});
    assert_eq!(client.text("run_cmd", argv), "a & b\n");
}

#[test]
fn a_command_that_takes_longer_than_the_wait_goes_on() {
    let workspace = workspace("//- a.txt\n");
    let mut client = classic(&workspace);
    let line = "echo begun; while [ ! -e go ]; do sleep 0.05; done; echo done; exit 3";
    let mut text = client.text("run_cmd", json!({"command": line, "timeout": 0.5}));
    let id = proc_id(&text);
    // On a busy machine half a second may be over before the command says anything.
    while !text.starts_with("begun\n") {
        assert!(text.starts_with("# LLMC: still running"), "{text}");
        text = client.text("run_cmd", json!({"proc": id, "timeout": 0.5}));
    }
    let list = client.json("linux_proc_list", json!({}));
    assert_eq!(list["processes"][0]["proc_id"], json!(id), "{list}");
    let text = client.text("run_cmd", json!({"proc": id, "timeout": 0.2}));
    assert_eq!(
        text,
        format!("# LLMC: still running as {id}; {}", going_on(&id)),
        "nothing new"
    );
    // To another session it does not exist.
    let params = json!({
        "name": "run_cmd",
        "arguments": {"proc": id},
        "_meta": {"llmc/sessionId": "other"},
    });
    let other = client.request("tools/call", params);
    assert_eq!(other["result"]["isError"], true, "{other}");
    assert!(other.to_string().contains("no such process"), "{other}");
    assert_eq!(
        code(&mut client, json!({"proc": id, "input": "x"})),
        "NOT_FOUND",
        "its input is closed"
    );
    workspace.write("go", "");
    let text = client.text("run_cmd", json!({"proc": id}));
    assert_eq!(text, "done\nexit 3");
}

#[test]
fn run_cmd_sends_input_to_a_process() {
    let workspace = workspace("//- a.txt\n");
    let mut client = classic(&workspace);
    let script = "while read line; do echo \"heard $line\"; done; exit 4";
    let started = client.json("linux_proc_start", json!({"argv": ["sh", "-c", script]}));
    let id = started["proc_id"].as_str().unwrap();
    let text = client.text("run_cmd", json!({"proc": id, "input": "one\n"}));
    assert!(text.starts_with("heard one\n"), "{text}");
    client.json("linux_proc_send", json!({"proc_id": id, "input": ""}));
    assert_eq!(client.text("run_cmd", json!({"proc": id})), "exit 4");
}

#[test]
fn a_timeout_above_the_maximum_is_lowered_and_reported() {
    let workspace = workspace("//- a.txt\n");
    let mut client = hybrid(&workspace);
    let text = client.text("run_cmd", json!({"command": "echo x", "timeout": 100_000}));
    assert_eq!(
        text,
        "x\n# LLMC: timeout lowered to 600 s (mcp.exec.max_wait_s)"
    );
}

#[test]
fn a_command_changes_the_workspace_and_nothing_else() {
    let workspace = workspace("//- a.txt\none\n//- llmc.toml\n[mcp]\nmode = \"classic\"\n");
    let mut client = classic(&workspace);
    let health = client.json("health", json!({}));
    let level = health["confinement"].as_str().unwrap().to_owned();
    assert_eq!(sh(&mut client, "echo two > b.txt && cat b.txt"), "two\n");
    assert_eq!(workspace.read("b.txt"), "two\n");
    let outside = workspace.outside("planted").display().to_string();
    if level.contains("landlock") || level.contains("mntns") {
        let text = sh(
            &mut client,
            &format!("echo x > '{outside}' || echo refused"),
        );
        assert!(text.contains("refused"), "{level}: {text}");
    }
    if level.contains("protected=mount") {
        let text = sh(
            &mut client,
            "echo '[mcp]' > llmc.toml || echo refused; ls .llmc",
        );
        assert!(
            text.contains("refused") && !text.contains("locks"),
            "{level}: {text}"
        );
    }
    assert!(workspace.read("llmc.toml").contains("classic"));
    workspace.assert_outside_untouched();
    let secrets = sh(&mut client, "env");
    assert!(!secrets.contains("LLMC_"), "{secrets}");
}

#[test]
fn time_limits_end_the_whole_tree_where_the_operator_wants_that() {
    let workspace = workspace("//- a.txt\n");
    let kill = "mcp.exec.on_timeout=\"kill\"";
    let mut client = workspace.mcp(["--mode", "hybrid", "--set", kill]);
    client.initialize("2025-11-25");
    const POLL: std::time::Duration = std::time::Duration::from_millis(50);
    // A number that no other process on the machine sleeps for.
    let seconds = format!("300.{}", std::process::id());
    let script = format!(
        "trap '' TERM; echo started; (setsid sleep {seconds} &) ; (setsid nohup sleep {seconds} & exit) ; sleep {seconds}"
    );
    let survivors = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        let wanted = format!("sleep\0{seconds}\0");
        lines.filter(|line| *line == wanted.as_bytes()).count()
    };
    // While it runs they can be found, so that not to find them means something.
    let id = client.send_request(
        "tools/call",
        json!({"name": "run_cmd", "arguments": {"argv": ["sh", "-c", &script], "timeout": 20}}),
    );
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while survivors() < 3 && std::time::Instant::now() < end {
        std::thread::sleep(POLL);
    }
    assert_eq!(survivors(), 3);
    client.notify("notifications/cancelled", json!({"requestId": id}));
    let (failed, text) = client.call_tool(
        "run_cmd",
        json!({"argv": ["sh", "-c", &script], "timeout": 1}),
    );
    assert!(failed, "{text}");
    let document = error_document(&text);
    assert_eq!(document["meta"]["error_code"], "TIMEOUT");
    assert_eq!(
        document["meta"]["stdout"], "started\n",
        "the output so far is reported"
    );
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while survivors() > 0 {
        assert!(std::time::Instant::now() < end, "{} survived", survivors());
        std::thread::sleep(POLL);
    }
    assert_eq!(sh(&mut client, "echo next"), "next\n");
}

#[test]
fn much_output_is_condensed_and_kept() {
    let workspace = workspace("//- a.txt\n");
    let mut client = classic(&workspace);
    let text = sh(
        &mut client,
        "for i in $(seq 1 20000); do echo line $i; done; echo 'Error: at the end' >&2; exit 1",
    );
    let parsed = llmc_envelope::te::parse(&text).unwrap_or_else(|| panic!("{text}"));
    assert!(parsed.header.truncated);
    assert!(
        llmc_tokens::count(&text) < 2300,
        "{}",
        llmc_tokens::count(&text)
    );
    assert!(
        parsed.body.contains("Error: at the end") && parsed.body.contains("exit 1"),
        "{}",
        parsed.body
    );
    let handle = parsed.header.handle.unwrap().to_string();
    let page = client.json(
        "linux_handle_read",
        json!({"handle": handle, "limit": 8_000_000}),
    );
    let raw = page["data"].as_str().unwrap();
    assert!(raw.starts_with("line 1\nline 2\n") && raw.contains("line 20000\n"));
    let flood = sh(&mut client, "yes");
    assert!(
        flood.contains("MiB of output"),
        "{}",
        &flood[flood.len().saturating_sub(300)..]
    );
}

#[test]
fn commands_can_be_switched_off() {
    let workspace = workspace(
        "//- llmc.toml\n[mcp]\nmode = \"classic\"\n[mcp.tools]\nenable_run_cmd = false\n",
    );
    let mut client = classic(&workspace);
    let list = client.request("tools/list", json!({}));
    assert!(!list.to_string().contains("run_cmd"), "{list}");
    let ended = workspace.llmc(["tool", "run_cmd", "--command", "ls"]);
    assert_eq!(ended.code, Some(4));
}

#[test]
fn a_repository_that_a_command_makes_stays_without_what_runs_programs_and_the_answer_says_so() {
    let workspace = workspace("//- a.txt\none\n");
    let check = |name: &str, said: &str| {
        assert!(workspace.path(name).join(".git/HEAD").is_file(), "{said}");
        let config = workspace.read(format!("{name}/.git/config"));
        assert!(
            !config.contains("evil") && config.contains("repositoryformatversion"),
            "{config}"
        );
        let hook = format!("{name}/.git/hooks/pre-commit");
        assert!(!workspace.path(&hook).exists(), "{said}");
        for words in [
            "core.fsmonitor was not taken over",
            "hooks run programs",
            "in their own shell",
        ] {
            assert!(said.contains(words), "no {words:?}: {said}");
        }
    };
    let mut client = classic(&workspace);
    let health = client.json("health", json!({}));
    if health["confinement"]
        .as_str()
        .unwrap()
        .contains("protected=none")
    {
        llmc_testkit::skip("protected names of commands");
        return;
    }
    let make = |name: &str| {
        format!(
            "git init -q {name} && git -C {name} config core.fsmonitor ./evil && echo evil > {name}/.git/hooks/pre-commit"
        )
    };
    check(
        "sub",
        &client.text("run_cmd", json!({"command": make("sub")})),
    );
    // What is in order stays without a word.
    let clone = "git -C sub -c user.name=a -c user.email=a@b commit -qm x --allow-empty && git clone -q sub copy";
    let said = client.text("run_cmd", json!({"command": clone}));
    assert!(!said.contains("# LLMC"), "{said}");
    assert!(workspace.path("copy/.git/HEAD").is_file());
    // The same for a process in the background, a script, and a program that asks over HTTP.
    let started = client.json("linux_proc_start", json!({"command": make("third")}));
    let ended = loop {
        let read = json!({"proc_id": started["proc_id"], "timeout": 20});
        let read = client.json("linux_proc_read", read);
        if read["running"] == false {
            break read;
        }
    };
    check("third", ended["note"].as_str().expect("a note"));
    let script = format!(
        "print(tools.run_cmd(command='{}')['meta']['notes'])",
        make("fourth")
    );
    check(
        "fourth",
        &client.text("execute_code", json!({"code": script})),
    );
    let server = workspace.serve([""; 0]);
    let body = server.tool("run_cmd", json!({"command": make("fifth")}));
    check("fifth", &body.ok()["meta"]["notes"].to_string());
}
