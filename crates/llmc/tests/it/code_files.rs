//! Python's own file and program functions in scripts: they work on the workspace, with the guards of the tools.

use std::process::Command;
use std::time::Duration;

use llmc_host::lease::LeaseTable;
use llmc_testkit::{McpClient, TestWorkspace};

use crate::code::{fails, run};
use crate::code_python::server;
use crate::workspace;

/// A program of random file operations, which prints what each returned or raised, and the tree in the end.
const RANDOM_PROGRAM: &str = include_str!("random_files.py");
const STEPS: u32 = 300;

fn shows(client: &mut McpClient, cases: &[(&str, &str)]) {
    for (script, shown) in cases {
        assert_eq!(run(client, script), *shown, "{script}");
    }
}

#[test]
fn files_are_written_as_in_any_python() {
    let workspace = workspace("//- a.txt\none\ntwo\n//- src/x.py\nx = 1\n");
    let Some(mut client) = server(&workspace, &[]) else {
        return;
    };
    let cases = [
        (
            "with open('n.txt', 'w') as f: f.write('é\\n')\nprint(open('n.txt').read(), end='')",
            "é",
        ),
        (
            "with open('a.txt', 'a') as f: f.write('three\\n'); print(f.tell())\nprint(open('a.txt').read())",
            "14\none\ntwo\nthree",
        ),
        (
            "try: open('a.txt', 'x')\nexcept FileExistsError as e: print(e.errno, e.filename)",
            "17 a.txt",
        ),
        (
            "with open('a.txt', 'r+') as f:\n  t = f.read(); f.seek(0); f.write(t.upper()[:7]); f.truncate()\nopen('a.txt').read()",
            "ONE\nTWO",
        ),
        (
            "with open('b.bin', 'wb') as f: f.write(bytes(range(256)))\nopen('b.bin', 'rb').read() == bytes(range(256))",
            "True",
        ),
        (
            "with open('b.bin', 'rb+') as f: f.seek(-1, 2); f.write(b'!'); print(f.tell())\nprint(open('b.bin', 'rb').read()[-2:])",
            "256\nb'\\xfe!'",
        ),
        (
            "with open('l1', 'w', encoding='latin-1', newline='\\r\\n') as f: f.write('é\\n')\nopen('l1', 'rb').read()",
            "b'\\xe9\\r\\n'",
        ),
        (
            "f = open('shown', 'w')\nf.write('x'); f.flush()\nimport os\nprint(os.path.getsize('shown'), tools.read_file(path='shown'))",
            "1 x",
        ),
        (
            "from pathlib import Path\nPath('m/n').mkdir(parents=True)\nPath('m/n/own.py').write_text('V = 5')\nimport sys\nsys.path.append('m/n')\nimport own\nown.V",
            "5",
        ),
        (
            "import shutil, os\nshutil.copytree('m', 'm2'); shutil.move('m2', 'm3'); shutil.rmtree('m'); os.replace('m3/n/own.py', 'own2.py')\nsorted(os.listdir('m3')), os.path.exists('m')",
            "(['n'], False)",
        ),
        (
            "import os\nos.makedirs('p/q'); os.removedirs('p/q'); os.chmod('a.txt', 0o755); os.truncate('a.txt', 3); os.utime('a.txt', (1, 2))\nprint(os.path.exists('p'), oct(os.stat('a.txt').st_mode), os.stat('a.txt').st_mtime, open('a.txt').read())",
            "False 0o100755 2.0 ONE",
        ),
        (
            "import os, tempfile\nfd, name = tempfile.mkstemp(dir='.')\nwith os.fdopen(fd, 'w') as f: f.write('atomic'); f.flush(); os.fsync(f.fileno())\nos.replace(name, 'at'); open('at').read()",
            "atomic",
        ),
        (
            "import csv, json, zipfile, gzip\nwith open('t.csv', 'w', newline='') as f: csv.writer(f).writerow([1, 2])\njson.dump({'a': 1}, open('j', 'w'))\nwith zipfile.ZipFile('z', 'w') as z: z.write('t.csv')\nwith gzip.open('g', 'wt') as f: f.write('zip')\nprint(open('t.csv').read().strip(), json.load(open('j')), zipfile.ZipFile('z').namelist(), gzip.open('g').read())",
            "1,2 {'a': 1} ['t.csv'] b'zip'",
        ),
        (
            "import fileinput\nfor line in fileinput.input('src/x.py', inplace=True): print(line.replace('1', '2'), end='')\nopen('src/x.py').read()",
            "x = 2",
        ),
        (
            "import tempfile, os\nwith tempfile.TemporaryDirectory() as d:\n  open(d + '/own', 'w').write('x'); print(os.listdir(d))",
            "['own']",
        ),
        (
            "open('big', 'wb').write(b'0123456789abcdef' * (4 << 20))\nimport os\nos.path.getsize('big')",
            "67108864",
        ),
        (
            "import os\nfor f in [lambda: os.symlink('a', 'b'), os.fork, lambda: os.link('a', 'b')]:\n  try: f()\n  except OSError as e: print('subprocess' in str(e))",
            "True\nTrue\nTrue",
        ),
    ];
    shows(&mut client, &cases);
    assert_eq!(workspace.read("n.txt"), "é\n");
    assert_eq!(
        std::fs::metadata(workspace.path("big")).unwrap().len(),
        64 << 20
    );
    // What a script leaves open is written at its end, also when it fails.
    let failed = fails(&mut client, "f = open('left', 'w')\nf.write('kept')\n1 / 0");
    assert!(
        failed["error"]
            .as_str()
            .unwrap()
            .contains("ZeroDivisionError"),
        "{failed}"
    );
    assert_eq!(workspace.read("left"), "kept");
    assert_eq!(failed["meta"]["already_done"], "wrote left", "{failed}");
    // One that is killed leaves the old file or the new one.
    workspace.write("whole", "old");
    fails(
        &mut client,
        "import os\nf = open('whole', 'w')\nf.write('new' * 9999)\nos.kill(os.getpid(), 9)",
    );
    assert_eq!(workspace.read("whole"), "old");
}

