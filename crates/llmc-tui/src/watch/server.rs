//! Watches a running server over HTTP.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use jiff::Timestamp;
use llmc_observe::{Aggregator, CallEvent, CallTotals, Summary};
use serde::Deserialize;

use super::http::{FetchError, get};
use super::{ServerAddress, WatchUpdate};
use crate::call::{ListedCall, legible_summary};

const MAX_BODY_BYTES: usize = 8 << 20;
const RECONNECT_DELAY: Duration = Duration::from_secs(2);
/// Calls whose ids are remembered, so that one sent twice is shown once. A summary holds fifty.
const MAX_REMEMBERED_IDS: usize = 256;

pub(super) fn watch(address: &ServerAddress, token: Option<&str>, send: &SyncSender<WatchUpdate>) {
    let mut watcher = ServerWatcher {
        address,
        token,
        send,
        ids: VecDeque::new(),
        seen: Aggregator::default(),
        totals: CallTotals::default(),
    };
    loop {
        let reason = match watcher.follow() {
            Err(WatchEnd::Unwatched) => return,
            Err(WatchEnd::Failed(error)) => describe(address, &error),
            Ok(()) => format!("{address} has ended"),
        };
        if send.send(WatchUpdate::Failed(reason)).is_err() {
            return;
        }
        std::thread::sleep(RECONNECT_DELAY);
    }
}

pub(super) fn read_summary(
    address: &ServerAddress,
    token: Option<&str>,
) -> Result<Summary, FetchError> {
    let mut summary = fetch_summary(address, token)?;
    let mut seen = Aggregator::default();
    for call in summary.recent.iter().rev() {
        seen.add(&Arc::new(call.clone()));
    }
    add_slowest(&mut summary, &seen);
    Ok(summary)
}

pub(super) fn fetch_health(address: &ServerAddress) -> Result<String, FetchError> {
    fetch(address, None, "/health")
}

pub(super) fn fetch(
    address: &ServerAddress,
    token: Option<&str>,
    path: &str,
) -> Result<String, FetchError> {
    get(address, token, path)?.read_text(MAX_BODY_BYTES)
}

struct ServerWatcher<'a> {
    address: &'a ServerAddress,
    token: Option<&'a str>,
    send: &'a SyncSender<WatchUpdate>,
    ids: VecDeque<String>,
    /// The calls that this watcher was sent.
    seen: Aggregator,
    /// As in the last summary.
    totals: CallTotals,
}

enum WatchEnd {
    /// The receiver of the updates is gone.
    Unwatched,
    Failed(FetchError),
}

impl From<FetchError> for WatchEnd {
    fn from(error: FetchError) -> WatchEnd {
        WatchEnd::Failed(error)
    }
}

#[derive(Deserialize)]
struct Gauges {
    totals: CallTotals,
}

impl ServerWatcher<'_> {
    /// Follows the events until they end.
    fn follow(&mut self) -> Result<(), WatchEnd> {
        // The stream first: a call that ends before the summary is read is then sent twice rather than never.
        let mut events = get(self.address, self.token, "/api/events")?;
        self.refresh()?;
        self.send(WatchUpdate::Recovered)?;
        let (mut kind, mut data) = (String::new(), String::new());
        while let Some(line) = events.read_line()? {
            if let Some(name) = line.strip_prefix("event: ") {
                name.clone_into(&mut kind);
            } else if let Some(text) = line.strip_prefix("data: ") {
                text.clone_into(&mut data);
            } else if line.is_empty() {
                self.handle(&kind, &data)?;
                kind.clear();
                data.clear();
            }
        }
        Ok(())
    }

    fn handle(&mut self, kind: &str, data: &str) -> Result<(), WatchEnd> {
        match kind {
            "call" => {
                let call = serde_json::from_str(data).map_err(FetchError::NotOurs)?;
                self.send_new(vec![call])
            }
            "gauges" => {
                let gauges: Gauges = serde_json::from_str(data).map_err(FetchError::NotOurs)?;
                if gauges.totals == self.totals {
                    return Ok(());
                }
                self.refresh()
            }
            "missed" => self.refresh(),
            _ => Ok(()),
        }
    }

    /// Reads the summary, and the latest calls in it.
    fn refresh(&mut self) -> Result<(), WatchEnd> {
        let mut summary = fetch_summary(self.address, self.token)?;
        self.totals = summary.totals;
        self.send_new(summary.recent.iter().rev().cloned().collect())?;
        add_slowest(&mut summary, &self.seen);
        self.send(WatchUpdate::Summary(Box::new(summary)))
    }

    /// Sends on those that were not sent yet, oldest first.
    fn send_new(&mut self, calls: Vec<CallEvent>) -> Result<(), WatchEnd> {
        let mut new = Vec::new();
        for call in calls {
            if self.ids.contains(&call.correlation_id) {
                continue;
            }
            self.ids.truncate(MAX_REMEMBERED_IDS - 1);
            self.ids.push_front(call.correlation_id.clone());
            let call = ListedCall::new(call);
            self.seen.add(&Arc::new(call.event.clone()));
            new.push(call);
        }
        if new.is_empty() {
            return Ok(());
        }
        self.send(WatchUpdate::Calls(new))
    }

    fn send(&self, update: WatchUpdate) -> Result<(), WatchEnd> {
        self.send.send(update).map_err(|_| WatchEnd::Unwatched)
    }
}

/// A server does not send its slowest calls: those among the calls that were seen are shown.
fn add_slowest(summary: &mut Summary, seen: &Aggregator) {
    let seen = seen.summary(Timestamp::now());
    summary.slowest = seen.slowest;
    summary.last_handle = seen.last_handle;
}

fn fetch_summary(address: &ServerAddress, token: Option<&str>) -> Result<Summary, FetchError> {
    let text = fetch(address, token, "/api/summary")?;
    let summary = serde_json::from_str(&text).map_err(FetchError::NotOurs)?;
    Ok(legible_summary(summary))
}

/// The error and what to do about it.
pub(super) fn describe(address: &ServerAddress, error: &FetchError) -> String {
    let text = match error {
        FetchError::Status(401) => format!(
            "{address} refuses the token; set LLMC_MCP_TOKEN to the server's, or run this in its workspace"
        ),
        FetchError::Status(status) => format!("{address} answers with status {status}"),
        FetchError::InvalidToken => format!("no token can be sent to {address}: {error}"),
        FetchError::NotHttp | FetchError::NotOurs(_) | FetchError::TooLong => {
            format!("{address} is no server of this version: {error}")
        }
        FetchError::Timeout | FetchError::Io(_) | FetchError::Http(_) => {
            format!("{address} does not answer ({error}); is `llmc serve` running there?")
        }
    };
    crate::text::legible(&text, 400)
}
