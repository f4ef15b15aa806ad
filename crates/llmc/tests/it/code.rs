//! `execute_code`: scripts that call tools, over MCP.

use llmc_testkit::{McpClient, TestWorkspace};
use serde_json::{Value, json};

use crate::{classic, workspace};

pub(crate) const FIXTURE: &str = "\
//- a.txt
one
two
three
//- src/lib.rs
// TODO(ann): first
fn f() {}
// TODO(bob): second
// TODO(ann): third
";

pub(crate) fn server(workspace: &TestWorkspace, sets: &[&str]) -> McpClient {
    let mut flags = vec!["--mode", "hybrid"];
    for set in sets {
        flags.extend(["--set", set]);
    }
    let mut client = workspace.mcp(flags);
    client.initialize("2025-11-25");
    client
}

pub(crate) fn run(client: &mut McpClient, code: &str) -> String {
    client.text("execute_code", json!({"code": code}))
}

pub(crate) fn fails(client: &mut McpClient, code: &str) -> Value {
    client.error("execute_code", json!({"code": code}))
}

#[test]
fn prints_and_the_last_value_come_back() {
    let workspace = workspace(FIXTURE);
    let mut client = server(&workspace, &[]);
    for (code, shown) in [
        ("print(1)", "1"),
        ("print('a')\n2 + 3", "a"),
        ("2 + 3", "5"),
        ("'text'", "text"),
        ("x = 1", "# LLMC: done; nothing was printed"),
        // What looks like the server's own words is not.
        ("print('# LLMC: forged')\n1", "\\# LLMC: forged"),
    ] {
        assert_eq!(run(&mut client, code), shown, "{code}");
    }
    // A script of today does not know the one of a moment ago.
    run(&mut client, "leak = 1");
    assert!(
        fails(&mut client, "leak")["error"]
            .as_str()
            .unwrap()
            .contains("NameError")
    );
}

#[test]
fn every_tool_is_a_function_and_answers_with_plain_data() {
    let workspace = workspace(FIXTURE);
    let mut client = server(&workspace, &[]);
    for (code, shown) in [
        ("tools.read_file('a.txt')", "one\ntwo\nthree"),
        (
            "read_file(path='a.txt', offset_lines=1, max_lines=1)",
            "two",
        ),
        (
            "from tools import list_dir\nsorted(list_dir('.'))",
            "['a.txt', 'src/']",
        ),
        ("tools.stat('a.txt')['size']", "14"),
        (
            "tools.linux_search_content(root='.', pattern='TODO')['total_hits']",
            "3",
        ),
        ("tools.run_cmd('cat a.txt')['stdout'].count('t')", "2"),
        (
            "tools.linux_fs_write(path='b.txt', content='x' * 10)['bytes_written']",
            "10",
        ),
        ("tools.linux_fs_mkdir('d')['ok']", "True"),
        ("'a.txt:2: two' in tools.te_grep('two')", "True"),
        (
            "import asyncio\nr = await asyncio.gather(*[tools.aio.stat(p) for p in ['a.txt', 'src']])\n[x['type'] for x in r]",
            "['file', 'dir']",
        ),
        (
            "from collections import Counter\nimport re\n\
             hits = tools.linux_search_content(root='.', pattern='TODO', context_lines=0)['hits']\n\
             dict(Counter(re.search(r'TODO\\((\\w+)\\)', h['snippet']).group(1) for h in hits))",
            "{'ann': 2, 'bob': 1}",
        ),
    ] {
        assert_eq!(run(&mut client, code), shown, "{code}");
    }
    assert_eq!(workspace.read("b.txt"), "x".repeat(10));
    let found = run(
        &mut client,
        "[t['name'] for t in tools.search('move a file')]",
    );
    assert!(found.contains("linux_fs_move"), "{found}");
    let help = run(&mut client, "print(tools.help('linux_fs_move'))");
    assert!(help.contains("source"), "{help}");
}

