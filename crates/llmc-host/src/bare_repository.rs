//! Repositories without `.git`: a directory that git takes for one when it is started in it, and whose `config` it then obeys.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::rules::{Access, eq_name, git_entry_of_tools};

/// What git looks for to tell whether a directory is a repository's, whatever it is called: a `HEAD`, and beside it
/// `objects` and `refs`, or a `commondir` that leads to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GitDirParts {
    head: bool,
    objects: bool,
    refs: bool,
    commondir: bool,
}

impl GitDirParts {
    /// Takes note of an entry of the directory. Returns whether git looks for that name.
    pub fn add(&mut self, name: &[u8]) -> bool {
        let part = match name {
            _ if eq_name(name, "HEAD") => &mut self.head,
            _ if eq_name(name, "objects") => &mut self.objects,
            _ if eq_name(name, "refs") => &mut self.refs,
            _ if eq_name(name, "commondir") => &mut self.commondir,
            _ => return false,
        };
        *part = true;
        true
    }

    /// Whether git takes a directory with these entries for a repository's.
    pub fn is_git_dir(self) -> bool {
        self.head && (self.commondir || (self.objects && self.refs))
    }

    /// The parts that a directory has right now.
    fn of(dir: &Path) -> GitDirParts {
        let has = |name: &str| dir.join(name).symlink_metadata().is_ok();
        GitDirParts {
            head: has("HEAD"),
            objects: has("objects"),
            refs: has("refs"),
            commondir: has("commondir"),
        }
    }
}

/// What a change would touch in a repository without `.git` (a bare one): what git runs there, or the last part that makes
/// a directory one. Git finds such a directory when it is started in it, so its `config` counts.
pub(crate) fn bare_repository_part(path: &Path, access: Access) -> Option<String> {
    if access == Access::Read {
        return None;
    }
    let parts: Vec<&[u8]> = path
        .components()
        .map(|part| part.as_os_str().as_bytes())
        .collect();
    // What lies in a directory of this name is protected by its own name.
    if parts.iter().any(|part| eq_name(part, ".git")) {
        return None;
    }
    path.ancestors().skip(1).enumerate().find_map(|(at, dir)| {
        let inner = &parts[parts.len() - at - 1..];
        let mut added = GitDirParts::default();
        let is_part = added.add(inner[0]);
        let protected = git_entry_of_tools(inner);
        // Few names count, so few directories are looked at.
        if !is_part && protected.is_none() {
            return None;
        }
        let mut there = GitDirParts::of(dir);
        if there.is_git_dir() {
            return protected.map(|name| format!("git's {name}"));
        }
        there.add(inner[0]);
        let made = there.is_git_dir() && is_part;
        made.then(|| "a git directory, which no tool may make".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_the_parts_of_a_repository_is_one() {
        for (names, is_one) in [
            (&["HEAD", "objects", "refs"][..], true),
            (&["config", "head", "Objects", "REFS"], true),
            (&["HEAD", "commondir"], true),
            (&["HEAD", "objects"], false),
            (&["objects", "refs", "commondir"], false),
            (&[], false),
        ] {
            let mut parts = GitDirParts::default();
            for name in names {
                assert_eq!(parts.add(name.as_bytes()), *name != "config");
            }
            assert_eq!(parts.is_git_dir(), is_one, "{names:?}");
        }
    }
}
