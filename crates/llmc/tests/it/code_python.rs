//! `execute_code` in the system's Python: the same tools, and the kernel in place of an interpreter that knows no files.

use std::time::{Duration, Instant};

use llmc_testkit::{McpClient, TestProcess, TestWorkspace, skip};
use serde_json::{Value, json};

use crate::code::{fails, run};
use crate::workspace;

const PYTHON: &str = "mcp.code_execution.sandbox=\"python\"";

/// A server whose scripts run in Python; none where the kernel does not hold it or there is no Python.
pub(crate) fn server(workspace: &TestWorkspace, sets: &[&str]) -> Option<McpClient> {
    let mut flags = vec!["--mode", "hybrid", "--set", PYTHON];
    for set in sets {
        flags.extend(["--set", set]);
    }
    let mut client = workspace.mcp(flags);
    client.initialize("2025-11-25");
    let (failed, text) = client.call_tool("execute_code", json!({"code": "1"}));
    if failed {
        assert!(
            text.contains("ISOLATION_REQUIRED") || text.contains("python3"),
            "{text}"
        );
        skip(&text);
        return None;
    }
    Some(client)
}

fn code(document: &Value) -> &str {
    document["meta"]["error_code"].as_str().unwrap()
}

#[test]
fn scripts_do_what_the_embedded_interpreter_cannot_and_call_the_same_tools() {
    let workspace = workspace("//- a.txt\none\ntwo\n//- src/x.py\n# TODO(ann): x\n");
    let Some(mut client) = server(&workspace, &[]) else {
        return;
    };
    for (script, shown) in [
        (
            "import collections, statistics\nstatistics.median([3, 1, 2])",
            "2",
        ),
        ("class A(dict): pass\nlen(A(x=1))", "1"),
        ("(n for n in range(3)).__next__()", "0"),
        ("tools.read_file(path='a.txt')", "one\ntwo"),
        ("read_file('a.txt').splitlines()[1]", "two"),
        (
            "from tools import linux_search_content as s\ns('.', 'TODO')['total_hits']",
            "1",
        ),
        (
            "import asyncio\na, b = await asyncio.gather(tools.aio.stat(path='a.txt'), tools.aio.list_dir(path='.'))\na['size'], b",
            "(8, ['a.txt', 'src/'])",
        ),
        (
            "tools.search('delete a file')[0]['name']",
            "linux_fs_delete",
        ),
        ("tools.help('te_grep').splitlines()[0][:8]", "te_grep("),
        (
            "try:\n  tools.read_file(path='none')\nexcept FileNotFoundError as e:\n  print(tools.error_code(e))",
            "NOT_FOUND",
        ),
        (
            "print(tools.run_cmd(argv=['sh', '-c', 'echo one; exit 3']))",
            "one\nexit 3",
        ),
        ("print(tools.list_dir(path='.'))", "a.txt\nsrc/"),
        (
            "r = tools.stat(path='a.txt')\nprint(r.size, r['type'])",
            "8 file",
        ),
        (
            "str(tools.linux_fs_mkdirs(path='src'))",
            "{\"ok\":true,\"path\":\"src\"}",
        ),
        ("x = 1", "# LLMC: done; nothing was printed"),
    ] {
        assert_eq!(run(&mut client, script), shown, "{script}");
    }
    // What a script writes to /tmp is there for the next one and for commands.
    let script = "open('/tmp/own', 'w').write('x')\ntools.linux_fs_write(path='kept.txt', content='kept')\n0";
    assert_eq!(run(&mut client, script), "0");
    assert_eq!(workspace.read("kept.txt"), "kept");
    assert_eq!(run(&mut client, "open('/tmp/own').read()"), "x");
    // Uncaught, a tool's code stays.
    let failed = fails(&mut client, "print('so far')\ntools.read_file(path='../x')");
    assert_eq!(code(&failed), "INVALID_PATH");
    assert_eq!(failed["meta"]["output"], "so far\n");
    assert_eq!(
        failed["meta"]["source"],
        "    tools.read_file(path='../x')\n"
    );
    let failed = fails(&mut client, "if x\n  y");
    assert_eq!(code(&failed), "BAD_ARGS");
    assert!(
        failed["error"]
            .as_str()
            .unwrap()
            .starts_with("line 1: SyntaxError"),
        "{failed}"
    );
}

