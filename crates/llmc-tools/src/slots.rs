//! Slots for calls that run at the same time.
//!
//! A slot is for work of the server itself: a call that waits for a command, a process or its input gives its slot back
//! meanwhile, so that waiting calls keep no other call waiting, least of all the one that they wait for. The waiting calls
//! are counted too, and one beyond their limit keeps its slot.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::tool::Effect;

/// Calls of a principal that may wait without a slot.
const MAX_WAITING_CALLS: usize = 120;

/// The slots of each principal, so that one cannot keep another waiting. Scripts and analyses by models have their own, or
/// many of them would keep every other call waiting.
#[derive(Debug)]
pub(crate) struct CallSlots {
    per_principal: u64,
    pools: Mutex<BTreeMap<(String, WorkClass), SlotPool>>,
}

/// What shares slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkClass {
    Scripts,
    Analyses,
    Other,
}

impl WorkClass {
    pub(crate) fn of(effect: Effect) -> WorkClass {
        match effect {
            Effect::Scripts => WorkClass::Scripts,
            Effect::SendsOut => WorkClass::Analyses,
            Effect::Reads
            | Effect::Writes
            | Effect::Runs
            | Effect::UpstreamReads
            | Effect::UpstreamRuns => WorkClass::Other,
        }
    }
}

impl CallSlots {
    pub(crate) fn new(per_principal: u64) -> CallSlots {
        CallSlots {
            per_principal,
            pools: Mutex::default(),
        }
    }

    /// This principal's slots; a call that finds none free waits its turn.
    pub(crate) fn of(&self, principal: &str, class: WorkClass) -> SlotPool {
        let key = (principal.to_owned(), class);
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let pool = pools
            .entry(key)
            .or_insert_with(|| SlotPool::new(self.per_principal));
        pool.clone()
    }
}

/// Slots that calls share. Clones are the same slots.
#[derive(Debug, Clone)]
pub struct SlotPool {
    slots: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl SlotPool {
    /// A pool of so many slots, at least one.
    pub fn new(slots: u64) -> SlotPool {
        let slots = usize::try_from(slots).unwrap_or(Semaphore::MAX_PERMITS);
        SlotPool {
            slots: Arc::new(Semaphore::new(slots.clamp(1, Semaphore::MAX_PERMITS))),
            waiting: Arc::new(Semaphore::new(MAX_WAITING_CALLS)),
        }
    }

    /// Waits for a slot.
    pub async fn acquire(&self) -> CallSlot {
        let held = self.slots.clone().acquire_owned().await.ok();
        CallSlot {
            pool: self.clone(),
            held: Mutex::new(held),
        }
    }
}

/// The slot of one call, free again when it is dropped.
#[derive(Debug)]
pub struct CallSlot {
    pool: SlotPool,
    /// `None` while the call waits.
    held: Mutex<Option<OwnedSemaphorePermit>>,
}

impl CallSlot {
    /// Waits without the slot, then takes one again. Must not be called on an async thread.
    pub(crate) fn while_waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        let Some(waiting) = self.release() else {
            return wait();
        };
        let waited = wait();
        drop(waiting);
        let again = self.pool.slots.clone().acquire_owned();
        *self.held() = Handle::current().block_on(again).ok();
        waited
    }

    /// Gives the slot back for as long as the permit lives; `None` if it is not held or too many calls wait already.
    pub(crate) fn release(&self) -> Option<OwnedSemaphorePermit> {
        let mut held = self.held();
        held.as_ref()?;
        let waiting = self.pool.waiting.clone().try_acquire_owned().ok()?;
        *held = None;
        Some(waiting)
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_waiting_call_has_no_slot_and_takes_one_again() {
        let pool = SlotPool::new(1);
        let slot = pool.acquire().await;
        let other = pool.clone();
        let slot = tokio::task::spawn_blocking(move || {
            // The call that this one waits for; it would never get the only slot.
            let awaited = || drop(Handle::current().block_on(other.acquire()));
            slot.while_waiting(awaited);
            slot
        });
        let slot = slot.await.unwrap();
        assert_eq!(pool.slots.available_permits(), 0, "it works on in a slot");
        assert_eq!(pool.waiting.available_permits(), MAX_WAITING_CALLS);
        drop(slot);
        assert_eq!(pool.slots.available_permits(), 1);
    }

    #[tokio::test]
    async fn waiting_calls_are_counted_and_one_too_many_keeps_its_slot() {
        let pool = SlotPool::new(1000);
        let mut waiting = Vec::new();
        for _ in 0..MAX_WAITING_CALLS {
            let slot = pool.acquire().await;
            waiting.push((slot.release().unwrap(), slot));
        }
        assert_eq!(pool.slots.available_permits(), 1000);
        let one_more = pool.acquire().await;
        assert!(one_more.release().is_none());
        assert_eq!(pool.slots.available_permits(), 999);
        waiting.pop();
        assert!(one_more.release().is_some());
    }

    #[test]
    fn scripts_and_analyses_do_not_take_the_slots_of_other_calls() {
        let slots = CallSlots::new(1);
        let mut held = Vec::new();
        for effect in [Effect::Scripts, Effect::SendsOut, Effect::Runs] {
            let pool = slots.of("local", WorkClass::of(effect));
            held.push(pool.slots.clone().try_acquire_owned().expect("its own"));
        }
        let shared = slots.of("local", WorkClass::of(Effect::Reads));
        assert!(shared.slots.try_acquire_owned().is_err());
        let other = slots.of("ci", WorkClass::Other);
        assert!(other.slots.try_acquire_owned().is_ok());
    }
}
