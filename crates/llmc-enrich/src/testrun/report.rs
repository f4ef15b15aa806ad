//! What a runner writes into a report file: every test by its name, whatever else was printed.
//!
//! A report is made for programs, so it cannot be imitated by what a test prints. Details of a failure that people read still
//! come from the output, for tests that the report knows as failed.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use serde::Deserialize;

use super::{FailureKind, Framework, TestFailure, TestRun};
use crate::budget::clip;

/// Tests that are read of one report.
const MAX_TESTS: usize = 500_000;
/// Bytes kept of a test's name.
const MAX_ID_BYTES: usize = 1000;

/// The tests of one run by the runner's own account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestReport {
    pub framework: Framework,
    pub tests: Vec<ReportedTest>,
}

/// One test of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedTest {
    /// As the runner's own output calls it.
    pub id: String,
    pub outcome: TestOutcome,
    /// The runner's message about what went wrong.
    pub message: String,
}

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TestOutcome {
    Skipped,
    /// It failed, as it is marked to do.
    FailedAsExpected,
    Passed,
    Failed,
    /// It could not run: its module cannot be imported, its fixture failed.
    Error,
}

impl TestReport {
    /// Reads pytest's `--junit-xml` file; `None` if it is none or not complete.
    pub fn of_pytest(xml: &str) -> Option<TestReport> {
        let mut cases: Vec<JunitCase> = Vec::new();
        let mut reader = Reader::from_str(xml);
        let (mut depth, mut has_suite) = (0_usize, false);
        loop {
            match reader.read_event().ok()? {
                Event::Start(start) => {
                    depth += 1;
                    has_suite |= start.local_name().into_inner() == "testsuite";
                    open(&mut cases, &start);
                }
                Event::Empty(start) => {
                    has_suite |= start.local_name().into_inner() == "testsuite";
                    open(&mut cases, &start);
                }
                Event::End(_) => depth = depth.checked_sub(1)?,
                Event::Eof => break,
                _ => {}
            }
            if cases.len() > MAX_TESTS {
                return None;
            }
        }
        if depth != 0 || !has_suite {
            return None;
        }
        let files: HashSet<String> = cases.iter().filter_map(|case| case.file.clone()).collect();
        let tests = cases.into_iter().map(|case| case.test(&files)).collect();
        Some(TestReport::new(Framework::Pytest, tests))
    }

    /// Reads what `jest --json` and vitest's reporter `json` write. Paths are relative to `root`.
    pub fn of_jest(json: &str, framework: Framework, root: &str) -> Option<TestReport> {
        let report: JestReport<'_> = serde_json::from_str(json).ok()?;
        let separator = match framework {
            Framework::Vitest => " > ",
            _ => " › ",
        };
        let mut tests = Vec::new();
        for file in report.test_results {
            let path = file.name.strip_prefix(root).unwrap_or(&file.name);
            let path = path.trim_start_matches('/');
            if file.status == "failed" && file.assertion_results.is_empty() {
                tests.push(ReportedTest {
                    id: path.to_owned(),
                    outcome: TestOutcome::Error,
                    message: file.message.unwrap_or_default().into_owned(),
                });
            }
            for test in file.assertion_results {
                let mut parts = vec![path];
                parts.extend(test.ancestor_titles.iter().map(Cow::as_ref));
                parts.push(&test.title);
                parts.retain(|part| !part.is_empty());
                tests.push(ReportedTest {
                    id: parts.join(separator),
                    outcome: match test.status.as_ref() {
                        "passed" => TestOutcome::Passed,
                        "failed" => TestOutcome::Failed,
                        _ => TestOutcome::Skipped,
                    },
                    message: test.failure_messages.join("\n"),
                });
            }
        }
        (tests.len() <= MAX_TESTS).then(|| TestReport::new(framework, tests))
    }

    /// A test that is reported several times, as one that fails and whose teardown fails too, counts once, by the worst.
    fn new(framework: Framework, reported: Vec<ReportedTest>) -> TestReport {
        let mut tests: Vec<ReportedTest> = Vec::with_capacity(reported.len());
        let mut known: HashMap<String, usize> = HashMap::new();
        for test in reported {
            match known.get(&test.id) {
                Some(at) if tests[*at].outcome >= test.outcome => {}
                Some(at) => tests[*at] = test,
                None => {
                    known.insert(test.id.clone(), tests.len());
                    tests.push(test);
                }
            }
        }
        TestReport { framework, tests }
    }

