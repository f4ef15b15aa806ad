//! The gates before every handler, in their order: host and origin, size, authentication, rate, body, concurrency.
//!
//! The check that costs and reveals least comes first. The body of an unauthenticated request is never read, and a client
//! that sends its body slowly holds no slot meanwhile. Control messages of MCP need none: a client can cancel its calls while
//! all of its slots are taken.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD,
    CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, ORIGIN, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use llmc_observe::CallScope;
use llmc_tools::{App, CallSlot, Caller, ErrorKind, Form, Surface};
use serde_json::Value;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::Instrument;

use super::connection::Connection;
use super::error::{ErrorRecord, HttpError};
use super::metrics::GaugeGuard;
use super::origin::RequestOrigin;
use super::streamable::{self, McpMessage};
use super::tokens::Token;
use super::{HttpState, POST_ROUTES, body, dashboard, sessions};

/// How long a request waits for one of its token's slots.
const SLOT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");

/// An authenticated request.
#[derive(Debug, Clone)]
pub(crate) struct HttpCaller {
    pub(super) token: Arc<Token>,
    pub(crate) correlation_id: String,
    connection: Arc<Connection>,
    /// The request's slot, held until the last copy is dropped: as long as the request is worked on. A control message of
    /// MCP has none.
    pub(crate) slot: Option<Arc<CallSlot>>,
    _in_progress: Arc<TaskTrackerToken>,
}

impl HttpCaller {
    /// This caller as `App::call` knows it.
    pub(crate) fn tool_caller(
        &self,
        app: &App,
        surface: Surface,
        form: Form,
        session: Option<&str>,
    ) -> Caller {
        let session = session.unwrap_or_else(|| self.connection.session());
        Caller {
            form,
            principal: self.token.principal.clone(),
            session: session.chars().take(128).collect(),
            read_only: self.token.read_only,
            tools: self.token.tools.clone(),
            remote: true,
            ..Caller::local(surface, app)
        }
    }

    /// The calls it may see.
    pub(super) fn call_scope(&self) -> CallScope<'_> {
        if self.token.sees_all {
            CallScope::All
        } else {
            CallScope::Principal(&self.token.principal)
        }
    }
}

/// A request until the head of its answer; counted and logged however it ends.
struct Exchange {
    state: Arc<HttpState>,
    connection: Arc<Connection>,
    route: String,
    correlation_id: String,
    client: String,
    principal: Option<String>,
    /// The id of an MCP request, `null` while it is not known; `None` on other routes and for what wants no answer.
    rpc_id: Option<Value>,
    /// Whether it has a body that was not read.
    unread: bool,
    started: Instant,
    outcome: Option<(StatusCode, Option<ErrorRecord>)>,
    _gauge: GaugeGuard,
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // Without an outcome the client has disconnected.
        let cancelled = || StatusCode::from_u16(ErrorKind::Cancelled.row().http);
        let (status, record) = match self.outcome {
            Some(outcome) => outcome,
            None => (cancelled().unwrap_or(StatusCode::BAD_REQUEST), None),
        };
        self.connection.request_ends();
        let took = self.started.elapsed();
        let metrics = &self.state.metrics;
        metrics.answered(&self.route, status, record, took);
        let show_id = self
            .state
            .app
            .config()
            .mcp
            .observability
            .include_correlation_id;
        tracing::info!(
            target: "llmc::http",
            correlation_id = show_id.then_some(self.correlation_id.as_str()),
            route = self.route,
            status = status.as_u16(),
            duration_ms = (took.as_secs_f64() * 1e6).round() / 1e3,
            error_code = record.map(|record| record.code),
            principal = self.principal.as_deref(),
            client = self.client,
            "request"
        );
    }
}

