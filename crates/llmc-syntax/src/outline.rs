//! What a file defines, at a glance.

use super::{Definition, Effort, Language, definitions};

/// The definitions of a file, one line each, nested as they are in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outline {
    /// `12  fn run(cx: &Cx) -> Result<Answer>`, indented by nesting.
    pub lines: Vec<String>,
    /// How many definitions there are that have no line.
    pub withheld: usize,
}

/// The outline of a source file in at most `max_lines` lines.
pub fn outline(language: Language, source: &str, max_lines: usize) -> Outline {
    outline_of(
        &definitions(language, source, &mut Effort::default()),
        max_lines,
    )
}

/// The outline that these definitions make.
///
/// When there is no room for all, what is nested deepest goes first: the shape of the file matters more than its end.
pub fn outline_of(definitions: &[Definition], max_lines: usize) -> Outline {
    let told: Vec<_> = definitions
        .iter()
        .filter(|definition| !definition.kind.is_member_data())
        .collect();
    let mut deepest = told.iter().map(|found| found.depth).max().unwrap_or(0);
    let at_most = |depth| told.iter().filter(|found| found.depth <= depth).count();
    while deepest > 0 && at_most(deepest) > max_lines {
        deepest -= 1;
    }
    let width = told
        .last()
        .map_or(1, |found| found.line.max(1).ilog10() as usize + 1);
    let lines: Vec<_> = told
        .iter()
        .filter(|found| found.depth <= deepest)
        .take(max_lines)
        .map(|found| {
            let indent = 2 * found.depth;
            format!("{:width$}  {:indent$}{}", found.line, "", found.signature)
        })
        .collect();
    Outline {
        withheld: told.len() - lines.len(),
        lines,
    }
}
