//! Cuts a file into the units that are found and shown: functions, types, sections, and windows of what is left.
//!
//! Every line belongs to exactly one unit's *own* lines, so nothing is indexed twice and nothing is missed. A type that
//! holds methods spans all of its lines but owns only those outside of them; shown, it is whole if there is room, else
//! its head. What no definition covers (imports, statements, other languages) becomes windows that end at blank lines
//! where they can. A very long function is cut into windows that keep its name.

mod code;
mod sections;
mod windows;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use llmc_syntax::{DefinitionKind, Language, ParseBudget, SyntaxAnalysis};

use crate::{casualties, classify};

/// Processor time for one file; a grammar that loops falls back to windows.
const PARSE_TIME: Duration = Duration::from_millis(1500);
/// Larger sources are tables that nobody reads, and their tree takes eighty times their size in memory.
const PARSED: usize = 2 << 20;
/// Sources from this size on are parsed one at a time.
const LARGE: usize = 256 << 10;
static LARGE_ONE: Mutex<()> = Mutex::new(());
/// Units kept of one file; ids leave room for no more.
pub(crate) const MAX_UNITS: usize = 1 << 16;

/// What a unit is.
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

    /// The word for it in answers.
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
    /// Its name; empty for windows.
    pub(crate) symbol: String,
    /// The names around it, joined by `::`.
    pub(crate) scope: String,
    pub(crate) first: u32,
    pub(crate) last: u32,
    /// The last line of its head: what is shown when the whole does not fit.
    pub(crate) head: u32,
    /// The lines that are its own.
    pub(crate) own: Vec<(u32, u32)>,
    /// Names that come into being on its own lines: constants, fields, small types.
    pub(crate) names: Vec<String>,
}

/// A name that comes into being in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Symbol {
    pub(crate) name: String,
    pub(crate) scope: String,
    pub(crate) kind: DefinitionKind,
    pub(crate) first: u32,
    pub(crate) line: u32,
    pub(crate) last: u32,
}

/// A file, cut.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    pub(crate) language: Option<Language>,
    pub(crate) units: Vec<Unit>,
    pub(crate) symbols: Vec<Symbol>,
    pub(crate) references: Vec<llmc_syntax::Reference>,
    pub(crate) definitions: Vec<llmc_syntax::Definition>,
}

/// Cuts a file.
pub(crate) fn cut(path: &str, text: &str) -> Cut {
    let lines = Lines::new(text);
    let language = Language::detect(path, text);
    let analysis = language.and_then(|language| {
        if text.len() > PARSED {
            return None;
        }
        let _alone =
            (text.len() >= LARGE).then(|| LARGE_ONE.lock().unwrap_or_else(PoisonError::into_inner));
        let mut effort = ParseBudget::new(usize::MAX, PARSE_TIME);
        casualties::named(path, || llmc_syntax::analyze(language, text, &mut effort))
    });
    let mut cut = match (language, analysis) {
        (Some(language), Some(found)) => from_code(language, found, &lines),
        _ => Cut {
            units: sections::by_name(path, &lines).unwrap_or_else(|| windows::all(&lines)),
            ..Cut::default()
        },
    };
    cut.language = language;
    cut.units.retain(|unit| !unit.own.is_empty());
    cut.units
        .sort_by_key(|unit| (unit.first, std::cmp::Reverse(unit.last)));
    cut.units.truncate(MAX_UNITS);
    cut
}

fn from_code(language: Language, found: SyntaxAnalysis, lines: &Lines<'_>) -> Cut {
    let symbols = code::symbols(&found.definitions);
    let units = code::units(language, &found.definitions, &symbols, lines);
    Cut {
        language: Some(language),
        units,
        symbols,
        references: found.references,
        definitions: found.definitions,
    }
}

/// A text by its lines, each with its line end.
pub(crate) struct Lines<'a> {
    text: &'a str,
    /// Where each line starts, and the end of the text.
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let ends = memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1);
        let mut starts: Vec<usize> = std::iter::once(0).chain(ends).collect();
        if starts.last() != Some(&text.len()) {
            starts.push(text.len());
        }
        Self { text, starts }
    }

    /// How many lines there are.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.starts.len() - 1).unwrap_or(u32::MAX)
    }

    /// Lines `first` to `last`, as they are in the file; what lies beyond its end is left out.
    pub(crate) fn range(&self, first: u32, last: u32) -> &'a str {
        let at = |line: u32| {
            let place = (line as usize).min(self.starts.len() - 1);
            self.starts[place]
        };
        let (start, end) = (at(first.saturating_sub(1)), at(last));
        self.text.get(start..end.max(start)).unwrap_or_default()
    }

    /// One line without the white space around it.
    pub(crate) fn trimmed(&self, line: u32) -> &'a str {
        self.range(line, line).trim()
    }

    /// The line that holds a byte.
    #[cfg(test)]
    pub(crate) fn text(&self) -> &'a str {
        self.text
    }
}

impl Unit {
    /// The text that is indexed for it.
    pub(crate) fn own_text(&self, lines: &Lines<'_>) -> String {
        let mut text = String::new();
        for (first, last) in &self.own {
            text.push_str(lines.range(*first, *last));
        }
        text
    }

    /// The name with what is around it.
    pub(crate) fn qualified(&self) -> String {
        qualified(&self.scope, &self.symbol)
    }
}

/// A name with the names around it.
pub(crate) fn qualified(scope: &str, name: &str) -> String {
    if scope.is_empty() {
        name.to_owned()
    } else {
        format!("{scope}::{name}")
    }
}

/// Whether notebooks keep something on this line that is no text.
fn is_blob(line: &str) -> bool {
    line.len() > 1000
}

/// The extension that decides how a file without grammar is cut.
fn extension(path: &str) -> String {
    classify::extension(path)
}

#[cfg(test)]
mod tests;
