//! The system's Python: the same scripts, and the same ways out, tried against the kernel.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
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
    add("python::the_workspace_is_read_and_imported_from", reading);
    add(
        "python::virtual_environments_are_used_and_never_trusted",
        virtual_environments,
    );
    add(
        "python::a_client_that_goes_away_ends_the_script",
        cancelling,
    );
    add("python::many_at_once", many);
    add("python::a_session_keeps_its_variables", sessions);
    add("python::processes_started_ahead_are_apart", siblings);
    add("python::odd_scripts_end_with_an_answer", odd_scripts);
    add(
        "python::settings_of_commands_do_not_weaken_it",
        settings_do_not_matter,
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
                eprintln!("python is not tried here: {error}");
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

/// Scripts that try to get out; each prints `free` if it did.
/// Puts Python's own functions back, since those that ask the server are not what holds a script.
const PAST_THE_SHIM: &str = "import _io, builtins, io, os, posix, sys
for name in set(dir(posix)) - {'environ'}: setattr(os, name, getattr(posix, name))
builtins.open = io.open = _io.open
sys.meta_path = [finder for finder in sys.meta_path if type(finder).__name__ != 'LatePatches']
for name in [name for name in sys.modules if name.split('.')[0] in ('multiprocessing', 'shutil', 'subprocess')]:
  del sys.modules[name]
";

fn escapes() {
    let place = boundary().unwrap();
    let (dir, ws) = (place.dir.path().display(), place.workspace());
    let ws = ws.display();
    let before = std::fs::metadata(place.workspace().join("inside.txt")).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    let unix = UnixListener::bind(place.dir.path().join("socket")).unwrap();
    let server = std::process::id();
    let pipe = place.workspace().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        0o666.into(),
        0,
    )
    .unwrap();
    let scripts = [
        format!("open('{dir}/planted', 'w').write('x')"),
        format!("open('{dir}/outside.txt').read()"),
        format!("os.listdir('{dir}')"),
        "open('link').read()".to_owned(),
        format!("os.symlink('{dir}', '/tmp/link') or open('/tmp/link/outside.txt')"),
        // The workspace can be read, and nothing else.
        format!("open('{ws}/.llmc/token').read()"),
        "open('nested/.llmc/token').read()".to_owned(),
        "1 / len(os.listdir('.llmc') + os.listdir('nested/.llmc'))".to_owned(),
        "1 / len(open('hidden.txt').read())".to_owned(),
        "open('planted', 'w').write('x')".to_owned(),
        "os.unlink('inside.txt')".to_owned(),
        "os.rename('inside.txt', 'planted')".to_owned(),
        "os.mkdir('planted')".to_owned(),
        "os.link('inside.txt', '/tmp/hard') or open('/tmp/hard').read()".to_owned(),
        "os.truncate('inside.txt', 0)".to_owned(),
        "open('inside.txt', 'r+')".to_owned(),
        "os.chmod('inside.txt', 0o777)".to_owned(),
        "os.fchmod(os.open('inside.txt', os.O_RDONLY), 0o777)".to_owned(),
        "os.chown('inside.txt', os.getuid(), os.getgid())".to_owned(),
        "os.fchown(os.open('inside.txt', os.O_RDONLY), os.getuid(), os.getgid())".to_owned(),
        "os.utime('inside.txt', (0, 0))".to_owned(),
        "os.utime(os.open('inside.txt', os.O_RDONLY), (0, 0))".to_owned(),
        "os.setxattr('inside.txt', 'user.x', b'x')".to_owned(),
        "os.setxattr(os.open('inside.txt', os.O_RDONLY), 'user.x', b'x')".to_owned(),
        "os.write(os.open('inside.txt', os.O_RDONLY), b'x')".to_owned(),
        "os.ftruncate(os.open('inside.txt', os.O_RDONLY), 0)".to_owned(),
        "os.posix_fallocate(os.open('inside.txt', os.O_RDONLY), 0, 99)".to_owned(),
        "open('/proc/self/fd/%d' % os.open('inside.txt', os.O_RDONLY), 'r+')".to_owned(),
        "mmap.mmap(os.open('inside.txt', os.O_RDONLY), 0, mmap.MAP_SHARED, mmap.PROT_WRITE)".to_owned(),
        // FS_IOC_SETFLAGS
        "fcntl.ioctl(os.open('inside.txt', os.O_RDONLY), 0x40086602, b'\\0' * 8)".to_owned(),
        "os.open('pipe', os.O_WRONLY | os.O_NONBLOCK)".to_owned(),
        "os.open('pipe', os.O_RDWR | os.O_NONBLOCK)".to_owned(),
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
        "open('/tmp/huge', 'wb').truncate((128 << 20) + 1)".to_owned(),
        "[open('/tmp/huge' + n, 'wb').write(bytes(50 << 20)) for n in 'abcd']".to_owned(),
        "[open('/tmp/x', 'w') for _ in range(10000)]".to_owned(),
    ];
    for script in scripts {
        let code = format!(
            "{PAST_THE_SHIM}import os, socket, subprocess, multiprocessing, ctypes, resource, signal, mmap, fcntl\n\
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
    std::fs::remove_file(pipe).unwrap();
    assert!(!place.dir.path().join("planted").exists());
    assert!(!place.workspace().join("planted").exists());
    let inside = place.workspace().join("inside.txt");
    assert_eq!(std::fs::read_to_string(&inside).unwrap(), "plain");
    let after = std::fs::metadata(&inside).unwrap();
    assert_eq!(
        (before.ctime(), before.ctime_nsec()),
        (after.ctime(), after.ctime_nsec())
    );
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
    assert_eq!(shows("import os\nos.listdir('/tmp')"), "[]");
    assert!(!PathBuf::from("/tmp/kept").exists());
}

/// The workspace is there to be read and imported from, and none of its files come before the standard library's.
fn reading() {
    let place = boundary().unwrap();
    let ws = place.workspace();
    for (code, wanted) in [
        ("open('inside.txt').read()", "plain"),
        ("import os\nos.getcwd()", &*ws.display().to_string()),
        (
            "import pathlib\npathlib.Path('inside.txt').read_text()",
            "plain",
        ),
        ("import glob\nglob.glob('in*.txt')", "['inside.txt']"),
        (
            "import os\nsorted(f for _, _, fs in os.walk('nested') for f in fs)",
            "[]",
        ),
        ("import own_module\nown_module.answer", "42"),
        (
            "import json, os, re, select, tools\n[m.__name__ for m in (json, os, re)], json.loads('1'), tools.add(1, 2)",
            "(['json', 'os', 're'], 1, 3)",
        ),
        (
            "import sys\nsys.path[-1] == __import__('os').getcwd()",
            "True",
        ),
        ("import sys\nsys.argv", "['-c']"),
        ("exit()", ""),
        (
            "import mimetypes\nmimetypes.guess_type('a.png')[0]",
            "image/png",
        ),
    ] {
        assert_eq!(shows(code), wanted, "{code}");
    }
    // Modules that read settings of the system must not stumble over what they may not read.
    let modules = "import argparse, base64, bisect, csv, dataclasses, decimal, difflib, email, enum, functools, \
                   hashlib, heapq, html, http.client, inspect, locale, logging, math, operator, pickle, platform, pprint, \
                   queue, random, sched, secrets, shlex, shutil, sqlite3, ssl, statistics, string, tempfile, textwrap, \
                   timeit, tokenize, tomllib, typing, unittest, urllib.request, uuid, xml.etree.ElementTree, zipfile, zoneinfo\n\
                   platform.freedesktop_os_release() and zoneinfo.ZoneInfo('Europe/Berlin').key, tempfile.gettempdir()";
    assert_eq!(shows(modules), "('Europe/Berlin', '/tmp')");
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

fn settings_do_not_matter() {
    let place = boundary().unwrap();
    // Commands may be wide open; this is not.
    let wide = Settings {
        confinement: Confinement::Off,
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

/// The interpreter of a virtual environment, and environments that are none.
fn virtual_environments() {
    let real = std::fs::canonicalize("/usr/bin/python3").unwrap();
    let version = real.file_name().unwrap().to_str().unwrap().to_owned();
    let site = format!("lib/{version}/site-packages");
    let config = "home = /usr/bin\ninclude-system-site-packages = false\n";
    let shown = |dir: &Path, code: &str| {
        let python = PythonBackend::open(&settings(dir), 128 << 20).unwrap();
        let outcome = runtime().block_on(async {
            let (toys, cancel) = (Toys::default(), CancellationToken::new());
            python.run(code, &names(), &limits(), &toys, &cancel).await
        });
        match outcome.ending {
            ScriptEnd::Value(value) => (outcome.output + &value.repr, python.describe()),
            other => panic!("{other:?}"),
        }
    };
    let workspace = |prepare: &dyn Fn(&Path)| {
        let dir = tempfile::Builder::new()
            .prefix("venv-")
            .tempdir_in("/var/tmp")
            .unwrap();
        let venv = dir.path().join("ws/.venv");
        std::fs::create_dir_all(venv.join("bin")).unwrap();
        std::fs::create_dir_all(venv.join(&site)).unwrap();
        std::fs::create_dir_all(dir.path().join("ws/.llmc")).unwrap();
        std::fs::write(venv.join("pyvenv.cfg"), config).unwrap();
        prepare(&venv);
        dir
    };
    let link = |to: &str, venv: &Path| {
        std::os::unix::fs::symlink(to, venv.join("bin/python3")).unwrap();
    };
    let dir = workspace(&|venv| {
        link(real.to_str().unwrap(), venv);
        let site = venv.join(&site);
        std::fs::create_dir_all(venv.join("../src")).unwrap();
        std::fs::write(venv.join("../src/edited.py"), "x = 'edited'").unwrap();
        std::fs::write(site.join("package.py"), "x = 'package'").unwrap();
        std::fs::write(site.join("json.py"), "raise SystemExit('shadowed')").unwrap();
        std::fs::write(site.join("sitecustomize.py"), "raise SystemExit('ran')").unwrap();
        let source = venv.parent().unwrap().join("src").display().to_string();
        std::fs::write(
            site.join("a.pth"),
            format!("import os; os._exit(9)\n{source}\n/proc/1\n"),
        )
        .unwrap();
        std::fs::write(site.join("b.pth"), [0xff, 0, b'\n', 0xfe]).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            site.join("c.pth"),
            rustix::fs::FileType::Fifo,
            0o666.into(),
            0,
        )
        .unwrap();
    });
    let code =
        "import json, package, edited, sys\npackage.x, edited.x, sys.prefix.endswith('/.venv')";
    let (text, words) = shown(dir.path(), code);
    assert_eq!(text, "('package', 'edited', True)");
    assert!(words.contains("/.venv"), "{words}");
    // The system's packages are not the environment's.
    let (text, _) = shown(
        dir.path(),
        "import sys\n[p for p in sys.path if 'dist-packages' in p]",
    );
    assert_eq!(text, "[]");

    type Damage<'a> = &'a dyn Fn(&Path);
    let refused: [(&str, Damage<'_>); 7] = [
        ("does not exist", &|venv| link("/nowhere/python3", venv)),
        ("no Python", &|venv| link("/bin/true", venv)),
        ("lies in the workspace", &|venv| {
            std::fs::copy(&real, venv.join("bin/python3")).unwrap();
        }),
        ("no pyvenv.cfg", &|venv| {
            link(real.to_str().unwrap(), venv);
            std::fs::remove_file(venv.join("pyvenv.cfg")).unwrap();
            let pipe = venv.join("pyvenv.cfg");
            let kind = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, pipe, kind, 0o666.into(), 0).unwrap();
        }),
        ("leads out of the workspace", &|venv| {
            let elsewhere = venv.parent().unwrap().parent().unwrap().join("elsewhere");
            std::fs::rename(venv, &elsewhere).unwrap();
            std::os::unix::fs::symlink(elsewhere, venv).unwrap();
        }),
        ("does not start", &|venv| {
            // Beside a standard library, named like an interpreter, and none.
            let fake = venv.parent().unwrap().parent().unwrap().join("fake");
            let library = fake.join("lib/python3.99");
            std::fs::create_dir_all(&library).unwrap();
            std::fs::create_dir_all(fake.join("bin")).unwrap();
            std::fs::write(library.join("os.py"), "").unwrap();
            std::fs::copy("/bin/true", fake.join("bin/python3")).unwrap();
            link(fake.join("bin/python3").to_str().unwrap(), venv);
        }),
        ("not used", &|venv| {
            std::fs::remove_dir_all(venv).unwrap();
            std::fs::write(venv, "").unwrap();
        }),
    ];
    for (why, prepare) in refused {
        let dir = workspace(prepare);
        let (text, words) = shown(dir.path(), "1 + 1");
        assert_eq!(text, "2", "{why}");
        assert!(words.contains(why), "{why}: {words}");
    }
}

/// Several blocks in one process.
fn sessions() {
    let place = boundary().unwrap();
    runtime().block_on(async {
        let (toys, cancel, names) = (Toys::default(), CancellationToken::new(), names());
        let (limits, mut session) = (limits(), place.python.session());
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
fn siblings() {
    let place = boundary().unwrap();
    runtime().block_on(async {
        let (toys, cancel, names) = (Toys::default(), CancellationToken::new(), names());
        let limits = limits();
        place.python.prepare();
        let mut first = place.python.session();
        let mut second = place.python.session();
        let kept = first.run("open('/tmp/own', 'w').write('x')\nsecret = 'canary'", &names, &limits, &toys, &cancel).await;
        assert!(matches!(kept.ending, ScriptEnd::Value(_)), "{kept:?}");
        let attack = "import os, signal\nseen = [int(p) for p in os.listdir('/proc') if p.isdigit()]\n\
                      own = [int(t) for t in os.listdir('/proc/self/task')]\n\
                      others = [p for p in range(2, 5000) if p not in own + [os.getppid()]]\nhit = 0\n\
                      for pid in others:\n  try:\n    os.kill(pid, signal.SIGKILL)\n    hit += 1\n  except OSError: pass\n\
                      for p in (-1, 1):\n  try: os.kill(p, signal.SIGTERM)\n  except OSError: pass\n\
                      sorted(set(seen) - {1, os.getpid(), os.getppid()}), hit, os.listdir('/tmp')";
        let outcome = second.run(attack, &names, &limits, &toys, &cancel).await;
        assert!(matches!(&outcome.ending, ScriptEnd::Value(value) if value.repr == "([], 0, [])"), "{outcome:?}");
        let outcome = first.run("secret", &names, &limits, &toys, &cancel).await;
        assert!(matches!(&outcome.ending, ScriptEnd::Value(value) if value.repr == "canary"), "{outcome:?}");
        // One that waits has its memory and ends with the backend; a script that finds it ready does not wait for it.
        let mut times = Vec::new();
        for _ in 0..5 {
            place.python.prepare();
            tokio::time::sleep(Duration::from_millis(700)).await;
            let started = std::time::Instant::now();
            let outcome = place.python.run("1", &names, &limits, &toys, &cancel).await;
            times.push(started.elapsed());
            assert!(matches!(outcome.ending, ScriptEnd::Value(_)), "{outcome:?}");
        }
        eprintln!("with a process started ahead: {times:?}");
    });
}

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
