//! Asks the user, through the MCP client: about calls of a script (`mcp.code_execution.ask`), and what upstreams want to know.
//!
//! A client of an older revision gets an `elicitation/create` request while the call goes on. Since 2026-07-28 a server
//! sends no requests: the call is answered with an input-required result, its script stays paused, and the client repeats
//! the call with the user's answer and the signed state from that result. A state resumes its call once, for the same
//! principal and the same arguments; the script is never started again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use llmc_tools::{App, AskUser, Call, CallOutcome, UserQuestion, UserReply};
use rmcp::model::{
    ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationSchema, InputRequest, InputRequiredResult, InputResponses, RequestStateCodec,
    SealOptions, ServerRequest,
};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long the user may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);
/// Paused calls that are kept; the question of a further one counts as not answered.
const MAX_PAUSED_CALLS: usize = 32;
/// The key of the question in an input-required result.
const QUESTION_KEY: &str = "approval";

/// How the user of a client can be asked.
#[derive(Debug)]
pub(crate) enum AskBy {
    /// By a request to the client.
    Request(AskUser),
    /// By an input-required result.
    Result,
}

impl AskBy {
    /// `None` for a client that does not offer elicitation.
    pub(crate) fn of(context: &RequestContext<RoleServer>) -> Option<AskBy> {
        let offered = context.client_capabilities()?.elicitation?;
        if offered.form.is_none() && offered.url.is_some() {
            return None;
        }
        let has_requests = context.protocol_version()?.has_initialize();
        Some(match has_requests {
            true => AskBy::Request(ask_by_request(context.peer.clone())),
            false => AskBy::Result,
        })
    }
}

fn ask_by_request(peer: Peer<RoleServer>) -> AskUser {
    AskUser::new(move |question| {
        let peer = peer.clone();
        async move {
            let Some(request) = elicitation(question) else {
                return UserReply::Unanswered;
            };
            let request = ServerRequest::ElicitRequest(request);
            match tokio::time::timeout(ANSWER_TIMEOUT, peer.send_request(request)).await {
                Ok(Ok(ClientResult::ElicitResult(result))) => reply(result),
                _ => UserReply::Unanswered,
            }
        }
    })
}

/// The question as the protocol has it; none if an upstream's form is not one that clients can show.
fn elicitation(question: UserQuestion) -> Option<ElicitRequest> {
    let form = serde_json::from_value::<ElicitationSchema>(Value::Object(question.form));
    let requested_schema = form
        .inspect_err(|error| tracing::warn!(%error, "a form of an upstream cannot be shown"))
        .ok()?;
    Some(ElicitRequest::new(
        ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: question.message,
            requested_schema,
        },
    ))
}

fn reply(result: ElicitResult) -> UserReply {
    match (result.action, result.content) {
        (ElicitationAction::Accept, Some(Value::Object(content))) => UserReply::Accepted(content),
        (ElicitationAction::Accept, _) => UserReply::Accepted(Map::new()),
        (ElicitationAction::Decline, _) => UserReply::Declined,
        _ => UserReply::Unanswered,
    }
}

/// A call that goes on in a task of its own, and the questions that come up in it.
#[derive(Debug)]
pub(crate) struct RunningCall {
    outcome: JoinHandle<CallOutcome>,
    questions: mpsc::Receiver<Question>,
    cancel: CancellationToken,
}

#[derive(Debug)]
struct Question {
    request: ElicitRequest,
    answer: oneshot::Sender<UserReply>,
}

/// What happened next in a running call.
#[derive(Debug)]
pub(crate) enum CallStep {
    Ended(Box<CallOutcome>),
    InputRequired(InputRequiredResult),
    /// The call's task panicked or was ended with the runtime.
    Lost,
}

#[derive(Debug)]
struct PausedCall {
    running: RunningCall,
    answer: oneshot::Sender<UserReply>,
}

/// The paused calls of a server. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct PausedCalls {
    codec: Arc<RequestStateCodec>,
    calls: Arc<Mutex<HashMap<String, PausedCall>>>,
}

impl Default for PausedCalls {
    fn default() -> PausedCalls {
        // The key lives as long as the paused calls do: as long as this process.
        let key = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()].map(uuid::Uuid::into_bytes);
        PausedCalls {
            codec: Arc::new(RequestStateCodec::new_unchecked(key.concat())),
            calls: Arc::default(),
        }
    }
}

