//! The TypeScript compiler: `a.ts(1,7): error TS2322: …`, or `a.ts:1:7 - error TS2322: …` when it prints for people.

use super::{FailureKind, Framework, TestFailure, TestRun};

pub(super) const MARKERS: &[&str] = &["error TS"];

pub(super) fn parse(text: &str) -> Option<TestRun> {
    let mut run = TestRun::new(Framework::Tsc);
    for line in text.lines() {
        if let Some(failure) = error_line(line) {
            run.failures.push(failure);
        } else if let Some(last) = run.failures.last_mut()
            && line.starts_with("  ")
            && !line.trim().trim_matches('~').is_empty()
        {
            last.add_message(line.trim_start());
        }
    }
    (!run.failures.is_empty()).then_some(run)
}

/// One compile error, with its place.
pub(super) fn error_line(line: &str) -> Option<TestFailure> {
    let (at, message) = line.split_once("error TS")?;
    let (code, text) = message.split_once(": ")?;
    if code.is_empty() || !code.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut failure = TestFailure::new(FailureKind::Build, format!("TS{code} {text}"));
    let at = at.trim();
    failure.location = if let Some(at) = at.strip_suffix(" -") {
        Some(super::place(at)?)
    } else if at.is_empty() {
        // An error of the configuration, not of a file.
        None
    } else {
        let (path, rest) = at.strip_suffix("):")?.rsplit_once('(')?;
        let line = rest.split(',').next()?;
        line.parse::<u32>().ok()?;
        Some(format!("{path}:{line}"))
    };
    Some(failure)
}
