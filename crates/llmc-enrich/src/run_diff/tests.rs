use super::*;

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn compared(line: &str, base: (&str, i32), now: (&str, i32)) -> RunDiff {
    let run = |(text, code)| FinishedRun {
        text,
        exit_code: Some(code),
        tests: None,
    };
    RunDiff::of(&words(line), run(base), run(now))
}

fn text(line: &str, base: (&str, i32), now: (&str, i32)) -> String {
    compared(line, base, now).condense(1000).body
}

const PYTEST_BASE: &str = "\
============================= test session starts ==============================
collected 3 items / 1 error

==================================== ERRORS ====================================
____________________ ERROR collecting tests/test_later.py _____________________
ImportError while importing test module '/w/tests/test_later.py'.
E   ModuleNotFoundError: No module named 'later'
=================================== FAILURES ===================================
___________________________________ test_old ___________________________________
tests/test_a.py:3: in test_old
    assert 1 == 2
E   assert 1 == 2
=========================== short test summary info ============================
ERROR tests/test_later.py
FAILED tests/test_a.py::test_old - assert 1 == 2
FAILED tests/test_a.py::test_fixed - assert 0
==================== 2 failed, 7 passed, 1 error in 0.12s =====================
";

const PYTEST_NOW: &str = "\
============================= test session starts ==============================
collected 12 items

=================================== FAILURES ===================================
___________________________________ test_old ___________________________________
tests/test_a.py:13: in test_old
    assert 1 == 2
E   assert 1 == 2
___________________________________ test_new ___________________________________
tests/test_a.py:23: in test_new
    assert add(1, 1) == 3
E   assert 2 == 3
=========================== short test summary info ============================
FAILED tests/test_a.py::test_old - assert 1 == 2
FAILED tests/test_a.py::test_new - assert 2 == 3
======================== 2 failed, 10 passed in 4.56s =========================
";

#[test]
fn a_test_of_go_ends_as_its_parts_do() {
    let event = |action: &str, test: &str| {
        format!("{{\"Action\":\"{action}\",\"Package\":\"x/y\",\"Test\":\"{test}\"}}\n")
    };
    let ended = |ends: &[(&str, &str)]| -> String {
        let starts = ends.iter().map(|(_, test)| event("run", test));
        let ends = ends.iter().map(|(action, test)| event(action, test));
        starts.chain(ends).collect()
    };
    let base = ended(&[("pass", "TestOld")]);
    let now = ended(&[
        ("pass", "TestOld"),
        ("pass", "TestNew/one"),
        ("pass", "TestNew/two"),
        ("pass", "TestNew"),
    ]);
    let mut diff = compared("go test -json ./...", (&base, 0), (&now, 0));
    let RunDifference::Tests(tests) = &mut diff.found else {
        panic!("{:?}", diff.found);
    };
    assert_eq!(tests.new, ["x/y TestNew/one", "x/y TestNew/two"]);
    let failed = ended(&[
        ("pass", "TestNew/one"),
        ("fail", "TestNew/two"),
        ("fail", "TestNew"),
    ]);
    let package = "{\"Action\":\"fail\",\"Package\":\"x/y\"}\n";
    let without = crate::testrun::parse(&(failed + package)).unwrap();
    let new = ["x/y TestNew", "x/y TestNew/one", "x/y TestNew/two"].map(str::to_owned);
    let found = NewTestsAtBase::of(&new, &without);
    assert_eq!(found.text(), "2 fail, 1 passes");
    tests.new_at_base = Some(NewTestsAtBase::of(&tests.new, &without));
    let text = diff.condense(1000).body;
    assert!(
        text.contains("\nnew: 2; without the change: 1 fails, 1 passes\n"),
        "{text}"
    );
    assert!(
        text.contains("\nnew, failing without the change (1):\n"),
        "{text}"
    );
}

#[test]
fn tests_are_sorted_by_what_changed() {
    let said = text("pytest -q", (PYTEST_BASE, 1), (PYTEST_NOW, 1));
    let expected = "\
pytest: 2 failed, 1 error, 7 passed at the base; 2 failed, 10 passed now
newly failing (1):
FAIL tests/test_a.py::test_new (tests/test_a.py:23)
    assert add(1, 1) == 3
    assert 2 == 3
newly passing (1): tests/test_a.py::test_fixed
could not be collected at the base (1): tests/test_later.py
failing in both (1): tests/test_a.py::test_old
";
    assert_eq!(said, expected);
    // The other way round, a test of a module that cannot be collected has not passed.
    let broken = PYTEST_BASE.replace("test_later.py", "test_a.py");
    let RunDifference::Tests(back) = compared("pytest", (PYTEST_NOW, 1), (&broken, 1)).found else {
        panic!("a test run");
    };
    assert_eq!(back.not_run_now, ["tests/test_a.py::test_new"]);
    assert!(back.newly_passing.is_empty(), "{back:?}");
    assert_eq!(back.not_collected_now.len(), 1);
}

