//! Watches telemetry.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use jiff::Timestamp;
use llmc_observe::{
    Aggregator, Error, Summary, TelemetryFollower, TelemetryLocation, UpstreamList,
};

use super::{MAX_LISTED_CALLS, Since, WatchUpdate};
use crate::call::{ListedCall, legible_summary};

/// How often it is read. A read of a file without new rows takes some ten microseconds.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

pub(super) fn watch(
    location: &TelemetryLocation,
    since: Since,
    upstreams: &[UpstreamList],
    send: &SyncSender<WatchUpdate>,
) {
    let mut follower = TelemetryFollower::new(location.clone(), since.start(Timestamp::now()));
    let mut aggregator = Aggregator::default();
    let mut failing = false;
    loop {
        let mut updates = Vec::new();
        match read(&mut follower, &mut aggregator) {
            Ok(calls) => {
                if !calls.is_empty() {
                    updates.push(WatchUpdate::Calls(calls));
                    updates.push(WatchUpdate::Summary(Box::new(summary(
                        &aggregator,
                        upstreams,
                    ))));
                }
                if std::mem::take(&mut failing) {
                    updates.push(WatchUpdate::Recovered);
                }
            }
            Err(error) => {
                // Once per outage.
                if !std::mem::replace(&mut failing, true) {
                    updates.push(WatchUpdate::Failed(error.to_string()));
                }
            }
        }
        if updates.into_iter().any(|update| send.send(update).is_err()) {
            return;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

pub(super) fn read_summary(
    location: &TelemetryLocation,
    since: Since,
    upstreams: &[UpstreamList],
) -> Result<Summary, Error> {
    let mut aggregator = Aggregator::default();
    let mut follower = TelemetryFollower::new(location.clone(), since.start(Timestamp::now()));
    read(&mut follower, &mut aggregator)?;
    Ok(summary(&aggregator, upstreams))
}

fn summary(aggregator: &Aggregator, upstreams: &[UpstreamList]) -> Summary {
    legible_summary(aggregator.summary_with(Timestamp::now(), upstreams))
}

/// Adds up everything that is new; returns the latest of it.
fn read(
    follower: &mut TelemetryFollower,
    aggregator: &mut Aggregator,
) -> Result<Vec<ListedCall>, Error> {
    let mut latest = Vec::new();
    loop {
        let rows = follower.next(MAX_LISTED_CALLS)?;
        let more = rows.len() == MAX_LISTED_CALLS;
        for row in rows {
            let call = ListedCall::new(row);
            aggregator.add(&Arc::new(call.event.clone()));
            latest.push(call);
        }
        let excess = latest.len().saturating_sub(MAX_LISTED_CALLS);
        latest.drain(..excess);
        if !more {
            return Ok(latest);
        }
    }
}
