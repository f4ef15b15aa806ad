//! `/api/calls`, `/api/savings`: recorded calls of every server of the workspace, also after restarts.
//!
//! The main token sees every call; a named one sees its own.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::Uri;
use axum::response::Response;
use llmc_observe::{CallEvent, CallQuery, CallReader, CallScope};
use llmc_tools::{Error, ErrorKind};
use serde_json::{Value, json};

use super::HttpState;
use super::api::{number, parameter};
use super::error::HttpError;
use super::gates::HttpCaller;
use super::rest::json;

const DEFAULT_LISTED_CALLS: u64 = 50;
const MAX_LISTED_CALLS: u64 = 200;
const DEFAULT_DAYS: u64 = 30;
const MAX_DAYS: u64 = 3650;
/// Minutes of a day: no zone is further from UTC.
const MAX_OFFSET_MINUTES: u64 = 24 * 60;
/// Characters of a search.
const MAX_QUERY_CHARS: usize = 200;

/// `GET /api/calls`: recorded calls, newest first; `cursor` is where the last page ended.
pub(super) async fn list(
    State(state): State<Arc<HttpState>>,
    Extension(http_caller): Extension<HttpCaller>,
    uri: Uri,
) -> Result<Response, HttpError> {
    let limit = number(&uri, "limit", DEFAULT_LISTED_CALLS, MAX_LISTED_CALLS)?;
    let position = |name| -> Result<Option<i64>, HttpError> {
        let given = number(&uri, name, 0, i64::MAX.unsigned_abs())?;
        Ok(i64::try_from(given).ok().filter(|given| *given > 0))
    };
    let text = |name| -> Result<Option<String>, HttpError> {
        let given = parameter(&uri, name)?.filter(|text| !text.is_empty());
        Ok(given.map(|text| text.chars().take(MAX_QUERY_CHARS).collect()))
    };
    let query = CallQuery {
        text: text("query")?,
        tool: text("tool")?,
        agent: text("client")?,
        session: text("session")?,
        server: text("server")?,
        failed: text("failed")?.as_deref() == Some("true"),
        before: position("cursor")?,
        after: position("after")?,
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
    };
    read(&state, &http_caller, move |reader, scope| {
        let page = reader.page(&query, scope)?;
        let calls: Vec<Value> = page.calls.iter().map(shown).collect();
        Ok(json!({"calls": calls, "next": page.next}))
    })
    .await
}

/// `GET /api/calls/{id}`: one of them with what is kept of its arguments and its answer.
pub(super) async fn show(
    State(state): State<Arc<HttpState>>,
    Extension(http_caller): Extension<HttpCaller>,
    Path(id): Path<String>,
) -> Result<Response, HttpError> {
    let bad = || Error::bad_args("a call is named by its number");
    let id: i64 = id.parse().map_err(|_| bad())?;
    let keeps = state.app.config().mcp.observability.keep_contents;
    let found = read_value(&state, &http_caller, move |reader, scope| {
        let Some(detail) = reader.show(id, scope)? else {
            return Ok(Value::Null);
        };
        let mut call = shown(&detail.call);
        call["contents"] = match detail.content {
            Some([(args, args_cut), (answer, answer_cut)]) => json!({
                "args": args, "args_cut": args_cut, "answer": answer, "answer_cut": answer_cut,
            }),
            None => Value::Null,
        };
        call["keeps_contents"] = keeps.into();
        Ok(call)
    });
    match found.await? {
        Value::Null => {
            Err(Error::new(ErrorKind::NotFound, format!("there is no call {id}")).into())
        }
        call => Ok(json(&call)),
    }
}

/// `GET /api/savings`: tokens served and kept out of contexts, by day, client, tool and upstream.
pub(super) async fn savings(
    State(state): State<Arc<HttpState>>,
    Extension(http_caller): Extension<HttpCaller>,
    uri: Uri,
) -> Result<Response, HttpError> {
    let days = number(&uri, "days", DEFAULT_DAYS, MAX_DAYS)?.max(1);
    let east = number(&uri, "east", 0, MAX_OFFSET_MINUTES)?;
    let west = number(&uri, "west", 0, MAX_OFFSET_MINUTES)?;
    let offset = i64::try_from(east).unwrap_or(0) - i64::try_from(west).unwrap_or(0);
    let back = Duration::from_secs(days * 24 * 3600);
    let app = state.app.clone();
    read(&state, &http_caller, move |reader, scope| {
        Ok(json!(reader.savings(
            back,
            offset,
            scope,
            app.upstream_lists()
        )?))
    })
    .await
}

/// A call as lists show it.
fn shown(call: &CallEvent) -> Value {
    let mut shown = json!(call);
    shown["args"] = json!(call.args);
    shown["bytes_in"] = call.bytes_in.into();
    shown["bytes_out"] = call.bytes_out.into();
    shown
}

async fn read(
    state: &Arc<HttpState>,
    http_caller: &HttpCaller,
    work: impl FnOnce(&CallReader, CallScope<'_>) -> Result<Value, llmc_observe::Error> + Send + 'static,
) -> Result<Response, HttpError> {
    Ok(json(&read_value(state, http_caller, work).await?))
}

/// Reads the telemetry on a thread that may wait.
async fn read_value(
    state: &Arc<HttpState>,
    http_caller: &HttpCaller,
    work: impl FnOnce(&CallReader, CallScope<'_>) -> Result<Value, llmc_observe::Error> + Send + 'static,
) -> Result<Value, HttpError> {
    let location = state.app.telemetry_location().ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "calls are not recorded").hint(
            "set mcp.observability.enabled and mcp.docker.persist_telemetry, in a workspace that can be written",
        )
    })?;
    let http_caller = http_caller.clone();
    let reader = CallReader::new(location.clone());
    let work = move || work(&reader, http_caller.call_scope());
    let failed = |_| Error::new(ErrorKind::Internal, "the calls cannot be read");
    let read = tokio::task::spawn_blocking(work).await.map_err(failed)?;
    Ok(read.map_err(|error| {
        let kind = match error {
            llmc_observe::Error::Shared(_) => ErrorKind::Unavailable,
            _ => ErrorKind::Internal,
        };
        Error::new(kind, error.to_string())
    })?)
}