#[test]
fn equal_runs_differ_in_nothing_though_their_times_do() {
    let slower = PYTEST_NOW.replace("4.56s", "9.99s");
    let said = text("pytest", (PYTEST_NOW, 1), (&slower, 1));
    assert_eq!(
        said,
        "pytest: 2 failed, 10 passed at the base; 2 failed, 10 passed now\n\
         failing in both (2) in tests/test_a.py: test_new, test_old\n"
    );
    let passed = "===== 3 passed in 0.01s =====\n";
    assert_eq!(
        text("pytest", (passed, 0), (&passed.replace("0.01", "3.00"), 0)),
        "pytest: 3 passed at the base; 3 passed now\nno test changed its result\n"
    );
}

#[test]
fn counts_that_differ_without_names_are_said_to() {
    let counts = |count: u32| format!("===== {count} passed in 0.01s =====\n");
    let said = text("pytest", (&counts(3), 0), (&counts(5), 0));
    assert!(said.contains("the counts differ"), "{said}");
    assert!(!said.contains("no test changed"), "{said}");
}

#[test]
fn names_share_what_they_begin_with() {
    for (names, head) in [
        (
            &["tests/a.py::test_x", "tests/a.py::test_y"][..],
            "tests/a.py::",
        ),
        (&["tests/a.py::test_x", "tests/b.py::test_y"], ""),
        (&["x/y TestA/one", "x/y TestB"], "x/y "),
        (&["x/y TestA/one/a", "x/y TestA/two"], "x/y TestA/"),
        (
            &[
                "only lone negative has a default",
                "only lone negative in parse",
            ],
            "only lone negative ",
        ),
        (&["adds one", "adds two"], ""),
        (&["tests/a.py::test_x"], ""),
        (&[], ""),
    ] {
        assert_eq!(common_head(names), head, "{names:?}");
    }
}

#[test]
fn a_side_without_tests_is_not_compared_and_shows_its_end() {
    let no_pytest = "/w/.venv/bin/python: No module named pytest\n";
    let said = text("pytest -q", (no_pytest, 1), (PYTEST_NOW, 1));
    let expected = "\
pytest: cannot compare: no test run at the base
base: no test run; now: 2 failed, 10 passed
failing now, not run at the base (2):
";
    assert!(said.starts_with(expected), "{said}");
    let end = "[last lines at the base, exit 1]\n/w/.venv/bin/python: No module named pytest\n";
    assert!(said.ends_with(end), "{said}");
    assert!(!said.contains("newly"), "{said}");
    // Nor is there anything to say about tests that pass now.
    let passed = "===== 833 passed in 0.01s =====\n";
    let said = text("pytest", (no_pytest, 1), (passed, 0));
    assert_eq!(
        said,
        format!(
            "pytest: cannot compare: no test run at the base\nbase: no test run; now: 833 passed\n{end}"
        )
    );
    // A file of tests that the base does not have, and a selection that has none there.
    for (base, code) in [
        ("ERROR: file or directory not found: tests/test_new.py\n", 4),
        ("==== no tests ran in 0.01s ====\n", 5),
    ] {
        let said = text("pytest tests/test_new.py", (base, code), (PYTEST_NOW, 1));
        assert!(
            said.starts_with("pytest: cannot compare: no test run at the base\n"),
            "{said}"
        );
        assert!(
            said.contains(&format!("[last lines at the base, exit {code}]\n{base}")),
            "{said}"
        );
        assert!(!said.contains("newly"), "{said}");
    }
    let said = text("pytest", (PYTEST_NOW, 1), ("Segmentation fault\n", 139));
    assert!(
        said.starts_with("pytest: cannot compare: no test run now\n"),
        "{said}"
    );
    assert!(
        said.contains("did not run now, failed at the base (2)"),
        "{said}"
    );
    assert!(
        said.ends_with("[last lines now, exit 139]\nSegmentation fault\n"),
        "{said}"
    );
    assert!(!said.contains("newly"), "{said}");
}

#[test]
fn a_build_that_fails_on_one_side_is_no_comparison() {
    let passed = "running 1 test\ntest a ... FAILED\n\nfailures:\n    a\n\n\
        test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
    let broken = "error[E0308]: mismatched types\n --> src/lib.rs:15:5\n  |\n\
        error: could not compile `x` (lib test) due to 1 previous error\n";
    let said = text("cargo test", (broken, 101), (passed, 101));
    assert!(
        said.starts_with("cargo test: cannot compare: no test run at the base\n"),
        "{said}"
    );
    assert!(!said.contains("newly"), "{said}");
    assert!(
        said.contains("failing now, not run at the base (1):"),
        "{said}"
    );
    assert!(
        said.contains("[last lines at the base, exit 101]\n"),
        "{said}"
    );
    let said = text("cargo test", (passed, 101), (broken, 101));
    assert!(
        said.starts_with("cargo test: cannot compare: no test run now\n"),
        "{said}"
    );
    assert!(
        said.contains("BUILD [E0308] mismatched types (src/lib.rs:15)"),
        "{said}"
    );
}

