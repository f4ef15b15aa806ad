//! How long entries stay, and whether the store is sound.

use std::time::Duration;

use crate::error::Result;
use crate::history::{HistoryCheck, HistorySwept, Inner};

pub(crate) const DAY_MS: i64 = 24 * 3600 * 1000;
/// Entries removed in one transaction, and objects looked at: other processes wait meanwhile.
pub(crate) const ENTRIES_AT_ONCE: i64 = 200;
pub(crate) const OBJECTS_AT_ONCE: i64 = 2_000;
/// A content without an entry may belong to one that is about to be written.
pub(crate) const UNUSED_OBJECT_AGE: Duration = Duration::from_secs(3600);
/// When the store is full, the oldest entries go until this part of it is used.
const FILL_TARGET_PERCENT: u64 = 90;
/// Writes for which the absence of a path is remembered.
pub(crate) const ABSENCE_GENERATIONS: i64 = 10_000;
/// Damaged contents that a check names.
const MAX_PROBLEMS: usize = 10;

impl Inner {
    /// Removes entries that are too old, the oldest while the store is too large, and contents without an entry.
    pub(crate) fn sweep(&self) -> Result<HistorySwept> {
        let mut swept = HistorySwept::default();
        loop {
            let removed = self.store.remove_old(self.settings.keep_days)?;
            swept.entries += removed;
            if removed == 0 {
                break;
            }
        }
        swept.objects += self.remove_unused()?;
        let target = self.settings.max_bytes / 100 * FILL_TARGET_PERCENT;
        let mut is_full = self.store.used_bytes()? > self.settings.max_bytes;
        while is_full {
            let removed = self.store.remove_oldest()?;
            swept.entries += removed;
            swept.objects += self.remove_unused()?;
            is_full = removed > 0 && self.store.used_bytes()? > target;
        }
        self.store.tidy()?;
        Ok(swept)
    }

    fn remove_unused(&self) -> Result<u64> {
        let mut removed = 0;
        let mut from = 0;
        loop {
            let (count, next) = self.store.remove_unused(from)?;
            removed += count;
            match next {
                Some(next) => from = next,
                None => return Ok(removed),
            }
        }
    }

    /// Looks for damage: of the store, and of contents.
    pub(crate) fn check(&self) -> Result<HistoryCheck> {
        let mut check = self.store.check()?;
        let mut from = 0;
        while check.problems.len() < MAX_PROBLEMS {
            let ids = self.store.objects_to_check(from)?;
            let Some((last, _)) = ids.last() else { break };
            from = *last;
            for (_, id) in &ids {
                if let Err(error) = self.content(id) {
                    check.problems.push(error.to_string());
                }
            }
        }
        Ok(check)
    }
}
