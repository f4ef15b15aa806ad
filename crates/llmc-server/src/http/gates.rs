//! The gates before every handler, in their order: host and origin, size, authentication, rate, body, concurrency.
//!
//! What costs least and reveals least is asked first. The body of a stranger is never read, and a client that is slow
//! to send its own holds no place while it does.

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
use llmc_tools::{App, Caller, Form, Kind, Surface};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::Instrument;

use super::connection::Connection;
use super::meter::Present;
use super::origin::From;
use super::refusal::{Refusal, Refused};
use super::tokens::Token;
use super::{Door, POSTED, body, dashboard, streamable};

/// How long a request waits for one of its token's places.
const PLACE_WAIT: Duration = Duration::from_secs(5);

pub(super) const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");

/// Who asks, and for which request.
#[derive(Debug, Clone)]
pub(crate) struct Visitor {
    pub(super) token: Arc<Token>,
    pub(crate) correlation_id: String,
    connection: Arc<Connection>,
    /// Held until the last copy is dropped: as long as there is work for this request.
    _place: Arc<(OwnedSemaphorePermit, TaskTrackerToken)>,
}

impl Visitor {
    /// This visitor as a caller of tools.
    pub(crate) fn caller(
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

/// A request from its head to the head of its answer; counted and logged however it ends.
struct Exchange {
    door: Arc<Door>,
    connection: Arc<Connection>,
    route: String,
    correlation_id: String,
    client: String,
    principal: Option<String>,
    /// Whether it has a body that nobody has read.
    unread: bool,
    started: Instant,
    outcome: Option<(StatusCode, Option<Refused>)>,
    _present: Present,
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // Without an outcome nobody waited for one.
        let gone = || StatusCode::from_u16(Kind::Cancelled.row().http);
        let (status, refused) = match self.outcome {
            Some(outcome) => outcome,
            None => (gone().unwrap_or(StatusCode::BAD_REQUEST), None),
        };
        self.connection.request_ends();
        let took = self.started.elapsed();
        let meter = &self.door.meter;
        meter.answered(&self.route, status, refused, took);
        let shown = self
            .door
            .app
            .config()
            .mcp
            .observability
            .include_correlation_id;
        tracing::info!(
            target: "llmc::http",
            correlation_id = shown.then_some(self.correlation_id.as_str()),
            route = self.route,
            status = status.as_u16(),
            duration_ms = (took.as_secs_f64() * 1e6).round() / 1e3,
            error_code = refused.map(|refused| refused.code),
            principal = self.principal.as_deref(),
            client = self.client,
            "request"
        );
    }
}

/// The middleware around every route.
pub(super) async fn pass(
    State(door): State<Arc<Door>>,
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
        client: client(&door, &connection, request.headers()),
        _present: door.meter.request(),
        door: door.clone(),
        connection,
        route,
        correlation_id,
        principal: None,
        unread: has_body(request.headers()),
        started,
        outcome: None,
    };
    let span = if door.app.config().mcp.observability.include_correlation_id {
        tracing::info_span!("request", correlation_id = exchange.correlation_id.as_str())
    } else {
        tracing::Span::none()
    };
    let origin = request.headers().get(ORIGIN).cloned();
    let from = door.names.check(request.uri(), request.headers());
    let elsewhere = matches!(from, Ok(From::Elsewhere));
    let answered = match from {
        Err(refusal) => Err(refusal),
        Ok(From::Elsewhere) if is_preflight(&request) => Ok(preflight()),
        Ok(_) => {
            admit(&door, &mut exchange, &mut request, next)
                .instrument(span)
                .await
        }
    };
    let mut response = answered.unwrap_or_else(IntoResponse::into_response);
    let refusal = response.extensions_mut().remove::<Refusal>();
    let refused = refusal.map(|refusal| refusal.fill(&mut response, &exchange.correlation_id));
    finish(&mut response, &exchange.correlation_id);
    if exchange.unread {
        // What was not read cannot be skipped cheaply; the next request gets a new connection.
        exchange.connection.leave_unread();
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if let (true, Some(origin)) = (elsewhere, origin) {
        share_with(origin, response.headers_mut());
    }
    exchange.outcome = Some((response.status(), refused));
    response
}

/// The gates after the first.
async fn admit(
    door: &Arc<Door>,
    exchange: &mut Exchange,
    request: &mut Request,
    next: Next,
) -> Result<Response, Refusal> {
    let limits = &door.app.config().mcp.limits;
    let head = head_bytes(request);
    if head > limits.max_header_bytes {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        let message = format!(
            "{head} bytes of headers, more than {}",
            limits.max_header_bytes
        );
        return Err(Refusal::new(status, "TOO_LARGE", message)
            .hint("mcp.limits.max_header_bytes is the limit"));
    }
    if content_length(request.headers()).is_some_and(|length| length > limits.max_request_bytes) {
        return Err(body::too_large(limits.max_request_bytes));
    }
    if door.stop.is_cancelled() {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        return Err(
            Refusal::new(status, "UNAVAILABLE", "the server is shutting down")
                .hint("try again")
                .retry_after(1),
        );
    }
    let is_public = exchange.route == "/health" || dashboard::is_asset(&exchange.route);
    if is_public {
        return Ok(next.run(std::mem::take(request)).await);
    }
    let token = door.tokens.find(request.headers()).ok_or_else(|| {
        let header = &door.app.config().mcp.auth.header;
        Refusal::from(Kind::AuthFailed).hint(format!(
            "send the token as {header}: TOKEN or Authorization: Bearer TOKEN"
        ))
    })?;
    exchange.principal = Some(token.principal.clone());
    token.rate.take(Instant::now()).map_err(|wait| {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Refusal::from(Kind::RateLimited)
            .hint(format!(
                "wait {seconds} s; mcp.limits.rate_limit_rps is the limit"
            ))
            .retry_after(seconds)
    })?;
    if request.method() == Method::POST && POSTED.contains(&exchange.route.as_str()) {
        body::check_headers(request.headers())?;
        let time = door.app.config().mcp.tools.read_timeout();
        let taken = std::mem::take(request.body_mut());
        let bytes = body::read(taken, limits.max_request_bytes, time).await?;
        exchange.unread = false;
        if exchange.route != streamable::ROUTE {
            body::check(&bytes)?;
        }
        *request.body_mut() = Body::from(bytes);
    }
    let places = token.places.clone();
    let place = tokio::time::timeout(PLACE_WAIT, places.acquire_owned()).await;
    let place = place.ok().and_then(Result::ok).ok_or_else(|| {
        Refusal::from(Kind::RateLimited)
            .hint("too many requests in progress; mcp.limits.concurrency_per_token is the limit")
            .retry_after(1)
    })?;
    let place = Arc::new((place, door.calls.token()));
    request.extensions_mut().insert(Visitor {
        token,
        correlation_id: exchange.correlation_id.clone(),
        connection: exchange.connection.clone(),
        _place: place.clone(),
    });
    let response = next.run(std::mem::take(request)).await;
    drop(place);
    Ok(response)
}

/// The client's own id where it has one that is fit to be logged, else a new one.
fn correlation_id(headers: &HeaderMap) -> String {
    let fit = |id: &&str| {
        (8..=64).contains(&id.len())
            && id
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    let own = headers.get(CORRELATION_ID).and_then(|id| id.to_str().ok());
    own.filter(fit)
        .map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned)
}

/// Where the request comes from, for the log; a proxy's word counts only when the configuration says so.
fn client(door: &Door, connection: &Connection, headers: &HeaderMap) -> String {
    let forwarded = headers.get_all("x-forwarded-for").iter().next_back();
    let forwarded = forwarded
        .filter(|_| door.app.config().mcp.server.trust_proxy)
        .and_then(|value| value.to_str().ok())
        // The last entry is the one that the proxy itself has seen.
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

/// What every answer carries.
fn finish(response: &mut Response, correlation_id: &str) {
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

/// A browser asks before it sends a page's request with a token in it; it sends no token with the question.
fn preflight() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    let methods = HeaderValue::from_static("GET, POST");
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
    let allowed = HeaderValue::from_static(
        "authorization, content-type, mcp-method, mcp-name, mcp-protocol-version, mcp-session-id, \
         x-correlation-id, x-llmc-token",
    );
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

/// Lets a page that may call also read the answer.
fn share_with(origin: HeaderValue, headers: &mut HeaderMap) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(VARY, HeaderValue::from_static("origin"));
    let exposed = HeaderValue::from_static("mcp-session-id, retry-after, x-correlation-id");
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
}
