//! What server and worker say to each other over their socket.
//!
//! A message is two lengths, a JSON head, and a tail of plain bytes for what is long: code, output, dumps. The server
//! believes nothing about lengths that a worker tells it.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::host::Exception;
use crate::limits::Limit;
use crate::names::Names;
use crate::outcome::{Shown, Trouble};

/// Longest head that a worker may send: one call's arguments.
pub(crate) const HEAD_LIMIT: usize = 16 << 20;
/// Longest tail that a worker may send: a dump.
pub(crate) const TAIL_LIMIT: usize = 64 << 20;
/// What a server sends a worker is bounded by the tools' own limits; this only catches a broken stream.
const TOLD_LIMIT: usize = 512 << 20;

/// What the server tells its worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Told {
    /// A new session; the tail is the dump to begin with, or empty. Answered by `Begun` or `NotBegun`.
    Begin(Names),
    /// Runs the tail. Answered by `Done` or `Failed`, with `Printed` and `Call` before.
    Run(Bounds),
    /// The answer to a call.
    Answer { id: u32, reply: Reply },
    /// Ends the block at the point where it waits for an answer. Comes to nothing between blocks.
    Abort(Why),
    /// Answered by `Dumped` or `NotDumped`.
    Dump { max_bytes: u64 },
}

/// The limits that a worker keeps by itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Bounds {
    pub(crate) cpu_us: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) output_bytes: u64,
    pub(crate) recursion: u32,
}

/// How a call ended.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Value(Value),
    Raise(Exception, String),
    Stop,
}

/// Why a block is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Why {
    Limit(Limit),
    Cancelled,
    Stopped,
}

/// What a worker says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Said {
    /// It has given up what it does not need and listens.
    Ready,
    /// It cannot work here.
    Refused(String),
    Begun,
    NotBegun(String),
    /// The tail was printed.
    Printed,
    Call {
        id: u32,
        name: String,
        args: Vec<Value>,
        kwargs: Map<String, Value>,
    },
    Done {
        shown: Shown,
        cpu_us: u64,
    },
    Failed {
        trouble: Trouble,
        cpu_us: u64,
    },
    /// Ended as it was told to.
    Aborted {
        why: Why,
        trouble: Trouble,
        cpu_us: u64,
    },
    /// The tail is the session.
    Dumped,
    NotDumped(String),
}

/// A message as bytes.
pub(crate) fn pack(head: &impl Serialize, tail: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 8];
    serde_json::to_writer(&mut bytes, head)?;
    let head = u32::try_from(bytes.len() - 8).map_err(io::Error::other)?;
    let length = u32::try_from(tail.len()).map_err(io::Error::other)?;
    bytes[..4].copy_from_slice(&head.to_le_bytes());
    bytes[4..8].copy_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(tail);
    Ok(bytes)
}

/// Writes one message.
pub(crate) fn send(mut to: impl Write, head: &impl Serialize, tail: &[u8]) -> io::Result<()> {
    to.write_all(&pack(head, tail)?)
}

/// Reads one message, in the worker.
pub(crate) fn receive<T: DeserializeOwned>(mut from: impl Read) -> io::Result<(T, Vec<u8>)> {
    let mut lengths = [0; 8];
    from.read_exact(&mut lengths)?;
    let (head, tail) = lengths_of(&lengths);
    if head.saturating_add(tail) > TOLD_LIMIT {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; head];
    from.read_exact(&mut bytes)?;
    let message = serde_json::from_slice(&bytes)?;
    bytes.clear();
    bytes.resize(tail, 0);
    from.read_exact(&mut bytes)?;
    Ok((message, bytes))
}

/// Takes the first whole message out of what has arrived so far, in the server.
pub(crate) fn take<T: DeserializeOwned>(inbox: &mut Vec<u8>) -> io::Result<Option<(T, Vec<u8>)>> {
    let Some(lengths) = inbox.first_chunk::<8>() else {
        return Ok(None);
    };
    let (head, tail) = lengths_of(lengths);
    if head > HEAD_LIMIT || tail > TAIL_LIMIT {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let end = 8 + head + tail;
    if inbox.len() < end {
        return Ok(None);
    }
    let message = serde_json::from_slice(&inbox[8..8 + head])?;
    let rest = inbox[8 + head..end].to_vec();
    inbox.drain(..end);
    Ok(Some((message, rest)))
}

fn lengths_of(bytes: &[u8; 8]) -> (usize, usize) {
    let [a, b, c, d, e, f, g, h] = *bytes;
    let length = |bytes| u32::from_le_bytes(bytes) as usize;
    (length([a, b, c, d]), length([e, f, g, h]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_being_cut_anywhere() {
        let packed = pack(&Said::NotDumped("why".to_owned()), b"tail").unwrap();
        for cut in 0..packed.len() {
            let mut inbox = packed[..cut].to_vec();
            assert!(take::<Said>(&mut inbox).unwrap().is_none(), "{cut}");
            inbox.extend(&packed[cut..]);
            inbox.extend(b"next");
            let (said, tail) = take::<Said>(&mut inbox).unwrap().unwrap();
            assert!(matches!(said, Said::NotDumped(why) if why == "why"));
            assert_eq!(
                (tail.as_slice(), inbox.as_slice()),
                (&b"tail"[..], &b"next"[..])
            );
        }
    }

    #[test]
    fn lengths_that_nobody_may_send_are_refused() {
        for lengths in [[0xff; 8], [0, 0, 0, 0, 0, 0, 0, 0xff]] {
            assert!(take::<Said>(&mut lengths.to_vec()).is_err());
        }
        let mut nonsense = pack(&"nonsense", b"").unwrap();
        assert!(take::<Said>(&mut nonsense).is_err());
    }
}
