//! The `file_glob` of the search and list tools.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobBuilder, GlobSet};

use crate::error::{Error, Result};

/// A glob over file names, or over relative paths when it holds a `/`.
///
/// `*` and `?` stop at `/`, `**` does not; `{a,b}` and `[a-z]` work. Matching minds case.
#[derive(Clone, Debug)]
pub struct FileGlob {
    // A set of one: unlike a lone matcher it recognises `*.rs` and plain names without running a regex.
    set: GlobSet,
    whole_path: bool,
    ending: Option<String>,
}

impl FileGlob {
    /// Reads a glob. A bare `py` or `.py` means the ending of a name as well as a whole name.
    pub fn new(glob: &str) -> Result<Self> {
        let error = |err: globset::Error| Error::BadGlob {
            glob: glob.to_owned(),
            why: err.kind().to_string(),
        };
        let anchored = glob
            .strip_prefix("./")
            .or(glob.strip_prefix('/'))
            .unwrap_or(glob);
        let parse = |glob: &str| {
            let parsed = GlobBuilder::new(glob).literal_separator(true).build();
            parsed.map_err(error)
        };
        let ending = bare_ending(glob).map(|ending| format!("*.{ending}"));
        let mut globs = vec![parse(anchored)?];
        if let Some(ending) = &ending {
            globs.push(parse(ending)?);
        }
        Ok(Self {
            set: GlobSet::new(globs).map_err(error)?,
            whole_path: glob.contains('/'),
            ending,
        })
    }

    /// The glob that a bare ending was read as, too: `*.py` for `py`.
    pub fn ending(&self) -> Option<&str> {
        self.ending.as_deref()
    }

    /// Whether the file at `path`, relative to the start of the walk, is meant.
    pub fn matches(&self, path: &[u8]) -> bool {
        let text = if self.whole_path {
            path
        } else {
            file_name(path)
        };
        self.set.is_match(Path::new(OsStr::from_bytes(text)))
    }
}

/// `py` of `py` and `.py`: a word without anything that makes a glob, a path or a longer name of it.
fn bare_ending(glob: &str) -> Option<&str> {
    let word = glob.strip_prefix('.').unwrap_or(glob);
    let is_bare = !word.is_empty()
        && word
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '+'));
    is_bare.then_some(word)
}

/// The part of a path behind its last `/`.
pub(crate) fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths() {
        for (glob, path, expected) in [
            ("*.rs", "a.rs", true),
            ("*.rs", "src/deep/a.rs", true),
            ("*.rs", "a.RS", false),
            ("*.{rs,toml}", "x/Cargo.toml", true),
            ("Makefile", "x/Makefile", true),
            ("src/*.rs", "src/a.rs", true),
            ("src/*.rs", "src/deep/a.rs", false),
            ("./src/*.rs", "src/a.rs", true),
            ("/src/*.rs", "src/a.rs", true),
            ("src/*.rs", "other/src/a.rs", false),
            ("src/**/*.rs", "src/deep/er/a.rs", true),
            ("**/b?.txt", "x/y/b1.txt", true),
            ("py", "src/a.py", true),
            (".py", "src/a.py", true),
            ("py", "src/a.pyc", false),
            ("py", "bin/py", true),
            (".gitignore", "src/.gitignore", true),
            ("a.py", "src/a.py.py", false),
            ("[ab].c", "b.c", true),
        ] {
            let found = FileGlob::new(glob).unwrap().matches(path.as_bytes());
            assert_eq!(found, expected, "{glob} on {path}");
        }
        assert!(FileGlob::new("*.c").unwrap().matches(b"x/\xff\xfe.c"));
    }

    #[test]
    fn a_broken_glob_is_named() {
        let err = FileGlob::new("src/[a").unwrap_err().to_string();
        assert!(err.starts_with("invalid pattern: glob `src/[a`: "), "{err}");
    }
}
