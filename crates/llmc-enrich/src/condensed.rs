//! The shape every condenser returns, so that one place can turn it into header, body and breadcrumbs.

use crate::excerpt::line_count;

/// What there was in all; only what applies is set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Matches, failures, hunks: whatever the command looks for.
    pub matches: Option<u64>,
    pub lines: Option<u64>,
    pub files: Option<u64>,
    /// In bytes.
    pub size: Option<u64>,
}

/// Lines in the middle of a text that are not shown, while all others are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineGap {
    /// How many lines stand before them.
    pub skip: u64,
    pub count: u64,
}

/// An answer within a token budget, with an account of what it leaves out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Condensed {
    /// What to show; whole lines.
    pub body: String,
    /// Lines for the reader between and after sections, without their `# TE: ` prefix: what was left out, and where.
    pub breadcrumbs: Vec<String>,
    /// What there was.
    pub totals: Totals,
    /// How much of the first total present is shown.
    pub shown: u64,
    /// Whether anything was left out.
    pub truncated: bool,
    /// The place (path) where most of it is.
    pub hot_zone: Option<String>,
    /// What is left out, where it is one run of lines of the whole text.
    pub gap: Option<LineGap>,
}

impl Condensed {
    /// A text that is shown as it is.
    pub fn whole(text: &str) -> Self {
        let lines = line_count(text);
        Self {
            body: text.to_owned(),
            totals: Totals {
                lines: Some(lines),
                size: Some(text.len() as u64),
                ..Totals::default()
            },
            shown: lines,
            ..Self::default()
        }
    }
}
