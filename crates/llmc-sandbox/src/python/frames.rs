//! What a script and the server say to each other, in frames: a letter and a length before what is said by the script, a
//! length before what is said to it.
//!
//! Everything here comes from a process that runs a stranger's code and may say anything.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::host::Exception;

/// The longest frame: a call may carry a file.
const LONGEST: usize = 32 << 20;
const HEAD: usize = 5;

/// What has arrived and is not a whole frame yet.
#[derive(Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    /// What before this has been taken.
    at: usize,
}

/// One thing said.
#[derive(Debug)]
pub(super) enum Said {
    Printed(Vec<u8>),
    Call {
        id: u64,
        name: String,
        args: Vec<Value>,
        kwargs: Map<String, Value>,
    },
    Done(Done),
}

#[derive(Debug, Deserialize)]
struct Call {
    id: u64,
    name: String,
    args: Vec<Value>,
    kwargs: Map<String, Value>,
}

/// How a script ended, in its own words.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Done {
    #[serde(default)]
    pub(super) value: Option<Shown>,
    #[serde(default)]
    pub(super) trouble: Option<Trouble>,
    #[serde(default)]
    pub(super) cpu_us: u64,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Shown {
    pub(super) repr: String,
    #[serde(default)]
    pub(super) json: Value,
}

#[derive(Debug, Deserialize)]
pub(super) struct Trouble {
    pub(super) kind: String,
    pub(super) exception: String,
    pub(super) message: String,
    #[serde(default)]
    pub(super) line: Option<u32>,
    #[serde(default)]
    pub(super) traceback: String,
}

impl Inbox {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        if self.at > 0 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame.
    pub(super) fn next(&mut self) -> Result<Option<Said>, String> {
        let rest = &self.bytes[self.at..];
        let Some((head, body)) = rest.split_first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let [kind, length @ ..] = *head;
        let length = u32::from_le_bytes(length) as usize;
        if length > LONGEST {
            return Err(format!("a message of {length} bytes"));
        }
        let Some(body) = body.get(..length) else {
            return Ok(None);
        };
        let said = match kind {
            b'o' => Said::Printed(body.to_vec()),
            b'c' => {
                let call: Call = parsed(body)?;
                Said::Call {
                    id: call.id,
                    name: call.name,
                    args: call.args,
                    kwargs: call.kwargs,
                }
            }
            b'd' => Said::Done(parsed(body)?),
            other => return Err(format!("a message of kind {other}")),
        };
        self.at += HEAD + length;
        Ok(Some(said))
    }
}

fn parsed<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

/// A message to the script.
pub(super) fn packed(message: &Value) -> Vec<u8> {
    let text = message.to_string();
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    let mut frame = length.to_le_bytes().to_vec();
    frame.extend_from_slice(text.as_bytes());
    frame
}

/// The Python class of an exception.
pub(super) fn class(exception: Exception) -> &'static str {
    match exception {
        Exception::FileNotFound => "FileNotFoundError",
        Exception::FileExists => "FileExistsError",
        Exception::IsADirectory => "IsADirectoryError",
        Exception::NotADirectory => "NotADirectoryError",
        Exception::Permission => "PermissionError",
        Exception::Timeout => "TimeoutError",
        Exception::Value => "ValueError",
        Exception::Type => "TypeError",
        Exception::Attribute => "AttributeError",
        Exception::Runtime => "RuntimeError",
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
            let mut inbox = Inbox::default();
            let mut said = Vec::new();
            for part in all.chunks(size) {
                inbox.add(part);
                while let Some(one) = inbox.next().unwrap() {
                    said.push(one);
                }
            }
            assert!(matches!(&said[0], Said::Printed(text) if text == b"one"));
            assert!(matches!(&said[1], Said::Call { name, .. } if name == "read_file"));
            assert!(matches!(&said[2], Said::Done(done) if done.cpu_us == 5));
            assert_eq!(said.len(), 3);
        }
    }

    #[test]
    fn nonsense_is_an_error() {
        for bytes in [
            frame(b'x', b""),
            frame(b'c', b"{}"),
            frame(b'c', b"\xff\xfe"),
            frame(b'd', b"[1]"),
            vec![b'o', 0xff, 0xff, 0xff, 0xff],
        ] {
            let mut inbox = Inbox::default();
            inbox.add(&bytes);
            assert!(inbox.next().is_err(), "{bytes:?}");
        }
    }
}
