//! Contents that are left in the packs of the workspace's own repository until an entry needs them.
//!
//! The first snapshot stores no content that the checked-out commit has in a pack. Whatever an entry refers to is copied into the
//! store in the transaction that records the entry, so that undo never depends on the repository. The packs stay open from the
//! snapshot on, so that `git gc`, even inside the command that is recorded, takes no content away; when packs have gone, what
//! was in them alone is copied from the open ones or, after a restart, from files that are as they were.

use std::collections::HashSet;
use std::sync::Arc;

use llmc_host::{Access, PathEntry, lock};

use crate::compare::{Effect, Finding, MAX_WAITING_BYTES, read_all};
use crate::entry::{NotKeptReason, ObjectId, PathState};
use crate::error::Result;
use crate::history::Inner;
use crate::objects::{PackedObject, blob_id};
use crate::repository::RepositoryObjects;
use crate::store::{ChangeRow, UnstoredPath};

/// Which contents the store need not have because the workspace's repository has them.
#[derive(Clone, Copy)]
pub(crate) enum Sharing<'a> {
    /// Those that are as the snapshot has them.
    Unchanged(&'a RepositoryObjects),
    /// Those of the checked-out commit, too.
    FirstSnapshot(&'a RepositoryObjects, &'a HashSet<ObjectId>),
}

impl Sharing<'_> {
    pub(crate) fn has(self, id: &ObjectId, content: &[u8], is_unchanged: bool) -> bool {
        match self {
            Sharing::Unchanged(objects) => is_unchanged && objects.holds(id, content),
            Sharing::FirstSnapshot(objects, head) => {
                (is_unchanged || head.contains(id)) && objects.holds(id, content)
            }
        }
    }
}

impl Inner {
    /// The packs of the workspace's repository.
    pub(crate) fn repository(&self) -> Arc<RepositoryObjects> {
        let mut repository = lock(&self.repository);
        let open = || Arc::new(RepositoryObjects::open(&self.files.roots));
        Arc::clone(repository.get_or_insert_with(open))
    }

    /// Notices that git has replaced packs, and copies what was in the old ones alone.
    pub(crate) fn follow_repository(&self) {
        let roots = &self.files.roots;
        let old = lock(&self.repository).clone();
        if old.as_ref().is_some_and(|old| old.is_current(roots)) {
            return;
        }
        let fresh = Arc::new(RepositoryObjects::open(roots));
        if old.is_some() && !fresh.is_complete() {
            // The old packs stay open, and the next call tries again.
            return;
        }
        let number = fresh.names_number();
        let is_same = old.as_ref().is_none_or(|old| old.names_number() == number);
        if old.as_ref().is_some_and(|old| !old.is_intact()) {
            // A pack was overwritten: nothing in it is relied on any more.
            let copied = self.copy_missing(None, &RepositoryObjects::none());
            if let Err(error) = copied {
                tracing::warn!(%error, "contents of an overwritten pack were not copied");
            }
        }
        let checked = self.store.packs();
        if !is_same || !matches!(checked, Ok(checked) if checked == number) {
            let copied = self
                .copy_missing(old.as_deref(), &fresh)
                .and_then(|()| self.store.set_packs(number));
            if let Err(error) = copied {
                // The old packs stay open, and the next call tries again.
                tracing::warn!(%error, "contents of removed packs were not copied");
                return;
            }
        }
        *lock(&self.repository) = Some(fresh);
    }

    /// Copies what was in these packs alone, when others have taken their place since.
    pub(crate) fn copy_removed(&self, old: &RepositoryObjects) -> Result<()> {
        self.follow_repository();
        let now = self.repository();
        match now.names_number() == old.names_number() {
            true => Ok(()),
            false => self.copy_missing(Some(old), &now),
        }
    }

    /// Copies the contents of the snapshot that are neither stored nor in the packs `now`.
    fn copy_missing(&self, old: Option<&RepositoryObjects>, now: &RepositoryObjects) -> Result<()> {
        let missing = self.store.unstored()?;
        let missing = missing
            .into_iter()
            .filter(|unstored| !now.is_readable(&unstored.id, unstored.size));
        // Half of the room, like the first snapshot: entries need the rest.
        let mut waiting = WaitingObjects::new(self, self.settings.max_bytes / 2);
        let mut copied: HashSet<ObjectId> = HashSet::new();
        for UnstoredPath { path, id, .. } in missing {
            if copied.contains(&id) {
                continue;
            }
            let content = old
                .and_then(|old| old.blob(&id))
                .or_else(|| self.unchanged_file(&path, &id).map(Arc::new));
            if let Some(content) = content {
                copied.insert(id);
                waiting.add(id, Arc::unwrap_or_clone(content))?;
            }
        }
        waiting.store()
    }

