//! Counters and latencies in memory, for `get_metrics`, Prometheus and those who watch live.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::broadcast;

use super::view::View;
use super::{Counted, SeenCall};
use crate::error::Family;

/// Calls that a slow watcher may be behind before it misses some.
const BEHIND: usize = 256;

/// Whose calls are asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose<'a> {
    /// Everybody's: for the operator.
    All,
    /// One principal's own.
    Of(&'a str),
}

/// Everything since the start.
#[derive(Debug)]
pub struct Metrics {
    views: Mutex<Views>,
    feed: broadcast::Sender<Arc<SeenCall>>,
}

/// Principals are named by the configuration, so there are few of them.
#[derive(Debug, Default)]
struct Views {
    all: View,
    by: BTreeMap<String, View>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            views: Mutex::default(),
            feed: broadcast::channel(BEHIND).0,
        }
    }
}

impl Metrics {
    pub(super) fn add(&self, counted: &Counted) {
        let now = Timestamp::now();
        let call = Arc::new(SeenCall::of(counted, now));
        let is_te = (counted.event.tool).is_some_and(|tool| tool.family == Family::Te);
        let mut views = self.views();
        views.all.add(&call, is_te, now);
        let own = views.by.entry(call.principal.clone()).or_default();
        own.add(&call, is_te, now);
        drop(views);
        // Nobody watching is the usual case.
        let _ = self.feed.send(call);
    }

    /// Every call from now on.
    pub(super) fn watch(&self) -> broadcast::Receiver<Arc<SeenCall>> {
        self.feed.subscribe()
    }

    pub(super) fn document(&self) -> Value {
        self.views().all.document()
    }

    pub(super) fn summary(&self, whose: Whose<'_>) -> Value {
        self.with(whose, |view| view.summary(Timestamp::now()))
    }

    pub(super) fn totals(&self, whose: Whose<'_>) -> Value {
        self.with(whose, View::totals)
    }

    pub(super) fn prometheus(&self, out: &mut String) -> BTreeMap<&'static str, u64> {
        let views = self.views();
        views.all.prometheus(out);
        views.all.errors().clone()
    }

    fn with<T>(&self, whose: Whose<'_>, look: impl FnOnce(&View) -> T) -> T {
        let views = self.views();
        match whose {
            Whose::All => look(&views.all),
            Whose::Of(principal) => match views.by.get(principal) {
                Some(view) => look(view),
                None => look(&View::default()),
            },
        }
    }

    fn views(&self) -> MutexGuard<'_, Views> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
