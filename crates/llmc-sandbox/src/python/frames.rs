//! The protocol between the server and the Python process, in frames: a letter and a length before each message from the
//! script, a length before each message to it.
//!
//! The messages come from a process that runs untrusted code and may send anything.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::outcome::ScriptValue;

/// A call may carry a text.
const MAX_FRAME_BYTES: usize = 32 << 20;
/// The largest file that a script writes, with the names of the operation.
pub(super) const MAX_SYSTEM_FRAME_BYTES: usize = (128 << 20) + (64 << 10);
/// Memory of a buffer that is empty.
const MAX_KEPT_BYTES: usize = 256 << 10;
const LENGTH_BYTES: usize = 4;
const HEADER_BYTES: usize = 1 + LENGTH_BYTES;

/// Received bytes that are not a whole frame yet.
#[derive(Debug, Default)]
pub(super) struct FrameBuffer {
    bytes: Vec<u8>,
    /// Bytes before this are consumed.
    at: usize,
}

#[derive(Debug)]
pub(super) enum Frame {
    Hello(HelloFrame),
    Printed(Vec<u8>),
    Call(CallFrame),
    System(SystemFrame, Vec<u8>),
    /// The call that the script waits for no longer.
    Cancel(u64),
    End(EndFrame),
}

/// The interpreter is ready for its first message.
#[derive(Debug, Deserialize)]
pub(super) struct HelloFrame {
    /// Major, minor, micro.
    pub(super) version: (u32, u32, u32),
}

#[derive(Debug, Deserialize)]
pub(super) struct CallFrame {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) args: Vec<Value>,
    pub(super) kwargs: Map<String, Value>,
}

/// An operation on files or programs. In the frame: the length of the JSON, the JSON, the content.
#[derive(Debug, Deserialize)]
pub(super) struct SystemFrame {
    pub(super) id: u64,
    pub(super) operation: String,
    pub(super) args: Map<String, Value>,
}

