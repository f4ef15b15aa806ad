//! Judges by content what a command left in a git directory, before it is placed in the user's.
//!
//! Names are not enough: `config` holds the address of a remote as well as programs that git runs. Here are only functions
//! from bytes to a verdict; nothing reads or writes files. What is unchanged stays, what is on a list of the harmless is
//! taken, and everything else stays out.
//!
//! - `config`: settings, one by one (`config_text` reads them, `config_keys` is the list, `addresses` judges values)
//! - `operations`: the state of an unfinished rebase, `am`, cherry-pick or revert
//! - `pointers`: files that lead git to other directories
//! - `attributes`: `info/attributes`
//! - `index`: the files that a checkout writes
//! - `refs`: branches of submodules and working trees whose names look like protected ones

mod addresses;
mod attributes;
mod config;
mod config_keys;
mod config_text;
mod index;
mod operations;
mod pointers;
mod refs;
#[cfg(test)]
mod test_support;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use llmc_host::protected_git_entry;

pub(crate) use pointers::dot_git_target;

/// Where a git directory lies, for values that are paths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VetPlace<'a> {
    /// The git directory: absolute, free of links and dots.
    pub(crate) git_dir: &'a Path,
    /// Directories below which paths in values may lead: roots, and repositories that the user's own pointers name.
    /// Absolute, free of links and dots.
    pub(crate) allowed: &'a [PathBuf],
    /// Length of an object's name in the repository that the file belongs to.
    pub(crate) hash_bytes: usize,
}

/// One thing of a file that stays out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// Relative to the git directory, for example `config`.
    pub(crate) file: String,
    /// The key, the verb or the line.
    pub(crate) item: String,
    pub(crate) reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Taken as it is.
    Harmless,
    /// Taken without what is harmful: this text instead.
    Filtered {
        content: Vec<u8>,
        rejected: Vec<Rejection>,
    },
    /// Nothing of it is taken.
    Refused(Vec<Rejection>),
}

/// Judges what would be placed at `parts`, the path below the git directory. `before` is what the host has there now.
pub(crate) fn vet_file(
    parts: &[&[u8]],
    new: &[u8],
    before: Option<&[u8]>,
    place: &VetPlace<'_>,
) -> Verdict {
    if before == Some(new) {
        return Verdict::Harmless;
    }
    let Some(file) = JudgedFile::locate(parts, place.git_dir) else {
        return Verdict::Harmless;
    };
    if file.area == Area::Refs && refs::is_harmless_as(file.kind, new) {
        return Verdict::Harmless;
    }
    match file.kind {
        FileKind::Config => config::vet_config(&file, new, before, place),
        FileKind::Attributes => attributes::vet_attributes(&file, new, before),
        FileKind::Operation { dir, name } => {
            operations::vet_operation(&file, dir, name, new, before)
        }
        FileKind::CommonDir => pointers::vet_common_dir(&file, new),
        FileKind::GitDir => pointers::vet_git_dir(&file, new, place),
        FileKind::Alternates => pointers::vet_alternates(&file, new, before, place),
        FileKind::HttpAlternates => file.refused("the file", "leads to objects on another host"),
        FileKind::OldRemote => file.refused(
            "the file",
            "names an address in a form that git no longer writes; `git remote add` makes a remote",
        ),
        FileKind::Index => index::vet_index(&file, new, place.hash_bytes),
        FileKind::Hook { name } if is_sample(name) && before.is_none() => Verdict::Harmless,
        FileKind::Hook { .. } => file.refused("the file", "hooks run programs"),
        FileKind::Misplaced => file.refused("the file", "git puts no such file there"),
    }
}

/// Whether a file needs judgement at all; others are taken as they are, unread.
pub(crate) fn is_judged(parts: &[&[u8]]) -> bool {
    let (_, depth) = holder_of(parts);
    let kind = parts.get(depth..).and_then(kind_of);
    protected_git_entry(parts).is_some()
        || matches!(kind, Some(FileKind::Index | FileKind::OldRemote))
}

