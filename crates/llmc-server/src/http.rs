//! HTTP: MCP at `/mcp`, REST, metrics, the dashboard.
//!
//! - `gates`: what every request passes, in order; `origin`, `tokens`, `rate`, `body` are the gates
//! - `rest`, `watch`, `streamable`, `dashboard`, `openapi`: the routes
//! - `refusal`: the one envelope of everything that went wrong
//! - `meter`: what is counted of requests
//! - `listen`, `connection`, `lifecycle`: sockets, one connection's bytes, start and end
//!
//! A request that passed is a `Visitor`; what it may do is then the call path's business, as for any other caller.

mod body;
mod connection;
mod dashboard;
mod gates;
mod lifecycle;
mod listen;
mod meter;
mod openapi;
mod origin;
mod rate;
mod refusal;
mod rest;
mod streamable;
mod tokens;
mod watch;

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
use meter::Meter;
use origin::Names;
use refusal::Refusal;
use tokens::Tokens;

pub(crate) use gates::Visitor;
pub use lifecycle::{Finished, Started, serve};
pub use listen::Listen;
pub(crate) use streamable::{Cancellable, session};
pub use tokens::Source;

/// The routes that take a body.
const POSTED: [&str; 5] = [
    "/tool",
    "/rag/search",
    "/rag/bootload",
    "/invoke_agent",
    streamable::ROUTE,
];

/// What the routes share.
#[derive(Debug)]
struct Door {
    app: Arc<App>,
    names: Names,
    tokens: Tokens,
    meter: Meter,
    mcp: Mcp,
    running: Arc<streamable::Running>,
    openapi: Bytes,
    /// No further requests are taken.
    stop: CancellationToken,
    /// What is still at work gives up.
    end: CancellationToken,
    /// Requests in work, wherever they are worked on.
    calls: TaskTracker,
}

/// The SDK's service does not say what it is.
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

impl Door {
    fn new(app: Arc<App>, tokens: Tokens) -> Door {
        let end = CancellationToken::new();
        let limit = app.config().mcp.limits.max_request_bytes;
        let handler = McpHandler::over_http(app.clone());
        Door {
            names: Names::new(&app.config().mcp.server),
            tokens,
            meter: Meter::default(),
            mcp: Mcp(streamable::service(handler, limit, end.clone())),
            running: Arc::default(),
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
fn router(door: &Arc<Door>) -> Result<Router> {
    let mut router = Router::new()
        .route("/health", get(rest::health))
        .route("/tool", post(rest::tool))
        .route("/rag/search", post(rest::search))
        .route("/rag/bootload", post(rest::bootload))
        .route("/invoke_agent", post(rest::invoke_agent))
        .route("/openapi.json", get(openapi))
        .route("/api/events", get(watch::events))
        .route("/api/summary", get(watch::summary))
        .route("/api/config", get(watch::config))
        .route("/api/handles", get(watch::handles))
        .route("/api/handles/{handle}", get(watch::handle))
        .route(streamable::ROUTE, post(streamable::handle));
    for (path, kind, content) in dashboard::ASSETS {
        router = router.route(path, get(async move || dashboard::answer(kind, content)));
    }
    if let Some(path) = metrics_path(&door.app)? {
        router = router.route(path, get(metrics));
    }
    Ok(router
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(door.clone(), gates::pass))
        .with_state(door.clone()))
}

/// Where Prometheus reads, unless that is switched off.
fn metrics_path(app: &App) -> Result<Option<&str>> {
    let settings = &app.config().mcp.observability;
    if !(settings.enabled && settings.metrics_enabled && settings.metrics_prometheus_enabled) {
        return Ok(None);
    }
    let path = settings.metrics_path.as_str();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    let taken = path.starts_with("/api/")
        || POSTED.contains(&path)
        || ["/health", "/openapi.json"].contains(&path)
        || dashboard::is_asset(path);
    if taken || !path.bytes().all(plain) {
        return Err(Error::bad_args(format!(
            "mcp.observability.metrics_path: {path:?} cannot be used"
        ))
        .hint("choose a plain path that no other route has, such as /metrics"));
    }
    Ok(Some(path))
}

async fn metrics(State(door): State<Arc<Door>>) -> Response {
    let asked = door.clone();
    let text = tokio::task::spawn_blocking(move || asked.meter.prometheus(&asked.app)).await;
    let mut response = Response::new(Body::from(text.unwrap_or_default()));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

async fn openapi(State(door): State<Arc<Door>>) -> Response {
    let mut response = Response::new(Body::from(door.openapi.clone()));
    response.headers_mut().insert(CONTENT_TYPE, refusal::JSON);
    response
}

async fn unknown_route() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "NOT_FOUND", "there is no such route")
        .hint("GET /openapi.json lists them")
}

async fn wrong_method() -> Refusal {
    let status = StatusCode::METHOD_NOT_ALLOWED;
    Refusal::new(
        status,
        "METHOD_NOT_ALLOWED",
        "this route has another method",
    )
    .hint("the Allow header names it")
}
