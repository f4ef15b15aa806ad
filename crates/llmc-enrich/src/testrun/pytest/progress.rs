//! pytest's progress: `tests/test_a.py ..F.E  [ 12%]`, or with `-v` one line per test.

use super::super::FailureKind;
use super::report::ReportBlock;
use crate::budget::names;

/// Tokens for the files of failures that the output does not name.
const WHEREABOUTS_TOKENS: usize = 80;

#[derive(Default)]
pub(super) struct Progress<'a> {
    /// Ids that the lines of `-v` call failed.
    pub(super) named: Vec<(FailureKind, &'a str)>,
    /// The file of each mark `F` and `E`, in order.
    marked: Vec<(FailureKind, &'a str)>,
    /// Whose marks a line without a name goes on with.
    file: Option<&'a str>,
}

impl<'a> Progress<'a> {
    pub(super) fn line(&mut self, line: &'a str) {
        if let Some(found) = named(line) {
            self.named.push(found);
            return;
        }
        let Some((file, marks)) = marks(line) else {
            return;
        };
        if file.is_some() {
            self.file = file;
        }
        let Some(file) = self.file else { return };
        for mark in marks.bytes() {
            match mark {
                b'F' => self.marked.push((FailureKind::Failed, file)),
                b'E' => self.marked.push((FailureKind::Error, file)),
                _ => {}
            }
        }
    }

    /// The file of each block, where there are as many marks as blocks of its kind: both are in the order of the run.
    pub(super) fn files_of(&self, blocks: &[ReportBlock<'_>]) -> Vec<Option<&'a str>> {
        let mut files = vec![None; blocks.len()];
        for kind in [FailureKind::Failed, FailureKind::Error] {
            let mine = |block: &ReportBlock<'_>| block.kind == kind && !block.is_of_collection();
            let at: Vec<usize> = (0..blocks.len()).filter(|i| mine(&blocks[*i])).collect();
            let marked = self.marked.iter().filter(|(of, _)| *of == kind);
            let marked: Vec<&str> = marked.map(|(_, file)| *file).collect();
            if at.len() == marked.len() {
                for (i, file) in at.into_iter().zip(marked) {
                    files[i] = Some(file);
                }
            }
        }
        files
    }

    /// Which files the failures are in, where the output says nothing else about them.
    pub(super) fn whereabouts(&self) -> Option<String> {
        let mut counts: Vec<(&str, u64)> = Vec::new();
        for (_, file) in &self.marked {
            match counts.iter_mut().find(|(known, _)| known == file) {
                Some((_, count)) => *count += 1,
                None => counts.push((file, 1)),
            }
        }
        let counts: Vec<String> = counts
            .into_iter()
            .map(|(file, count)| format!("{file} ({count})"))
            .collect();
        let counts: Vec<&str> = counts.iter().map(String::as_str).collect();
        let list = names(&counts, WHEREABOUTS_TOKENS);
        (!counts.is_empty()).then(|| format!("failures by file: {list}"))
    }
}

/// `path::Class::test FAILED   [ 22%]`, or `[gw0] [ 22%] FAILED path::test` of several workers.
fn named(line: &str) -> Option<(FailureKind, &str)> {
    if !line.contains("::") {
        return None;
    }
    for (word, kind) in [
        ("FAILED", FailureKind::Failed),
        ("ERROR", FailureKind::Error),
    ] {
        let Some((before, after)) = line.split_once(word) else {
            continue;
        };
        if before.contains("::")
            && before.ends_with(' ')
            && (after.trim().is_empty() || after.starts_with(' '))
        {
            return Some((kind, before.trim()));
        }
        if before.starts_with("[gw") && after.starts_with(' ') {
            return Some((kind, after.trim()));
        }
    }
    None
}

/// The file, where the line names one, and the marks of its tests.
fn marks(line: &str) -> Option<(Option<&str>, &str)> {
    let line = line.trim_end();
    let line = match line.rsplit_once('[') {
        Some((front, end)) if end.ends_with(']') => front.trim_end(),
        _ => line,
    };
    let (file, marks) = match line.rsplit_once(' ') {
        Some((file, marks)) => (Some(file), marks),
        None => (None, line),
    };
    let is_mark = |b: u8| matches!(b, b'.' | b'F' | b'E' | b's' | b'x' | b'X' | b'R' | b'u');
    let is_file = |file: &str| file.contains('.') && !file.contains(char::is_whitespace);
    let is_progress = !marks.is_empty() && marks.bytes().all(is_mark);
    (is_progress && file.is_none_or(is_file)).then_some((file, marks))
}
