//! What is said to a provider and what it says back, in each one's own language.

mod anthropic;
mod ollama;
mod openai;

use serde_json::Value;

use crate::endpoint::Endpoint;
use crate::name::{ModelName, Provider};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The one who asks.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// The word all three providers use.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::User => "user",
            Role::Assistant => "assistant",
        }
    }
}

/// One part of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What.
    pub text: String,
}

/// A question with all that came before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What the model is told about its task.
    pub system: String,
    /// The conversation, which ends with the user.
    pub messages: Vec<Message>,
    /// Tokens the answer may have.
    pub wanted: u64,
    /// Tokens without which it is not worth asking.
    pub least: u64,
}

impl Request {
    /// Tokens sent, by our own count.
    pub fn tokens(&self) -> u64 {
        let texts = self.messages.iter().map(|message| message.text.as_str());
        let tokens: usize = texts
            .chain([self.system.as_str()])
            .map(|text| llmc_tokens::count(text) + 8)
            .sum();
        tokens as u64
    }
}

/// What a call took, by the provider's count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Tokens sent, cached ones included.
    pub input: u64,
    /// Tokens received.
    pub output: u64,
    /// Tokens sent that the provider had in its cache.
    pub cached: u64,
}

/// A model's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// What it says.
    pub text: String,
    /// Whether it ran into the limit of tokens.
    pub cut: bool,
    /// What it took, if the provider says.
    pub usage: Option<Usage>,
}

/// The path below the endpoint, the body, and headers beside the usual ones.
pub(crate) struct Outgoing {
    pub(crate) path: &'static str,
    pub(crate) body: Value,
    pub(crate) headers: &'static [(&'static str, &'static str)],
}

/// How a key is sent.
pub(crate) fn key_header(provider: Provider, key: &str) -> (&'static str, String) {
    match provider {
        Provider::Anthropic => ("x-api-key", key.to_owned()),
        Provider::Ollama | Provider::OpenAi => ("authorization", format!("Bearer {key}")),
    }
}

pub(crate) fn outgoing(
    model: &ModelName,
    endpoint: &Endpoint,
    request: &Request,
    input: u64,
    output: u64,
) -> Outgoing {
    match model.provider() {
        Provider::Ollama => ollama::outgoing(model, request, input, output),
        Provider::OpenAi => openai::outgoing(model, endpoint, request, output),
        Provider::Anthropic => anthropic::outgoing(model, request, output),
    }
}

/// Reads an answer; the error says what is wrong with it.
pub(crate) fn reply(provider: Provider, body: &[u8]) -> Result<Reply, &'static str> {
    let body: Value = serde_json::from_slice(body).map_err(|_| "the answer is not JSON")?;
    let reply = match provider {
        Provider::Ollama => ollama::reply(&body),
        Provider::OpenAi => openai::reply(&body),
        Provider::Anthropic => anthropic::reply(&body),
    };
    reply.ok_or("the answer has no text where one belongs")
}

/// What a provider says about its own failure, if it can be made out.
pub(crate) fn complaint(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let error = body.get("error")?;
    let text = error
        .as_str()
        .or_else(|| error.get("message").and_then(Value::as_str))?;
    let clean: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(200)
        .collect();
    Some(clean)
}

fn messages(request: &Request, with_system: bool) -> Value {
    let system =
        with_system.then(|| serde_json::json!({"role": "system", "content": request.system}));
    let rest = request
        .messages
        .iter()
        .map(|message| serde_json::json!({"role": message.role.as_str(), "content": message.text}));
    system.into_iter().chain(rest).collect()
}

fn number(value: &Value, pointer: &str) -> Option<u64> {
    value.pointer(pointer).and_then(Value::as_u64)
}
