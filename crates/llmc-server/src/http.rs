//! HTTP: MCP at `/mcp`, REST, metrics, the dashboard.
//!
//! - `gates`: what every request passes, in order; `origin`, `tokens`, `rate`, `body` are the gates
//! - `rest`, `api`, `calls`, `activity`, `history`, `streamable`, `dashboard`, `openapi`: the routes
//! - `sessions`: signing in to the dashboard with a one-time link
//! - `error`: the body of every error
//! - `metrics`: counters of requests
//! - `listen`, `connection`, `connections`, `lifecycle`: sockets, one connection's bytes, all of them, start and end
//! - `exposure`: what must hold before other machines can connect
//! - `token_file`, `token_strength`: the generated token, and tokens that can be guessed
//!
//! A request that passed the gates is an `HttpCaller`; `App::call` then decides what it may do, as for any other caller.

mod activity;
mod api;
mod body;
mod calls;
mod connection;
mod connections;
mod dashboard;
mod error;
mod exposure;
#[cfg(test)]
mod fuzz;
mod gates;
mod history;
mod lifecycle;
mod listen;
mod metrics;
mod openapi;
mod origin;
mod rate_limit;
mod rest;
mod sessions;
mod shared_tokens;
mod streamable;
mod token_file;
mod token_strength;
mod tokens;

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use llmc_observe::{WorkspaceFeed, lock};
use llmc_tools::{App, Error, Result};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::McpHandler;
use crate::control::{ServerFacts, ServerKind};
use error::HttpError;
use metrics::HttpMetrics;
use origin::HostRules;
use sessions::Sessions;
use tokens::{Token, Tokens};

pub(crate) use gates::HttpCaller;
pub use lifecycle::{ListeningServer, ServeOutcome, serve, serve_dashboard};
pub use listen::Listen;
pub(crate) use streamable::{Cancellable, session};
pub use token_file::generated_token;
pub(crate) use token_file::random_token;
pub(crate) use tokens::MAIN_PRINCIPAL;
pub use tokens::TokenSource;

/// The routes that take a body.
const POST_ROUTES: [&str; 7] = [
    "/tool",
    "/rag/search",
    "/rag/bootload",
    "/invoke_agent",
    history::UNDO_ROUTE,
    activity::STOP_ROUTE,
    streamable::ROUTE,
];

/// How far back the dashboard's summary of the workspace reaches.
const FEED_SPAN: Duration = Duration::from_secs(24 * 3600);

/// What the routes share.
#[derive(Debug)]
struct HttpState {
    app: Arc<App>,
    host_rules: HostRules,
    tokens: Tokens,
    sessions: Sessions,
    /// The calls of every server of the workspace; `None` where they are not recorded.
    feed: Option<Arc<WorkspaceFeed>>,
    kind: ServerKind,
    /// Known once the server listens.
    facts: OnceLock<ServerFacts>,
    /// When a request was last authenticated.
    last_request: Mutex<Instant>,
    metrics: HttpMetrics,
    mcp: Mcp,
    running: Arc<streamable::RunningCalls>,
    ended: streamable::EndedSessions,
    openapi: Bytes,
    /// Cancelled when no further requests are taken.
    stop: CancellationToken,
    /// Cancels the requests that are still running.
    end: CancellationToken,
    /// Requests in progress, on whichever task.
    calls: TaskTracker,
}

/// The SDK's service, which has no `Debug`.
struct Mcp(streamable::Service);

impl std::fmt::Debug for Mcp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mcp")
    }
}

impl std::ops::Deref for Mcp {
    type Target = streamable::Service;

    fn deref(&self) -> &streamable::Service {
        &self.0
    }
}

impl HttpState {
    fn new(app: Arc<App>, tokens: Tokens, kind: ServerKind, stop: CancellationToken) -> HttpState {
        let end = CancellationToken::new();
        let limit = app.config().mcp.limits.max_request_bytes;
        let handler = McpHandler::over_http(app.clone());
        HttpState {
            host_rules: HostRules::new(&app.config().mcp.server),
            tokens,
            sessions: Sessions::new(Arc::new(Token::of_page())),
            feed: (app.telemetry_location())
                .map(|location| Arc::new(WorkspaceFeed::new(location.clone(), FEED_SPAN))),
            kind,
            facts: OnceLock::new(),
            last_request: Mutex::new(Instant::now()),
            metrics: HttpMetrics::default(),
            mcp: Mcp(streamable::service(handler, limit, end.clone())),
            running: Arc::default(),
            ended: streamable::EndedSessions::default(),
            openapi: openapi::document(&app).to_string().into(),
            stop,
            end,
            calls: TaskTracker::new(),
            app,
        }
    }

