//! Summaries and events of every server of a workspace, read from the telemetry that all of them write.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::broadcast;

use crate::event::CallEvent;
use crate::live::{CallScope, LiveSummaries};
use crate::lock::lock;
use crate::summary::{CallTotals, Summary};
use crate::telemetry::{Error, TelemetryFollower, TelemetryLocation};
use crate::upstreams::UpstreamList;

/// Rows read at a time.
const READ_ROWS: usize = 2000;

/// Calls of the last while and from now on. Reading happens in [`WorkspaceFeed::poll`]; the rest reads memory.
pub struct WorkspaceFeed {
    follower: Mutex<TelemetryFollower>,
    live: LiveSummaries,
}

impl WorkspaceFeed {
    /// Follows the calls from so long ago on. Nothing is opened yet.
    pub fn new(location: impl Into<TelemetryLocation>, back: Duration) -> WorkspaceFeed {
        let since = Timestamp::now() - back;
        WorkspaceFeed {
            follower: Mutex::new(TelemetryFollower::new(location, since)),
            live: LiveSummaries::default(),
        }
    }

    /// Reads what was recorded since the last time, and tells subscribers.
    ///
    /// # Errors
    /// The file cannot be read now; the next call tries again.
    pub fn poll(&self) -> Result<(), Error> {
        let mut follower = lock(&self.follower);
        loop {
            let calls = follower.next(READ_ROWS)?;
            let is_last = calls.len() < READ_ROWS;
            for mut call in calls {
                // Only the list of calls shows them.
                call.args = None;
                self.live.add(&Arc::new(call));
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Every call that is recorded from now on, once it is read.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<CallEvent>> {
        self.live.subscribe()
    }

    pub fn summary(&self, scope: CallScope<'_>, lists: &[UpstreamList]) -> Summary {
        self.live.summary(scope, lists)
    }

    pub fn totals(&self, scope: CallScope<'_>) -> CallTotals {
        self.live.read(scope, |aggregator| aggregator.totals())
    }
}

impl std::fmt::Debug for WorkspaceFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WorkspaceFeed")
    }
}