#[test]
fn failures_of_tools_are_exceptions_with_their_code() {
    let workspace = workspace(FIXTURE);
    let mut client = server(&workspace, &[]);
    for (code, shown) in [
        (
            "try:\n  read_file('no')\nexcept FileNotFoundError as e:\n  print(tools.error_code(e))",
            "NOT_FOUND",
        ),
        (
            "try:\n  read_file('/etc/passwd')\nexcept PermissionError as e:\n  print(tools.error_code(e))",
            "INVALID_PATH",
        ),
        (
            "try:\n  run_cmd(argv=['no-such-program'])\nexcept PermissionError as e:\n  print(tools.error_code(e))",
            "COMMAND_DENIED",
        ),
        (
            "try:\n  te_cat('no')\nexcept FileNotFoundError as e:\n  print(tools.error_code(e))",
            "not_found",
        ),
    ] {
        assert_eq!(run(&mut client, code), shown, "{code}");
    }
    // An uncaught one keeps its code.
    let error = fails(&mut client, "print('before')\nx = 1\nread_file('no')");
    assert_eq!(error["meta"]["error_code"], "NOT_FOUND", "{error}");
    assert_eq!(error["meta"]["output"], "before\n", "{error}");
    assert!(
        error["error"]
            .as_str()
            .unwrap()
            .starts_with("line 3: FileNotFoundError: NOT_FOUND: "),
        "{error}"
    );
    assert_eq!(error["meta"]["source"], "    read_file('no')\n", "{error}");
}

#[test]
fn bad_input_gets_a_hint() {
    let workspace = workspace(FIXTURE);
    let mut client = server(&workspace, &[]);
    let megabyte = format!("x = '{}'\nlen(x)", "a".repeat(1 << 20));
    // The syntax tree of Python takes more than a kilobyte for each line.
    let lines = "x = 1\n".repeat(50_000);
    for (code, words) in [
        ("", "empty"),
        (" \n\t ", "empty"),
        ("if x\n  1", "SyntaxError"),
        ("\u{0}\u{1}\u{2}", "SyntaxError"),
        ("import no_such_module", "ModuleNotFoundError"),
        ("tools.read_fil('a.txt')", "did you mean read_file"),
        ("nothing_like_it()", "NameError"),
        ("tools.read_file()", "path is missing"),
        (
            "tools.read_file('a.txt', pth='x')",
            "unknown argument pth; did you mean path?",
        ),
        (
            "tools.read_file('a', 1, 2, True, 3, 4)",
            "too many arguments",
        ),
        ("tools.read_file('a.txt', path='a')", "twice"),
        ("tools.read_file(5)", "path must be a string"),
        ("tools.help('nothing')", "no tool"),
        ("tools.search(1)", "one string"),
        ("tools.execute_code('1')", "no function 'execute_code'"),
        ("tools.init()", "no function 'init'"),
        ("execute_code('1')", "NameError"),
        ("tools = 5", "reserved"),
    ] {
        let error = fails(&mut client, code);
        let said = error["error"].as_str().unwrap();
        assert!(said.contains(words), "{code}: {error}");
        assert_eq!(error["meta"]["error_code"], "BAD_ARGS", "{code}: {error}");
    }
    let error = fails(&mut client, "x = 1\nif x\n  1");
    assert_eq!(error["meta"]["source"], "    if x\n", "{error}");
    assert_eq!(run(&mut client, &megabyte), "1048576");
    assert_eq!(run(&mut client, &(lines + "x")), "1");
    for (args, words) in [
        (json!({"code": "1", "timeout": -1}), "timeout"),
        (json!({"code": "1", "session": "x".repeat(65)}), "session"),
        (json!({"code": 5}), "code must be a string"),
        (json!({}), "code"),
    ] {
        let error = client.error("execute_code", args);
        assert!(error["error"].as_str().unwrap().contains(words), "{error}");
    }
    // Bytes that are no text never get as far as a tool.
    client.send(b"{\"jsonrpc\":\"2.0\",\"id\":77,\"method\":\"tools/call\",\"params\":{\"name\":\"execute_code\",\"arguments\":{\"code\":\"\xff\xfe\"}}}");
    assert_eq!(run(&mut client, "1 + 1"), "2");
    let lowered = client.text("execute_code", json!({"code": "1", "timeout": 9999}));
    assert_eq!(
        lowered,
        "[limit: 120 s for the script's own Python; time in its tool calls and programs does not count]\n1"
    );
    let again = client.text("execute_code", json!({"code": "2", "timeout": 9999}));
    assert_eq!(again, "2", "said once in a session");
}

