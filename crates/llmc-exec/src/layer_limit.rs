//! The size limit of the private layers (`mcp.exec.cache_max_bytes`).
//!
//! Counting a layer takes a walk over it, so that is done in the background when its broker has started. A layer that is too
//! large is marked, and the next broker, which has it to itself, begins it anew: no run ever loses a file that it uses.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The mark in the folder of a principal's layers that says that they have grown too large.
pub(super) const TOO_LARGE_MARK: &str = "too-large";

/// Marks the folders of a principal's layers that hold more than `limit` bytes, on a thread of its own. `store` is the first
/// of them; further servers of the workspace have their own beside it.
#[expect(
    clippy::disallowed_methods,
    reason = "a folder of the server's own making"
)]
pub(super) fn mark_large_layers(store: PathBuf, limit: u64) {
    let _ = std::thread::Builder::new()
        .name("llmc-layer-size".to_owned())
        .spawn(move || {
            let (Some(dir), Some(name)) = (store.parent(), store.file_name()) else {
                return;
            };
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                let is_of_principal = Path::new(&entry.file_name()).file_stem() == Some(name)
                    || entry.file_name() == name;
                if is_of_principal && disk_bytes(&entry.path(), limit) > limit {
                    let _ = std::fs::File::create(entry.path().join(TOO_LARGE_MARK));
                }
            }
        });
}

/// Bytes on the disk below a folder, links not followed; the count ends soon after `enough`.
pub(super) fn disk_bytes(dir: &Path, enough: u64) -> u64 {
    const BLOCK_BYTES: u64 = 512;
    let mut bytes = 0;
    let mut next = vec![dir.to_owned()];
    while let Some(dir) = next.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let Ok(status) = entry.metadata() else {
                continue;
            };
            bytes += status.blocks() * BLOCK_BYTES;
            if status.is_dir() {
                next.push(entry.path());
            }
            if bytes > enough {
                return bytes;
            }
        }
    }
    bytes
}
