//! Searches over the files of a tree, by name and by content.
//!
//! Both give the true number of hits in the whole tree while they keep only as many as the limits allow: those
//! with the smallest paths, in the order of the paths' bytes. So the answer is the same however many threads work on
//! it and in whatever order they reach the files.

mod bounded;
mod by_content;
mod by_name;
mod filter;
mod indexable;
mod matches;
mod pattern;
mod sink;

pub use self::by_content::{
    ContentMatches, ContentOptions, search_content, search_content_filtered,
    search_content_of_file, search_content_watched,
};
pub use self::by_name::{NameMatches, NamePattern, search_files, search_files_watched};
pub use self::filter::ContentFilter;
pub use self::indexable::{IndexableFile, read_indexable};
pub use self::matches::MatchedLine;
pub use self::pattern::{Case, ContentPattern, OutputPattern, PatternSyntax};
