//! MCP over Streamable HTTP: all revisions on one route, nothing kept between requests.
//!
//! The older revisions have sessions. The tools need none: a session is a label that the server assigns in the handshake
//! and reads from later requests, so no client can exhaust a table of sessions. The label proves itself: it carries a hash
//! that only this token's server can make, also after a restart, and any other label is refused as unknown. Cancelling a
//! call by a second request works by that label and the token together.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use axum::Extension;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use llmc_observe::lock;
use rmcp::model::ErrorCode;
use rmcp::transport::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use serde_json::{Value, json as object};
use tokio_util::sync::CancellationToken;

use super::HttpState;
use super::error::{HttpError, JSON};
use super::gates::HttpCaller;
use super::tokens::Token;
use crate::json::{self, MessageRefusal, MessageShape};
use crate::{McpHandler, REVISIONS};

/// Where MCP is served.
pub(super) const ROUTE: &str = "/mcp";
pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const REVISION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const REVISION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
/// Longest error text of the SDK that is passed on.
const MAX_SDK_ERROR_BYTES: usize = 4096;

/// Ended sessions that are remembered.
const MAX_ENDED_SESSIONS: usize = 1024;
/// Requests that are answered at once.
const CONTROL_METHODS: &[&str] = &["initialize", "ping", "server/discover"];

/// A message, checked once.
#[derive(Debug, Clone)]
pub(super) struct McpMessage {
    bytes: Bytes,
    shape: Result<MessageShape, MessageRefusal>,
}

impl McpMessage {
    pub(super) fn new(bytes: Bytes) -> McpMessage {
        let shape = json::inspect(&bytes);
        McpMessage { bytes, shape }
    }

    /// The id to answer; `None` for what wants no answer.
    pub(super) fn reply_id(&self) -> Option<Value> {
        match &self.shape {
            Ok(MessageShape::Request { id, .. }) => Some(id.clone()),
            Ok(_) => None,
            Err(refusal) => refusal.reply_id.clone(),
        }
    }

    /// Whether it is answered without work: a notification, a response, a `ping`.
    pub(super) fn is_control(&self) -> bool {
        match &self.shape {
            Ok(MessageShape::Request { method, .. }) => CONTROL_METHODS.contains(&method.as_str()),
            _ => true,
        }
    }
}

/// The SDK's side of the route.
pub(super) type Service = StreamableHttpService<McpHandler, NeverSessionManager>;

/// Hosts and origins are checked by the gates, not by the SDK.
pub(super) fn service(handler: McpHandler, max_bytes: u64, end: CancellationToken) -> Service {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .disable_allowed_hosts()
        .with_max_request_body_bytes(usize::try_from(max_bytes).unwrap_or(usize::MAX))
        .with_cancellation_token(end);
    let sessions = Arc::new(NeverSessionManager::default());
    StreamableHttpService::new(move || Ok(handler.clone()), sessions, config)
}

/// Calls that a later request may cancel: by token, session and the request's id.
#[derive(Debug, Default)]
pub(super) struct RunningCalls(Mutex<HashMap<Key, CancellationToken>>);

type Key = (String, String, String);

/// A call's entry in that table, and its cancellation token.
#[derive(Debug, Clone)]
pub(crate) struct Cancellable {
    pub(crate) cancelled: CancellationToken,
    _entry: Arc<RunningEntry>,
}

#[derive(Debug)]
struct RunningEntry {
    running: Arc<RunningCalls>,
    key: Key,
}

impl Drop for RunningEntry {
    fn drop(&mut self) {
        lock(&self.running.0).remove(&self.key);
    }
}

/// Sessions that their clients have ended, the oldest of which are forgotten.
#[derive(Debug, Default)]
pub(super) struct EndedSessions(Mutex<VecDeque<(String, String)>>);

impl EndedSessions {
    fn add(&self, principal: &str, session: &str) {
        let mut ended = lock(&self.0);
        if ended.len() == MAX_ENDED_SESSIONS {
            ended.pop_front();
        }
        ended.push_back((principal.to_owned(), session.to_owned()));
    }

    fn contains(&self, principal: &str, session: &str) -> bool {
        let ended = lock(&self.0);
        ended
            .iter()
            .any(|(owner, id)| owner == principal && id == session)
    }
}

impl RunningCalls {
    /// Cancels one call, if it is worked on here.
    fn cancel(&self, key: &Key) {
        if let Some(call) = lock(&self.0).get(key) {
            call.cancel();
        }
    }

