//! Requests and answers as servers write them for each other.
//!
//! Both ends are servers of one tenant, of this version or the next: unknown fields are ignored, and what cannot be read
//! is an error that says so.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cx::{Caller, Form, Surface};
use crate::error::{Error, ErrorKind, Result};
use crate::seal::{Sealed, SentAnswer};

/// The longest answer that is sent: more than the largest that a client gets.
const MAX_ANSWER_BYTES: usize = 24 << 20;

/// What one server asks of another.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ServerRequest {
    /// A call of a tool.
    Call(Box<SentCall>),
    /// What surfaces ask each other; see [`App::answer_servers`](crate::App::answer_servers).
    Control(Value),
}

/// A call with the identity and the rights of its caller.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SentCall {
    pub(super) tool: String,
    pub(super) args: Map<String, Value>,
    pub(super) correlation_id: String,
    surface: Surface,
    form: Form,
    principal: String,
    agent: String,
    session: String,
    model: String,
    client: Option<String>,
    read_only: bool,
    tools: Option<Vec<String>>,
    remote: bool,
}

impl SentCall {
    pub(super) fn new(
        tool: &str,
        args: Map<String, Value>,
        caller: &Caller,
        correlation_id: &str,
    ) -> SentCall {
        // Every field by name: a new right must not be left behind.
        let Caller {
            surface,
            form,
            principal,
            agent,
            session,
            model,
            client,
            read_only,
            tools,
            remote,
        } = caller.clone();
        SentCall {
            tool: tool.to_owned(),
            args,
            correlation_id: correlation_id.to_owned(),
            surface,
            form,
            principal,
            agent,
            session,
            model,
            client,
            read_only,
            tools: tools.map(|tools| tools.to_vec()),
            remote,
        }
    }

    pub(super) fn caller(&self) -> Caller {
        Caller {
            surface: self.surface,
            form: self.form,
            principal: self.principal.clone(),
            agent: self.agent.clone(),
            session: self.session.clone(),
            model: self.model.clone(),
            client: self.client.clone(),
            read_only: self.read_only,
            tools: self.tools.clone().map(Arc::new),
            remote: self.remote,
        }
    }
}

/// What the other server answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ServerAnswer {
    Sealed(Box<SentAnswer>),
    Control(Value),
    Failed(Box<Error>),
}

pub(super) fn write_request(request: &ServerRequest) -> Result<String> {
    serde_json::to_string(request).map_err(|error| unreadable("the call", &error))
}

pub(super) fn read_request(text: &str) -> Result<ServerRequest> {
    serde_json::from_str(text).map_err(|error| unreadable("the call", &error))
}

pub(super) fn write_answer(result: Result<Sealed>) -> String {
    write(&match result {
        Ok(sealed) => ServerAnswer::Sealed(Box::new(sealed.into())),
        Err(error) => ServerAnswer::Failed(Box::new(error)),
    })
}

pub(super) fn write_control_answer(result: Result<Value>) -> String {
    write(&match result {
        Ok(value) => ServerAnswer::Control(value),
        Err(error) => ServerAnswer::Failed(Box::new(error)),
    })
}

pub(super) fn read_answer(text: &str) -> Result<Sealed> {
    match serde_json::from_str(text) {
        Ok(ServerAnswer::Sealed(sent)) => Ok((*sent).into()),
        Ok(ServerAnswer::Failed(error)) => Err(*error),
        Ok(ServerAnswer::Control(_)) => Err(other_kind()),
        Err(error) => Err(unreadable("the answer", &error)),
    }
}

pub(super) fn read_control_answer(text: &str) -> Result<Value> {
    match serde_json::from_str(text) {
        Ok(ServerAnswer::Control(value)) => Ok(value),
        Ok(ServerAnswer::Failed(error)) => Err(*error),
        Ok(ServerAnswer::Sealed(_)) => Err(other_kind()),
        Err(error) => Err(unreadable("the answer", &error)),
    }
}

fn write(answer: &ServerAnswer) -> String {
    let failed = |error: Error| {
        let failed = ServerAnswer::Failed(Box::new(error));
        serde_json::to_string(&failed).unwrap_or_default()
    };
    match serde_json::to_string(answer) {
        Ok(text) if text.len() <= MAX_ANSWER_BYTES => text,
        Ok(text) => failed(
            Error::new(
                ErrorKind::TooLarge,
                format!(
                    "the answer is {} bytes, more than one server sends another ({MAX_ANSWER_BYTES})",
                    text.len()
                ),
            )
            .hint("ask for less at a time"),
        ),
        Err(error) => failed(unreadable("the answer", &error)),
    }
}

fn unreadable(what: &str, error: &serde_json::Error) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("{what} between servers cannot be read: {error}"),
    )
    .hint("servers of one store should have the same version")
}

fn other_kind() -> Error {
    Error::new(ErrorKind::Internal, "the server answered something else")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_caller_arrives_with_its_rights() {
        let caller = Caller {
            surface: Surface::Code,
            form: Form::Data,
            principal: "ann".to_owned(),
            agent: "agent".to_owned(),
            session: "session\0".to_owned(),
            model: "model".to_owned(),
            client: Some("client 1".to_owned()),
            read_only: true,
            tools: Some(Arc::new(vec!["stat".to_owned()])),
            remote: true,
        };
        let args = json!({"proc_id": "p_1", "input": "a\0b"});
        let args = args.as_object().unwrap().clone();
        let sent = SentCall::new("linux_proc_send", args.clone(), &caller, "id");
        let text = write_request(&ServerRequest::Call(Box::new(sent))).unwrap();
        // A text of PostgreSQL cannot have one.
        assert!(!text.contains('\0'));
        let ServerRequest::Call(read) = read_request(&text).unwrap() else {
            panic!("{text}");
        };
        assert_eq!(format!("{:?}", read.caller()), format!("{caller:?}"));
        assert_eq!((read.args, read.tool.as_str()), (args, "linux_proc_send"));
    }

    #[test]
    fn answers_and_errors_arrive_as_they_were() {
        let sealed = Sealed::for_test("text", Some(json!({"b": 1, "a": [null]})));
        let read = read_answer(&write_answer(Ok(sealed.clone()))).unwrap();
        assert_eq!(format!("{read:?}"), format!("{sealed:?}"));
        let error = Error::new(ErrorKind::NotFound, "no such process")
            .hint("look")
            .retry(true)
            .with("bytes", 3);
        let read = read_answer(&write_answer(Err(error.clone()))).unwrap_err();
        assert_eq!(format!("{read:?}"), format!("{error:?}"));
        let huge = Sealed::for_test("x".repeat(MAX_ANSWER_BYTES), None);
        let refused = read_answer(&write_answer(Ok(huge))).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::TooLarge);
        assert_eq!(
            read_answer("{").unwrap_err().kind,
            ErrorKind::Internal,
            "no panic"
        );
    }
}