    /// The content of a file that is as it was.
    fn unchanged_file(&self, path: &[u8], id: &ObjectId) -> Option<Vec<u8>> {
        let exact = self.files.roots.exact_path(path, Access::Read).ok()?;
        let PathEntry::File { stat, file } = exact.entry().ok()? else {
            return None;
        };
        let size = u64::try_from(stat.st_size).ok()?;
        let content = read_all(&mut file?, size, self.settings.max_file_bytes).ok()?;
        (blob_id(&content) == *id).then_some(content)
    }

    /// Copies what the entry of these findings will need, so that its transaction is short.
    pub(crate) fn copy_shared_ahead(&self, findings: &[Finding]) {
        let objects = self.repository();
        if objects.is_empty() {
            return;
        }
        let mut needed: Vec<ObjectId> = Vec::new();
        let mut bytes: u64 = 0;
        for finding in findings {
            let before = self.snapshot.read().state(&finding.path);
            let is_change = finding.effect == Effect::Record && before != finding.state;
            if let PathState::File { size, content, .. } = before
                && is_change
                && objects.is_readable(&content, size)
            {
                needed.push(content);
                bytes += size;
            }
        }
        let is_inline = |limit: usize| bytes <= limit as u64;
        if needed.is_empty() || self.store.max_inline_bytes().is_some_and(is_inline) {
            return;
        }
        let Ok(stored) = self.store.stored(&needed) else {
            return;
        };
        let mut waiting = WaitingObjects::new(self, self.settings.max_bytes);
        for id in needed.iter().filter(|id| !stored.contains(id)) {
            if let Some(content) = objects.blob(id)
                && waiting.add(*id, Arc::unwrap_or_clone(content)).is_err()
            {
                break;
            }
        }
        // What fails here is tried again with the entry.
        let _ = waiting.store();
    }

    /// The contents of changes that are not stored yet; states whose content is lost say so.
    pub(crate) fn copy_shared(
        &self,
        changes: &mut [ChangeRow],
        is_full: bool,
        stored: &mut HashSet<ObjectId>,
    ) -> Vec<Arc<PackedObject>> {
        let objects = self.repository();
        let mut copied = Vec::new();
        for change in changes {
            for state in [&mut change.before, &mut change.after] {
                let PathState::File {
                    mode,
                    size,
                    content: id,
                } = *state
                else {
                    continue;
                };
                if stored.contains(&id) {
                    continue;
                }
                let lost = |why| PathState::FileNotKept { mode, size, why };
                match objects.blob(&id) {
                    Some(_) if is_full => *state = lost(NotKeptReason::StoreFull),
                    Some(content) => {
                        let object = PackedObject::pack(id, Arc::unwrap_or_clone(content));
                        stored.insert(id);
                        copied.push(Arc::new(object));
                    }
                    None => *state = lost(NotKeptReason::GitRemoved),
                }
            }
        }
        copied
    }
}

/// Contents that are stored together, before the entry that needs them.
struct WaitingObjects<'a> {
    inner: &'a Inner,
    /// Bytes of the store up to which more is stored.
    max_store_bytes: u64,
    objects: Vec<Arc<PackedObject>>,
    bytes: usize,
}

impl WaitingObjects<'_> {
    fn new(inner: &Inner, max_store_bytes: u64) -> WaitingObjects<'_> {
        WaitingObjects {
            inner,
            max_store_bytes,
            objects: Vec::new(),
            bytes: 0,
        }
    }

    fn add(&mut self, id: ObjectId, content: Vec<u8>) -> Result<()> {
        let object = PackedObject::pack(id, content);
        self.bytes += object.body.len();
        self.objects.push(Arc::new(object));
        match self.bytes > MAX_WAITING_BYTES {
            true => self.store(),
            false => Ok(()),
        }
    }

    fn store(&mut self) -> Result<()> {
        let objects = std::mem::take(&mut self.objects);
        self.bytes = 0;
        if objects.is_empty() {
            return Ok(());
        }
        // What does not fit is left out.
        self.inner
            .store
            .add_objects(&objects, self.max_store_bytes)?;
        Ok(())
    }
}
