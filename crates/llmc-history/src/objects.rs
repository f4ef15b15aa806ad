//! Contents, named as git names blobs and compressed one by one.

use sha1::{Digest, Sha1};

use crate::entry::ObjectId;

/// Fast, and within a few percent of higher levels on source files.
const ZSTD_LEVEL: i32 = 3;

/// A content ready to be stored.
#[derive(Debug, Clone)]
pub(crate) struct PackedObject {
    pub(crate) id: ObjectId,
    pub(crate) size: u64,
    pub(crate) is_compressed: bool,
    pub(crate) body: Vec<u8>,
}

/// The id that git gives a blob with this content.
pub(crate) fn blob_id(content: &[u8]) -> ObjectId {
    let mut hash = Sha1::new();
    hash.update(format!("blob {}\0", content.len()));
    hash.update(content);
    ObjectId(hash.finalize().into())
}

impl PackedObject {
    pub(crate) fn pack(id: ObjectId, content: Vec<u8>) -> PackedObject {
        let size = content.len() as u64;
        match zstd::bulk::compress(&content, ZSTD_LEVEL) {
            Ok(body) if body.len() < content.len() => PackedObject {
                id,
                size,
                is_compressed: true,
                body,
            },
            _ => PackedObject {
                id,
                size,
                is_compressed: false,
                body: content,
            },
        }
    }

    /// The content, if it is what the id says.
    pub(crate) fn unpack(self) -> Option<Vec<u8>> {
        let size = usize::try_from(self.size).ok()?;
        let content = match self.is_compressed {
            true => zstd::bulk::decompress(&self.body, size).ok()?,
            false => self.body,
        };
        (blob_id(&content) == self.id).then_some(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_git() {
        let id = |content: &[u8]| blob_id(content).to_string();
        assert_eq!(id(b""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(id(b"hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
    }

    #[test]
    fn a_content_comes_back_unless_it_was_damaged() {
        for content in [b"".to_vec(), b"short".to_vec(), vec![b'x'; 100_000]] {
            let packed = PackedObject::pack(blob_id(&content), content.clone());
            assert_eq!(packed.clone().unpack(), Some(content.clone()));
            let mut damaged = packed;
            match damaged.body.last_mut() {
                Some(byte) => *byte ^= 1,
                None => damaged.size = 1,
            }
            if !content.is_empty() {
                assert_eq!(damaged.unpack(), None);
            }
        }
    }
}
