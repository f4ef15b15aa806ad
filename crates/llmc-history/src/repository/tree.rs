//! Which contents a commit has.

use std::collections::HashSet;

use super::{GitObjectKind, RepositoryObjects};
use crate::entry::ObjectId;

/// Directories and files of a commit that are looked at; of a larger one the rest is copied.
const MAX_TREES: usize = 200_000;
const MAX_BLOBS: usize = 1_000_000;
const MAX_COMMIT_BYTES: u64 = 1 << 20;
const MAX_TREE_BYTES: u64 = 32 << 20;

/// The ids of all files and links of a commit. What cannot be read is left out.
pub(super) fn blobs_of(objects: &RepositoryObjects, commit: &ObjectId) -> HashSet<ObjectId> {
    let mut blobs = HashSet::new();
    let root = objects
        .read_any(commit, GitObjectKind::Commit, MAX_COMMIT_BYTES)
        .and_then(|commit| tree_of_commit(&commit));
    let Some(root) = root else { return blobs };
    let mut seen = HashSet::from([root]);
    let mut waiting = vec![root];
    while let Some(id) = waiting.pop() {
        let Some(tree) = objects.read_any(&id, GitObjectKind::Tree, MAX_TREE_BYTES) else {
            continue;
        };
        for entry in TreeEntries(&tree) {
            match entry {
                TreeEntry::Dir(id) if seen.len() < MAX_TREES && seen.insert(id) => waiting.push(id),
                TreeEntry::Blob(id) if blobs.len() < MAX_BLOBS => {
                    blobs.insert(id);
                }
                _ => {}
            }
        }
    }
    blobs
}

fn tree_of_commit(commit: &[u8]) -> Option<ObjectId> {
    let line = commit
        .strip_prefix(b"tree ")?
        .split(|byte| *byte == b'\n')
        .next()?;
    std::str::from_utf8(line).ok().and_then(ObjectId::from_hex)
}

enum TreeEntry {
    Dir(ObjectId),
    /// A file or a link.
    Blob(ObjectId),
    /// A commit of another repository.
    Submodule,
}

/// The entries of a tree object, up to the first that is damaged: mode, space, name, NUL, id.
struct TreeEntries<'a>(&'a [u8]);

impl Iterator for TreeEntries<'_> {
    type Item = TreeEntry;

    fn next(&mut self) -> Option<TreeEntry> {
        let space = self.0.iter().position(|byte| *byte == b' ')?;
        let nul = self
            .0
            .iter()
            .position(|byte| *byte == 0)
            .filter(|nul| *nul > space)?;
        let mode = &self.0[..space];
        let (id, rest) = self.0[nul + 1..].split_first_chunk()?;
        self.0 = rest;
        let id = ObjectId(*id);
        Some(match mode {
            b"40000" | b"040000" => TreeEntry::Dir(id),
            b"160000" => TreeEntry::Submodule,
            _ => TreeEntry::Blob(id),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_end_at_the_first_that_is_cut() {
        let mut tree = b"100644 a\0".to_vec();
        tree.extend([1; 20]);
        tree.extend(b"40000 dir with space\0");
        tree.extend([2; 20]);
        tree.extend(b"160000 module\0");
        tree.extend([3; 20]);
        let kinds = |tree: &[u8]| -> String {
            TreeEntries(tree)
                .map(|entry| match entry {
                    TreeEntry::Blob(ObjectId([1, ..])) => 'b',
                    TreeEntry::Dir(ObjectId([2, ..])) => 'd',
                    TreeEntry::Submodule => 's',
                    _ => '?',
                })
                .collect()
        };
        assert_eq!(kinds(&tree), "bds");
        assert_eq!(kinds(&tree[..tree.len() - 1]), "bd");
        assert_eq!(kinds(b"100644"), "");
        assert_eq!(kinds(b"\0 x"), "");
    }

    #[test]
    fn a_commit_names_its_tree_first() {
        let hex = "0123456789abcdef0123456789abcdef01234567";
        let commit = format!("tree {hex}\nauthor a\n\ntree no\n");
        let tree = tree_of_commit(commit.as_bytes()).map(|id| id.to_string());
        assert_eq!(tree.as_deref(), Some(hex));
        assert_eq!(tree_of_commit(b"author a\n"), None);
        assert_eq!(tree_of_commit(b"tree 0123\n"), None);
    }
}