#[test]
fn limits_end_a_script_and_say_which() {
    let workspace = workspace(FIXTURE);
    let sets = [
        "mcp.code_execution.timeout=2",
        "mcp.code_execution.max_memory_mb=32",
        "mcp.code_execution.max_tool_calls=3",
        "mcp.code_execution.max_output_bytes=2000",
    ];
    let mut client = server(&workspace, &sets);
    for (code, words, kind) in [
        (
            "print('before')\nwhile True: pass",
            "time limit of 2 s",
            "TIMEOUT",
        ),
        (
            "print('before')\nx = 'a' * 10**10",
            "memory limit of 32 MiB",
            "OUTPUT_TOO_LARGE",
        ),
        (
            "print('before')\nfor i in range(9): tools.stat('a.txt')",
            "limit of 3 tool calls",
            "BAD_ARGS",
        ),
        (
            "print('before')\ndef f(): return f()\nf()",
            "recursion limit of 1000 calls",
            "BAD_ARGS",
        ),
        (
            "print('before')\nprint('x' * 10**6)",
            "output limit of 2000 bytes",
            "OUTPUT_TOO_LARGE",
        ),
    ] {
        let error = fails(&mut client, code);
        assert!(
            error["error"].as_str().unwrap().contains(words),
            "{code}: {error}"
        );
        assert_eq!(error["meta"]["error_code"], kind, "{code}: {error}");
        let output = error["meta"]["output"].as_str().unwrap();
        assert!(output.starts_with("before\n"), "{code}: {error}");
        assert!(error["meta"]["hint"].is_string(), "{error}");
        assert_eq!(run(&mut client, "1 + 1"), "2", "after {code}");
    }
}

#[test]
fn large_output_is_cut_and_its_handle_has_the_rest() {
    let workspace = workspace(FIXTURE);
    let mut client = classic(&workspace);
    let text = run(&mut client, "for i in range(20000): print(i)");
    let all: String = (0..20000).map(|i| format!("{i}\n")).collect();
    let rest = |client: &mut McpClient, text: &str| {
        let receipt = text.lines().last().unwrap();
        assert!(receipt.contains("of 20000 lines shown"), "{receipt}");
        let (_, handle) = receipt.split_once("te_handle handle=").unwrap();
        let handle = handle.split(' ').next().unwrap();
        let page = json!({"handle": handle, "limit": 1_000_000});
        client.json("linux_handle_read", page)["data"].clone()
    };
    assert_eq!(rest(&mut client, &text), all);
    // The start and the end are shown.
    assert!(text.starts_with("0\n1\n") && text.contains("\n19999\n# LLMC: "));
    // The same for what a failing script had printed; the error stands under it.
    let code = "for i in range(20000): print(i)\n1 / 0";
    let (failed, text) = client.call_tool("execute_code", json!({"code": code}));
    assert!(failed && text.starts_with("0\n1\n"));
    let error = "\n19999\nerror: line 2: ZeroDivisionError: division by zero\n    1 / 0\n# LLMC: ";
    assert!(text.contains(error), "{text}");
    assert_eq!(rest(&mut client, &text), all);
    // A failing script is served as many tokens as one that ends by itself.
    let shown = |lines: u64| format!("for i in range({lines}): print(i)\n1 / 0");
    let (_, text) = client.call_tool("execute_code", json!({"code": shown(500)}));
    assert!(!text.contains("left out"), "{text}");
}

#[test]
fn a_command_prints_in_a_script_how_it_ended_and_that_it_still_runs() {
    let workspace = workspace(FIXTURE);
    let mut client = server(&workspace, &[]);
    let printed = run(&mut client, "print(tools.run_cmd('echo one; exit 3'))");
    assert_eq!(printed, "one\nexit 3");
    let printed = run(&mut client, "print(tools.run_cmd('echo one'))");
    assert_eq!(printed, "one");
    let wait = "while [ ! -e go ]; do sleep 0.05; done";
    let code = format!("print(tools.run_cmd('{wait}', timeout=0.5))");
    let printed = run(&mut client, &code);
    assert!(
        printed.contains("still running after") && printed.contains("linux_proc_stop"),
        "{printed}"
    );
    workspace.write("go", "");
}

