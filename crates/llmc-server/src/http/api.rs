//! `/api`: what dashboards and the terminal view show: live calls, summaries, stored results, the configuration.
//!
//! The main token sees every call; a named one sees its own. Events and summaries are those of this server since its start,
//! or with `of=workspace` those of every server of the workspace in the last day.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::Uri;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use llmc_observe::{CallEvent, CallScope, Summary, WorkspaceFeed};
use llmc_tools::{Error, ErrorKind, Form, Surface};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::HttpState;
use super::error::HttpError;
use super::gates::HttpCaller;
use super::metrics::GaugeGuard;
use super::rest::json;

/// How often the workspace's telemetry is read for a stream of its events.
const POLL_INTERVAL: Duration = Duration::from_millis(300);
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
    uri: Uri,
) -> Result<Response, HttpError> {
    let mut ticks = interval(GAUGES_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut polls = interval(POLL_INTERVAL);
    polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let feed = polled_feed(&state, &uri).await?;
    let subscription = EventSubscription {
        calls: match &feed {
            Some(feed) => feed.subscribe(),
            None => state.app.observer().subscribe(),
        },
        feed,
        polls,
        ticks,
        principal: match http_caller.call_scope() {
            CallScope::All => None,
            CallScope::Principal(principal) => Some(principal.to_owned()),
        },
        _gauge: state.metrics.stream(),
        state,
    };
    Ok(Sse::new(stream(subscription))
        .keep_alive(KeepAlive::default())
        .into_response())
}

/// The feed of the workspace, if the request asks for it and calls are recorded, with what is recorded by now.
async fn polled_feed(
    state: &Arc<HttpState>,
    uri: &Uri,
) -> Result<Option<Arc<WorkspaceFeed>>, HttpError> {
    let feed = match parameter(uri, "of")?.as_deref() {
        None => None,
        Some("workspace") => state.feed.clone(),
        Some(_) => return Err(Error::bad_args("of must be workspace, or left out").into()),
    };
    let Some(feed) = feed else { return Ok(None) };
    Ok(poll(&feed).await.then_some(feed))
}

/// Reads what was recorded since the last time; whether that is possible.
async fn poll(feed: &Arc<WorkspaceFeed>) -> bool {
    let feed = feed.clone();
    let polled = tokio::task::spawn_blocking(move || feed.poll()).await;
    match polled {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::debug!(%error, "recorded calls cannot be read");
            false
        }
        Err(_) => false,
    }
}

struct EventSubscription {
    state: Arc<HttpState>,
    calls: Receiver<Arc<CallEvent>>,
    /// Where they are read from, unless they are this server's own.
    feed: Option<Arc<WorkspaceFeed>>,
    polls: Interval,
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
                _ = self.polls.tick(), if self.feed.is_some() => {
                    if let Some(feed) = &self.feed {
                        poll(feed).await;
                    }
                }
                _ = self.ticks.tick() => {
                    let gauges = gauges(&self.state, self.feed.as_ref(), self.scope()).await;
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
async fn gauges(
    state: &Arc<HttpState>,
    feed: Option<&Arc<WorkspaceFeed>>,
    scope: CallScope<'_>,
) -> Value {
    let app = state.app.clone();
    let usage = tokio::task::spawn_blocking(move || {
        let usage = app.handles().ok()?.usage().ok()?;
        Some(json!({"count": usage.count, "bytes": usage.bytes}))
    });
    let mut gauges = state.metrics.gauges();
    gauges["handles"] = usage.await.ok().flatten().unwrap_or(Value::Null);
    gauges["totals"] = json!(match feed {
        Some(feed) => feed.totals(scope),
        None => state.app.observer().totals(scope),
    });
    gauges["uptime_s"] = state.app.started().elapsed().as_secs().into();
    gauges["events_dropped"] = state.app.observer().dropped().into();
    gauges["index_progress"] = state.app.index_progress().unwrap_or(Value::Null);
    gauges
}

/// `GET /api/summary`: everything since the start, or the workspace's last day.
pub(super) async fn summary(
    State(state): State<Arc<HttpState>>,
    Extension(http_caller): Extension<HttpCaller>,
    uri: Uri,
) -> Result<Response, HttpError> {
    let feed = polled_feed(&state, &uri).await?;
    let scope = http_caller.call_scope();
    let summary: Summary = match &feed {
        Some(feed) => feed.summary(scope, state.app.upstream_lists()),
        None => (state.app.observer()).summary(scope, state.app.upstream_lists()),
    };
    let mut summary = json!(summary);
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
    summary["gauges"] = gauges(&state, feed.as_ref(), scope).await;
    Ok(json(&summary))
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

/// A text among the query's parameters.
pub(super) fn parameter(uri: &Uri, name: &str) -> Result<Option<String>, HttpError> {
    let parameters = uri.query().unwrap_or_default().split('&');
    let mut values = parameters.filter_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let Some(text) = values.next() else {
        return Ok(None);
    };
    let bad = || {
        Error::bad_args(format!(
            "{name} must be given once, percent-encoded, as UTF-8"
        ))
    };
    let text = percent_decode_str(text).decode_utf8().ok();
    let text = text.filter(|_| values.next().is_none()).ok_or_else(bad)?;
    Ok(Some(text.into_owned()))
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

    #[test]
    fn texts_in_a_query_are_decoded_and_given_once() {
        let read = |text: &str| parameter(&text.parse::<Uri>().unwrap(), "path").ok();
        assert_eq!(read("/x"), Some(None));
        assert_eq!(
            read("/x?limit=3&path=a%2Fb%20%C3%BC"),
            Some(Some("a/b ü".to_owned()))
        );
        assert_eq!(read("/x?path=a+b"), Some(Some("a+b".to_owned())));
        for bad in ["/x?path=%FF", "/x?path=a&path=b"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
