//! Limits, owners and signals of background processes, and the machine they run on.

use llmc_testkit::{TestProcess, error_document};
use serde_json::{Value, json};

use crate::procs::*;
use crate::{classic, keys, workspace};

#[test]
fn there_is_a_limit_for_each_and_for_all() {
    let workspace = workspace("//- a\n");
    let mut client = classic(&workspace);
    let cat = json!({"argv": ["cat"]});
    let ids: Vec<String> = (0..8)
        .map(|_| start(&mut client, &["cat"], false))
        .collect();
    let error = client.error("linux_proc_start", cat.clone());
    assert_eq!(error["meta"]["error_code"], "RATE_LIMITED");
    assert!(
        error["meta"]["hint"]
            .as_str()
            .unwrap()
            .contains("linux_proc_stop"),
        "{error}"
    );
    client.json("linux_proc_stop", json!({"proc_id": ids[0]}));
    start(&mut client, &["cat"], false);
    for n in 0..24 {
        let session = format!("session-{}", n / 8);
        let (failed, answer) = as_other(&mut client, &session, "linux_proc_start", cat.clone());
        assert!(!failed, "{n}: {answer}");
    }
    let (failed, answer) = as_other(&mut client, "late", "linux_proc_start", cat);
    assert!(
        failed && answer.as_str().unwrap().starts_with("RATE_LIMITED: "),
        "{answer}"
    );
    assert!(answer.as_str().unwrap().contains("32"), "{answer}");
}

#[test]
fn a_process_belongs_to_the_principal_that_started_it() {
    let workspace = workspace("//- a\n");
    let mut client = classic(&workspace);
    let started = client.json(
        "linux_proc_start",
        json!({"argv": ["sh", "-c", "cat", "--password", "hunter2"]}),
    );
    let (id, pid) = (started["proc_id"].clone(), started["pid"].clone());
    for (name, args, code) in [
        ("linux_proc_read", json!({"proc_id": id}), "NOT_FOUND"),
        (
            "linux_proc_send",
            json!({"proc_id": id, "input": "x"}),
            "NOT_FOUND",
        ),
        ("linux_proc_stop", json!({"proc_id": id}), "NOT_FOUND"),
        ("linux_proc_kill", json!({"pid": pid}), "COMMAND_DENIED"),
    ] {
        let (failed, answer) = as_other(&mut client, "other", name, args);
        assert!(
            failed && answer.as_str().unwrap().starts_with(code),
            "{name}: {answer}"
        );
    }
    let (_, list) = as_other(&mut client, "other", "linux_proc_list", json!({}));
    assert_eq!(list, json!({"processes": []}));
    let list = client.json("linux_proc_list", json!({}));
    let [entry] = &list["processes"].as_array().unwrap()[..] else {
        panic!("{list}")
    };
    assert_eq!(
        keys(entry),
        ["command", "pid", "proc_id", "running", "started_iso"]
    );
    assert_eq!((&entry["proc_id"], &entry["pid"]), (&id, &pid));
    assert_eq!(entry["command"], "sh -c cat --password ***");
    assert!(
        entry["started_iso"].as_str().unwrap().ends_with('Z'),
        "{entry}"
    );
    assert_eq!(
        client.json("linux_proc_kill", json!({"pid": pid, "signal": "TERM"})),
        json!({"ok": true, "exit_code": null, "signal": 15})
    );
    client.assert_code("linux_proc_kill", json!({"pid": pid}), "NOT_FOUND");
}

#[test]
fn protected_processes_are_not_killed() {
    let workspace = workspace("//- a\n");
    let mut client = classic(&workspace);
    client.json("linux_proc_start", json!({"argv": ["cat"]}));
    let server = i64::from(client.process().pid().as_raw_nonzero().get());
    let us = i64::from(std::process::id());
    for pid in [0, 1, -1, -us, -server, server, us] {
        let code = client.code("linux_proc_kill", json!({"pid": pid, "signal": "KILL"}));
        assert_eq!(code, "COMMAND_DENIED", "{pid}");
    }
    // The helpers between the server and what it started.
    let helpers = std::fs::read_to_string(format!("/proc/{server}/task/{server}/children"));
    for helper in helpers.unwrap().split_ascii_whitespace() {
        let args = json!({"pid": helper.parse::<i64>().unwrap(), "signal": "KILL"});
        client.assert_code("linux_proc_kill", args, "COMMAND_DENIED");
    }
    for pid in [i64::MAX, i64::from(i32::MAX)] {
        client.assert_code("linux_proc_kill", json!({"pid": pid}), "NOT_FOUND");
    }
    for args in [
        json!({}),
        json!({"pid": "one"}),
        json!({"pid": 1.5}),
        json!({"pid": server, "signal": "BOGUS"}),
        json!({"pid": server, "signal": 0}),
        json!({"pid": server, "signal": -9}),
        json!({"pid": server, "signal": [9]}),
    ] {
        client.assert_code("linux_proc_kill", args.clone(), "BAD_ARGS");
    }
    // Another user's, and, for comparison, one of the same user that the server has nothing to do with.
    let sleep = |user: Option<u32>| {
        let mut command = workspace.command_of("sleep");
        command.arg("1000");
        if let Some(user) = user {
            std::os::unix::process::CommandExt::uid(&mut command, user);
        }
        TestProcess::start(command)
    };
    let pid = |process: &TestProcess| i64::from(process.pid().as_raw_nonzero().get());
    if rustix::process::geteuid().is_root() {
        let mut other = sleep(Some(65534));
        let args = json!({"pid": pid(&other)});
        client.assert_code("linux_proc_kill", args, "COMMAND_DENIED");
        assert!(!other.has_ended());
    }
    let mut same = sleep(None);
    let args = json!({"pid": pid(&same), "signal": 9});
    client.assert_code("linux_proc_kill", args.clone(), "COMMAND_DENIED");
    assert!(!same.has_ended());
    let mut client = workspace.mcp(["--mode", "classic", "--set", "mcp.tools.kill_any=true"]);
    client.initialize("2025-11-25");
    client.json("linux_proc_kill", args);
    assert_eq!(same.wait().signal, Some(9));
}

