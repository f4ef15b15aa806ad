//! `run_tests`: all tests of a project, some, and those that reach a change.

use llmc_testkit::TestWorkspace;
use serde_json::json;

use crate::run_preview::has_views;
use crate::run_pytest::with_pytest;
use crate::te_diff::{commit, git};
use crate::{classic, workspace};

const PROJECT: &str = "\
//- .gitignore
.venv/
__pycache__/
.pytest_cache/
//- pyproject.toml
[tool.pytest.ini_options]
pythonpath = ['.']
//- calc.py
def add(a, b):
    return a + b
//- text.py
def upper(s):
    return s.upper()
//- tests/test_calc.py
from calc import add

def test_add():
    assert add(1, 2) == 3
//- tests/test_text.py
from text import upper

def test_upper():
    assert upper('a') == 'A'
//- README.md
A project.
";

fn project() -> Option<TestWorkspace> {
    let workspace = workspace(PROJECT);
    git(&workspace, &["init", "-q"]);
    commit(&workspace);
    (has_views(&workspace) && with_pytest(&workspace)).then_some(workspace)
}

#[test]
fn all_tests_or_those_of_paths_and_names_run() {
    let Some(workspace) = project() else { return };
    let mut client = classic(&workspace);
    let text = client.text("run_tests", json!({}));
    assert!(text.contains("2 passed"), "{text}");
    assert!(
        text.contains("ran: .venv/bin/python -m pytest -q"),
        "{text}"
    );
    for args in [
        json!({"paths": ["tests/test_calc.py"]}),
        json!({"paths": "tests/test_calc.py::test_add"}),
        json!({"names": ["test_add"]}),
    ] {
        let text = client.text("run_tests", args.clone());
        assert!(text.contains("1 passed"), "{args}: {text}");
    }
    let text = client.text("run_tests", json!({"command": "echo none", "paths": []}));
    assert!(text.starts_with("none\n"), "{text}");
}

#[test]
fn affected_tests_run_with_their_reasons() {
    let Some(workspace) = project() else { return };
    let mut client = classic(&workspace);
    let affected = json!({"affected": true});
    workspace.write("README.md", "Another text.\n");
    let text = client.text("run_tests", affected.clone());
    assert!(text.contains("no tests were run"), "{text}");
    workspace.write("calc.py", "def add(a, b):\n    return b + a\n");
    let text = client.text("run_tests", affected.clone());
    assert!(text.contains("1 passed"), "{text}");
    assert!(
        text.contains("affected since HEAD: tests/test_calc.py (imports calc.py)"),
        "{text}"
    );
    workspace.write("data.json", "{}\n");
    let text = client.text("run_tests", affected);
    assert!(text.contains("2 passed"), "{text}");
    assert!(text.contains("all tests: data.json changed"), "{text}");
}

#[test]
fn te_test_ends_as_the_tests_do() {
    let Some(workspace) = project() else { return };
    let ended = workspace.llmc(["te", "test", "tests/test_text.py"]);
    assert!(ended.stdout.contains("1 passed"), "{}", ended.stdout);
    assert_eq!(ended.code, Some(0));
    workspace.write("text.py", "def upper(s):\n    return s\n");
    let ended = workspace.llmc(["te", "test", "--affected"]);
    assert!(ended.stdout.contains("test_upper"), "{}", ended.stdout);
    assert_eq!(ended.code, Some(1));
}

#[test]
fn a_project_without_a_known_command_says_what_to_give() {
    let workspace = workspace("//- a.txt\none\n");
    let mut client = classic(&workspace);
    let (failed, text) = client.call_tool("run_tests", json!({}));
    assert!(failed && text.contains("give command"), "{text}");
}