#[test]
fn programs_run_as_commands_do() {
    let workspace = workspace("//- a.txt\none\n//- sub/b.txt\ntwo\n");
    let Some(mut client) = server(&workspace, &[]) else {
        return;
    };
    let cases = [
        (
            "import subprocess as s\nwith open('w.txt', 'w') as f: f.write('seen')\ns.run(['cat', 'w.txt'], capture_output=True, text=True).stdout",
            "seen",
        ),
        (
            "import subprocess as s\nf = open('u.txt', 'w'); f.write('unclosed')\ns.check_output(['cat', 'u.txt'])",
            "b'unclosed'",
        ),
        (
            "import subprocess as s\nr = s.run('echo out; echo err >&2; exit 3', shell=True, capture_output=True, text=True)\nr.returncode, r.stdout, r.stderr",
            "(3, 'out\\n', 'err\\n')",
        ),
        (
            "import subprocess as s\nprint('before'); s.run(['echo', 'inherited']); print('after')",
            "before\ninherited\nafter",
        ),
        (
            "import subprocess as s\ntry: s.run(['false'], check=True)\nexcept s.CalledProcessError as e: print(e.returncode)",
            "1",
        ),
        (
            "import subprocess as s\ntry: s.run(['no-such-program'])\nexcept OSError as e: print('no-such-program' in str(e))",
            "True",
        ),
        (
            "import subprocess as s\ns.run(['cat'], input=b'\\xff\\0', stdout=s.PIPE).stdout",
            "b'\\xff\\x00'",
        ),
        (
            "import subprocess as s\ns.check_output(['cat', 'b.txt'], cwd='sub', text=True)",
            "two",
        ),
        (
            "import os, subprocess as s\nos.chdir('sub'); s.getoutput('pwd').endswith('/sub')",
            "True",
        ),
        (
            "import os, subprocess as s\nos.environ['A'] = 'x y'\ns.check_output('echo $A', shell=True), s.check_output(['sh', '-c', 'echo $A $B'], env={**os.environ, 'B': 'z'})",
            "(b'x y\\n', b'x y z\\n')",
        ),
        (
            "import subprocess as s\na = s.Popen(['printf', 'b\\\\na\\\\n'], stdout=s.PIPE)\ns.Popen(['sort'], stdin=a.stdout, stdout=s.PIPE, text=True).communicate()",
            "('a\\nb\\n', None)",
        ),
        (
            "import subprocess as s\np = s.Popen(['cat'], stdin=s.PIPE, stdout=s.PIPE, text=True)\np.stdin.write('typed'); p.stdin.close()\n[line for line in p.stdout], p.wait()",
            "(['typed'], 0)",
        ),
        (
            "import subprocess as s\nwith open('log', 'w') as f: s.run('echo a; echo b >&2', shell=True, stdout=f, stderr=s.STDOUT)\nsorted(open('log').read().split())",
            "['a', 'b']",
        ),
        (
            "import subprocess as s\ntry: s.run('echo early; sleep 60', shell=True, timeout=1, capture_output=True)\nexcept s.TimeoutExpired as e: print(e.timeout, e.output)",
            "1 b'early\\n'",
        ),
        (
            "import subprocess as s\np = s.Popen(['sleep', '60']); p.poll(), p.terminate(), p.wait()",
            "(None, None, -15)",
        ),
        (
            "import subprocess as s\nlen(s.check_output('yes x | head -c 20000000', shell=True))",
            "20000000",
        ),
        (
            "import os\nos.system('exit 2') >> 8, os.popen('echo hi').read()",
            "(2, 'hi\\n')",
        ),
        (
            "import subprocess, sys\nsubprocess.check_output([sys.executable, '-c', 'print(1 + 1)'], text=True)",
            "2",
        ),
        (
            "import asyncio\nasync def one(n):\n  p = await asyncio.create_subprocess_exec('echo', str(n), stdout=-1)\n  return (await p.communicate())[0]\nawait asyncio.gather(*map(one, range(3)))",
            "[b'0\\n', b'1\\n', b'2\\n']",
        ),
        (
            "from concurrent.futures import ProcessPoolExecutor\nwith ProcessPoolExecutor() as pool: print(list(pool.map(abs, [-1, 2])))",
            "[1, 2]",
        ),
    ];
    shows(&mut client, &cases);
}

