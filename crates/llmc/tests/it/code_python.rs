//! `execute_code` in the system's Python: tools, files and the kernel around them.

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
        // What the kernel offers must be used.
        assert!(!llmc_exec::confines_without_namespaces(), "{text}");
        skip(&text);
        return None;
    }
    Some(client)
}

fn code(document: &Value) -> &str {
    document["meta"]["error_code"].as_str().unwrap()
}

#[test]
fn scripts_are_python_and_call_the_tools() {
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
fn callers_without_the_right_to_read_files_have_none_in_python() {
    let workspace =
        workspace("//- a.txt\ncanary\n//- mod.py\nx = 'canary'\n//- .env\nKEY=canary\n");
    let sha = llmc_host::sha256_hex(b"few-token-0123456789");
    let tokens = format!(
        "mcp.auth.tokens=[{{name=\"few\", sha256=\"{sha}\", tools=[\"execute_code\", \"stat\"]}}]"
    );
    let server = workspace.serve(["--set", &tokens, "--set", PYTHON]);
    for code in [
        "open('a.txt').read()",
        "import os\nos.listdir('.')",
        "import mod\nmod.x",
        "import posix\nposix.read(posix.open('a.txt', 0), 99)",
    ] {
        let args = json!({"name": "execute_code", "args": {"code": code}});
        let answer = server
            .post_as("few-token-0123456789", "/tool", &args)
            .json();
        assert!(answer["code"].is_string(), "{code}: {answer}");
        assert!(!answer.to_string().contains("canary"), "{code}: {answer}");
    }
    // With names that nobody may read, and in the profile that lists programs, the server decides on each file.
    let denied = ["mcp.tools.denylist_reads=true"];
    let restricted = [
        "mcp.exec.profile=restricted",
        "mcp.tools.run_cmd_allowlist=[\"cat\"]",
        "mcp.tools.denylist_reads=true",
    ];
    for sets in [&denied[..], &restricted[..]] {
        let Some(mut client) = self::server(&workspace, sets) else {
            return;
        };
        assert_eq!(
            run(&mut client, "open('a.txt').read()"),
            "canary",
            "{sets:?}"
        );
        for script in [
            "open('.env').read()",
            "import posix\nposix.read(posix.open('a.txt', 0), 99)",
        ] {
            let failed = fails(&mut client, script);
            assert!(
                !failed.to_string().contains("canary"),
                "{sets:?} {script}: {failed}"
            );
            assert!(
                failed["error"]
                    .as_str()
                    .unwrap()
                    .contains("PermissionError"),
                "{failed}"
            );
        }
    }
}

#[test]
fn without_namespaces_the_workspace_is_read_written_and_imported_through_the_server() {
    let workspace = workspace(
        "//- a.txt\nplain text\n//- src/pkg/__init__.py\nfrom .part import answer\n//- src/pkg/part.py\nanswer = 42\n\
         //- own.py\nfrom src.pkg import answer\n//- .llmc/token\ncanary\n",
    );
    let mut client = crate::code_escapes::server_without_namespaces(&workspace, &[]);
    for (script, shown) in [
        ("open('a.txt').read()", "plain text\n"),
        ("open('a.txt', 'rb').read(5)", "b'plain'"),
        (
            "import pathlib\np = pathlib.Path('a.txt')\np.read_text(), p.exists(), p.stat().st_size",
            "('plain text\\n', True, 11)",
        ),
        (
            "f = open('a.txt')\nf.name, f.mode, f.readline()",
            "('a.txt', 'r', 'plain text\\n')",
        ),
        (
            "import os\nsorted(os.listdir('src/pkg'))",
            "['__init__.py', 'part.py']",
        ),
        (
            "import os\n[e.name for e in sorted(os.scandir('.'), key=lambda e: e.name) if e.is_dir() and e.name == 'src']",
            "['src']",
        ),
        (
            "import os\nsorted(f for _, _, fs in os.walk('src') for f in fs if f.endswith('.py'))",
            "['__init__.py', 'part.py']",
        ),
        (
            "import glob\nsorted(glob.glob('**/*.py', recursive=True))",
            "['own.py', 'src/pkg/__init__.py', 'src/pkg/part.py']",
        ),
        (
            "import pathlib\nsorted(p.name for p in pathlib.Path('.').rglob('part*'))",
            "['part.py']",
        ),
        ("import own\nown.answer", "42"),
        ("import runpy\nrunpy.run_path('own.py')['answer']", "42"),
        (
            "open('new.txt', 'w').write('new')\nopen('new.txt').read()",
            "new",
        ),
        (
            "with open('a.txt', 'r+') as f:\n  f.write('PLAIN')\nopen('a.txt').read()",
            "PLAIN text\n",
        ),
        (
            "open('a.txt', 'a').write('more')\nopen('a.txt').read()",
            "PLAIN text\nmore",
        ),
        (
            "import mmap\nf = open('a.txt', 'rb')\nmmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)[:5]",
            "b'PLAIN'",
        ),
        (
            "import subprocess\nsubprocess.run(['cat', 'new.txt'], capture_output=True, text=True).stdout",
            "new",
        ),
        (
            "import shutil, tempfile, os\nd = tempfile.mkdtemp()\nshutil.copytree('src', d + '/s')\nsorted(os.listdir(d + '/s/pkg'))",
            "['__init__.py', 'part.py']",
        ),
        (
            "import shutil\nshutil.copy2('a.txt', 'copy.txt')\nshutil.rmtree('src')\nimport os\nos.path.exists('src'), os.path.exists('copy.txt')",
            "(False, True)",
        ),
    ] {
        assert_eq!(run(&mut client, script), shown.trim_end(), "{script}");
    }
    assert_eq!(workspace.read("new.txt"), "new");
    let root = workspace.root();
    let root = root.display();
    for (script, words) in [
        (
            format!("import sqlite3\nsqlite3.connect('{root}/a.txt').execute('select 1 from x')"),
            "SQLite cannot",
        ),
        ("open('.llmc/token').read()".to_owned(), "PermissionError"),
        (
            "import posix\nposix.open('a.txt', 0)".to_owned(),
            "PermissionError",
        ),
        (
            format!("import posix\nposix.open('{root}/.llmc/token', 0)"),
            "PermissionError",
        ),
        (
            "import posix\nposix.listdir('.')".to_owned(),
            "PermissionError",
        ),
        (
            "import posix\nposix.chmod('a.txt', 0o777)".to_owned(),
            "PermissionError",
        ),
        (
            "import posix\nposix.utime('a.txt')".to_owned(),
            "PermissionError",
        ),
        (
            "import posix\nposix.unlink('a.txt')".to_owned(),
            "PermissionError",
        ),
        ("open('missing.txt')".to_owned(), "FileNotFoundError"),
        ("open('/etc/hostname')".to_owned(), "PermissionError"),
        (
            "import os\nos.listdir('/tmp')".to_owned(),
            "PermissionError",
        ),
    ] {
        let failed = fails(&mut client, &script);
        let said = failed["error"].as_str().unwrap();
        assert!(
            said.contains(words) && !said.contains("canary"),
            "{script}: {failed}"
        );
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
fn where_user_namespaces_are_switched_off_scripts_run() {
    let workspace = workspace("//- a.txt\none\n");
    let take_away = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
    let mut command = workspace.command_of("unshare");
    command
        .args(["-Ur", "sh", "-c", take_away])
        .arg(workspace.program())
        .args(["mcp", "--mode", "hybrid", "--set", PYTHON]);
    let mut client = McpClient::new(TestProcess::start(command));
    let id = client.send_request("ping", json!({}));
    if client.process().has_ended() {
        skip("user namespaces, to take them away");
        return;
    }
    let _ = client.answer(&id.into());
    assert_eq!(run(&mut client, "open('a.txt').read()"), "one");
    assert!(
        fails(&mut client, "import posix\nposix.open('a.txt', 0)")
            .to_string()
            .contains("PermissionError")
    );
    client.assert_starts("read_file", json!({"path": "a.txt"}), "one\n");
}

/// A server on a machine without Python; none where none can be taken away.
pub(crate) fn server_without_python(
    workspace: &TestWorkspace,
    flags: &[&str],
) -> Option<McpClient> {
    let take_away = "for dir in /usr/bin /usr/local/bin; do test ! -e $dir/python3 || \
        mount --bind /dev/null \"$(readlink -f $dir/python3)\" || exit 9; done; exec \"$0\" \"$@\"";
    let mut command = workspace.command_of("unshare");
    command
        .args(["-Ur", "--mount", "sh", "-c", take_away])
        .arg(workspace.program())
        .arg("mcp")
        .args(flags)
        .env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let mut client = McpClient::new(TestProcess::start(command));
    let id = client.send_request("ping", json!({}));
    if client.process().has_ended() {
        skip("mount namespaces, to take Python away");
        return None;
    }
    let _ = client.answer(&id.into());
    Some(client)
}

#[test]
fn without_a_python_scripts_are_not_offered_and_everything_says_why() {
    let workspace = workspace("//- a.txt\none\n");
    for mode in ["classic", "hybrid", "code_execution"] {
        let Some(mut client) = server_without_python(&workspace, &["--mode", mode]) else {
            return;
        };
        let said = client.initialize("2025-11-25");
        for words in ["execute_code", "script"] {
            assert!(!said.to_string().contains(words), "{mode}: {said}");
        }
        let tools = client.request("tools/list", json!({}))["result"]["tools"].to_string();
        assert!(
            !tools.contains("execute_code") && tools.contains("run_cmd"),
            "{mode}: {tools}"
        );
        let guide = client.text("init", json!({}));
        assert!(!guide.contains("execute_code"), "{mode}: {guide}");
        assert!(
            guide.contains("no scripts: ") && guide.contains("package python3"),
            "{mode}: {guide}"
        );
        let id = client.send_call("execute_code", json!({"code": "1"}));
        let refused = client.answer(&id.into()).to_string();
        assert!(refused.contains("package python3"), "{mode}: {refused}");
        client.assert_starts("read_file", json!({"path": "a.txt"}), "one\n");
    }
}

#[test]
fn a_value_of_an_earlier_version_is_refused_at_start_with_the_reason() {
    let workspace = workspace("//- a.txt\none\n");
    for gone in ["embedded", "monty"] {
        let set = format!("mcp.code_execution.sandbox={gone}");
        let ended = workspace.llmc(["mcp", "--set", &set]);
        assert_ne!(ended.code, Some(0), "{gone}");
        assert!(
            ended.stderr.contains("the interpreter inside LLMC is gone"),
            "{}",
            ended.stderr
        );
    }
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

/// The processes below one, however deep, with their command lines.
pub(crate) fn below(parent: i32) -> Vec<(i32, String)> {
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
            found.push((pid, String::from_utf8_lossy(&words).replace('\0', " ")));
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
        all.iter()
            .filter(|(_, words)| words.contains("-X utf8"))
            .count()
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
