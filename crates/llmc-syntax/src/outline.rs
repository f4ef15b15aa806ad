//! The definitions of a file as indented lines.

use super::{Definition, Language, ParseBudget, definitions};

/// The definitions of a file, one line each, nested as they are in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileOutline {
    /// `12  fn run(cx: &Cx) -> Result<Answer>`, indented by nesting.
    pub lines: Vec<String>,
    /// Definitions without a line here.
    pub withheld: usize,
}

/// The outline of a source file in at most `max_lines` lines.
pub fn outline(language: Language, source: &str, max_lines: usize) -> FileOutline {
    outline_of(
        &definitions(language, source, &mut ParseBudget::default()),
        max_lines,
    )
}

/// The outline that these definitions make.
///
/// When `max_lines` is too small for all, the most deeply nested are dropped first: the file's structure matters more
/// than its end.
pub(crate) fn outline_of(definitions: &[Definition], max_lines: usize) -> FileOutline {
    let listed: Vec<_> = definitions
        .iter()
        .filter(|definition| !definition.kind.is_member_data())
        .collect();
    let mut deepest = listed.iter().map(|found| found.depth).max().unwrap_or(0);
    let at_most = |depth| listed.iter().filter(|found| found.depth <= depth).count();
    while deepest > 0 && at_most(deepest) > max_lines {
        deepest -= 1;
    }
    let width = listed
        .last()
        .map_or(1, |found| found.line.max(1).ilog10() as usize + 1);
    let lines: Vec<_> = listed
        .iter()
        .filter(|found| found.depth <= deepest)
        .take(max_lines)
        .map(|found| {
            let indent = 2 * found.depth;
            format!("{:width$}  {:indent$}{}", found.line, "", found.signature)
        })
        .collect();
    FileOutline {
        withheld: listed.len() - lines.len(),
        lines,
    }
}
