//! Finds the right lines of a workspace, and proves that they are current.
//!
//! # How it is made
//!
//! A file is cut into units (`units`): functions and types with their comments, sections of documents, windows of
//! anything else. Two stores hold what is known of them, side by side in one directory:
//!
//! - `catalog`, in SQLite: files with their hashes, units and symbols with their lines. It is the authority.
//! - `text`, in tantivy: the words of each unit (`words`), and the names it uses. Nothing else is stored there.
//!
//! **No text is stored anywhere.** Whatever an answer shows was read from the file for that answer (`source`). A file
//! whose hash differs from the catalogue's is cut and scored again on the spot, so lines are right even when the index
//! is behind; a file that changed while the answer was made is named in it.
//!
//! One process writes at a time (`update`), under a lock and in steps that survive a kill; any number read. A damaged
//! index, or one of another version, is built again; until then, and wherever it cannot be written, questions are
//! answered from the files themselves (`live`). A source that parsers die on is left unparsed (`casualties`). `watch` follows the files while a server runs.
//!
//! A question (`query`) becomes candidates (`search`), by BM25 over names, paths and text, and by the places that a stack
//! trace names (`trace`); `rank` orders them by what
//! BM25 cannot see, and documents what a score means; `vectors` adds what is near in meaning, where somebody provides
//! vectors; `snippet` deals out the token budget; `decimals` says how scores are written. Questions about symbols are
//! answered by `symbols` (which definition is meant), `uses` (who uses it), `resolve` (how sure that is), `graph`,
//! `inspect` and `plan`.
//!
//! Nothing in here opens one of the agent's files but through [`llmc_host::Roots`].
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod casualties;
mod catalog;
mod classify;
mod decimals;
mod error;
mod graph;
mod index;
mod inspect;
mod live;
mod plan;
mod prepare;
mod progress;
mod query;
mod rank;
mod resolve;
mod score;
mod search;
mod snippet;
mod source;
mod stats;
mod symbols;
mod text;
mod trace;
mod units;
mod update;
mod uses;
mod vectors;
mod watch;
mod words;

pub use classify::{Passed, Realm};
pub use decimals::three_decimals;
pub use error::{Error, Result};
pub use graph::{Direction, Lineage, Near, Node, Related, UseSite, WhereUsed};
pub use index::{Index, State};
pub use inspect::Inspected;
pub use plan::{Plan, Step};
pub use progress::Progress;
pub use search::{Answer, Request, Scope};
pub use snippet::{LeftOut, Snippet};
pub use stats::Stats;
pub use update::Updated;
pub use vectors::Embedder;
