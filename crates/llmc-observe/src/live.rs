//! Summaries of the running server's calls, for each principal, and the stream of its events.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use tokio::sync::broadcast;

use crate::aggregate::Aggregator;
use crate::event::CallEvent;
use crate::lock::lock;
use crate::upstreams::UpstreamList;

/// Calls that a slow subscriber may be behind before it misses some.
const MAX_UNREAD_EVENTS: usize = 256;

/// Whose calls are summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallScope<'a> {
    /// Every principal's, for the operator.
    All,
    Principal(&'a str),
}

/// Everything since the start.
#[derive(Debug)]
pub(crate) struct LiveSummaries {
    aggregators: Mutex<Aggregators>,
    events: broadcast::Sender<Arc<CallEvent>>,
}

/// Principals are named by the configuration, so there are few of them.
#[derive(Debug, Default)]
struct Aggregators {
    all: Aggregator,
    by_principal: BTreeMap<String, Aggregator>,
}

impl Default for LiveSummaries {
    fn default() -> LiveSummaries {
        LiveSummaries {
            aggregators: Mutex::default(),
            events: broadcast::channel(MAX_UNREAD_EVENTS).0,
        }
    }
}

impl LiveSummaries {
    pub(crate) fn add(&self, call: &Arc<CallEvent>) {
        let mut aggregators = lock(&self.aggregators);
        aggregators.all.add(call);
        let own = aggregators.by_principal.entry(call.principal.clone());
        own.or_default().add(call);
        drop(aggregators);
        // Fails without subscribers, which is the usual case.
        let _ = self.events.send(call.clone());
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<CallEvent>> {
        self.events.subscribe()
    }

    pub(crate) fn read<T>(&self, scope: CallScope<'_>, read: impl FnOnce(&Aggregator) -> T) -> T {
        let aggregators = lock(&self.aggregators);
        match scope {
            CallScope::All => read(&aggregators.all),
            CallScope::Principal(principal) => match aggregators.by_principal.get(principal) {
                Some(own) => read(own),
                None => read(&Aggregator::default()),
            },
        }
    }

    pub(crate) fn summary(&self, scope: CallScope<'_>, lists: &[UpstreamList]) -> crate::Summary {
        self.read(scope, |aggregator| {
            aggregator.summary_with(Timestamp::now(), lists)
        })
    }
}
