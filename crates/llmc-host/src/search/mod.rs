//! Searches over the files of a tree, by name and by content.
//!
//! Both give the true number of hits in the whole tree while they keep only as many as the caller has room for: those
//! with the smallest paths, in the order of the paths' bytes. So the answer is the same however many threads work on
//! it and whatever order they come across the files in.

mod content;
mod hits;
mod names;
mod pattern;
mod sink;

pub use self::content::{ContentFound, ContentOptions, search_content, search_content_of_file};
pub use self::hits::{Densest, Hit};
pub use self::names::{NamePattern, NamesFound, search_files};
pub use self::pattern::{Case, ContentPattern, OutputPattern, Syntax};