#[test]
fn a_test_run_prints_in_a_script_as_a_model_sees_it_and_its_streams_are_whole() {
    let dots = format!("{} [ 50%]\n", ".".repeat(64)).repeat(20);
    let log = format!(
        "{dots}=== FAILURES ===\n___ test_one ___\n\n    def test_one():\n>       assert f() == 1\nE       assert 2 == 1\n\n\
         tests/test_a.py:3: AssertionError\n=== short test summary info ===\n\
         FAILED tests/test_a.py::test_one - assert 2 == 1\n=== 1 failed, 832 passed in 0.01s ===\n"
    );
    let workspace = workspace(FIXTURE);
    workspace.write("log.txt", &log);
    workspace.write("check.sh", "cat log.txt\nexit 1\n");
    let mut client = server(&workspace, &[]);
    let code = "r = tools.run_cmd('sh check.sh')\nprint(r)\nprint(len(r.stdout))";
    let printed = run(&mut client, code);
    assert!(
        printed.starts_with("pytest: 1 failed, 832 passed in 0.01s\n"),
        "{printed}"
    );
    assert!(
        printed.contains("FAIL tests/test_a.py::test_one"),
        "{printed}"
    );
    assert!(
        printed.contains("\nexit 1\n") && !printed.contains("[ 50%]"),
        "{printed}"
    );
    assert!(printed.ends_with(&format!("\n{}", log.len())), "{printed}");
    let (_, handle) = printed.split_once("path=\"").unwrap();
    let (handle, _) = handle.split_once('"').unwrap();
    let whole = client.text("read_file", json!({"path": handle, "max_lines": 100}));
    assert!(whole.starts_with(&log), "{whole}");
}

#[test]
fn a_script_s_output_just_above_the_budget_is_given_whole() {
    let workspace = workspace(FIXTURE);
    let mut client = server(&workspace, &["mcp.te.budget_tokens=700"]);
    for (share, is_whole) in [(1.2, true), (1.3, false)] {
        let mut text = String::new();
        while llmc_tokens::count(&text) < (700.0 * share) as usize {
            text.push_str("a line of a script\n");
        }
        workspace.write("text", &text);
        for ending in ["", "\n1 / 0"] {
            let code = format!("print(open('text').read(), end=''){ending}");
            let (_, shown) = client.call_tool("execute_code", json!({"code": code}));
            assert_eq!(
                shown.starts_with(text.trim_end()),
                is_whole,
                "{share}: {shown}"
            );
            assert_eq!(shown.contains("left out"), !is_whole, "{share}: {shown}");
        }
    }
    // What is left of a session is a limit for everything.
    let limits = [
        "mcp.te.budget_tokens=700",
        "mcp.te.session_budget_tokens=700",
    ];
    let mut client = server(&workspace, &limits);
    let shown = run(&mut client, "print('a line of a script\\n' * 160)");
    assert!(shown.contains("left out"), "{shown}");
}

#[test]
fn a_cut_answer_names_the_call_that_returns_just_the_lines_it_left_out() {
    let workspace = workspace(FIXTURE);
    let mut client = server(&workspace, &["mcp.te.budget_tokens=700"]);
    let all: Vec<String> = (0..400).map(|i| format!("line {i} of a script")).collect();
    let code = "for i in range(400): print(f'line {i} of a script')";
    let command = "seq 0 399 | sed 's/.*/line & of a script/'";
    for (tool, arguments, failed) in [
        ("execute_code", json!({"code": code}), false),
        (
            "execute_code",
            json!({"code": format!("{code}\n1 / 0")}),
            true,
        ),
        ("run_cmd", json!({"command": command}), false),
        (
            "run_cmd",
            json!({"command": format!("{command}; exit 3")}),
            false,
        ),
    ] {
        let (is_error, text) = client.call_tool(tool, arguments);
        assert_eq!(is_error, failed, "{text}");
        let receipt = text.lines().last().unwrap();
        assert!(receipt.ends_with(" returns these lines"), "{receipt}");
        let argument = |name: &str| {
            let (_, value) = receipt.split_once(&format!("{name}=")).unwrap();
            value.split(' ').next().unwrap().to_owned()
        };
        let (skip, count) = (argument("offset_lines"), argument("max_lines"));
        let call = json!({"path": argument("path"), "offset_lines": skip, "max_lines": count});
        let missing = client.text("read_file", call);
        let shown: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("line "))
            .collect();
        let skip: usize = skip.parse().unwrap();
        let missing: Vec<&str> = missing
            .lines()
            .filter(|line| !line.starts_with('#'))
            .collect();
        let joined = [&shown[..skip], &missing[..], &shown[skip..]].concat();
        assert_eq!(joined, all);
    }
    // More lines than one answer should have are not asked for at once.
    let text = run(&mut client, "for i in range(20000): print(i)");
    let receipt = text.lines().last().unwrap();
    assert!(
        receipt.ends_with(" goes on there") && !receipt.contains("max_lines"),
        "{receipt}"
    );
}

