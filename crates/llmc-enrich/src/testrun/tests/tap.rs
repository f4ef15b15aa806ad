//! `node --test` with its reporters, and TAP of other programs.

use super::*;

const TAP: &str = include_str!("../samples/node_tap.txt");
const SPEC: &str = include_str!("../samples/node_spec.txt");

#[test]
fn node_tells_each_failure_with_message_and_place() {
    for (text, dir) in [(TAP, "/home/dev/nt/"), (SPEC, "")] {
        let body = body(text);
        assert!(
            body.starts_with("node --test: 9 failed, 1 error, 5 passed, 2 skipped in 0."),
            "{body}"
        );
        for block in [
            "FAIL sums are off (DIRtest/calc.test.js:8)\n    AssertionError: Expected values to be strictly equal:\n    2 !== 3\n",
            "FAIL group > fails deep (DIRtest/calc.test.js:13)\n    AssertionError: Expected values to be strictly deep-equal:\n",
            "    +     2\n    -     3\n",
            "FAIL group > inner # group > throws from the library (DIRtest/calc.test.js:16)\n    TypeError: Cannot read properties of undefined (reading 'length')\n    at exports.parse (/home/dev/nt/lib.js:1:58)\n",
            "FAIL group > inner # group > has a message (DIRtest/calc.test.js:17)\n    AssertionError: the reason: it is\n    on two lines\n",
            "FAIL parent > child fails (DIRtest/calc.test.js:22)\n    TypeError: bad child\n",
            "FAIL rejects (DIRtest/calc.test.js:26)\n",
            "FAIL throws a string (DIRtest/calc.test.js:27)\n    plain string\n",
            "FAIL slow (DIRtest/calc.test.js:29)\n    test timed out after 20ms\n",
            "ERROR /home/dev/nt/test/broken.test.js (DIRtest/broken.test.js:1)\n    Error: Cannot find module './nothere.js'\n",
        ] {
            let block = block.replace("DIR", dir);
            assert!(body.contains(&block), "{block}\nin\n{body}");
        }
        assert!(body.contains("\nFAIL parent"), "{body}");
        for other in ["someday", "later", "node:internal", "printed by the test"] {
            assert!(!body.contains(other), "{other} in\n{body}");
        }
    }
    let run = parse(TAP).expect("a test run");
    let hot = condense(&run, TAP.len() as u64, 1000).hot_zone;
    assert_eq!(hot.as_deref(), Some("/home/dev/nt/test/calc.test.js"));
}

/// Values that the message of an assertion does not name are shown.
#[test]
fn node_values_stand_beside_a_message_of_the_test() {
    assert_has(TAP, &["    expected: true", "    actual: false"]);
    assert!(!body(TAP).contains("expected: 3"), "{}", body(TAP));
    assert!(body(SPEC).contains("    actual: false"), "{}", body(SPEC));
}

#[test]
fn a_long_run_of_passing_tests_is_a_line_and_one_failure_in_it_is_kept() {
    let mut text = "TAP version 13\n".to_owned();
    for n in 1..=4000 {
        let ok = if n == 1717 { "not ok" } else { "ok" };
        text.push_str(&format!(
            "# Subtest: case {n}\n{ok} {n} - case {n}\n  ---\n  duration_ms: 0.1\n"
        ));
        if n == 1717 {
            text.push_str("  location: '/w/test/a.test.js:9:3'\n  failureType: 'testCodeFailure'\n  error: 'wrong'\n");
        }
        text.push_str("  ...\n");
    }
    let end = "1..4000\n# tests 4000\n# suites 0\n# pass 3999\n# fail 1\n# cancelled 0\n# skipped 0\n# todo 0\n# duration_ms 800.5\n";
    text.push_str(end);
    assert_eq!(counts_of(&text), (Framework::Node, 3999, 1, 0, 0, 1));
    assert_eq!(
        body(&text),
        "node --test: 1 failed, 3,999 passed in 0.80s\nFAIL case 1717 (/w/test/a.test.js:9)\n    wrong\n"
    );
    // Several packages in one output add up.
    assert_eq!(
        counts_of(&format!("{text}{text}")),
        (Framework::Node, 7998, 2, 0, 0, 2)
    );
    // Cut before the summary, what is there is shown.
    let cut = &text[..text.len() - end.len()];
    let run = parse(cut).expect("a test run");
    assert_eq!((run.passed, run.failed, run.notes.len()), (3999, 1, 1));
}

#[test]
fn tap_of_other_programs() {
    assert_has(
        include_str!("../samples/tap_perl.txt"),
        &[
            "TAP: 2 failed, 2 passed, 2 skipped",
            "FAIL sums are off (t/a.t:3)",
            "             got: '2'",
            "FAIL group > inner bad (t/a.t:7)",
        ],
    );
    assert_has(
        include_str!("../samples/tap_tape.txt"),
        &[
            "FAIL adds numbers > should be strictly equal (/home/dev/tt/a.test.js:2)",
            "    expected: 3",
            "    actual: 2",
            "FAIL compares objects > same shape (/home/dev/tt/a.test.js:3)",
            "    expected: { a: 2 }",
        ],
    );
    // By hand: bats, whose plan comes first; a plan that was not kept; the end of everything.
    let bats = "1..3\nok 1 starts\nnot ok 2 stops\n# (in test file test/a.bats, line 7)\n#   `false' failed\n";
    let run = parse(bats).expect("a test run");
    assert_eq!(run.notes, ["1 of 3 planned tests did not report"]);
    assert_has(
        bats,
        &["FAIL stops (test/a.bats:7)", "      `false' failed"],
    );
    let bail = "TAP version 14\n1..2\nok 1 - a\nBail out! no database\n";
    assert_eq!(counts_of(bail), (Framework::Tap, 1, 0, 1, 0, 1));
    assert_has(bail, &["ERROR Bail out! no database"]);
    for text in [
        "ok 1\nthis is no plan\n",
        "ok pkg\n1..2\n",
        "1..3\n",
        "# fail 3\n",
        "✖ a (1ms)\n✖ failing tests:\n",
    ] {
        assert_eq!(parse(text), None, "{text:?}");
    }
}

#[test]
fn node_as_it_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    let tests = "const test = require('node:test');\nconst assert = require('node:assert');\n\
        test('good', () => {});\ntest('outer', async (t) => {\n  await t.test('bad', () => { assert.strictEqual(1, 2); });\n});\n";
    std::fs::write(dir.path().join("a.test.js"), tests).expect("a file");
    for reporter in ["tap", "spec"] {
        let out = Command::new("node")
            .args(["--test", &format!("--test-reporter={reporter}")])
            .env_remove("NODE_OPTIONS")
            .current_dir(dir.path())
            .output();
        let out = match out {
            Ok(out) => out,
            Err(_) => {
                let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
                assert!(!ci, "under CI a missing component is a failure");
                eprintln!("SKIPPED: node is not installed");
                return;
            }
        };
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let run = parse(&text).unwrap_or_else(|| panic!("a test run: {text}"));
        assert_eq!(
            (run.framework, run.passed, run.failed),
            (Framework::Node, 1, 2),
            "{text}"
        );
        let body = body(&text);
        assert!(body.contains("FAIL outer > bad ("), "{body}");
        assert!(body.contains("a.test.js:5)"), "{body}");
        assert!(body.contains("1 !== 2"), "{body}");
    }
}
