//! Programs that outlive their calls: started, read, written to and ended over MCP.

use std::path::Path;
use std::time::{Duration, Instant};

use llmc_testkit::{McpClient, TestWorkspace, skip};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{classic, keys, workspace};

pub(crate) const PROCESS_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) fn start(client: &mut McpClient, argv: &[&str], pty: bool) -> String {
    let started = client.json("linux_proc_start", json!({"argv": argv, "pty": pty}));
    assert!(started["pid"].as_i64().unwrap() > 1, "{started}");
    let id = started["proc_id"].as_str().unwrap();
    assert!(id.starts_with("p_") && id.len() == 10, "{id}");
    id.to_owned()
}

pub(crate) fn sh(client: &mut McpClient, script: &str) -> String {
    start(client, &["sh", "-c", script], false)
}

pub(crate) fn send(client: &mut McpClient, id: &str, input: &str) {
    let sent = client.json("linux_proc_send", json!({"proc_id": id, "input": input}));
    assert_eq!(sent, json!({"ok": true, "bytes": input.len()}));
}

pub(crate) fn read(client: &mut McpClient, id: &str, until: &str) -> Value {
    let args = json!({"proc_id": id, "until": until, "timeout": 15});
    client.json("linux_proc_read", args)
}

/// Everything from here to the end of the process.
pub(crate) fn rest(client: &mut McpClient, id: &str) -> (String, Value) {
    let deadline = Instant::now() + PROCESS_TIMEOUT;
    let mut whole = String::new();
    loop {
        let args = json!({"proc_id": id, "timeout": 5});
        let answer = client.json("linux_proc_read", args);
        whole.push_str(answer["output"].as_str().unwrap());
        let more = answer["note"]
            .as_str()
            .is_some_and(|note| note.contains("more bytes"));
        if answer["running"] == false && !more {
            return (whole, answer);
        }
        assert!(Instant::now() < deadline, "{answer}");
    }
}

/// A call of another conversation.
pub(crate) fn as_other(
    client: &mut McpClient,
    session: &str,
    name: &str,
    args: Value,
) -> (bool, Value) {
    let params = json!({"name": name, "arguments": args, "_meta": {"llmc/sessionId": session}});
    let answer = client.request("tools/call", params);
    let result = &answer["result"];
    let text = result["content"][0]["text"].as_str().unwrap();
    let answer = serde_json::from_str(text).unwrap_or_else(|_| text.into());
    (result["isError"] == true, answer)
}

/// A file that a stubborn process keeps writing to: proof of life.
pub(crate) fn is_written(file: &Path) -> bool {
    let size = || std::fs::metadata(file).map_or(0, |status| status.len());
    let before = size();
    std::thread::sleep(Duration::from_millis(150));
    size() > before
}

pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PROCESS_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_shell_runs_in_a_terminal() {
    let workspace = workspace("//- a.txt\none\n");
    let mut client = classic(&workspace);
    let id = start(&mut client, &["bash", "--norc", "--noprofile", "-i"], true);
    let hello = read(&mut client, &id, r"\$ $|# $");
    assert_eq!(
        keys(&hello),
        [
            "dropped_bytes",
            "exit_code",
            "next_offset",
            "offset",
            "output",
            "running",
            "signal"
        ]
    );
    assert_eq!(hello["running"], true);
    assert_eq!(hello["exit_code"], Value::Null);
    send(
        &mut client,
        &id,
        "x=6; cat a.txt; echo $((x*7)); tty -s && echo term\n",
    );
    let answer = read(&mut client, &id, "term");
    let output = answer["output"].as_str().unwrap();
    assert!(
        output.contains("one\n42\nterm\n"),
        "no echo, no noise: {output:?}"
    );
    assert!(
        !output.contains("x=6") && !output.contains("\\x1b"),
        "{output:?}"
    );
    assert_eq!(
        answer["offset"], hello["next_offset"],
        "goes on where it was"
    );
    // The state is kept, and a key interrupts what runs. Pressed before that runs, it would be the shell's.
    let waits = "sh -c 'echo go; exec sleep 1000'\n";
    send(&mut client, &id, waits);
    read(&mut client, &id, "go\n");
    send(&mut client, &id, "\u{3}");
    send(&mut client, &id, "echo x is $x\n");
    read(&mut client, &id, "x is 6");
    send(&mut client, &id, "exit 3\n");
    let (_, end) = rest(&mut client, &id);
    assert_eq!(
        (&end["exit_code"], &end["signal"]),
        (&json!(3), &Value::Null)
    );
    client.assert_code(
        "linux_proc_send",
        json!({"proc_id": id, "input": "x"}),
        "NOT_FOUND",
    );
}