/// Whether a file is an index, or the part that several share.
pub(crate) fn is_index(parts: &[&[u8]]) -> bool {
    let (_, depth) = holder_of(parts);
    matches!(parts.get(depth..).and_then(kind_of), Some(FileKind::Index))
}

/// Why the deletion of a judged file is not carried out on the host; `None` if it is.
pub(crate) fn vet_deletion(parts: &[&[u8]]) -> Option<Rejection> {
    let file = JudgedFile::locate(parts, Path::new("/"))?;
    if file.holder == Holder::Worktree || file.area == Area::Refs {
        return None;
    }
    let reason = match file.kind {
        FileKind::Config => "the configuration is not deleted",
        FileKind::Hook { name } if !is_sample(name) => "hooks are not deleted",
        FileKind::CommonDir | FileKind::GitDir => "leads git to other directories",
        FileKind::Misplaced => "git puts no such file there",
        FileKind::Hook { .. }
        | FileKind::Index
        | FileKind::OldRemote
        | FileKind::Operation { .. }
        | FileKind::Attributes
        | FileKind::Alternates
        | FileKind::HttpAlternates => return None,
    };
    Some(file.rejection("the file", reason))
}

/// How a configuration says that names of objects are made.
pub(crate) fn object_format(config: &[u8]) -> Option<Vec<u8>> {
    let lines = config_text::parse(config).ok()?;
    let formats = config_text::entries(&lines).filter(|entry| {
        let key = &entry.key;
        key.section == "extensions" && key.subsection.is_none() && key.name == "objectformat"
    });
    formats.last()?.value.clone()
}

/// Further parts of one file that stay out are not listed.
const MAX_REJECTIONS: usize = 100;
/// Longest part of a file that a rejection repeats.
const MAX_ITEM_CHARS: usize = 200;

/// Which git directory a file belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// The repository itself.
    Repository,
    /// A submodule, in `modules`.
    Module,
    /// A working tree's private directory, in `worktrees`.
    Worktree,
}

/// Whether a file may be a branch or its log: below `modules`, a name alone does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Area {
    Refs,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileKind<'a> {
    Config,
    Attributes,
    Operation {
        dir: operations::OperationDir,
        name: &'a [u8],
    },
    CommonDir,
    GitDir,
    Alternates,
    HttpAlternates,
    Index,
    /// An address in `remotes` or `branches`, as git wrote before it had a configuration.
    OldRemote,
    Hook {
        name: &'a [u8],
    },
    Misplaced,
}

/// A file that is judged, and where it lies.
#[derive(Debug)]
struct JudgedFile<'a> {
    label: String,
    kind: FileKind<'a>,
    holder: Holder,
    area: Area,
    /// The directory that the file configures: the git directory, or one in `modules` or `worktrees`. Absolute.
    own_dir: PathBuf,
}

