//! Anthropic's messages.

use serde_json::{Value, json};

use super::{Outgoing, Reply, Request, Usage, messages, number};
use crate::name::ModelName;

pub(super) fn outgoing(model: &ModelName, request: &Request, output: u64) -> Outgoing {
    Outgoing {
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

pub(super) fn reply(body: &Value) -> Option<Reply> {
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
            Usage {
                input: input + cached + written,
                output,
                cached,
            }
        });
    Some(Reply {
        text,
        cut: body.get("stop_reason").and_then(Value::as_str) == Some("max_tokens"),
        usage,
    })
}
