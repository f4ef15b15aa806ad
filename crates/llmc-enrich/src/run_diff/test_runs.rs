//! Two runs of the same tests: which fail now and did not before, which no longer fail, which fail in both, and which could
//! not be run at all.
//!
//! Only tests that ran on both sides are compared. Where one side ran none, nothing newly fails or passes: there is only
//! what the other side says.

use std::collections::{BTreeMap, HashSet};

use super::times;
use crate::budget::plural;
use crate::testrun::{FailureKind, Framework, TestFailure, TestRun};

/// What differs between two test runs.
#[derive(Debug, Clone)]
pub struct TestRunDiff {
    pub framework: Framework,
    /// Which side ran no tests, so that nothing can be compared.
    pub unrun: Option<UnrunSide>,
    /// The counts of the base's run; none where it is no test run.
    pub base_counts: Option<String>,
    pub now_counts: Option<String>,
    /// Fails now and did not at the base.
    pub newly_failing: Vec<TestFailure>,
    /// Fails now and was not run at the base.
    pub failing_unrun_at_base: Vec<TestFailure>,
    /// Failed at the base and does not fail now.
    pub newly_passing: Vec<String>,
    pub failing_in_both: Vec<TestFailure>,
    /// Modules and builds that cannot be run now.
    pub not_collected_now: Vec<TestFailure>,
    /// Those that could not be run at the base and can be now.
    pub not_collected_at_base: Vec<TestFailure>,
    /// Failed at the base and did not run now.
    pub not_run_now: Vec<String>,
    /// Tests that the base does not have, where the runner names all of its tests.
    pub new: Vec<String>,
    /// What the new tests came to on the sources of the base, if they were run there.
    pub new_at_base: Option<NewTestsAtBase>,
    /// Ended differently in two runs of the same side.
    pub flaky: Vec<String>,
}

/// New tests on old sources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewTestsAtBase {
    /// Fail, or cannot be imported; each with what went wrong.
    pub failing: Vec<TestFailure>,
    pub passing: Vec<String>,
    /// Were skipped, or are in files that cannot be taken over without the change.
    pub not_run: Vec<String>,
}

impl NewTestsAtBase {
    /// What became of each of `new` in a run on the old sources; of tests in modules that cannot be run there is no result.
    pub fn of(new: &[String], run: &TestRun) -> NewTestsAtBase {
        let failure_of = |id: &str| {
            let is_of = |failure: &&TestFailure| {
                failure.id == id || is_subtest(&failure.id, id) && !id.is_empty()
            };
            run.failures.iter().find(is_of)
        };
        let ran: HashSet<&str> = run.ran.iter().map(String::as_str).collect();
        let mut found = NewTestsAtBase::default();
        for id in new {
            let failure = match ran.contains(id.as_str()) {
                true => failure_of(id),
                false => failure_of(id).or_else(|| failure_of(module(id))),
            };
            match failure {
                Some(failure) => found.failing.push(TestFailure {
                    id: id.clone(),
                    ..failure.clone()
                }),
                None if ran.contains(id.as_str()) => found.passing.push(id.clone()),
                None => found.not_run.push(id.clone()),
            }
        }
        found
    }

    /// `3 fail`, `2 fail, 1 passes`.
    pub fn text(&self) -> String {
        let verb = |count: usize, one: &str, many: &str| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            count => Some(format!("{count} {many}")),
        };
        let parts = [
            verb(self.failing.len(), "fails", "fail"),
            verb(self.passing.len(), "passes", "pass"),
            verb(self.not_run.len(), "not run", "not run"),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// Whether a test is a part of another one, as go names it: `TestA/one` of `TestA`.
fn is_subtest(id: &str, parent: &str) -> bool {
    id.strip_prefix(parent)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// The side of a comparison that ran no tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnrunSide {
    Base,
    Now,
    Both,
}

impl UnrunSide {
    /// Why nothing is compared.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Base => "no test run at the base",
            Self::Now => "no test run now",
            Self::Both => "no test run on either side",
        }
    }
}

