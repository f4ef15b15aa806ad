//! Slots for calls that run at the same time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

use crate::tool::Effect;

/// Each principal has its own slots, so that one cannot keep another waiting. Scripts have their own, or many of them would
/// keep every other call waiting.
#[derive(Debug)]
pub(crate) struct CallSlots {
    per_principal: usize,
    taken: Mutex<BTreeMap<(String, bool), Arc<Semaphore>>>,
}

impl CallSlots {
    pub(crate) fn new(per_principal: u64) -> CallSlots {
        let slots = usize::try_from(per_principal).unwrap_or(Semaphore::MAX_PERMITS);
        CallSlots {
            per_principal: slots.clamp(1, Semaphore::MAX_PERMITS),
            taken: Mutex::default(),
        }
    }

    /// This principal's slots; a call that finds none free waits its turn.
    pub(crate) fn of(&self, principal: &str, effect: Effect) -> Arc<Semaphore> {
        let key = (principal.to_owned(), effect == Effect::Scripts);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let slots = taken
            .entry(key)
            .or_insert_with(|| Arc::new(Semaphore::new(self.per_principal)));
        slots.clone()
    }
}
