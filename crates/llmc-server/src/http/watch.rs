//! What dashboards show: live calls, sums, stored results, the configuration.
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
use llmc_tools::{Error, Form, Kind, Surface};
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::Door;
use super::gates::Visitor;
use super::meter::Present;
use super::refusal::Refusal;
use super::rest::json;

/// How often totals and gauges are sent.
const BEAT: Duration = Duration::from_secs(2);
/// Stored results listed unless asked for more or fewer, and at most.
const LISTED: [u64; 2] = [100, 1000];
/// Bytes of a stored result unless asked for more or fewer, and at most.
const PAGE: [u64; 2] = [65_536, 1 << 20];

/// `GET /api/events`: `call` for every finished call, `gauges` at once and then every two seconds, `missed` with a
/// count for a watcher that was too slow.
pub(super) async fn events(
    State(door): State<Arc<Door>>,
    Extension(visitor): Extension<Visitor>,
) -> Response {
    let mut beat = interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let watcher = Watcher {
        calls: door.app.observer().subscribe(),
        beat,
        principal: match visitor.call_scope() {
            CallScope::All => None,
            CallScope::Principal(principal) => Some(principal.to_owned()),
        },
        _present: door.meter.stream(),
        door,
    };
    Sse::new(stream(watcher))
        .keep_alive(KeepAlive::default())
        .into_response()
}

struct Watcher {
    door: Arc<Door>,
    calls: Receiver<Arc<CallEvent>>,
    beat: Interval,
    /// Whose calls alone are shown.
    principal: Option<String>,
    _present: Present,
}

fn stream(watcher: Watcher) -> impl Stream<Item = Result<Event, Infallible>> {
    futures_util::stream::unfold(watcher, |mut watcher| async move {
        let event = watcher.next().await?;
        Some((Ok(event), watcher))
    })
}

impl Watcher {
    /// The next thing to tell; `None` when the server stops.
    async fn next(&mut self) -> Option<Event> {
        loop {
            tokio::select! {
                () = self.door.stop.cancelled() => return None,
                _ = self.beat.tick() => {
                    let gauges = gauges(&self.door, self.scope()).await;
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

/// What changes all the time: totals, requests, connections, the handle store.
async fn gauges(door: &Arc<Door>, scope: CallScope<'_>) -> Value {
    let app = door.app.clone();
    let usage = tokio::task::spawn_blocking(move || {
        let usage = app.handles().ok()?.usage().ok()?;
        Some(json!({"count": usage.count, "bytes": usage.bytes}))
    });
    let mut gauges = door.meter.gauges();
    gauges["handles"] = usage.await.ok().flatten().unwrap_or(Value::Null);
    gauges["totals"] = json!(door.app.observer().totals(scope));
    gauges["uptime_s"] = door.app.started().elapsed().as_secs().into();
    gauges["events_dropped"] = door.app.observer().dropped().into();
    gauges["index_progress"] = door.app.index_progress().unwrap_or(Value::Null);
    gauges
}

/// `GET /api/summary`: everything seen since the start.
pub(super) async fn summary(
    State(door): State<Arc<Door>>,
    Extension(visitor): Extension<Visitor>,
) -> Response {
    let mut summary = json!(door.app.observer().summary(visitor.call_scope()));
    let mut server = door.app.health();
    let config = &door.app.config().mcp;
    server["program"] = concat!("llmc ", env!("CARGO_PKG_VERSION")).into();
    server["mode"] = config.mode.as_str().into();
    server["read_only"] = config.tools.read_only.into();
    server["workspace"] = door.app.root().to_string_lossy().into();
    server["principal"] = visitor.token.principal.as_str().into();
    server["sees_all"] = visitor.token.sees_all.into();
    server["counting"] =
        (config.observability.enabled && config.observability.metrics_enabled).into();
    summary["server"] = server;
    summary["gauges"] = gauges(&door, visitor.call_scope()).await;
    json(&summary)
}

/// `GET /api/config`: every key with its value and source, secrets masked.
pub(super) async fn config(State(door): State<Arc<Door>>) -> Response {
    let loaded = door.app.loaded();
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

/// `GET /api/handles`: the visitor's stored results, newest first.
pub(super) async fn handles(
    State(door): State<Arc<Door>>,
    Extension(visitor): Extension<Visitor>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let limit = number(&uri, "limit", LISTED[0], LISTED[1])?;
    let (app, principal) = (door.app.clone(), visitor.token.principal.clone());
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let listed = tokio::task::spawn_blocking(move || app.handles_of(&principal, limit)).await;
    let failed = |_| Error::new(Kind::Internal, "the handle store cannot be read");
    Ok(json(&listed.map_err(failed)??))
}

/// `GET /api/handles/{handle}`: a page of one of them.
pub(super) async fn handle(
    State(door): State<Arc<Door>>,
    Extension(visitor): Extension<Visitor>,
    Path(handle): Path<String>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let offset = number(&uri, "offset", 0, i64::MAX.unsigned_abs())?;
    let limit = number(&uri, "limit", PAGE[0], PAGE[1])?.max(1);
    let caller = visitor.caller(&door.app, Surface::Http, Form::Data, None);
    let page = door.app.handle_page(caller, handle, offset, limit).await?;
    Ok(json(&page))
}

/// A whole number among the query's parameters. Others are not looked at; a token is never taken from there.
fn number(uri: &Uri, name: &str, default: u64, most: u64) -> Result<u64, Refusal> {
    let parameters = uri.query().unwrap_or_default().split('&');
    let mut values = parameters.filter_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let Some(text) = values.next() else {
        return Ok(default);
    };
    let bad = || Error::bad_args(format!("{name} must be a whole number from 0 to {most}"));
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let value = text.parse().ok().filter(|value| digits && *value <= most);
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