impl<'a> JudgedFile<'a> {
    fn locate(parts: &[&'a [u8]], git_dir: &Path) -> Option<JudgedFile<'a>> {
        if !is_judged(parts) {
            return None;
        }
        let (holder, depth) = holder_of(parts);
        let kind = parts.get(depth..).and_then(kind_of);
        let nested = if holder == Holder::Repository { 0 } else { 2 };
        let is_ref = |part: &&[u8]| is_named(part, "refs") || is_named(part, "logs");
        let in_refs = nested > 0 && parts.iter().skip(nested).any(is_ref);
        let mut own_dir = git_dir.to_path_buf();
        own_dir.extend(parts.iter().take(depth).map(|part| OsStr::from_bytes(part)));
        Some(JudgedFile {
            label: shortened(&parts.join(&b'/')),
            kind: kind.unwrap_or(FileKind::Misplaced),
            holder,
            area: if in_refs { Area::Refs } else { Area::Other },
            own_dir,
        })
    }

    fn rejection(&self, item: impl Into<String>, reason: &'static str) -> Rejection {
        Rejection {
            file: self.label.clone(),
            item: item.into(),
            reason,
        }
    }

    fn refused(&self, item: impl Into<String>, reason: &'static str) -> Verdict {
        Verdict::Refused(vec![self.rejection(item, reason)])
    }

    /// A verdict on a file of which each part is either harmless or not.
    fn refused_unless(&self, is_harmless: bool, item: &[u8], reason: &'static str) -> Verdict {
        match is_harmless {
            true => Verdict::Harmless,
            false => self.refused(shortened(item), reason),
        }
    }
}

/// Which git directory a path leads into, and how many of its parts name that directory.
fn holder_of(parts: &[&[u8]]) -> (Holder, usize) {
    let is_at = |at: usize, name| parts.get(at).is_some_and(|part| is_named(part, name));
    if is_at(0, "worktrees") {
        return (Holder::Worktree, 2);
    }
    if !is_at(0, "modules") {
        return (Holder::Repository, 0);
    }
    // A submodule's name may have slashes: its directory ends where a name begins that git has in each git directory.
    for at in 2..parts.len() {
        let has_kind = |at: usize| parts.get(at..).and_then(kind_of).is_some();
        if is_at(at, "worktrees") && has_kind(at + 2) {
            return (Holder::Worktree, at + 2);
        }
        if has_kind(at) {
            return (Holder::Module, at);
        }
    }
    (Holder::Module, parts.len())
}

/// Whether a git directory is a submodule's, which lies in the one of the repository around it.
fn is_module(git_dir: &Path) -> bool {
    let names: Vec<&[u8]> = git_dir.iter().map(OsStrExt::as_bytes).collect();
    names
        .windows(2)
        .any(|pair| is_named(pair[0], ".git") && is_named(pair[1], "modules"))
}

/// What a file is, by its path below the git directory that it belongs to.
fn kind_of<'a>(inner: &[&'a [u8]]) -> Option<FileKind<'a>> {
    let lower: Vec<Vec<u8>> = inner.iter().map(|part| part.to_ascii_lowercase()).collect();
    let names: Vec<&[u8]> = lower.iter().map(Vec::as_slice).collect();
    match names.as_slice() {
        [b"config"] | [b"config.worktree"] => Some(FileKind::Config),
        [b"commondir"] => Some(FileKind::CommonDir),
        [b"gitdir"] => Some(FileKind::GitDir),
        [b"info", b"attributes"] => Some(FileKind::Attributes),
        [b"objects", b"info", b"alternates"] => Some(FileKind::Alternates),
        [b"objects", b"info", b"http-alternates"] => Some(FileKind::HttpAlternates),
        [name] if *name == b"index" || name.starts_with(b"sharedindex.") => Some(FileKind::Index),
        [b"remotes" | b"branches", _] => Some(FileKind::OldRemote),
        [b"hooks", ..] => inner.last().map(|name| FileKind::Hook { name }),
        [dir, _] => {
            let dir = operations::OperationDir::from_name(dir)?;
            inner.last().map(|name| FileKind::Operation { dir, name })
        }
        _ => None,
    }
}

/// Samples do not run: git looks for hooks by their exact names.
fn is_sample(name: &[u8]) -> bool {
    name.ends_with(b".sample")
}

fn is_named(part: &[u8], name: &str) -> bool {
    part.eq_ignore_ascii_case(name.as_bytes())
}

/// Text for a rejection: printable and of bounded length.
fn shortened(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let mut out: String = text
        .chars()
        .take(MAX_ITEM_CHARS)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(MAX_ITEM_CHARS).is_some() {
        out.push('…');
    }
    out
}

/// Whether a text is free of control characters.
fn is_printable(text: &[u8]) -> bool {
    !text.iter().any(u8::is_ascii_control)
}

