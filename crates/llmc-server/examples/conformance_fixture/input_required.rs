//! Tools of the stateless revision that ask the client back in their result.

use rmcp::{
    ErrorData, RoleServer,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, InputRequiredResult,
    },
    service::RequestContext,
};
use serde_json::{Value, json};

use crate::handler::{Fixture, typed};

pub(crate) const TOOLS: &[&str] = &[
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state",
    "test_input_required_result_capabilities",
];

pub(crate) fn call(
    fixture: &Fixture,
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let answers = Answers(request);
    match request.name.as_ref() {
        "test_input_required_result_elicitation" => match answers.elicited("user_name", "name") {
            Some(name) => done(format!("Hello, {name}!")),
            None => ask_for_name(),
        },
        "test_input_required_result_sampling" => match answers.get("capital_question") {
            Some(answer) => done(answer["content"]["text"].to_string()),
            None => ask(
                json!({"capital_question": sampling("What is the capital of France?")}),
                None,
            ),
        },
        "test_input_required_result_list_roots" => match answers.get("client_roots") {
            Some(roots) => done(roots["roots"].to_string()),
            None => ask(json!({"client_roots": roots()}), None),
        },
        "test_input_required_result_request_state" => {
            let confirm = json!({"confirm": elicitation("Please confirm", "ok", "boolean")});
            match answers.get("confirm") {
                Some(_) => {
                    answers.checked_state(fixture)?;
                    done("state-ok")
                }
                None => ask(confirm, Some(issue(fixture, "confirm"))),
            }
        }
        "test_input_required_result_tampered_state" => {
            if request.request_state.is_some() {
                answers.checked_state(fixture)?;
                return done("untampered");
            }
            ask(
                json!({"confirm": elicitation("Please confirm", "ok", "boolean")}),
                Some(issue(fixture, "tamper")),
            )
        }
        "test_input_required_result_multiple_inputs" => {
            let keys = ["user_name", "greeting", "client_roots"];
            if keys.iter().all(|key| answers.get(key).is_some()) {
                answers.checked_state(fixture)?;
                return done("all inputs received");
            }
            let requests = json!({
                "user_name": elicitation("What is your name?", "name", "string"),
                "greeting": sampling("Generate a greeting"),
                "client_roots": roots(),
            });
            ask(requests, Some(issue(fixture, "multiple")))
        }
        "test_input_required_result_multi_round" => {
            if answers.get("step2").is_some() {
                answers.checked_state(fixture)?;
                done("both steps are done")
            } else if answers.get("step1").is_some() {
                answers.checked_state(fixture)?;
                let step = elicitation("Step 2: What is your favorite color?", "color", "string");
                ask(json!({"step2": step}), Some(issue(fixture, "round-2")))
            } else {
                let step = elicitation("Step 1: What is your name?", "name", "string");
                ask(json!({"step1": step}), Some(issue(fixture, "round-1")))
            }
        }
        _ => {
            let declared = serde_json::to_value(context.client_capabilities()).unwrap_or_default();
            let mut requests = json!({});
            if declared["elicitation"].is_object() {
                requests["name"] = elicitation("What is your name?", "name", "string");
            }
            if declared["sampling"].is_object() {
                requests["greeting"] = sampling("Generate a greeting");
            }
            ask(requests, None)
        }
    }
}

/// The question of the basic scenario.
pub(crate) fn ask_for_name() -> Result<CallToolResponse, ErrorData> {
    let question = elicitation("What is your name?", "name", "string");
    ask(json!({"user_name": question}), None)
}

/// What the client brought along to a repeated request.
struct Answers<'a>(&'a CallToolRequestParams);

impl Answers<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.0.input_responses.as_ref()?.get(key)
    }

    fn elicited(&self, key: &str, field: &str) -> Option<&str> {
        self.get(key)?.get("content")?.get(field)?.as_str()
    }

    fn checked_state(&self, fixture: &Fixture) -> Result<(), ErrorData> {
        let known = fixture.states.lock().is_ok_and(|states| {
            let state = self.0.request_state.as_ref();
            state.is_some_and(|state| states.contains(state))
        });
        if known {
            Ok(())
        } else {
            Err(ErrorData::invalid_params("requestState is not ours", None))
        }
    }
}

fn issue(fixture: &Fixture, step: &str) -> String {
    match fixture.states.lock() {
        Ok(mut states) => {
            let state = format!("{step}-{}", states.len());
            states.insert(state.clone());
            state
        }
        Err(_) => String::new(),
    }
}

fn ask(requests: Value, state: Option<String>) -> Result<CallToolResponse, ErrorData> {
    Ok(InputRequiredResult::new(Some(typed(requests)?), state).into())
}

fn done(text: impl Into<String>) -> Result<CallToolResponse, ErrorData> {
    Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
}

/// A question with one required field.
pub(crate) fn elicitation(message: &str, field: &str, kind: &str) -> Value {
    json!({"method": "elicitation/create", "params": {
        "message": message,
        "requestedSchema": {
            "type": "object",
            "properties": {field: {"type": kind}},
            "required": [field],
        },
    }})
}

fn sampling(question: &str) -> Value {
    json!({"method": "sampling/createMessage", "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": question}}],
        "maxTokens": 100,
    }})
}

fn roots() -> Value {
    json!({"method": "roots/list", "params": {}})
}
