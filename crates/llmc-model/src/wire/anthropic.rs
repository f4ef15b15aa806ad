//! Anthropic's messages.

use serde_json::{Value, json};

use super::{ChatReply, ChatRequest, TokenUsage, WireRequest, messages, number};
use crate::model_name::ModelName;

pub(super) fn chat_request(model: &ModelName, request: &ChatRequest, output: u64) -> WireRequest {
    WireRequest {
        path: "/v1/messages",
        body: json!({
            "model": model.model(),
            "max_tokens": output,
            "system": request.system,
            "messages": messages(request, false),
        }),
        headers: &[("anthropic-version", "2023-06-01")],
    }
}

pub(super) fn read_reply(body: &Value) -> Option<ChatReply> {
    let blocks = body.get("content")?.as_array()?;
    let texts = blocks
        .iter()
        .filter(|block| block.get("type").and_then(Value::as_str) == Some("text"))
        .filter_map(|block| block.get("text").and_then(Value::as_str));
    let text: String = texts.collect();
    let usage = number(body, "/usage/input_tokens")
        .zip(number(body, "/usage/output_tokens"))
        .map(|(input, output)| {
            // What came from the cache or went into it is not in the first figure.
            let cached = number(body, "/usage/cache_read_input_tokens").unwrap_or(0);
            let written = number(body, "/usage/cache_creation_input_tokens").unwrap_or(0);
            TokenUsage {
                input: input + cached + written,
                output,
                cached,
            }
        });
    Some(ChatReply {
        text,
        truncated: body.get("stop_reason").and_then(Value::as_str) == Some("max_tokens"),
        usage,
    })
}
