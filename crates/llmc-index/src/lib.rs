//! Finds the lines of a workspace that answer a question, and proves that they are current.
//!
//! The crate owns the index of a workspace: how files are split into units, what is stored about them, how units are
//! ranked, and which symbol uses which. It must not know tools, budgets of a session or the network: vectors of a
//! model come from an [`Embedder`] that the caller gives. It opens the agent's files only through [`llmc_host::Roots`].
//!
//! The three types to know:
//! - [`Index`]: the index of one workspace; updates it, watches the files, answers questions
//! - [`SearchRequest`] and [`SearchAnswer`]: a question, and [`Snippet`]s read from the files for this answer
//! - [`SymbolUses`], [`Lineage`], [`Inspection`]: answers about symbols
//!
//! # Storage
//!
//! A file is split into units (`units`): functions and types with their comments, sections of documents, windows of
//! anything else. Two stores lie side by side in one directory:
//!
//! - `catalog`, in SQLite: files with their hashes, units and symbols with their lines. It is the authority.
//! - `text`, in tantivy: the words of each unit (`words`), the names it uses, and the signs of its vector, 16 bytes. Nothing
//!   else is stored there.
//!
//! **No text is stored anywhere.** Every text in an answer is read from its file for that answer (`source`). A file whose
//! hash differs from the catalogue's is split and scored again on the spot, so lines are right even when the index is
//! behind; a file that changed while the answer was made is named in it.
//!
//! One process of those that serve a workspace keeps the index current (`builder`), and one process writes at a time
//! (`update`, with files made ready by `prepare`, within a `byte_limit`, and sorted by `classify`), under a lock and
//! in steps that survive a kill; any number read. A damaged index, or one of another version, is built again; until then,
//! and where it cannot be written, questions are answered from the files themselves (`live`). A source over which its parser
//! crashes is split into windows and named in the statistics. `watch` follows the files while a server runs. `contents` keeps
//! the trigrams of all files in the same walk, for searches by content.
//!
//! # Questions
//!
//! A `question` becomes candidates (`search`), by BM25 over names, paths and text (`bm25` computes it for units that
//! tantivy does not hold), by the table of `word_vectors` in the executable, by the places that a `stack_trace` names, and by
//! what it quotes (`quotes`); of a long question the `passages` are weighed. `rank` orders candidates by their `features`
//! and documents what a score means; `vectors` adds units that are near in meaning, where there is an embedder; `snippet`
//! distributes the token budget; `decimals` formats scores. Questions about symbols are answered by `symbols` (which definition a name means),
//! `uses` (where it is used), `resolve` (how sure that is), `graph`, `inspect` and `plan`.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod bm25;
mod builder;
mod byte_limit;
mod catalog;
mod classify;
mod contents;
mod decimals;
mod doc_links;
mod elsewhere;
mod error;
mod features;
mod graph;
mod index;
mod infer;
mod inspect;
mod live;
mod locate;
mod meaning;
mod modules;
mod name_table;
mod passages;
mod plan;
mod prepare;
mod progress;
mod question;
mod quotes;
mod rank;
mod resolve;
mod search;
mod snippet;
mod source;
mod stack_trace;
mod stats;
mod symbols;
mod text;
mod units;
mod update;
mod uses;
mod vectors;
mod watch;
mod word_vectors;
mod words;

pub use decimals::three_decimals;
pub use elsewhere::{OtherDefinition, UsesElsewhere};
pub use error::{Error, Result};
pub use graph::{
    Lineage, LineageDirection, LineageNode, RelatedSymbol, SnippetNeighbours, SymbolUses, UseSite,
};
pub use index::{Index, IndexState};
pub use inspect::Inspection;
pub use locate::DefinitionPlace;
pub use plan::{ReadingPlan, ReadingStep};
pub use progress::{IndexProgress, IndexedShare};
pub use search::{SearchAnswer, SearchRequest, SearchScope};
pub use snippet::{OmittedHits, Snippet};
pub use stats::IndexStats;
pub use update::UpdateReport;
pub use vectors::Embedder;
