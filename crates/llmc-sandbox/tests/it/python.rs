//! The system's Python: the same scripts, and the same ways out, tried against the kernel.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use llmc_exec::{Confinement, Settings};
use llmc_sandbox::{
    PythonBackend, ScriptEnd, ScriptErrorKind, ScriptLimit, ScriptLimits, ScriptOutcome,
};
use tokio_util::sync::CancellationToken;

use crate::fixture::{Toys, limits, names, runtime, trouble};

pub(crate) fn list(add: &mut impl FnMut(&'static str, fn())) {
    if boundary().is_none() {
        return;
    }
    add("python::scripts_compute_print_and_call", computing);
    add(
        "python::calls_run_together_and_fail_with_their_code",
        calling,
    );
    add("python::what_goes_wrong_is_told_with_its_line", troubles);
    add("python::every_limit_ends_the_script_and_says_so", bounds);
    add("python::nothing_gets_out", escapes);
    add(
        "python::an_interpreter_that_dies_takes_nobody_along",
        deaths,
    );
    add("python::what_is_written_vanishes", vanishing);
    add(
        "python::a_client_that_goes_away_ends_the_script",
        cancelling,
    );
    add("python::many_at_once", many);
    add(
        "python::settings_of_commands_do_not_weaken_it",
        settings_do_not_matter,
    );
}

/// Where the attempts are aimed: a directory that nobody but the server has any business in.
struct Place {
    dir: tempfile::TempDir,
    python: PythonBackend,
}

/// One boundary for all tests, since proving it takes a moment; none where the kernel gives none or there is no Python.
fn boundary() -> Option<&'static Place> {
    static MADE: OnceLock<Option<Place>> = OnceLock::new();
    MADE.get_or_init(|| {
        let dir = tempfile::Builder::new()
            .prefix("python-")
            .tempdir_in("/var/tmp")
            .unwrap();
        std::fs::create_dir(dir.path().join(".llmc")).unwrap();
        std::fs::write(dir.path().join(".llmc/token"), "SECRET").unwrap();
        std::fs::write(dir.path().join("inside.txt"), "SECRET").unwrap();
        match PythonBackend::open(&settings(dir.path()), 128 << 20) {
            Ok(python) => Some(Place { dir, python }),
            Err(error) => {
                eprintln!("python is not tried here: {error}");
                None
            }
        }
    })
    .as_ref()
}

fn settings(dir: &Path) -> Settings {
    Settings {
        write_roots: vec![dir.to_owned()],
        state_dir: Some(dir.join(".llmc")),
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
        wall: Duration::from_secs(3),
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
    }
}

