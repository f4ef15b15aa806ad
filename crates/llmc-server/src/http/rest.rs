//! REST: tools, retrieval and `/invoke_agent`, for clients that do not speak MCP.

use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use llmc_tools::{App, Call, CallOutcome, Error, ErrorKind, Family, Form, Surface};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};
use serde_json::{Map, Value, json};
use tracing::Instrument;

use super::HttpState;
use super::error::{HttpError, JSON};
use super::gates::HttpCaller;

/// What `/invoke_agent` answers; this server calls no models for it.
const INVOKE_AGENT_TEXT: &str = "[MCP v0] received; use /rag/search for pre-call context";

/// A body of `POST /tool`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolBody {
    #[serde(default, deserialize_with = "non_null")]
    session_id: Option<String>,
    name: String,
    #[serde(default)]
    args: Map<String, Value>,
}

/// A body of `POST /rag/search`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchBody {
    #[serde(alias = "query")]
    q: String,
    #[serde(default, deserialize_with = "non_null")]
    scope: Option<String>,
    #[serde(default, deserialize_with = "non_null")]
    k: Option<i64>,
    #[serde(default, deserialize_with = "non_null")]
    budget_tokens: Option<i64>,
    #[serde(default, deserialize_with = "non_null")]
    session_id: Option<String>,
}

/// A body of `POST /rag/bootload`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BootloadBody {
    session_id: String,
    task_id: String,
}

/// A body of `POST /invoke_agent`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentBody {
    session_id: String,
    user_msg: String,
    #[serde(default)]
    #[expect(dead_code, reason = "accepted; no model is called")]
    role: Option<String>,
    #[serde(default)]
    #[expect(dead_code, reason = "accepted; no model is called")]
    inject_context: Option<String>,
}

pub(super) async fn health(State(state): State<Arc<HttpState>>) -> Response {
    json(&state.app.health())
}

pub(super) async fn tool(
    State(state): State<Arc<HttpState>>,
    Extension(http_caller): Extension<HttpCaller>,
    body: Bytes,
) -> Result<Response, HttpError> {
    let body: ToolBody = parse(&body)?;
    let outcome = call(&state, http_caller, body.name, body.args, body.session_id).await;
    match outcome.result {
        Ok(answer) => Ok(json(&answer.rest_body(&outcome.correlation_id))),
        Err(error) => {
            let family = outcome.tool.map_or(Family::Linux, |tool| tool.family);
            Err(HttpError::of_tool(error, family))
        }
    }
}

pub(super) async fn search(
    State(state): State<Arc<HttpState>>,
    Extension(http_caller): Extension<HttpCaller>,
    body: Bytes,
) -> Result<Response, HttpError> {
    let body: SearchBody = parse(&body)?;
    let mut args = Map::new();
    args.insert("query".to_owned(), body.q.into());
    let optional = [
        ("scope", body.scope.map(Value::from)),
        ("k", body.k.map(Value::from)),
        ("budget_tokens", body.budget_tokens.map(Value::from)),
    ];
    for (key, value) in optional {
        args.extend(value.map(|value| (key.to_owned(), value)));
    }
    let found = retrieve(&state, http_caller, "rag_search", args, body.session_id).await?;
    Ok(json(&found))
}

pub(super) async fn bootload(
    State(state): State<Arc<HttpState>>,
    Extension(http_caller): Extension<HttpCaller>,
    body: Bytes,
) -> Result<Response, HttpError> {
    let body: BootloadBody = parse(&body)?;
    let mut args = Map::new();
    args.insert("session_id".to_owned(), body.session_id.clone().into());
    args.insert("task_id".to_owned(), body.task_id.into());
    let session = Some(body.session_id);
    let loaded = retrieve(&state, http_caller, "rag_bootload", args, session).await?;
    Ok(json(&loaded))
}

pub(super) async fn invoke_agent(
    State(state): State<Arc<HttpState>>,
    Extension(http_caller): Extension<HttpCaller>,
    body: Bytes,
) -> Result<Response, HttpError> {
    let body: AgentBody = parse(&body)?;
    let mut answer = json!({"text": INVOKE_AGENT_TEXT});
    if state.app.config().mcp.rag.jit_context_enabled {
        let mut args = Map::new();
        args.insert("query".to_owned(), body.user_msg.into());
        // Context is optional: a message without any is answered too.
        let found = retrieve(
            &state,
            http_caller,
            "rag_search",
            args,
            Some(body.session_id),
        )
        .await;
        let snippets = found.ok().map(|mut found| found["snippets"].take());
        answer["context"] = snippets.filter(Value::is_array).unwrap_or(json!([]));
    }
    Ok(json(&answer))
}

/// Calls a retrieval tool and returns its document.
async fn retrieve(
    state: &Arc<HttpState>,
    http_caller: HttpCaller,
    tool: &str,
    args: Map<String, Value>,
    session: Option<String>,
) -> Result<Value, HttpError> {
    let outcome = call(state, http_caller, tool.to_owned(), args, session).await;
    match outcome.result {
        Ok(answer) => Ok(answer.data().into_owned()),
        Err(error) => Err(HttpError::of_tool(error, Family::Linux)),
    }
}

async fn call(
    state: &Arc<HttpState>,
    http_caller: HttpCaller,
    name: String,
    args: Map<String, Value>,
    session: Option<String>,
) -> CallOutcome {
    make_call(
        state,
        http_caller,
        name,
        args,
        session,
        |app, call| async move { app.call(call).await },
    )
    .await
}

/// Makes a call that runs to its end, and is cancelled when its client disconnects.
pub(super) async fn make_call<F: Future<Output = CallOutcome> + Send + 'static>(
    state: &Arc<HttpState>,
    http_caller: HttpCaller,
    name: String,
    args: Map<String, Value>,
    session: Option<String>,
    work: impl FnOnce(Arc<App>, Call) -> F,
) -> CallOutcome {
    let app = state.app.clone();
    let cancel = state.end.child_token();
    // Dropped with this future, which the server drops when the connection is closed.
    let disconnect = cancel.clone().drop_guard();
    let id = http_caller.correlation_id.clone();
    let session = session.filter(|session| !session.is_empty());
    let call = Call {
        caller: http_caller.tool_caller(&app, Surface::Http, Form::Data, session.as_deref()),
        name,
        args,
        cancel,
        progress: None,
        correlation_id: Some(id.clone()),
        ask_user: None,
        slot: http_caller.slot.clone(),
    };
    let calling = work(app, call);
    let work = async move {
        let outcome = calling.await;
        // The permit is released when the call ends, not when the client disconnects.
        drop(http_caller);
        outcome
    };
    let outcome = tokio::spawn(work.in_current_span()).await;
    disconnect.disarm();
    outcome.unwrap_or_else(|_| CallOutcome {
        correlation_id: id,
        tool: None,
        result: Err(Error::new(
            ErrorKind::Internal,
            "the server failed on this call",
        )),
    })
}

/// A member that may be missing, but not null.
fn non_null<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    value: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, HttpError> {
    // serde would also accept an array with the values in order.
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(Error::bad_args("the body does not fit: expected an object").into());
    }
    serde_json::from_slice(body)
        .map_err(|error| Error::bad_args(format!("the body does not fit: {error}")).into())
}

pub(super) fn json(document: &Value) -> Response {
    let mut response = Response::new(Body::from(document.to_string()));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}
