//! Fuzz targets: lines and messages from a client that sends anything.

use futures_util::FutureExt as _;
use llmc_fuzz::{FuzzInput, check};
use serde_json::Value;
use tokio::io::AsyncReadExt as _;

use crate::head;
use crate::json::{self, MessageShape};
use crate::line::{LineRead, LineReader};

/// The lines as a reader without buffers would cut them.
fn expected(bytes: &[u8], limit: usize) -> Vec<LineRead> {
    let mut lines = Vec::new();
    let mut parts = bytes.split(|byte| *byte == b'\n').enumerate().peekable();
    while let Some((number, part)) = parts.next() {
        let mut line = part.strip_suffix(b"\r").unwrap_or(part);
        if number == 0 {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        let is_last = parts.peek().is_none();
        if part.len() > limit + 1 || line.len() > limit {
            let reply_id = head::reply_id(line);
            lines.push(LineRead::TooLong { reply_id });
        } else if !is_last || !line.is_empty() {
            lines.push(LineRead::Line(line.to_vec()));
        }
    }
    lines
}

#[test]
fn lines() {
    check!("lines", |bytes: &[u8]| {
        let mut input = FuzzInput::new(bytes);
        let limit = usize::from(input.byte());
        let cut = usize::from(input.byte());
        let bytes = input.rest();
        let (first, second) = bytes.split_at(cut.min(bytes.len()));
        let mut reader = LineReader::new(first.chain(second), limit);
        for line in expected(bytes, limit) {
            let next = reader.next().now_or_never().expect("all bytes are there");
            assert_eq!(next.expect("memory does not fail"), line);
        }
        let end = reader.next().now_or_never().expect("all bytes are there");
        assert_eq!(end.expect("memory does not fail"), LineRead::End);
    });
}

#[test]
fn messages() {
    check!("messages", |bytes: &[u8]| {
        let shape = json::inspect(bytes);
        if json::check(bytes).is_err() {
            assert!(shape.is_err());
        }
        if let Err(refusal) = &shape {
            assert!(
                !refusal.message.contains(char::is_control),
                "{}",
                refusal.message
            );
        }
        if json::check(bytes).is_err() {
            return;
        }
        let value: Value = serde_json::from_slice(bytes).expect("what passes the check is JSON");
        let written = serde_json::to_vec(&value).expect("JSON can be written");
        assert_eq!(json::check(&written), Ok(()));
        let deeper = |value: &[u8]| {
            [
                &b"[".repeat(json::MAX_DEPTH)[..],
                value,
                &b"]".repeat(json::MAX_DEPTH),
            ]
            .concat()
        };
        let is_container = value.is_object() || value.is_array();
        assert_eq!(json::check(&deeper(&written)).is_err(), is_container);
        if let Some((key, _)) = value.as_object().and_then(|object| object.iter().next()) {
            let key = serde_json::to_string(key).expect("a key can be written");
            let twice = format!("{{{key}:0,{}", String::from_utf8_lossy(&written[1..]));
            assert!(json::check(twice.as_bytes()).is_err(), "{twice}");
        }
        match shape {
            Ok(MessageShape::Request { id, method }) => {
                assert_eq!((&value["id"], &value["jsonrpc"]), (&id, &"2.0".into()));
                assert_eq!(value["method"], *method);
            }
            Ok(MessageShape::Notification) => {
                assert!(value.get("id").is_none() && value["method"].is_string());
            }
            Ok(MessageShape::Response) => assert!(value.get("method").is_none()),
            Err(_) => {}
        }
    });
}
