//! What pytest's failures are called: the node id, never the file in which the error was raised.

use super::*;

/// The ids of every way in which pytest reports these tests, in the order of a run without workers.
const FAILED: &[&str] = &[
    "tests/test_conn.py::test_open[a b]",
    "tests/test_conn.py::test_open[x - y]",
    "tests/test_conn.py::test_open[[]",
    "tests/test_conn.py::test_open[p::q]",
    "tests/test_conn.py::test_open[tests/other.py]",
    "tests/test_conn.py::TestGroup::TestInner::test_parse",
    "tests/test_other.py::test_helper",
    "tests/test_other.py::Old::test_parse",
    "tests/test_other.py::Old::test_sub (i=0)",
    "tests/test_other.py::Old::test_sub (i=1)",
];

fn ids(text: &str, kind: FailureKind) -> Vec<String> {
    let run = parse(text).expect("a test run");
    let of_kind = run.failures.into_iter().filter(|f| f.kind == kind);
    of_kind.map(|failure| failure.id).collect()
}

#[test]
fn without_a_summary_the_id_is_of_the_file_that_defines_the_test() {
    for (name, text) in [
        ("long", include_str!("../samples/pytest_no_summary.txt")),
        (
            "long -q",
            include_str!("../samples/pytest_no_summary_q.txt"),
        ),
        (
            "short -q",
            include_str!("../samples/pytest_no_summary_short.txt"),
        ),
        ("all", include_str!("../samples/pytest_all.txt")),
        ("workers", include_str!("../samples/pytest_xdist.txt")),
    ] {
        let mut found = ids(text, FailureKind::Failed);
        let mut expected: Vec<&str> = FAILED.to_vec();
        if name == "workers" {
            // Workers send the values of a subtest as texts.
            found.iter_mut().for_each(|id| *id = id.replace('\'', ""));
            found.sort();
            expected.sort_unstable();
        }
        assert_eq!(found, expected, "{name}");
        let run = parse(text).expect("a test run");
        assert_eq!(
            (run.failed, run.errors, run.passed),
            (10, 4, 5),
            "{name}: a passing test may print ERROR"
        );
        let condensed = condense(&run, text.len() as u64, 4000);
        assert_eq!(
            condensed.hot_zone.as_deref(),
            Some("tests/test_conn.py"),
            "{name}: not where the errors were raised"
        );
        assert!(
            condensed
                .body
                .contains("FAIL tests/test_conn.py::test_open[a b] (lib.py:9)\n"),
            "{name}: the place stays beside it: {}",
            condensed.body
        );
    }
}

#[test]
fn the_error_of_a_fixture_is_no_test_of_the_fixtures_file() {
    let broken = |text: &str| ids(text, FailureKind::Error);
    assert_eq!(
        broken(include_str!("../samples/pytest_all.txt")),
        [
            "tests/test_bad.py",
            "tests/test_conn.py::test_setup",
            "tests/test_conn.py::test_teardown",
            "tests/test_conn.py::test_no_fixture",
        ]
    );
    // Without a summary, though there is no traceback through the file of the test.
    assert_eq!(
        broken(include_str!("../samples/pytest_no_summary_q.txt")),
        [
            "tests/test_bad.py",
            "test_setup",
            "test_teardown",
            "/home/dev/pt/tests/test_conn.py::test_no_fixture",
        ],
        "with -q no line names the file"
    );
    let progress = include_str!("../samples/pytest_no_summary.txt");
    assert_eq!(
        broken(progress),
        [
            "tests/test_bad.py",
            "tests/test_conn.py::test_setup",
            "tests/test_conn.py::test_teardown",
            "tests/test_conn.py::test_no_fixture",
        ]
    );
    assert_has(
        progress,
        &[
            "ERROR tests/test_conn.py::test_setup (tests/conftest.py:4)",
            "    raise RuntimeError(\"fixture is broken\")",
            "ERROR tests/test_conn.py::test_no_fixture (/home/dev/pt/tests/test_conn.py:22)",
            "    fixture 'nothere' not found",
        ],
    );
}

#[test]
fn other_forms_of_a_traceback_are_read() {
    let native = include_str!("../samples/pytest_native.txt");
    assert_eq!(ids(native, FailureKind::Failed), FAILED[6..]);
    assert_has(
        native,
        &[
            "FAIL tests/test_other.py::test_helper (/home/dev/pt/lib.py:2)",
            "    return int(text)",
            "    ValueError: invalid literal for int() with base 10: 'y'",
        ],
    );
    // No name is printed anywhere: the places and messages are all there is.
    let line = include_str!("../samples/pytest_no_summary_line.txt");
    let run = parse(line).expect("a test run");
    assert_eq!((run.failed, run.errors, run.failures.len()), (10, 4, 14));
    assert_has(
        line,
        &[
            "FAIL /home/dev/pt/lib.py (/home/dev/pt/lib.py:2)",
            "    ValueError: invalid literal for int() with base 10: 'x'",
        ],
    );
    let none = include_str!("../samples/pytest_no_summary_no.txt");
    let run = parse(none).expect("a test run");
    let condensed = condense(&run, none.len() as u64, 400);
    assert_eq!(
        condensed.breadcrumbs,
        [
            "failures by file: tests/test_conn.py (9), tests/test_other.py (2)",
            "14 failures counted by the runner, but not in its output"
        ]
    );
}

#[test]
fn titles_unlike_their_ids_are_not_counted_twice() {
    let text = "\
=================================== FAILURES ===================================
___________________________ [doctest] lib.parse ____________________________
003 >>> parse('x')
Expected:
    1
/w/lib.py:3: DocTestFailure
________________________________ test_it[a b] _________________________________
tests/[x]/test_a.py:2: in test_it
    assert 0
E   assert 0
=========================== short test summary info ============================
FAILED lib.py::lib.parse
FAILED tests/[x]/test_a.py::test_it[a b] - assert 0
============================== 2 failed in 0.02s ===============================
";
    assert_eq!(
        ids(text, FailureKind::Failed),
        ["lib.py::lib.parse", "tests/[x]/test_a.py::test_it[a b]"]
    );
}

#[test]
fn a_progress_line_of_v_names_what_no_section_does() {
    let text = "\
============================= test session starts ==============================
tests/test_a.py::test_one[a b] FAILED                                    [ 50%]
tests/test_a.py::test_two ERROR                                          [100%]
========================= 1 failed, 1 error in 0.02s ==========================
";
    assert_eq!(
        ids(text, FailureKind::Failed),
        ["tests/test_a.py::test_one[a b]"]
    );
    assert_eq!(ids(text, FailureKind::Error), ["tests/test_a.py::test_two"]);
}

#[test]
fn arguments_that_pytest_does_not_take_are_errors_still() {
    let text = "\
============================= test session starts ==============================
collected 0 items

============================ no tests ran in 0.00s =============================
ERROR: file or directory not found: nope.py

";
    assert_eq!(
        ids(text, FailureKind::Error),
        ["file or directory not found: nope.py"]
    );
}