impl TestRunDiff {
    /// Compares two runs of which at least one is of tests.
    pub(super) fn of(base: Option<TestRun>, now: Option<TestRun>) -> Option<TestRunDiff> {
        let framework = now.as_ref().or(base.as_ref())?.framework;
        let (base_counts, now_counts) = (base.as_ref().map(counts), now.as_ref().map(counts));
        let is_unrun = |run: &Option<TestRun>| run.as_ref().is_none_or(ran_nothing);
        let unrun = match (is_unrun(&base), is_unrun(&now)) {
            (true, true) => Some(UnrunSide::Both),
            (true, false) => Some(UnrunSide::Base),
            (false, true) => Some(UnrunSide::Now),
            (false, false) => None,
        };
        let base_ran = !matches!(unrun, Some(UnrunSide::Base | UnrunSide::Both));
        let new = new_tests(base.as_ref(), now.as_ref());
        let is_new: HashSet<&str> = new.iter().map(String::as_str).collect();
        let (mut base_failing, mut base_broken) = split(base);
        let (now_failing, now_broken) = split(now);
        let mut diff = TestRunDiff {
            framework,
            unrun,
            base_counts,
            now_counts,
            newly_failing: Vec::new(),
            failing_unrun_at_base: Vec::new(),
            newly_passing: Vec::new(),
            failing_in_both: Vec::new(),
            not_collected_now: Vec::new(),
            not_collected_at_base: Vec::new(),
            not_run_now: Vec::new(),
            new: Vec::new(),
            new_at_base: None,
            flaky: Vec::new(),
        };
        let unrun_modules: HashSet<String> = base_broken
            .values()
            .flatten()
            .map(|broken| module(&broken.id).to_owned())
            .collect();
        for (key, failures) in now_failing {
            let known = base_failing.remove(&key).map_or(0, |known| known.len());
            for (at, failure) in failures.into_iter().enumerate() {
                let ran_at_base = base_ran
                    && !unrun_modules.contains(module(&failure.id))
                    && !is_new.contains(failure.id.as_str());
                match at < known {
                    true => diff.failing_in_both.push(failure),
                    false if ran_at_base => diff.newly_failing.push(failure),
                    false => diff.failing_unrun_at_base.push(failure),
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
            let is_unrun = unrun.is_some() || diff.not_collected_now.iter().any(in_module);
            match is_unrun {
                true => diff.not_run_now.push(failure.id),
                false => diff.newly_passing.push(failure.id),
            }
        }
        diff.not_collected_at_base = base_broken.into_values().flatten().collect();
        drop(is_new);
        diff.new = new;
        Some(diff)
    }

    /// Takes tests that ended differently in two runs of the same side from the lists of what differs.
    pub fn set_flaky(&mut self, flaky: Vec<String>) {
        let is_flaky = |id: &str| flaky.iter().any(|known| known == id);
        self.newly_failing.retain(|failure| !is_flaky(&failure.id));
        self.newly_passing.retain(|id| !is_flaky(id));
        self.flaky.extend(flaky);
    }

    /// The new tests that do not fail now.
    pub fn new_and_not_failing(&self) -> Vec<String> {
        let failing: HashSet<&str> = (self.failing_unrun_at_base.iter())
            .map(|failure| failure.id.as_str())
            .collect();
        let passing = self.new.iter().filter(|id| !failing.contains(id.as_str()));
        passing.cloned().collect()
    }

    /// Whether a side ran no tests.
    pub(super) fn is_unrun(&self, now: bool) -> bool {
        match self.unrun {
            None => false,
            Some(UnrunSide::Both) => true,
            Some(UnrunSide::Base) => !now,
            Some(UnrunSide::Now) => now,
        }
    }

    /// Whether the lists say why the base failed, and why the run now did.
    pub(super) fn explains(&self) -> (bool, bool) {
        let says = |lists: &[bool]| lists.iter().any(|is_empty| !is_empty);
        let base = says(&[
            self.newly_passing.is_empty(),
            self.failing_in_both.is_empty(),
            self.not_collected_at_base.is_empty(),
            self.not_collected_now.is_empty(),
            self.not_run_now.is_empty(),
        ]);
        let now = says(&[
            self.newly_failing.is_empty(),
            self.failing_unrun_at_base.is_empty(),
            self.failing_in_both.is_empty(),
            self.not_collected_now.is_empty(),
        ]);
        // The names of modules that could not be collected do not say why.
        (base && !self.is_unrun(false), now)
    }

    /// Whether both runs came to the same results.
    pub fn is_empty(&self) -> bool {
        self.unrun.is_none()
            && self.newly_failing.is_empty()
            && self.failing_unrun_at_base.is_empty()
            && self.newly_passing.is_empty()
            && self.not_collected_now.is_empty()
            && self.not_collected_at_base.is_empty()
            && self.not_run_now.is_empty()
            && self.flaky.is_empty()
    }
}

/// Tests of the run now that the base does not have: known where both runners name all of their tests, and not of modules
/// that the base has and could not collect.
fn new_tests(base: Option<&TestRun>, now: Option<&TestRun>) -> Vec<String> {
    let (Some(base), Some(now)) = (base, now) else {
        return Vec::new();
    };
    if base.ran.is_empty() {
        return Vec::new();
    }
    let known: HashSet<&str> = base.ran.iter().map(String::as_str).collect();
    let broken: HashSet<&str> = (base.failures.iter())
        .filter(|failure| is_uncollected(base.framework, failure))
        .map(|failure| failure.id.as_str())
        .collect();
    // A name may hold the time of its run.
    let timeless: HashSet<_> = known.iter().map(|id| times::left_out(id)).collect();
    let is_known = |id: &str| known.contains(id) || timeless.contains(&times::left_out(id));
    let is_new = |id: &&String| !is_known(id) && !broken.contains(module(id));
    let new: Vec<&String> = now.ran.iter().filter(is_new).collect();
    // A test that has parts ends as they do.
    let has_parts = |id: &&String| {
        now.framework == Framework::Go && new.iter().any(|other| is_subtest(other, id))
    };
    new.iter()
        .copied()
        .filter(|id| !has_parts(id))
        .cloned()
        .collect()
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
        // The message of a compiler may stand for several places in several files, and so may the name of a test.
        let is_in_files = failure.kind == FailureKind::Build
            || matches!(run.framework, Framework::Node | Framework::Tap);
        let location = failure.location.as_deref().filter(|_| is_in_files);
        let file = location.and_then(|location| location.rsplit_once(':'));
        let file = file.map_or("", |(path, _)| path);
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

/// Whether no test ran. Without `-v`, go counts packages and not the tests in them that passed.
fn ran_nothing(run: &TestRun) -> bool {
    let is_package = |note: &String| run.framework == Framework::Go && note.ends_with(" ok");
    run.passed + run.failed + run.skipped == 0 && !run.notes.iter().any(is_package)
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
