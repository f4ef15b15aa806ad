//! The prompts the suite asks for.

use rmcp::{
    ErrorData,
    model::{
        GetPromptRequestParams, GetPromptResponse, GetPromptResult, InputRequiredResult,
        ListPromptsResult,
    },
};
use serde_json::{Value, json};

use crate::{handler::typed, input_required::elicitation, tools::PNG};

pub(crate) fn list() -> Result<ListPromptsResult, ErrorData> {
    let argument = |name: &str| json!({"name": name, "description": "Fixture", "required": true});
    let prompts = json!([
        {"name": "test_simple_prompt", "description": "Fixture"},
        {
            "name": "test_prompt_with_arguments",
            "description": "Fixture",
            "arguments": [argument("arg1"), argument("arg2")],
        },
        {
            "name": "test_prompt_with_embedded_resource",
            "description": "Fixture",
            "arguments": [argument("resourceUri")],
        },
        {"name": "test_prompt_with_image", "description": "Fixture"},
        {"name": "test_input_required_result_prompt", "description": "Fixture"},
    ]);
    Ok(ListPromptsResult::with_all_items(typed(prompts)?))
}

pub(crate) fn get(request: GetPromptRequestParams) -> Result<GetPromptResponse, ErrorData> {
    let argument = |name: &str| {
        let arguments = request.arguments.as_ref();
        arguments
            .and_then(|arguments| arguments.get(name)?.as_str())
            .unwrap_or_default()
    };
    let messages = match request.name.as_str() {
        "test_simple_prompt" => user(json!([
            {"type": "text", "text": "This is a simple prompt for testing."},
        ])),
        "test_prompt_with_arguments" => user(json!([{"type": "text", "text": format!(
            "Prompt with arguments: arg1='{}', arg2='{}'",
            argument("arg1"),
            argument("arg2"),
        )}])),
        "test_prompt_with_embedded_resource" => user(json!([
            {"type": "resource", "resource": {
                "uri": argument("resourceUri"),
                "mimeType": "text/plain",
                "text": "Embedded resource content for testing.",
            }},
            {"type": "text", "text": "Please process the embedded resource above."},
        ])),
        "test_prompt_with_image" => user(json!([
            {"type": "image", "data": PNG, "mimeType": "image/png"},
            {"type": "text", "text": "Please analyze the image above."},
        ])),
        "test_input_required_result_prompt" => {
            let answers = request.input_responses.as_ref();
            match answers.and_then(|answers| answers.get("user_context")) {
                Some(answer) => user(json!([
                    {"type": "text", "text": format!("In the context of {}", answer["content"]["context"])},
                ])),
                None => {
                    let question =
                        elicitation("What context should the prompt use?", "context", "string");
                    let requests = typed(json!({"user_context": question}))?;
                    return Ok(InputRequiredResult::from_input_requests(requests).into());
                }
            }
        }
        name => {
            let message = format!("Unknown prompt: {name}");
            return Err(ErrorData::invalid_params(message, None));
        }
    };
    Ok(GetPromptResult::new(typed(messages)?).into())
}

/// Each content block as a message of the user.
fn user(blocks: Value) -> Value {
    let blocks = blocks.as_array().cloned().unwrap_or_default();
    blocks
        .into_iter()
        .map(|content| json!({"role": "user", "content": content}))
        .collect()
}
