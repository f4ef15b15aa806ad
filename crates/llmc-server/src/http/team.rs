//! What servers that share a database ask each other beside calls of tools.
//!
//! A proxy may send each request of a client to another server. The one that learns that a call is cancelled or a session
//! has ended tells the others, and the one whose dashboard is open asks the others what they are doing.

use std::sync::{Arc, Weak};

use llmc_observe::CallScope;
use llmc_tools::{App, Error, ErrorKind, LiveServer, Result as ToolResult};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::HttpState;
use crate::control::{ControlRequest, carry_out, listed};

/// What one server tells or asks another.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum ServerMessage {
    /// A client cancels a request that another server may be working on.
    Cancel {
        principal: String,
        session: String,
        request: String,
    },
    /// A client has ended a session of MCP.
    EndSession { principal: String, session: String },
    /// What this server is doing, for this principal or for all.
    Control {
        principal: Option<String>,
        request: ControlRequest,
    },
}

/// Answers other servers until this one ends.
pub(super) fn answer_others(state: &Arc<HttpState>) {
    let weak = Arc::downgrade(state);
    let handler = move |message| answer(&weak, message);
    state.app.answer_servers(Box::new(handler));
}

fn answer(state: &Weak<HttpState>, message: Value) -> ToolResult<Value> {
    let ended = || Error::new(ErrorKind::Cancelled, "the server is shutting down");
    let state = state.upgrade().ok_or_else(ended)?;
    let message = serde_json::from_value(message);
    match message.map_err(|_| Error::bad_args("no such question"))? {
        ServerMessage::Cancel {
            principal,
            session,
            request,
        } => {
            state.running.cancel(&(principal, session, request));
            Ok(Value::Null)
        }
        ServerMessage::EndSession { principal, session } => {
            state.ended.add(&principal, &session);
            state.running.cancel_session(&principal, &session);
            state.app.end_command_session(&principal, &session);
            Ok(Value::Null)
        }
        ServerMessage::Control {
            request: ControlRequest::Ticket,
            ..
        } => Err(Error::new(
            ErrorKind::NotFound,
            "a link counts on its own machine only",
        )),
        ServerMessage::Control { principal, request } => {
            let scope = match &principal {
                Some(principal) => CallScope::Principal(principal),
                None => CallScope::All,
            };
            carry_out(&state.app, &state.facts(), scope, request)
        }
    }
}

/// Tells the other servers something, on a thread that may wait.
pub(super) fn tell_others(app: &Arc<App>, message: &ServerMessage) {
    let (app, message) = (app.clone(), json!(message));
    tokio::task::spawn_blocking(move || app.tell_servers(message));
}

/// Asks one other server.
pub(super) fn ask(
    app: &App,
    server: &str,
    scope: CallScope<'_>,
    request: ControlRequest,
) -> ToolResult<Value> {
    let principal = match scope {
        CallScope::All => None,
        CallScope::Principal(principal) => Some(principal.to_owned()),
    };
    let message = ServerMessage::Control { principal, request };
    app.ask_server(server, json!(message))
}

/// The state of every server of the database that is not among these; of one that does not answer, why.
pub(super) fn others(app: &App, scope: CallScope<'_>, known: &[Value]) -> Vec<Value> {
    let servers = match app.live_servers() {
        Ok(servers) => servers,
        Err(error) => {
            tracing::debug!(%error, "the servers of the shared store are not known");
            return Vec::new();
        }
    };
    let is_known = |server: &LiveServer| known.iter().any(|known| known["id"] == server.id);
    let servers: Vec<&LiveServer> = servers.iter().filter(|server| !is_known(server)).collect();
    std::thread::scope(|threads| {
        let asked: Vec<_> = (servers.iter())
            .map(|server| {
                threads.spawn(move || {
                    let status = ask(app, &server.id, scope, ControlRequest::Status);
                    shown(server, status)
                })
            })
            .collect();
        let answers = asked.into_iter().filter_map(|asked| asked.join().ok());
        answers.collect()
    })
}

fn shown(server: &LiveServer, status: ToolResult<Value>) -> Value {
    let mut shown = listed(server);
    match status {
        Ok(Value::Object(status)) => {
            for (key, value) in status {
                shown[key.as_str()] = value;
            }
        }
        Ok(_) => {}
        Err(error) => shown["error"] = error.message.into(),
    }
    shown
}
