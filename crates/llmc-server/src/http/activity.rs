//! `/api/activity`: what every server of the workspace is doing now, what its processes print, and how one is stopped.
//!
//! Servers of this machine are asked over their control sockets, for the main token only; those of other machines through
//! the database that they share, where a named token sees its own calls and processes.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::Uri;
use axum::response::Response;
use llmc_observe::CallScope;
use llmc_tools::{Error, ErrorKind, Result as ToolResult};
use serde_json::{Value, json};

use super::HttpState;
use super::api::number;
use super::error::HttpError;
use super::gates::HttpCaller;
use super::rest::json;
use crate::control::{ControlRequest, ask_server, others, parse_target, sessions, status};

pub(super) const STOP_ROUTE: &str = "/api/activity/{server}/{target}/stop";

/// The tool whose right a token needs to stop something.
const STOP_TOOL: &str = "linux_proc_stop";

/// `GET /api/activity`: the servers with their calls in progress and processes, and the sessions of the last day.
pub(super) async fn show(
    State(state): State<Arc<HttpState>>,
    Extension(http_caller): Extension<HttpCaller>,
) -> Result<Response, HttpError> {
    let work = move || {
        let scope = http_caller.call_scope();
        let mut own = status(&state.app, &state.facts(), scope);
        own["own"] = true.into();
        let mut servers = vec![own];
        if let (CallScope::All, Some(dir)) = (scope, state.app.servers_dir()) {
            servers.extend(others(&dir, state.app.server_id()));
        }
        let sessions = match state.app.telemetry_location() {
            Some(location) => sessions(location, scope),
            None => Vec::new(),
        };
        json!({"servers": servers, "sessions": sessions})
    };
    let failed = |_| Error::new(ErrorKind::Internal, "the servers cannot be asked");
    let shown = tokio::task::spawn_blocking(work).await.map_err(failed)?;
    Ok(json(&shown))
}

/// `GET /api/activity/{server}/{target}/output`: what a process, or the program of a call, has printed from `offset` on.
pub(super) async fn output(
    State(state): State<Arc<HttpState>>,
    Extension(http_caller): Extension<HttpCaller>,
    Path((server, target)): Path<(String, String)>,
    uri: Uri,
) -> Result<Response, HttpError> {
    let offset = number(&uri, "offset", 0, i64::MAX.unsigned_abs())?;
    let wanted = parse_target(&target)?;
    ask(
        state,
        http_caller,
        server,
        move |state, scope| match scope {
            Asked::Own(scope) => state.app.running_output(scope, &wanted, offset),
            Asked::Other(ask) => ask(&ControlRequest::Output { target, offset }),
        },
    )
    .await
}

/// `POST /api/activity/{server}/{target}/stop`: ends a process with its children, or cancels a call.
pub(super) async fn stop(
    State(state): State<Arc<HttpState>>,
    Extension(http_caller): Extension<HttpCaller>,
    Path((server, target)): Path<(String, String)>,
) -> Result<Response, HttpError> {
    let token = &http_caller.token;
    let may_stop =
        (token.tools.as_ref()).is_none_or(|tools| tools.iter().any(|name| name == STOP_TOOL));
    if token.read_only || !may_stop {
        let message = "this token may not stop anything";
        let error = Error::new(ErrorKind::CommandDenied, message);
        return Err(error
            .hint(format!("it needs the tool {STOP_TOOL}, and write access"))
            .into());
    }
    let wanted = parse_target(&target)?;
    ask(
        state,
        http_caller,
        server,
        move |state, scope| match scope {
            Asked::Own(scope) => state.app.stop_running(scope, &wanted),
            Asked::Other(ask) => ask(&ControlRequest::Stop { target }),
        },
    )
    .await
}

/// Which server is asked, and how.
enum Asked<'a> {
    Own(CallScope<'a>),
    Other(&'a dyn Fn(&ControlRequest) -> ToolResult<Value>),
}

async fn ask(
    state: Arc<HttpState>,
    http_caller: HttpCaller,
    server: String,
    work: impl FnOnce(&HttpState, Asked<'_>) -> ToolResult<Value> + Send + 'static,
) -> Result<Response, HttpError> {
    let work = move || {
        if server == state.app.server_id() {
            return work(&state, Asked::Own(http_caller.call_scope()));
        }
        let ended = || {
            Error::new(
                ErrorKind::NotFound,
                "there is no such server on this machine",
            )
        };
        let dir = (state.app.servers_dir()).filter(|_| http_caller.token.sees_all);
        let ask = |request: &ControlRequest| {
            let asked = dir.as_deref().map(|dir| ask_server(dir, &server, request));
            asked.transpose()?.flatten().ok_or_else(ended)
        };
        work(&state, Asked::Other(&ask))
    };
    let failed = |_| Error::new(ErrorKind::Internal, "the server cannot be asked");
    let answer = tokio::task::spawn_blocking(work).await.map_err(failed)??;
    Ok(json(&answer))
}
