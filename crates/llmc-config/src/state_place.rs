//! Where a workspace's state is kept: in its git directory, as git and its extensions keep theirs, so that it moves with the
//! repository and is untouched by `git clean`.

use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::regular_file::{LinkPolicy, read_regular_file};

/// The folder in a git directory.
const GIT_STATE_DIR: &str = "llmc";
/// The folder in a workspace without git.
const PLAIN_STATE_DIR: &str = ".llmc";
/// Below the first: the state of workspaces that are not the repository's main working tree.
const TREES_DIR: &str = "trees";
/// Git's small files have one line.
const MAX_POINTER_BYTES: u64 = 16 << 10;

/// The state directory of a workspace; it need not exist.
pub(crate) fn state_place(root: &Path) -> PathBuf {
    let plain = root.join(PLAIN_STATE_DIR);
    let Some((tree, common)) = repository_of(root) else {
        return plain;
    };
    let place = common.join(GIT_STATE_DIR);
    let place = match tree == root && common == root.join(".git") {
        true => place,
        false => place.join(TREES_DIR).join(tree_name(root)),
    };
    // Begun before there was a repository.
    let is_older = !place.exists() && std::fs::symlink_metadata(&plain).is_ok_and(|it| it.is_dir());
    match is_older || !is_usable(&common) {
        true => plain,
        false => place,
    }
}

/// The working tree that a workspace lies in, and the directory that all trees of its repository share.
fn repository_of(root: &Path) -> Option<(PathBuf, PathBuf)> {
    let tree = root
        .ancestors()
        .find(|dir| dir.join(".git").symlink_metadata().is_ok())?;
    let dot_git = tree.join(".git");
    let status = dot_git.symlink_metadata().ok()?;
    if status.is_dir() {
        return Some((tree.to_owned(), dot_git));
    }
    let line = pointer(&dot_git)?;
    let private = tree
        .join(line.strip_prefix("gitdir:")?.trim())
        .canonicalize()
        .ok()?;
    // Git has written there where the tree is; a file that only claims to belong to a repository has no state there.
    let back = private
        .join(pointer(&private.join("gitdir"))?)
        .canonicalize()
        .ok()?;
    if back != dot_git.canonicalize().ok()? {
        return None;
    }
    let common = private
        .join(pointer(&private.join("commondir"))?)
        .canonicalize()
        .ok()?;
    Some((tree.to_owned(), common))
}

/// The first line of one of git's small files.
fn pointer(file: &Path) -> Option<String> {
    let file = read_regular_file(file, MAX_POINTER_BYTES, LinkPolicy::Refuse).ok()?;
    let text = file.into_text().ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// Whether this user can keep something in a git directory that is theirs.
fn is_usable(common: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let is_own = |status: Metadata| status.is_dir() && status.uid() == own;
    common.symlink_metadata().is_ok_and(is_own)
        && rustix::fs::access(common, rustix::fs::Access::WRITE_OK).is_ok()
}

/// A folder name for a workspace: readable, and the same only for the same path.
fn tree_name(root: &Path) -> String {
    let name = root.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
        .take(32)
        .collect();
    // FNV-1a.
    let hash = root
        .as_os_str()
        .as_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{name}-{hash:016x}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn state_lies_in_the_git_directory_where_there_is_one() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let main = base.join("main");
        let private = main.join(".git/worktrees/w");
        for dir in [
            &private,
            &main.join("sub"),
            &base.join("tree"),
            &base.join("plain"),
            &base.join("liar"),
        ] {
            fs::create_dir_all(dir).unwrap();
        }
        fs::write(private.join("commondir"), "../..\n").unwrap();
        fs::write(
            private.join("gitdir"),
            format!("{}\n", base.join("tree/.git").display()),
        )
        .unwrap();
        for tree in ["tree", "liar"] {
            let text = format!("gitdir: {}\n", private.display());
            fs::write(base.join(tree).join(".git"), text).unwrap();
        }
        let state = main.join(".git/llmc");
        assert_eq!(state_place(&main), state);
        assert_eq!(state_place(&base.join("plain")), base.join("plain/.llmc"));
        assert_eq!(state_place(&base.join("liar")), base.join("liar/.llmc"));
        let of_tree = state_place(&base.join("tree"));
        let of_folder = state_place(&main.join("sub"));
        assert!(of_tree.starts_with(state.join("trees")), "{of_tree:?}");
        assert!(of_folder.starts_with(state.join("trees")), "{of_folder:?}");
        assert_ne!(of_tree, of_folder);
    }

    #[test]
    fn state_that_was_begun_before_the_repository_stays() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        fs::create_dir_all(root.join(".llmc")).unwrap();
        fs::create_dir_all(root.join(".git")).unwrap();
        assert_eq!(state_place(&root), root.join(".llmc"));
        fs::remove_dir(root.join(".llmc")).unwrap();
        assert_eq!(state_place(&root), root.join(".git/llmc"));
    }
}
