//! Questions of an upstream to the user (elicitation), on behalf of the call that it works on.
//!
//! A server of the revisions with a handshake asks by a request while a call goes on; one of the newer revision answers the
//! call with what it wants to know. Either way the question goes to the user of the call, if that user can be asked, and
//! the time that the user takes is not the server's. Only forms are passed on. Whatever else a server asks its client for
//! is refused.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use llmc_host::lock;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::error::quoted;

/// Characters of a question.
const MAX_QUESTION_CHARS: usize = 4_000;
/// Bytes of the form of a question.
const MAX_FORM_BYTES: usize = 64 << 10;
/// Questions of one call; further ones are refused.
const MAX_QUESTIONS: usize = 20;
/// JSON-RPC: there is no such method, or the parameters do not fit.
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
/// JSON-RPC: the request cannot be answered.
pub(crate) const INTERNAL_ERROR: i64 = -32603;

/// A question with a form for the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct UserQuestion {
    pub message: String,
    /// A schema of an object; without properties the user only agrees or declines.
    pub form: Map<String, Value>,
}

/// What the user answered.
#[derive(Debug, Clone, PartialEq)]
pub enum UserReply {
    /// With what the user filled in.
    Accepted(Map<String, Value>),
    Declined,
    /// The user did not answer in time, or the client went away.
    Unanswered,
}

type PendingReply = Pin<Box<dyn Future<Output = UserReply> + Send>>;

/// Asks the user one question. Clones ask the same user.
#[derive(Clone)]
pub struct AskUser {
    ask: Arc<dyn Fn(UserQuestion) -> PendingReply + Send + Sync>,
    /// Stands before each question.
    prefix: String,
}

impl AskUser {
    pub fn new<F>(ask: impl Fn(UserQuestion) -> F + Send + Sync + 'static) -> AskUser
    where
        F: Future<Output = UserReply> + Send + 'static,
    {
        AskUser {
            ask: Arc::new(move |question| Box::pin(ask(question))),
            prefix: String::new(),
        }
    }

    /// Asks the same user, with words before each question that say who wants to know.
    pub fn with_prefix(&self, prefix: String) -> AskUser {
        AskUser {
            ask: self.ask.clone(),
            prefix,
        }
    }

    pub async fn ask(&self, mut question: UserQuestion) -> UserReply {
        question.message.insert_str(0, &self.prefix);
        (self.ask)(question).await
    }

    /// Whether both ask the same user.
    pub(crate) fn is_same(&self, other: &AskUser) -> bool {
        Arc::ptr_eq(&self.ask, &other.ask)
    }
}

impl fmt::Debug for AskUser {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("AskUser")
    }
}

/// The user of one call.
#[derive(Debug)]
pub(crate) struct CallUser {
    ask: Option<AskUser>,
    state: Mutex<UserState>,
}

#[derive(Debug, Default)]
struct UserState {
    questions: usize,
    /// Since when the user is being asked.
    since: Option<Instant>,
    /// Time that earlier questions took.
    taken: Duration,
}

impl CallUser {
    pub(crate) fn new(ask: Option<AskUser>) -> CallUser {
        CallUser {
            ask,
            state: Mutex::default(),
        }
    }

    pub(crate) fn ask(&self) -> Option<&AskUser> {
        self.ask.as_ref()
    }

    /// How long the user has been asked so far.
    pub(crate) fn time_taken(&self) -> Duration {
        let state = lock(&self.state);
        let now = state.since.map(|since| since.elapsed());
        state.taken + now.unwrap_or_default()
    }

    /// The reply to a request of a server: the result, or an error's code and message.
    pub(crate) async fn reply(&self, method: &str, params: &Value) -> Result<Value, (i64, String)> {
        let Some(ask) = self.ask.as_ref().filter(|_| method == "elicitation/create") else {
            return Err(not_offered(method));
        };
        let question = question(params).map_err(|why| (INVALID_PARAMS, why.to_owned()))?;
        {
            let mut state = lock(&self.state);
            state.questions += 1;
            if state.questions > MAX_QUESTIONS {
                return Err((INVALID_PARAMS, "too many questions in one call".to_owned()));
            }
            state.since = Some(Instant::now());
        }
        let form = question.form.clone();
        let reply = ask.ask(question).await;
        let mut state = lock(&self.state);
        let took = state.since.take().map(|since| since.elapsed());
        state.taken += took.unwrap_or_default();
        Ok(match reply {
            UserReply::Accepted(content) => {
                json!({"action": "accept", "content": with_defaults(&form, content)})
            }
            UserReply::Declined => json!({"action": "decline"}),
            UserReply::Unanswered => json!({"action": "cancel"}),
        })
    }
}

