//! Sending a call to the server that has what it names, and waiting for the answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use llmc_host::CancelToken;
use llmc_observe::lock;
use serde_json::{Map, Value};
use tokio::sync::oneshot;
use tokio::time::{interval_at, timeout};
use tokio_util::sync::CancellationToken;

use super::home::{CallHome, Subject};
use super::store::{NewCall, ServerState};
use super::wire::{self, SentCall, ServerRequest};
use super::{Arrival, Awaited, ServerLink};
use crate::app::App;
use crate::call::{Call, HEARTBEAT, next_beat, tell};
use crate::cx::{Caller, Cx, Form, Surface};
use crate::error::{Error, ErrorKind, Result};
use crate::seal::Sealed;
use crate::tool::ToolDef;

/// How much longer than the tool itself its answer may take.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the list of another server's processes may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// Calls of this server that may wait for others at the same time.
const MAX_AWAITED_CALLS: usize = 512;
/// The tool that lists the processes of one server.
const LIST_TOOL: &str = "linux_proc_list";

/// What to do about a process whose server is gone.
const GONE_HINT: &str = "what ran there has ended with it; start it again";
/// The same if it was perhaps only cut off from the database.
const SILENT_HINT: &str =
    "try again in some seconds; if it is still silent, what ran there has ended";
/// The same about a script session.
const SESSION_GONE_HINT: &str =
    "call again in some seconds: the session is then new, on another server";
/// What to do about a call whose answer did not come.
const NO_ANSWER_HINT: &str =
    "linux_proc_list shows what runs; then call again if it is safe to do twice";

/// A call that another server was given. Dropped without an answer, it is cancelled there.
#[derive(Debug)]
pub(super) struct PendingCall {
    link: Arc<ServerLink>,
    id: String,
    target: String,
    arrival: oneshot::Receiver<Arrival>,
    /// Whether the other server has nothing more to do with it.
    is_over: bool,
}

/// The processes of a caller on the other servers.
#[derive(Debug, Default)]
pub(crate) struct OtherProcesses {
    pub(crate) listed: Vec<Value>,
    /// Servers that did not answer.
    pub(crate) missing: Vec<String>,
}

impl App {
    /// Has another server carry out a call.
    pub(crate) async fn forward(
        self: &Arc<App>,
        tool: &'static ToolDef,
        call: Call,
        caller: &Arc<Caller>,
        home: CallHome,
    ) -> Result<Sealed> {
        let Some(link) = self.server_link() else {
            let message = "this process shares no store with servers";
            return Err(about(&home, Error::new(ErrorKind::Unavailable, message)));
        };
        // It waits, and the other server may wait for this one: no slot is held meanwhile.
        let _released = call.slot.as_ref().map(|slot| slot.release());
        let cx = Cx::new(self.clone(), caller.clone(), CancelToken::default());
        let limit = (tool.time_limit)(&cx.for_tool(tool.name)) + TRANSFER_TIMEOUT;
        let correlation_id = call.correlation_id.as_deref().unwrap_or_default();
        let sent = SentCall::new(tool.name, call.args, caller, correlation_id);
        let request = ServerRequest::Call(Box::new(sent));
        let sending = link.send(&home.server, &request, limit);
        let mut pending = tokio::select! {
            sent = sending => sent.map_err(|error| about(&home, error))?,
            () = call.cancel.cancelled() => return Err(cancelled()),
        };
        let started = Instant::now();
        let tells = call.progress.is_some();
        let mut beat = tells.then(|| interval_at((started + HEARTBEAT).into(), HEARTBEAT));
        let deadline = tokio::time::sleep(limit);
        tokio::pin!(deadline);
        let text = loop {
            tokio::select! {
                text = pending.answer() => break text.map_err(|error| about(&home, error))?,
                () = call.cancel.cancelled() => return Err(cancelled()),
                () = &mut deadline => return Err(about(&home, no_answer(&home.server, limit))),
                () = next_beat(&mut beat) => tell(&call.progress, tool, started, ""),
            }
        };
        wire::read_answer(&text)
    }

    /// Carries out a call that a client of another server made. That server audits and records it.
    pub(super) async fn call_for_other_server(
        self: &Arc<App>,
        sent: SentCall,
        cancel: CancellationToken,
    ) -> Result<Sealed> {
        let caller = sent.caller();
        self.call_unrecorded(Call {
            name: sent.tool,
            args: sent.args,
            caller,
            cancel,
            progress: None,
            correlation_id: Some(sent.correlation_id),
            ask_user: None,
            slot: None,
        })
        .await
    }
}

