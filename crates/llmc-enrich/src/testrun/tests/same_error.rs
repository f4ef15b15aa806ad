//! An error that several tests have is shown once.

use super::*;

#[test]
fn an_error_of_several_tests_is_shown_once_and_the_others_are_named() {
    let text = include_str!("../samples/pytest_no_summary.txt");
    let body = body(text);
    let expected = "\
FAIL tests/test_conn.py::test_open[a b] (lib.py:9)
    same error: test_open[x - y], test_open[[], test_open[p::q], test_open[tests/other.py]
    raise ConnectionError(f\"cannot reach {self!r}\") from error
    OSError: no route
";
    assert!(body.contains(expected), "{body}");
    assert_eq!(body.matches("OSError: no route").count(), 1, "{body}");
    // Other values are another error.
    for value in ["'x'", "'y'", "'z'"] {
        assert!(body.contains(&format!("base 10: {value}")), "{body}");
    }
    let run = parse(text).expect("a test run");
    let condensed = condense(&run, text.len() as u64, 4000);
    assert_eq!(condensed.shown, 14);
}

#[test]
fn of_very_many_tests_with_one_error_some_are_named_and_all_counted() {
    let mut run = TestRun::new(Framework::Pytest);
    for i in 0..3000 {
        let mut failure =
            TestFailure::new(FailureKind::Failed, format!("tests/test_a.py::test[{i}]"));
        failure.location = Some("lib.py:1".to_owned());
        failure.assert("connect()");
        failure.add_message(&format!("<Server at 0x7f{i:06x}> is gone"));
        run.failures.push(failure);
    }
    let run = run.finish();
    let condensed = condense(&run, 1 << 20, 300);
    assert_eq!(account(&run, &condensed), (3000, 0), "{condensed:?}");
    assert!(condensed.body.contains("connect()"), "{condensed:?}");
    assert!(llmc_tokens::count(&condensed.body) <= 300);
}

#[test]
fn what_says_too_little_is_not_taken_for_one_error() {
    let text = "=== short test summary info ===\nFAILED a.py::one - assert 1 == 2\n\
        FAILED b.py::two - assert 1 == 2\nFAILED b.py::three\nFAILED b.py::four\n=== 4 failed in 0.10s ===\n";
    assert!(!body(text).contains("same error"), "{}", body(text));
}