#[test]
fn a_signal_is_given_by_name_or_by_number() {
    let workspace = workspace("//- a\n");
    let mut client = classic(&workspace);
    for signal in [
        json!(9),
        json!("9"),
        json!(9.0),
        json!("KILL"),
        json!("SIGKILL"),
        json!("kill"),
    ] {
        let id = start(&mut client, &["cat"], false);
        let ended = client.json("linux_proc_stop", json!({"proc_id": id, "signal": signal}));
        assert_eq!(ended["signal"], 9, "{signal}");
        let started = client.json("linux_proc_start", json!({"argv": ["cat"]}));
        let ended = client.json(
            "linux_proc_kill",
            json!({"pid": started["pid"], "signal": signal}),
        );
        assert_eq!(ended["signal"], 9, "{signal}");
    }
}

#[test]
fn nonsense_is_refused_with_advice() {
    let workspace = workspace("//- a.txt\none\n");
    let mut client = classic(&workspace);
    let id = start(&mut client, &["cat"], false);
    let mib = "x".repeat(1 << 20);
    for (name, args, code) in [
        ("linux_proc_start", json!({}), "BAD_ARGS"),
        ("linux_proc_start", json!({"argv": []}), "BAD_ARGS"),
        (
            "linux_proc_start",
            json!({"argv": ["cat"], "command": "cat"}),
            "BAD_ARGS",
        ),
        (
            "linux_proc_start",
            json!({"argv": ["cat", "a\0b"]}),
            "BAD_ARGS",
        ),
        (
            "linux_proc_start",
            json!({"argv": ["cat", mib]}),
            "BAD_ARGS",
        ),
        (
            "linux_proc_start",
            json!({"argv": ["nmap"]}),
            "COMMAND_DENIED",
        ),
        ("linux_proc_start", json!({"command": " "}), "BAD_ARGS"),
        (
            "linux_proc_start",
            json!({"argv": ["cat"], "cwd": "../outside"}),
            "INVALID_PATH",
        ),
        (
            "linux_proc_start",
            json!({"argv": ["cat"], "cwd": "nope"}),
            "NOT_FOUND",
        ),
        (
            "linux_proc_start",
            json!({"argv": ["cat"], "pty": "yes"}),
            "BAD_ARGS",
        ),
        ("linux_proc_read", json!({"proc_id": "proc_x"}), "NOT_FOUND"),
        ("linux_proc_read", json!({"proc_id": ""}), "NOT_FOUND"),
        ("linux_proc_read", json!({"proc_id": "a\0"}), "NOT_FOUND"),
        (
            "linux_proc_read",
            json!({"proc_id": id, "until": "a("}),
            "BAD_ARGS",
        ),
        (
            "linux_proc_read",
            json!({"proc_id": id, "until": "a{9999}{9999}"}),
            "BAD_ARGS",
        ),
        (
            "linux_proc_read",
            json!({"proc_id": id, "offset": -1}),
            "BAD_ARGS",
        ),
        (
            "linux_proc_read",
            json!({"proc_id": id, "offset": 7}),
            "BAD_ARGS",
        ),
        (
            "linux_proc_read",
            json!({"proc_id": id, "timeout": -1}),
            "BAD_ARGS",
        ),
        (
            "linux_proc_send",
            json!({"proc_id": "proc_x", "input": "x"}),
            "NOT_FOUND",
        ),
        (
            "linux_proc_send",
            json!({"proc_id": id, "input": format!("{mib}x")}),
            "BAD_ARGS",
        ),
        ("linux_proc_stop", json!({"proc_id": "proc_x"}), "NOT_FOUND"),
        (
            "linux_proc_stop",
            json!({"proc_id": id, "signal": "NOPE"}),
            "BAD_ARGS",
        ),
    ] {
        let (failed, text) = client.call_tool(name, args.clone());
        let args: String = args.to_string().chars().take(200).collect();
        assert!(failed, "{name} {args}: {text}");
        assert_eq!(
            error_document(&text)["meta"]["error_code"],
            code,
            "{name} {args}: {text}"
        );
    }
    let error = client.error("linux_proc_read", json!({"proc_id": id, "until": "ab("}));
    assert!(
        error["error"].as_str().unwrap().contains("at character 3"),
        "{error}"
    );
    // What is large but allowed goes through whole, NUL and all.
    send(&mut client, &id, &mib);
    send(&mut client, &id, "\0end");
    let mut seen = 0;
    while seen < mib.len() + 4 {
        let answer = client.json("linux_proc_read", json!({"proc_id": id}));
        seen = usize::try_from(answer["next_offset"].as_u64().unwrap()).unwrap();
    }
    // One that does not read takes what a pipe holds, and the error tells how much that was.
    let id = sh(&mut client, "sleep 1000");
    let error = client.error("linux_proc_send", json!({"proc_id": id, "input": mib}));
    assert_eq!(error["meta"]["error_code"], "TIMEOUT");
    assert_eq!(error["meta"]["bytes"], 65536, "{error}");
}

