//! Splits a file into the units that are found and shown: functions, types, sections, and windows of the rest.
//!
//! Every line belongs to exactly one unit's *own* lines, so nothing is indexed twice or missed. A type with methods spans
//! all of its lines but owns only those outside of them; it is shown whole if it is short and there is room, else its head.
//! Lines outside of definitions (imports, statements, other languages) become windows that end at blank lines where possible.
//! A very long function is split into the functions in it, and windows that keep its name. A declaration is a unit if it has
//! documentation; signatures right before the function that they overload belong to it.

mod code;
mod sections;
mod windows;

use std::borrow::Cow;
use std::time::Duration;

use llmc_syntax::{DefinitionKind, Language, ParseBudget, ParseFailure, SyntaxAnalysis};

/// CPU time for one file; a grammar that takes longer falls back to windows.
pub(crate) const MAX_PARSE_TIME: Duration = Duration::from_millis(1500);
/// Larger sources are mostly tables, and a syntax tree takes eighty times their size in memory.
pub(crate) const MAX_PARSED_BYTES: usize = 2 << 20;
/// Of one file; ids leave room for no more.
pub(crate) const MAX_UNITS: usize = 1 << 16;
/// A longer type or module is shown by its head: what it holds is found by itself.
const MAX_WHOLE_LINES: u32 = 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum UnitKind {
    Function,
    Type,
    Module,
    Section,
    Text,
}

impl UnitKind {
    pub(crate) const ALL: [UnitKind; 5] = [
        Self::Function,
        Self::Type,
        Self::Module,
        Self::Section,
        Self::Text,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Type => "type",
            Self::Module => "module",
            Self::Section => "section",
            Self::Text => "text",
        }
    }
}

/// One unit of a file. Lines count from 1 and include both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) kind: UnitKind,
    /// Empty for windows.
    pub(crate) symbol: String,
    /// The names of the definitions around it, joined by `::`.
    pub(crate) scope: String,
    pub(crate) first: u32,
    pub(crate) last: u32,
    /// The last line of its head, which is shown if the whole does not fit.
    pub(crate) head: u32,
    /// Line ranges that belong to no other unit.
    pub(crate) own: Vec<(u32, u32)>,
    /// Names defined on its own lines: constants, fields, small types.
    pub(crate) names: Vec<String>,
}

/// A definition in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Symbol {
    pub(crate) name: String,
    pub(crate) scope: String,
    pub(crate) kind: DefinitionKind,
    pub(crate) first: u32,
    pub(crate) line: u32,
    pub(crate) last: u32,
}

/// The units, symbols and references of a file.
#[derive(Debug, Default)]
pub(crate) struct FileParts {
    pub(crate) language: Option<Language>,
    pub(crate) units: Vec<Unit>,
    pub(crate) symbols: Vec<Symbol>,
    pub(crate) references: Vec<llmc_syntax::Reference>,
    pub(crate) definitions: Vec<llmc_syntax::Definition>,
    /// Why it was split as plain text although it is in a known language.
    pub(crate) parse_failure: Option<ParseFailure>,
}

/// Splits a text whose language and analysis are known; see [`analyze`].
pub(crate) fn split_analyzed(
    path: &str,
    text: &str,
    language: Option<Language>,
    analysis: Option<Result<SyntaxAnalysis, ParseFailure>>,
) -> FileParts {
    let lines = Lines::new(text);
    let parse_failure = analysis
        .as_ref()
        .and_then(|found| found.as_ref().err().copied());
    if parse_failure == Some(ParseFailure::Crashed) {
        tracing::warn!(
            path,
            "the parser crashed over this file; it is split into windows"
        );
    }
    let mut parts = match (language, analysis) {
        (Some(language), Some(Ok(found))) => from_code(language, found, &lines),
        _ => FileParts {
            units: sections::by_file_name(path, &lines).unwrap_or_else(|| windows::all(&lines)),
            parse_failure,
            ..FileParts::default()
        },
    };
    parts.language = language;
    parts.units.retain(|unit| !unit.own.is_empty());
    parts
        .units
        .sort_by_key(|unit| (unit.first, std::cmp::Reverse(unit.last)));
    parts.units.truncate(MAX_UNITS);
    parts
}