#[test]
fn tests_of_a_module_that_the_base_could_not_collect_do_not_newly_fail() {
    let now = PYTEST_NOW.replace("test_a.py::test_new", "test_later.py::test_new");
    let RunDifference::Tests(found) = compared("pytest", (PYTEST_BASE, 1), (&now, 1)).found else {
        panic!("a test run");
    };
    assert!(found.newly_failing.is_empty(), "{found:?}");
    let ids: Vec<&str> = found
        .failing_unrun_at_base
        .iter()
        .map(|f| f.id.as_str())
        .collect();
    assert_eq!(ids, ["tests/test_later.py::test_new"]);
}

#[test]
fn a_run_that_failed_for_another_reason_is_a_test_run() {
    let passed = "===== 3 passed in 0.01s =====\n";
    let uncovered =
        "FAIL Required test coverage of 90% not reached.\n===== 3 passed in 0.01s =====\n";
    let said = text("pytest", (passed, 0), (uncovered, 1));
    assert_eq!(
        said,
        format!(
            "pytest: 3 passed at the base; 3 passed now\nno test changed its result\n[last lines now]\n{uncovered}"
        )
    );
}

#[test]
fn packages_of_go_that_pass_are_a_test_run() {
    let passed = "ok  \texample.com/a\t0.10s\n";
    let failed = "--- FAIL: TestAdd (0.00s)\n    a_test.go:7: wrong\nFAIL\nFAIL\texample.com/a\t0.10s\nFAIL\n";
    let said = text("go test ./...", (passed, 0), (failed, 1));
    assert!(
        said.contains("newly failing (1):\nFAIL example.com/a TestAdd"),
        "{said}"
    );
    let said = text("go test ./...", (passed, 0), (passed, 0));
    assert!(said.ends_with("no test changed its result\n"), "{said}");
}

#[test]
fn tests_of_one_name_in_two_files_are_two() {
    let run = |file: &str| {
        format!(
            "TAP version 13\nnot ok 1 - works\n  ---\n  location: '/w/{file}:3:1'\n  failureType: 'testCodeFailure'\n  error: 'no'\n  ...\nok 2 - works\n1..2\n\
             # tests 2\n# suites 0\n# pass 1\n# fail 1\n# cancelled 0\n# skipped 0\n# todo 0\n# duration_ms 5.0\n"
        )
    };
    let (base, now) = (run("a.test.js"), run("b.test.js"));
    let said = text("node --test", (&base, 1), (&now, 1));
    assert!(
        said.contains("newly failing (1):\nFAIL works (/w/b.test.js:3)"),
        "{said}"
    );
    assert!(said.contains("newly passing (1): works"), "{said}");
    let said = text("npm test", (&base, 1), (&base, 1));
    assert!(said.contains("failing in both (1): works"), "{said}");
}

#[test]
fn shifted_lines_are_no_change_of_a_diagnostic() {
    let base = "\
a.c: In function 'main':
a.c:3:5: warning: unused variable 'x' [-Wunused-variable]
    3 |     int x;
a.c:9:1: error: expected ';' before '}' token
a.c:2:1: note: declared here
";
    let now = "\
a.c: In function 'main':
a.c:13:5: warning: unused variable 'x' [-Wunused-variable]
   13 |     int x;
a.c:12:1: note: declared here
b.c:4:7: error: 'y' undeclared (first use in this function)
";
    for line in ["gcc -c a.c", "make", "/usr/bin/x86_64-cc a.c", "gcc-13 a.c"] {
        assert_eq!(
            text(line, (base, 1), (now, 1)),
            "1 new diagnostic, 1 gone, 1 unchanged\n\
             new (1):\nb.c:4: error: 'y' undeclared (first use in this function)\n\
             gone (1):\na.c:9: error: expected ';' before '}' token\n",
            "{line}"
        );
    }
    // The same complaint once more is new.
    let twice = format!("{base}a.c:40:5: warning: unused variable 'x' [-Wunused-variable]\n");
    assert!(
        text("gcc a.c", (base, 1), (&twice, 1))
            .starts_with("1 new diagnostic, 0 gone, 2 unchanged")
    );
}

