//! Stores a result while it is still being made.

use std::io;

use super::blocks::{BLOCK, Packed, Packer};
use super::rows::Record;
use super::{Draft, Error, HandleId, HandleStore, Kept};

/// A result in the making: write to it, then [`finish`](Self::finish) it.
///
/// Until then it is invisible to readers. Dropped unfinished, it leaves nothing behind; killed with its process, it is swept when
/// its lease of an hour has run out, which every written block renews.
pub struct HandleWriter {
    handles: HandleStore,
    draft: Draft,
    record: Record,
    buf: Vec<u8>,
    packer: Packer,
    blocks: u64,
    /// The pending row, once there was more than one block's worth. Always used together with the id: in a file that
    /// was started anew after damage the number may belong to another result.
    seq: Option<i64>,
    failed: Option<Error>,
}

impl HandleWriter {
    pub(super) fn new(handles: HandleStore, draft: Draft) -> Result<Self, Error> {
        let record = Record::new(handles.now(), Kept::Bytes, 0)?;
        Ok(Self {
            handles,
            draft,
            record,
            buf: Vec::new(),
            packer: Packer::default(),
            blocks: 0,
            seq: None,
            failed: None,
        })
    }

    /// The name it will have.
    pub fn id(&self) -> HandleId {
        self.record.id
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.record.total
    }

    /// Makes the result readable. When this returns, the handle outlives the process.
    pub fn finish(mut self) -> Result<HandleId, Error> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let last = (!self.buf.is_empty()).then(|| self.packer.pack(&self.buf));
        self.record.payload_stored += last.as_ref().map_or(0, Packed::stored_len);
        self.handles.check_size(self.record.payload_stored)?;
        self.record.created_ms = self.handles.now();
        let last = last.as_ref().map(|block| (self.blocks, block));
        let rows = &self.handles.rows;
        rows.finish(self.seq, &self.record, &self.draft, last)?;
        self.seq = None;
        Ok(self.record.id)
    }

    fn flush_block(&mut self) -> Result<(), Error> {
        let block = self.packer.pack(&self.buf);
        self.record.payload_stored += block.stored_len();
        self.handles.check_size(self.record.payload_stored)?;
        let rows = &self.handles.rows;
        let (record, draft) = (&self.record, &self.draft);
        self.seq = Some(rows.append(self.seq, record, draft, self.blocks, &block)?);
        self.blocks += 1;
        self.buf.clear();
        Ok(())
    }
}

impl io::Write for HandleWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(error) = &self.failed {
            return Err(io::Error::other(error.clone()));
        }
        if self.buf.len() == BLOCK
            && let Err(error) = self.flush_block()
        {
            self.failed = Some(error.clone());
            return Err(io::Error::other(error));
        }
        let taken = bytes.len().min(BLOCK - self.buf.len());
        self.buf.extend_from_slice(&bytes[..taken]);
        self.record.total += taken as u64;
        Ok(taken)
    }

    /// Does nothing: blocks are written when they are full, and nothing can be read before the end.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for HandleWriter {
    fn drop(&mut self) {
        if let Some(seq) = self.seq.take() {
            // If this fails the next sweep removes it.
            let _ = self.handles.rows.abandon(seq, self.record.id);
        }
    }
}
