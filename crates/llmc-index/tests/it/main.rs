//! The index on real files: what it finds, what it shows, and what happens when files change under it.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests make and break files directly"
)]

mod answers;
mod builders;
mod contents;
mod elsewhere;
mod fuzz;
mod graph;
mod languages;
mod meaning;
mod messy;
mod parsing;
mod updates;
mod uses;
mod uses_merged;
mod uses_traits;
mod watching;
mod work;
