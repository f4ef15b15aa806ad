//! `go test`: plain, `-v` and `-json`.
//!
//! Plain output puts a test's lines under its `--- FAIL`, `-v` puts them before it, and both name the package only
//! afterwards. A test that failed only because its subtests did is not counted beside them.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde::Deserialize;

use super::{FailureKind, Framework, TestFailure, TestRun, place, seconds};

/// Lines kept of one test while it is not known whether it fails.
const MAX_KEPT_LINES: usize = 64;

pub(super) const MARKERS: &[&str] = &[
    "--- FAIL", "--- PASS", "--- SKIP", "=== RUN", "=== NAME", "=== CONT", "FAIL\t", "ok  \t",
    ".go:",
];

pub(super) fn parse(text: &str) -> Option<TestRun> {
    let mut reader = GoReader::default();
    for line in text.lines() {
        reader.line(line);
    }
    reader.finish()
}

pub(super) const JSON_MARKERS: &[&str] = &["\"Action\":\""];

/// One line of `go test -json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GoEvent<'a> {
    #[serde(borrow)]
    action: Cow<'a, str>,
    #[serde(borrow, default)]
    package: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    test: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    output: Option<Cow<'a, str>>,
    #[serde(default)]
    elapsed: Option<f64>,
}

pub(super) fn parse_json(text: &str) -> Option<TestRun> {
    let first = text.lines().find(|line| line.starts_with('{'))?;
    if !first.contains(JSON_MARKERS[0]) {
        return None;
    }
    let mut reader = GoReader::default();
    let mut printed: HashMap<(String, String), GoLines> = HashMap::new();
    let mut loose: HashMap<String, GoLines> = HashMap::new();
    let mut events = 0u64;
    for line in text.lines() {
        let Some(event) = line
            .starts_with('{')
            .then(|| serde_json::from_str::<GoEvent<'_>>(line).ok())
            .flatten()
        else {
            reader.build_line(line);
            continue;
        };
        events += 1;
        let package = event.package.unwrap_or_default().into_owned();
        let test = event.test.map(Cow::into_owned);
        match (event.action.as_ref(), test) {
            ("build-output", _) => {
                let output = event.output.unwrap_or_default();
                reader.build_line(output.trim_end());
            }
            ("output", Some(test)) => {
                let output = event.output.unwrap_or_default();
                if !is_frame(output.trim()) {
                    printed
                        .entry((package, test))
                        .or_default()
                        .push(output.trim_end());
                }
            }
            ("output", None) => {
                let output = event.output.unwrap_or_default();
                let line = output.trim_end();
                if line.ends_with(" [build failed]") || line.ends_with(" [setup failed]") {
                    reader.unbuilt.push(package);
                } else if !is_frame(line.trim()) {
                    loose.entry(package).or_default().push(line);
                }
            }
            ("pass", Some(test)) => {
                reader.ran.push(format!("{package} {test}"));
                printed.remove(&(package, test));
                reader.passed += 1;
            }
            ("skip", Some(test)) => {
                reader.ran.push(format!("{package} {test}"));
                printed.remove(&(package, test));
                reader.skipped += 1;
            }
            ("fail", Some(test)) => {
                reader.ran.push(format!("{package} {test}"));
                let key = (package, test);
                let lines = printed.remove(&key).unwrap_or_default();
                reader.fail(&key.1, lines);
            }
            ("pass", None) => reader.close_package(&package, GoResult::Passed, event.elapsed),
            ("fail", None) => {
                let lines = loose.remove(&package).unwrap_or_default();
                // A test that was running when the process crashed never reports.
                let mut running: Vec<_> = printed
                    .keys()
                    .filter(|key| key.0 == package)
                    .cloned()
                    .collect();
                running.sort();
                for key in running {
                    let lines = printed.remove(&key).unwrap_or_default();
                    if lines.died() {
                        reader.fail(&key.1, lines);
                    }
                }
                reader.loose = lines;
                reader.close_package(&package, GoResult::Failed, event.elapsed);
            }
            _ => {}
        }
    }
    if events == 0 {
        return None;
    }
    reader.seen = true;
    reader.finish()
}

/// The first lines of something, and how many more there were.
#[derive(Default)]
struct GoLines {
    kept: Vec<String>,
    dropped: usize,
}

impl GoLines {
    fn push(&mut self, line: &str) {
        if self.kept.len() < MAX_KEPT_LINES {
            self.kept
                .push(super::clip(line, super::MAX_LINE_BYTES).into_owned());
        } else {
            self.dropped += 1;
        }
    }

    fn died(&self) -> bool {
        self.kept
            .iter()
            .any(|l| l.starts_with("panic: ") || l.starts_with("fatal error: "))
    }
}

#[derive(PartialEq, Clone, Copy)]
enum GoResult {
    Passed,
    Failed,
}

#[derive(Default)]
struct GoReader {
    /// Whether any line could only be go's.
    seen: bool,
    /// Failed tests of the package that is being read, with what they printed.
    tests: Vec<(String, GoLines)>,
    /// Lines of `-v` by test, until its verdict.
    running: HashMap<String, GoLines>,
    current: Option<String>,
    /// The failed test whose lines are being read, and the indentation of its `--- FAIL`.
    under: Option<usize>,
    loose: GoLines,
    failures: Vec<TestFailure>,
    build: Vec<TestFailure>,
    /// The package of `# package`, while its compile errors are being read.
    building: Option<String>,
    built_wrong: HashSet<String>,
    unbuilt: Vec<String>,
    /// The names of all tests, where go reports them as JSON.
    ran: Vec<String>,
    passed: u64,
    skipped: u64,
    ok_packages: u64,
    parents: u64,
    duration: Option<std::time::Duration>,
}

impl GoReader {
    fn line(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("=== ") {
            let mut words = rest.split_whitespace();
            if let (Some("RUN" | "CONT" | "NAME" | "PAUSE"), Some(name)) =
                (words.next(), words.next())
            {
                self.seen = true;
                self.under = None;
                self.current = Some(name.to_owned());
                return;
            }
        }
        let bare = line.trim_start_matches(' ');
        if let Some((verdict, name)) = verdict(bare) {
            self.seen = true;
            self.under = None;
            let lines = self.running.remove(name).unwrap_or_default();
            match verdict {
                "PASS" => self.passed += 1,
                "SKIP" => self.skipped += 1,
                _ => {
                    self.fail(name, lines);
                    self.under = Some(self.tests.len() - 1);
                }
            }
            return;
        }
        if self.package_line(line) || self.build_line(line) || is_frame(line) {
            return;
        }
        if let Some(under) = self.under {
            self.tests[under].1.push(line);
        } else if let Some(current) = &self.current {
            self.running.entry(current.clone()).or_default().push(line);
        } else {
            self.loose.push(line);
        }
    }

    fn fail(&mut self, name: &str, lines: GoLines) {
        self.tests.push((name.to_owned(), lines));
    }

    /// `FAIL\tpackage\t0.028s`, `FAIL\tpackage [build failed]`, `ok  \tpackage\t0.008s`.
    fn package_line(&mut self, line: &str) -> bool {
        let Some((verdict, rest)) = line.split_once('\t') else {
            return false;
        };
        let verdict = match verdict.trim_end() {
            "ok" => GoResult::Passed,
            "FAIL" => GoResult::Failed,
            _ => return false,
        };
        let mut words = rest.split_whitespace();
        let Some(package) = words.next() else {
            return false;
        };
        self.seen = true;
        if rest.ends_with(" [build failed]") || rest.ends_with(" [setup failed]") {
            self.unbuilt.push(package.to_owned());
        } else {
            let time = rest.split('\t').nth(1).and_then(seconds);
            self.close_package(package, verdict, time.map(|t| t.as_secs_f64()));
        }
        true
    }

    /// Compile errors stand under `# package`, on stderr and so perhaps far from the package's own line.
    fn build_line(&mut self, line: &str) -> bool {
        if let Some(package) = line
            .strip_prefix("# ")
            .and_then(|rest| rest.split(' ').next())
        {
            self.building = Some(package.to_owned());
            return true;
        }
        let Some(package) = &self.building else {
            return false;
        };
        if let Some((at, message)) = compile_error(line) {
            let mut failure = TestFailure::new(FailureKind::Build, message);
            failure.location = Some(at);
            self.build.push(failure);
            self.built_wrong.insert(package.clone());
            return true;
        }
        if line.starts_with('\t') || line.starts_with("too many errors") {
            if let Some(last) = self.build.last_mut() {
                last.add_message(line.trim());
            }
            return true;
        }
        self.building = None;
        false
    }

    fn close_package(&mut self, package: &str, verdict: GoResult, elapsed: Option<f64>) {
        if let Some(time) = elapsed.and_then(|s| std::time::Duration::try_from_secs_f64(s).ok()) {
            *self.duration.get_or_insert_default() += time;
        }
        self.current = None;
        self.under = None;
        self.running.clear();
        let loose = std::mem::take(&mut self.loose);
        let tests = std::mem::take(&mut self.tests);
        let parents: HashSet<String> = tests
            .iter()
            .flat_map(|(name, _)| name.match_indices('/').map(|(at, _)| name[..at].to_owned()))
            .collect();
        let before = self.failures.len();
        for (name, lines) in &tests {
            if parents.contains(name) && lines.kept.iter().all(|line| line.trim().is_empty()) {
                self.parents += 1;
                continue;
            }
            self.failures.push(failure(
                FailureKind::Failed,
                &format!("{package} {name}"),
                lines,
            ));
        }
        if verdict == GoResult::Passed {
            self.ok_packages += 1;
        } else if self.failures.len() == before && !self.unbuilt.iter().any(|p| p == package) {
            self.failures
                .push(failure(FailureKind::Error, package, &loose));
        }
    }

    fn finish(mut self) -> Option<TestRun> {
        let known = self.seen || !self.unbuilt.is_empty() || !self.build.is_empty();
        if !known {
            return None;
        }
        let mut run = TestRun::new(Framework::Go);
        if !self.tests.is_empty() {
            let cut = std::mem::take(&mut self.tests);
            self.failures.extend(
                cut.iter()
                    .map(|(name, lines)| failure(FailureKind::Failed, name, lines)),
            );
            run.notes
                .push("the last package's result is not in the output".into());
        }
        run.failures = self.build;
        for package in &self.unbuilt {
            if !self.built_wrong.contains(package) {
                run.failures.push(TestFailure::new(
                    FailureKind::Build,
                    format!("{package} did not build"),
                ));
            }
        }
        run.failures.extend(self.failures);
        run.passed = self.passed;
        run.skipped = self.skipped;
        run.ran = self.ran;
        run.duration = self.duration;
        if self.ok_packages > 0 {
            run.notes
                .push(super::plural(self.ok_packages, "package") + " ok");
        }
        if self.parents > 0 {
            let parents = super::plural(self.parents, "test");
            run.notes.push(format!(
                "{parents} failed through subtests only, not counted"
            ));
        }
        Some(run)
    }
}

fn verdict(bare: &str) -> Option<(&str, &str)> {
    let (verdict, rest) = bare.strip_prefix("--- ")?.split_once(": ")?;
    matches!(verdict, "PASS" | "FAIL" | "SKIP").then_some(())?;
    let (name, time) = rest.rsplit_once(" (")?;
    seconds(time.strip_suffix(')')?)?;
    Some((verdict, name))
}

/// Lines with which go frames what tests print.
fn is_frame(line: &str) -> bool {
    matches!(line, "" | "FAIL" | "PASS")
        || line.starts_with("=== ")
        || line.starts_with("ok  \t")
        || line.starts_with("FAIL\t")
        || verdict(line).is_some()
}

/// `./calc/calc.go:3:28: undefined: x`, also after `vet: `.
fn compile_error(line: &str) -> Option<(String, &str)> {
    let line = line.strip_prefix("vet: ").unwrap_or(line);
    if line.starts_with([' ', '\t']) {
        return None;
    }
    let (at, message) = line.split_once(": ")?;
    if !at.contains(".go:") && !at.starts_with("go.mod:") {
        return None;
    }
    Some((place(at)?, message))
}

/// Whether a place is in go's own code for running tests.
fn is_foreign(place: &str) -> bool {
    place.contains("/src/testing/") || place.contains("/src/runtime/")
}

/// What a test printed, with its place: `calc_test.go:7: message`, or for a panic the first frame in its own code.
fn failure(kind: FailureKind, id: &str, lines: &GoLines) -> TestFailure {
    let mut failure = TestFailure::new(kind, id);
    failure.dropped = lines.dropped;
    let panic = lines
        .kept
        .iter()
        .position(|l| l.starts_with("panic: ") || l.starts_with("fatal error: "));
    if let Some(panic) = panic {
        failure.assert(&lines.kept[panic]);
        let frames = lines.kept[panic..]
            .iter()
            .filter_map(|line| line.strip_prefix('\t'));
        let places = frames.filter_map(|frame| place(frame.split(" +0x").next().unwrap_or(frame)));
        failure.location = places
            .filter(|at| !is_foreign(at))
            .find(|at| at.contains(".go:"));
    }
    let own = &lines.kept[..panic.unwrap_or(lines.kept.len())];
    for line in own {
        let line = line.strip_prefix("    ").unwrap_or(line);
        if let Some((at, message)) = line.trim_start().split_once(": ")
            && at.contains(".go:")
            && let Some(at) = place(at)
        {
            if failure.location.is_none() {
                failure.location = Some(at);
                failure.assert(message);
            } else {
                failure.add_message(line.trim_start());
            }
            continue;
        }
        failure.add_message(line);
    }
    if let Some(panic) = panic {
        let trace = &lines.kept[panic + 1..];
        for (i, line) in trace.iter().enumerate() {
            // A frame is its function and, indented, its place.
            let frame = if line.starts_with('\t') {
                Some(line)
            } else {
                trace.get(i + 1)
            };
            let foreign = frame.is_some_and(|at| at.starts_with('\t') && is_foreign(at));
            if !foreign && !line.starts_with("goroutine ") {
                failure.add_message(line);
            }
        }
    }
    failure
}