#[test]
fn python_and_pipes_work_where_they_are() {
    let workspace = workspace("//- a.txt\none\n");
    let mut client = classic(&workspace);
    let id = start(&mut client, &["cat"], false);
    send(&mut client, &id, "zwölf\n");
    assert_eq!(read(&mut client, &id, "lf\n")["output"], "zwölf\n");
    // Nothing to read is no error.
    let none = client.json("linux_proc_read", json!({"proc_id": id, "timeout": 0}));
    assert_eq!(
        (&none["output"], &none["running"]),
        (&json!(""), &json!(true))
    );
    // An empty input ends the input, and so the program.
    assert_eq!(
        client.json("linux_proc_send", json!({"proc_id": id, "input": ""})),
        json!({"ok": true, "bytes": 0})
    );
    let (_, end) = rest(&mut client, &id);
    assert_eq!(end["exit_code"], 0);
    let again = client.json(
        "linux_proc_read",
        json!({"proc_id": id, "offset": 1, "timeout": 0}),
    );
    assert_eq!(
        (&again["output"], &again["offset"]),
        (&json!("wölf\n"), &json!(1))
    );
    let (failed, text) = client.call_tool("run_cmd", json!({"command": "python --version"}));
    if failed {
        skip(&text);
        return;
    }
    for pty in [true, false] {
        let id = start(&mut client, &["python", "-i", "-q"], pty);
        read(&mut client, &id, ">>> ");
        send(&mut client, &id, "print(6 * 7)\n");
        let answer = read(&mut client, &id, ">>> ");
        assert_eq!(answer["output"], "42\n>>> ", "pty {pty}");
    }
}

#[test]
fn no_byte_is_repeated_or_lost() {
    let workspace = workspace("//- a\n");
    let mut client = classic(&workspace);
    let script = "i=0; while [ $i -lt 3000 ]; do echo line $i äöü; i=$((i+1)); done";
    let id = sh(&mut client, script);
    let (mut whole, mut next) = (String::new(), 0);
    loop {
        let answer = client.json("linux_proc_read", json!({"proc_id": id}));
        assert_eq!(answer["offset"], next, "{answer}");
        assert_eq!(answer["dropped_bytes"], 0);
        let output = answer["output"].as_str().unwrap();
        next = answer["next_offset"].as_u64().unwrap();
        whole.push_str(output);
        assert_eq!(whole.len() as u64, next, "positions are bytes");
        if answer["running"] == false && output.is_empty() {
            break;
        }
    }
    let expected: String = (0..3000).map(|n| format!("line {n} äöü\n")).collect();
    assert_eq!(whole, expected);
}

#[test]
fn what_was_pushed_out_is_counted() {
    let workspace = workspace("//- a\n");
    let mut client = classic(&workspace);
    // 1.5 MiB, of which the last one is kept.
    let script = "i=100000; while [ $i -lt 196608 ]; do echo $i-------; i=$((i+1)); done | cat";
    let id = sh(&mut client, script);
    eventually("it ends", || {
        let list = client.json("linux_proc_list", json!({}));
        list["processes"][0]["running"] == false
    });
    let first = client.json("linux_proc_read", json!({"proc_id": id}));
    let total = 96_608 * 14;
    let kept = 1 << 20;
    assert_eq!(
        first["dropped_bytes"],
        total - kept,
        "{:?}",
        first["dropped_bytes"]
    );
    assert_eq!(first["offset"], total - kept);
    let (mut text, _) = rest(&mut client, &id);
    text.insert_str(0, first["output"].as_str().unwrap());
    assert_eq!(text.len() as u64, kept);
    assert!(text.ends_with("196607-------\n"));
    let past = json!({"proc_id": id, "offset": total + 1});
    client.assert_code("linux_proc_read", past, "BAD_ARGS");
}

#[test]
fn split_characters_wait_and_broken_ones_are_shown() {
    let workspace = workspace("//- a\n");
    let mut client = classic(&workspace);
    let id = sh(
        &mut client,
        r"printf 'a\342'; read x; printf '\202\254\n'; read x; printf '\377b\342'",
    );
    let first = read(&mut client, &id, "a");
    assert_eq!(
        (&first["output"], &first["next_offset"]),
        (&json!("a"), &json!(1))
    );
    let still = client.json("linux_proc_read", json!({"proc_id": id, "timeout": 0.1}));
    assert_eq!(
        (&still["output"], &still["next_offset"]),
        (&json!(""), &json!(1))
    );
    send(&mut client, &id, "\n");
    let second = read(&mut client, &id, "\n");
    assert_eq!(
        (&second["output"], &second["next_offset"]),
        (&json!("€\n"), &json!(5))
    );
    send(&mut client, &id, "\n");
    let (text, end) = rest(&mut client, &id);
    assert_eq!(
        text, "\u{fffd}b\u{fffd}",
        "at the end nothing waits any more"
    );
    assert_eq!(end["next_offset"], 8);
}

#[test]
fn a_storm_of_escapes_is_left_out_and_counted() {
    let workspace = workspace("//- a\n");
    let mut client = classic(&workspace);
    let script = r"i=0; while [ $i -lt 2000 ]; do printf '\033[3%dm\033]0;t\007w\033[0m\033[2J' $((i%8)); i=$((i+1)); done; printf '\033[';";
    let id = start(&mut client, &["sh", "-c", script], true);
    let (text, end) = rest(&mut client, &id);
    assert_eq!(text, format!("{}\\x1b[", "w".repeat(2000)));
    assert_eq!(end["next_offset"], 2000 * (5 + 6 + 1 + 4 + 4) + 2);
}

