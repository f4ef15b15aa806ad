//! Scripts that mean harm, over MCP. After each of them the server answers the next call.

use std::time::{Duration, Instant};

use llmc_testkit::{McpClient, TestProcess, TestWorkspace};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::code::{fails, run, server};
use crate::workspace;

/// Pids of the interpreters of a server, however deep below it they are.
fn interpreters(server: Pid) -> Vec<Pid> {
    let below = crate::code_python::below(server.as_raw_pid());
    let found = below
        .into_iter()
        .filter(|(_, words)| words.contains("-X utf8"));
    found.filter_map(|(pid, _)| Pid::from_raw(pid)).collect()
}

/// Scripts that mean harm, with a file outside of the roots as their aim.
pub(crate) fn attacks(path: &str) -> Vec<String> {
    vec![
        // Modules and builtins.
        "import os\nos.system('id > /tmp/owned')".to_owned(),
        "import subprocess\nsubprocess.run(['id'])".to_owned(),
        "import ctypes".to_owned(),
        "__import__('os').popen('id')".to_owned(),
        "exec('import os')".to_owned(),
        "eval('__import__(\"os\")')".to_owned(),
        "import importlib\nimportlib.import_module('os')".to_owned(),
        "from os import fork\nwhile True: fork()".to_owned(),
        "import threading\nwhile True: threading.Thread().start()".to_owned(),
        // Files, environment, sockets.
        format!("print(open('{path}').read())"),
        format!("from pathlib import Path\nprint(Path('{path}').read_text())"),
        format!("open('{path}', 'w').write('owned')"),
        "import os\nprint(os.environ)".to_owned(),
        "import os\nprint(os.getenv('CANARY_IN_ENV'))".to_owned(),
        "import socket\nsocket.create_connection(('127.0.0.1', 22))".to_owned(),
        "import urllib.request".to_owned(),
        // Walking from object to object.
        "print(().__class__.__bases__[0].__subclasses__())".to_owned(),
        "print((lambda: 0).__globals__)".to_owned(),
        "print(tools.read_file.__globals__)".to_owned(),
        "print(tools.__class__.__init__.__globals__)".to_owned(),
        "print('{0.__class__.__mro__}'.format(tools))".to_owned(),
        // Tools beyond the roots, and beyond what there is for scripts.
        format!("print(tools.read_file('{path}'))"),
        "print(tools.read_file('../secret.txt'))".to_owned(),
        "tools.linux_fs_write(path='../../etc/passwd', content='x')".to_owned(),
        "tools.linux_fs_write(path='llmc.toml', content='x')".to_owned(),
        "tools.linux_fs_write(path='.llmc/x', content='x')".to_owned(),
        "tools.run_cmd(argv=['no-such-program'])".to_owned(),
        "tools.run_cmd('true', cwd='..')".to_owned(),
        "tools.execute_code('1')".to_owned(),
        // Too much of everything.
        "x = 'a' * 10**10".to_owned(),
        "print('a' * 10**10)".to_owned(),
        "while True: print('a' * 10**6)".to_owned(),
        "x = []\nwhile True: x.append(x * 2)".to_owned(),
        "def f(): return f()\nf()".to_owned(),
        "while True: pass".to_owned(),
        "while True:\n  try:\n    while True: pass\n  except BaseException: pass".to_owned(),
        "while True:\n  try:\n    tools.read_file('no')\n  except BaseException: pass".to_owned(),
        "import re\nre.match(r'(a|aa)+$', 'a' * 60 + 'b')\nre.match(r'(?=(a+))(a|aa)+\\1b', 'a' * 60 + 'b')\nwhile True: pass".to_owned(),
        "2 ** 10**9".to_owned(),
        "x = 10**1000000\nwhile True: x = x * x".to_owned(),
        "'%s' * 10**9".to_owned(),
        "import itertools\nlist(itertools.count())".to_owned(),
        "import asyncio\nawait asyncio.gather(*[tools.aio.stat('a.txt') for _ in range(100000)])".to_owned(),
        "x = []\nfor i in range(200000): x = [x]\ntools.read_file(x)".to_owned(),
        format!("{}1{}", "(".repeat(30_000), ")".repeat(30_000)),
        format!("x = 1{}", " + 1".repeat(60_000)),
        "import json\njson.loads('[' * 10**6)".to_owned(),
    ]
}

#[test]
fn every_escape_fails_and_the_server_goes_on() {
    every_escape_fails(server);
}

#[test]
fn every_escape_fails_without_namespaces_too() {
    every_escape_fails(server_without_namespaces);
}

