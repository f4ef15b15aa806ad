//! HTTP: MCP at `/mcp`, REST, metrics, the dashboard.
//!
//! - `gates`: what every request passes, in order; `origin`, `tokens`, `rate`, `body` are the gates
//! - `rest`, `api`, `history`, `streamable`, `dashboard`, `openapi`: the routes
//! - `error`: the body of every error
//! - `metrics`: counters of requests
//! - `listen`, `connection`, `connections`, `lifecycle`: sockets, one connection's bytes, all of them, start and end
//! - `exposure`: what must hold before other machines can connect
//! - `token_file`, `token_strength`: the generated token, and tokens that can be guessed
//!
//! A request that passed the gates is an `HttpCaller`; `App::call` then decides what it may do, as for any other caller.

mod api;
mod body;
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
mod streamable;
mod token_file;
mod token_strength;
mod tokens;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use llmc_tools::{App, Error, Result};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::McpHandler;
use error::HttpError;
use metrics::HttpMetrics;
use origin::HostRules;
use tokens::Tokens;

pub(crate) use gates::HttpCaller;
pub use lifecycle::{ListeningServer, ServeOutcome, serve};
pub use listen::Listen;
pub(crate) use streamable::{Cancellable, session};
pub use token_file::generated_token;
pub use tokens::TokenSource;

/// The routes that take a body.
const POST_ROUTES: [&str; 6] = [
    "/tool",
    "/rag/search",
    "/rag/bootload",
    "/invoke_agent",
    history::UNDO_ROUTE,
    streamable::ROUTE,
];

/// What the routes share.
#[derive(Debug)]
struct HttpState {
    app: Arc<App>,
    host_rules: HostRules,
    tokens: Tokens,
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
    fn new(app: Arc<App>, tokens: Tokens) -> HttpState {
        let end = CancellationToken::new();
        let limit = app.config().mcp.limits.max_request_bytes;
        let handler = McpHandler::over_http(app.clone());
        HttpState {
            host_rules: HostRules::new(&app.config().mcp.server),
            tokens,
            metrics: HttpMetrics::default(),
            mcp: Mcp(streamable::service(handler, limit, end.clone())),
            running: Arc::default(),
            ended: streamable::EndedSessions::default(),
            openapi: openapi::document(&app).to_string().into(),
            stop: CancellationToken::new(),
            end,
            calls: TaskTracker::new(),
            app,
        }
    }
}

/// Every route behind its gates.
///
/// # Errors
/// A metrics path that is another route's.
fn router(state: &Arc<HttpState>) -> Result<Router> {
    let mut router = Router::new()
        .route("/health", get(rest::health))
        .route("/tool", post(rest::tool))
        .route("/rag/search", post(rest::search))
        .route("/rag/bootload", post(rest::bootload))
        .route("/invoke_agent", post(rest::invoke_agent))
        .route("/openapi.json", get(openapi))
        .route("/api/events", get(api::events))
        .route("/api/summary", get(api::summary))
        .route("/api/config", get(api::config))
        .route("/api/handles", get(api::handles))
        .route("/api/handles/{handle}", get(api::handle))
        .route("/api/history", get(history::list))
        .route("/api/history/{entry}", get(history::show))
        .route(history::UNDO_ROUTE, post(history::undo))
        .route(
            streamable::ROUTE,
            post(streamable::handle).delete(streamable::end_session),
        );
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
        || ["/health", "/openapi.json"].contains(&path)
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
