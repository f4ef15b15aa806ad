//! Requests and replies as each provider writes them.

mod anthropic;
mod embeddings;
mod ollama;
mod openai;

pub(crate) use embeddings::{embedding_request, read_vectors};
use serde_json::Value;

use crate::model_name::Provider;
use crate::policy::Route;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatRole {
    User,
    Assistant,
}

impl ChatRole {
    /// The name that all three providers use.
    pub fn as_str(self) -> &'static str {
        match self {
            ChatRole::User => "user",
            ChatRole::Assistant => "assistant",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatMessage {
    pub role: ChatRole,
    pub text: String,
}

/// A question with the conversation before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatRequest {
    pub system: String,
    /// The last one is the user's.
    pub messages: Vec<ChatMessage>,
    pub max_output_tokens: u64,
    /// The call is not made if the caps leave fewer.
    pub min_output_tokens: u64,
}

impl ChatRequest {
    /// Tokens sent, by `llmc-tokens`' count.
    pub fn input_tokens(&self) -> u64 {
        let texts = self.messages.iter().map(|message| message.text.as_str());
        let tokens: usize = texts
            .chain([self.system.as_str()])
            .map(|text| llmc_tokens::count(text) + 8)
            .sum();
        tokens as u64
    }
}

/// The tokens of a call, by the provider's count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenUsage {
    /// Cached ones included.
    pub input: u64,
    pub output: u64,
    /// The part of `input` that the provider had in its cache.
    pub cached: u64,
}

impl TokenUsage {
    /// Input and output together; a provider may report anything.
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatReply {
    pub text: String,
    /// Whether the answer reached `max_output_tokens`.
    pub truncated: bool,
    /// Absent if the provider sends none.
    pub usage: Option<TokenUsage>,
}

/// One POST: the path below the endpoint, the body, and headers beside the usual ones.
pub(crate) struct WireRequest {
    pub(crate) path: &'static str,
    pub(crate) body: Value,
    pub(crate) headers: &'static [(&'static str, &'static str)],
}

pub(crate) fn key_header(provider: Provider, key: &str) -> (&'static str, String) {
    match provider {
        Provider::Anthropic => ("x-api-key", key.to_owned()),
        Provider::Ollama | Provider::OpenAi => ("authorization", format!("Bearer {key}")),
    }
}

pub(crate) fn chat_request(
    route: &Route,
    request: &ChatRequest,
    input: u64,
    output: u64,
) -> WireRequest {
    let model = &route.model;
    match model.provider() {
        Provider::Ollama => ollama::chat_request(model, request, input, output),
        Provider::OpenAi => openai::chat_request(model, &route.endpoint, request, output),
        Provider::Anthropic => anthropic::chat_request(model, request, output),
    }
}

/// Reads an answer; the error says what is wrong with it.
pub(crate) fn read_chat_reply(provider: Provider, body: &[u8]) -> Result<ChatReply, &'static str> {
    let body: Value = serde_json::from_slice(body).map_err(|_| "the answer is not JSON")?;
    let reply = match provider {
        Provider::Ollama => ollama::read_reply(&body),
        Provider::OpenAi => openai::read_reply(&body),
        Provider::Anthropic => anthropic::read_reply(&body),
    };
    reply.ok_or("the answer has no text where one belongs")
}

/// The error message in a provider's answer, clipped and without control characters.
pub(crate) fn error_message(body: &[u8]) -> Option<String> {
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

fn messages(request: &ChatRequest, with_system: bool) -> Value {
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
