//! The messages between server and parser.
//!
//! Both sides are of the same build. A request is a length, language, goal, CPU time and the source; an answer is a length,
//! whether there is an analysis, the CPU time it took, and the analysis. The server checks every length that a parser sends
//! and reserves memory only for what arrives.

use std::io::{self, Read};
use std::time::Duration;

use llmc_syntax::{
    Language, MAX_ANALYSIS_BYTES, ParseGoal, ParseReply, ParseRequest, SyntaxAnalysis,
};

/// The longest source; callers have smaller limits of their own.
const MAX_SOURCE_BYTES: usize = 16 << 20;
/// The longest reason for not being confined.
const MAX_REASON_BYTES: usize = 1 << 10;

pub(super) fn pack_request(request: &ParseRequest<'_>) -> io::Result<Vec<u8>> {
    if request.source.len() > MAX_SOURCE_BYTES {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::with_capacity(14 + request.source.len());
    bytes.extend(length(request.source.len())?);
    bytes.push(request.language.number());
    bytes.push(request.goal.number());
    bytes.extend(micros(request.cpu_time).to_le_bytes());
    bytes.extend_from_slice(request.source.as_bytes());
    Ok(bytes)
}

/// A request as a parser has it.
pub(super) struct ReceivedRequest {
    language: Language,
    goal: ParseGoal,
    cpu_time: Duration,
    source: String,
}

impl ReceivedRequest {
    pub(super) fn as_request(&self) -> ParseRequest<'_> {
        ParseRequest {
            language: self.language,
            goal: self.goal,
            source: &self.source,
            cpu_time: self.cpu_time,
        }
    }
}

/// The next request, in the parser; `None` when the server has closed the socket.
pub(super) fn receive_request(mut from: impl Read) -> io::Result<Option<ReceivedRequest>> {
    let mut head = [0; 14];
    match from.read_exact(&mut head) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let [a, b, c, d, language, goal, time @ ..] = head;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if length > MAX_SOURCE_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut source = vec![0; length];
    from.read_exact(&mut source)?;
    let known = Language::from_number(language).zip(ParseGoal::from_number(goal));
    let (language, goal) = known.ok_or(io::ErrorKind::InvalidData)?;
    Ok(Some(ReceivedRequest {
        language,
        goal,
        cpu_time: Duration::from_micros(u64::from_le_bytes(time)),
        source: String::from_utf8(source).map_err(io::Error::other)?,
    }))
}

pub(super) fn pack_reply(reply: &ParseReply) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    bytes.push(u8::from(reply.analysis.is_some()));
    bytes.extend(micros(reply.cpu_time).to_le_bytes());
    if let Some(analysis) = &reply.analysis {
        analysis.encode(&mut bytes);
    }
    let body = bytes.len() - 13;
    bytes[..4].copy_from_slice(&length(body)?);
    Ok(bytes)
}

/// The answer about a source, in the server.
pub(super) fn receive_reply(mut from: impl Read, source: &str) -> io::Result<ParseReply> {
    let mut head = [0; 13];
    from.read_exact(&mut head)?;
    let [a, b, c, d, found, time @ ..] = head;
    let bytes = read_bounded(from, u32::from_le_bytes([a, b, c, d]), MAX_ANALYSIS_BYTES)?;
    let analysis = match found {
        0 if bytes.is_empty() => None,
        1 => {
            let analysis = SyntaxAnalysis::decode(&bytes, source);
            Some(analysis.ok_or(io::ErrorKind::InvalidData)?)
        }
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    Ok(ParseReply {
        analysis,
        cpu_time: Duration::from_micros(u64::from_le_bytes(time)),
        waited: Duration::ZERO,
    })
}

/// A parser's first message: that it is confined, or why not.
pub(super) fn pack_ready(confined: &io::Result<()>) -> io::Result<Vec<u8>> {
    let mut why = match confined {
        Ok(()) => String::new(),
        Err(error) => error.to_string(),
    };
    why.truncate(why.floor_char_boundary(MAX_REASON_BYTES));
    let mut bytes = length(why.len())?.to_vec();
    bytes.push(u8::from(confined.is_ok()));
    bytes.extend_from_slice(why.as_bytes());
    Ok(bytes)
}

/// Whether a parser is confined, and if not, why.
pub(super) fn receive_ready(mut from: impl Read) -> io::Result<Result<(), String>> {
    let mut head = [0; 5];
    from.read_exact(&mut head)?;
    let [a, b, c, d, confined] = head;
    let why = read_bounded(from, u32::from_le_bytes([a, b, c, d]), MAX_REASON_BYTES)?;
    Ok(match confined {
        1 => Ok(()),
        _ => Err(String::from_utf8_lossy(&why).into_owned()),
    })
}

/// Memory grows with what arrives, not with what is announced.
fn read_bounded(from: impl Read, length: u32, max: usize) -> io::Result<Vec<u8>> {
    if length as usize > max {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    from.take(u64::from(length)).read_to_end(&mut bytes)?;
    if bytes.len() < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

fn length(bytes: usize) -> io::Result<[u8; 4]> {
    let length = u32::try_from(bytes).map_err(io::Error::other)?;
    Ok(length.to_le_bytes())
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "fn a() { bc(1) }\n";

    fn request() -> ParseRequest<'static> {
        ParseRequest {
            language: Language::Rust,
            goal: ParseGoal::References,
            source: SOURCE,
            cpu_time: Duration::from_secs(5),
        }
    }

    #[test]
    fn requests_and_answers_arrive() {
        let packed = pack_request(&request()).unwrap();
        let received = receive_request(packed.as_slice()).unwrap().unwrap();
        let reply = llmc_syntax::parse_here(&received.as_request());
        let reply = receive_reply(pack_reply(&reply).unwrap().as_slice(), SOURCE).unwrap();
        let found = reply.analysis.unwrap();
        assert_eq!(found.definitions[0].name, "a");
        assert_eq!(found.references[0].name, "bc");
        assert!(receive_request(&[][..]).unwrap().is_none());
        let none = pack_reply(&ParseReply::default()).unwrap();
        assert!(
            receive_reply(none.as_slice(), SOURCE)
                .unwrap()
                .analysis
                .is_none()
        );
        assert_eq!(
            receive_ready(pack_ready(&Ok(())).unwrap().as_slice()).unwrap(),
            Ok(())
        );
        let refused = pack_ready(&Err(io::Error::other("no filter"))).unwrap();
        let why = receive_ready(refused.as_slice()).unwrap();
        assert_eq!(why, Err("no filter".to_owned()));
    }

    #[test]
    fn announced_lengths_are_bounded() {
        let mut endless = vec![0xff; 4];
        endless.extend([1; 64]);
        assert!(receive_reply(endless.as_slice(), SOURCE).is_err());
        assert!(receive_ready(endless.as_slice()).is_err());
        assert!(receive_request(endless.as_slice()).is_err());
        // An answer that says "none" and goes on.
        let mut odd = pack_reply(&llmc_syntax::parse_here(&request())).unwrap();
        odd[4] = 0;
        assert!(receive_reply(odd.as_slice(), SOURCE).is_err());
        odd[4] = 7;
        assert!(receive_reply(odd.as_slice(), SOURCE).is_err());
    }
}
