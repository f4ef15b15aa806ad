//! Definitions and references of a source file, by its tree-sitter syntax tree.
//!
//! Owns the grammars and the tables that give their nodes a meaning. Must not know files, indexes or answers: everything
//! is a pure function of the source text. A grammar and its table are loaded when a file of that language is first read,
//! so a search in one language never pays for another.
//!
//! The three types to know: [`Language`] is detected from path and content; [`Definition`] is a name with its lines and
//! signature; [`ParseBudget`] bounds the work. A source that does not parse within the budget has no definitions, which
//! is not an error, since its text can still be shown.
//!
//! - [`definitions`], [`analyze`]: what a file defines, and also which names it uses ([`Reference`])
//! - [`outline()`]: the definitions as indented lines
//! - [`set_parse_gate`]: a hook around every parse, for the crash log

mod definitions;
mod language;
mod names;
mod outline;
mod parse_gate;
mod references;
mod table;
#[cfg(test)]
mod tests;

pub use definitions::{
    Definition, DefinitionKind, ParseBudget, SyntaxAnalysis, analyze, definitions, thread_cpu_time,
};
pub use language::Language;
pub use outline::{FileOutline, outline};
pub use parse_gate::set_parse_gate;
pub use references::{Reference, ReferenceKind};