#[test]
fn a_waiting_read_is_cancelled_and_the_process_lives_on() {
    let workspace = workspace("//- a\n");
    let mut client = classic(&workspace);
    let id = start(&mut client, &["cat"], false);
    let args = json!({"proc_id": id, "until": "never", "timeout": 30});
    let started = Instant::now();
    let call = client.send_call("linux_proc_read", args);
    client.notify("notifications/cancelled", json!({"requestId": call}));
    send(&mut client, &id, "alive\n");
    assert_eq!(read(&mut client, &id, "alive")["output"], "alive\n");
    assert!(started.elapsed() < Duration::from_secs(20));
    // A longer wait than commands may take is lowered, and that is said.
    let args = json!({"proc_id": id, "timeout": 1e300, "until": "\n"});
    send(&mut client, &id, "x\n");
    let answer = client.json("linux_proc_read", args);
    assert!(
        answer["note"].as_str().unwrap().contains("wait_s"),
        "{answer}"
    );
}

#[test]
fn a_tree_that_resists_is_stopped() {
    let workspace = workspace("//- a\n");
    let mut client = classic(&workspace);
    let life = workspace.path("life");
    let script = "trap '' TERM HUP; (setsid sh -c 'trap \"\" TERM HUP; \
                  while :; do echo x >> life; sleep 0.01; done' &); echo ready; \
                  while :; do sleep 0.01; done";
    for (pty, signal) in [
        (false, Value::Null),
        (true, json!("INT")),
        (true, json!("9")),
    ] {
        let id = start(&mut client, &["sh", "-c", script], pty);
        read(&mut client, &id, "ready");
        eventually("it lives", || is_written(&life));
        let mut args = json!({"proc_id": id});
        if !signal.is_null() {
            args["signal"] = signal.clone();
        }
        let stopped = client.json("linux_proc_stop", args.clone());
        assert_eq!(keys(&stopped), ["exit_code", "ok", "signal"]);
        let by = if signal == "INT" { 2 } else { 9 };
        assert_eq!(
            stopped,
            json!({"ok": true, "exit_code": null, "signal": by})
        );
        assert!(!is_written(&life), "something survived");
        assert_eq!(
            client.json("linux_proc_stop", args),
            stopped,
            "once more is the same"
        );
    }
}

fn keep_alive(workspace: &TestWorkspace, client: &mut McpClient) -> [std::path::PathBuf; 2] {
    let files = ["one", "two"];
    for (file, pty) in files.into_iter().zip([false, true]) {
        let script = format!(
            "trap '' TERM HUP; (setsid sh -c 'trap \"\" TERM HUP; \
             while :; do echo x >> {file}; sleep 0.01; done' &); while :; do sleep 0.01; done"
        );
        start(client, &["sh", "-c", &script], pty);
        eventually("it lives", || is_written(&workspace.path(file)));
    }
    files.map(|file| workspace.path(file))
}

#[test]
fn nothing_outlives_the_server() {
    let workspace = workspace("//- a\n");
    for how in [None, Some(Signal::TERM), Some(Signal::KILL)] {
        let mut client = classic(&workspace);
        let files = keep_alive(&workspace, &mut client);
        let ended = match how {
            None => client.finish(),
            Some(signal) => {
                client.process().signal(signal);
                client.wait()
            }
        };
        if how == Some(Signal::KILL) {
            eventually("all of it dies", || {
                !files.iter().any(|file| is_written(file))
            });
        } else {
            assert_eq!(ended.code, Some(0), "{}", ended.stderr);
            assert!(ended.took < Duration::from_secs(20), "{:?}", ended.took);
            assert!(
                !files.iter().any(|file| is_written(file)),
                "{how:?}: something survived"
            );
        }
        files
            .iter()
            .for_each(|file| std::fs::remove_file(file).unwrap());
    }
}

#[test]
fn what_a_process_plants_is_taken_away_at_its_end() {
    let workspace = workspace("//- a\n");
    let mut client = classic(&workspace);
    let health = client.json("health", json!({}));
    if health["confinement"]
        .as_str()
        .unwrap()
        .contains("protected=none")
    {
        skip("protected names of commands");
        return;
    }
    let script = "mkdir sub; echo '[mcp]' > llmc.toml; echo ready; read x";
    let id = sh(&mut client, script);
    read(&mut client, &id, "ready");
    let stopped = client.json("linux_proc_stop", json!({"proc_id": id}));
    let note = stopped["note"].as_str().unwrap_or_default();
    assert!(note.contains("llmc.toml is protected"), "{stopped}");
    assert!(!workspace.path("llmc.toml").exists());
    // Also when the server ends first.
    let id = sh(&mut client, script);
    read(&mut client, &id, "ready");
    assert!(workspace.path("llmc.toml").exists());
    assert_eq!(client.finish().code, Some(0));
    assert!(!workspace.path("llmc.toml").exists());
}
