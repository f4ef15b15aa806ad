//! Two versions of files as one diff, in bounded memory, with what could not be compared named in it.

use std::borrow::Cow;

use llmc_enrich::diff::unified;
use llmc_enrich::sniff::is_binary;
use llmc_host::{CancelToken, OpenFile};

use crate::error::Result;

/// Files above this many bytes are said to differ, not shown where.
pub(crate) const FILE_LIMIT: u64 = 4 << 20;
/// A diff of this many bytes takes no further hunks.
const DIFF_LIMIT: usize = 16 << 20;
/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// One version of a file.
pub(crate) enum Version {
    /// There is none.
    Absent,
    /// Its bytes.
    Bytes(Vec<u8>),
    /// Too many bytes to look at.
    Large(u64),
}

impl Version {
    /// What a file holds now.
    pub(crate) fn of(file: OpenFile, stop: &CancelToken) -> Result<Version> {
        if file.size() > FILE_LIMIT {
            return Ok(Version::Large(file.size()));
        }
        let limit = usize::try_from(FILE_LIMIT).unwrap_or(usize::MAX);
        Ok(Version::Bytes(file.read_all(limit, stop)?))
    }

    fn size(&self) -> u64 {
        match self {
            Version::Absent => 0,
            Version::Bytes(bytes) => bytes.len() as u64,
            Version::Large(size) => *size,
        }
    }

    fn text(&self) -> Cow<'_, str> {
        match self {
            Version::Bytes(bytes) => String::from_utf8_lossy(bytes),
            _ => Cow::Borrowed(""),
        }
    }
}

/// The first and the last line of the new version in a hunk: `@@ -1,4 +2,5 @@`.
fn new_lines_of(line: &str) -> Option<(u64, u64)> {
    let new = line.strip_prefix("@@ -")?.split(' ').nth(1)?;
    let new = new.strip_prefix('+')?;
    let (first, count) = new.split_once(',').unwrap_or((new, "1"));
    let (first, count): (u64, u64) = (first.parse().ok()?, count.parse().ok()?);
    Some((first, first + count.saturating_sub(1)))
}

/// A diff that grows file by file.
#[derive(Default)]
pub(crate) struct Comparison {
    /// The diff.
    pub(crate) text: String,
    /// Files in it.
    pub(crate) files: u64,
    /// Files whose text is not UTF-8.
    pub(crate) odd: u64,
}

impl Comparison {
    /// Whether the diff still takes hunks.
    pub(crate) fn has_room(&self) -> bool {
        self.text.len() < DIFF_LIMIT
    }

    /// Keeps the hunks that touch these lines of the new version, in a diff of one file.
    pub(crate) fn keep_hunks(&mut self, first: u64, last: u64) {
        let mut kept = String::new();
        let (mut head, mut is_in, mut hunks) = (String::new(), true, 0_u64);
        for line in self.text.split_inclusive('\n') {
            match new_lines_of(line) {
                Some((from, to)) => {
                    is_in = from <= last && first <= to;
                    hunks += u64::from(is_in);
                    if is_in {
                        kept.push_str(line);
                    }
                }
                None if hunks == 0 && is_in => head.push_str(line),
                None if is_in => kept.push_str(line),
                None => {}
            }
        }
        // A diff without hunks says that the files differ, not where.
        let is_without_hunks = !self.text.lines().any(|line| new_lines_of(line).is_some());
        if hunks == 0 && !is_without_hunks {
            self.text.clear();
            self.files = 0;
        } else {
            self.text = head + &kept;
        }
    }

    /// Adds a file that differs, or may; nothing when it does not.
    pub(crate) fn add(&mut self, names: (&str, &str), old: &Version, new: &Version) {
        let side = |name: &str, version: &Version| match version {
            Version::Absent => "/dev/null".to_owned(),
            _ => name.to_owned(),
        };
        let (a, b) = (side(names.0, old), side(names.1, new));
        let sizes = || format!("{} and {} bytes", old.size(), new.size());
        if let (Version::Bytes(old), Version::Bytes(new)) = (old, new)
            && old == new
        {
            return;
        }
        self.files += 1;
        let binary =
            |version: &Version| matches!(version, Version::Bytes(bytes) if is_binary(bytes));
        let line = if matches!(old, Version::Large(_)) || matches!(new, Version::Large(_)) {
            format!(
                "Files {a} and {b} differ ({}, too large to show)\n",
                sizes()
            )
        } else if binary(old) || binary(new) {
            format!("Binary files {a} and {b} differ ({})\n", sizes())
        } else if !self.has_room() {
            format!("Files {a} and {b} differ ({}, no room)\n", sizes())
        } else {
            let (was, is) = (old.text(), new.text());
            self.odd += u64::from(matches!(
                (&was, &is),
                (Cow::Owned(_), _) | (_, Cow::Owned(_))
            ));
            let diff = unified(&a, &was, &b, &is, CONTEXT);
            match diff.is_empty() {
                // An empty file that came or went, or bytes that no text shows.
                true if old.size() + new.size() == 0 => format!("--- {a}\n+++ {b}\n"),
                true => format!("Files {a} and {b} differ ({}, not as text)\n", sizes()),
                false => diff,
            }
        };
        self.text.push_str(&line);
    }
}
