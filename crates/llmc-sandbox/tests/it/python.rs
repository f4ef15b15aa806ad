//! The system's Python: the same scripts, and the same ways out, tried against the kernel. Once as a Python that reads the
//! workspace by itself, once as one that may not, and the latter once more without namespaces.

mod boundary;
mod calls;
pub(crate) mod roles;
mod versions;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use llmc_exec::Settings;
use llmc_sandbox::{
    PythonBackend, ScriptEnd, ScriptError, ScriptErrorKind, ScriptLimit, ScriptLimits,
    ScriptOutcome, WorkspaceAccess,
};
use tokio_util::sync::CancellationToken;

use crate::fixture::{Toys, limits, names, runtime, trouble};

/// Takes a test by its name.
type AddTest<'a> = dyn FnMut(&str, fn()) + 'a;

/// Tests of a Python that reads the workspace by itself, which takes namespaces.
fn of_readers(add: &mut AddTest<'_>) {
    add("the_workspace_is_read_and_imported_from", boundary::reading);
    add(
        "virtual_environments_are_used_and_never_trusted",
        boundary::virtual_environments,
    );
    add(
        "a_damaged_python_is_passed_over_or_used_as_it_is",
        versions::damaged,
    );
    add("processes_started_ahead_are_apart", boundary::siblings);
    add(
        "settings_of_commands_do_not_weaken_it",
        boundary::settings_do_not_matter,
    );
}

/// Tests of every Python.
fn of_all(add: &mut AddTest<'_>) {
    add("scripts_compute_print_and_call", computing);
    add("calls_run_together_and_fail_with_their_code", calling);
    add("functions_are_found_by_every_name", calls::names);
    add("values_cross_as_plain_data", calls::plain);
    add("failures_are_exceptions_with_a_code", calls::failures);
    add("awaited_calls_run_at_the_same_time", calls::together);
    add("unknown_functions_name_the_nearest", calls::unknown);
    add("too_many_calls_end_the_script", calls::too_many);
    add("a_host_can_end_the_script", calls::stop);
    add("large_answers_do_not_block_the_script", calls::large);
    add("a_reserved_name_is_refused_before_the_run", calls::reserved);
    add("what_goes_wrong_is_told_with_its_line", troubles);
    add("every_limit_ends_the_script_and_says_so", bounds);
    add("nothing_gets_out", boundary::escapes);
    add("an_interpreter_that_dies_takes_nobody_along", deaths);
    add("what_is_written_vanishes", boundary::vanishing);
    add("a_client_that_goes_away_ends_the_script", cancelling);
    add("many_at_once", many);
    add("a_session_keeps_its_variables", sessions);
    add("odd_scripts_end_with_an_answer", odd_scripts);
}

/// Tests of a Python without rights in the workspace.
fn of_sealed(add: &mut AddTest<'_>) {
    add("the_workspace_cannot_be_read", boundary::sealed);
    add(
        "no_workspace_can_be_read_wherever_it_is",
        boundary::sealed_anywhere,
    );
    add(
        "what_is_no_interpreter_is_passed_over",
        versions::no_interpreters,
    );
}

/// Every test with both kinds of access, as far as this kernel has what they need. What it has must be used: a Python that cannot
/// be confined here although the kernel offers everything is a failure.
pub(crate) fn list() -> Vec<(String, Box<dyn FnOnce() + Send>)> {
    let mut tests: Vec<(String, Box<dyn FnOnce() + Send>)> = Vec::new();
    let mut with = |access: WorkspaceAccess, group: &str, name: &str, test: fn()| {
        tests.push((
            format!("python::{group}::{name}"),
            Box::new(move || {
                ACCESS.set(access);
                test();
            }),
        ));
    };
    if !roles::without_namespaces() && roles::has_namespaces() {
        let mut add = |name: &str, test: fn()| with(WorkspaceAccess::Reads, "reading", name, test);
        of_all(&mut add);
        of_readers(&mut add);
        if std::env::var_os(versions::INTERPRETERS).is_some() {
            add("every_version_runs_scripts", versions::every_version);
        }
    } else {
        eprintln!("SKIPPED: no namespaces for a Python that reads the workspace");
    }
    let mut add =
        |name: &str, test: fn()| with(WorkspaceAccess::ThroughServer, "sealed", name, test);
    of_all(&mut add);
    of_sealed(&mut add);
    tests.extend(roles::list());
    tests
}