#[test]
fn sessions_keep_their_process_and_say_when_it_is_lost() {
    let workspace = workspace("//- a.txt\none\n");
    let Some(mut client) = server(&workspace, &["mcp.code_execution.timeout=3"]) else {
        return;
    };
    let in_session = |code: &str, name: &str| json!({"code": code, "session": name});
    let runs = |client: &mut McpClient, code: &str, name: &str| {
        let (_, text) = client.call_tool("execute_code", in_session(code, name));
        text
    };
    for (code, name, shown) in [
        (
            "x = [1]\nimport re\nopen('/tmp/x', 'w').write('kept')\nx",
            "s",
            "[1]\n# LLMC: session s is new",
        ),
        ("x.append(tools.stat('a.txt').size)\nx", "s", "[1, 4]"),
        ("re.sub('k', 'K', open('/tmp/x').read())", "s", "Kept"),
        ("x = 5\nx", "t", "5\n# LLMC: session t is new"),
        ("x", "s", "[1, 4]"),
    ] {
        assert_eq!(runs(&mut client, code, name), shown, "{code}");
    }
    // A script that fails keeps what it had done; one that is ended takes the session along.
    assert!(runs(&mut client, "x.append(9)\n1 / 0", "s").contains("ZeroDivisionError"));
    assert_eq!(runs(&mut client, "x", "s"), "[1, 4, 9]");
    let ended = runs(&mut client, "while True: pass", "s");
    assert!(
        ended.ends_with("# LLMC: session s is over; its variables are gone"),
        "{ended}"
    );
    let next = runs(&mut client, "'x' in globals()", "s");
    let lost = "# LLMC: session s was lost: time limit of 3 s reached; its variables are gone";
    assert_eq!(next, format!("False\n{lost}"));
    assert_eq!(runs(&mut client, "'x' in globals()", "s"), "False");
    assert!(runs(&mut client, "import os\nos._exit(3)", "s").contains("exit code 3"));
    assert!(runs(&mut client, "1", "s").contains("was lost: the interpreter ended itself"));
    // The oldest of too many makes room.
    for n in 0..8 {
        runs(&mut client, "1", &format!("n{n}"));
    }
    let text = runs(&mut client, "x", "t");
    assert!(text.contains("NameError"), "{text}");
    assert!(
        text.contains("session t was lost: 8 other sessions were used since"),
        "{text}"
    );
    // Two scripts in one session take turns.
    runs(&mut client, "n = 0", "turns");
    let ids: Vec<i64> = (0..6)
        .map(|_| client.send_call("execute_code", in_session("n += 1", "turns")))
        .collect();
    for id in ids {
        let (failed, text) = client.tool_answer(id);
        assert!(!failed, "{text}");
    }
    assert_eq!(runs(&mut client, "n", "turns"), "6");
    client.finish();
    // A process does not outlive its server, and the next server knows that there was one.
    let Some(mut client) = server(&workspace, &[]) else {
        panic!("the second server has no Python");
    };
    let text = runs(&mut client, "'n' in globals()", "turns");
    assert_eq!(
        text,
        "False\n# LLMC: session turns was lost: the server was restarted; its variables are gone"
    );
}

#[test]
fn callers_without_the_right_to_read_files_get_the_embedded_interpreter() {
    let workspace = workspace("//- a.txt\ncanary\n");
    let sha = llmc_host::sha256_hex(b"few-token-0123456789");
    let tokens = format!(
        "mcp.auth.tokens=[{{name=\"few\", sha256=\"{sha}\", tools=[\"execute_code\", \"stat\"]}}]"
    );
    let server = workspace.serve(["--set", &tokens, "--set", PYTHON]);
    let args = json!({"name": "execute_code", "args": {"code": "open('a.txt').read()"}});
    let answer = server
        .post_as("few-token-0123456789", "/tool", &args)
        .json();
    assert!(!answer.to_string().contains("canary"), "{answer}");
    for set in [
        "mcp.tools.denylist_reads=true",
        "mcp.code_execution.sandbox=\"monty\"",
    ] {
        let mut client = workspace.mcp(["--mode", "hybrid", "--set", set]);
        client.initialize("2025-11-25");
        let (failed, text) =
            client.call_tool("execute_code", json!({"code": "class A(dict): pass"}));
        assert!(failed && text.contains("inheritance"), "{set}: {text}");
    }
}

