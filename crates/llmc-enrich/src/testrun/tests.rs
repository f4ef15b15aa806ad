//! The samples are what the real tools printed, with the machine's paths replaced: pytest 9.2, go 1.27, jest 30,
//! vitest 4.1, mocha 12.0, node 20, tape 5.9, Perl 5.36, tsc 7.0, cargo-nextest 0.9 and cargo 1.95. Python's unittest, pytest, `cargo
//! test` and `node --test` are run here as well; `scripts/test` provides pytest.

mod pytest_ids;
mod same_error;
mod tap;

use std::process::Command;

use proptest::prelude::*;

use super::*;

const SAMPLES: &[&str] = &[
    include_str!("samples/cargo.txt"),
    include_str!("samples/cargo_build.txt"),
    include_str!("samples/go.txt"),
    include_str!("samples/go_json.txt"),
    include_str!("samples/go_v.txt"),
    include_str!("samples/jest.txt"),
    include_str!("samples/mocha_dot.txt"),
    include_str!("samples/mocha_spec.txt"),
    include_str!("samples/nextest.txt"),
    include_str!("samples/node_spec.txt"),
    include_str!("samples/node_tap.txt"),
    include_str!("samples/pytest.txt"),
    include_str!("samples/pytest_line_q.txt"),
    include_str!("samples/pytest_no_summary.txt"),
    include_str!("samples/pytest_short_v.txt"),
    include_str!("samples/tap_perl.txt"),
    include_str!("samples/tap_tape.txt"),
    include_str!("samples/tsc.txt"),
    include_str!("samples/tsc_pretty.txt"),
    include_str!("samples/vitest.txt"),
];

fn body(text: &str) -> String {
    let run = parse(text).expect("a test run");
    condense(&run, text.len() as u64, 4000).body
}

#[track_caller]
fn assert_has(text: &str, lines: &[&str]) {
    let body = body(text);
    for line in lines {
        assert!(body.lines().any(|l| l == *line), "{line:?} in\n{body}");
    }
}

#[track_caller]
fn counts_of(text: &str) -> (Framework, u64, u64, u64, u64, usize) {
    let run = parse(text).expect("a test run");
    let found = run.failures.len();
    (
        run.framework,
        run.passed,
        run.failed,
        run.errors,
        run.skipped,
        found,
    )
}

#[test]
fn every_runner_is_counted() {
    use Framework::*;
    let counts: Vec<_> = SAMPLES.iter().map(|text| counts_of(text)).collect();
    assert_eq!(
        counts,
        [
            (Cargo, 1, 7, 0, 1, 7),
            (Cargo, 0, 0, 2, 0, 2),
            (Go, 0, 3, 3, 0, 6),
            (Go, 3, 3, 3, 1, 6),
            (Go, 2, 2, 0, 1, 2),
            (Jest, 1, 3, 1, 1, 4),
            (Mocha, 2, 6, 1, 2, 7),
            (Mocha, 2, 6, 1, 2, 7),
            (Nextest, 1, 6, 0, 1, 6),
            (Node, 5, 9, 1, 2, 10),
            (Node, 5, 9, 1, 2, 10),
            (Pytest, 1, 5, 2, 1, 7),
            (Pytest, 1, 5, 1, 1, 6),
            (Pytest, 5, 10, 4, 0, 14),
            (Pytest, 1, 5, 2, 1, 7),
            (Tap, 2, 2, 0, 2, 2),
            (Tap, 2, 2, 0, 0, 2),
            (Tsc, 0, 0, 2, 0, 2),
            (Tsc, 0, 0, 2, 0, 2),
            (Vitest, 1, 3, 1, 1, 4),
        ]
    );
}

#[test]
fn mocha_failures_have_the_titles_of_their_suites() {
    for sample in ["spec", "dot"] {
        let text = match sample {
            "spec" => include_str!("samples/mocha_spec.txt"),
            _ => include_str!("samples/mocha_dot.txt"),
        };
        assert_has(
            text,
            &[
                "FAIL stands alone (test/price.test.js:41)",
                "    of a message",
                "FAIL price > total() > adds nothing (test/price.test.js:11)",
                "    AssertionError: the empty sum",
                "    0 !== 1",
                "FAIL price > total() > is raised in the code (price.js:1)",
                "    TypeError: Cannot read properties of null (reading 'reduce')",
                "FAIL price > total() > takes too long",
                "ERROR with a hook > \"before all\" hook: opens a file for \"never runs\" (test/price.test.js:35)",
                "    -two",
                "    +three",
            ],
        );
        // What a test prints is no failure, and values are compared once.
        let body = body(text);
        assert!(!body.contains("what a test prints"), "{body}");
        assert!(!body.contains("\"a\": 1"), "{body}");
        assert!(body.contains("+     2\n"), "{body}");
    }
}

