//! The protocol between the server and a converter.
//!
//! A message is two lengths, a JSON head, and a tail of plain bytes for long content: a file, its text. The server
//! checks every length that a worker sends.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest head from a worker: what is known of a file beside its text.
pub(crate) const MAX_HEAD_BYTES: usize = 16 << 20;
/// The longest tail from a worker: a text or an image.
pub(crate) const MAX_TAIL_BYTES: usize = 64 << 20;
/// What a server sends is bounded by the tools' own limits; this only catches a broken stream.
const MAX_REQUEST_BYTES: usize = 512 << 20;

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

pub(crate) fn send(mut to: impl Write, head: &impl Serialize, tail: &[u8]) -> io::Result<()> {
    to.write_all(&pack(head, tail)?)
}

/// Reads one message, in the worker.
pub(crate) fn receive<T: DeserializeOwned>(mut from: impl Read) -> io::Result<(T, Vec<u8>)> {
    let mut lengths = [0; 8];
    from.read_exact(&mut lengths)?;
    let (head, tail) = lengths_of(&lengths);
    if head.saturating_add(tail) > MAX_REQUEST_BYTES {
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

/// Takes the first whole message out of the received bytes, in the server.
pub(crate) fn take<T: DeserializeOwned>(inbox: &mut Vec<u8>) -> io::Result<Option<(T, Vec<u8>)>> {
    let Some(lengths) = inbox.first_chunk::<8>() else {
        return Ok(None);
    };
    let (head, tail) = lengths_of(lengths);
    if head > MAX_HEAD_BYTES || tail > MAX_TAIL_BYTES {
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
    use crate::document::DocumentReport;

    #[test]
    fn a_message_survives_being_cut_anywhere() {
        let packed = pack(&DocumentReport::Refused("why".to_owned()), b"tail").unwrap();
        for cut in 0..packed.len() {
            let mut inbox = packed[..cut].to_vec();
            assert!(
                take::<DocumentReport>(&mut inbox).unwrap().is_none(),
                "{cut}"
            );
            inbox.extend(&packed[cut..]);
            inbox.extend(b"next");
            let (report, tail) = take::<DocumentReport>(&mut inbox).unwrap().unwrap();
            assert!(matches!(report, DocumentReport::Refused(why) if why == "why"));
            assert_eq!(
                (tail.as_slice(), inbox.as_slice()),
                (&b"tail"[..], &b"next"[..])
            );
        }
    }

    #[test]
    fn lengths_out_of_range_are_refused() {
        for lengths in [[0xff; 8], [0, 0, 0, 0, 0, 0, 0, 0xff]] {
            assert!(take::<DocumentReport>(&mut lengths.to_vec()).is_err());
        }
        let mut nonsense = pack(&"nonsense", b"").unwrap();
        assert!(take::<DocumentReport>(&mut nonsense).is_err());
    }
}