thread_local! {
    /// Which Python the test of this thread runs in.
    static ACCESS: Cell<WorkspaceAccess> = const { Cell::new(WorkspaceAccess::ThroughServer) };
}

/// A workspace, and what lies around it.
struct Place {
    /// Nothing but the server has any business in it.
    dir: tempfile::TempDir,
    python: PythonBackend,
}

impl Place {
    fn workspace(&self) -> PathBuf {
        self.dir.path().join("ws")
    }
}

/// One boundary for all tests of a kind, since proving it takes a moment.
fn boundary() -> &'static Place {
    static READING: OnceLock<Place> = OnceLock::new();
    static SEALED: OnceLock<Place> = OnceLock::new();
    let access = ACCESS.get();
    let made = match access {
        WorkspaceAccess::Reads => &READING,
        WorkspaceAccess::ThroughServer => &SEALED,
    };
    made.get_or_init(|| {
        let dir = tempfile::Builder::new()
            .prefix("python-")
            .tempdir_in("/var/tmp")
            .unwrap();
        let ws = dir.path().join("ws");
        for state_dir in [".llmc", "nested/.llmc", "shadow"] {
            std::fs::create_dir_all(ws.join(state_dir)).unwrap();
        }
        std::fs::write(dir.path().join("outside.txt"), "SECRET").unwrap();
        std::fs::write(ws.join(".llmc/token"), "SECRET").unwrap();
        std::fs::write(ws.join("nested/.llmc/token"), "SECRET").unwrap();
        std::fs::write(ws.join("hidden.txt"), "SECRET").unwrap();
        std::fs::write(ws.join("inside.txt"), "plain").unwrap();
        // What decides what other programs run is there already.
        std::fs::write(ws.join("llmc.toml"), "").unwrap();
        std::fs::create_dir_all(ws.join(".git/hooks")).unwrap();
        std::os::unix::fs::symlink("../outside.txt", ws.join("link")).unwrap();
        // None of these may run or shadow anything.
        for name in [
            "json",
            "os",
            "tools",
            "re",
            "sitecustomize",
            "usercustomize",
            "select",
        ] {
            std::fs::write(
                ws.join(format!("{name}.py")),
                "raise SystemExit('shadowed')",
            )
            .unwrap();
        }
        std::fs::write(ws.join("run.pth"), "import os; os._exit(7)").unwrap();
        std::fs::write(ws.join("own_module.py"), "answer = 42").unwrap();
        let python = PythonBackend::open(&settings(dir.path()), access, 128 << 20).unwrap();
        Place { dir, python }
    })
}

fn settings(dir: &Path) -> Settings {
    Settings {
        write_roots: vec![dir.join("ws")],
        state_dir: Some(dir.join("ws/.llmc")),
        hidden: vec![dir.join("ws/hidden.txt").display().to_string()],
        network: true,
        ..Settings::default()
    }
}

fn run_with(code: &str, limits: &ScriptLimits) -> ScriptOutcome {
    let place = boundary();
    runtime().block_on(async {
        let (toys, cancel) = (Toys::default(), CancellationToken::new());
        let names = names();
        place.python.run(code, &names, limits, &toys, &cancel).await
    })
}

fn run(code: &str) -> ScriptOutcome {
    run_with(code, &limits())
}

/// What a script printed, and the value it ended with.
fn shows(code: &str) -> String {
    let outcome = run(code);
    match outcome.ending {
        ScriptEnd::Value(shown) => outcome.output + &shown.repr,
        other => panic!("{code}\n{other:?}\n{}", outcome.output),
    }
}