#[test]
fn several_runs_of_mocha_add_up_and_need_no_failure() {
    let text = "\n  unit\n    ✔ adds\n\n\n  1 passing (5ms)\n\n  all\n    - later\n\n\n  20 passing (2s)\n  1 pending\n\n";
    assert_eq!(counts_of(text), (Framework::Mocha, 21, 0, 0, 1, 0));
    let cut = "  3 passing (1m)\n  2 failing\n\n  1) a\n       b:\n     Error: x\n";
    assert_eq!(counts_of(cut), (Framework::Mocha, 3, 2, 0, 0, 1));
    assert!(parse("  twenty passing (2s)\n  20 passing\n").is_none());
}

#[test]
fn pytest_failures_have_id_place_assertion_and_message() {
    let want = "\
FAIL tests/test_math.py::test_add (tests/test_math.py:10)
    assert total == 3, \"sums are off\"
    AssertionError: sums are off
    assert 2 == 3
FAIL tests/test_math.py::test_param[1] (tests/test_math.py:14)
    assert {\"a\": n, \"b\": [1, 2]} == {\"a\": 1, \"b\": [1, 3]}
    AssertionError: assert {'a': 1, 'b': [1, 2]} == {'a': 1, 'b': [1, 3]}
";
    let long = body(include_str!("samples/pytest.txt"));
    assert!(long.starts_with("pytest: 5 failed, 2 errors, 1 passed, 1 skipped in "));
    assert!(long.contains(want), "{long}");
    let short = body(include_str!("samples/pytest_short_v.txt"));
    assert!(short.contains(want), "{short}");
    for text in [long, short] {
        let collection =
            text.find("ERROR tests/test_bad.py (tests/test_bad.py:1)\n    import nosuchmodule\n");
        assert!(collection < text.find("FAIL "), "{text}");
        assert!(text.contains("    ModuleNotFoundError: No module named 'nosuchmodule'\n"));
        assert!(text.contains("ERROR tests/test_math.py::test_fix (tests/test_math.py:26)\n"));
        assert!(
            text.contains(
                "FAIL tests/test_math.py::TestGroup::test_raises (tests/test_math.py:4)\n"
            )
        );
        assert!(text.contains("    | hello out\n"));
    }
    assert_has(
        include_str!("samples/pytest_line_q.txt"),
        &[
            "FAIL tests/test_math.py::test_add (/home/dev/pt/tests/test_math.py:10)",
            "    AssertionError: sums are off",
        ],
    );
}

#[test]
fn pytest_cut_before_its_summary_still_names_every_failure() {
    let text = include_str!("samples/pytest_short_v.txt");
    let end = text.find("FAILURES").expect("a section of failures");
    let run = parse(&text[..end]).expect("a test run");
    assert_eq!((run.failed, run.errors), (5, 2));
    let ids: Vec<_> = run.failures.iter().map(|f| f.id.as_str()).collect();
    assert!(
        ids.contains(&"tests/test_math.py::test_param[2]"),
        "{ids:?}"
    );
    assert_eq!(run.notes.len(), 1);
}

#[test]
fn names_with_dashes_and_brackets_stay_whole() {
    let text = "=== short test summary info ===\n\
        FAILED a.py::test[x - y] - assert 1 == 2\n\
        FAILED a.py::test[[] - ValueError\n\
        FAILED a.py::plain - a - b\n=== 3 failed in 0.10s ===\n";
    let run = parse(text).expect("a test run");
    let ids: Vec<_> = run
        .failures
        .iter()
        .map(|f| (f.id.as_str(), f.message[0].as_str()))
        .collect();
    assert_eq!(
        ids,
        [
            ("a.py::test[x - y]", "assert 1 == 2"),
            ("a.py::test[[]", "ValueError"),
            ("a.py::plain", "a - b")
        ]
    );
}

#[test]
fn cargo_tells_panics_and_compile_errors() {
    assert_has(
        include_str!("samples/cargo.txt"),
        &[
            "FAIL tests::eq (src/lib.rs:8)",
            "    assertion `left == right` failed: sums 1",
            "      left: 2",
            "    thread '<unnamed>' panicked at src/lib.rs:13: inner",
            "    Error: \"went wrong\"",
            "    | some output",
            "FAIL src/lib.rs - two (line 1) (src/lib.rs:5)",
        ],
    );
    assert_has(
        include_str!("samples/cargo_build.txt"),
        &["BUILD [E0308] mismatched types (src/lib.rs:15)"],
    );
    assert_has(
        include_str!("samples/nextest.txt"),
        &[
            "FAIL ct tests::eq (src/lib.rs:8)",
            "    assertion `left == right` failed: sums 1",
        ],
    );
}

/// Written by hand: what `--nocapture`, an old compiler and an abort print.
#[test]
fn cargo_without_blocks() {
    let text = "running 2 tests\nthread 'a::b' panicked at 'old style', src/a.rs:3:5\n\
        test a::b ... FAILED\ntest a::c ... ok\n\nfailures:\n\nfailures:\n    a::b\n\n\
        test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\n\
        running 1 test\nerror: test failed, to rerun pass `--test x`\n\nCaused by:\n  \
        process didn't exit successfully: `target/debug/deps/x-1` (signal: 6, SIGABRT: process abort signal)\n";
    assert_eq!(counts_of(text), (Framework::Cargo, 1, 1, 1, 0, 2));
    assert_has(text, &["FAIL a::b (src/a.rs:3)", "    old style"]);
    assert!(body(text).contains("SIGABRT"));
}

#[test]
fn go_tells_builds_panics_and_subtests() {
    for text in [
        include_str!("samples/go.txt"),
        include_str!("samples/go_json.txt"),
    ] {
        assert_has(
            text,
            &[
                "BUILD undefined: undefinedFn (broken/g_test.go:3)",
                "FAIL example.com/gt/calc TestAdd (calc_test.go:7)",
                "    Add() = 2, want 3",
                "        line two",
                "FAIL example.com/gt/calc TestTable/c (calc_test.go:16)",
                "FAIL example.com/gt/pan TestP (/home/dev/gt/pan/g_test.go:3)",
                "    panic: assignment to entry in nil map [recovered, repanicked]",
            ],
        );
        assert!(!body(text).contains("/src/testing/"));
    }
    // By hand: a package that dies outside of any test, and one that cannot be set up.
    let text = "panic: boom\n\ngoroutine 7 [running]:\nmain.f()\n\t/w/a.go:9 +0x1\nFAIL\tx/y\t0.01s\n\
        FAIL\tx/z [setup failed]\nFAIL\n";
    assert_eq!(counts_of(text), (Framework::Go, 0, 0, 2, 0, 2));
    assert_has(text, &["ERROR x/y (/w/a.go:9)", "BUILD x/z did not build"]);
}

#[test]
fn javascript_runners_tell_expectations() {
    assert_has(
        include_str!("samples/jest.txt"),
        &[
            "ERROR bad.test.js",
            "FAIL a.test.js › math › adds (a.test.js:3)",
            "    expect(received).toBe(expected) // Object.is equality",
            "    Expected: 3",
            "FAIL a.test.js › math › deep › throws (lib.js:1)",
        ],
    );
    assert_has(
        include_str!("samples/vitest.txt"),
        &[
            "ERROR bad.test.ts (bad.test.ts:1)",
            "FAIL v.test.ts > math > adds (v.test.ts:3)",
            "    AssertionError: expected 2 to be 3 // Object.is equality",
            "    + 2",
        ],
    );
    let ts = "BUILD TS2322 Type 'string' is not assignable to type 'number'. (t.ts:1)";
    assert_has(include_str!("samples/tsc.txt"), &[ts]);
    assert_has(include_str!("samples/tsc_pretty.txt"), &[ts]);
}

fn python(args: &[&str], files: &[(&str, &str)]) -> Option<String> {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).expect("a file");
    }
    let mut command = Command::new("python3");
    command
        .args(args)
        .current_dir(dir.path())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    if let Some(site) = std::env::var_os("LLMC_TEST_PYTHON_SITE") {
        command.env("PYTHONPATH", site);
    }
    let out = command.output().ok()?;
    let text = [out.stdout, out.stderr].concat();
    Some(String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn unittest_as_python_runs_it() {
    let tests = "\
import unittest
class T(unittest.TestCase):
    def test_ok(self): pass
    def test_eq(self):
        \"\"\"A line of documentation\"\"\"
        self.assertEqual([1, 2], [1, 3], 'lists differ')
    def test_err(self): raise KeyError('k')
    @unittest.skip('later')
    def test_skip(self): pass
    def test_sub(self):
        for i in range(2):
            with self.subTest(i=i): self.assertTrue(i > 5)
";
    let files = [("test_u.py", tests), ("test_v.py", "import nothere\n")];
    for args in [&["-m", "unittest"][..], &["-m", "unittest", "-v"]] {
        let text = python(args, &files).expect("python3 runs");
        let run = parse(&text).expect("a test run");
        assert_eq!(
            (run.framework, run.failed, run.errors, run.skipped),
            (Framework::Unittest, 3, 2, 1)
        );
        assert_eq!(run.failures.len(), 5);
        let find = |id: &str| run.failures.iter().find(|f| f.id == id).expect(id);
        let equal = find("test_u.T.test_eq");
        assert!(
            equal
                .location
                .as_deref()
                .expect("a place")
                .ends_with("test_u.py:6")
        );
        assert_eq!(
            equal.assertion.as_deref(),
            Some("self.assertEqual([1, 2], [1, 3], 'lists differ')")
        );
        assert_eq!(
            equal.message[0],
            "AssertionError: Lists differ: [1, 2] != [1, 3]"
        );
        find("test_u.T.test_sub (i=1)");
        let import = run
            .failures
            .iter()
            .find(|f| f.id.contains("test_v"))
            .expect("the broken module");
        assert!(
            import
                .message
                .iter()
                .any(|line| line.contains("No module named 'nothere'"))
        );
    }
}

#[test]
fn pytest_as_it_runs() {
    let tests = "def test_a():\n    assert 1 == 2\ndef test_b(): pass\n";
    let text = python(
        &["-m", "pytest", "-p", "no:cacheprovider"],
        &[("test_a.py", tests)],
    )
    .expect("python3 runs");
    if text.contains("No module named pytest") {
        let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(!ci, "under CI a missing component is a failure");
        eprintln!("SKIPPED: pytest is not installed; scripts/test provides it");
        return;
    }
    assert_eq!(counts_of(&text), (Framework::Pytest, 1, 1, 0, 0, 1));
    assert_has(
        &text,
        &["FAIL test_a.py::test_a (test_a.py:2)", "    assert 1 == 2"],
    );
}

#[test]
fn cargo_test_as_cargo_runs_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let file =
        |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("a file");
    file(
        "Cargo.toml",
        "[package]\nname = \"tiny\"\nedition = \"2021\"\n[lib]\npath = \"lib.rs\"\ndoctest = false\n[workspace]\n",
    );
    file(
        "lib.rs",
        "#[test]\nfn good() {}\n#[test]\nfn bad() {\n    assert_eq!(1, 2);\n}\n",
    );
    let out = Command::new(env!("CARGO"))
        .args(["test", "--offline", "--color", "always"])
        .current_dir(dir.path())
        .env("CARGO_TARGET_DIR", dir.path().join("target"))
        .output()
        .expect("cargo runs");
    let text = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    assert_eq!(counts_of(&text), (Framework::Cargo, 1, 1, 0, 0, 1));
    assert_has(
        &text,
        &[
            "FAIL bad (lib.rs:5)",
            "    assertion `left == right` failed",
            "      left: 1",
        ],
    );
}

