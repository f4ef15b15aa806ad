//! Errors as HTTP responses: one body, whatever went wrong.

use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use llmc_tools::{Error, ErrorKind, Family};
use serde_json::{Map, Value, json};

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");

/// A refused or failed request.
///
/// A handler returns it; the outermost gate, which knows the correlation id, writes the response.
#[derive(Debug, Clone)]
pub(super) struct HttpError {
    status: StatusCode,
    code: &'static str,
    message: String,
    hint: Option<String>,
    /// The tool's own code, when a tool was called.
    error_code: Option<&'static str>,
    /// Further members of the body.
    facts: Option<Box<Map<String, Value>>>,
    /// In seconds.
    retry_after: Option<u64>,
}

/// What the log and the counters need of an error.
#[derive(Debug, Clone, Copy)]
pub(super) struct ErrorRecord {
    pub(super) code: &'static str,
    /// Whether the observer has counted it as a call.
    pub(super) counted: bool,
}

impl HttpError {
    pub(super) fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
    ) -> HttpError {
        HttpError {
            status,
            code,
            message: message.into(),
            hint: None,
            error_code: None,
            facts: None,
            retry_after: None,
        }
    }

    /// A request that cannot be parsed.
    pub(super) fn unparsable(message: impl Into<String>) -> HttpError {
        HttpError::new(StatusCode::BAD_REQUEST, "BAD_ARGS", message)
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> HttpError {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn retry_after(mut self, seconds: u64) -> HttpError {
        self.retry_after = Some(seconds);
        self
    }

    /// A failed tool call.
    pub(super) fn of_tool(error: Error, family: Family) -> HttpError {
        let error_code = error.kind.code(family);
        let facts = error.rest_extra();
        let facts: Map<_, _> = facts
            .map(|(key, value)| (key.to_owned(), value.clone()))
            .collect();
        HttpError {
            error_code: Some(error_code),
            facts: Some(Box::new(facts)),
            ..HttpError::from(error)
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

    /// Writes it into a response and keeps the response's headers.
    pub(super) fn write_to(&self, response: &mut Response, correlation_id: &str) -> ErrorRecord {
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
        ErrorRecord {
            code: self.code,
            counted: self.error_code.is_some(),
        }
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status;
        response.extensions_mut().insert(self);
        response
    }
}

impl From<Error> for HttpError {
    fn from(error: Error) -> HttpError {
        let row = error.kind.row();
        let status = StatusCode::from_u16(row.http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        HttpError {
            hint: error.hint,
            ..HttpError::new(status, row.http_code, error.message)
        }
    }
}

impl From<ErrorKind> for HttpError {
    fn from(kind: ErrorKind) -> HttpError {
        Error::new(kind, kind.row().what).into()
    }
}
