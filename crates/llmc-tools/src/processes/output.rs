//! The output of a background process as text, as it arrives.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use llmc_envelope::neutral::{Ansi, finished, neutralise};
use llmc_exec::ProcessEnd;
use llmc_host::CancelToken;
use llmc_host::search::OutputPattern;

use super::Entry;
use crate::cx::Form;
use crate::error::{Error, Result};

/// Bytes of output that one answer has.
const MAX_ANSWER_BYTES: usize = 32 << 10;
/// How often a waiting read checks whether its call was cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Output is complete enough when nothing more came for so long…
const QUIET_TIME: Duration = Duration::from_millis(25);
/// …or when so much time has passed since there was some.
const MAX_BUSY_TIME: Duration = Duration::from_millis(200);

/// Which output a reader asks for.
pub(crate) struct ReadRequest {
    /// From this byte of the stream on; where the last read ended if unset.
    pub(crate) offset: Option<u64>,
    /// Not before this appears.
    pub(crate) until: Option<OutputPattern>,
    /// But not longer than this.
    pub(crate) timeout: Duration,
    /// For whom.
    pub(crate) form: Form,
}

/// The output that a reader gets.
pub(crate) struct ProcessText {
    pub(crate) text: String,
    /// The number of its first byte in the stream.
    pub(crate) offset: u64,
    /// The number of the byte after its last.
    pub(crate) next_offset: u64,
    /// Bytes between what was asked for and the first byte, which are no longer known.
    pub(crate) dropped: u64,
    /// Bytes that are there already but did not fit.
    pub(crate) left: u64,
    pub(crate) ending: Option<ProcessEnd>,
}

/// Whether more output can follow the bytes at hand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OutputPhase {
    /// More comes soon: nothing that has only begun.
    MoreSoon,
    /// More comes, but not soon: only a character stays whole.
    MoreLater,
    /// Nothing comes any more: everything.
    Ended,
}

impl Entry {
    /// Waits for the output that the reader asks for, and remembers how far it has read.
    pub(crate) fn read(&self, request: &ReadRequest, stop: &CancelToken) -> Result<ProcessText> {
        let deadline = Instant::now() + request.timeout;
        let mut since: Option<Instant> = None;
        loop {
            stop.check()?;
            let cursor = *self.cursor();
            let from = request.offset.unwrap_or(cursor);
            let seen = self.process.look(from, MAX_ANSWER_BYTES);
            if from > seen.end {
                return Err(Error::bad_args(format!(
                    "offset {from} is past the end of the output, {}",
                    seen.end
                )));
            }
            let now = Instant::now();
            let at_end = seen.offset + seen.bytes.len() as u64 == seen.end;
            let over = seen.ending.is_some() && at_end;
            let late = now >= deadline;
            let phase = match (over, late) {
                (true, _) => OutputPhase::Ended,
                (false, true) => OutputPhase::MoreLater,
                (false, false) => OutputPhase::MoreSoon,
            };
            let complete = complete_bytes(&seen.bytes, phase);
            let text = shown(&seen.bytes[..complete], request.form);
            let there = match &request.until {
                Some(pattern) => pattern.is_in(&text),
                None => !text.is_empty(),
            };
            // A prompt follows its answer within a moment; better one read than two.
            let settled = there && {
                let since = *since.get_or_insert(now);
                now.saturating_duration_since(seen.last) >= QUIET_TIME
                    || now - since >= MAX_BUSY_TIME
            };
            if settled || over || late || !at_end {
                let next_offset = seen.offset + complete as u64;
                let mut last = self.cursor();
                // Another call has read it meanwhile: nothing is returned twice unless asked for.
                if request.offset.is_none() && *last != cursor {
                    continue;
                }
                *last = next_offset;
                return Ok(ProcessText {
                    text: text.into_owned(),
                    offset: seen.offset,
                    next_offset,
                    dropped: seen.offset - from,
                    left: seen.end - next_offset,
                    ending: seen.ending,
                });
            }
            let patience = deadline.saturating_duration_since(now).min(POLL_INTERVAL);
            self.process.wait(seen.end, patience);
        }
    }
}

/// How many of these bytes make whole characters and escape sequences.
fn complete_bytes(bytes: &[u8], phase: OutputPhase) -> usize {
    if phase == OutputPhase::Ended {
        return bytes.len();
    }
    // A character is at most four bytes: what is cut off at the end may still become one.
    let tail = bytes.len().saturating_sub(3);
    let begun = (tail..bytes.len()).find(|at| {
        let rest = &bytes[*at..];
        rest[0] >= 0xc0
            && std::str::from_utf8(rest)
                .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    });
    let whole = begun.unwrap_or(bytes.len());
    if phase == OutputPhase::MoreLater {
        return whole;
    }
    // Where nothing but an unfinished sequence is left, it is returned as it is.
    match String::from_utf8_lossy(&bytes[..whole]) {
        Cow::Borrowed(text) => finished(text),
        // Replacement characters are longer than what they replace; only the length of what is held back counts.
        Cow::Owned(text) => whole.saturating_sub(text.len() - finished(&text)),
    }
}

fn shown(bytes: &[u8], form: Form) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(bytes);
    match (form, text) {
        (Form::Data, text) => text,
        (Form::Text | Form::Page, Cow::Borrowed(text)) => neutralise(text, Ansi::Strip),
        (Form::Text | Form::Page, Cow::Owned(text)) => {
            neutralise(&text, Ansi::Strip).into_owned().into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_only_begun_waits() {
        let euro = "€".as_bytes();
        for (bytes, coming, late) in [
            (&b"plain"[..], 5, 5),
            (&[b"a", &euro[..1]].concat(), 1, 1),
            (&[b"a", &euro[..2]].concat(), 1, 1),
            (&[b"a", euro].concat(), 4, 4),
            (&euro[..2], 0, 0),
            (b"a\xff", 2, 2),
            (b"\xff\xfe\xff", 3, 3),
            (b"a\x1b[3", 1, 4),
            (b"\xff\x1b[3", 1, 4),
            (b"a\r", 1, 2),
        ] {
            assert_eq!(
                complete_bytes(bytes, OutputPhase::MoreSoon),
                coming,
                "{bytes:?}"
            );
            assert_eq!(
                complete_bytes(bytes, OutputPhase::MoreLater),
                late,
                "{bytes:?}"
            );
            assert_eq!(
                complete_bytes(bytes, OutputPhase::Ended),
                bytes.len(),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn pieces_joined_are_the_whole() {
        let whole = "a€ß\x1b[31mred\x1b[0m\r\n日本".as_bytes();
        for cut in 0..=whole.len() {
            let first = complete_bytes(&whole[..cut], OutputPhase::MoreSoon);
            let text = shown(&whole[..first], Form::Text).into_owned()
                + &shown(&whole[first..], Form::Text);
            assert_eq!(text, "a€ßred\r\n日本", "cut at {cut}");
        }
    }
}