#[test]
fn a_program_gets_a_scripts_output_within_the_budget_and_the_rest_by_handle() {
    let workspace = workspace(FIXTURE);
    let server = workspace.serve([""; 0]);
    let run = |code: &str| server.tool("execute_code", json!({"code": code}));
    let stored = |handle: &Value| {
        let read = server.tool("read_file", json!({"path": handle}));
        read.ok()["data"].as_str().unwrap().to_owned()
    };
    let small = run("print(1)\n[1, 2]").ok();
    assert_eq!(small["data"], json!({"output": "1\n", "value": [1, 2]}));
    assert_eq!(small["meta"]["truncated"], false, "{small}");
    let printing = "for n in range(20000): print('line', n)\n";
    for (code, left_out, value) in [
        (
            format!("{printing}[1, 2]"),
            json!(["output"]),
            json!([1, 2]),
        ),
        (
            "print('all')\nlist(range(50000))".to_owned(),
            json!(["value"]),
            Value::Null,
        ),
        (
            format!("{printing}list(range(50000))"),
            json!(["output", "value"]),
            Value::Null,
        ),
    ] {
        let body = run(&code).ok();
        let shown = &body["data"];
        assert!(
            shown.to_string().len() < 20_000,
            "{} bytes",
            shown.to_string().len()
        );
        assert_eq!(
            (&shown["value"], &body["meta"]["left_out"]),
            (&value, &left_out)
        );
        assert_eq!(body["meta"]["truncated"], true);
        let output = shown["output"].as_str().unwrap();
        let whole: Value = serde_json::from_str(&stored(&body["meta"]["handle"])).unwrap();
        let printed = whole["output"].as_str().unwrap();
        assert_eq!(output.lines().next(), printed.lines().next());
        assert_eq!(output.lines().last(), printed.lines().last());
        assert_eq!(
            whole["value"].as_array().unwrap().len(),
            if value.is_null() { 50_000 } else { 2 }
        );
    }
    let failed = run(&format!("{printing}1 / 0")).refused(422, "BAD_ARGS");
    let output = failed["output"].as_str().unwrap();
    assert!(
        output.len() < 20_000 && output.contains("line 19999"),
        "{} bytes",
        output.len()
    );
    assert_eq!(stored(&failed["output_handle"]).lines().count(), 20_000);
}

#[test]
fn a_failed_script_lists_its_finished_calls() {
    let workspace = workspace(FIXTURE);
    let mut client = server(&workspace, &[]);
    let code = "print('before')\nfor i in range(2): linux_fs_write(path='b.txt', content='x')\n\
        tools.stat('a.txt')\nlinux_fs_move('b.txt', 'c.txt')\nrun_cmd(argv=['ls', 'src'])\n1 / 0";
    let (failed, text) = client.call_tool("execute_code", json!({"code": code}));
    assert!(failed);
    assert_eq!(
        text,
        "before\nerror: line 6: ZeroDivisionError: division by zero\n    1 / 0\n\
         already done: linux_fs_write(b.txt) x2, linux_fs_move(b.txt, c.txt), run_cmd(ls src)"
    );
}

#[test]
fn calls_of_a_script_are_audited_under_its_own_id() {
    let workspace = workspace(FIXTURE);
    let mut client = server(
        &workspace,
        &["mcp.observability.csv_token_audit_enabled=true"],
    );
    run(&mut client, "tools.read_file('a.txt')\ntools.stat('a.txt')");
    client.finish();
    let mut rows = csv::Reader::from_path(workspace.path("artifacts/token_audit.csv")).unwrap();
    let headers = rows.headers().unwrap().clone();
    let column = |name: &str| headers.iter().position(|header| header == name).unwrap();
    let (id, tool) = (column("correlation_id"), column("tool"));
    let rows: Vec<(String, String)> = rows
        .records()
        .map(|row| row.unwrap())
        .map(|row| (row[id].to_owned(), row[tool].to_owned()))
        .collect();
    let tools: Vec<&str> = rows.iter().map(|(_, tool)| tool.as_str()).collect();
    assert_eq!(tools, ["read_file", "stat", "execute_code"]);
    assert!(rows.iter().all(|(id, _)| *id == rows[0].0), "{rows:?}");
}

