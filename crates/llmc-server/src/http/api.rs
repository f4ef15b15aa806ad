//! `/api`: what dashboards and the terminal view show: live calls, summaries, stored results, the configuration.
//!
//! The main token sees every call of this server; a named one sees its own.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::Uri;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use llmc_observe::{CallEvent, CallScope};
use llmc_tools::{Error, ErrorKind, Form, Surface};
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::HttpState;
use super::error::HttpError;
use super::gates::HttpCaller;
use super::metrics::GaugeGuard;
use super::rest::json;

/// How often totals and gauges are sent.
const GAUGES_INTERVAL: Duration = Duration::from_secs(2);
const DEFAULT_LISTED_HANDLES: u64 = 100;
const MAX_LISTED_HANDLES: u64 = 1000;
const DEFAULT_PAGE_BYTES: u64 = 65_536;
const MAX_PAGE_BYTES: u64 = 1 << 20;

/// `GET /api/events`: `call` for every finished call, `gauges` at once and then every two seconds, `missed` with a
/// count for a client that reads too slowly.
pub(super) async fn events(
    State(state): State<Arc<HttpState>>,
    Extension(http_caller): Extension<HttpCaller>,
) -> Response {
    let mut ticks = interval(GAUGES_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let subscription = EventSubscription {
        calls: state.app.observer().subscribe(),
        ticks,
        principal: match http_caller.call_scope() {
            CallScope::All => None,
            CallScope::Principal(principal) => Some(principal.to_owned()),
        },
        _gauge: state.metrics.stream(),
        state,
    };
    Sse::new(stream(subscription))
        .keep_alive(KeepAlive::default())
        .into_response()
}

struct EventSubscription {
    state: Arc<HttpState>,
    calls: Receiver<Arc<CallEvent>>,
    ticks: Interval,
    /// The only principal whose calls are sent, if it is limited to one.
    principal: Option<String>,
    _gauge: GaugeGuard,
}

fn stream(subscription: EventSubscription) -> impl Stream<Item = Result<Event, Infallible>> {
    futures_util::stream::unfold(subscription, |mut subscription| async move {
        let event = subscription.next().await?;
        Some((Ok(event), subscription))
    })
}

impl EventSubscription {
    /// The next event; `None` when the server stops.
    async fn next(&mut self) -> Option<Event> {
        loop {
            tokio::select! {
                () = self.state.stop.cancelled() => return None,
                _ = self.ticks.tick() => {
                    let gauges = gauges(&self.state, self.scope()).await;
                    return Some(Event::default().event("gauges").data(gauges.to_string()));
                }
                call = self.calls.recv() => match call {
                    Ok(call) if self.principal.as_ref().is_none_or(|own| *own == call.principal) => {
                        let call = serde_json::to_string(&*call).unwrap_or_default();
                        return Some(Event::default().event("call").data(call));
                    }
                    Ok(_) => {}
                    Err(RecvError::Lagged(count)) => {
                        let missed = json!({"calls": count}).to_string();
                        return Some(Event::default().event("missed").data(missed));
                    }
                    Err(RecvError::Closed) => return None,
                },
            }
        }
    }

    fn scope(&self) -> CallScope<'_> {
        match &self.principal {
            None => CallScope::All,
            Some(principal) => CallScope::Principal(principal),
        }
    }
}

/// Current values: totals, requests, connections, the handle store.
async fn gauges(state: &Arc<HttpState>, scope: CallScope<'_>) -> Value {
    let app = state.app.clone();
    let usage = tokio::task::spawn_blocking(move || {
        let usage = app.handles().ok()?.usage().ok()?;
        Some(json!({"count": usage.count, "bytes": usage.bytes}))
    });
    let mut gauges = state.metrics.gauges();
    gauges["handles"] = usage.await.ok().flatten().unwrap_or(Value::Null);
    gauges["totals"] = json!(state.app.observer().totals(scope));
    gauges["uptime_s"] = state.app.started().elapsed().as_secs().into();
    gauges["events_dropped"] = state.app.observer().dropped().into();
    gauges["index_progress"] = state.app.index_progress().unwrap_or(Value::Null);
    gauges
}

