//! `run_pytest`: a real pytest in the project's own environment, with checked arguments.

use std::path::Path;
use std::process::Command;

use llmc_envelope::te::{TeText, parse};
use llmc_testkit::{McpClient, TestWorkspace, skip};
use serde_json::{Value, json};

use crate::{classic, workspace};

const TESTS: &str = "\
//- calc.py
def add(a, b):
    return a - b
//- tests/test_calc.py
import pytest
from calc import add

def test_zero():
    assert add(0, 0) == 0

def test_sum():
    print('seen on stdout')
    assert add(2, 3) == 5, 'sums are off'

@pytest.mark.parametrize('n', range(40))
def test_many(n):
    assert n >= 0

def test_missing():
    raise KeyError('no such key')

@pytest.mark.skip
def test_later():
    pass
";

/// Gives the workspace an environment with pytest in it; false where there is none to be had.
pub(crate) fn with_pytest(workspace: &TestWorkspace) -> bool {
    let Some(site) = std::env::var_os("LLMC_TEST_PYTHON_SITE") else {
        skip("pytest, which scripts/test provides in LLMC_TEST_PYTHON_SITE");
        return false;
    };
    // The python3 of the fixed search path, whose version decides where packages are looked for.
    let python = ["/usr/local/bin/python3", "/usr/bin/python3"]
        .into_iter()
        .find(|path| Path::new(path).exists())
        .expect("python3 is installed");
    let version = "import sys; print('python%d.%d' % sys.version_info[:2])";
    let said = Command::new(python).args(["-c", version]).output().unwrap();
    let version = String::from_utf8(said.stdout).unwrap();
    let home = Path::new(python).parent().unwrap().display();
    workspace.write(".venv/pyvenv.cfg", format!("home = {home}\n"));
    link_python(workspace, python);
    let packages = workspace.path(format!(".venv/lib/{}/site-packages", version.trim()));
    std::fs::create_dir_all(packages.parent().unwrap()).unwrap();
    let copied = Command::new("cp")
        .arg("-r")
        .arg(site)
        .arg(packages)
        .status();
    assert!(copied.unwrap().success());
    true
}

fn link_python(workspace: &TestWorkspace, python: &str) {
    std::fs::create_dir_all(workspace.path(".venv/bin")).unwrap();
    std::os::unix::fs::symlink(python, workspace.path(".venv/bin/python")).unwrap();
}

fn enveloped(client: &mut McpClient, args: Value) -> TeText {
    let text = client.text("run_pytest", args);
    parse(&text).unwrap_or_else(|| panic!("no envelope: {text}"))
}

fn refused(client: &mut McpClient, args: &[&str]) -> (String, String) {
    let (failed, text) = client.call_tool("run_pytest", json!({"args": args}));
    assert!(failed, "{args:?}: {text}");
    let parsed = parse(&text).unwrap_or_else(|| panic!("no envelope: {text}"));
    (parsed.header.error.unwrap_or_default(), parsed.body)
}