#[test]
fn results_print_as_the_text_that_a_model_reads() {
    let workspace = workspace("//- a.txt\none\ntwo\n//- many.txt\nx\n");
    workspace.write("many.txt", "a line that matches\n".repeat(5000));
    let Some(mut client) = server(&workspace, &[]) else {
        return;
    };
    let cases = [
        (
            "print(tools.run_cmd(command='echo out; exit 3'))",
            "out\nexit 3",
        ),
        (
            "r = tools.run_cmd(command='echo out; exit 3')\nprint(f'{r}', r.exit_code, r['stdout'], 'out' in r, r[:3], len(r), r.splitlines(), [r])",
            "out\nexit 3 3 out\n True out 10 ['out', 'exit 3'] ['out\\nexit 3']",
        ),
        ("print(tools.read_file(path='a.txt'))", "one\ntwo"),
        (
            "r = tools.read_file(path='a.txt')\nprint(r.text == r, r[:3], 'two' in r, r.splitlines()[1])",
            "True one True two",
        ),
        (
            "print(tools.te_grep(pattern='one', path='a.txt'))",
            "a.txt:1: one",
        ),
        (
            "r = tools.linux_search_content(root='.', pattern='two')\nprint(r.total_hits, r.hits[0].line, r['hits'][0]['line'])",
            "1 2 2",
        ),
        (
            "len(tools.te_grep(pattern='matches', path='many.txt').splitlines()) > 5000",
            "True",
        ),
        // The last value is for scripts that print nothing.
        ("print('said')\n5", "said"),
        ("tools.run_cmd(command='echo last')", "last"),
    ];
    shows(&mut client, &cases);
}

