//! Which requests are not answered yet, and how much work they are.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use rmcp::model::RequestId;
use tokio::sync::Notify;

use crate::serve::ConnectionLimits;

/// The id of the handshake that is made up for a client without one.
const OWN_HANDSHAKE_ID: &str = "llmc:handshake";

/// Requests that rmcp has and we have not yet seen answered.
#[derive(Debug, Default)]
pub(super) struct PendingRequests {
    running: Mutex<PendingState>,
    pub(super) changed: Notify,
}

#[derive(Debug, Default)]
struct PendingState {
    ids: HashMap<RequestId, PendingKind>,
    own_handshake: bool,
}

/// What a request means for the end of input.
#[derive(Debug)]
pub(super) enum PendingKind {
    /// Is answered first; in work at least until then.
    Call(RequestInWork),
    /// Stays open until the client ends it, so it is ended.
    Subscription,
}

impl PendingRequests {
    fn running(&self) -> std::sync::MutexGuard<'_, PendingState> {
        llmc_observe::lock(&self.running)
    }

    /// False when the id is taken.
    pub(super) fn begin(&self, id: &RequestId, kind: PendingKind) -> bool {
        match self.running().ids.entry(id.clone()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(kind);
                true
            }
        }
    }

    pub(super) fn subscriptions(&self) -> Vec<RequestId> {
        let running = self.running();
        let open = running.ids.iter();
        open.filter(|(_, kind)| matches!(kind, PendingKind::Subscription))
            .map(|(id, _)| id.clone())
            .collect()
    }

    pub(super) fn end(&self, id: &RequestId) {
        let ended = self.running().ids.remove(id);
        drop(ended);
        self.changed.notify_waiters();
    }

    pub(super) async fn all_answered(&self) {
        loop {
            let changed = self.changed.notified();
            let calls_left = {
                let running = self.running();
                let mut kinds = running.ids.values();
                kinds.any(|kind| matches!(kind, PendingKind::Call(_)))
            };
            if !calls_left {
                return;
            }
            changed.await;
        }
    }

    pub(super) fn expect_own_handshake(&self) {
        self.running().own_handshake = true;
    }

    /// True once, for the answer to the handshake we made up. rmcp answers it before it reads on, so a client
    /// that happens to use the same id is not confused with it.
    pub(super) fn is_own_handshake(&self, id: &RequestId) -> bool {
        let mut running = self.running();
        let is_own = running.own_handshake && *id == own_handshake_id();
        running.own_handshake &= !is_own;
        is_own
    }
}

/// The requests in work and the text they came in.
#[derive(Debug, Default)]
pub(super) struct WorkLoad {
    calls: AtomicUsize,
    bytes: AtomicUsize,
    pub(super) eased: Notify,
}

impl WorkLoad {
    pub(super) fn begin(self: &Arc<Self>, bytes: usize) -> RequestInWork {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let load = self.clone();
        RequestInWork(Arc::new(WorkShare { load, bytes }))
    }

    /// Whether a request of this size can be begun; one alone always can.
    pub(super) fn fits(&self, bytes: usize, limits: &ConnectionLimits) -> bool {
        let calls = self.calls.load(Ordering::Relaxed);
        let held = self.bytes.load(Ordering::Relaxed);
        calls == 0
            || calls < limits.max_calls && held.saturating_add(bytes) <= limits.max_call_bytes
    }
}

/// A request in work: until its answer is queued and its handler has ended, whichever is later. A cancelled
/// request has no answer, and its handler may take a while to notice.
#[derive(Debug, Clone)]
pub(crate) struct RequestInWork(#[expect(dead_code, reason = "held for its drop")] Arc<WorkShare>);

#[derive(Debug)]
struct WorkShare {
    load: Arc<WorkLoad>,
    bytes: usize,
}

impl Drop for WorkShare {
    fn drop(&mut self) {
        self.load.calls.fetch_sub(1, Ordering::Relaxed);
        self.load.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.load.eased.notify_waiters();
    }
}

pub(super) fn own_handshake_id() -> RequestId {
    RequestId::String(OWN_HANDSHAKE_ID.into())
}