#[test]
fn rights_are_the_callers_and_limits_hold() {
    let workspace = workspace("//- a.txt\none\n");
    let sets = [
        "mcp.tools.read_only=true",
        "mcp.code_execution.timeout=5",
        "mcp.code_execution.max_tool_calls=3",
        "mcp.code_execution.max_output_bytes=2000",
        "mcp.code_execution.max_memory_mb=64",
    ];
    let Some(mut client) = server(&workspace, &sets) else {
        return;
    };
    for (script, wanted, words) in [
        (
            "tools.linux_fs_write(path='x', content='x')",
            "COMMAND_DENIED",
            "read only",
        ),
        ("tools.run_cmd(command='ls')", "COMMAND_DENIED", "read only"),
        ("tools.execute_code(code='1')", "BAD_ARGS", "AttributeError"),
        ("while True: pass", "TIMEOUT", "time limit of 5 s"),
        (
            "while True: tools.stat(path='a.txt')",
            "BAD_ARGS",
            "limit of 3 tool calls",
        ),
        (
            "while True: print('x' * 100)",
            "OUTPUT_TOO_LARGE",
            "output limit of 2000 bytes",
        ),
        (
            "x = bytearray(10**10)",
            "OUTPUT_TOO_LARGE",
            "memory limit of 64 MiB",
        ),
        ("import os\nos._exit(7)", "INTERNAL", "exit code 7"),
    ] {
        let failed = fails(
            &mut client,
            &format!("print('first', flush=True)\n{script}"),
        );
        assert_eq!(code(&failed), wanted, "{script}: {failed}");
        assert!(
            failed["error"].as_str().unwrap().contains(words),
            "{script}: {failed}"
        );
        assert!(
            failed["meta"]["output"]
                .as_str()
                .unwrap()
                .starts_with("first\n"),
            "{failed}"
        );
        // The server answers the next call.
        assert_eq!(run(&mut client, "print(1)"), "1");
    }
    assert!(!workspace.path("x").exists());
}

#[test]
fn the_token_and_the_host_are_out_of_reach_and_the_workspace_is_read_only() {
    let workspace = workspace("//- a.txt\nplain text\n//- .llmc/token\ncanary-token\n")
        .with_env("LLMC_MCP_TOKEN", "canary-environment");
    let Some(mut client) = server(&workspace, &[]) else {
        return;
    };
    let root = workspace.root();
    let pid = client.process().pid().as_raw_nonzero();
    let script = format!(
        "import _io, os, glob, posix, socket\n\
         def tried(what, *args):\n  try: print(what(*args))\n  except Exception as e: print('held', type(e).__name__)\n\
         read = lambda path: open(path, errors='replace').read()\n\
         for path in ['{root}/.llmc/token', '/proc/{pid}/environ', '/proc/1/environ', '/etc/passwd']:\n  tried(read, path)\n\
         tried(lambda: _io.open('{root}/planted', 'w'))\n\
         tried(posix.unlink, '{root}/a.txt')\n\
         tried(posix.chmod, 'a.txt', 0o777)\n\
         tried(posix.utime, 'a.txt')\n\
         tried(posix.rename, 'a.txt', 'planted')\n\
         tried(posix.fork)\n\
         tried(lambda: socket.create_connection(('1.1.1.1', 80), 1))\n\
         tried(lambda: socket.socket(socket.AF_UNIX).connect('/run/x'))\n\
         print(dict(os.environ))\n",
        root = root.display()
    );
    let text = run(&mut client, &script);
    assert!(
        !text.contains("canary") && !text.contains("root:"),
        "{text}"
    );
    assert!(text.matches("held").count() >= 10, "{text}");
    assert!(!workspace.path("planted").exists());
    for script in [
        "tools.read_file('a.txt')",
        "open('a.txt').read()",
        "import pathlib\npathlib.Path('a.txt').read_text()",
    ] {
        assert_eq!(run(&mut client, script), "plain text", "{script}");
    }
}

#[test]
fn without_kernel_support_scripts_are_refused_with_the_reason() {
    let workspace = workspace("//- a.txt\none\n");
    let take_away = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
    let mut command = workspace.command_of("unshare");
    command
        .args(["-Ur", "sh", "-c", take_away])
        .arg(workspace.program())
        .args(["mcp", "--mode", "hybrid", "--set", PYTHON])
        // An environment variable is no isolation.
        .env("LLMC_ISOLATED", "1")
        .env("container", "docker");
    let mut client = McpClient::new(TestProcess::start(command));
    let id = client.send_request("ping", json!({}));
    if client.process().has_ended() {
        skip("user namespaces, to take them away");
        return;
    }
    let _ = client.answer(&id.into());
    let failed = fails(&mut client, "1");
    assert_eq!(code(&failed), "ISOLATION_REQUIRED", "{failed}");
    assert!(
        failed["error"].as_str().unwrap().contains("userns"),
        "{failed}"
    );
    assert!(failed["meta"]["hint"].is_string(), "{failed}");
    // Everything else works, and the embedded interpreter needs no namespaces.
    client.assert_starts("read_file", json!({"path": "a.txt"}), "one\n");
}