#[test]
fn the_guards_of_the_tools_hold() {
    let workspace = workspace(
        "//- a.txt\none\n//- .git/config\n[core]\n//- .git/HEAD\nref: refs/heads/main\n//- llmc.toml\n",
    );
    let Some(mut client) = server(&workspace, &[]) else {
        return;
    };
    for script in [
        "open('.git/config', 'w')",
        "open('.git/config', 'a').write('x')",
        "open('llmc.toml', 'w')",
        "open('.git/llmc/x', 'w')",
        "import os\nos.remove('.git/config')",
        "import os\nos.rename('a.txt', '.git/config')",
        "import os\nos.replace('a.txt', 'llmc.toml')",
        "import os\nos.chmod('llmc.toml', 0o777)",
        "import os\nos.mkdir('.git/hooks')",
        "import shutil\nshutil.rmtree('.git')",
        "open('/etc/planted', 'w')",
        "open('/planted', 'w')",
        "import os\nos.makedirs('/planted/x')",
        "import os\nos.remove('/etc/passwd')",
        "import shutil\nshutil.copy('a.txt', '/usr/planted')",
    ] {
        let failed = fails(&mut client, script);
        assert_eq!(
            failed["meta"]["error_code"], "INVALID_PATH",
            "{script}: {failed}"
        );
        let error = failed["error"].as_str().unwrap();
        assert!(error.contains("PermissionError"), "{script}: {error}");
        assert!(failed["meta"].get("already_done").is_none(), "{failed}");
    }
    assert_eq!(workspace.read(".git/config"), "[core]\n");
    assert_eq!(workspace.read("a.txt"), "one\n");

    // Another agent holds the file.
    let locks = LeaseTable::open(&workspace.path(".git/llmc"), Duration::from_secs(60)).unwrap();
    let path = workspace.path("a.txt").canonicalize().unwrap();
    let held = locks.acquire(&[path], "another agent", "a.txt").unwrap();
    let script = "import errno\ntry:\n  with open('a.txt', 'w') as f: f.write('x')\nexcept OSError as e: print(e.errno == errno.EBUSY, e)";
    let text = run(
        &mut client,
        &format!("{script}\nprint(open('a.txt').read())"),
    );
    assert!(
        text.starts_with("True RESOURCE_BUSY: ") && text.contains("another agent"),
        "{text}"
    );
    // Also of a file that the script never closes.
    let failed = fails(&mut client, "open('a.txt', 'w').write('x')\nprint('on')");
    assert_eq!(failed["meta"]["error_code"], "RESOURCE_BUSY", "{failed}");
    assert_eq!(workspace.read("a.txt"), "one\n");
    drop(held);

    // Changed by another since it was read.
    let script = "f = open('a.txt', 'r+')\nf.read()\ntools.linux_fs_write(path='a.txt', content='theirs')\nf.write('mine')\ntry: f.close()\nexcept OSError as e: print(e)";
    let text = run(&mut client, script);
    assert!(text.starts_with("SHA_MISMATCH: "), "{text}");
    assert_eq!(workspace.read("a.txt"), "theirs");

    let Some(mut reader) = server(&workspace, &["mcp.tools.read_only=true"]) else {
        return;
    };
    for script in [
        "open('a.txt', 'w')",
        "import os\nos.mkdir('d')",
        "import subprocess\nsubprocess.run(['touch', 'd'])",
    ] {
        let failed = fails(&mut reader, script);
        assert_eq!(
            failed["meta"]["error_code"], "COMMAND_DENIED",
            "{script}: {failed}"
        );
        assert!(
            failed["error"].as_str().unwrap().contains("read only"),
            "{failed}"
        );
    }
    assert_eq!(run(&mut reader, "open('a.txt').read()"), "theirs");
    assert!(!workspace.path("d").exists());
}

#[test]
fn scripts_that_append_to_one_file_lose_nothing() {
    let workspace = workspace("//- log\n");
    let Some(first) = server(&workspace, &[]) else {
        return;
    };
    let second = server(&workspace, &[]).unwrap();
    let threads: Vec<_> = [(first, "a"), (second, "b")]
        .into_iter()
        .map(|(mut client, name)| {
            std::thread::spawn(move || {
                let script = format!("for n in range(40):\n  while True:\n    try:\n      with open('log', 'a') as f: f.write('{name}%d\\n' % n)\n      break\n    except OSError as e:\n      if 'BUSY' not in str(e): raise");
                run(&mut client, &script);
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let log = workspace.read("log");
    for name in ["a", "b"] {
        let lines: Vec<&str> = log.lines().filter(|line| line.starts_with(name)).collect();
        let expected: Vec<String> = (0..40).map(|n| format!("{name}{n}")).collect();
        assert_eq!(lines, expected);
    }
}

#[test]
fn random_programs_do_what_they_do_in_plain_python() {
    for seed in [1, 2, 3] {
        let workspace = workspace("//- a/b\none\n//- c.txt\ntwo\n");
        let copy: TestWorkspace = crate::workspace("//- a/b\none\n//- c.txt\ntwo\n");
        let sets = ["mcp.code_execution.max_output_bytes=8000000"];
        let Some(mut client) = server(&workspace, &sets) else {
            return;
        };
        let program = format!("SEED, STEPS = {seed}, {STEPS}\n{RANDOM_PROGRAM}");
        let save = "import io, sys\nsys.stdout = io.StringIO()\n";
        let script = format!("{save}{program}\nopen('.log', 'w').write(sys.stdout.getvalue())\n");
        run(&mut client, &script);
        let plain = Command::new("/usr/bin/python3")
            .args(["-X", "utf8", "-c", &program])
            .current_dir(copy.root())
            .output()
            .unwrap();
        let expected = String::from_utf8(plain.stdout).unwrap();
        let found = workspace.read(".log");
        assert!(plain.status.success() && expected.lines().count() > STEPS as usize);
        for (expected, found) in expected.lines().zip(found.lines()) {
            assert_eq!(found, expected, "seed {seed}");
        }
        assert_eq!(found.lines().count(), expected.lines().count());
    }
}
