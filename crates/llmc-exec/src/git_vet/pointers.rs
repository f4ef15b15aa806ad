//! Judges the files that lead git to other directories.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::addresses::{PathBase, is_allowed_path, resolved};
use super::{
    Holder, JudgedFile, MAX_REJECTIONS, Rejection, Verdict, VetPlace, is_printable, lines_of,
    shortened,
};

/// What a `.git` file in `dir` leads to, if it is written as git writes it: absolute, by the text alone. Whether the target
/// may be followed is not judged.
pub(crate) fn dot_git_target(text: &[u8], dir: &Path) -> Result<PathBuf, Rejection> {
    let line = text.strip_suffix(b"\n").unwrap_or(text);
    let path = line
        .strip_prefix(b"gitdir: ")
        .filter(|path| !path.starts_with(b" ") && !path.ends_with(b" "));
    let target = path.and_then(|path| resolved(path, Some(dir)));
    target.ok_or_else(|| Rejection {
        file: ".git".to_owned(),
        item: shortened(line),
        reason: "not the path of a git directory as git writes it",
    })
}

/// The directory that working trees share is always the one that holds `worktrees`.
pub(super) fn vet_common_dir(file: &JudgedFile<'_>, new: &[u8]) -> Verdict {
    let line = new.strip_suffix(b"\n").unwrap_or(new);
    // libgit2 writes the directory's absolute path.
    let named = Path::new(OsStr::from_bytes(line));
    let common = file.own_dir.parent().and_then(Path::parent);
    let leads_there = line == b"../.." || (is_printable(line) && Some(named) == common);
    let is_own = file.holder == Holder::Worktree && leads_there;
    file.refused_unless(is_own, line, "leads git to another directory")
}

/// The `.git` file of a working tree.
pub(super) fn vet_git_dir(file: &JudgedFile<'_>, new: &[u8], place: &VetPlace<'_>) -> Verdict {
    let line = new.strip_suffix(b"\n").unwrap_or(new);
    let base = PathBase {
        relative_to: Some(&file.own_dir),
        allowed: place.allowed,
    };
    let is_harmless =
        file.holder == Holder::Worktree && line.ends_with(b"/.git") && is_allowed_path(line, &base);
    file.refused_unless(
        is_harmless,
        line,
        "not the .git file of a working tree in the workspace",
    )
}

/// Further directories with objects, one on each line.
pub(super) fn vet_alternates(
    file: &JudgedFile<'_>,
    new: &[u8],
    before: Option<&[u8]>,
    place: &VetPlace<'_>,
) -> Verdict {
    let objects = file.own_dir.join("objects");
    let base = PathBase {
        relative_to: Some(&objects),
        allowed: place.allowed,
    };
    let known: HashSet<&[u8]> = before
        .map(|text| lines_of(text).collect())
        .unwrap_or_default();
    // Git takes a line that begins with a quotation mark for an escaped path.
    let is_path =
        |line: &[u8]| is_printable(line) && !line.starts_with(b"\"") && !line.starts_with(b"#");
    let is_harmless =
        |line: &&[u8]| known.contains(line) || (is_path(line) && is_allowed_path(line, &base));
    if new.is_empty() {
        return Verdict::Harmless;
    }
    let rejected: Vec<Rejection> = lines_of(new)
        .filter(|line| !is_harmless(line))
        .take(MAX_REJECTIONS)
        .map(|line| file.rejection(shortened(line), "leads to objects outside the workspace"))
        .collect();
    match rejected.is_empty() {
        true => Verdict::Harmless,
        false => Verdict::Refused(rejected),
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_support::vet;
    use super::*;

    #[test]
    fn pointers_lead_where_git_puts_them() {
        for (path, text) in [
            ("worktrees/x/commondir", "../..\n"),
            ("worktrees/x/commondir", "../.."),
            ("worktrees/x/commondir", "/w/repo/.git/"),
            ("modules/a/worktrees/x/commondir", "../..\n"),
            ("worktrees/x/gitdir", "/w/trees/x/.git\n"),
            ("worktrees/x/gitdir", "../../../../trees/x/.git\n"),
            (
                "objects/info/alternates",
                "/w/other/.git/objects\n../../../other/.git/objects\n",
            ),
            ("modules/a/objects/info/alternates", "/w/other/objects\n"),
            ("objects/info/alternates", ""),
        ] {
            assert_eq!(vet(path, text, None), Verdict::Harmless, "{path} {text:?}");
        }
        for (path, text) in [
            ("worktrees/x/commondir", "../../\n"),
            ("worktrees/x/commondir", "/w/other/.git\n"),
            ("worktrees/x/commondir", ""),
            ("worktrees/x/commondir", "/w/repo/.git/worktrees/x/../..\n"),
            ("worktrees/x/commondir", "/w/repo/.git/worktrees\n"),
            ("modules/a/worktrees/x/commondir", "/w/repo/.git\n"),
            ("commondir", "../..\n"),
            ("modules/a/commondir", "../..\n"),
            ("gitdir", "/w/x/.git\n"),
            ("modules/a/gitdir", "/w/x/.git\n"),
            ("worktrees/x/gitdir", "/home/x/.git\n"),
            ("worktrees/x/gitdir", "/w/x\n"),
            ("worktrees/x/gitdir", "/w/x/.git\n/w/y/.git\n"),
            ("worktrees/x/gitdir", "../../../../../../etc/.git\n"),
            ("objects/info/alternates", "/w/a/objects\n/etc\n"),
            ("objects/info/alternates", "\"/w/a/objects\"\n"),
            ("objects/info/alternates", "# comment\n"),
            ("objects/info/alternates", "/w/a/\n\n"),
            ("objects/info/http-alternates", "https://h/x\n"),
            ("worktrees/x/objects/info/http-alternates", "x"),
        ] {
            assert!(
                matches!(vet(path, text, None), Verdict::Refused(_)),
                "{path} {text:?}"
            );
            assert_eq!(
                vet(path, text, Some(text)),
                Verdict::Harmless,
                "{path} {text:?}"
            );
        }
        let before = Some("/user/objects\n");
        assert_eq!(
            vet("objects/info/alternates", "/user/objects\n/w/o\n", before),
            Verdict::Harmless
        );
    }

    #[test]
    fn a_dot_git_file_names_one_directory() {
        let target = |text: &str| dot_git_target(text.as_bytes(), Path::new("/w/a/b")).ok();
        for (text, wanted) in [
            ("gitdir: /w/x/.git/worktrees/b\n", "/w/x/.git/worktrees/b"),
            ("gitdir: ../../.git/modules/b", "/w/.git/modules/b"),
            ("gitdir: ../../../../..\n", "/"),
        ] {
            assert_eq!(target(text), Some(wanted.into()), "{text}");
        }
        for text in [
            "",
            "gitdir:",
            "gitdir: ",
            "gitdir:/w/x",
            "gitdir:  /w/x",
            "gitdir: /w/x \n",
            "gitdir: /w/x\n\n",
            "gitdir: /w/x\ngitdir: /w/y\n",
            "gitdir: /w/x/../y",
            "gitdir: ~/x",
            "/w/x",
            "gitdir: /w/\0x",
        ] {
            assert_eq!(target(text), None, "{text:?}");
        }
    }
}
