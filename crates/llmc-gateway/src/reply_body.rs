//! The body of a response while it comes: a JSON document, or a stream of events that ends with the answer.

use std::ops::ControlFlow;
use std::time::Duration;

use llmc_model::ReplyHead;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;

use crate::child::MAX_MESSAGE_BYTES;
use crate::error::{Error, Result};
use crate::request::{self, ProgressSink};

/// Bytes of all events of one stream.
const MAX_STREAM_BYTES: usize = 64 << 20;
/// Characters of the id of an event that a header can carry.
const MAX_EVENT_ID_CHARS: usize = 1_024;
/// The longest wait that a server may ask for before a stream is asked for again.
const MAX_RETRY: Duration = Duration::from_secs(60);

/// The body of a response while it comes.
pub(crate) struct ReplyBody {
    /// Of the request whose answer it is.
    id: Option<u64>,
    progress: Option<ProgressSink>,
    /// Takes what the server asks meanwhile.
    asked: UnboundedSender<Value>,
    kept: Vec<u8>,
    /// How much of `kept` holds no end of an event.
    scanned: usize,
    /// Bytes that have come.
    total: usize,
    pub(crate) answer: Option<Result<Value>>,
    pub(crate) list_changed: bool,
    /// The last event, where the stream goes on if it is asked for again.
    pub(crate) last_event: Option<String>,
    /// How long the server wants to be left alone before that.
    pub(crate) retry: Option<Duration>,
}

impl ReplyBody {
    pub(crate) fn new(
        id: Option<u64>,
        progress: Option<ProgressSink>,
        asked: UnboundedSender<Value>,
    ) -> ReplyBody {
        ReplyBody {
            id,
            progress,
            asked,
            kept: Vec::new(),
            scanned: 0,
            total: 0,
            answer: None,
            list_changed: false,
            last_event: None,
            retry: None,
        }
    }

    pub(crate) fn take(&mut self, head: &ReplyHead, bytes: &[u8]) -> ControlFlow<()> {
        self.total = self.total.saturating_add(bytes.len());
        for (is_beyond, limit) in [
            (
                self.kept.len() + bytes.len() > MAX_MESSAGE_BYTES,
                MAX_MESSAGE_BYTES,
            ),
            (self.total > MAX_STREAM_BYTES, MAX_STREAM_BYTES),
        ] {
            if is_beyond {
                self.answer = Some(Err(Error::TooLarge(limit)));
                return ControlFlow::Break(());
            }
        }
        self.kept.extend_from_slice(bytes);
        if is_stream(head) {
            self.events();
        }
        match self.answer.is_some() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Reads the events that are complete, each byte once.
    fn events(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        let (mut start, mut from) = (0, self.scanned.saturating_sub(MAX_END_BYTES - 1));
        while let Some(end) = event_end(&kept[from..]) {
            self.event(&kept[start..from + end]);
            start = from + end;
            from = start;
            if self.answer.is_some() {
                break;
            }
        }
        self.kept = match start {
            0 => kept,
            _ => kept[start..].to_vec(),
        };
        self.scanned = self.kept.len();
    }

    /// The connection was closed: what is left is the answer, or an event without its last line.
    pub(crate) fn end(&mut self, head: &ReplyHead) {
        let left = std::mem::take(&mut self.kept);
        self.scanned = 0;
        if self.answer.is_some() || left.trim_ascii().is_empty() {
            return;
        }
        match is_stream(head) {
            true => self.event(&left),
            false => match serde_json::from_slice::<Value>(&left) {
                Ok(message) => self.message(message),
                Err(_) if head.status < 300 && self.id.is_some() => {
                    let message = "its answer is no JSON".to_owned();
                    self.answer = Some(Err(Error::Protocol(message)));
                }
                Err(_) => {}
            },
        }
    }

    fn event(&mut self, event: &[u8]) {
        let text = String::from_utf8_lossy(event);
        let mut data: Vec<&str> = Vec::new();
        for line in text.lines() {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "data" => data.push(value),
                "id" if is_event_id(value) => self.last_event = Some(value.to_owned()),
                "retry" => {
                    let wait = value.parse().ok().map(Duration::from_millis);
                    self.retry = wait.map(|wait| wait.min(MAX_RETRY)).or(self.retry);
                }
                _ => {}
            }
        }
        if let Ok(message) = serde_json::from_str::<Value>(&data.join("\n")) {
            self.message(message);
        }
    }

    fn message(&mut self, mut message: Value) {
        match message["method"].as_str() {
            Some("notifications/progress") => {
                if let Some(progress) = &self.progress {
                    progress(&request::progress_words(&message["params"]));
                }
            }
            Some("notifications/tools/list_changed") => self.list_changed = true,
            Some(_) if !message["id"].is_null() => {
                // Its receiver lives as long as the request whose body this is.
                let _ = self.asked.send(message);
            }
            Some(_) => {}
            // An error without an id answers a request that could not be read.
            None if message["id"].as_u64() == self.id || message["id"].is_null() => {
                self.answer = Some(request::answer(&mut message));
            }
            None => {}
        }
    }
}

pub(crate) fn is_stream(head: &ReplyHead) -> bool {
    let kind = head.header("content-type").unwrap_or_default();
    kind.starts_with("text/event-stream")
}

/// Whether a header can carry it; an empty one would be none.
fn is_event_id(id: &str) -> bool {
    let is_plain = id.bytes().all(|byte| matches!(byte, 0x20..=0x7e));
    !id.is_empty() && id.len() <= MAX_EVENT_ID_CHARS && is_plain
}

/// Bytes of the longest end of an event.
const MAX_END_BYTES: usize = 4;

/// Where the first event ends, behind its empty line.
fn event_end(bytes: &[u8]) -> Option<usize> {
    let ends = [&b"\n\n"[..], b"\r\n\r\n", b"\r\r"];
    (0..bytes.len()).find_map(|at| {
        let end = ends.iter().find(|end| bytes[at..].starts_with(end))?;
        Some(at + end.len())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    #[test]
    fn events_end_with_an_empty_line() {
        for (text, end) in [
            ("data: 1\n\ndata: 2", Some(9)),
            ("data: 1\r\n\r\nx", Some(11)),
            ("data: 1\n", None),
            ("", None),
        ] {
            assert_eq!(event_end(text.as_bytes()), end, "{text:?}");
        }
    }

    #[test]
    fn a_stream_is_read_alike_in_pieces_of_any_size() {
        let stream = "data: x\r\n\r\n: x\n\nid: e1\nretry: 20\ndata:\n\ndata: {\"id\": 1, \"method\": \"ping\"}\n\n\
                      data: {\"id\": 7,\ndata: \"result\": 3}\n\n";
        for size in 1..stream.len() {
            let (asked, mut requests) = unbounded_channel();
            let mut body = ReplyBody::new(Some(7), None, asked);
            for piece in stream.as_bytes().chunks(size) {
                body.kept.extend_from_slice(piece);
                body.events();
            }
            assert_eq!(body.answer, Some(Ok(json!(3))), "{size}");
            assert_eq!(body.last_event.as_deref(), Some("e1"), "{size}");
            assert_eq!(body.retry, Some(Duration::from_millis(20)), "{size}");
            assert_eq!(requests.try_recv().unwrap()["method"], "ping", "{size}");
        }
    }
}
