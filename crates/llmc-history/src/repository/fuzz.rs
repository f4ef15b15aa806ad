//! Fuzz target: whatever is in place of a pack, what is read from it is what its id says, or nothing.

use std::fs::File;
use std::io::Write;

use llmc_fuzz::{FuzzInput, check};

use super::pack::PackFile;
use super::{GitObjectKind, RepositoryObjects, parse_loose, tree};
use crate::entry::ObjectId;
use crate::objects::blob_id;

const INDEX_IDS_AT: usize = 8 + 1024;
const MAX_IDS: usize = 50;

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

/// The input is the length of the index in two bytes, the index and the pack.
#[test]
fn packs() {
    check!("packs", |bytes: &[u8]| {
        let mut input = FuzzInput::new(bytes);
        let length = usize::from(input.byte()) << 8 | usize::from(input.byte());
        let rest = &bytes[bytes.len().min(2)..];
        let (index, pack) = rest.split_at(length.min(rest.len()));
        for kind in [GitObjectKind::Blob, GitObjectKind::Commit] {
            let _ = parse_loose(pack, kind, 1 << 20);
        }
        let Some(file) = PackFile::open(file_of(index), file_of(pack)) else {
            return;
        };
        let objects = RepositoryObjects {
            packs: vec![file],
            ..RepositoryObjects::none()
        };
        let ids = index.get(INDEX_IDS_AT..).unwrap_or_default();
        for id in ids.chunks_exact(20).take(MAX_IDS) {
            let id = ObjectId(id.try_into().unwrap());
            if let Some(content) = objects.blob(&id) {
                assert_eq!(blob_id(&content), id);
                assert!(objects.has(&id) && objects.holds(&id, &content));
            }
            let _ = tree::blobs_of(&objects, &id);
        }
    });
}
