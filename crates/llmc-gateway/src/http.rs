//! An upstream at an address: MCP over Streamable HTTP.
//!
//! Each request is a POST of its own, whose answer is a JSON document or a stream of events that ends with it. Nothing
//! is kept between requests but the session that the server may have given out.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use llmc_config::{LinkPolicy, read_regular_file};
use llmc_host::lock;
use llmc_model::{NamedServer, ReplyHead};
use serde_json::{Value, json};

use crate::child::MAX_MESSAGE_BYTES;
use crate::error::{Error, Result, quoted};
use crate::request::{self, ProgressSink, Request};

/// Bytes of a token file.
const MAX_TOKEN_BYTES: u64 = 16 << 10;
/// How long a notification may take.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of all events of one stream.
const MAX_STREAM_BYTES: usize = 64 << 20;
const SESSION_HEADER: &str = "mcp-session-id";

/// Where a server is, and what proves that this client may ask it.
#[derive(Debug, Clone)]
pub struct HttpLaunch {
    pub url: String,
    /// Headers with their values.
    pub headers: Vec<(String, String)>,
    /// A file with a bearer token; read for each connection.
    pub token_file: Option<PathBuf>,
}

/// A server at an address.
#[derive(Debug)]
pub(crate) struct HttpLink {
    server: NamedServer,
    headers: Vec<(String, String)>,
    state: Mutex<LinkState>,
}

#[derive(Debug, Default)]
struct LinkState {
    session: Option<String>,
    /// The revision, once it is agreed on.
    revision: Option<&'static str>,
    list_changed: bool,
    is_over: bool,
}

impl HttpLink {
    pub(crate) fn new(launch: &HttpLaunch) -> Result<HttpLink> {
        let server = NamedServer::new(&launch.url)
            .map_err(|why| Error::NotStarted(format!("the url {why}")))?;
        let mut headers = launch.headers.clone();
        if let Some(path) = &launch.token_file {
            let token = read_regular_file(path, MAX_TOKEN_BYTES, LinkPolicy::Follow)
                .and_then(|file| file.into_text())
                .map_err(|error| Error::NotStarted(format!("{}: {error}", path.display())))?;
            headers.push((
                "authorization".to_owned(),
                format!("Bearer {}", token.trim()),
            ));
        }
        if !headers.is_empty() && !server.is_private() {
            return Err(Error::NotStarted(
                "credentials are sent over https or to this machine only".to_owned(),
            ));
        }
        Ok(HttpLink {
            server,
            headers,
            state: Mutex::default(),
        })
    }

    /// Sets the revision that further requests name.
    pub(crate) fn agree_on(&self, revision: &'static str) {
        lock(&self.state).revision = Some(revision);
    }

    pub(crate) fn is_open(&self) -> bool {
        !lock(&self.state).is_over
    }

    pub(crate) fn take_list_changed(&self) -> bool {
        std::mem::take(&mut lock(&self.state).list_changed)
    }

    pub(crate) async fn request(&self, request: Request<'_>) -> Result<Value> {
        let posted = self.post(&request.message, Some(request.id), request.progress.clone());
        let (why, error) = tokio::select! {
            answer = posted => return answer,
            () = tokio::time::sleep(request.timeout) => ("time limit", Error::TimedOut(request.timeout)),
            () = request.cancel.cancelled() => ("cancelled", Error::Cancelled),
        };
        let params = json!({"requestId": request.id, "reason": why});
        let _ = self.notify("notifications/cancelled", params).await;
        Err(error)
    }

    pub(crate) async fn notify(&self, method: &str, params: Value) -> Result<()> {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        let posted = self.post(&message, None, None);
        match tokio::time::timeout(NOTIFY_TIMEOUT, posted).await {
            Ok(posted) => posted.map(drop),
            Err(_) => Err(Error::TimedOut(NOTIFY_TIMEOUT)),
        }
    }

