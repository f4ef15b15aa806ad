//! Two runs of the same tests: which fail now and did not before, which no longer fail, which fail in both, and which could
//! not be run at all.

use std::collections::BTreeMap;

use crate::budget::plural;
use crate::testrun::{FailureKind, Framework, TestFailure, TestRun};

/// What differs between two test runs.
#[derive(Debug, Clone)]
pub struct TestRunDiff {
    pub framework: Framework,
    /// The counts of the base's run; none where it ran no tests.
    pub base_counts: Option<String>,
    pub now_counts: Option<String>,
    pub newly_failing: Vec<TestFailure>,
    /// Failed at the base and does not fail now.
    pub newly_passing: Vec<String>,
    pub failing_in_both: Vec<TestFailure>,
    /// Modules and builds that cannot be run now.
    pub not_collected_now: Vec<TestFailure>,
    /// Those that could not be run at the base and can be now.
    pub not_collected_at_base: Vec<TestFailure>,
    /// Failed at the base and did not run now.
    pub not_run_now: Vec<String>,
}

impl TestRunDiff {
    /// Compares two runs of which at least one is of tests.
    pub(super) fn of(base: Option<TestRun>, now: Option<TestRun>) -> Option<TestRunDiff> {
        let framework = now.as_ref().or(base.as_ref())?.framework;
        let (base_counts, now_counts) = (base.as_ref().map(counts), now.as_ref().map(counts));
        let ran_nothing = now.as_ref().is_none_or(ran_nothing);
        let (mut base_failing, mut base_broken) = split(base);
        let (now_failing, now_broken) = split(now);
        let mut diff = TestRunDiff {
            framework,
            base_counts,
            now_counts,
            newly_failing: Vec::new(),
            newly_passing: Vec::new(),
            failing_in_both: Vec::new(),
            not_collected_now: Vec::new(),
            not_collected_at_base: Vec::new(),
            not_run_now: Vec::new(),
        };
        for (key, failures) in now_failing {
            let known = base_failing.remove(&key).map_or(0, |known| known.len());
            for (at, failure) in failures.into_iter().enumerate() {
                match at < known {
                    true => diff.failing_in_both.push(failure),
                    false => diff.newly_failing.push(failure),
                }
            }
        }
        for (key, failures) in now_broken {
            base_broken.remove(&key);
            diff.not_collected_now.extend(failures);
        }
        for failure in base_failing.into_values().flatten() {
            let in_module = |broken: &TestFailure| {
                !module(&broken.id).is_empty() && module(&failure.id) == module(&broken.id)
            };
            let is_unrun = ran_nothing || diff.not_collected_now.iter().any(in_module);
            match is_unrun {
                true => diff.not_run_now.push(failure.id),
                false => diff.newly_passing.push(failure.id),
            }
        }
        diff.not_collected_at_base = base_broken.into_values().flatten().collect();
        Some(diff)
    }

    /// Whether both runs came to the same results.
    pub fn is_empty(&self) -> bool {
        self.newly_failing.is_empty()
            && self.newly_passing.is_empty()
            && self.not_collected_now.is_empty()
            && self.not_collected_at_base.is_empty()
            && self.not_run_now.is_empty()
    }
}

type ByKey = BTreeMap<(String, String), Vec<TestFailure>>;

/// The tests that failed, and what could not be run, each under what it is known by in both runs.
fn split(run: Option<TestRun>) -> (ByKey, ByKey) {
    let (mut failing, mut broken) = (ByKey::new(), ByKey::new());
    let Some(run) = run else {
        return (failing, broken);
    };
    for failure in run.failures {
        let is_broken = is_uncollected(run.framework, &failure);
        // The message of a compiler may stand for several places in several files.
        let file = match (&failure.location, failure.kind) {
            (Some(location), FailureKind::Build) => {
                location.rsplit_once(':').map_or("", |(path, _)| path)
            }
            _ => "",
        };
        let key = (failure.id.clone(), file.to_owned());
        let side = if is_broken { &mut broken } else { &mut failing };
        side.entry(key).or_default().push(failure);
    }
    (failing, broken)
}

/// Whether this is no failed test, but something that keeps tests from running.
fn is_uncollected(framework: Framework, failure: &TestFailure) -> bool {
    match (failure.kind, framework) {
        (FailureKind::Failed, _) => false,
        (FailureKind::Build, _) => true,
        // The error of one test is of its fixtures; that of a file is of its import.
        (FailureKind::Error, Framework::Pytest) => !failure.id.contains("::"),
        (FailureKind::Error, Framework::Unittest) => failure.id.contains("_FailedTest"),
        (FailureKind::Error, _) => true,
    }
}

fn ran_nothing(run: &TestRun) -> bool {
    run.passed + run.failed + run.skipped == 0
}

/// The file of a test.
fn module(id: &str) -> &str {
    id.split("::").next().unwrap_or(id)
}

/// `2 failed, 1 error, 40 passed`, without the time that it took.
fn counts(run: &TestRun) -> String {
    let mut parts = Vec::new();
    if run.failed > 0 {
        parts.push(format!("{} failed", run.failed));
    }
    if run.errors > 0 {
        parts.push(plural(run.errors, "error"));
    }
    if run.passed > 0 || parts.is_empty() {
        parts.push(format!("{} passed", run.passed));
    }
    if run.skipped > 0 {
        parts.push(format!("{} skipped", run.skipped));
    }
    parts.join(", ")
}
