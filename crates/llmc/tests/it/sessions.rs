//! What the commands, scripts and file tools of one client share, seen by the client and from outside.

use std::time::{Duration, Instant};

use llmc_testkit::{McpClient, TEST_TIMEOUT, TestWorkspace};
use serde_json::json;

use crate::{classic, workspace};

fn run(client: &mut McpClient, line: &str) -> String {
    client.text("run_cmd", json!({"command": line}))
}

/// Whether the commands of a session share their processes here.
fn has_sessions(client: &mut McpClient) -> bool {
    run(client, "echo once > /dev/shm/probe");
    run(client, "cat /dev/shm/probe 2>/dev/null; true").contains("once")
}

fn classic_client(workspace: &TestWorkspace) -> Option<McpClient> {
    let mut client = classic(workspace);
    has_sessions(&mut client).then_some(client)
}

/// The id in `# LLMC: what it started goes on as p_…`.
fn left_id(answer: &str) -> String {
    let id = answer.split("goes on as ").nth(1);
    let id = id.unwrap_or_else(|| panic!("nothing goes on: {answer}"));
    id.chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect()
}

/// Processes of the host with this word among their arguments.
fn processes_with(word: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| {
            line.split(|byte| *byte == 0)
                .any(|arg| arg == word.as_bytes())
        })
        .count()
}

fn wait_for_processes(word: &str, count: usize) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while processes_with(word) != count {
        assert!(
            Instant::now() < deadline,
            "{} processes",
            processes_with(word)
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A length of sleep that no other process has.
fn mark(number: u32) -> String {
    format!("1000.{}{number}", std::process::id())
}

#[test]
fn what_a_command_leaves_running_is_a_process_of_the_session() {
    let workspace = workspace("//- a.txt\none\n");
    let Some(mut client) = classic_client(&workspace) else {
        return;
    };
    let line = "(while [ ! -e go ]; do sleep 0.05; done; echo later; echo late > late.txt) & echo $! > pid; echo first";
    let answer = run(&mut client, line);
    assert!(answer.starts_with("first\n"), "{answer}");
    let id = left_id(&answer);
    let listed = client.json("linux_proc_list", json!({}));
    assert!(listed.to_string().contains(&id), "{listed}");
    assert_eq!(run(&mut client, "kill -0 $(cat pid) && touch go"), "");
    let end = client.text("run_cmd", json!({"proc": id, "timeout": 20}));
    assert!(end.contains("later"), "{end}");
    assert_eq!(workspace.read("late.txt"), "late\n");
    // A daemon that keeps none of the call's descriptors.
    let sleep = mark(1);
    let answer = run(
        &mut client,
        &format!("setsid nohup sleep {sleep} >/dev/null 2>&1 & echo $! > daemon.pid"),
    );
    left_id(&answer);
    wait_for_processes(&sleep, 1);
    run(&mut client, "kill $(cat daemon.pid)");
    wait_for_processes(&sleep, 0);
}

#[test]
fn scripts_and_file_tools_find_what_commands_put_in_tmp() {
    let workspace = workspace("//- a.txt\none\n");
    let Some(mut client) = classic_client(&workspace) else {
        return;
    };
    run(&mut client, "echo from a command > /tmp/shared.txt");
    client.assert_contains(
        "read_file",
        json!({"path": "/tmp/shared.txt"}),
        "from a command",
    );
    client.assert_contains("list_dir", json!({"path": "/tmp"}), "shared.txt");
    client.assert_code(
        "linux_fs_write",
        json!({"path": "/tmp/new.txt", "content": "x"}),
        "INVALID_PATH",
    );
    let code = "print(open('/tmp/shared.txt').read())\nopen('/tmp/script.txt', 'w').write('from a script\\n')\n\
                import subprocess\nprint(subprocess.run(['cat', '/tmp/script.txt'], capture_output=True, text=True).stdout)";
    let printed = client.text("execute_code", json!({"code": code}));
    if !printed.contains("no module") && client.text("health", json!({})).contains("Python") {
        assert!(printed.contains("from a command"), "{printed}");
        assert!(printed.contains("from a script"), "{printed}");
        assert_eq!(run(&mut client, "cat /tmp/script.txt"), "from a script\n");
    }
    // Interpreters that wait do not fill the list of processes.
    let listed = run(&mut client, "ps -ef | wc -c");
    assert!(
        listed.trim().parse::<u32>().is_ok_and(|bytes| bytes < 6000),
        "{listed}"
    );
    // Another client has its own.
    let mut other = classic(&workspace);
    assert!(run(&mut other, "ls /tmp").trim().is_empty());
    assert!(!std::path::Path::new("/tmp/shared.txt").exists());
}

#[test]
fn a_terminal_has_a_name_in_the_session() {
    let workspace = workspace("//- a.txt\none\n");
    let Some(mut client) = classic_client(&workspace) else {
        return;
    };
    let started = client.json(
        "linux_proc_start",
        json!({"command": "tty; cat", "pty": true}),
    );
    let id = started["proc_id"].as_str().unwrap();
    let read = client.json(
        "linux_proc_read",
        json!({"proc_id": id, "until": "\n", "timeout": 20}),
    );
    let name = read["output"].as_str().unwrap().trim();
    assert!(name.starts_with("/dev/pts/"), "{read}");
    let there = run(&mut client, &format!("test -c {name} && echo there"));
    assert_eq!(there, "there\n");
}

#[test]
fn the_end_of_a_client_ends_its_daemons() {
    let workspace = workspace("//- a.txt\none\n");
    let Some(mut client) = classic_client(&workspace) else {
        return;
    };
    let sleep = mark(2);
    let line = format!("for n in $(seq 50); do setsid sleep {sleep} >/dev/null 2>&1 & done");
    run(&mut client, &line);
    wait_for_processes(&sleep, 50);
    client.process().signal(rustix::process::Signal::KILL);
    wait_for_processes(&sleep, 0);
}