/// Why a script fails.
fn fails(code: &str, kind: ScriptErrorKind) -> ScriptError {
    let outcome = run(code);
    let trouble = trouble(&outcome).clone();
    assert_eq!(trouble.kind, kind, "{code}\n{trouble:?}");
    trouble
}

fn computing() {
    for (code, wanted) in [
        ("1 + 1", "2"),
        ("print('a')\n'b'", "a\nb"),
        ("", ""),
        ("None", ""),
        ("import math\nmath.floor(2.5)", "2"),
        ("class A:\n  def __init__(self): self.x = 3\nA().x", "3"),
        ("def g():\n  yield 1\n  yield 2\nlist(g())", "[1, 2]"),
        (
            "import os\nos.write(1, b'raw ')\nprint('cooked')",
            "raw cooked\n",
        ),
        ("import sys\nsys.stderr.write('err')\n''", "err"),
        ("print('\\ud800')", "?\n"),
        ("add(1, 2) + tools.add(3)", "6"),
        ("from tools import add as plus\nplus(4)", "4"),
        (
            "import tools.aio, asyncio\nasyncio.run(tools.aio.add(4))",
            "4",
        ),
        ("await tools.aio.add(5)", "5"),
        ("tools.github.upper('a')", "A"),
        ("from tools.github import upper\nupper('a')", "A"),
        ("await tools.aio.github.upper('a')", "A"),
        ("seven", "7"),
        (
            "echo(1, b=[None, True, 2.5, 'é'])",
            r#"{"args":[1],"kwargs":{"b":[null,true,2.5,"é"]}}"#,
        ),
        ("import sys\nsys.exit()", ""),
        ("len(big(3_000_000))", "3000000"),
        ("len(echo('x' * 3_000_000)['args'][0])", "3000000"),
    ] {
        assert_eq!(shows(code), wanted, "{code}");
    }
}

fn calling() {
    let together = "import asyncio\nawait asyncio.gather(tools.aio.meet(1), tools.aio.meet(2))";
    assert_eq!(shows(together), "[1, 2]");
    let caught = "try:\n  fail()\nexcept FileNotFoundError as e:\n  print(tools.error_code(e), e)";
    assert_eq!(shows(caught), "NOT_FOUND NOT_FOUND: no such thing\n");
    assert_eq!(shows("tools.error_code(ValueError('x y'))"), "");
    // Not to be written down, so it never leaves the script.
    for code in [
        "echo(float('nan'))",
        "echo(object())",
        "echo('\\ud800')",
        "echo({1, 2})",
    ] {
        let outcome = run(code);
        assert_eq!(trouble(&outcome).kind, ScriptErrorKind::Exception, "{code}");
    }
    let outcome = run("print('before')\nFINAL(1)\nprint('after')");
    assert!(matches!(outcome.ending, ScriptEnd::Stopped), "{outcome:?}");
    assert_eq!(outcome.calls, 1);
}

fn troubles() {
    let outcome = run("x = 1\n\ndef f():\n  raise ValueError('deep')\nprint('so far')\nf()");
    let told = trouble(&outcome);
    assert_eq!(
        (told.exception.as_str(), told.message.as_str()),
        ("ValueError", "deep")
    );
    assert_eq!(told.line, Some(4));
    assert!(
        told.traceback.contains("line 6") && told.traceback.contains("f()"),
        "{told:?}"
    );
    assert_eq!(outcome.output, "so far\n");
    let outcome = run("x = 1\nif x\n  y");
    let told = trouble(&outcome);
    assert_eq!(
        (told.kind, told.line),
        (ScriptErrorKind::Syntax, Some(2)),
        "{told:?}"
    );
    assert!(
        told.traceback.contains("if x\n") && told.traceback.contains('^'),
        "{told:?}"
    );
    let outcome = run("nothing_like_it()");
    assert_eq!(trouble(&outcome).exception, "NameError");
    let outcome = run("tools.nothing_like_it()");
    assert_eq!(trouble(&outcome).exception, "AttributeError");
    assert_eq!(outcome.calls, 0);
    let outcome = run("\n\ntools = 1");
    assert_eq!(trouble(&outcome).kind, ScriptErrorKind::Reserved);
    assert_eq!(trouble(&outcome).line, Some(3));
    for code in [
        "\0",
        "\u{feff}print(1)",
        "print(\u{202e}1)",
        &"(".repeat(50_000),
    ] {
        // Any ending will do, as long as there is one.
        drop(run(code));
    }
}

