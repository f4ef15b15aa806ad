//! What a client is told when it gets no answer: one envelope, whatever went wrong.

use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use llmc_tools::{Error, Family, Kind};
use serde_json::{Map, Value, json};

/// Bodies are JSON, and say so.
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");

/// A refused or failed request.
///
/// A handler returns it as it is; the outermost gate, which knows the correlation id, writes it out.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
    hint: Option<String>,
    /// The tool's own code, when a tool was called.
    error_code: Option<&'static str>,
    /// What else it has to tell.
    facts: Option<Box<Map<String, Value>>>,
    /// Seconds.
    retry_after: Option<u64>,
}

/// What the log and the counters need to know of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refused {
    pub(super) code: &'static str,
    /// Whether the observer of calls has counted it.
    pub(super) counted: bool,
}

impl Refusal {
    pub(super) fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
    ) -> Refusal {
        Refusal {
            status,
            code,
            message: message.into(),
            hint: None,
            error_code: None,
            facts: None,
            retry_after: None,
        }
    }

    /// What no parser can make sense of, as opposed to what it can and we do not want.
    pub(super) fn unreadable(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, "BAD_ARGS", message)
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Refusal {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn retry_after(mut self, seconds: u64) -> Refusal {
        self.retry_after = Some(seconds);
        self
    }

    /// A failed tool call.
    pub(super) fn of_tool(error: Error, family: Family) -> Refusal {
        let error_code = error.kind.code(family);
        let facts = error.rest_extra();
        let facts: Map<_, _> = facts
            .map(|(key, value)| (key.to_owned(), value.clone()))
            .collect();
        Refusal {
            error_code: Some(error_code),
            facts: Some(Box::new(facts)),
            ..Refusal::from(error)
        }
    }

    pub(super) fn body(&self, correlation_id: &str) -> Value {
        let mut body = json!({
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "correlation_id": correlation_id,
        });
        if let Some(code) = self.error_code {
            body["error_code"] = code.into();
        }
        for (key, value) in self.facts.iter().flat_map(|facts| facts.iter()) {
            body[key] = value.clone();
        }
        body
    }

    /// Writes it into a response, whose own headers stay.
    pub(super) fn fill(self, response: &mut Response, correlation_id: &str) -> Refused {
        *response.body_mut() = Body::from(self.body(correlation_id).to_string());
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, JSON);
        headers.remove(CONTENT_LENGTH);
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        Refused {
            code: self.code,
            counted: self.error_code.is_some(),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status;
        response.extensions_mut().insert(self);
        response
    }
}

impl From<Error> for Refusal {
    /// By the one table of errors.
    fn from(error: Error) -> Refusal {
        let row = error.kind.row();
        let status = StatusCode::from_u16(row.http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Refusal {
            hint: error.hint,
            ..Refusal::new(status, row.http_code, error.message)
        }
    }
}

impl From<Kind> for Refusal {
    fn from(kind: Kind) -> Refusal {
        Error::new(kind, kind.row().what).into()
    }
}