#[test]
fn an_idle_process_is_ended_and_reported() {
    let workspace = workspace("//- a\n");
    let mut client = workspace.mcp([
        "--mode",
        "classic",
        "--set",
        "mcp.tools.proc_idle_timeout=1",
    ]);
    client.initialize("2025-11-25");
    let id = start(&mut client, &["cat"], false);
    eventually("it is ended", || {
        let list = client.json("linux_proc_list", json!({}));
        list["processes"][0]["running"] == false
    });
    let end = client.json("linux_proc_read", json!({"proc_id": id}));
    assert_eq!(
        (&end["signal"], &end["exit_code"]),
        (&json!(9), &Value::Null)
    );
    assert!(
        end["note"].as_str().unwrap().contains("idle_timeout"),
        "{end}"
    );
}

#[test]
fn switched_off_commands_start_no_processes() {
    let workspace = workspace(
        "//- llmc.toml\n[mcp]\nmode = \"classic\"\n[mcp.tools]\nenable_run_cmd = false\n",
    );
    let mut client = classic(&workspace);
    let list = client.request("tools/list", json!({})).to_string();
    for (name, listed) in [
        ("linux_proc_start", false),
        ("linux_proc_send", false),
        ("linux_proc_read", true),
        ("linux_proc_list", true),
        ("linux_sys_snapshot", true),
    ] {
        assert_eq!(list.contains(&format!("\"{name}\"")), listed, "{name}");
    }
    let ended = workspace.llmc(["tool", "linux_proc_start", "--command", "ls"]);
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
}

#[test]
fn the_machine_is_described() {
    let workspace = workspace("//- a\n");
    let mut client = classic(&workspace);
    let seen = client.json("linux.sys_snapshot", json!({}));
    assert_eq!(
        keys(&seen),
        [
            "cpu_count",
            "disk",
            "load",
            "mem_available_bytes",
            "mem_total_bytes",
            "uptime_s"
        ]
    );
    assert!(seen["cpu_count"].as_u64().unwrap() > 0);
    assert_eq!(seen["load"].as_array().unwrap().len(), 3);
    assert!(seen["mem_total_bytes"].as_u64() > seen["mem_available_bytes"].as_u64());
    assert_eq!(
        keys(&seen["disk"][0]),
        ["free_bytes", "path", "total_bytes"]
    );
    assert_eq!(seen["disk"][0]["path"], ".");
    assert!(seen["disk"][0]["total_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn waiting_calls_do_not_keep_the_call_that_they_wait_for() {
    let workspace = workspace("");
    let flags = [
        "--mode",
        "classic",
        "--set",
        "mcp.limits.concurrency_per_token=1",
    ];
    let mut client = workspace.mcp(flags);
    client.initialize("2025-11-25");
    let id = start(&mut client, &["cat"], false);
    let reads: Vec<i64> = (0..20)
        .map(|_| {
            let args = json!({"proc_id": id, "until": "hello", "timeout": 300, "offset": 0});
            client.send_call("linux_proc_read", args)
        })
        .collect();
    let script = "until test -e go; do sleep 0.05; done; echo gone";
    let command = client.send_call("run_cmd", json!({"command": script, "timeout": 300}));
    send(&mut client, &id, "hello\n");
    for read in reads {
        let (failed, text) = client.tool_answer(read);
        assert!(!failed && text.contains("hello"), "{text}");
    }
    client.text("run_cmd", json!({"command": "touch go"}));
    let (failed, text) = client.tool_answer(command);
    assert!(!failed && text.contains("gone"), "{text}");
}