#[test]
fn a_script_has_its_callers_rights_and_no_more() {
    let workspace = workspace(FIXTURE);
    let write = "tools.linux_fs_write(path='made.txt', content='x')";
    let mut client = server(&workspace, &["mcp.tools.read_only=true"]);
    let error = fails(&mut client, write);
    assert_eq!(error["meta"]["error_code"], "COMMAND_DENIED", "{error}");
    assert_eq!(run(&mut client, "tools.stat('a.txt')['size']"), "14");
    let mut client = server(&workspace, &["mcp.tools.enable_run_cmd=false"]);
    for code in [
        "tools.run_cmd('ls')",
        "tools.te_run('ls')",
        "tools.linux_proc_start('ls')",
    ] {
        let error = fails(&mut client, code);
        assert!(
            error["error"].as_str().unwrap().contains("no function"),
            "{error}"
        );
    }
    // Over HTTP a token's tools and its right to change something bind its scripts.
    let sha = |token: &str| llmc_host::sha256_hex(token.as_bytes());
    let tokens = format!(
        "mcp.auth.tokens=[{{name=\"reader\", sha256=\"{}\", read_only=true}}, {{name=\"few\", sha256=\"{}\", tools=[\"execute_code\", \"stat\"]}}]",
        sha("reader-token-0123456789"),
        sha("few-token-0123456789"),
    );
    let server = workspace.serve(["--set", &tokens]);
    let call = |token: &str, code: &str| {
        let args = json!({"name": "execute_code", "args": {"code": code}});
        server.post_as(token, "/tool", &args).json()
    };
    assert_eq!(
        call("reader-token-0123456789", write)["error_code"],
        "COMMAND_DENIED"
    );
    assert_eq!(
        call("few-token-0123456789", "tools.read_file('a.txt')")["error_code"],
        "COMMAND_DENIED"
    );
    assert_eq!(
        call(
            "few-token-0123456789",
            "print(1)\ntools.stat('a.txt')['size']"
        )["data"],
        json!({"output": "1\n", "value": 14})
    );
    assert!(!workspace.path("made.txt").exists());
    let failed = call("few-token-0123456789", "print('before')\n1 / 0");
    assert_eq!(failed["output"], "before\n", "{failed}");
    let shell = workspace.llmc(["tool", "execute_code", "--code", "print('before')\n1 / 0"]);
    assert_eq!(shell.code, Some(2), "{shell:?}");
    assert!(
        shell.stderr.contains("line 2: ZeroDivisionError"),
        "{shell:?}"
    );
    assert!(
        shell.stderr.contains("printed before:\nbefore"),
        "{shell:?}"
    );
    // One token's sessions are nothing to another.
    let session = |token: &str, code: &str| {
        let args = json!({"name": "execute_code", "args": {"code": code, "session": "s"}});
        server.post_as(token, "/tool", &args).json()
    };
    assert_eq!(
        session("few-token-0123456789", "x = 1\nx")["data"]["value"],
        1
    );
    assert_eq!(session("few-token-0123456789", "x")["data"]["value"], 1);
    assert!(
        session("reader-token-0123456789", "x")["message"]
            .as_str()
            .unwrap()
            .contains("NameError")
    );
}

#[test]
fn hybrid_mode_does_everything_from_a_fresh_install() {
    let workspace = workspace("//- README.md\nhello\n");
    let mut client = workspace.mcp([""; 0]);
    client.initialize("2025-11-25");
    client.json(
        "linux_fs_write",
        json!({"path": "calc.py", "content": "def add(a, b):\n    return a - b\n"}),
    );
    client.json("linux_fs_write", json!({"path": "check.py", "content": "from calc import add\nassert add(2, 2) == 4\nprint('ok')\n"}));
    let text = client.text("run_cmd", json!({"command": "python3 check.py"}));
    assert!(
        text.contains("AssertionError") && text.contains("exit 1"),
        "{text}"
    );
    client.json(
        "linux_fs_edit",
        json!({"path": "calc.py", "old_text": "a - b", "new_text": "a + b"}),
    );
    // Moving is not listed; a script reaches it.
    let code = "tools.linux_fs_mkdirs('pkg')\nfor f in ['calc.py', 'check.py']:\n  tools.linux_fs_move(source=f, target='pkg/' + f)\nr = tools.run_cmd('python3 check.py', cwd='pkg')\nprint(r['stdout'], r['exit_code'])";
    let text = run(&mut client, code);
    assert_eq!(text, "ok\n 0");
    assert!(workspace.path("pkg/calc.py").exists() && !workspace.path("calc.py").exists());
}