#[test]
fn other_text_is_no_test_run() {
    for text in [
        "",
        "hello\n",
        "# heading\nsome: text\n",
        "{\"Action\": 1}\n",
        "error: nothing to do\n",
        "a: b\nFAIL ed\n",
    ] {
        assert_eq!(parse(text), None, "{text:?}");
    }
}

fn many(failures: usize) -> TestRun {
    let mut run = TestRun::new(Framework::Pytest);
    run.passed = 100;
    for i in 0..failures {
        let mut failure = TestFailure::new(
            if i % 7 == 0 {
                FailureKind::Error
            } else {
                FailureKind::Failed
            },
            format!("tests/test_{i}.py::test_{i}"),
        );
        failure.location = Some(format!("tests/test_{i}.py:{i}"));
        failure.assert("assert value == expected");
        for line in 0..i % 5 {
            failure.add_message(&format!("message line {line} of failure {i}"));
        }
        run.failures.push(failure);
    }
    run.finish()
}

/// The failures whose first line is shown, named in a breadcrumb, and only counted.
fn account(run: &TestRun, condensed: &Condensed) -> (u64, u64) {
    let first_lines = condensed.body.lines().filter(|line| {
        ["FAIL ", "ERROR ", "BUILD "]
            .iter()
            .any(|l| line.starts_with(l))
    });
    let mut shown = first_lines.count() as u64;
    for line in condensed.body.lines() {
        if let Some(list) = line.strip_prefix("    same error: ") {
            let list = list.split_once(" …[+").map_or(list, |(list, _)| list);
            let (named, more) = match list.split_once(" and ") {
                Some((named, more)) => (named.split(", ").count() as u64, more),
                None if list.ends_with(" more") => (0, list),
                None => (list.split(", ").count() as u64, "0 more"),
            };
            let more = more.strip_suffix(" more").expect("a count");
            shown += named + more.replace(',', "").parse::<u64>().expect("a number");
        }
    }
    let more = condensed.breadcrumbs.iter().find_map(|crumb| {
        let (count, _) = crumb.split_once(" more failure")?;
        count.replace(',', "").parse::<u64>().ok()
    });
    assert_eq!(shown, condensed.shown);
    assert_eq!(condensed.totals.matches, Some(run.wrong()));
    (shown, more.unwrap_or(0))
}

