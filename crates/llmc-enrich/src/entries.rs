//! Found files and listed directories, the likeliest first.

mod find;
mod ls;

pub use find::condense_find;
pub use ls::condense_ls;

/// Files found by name.
#[derive(Debug, Clone, Default)]
pub struct FoundPaths {
    /// Those that are at hand, at best all of them.
    pub paths: Vec<FoundPath>,
    /// How many there are in all.
    pub total: u64,
    /// How many files were looked at.
    pub files_searched: u64,
    /// How many were not, and why: `(29, "ignored")`.
    pub skipped: Vec<(u64, &'static str)>,
    /// What was searched for: a glob, or a part of a name.
    pub pattern: String,
}

/// A file found by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundPath {
    /// As it is to be shown.
    pub path: String,
    /// Bytes, if known.
    pub size: Option<u64>,
    /// When it last changed, in seconds since 1970, if known.
    pub modified: Option<i64>,
}

/// What an entry of a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListedKind {
    Directory,
    File,
    Link,
    Other,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedEntry {
    /// As it is to be shown, without a mark.
    pub name: String,
    /// What it is.
    pub kind: ListedKind,
    /// Bytes, if known.
    pub size: Option<u64>,
    /// When it last changed, in seconds since 1970, if known.
    pub modified: Option<i64>,
}

/// Tokens left for the remarks.
const REMARK_TOKENS: usize = 60;

/// A size in at most four characters: `980`, `1.2K`, `12K`, `3.4M`.
pub(crate) fn short_size(bytes: u64) -> String {
    if bytes < 1000 {
        return bytes.to_string();
    }
    let mut size = bytes as f64;
    let mut unit = 0;
    while size >= 999.5 && unit < 6 {
        size /= 1024.0;
        unit += 1;
    }
    let letter = ["", "K", "M", "G", "T", "P", "E"][unit];
    if size < 9.95 {
        format!("{size:.1}{letter}")
    } else {
        format!("{size:.0}{letter}")
    }
}

#[cfg(test)]
mod tests;
