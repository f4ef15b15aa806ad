//! The system's Python: the same scripts, and the same ways out, tried against the kernel.

mod boundary;
mod versions;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use llmc_exec::Settings;
use llmc_sandbox::{
    PythonBackend, ScriptEnd, ScriptErrorKind, ScriptLimit, ScriptLimits, ScriptOutcome,
};
use tokio_util::sync::CancellationToken;

use crate::fixture::{Toys, limits, names, runtime, trouble};

pub(crate) fn list(add: &mut impl FnMut(&'static str, fn())) {
    if boundary().is_none() {
        let in_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
        assert!(
            !in_ci,
            "under CI a Python that cannot be confined is a failure"
        );
        return;
    }
    add("python::scripts_compute_print_and_call", computing);
    add(
        "python::calls_run_together_and_fail_with_their_code",
        calling,
    );
    add("python::what_goes_wrong_is_told_with_its_line", troubles);
    add("python::every_limit_ends_the_script_and_says_so", bounds);
    add("python::nothing_gets_out", boundary::escapes);
    add(
        "python::an_interpreter_that_dies_takes_nobody_along",
        deaths,
    );
    add("python::what_is_written_vanishes", boundary::vanishing);
    add(
        "python::the_workspace_is_read_and_imported_from",
        boundary::reading,
    );
    add(
        "python::virtual_environments_are_used_and_never_trusted",
        boundary::virtual_environments,
    );
    add(
        "python::a_damaged_python_is_passed_over_or_used_as_it_is",
        versions::damaged,
    );
    if std::env::var_os(versions::INTERPRETERS).is_some() {
        add(
            "python::every_version_runs_scripts",
            versions::every_version,
        );
    }
    add(
        "python::a_client_that_goes_away_ends_the_script",
        cancelling,
    );
    add("python::many_at_once", many);
    add("python::a_session_keeps_its_variables", sessions);
    add(
        "python::processes_started_ahead_are_apart",
        boundary::siblings,
    );
    add("python::odd_scripts_end_with_an_answer", odd_scripts);
    add(
        "python::settings_of_commands_do_not_weaken_it",
        boundary::settings_do_not_matter,
    );
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

/// One boundary for all tests, since proving it takes a moment; none where the kernel gives none or there is no Python.
fn boundary() -> Option<&'static Place> {
    static MADE: OnceLock<Option<Place>> = OnceLock::new();
    MADE.get_or_init(|| {
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
        match PythonBackend::open(&settings(dir.path()), 128 << 20) {
            Ok(python) => Some(Place { dir, python }),
            Err(error) => {
                let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
                assert!(!ci, "under CI Python must be confinable: {error}");
                eprintln!("SKIPPED: {error}");
                None
            }
        }
    })
    .as_ref()
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
    let place = boundary().unwrap();
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
        (
            "import posix\nposix.execv('/bin/true', ['true'])",
            "exit code 0",
        ),
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
        // Without the channel there is nothing to wait for.
        (
            "import os, time\nos.closerange(100, 110)\ntime.sleep(10**6)",
            "was ended",
        ),
    ] {
        let outcome = run(code);
        let told = trouble(&outcome);
        assert_eq!(told.kind, ScriptErrorKind::Crashed, "{code}\n{told:?}");
        assert!(told.message.contains(words), "{code}\n{told:?}");
        assert_eq!(shows("print(1)"), "1\n", "after {code}");
    }
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
    let place = boundary().unwrap();
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
    let place = boundary().unwrap();
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
    let place = boundary().unwrap();
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
            ("open('/tmp/kept', 'w').write('1')", "1"),
            ("open('/tmp/kept').read()", "1"),
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