    /// Cancels every call of a session.
    fn cancel_session(&self, principal: &str, session: &str) {
        for ((owner, id, _), call) in lock(&self.0).iter() {
            if owner == principal && id == session {
                call.cancel();
            }
        }
    }

    fn enter(self: &Arc<RunningCalls>, key: Key) -> Cancellable {
        let cancelled = CancellationToken::new();
        lock(&self.0).insert(key.clone(), cancelled.clone());
        Cancellable {
            cancelled,
            _entry: Arc::new(RunningEntry {
                running: self.clone(),
                key,
            }),
        }
    }
}

pub(super) async fn handle(
    State(state): State<Arc<HttpState>>,
    Extension(http_caller): Extension<HttpCaller>,
    Extension(message): Extension<McpMessage>,
    request: Request,
) -> Response {
    let (mut parts, _) = request.into_parts();
    let McpMessage { bytes, shape } = message;
    let shape = match shape {
        Ok(shape) => shape,
        Err(error) => return json_rpc_error(&error),
    };
    if let Err(error) = check_revision(&parts.headers, &bytes) {
        return error.into_response();
    }
    let session = match issued_session(&state, &http_caller, &parts.headers) {
        Ok(session) => session,
        Err(error) => return error.into_response(),
    };
    let opens = session.is_none() && opens_a_session(&bytes);
    let mut cancelled = None;
    if let Some(session) = session {
        let key = |id: &Value| {
            let principal = http_caller.token.principal.clone();
            (principal, session.clone(), id.to_string())
        };
        match shape {
            MessageShape::Request { id, .. } => {
                let call = state.running.enter(key(&id));
                cancelled = Some(call.cancelled.clone());
                parts.extensions.insert(call);
            }
            MessageShape::Notification => {
                if let Some(id) = cancelled_request(&bytes) {
                    state.running.cancel(&key(&id));
                }
            }
            MessageShape::Response => {}
        }
    }
    let request = Request::from_parts(parts, Body::from(bytes));
    let mut response = state.mcp.handle(request).await.map(Body::new);
    if let Some(cancelled) = cancelled {
        // The protocol wants no answer to a cancelled request; HTTP wants one without content.
        if cancelled.is_cancelled() {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::ACCEPTED;
            return response;
        }
        if is_event_stream(&response) {
            let until = cancelled.cancelled_owned();
            response =
                response.map(|body| Body::from_stream(body.into_data_stream().take_until(until)));
        }
    }
    if opens
        && response.status().is_success()
        && let Ok(id) = HeaderValue::from_str(&new_session(&http_caller.token))
    {
        response.headers_mut().insert(SESSION_ID, id);
    }
    wrap_sdk_error(response).await
}