fn bounds() {
    let quick = ScriptLimits {
        // Long enough for Python to start on a busy machine.
        wall: Duration::from_secs(2),
        calls_wall: Duration::from_secs(4),
        ..limits()
    };
    let busy = ScriptLimits {
        cpu: Duration::from_secs(1),
        ..limits()
    };
    let few = ScriptLimits {
        calls: 5,
        output_bytes: 1000,
        ..limits()
    };
    let cases: [(&str, &ScriptLimits, ScriptLimit); 10] = [
        ("while True: pass", &quick, ScriptLimit::Wall),
        ("import time\ntime.sleep(60)", &quick, ScriptLimit::Wall),
        ("hang()", &quick, ScriptLimit::Wall),
        // Native code that never lets go of the interpreter.
        (
            "import re\nre.match(r'(a+)+$', 'a' * 60 + 'b')",
            &quick,
            ScriptLimit::Wall,
        ),
        (
            "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True:\n  try:\n    while True: pass\n  except BaseException: pass",
            &quick,
            ScriptLimit::Wall,
        ),
        ("while True: pass", &busy, ScriptLimit::Cpu),
        ("x = 'x' * 10**10", &limits(), ScriptLimit::Memory),
        ("while True: print('x' * 10**6)", &few, ScriptLimit::Output),
        (
            "while True:\n  try: add(1)\n  except BaseException: pass",
            &few,
            ScriptLimit::Calls,
        ),
        (
            "def f(n): return f(n + 1)\nf(0)",
            &limits(),
            ScriptLimit::Recursion,
        ),
    ];
    for (code, limits, limit) in cases {
        let outcome = run_with(&format!("print('first', flush=True)\n{code}"), limits);
        let told = trouble(&outcome);
        assert_eq!(told.kind, ScriptErrorKind::Limit(limit), "{code}\n{told:?}");
        assert_eq!(told.message, limits.describe(limit), "{code}");
        assert!(told.hint.is_some(), "{code}");
        assert!(outcome.output.starts_with("first\n"), "{code}\n{outcome:?}");
        assert!(outcome.output.len() <= 1 << 20);
        assert_eq!(shows("1"), "1", "after {code}");
        if code == "hang()" {
            // The time of calls is not the script's.
            assert!(outcome.elapsed >= Duration::from_secs(3), "{outcome:?}");
        }
    }
}

