//! What a run at a base sees beside the commit: files that git ignores, which are there as they are now.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use llmc_host::walk::{FileKind, Hidden, ListDetail, ListOptions, list};
use llmc_host::{CancelToken, OpenDir};

use crate::error::Result;

/// Ignored files whose state is taken into account.
const MAX_INPUT_FILES: usize = 300_000;
/// Folders whose content programs make anew from other files, and git's own.
const CACHE_DIRS: &[&[u8]] = &[
    b".git",
    b".llmc",
    b"__pycache__",
    b".pytest_cache",
    b".mypy_cache",
    b".ruff_cache",
    b".hypothesis",
    b".coverage",
    b"target",
    b".cache",
    b".vite",
];
/// A checksum over the names, sizes and times of files that git ignores, without caches that programs make anew.
pub(crate) fn ignored_inputs(
    dir: &OpenDir,
    there: &BTreeSet<Vec<u8>>,
    stop: &CancelToken,
) -> Result<Option<u64>> {
    let options = ListOptions {
        depth: usize::MAX,
        hidden: Hidden::Include,
        file_glob: None,
        max_entries: MAX_INPUT_FILES,
        guard: None,
        detail: ListDetail::Status,
    };
    let found = list(&dir.fd, &options, stop)?;
    stop.check()?;
    if !found.complete || found.total > MAX_INPUT_FILES as u64 {
        return Ok(None);
    }
    let mut hasher = DefaultHasher::new();
    for entry in &found.entries {
        let is_cache = |part: &[u8]| CACHE_DIRS.contains(&part);
        let is_input = entry.kind != FileKind::Dir
            && !there.contains(&entry.path)
            && !entry.path.split(|byte| *byte == b'/').any(is_cache);
        if is_input {
            (&entry.path, entry.size, entry.mtime_ns).hash(&mut hasher);
        }
    }
    Ok(Some(hasher.finish()))
}
