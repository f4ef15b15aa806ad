//! How a server ends: soon, cleanly, and with everything answered that was asked.

use std::time::{Duration, Instant};

use llmc_testkit::{McpClient, TestProcess};
use rustix::process::{Pid, Signal, test_kill_process};
use serde_json::json;

use crate::{classic, huge, workspace};

/// The server promises two seconds; the rest is for a machine that is busy with other tests.
const SOON: Duration = Duration::from_secs(8);

#[test]
fn the_end_of_input_ends_it_with_everything_answered() {
    let workspace = workspace("//- a.txt\none\n");
    let mut client = classic(&workspace);
    let ids: Vec<i64> = (0..50)
        .map(|n| {
            client.send_call(
                "linux_fs_write",
                json!({"path": format!("f{n}"), "content": "x"}),
            )
        })
        .collect();
    client.process().close_stdin();
    for id in ids {
        assert!(!client.tool_answer(id).0);
    }
    let ended = client.wait();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""));
    assert!(ended.took < SOON, "{:?}", ended.took);
}

#[test]
fn the_end_of_input_ends_it_in_two_seconds_even_with_calls_running() {
    let workspace = workspace("//- a.txt\none\n");
    huge(&workspace, "huge");
    let mut client = workspace.mcp(["--mode", "classic", "--set", "mcp.tools.read_timeout=600"]);
    client.initialize("2025-11-25");
    for _ in 0..4 {
        client.send_call("linux_fs_read", json!({"path": "huge", "max_lines": 1}));
    }
    let quick = client.send_call("read_file", json!({"path": "a.txt"}));
    let started = Instant::now();
    client.process().close_stdin();
    assert!(
        client.tool_answer(quick).1.starts_with("one"),
        "what was read is answered"
    );
    let ended = client.wait();
    assert!(
        started.elapsed() < SOON + Duration::from_millis(500),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn a_signal_ends_it_with_success() {
    let workspace = workspace("//- a.txt\none\n");
    huge(&workspace, "huge");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        for busy in [false, true] {
            let mut client =
                workspace.mcp(["--mode", "classic", "--set", "mcp.tools.read_timeout=600"]);
            client.initialize("2025-11-25");
            if busy {
                client.send_call("linux_fs_read", json!({"path": "huge", "max_lines": 1}));
            }
            client.text("read_file", json!({"path": "a.txt"}));
            client.process().signal(signal);
            let ended = client.wait();
            assert_eq!(
                (ended.code, ended.signal),
                (Some(0), None),
                "{signal:?} {}",
                ended.stderr
            );
            assert!(ended.took < SOON, "{signal:?}: {:?}", ended.took);
        }
    }
}

#[test]
fn the_end_of_the_parent_ends_serving_with_open_input() {
    let workspace = workspace("//- a.txt\none\n");
    // The shell starts the server in the background, tells its number and waits to be killed. The server's input is
    // ours and stays open.
    let mut command = workspace.command_of("sh");
    let script = "exec 3<&0; \"$0\" mcp --mode classic <&3 3<&- & echo \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"pid\\\":$!}\"; wait";
    command.arg("-c").arg(script).arg(workspace.program());
    let mut client = McpClient::new(TestProcess::start(command));
    let pid = client.next_message().unwrap()["pid"].as_i64().unwrap();
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    client.initialize("2025-11-25");
    client.text("read_file", json!({"path": "a.txt"}));
    client.process().signal(Signal::KILL);
    let started = Instant::now();
    // Its output ends when it does.
    while client.next_message().is_some() {}
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    assert!(
        test_kill_process(pid).is_err() || is_zombie(pid),
        "still running"
    );
}

fn is_zombie(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| {
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with(['Z', 'X']))
    })
}

#[test]
fn a_client_that_does_not_read_does_not_block_the_shutdown() {
    let workspace = workspace("//- a.txt\none\n");
    workspace.write("big.txt", "some text to fill the pipe with\n".repeat(2000));
    // The pipe's other end is held and never read.
    let (unread, output) = std::io::pipe().unwrap();
    let mut child = workspace
        .command()
        .args(["mcp", "--mode", "classic"])
        .stdin(std::process::Stdio::piped())
        .stdout(output)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for id in 0..20 {
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "linux_fs_read", "arguments": {"path": "big.txt", "max_lines": 2000}}});
        std::io::Write::write_all(&mut stdin, format!("{call}\n").as_bytes()).unwrap();
    }
    drop(stdin);
    let (send, receive) = std::sync::mpsc::channel();
    let started = Instant::now();
    let waiter = std::thread::spawn(move || send.send(child.wait().unwrap()));
    let status = receive
        .recv_timeout(Duration::from_secs(20))
        .expect("it ends");
    assert!(
        started.elapsed() < SOON + Duration::from_millis(500),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(status.code(), Some(0));
    waiter.join().unwrap().unwrap();
    drop(unread);
}

#[test]
fn input_that_ends_in_the_middle_of_a_line_is_answered_and_ended() {
    let workspace = workspace("//- a.txt\none\n");
    let mut client = classic(&workspace);
    client
        .process()
        .write(br#"{"jsonrpc":"2.0","id":"half","method":"#);
    client.process().close_stdin();
    let answer = client.next_message().expect("a broken line is answered");
    assert_eq!(answer["error"]["code"], -32700, "{answer}");
    assert_eq!(client.wait().code, Some(0));
}

#[test]
fn an_interrupted_tool_says_that_it_was_cancelled() {
    let workspace = workspace("//- a.txt\none\n");
    huge(&workspace, "huge");
    let mut command = workspace.command();
    command.args(["--set", "mcp.tools.read_timeout=600", "tool"]);
    command.args(["linux_fs_read", "--path", "huge", "--max-lines", "1"]);
    let process = TestProcess::start(command);
    // Only once it catches the signal is it worth sending.
    let deadline = Instant::now() + Duration::from_secs(20);
    while !catches(process.pid(), Signal::INT) {
        assert!(
            Instant::now() < deadline,
            "never listens: {}",
            process.stderr()
        );
        std::thread::yield_now();
    }
    process.signal(Signal::INT);
    let ended = process.wait();
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(130), ""),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("cancelled"), "{}", ended.stderr);
}

/// Whether a process has a handler for a signal.
fn catches(pid: Pid, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()))
        .unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.unwrap_or("0").trim(), 16).unwrap();
    caught & (1 << (signal.as_raw() - 1)) != 0
}