/// The middleware around every route.
pub(super) async fn pass(
    State(state): State<Arc<HttpState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let correlation_id = correlation_id(request.headers());
    let route = match request.extensions().get::<MatchedPath>() {
        Some(path) => path.as_str().to_owned(),
        None => "unmatched".to_owned(),
    };
    let connection = request.extensions().get::<Arc<Connection>>().cloned();
    let connection = connection.unwrap_or_else(|| Arc::new(Connection::new(String::new())));
    let mut exchange = Exchange {
        client: client_address(&state, &connection, request.headers()),
        _gauge: state.metrics.request(),
        state: state.clone(),
        connection,
        rpc_id: None,
        route,
        correlation_id,
        principal: None,
        unread: has_body(request.headers()),
        started,
        outcome: None,
    };
    let span = if state.app.config().mcp.observability.include_correlation_id {
        tracing::info_span!("request", correlation_id = exchange.correlation_id.as_str())
    } else {
        tracing::Span::none()
    };
    let origin = request.headers().get(ORIGIN).cloned();
    let from = state.host_rules.check(request.uri(), request.headers());
    let cross_origin = matches!(from, Ok(RequestOrigin::Cross));
    let answered = match from {
        Err(error) => Err(error),
        Ok(RequestOrigin::Cross) if is_preflight(&request) => Ok(preflight()),
        Ok(_) => {
            admit(&state, &mut exchange, &mut request, cross_origin, next)
                .instrument(span)
                .await
        }
    };
    let mut response = answered.unwrap_or_else(IntoResponse::into_response);
    let error = response.extensions_mut().remove::<HttpError>();
    let record = error.map(|error| {
        let record = error.write_to(&mut response, &exchange.correlation_id);
        // A client without a token gets the HTTP error that every route gives.
        if response.status() != StatusCode::UNAUTHORIZED
            && let Some(id) = exchange.rpc_id.take()
        {
            streamable::write_error(&mut response, id, error.body(&exchange.correlation_id));
        }
        record
    });
    add_headers(&mut response, &exchange.correlation_id);
    if exchange.unread {
        // The rest of the body cannot be skipped cheaply; the next request needs a new connection.
        exchange.connection.leave_unread();
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if let (true, Some(origin)) = (cross_origin, origin) {
        allow_origin(origin, response.headers_mut());
    }
    exchange.outcome = Some((response.status(), record));
    response
}

/// The gates after host and origin.
async fn admit(
    state: &Arc<HttpState>,
    exchange: &mut Exchange,
    request: &mut Request,
    is_cross_origin: bool,
    next: Next,
) -> Result<Response, HttpError> {
    let is_post = request.method() == Method::POST;
    let is_mcp = is_post && exchange.route == streamable::ROUTE;
    exchange.rpc_id = is_mcp.then_some(Value::Null);
    let limits = &state.app.config().mcp.limits;
    let head = head_bytes(request);
    if head > limits.max_header_bytes {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        let message = format!(
            "{head} bytes of headers, more than {}",
            limits.max_header_bytes
        );
        return Err(HttpError::new(status, "TOO_LARGE", message)
            .hint("mcp.limits.max_header_bytes is the limit"));
    }
    if content_length(request.headers()).is_some_and(|length| length > limits.max_request_bytes) {
        return Err(body::too_large(limits.max_request_bytes));
    }
    if state.stop.is_cancelled() {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        return Err(
            HttpError::new(status, "UNAVAILABLE", "the server is shutting down")
                .hint("try again")
                .retry_after(1),
        );
    }
    let is_public = ["/health", sessions::SESSION_ROUTE, sessions::TICKET_ROUTE]
        .contains(&exchange.route.as_str())
        || dashboard::is_asset(&exchange.route);
    if is_public {
        return Ok(next.run(std::mem::take(request)).await);
    }
    let by_token = state.tokens.find(request.headers());
    // Browsers send cookies whichever page asks; only the server's own may.
    let by_session = || match is_cross_origin {
        true => None,
        false => state.sessions.find(request.headers()),
    };
    let token = by_token.or_else(by_session).ok_or_else(|| {
        let header = &state.app.config().mcp.auth.header;
        HttpError::from(ErrorKind::AuthFailed).hint(format!(
            "send the token as {header}: TOKEN or Authorization: Bearer TOKEN"
        ))
    })?;
    state.used();
    exchange.principal = Some(token.principal.clone());
    exchange.connection.authenticated();
    token.rate.take(Instant::now()).map_err(|wait| {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        HttpError::from(ErrorKind::RateLimited)
            .hint(format!(
                "wait {seconds} s; mcp.limits.rate_limit_rps is the limit"
            ))
            .retry_after(seconds)
    })?;
    let mut needs_slot = true;
    if is_post && POST_ROUTES.contains(&exchange.route.as_str()) {
        body::check_headers(request.headers())?;
        let time = state.app.config().mcp.tools.read_timeout();
        let unread = std::mem::take(request.body_mut());
        let bytes = body::read(unread, limits.max_request_bytes, time).await?;
        exchange.unread = false;
        if is_mcp {
            let message = McpMessage::new(bytes);
            exchange.rpc_id = message.reply_id();
            needs_slot = !message.is_control();
            request.extensions_mut().insert(message);
        } else {
            body::check(&bytes)?;
            *request.body_mut() = Body::from(bytes);
        }
    }
    let slot = match needs_slot {
        true => Some(Arc::new(take_slot(&token).await?)),
        false => None,
    };
    let http_caller = HttpCaller {
        token,
        correlation_id: exchange.correlation_id.clone(),
        connection: exchange.connection.clone(),
        slot,
        _in_progress: Arc::new(state.calls.token()),
    };
    request.extensions_mut().insert(http_caller.clone());
    let response = next.run(std::mem::take(request)).await;
    drop(http_caller);
    Ok(response)
}

async fn take_slot(token: &Token) -> Result<CallSlot, HttpError> {
    let slot = tokio::time::timeout(SLOT_TIMEOUT, token.slots.acquire()).await;
    slot.map_err(|_| {
        HttpError::from(ErrorKind::RateLimited)
            .hint("too many requests in progress; mcp.limits.concurrency_per_token is the limit")
            .retry_after(1)
    })
}

/// The client's own id if it can be logged as it is, else a new one.
fn correlation_id(headers: &HeaderMap) -> String {
    let is_loggable = |id: &&str| {
        (8..=64).contains(&id.len())
            && id
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    let own = headers.get(CORRELATION_ID).and_then(|id| id.to_str().ok());
    own.filter(is_loggable)
        .map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned)
}

/// The address of the client, for the log; a proxy's header counts only where the configuration trusts it.
fn client_address(state: &HttpState, connection: &Connection, headers: &HeaderMap) -> String {
    let forwarded = headers.get_all("x-forwarded-for").iter().next_back();
    let forwarded = forwarded
        .filter(|_| state.app.config().mcp.server.trust_proxy)
        .and_then(|value| value.to_str().ok())
        // The last entry is the one that the proxy itself added.
        .and_then(|list| list.rsplit(',').next())
        .and_then(|address| address.trim().parse::<std::net::IpAddr>().ok());
    forwarded.map_or_else(|| connection.peer.clone(), |address| address.to_string())
}

fn head_bytes(request: &Request) -> u64 {
    let headers = request.headers().iter();
    let headers: usize = headers
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum();
    let target = request
        .uri()
        .path_and_query()
        .map_or(0, |path| path.as_str().len());
    (headers + target) as u64
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn has_body(headers: &HeaderMap) -> bool {
    headers.contains_key(axum::http::header::TRANSFER_ENCODING)
        || content_length(headers).is_some_and(|length| length > 0)
}

/// Adds the headers that every answer has.
fn add_headers(response: &mut Response, correlation_id: &str) {
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(correlation_id) {
        headers.insert(CORRELATION_ID, id);
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
}

fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS
        && request
            .headers()
            .contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The answer to a browser's CORS preflight, which carries no token.
fn preflight() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    let methods = HeaderValue::from_static("GET, POST, DELETE");
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
    let allowed = HeaderValue::from_static(
        "authorization, content-type, mcp-method, mcp-name, mcp-protocol-version, mcp-session-id, \
         x-correlation-id, x-llmc-token",
    );
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

/// Lets an allowed page read the answer.
fn allow_origin(origin: HeaderValue, headers: &mut HeaderMap) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(VARY, HeaderValue::from_static("origin"));
    let exposed = HeaderValue::from_static("mcp-session-id, retry-after, x-correlation-id");
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
}