/// Parses a text and splits it, within a limit on the CPU time to parse it.
pub(crate) fn split_within(path: &str, text: &str, parse_time: Duration) -> FileParts {
    let language = Language::detect(path, text);
    let analysis = language.map(|language| analyze(language, text, parse_time));
    split_analyzed(path, text, language, analysis)
}

/// What a text defines and uses.
pub(crate) fn analyze(
    language: Language,
    text: &str,
    parse_time: Duration,
) -> Result<SyntaxAnalysis, ParseFailure> {
    if !can_be_parsed(language, text) {
        return Err(ParseFailure::Declined);
    }
    let mut budget = ParseBudget::new(usize::MAX, parse_time);
    llmc_syntax::analyze(language, text, &mut budget)
}

/// Whether this build parses texts of this language and size.
pub(crate) fn can_be_parsed(language: Language, text: &str) -> bool {
    text.len() <= MAX_PARSED_BYTES && language.has_grammar()
}

fn from_code(language: Language, found: SyntaxAnalysis, lines: &Lines<'_>) -> FileParts {
    let symbols = code::symbols(&found.definitions);
    let units = code::units(language, &found.definitions, &symbols, lines);
    FileParts {
        language: Some(language),
        units,
        symbols,
        references: found.references,
        definitions: found.definitions,
        parse_failure: None,
    }
}

/// A text by its lines, each with its line end.
pub(crate) struct Lines<'a> {
    text: &'a str,
    /// Where each line starts, and the end of the text.
    starts: Cow<'a, [usize]>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self {
            text,
            starts: Cow::Owned(Self::starts_in(text)),
        }
    }

    /// With the result of [`Lines::starts_in`] for that text.
    pub(crate) fn with_starts(text: &'a str, starts: &'a [usize]) -> Self {
        Self {
            text,
            starts: Cow::Borrowed(starts),
        }
    }

    /// Where each line starts, and the end of the text.
    pub(crate) fn starts_in(text: &str) -> Vec<usize> {
        let ends = memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1);
        let mut starts: Vec<usize> = std::iter::once(0).chain(ends).collect();
        if starts.last() != Some(&text.len()) {
            starts.push(text.len());
        }
        starts
    }

    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.starts.len() - 1).unwrap_or(u32::MAX)
    }

    /// Lines `first` to `last`, as far as they exist.
    pub(crate) fn range(&self, first: u32, last: u32) -> &'a str {
        let at = |line: u32| {
            let place = (line as usize).min(self.starts.len() - 1);
            self.starts[place]
        };
        let (start, end) = (at(first.saturating_sub(1)), at(last));
        self.text.get(start..end.max(start)).unwrap_or_default()
    }

    pub(crate) fn trimmed(&self, line: u32) -> &'a str {
        self.range(line, line).trim()
    }

    #[cfg(test)]
    pub(crate) fn text(&self) -> &'a str {
        self.text
    }
}

impl Unit {
    /// The indexed text.
    pub(crate) fn own_text(&self, lines: &Lines<'_>) -> String {
        let mut text = String::new();
        for (first, last) in &self.own {
            text.push_str(lines.range(*first, *last));
        }
        text
    }

    pub(crate) fn qualified(&self) -> String {
        qualified(&self.scope, &self.symbol)
    }

    /// The last line that is shown of it.
    pub(crate) fn shown_last(&self) -> u32 {
        let holds_units = matches!(self.kind, UnitKind::Type | UnitKind::Module);
        match holds_units && self.last - self.first >= MAX_WHOLE_LINES {
            true => self.head,
            false => self.last,
        }
    }
}

pub(crate) fn qualified(scope: &str, name: &str) -> String {
    if scope.is_empty() {
        name.to_owned()
    } else {
        format!("{scope}::{name}")
    }
}

/// Whether a line holds embedded data, such as a picture in a notebook.
fn is_blob(line: &str) -> bool {
    line.len() > 1000
}

#[cfg(test)]
mod tests;
