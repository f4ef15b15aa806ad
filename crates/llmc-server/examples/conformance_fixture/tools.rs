//! The tools the suite calls.

use std::time::Duration;

use rmcp::{
    ErrorData, Peer, RoleServer,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ContentBlock,
        CustomRequest, ListToolsResult, LoggingLevel, LoggingMessageNotificationParam,
        ProgressNotificationParam, ServerRequest,
    },
    service::RequestContext,
};
use serde_json::{Value, json};

use crate::{
    handler::{Changed, Fixture, typed},
    input_required,
};

/// A picture of one pixel.
pub(crate) const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
/// A sound without a sample.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

/// Long enough for a client to see two notifications as two.
const STEP: Duration = Duration::from_millis(50);

const PLAIN: &[&str] = &[
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_error_handling",
    "test_tool_with_logging",
    "test_tool_with_progress",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
    "test_reconnection",
    "test_missing_capability",
    "test_streaming_elicitation",
    "test_logging_tool",
    "test_trigger_tool_change",
    "test_trigger_prompt_change",
];

pub(crate) fn list() -> Result<ListToolsResult, ErrorData> {
    let nothing = json!({"type": "object", "properties": {}});
    let one = |name: &str| {
        json!({
            "type": "object",
            "properties": {name: {"type": "string"}},
            "required": [name],
        })
    };
    let mut tools: Vec<Value> = PLAIN
        .iter()
        .chain(input_required::TOOLS)
        .map(|name| json!({"name": name, "description": "Fixture", "inputSchema": nothing}))
        .collect();
    for (name, schema) in [
        ("test_sampling", one("prompt")),
        ("test_elicitation", one("message")),
        ("json_schema_2020_12_tool", rich_schema()),
    ] {
        tools.push(json!({"name": name, "description": "Fixture", "inputSchema": schema}));
    }
    Ok(ListToolsResult::with_all_items(typed(Value::Array(tools))?))
}