#[test]
fn a_client_that_cancels_and_a_server_that_ends_leave_no_interpreter() {
    let workspace = workspace("//- a.txt\none\n");
    let Some(mut client) = server(&workspace, &[]) else {
        return;
    };
    let mark = "llmc-python-mark-7f3a";
    let endless = format!("mark = '{mark}'\nprint(mark, flush=True)\nwhile True: pass");
    let id = client.send_call("execute_code", json!({"code": endless}));
    client.notify("notifications/cancelled", json!({"requestId": id}));
    assert_eq!(run(&mut client, "print(1)"), "1");
    client.send_call("execute_code", json!({"code": endless}));
    let pid = client.process().pid();
    assert_eq!(client.finish().code, Some(0));
    assert!(rustix::process::test_kill_process(pid).is_err());
}

/// Command lines of the processes below one, however deep.
fn below(parent: i32) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // Processes may end while this looks.
        let status = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let fields = status.rsplit(')').next().unwrap_or_default();
        if fields.split_whitespace().nth(1) == Some(parent.to_string().as_str()) {
            let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push(String::from_utf8_lossy(&words).replace('\0', " "));
            found.extend(below(pid));
        }
    }
    found
}

#[test]
fn interpreters_are_started_when_a_client_lists_the_tool_and_not_before() {
    let workspace = workspace("//- a.txt\none\n");
    if server(&workspace, &[]).is_none() {
        return;
    }
    let interpreters = |client: &mut McpClient| {
        let all = below(client.process().pid().as_raw_pid());
        all.iter().filter(|words| words.contains("-X utf8")).count()
    };
    let client = |mode: &str| {
        let mut client = workspace.mcp(vec!["--mode", mode, "--set", PYTHON]);
        client.initialize("2025-11-25");
        client
    };
    let mut listed = client("hybrid");
    listed.assert_starts("read_file", json!({"path": "a.txt"}), "one\n");
    assert_eq!(interpreters(&mut listed), 0, "before the list");
    listed.request("tools/list", json!({}));
    let wait = |client: &mut McpClient, reached: &dyn Fn(usize) -> bool| {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !reached(interpreters(client)) {
            assert!(Instant::now() < deadline, "{}", interpreters(client));
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait(&mut listed, &|count| count > 0);
    assert_eq!(run(&mut listed, "print(1)"), "1");
    // A script that comes at once waits for the probe and for no second one.
    let mut hasty = client("hybrid");
    hasty.request("tools/list", json!({}));
    assert_eq!(run(&mut hasty, "print(2)"), "2");
    // An answer that describes the interpreter leaves none behind.
    let mut other = client("hybrid");
    assert!(!other.call_tool("init", json!({})).0);
    wait(&mut other, &|count| count == 0);
}

/// A script that looks at several things at once: a long one does not push the others out.
#[test]
fn each_print_keeps_its_share_of_a_cut_answer() {
    let workspace = workspace("//- a.txt\none\n");
    let Some(mut client) = server(&workspace, &[]) else {
        return;
    };
    let code = "\
for name, count in [('first', 900), ('second', 5), ('third', 900)]:
    print('==', name)
    print('\\n'.join(f'{name} line {n}' for n in range(count)))";
    let text = run(&mut client, code);
    for line in [
        "== first",
        "first line 0",
        "first line 899",
        "second line 0",
        "second line 4",
        "== third",
        "third line 0",
        "third line 899",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}: {text}");
    }
    let marks: Vec<&str> = text
        .lines()
        .filter(|line| line.contains(" left out (offset_lines="))
        .collect();
    assert_eq!(marks.len(), 2, "{text}");
    // The last line names the call for all gaps, and each mark where its lines begin.
    let call = text.lines().last().unwrap();
    let path = call
        .split_once("read_file path=")
        .and_then(|(_, rest)| rest.split_once(' '))
        .unwrap_or_else(|| panic!("{call}"))
        .0;
    let handle = path.split(':').next().unwrap();
    let whole = client.text("read_file", json!({"path": path}));
    for line in ["first line 450", "third line 450"] {
        assert!(!text.contains(line) && whole.contains(line), "{call}");
    }
    let offset = |mark: &str| -> u64 {
        let digits = mark.split_once("offset_lines=").unwrap().1;
        digits[..digits.find([')', ' ']).unwrap()].parse().unwrap()
    };
    let read = client.text(
        "read_file",
        json!({"path": handle, "offset_lines": offset(marks[1]), "max_lines": 1}),
    );
    let before = text
        .lines()
        .take_while(|line| *line != marks[1])
        .last()
        .unwrap();
    let number = |line: &str| -> u64 { line.rsplit(' ').next().unwrap().parse().unwrap() };
    let first = read.lines().next().unwrap();
    assert_eq!(number(first), number(before) + 1, "{read}");
}
