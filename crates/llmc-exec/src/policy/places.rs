//! Paths in command lines.
//!
//! What a program opens by itself cannot be held by a descriptor, as this crate's own reads are. A path is checked here
//! as it stands, before the program starts; the kernel's boundary is behind that.

use std::path::{Component, Path};

use rustix::fs::{FileType, OFlags};

use llmc_host::Access;
use llmc_host::Error;
use llmc_host::{FinalLink, Roots, file_type, refuse_kernel_file_system};

/// What a program does with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch {
    /// Reads what is in it: nothing that could block or act.
    Content,
    /// Looks at the entry itself.
    Entry,
    /// Git's: a revision or a path.
    Git,
}

/// Where paths are checked.
#[derive(Debug, Clone, Copy)]
pub(super) enum Places<'a> {
    /// On the text alone, for a rule's examples.
    Text,
    /// In the file system, from this directory.
    Real { roots: &'a Roots, cwd: &'a Path },
}

impl Places<'_> {
    /// Why a path may not be used.
    pub(super) fn check(&self, word: &str, touch: Touch) -> Result<(), String> {
        if word.is_empty() && touch != Touch::Git {
            return Err("the path is empty".to_owned());
        }
        if word == "-" {
            return Err("standard input is closed; name a file".to_owned());
        }
        if touch == Touch::Git {
            if let Places::Real { roots, .. } = self {
                check_git_names(roots, word)?;
            }
            // Git's own forms: `:/words`, `:(magic)path`, `:!path`, `:2:path`. None leaves the repository.
            if word.starts_with(':') {
                return Ok(());
            }
        }
        match self {
            Places::Text => {
                if inside(word) {
                    Ok(())
                } else {
                    Err("lies outside the allowed roots".to_owned())
                }
            }
            Places::Real { roots, cwd } => real(roots, cwd, word, touch),
        }
    }

    /// Whether a path is a directory; false where only the text is checked.
    pub(super) fn is_dir(&self, word: &str) -> bool {
        match self {
            Places::Text => false,
            Places::Real { roots, cwd } => {
                let path = cwd.join(word);
                let path = path.to_str().map(|path| roots.is_dir(path));
                matches!(path, Some(Ok(true)))
            }
        }
    }
}

/// Applies the denylist to a word of git's that may name an object: a revision ends at any colon (`HEAD:path`, `:path`,
/// `:0:path`, `:/text:path`, `@{12:00}:path`), so whatever follows one is taken for a path, and the closing bracket of
/// `:(magic)path` too. Too strict for some search texts, never too lenient.
fn check_git_names(roots: &Roots, word: &str) -> Result<(), String> {
    let rules = roots.rules();
    if !rules.denylist_reads() {
        return Ok(());
    }
    let ends = word.match_indices([':', ')']);
    let mut tails = ends.map(|(at, mark)| &word[at + mark.len()..]);
    match tails.any(|path| rules.is_denylisted(Path::new(path))) {
        true => Err(on_denylist()),
        false => Ok(()),
    }
}

fn real(roots: &Roots, cwd: &Path, word: &str, touch: Touch) -> Result<(), String> {
    let joined = cwd.join(word);
    let Some(asked) = joined.to_str() else {
        return Err("the working directory's name is no text".to_owned());
    };
    let last = match touch {
        Touch::Entry => FinalLink::NoFollow,
        Touch::Content | Touch::Git => FinalLink::Follow,
    };
    let path = match roots.resolve(asked, last, Access::Read) {
        Ok(path) => path,
        // A revision such as `main~3` is no path at all.
        Err(Error::BadPath { .. }) if touch == Touch::Git => return Ok(()),
        Err(error) => return missing(error, word),
    };
    let stat = match path.lstat() {
        Ok(stat) => stat,
        Err(error) => return missing(error, word),
    };
    let fd = path.open(OFlags::PATH | OFlags::NOFOLLOW);
    if let Ok(fd) = fd {
        refuse_kernel_file_system(&fd, word).map_err(|_| "is a file of the kernel".to_owned())?;
    }
    match (touch, file_type(&stat)) {
        (Touch::Entry, _) | (_, FileType::RegularFile | FileType::Directory) => Ok(()),
        _ => Err("is neither a file nor a directory".to_owned()),
    }
}

/// What is not there is for the program to report, unless it might be there, and elsewhere, a moment later.
fn missing(error: Error, word: &str) -> Result<(), String> {
    match error {
        Error::NotFound { .. } | Error::NotADirectory { .. } | Error::Permission { .. }
            if inside(word) || !word.contains("..") =>
        {
            Ok(())
        }
        Error::Denylisted { .. } => Err(on_denylist()),
        Error::Protected { what, .. } => Err(format!("{what} is protected")),
        Error::BadPath { why, .. } => Err(why.to_owned()),
        _ => Err("lies outside the allowed roots".to_owned()),
    }
}

fn on_denylist() -> String {
    "its name is on the denylist (mcp.tools.denylist_globs)".to_owned()
}

/// Whether a path stays below where it starts, by its text.
fn inside(word: &str) -> bool {
    let mut depth = 0_usize;
    for part in Path::new(word).components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    true
}
