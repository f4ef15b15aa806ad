//! Failures with one and the same error, which is shown once.
//!
//! A server that does not answer, or one broken helper, fails many tests alike. The error of the first is enough; of the
//! others the names are.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;

use super::{FailureKind, TestFailure};
use crate::budget::{LineBlock, common_head, names, thousands};

/// Tokens for the names of the other failures, at least and at most.
const NAMES_TOKENS: std::ops::RangeInclusive<usize> = 16..=240;

/// A failure, and those after it that have the same error.
#[derive(Debug)]
pub(crate) struct FailureGroup<'a> {
    first: &'a TestFailure,
    others: Vec<&'a TestFailure>,
}

/// The failures in their order, those with one error together.
pub(crate) fn groups(failures: &[TestFailure]) -> Vec<FailureGroup<'_>> {
    let mut groups: Vec<FailureGroup<'_>> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for failure in failures {
        let at = match error_of(failure) {
            Some(error) => *known.entry(error).or_insert(groups.len()),
            None => groups.len(),
        };
        match groups.get_mut(at) {
            Some(group) => group.others.push(failure),
            None => groups.push(FailureGroup {
                first: failure,
                others: Vec::new(),
            }),
        }
    }
    groups
}

impl<'a> FailureGroup<'a> {
    pub(crate) fn len(&self) -> usize {
        1 + self.others.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = &'a str> {
        let all = std::iter::once(self.first).chain(self.others.iter().copied());
        all.map(|failure| failure.id.as_str())
    }

    /// The failure with its details, most telling first; `name_tokens` are for the names of the others.
    pub(crate) fn block(&self, name_tokens: usize) -> LineBlock<'a> {
        let failure = self.first;
        let label = failure.kind.label();
        let mut first = match &failure.location {
            Some(location) => format!("{label} {} ({location})", failure.id),
            None => format!("{label} {}", failure.id),
        };
        if !self.others.is_empty() {
            let tokens = name_tokens.clamp(*NAMES_TOKENS.start(), *NAMES_TOKENS.end());
            // The first shows what all of them begin with.
            let ids: Vec<&str> = self.ids().collect();
            let head = common_head(&ids).len();
            let ids: Vec<&str> = ids[1..].iter().map(|id| &id[head..]).collect();
            let count = thousands(ids.len() as u64);
            let list = names(&ids, tokens);
            // Writing to a string cannot fail.
            let _ = match list == count {
                true => write!(first, "\n    same error: {count} more"),
                false => write!(first, "\n    same error: {list}"),
            };
        }
        let details = failure.assertion.iter().chain(&failure.message);
        let mut lines: Vec<Cow<'_, str>> = vec![Cow::Owned(first)];
        lines.extend(details.map(|line| Cow::Owned(format!("    {line}"))));
        LineBlock {
            lines,
            dropped: failure.dropped,
        }
    }
}

/// What two failures have in common if their errors are one; nothing where too little is known about it.
fn error_of(failure: &TestFailure) -> Option<String> {
    let is_known = failure.location.is_some() || failure.message.len() > 1;
    let says = failure.assertion.is_some() || !failure.message.is_empty();
    if failure.kind == FailureKind::Build || !is_known || !says {
        return None;
    }
    let mut error = format!("{:?} {:?}\n", failure.kind, failure.location);
    for line in failure.assertion.iter().chain(&failure.message) {
        error.push_str(&without_addresses(line));
        error.push('\n');
    }
    Some(error)
}

/// A line without the addresses of objects, which differ from one to the next.
fn without_addresses(line: &str) -> String {
    let mut parts = line.split("0x");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("0x");
        out.push_str(part.trim_start_matches(|c: char| c.is_ascii_hexdigit()));
    }
    out
}
