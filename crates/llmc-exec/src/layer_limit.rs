//! The size limit of the private layers (`mcp.exec.cache_max_bytes`).
//!
//! Counting a layer takes a walk over it, so that is done in the background when its broker has started. A layer that is too
//! large is marked, and the next broker, which has it to itself, begins it anew: no run ever loses a file that it uses.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The mark in a layer's folder that says that it has grown too large.
pub(super) const TOO_LARGE_MARK: &str = "too-large";

/// Marks the layers in these folders that hold more than `limit` bytes, on a thread of its own.
#[expect(
    clippy::disallowed_methods,
    reason = "a folder of the server's own making"
)]
pub(super) fn mark_large_layers(stores: Vec<PathBuf>, limit: u64) {
    let _ = std::thread::Builder::new()
        .name("llmc-layer-size".to_owned())
        .spawn(move || {
            for store in stores {
                if disk_bytes(&store, limit) > limit {
                    let _ = std::fs::File::create(store.join(TOO_LARGE_MARK));
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