/// The error of a request that no client of this kind answers.
pub(crate) fn not_offered(method: &str) -> (i64, String) {
    let message = format!("{} is not offered by this client", quoted(method));
    (METHOD_NOT_FOUND, message)
}

/// The error of a question that may be meant for one of several users.
pub(crate) fn several_users() -> (i64, String) {
    let message = "calls of several users are under way".to_owned();
    (INTERNAL_ERROR, message)
}

/// The response to a server's request that concerns no user.
pub(crate) fn plain_response(id: &Value, method: &str) -> Value {
    match method {
        "ping" => json!({"jsonrpc": "2.0", "id": id, "result": {}}),
        method => error_response(id, not_offered(method)),
    }
}

pub(crate) fn error_response(id: &Value, (code, message): (i64, String)) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

/// Answers what a server asks during a call, one request after the other, as long as it is polled. `is_certain` says whether a
/// question can only be meant for this user.
pub(crate) async fn answer_requests<F: Future<Output = ()>>(
    mut asked: UnboundedReceiver<Value>,
    user: Option<&CallUser>,
    is_certain: impl Fn() -> bool,
    send: impl Fn(Value) -> F,
) -> Infallible {
    while let Some(request) = asked.recv().await {
        let method = request["method"].as_str().unwrap_or_default();
        let id = &request["id"];
        let response = match user.filter(|_| method == "elicitation/create") {
            None => plain_response(id, method),
            Some(_) if !is_certain() => error_response(id, several_users()),
            Some(user) => match user.reply(method, &request["params"]).await {
                Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
                Err(error) => error_response(id, error),
            },
        };
        send(response).await;
    }
    std::future::pending().await
}

/// The question in the parameters of a request.
fn question(params: &Value) -> Result<UserQuestion, &'static str> {
    if params["mode"].as_str().is_some_and(|mode| mode != "form") {
        return Err("only questions with a form are passed on");
    }
    let message = params["message"]
        .as_str()
        .ok_or("a question has a message")?;
    let shown = message.chars().filter(|c| !c.is_control() || *c == '\n');
    let form = match &params["requestedSchema"] {
        Value::Object(form) => form.clone(),
        _ => return Err("a question has a form"),
    };
    if params["requestedSchema"].to_string().len() > MAX_FORM_BYTES {
        return Err("the form is too large");
    }
    Ok(UserQuestion {
        message: shown.take(MAX_QUESTION_CHARS).collect(),
        form,
    })
}

/// What the user filled in, and the form's own values for what was left out.
fn with_defaults(form: &Map<String, Value>, mut content: Map<String, Value>) -> Map<String, Value> {
    let properties = form.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        if let Some(default) = property.get("default").filter(|value| !value.is_null()) {
            content.entry(name).or_insert_with(|| default.clone());
        }
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form() -> Value {
        json!({"message": "Who?\u{7}", "requestedSchema": {"type": "object", "properties": {
            "name": {"type": "string", "default": "Jo"}, "age": {"type": "integer"}}}})
    }

    fn user(reply: UserReply) -> CallUser {
        CallUser::new(Some(AskUser::new(move |question| {
            let reply = reply.clone();
            async move {
                assert_eq!(question.message, "Who?");
                reply
            }
        })))
    }

    #[tokio::test]
    async fn a_reply_has_the_forms_values_for_what_the_user_left_out() {
        let given = Map::from_iter([("age".to_owned(), json!(3))]);
        for (reply, sent) in [
            (
                UserReply::Accepted(given),
                json!({"action": "accept", "content": {"age": 3, "name": "Jo"}}),
            ),
            (UserReply::Declined, json!({"action": "decline"})),
            (UserReply::Unanswered, json!({"action": "cancel"})),
        ] {
            let answered = user(reply).reply("elicitation/create", &form()).await;
            assert_eq!(answered, Ok(sent));
        }
    }

    #[tokio::test]
    async fn what_is_no_question_to_this_user_is_refused() {
        let nobody = CallUser::new(None);
        let asked = nobody.reply("elicitation/create", &form()).await;
        assert_eq!(asked.unwrap_err().0, METHOD_NOT_FOUND);
        let user = user(UserReply::Declined);
        let asked = user.reply("sampling/createMessage", &json!({})).await;
        assert_eq!(asked.unwrap_err().0, METHOD_NOT_FOUND);
        let link = json!({"mode": "url", "message": "Who?", "url": "https://example.com"});
        for params in [link, json!({"message": "Who?"}), json!(null)] {
            let asked = user.reply("elicitation/create", &params).await;
            assert_eq!(asked.unwrap_err().0, INVALID_PARAMS);
        }
        for _ in 0..MAX_QUESTIONS {
            user.reply("elicitation/create", &form()).await.unwrap();
        }
        user.reply("elicitation/create", &form()).await.unwrap_err();
    }
}
