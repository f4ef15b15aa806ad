//! OpenAI's chat completions, which many other servers speak as well.

use serde_json::{Value, json};

use super::{Outgoing, Reply, Request, Usage, messages, number};
use crate::endpoint::Endpoint;
use crate::name::ModelName;

pub(super) fn outgoing(
    model: &ModelName,
    endpoint: &Endpoint,
    request: &Request,
    output: u64,
) -> Outgoing {
    let mut body = json!({
        "model": model.model(),
        "messages": messages(request, true),
        "stream": false,
    });
    // OpenAI's newer models refuse the old word; other servers know only that one.
    let limit = if endpoint.host() == "api.openai.com" {
        "max_completion_tokens"
    } else {
        "max_tokens"
    };
    body[limit] = output.into();
    Outgoing {
        path: "/chat/completions",
        body,
        headers: &[],
    }
}

pub(super) fn reply(body: &Value) -> Option<Reply> {
    let choice = body.pointer("/choices/0")?;
    let message = choice.get("message")?;
    let text = message
        .get("content")
        .and_then(Value::as_str)
        .or_else(|| message.get("refusal").and_then(Value::as_str))?;
    let usage = number(body, "/usage/prompt_tokens")
        .zip(number(body, "/usage/completion_tokens"))
        .map(|(input, output)| Usage {
            input,
            output,
            cached: number(body, "/usage/prompt_tokens_details/cached_tokens").unwrap_or(0),
        });
    Some(Reply {
        text: text.to_owned(),
        cut: choice.get("finish_reason").and_then(Value::as_str) == Some("length"),
        usage,
    })
}
