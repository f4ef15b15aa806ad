//! `/api/history`: what calls changed, with diffs, and its undo.
//!
//! The main token sees every entry; a named one sees its own. Undo is a call of the tool `undo`: rights, limits and audit
//! are that tool's.

use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::Uri;
use axum::response::Response;
use llmc_tools::{App, EntryUndo, Error, ErrorKind, Family, Form, HistoryQuery, Surface};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::HttpState;
use super::api::{number, parameter};
use super::error::HttpError;
use super::gates::HttpCaller;
use super::rest::{json, make_call, parse};

pub(super) const UNDO_ROUTE: &str = "/api/history/{entry}/undo";

const DEFAULT_LISTED_ENTRIES: u64 = 50;
const MAX_LISTED_ENTRIES: u64 = 200;

/// A body of `POST /api/history/{entry}/undo`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UndoBody {
    #[serde(default)]
    paths: Option<Vec<String>>,
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    atomic: bool,
}

/// `GET /api/history`: entries, newest first; `before` is the oldest one known.
pub(super) async fn list(
    State(state): State<Arc<HttpState>>,
    Extension(http_caller): Extension<HttpCaller>,
    uri: Uri,
) -> Result<Response, HttpError> {
    let limit = number(&uri, "limit", DEFAULT_LISTED_ENTRIES, MAX_LISTED_ENTRIES)?;
    let query = HistoryQuery {
        before: parameter(&uri, "before")?,
        path: parameter(&uri, "path")?,
        session: parameter(&uri, "session")?,
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
    };
    let caller = http_caller.tool_caller(&state.app, Surface::Http, Form::Data, None);
    let app = state.app.clone();
    read(move || app.history_page(&caller, &query)).await
}

/// `GET /api/history/{entry}`: one of them with its diffs.
pub(super) async fn show(
    State(state): State<Arc<HttpState>>,
    Extension(http_caller): Extension<HttpCaller>,
    Path(entry): Path<String>,
) -> Result<Response, HttpError> {
    let caller = http_caller.tool_caller(&state.app, Surface::Http, Form::Data, None);
    let app = state.app.clone();
    read(move || app.history_entry(&caller, &entry)).await
}

/// `POST /api/history/{entry}/undo`: takes it back, or says what that would do.
pub(super) async fn undo(
    State(state): State<Arc<HttpState>>,
    Extension(http_caller): Extension<HttpCaller>,
    Path(entry): Path<String>,
    body: Bytes,
) -> Result<Response, HttpError> {
    let body: UndoBody = parse(&body)?;
    let mut args = Map::new();
    args.insert("entry".to_owned(), entry.as_str().into());
    args.insert("dry_run".to_owned(), body.dry_run.into());
    let wanted = EntryUndo {
        entry,
        paths: body.paths,
        dry_run: body.dry_run,
        atomic: body.atomic,
    };
    let work = |app: Arc<App>, call| async move { app.undo_entry(call, wanted).await };
    let outcome = make_call(&state, http_caller, "undo".to_owned(), args, None, work).await;
    match outcome.result {
        Ok(answer) => Ok(json(&answer.data())),
        Err(error) => Err(HttpError::of_tool(error, Family::Linux)),
    }
}

async fn read(
    work: impl FnOnce() -> llmc_tools::Result<Value> + Send + 'static,
) -> Result<Response, HttpError> {
    let failed = |_| Error::new(ErrorKind::Internal, "the history cannot be read");
    let read = tokio::task::spawn_blocking(work).await;
    Ok(json(&read.map_err(failed)??))
}
