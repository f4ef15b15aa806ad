//! Divides any byte stream into chunks that fit a token budget.
//!
//! Chunks end between lines. A line that is over the budget by itself is divided inside, between characters. Joined, the
//! chunks are the stream. Where a chunk ends depends only on where it starts, so the walk can stop anywhere and go on
//! later from the last end.
//!
//! Bytes that are no UTF-8 are counted the way they are shown, as replacement characters.

use std::borrow::Cow;

use llmc_tokens::{count, lines_within};

/// Where one chunk lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSpan {
    /// Its number, from 0.
    pub index: u64,
    /// Its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// One chunk with its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Where it lies.
    pub span: ChunkSpan,
    /// What is there.
    pub bytes: Vec<u8>,
    /// How many chunks there are, once the end has been seen; finding out for a huge result takes its time
    /// ([`HandleStore::chunk_count`](super::HandleStore::chunk_count)).
    pub chunks: Option<u64>,
}

/// Bytes per token to try first: a little more than code and prose have, so that one look usually does.
const LIKELY_BYTES_PER_TOKEN: usize = 5;

/// Walks a stream of known length chunk by chunk, holding one chunk and one piece of the stream.
#[derive(Debug)]
pub struct Chunker {
    budget: usize,
    total: u64,
    /// The bytes from `at` on that have been fetched and not yet given out.
    buf: Vec<u8>,
    at: u64,
    next: u64,
    done: bool,
}

impl Chunker {
    /// Starts at the beginning of a stream of `total` bytes.
    pub fn new(total: u64, budget: usize) -> Self {
        Self::resume(total, budget, 0, 0)
    }

    /// Goes on with chunk `index`, which starts at byte `offset`.
    pub fn resume(total: u64, budget: usize, index: u64, offset: u64) -> Self {
        Self {
            // One character may be more than one token, and there is no smaller chunk than that.
            budget: budget.max(1),
            total,
            buf: Vec::new(),
            at: offset,
            next: index,
            done: index > 0 && offset >= total,
        }
    }

    /// The next chunk; an empty stream has one, empty.
    ///
    /// `fetch` gives some bytes at an offset, as many as it likes. A stream that ends before `total` ends there.
    pub fn next_span<E>(
        &mut self,
        mut fetch: impl FnMut(u64) -> Result<Vec<u8>, E>,
    ) -> Result<Option<ChunkSpan>, E> {
        if self.done {
            return Ok(None);
        }
        let mut want = self.budget.saturating_mul(LIKELY_BYTES_PER_TOKEN).max(64);
        let len = loop {
            while self.buf.len() < want && self.fetched_to() < self.total {
                let more = fetch(self.fetched_to())?;
                if more.is_empty() {
                    self.total = self.fetched_to();
                }
                self.buf.extend_from_slice(&more);
            }
            let window = &self.buf[..want.min(self.buf.len())];
            let tail = if self.at + window.len() as u64 >= self.total {
                Tail::End
            } else {
                Tail::More
            };
            match prefix(window, tail, self.budget) {
                Some(len) => break len,
                None => want = want.saturating_mul(2),
            }
        };
        let span = ChunkSpan {
            index: self.next,
            offset: self.at,
            len: len as u64,
        };
        self.buf.drain(..len);
        self.at += span.len;
        self.next += 1;
        self.done = self.at >= self.total;
        Ok(Some(span))
    }

    /// Whether the last chunk given out was the last there is.
    pub fn is_done(&self) -> bool {
        self.done
    }

    fn fetched_to(&self) -> u64 {
        self.at + self.buf.len() as u64
    }
}

/// What follows the bytes at hand.
#[derive(Clone, Copy, PartialEq)]
enum Tail {
    End,
    More,
}

/// How much of the window the next chunk takes, or nothing when the window is too short to tell.
fn prefix(window: &[u8], tail: Tail, budget: usize) -> Option<usize> {
    let lines = match tail {
        Tail::End => window.len(),
        Tail::More => window
            .iter()
            .rposition(|b| *b == b'\n')
            .map_or(0, |i| i + 1),
    };
    if lines == 0 && tail == Tail::More {
        let start = complete_chars(window);
        let text = shown(start);
        if text.len() <= budget {
            return None;
        }
        let tokens = count(&text);
        return (tokens > budget).then(|| within_line(start, tokens, budget));
    }
    let text = shown(&window[..lines]);
    let taken = if text.len() <= budget {
        lines
    } else {
        let (taken, _) = lines_within(&text, budget);
        same_lines(&window[..lines], &text, taken)
    };
    if taken == lines {
        // More lines might fit.
        return (tail == Tail::End).then_some(taken);
    }
    if taken > 0 {
        return Some(taken);
    }
    let line = window
        .iter()
        .position(|b| *b == b'\n')
        .map_or(lines, |i| i + 1);
    let line = &window[..line];
    Some(within_line(line, count(&shown(line)), budget))
}

