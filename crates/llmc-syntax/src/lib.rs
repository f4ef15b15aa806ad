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
//! - [`find_scopes`]: the scopes of a file and what each binds its names to ([`FileScopes`])
//! - [`outline()`]: the definitions as indented lines
//! - [`set_parse_service`], [`parse_here`]: where parsing happens; the program passes every source to a worker process, and
//!   `encoding` is the form in which a worker's answer comes back

mod budget;
mod definitions;
mod encoding;
mod language;
mod names;
mod outline;
mod references;
mod scopes;
mod service;
mod table;
#[cfg(test)]
mod tests;

pub use budget::{ParseBudget, thread_cpu_time};
pub use definitions::{
    Definition, DefinitionKind, SyntaxAnalysis, analyze, definitions, find_definitions, find_scopes,
};
pub use encoding::MAX_ANALYSIS_BYTES;
pub use language::Language;
pub use outline::{FileOutline, outline};
pub use references::{Reference, ReferenceKind};
pub use scopes::{Binding, BindingKind, FileScopes, Receiver, Scope, ScopeKind};
pub use service::{
    ParseFailure, ParseGoal, ParseReply, ParseRequest, ParseService, parse_here, set_parse_service,
};
