//! Ollama's `/api/chat`.

use serde_json::{Value, json};

use super::{ChatReply, ChatRequest, TokenUsage, WireRequest, messages, number};
use crate::model_name::ModelName;

const MIN_CONTEXT_TOKENS: u64 = 8_192;

pub(super) fn chat_request(
    model: &ModelName,
    request: &ChatRequest,
    input: u64,
    output: u64,
) -> WireRequest {
    // Without a window Ollama takes a small one and silently drops the beginning of what does not fit. Powers of two,
    // since every other size makes it load the model again.
    let window = (input + input / 2 + output + 64)
        .max(MIN_CONTEXT_TOKENS)
        .next_power_of_two();
    WireRequest {
        path: "/api/chat",
        body: json!({
            "model": model.model(),
            "messages": messages(request, true),
            "stream": false,
            "options": {"num_predict": output, "num_ctx": window},
        }),
        headers: &[],
    }
}

pub(super) fn read_reply(body: &Value) -> Option<ChatReply> {
    let text = body.pointer("/message/content")?.as_str()?;
    let usage = number(body, "/prompt_eval_count")
        .zip(number(body, "/eval_count"))
        .map(|(input, output)| TokenUsage {
            input,
            output,
            cached: 0,
        });
    Some(ChatReply {
        text: text.to_owned(),
        truncated: body.get("done_reason").and_then(Value::as_str) == Some("length"),
        usage,
    })
}