/// Ends that come from below; each time the next script runs.
fn deaths() {
    for (code, words) in [
        ("import os\nos._exit(3)", "exit code 3"),
        (
            "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
            "signal 9",
        ),
        ("import ctypes\nctypes.string_at(0)", "signal 11"),
        // While a call is out.
        (
            "import os, signal, threading\nthreading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()\nhang()",
            "signal 9",
        ),
        // Nonsense in the channel.
        (
            "import os\nfor fd in range(100, 110):\n  try: os.write(fd, b'\\xff' * 64)\n  except OSError: pass\nhang()",
            "broke its channel",
        ),
        (
            "import os\nfor fd in range(100, 110):\n  try: os.write(fd, b'c\\x02\\x00\\x00\\x00{}')\n  except OSError: pass\nhang()",
            "broke its channel",
        ),
    ] {
        let outcome = run(code);
        let told = trouble(&outcome);
        assert_eq!(told.kind, ScriptErrorKind::Crashed, "{code}\n{told:?}");
        assert!(told.message.contains(words), "{code}\n{told:?}");
        assert_eq!(shows("print(1)"), "1\n", "after {code}");
    }
    // Without the channel there is nothing to wait for. Where there is no process namespace the helper has it too, and the time
    // limit ends the script.
    let outcome = run_with(
        "import os, time\nos.closerange(100, 110)\ntime.sleep(10**6)",
        &ScriptLimits {
            wall: Duration::from_secs(5),
            ..limits()
        },
    );
    let wanted = match roles::without_namespaces() {
        true => ScriptErrorKind::Limit(ScriptLimit::Wall),
        false => ScriptErrorKind::Crashed,
    };
    assert_eq!(trouble(&outcome).kind, wanted, "{outcome:?}");
    // Closing everything only hurts the script.
    let outcome = run("import os\nos.closerange(0, 300)\nprint(1)");
    assert!(
        matches!(outcome.ending, ScriptEnd::Failed(_)),
        "{outcome:?}"
    );
    assert_eq!(shows("print(1)"), "1\n");
}

/// The workspace is there to be read and imported from, and none of its files come before the standard library's.
fn cancelling() {
    let place = boundary();
    runtime().block_on(async {
        let (toys, cancel) = (Toys::default(), CancellationToken::new());
        let (names, limits) = (names(), limits());
        let run = place
            .python
            .run("print('on')\nhang()", &names, &limits, &toys, &cancel);
        let (outcome, ()) = tokio::join!(run, async {
            toys.hangs.notified().await;
            cancel.cancel();
        });
        assert_eq!(trouble(&outcome).kind, ScriptErrorKind::Cancelled);
        // Dropping the future ends the script, too.
        let cancel = CancellationToken::new();
        let run = place.python.run("hang()", &names, &limits, &toys, &cancel);
        tokio::select! {
            _ = run => panic!("it hangs"),
            () = toys.hangs.notified() => {}
        }
    });
    assert_eq!(shows("1"), "1");
}

fn many() {
    let place = boundary();
    runtime().block_on(async {
        let (toys, cancel) = (Toys::default(), CancellationToken::new());
        let (names, limits) = (names(), limits());
        let codes: Vec<String> = (0..12).map(|n| format!("add({n}, 1)")).collect();
        let runs = codes.iter().map(|code| place.python.run(code, &names, &limits, &toys, &cancel));
        for (n, outcome) in futures_util::future::join_all(runs).await.iter().enumerate() {
            assert!(matches!(&outcome.ending, ScriptEnd::Value(shown) if shown.repr == (n + 1).to_string()), "{outcome:?}");
        }
    });
}