#[test]
fn every_failure_is_listed_and_the_log_is_kept() {
    let workspace = workspace(TESTS);
    if !with_pytest(&workspace) {
        return;
    }
    let mut client = classic(&workspace);
    let answer = enveloped(&mut client, json!({}));
    assert_eq!(answer.header.cmd, "pytest");
    assert_eq!(answer.header.matches, Some(2), "{answer:?}");
    let body = &answer.body;
    assert!(
        body.starts_with("pytest: 2 failed, 41 passed, 1 skipped in "),
        "{body}"
    );
    for part in [
        "FAIL tests/test_calc.py::test_sum (tests/test_calc.py:9)\n    assert add(2, 3) == 5, 'sums are off'\n    AssertionError: sums are off\n",
        "FAIL tests/test_calc.py::test_missing (tests/test_calc.py:16)\n",
        "KeyError: 'no such key'",
        "seen on stdout",
    ] {
        assert!(body.contains(part), "{part:?} in {body}");
    }
    assert!(!body.contains("test_many"), "{body}");
    let handle = answer.header.handle.expect("the log is kept").to_string();
    let page = client.json("linux_handle_read", json!({"handle": handle}));
    let log = page["data"].as_str().unwrap();
    assert!(log.contains("test session starts") && log.contains("short test summary"));
    // What failed last is remembered, as pytest's users expect.
    let again = enveloped(&mut client, json!({"args": ["--lf", "-q"]}));
    assert!(again.body.starts_with("pytest: 2 failed"), "{again:?}");
    let one = enveloped(
        &mut client,
        json!({"args": ["tests/test_calc.py::test_zero", "--tb=short", "-xvs"]}),
    );
    assert_eq!(one.header.matches.or(Some(0)), Some(0), "{one:?}");
    assert!(one.body.contains("1 passed"), "{one:?}");
    let listed = enveloped(
        &mut client,
        json!({"args": ["--co", "-q", "-k", "zero or sum"]}),
    );
    assert!(
        listed.body.contains("tests/test_calc.py::test_zero"),
        "a list that is asked for is shown: {listed:?}"
    );
    let none = enveloped(&mut client, json!({"args": ["-k", "nothing_of_this_name"]}));
    assert!(
        none.breadcrumbs
            .iter()
            .any(|crumb| crumb.contains("no tests were found")),
        "{none:?}"
    );
}

#[test]
fn words_that_load_or_write_elsewhere_are_refused() {
    let workspace = workspace("//- tests/test_a.py\ndef test_a(): pass\n//- args.txt\n-pevil\n");
    let mut client = classic(&workspace);
    for args in [
        &["-p", "evil"][..],
        &["-pevil"],
        &["-xpevil"],
        &["-c", "/etc/passwd"],
        &["--rootdir=/"],
        &["--confcutdir=/"],
        &["--basetemp=/tmp/x"],
        &["-o", "addopts=-pevil"],
        &["--override-ini=x=y"],
        &["--junitxml=out.xml"],
        &["--junit-xml", "out.xml"],
        &["--log-file=x"],
        &["--pyargs", "os"],
        &["--pastebin=all"],
        &["--pdb"],
        &["--pdbcls=os:system"],
        &["-W", "error::evil.Class"],
        &["--lf=x"],
        &["--"],
        &["@args.txt"],
        &["-k", "@args.txt"],
        &["--max"],
    ] {
        let (code, message) = refused(&mut client, args);
        assert_eq!(code, "command_denied", "{args:?}: {message}");
    }
    for (args, expected) in [
        (&["../outside"][..], "path_denied"),
        (&["/etc/passwd"], "path_denied"),
        (&["--ignore=/etc"], "path_denied"),
        (&["--deselect", "../x.py::y"], "path_denied"),
        (&["tests/nope.py::test_a"], "not_found"),
        (&["--tb=evil"], "invalid_args"),
        (&["--maxfail=x"], "invalid_args"),
        (&["-n", "-p"], "invalid_args"),
        (&["-k", "-pevil"], "invalid_args"),
        (&["-k"], "invalid_args"),
    ] {
        let (code, message) = refused(&mut client, args);
        assert_eq!(code, expected, "{args:?}: {message}");
    }
    workspace.assert_outside_untouched();
}

#[test]
fn the_projects_own_interpreter_runs_and_says_what_it_lacks() {
    // An environment that is there but empty hides whatever the system has.
    let workspace = workspace("//- .venv/pyvenv.cfg\nhome = /usr/bin\n//- test_a.py\n");
    link_python(&workspace, "/usr/bin/python3");
    let mut client = classic(&workspace);
    let (failed, text) = client.call_tool("run_pytest", json!({}));
    assert!(failed, "{text}");
    let parsed = parse(&text).unwrap();
    assert_eq!(parsed.header.error.as_deref(), Some("not_found"));
    assert!(
        parsed.body.contains(".venv/bin/python has no pytest"),
        "{text}"
    );
    assert!(
        parsed.header.hint.unwrap().contains("pip install"),
        "{text}"
    );
    // Another interpreter than the system's is really that one.
    std::fs::remove_file(workspace.path(".venv/bin/python")).unwrap();
    let fake = "#!/bin/sh\necho \"own $0 $*\"; echo '=== 1 passed in 0.01s ==='\n";
    workspace.write(".venv/bin/python", fake);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(workspace.path(".venv/bin/python"), mode).unwrap();
    let text = client.text("run_pytest", json!({"args": ["-s"]}));
    assert!(text.contains(".venv/bin/python -m pytest -s"), "{text}");
}

