//! Says which files cannot hold a match of a pattern, without reading them.
//!
//! A trigram is three successive bytes of a line. A file can match a pattern only if it holds trigrams that every match
//! has; the index stores for each trigram which files hold it. The answer is a set of candidates that always includes
//! every file with a match, and usually few others.
//!
//! The crate owns the trigrams of a text (`extract`) and of a pattern (`query`), the lists of files (`postings`), the files
//! they are stored in (`segment`, `merge`) and the directory of those files (`store`). It must not know the agent's files:
//! a file is a hash of its path and a [`FileIdentity`], and who asks says what the kernel reports now.
//!
//! - [`TrigramQuery`]: what a pattern requires
//! - [`TrigramIndex`]: an opened index; finds files and candidates
//! - [`TrigramWriter`]: adds files, in segments that survive a crash
//!
//! Upper and lower case letters of ASCII are the same here, so that one index serves both kinds of search.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod bits;
mod error;
mod extract;
mod identity;
mod merge;
mod postings;
mod query;
mod segment;
mod store;
mod writer;

pub use error::{Error, Result};
pub use extract::TrigramExtractor;
pub use identity::{FileIdentity, PathHash, SETTLE_TIME};
pub use query::TrigramQuery;
pub use segment::IndexedContent;
pub use store::{DocId, TrigramCandidates, TrigramIndex};
pub use writer::{TrigramWriter, WalkExtent};
