//! Ollama's `/api/chat`.

use serde_json::{Value, json};

use super::{Outgoing, Reply, Request, Usage, messages, number};
use crate::name::ModelName;

/// The smallest window asked for.
const SMALLEST_WINDOW: u64 = 8_192;

pub(super) fn outgoing(model: &ModelName, request: &Request, input: u64, output: u64) -> Outgoing {
    // Without a window Ollama takes a small one and silently drops the beginning of what does not fit. Powers of two,
    // since every other size makes it load the model again.
    let window = (input + input / 2 + output + 64)
        .max(SMALLEST_WINDOW)
        .next_power_of_two();
    Outgoing {
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

pub(super) fn reply(body: &Value) -> Option<Reply> {
    let text = body.pointer("/message/content")?.as_str()?;
    let usage = number(body, "/prompt_eval_count")
        .zip(number(body, "/eval_count"))
        .map(|(input, output)| Usage {
            input,
            output,
            cached: 0,
        });
    Some(Reply {
        text: text.to_owned(),
        cut: body.get("done_reason").and_then(Value::as_str) == Some("length"),
        usage,
    })
}
