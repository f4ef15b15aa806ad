//! Stores a result while it is still being made.

use std::io;

use rusqlite::params;

use super::blocks::{BLOCK, Packed, Packer};
use super::rows::{Record, State, delete, meta_text};
use super::{Draft, Error, HandleId, HandleStore, Kept, Meta, Work};

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

    /// Facts that are known only at the end, such as an exit code, may still be added.
    pub fn meta_mut(&mut self) -> &mut Meta {
        &mut self.draft.meta
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
        self.handles.write(|conn| {
            let seq = match self.seq {
                Some(seq) => {
                    let meta = meta_text(&self.draft);
                    let changed = conn.execute(
                        "UPDATE handles SET pending = 0, meta = ?2, total_bytes = ?3, stored_bytes = ?4, \
                         created_ms = ?5, expires_ms = ?6 WHERE seq = ?1 AND id = ?7",
                        params![
                            seq,
                            meta,
                            self.record.total as i64,
                            self.record.stored(&meta) as i64,
                            self.record.created_ms,
                            self.handles.end_of_life(&self.draft),
                            self.record.id.to_string(),
                        ],
                    )?;
                    still_there(changed)?;
                    seq
                }
                None => self
                    .handles
                    .insert(conn, &self.record, &self.draft, State::Complete)?,
            };
            if let Some(block) = &last {
                block.insert(conn, seq, self.blocks)?;
            }
            self.handles.make_room(conn, seq)
        })?;
        self.seq = None;
        Ok(self.record.id)
    }

    fn flush_block(&mut self) -> Result<(), Error> {
        let block = self.packer.pack(&self.buf);
        self.record.payload_stored += block.stored_len();
        self.handles.check_size(self.record.payload_stored)?;
        self.seq = Some(self.handles.write(|conn| {
            let seq = match self.seq {
                Some(seq) => {
                    let changed = conn
                        .prepare_cached(
                            "UPDATE handles SET stored_bytes = ?2, expires_ms = ?3 WHERE seq = ?1 AND id = ?4",
                        )?
                        .execute(params![
                            seq,
                            self.record.stored("") as i64,
                            self.handles.lease_end(),
                            self.record.id.to_string(),
                        ])?;
                    still_there(changed)?;
                    seq
                }
                None => self
                    .handles
                    .insert(conn, &self.record, &self.draft, State::Pending)?,
            };
            block.insert(conn, seq, self.blocks)?;
            self.handles.make_room(conn, seq)?;
            Ok(seq)
        })?);
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
            let _ = self.handles.write(|conn| {
                let ours = conn.execute(
                    "UPDATE handles SET expires_ms = 0 WHERE seq = ?1 AND id = ?2",
                    params![seq, self.record.id.to_string()],
                )?;
                if ours == 1 {
                    delete(conn, seq)?;
                }
                Ok(())
            });
        }
    }
}

fn still_there(changed: usize) -> Result<(), Work> {
    if changed == 1 {
        return Ok(());
    }
    Err(Work::Own(Error::Unavailable {
        cause: "the write paused too long and was dropped".into(),
    }))
}
