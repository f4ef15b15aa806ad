//! Copies results from one store into another, for a machine that joins a team.

use std::time::Duration;

use super::blocks::{BLOCK, Packed};
use super::rows::Record;
use super::{Draft, Error, HandleInfo, HandleStore, Kept, damaged};

/// What a copy did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopiedHandles {
    pub copied: u64,
    /// Of the copied results, uncompressed.
    pub bytes: u64,
    /// Results that the other store had already.
    pub known: u64,
    /// Results that are damaged, or larger than the other store.
    pub left_out: u64,
}

impl HandleStore {
    /// Copies every result that can still be read, under its own id, for its owner, and for the rest of its time. Doing it
    /// again copies what is new.
    ///
    /// # Errors
    /// One of the stores cannot be used.
    pub fn copy_to(&self, target: &HandleStore) -> Result<CopiedHandles, Error> {
        let mut done = CopiedHandles::default();
        for owner in self.rows.owners()? {
            for info in self.rows.list(&owner)? {
                match target.rows.find(&owner, info.id) {
                    Ok(_) => done.known += 1,
                    Err(Error::Unknown) => match self.copy_one(target, &owner, &info) {
                        Ok(()) => {
                            done.copied += 1;
                            done.bytes += info.total_bytes;
                        }
                        // It has expired in the meantime.
                        Err(Error::Unknown) => {}
                        Err(Error::TooLarge { .. }) => done.left_out += 1,
                        Err(error) if error == damaged() => done.left_out += 1,
                        Err(error) => return Err(error),
                    },
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(done)
    }

    fn copy_one(&self, target: &HandleStore, owner: &str, info: &HandleInfo) -> Result<(), Error> {
        let expires_ms = info.expires.as_millisecond();
        let left_ms = u64::try_from(expires_ms - self.now()).map_err(|_| Error::Unknown)?;
        let draft = Draft {
            owner: owner.to_owned(),
            kind: info.kind.clone(),
            meta: info.meta.clone(),
            source: info.source.clone(),
            rules: info.rules.clone(),
            ttl: Some(Duration::from_millis(left_ms)),
        };
        let mut record = Record {
            id: info.id,
            kept: info.kept,
            total: info.total_bytes,
            payload_stored: 0,
            created_ms: info.created.as_millisecond(),
        };
        let count = match info.kept {
            Kept::Bytes => info.total_bytes.div_ceil(BLOCK as u64),
            Kept::File => 0,
        };
        if count <= 1 {
            let blocks: Vec<Packed> = match count {
                0 => Vec::new(),
                _ => vec![self.block(owner, info, 0)?],
            };
            record.payload_stored = blocks.iter().map(Packed::stored_len).sum();
            target.check_size(record.payload_stored)?;
            return target.rows.put(&record, &draft, &blocks);
        }
        let mut row = None;
        for n in 0..count {
            let added = self.block(owner, info, n).and_then(|block| {
                record.payload_stored += block.stored_len();
                target.check_size(record.payload_stored)?;
                target.rows.append(row, &record, &draft, n, &block)
            });
            match (added, row) {
                (Ok(seq), _) => row = Some(seq),
                (Err(error), Some(seq)) => {
                    // A row that stays behind is swept when its time to be written is over.
                    let _ = target.rows.abandon(seq, info.id);
                    return Err(error);
                }
                (Err(error), None) => return Err(error),
            }
        }
        target.rows.finish(row, &record, &draft, None)
    }

    fn block(&self, owner: &str, info: &HandleInfo, n: u64) -> Result<Packed, Error> {
        let found = self.rows.blocks(owner, info.id, n * BLOCK as u64, 1)?;
        found.packed.into_iter().next().ok_or_else(damaged)
    }
}