/// `GET /api/summary`: everything since the start.
pub(super) async fn summary(
    State(state): State<Arc<HttpState>>,
    Extension(http_caller): Extension<HttpCaller>,
) -> Response {
    let mut summary = json!(state.app.observer().summary(http_caller.call_scope()));
    let mut server = state.app.health();
    let config = &state.app.config().mcp;
    server["program"] = concat!("llmc ", env!("CARGO_PKG_VERSION")).into();
    server["mode"] = config.mode.as_str().into();
    server["read_only"] = config.tools.read_only.into();
    server["workspace"] = state.app.root().to_string_lossy().into();
    server["principal"] = http_caller.token.principal.as_str().into();
    server["sees_all"] = http_caller.token.sees_all.into();
    server["counting"] =
        (config.observability.enabled && config.observability.metrics_enabled).into();
    summary["server"] = server;
    summary["gauges"] = gauges(&state, http_caller.call_scope()).await;
    json(&summary)
}

/// `GET /api/config`: every key with its value and source, secrets masked.
pub(super) async fn config(State(state): State<Arc<HttpState>>) -> Response {
    let loaded = state.app.loaded();
    let entries = loaded.entries().iter().map(|entry| {
        json!({
            "key": entry.key,
            "value": entry.value,
            "source": entry.source.describe(loaded.file_label()),
            "secret": entry.secret,
        })
    });
    json(&json!({
        "file": loaded.file.is_some().then(|| loaded.file_label()),
        "entries": entries.collect::<Vec<_>>(),
    }))
}

/// `GET /api/handles`: the caller's stored results, newest first.
pub(super) async fn handles(
    State(state): State<Arc<HttpState>>,
    Extension(http_caller): Extension<HttpCaller>,
    uri: Uri,
) -> Result<Response, HttpError> {
    let limit = number(&uri, "limit", DEFAULT_LISTED_HANDLES, MAX_LISTED_HANDLES)?;
    let (app, principal) = (state.app.clone(), http_caller.token.principal.clone());
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let listed = tokio::task::spawn_blocking(move || app.handles_of(&principal, limit)).await;
    let failed = |_| Error::new(ErrorKind::Internal, "the handle store cannot be read");
    Ok(json(&listed.map_err(failed)??))
}

/// `GET /api/handles/{handle}`: a page of one of them.
pub(super) async fn handle(
    State(state): State<Arc<HttpState>>,
    Extension(http_caller): Extension<HttpCaller>,
    Path(handle): Path<String>,
    uri: Uri,
) -> Result<Response, HttpError> {
    let offset = number(&uri, "offset", 0, i64::MAX.unsigned_abs())?;
    let limit = number(&uri, "limit", DEFAULT_PAGE_BYTES, MAX_PAGE_BYTES)?.max(1);
    let caller = http_caller.tool_caller(&state.app, Surface::Http, Form::Data, None);
    let page = state.app.handle_page(caller, handle, offset, limit).await?;
    Ok(json(&page))
}

/// A whole number among the query's parameters. Other parameters are ignored; a token is never read from there.
pub(super) fn number(uri: &Uri, name: &str, default: u64, max: u64) -> Result<u64, HttpError> {
    let parameters = uri.query().unwrap_or_default().split('&');
    let mut values = parameters.filter_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let Some(text) = values.next() else {
        return Ok(default);
    };
    let bad = || Error::bad_args(format!("{name} must be a whole number from 0 to {max}"));
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let value = text.parse().ok().filter(|value| digits && *value <= max);
    Ok(value.filter(|_| values.next().is_none()).ok_or_else(bad)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_a_query_are_whole_bounded_and_given_once() {
        let read = |text: &str| number(&text.parse::<Uri>().unwrap(), "limit", 7, 100).ok();
        assert_eq!(read("/x"), Some(7));
        assert_eq!(read("/x?limit=0"), Some(0));
        assert_eq!(read("/x?offset=3&limit=100"), Some(100));
        for bad in [
            "101",
            "-1",
            "+1",
            "1.0",
            "",
            "a",
            "1&limit=1",
            "99999999999999999999",
        ] {
            assert_eq!(read(&format!("/x?limit={bad}")), None, "{bad}");
        }
        assert_eq!(read("/x?limits=3"), Some(7));
    }
}