/// How a script ended.
#[derive(Debug, Default, Deserialize)]
pub(super) struct EndFrame {
    #[serde(default)]
    pub(super) value: Option<ScriptValue>,
    #[serde(default)]
    pub(super) error: Option<ErrorFrame>,
    #[serde(default)]
    pub(super) cpu_us: u64,
    /// Bytes of memory in use, by the process's own account.
    #[serde(default)]
    pub(super) memory: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct ErrorFrame {
    pub(super) kind: String,
    pub(super) exception: String,
    pub(super) message: String,
    #[serde(default)]
    pub(super) line: Option<u32>,
    #[serde(default)]
    pub(super) traceback: String,
}

impl FrameBuffer {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        if self.at == self.bytes.len() {
            // What a large frame took is not held for the small ones after it.
            if self.bytes.capacity() > MAX_KEPT_BYTES {
                self.bytes = Vec::new();
            }
            self.bytes.clear();
            self.at = 0;
        } else if self.at > 0 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, String> {
        let rest = &self.bytes[self.at..];
        let Some((head, body)) = rest.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let [kind, length @ ..] = *head;
        let length = u32::from_le_bytes(length) as usize;
        let most = if kind == b'f' {
            MAX_SYSTEM_FRAME_BYTES
        } else {
            MAX_FRAME_BYTES
        };
        if length > most {
            return Err(format!("a message of {length} bytes"));
        }
        let Some(body) = body.get(..length) else {
            return Ok(None);
        };
        let frame = match kind {
            b'h' => Frame::Hello(parse(body)?),
            b'o' => Frame::Printed(body.to_vec()),
            b'c' => Frame::Call(parse(body)?),
            b'f' => system_frame(body)?,
            b'k' => Frame::Cancel(parse(body)?),
            b'd' => Frame::End(parse(body)?),
            other => return Err(format!("a message of kind {other}")),
        };
        self.at += HEADER_BYTES + length;
        Ok(Some(frame))
    }
}

fn system_frame(body: &[u8]) -> Result<Frame, String> {
    let (length, rest) = body
        .split_first_chunk::<4>()
        .ok_or_else(|| "an operation without its length".to_owned())?;
    let length = u32::from_le_bytes(*length) as usize;
    let (head, content) = rest
        .split_at_checked(length)
        .ok_or_else(|| "an operation that is cut".to_owned())?;
    Ok(Frame::System(parse(head)?, content.to_vec()))
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

/// Adds a message to the script as a frame: the message, which names the lengths of the contents, and those behind it.
pub(super) fn pack_with(frames: &mut Vec<u8>, message: &mut Value, contents: &[Vec<u8>]) {
    if !contents.is_empty() {
        message["contents"] = contents.iter().map(Vec::len).collect();
    }
    let at = frames.len();
    frames.extend([0; LENGTH_BYTES]);
    // Writing JSON to memory does not fail.
    let _ = serde_json::to_writer(&mut *frames, message);
    let length = u32::try_from(frames.len() - at - LENGTH_BYTES).unwrap_or(u32::MAX);
    frames[at..at + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    for content in contents {
        frames.extend_from_slice(content);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut frame = vec![kind];
        frame.extend((body.len() as u32).to_le_bytes());
        frame.extend(body);
        frame
    }

    #[test]
    fn frames_come_whole_however_they_arrive() {
        let call = br#"{"id": 1, "name": "read_file", "args": ["a"], "kwargs": {"max_lines": 1}}"#;
        let mut all = frame(b'o', b"one");
        all.extend(frame(b'c', call));
        all.extend(frame(
            b'd',
            br#"{"value": {"repr": "1", "json": 1}, "cpu_us": 5}"#,
        ));
        for size in [1, 3, all.len()] {
            let mut inbox = FrameBuffer::default();
            let mut said = Vec::new();
            for part in all.chunks(size) {
                inbox.add(part);
                while let Some(one) = inbox.next().unwrap() {
                    said.push(one);
                }
            }
            assert!(matches!(&said[0], Frame::Printed(text) if text == b"one"));
            assert!(matches!(&said[1], Frame::Call(call) if call.name == "read_file"));
            assert!(matches!(&said[2], Frame::End(end) if end.cpu_us == 5));
            assert_eq!(said.len(), 3);
        }
    }

    #[test]
    fn an_operation_carries_bytes_as_they_are() {
        let head = br#"{"id": 7, "operation": "write", "args": {"path": "a"}}"#;
        let mut body = (head.len() as u32).to_le_bytes().to_vec();
        body.extend(head);
        body.extend(b"\0\xff{");
        let mut inbox = FrameBuffer::default();
        inbox.add(&frame(b'f', &body));
        inbox.add(&frame(b'k', b"7"));
        let Some(Frame::System(called, content)) = inbox.next().unwrap() else {
            panic!("no operation");
        };
        assert_eq!((called.id, called.operation.as_str()), (7, "write"));
        assert_eq!(content, b"\0\xff{");
        assert!(matches!(inbox.next(), Ok(Some(Frame::Cancel(7)))));
        assert!(matches!(inbox.next(), Ok(None)));
    }

    #[test]
    fn nonsense_is_an_error() {
        for bytes in [
            frame(b'x', b""),
            frame(b'c', b"{}"),
            frame(b'c', b"\xff\xfe"),
            frame(b'd', b"[1]"),
            frame(b'f', b"\x01"),
            frame(b'f', b"\xff\xff\0\0{}"),
            frame(b'f', b"\x02\0\0\0{}"),
            frame(b'k', b"[]"),
            vec![b'o', 0xff, 0xff, 0xff, 0xff],
        ] {
            let mut inbox = FrameBuffer::default();
            inbox.add(&bytes);
            assert!(inbox.next().is_err(), "{bytes:?}");
        }
    }
}