#[test]
fn a_run_that_outlives_the_wait_goes_on() {
    let workspace = workspace("//- .venv/pyvenv.cfg\nhome = /usr/bin\n//- test_a.py\n");
    let fake = "#!/bin/sh\necho collecting\nwhile [ ! -e go ]; do sleep 0.1; done\necho '=== 1 passed in 0.01s ==='\n";
    workspace.write(".venv/bin/python", fake);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(workspace.path(".venv/bin/python"), mode).unwrap();
    let wait = ["--mode", "classic", "--set", "mcp.exec.wait_s=1"];
    let mut client = workspace.mcp(wait);
    client.initialize("2025-11-25");
    let text = client.text("run_pytest", json!({}));
    assert!(text.contains("collecting"), "{text}");
    let said = text.split("still running after 1 s as ").nth(1).unwrap();
    let id = said.split(';').next().unwrap();
    assert!(
        said.contains(&format!("run_cmd proc={id} waits on")),
        "{text}"
    );
    workspace.write("go", "");
    let text = client.text("run_cmd", json!({"proc": id, "timeout": 30}));
    assert!(text.contains("1 passed"), "{text}");
    // Where commands are ended instead, the answer says what to do.
    std::fs::remove_file(workspace.path("go")).unwrap();
    let ended = [
        "--set",
        "mcp.exec.on_timeout=\"kill\"",
        "--set",
        "mcp.exec.max_wait_s=1",
    ];
    let mut client = workspace.mcp(wait.iter().chain(&ended));
    client.initialize("2025-11-25");
    let (failed, text) = client.call_tool("run_pytest", json!({}));
    assert!(failed && text.contains("\"error\":\"timeout\""), "{text}");
    assert!(text.contains("run fewer tests"), "{text}");
}

#[test]
fn tests_run_inside_the_boundary_and_can_be_switched_off() {
    let outside =
        "import os\ndef test_out():\n    open(os.environ['HOME'] + '/../outside/planted', 'w')\n";
    let hang = "import time\ndef test_hang():\n    time.sleep(600)\n";
    let workspace = workspace(
        "//- llmc.toml\n[mcp]\nmode = \"classic\"\n[mcp.tools]\nread_timeout = 30\n[mcp.exec]\nwait_s = 8\nmax_wait_s = 8\non_timeout = \"kill\"\n",
    );
    workspace.write("test_out.py", outside);
    workspace.write("test_hang.py", hang);
    if with_pytest(&workspace) {
        let shell = workspace.llmc(["tool", "run_pytest", "-q", "-k", "nothing"]);
        assert!(shell.stdout.contains("no tests were found"), "{shell:?}");
        let mut client = classic(&workspace);
        let level = client.json("health", json!({}))["confinement"].to_string();
        if level.contains("landlock") || level.contains("mntns") {
            let answer = enveloped(&mut client, json!({"args": ["test_out.py"]}));
            assert_eq!(answer.header.matches, Some(1), "{answer:?}");
            workspace.assert_outside_untouched();
        }
        let (code, message) = refused(&mut client, &["test_hang.py"]);
        assert_eq!(code, "timeout", "{message}");
    }
    let off = "[mcp]\nmode = \"classic\"\n[mcp.tools]\nenable_run_cmd = false\n";
    workspace.write("llmc.toml", off);
    let list = classic(&workspace)
        .request("tools/list", json!({}))
        .to_string();
    assert!(
        !list.contains("run_pytest") && list.contains("te_diff"),
        "{list}"
    );
    assert_eq!(workspace.llmc(["tool", "run_pytest"]).code, Some(4));
}
