//! `cargo nextest`: one line of status per test, under a failed one what it printed, and a summary that names it again.

use std::collections::HashMap;

use super::cargo::{Compile, Output};
use super::{FailureKind, Framework, TestFailure, TestRun, counted, seconds};

pub(super) const MARKERS: &[&str] = &["Nextest run", " tests run: ", " test run: "];

pub(super) fn parse(text: &str) -> Option<TestRun> {
    let mut run = TestRun::new(Framework::Nextest);
    let mut compile = Compile::default();
    let mut known: HashMap<&str, TestFailure> = HashMap::new();
    let mut order = Vec::new();
    let mut open: Option<(&str, Output<'_>)> = None;
    let mut summary = false;
    for line in text.lines() {
        if let Some((status, id)) = status_line(line) {
            describe(&mut known, open.take());
            if status.ends_with("PASS") || status.ends_with("SLOW") || status.ends_with("LEAK") {
                known.remove(id);
            } else if status.ends_with("SKIP") || status == "START" || status.ends_with("RETRY") {
            } else if !known.contains_key(id) {
                let mut failure = TestFailure::new(FailureKind::Failed, id);
                if !status.ends_with("FAIL") {
                    failure.add_message(status);
                }
                known.insert(id, failure);
                order.push(id);
                open = Some((id, Output::default()));
            } else {
                open = Some((id, Output::default()));
            }
        } else if let Some(rest) = line.trim_start().strip_prefix("Summary [") {
            describe(&mut known, open.take());
            summary |= totals(&mut run, rest);
        } else if let Some((id, output)) = &mut open {
            let test = id.rsplit_once(' ').map_or(*id, |(_, test)| test);
            if let Some(line) = printed(line, test) {
                output.line(line);
            }
        } else {
            compile.line(line);
        }
    }
    describe(&mut known, open);
    if !summary {
        if known.is_empty() {
            return None;
        }
        run.notes
            .push("the summary is missing: counts are of what the output shows".into());
    }
    run.failures = compile.finish(true);
    let found = order.into_iter().filter_map(|id| known.remove(id));
    run.failures.extend(found);
    Some(run)
}

fn describe(known: &mut HashMap<&str, TestFailure>, open: Option<(&str, Output<'_>)>) {
    if let Some((id, output)) = open
        && let Some(failure) = known.get_mut(id)
        && failure.assertion.is_none()
    {
        let test = id.rsplit_once(' ').map_or(id, |(_, test)| test);
        output.describe(test, failure);
    }
}

/// `FAIL [   0.166s] (2/7) crate::binary module::test` as `FAIL` and `crate::binary module::test`.
fn status_line(line: &str) -> Option<(&str, &str)> {
    let (status, rest) = line.trim_start().split_once(" [")?;
    let word =
        |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || matches!(b, b' ' | b'-' | b'+');
    if !status.bytes().all(word) || !status.starts_with(|c: char| c.is_ascii_uppercase()) {
        return None;
    }
    let (time, rest) = rest.split_once("] ")?;
    seconds(time.trim_start_matches('>'))?;
    let rest = rest.trim_start();
    let rest = match rest
        .strip_prefix('(')
        .and_then(|rest| rest.split_once(") "))
    {
        Some((_, rest)) => rest,
        None => rest,
    };
    rest.contains(' ').then(|| (status.trim(), rest.trim()))
}

/// What the test itself printed: nextest indents it, and libtest puts its own words around it.
fn printed<'a>(line: &'a str, test: &str) -> Option<&'a str> {
    let line = line.strip_prefix("    ").unwrap_or(line);
    let frame = line.starts_with("running 1 test")
        || line.starts_with("failures:")
        || line.starts_with("test result: ")
        || line.starts_with("---- ")
        || line.ends_with("───")
        || line.starts_with("--- STD")
        || line.trim() == test
        || (line.starts_with("test ") && line.ends_with(" ... FAILED"));
    (!frame).then_some(line)
}

/// `0.380s] 7 tests run: 1 passed (1 slow), 6 failed, 1 skipped`.
fn totals(run: &mut TestRun, rest: &str) -> bool {
    let Some((time, rest)) = rest.split_once(']') else {
        return false;
    };
    run.duration = seconds(time);
    let Some((_, counts)) = rest.split_once("run: ") else {
        return false;
    };
    for part in counts.split(", ") {
        match counted(part) {
            Some((n, what)) if what.starts_with("passed") => run.passed = n,
            Some((n, what)) if what.starts_with("skipped") => run.skipped = n,
            Some((n, what))
                if ["failed", "timed out", "exec failed"]
                    .iter()
                    .any(|w| what.starts_with(w)) =>
            {
                run.failed += n;
            }
            _ => {}
        }
    }
    true
}