impl ServerLink {
    /// Gives a request to another server.
    pub(super) async fn send(
        self: &Arc<ServerLink>,
        target: &str,
        request: &ServerRequest,
        limit: Duration,
    ) -> Result<PendingCall> {
        let request = wire::write_request(request)?;
        let id = uuid::Uuid::new_v4().to_string();
        let (arrived, arrival) = oneshot::channel();
        {
            let mut awaited = lock(&self.awaited);
            if awaited.len() >= MAX_AWAITED_CALLS {
                let message = "too many calls wait for other servers";
                return Err(Error::new(ErrorKind::RateLimited, message).hint("try again"));
            }
            // Before it is sent: the answer may be there before this thread goes on.
            let is_sent = false;
            awaited.insert(id.clone(), Awaited { arrived, is_sent });
        }
        let mut pending = PendingCall {
            link: self.clone(),
            id: id.clone(),
            target: target.to_owned(),
            arrival,
            is_over: false,
        };
        let server = target.to_owned();
        let state = self.with_store(move |store| {
            store.send(&NewCall {
                id: &id,
                target: &server,
                request: &request,
                limit,
            })
        });
        let (why, hint) = match state.await? {
            ServerState::Live => {
                if let Some(awaited) = lock(&self.awaited).get_mut(&pending.id) {
                    awaited.is_sent = true;
                }
                return Ok(pending);
            }
            ServerState::Gone => ("is gone".to_owned(), GONE_HINT),
            ServerState::Silent(since) => {
                let why = format!("has not been heard of for {} s", since.as_secs());
                (why, SILENT_HINT)
            }
        };
        // There is no row.
        pending.is_over = true;
        let error = Error::new(ErrorKind::Unavailable, format!("server {target} {why}"));
        Err(error.hint(hint).retry(hint == SILENT_HINT))
    }

    /// The processes of a caller on all other servers.
    pub(crate) async fn processes_of(self: &Arc<ServerLink>, caller: &Caller) -> OtherProcesses {
        let servers = match self.with_store(|store| store.live_servers()).await {
            Ok(servers) => servers,
            Err(error) => {
                return OtherProcesses {
                    listed: Vec::new(),
                    missing: vec![format!("all others: {error}")],
                };
            }
        };
        let caller = Caller {
            surface: Surface::Code,
            form: Form::Data,
            tools: None,
            ..caller.clone()
        };
        let asked = servers.into_iter().filter(|server| server.id != self.own);
        let asked: Vec<_> = asked
            .map(|server| {
                let (link, caller) = (self.clone(), caller.clone());
                self.runtime.spawn(async move {
                    let sent = SentCall::new(LIST_TOOL, Map::new(), &caller, "");
                    let request = ServerRequest::Call(Box::new(sent));
                    let pending = link.send(&server.id, &request, LIST_TIMEOUT).await;
                    let text = match pending {
                        Ok(pending) => pending.answer_within(LIST_TIMEOUT).await,
                        Err(error) => Err(error),
                    };
                    (server.id, text.and_then(|text| wire::read_answer(&text)))
                })
            })
            .collect();
        let mut found = OtherProcesses::default();
        for asking in asked {
            let Ok((server, answer)) = asking.await else {
                continue;
            };
            match answer {
                Ok(answer) => {
                    let listed = answer.data()["processes"].as_array().cloned();
                    found.listed.extend(listed.unwrap_or_default());
                }
                Err(error) => {
                    tracing::debug!(server, %error, "the processes of a server are not known");
                    found.missing.push(server);
                }
            }
        }
        found
    }
}

impl PendingCall {
    /// Waits for the answer.
    pub(super) async fn answer(&mut self) -> Result<String> {
        let arrived = (&mut self.arrival).await;
        let target = &self.target;
        let unavailable = |why: &str, hint: &str| {
            let message = format!("server {target} {why}; the call may have been carried out");
            let error = Error::new(ErrorKind::Unavailable, message);
            Err(error.hint(hint).retry(false))
        };
        match arrived {
            Ok(Arrival::Answer(text)) => {
                self.is_over = true;
                Ok(text)
            }
            Ok(Arrival::ServerGone) => {
                self.is_over = true;
                unavailable("has ended during the call", GONE_HINT)
            }
            Ok(Arrival::Lost) => unavailable("has not answered in time", NO_ANSWER_HINT),
            Ok(Arrival::Away(error)) => {
                unavailable(&format!("cannot be reached: {error}"), NO_ANSWER_HINT)
            }
            Err(_) => unavailable(
                "cannot be reached: this one is shutting down",
                NO_ANSWER_HINT,
            ),
        }
    }

    /// The same, for at most this long.
    pub(super) async fn answer_within(mut self, limit: Duration) -> Result<String> {
        match timeout(limit, self.answer()).await {
            Ok(answer) => answer,
            Err(_) => Err(no_answer(&self.target, limit)),
        }
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        lock(&self.link.awaited).remove(&self.id);
        let (store, id) = (self.link.store.clone(), std::mem::take(&mut self.id));
        let wakes = (!self.is_over).then(|| std::mem::take(&mut self.target));
        self.link.runtime.spawn_blocking(move || {
            if let Err(error) = store.remove(&id, wakes.as_deref()) {
                tracing::debug!(%error, "the row of a call stays until it has expired");
            }
        });
    }
}

/// An error of sending, with what the call named.
fn about(home: &CallHome, error: Error) -> Error {
    let subject = match &home.subject {
        Subject::Process(id) => id.clone(),
        Subject::ScriptSession(name) => format!("session {name}"),
    };
    let message = match error.message.contains(&home.server) {
        true => format!("{subject}: {}", error.message),
        false => format!("{subject}: server {}: {}", home.server, error.message),
    };
    let is_gone = error.hint.as_deref() == Some(GONE_HINT);
    let error = Error { message, ..error };
    match &home.subject {
        Subject::ScriptSession(_) if is_gone => error.hint(SESSION_GONE_HINT).retry(true),
        _ => error,
    }
}

fn no_answer(server: &str, limit: Duration) -> Error {
    let message = format!(
        "server {server} has not answered within {} s; the call may have been carried out",
        limit.as_secs()
    );
    let error = Error::new(ErrorKind::Unavailable, message);
    error.hint(NO_ANSWER_HINT).retry(false)
}

fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "cancelled")
}