    /// The run with counts and names of this report, and the details that `printed` has of its failures.
    pub fn run(&self, printed: Option<TestRun>) -> TestRun {
        let mut run = TestRun::new(self.framework);
        let printed = printed.filter(|printed| printed.framework == self.framework);
        let mut details: HashMap<String, TestFailure> = HashMap::new();
        if let Some(printed) = printed {
            run.duration = printed.duration;
            for failure in printed.failures {
                details.entry(failure.id.clone()).or_insert(failure);
            }
        }
        for test in &self.tests {
            match test.outcome {
                TestOutcome::Passed => run.passed += 1,
                TestOutcome::Skipped => run.skipped += 1,
                TestOutcome::FailedAsExpected => {}
                TestOutcome::Failed => run.failed += 1,
                TestOutcome::Error => run.errors += 1,
            }
            let kind = match test.outcome {
                TestOutcome::Failed => FailureKind::Failed,
                TestOutcome::Error => FailureKind::Error,
                TestOutcome::Passed | TestOutcome::Skipped | TestOutcome::FailedAsExpected => {
                    run.ran.push(test.id.clone());
                    continue;
                }
            };
            if test.outcome == TestOutcome::Failed || test.id.contains("::") {
                run.ran.push(test.id.clone());
            }
            let mut failure = details
                .remove(&test.id)
                .unwrap_or_else(|| test.described(kind));
            failure.kind = kind;
            run.failures.push(failure);
        }
        run.finish()
    }
}

impl ReportedTest {
    /// The failure in the words of the report.
    fn described(&self, kind: FailureKind) -> TestFailure {
        let mut failure = TestFailure::new(kind, &self.id);
        let mut lines = self.message.lines().filter(|line| !line.trim().is_empty());
        if let Some(first) = lines.next() {
            failure.assert(first);
        }
        for line in lines {
            failure.add_message(line);
        }
        failure
    }
}

/// A `testcase` of a JUnit file.
struct JunitCase {
    class_name: String,
    name: String,
    file: Option<String>,
    outcome: TestOutcome,
    message: String,
}

/// Reads the beginning of an element that belongs to a test.
fn open(cases: &mut Vec<JunitCase>, start: &BytesStart<'_>) {
    let attribute = |name: &str| {
        let mut all = start.attributes();
        let mut known = all.with_checks(false).flatten();
        let found = known.find(|found| found.key.local_name().as_ref() == name)?;
        let text = quick_xml::escape::unescape(&found.value);
        Some(text.map_or_else(|_| found.value.to_string(), Cow::into_owned))
    };
    let outcome = match start.local_name().into_inner() {
        "testcase" => {
            cases.push(JunitCase {
                class_name: attribute("classname").unwrap_or_default(),
                name: attribute("name").unwrap_or_default(),
                file: attribute("file"),
                outcome: TestOutcome::Passed,
                message: String::new(),
            });
            return;
        }
        "failure" => TestOutcome::Failed,
        "error" => TestOutcome::Error,
        "skipped" if attribute("type").as_deref() == Some("pytest.xfail") => {
            TestOutcome::FailedAsExpected
        }
        "skipped" => TestOutcome::Skipped,
        _ => return,
    };
    if let Some(case) = cases.last_mut()
        && (case.outcome == TestOutcome::Passed || outcome > case.outcome)
    {
        case.outcome = outcome;
        case.message = attribute("message").unwrap_or_default();
    }
}

impl JunitCase {
    /// `tests.test_a.TestX` and `test_y[1]` in `tests/test_a.py` as `tests/test_a.py::TestX::test_y[1]`.
    fn test(self, files: &HashSet<String>) -> ReportedTest {
        let is_file = |path: &String| files.contains(path);
        let parts: Vec<&str> = self.class_name.split('.').collect();
        // The file may be another one, of a class that is inherited.
        let own = (1..=parts.len())
            .rev()
            .map(|count| (count, format!("{}.py", parts[..count].join("/"))))
            .find(|(_, path)| is_file(path) || self.file.as_ref() == Some(path));
        let id = match (own, self.file) {
            (Some((count, path)), _) => {
                let mut id = path;
                for class in &parts[count..] {
                    id.push_str("::");
                    id.push_str(class);
                }
                format!("{id}::{}", self.name)
            }
            // Of a module that could not be collected.
            (None, Some(file)) if self.class_name.is_empty() => file,
            (None, _) if self.class_name.is_empty() => {
                format!("{}.py", self.name.replace('.', "/"))
            }
            (None, Some(file)) => {
                let module = file.trim_end_matches(".py").replace('/', ".");
                let class = self.class_name.strip_prefix(&module).unwrap_or_default();
                let class = class.trim_start_matches('.').replace('.', "::");
                match class.is_empty() {
                    true => format!("{file}::{}", self.name),
                    false => format!("{file}::{class}::{}", self.name),
                }
            }
            (None, None) => format!("{}.py::{}", self.class_name.replace('.', "/"), self.name),
        };
        ReportedTest {
            id: clip(&id, MAX_ID_BYTES).into_owned(),
            outcome: self.outcome,
            message: self.message,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JestReport<'a> {
    #[serde(borrow)]
    test_results: Vec<JestFile<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JestFile<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow, default)]
    message: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    assertion_results: Vec<JestTest<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JestTest<'a> {
    #[serde(borrow, default)]
    ancestor_titles: Vec<Cow<'a, str>>,
    #[serde(borrow)]
    title: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow, default)]
    failure_messages: Vec<Cow<'a, str>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const JUNIT: &str = r#"<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests"><testsuite name="pytest" errors="1" failures="1" skipped="1" tests="6" time="0.1">