pub(crate) async fn call(
    fixture: &Fixture,
    request: CallToolRequestParams,
    context: RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    if input_required::TOOLS.contains(&request.name.as_ref()) {
        return input_required::call(fixture, &request, &context);
    }
    let peer = &context.peer;
    let content = match request.name.as_ref() {
        "test_simple_text" => {
            json!([{"type": "text", "text": "This is a simple text response for testing."}])
        }
        "test_image_content" => json!([{"type": "image", "data": PNG, "mimeType": "image/png"}]),
        "test_audio_content" => json!([{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]),
        "test_embedded_resource" => json!([{"type": "resource", "resource": {
            "uri": "test://embedded-resource",
            "mimeType": "text/plain",
            "text": "This is an embedded resource content.",
        }}]),
        "test_multiple_content_types" => json!([
            {"type": "text", "text": "Multiple content types test:"},
            {"type": "image", "data": PNG, "mimeType": "image/png"},
            {"type": "resource", "resource": {
                "uri": "test://mixed-content-resource",
                "mimeType": "application/json",
                "text": json!({"test": "data", "value": 123}).to_string(),
            }},
        ]),
        "test_error_handling" => {
            let text = "This tool intentionally returns an error for testing";
            return Ok(CallToolResult::error(vec![ContentBlock::text(text)]).into());
        }
        "test_tool_with_logging" => {
            for message in [
                "Tool execution started",
                "Tool processing data",
                "Tool execution completed",
            ] {
                log(peer, message).await;
                tokio::time::sleep(STEP).await;
            }
            text("logged")
        }
        // The stateless revision wants a log level in the request before anything is logged.
        "test_logging_tool" => {
            if context.meta.log_level().is_some() {
                log(peer, "logged").await;
            }
            text("done")
        }
        "test_tool_with_progress" => {
            for progress in [0.0, 50.0, 100.0] {
                if let Some(token) = context.meta.get_progress_token() {
                    let step = ProgressNotificationParam::new(token, progress).with_total(100.0);
                    let _ = peer.notify_progress(step).await;
                }
                tokio::time::sleep(STEP).await;
            }
            text("progressed")
        }
        "test_sampling" => {
            let params = json!({
                "messages": [{"role": "user", "content": {"type": "text", "text": argument(&request, "prompt")}}],
                "maxTokens": 100,
            });
            let answer = ask(peer, "sampling/createMessage", params).await?;
            text(format!("LLM response: {}", answer["content"]["text"]))
        }
        "test_elicitation" => {
            let params = json!({
                "message": argument(&request, "message"),
                "requestedSchema": {
                    "type": "object",
                    "properties": {
                        "username": {"type": "string", "description": "User's response"},
                        "email": {"type": "string", "description": "User's email address"},
                    },
                    "required": ["username", "email"],
                },
            });
            let answer = ask(peer, "elicitation/create", params).await?;
            text(format!("User response: {answer}"))
        }
        "test_elicitation_sep1034_defaults" => elicit(peer, default_fields()).await?,
        "test_elicitation_sep1330_enums" => elicit(peer, enum_fields()).await?,
        "test_reconnection" => text("reconnected"),
        "test_missing_capability" => {
            let declared = context.client_capabilities().unwrap_or_default();
            if serde_json::to_value(declared).is_ok_and(|declared| declared["sampling"].is_null()) {
                let required: ClientCapabilities = typed(json!({"sampling": {}}))?;
                return Err(ErrorData::missing_required_client_capability(required));
            }
            text("sampling is declared")
        }
        // The stateless revision has no requests from the server, so this one asks in its result.
        "test_streaming_elicitation" => {
            return input_required::ask_for_name();
        }
        "test_trigger_tool_change" => {
            let _ = fixture.changes.send(Changed::Tools);
            text("changed")
        }
        "test_trigger_prompt_change" => {
            let _ = fixture.changes.send(Changed::Prompts);
            text("changed")
        }
        "json_schema_2020_12_tool" => text("hello"),
        name => {
            let message = format!("Unknown tool: {name}");
            return Err(ErrorData::invalid_params(message, None));
        }
    };
    Ok(CallToolResult::success(typed(content)?).into())
}

fn text(text: impl Into<String>) -> Value {
    json!([{"type": "text", "text": text.into()}])
}

fn argument<'a>(request: &'a CallToolRequestParams, name: &str) -> &'a str {
    let arguments = request.arguments.as_ref();
    arguments
        .and_then(|arguments| arguments.get(name)?.as_str())
        .unwrap_or_default()
}

async fn log(peer: &Peer<RoleServer>, message: &str) {
    let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(message));
    let _ = peer.notify_logging_message(message).await;
}

/// Sends a request to the client.
async fn ask(peer: &Peer<RoleServer>, method: &str, params: Value) -> Result<Value, ErrorData> {
    let request = ServerRequest::CustomRequest(CustomRequest::new(method, Some(params)));
    let failed = |error: &dyn std::fmt::Display| {
        ErrorData::internal_error(format!("{method} failed: {error}"), None)
    };
    let result = peer.send_request(request).await.map_err(|e| failed(&e))?;
    serde_json::to_value(result).map_err(|e| failed(&e))
}

async fn elicit(peer: &Peer<RoleServer>, fields: Value) -> Result<Value, ErrorData> {
    let params = json!({
        "message": "Please fill in",
        "requestedSchema": {"type": "object", "properties": fields},
    });
    let answer = ask(peer, "elicitation/create", params).await?;
    Ok(text(format!(
        "Elicitation completed: action={}, content={}",
        answer["action"].as_str().unwrap_or_default(),
        answer["content"],
    )))
}

fn default_fields() -> Value {
    json!({
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": true},
    })
}

fn enum_fields() -> Value {
    let titled = json!([
        {"const": "value1", "title": "First Option"},
        {"const": "value2", "title": "Second Option"},
        {"const": "value3", "title": "Third Option"},
    ]);
    let plain = json!(["option1", "option2", "option3"]);
    json!({
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    })
}

/// A schema with every keyword that must survive the way to the client.
fn rich_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }},
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false,
    })
}
