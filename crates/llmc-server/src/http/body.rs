//! A request's body: limits of time and size, plain UTF-8 JSON without ambiguity.

use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;

use super::error::HttpError;
use crate::json;

/// Refuses by its headers a body that is not plain JSON.
///
/// Compressed bodies are not accepted: no request is large, and a few bytes may unpack to a lot.
pub(super) fn check_headers(headers: &HeaderMap) -> Result<(), HttpError> {
    let unsupported = |message: &str| {
        HttpError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "BAD_ARGS", message)
            .hint("send Content-Type: application/json, uncompressed")
    };
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    if encodings.any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(unsupported("compressed bodies are not accepted"));
    }
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (first, second) = (types.next(), types.next());
    let kind = first.and_then(|value| value.to_str().ok());
    let kind = kind.filter(|_| second.is_none()).unwrap_or_default();
    let (kind, parameters) = kind.split_once(';').unwrap_or((kind, ""));
    if !kind.trim().eq_ignore_ascii_case("application/json") {
        return Err(unsupported("the body must be application/json"));
    }
    let charset = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.trim().split_once('=')?;
        name.eq_ignore_ascii_case("charset").then_some(value)
    });
    if charset.is_some_and(|charset| !charset.trim_matches('"').eq_ignore_ascii_case("utf-8")) {
        return Err(unsupported("the body must be UTF-8"));
    }
    Ok(())
}

/// Reads the whole body within both limits.
pub(super) async fn read(body: Body, limit: u64, time: Duration) -> Result<Bytes, HttpError> {
    let timeout = || {
        HttpError::new(
            StatusCode::REQUEST_TIMEOUT,
            "TIMEOUT",
            format!("the body took longer than {} s", time.as_secs()),
        )
        .hint("mcp.tools.read_timeout is the limit")
    };
    match tokio::time::timeout(time, collect(body, limit)).await {
        Ok(read) => read,
        Err(_) => Err(timeout()),
    }
}

async fn collect(mut body: Body, limit: u64) -> Result<Bytes, HttpError> {
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| HttpError::unparsable("the body ended too early"))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if (read.len() + data.len()) as u64 > limit {
            return Err(too_large(limit));
        }
        read.extend_from_slice(&data);
    }
    Ok(read.freeze())
}

pub(super) fn too_large(limit: u64) -> HttpError {
    let message = format!("the body is larger than {limit} bytes");
    HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, "TOO_LARGE", message)
        .hint("mcp.limits.max_request_bytes is the limit")
}

/// Refuses JSON that two parsers could read differently.
pub(super) fn check(bytes: &[u8]) -> Result<(), HttpError> {
    json::check(bytes).map_err(|reason| HttpError::unparsable(format!("the body is {reason}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_json_in_utf8_passes() {
        let passes = |kind: &str, encoding: &str| {
            let mut headers = HeaderMap::new();
            if !kind.is_empty() {
                headers.insert(CONTENT_TYPE, kind.parse().unwrap());
            }
            if !encoding.is_empty() {
                headers.insert(CONTENT_ENCODING, encoding.parse().unwrap());
            }
            check_headers(&headers).is_ok()
        };
        for kind in [
            "application/json",
            "Application/JSON; charset=UTF-8",
            "application/json; charset=\"utf-8\"",
        ] {
            assert!(passes(kind, ""), "{kind}");
        }
        for kind in [
            "",
            "text/plain",
            "application/jsonx",
            "application/json; charset=latin1",
            "application/x-www-form-urlencoded",
        ] {
            assert!(!passes(kind, ""), "{kind}");
        }
        assert!(passes("application/json", "identity"));
        assert!(!passes("application/json", "gzip"));
        assert!(!passes("application/json", "gzip, identity"));
    }
}
