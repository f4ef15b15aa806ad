//! Chunks of stored results: found once, as far as they are asked for, and remembered.

use super::blocks::BLOCK;
use super::rows::Found;
use super::{Chunk, ChunkSpan, Chunker, Error, HandleId, HandleStore};

/// Chunk boundaries written in one go.
const BATCH: usize = 256;

impl HandleStore {
    /// Where all chunks of at most `budget` tokens lie.
    ///
    /// Walks the whole result the first time and remembers. Past a few megabytes, prefer [`chunk`](Self::chunk), which
    /// walks no further than it must.
    pub fn chunks(
        &self,
        owner: &str,
        id: HandleId,
        budget: usize,
    ) -> Result<Vec<ChunkSpan>, Error> {
        let walked = self.walk(owner, id, budget, u64::MAX)?;
        self.rows.spans(walked.seq, budget, 0, u64::MAX)
    }

    /// How many chunks of at most `budget` tokens there are; costs what [`chunks`](Self::chunks) costs.
    pub fn chunk_count(&self, owner: &str, id: HandleId, budget: usize) -> Result<u64, Error> {
        Ok(self.walk(owner, id, budget, u64::MAX)?.known)
    }

    /// Chunk `n`, from 0.
    pub fn chunk(&self, owner: &str, id: HandleId, n: u64, budget: usize) -> Result<Chunk, Error> {
        let walked = self.walk(owner, id, budget, n)?;
        let span = self
            .rows
            .spans(walked.seq, budget, n, n)?
            .pop()
            .ok_or(Error::BadRange {
                unit: "chunk",
                asked: n,
                count: walked.known,
            })?;
        let page = self.read(owner, id, span.offset, span.len as usize)?;
        Ok(Chunk {
            span,
            bytes: page.bytes,
            chunks: walked.complete.then_some(walked.known),
        })
    }

    /// Finds chunk boundaries up to chunk `until`, going on from those already known.
    fn walk(&self, owner: &str, id: HandleId, budget: usize, until: u64) -> Result<Walked, Error> {
        let (found, last) = self.rows.last_chunk(owner, id, budget)?;
        let total = found.info.total_bytes;
        let (mut known, end) = last.map_or((0, 0), |(n, end)| (n.saturating_add(1), end));
        let mut chunker = Chunker::resume(total, budget, known, end);
        let mut batch = Vec::new();
        // The lock is free while tokens are counted: only fetching and remembering need the database.
        while !chunker.is_done() && known <= until {
            let block_at = |offset: u64| {
                let rest = BLOCK - (offset % BLOCK as u64) as usize;
                self.read(owner, id, offset, rest).map(|page| page.bytes)
            };
            if let Some(span) = chunker.next_span(block_at)? {
                known = span.index + 1;
                batch.push(span);
            }
            if batch.len() == BATCH {
                self.remember(&found, budget, &mut batch)?;
            }
        }
        self.remember(&found, budget, &mut batch)?;
        Ok(Walked {
            seq: found.seq,
            known,
            complete: chunker.is_done(),
        })
    }

    fn remember(
        &self,
        found: &Found,
        budget: usize,
        batch: &mut Vec<ChunkSpan>,
    ) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        self.rows.remember(found, budget, batch)?;
        batch.clear();
        Ok(())
    }
}

struct Walked {
    seq: i64,
    known: u64,
    complete: bool,
}
