//! OpenAI's chat completions, which many other servers speak as well.

use serde_json::{Value, json};

use super::{ChatReply, ChatRequest, TokenUsage, WireRequest, messages, number};
use crate::endpoint::Endpoint;
use crate::model_name::ModelName;

pub(super) fn chat_request(
    model: &ModelName,
    endpoint: &Endpoint,
    request: &ChatRequest,
    output: u64,
) -> WireRequest {
    let mut body = json!({
        "model": model.model(),
        "messages": messages(request, true),
        "stream": false,
    });
    // OpenAI's newer models refuse `max_tokens`; other servers know only that.
    let limit = if endpoint.host == "api.openai.com" {
        "max_completion_tokens"
    } else {
        "max_tokens"
    };
    body[limit] = output.into();
    WireRequest {
        path: "/chat/completions",
        body,
        headers: &[],
    }
}

pub(super) fn read_reply(body: &Value) -> Option<ChatReply> {
    let choice = body.pointer("/choices/0")?;
    let message = choice.get("message")?;
    let text = message
        .get("content")
        .and_then(Value::as_str)
        .or_else(|| message.get("refusal").and_then(Value::as_str))?;
    let usage = number(body, "/usage/prompt_tokens")
        .zip(number(body, "/usage/completion_tokens"))
        .map(|(input, output)| TokenUsage {
            input,
            output,
            cached: number(body, "/usage/prompt_tokens_details/cached_tokens").unwrap_or(0),
        });
    Some(ChatReply {
        text: text.to_owned(),
        truncated: choice.get("finish_reason").and_then(Value::as_str) == Some("length"),
        usage,
    })
}
