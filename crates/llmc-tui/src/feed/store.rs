//! Watches a telemetry file.

use std::path::Path;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use jiff::Timestamp;
use llmc_envelope::telemetry::Follower;

use super::{CALLS, News, Since};
use crate::picture::Picture;
use crate::seen::Seen;
use crate::tally::Tally;

/// How often to look. A look at a file that has not changed costs some ten microseconds.
const LOOK: Duration = Duration::from_millis(250);

pub(super) fn watch(path: &Path, since: Since, send: &SyncSender<News>) {
    let mut follower = Follower::new(path, since.moment(Timestamp::now()));
    let mut tally = Tally::default();
    let mut troubled = false;
    loop {
        let before = troubled;
        let mut news = Vec::new();
        match read(&mut follower, &mut tally) {
            Ok(calls) => {
                troubled = false;
                if !calls.is_empty() {
                    news.push(News::Calls(calls));
                    news.push(News::Picture(Box::new(tally.picture())));
                }
            }
            Err(error) => {
                troubled = true;
                news.push(News::Trouble(error));
            }
        }
        if before && !troubled {
            news.push(News::Well);
        } else if before && troubled {
            // Said already.
            news.clear();
        }
        if news.into_iter().any(|news| send.send(news).is_err()) {
            return;
        }
        std::thread::sleep(LOOK);
    }
}

pub(super) fn look(path: &Path, since: Since) -> Result<Picture, String> {
    let mut tally = Tally::default();
    read(
        &mut Follower::new(path, since.moment(Timestamp::now())),
        &mut tally,
    )?;
    Ok(tally.picture())
}

/// Everything that is new; of that the latest calls.
fn read(follower: &mut Follower, tally: &mut Tally) -> Result<Vec<Seen>, String> {
    let mut latest = Vec::new();
    loop {
        let rows = follower.next(CALLS).map_err(|error| error.to_string())?;
        let more = rows.len() == CALLS;
        let calls: Vec<Seen> = rows.into_iter().map(Seen::recorded).collect();
        for call in &calls {
            tally.add(call);
        }
        latest.extend(calls);
        let excess = latest.len().saturating_sub(CALLS);
        latest.drain(..excess);
        if !more {
            return Ok(latest);
        }
    }
}
