//! Where a repository keeps its git directory, and which protected names that holds right now.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use llmc_host::protected_git_entry;
use rustix::fs::{Mode, OFlags};

/// Directories of one git directory that are looked into for the git directories of submodules and working trees.
const MAX_GIT_SUBDIRS: usize = 20_000;
/// Directories of a git directory that hold only objects or refs; what is protected in them has a fixed place.
const PLAIN_DIRS: [&str; 4] = ["objects", "refs", "logs", "lfs"];

/// The git directories of the repository in `home`: `.git` itself, or where a link or a file in its place leads, and the
/// directory that several working trees share. Absolute and free of links; those that exist.
pub(super) fn git_dirs(home: &Path) -> Vec<PathBuf> {
    let dot_git = home.join(".git");
    let Ok(status) = std::fs::symlink_metadata(&dot_git) else {
        return Vec::new();
    };
    let target = match status.is_file() {
        true => first_line(&dot_git)
            .as_deref()
            .and_then(|line| line.strip_prefix(b"gitdir:"))
            .map(|target| home.join(path_of(target.trim_ascii()))),
        false => Some(dot_git),
    };
    let found = target.and_then(|dir| std::fs::canonicalize(dir).ok());
    let Some(dir) = found.filter(|dir| dir.is_dir()) else {
        return Vec::new();
    };
    let common = first_line(&dir.join("commondir"))
        .and_then(|common| std::fs::canonicalize(dir.join(path_of(&common))).ok())
        .filter(|common| common.is_dir());
    [dir].into_iter().chain(common).collect()
}

/// The protected names that exist in a git directory.
#[derive(Debug, Default)]
pub(super) struct GitNames {
    pub(super) paths: Vec<PathBuf>,
    /// Whether all of it was looked at.
    pub(super) is_complete: bool,
}

impl GitNames {
    pub(super) fn of(git_dir: &Path) -> GitNames {
        let mut names = GitNames {
            paths: Vec::new(),
            is_complete: true,
        };
        let mut left = MAX_GIT_SUBDIRS;
        names.look(git_dir, &mut Vec::new(), &mut left);
        names.paths.sort();
        names.paths.dedup();
        names
    }

    fn look(&mut self, dir: &Path, inner: &mut Vec<OsString>, left: &mut usize) {
        if *left == 0 {
            self.is_complete = false;
            return;
        }
        *left -= 1;
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            inner.push(name.clone());
            let parts: Vec<&[u8]> = inner.iter().map(|part| part.as_bytes()).collect();
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if protected_git_entry(&parts).is_some() {
                self.paths.push(entry.path());
            } else if is_dir && name == "objects" {
                // Of thousands of objects, only these two files decide anything.
                let info = entry.path().join("info");
                let alternates = ["alternates", "http-alternates"].map(|name| info.join(name));
                let existing = alternates.into_iter().filter(|path| exists(path));
                self.paths.extend(existing);
            }
            let is_plain = PLAIN_DIRS.iter().any(|plain| name == *plain);
            // A submodule may have such a name, but then its own directory lies below `modules`.
            let is_nested = inner.len() > 1 && !entry.path().join("HEAD").is_file();
            if is_dir && protected_git_entry(&parts).is_none() && (!is_plain || is_nested) {
                self.look(&entry.path(), inner, left);
            }
            inner.pop();
        }
    }
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

/// The first line of one of git's small files. A FIFO of that name does not block.
fn first_line(path: &Path) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let mut text = Vec::new();
    let file = std::fs::File::from(file);
    file.take(16 << 10).read_to_end(&mut text).ok()?;
    let line = text.split(|b| *b == b'\n').next()?.trim_ascii();
    (!line.is_empty()).then(|| line.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protected_names_of_submodules_are_found_at_any_depth() {
        let root = tempfile::tempdir().unwrap();
        let git = root.path().join(".git");
        for name in [
            "config",
            "HEAD",
            "refs/heads/config",
            "objects/info/alternates",
            "objects/ab/config",
            "modules/libs/foo/config",
            "modules/libs/foo/HEAD",
            "modules/libs/foo/objects/info/alternates",
            "modules/refs/config",
            "worktrees/w/commondir",
            "rebase-merge/git-rebase-todo",
        ] {
            let file = git.join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        let found = GitNames::of(&git);
        let names: Vec<&Path> = found
            .paths
            .iter()
            .map(|path| path.strip_prefix(&git).unwrap())
            .collect();
        let wanted = [
            "config",
            "modules/libs/foo/config",
            "modules/libs/foo/objects/info/alternates",
            "modules/refs/config",
            "objects/info/alternates",
            "rebase-merge",
            "worktrees/w/commondir",
        ];
        assert_eq!(names, wanted.map(Path::new));
        assert!(found.is_complete);
    }

    #[test]
    fn a_git_directory_is_found_behind_files_and_links() {
        let root = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(root.path()).unwrap();
        for dir in ["store/worktrees/w", "tree", "linked"] {
            std::fs::create_dir_all(root.join(dir)).unwrap();
        }
        std::fs::write(root.join("store/worktrees/w/commondir"), "../..\n").unwrap();
        std::fs::write(root.join("tree/.git"), "gitdir: ../store/worktrees/w\n").unwrap();
        std::os::unix::fs::symlink("../store", root.join("linked/.git")).unwrap();
        let store = root.join("store");
        assert_eq!(
            git_dirs(&root.join("tree")),
            [store.join("worktrees/w"), store.clone()]
        );
        assert_eq!(git_dirs(&root.join("linked")), [store]);
        assert_eq!(git_dirs(&root), Vec::<PathBuf>::new());
    }
}