fn is_event_stream(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// Ends a session: its calls are cancelled, and its id is not accepted any more.
pub(super) async fn end_session(
    State(state): State<Arc<HttpState>>,
    Extension(http_caller): Extension<HttpCaller>,
    headers: HeaderMap,
) -> Result<StatusCode, HttpError> {
    let session = issued_session(&state, &http_caller, &headers)?;
    let session = session.ok_or_else(|| {
        HttpError::unparsable("no session to end").hint("name it in the header Mcp-Session-Id")
    })?;
    let principal = &http_caller.token.principal;
    state.ended.add(principal, &session);
    state.running.cancel_session(principal, &session);
    state.app.end_command_session(principal, &session);
    Ok(StatusCode::NO_CONTENT)
}

/// An id, and the proof that it was issued to this token.
fn new_session(token: &Token) -> String {
    let id = uuid::Uuid::new_v4().to_string();
    let proof = session_proof(token, &id);
    format!("{id}-{proof}")
}

fn session_proof(token: &Token, id: &str) -> String {
    let proof = token.session_proof(id.as_bytes());
    proof.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The session that a request names; one that was not issued, or was ended, is an error that makes a client open another.
fn issued_session(
    state: &HttpState,
    http_caller: &HttpCaller,
    headers: &HeaderMap,
) -> Result<Option<String>, HttpError> {
    if !headers.contains_key(SESSION_ID) {
        return Ok(None);
    }
    let token = &http_caller.token;
    let issued = session(headers).filter(|session| {
        let issued = session.rsplit_once('-');
        issued.is_some_and(|(id, proof)| session_proof(token, id) == proof)
            && !state.ended.contains(&token.principal, session)
    });
    match issued {
        Some(session) => Ok(Some(session.to_owned())),
        None => Err(HttpError::new(
            StatusCode::NOT_FOUND,
            "NOT_FOUND",
            "there is no such session",
        )
        .hint("open one with initialize, or leave Mcp-Session-Id out")),
    }
}

/// Writes a refusal by the gates as a JSON-RPC error, with the usual body as its data.
pub(super) fn write_error(response: &mut Response, id: Value, body: Value) {
    let is_clients_fault = response.status().is_client_error()
        && ![StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT]
            .contains(&response.status());
    let code = match is_clients_fault {
        true => ErrorCode::INVALID_REQUEST,
        // The first of the codes that JSON-RPC leaves to servers.
        false => ErrorCode(-32000),
    };
    let error = object!({"code": code, "message": body["message"], "data": body});
    let answer = object!({"jsonrpc": "2.0", "id": id, "error": error});
    *response.body_mut() = Body::from(answer.to_string());
}

/// Refuses revisions that the server does not announce; the SDK would accept some older ones. A request that also names
/// its revision in its body is left to the SDK, which answers with a JSON-RPC error.
fn check_revision(headers: &HeaderMap, message: &Bytes) -> Result<(), HttpError> {
    let mut revisions = headers.get_all(REVISION).iter();
    let Some(revision) = revisions.next() else {
        return Ok(());
    };
    let known = |revision: &HeaderValue| {
        let revision = revision.to_str().unwrap_or_default();
        REVISIONS.iter().any(|known| known.as_str() == revision)
    };
    if known(revision) && revisions.next().is_none() {
        return Ok(());
    }
    let named_within = || {
        let params = method(message).map(|(_, params)| params);
        params.is_some_and(|params| params["_meta"].get(REVISION_KEY).is_some())
    };
    if named_within() {
        return Ok(());
    }
    let supported: Vec<&str> = REVISIONS.iter().map(|known| known.as_str()).collect();
    Err(
        HttpError::unparsable("this MCP-Protocol-Version is not supported")
            .hint(format!("one of {}", supported.join(", "))),
    )
}

/// The session that a request names.
pub(crate) fn session(headers: &HeaderMap) -> Option<&str> {
    let id = headers.get(SESSION_ID)?.to_str().ok()?;
    (!id.is_empty() && id.len() <= 128).then_some(id)
}

fn opens_a_session(message: &Bytes) -> bool {
    method(message).is_some_and(|(method, _)| method == "initialize")
}

fn cancelled_request(message: &Bytes) -> Option<Value> {
    let (method, mut params) = method(message)?;
    (method == "notifications/cancelled").then(|| params["requestId"].take())
}

fn method(message: &Bytes) -> Option<(String, Value)> {
    let Ok(Value::Object(mut message)) = serde_json::from_slice(message) else {
        return None;
    };
    let Some(Value::String(method)) = message.remove("method") else {
        return None;
    };
    let params = message.remove("params");
    Some((method, params.filter(Value::is_object).unwrap_or_default()))
}

/// The error of the strict check, as a JSON-RPC error.
fn json_rpc_error(error: &json::MessageRefusal) -> Response {
    match error.response() {
        None => HttpError::unparsable(error.message.clone()).into_response(),
        Some(body) => {
            let mut response = Response::new(Body::from(body.to_string()));
            *response.status_mut() = StatusCode::BAD_REQUEST;
            response.headers_mut().insert(CONTENT_TYPE, JSON);
            response
        }
    }
}

/// Turns the SDK's plain text errors into the usual error body; JSON-RPC errors stay as they are.
async fn wrap_sdk_error(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(CONTENT_TYPE);
    let is_json = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if is_json || status.is_success() {
        return response;
    }
    let (parts, body) = response.into_parts();
    let text = to_bytes(body, MAX_SDK_ERROR_BYTES)
        .await
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let message = if text.is_empty() || status.is_server_error() {
        status
            .canonical_reason()
            .unwrap_or("refused")
            .to_lowercase()
    } else {
        text.into_owned()
    };
    let code = match status {
        StatusCode::NOT_FOUND => "NOT_FOUND",
        StatusCode::METHOD_NOT_ALLOWED => "METHOD_NOT_ALLOWED",
        StatusCode::PAYLOAD_TOO_LARGE => "TOO_LARGE",
        status if status.is_server_error() => "INTERNAL",
        _ => "BAD_ARGS",
    };
    let mut response = HttpError::new(status, code, message).into_response();
    for (name, value) in &parts.headers {
        response.headers_mut().entry(name).or_insert(value.clone());
    }
    response
}
