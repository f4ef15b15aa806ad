//! An upstream at an address: MCP over Streamable HTTP.
//!
//! Each request is a POST of its own, whose answer is a JSON document or a stream of events that ends with it. A stream that
//! ends before is asked for again from its last event on, if its events have ids. What the server asks in a stream is
//! answered by a POST. While a call is under way whose user can be asked, a second stream is read: some servers ask there. Nothing is kept between requests but the session that the server may have given out.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use llmc_config::{LinkPolicy, read_regular_file};
use llmc_host::lock;
use llmc_model::{NamedServer, ReplyHead};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::connection::STATELESS_REVISION;
use crate::error::{Error, Result, quoted};
use crate::param_headers::header_value;
use crate::reply_body::{ReplyBody, is_stream};
use crate::request::Request;
use crate::user::{AskUser, answer_requests};

/// Bytes of a token file.
const MAX_TOKEN_BYTES: u64 = 16 << 10;
/// How long a notification may take.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a call waits for the stream on which servers ask.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(5);
/// The wait before a stream is asked for again, unless the server names one.
const DEFAULT_RETRY: Duration = Duration::from_secs(1);
/// How often a stream is asked for again.
const MAX_RECONNECTS: usize = 100;
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
    /// It has no stream beside the answers to requests.
    is_silent: bool,
    /// The calls that wait for an answer, and the user of each if that one can be asked.
    under_way: Vec<(u64, Option<AskUser>)>,
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
    pub(crate) fn agree_on(&self, revision: Option<&'static str>) {
        lock(&self.state).revision = revision;
    }

    pub(crate) fn is_open(&self) -> bool {
        !lock(&self.state).is_over
    }

    pub(crate) fn take_list_changed(&self) -> bool {
        std::mem::take(&mut lock(&self.state).list_changed)
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn request(&self, request: Request<'_>) -> Result<Value> {
        let (asked, questions) = unbounded_channel();
        let ask = request.user.as_ref().and_then(|user| user.ask()).cloned();
        let _under_way = request
            .user
            .as_ref()
            .map(|_| UnderWay::new(self, request.id, &ask));
        let listens = ask.is_some() && self.can_listen();
        let (ready, listening) = oneshot::channel();
        let ears = asked.clone();
        let listener = async {
            if listens {
                self.listen(ready, ears).await;
            }
            std::future::pending::<Infallible>().await
        };
        let answered = async {
            if listens {
                // The server drops a question that it asks before this stream is open.
                let _ = tokio::time::timeout(LISTEN_TIMEOUT, listening).await;
            }
            self.exchange(&request, asked).await
        };
        // What the server asks is answered while its stream is read.
        let send = move |response| async move {
            let _ = self.send(&response).await;
        };
        let is_certain = || self.is_only_user(ask.as_ref());
        let replies = answer_requests(questions, request.user.as_deref(), is_certain, send);
        tokio::pin!(answered, replies, listener);
        let began = Instant::now();
        let (why, error) = loop {
            tokio::select! {
                answer = &mut answered => return answer,
                never = &mut replies => match never {},
                never = &mut listener => match never {},
                () = tokio::time::sleep_until(request.next_check(began).into()) => {
                    if request.deadline(began) <= Instant::now() {
                        break ("time limit", Error::TimedOut(request.timeout));
                    }
                }
                () = request.cancel.cancelled() => break ("cancelled", Error::Cancelled),
            }
        };
        // Without sessions, closing the stream is all that cancels.
        if lock(&self.state).revision != Some(STATELESS_REVISION) {
            let params = json!({"requestId": request.id, "reason": why});
            let _ = self.notify("notifications/cancelled", params).await;
        }
        Err(error)
    }

    /// Whether the server has a stream for what belongs to no request: only with a handshake, and not once it was refused.
    fn can_listen(&self) -> bool {
        let state = lock(&self.state);
        !state.is_silent && state.revision != Some(STATELESS_REVISION)
    }

    /// Listens to what the server says outside the answers to requests. Servers ask there, too.
    async fn listen(&self, ready: oneshot::Sender<()>, asked: UnboundedSender<Value>) {
        let mut body = ReplyBody::new(None, None, asked);
        let mut ready = Some(ready);
        let headers = self.headers_of(None, None);
        let mut on_body = |head: &ReplyHead, bytes: &[u8]| {
            if let Some(ready) = ready.take() {
                let _ = ready.send(());
            }
            match is_stream(head) {
                true => {
                    let taken = body.take(head, bytes);
                    lock(&self.state).list_changed |= body.list_changed;
                    taken
                }
                false => ControlFlow::Break(()),
            }
        };
        let head = self.server.get(&headers, &mut on_body).await;
        // Another call may be listening already; a server without such a stream says so.
        let is_refused = head.is_ok_and(|head| matches!(head.status, 404 | 405 | 501));
        lock(&self.state).is_silent |= is_refused;
    }

    /// Whether every call under way is one of this user.
    fn is_only_user(&self, user: Option<&AskUser>) -> bool {
        let state = lock(&self.state);
        let mut users = state.under_way.iter().map(|(_, user)| user.as_ref());
        users.all(|other| {
            other
                .zip(user)
                .is_some_and(|(other, user)| other.is_same(user))
        })
    }

    pub(crate) async fn notify(&self, method: &str, params: Value) -> Result<()> {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
            .await
    }

    /// Sends what has no answer: a notification, or the response to a request of the server.
    async fn send(&self, message: &Value) -> Result<()> {
        let mut body = ReplyBody::new(None, None, unbounded_channel().0);
        let posted = self.round(Some((message, &[][..])), &mut body);
        let head = tokio::time::timeout(NOTIFY_TIMEOUT, posted)
            .await
            .map_err(|_| Error::TimedOut(NOTIFY_TIMEOUT))??;
        verdict(&head, body.answer, None).map(drop)
    }

    /// Posts a request, and asks for the rest of a stream that ended before the answer.
    async fn exchange(
        &self,
        request: &Request<'_>,
        asked: UnboundedSender<Value>,
    ) -> Result<Value> {
        let mut body = ReplyBody::new(Some(request.id), request.progress.clone(), asked);
        let message = Some((&request.message, &request.headers[..]));
        let mut head = self.round(message, &mut body).await?;
        for _ in 0..MAX_RECONNECTS {
            let is_resumable = head.status == 200 && is_stream(&head) && body.last_event.is_some();
            if body.answer.is_some() || !is_resumable {
                break;
            }
            tokio::time::sleep(body.retry.unwrap_or(DEFAULT_RETRY)).await;
            head = self.round(None, &mut body).await?;
        }
        verdict(&head, body.answer, Some(request.id))
    }

    /// One exchange: posts a message, or asks for what comes after the last event.
    async fn round(
        &self,
        message: Option<(&Value, &[(String, String)])>,
        body: &mut ReplyBody,
    ) -> Result<ReplyHead> {
        let headers = self.headers_of(message, body.last_event.as_deref());
        let mut on_body = |head: &ReplyHead, bytes: &[u8]| body.take(head, bytes);
        let answered = match message {
            Some((message, _)) => {
                let text = message.to_string().into_bytes();
                self.server.post(&headers, text, &mut on_body).await
            }
            None => self.server.get(&headers, &mut on_body).await,
        };
        let head = answered.map_err(|why| Error::Ended {
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
        Ok(head)
    }

    fn headers_of(
        &self,
        message: Option<(&Value, &[(String, String)])>,
        last_event: Option<&str>,
    ) -> Vec<(String, String)> {
        let mut headers = self.headers.clone();
        let mut set = |name: &str, value: &str| headers.push((name.to_owned(), value.to_owned()));
        let state = lock(&self.state);
        if let Some(session) = &state.session {
            set(SESSION_HEADER, session);
        }
        if let Some(revision) = state.revision {
            set("mcp-protocol-version", revision);
        }
        let Some((message, further)) = message else {
            set("accept", "text/event-stream");
            if let Some(id) = last_event {
                set("last-event-id", id);
            }
            return headers;
        };
        set("accept", "application/json, text/event-stream");
        if let Some(method) = message["method"].as_str() {
            set("mcp-method", method);
            let key = match method {
                "resources/read" => "uri",
                _ => "name",
            };
            if let Some(name) = message["params"][key].as_str() {
                set("mcp-name", &header_value(name));
            }
        }
        headers.extend_from_slice(further);
        headers
    }
}

/// A call that is under way until this is dropped.
struct UnderWay<'a> {
    link: &'a HttpLink,
    id: u64,
}

impl UnderWay<'_> {
    fn new<'a>(link: &'a HttpLink, id: u64, user: &Option<AskUser>) -> UnderWay<'a> {
        lock(&link.state).under_way.push((id, user.clone()));
        UnderWay { link, id }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.link.state);
        state.under_way.retain(|(id, _)| *id != self.id);
    }
}

/// The answer to a request with this id, or why there is none.
fn verdict(head: &ReplyHead, answer: Option<Result<Value>>, id: Option<u64>) -> Result<Value> {
    match (head.status, answer) {
        (200..=299, Some(answer)) => answer,
        (200..=299, None) if id.is_none() => Ok(Value::Null),
        (200..=299, None) => Err(Error::Protocol("a response without an answer".to_owned())),
        // A refusal in the terms of the protocol says more than its status.
        (_, Some(Err(error @ (Error::Refused { .. } | Error::OtherRevision { .. })))) => Err(error),
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

#[cfg(test)]
mod tests {
    use super::*;

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