fn shown(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Carries a cut between lines from the shown text back to the bytes: both have the same line ends.
fn same_lines(bytes: &[u8], text: &str, cut: usize) -> usize {
    if text.len() == bytes.len() || cut == 0 {
        return cut;
    }
    if cut == text.len() {
        return bytes.len();
    }
    let ends = text[..cut].bytes().filter(|b| *b == b'\n').count();
    bytes
        .iter()
        .enumerate()
        .filter(|(_, b)| **b == b'\n')
        .nth(ends.saturating_sub(1))
        .map_or(bytes.len(), |(at, _)| at + 1)
}

/// How much fits of a line that has `tokens` and is over the budget: nearly all that does, found with few counts.
///
/// At least one character, even if that is more than the budget.
fn within_line(line: &[u8], tokens: usize, budget: usize) -> usize {
    // Every shown byte is at most one token, and a byte that is no UTF-8 is shown as three.
    let mut low = char_start(line, (budget / 3).max(1).min(line.len()));
    if low == 0 {
        low = first_char(line);
    }
    let mut high = line.len();
    let mut measured = (high, tokens);
    // Aims a little low, so that a line of uneven density still fits at the first try.
    let (aim, enough) = (budget - budget / 32, budget - budget / 16);
    while high - low > low / 16 + 1 {
        let (bytes, tokens) = measured;
        let guess = (bytes as u128 * aim as u128 / tokens.max(1) as u128) as usize;
        // Never closer to one side than this, so that it ends soon whatever the line holds.
        let margin = (high - low) / 8 + 1;
        let mid = char_start(line, guess.min(high - margin).max(low + margin));
        if mid <= low || mid >= high {
            break;
        }
        let tokens = count(&shown(&line[..mid]));
        measured = (mid, tokens);
        if tokens > budget {
            high = mid;
            continue;
        }
        low = mid;
        if tokens >= enough {
            break;
        }
    }
    low
}

/// The nearest place at or before `at` that is not inside a character.
fn char_start(bytes: &[u8], at: usize) -> usize {
    if at >= bytes.len() {
        return bytes.len();
    }
    (at.saturating_sub(3)..at)
        .find(
            |start| match std::str::from_utf8(&bytes[*start..(start + 4).min(bytes.len())]) {
                Ok(text) => spans(text, *start, at),
                Err(error) => {
                    let valid = &bytes[*start..start + error.valid_up_to()];
                    std::str::from_utf8(valid).is_ok_and(|text| spans(text, *start, at))
                }
            },
        )
        .unwrap_or(at)
}

/// Whether the first character of `text`, which stands at `start`, reaches past `at`.
fn spans(text: &str, start: usize, at: usize) -> bool {
    text.chars()
        .next()
        .is_some_and(|c| start + c.len_utf8() > at)
}

fn first_char(bytes: &[u8]) -> usize {
    (1..=4.min(bytes.len()))
        .find(|n| std::str::from_utf8(&bytes[..*n]).is_ok())
        .unwrap_or(1)
}

/// The bytes without a character that the window cut off at its end.
fn complete_chars(bytes: &[u8]) -> &[u8] {
    let from = bytes.len().saturating_sub(3);
    let cut = (from..bytes.len()).find(|at| {
        std::str::from_utf8(&bytes[*at..])
            .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    });
    &bytes[..cut.unwrap_or(bytes.len())]
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use llmc_tokens::fits;
    use proptest::prelude::*;

    use super::*;

    fn split(bytes: &[u8], budget: usize, piece: usize) -> Vec<ChunkSpan> {
        let mut chunker = Chunker::new(bytes.len() as u64, budget);
        let mut spans = Vec::new();
        while let Some(span) = chunker
            .next_span(|at| {
                let at = at as usize;
                Ok::<_, Infallible>(bytes[at..(at + piece).min(bytes.len())].to_vec())
            })
            .unwrap()
        {
            spans.push(span);
        }
        spans
    }

    fn pieces(bytes: &[u8], spans: &[ChunkSpan]) -> Vec<Vec<u8>> {
        spans
            .iter()
            .map(|s| bytes[s.offset as usize..(s.offset + s.len) as usize].to_vec())
            .collect()
    }

    #[test]
    fn an_empty_stream_has_one_empty_chunk() {
        assert_eq!(
            split(b"", 10, 4),
            [ChunkSpan {
                index: 0,
                offset: 0,
                len: 0
            }]
        );
    }

    #[test]
    fn characters_stay_whole() {
        let text = "häßlich😀é".repeat(300);
        for span in split(text.as_bytes(), 7, 5) {
            let end = (span.offset + span.len) as usize;
            assert!(text.is_char_boundary(end));
        }
    }

    #[test]
    fn a_long_line_is_used_up_in_chunks_near_the_budget() {
        let line = "word, number 12345; ".repeat(5000);
        let spans = split(line.as_bytes(), 200, 4096);
        let least = count(&line) / 200;
        assert!(
            spans.len() < least * 5 / 4 + 2,
            "{} of {least}",
            spans.len()
        );
    }

    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let line = prop_oneof![
            "[a-z ]{0,40}\n",
            "\\PC{0,20}\r?\n",
            "[0-9a-f]{200,400}",
            Just("\n\n\n".to_string()),
            Just("é😀\u{202e}".to_string()),
        ];
        prop_oneof![
            prop::collection::vec(line, 0..40).prop_map(|lines| lines.concat().into_bytes()),
            prop::collection::vec(any::<u8>(), 0..500),
        ]
    }

    proptest! {
        #[test]
        fn chunks_join_to_the_stream_and_keep_the_budget(
            bytes in stream(),
            budget in 4usize..120,
            piece in 1usize..300,
        ) {
            let spans = split(&bytes, budget, piece);
            let parts = pieces(&bytes, &spans);
            prop_assert_eq!(parts.concat(), bytes.clone());
            for (n, (span, part)) in spans.iter().zip(&parts).enumerate() {
                prop_assert_eq!(span.index, n as u64);
                prop_assert!(fits(&shown(part), budget), "{} > {}", count(&shown(part)), budget);
                // Ends inside a line only when that line fills the chunk from its start.
                let ends_line = part.ends_with(b"\n") || n + 1 == parts.len();
                prop_assert!(ends_line || !part.contains(&b'\n'));
            }
            prop_assert_eq!(split(&bytes, budget, 7), spans, "independent of how it is fetched");
        }
    }
}