/// Scripts that try to get out; each prints `free` if it did.
fn escapes() {
    let place = boundary().unwrap();
    let dir = place.dir.path().display();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    let unix = UnixListener::bind(place.dir.path().join("socket")).unwrap();
    let server = std::process::id();
    let scripts = [
        format!("open('{dir}/planted', 'w').write('x')"),
        format!("open('{dir}/inside.txt').read()"),
        format!("open('{dir}/.llmc/token').read()"),
        format!("os.listdir('{dir}')"),
        format!("os.unlink('{dir}/inside.txt')"),
        format!("os.symlink('{dir}', '/tmp/link') or open('/tmp/link/inside.txt')"),
        format!("os.link('{dir}/inside.txt', '/tmp/hard') or open('/tmp/hard').read()"),
        "open('/etc/passwd').read()".to_owned(),
        "open('/usr/bin/planted', 'w')".to_owned(),
        "os.listdir('/root') or os.listdir('/home')".to_owned(),
        format!("open('/proc/{server}/environ').read()"),
        format!("os.kill({server}, 0)"),
        "open('/proc/1/environ').read()".to_owned(),
        "open('/proc/1/mem', 'rb').read(1)".to_owned(),
        "open('/proc/sys/kernel/hostname', 'w').write('x')".to_owned(),
        format!("socket.create_connection(('127.0.0.1', {port}), 2)"),
        "socket.create_connection(('1.1.1.1', 53), 2)".to_owned(),
        "socket.getaddrinfo('example.com', 80)".to_owned(),
        format!("socket.socket(socket.AF_UNIX).connect('{dir}/socket')"),
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)".to_owned(),
        format!("1 / (os.system('touch {dir}/planted') == 0)"),
        "os.fork()".to_owned(),
        "os.forkpty()".to_owned(),
        "subprocess.run(['/bin/true'], check=True)".to_owned(),
        "multiprocessing.Process(target=print).start()".to_owned(),
        "os.posix_spawn('/bin/true', ['true'], {})".to_owned(),
        "1 / (ctypes.CDLL(None).fork() + 1)".to_owned(),
        "1 / (ctypes.CDLL(None).syscall(57) + 1)".to_owned(),
        "1 / (ctypes.CDLL(None).unshare(0x10000000) == 0)".to_owned(),
        "1 / (ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0)".to_owned(),
        "1 / (ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0)".to_owned(),
        "1 / (ctypes.CDLL(None).setuid(12345) == 0 and ctypes.CDLL(None).seteuid(0) == 0)".to_owned(),
        "os.setuid(0) or os.chroot('/tmp')".to_owned(),
        "os.mknod('/tmp/disk', 0o60600, os.makedev(8, 0)) or open('/tmp/disk', 'rb')".to_owned(),
        "resource.setrlimit(resource.RLIMIT_DATA, (-1, -1))".to_owned(),
        "os.environ['LLMC_MCP_TOKEN']".to_owned(),
        "1 / len([n for n in os.environ if 'TOKEN' in n or 'KEY' in n or 'SECRET' in n])".to_owned(),
        format!("1 / ('{dir}' in str(dict(os.environ)))"),
        "1 / len([p for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid(), os.getppid())])"
            .to_owned(),
        "open('/dev/mem', 'rb')".to_owned(),
        "open('/tmp/huge', 'wb').write(bytes(100 << 20))".to_owned(),
        "[open('/tmp/x', 'w') for _ in range(10000)]".to_owned(),
    ];
    for script in scripts {
        let code = format!(
            "import os, socket, subprocess, multiprocessing, ctypes, resource, signal\n\
             signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n\
             try:\n  {script}\n  print('free')\nexcept (OSError, ZeroDivisionError, ValueError, KeyError) as e:\n  \
             print('held', type(e).__name__)"
        );
        let outcome = run(&code);
        assert!(
            outcome.output.contains("held") && !outcome.output.contains("free"),
            "{script}\n{outcome:?}"
        );
        assert!(!outcome.output.contains("SECRET"), "{outcome:?}");
    }
    assert!(!place.dir.path().join("planted").exists());
    let inside = std::fs::read_to_string(place.dir.path().join("inside.txt")).unwrap();
    assert_eq!(inside, "SECRET");
    for quiet in [
        tcp.set_nonblocking(true).is_ok() && tcp.accept().is_err(),
        unix.set_nonblocking(true).is_ok() && unix.accept().is_err(),
    ] {
        assert!(quiet);
    }
    std::fs::remove_file(place.dir.path().join("socket")).unwrap();
    // Many threads, and many tries to fork: the script ends, the server answers.
    let threads = "import threading, time\nn = 0\ntry:\n  while True:\n    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n    n += 1\nexcept (RuntimeError, MemoryError):\n  print('enough')";
    let outcome = run_with(
        threads,
        &ScriptLimits {
            wall: Duration::from_secs(10),
            ..limits()
        },
    );
    let ended = outcome.output == "enough\n" || matches!(&outcome.ending, ScriptEnd::Failed(_));
    assert!(ended, "{outcome:?}");
    assert_eq!(shows("1"), "1");
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
        ("import os\nos.execv('/bin/true', ['true'])", "exit code 0"),
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
    // Closing everything only hurts the script.
    let outcome = run("import os\nos.closerange(0, 300)\nprint(1)");
    assert!(
        matches!(outcome.ending, ScriptEnd::Failed(_)),
        "{outcome:?}"
    );
    assert_eq!(shows("print(1)"), "1\n");
}

fn vanishing() {
    let write = "open('/tmp/kept', 'w').write('x')\nopen('/tmp/kept').read()";
    assert_eq!(shows(write), "x");
    assert_eq!(
        shows("import os\nos.getcwd(), os.listdir('/tmp')"),
        "('/tmp', [])"
    );
    assert!(!PathBuf::from("/tmp/kept").exists());
}

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
        // Whoever stops waiting altogether ends it, too.
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

fn settings_do_not_matter() {
    let place = boundary().unwrap();
    // Commands may be wide open; this is not.
    let wide = Settings {
        confinement: Confinement::Off,
        write_roots: vec!["/".into()],
        ..settings(place.dir.path())
    };
    let python = PythonBackend::open(&wide, 128 << 20).unwrap();
    let code = format!("open('{}/planted', 'w')", place.dir.path().display());
    runtime().block_on(async {
        let (toys, cancel) = (Toys::default(), CancellationToken::new());
        let outcome = python.run(&code, &names(), &limits(), &toys, &cancel).await;
        assert_eq!(
            trouble(&outcome).kind,
            ScriptErrorKind::Exception,
            "{outcome:?}"
        );
    });
    assert!(!place.dir.path().join("planted").exists());
}
