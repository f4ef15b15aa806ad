//! REST: tools, retrieval and the agent's door, for clients that do not speak MCP.

use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use llmc_tools::{Call, CallOutcome, Error, Family, Form, Kind, Surface};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};
use serde_json::{Map, Value, json};
use tracing::Instrument;

use super::Door;
use super::gates::Visitor;
use super::refusal::{JSON, Refusal};

/// What `/invoke_agent` answers; models are called elsewhere.
const RECEIVED: &str = "[MCP v0] received; use /rag/search for pre-call context";

/// A body of `POST /tool`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolBody {
    #[serde(default, deserialize_with = "given")]
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
    #[serde(default, deserialize_with = "given")]
    scope: Option<String>,
    #[serde(default, deserialize_with = "given")]
    k: Option<i64>,
    #[serde(default, deserialize_with = "given")]
    budget_tokens: Option<i64>,
    #[serde(default, deserialize_with = "given")]
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
    #[expect(dead_code, reason = "accepted; models are called elsewhere")]
    role: Option<String>,
    #[serde(default)]
    #[expect(dead_code, reason = "accepted; models are called elsewhere")]
    inject_context: Option<String>,
}

pub(super) async fn health(State(door): State<Arc<Door>>) -> Response {
    // The first look at what the kernel gives takes a moment; it was taken at the start.
    json(&door.app.health())
}

pub(super) async fn tool(
    State(door): State<Arc<Door>>,
    Extension(visitor): Extension<Visitor>,
    body: Bytes,
) -> Result<Response, Refusal> {
    let body: ToolBody = parse(&body)?;
    let outcome = call(&door, visitor, body.name, body.args, body.session_id).await;
    match outcome.result {
        Ok(answer) => Ok(json(&answer.rest_body(&outcome.correlation_id))),
        Err(error) => {
            let family = outcome.tool.map_or(Family::Linux, |tool| tool.family);
            Err(Refusal::of_tool(error, family))
        }
    }
}

pub(super) async fn search(
    State(door): State<Arc<Door>>,
    Extension(visitor): Extension<Visitor>,
    body: Bytes,
) -> Result<Response, Refusal> {
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
    let found = retrieve(&door, visitor, "rag_search", args, body.session_id).await?;
    Ok(json(&found))
}

pub(super) async fn bootload(
    State(door): State<Arc<Door>>,
    Extension(visitor): Extension<Visitor>,
    body: Bytes,
) -> Result<Response, Refusal> {
    let body: BootloadBody = parse(&body)?;
    let mut args = Map::new();
    args.insert("session_id".to_owned(), body.session_id.clone().into());
    args.insert("task_id".to_owned(), body.task_id.into());
    let session = Some(body.session_id);
    let loaded = retrieve(&door, visitor, "rag_bootload", args, session).await?;
    Ok(json(&loaded))
}

pub(super) async fn invoke_agent(
    State(door): State<Arc<Door>>,
    Extension(visitor): Extension<Visitor>,
    body: Bytes,
) -> Result<Response, Refusal> {
    let body: AgentBody = parse(&body)?;
    let mut answer = json!({"text": RECEIVED});
    if door.app.config().mcp.rag.jit_context_enabled {
        let mut args = Map::new();
        args.insert("query".to_owned(), body.user_msg.into());
        // Context is a help; an agent whose message finds none is answered all the same.
        let found = retrieve(&door, visitor, "rag_search", args, Some(body.session_id)).await;
        let snippets = found.ok().map(|mut found| found["snippets"].take());
        answer["context"] = snippets.filter(Value::is_array).unwrap_or(json!([]));
    }
    Ok(json(&answer))
}

/// The document of a retrieval tool, or an honest empty one while there is no retrieval.
async fn retrieve(
    door: &Arc<Door>,
    visitor: Visitor,
    tool: &str,
    args: Map<String, Value>,
    session: Option<String>,
) -> Result<Value, Refusal> {
    let outcome = call(door, visitor, tool.to_owned(), args, session).await;
    match outcome.result {
        Ok(answer) => Ok(answer.data().into_owned()),
        Err(error) => Err(Refusal::of_tool(error, Family::Linux)),
    }
}

/// Makes a call that goes on to its end, told to stop when its client goes away.
pub(super) async fn call(
    door: &Arc<Door>,
    visitor: Visitor,
    name: String,
    args: Map<String, Value>,
    session: Option<String>,
) -> CallOutcome {
    let app = door.app.clone();
    let cancel = door.end.child_token();
    // Dropped with this future, which the server drops when the connection is closed.
    let gone = cancel.clone().drop_guard();
    let id = visitor.correlation_id.clone();
    let session = session.filter(|session| !session.is_empty());
    let call = Call {
        caller: visitor.caller(&app, Surface::Http, Form::Data, session.as_deref()),
        name,
        args,
        cancel,
        progress: None,
        correlation_id: Some(id.clone()),
    };
    let work = async move {
        let outcome = app.call(call).await;
        // The place is free when the work is over, not when the client is gone.
        drop(visitor);
        outcome
    };
    let outcome = tokio::spawn(work.in_current_span()).await;
    gone.disarm();
    outcome.unwrap_or_else(|_| CallOutcome {
        correlation_id: id,
        tool: None,
        result: Err(Error::new(Kind::Internal, "the server failed on this call")),
    })
}

/// A member that may be left out, and is no null.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    // A list of the values in order would fit, too.
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(Error::bad_args("the body does not fit: an object is expected").into());
    }
    serde_json::from_slice(body)
        .map_err(|error| Error::bad_args(format!("the body does not fit: {error}")).into())
}

pub(super) fn json(document: &Value) -> Response {
    let mut response = Response::new(Body::from(document.to_string()));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}