impl PausedCalls {
    /// Starts a call whose questions become input-required results.
    pub(crate) fn start(app: Arc<App>, mut call: Call) -> RunningCall {
        let (asked, questions) = mpsc::channel::<Question>(1);
        call.ask_user = Some(AskUser::new(move |question| {
            let asked = asked.clone();
            async move {
                let Some(request) = elicitation(question) else {
                    return UserReply::Unanswered;
                };
                let (answer, answered) = oneshot::channel();
                if asked.send(Question { request, answer }).await.is_err() {
                    return UserReply::Unanswered;
                }
                answered.await.unwrap_or(UserReply::Unanswered)
            }
        }));
        // The request ends when it is answered with a question; the call does not.
        let cancel = CancellationToken::new();
        call.cancel = cancel.clone();
        RunningCall {
            outcome: tokio::spawn(async move { app.call(call).await }),
            questions,
            cancel,
        }
    }

    /// The paused call that a repeated request continues, with the user's answer given to it.
    ///
    /// # Errors
    /// The state is not one of this process, has expired, was used before, or belongs to another caller or other arguments.
    pub(crate) fn resume(
        &self,
        state: &str,
        binding: &[u8],
        responses: Option<InputResponses>,
    ) -> Result<RunningCall, String> {
        let opened = self.codec.open_with(state, binding);
        let id = opened.map_err(|error| error.to_string())?;
        let id = String::from_utf8_lossy(&id).into_owned();
        let paused = self.lock().remove(&id);
        let PausedCall { running, answer } =
            paused.ok_or("the paused call has ended, or was resumed before")?;
        let given = responses.and_then(|mut responses| responses.remove(QUESTION_KEY));
        let given = given.and_then(|value| serde_json::from_value::<ElicitResult>(value).ok());
        let given = given.map_or(UserReply::Unanswered, reply);
        // The answer has no receiver if the script has ended by itself.
        let _ = answer.send(given);
        Ok(running)
    }

    /// Waits until the call has ended or needs an answer. When `cancelled` completes, the call is cancelled.
    pub(crate) async fn step(
        &self,
        mut running: RunningCall,
        binding: &[u8],
        cancelled: impl Future<Output = ()>,
    ) -> CallStep {
        let mut cancelled = std::pin::pin!(cancelled);
        loop {
            tokio::select! {
                outcome = &mut running.outcome => return ended(outcome),
                () = &mut cancelled, if !running.cancel.is_cancelled() => running.cancel.cancel(),
                Some(question) = running.questions.recv() => {
                    if self.lock().len() < MAX_PAUSED_CALLS {
                        return CallStep::InputRequired(self.pause(running, question, binding));
                    }
                    let _ = question.answer.send(UserReply::Unanswered);
                }
            }
        }
    }

    /// Keeps a call until its question is answered.
    fn pause(
        &self,
        running: RunningCall,
        question: Question,
        binding: &[u8],
    ) -> InputRequiredResult {
        let id = uuid::Uuid::new_v4().to_string();
        let paused = PausedCall {
            running,
            answer: question.answer,
        };
        self.lock().insert(id.clone(), paused);
        self.expire(id.clone());
        let options = SealOptions::new()
            .associated_data(binding)
            .ttl(ANSWER_TIMEOUT);
        let state = self.codec.seal_with(id.as_bytes(), &options);
        let request = InputRequest::Elicitation(question.request);
        let requests = [(QUESTION_KEY.to_owned(), request)].into();
        InputRequiredResult::new(Some(requests), Some(state))
    }

    /// Cancels a call that was not resumed in time.
    fn expire(&self, id: String) {
        let calls = Arc::downgrade(&self.calls);
        tokio::spawn(async move {
            tokio::time::sleep(ANSWER_TIMEOUT).await;
            let expired = calls.upgrade().and_then(|calls| {
                let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
                calls.remove(&id)
            });
            if let Some(paused) = expired {
                paused.running.cancel.cancel();
            }
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, PausedCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ended(outcome: Result<CallOutcome, tokio::task::JoinError>) -> CallStep {
    match outcome {
        Ok(outcome) => CallStep::Ended(Box::new(outcome)),
        Err(_) => CallStep::Lost,
    }
}

/// What a state is bound to: the caller, the tool and its arguments.
pub(crate) fn binding(principal: &str, tool: &str, arguments: &Map<String, Value>) -> Vec<u8> {
    let arguments = Value::Object(arguments.clone()).to_string();
    [principal, tool, &arguments].join("\0").into_bytes()
}
