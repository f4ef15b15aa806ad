//! What `run_compare` proves of test runs: counts by the runner's report, new tests on old sources, flaky tests, kept bases.

use llmc_testkit::{McpClient, TestWorkspace};
use serde_json::json;

use crate::run_preview::has_views;
use crate::run_pytest::with_pytest;
use crate::te_diff::{commit, git};
use crate::{classic, workspace};

fn repository(fixture: &str) -> TestWorkspace {
    let workspace = workspace(fixture);
    git(&workspace, &["init", "-q"]);
    commit(&workspace);
    workspace
}

fn pytest(client: &mut McpClient) -> String {
    client.text(
        "run_compare",
        json!({"command": ".venv/bin/python -m pytest -q"}),
    )
}

const TESTS: &str = "\
//- .gitignore
.venv/
__pycache__/
.pytest_cache/
build/
//- conftest.py
//- calc.py
def add(a, b):
    return a + b

def sub(a, b):
    return b - a
//- tests/test_calc.py
from calc import add, sub

def test_add():
    assert add(1, 2) == 3

def test_sub():
    assert sub(3, 1) == 2
";

#[test]
fn new_tests_are_named_and_fail_without_the_change() {
    let workspace = repository(TESTS);
    if !has_views(&workspace) || !with_pytest(&workspace) {
        return;
    }
    workspace.write(
        "calc.py",
        "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n",
    );
    workspace.write(
        "tests/test_more.py",
        "from calc import add, sub\n\ndef test_sub_more():\n    assert sub(5, 1) == 4\n\n\
         def test_add_more():\n    assert add(5, 1) == 6\n",
    );
    let mut client = classic(&workspace);
    let text = pytest(&mut client);
    for line in [
        "\npytest: 1 failed, 1 passed at the base; 4 passed now\n",
        "\nnew: 2; without the change: 1 fails, 1 passes\n",
        "\nnewly passing (1): tests/test_calc.py::test_sub\n",
        "\nnew, failing without the change (1):\nFAIL tests/test_more.py::test_sub_more",
        "\nnew, passing without the change (1): tests/test_more.py::test_add_more\n",
    ] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
    let code = "print(tools.run_compare('.venv/bin/python -m pytest -q').new_failing_at_base)";
    let text = client.text("execute_code", json!({"code": code}));
    assert!(
        text.starts_with("tests/test_more.py::test_sub_more"),
        "{text}"
    );
}

#[test]
fn changed_tests_of_an_unknown_runner_run_on_the_old_sources() {
    let workspace =
        repository("//- tool.sh\necho old\n//- tests/check.sh\nsh tool.sh | grep -q .\n");
    if !has_views(&workspace) {
        return;
    }
    workspace.write("tool.sh", "echo new\n");
    workspace.write("tests/check.sh", "echo checking; sh tool.sh | grep new\n");
    let mut client = classic(&workspace);
    let text = client.text("run_compare", json!({"command": "sh tests/check.sh"}));
    let first = text.lines().find(|line| line.starts_with("HEAD")).unwrap();
    assert!(first.ends_with(": exit 0; now: exit 0"), "{text}");
    assert!(
        text.contains("\nthe changed tests on the sources of HEAD"),
        "{text}"
    );
    assert!(text.contains("): exit 1\n  checking\n"), "{text}");
}

#[test]
fn a_test_that_trips_over_the_report_is_run_without_one() {
    // Stands for a runner that hands its own arguments to the tests.
    let workspace = repository(
        "//- jest\n#!/bin/sh\n[ $# = 0 ] || { echo \"error: unknown option $1\"; exit 1; }\n\
         echo 'Tests:       2 passed, 2 total'\n",
    );
    if !has_views(&workspace) {
        return;
    }
    let mut client = classic(&workspace);
    let text = client.text("run_compare", json!({"command": "sh ./jest"}));
    assert!(!text.contains("unknown option"), "{text}");
    assert!(text.contains(": exit 0; now: exit 0"), "{text}");
}

#[test]
fn what_a_failing_test_quotes_of_another_run_is_not_counted() {
    let workspace = repository(TESTS);
    if !has_views(&workspace) || !with_pytest(&workspace) {
        return;
    }
    workspace.write(
        "tests/test_quotes.py",
        "import subprocess, sys\n\ndef test_outer(tmp_path):\n    \
         (tmp_path / 'test_inner.py').write_text('def test_a():\\n    assert 0\\ndef test_b():\\n    assert 0\\n')\n    \
         ran = subprocess.run([sys.executable, '-m', 'pytest', '.'], cwd=tmp_path, capture_output=True, text=True)\n    \
         print(ran.stdout)\n    assert False\n",
    );
    let mut client = classic(&workspace);
    let text = pytest(&mut client);
    assert!(text.contains("; 2 failed, 1 passed now\n"), "{text}");
    assert!(!text.contains("test_inner.py::"), "{text}");
    assert!(text.contains("test_quotes.py::test_outer"), "{text}");
}

#[test]
fn a_test_that_passes_when_it_is_run_again_is_flaky() {
    let workspace = repository(TESTS);
    if !has_views(&workspace) || !with_pytest(&workspace) {
        return;
    }
    // Only tests that are run once more are selected by their last failure.
    workspace.write(
        "tests/test_calc.py",
        "import os\n\ndef test_add():\n    assert '--lf' in os.environ['PYTEST_ADDOPTS']\n\n\
         def test_sub():\n    assert False\n",
    );
    let mut client = classic(&workspace);
    let text = pytest(&mut client);
    assert!(
        text.contains(
            "\nflaky, differ between two runs of the same side (1): tests/test_calc.py::test_add\n"
        ),
        "{text}"
    );
    assert!(!text.contains("newly failing"), "{text}");
}

#[test]
fn a_base_is_run_once_while_what_it_depends_on_is_the_same() {
    let workspace = repository(TESTS);
    if !has_views(&workspace) {
        return;
    }
    let mut client = classic(&workspace);
    let at_base = |client: &mut McpClient| {
        let line = "od -An -N8 -tx1 /dev/urandom | tr -d ' '";
        let text = client.text("run_compare", json!({"command": line}));
        let removed = text
            .lines()
            .find(|line| line.starts_with('-') && !line.starts_with("--"));
        (removed.unwrap_or_else(|| panic!("{text}")).to_owned(), text)
    };
    let (first, text) = at_base(&mut client);
    assert!(!text.contains("earlier comparison"), "{text}");
    workspace.write("calc.py", "changed = 1\n");
    let (second, text) = at_base(&mut client);
    assert_eq!(second, first);
    assert!(
        text.contains("the base's result is that of an earlier comparison"),
        "{text}"
    );
    // An ignored file, which a run at the base sees, too.
    workspace.write("build/input", "x\n");
    let (third, _) = at_base(&mut client);
    assert_ne!(third, first);
    git(&workspace, &["add", "-A"]);
    git(&workspace, &["commit", "-qm", "two"]);
    let (fourth, _) = at_base(&mut client);
    assert_ne!(fourth, third);
}

#[test]
fn a_base_that_cannot_run_the_tests_leaves_a_way_forward() {
    let workspace = repository(TESTS);
    if !has_views(&workspace) || !with_pytest(&workspace) {
        return;
    }
    workspace.write("run.sh", "exec .venv/bin/python -m pytest -q\n");
    let mut client = classic(&workspace);
    let text = client.text("run_compare", json!({"command": "sh run.sh"}));
    assert!(
        text.contains(" cannot run this command here; give a base that can, or a command that both sides can run"),
        "{text}"
    );
}