#[test]
fn each_compiler_and_linter_is_read() {
    let cases: [(&str, &str, &str); 7] = [
        (
            "cargo clippy",
            "warning: unused variable: `x`\n --> src/main.rs:2:9\n  |\nwarning: `demo` (bin \"demo\") generated 1 warning\n",
            "src/main.rs:2: warning: unused variable: `x`",
        ),
        (
            "rustc a.rs",
            "error[E0308]: mismatched types\n --> a.rs:3:18\n  |\nerror: aborting due to 1 previous error\n",
            "a.rs:3: error: mismatched types [E0308]",
        ),
        (
            "npx tsc --noEmit",
            "src/a.ts(1,7): error TS2322: Type 'string' is not assignable to type 'number'.\n",
            "src/a.ts:1: error: TS2322: Type 'string' is not assignable to type 'number'.",
        ),
        (
            "npx eslint .",
            "\n/w/src/a.js\n  12:5  error  Unexpected var  no-var\n\n1 problem\n",
            "/w/src/a.js:12: error: Unexpected var no-var",
        ),
        (
            "python -m mypy .",
            "a.py:3: error: Name \"x\" is not defined  [name-defined]\nFound 1 error in 1 file\n",
            "a.py:3: error: Name \"x\" is not defined  [name-defined]",
        ),
        (
            "ruff check --output-format concise",
            "a.py:1:8: F401 [*] `os` imported but unused\nFound 1 error.\n",
            "a.py:1: F401 [*] `os` imported but unused",
        ),
        (
            "ruff check",
            "F401 [*] `os` imported but unused\n --> a.py:1:8\n  |\n1 | import os\n",
            "a.py:1: F401 [*] `os` imported but unused",
        ),
    ];
    for (line, output, expected) in cases {
        let said = text(line, ("", 0), (output, 1));
        assert_eq!(
            said,
            format!("1 new diagnostic, 0 gone, 0 unchanged\nnew (1):\n{expected}\n"),
            "{line}"
        );
    }
}

#[test]
fn other_output_is_a_diff() {
    assert_eq!(
        text("ls", ("a\nb\n", 0), ("a\nb\n", 0)),
        "the output is the same\n"
    );
    let said = text("ls", ("a\nb\n", 0), ("a\nc\n", 0));
    assert_eq!(said, "--- base\n+++ now\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n");
    // What looks like a diagnostic without its words is text.
    let grep = "src/a.rs:12: fn main()\n";
    let RunDifference::Output(diff) = compared("grep -n main src/a.rs", ("", 1), (grep, 0)).found
    else {
        panic!("text");
    };
    assert!(diff.text.contains("+src/a.rs:12: fn main()"));
}

#[test]
fn times_are_no_difference_unless_nothing_else_differs() {
    let before = "adds (12ms)\nsends (3ms)\ndone in 1.20s\n";
    let after = "adds (9ms)\nsends (4ms)\nreads (1ms)\ndone in 1.31s\n";
    assert_eq!(
        text("./check", (before, 0), (after, 0)),
        "(times, shown as <time>, are not compared)\n--- base\n+++ now\n@@ -1,3 +1,4 @@\n adds (<time>)\n sends (<time>)\n+reads (<time>)\n done in <time>\n"
    );
    let said = text("./measure", ("took 12 ms\n", 0), ("took 9 ms\n", 0));
    assert!(
        said.contains("-took 12 ms\n+took 9 ms\n") && !said.contains("<time>"),
        "{said}"
    );
}

#[test]
fn two_runs_that_fail_alike_do_not_look_like_success() {
    let missing = "/usr/bin/python3: No module named pytest\n";
    assert_eq!(
        text("python3 -m pytest tests", (missing, 1), (missing, 1)),
        format!(
            "no test was run: both runs failed, with the same output\n[last lines now]\n{missing}"
        )
    );
    let denied = "ls: cannot open directory 'x': Permission denied\n";
    let said = text("ls x", (denied, 2), (denied, 2));
    assert!(
        said.starts_with("both runs failed, with the same output\n"),
        "{said}"
    );
    assert_eq!(
        text("ls", ("a\n", 0), ("a\n", 1)).lines().next(),
        Some("the output is the same")
    );
}

#[test]
fn a_small_budget_counts_what_it_leaves_out() {
    let many: String = (0..500)
        .map(|n| {
            format!(
                "src/file_{n}.c:{n}:1: error: something is wrong with number {}\n",
                n * 7
            )
        })
        .collect();
    let found = compared("gcc x.c", ("", 0), (&many, 1)).condense(200);
    assert!(found.truncated);
    assert_eq!(found.totals.matches, Some(500));
    assert!(found.shown < 500 && found.shown > 2, "{found:?}");
    assert!(found.body.contains(" more\n"), "{}", found.body);
    assert!(llmc_tokens::count(&found.body) <= 200, "{}", found.body);
}
