//! Payloads in pieces that are compressed one by one, so that any range is read without unpacking the rest.

use zstd::bulk::Compressor;

/// Raw bytes in every block but the last.
pub(super) const BLOCK: usize = 256 * 1024;

/// Fast, and within a few percent of what higher levels reach on text.
const LEVEL: i32 = 3;

const RAW: i64 = 0;
const ZSTD: i64 = 1;

/// One block as it is stored.
pub(super) struct Packed {
    pub(super) codec: i64,
    pub(super) data: Vec<u8>,
}

/// Makes the blocks of one payload. The compressor's megabyte of tables is made for the first of them.
#[derive(Default)]
pub(super) struct Packer {
    compressor: Option<Compressor<'static>>,
}

impl Packer {
    pub(super) fn pack(&mut self, raw: &[u8]) -> Packed {
        if self.compressor.is_none() {
            self.compressor = Compressor::new(LEVEL).ok();
        }
        let packed = self.compressor.as_mut().map(|one| one.compress(raw));
        match packed {
            Some(Ok(data)) if data.len() < raw.len() => Packed { codec: ZSTD, data },
            _ => Packed {
                codec: RAW,
                data: raw.to_vec(),
            },
        }
    }
}

impl Packed {
    pub(super) fn stored_len(&self) -> u64 {
        self.data.len() as u64
    }

    /// The raw bytes, or nothing when they are not `len` bytes long: then the block is damaged.
    pub(super) fn unpack(self, len: usize) -> Option<Vec<u8>> {
        let raw = match self.codec {
            RAW => self.data,
            ZSTD => zstd::bulk::decompress(&self.data, len).ok()?,
            _ => return None,
        };
        (raw.len() == len).then_some(raw)
    }
}

/// How long block `n` of a payload is.
pub(super) fn raw_len(total: u64, n: u64) -> usize {
    (total - n * BLOCK as u64).min(BLOCK as u64) as usize
}