<testcase classname="tests.test_a" name="test_one" file="tests/test_a.py" line="1" time="0.0" />
<testcase classname="tests.test_a.TestX" name="test_two[a&lt;b]" file="tests/test_a.py" line="5" time="0.0"><failure message="AssertionError: assert 1 == 2&#10;  more">def test_two():
&gt; assert 1 == 2
===== 9 failed, 9 passed in 0.1s =====</failure></testcase>
<testcase classname="tests.test_a.TestX" name="test_inherited" file="tests/base.py" line="5" time="0.0" />
<testcase classname="tests.test_a" name="test_skipped" file="tests/test_a.py" line="9"><skipped type="pytest.skip" message="no">x</skipped></testcase>
<testcase classname="tests.test_a" name="test_one" file="tests/test_a.py" line="1" time="0.0"><error message="failed on teardown">x</error></testcase>
<testcase classname="tests.test_a" name="test_known" file="tests/test_a.py" line="9"><skipped type="pytest.xfail" message="bug">x</skipped></testcase>
<testcase classname="" name="tests.test_b" time="0.0"><error message="collection failure">ImportError</error></testcase>
</testsuite></testsuites>"#;

    #[test]
    fn tests_of_a_junit_file_have_the_names_that_pytest_prints() {
        let report = TestReport::of_pytest(JUNIT).unwrap();
        let found: Vec<(&str, TestOutcome)> = report
            .tests
            .iter()
            .map(|test| (test.id.as_str(), test.outcome))
            .collect();
        assert_eq!(
            found,
            [
                ("tests/test_a.py::test_one", TestOutcome::Error),
                ("tests/test_a.py::TestX::test_two[a<b]", TestOutcome::Failed),
                (
                    "tests/test_a.py::TestX::test_inherited",
                    TestOutcome::Passed
                ),
                ("tests/test_a.py::test_skipped", TestOutcome::Skipped),
                ("tests/test_a.py::test_known", TestOutcome::FailedAsExpected),
                ("tests/test_b.py", TestOutcome::Error),
            ]
        );
        let run = report.run(None);
        assert_eq!(
            (run.failed, run.errors, run.passed, run.skipped),
            (1, 2, 1, 1)
        );
        let failed = run
            .failures
            .iter()
            .find(|failure| failure.kind == FailureKind::Failed);
        assert_eq!(
            failed.unwrap().assertion.as_deref(),
            Some("AssertionError: assert 1 == 2")
        );
    }

    #[test]
    fn a_file_that_is_cut_or_something_else_is_no_report() {
        for end in [JUNIT.len() - 5, JUNIT.len() / 2, 0] {
            assert_eq!(TestReport::of_pytest(&JUNIT[..end]), None, "{end}");
        }
        assert_eq!(TestReport::of_pytest("<html></html>"), None);
        assert_eq!(
            TestReport::of_jest("{\"testResults\":", Framework::Jest, "/w"),
            None
        );
    }

    #[test]
    fn what_is_quoted_in_the_output_is_not_counted() {
        let report = TestReport::of_pytest(JUNIT).unwrap();
        let mut printed = TestRun::new(Framework::Pytest);
        printed.failed = 9;
        for id in [
            "tests/test_a.py::TestX::test_two[a<b]",
            "test_inner.py::test_quoted",
        ] {
            let mut failure = TestFailure::new(FailureKind::Failed, id);
            failure.location = Some("tests/test_a.py:7".to_owned());
            printed.failures.push(failure);
        }
        let run = report.run(Some(printed));
        assert_eq!(run.failed, 1);
        assert!(
            run.failures
                .iter()
                .all(|failure| !failure.id.contains("quoted"))
        );
        let detailed = run
            .failures
            .iter()
            .find(|failure| failure.id.contains("test_two"));
        assert_eq!(
            detailed.unwrap().location.as_deref(),
            Some("tests/test_a.py:7")
        );
    }

    #[test]
    fn jest_and_vitest_reports_name_file_suites_and_test() {
        let json = r#"{"numTotalTests":2,"testResults":[
            {"name":"/w/src/a.test.ts","status":"failed","message":"","assertionResults":[
              {"ancestorTitles":["math","add"],"title":"adds","fullName":"math add adds","status":"passed","failureMessages":[]},
              {"ancestorTitles":["math"],"title":"subs","status":"failed","failureMessages":["Error: expected 1\nat x"]}]},
            {"name":"/w/src/b.test.ts","status":"failed","message":"cannot import","assertionResults":[]}]}"#;
        let report = TestReport::of_jest(json, Framework::Vitest, "/w").unwrap();
        let ids: Vec<&str> = report.tests.iter().map(|test| test.id.as_str()).collect();
        assert_eq!(
            ids,
            [
                "src/a.test.ts > math > add > adds",
                "src/a.test.ts > math > subs",
                "src/b.test.ts"
            ]
        );
        let run = report.run(None);
        assert_eq!((run.failed, run.errors, run.passed), (1, 1, 1));
    }
}
