//! What a script reaches of the machine, and which interpreter it runs in.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use llmc_exec::{Confinement, Settings};
use llmc_sandbox::{PythonBackend, ScriptEnd, ScriptErrorKind, ScriptLimits, WorkspaceAccess};
use tokio_util::sync::CancellationToken;

use super::{boundary, fails, run, run_with, settings, shows};
use crate::fixture::{Toys, limits, names, runtime, trouble};

/// Scripts that try to get out; each prints `free` if it did.
/// Puts Python's own functions back, since those that ask the server are not what holds a script.
const PAST_THE_SHIM: &str = "import _io, builtins, io, os, posix, sys
for name in set(dir(posix)) - {'environ'}: setattr(os, name, getattr(posix, name))
builtins.open = io.open = _io.open
sys.meta_path = [finder for finder in sys.meta_path if type(finder).__name__ != 'LatePatches']
for name in [name for name in sys.modules if name.split('.')[0] in ('multiprocessing', 'shutil', 'subprocess')]:
  del sys.modules[name]
";

pub(super) fn escapes() {
    let place = boundary();
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
        "os.execv('/bin/true', ['true'])".to_owned(),
        "os.execv('/proc/self/exe', ['python3', '-c', 'print(\"free\")'])".to_owned(),
        // execveat, by every number that a descriptor can have.
        "1 / sum(ctypes.CDLL(None).syscall({'x86_64': 322, 'aarch64': 281}[os.uname().machine], n, b'', None, None, 0x1000) + 1 \
         for n in [os.open('/bin/true', os.O_RDONLY)] + [254, 255, 256])"
            .to_owned(),
        "os.memfd_create('x')".to_owned(),
        "os.pidfd_open(os.getppid())".to_owned(),
        "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)".to_owned(),
        "os.sched_setaffinity(os.getppid(), {0})".to_owned(),
        "resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (1, 1))".to_owned(),
        "fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())".to_owned(),
        "1 / (ctypes.CDLL(None).shmget(0x6c6c, 4096, 0o1600) + 1)".to_owned(),
        "os.kill(0, signal.SIGTERM)".to_owned(),
        "os.killpg(os.getppid(), 0)".to_owned(),
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

pub(super) fn vanishing() {
    let own = "import os, shutil, tempfile\nown = tempfile.gettempdir()\n";
    let write = "open(own + '/kept', 'w').write('x')\nshutil.copy2(own + '/kept', own + '/copy')\nopen(own + '/copy').read()";
    assert_eq!(shows(&format!("{own}{write}")), "x");
    assert_eq!(shows(&format!("{own}os.listdir(own)")), "[]");
    assert!(!PathBuf::from("/tmp/kept").exists());
}

/// A root inside a place that every Python reads, or that runs have of their own, is not read either.
pub(super) fn sealed_anywhere() {
    let places: [&str; 3] = ["/tmp", "/var/tmp", "/usr/local/lib"];
    for place in places {
        let Ok(dir) = tempfile::Builder::new().prefix("sealed-").tempdir_in(place) else {
            eprintln!("SKIPPED: {place} cannot be written");
            continue;
        };
        let ws = dir.path().join("ws");
        std::fs::create_dir_all(ws.join(".llmc")).unwrap();
        for name in ["inside.txt", ".llmc/token"] {
            std::fs::write(ws.join(name), "SECRET").unwrap();
        }
        let python = PythonBackend::open(
            &settings(dir.path()),
            WorkspaceAccess::ThroughServer,
            128 << 20,
        )
        .unwrap();
        let code = format!(
            "{PAST_THE_SHIM}held = 0\nfor name in ('inside.txt', '.llmc/token', '{0}/inside.txt', '{0}/.llmc/token'):\n  \
             try: open(name).read()\n  except OSError: held += 1\nheld",
            ws.display()
        );
        runtime().block_on(async {
            let (toys, cancel) = (Toys::default(), CancellationToken::new());
            let outcome = python.run(&code, &names(), &limits(), &toys, &cancel).await;
            assert!(
                matches!(&outcome.ending, ScriptEnd::Value(value) if value.repr == "4"),
                "{place}: {outcome:?}"
            );
        });
    }
}

/// Nothing of the workspace is read, by whatever way, and the host, which has no files, is asked.
pub(super) fn sealed() {
    let place = boundary();
    let ws = place.workspace();
    let ws = ws.display();
    for code in [
        "open('inside.txt').read()".to_owned(),
        format!("open('{ws}/inside.txt', 'rb').read()"),
        "import os\nos.listdir('.')".to_owned(),
        "import os\nlist(os.scandir('nested'))".to_owned(),
        "import pathlib\npathlib.Path('inside.txt').read_text()".to_owned(),
        "import os\nos.open('inside.txt', os.O_RDONLY)".to_owned(),
        "open('inside.txt', 'a').write('x')".to_owned(),
        "import subprocess\nsubprocess.run(['cat', 'inside.txt'])".to_owned(),
    ] {
        let trouble = fails(&code, ScriptErrorKind::Exception);
        assert_eq!(trouble.exception, "PermissionError", "{code}: {trouble:?}");
        assert!(trouble.message.contains("no files"), "{code}: {trouble:?}");
    }
    let trouble = fails("import own_module", ScriptErrorKind::Exception);
    assert_eq!(trouble.exception, "ModuleNotFoundError");
    let database =
        format!("import sqlite3\nsqlite3.connect('{ws}/inside.txt').execute('select 1 from x')");
    let trouble = fails(&database, ScriptErrorKind::Exception);
    assert!(trouble.message.contains("SQLite cannot"), "{trouble:?}");
    // What it is and what it holds, past Python's own functions too.
    for name in ["inside.txt", ".llmc/token", "nested/.llmc/token"] {
        let past = format!("{PAST_THE_SHIM}open('{name}').read()");
        let trouble = fails(&past, ScriptErrorKind::Exception);
        assert!(
            ["PermissionError", "FileNotFoundError"].contains(&&*trouble.exception),
            "{trouble:?}"
        );
    }
    // Its library is there.
    assert_eq!(
        shows("import json, ssl, sqlite3, zoneinfo\njson.loads('1')"),
        "1"
    );
}

pub(super) fn reading() {
    let place = boundary();
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

pub(super) fn settings_do_not_matter() {
    let place = boundary();
    // Commands may be wide open; this is not.
    let wide = Settings {
        confinement: Confinement::Off,
        ..settings(place.dir.path())
    };
    let python = PythonBackend::open(&wide, WorkspaceAccess::Reads, 128 << 20).unwrap();
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

pub(super) fn virtual_environments() {
    let real = std::fs::canonicalize("/usr/bin/python3").unwrap();
    let version = real.file_name().unwrap().to_str().unwrap().to_owned();
    let site = format!("lib/{version}/site-packages");
    let config = "home = /usr/bin\ninclude-system-site-packages = false\n";
    let shown = |dir: &Path, code: &str| {
        let python =
            PythonBackend::open(&settings(dir), WorkspaceAccess::Reads, 128 << 20).unwrap();
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

pub(super) fn siblings() {
    let place = boundary();
    runtime().block_on(async {
        let (toys, cancel, names) = (Toys::default(), CancellationToken::new(), names());
        let limits = limits();
        place.python.prepare(None);
        let mut first = place.python.session(None);
        let mut second = place.python.session(None);
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
            place.python.prepare(None);
            tokio::time::sleep(Duration::from_millis(700)).await;
            let started = std::time::Instant::now();
            let outcome = place.python.run("1", &names, &limits, &toys, &cancel).await;
            times.push(started.elapsed());
            assert!(matches!(outcome.ending, ScriptEnd::Value(_)), "{outcome:?}");
        }
        eprintln!("with a process started ahead: {times:?}");
    });
}