    async fn post(
        &self,
        message: &Value,
        id: Option<u64>,
        progress: Option<ProgressSink>,
    ) -> Result<Value> {
        let mut body = ReplyBody {
            id,
            progress,
            kept: Vec::new(),
            scanned: 0,
            total: 0,
            answer: None,
            list_changed: false,
        };
        let head = self
            .server
            .post(
                &self.headers_of(message),
                message.to_string().into_bytes(),
                &mut |head, bytes| body.take(head, bytes),
            )
            .await
            .map_err(|why| Error::Ended {
                how: quoted(&why),
                said: String::new(),
            })?;
        body.end(&head);
        let mut state = lock(&self.state);
        state.list_changed |= body.list_changed;
        if let Some(session) = head.header(SESSION_HEADER) {
            state.session = Some(session.to_owned());
        }
        // A session that the server has forgotten is begun anew.
        state.is_over |= head.status == 404 && state.session.is_some();
        drop(state);
        match (head.status, body.answer) {
            (200..=299, Some(answer)) => answer,
            (200..=299, None) if id.is_none() => Ok(Value::Null),
            (200..=299, None) => Err(Error::Protocol("a response without an answer".to_owned())),
            // A refusal in the terms of the protocol says more than its status.
            (_, Some(Err(error @ Error::Refused { .. }))) => Err(error),
            (status @ (401 | 403), _) => Err(Error::Refused {
                code: i64::from(status),
                message: "the server refuses these credentials".to_owned(),
            }),
            (status, _) => Err(Error::Refused {
                code: i64::from(status),
                message: "HTTP status".to_owned(),
            }),
        }
    }

    fn headers_of(&self, message: &Value) -> Vec<(String, String)> {
        let mut headers = self.headers.clone();
        let mut set = |name: &str, value: &str| headers.push((name.to_owned(), value.to_owned()));
        set("accept", "application/json, text/event-stream");
        let state = lock(&self.state);
        if let Some(session) = &state.session {
            set(SESSION_HEADER, session);
        }
        if let Some(revision) = state.revision {
            set("mcp-protocol-version", revision);
        }
        set("mcp-method", message["method"].as_str().unwrap_or_default());
        // Names that a header cannot carry are left out; servers of the revision that wants them accept base64 only.
        if let Some(name) = message["params"]["name"].as_str()
            && name.bytes().all(|byte| byte.is_ascii_graphic())
        {
            set("mcp-name", name);
        }
        headers
    }
}

/// The body of a response while it comes.
struct ReplyBody {
    id: Option<u64>,
    progress: Option<ProgressSink>,
    kept: Vec<u8>,
    /// How much of `kept` holds no end of an event.
    scanned: usize,
    /// Bytes that have come.
    total: usize,
    answer: Option<Result<Value>>,
    list_changed: bool,
}

impl ReplyBody {
    fn take(&mut self, head: &ReplyHead, bytes: &[u8]) -> ControlFlow<()> {
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
    fn end(&mut self, head: &ReplyHead) {
        let left = std::mem::take(&mut self.kept);
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
        let data: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("data:"))
            .map(|data| data.strip_prefix(' ').unwrap_or(data))
            .collect();
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
            Some(_) => {}
            // An error without an id answers a request that could not be read.
            None if message["id"].as_u64() == self.id || message["id"].is_null() => {
                self.answer = Some(request::answer(&mut message));
            }
            None => {}
        }
    }
}

fn is_stream(head: &ReplyHead) -> bool {
    let kind = head.header("content-type").unwrap_or_default();
    kind.starts_with("text/event-stream")
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
        let stream = "data: x\r\n\r\n: x\n\ndata: {\"id\": 7,\ndata: \"result\": 3}\n\n";
        for size in 1..stream.len() {
            let mut body = ReplyBody {
                id: Some(7),
                progress: None,
                kept: Vec::new(),
                scanned: 0,
                total: 0,
                answer: None,
                list_changed: false,
            };
            for piece in stream.as_bytes().chunks(size) {
                body.kept.extend_from_slice(piece);
                body.events();
            }
            assert_eq!(body.answer, Some(Ok(json!(3))), "{size}");
        }
    }

    #[test]
    fn credentials_go_over_https_or_to_this_machine() {
        let launch = |url: &str, headers: &[(&str, &str)]| HttpLaunch {
            url: url.to_owned(),
            headers: headers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            token_file: None,
        };
        let secret = [("authorization", "Bearer x")];
        HttpLink::new(&launch("http://example.com/mcp", &[])).unwrap();
        HttpLink::new(&launch("https://example.com/mcp", &secret)).unwrap();
        HttpLink::new(&launch("http://127.0.0.1:1/mcp", &secret)).unwrap();
        HttpLink::new(&launch("http://example.com/mcp", &secret)).unwrap_err();
        HttpLink::new(&launch("file:///etc/passwd", &[])).unwrap_err();
    }
}