fn every_escape_fails(server: fn(&TestWorkspace, &[&str]) -> McpClient) {
    let workspace =
        workspace("//- a.txt\none\n").with_env("CANARY_IN_ENV", "canary-of-the-environment");
    let outside = workspace.outside("secret.txt");
    std::fs::write(&outside, "canary-outside").unwrap();
    let mut client = server(
        &workspace,
        &[
            "mcp.code_execution.timeout=3",
            "mcp.code_execution.max_memory_mb=64",
        ],
    );
    for code in &attacks(outside.to_str().unwrap()) {
        let started = Instant::now();
        let (_, text) = client.call_tool("execute_code", json!({"code": code}));
        let shown = &code[..code.len().min(80)];
        assert!(!text.contains("canary-"), "{shown}: {text}");
        assert!(started.elapsed() < Duration::from_secs(60), "{shown}");
        assert_eq!(
            client
                .text("read_file", json!({"path": "a.txt"}))
                .lines()
                .next(),
            Some("one"),
            "{shown}"
        );
        assert_eq!(run(&mut client, "1 + 1"), "2", "after {shown}");
    }
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "canary-outside");
    assert!(!workspace.path("llmc.toml").exists());
    let ended = client.finish();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn an_interpreter_killed_in_mid_call_is_replaced() {
    let workspace = workspace("//- a.txt\none\n");
    let mut client = server(&workspace, &[]);
    for round in 0..3 {
        let mark = format!("started{round}");
        let code = format!(
            "print('before')\ntools.linux_fs_write(path='{mark}', content='')\ntools.run_cmd(argv=['sh', '-c', 'sleep 5'])"
        );
        let id = client.send_call("execute_code", json!({"code": code}));
        let deadline = Instant::now() + Duration::from_secs(20);
        while !workspace.path(&mark).exists() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(5));
        }
        for worker in interpreters(client.process().pid()) {
            let _ = kill_process(worker, Signal::KILL);
        }
        let (failed, text) = client.tool_answer(id);
        assert!(failed && text.contains("before"), "{text}");
        assert_eq!(run(&mut client, "1 + 1"), "2");
    }
}