#[test]
fn short_budgets_shorten_all_alike_then_name_then_count() {
    let run = many(12);
    let roomy = condense(&run, 9999, 2000);
    assert_eq!(roomy.shown, 12);
    assert!(roomy.breadcrumbs.is_empty() && roomy.body.contains("message line 3 of failure 9"));
    let tight = condense(&run, 9999, 420);
    assert_eq!(tight.shown, 12);
    assert!(tight.body.contains("lines]"), "{}", tight.body);
    let named = condense(&run, 9999, 200);
    assert!(
        named.shown < 12 && named.breadcrumbs[0].contains("more failures: tests/test_"),
        "{named:?}"
    );
    let counted = condense(&many(400), 99_999, 200);
    assert!(counted.breadcrumbs[0].contains(" and "), "{counted:?}");
}

proptest! {
    #[test]
    fn no_failure_is_lost_within_any_budget(failures in 0usize..60, budget in 0usize..1500) {
        let run = many(failures);
        let condensed = condense(&run, 1 << 20, budget);
        let (shown, more) = account(&run, &condensed);
        prop_assert_eq!(shown + more, failures as u64);
        let crumbs: usize = condensed.breadcrumbs.iter().map(|c| llmc_tokens::count(c) + 5).sum();
        let tokens = llmc_tokens::count(&condensed.body) + crumbs;
        prop_assert!(tokens <= budget.max(60), "{} of {}", tokens, budget);
    }

    #[test]
    fn samples_cut_anywhere_are_read_without_panic(
        which in 0..SAMPLES.len(), from in 0.0..1.0f64, to in 0.0..1.0f64, budget in 0usize..400,
    ) {
        let text = SAMPLES[which];
        let at = |share: f64| text.floor_char_boundary((text.len() as f64 * share) as usize);
        let cut = &text[at(from.min(to))..at(from.max(to))];
        if let Some(run) = parse(cut) {
            prop_assert!(run.wrong() >= run.failures.len() as u64);
            let condensed = condense(&run, cut.len() as u64, budget);
            let (shown, more) = account(&run, &condensed);
            prop_assert_eq!(shown + more, run.failures.len() as u64);
        }
    }

    #[test]
    fn lines_in_any_order_are_read_without_panic(lines in prop::collection::vec((0..SAMPLES.len(), any::<prop::sample::Index>()), 0..60)) {
        let text: Vec<_> = lines.iter().map(|(which, at)| {
            let lines: Vec<_> = SAMPLES[*which].lines().collect();
            lines[at.index(lines.len())]
        }).collect();
        let _ = parse(&text.join("\n"));
    }

    #[test]
    fn any_text_is_read_without_panic(text in "(\\PC|\n|    |E  |FAIL|--- |: |error|\\[|\\]|test | \\.\\.\\. |●|⎯|=+ | _+ |[0-9]+){0,80}") {
        let _ = parse(&text);
    }
}
