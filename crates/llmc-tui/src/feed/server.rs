//! Watches a running server over HTTP.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use serde::Deserialize;

use super::wire::{Body, Trouble, get};
use super::{Address, News};
use crate::picture::{Counts, Picture, Slow, Summary, Sums, note_slow};
use crate::seen::Seen;

/// The longest summary.
const SUMMARY: u64 = 8 << 20;
/// How long to wait before another try.
const AGAIN: Duration = Duration::from_secs(2);
/// Calls whose ids are remembered, so that one told twice is shown once. A summary tells of fifty.
const KNOWN: usize = 256;

pub(super) fn watch(address: &Address, token: Option<&str>, send: &SyncSender<News>) {
    let mut watcher = Watcher {
        address,
        token,
        send,
        known: VecDeque::new(),
        slowest: Vec::new(),
        last: None,
        last_handle: None,
        sums: Sums::default(),
    };
    loop {
        let why = match watcher.stream() {
            Err(End::Unwatched) => return,
            Err(End::Trouble(trouble)) => words(address, &trouble),
            Ok(()) => format!("{address} has ended"),
        };
        if send.send(News::Trouble(why)).is_err() {
            return;
        }
        std::thread::sleep(AGAIN);
    }
}

pub(super) fn look(address: &Address, token: Option<&str>) -> Result<Picture, String> {
    let summary = summary(address, token).map_err(|trouble| words(address, &trouble))?;
    let (mut picture, calls) = taken_apart(summary);
    for (_, call) in &calls {
        note_slow(&mut picture.slowest, call);
        picture.last_handle = call.handle.or(picture.last_handle);
    }
    picture.last = calls
        .into_iter()
        .next_back()
        .map(|(_, call)| Box::new(call));
    Ok(picture)
}

/// Asks a server how it is.
pub(super) fn health(address: &Address) -> Result<String, String> {
    let asked = || -> Result<String, Trouble> {
        let mut text = String::new();
        let body = get(address, None, "/health")?;
        body.take(SUMMARY).read_to_string(&mut text)?;
        Ok(text)
    };
    asked().map_err(|trouble| words(address, &trouble))
}

struct Watcher<'a> {
    address: &'a Address,
    token: Option<&'a str>,
    send: &'a SyncSender<News>,
    known: VecDeque<String>,
    slowest: Vec<Slow>,
    last: Option<Box<Seen>>,
    last_handle: Option<llmc_envelope::HandleId>,
    /// As last told.
    sums: Sums,
}

enum End {
    /// Nobody takes the news any more.
    Unwatched,
    Trouble(Trouble),
}

impl From<Trouble> for End {
    fn from(trouble: Trouble) -> End {
        End::Trouble(trouble)
    }
}

#[derive(Deserialize)]
struct Gauges {
    totals: Counts,
}

impl Watcher<'_> {
    /// Follows the events until they end.
    fn stream(&mut self) -> Result<(), End> {
        // The stream first: a call that ends before the summary is read is then told twice rather than never.
        let mut body = get(self.address, self.token, "/api/events")?;
        self.refresh()?;
        self.tell(News::Well)?;
        let (mut kind, mut data) = (String::new(), String::new());
        while let Some(line) = read_line(&mut body)? {
            if let Some(name) = line.strip_prefix("event: ") {
                name.clone_into(&mut kind);
            } else if let Some(text) = line.strip_prefix("data: ") {
                text.clone_into(&mut data);
            } else if line.is_empty() {
                self.event(&kind, &data)?;
                kind.clear();
                data.clear();
            }
        }
        Ok(())
    }

    fn event(&mut self, kind: &str, data: &str) -> Result<(), End> {
        match kind {
            "call" => {
                let call =
                    Seen::event(data).ok_or(Trouble::Odd("it tells of calls in another form"))?;
                self.calls(vec![call])
            }
            "gauges" => {
                let gauges: Gauges = serde_json::from_str(data)
                    .map_err(|_| Trouble::Odd("it counts in another form"))?;
                if gauges.totals.sums() == self.sums {
                    return Ok(());
                }
                self.refresh()
            }
            "missed" => self.refresh(),
            _ => Ok(()),
        }
    }

    /// Tells everything anew.
    fn refresh(&mut self) -> Result<(), End> {
        let summary = summary(self.address, self.token)?;
        let (mut picture, calls) = taken_apart(summary);
        self.calls(calls)?;
        self.sums = picture.sums;
        picture.slowest.clone_from(&self.slowest);
        picture.last.clone_from(&self.last);
        picture.last_handle = self.last_handle;
        self.tell(News::Picture(Box::new(picture)))
    }

    /// Tells those that are not known yet.
    fn calls(&mut self, calls: Vec<(String, Seen)>) -> Result<(), End> {
        let mut fresh = Vec::new();
        for (id, call) in calls {
            if self.known.contains(&id) {
                continue;
            }
            self.known.truncate(KNOWN - 1);
            self.known.push_front(id);
            note_slow(&mut self.slowest, &call);
            self.last_handle = call.handle.or(self.last_handle);
            self.last = Some(Box::new(call.clone()));
            fresh.push(call);
        }
        if fresh.is_empty() {
            return Ok(());
        }
        self.tell(News::Calls(fresh))
    }

    fn tell(&self, news: News) -> Result<(), End> {
        self.send.send(news).map_err(|_| End::Unwatched)
    }
}

fn read_line(body: &mut Body) -> Result<Option<String>, Trouble> {
    Ok(body.line()?)
}

fn summary(address: &Address, token: Option<&str>) -> Result<Summary, Trouble> {
    let mut text = String::new();
    let body = get(address, token, "/api/summary")?;
    body.take(SUMMARY).read_to_string(&mut text)?;
    serde_json::from_str(&text).map_err(|_| Trouble::Odd("its summary has another form"))
}

/// The sums, and the latest calls, oldest first.
fn taken_apart(mut summary: Summary) -> (Picture, Vec<(String, Seen)>) {
    let recent = std::mem::take(&mut summary.recent);
    let calls = recent.into_iter().rev().map(|event| event.into_seen());
    let calls = calls.collect();
    (summary.picture(), calls)
}

fn words(address: &Address, trouble: &Trouble) -> String {
    let text = match trouble {
        Trouble::Unreachable(error) => {
            format!("{address} does not answer ({error}); is `llmc serve` running there?")
        }
        Trouble::Status(401) => format!(
            "{address} refuses the token; set LLMC_MCP_TOKEN to the server's, or run this in its workspace"
        ),
        Trouble::Status(status) => format!("{address} answers with status {status}"),
        Trouble::Odd(what) => format!("{address} is no server of this version: {what}"),
    };
    crate::text::legible(&text, 400)
}