#[test]
fn a_cancelled_script_ends_with_its_calls_and_a_server_that_ends_leaves_no_interpreter() {
    let workspace = workspace("//- a.txt\none\n");
    let mut client = server(&workspace, &[]);
    for code in [
        "while True: pass",
        "while True: tools.stat('a.txt')",
        "tools.run_cmd(argv=['sh', '-c', 'sleep 60'])",
    ] {
        let id = client.send_call("execute_code", json!({"code": code}));
        let server = client.process().pid();
        let deadline = Instant::now() + Duration::from_secs(20);
        while interpreters(server).is_empty() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(5));
        }
        client.notify("notifications/cancelled", json!({"requestId": id}));
        assert_eq!(run(&mut client, "1 + 1"), "2", "{code}");
    }
    // In the middle of a script that would go on for ever.
    client.send_call(
        "execute_code",
        json!({"code": "print('x')\nwhile True: pass"}),
    );
    let server = client.process().pid();
    let deadline = Instant::now() + Duration::from_secs(20);
    while interpreters(server).is_empty() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    let left = interpreters(server);
    client.process().signal(Signal::KILL);
    client.wait();
    while left.iter().any(|pid| {
        let line =
            std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("utf8")
    }) {
        assert!(
            Instant::now() < deadline,
            "an interpreter outlives its server"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn hostile_names_and_words_stay_data() {
    let workspace = workspace("//- a.txt\none\n");
    let mut client = server(&workspace, &[]);
    // Whatever a file holds or a tool says comes back as text and is never run.
    workspace.write(
        "evil.txt",
        "'''\nimport os\ntools.linux_fs_delete('a.txt')\n'''",
    );
    assert!(run(&mut client, "tools.read_file('evil.txt')").contains("import os"));
    for code in [
        "getattr(tools, 'read_file\\nimport os')('a.txt')",
        "getattr(tools, 'execute_code')('1')",
        "getattr(tools.aio, '__globals__')",
        "tools.help('read_file\"; import os')",
    ] {
        let error = fails(&mut client, code);
        assert!(error["error"].is_string(), "{error}");
    }
    assert!(workspace.path("a.txt").exists());
}

/// Starts a program under a filter that refuses further filters, as on a kernel without them.
const WITHOUT_SECCOMP: &str = r#"
import ctypes, os, platform, struct, sys
seccomp, prctl = {"x86_64": (317, 157), "aarch64": (277, 167)}[platform.machine()]
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ERRNO = 0x7fff0000, 0x00050000
code = [
    (LOAD, 0, 0, 0),                 # the number of the call
    (EQUAL, 0, 1, seccomp),
    (RETURN, 0, 0, ERRNO | 38),      # no such call
    (EQUAL, 0, 3, prctl),
    (LOAD, 0, 0, 16),                # its first argument
    (EQUAL, 0, 1, 22),               # PR_SET_SECCOMP
    (RETURN, 0, 0, ERRNO | 22),
    (RETURN, 0, 0, ALLOW),
]
filter = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
program = Program(len(code), ctypes.cast(filter, ctypes.c_void_p))
call = ctypes.CDLL(None, use_errno=True).prctl
assert call(38, 1, 0, 0, 0) == 0 and call(22, 2, ctypes.byref(program), 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[1], sys.argv[1:])
"#;

#[test]
fn without_a_filter_for_system_calls_no_script_runs_whatever_the_environment_says() {
    let workspace = workspace("//- a.txt\none\n");
    for sandbox in ["auto", "python"] {
        let set = format!("mcp.code_execution.sandbox=\"{sandbox}\"");
        let mut command = workspace.command_of("python3");
        command
            .args(["-c", WITHOUT_SECCOMP])
            .arg(workspace.program())
            .args(["mcp", "--mode", "hybrid", "--set", &set])
            // What the first design took for isolation.
            .env("LLMC_ISOLATED", "1")
            .env("container", "docker");
        let mut client = McpClient::new(TestProcess::start(command));
        client.initialize("2025-11-25");
        let code = "tools.linux_fs_write(path='ran.txt', content='x')";
        let failed = fails(&mut client, code);
        assert_eq!(
            failed["meta"]["error_code"], "ISOLATION_REQUIRED",
            "{sandbox}: {failed}"
        );
        assert!(failed["meta"]["hint"].is_string(), "{sandbox}: {failed}");
        assert!(!workspace.path("ran.txt").exists(), "{sandbox}");
        // Everything that does not run foreign code works.
        client.assert_starts("read_file", json!({"path": "a.txt"}), "one\n");
    }
    // With the filter, and without any of those variables, the same script runs.
    let mut client = server(&workspace, &[]);
    run(
        &mut client,
        "tools.linux_fs_write(path='ran.txt', content='x')",
    );
    assert!(workspace.path("ran.txt").exists());
}

/// Starts a program under a filter that refuses namespaces, as container runtimes do.
const WITHOUT_NAMESPACES: &str = r#"
import ctypes, os, platform, struct, sys
unshare = {"x86_64": 272, "aarch64": 97}[platform.machine()]
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
code = [(LOAD, 0, 0, 0), (EQUAL, 0, 1, unshare), (RETURN, 0, 0, 0x00050000 | 1), (RETURN, 0, 0, 0x7fff0000)]
filter = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
program = Program(len(code), ctypes.cast(filter, ctypes.c_void_p))
call = ctypes.CDLL(None, use_errno=True).prctl
assert call(38, 1, 0, 0, 0) == 0 and call(22, 2, ctypes.byref(program), 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[1], sys.argv[1:])
"#;

/// A server that may make no namespaces.
pub(crate) fn server_without_namespaces(workspace: &TestWorkspace, sets: &[&str]) -> McpClient {
    let mut command = workspace.command_of("python3");
    command
        .args(["-c", WITHOUT_NAMESPACES])
        .arg(workspace.program())
        .args(["mcp", "--mode", "hybrid"]);
    for set in sets {
        command.args(["--set", set]);
    }
    let mut client = McpClient::new(TestProcess::start(command));
    client.initialize("2025-11-25");
    let level = run(&mut client, "tools.health().confinement");
    assert!(
        !level.contains("ns,") && level.contains("landlock"),
        "{level}"
    );
    client
}

#[test]
fn the_kernel_holds_an_interpreter_while_a_script_runs_in_it() {
    for start in [server, server_without_namespaces] {
        let workspace = workspace("//- a.txt\none\n");
        let mut client = start(&workspace, &[]);
        let code = "tools.run_cmd('touch started; while [ ! -e go ]; do sleep 0.05; done')";
        let id = client.send_call("execute_code", json!({"code": code}));
        crate::procs::eventually("the script runs", || workspace.path("started").exists());
        let found = interpreters(client.process().pid());
        assert!(!found.is_empty());
        for pid in found {
            let status = format!("/proc/{}/status", pid.as_raw_nonzero());
            let status = std::fs::read_to_string(status).unwrap();
            for line in ["Seccomp:\t2", "NoNewPrivs:\t1"] {
                assert!(status.contains(line), "{line}: {status}");
            }
        }
        workspace.write("go", "");
        assert!(!client.tool_answer(id).0);
    }
}