/// The lines of a text without their ends.
fn lines_of(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    text.split(|byte| *byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::test_support::{parts_of, vet};
    use super::*;

    #[test]
    fn files_that_git_obeys_are_judged() {
        for path in [
            "config",
            "CONFIG",
            "config.worktree",
            "commondir",
            "gitdir",
            "hooks/pre-commit",
            "hooks/deep/er",
            "rebase-merge/done",
            "rebase-apply",
            "sequencer/todo",
            "info/attributes",
            "objects/info/alternates",
            "objects/info/http-alternates",
            "remotes/origin",
            "branches/origin",
            "modules/a/branches/origin",
            "worktrees/w/gitdir",
            "worktrees/w/rebase-merge/done",
            "modules/a/b/config",
            "modules/a/worktrees/w/commondir",
        ] {
            assert!(is_judged(&parts_of(path)), "{path}");
        }
        for path in [
            "HEAD",
            "refs/heads/config",
            "refs/heads/index",
            "logs/refs/heads/hooks/x",
            "objects/ab/config",
            "info/exclude",
            "modules/a/HEAD",
            "worktrees/w/HEAD",
        ] {
            assert!(!is_judged(&parts_of(path)), "{path}");
            assert_eq!(vet(path, "anything", None), Verdict::Harmless, "{path}");
        }
    }

    #[test]
    fn a_hook_is_taken_when_it_is_unchanged_or_a_sample() {
        assert_eq!(
            vet("hooks/pre-commit", "#!/bin/sh\n", Some("#!/bin/sh\n")),
            Verdict::Harmless
        );
        assert_eq!(vet("hooks/pre-commit.sample", "x", None), Verdict::Harmless);
        assert!(matches!(
            vet("hooks/x.sample", "x", Some("y")),
            Verdict::Refused(_)
        ));
        for path in [
            "hooks/pre-commit",
            "Hooks/x",
            "hooks",
            "modules/a/hooks/x",
            "modules/a/logs/hooks/x",
            "modules/a/hooks/refs/x",
            "modules/hooks/hooks/config",
            "worktrees/w/hooks/x",
        ] {
            assert!(
                matches!(vet(path, "x", None), Verdict::Refused(_)),
                "{path}"
            );
        }
    }

    #[test]
    fn a_file_where_git_has_none_is_refused() {
        for path in [
            "other/config",
            "config/x",
            "rebase-merge",
            "rebase-other/done",
            "sequencer/deep/todo",
            "worktrees/config",
            "modules/config",
            "modules/a/refs/config",
        ] {
            let text = "[user]\n\tname = a\n\tuseConfigOnly = maybe\n";
            assert!(
                matches!(
                    vet(path, text, None),
                    Verdict::Refused(_) | Verdict::Filtered { .. }
                ),
                "{path}"
            );
        }
    }

    #[test]
    fn branches_of_submodules_may_have_protected_names() {
        let id = "0123456789012345678901234567890123456789\n";
        let log = "0123456789012345678901234567890123456789 0123456789012345678901234567890123456789 A <a@b> 1 +0000\tx\n";
        for (path, text) in [
            ("modules/a/refs/heads/rebase-later", id),
            ("modules/a/refs/heads/config", "ref: refs/heads/main\n"),
            ("modules/a/logs/refs/heads/rebase-later", log),
            ("worktrees/w/refs/worktree/config", id),
        ] {
            assert_eq!(vet(path, text, None), Verdict::Harmless, "{path}");
            let crafted = "[core]\n\tpager = evil\n";
            assert!(
                matches!(vet(path, crafted, None), Verdict::Refused(_)),
                "{path}"
            );
        }
    }

    #[test]
    fn deletions_keep_the_hosts_configuration_and_hooks() {
        for path in [
            "config",
            "config.worktree",
            "hooks/pre-commit",
            "commondir",
            "modules/a/config",
        ] {
            assert!(vet_deletion(&parts_of(path)).is_some(), "{path}");
        }
        for path in [
            "rebase-merge/done",
            "sequencer/todo",
            "worktrees/w/config.worktree",
            "worktrees/w/gitdir",
            "modules/a/rebase-apply/0001",
            "hooks/x.sample",
            "info/attributes",
            "HEAD",
        ] {
            assert!(vet_deletion(&parts_of(path)).is_none(), "{path}");
        }
    }
}