/// The interpreter of a virtual environment, and environments that are none.
/// Several blocks in one process.
fn sessions() {
    let place = boundary();
    runtime().block_on(async {
        let (toys, cancel, names) = (Toys::default(), CancellationToken::new(), names());
        let (limits, mut session) = (limits(), place.python.session(None));
        let blocks = [
            ("x = add(1, 2)\nimport os\ndef f():\n  return x", ""),
            ("x += 1\nf()", "4"),
            ("x", "4"),
            ("print('a')\nos.write(1, b'b')\nNone", "a\nb"),
            ("await tools.aio.add(5)", "5"),
            ("add(6)", "6"),
            ("import threading\nr = []\nt = threading.Thread(target=lambda: r.append(add(7)))\nt.start(); t.join(); r", "[7]"),
            ("import sys\nsys.exit()", ""),
            ("import tempfile\nkept = tempfile.gettempdir() + '/kept'\nopen(kept, 'w').write('1')", "1"),
            ("open(kept).read()", "1"),
        ];
        for (code, wanted) in blocks {
            let outcome = session.run(code, &names, &limits, &toys, &cancel).await;
            let ScriptEnd::Value(value) = &outcome.ending else {
                panic!("{code}: {outcome:?}");
            };
            assert_eq!(outcome.output.clone() + &value.repr, wanted, "{code}");
        }
        // An exception leaves the process and what was bound so far.
        let outcome = session.run("y = 1\n1 / 0", &names, &limits, &toys, &cancel).await;
        assert_eq!(trouble(&outcome).exception, "ZeroDivisionError");
        assert!(session.can_go_on() && session.memory_bytes() > 1 << 20);
        let outcome = session.run("x, y", &names, &limits, &toys, &cancel).await;
        assert!(matches!(&outcome.ending, ScriptEnd::Value(value) if value.repr == "(4, 1)"), "{outcome:?}");
        // The last value of one block is not that of the next.
        let outcome = session.run("z = 1", &names, &limits, &toys, &cancel).await;
        assert!(matches!(&outcome.ending, ScriptEnd::Value(value) if value.repr.is_empty()), "{outcome:?}");
        let started = std::time::Instant::now();
        for _ in 0..50 {
            session.run("x", &names, &limits, &toys, &cancel).await;
        }
        eprintln!("block in a session: {:?}", started.elapsed() / 50);
        let wide = ScriptLimits { calls: 2000, ..limits.clone() };
        let started = std::time::Instant::now();
        let outcome = session.run("for n in range(1000): add(n)", &names, &wide, &toys, &cancel).await;
        assert_eq!(outcome.calls, 1000, "{outcome:?}");
        eprintln!("1,000 calls: {:?}", started.elapsed());
        // A limit ends it.
        let quick = ScriptLimits { wall: Duration::from_millis(200), ..limits.clone() };
        let outcome = session.run("while True: pass", &names, &quick, &toys, &cancel).await;
        assert_eq!(trouble(&outcome).kind, ScriptErrorKind::Limit(ScriptLimit::Wall));
        assert!(!session.can_go_on());
    });
}

/// Processes that run at the same time do not see, signal or share anything with each other.
fn odd_scripts() {
    let long = format!("x = '{}'\nlen(x)", "a".repeat(10 << 20));
    assert_eq!(shows(&long), (10 << 20).to_string());
    let many_lines = "x = 1\n".repeat(20_000);
    assert_eq!(shows(&many_lines), "");
    for code in [
        "\0",
        "x = '\0'",
        "\u{feff}1",
        &"(".repeat(100_000),
        &"[".repeat(10_000),
        &format!("{}1", "-".repeat(100_000)),
        &format!("x = {}1", "1 + ".repeat(50_000)),
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
        "raise BaseException('odd')",
        "import sys\nsys.stdout = None\nprint(1)",
        "import sys\nsys.stdout.close()\nprint(1)",
        "import os\nos.close(1); os.close(2)\nprint(1)",
        "import builtins\nbuiltins.print = None\nbuiltins.len = None",
        "import json\njson.dumps = None",
        "import os\nos.write = None",
        "del __builtins__",
        "globals().clear()",
        "class E(Exception):\n  def __str__(self): raise ValueError\nraise E",
        "class R:\n  def __repr__(self): raise ValueError('no repr')\nR()",
        "class R:\n  def __reduce__(self): return (print, ('x',))\nR()",
        "import threading, time\nthreading.Thread(target=lambda: [time.sleep(0.01) for _ in iter(int, 1)]).start()",
        "import atexit, time\natexit.register(time.sleep, 60)",
        "import sys\nsys.exit('message')",
        "import os\nfor fd in range(3, 200):\n  try: os.write(fd, b'd\\x02\\x00\\x00\\x00{}')\n  except OSError: pass",
        "import gc, sys\n[sys.modules.pop(n) for n in list(sys.modules)]",
    ] {
        let limits = ScriptLimits {
            wall: Duration::from_secs(15),
            ..limits()
        };
        let started = std::time::Instant::now();
        let outcome = run_with(code, &limits);
        let shown: String = code.chars().take(60).collect();
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "{shown}: {outcome:?}"
        );
        assert_eq!(shows("1 + 1"), "2", "after {shown}");
    }
}