    /// What this server tells of itself.
    fn facts(&self) -> ServerFacts {
        let unknown = || ServerFacts {
            kind: self.kind,
            url: None,
            link: None,
        };
        self.facts.get().cloned().unwrap_or_else(unknown)
    }

    /// Notes that the server is in use.
    fn used(&self) {
        *lock(&self.last_request) = Instant::now();
    }

    /// How long no request was made and no page was open.
    fn idle(&self) -> Duration {
        if self.metrics.open_streams() > 0 {
            self.used();
        }
        lock(&self.last_request).elapsed()
    }
}

/// Every route behind its gates.
///
/// # Errors
/// A metrics path that is another route's.
fn router(state: &Arc<HttpState>) -> Result<Router> {
    let mut router = Router::new()
        .route("/health", get(rest::health))
        .route("/rag/search", post(rest::search))
        .route("/openapi.json", get(openapi))
        .route("/api/events", get(api::events))
        .route("/api/summary", get(api::summary))
        .route("/api/config", get(api::config))
        .route("/api/handles", get(api::handles))
        .route("/api/handles/{handle}", get(api::handle))
        .route("/api/history", get(history::list))
        .route("/api/history/{entry}", get(history::show))
        .route(history::UNDO_ROUTE, post(history::undo))
        .route("/api/calls", get(calls::list))
        .route("/api/calls/{id}", get(calls::show))
        .route("/api/savings", get(calls::savings))
        .route("/api/activity", get(activity::show))
        .route(
            "/api/activity/{server}/{target}/output",
            get(activity::output),
        )
        .route(activity::STOP_ROUTE, post(activity::stop))
        .route(sessions::SESSION_ROUTE, get(sessions::show))
        .route(sessions::TICKET_ROUTE, get(sessions::sign_in));
    // A server for the dashboard alone offers agents nothing.
    if state.kind != ServerKind::Dashboard {
        router = router
            .route("/tool", post(rest::tool))
            .route("/rag/bootload", post(rest::bootload))
            .route("/invoke_agent", post(rest::invoke_agent))
            .route(
                streamable::ROUTE,
                post(streamable::handle).delete(streamable::end_session),
            );
    }
    for (path, kind, content) in dashboard::ASSETS {
        router = router.route(path, get(async move || dashboard::answer(kind, content)));
    }
    if let Some(path) = metrics_path(&state.app)? {
        router = router.route(path, get(metrics));
    }
    Ok(router
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(state.clone(), gates::pass))
        .with_state(state.clone()))
}

/// The path that Prometheus reads, unless metrics are switched off.
fn metrics_path(app: &App) -> Result<Option<&str>> {
    let settings = &app.config().mcp.observability;
    if !(settings.enabled && settings.metrics_enabled && settings.metrics_prometheus_enabled) {
        return Ok(None);
    }
    let path = settings.metrics_path.as_str();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    let is_taken = path.starts_with("/api/")
        || POST_ROUTES.contains(&path)
        || ["/health", "/openapi.json", sessions::TICKET_ROUTE].contains(&path)
        || dashboard::is_asset(path);
    if is_taken || !path.bytes().all(plain) {
        return Err(Error::bad_args(format!(
            "mcp.observability.metrics_path: {path:?} cannot be used"
        ))
        .hint("choose a plain path that no other route has, such as /metrics"));
    }
    Ok(Some(path))
}

async fn metrics(State(state): State<Arc<HttpState>>) -> Response {
    let text = tokio::task::spawn_blocking(move || state.metrics.prometheus(&state.app)).await;
    let mut response = Response::new(Body::from(text.unwrap_or_default()));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

async fn openapi(State(state): State<Arc<HttpState>>) -> Response {
    let mut response = Response::new(Body::from(state.openapi.clone()));
    response.headers_mut().insert(CONTENT_TYPE, error::JSON);
    response
}

async fn unknown_route() -> HttpError {
    HttpError::new(StatusCode::NOT_FOUND, "NOT_FOUND", "there is no such route")
        .hint("GET /openapi.json lists them")
}

async fn wrong_method() -> HttpError {
    let status = StatusCode::METHOD_NOT_ALLOWED;
    HttpError::new(
        status,
        "METHOD_NOT_ALLOWED",
        "this route does not have this method",
    )
    .hint("the Allow header names it")
}
