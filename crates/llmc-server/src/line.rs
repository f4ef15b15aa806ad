//! Lines from a byte stream, each no longer than a limit.
//!
//! A line over the limit is skipped up to its newline without being kept, and only its [head](HeadReader) is read, so the
//! memory a client can make us hold is the limit and no more.

use std::io;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::head::{self, HeadReader};

/// How much is asked of the stream at once.
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// One step of reading.
#[derive(Debug, PartialEq)]
pub(crate) enum LineRead {
    /// A line without its line end. The last one may have lacked a newline.
    Line(Vec<u8>),
    /// A line longer than the limit, which is already skipped.
    TooLong {
        /// Whom to answer, as [`HeadReader::reply_id`] says.
        reply_id: Option<Value>,
    },
    /// The stream ended.
    End,
}

/// Splits a byte stream into bounded lines.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    input: BufReader<R>,
    line: Vec<u8>,
    limit: usize,
    /// Reads the line that is being skipped.
    skipped: Option<HeadReader>,
    at_start: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(crate) fn new(input: R, limit: usize) -> Self {
        Self {
            input: BufReader::with_capacity(READ_BUFFER_BYTES, input),
            line: Vec::new(),
            limit,
            skipped: None,
            at_start: true,
        }
    }

    /// Reads on to the end of a line.
    ///
    /// Dropping the future loses nothing: a partial line stays in `self`, and no await stands between taking
    /// bytes from the buffer and keeping them.
    pub(crate) async fn next(&mut self) -> io::Result<LineRead> {
        loop {
            let available = self.input.fill_buf().await?;
            if available.is_empty() {
                return Ok(match self.finish_line() {
                    LineRead::Line(line) if line.is_empty() => LineRead::End,
                    last => last,
                });
            }
            let newline = available.iter().position(|&byte| byte == b'\n');
            let content = &available[..newline.unwrap_or(available.len())];
            let used = content.len() + usize::from(newline.is_some());
            if let Some(head) = &mut self.skipped {
                head.feed(content);
            // One byte over the limit may still be the `\r` of a line end.
            } else if self.line.len() + content.len() > self.limit + 1 {
                let mut head = HeadReader::default();
                head.feed(without_byte_order_mark(&self.line, self.at_start));
                head.feed(content);
                self.line = Vec::new();
                self.skipped = Some(head);
            } else {
                keep(&mut self.line, content, self.limit + 1);
            }
            self.input.consume(used);
            if newline.is_some() {
                return Ok(self.finish_line());
            }
        }
    }

    fn finish_line(&mut self) -> LineRead {
        let at_start = std::mem::take(&mut self.at_start);
        if let Some(head) = self.skipped.take() {
            let reply_id = head.reply_id();
            return LineRead::TooLong { reply_id };
        }
        let mut line = std::mem::take(&mut self.line);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        let mark = line.len() - without_byte_order_mark(&line, at_start).len();
        line.drain(..mark);
        if line.len() > self.limit {
            let reply_id = head::reply_id(&line);
            return LineRead::TooLong { reply_id };
        }
        LineRead::Line(line)
    }
}

fn without_byte_order_mark(line: &[u8], at_start: bool) -> &[u8] {
    match line.strip_prefix(b"\xef\xbb\xbf") {
        Some(rest) if at_start => rest,
        _ => line,
    }
}

/// Adds to a line whose room doubles as usual, but never beyond the longest line.
fn keep(line: &mut Vec<u8>, content: &[u8], limit: usize) {
    let needed = line.len() + content.len();
    if needed > line.capacity() {
        let room = needed.max(line.capacity() * 2).min(limit.max(needed));
        line.reserve_exact(room - line.len());
    }
    line.extend_from_slice(content);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads everything through a pipe of `chunk` bytes and shows it as text.
    async fn read_all(input: &[u8], limit: usize, chunk: usize) -> Vec<String> {
        let (mut client, server) = tokio::io::duplex(chunk);
        let input = input.to_vec();
        let writer = tokio::spawn(async move {
            tokio::io::AsyncWriteExt::write_all(&mut client, &input)
                .await
                .unwrap();
        });
        let mut lines = LineReader::new(server, limit);
        let mut seen = Vec::new();
        loop {
            match lines.next().await.unwrap() {
                LineRead::Line(line) => seen.push(String::from_utf8_lossy(&line).into_owned()),
                LineRead::TooLong { reply_id } => seen.push(match reply_id {
                    Some(Value::Null) => "TOO LONG".into(),
                    id => format!("TOO LONG {id:?}"),
                }),
                LineRead::End => break,
            }
        }
        writer.await.unwrap();
        seen
    }

    #[tokio::test]
    async fn lines_are_split_whatever_the_chunks() {
        for chunk in [1, 2, 3, 7, 64] {
            for (input, expected) in [
                ("a\nb\n", vec!["a", "b"]),
                ("a\r\nb", vec!["a", "b"]),
                ("\n\na\n", vec!["", "", "a"]),
                ("\u{feff}a\n\u{feff}b\n", vec!["a", "\u{feff}b"]),
                ("12345678\n1\n", vec!["12345678", "1"]),
                ("12345678\r\n1\n", vec!["12345678", "1"]),
                ("123456789\n1\n", vec!["TOO LONG", "1"]),
                ("1234567890123456789\n1\n2", vec!["TOO LONG", "1", "2"]),
                ("1\n1234567890123456789", vec!["1", "TOO LONG"]),
                ("1\n123456789", vec!["1", "TOO LONG"]),
                ("", vec![]),
            ] {
                assert_eq!(
                    read_all(input.as_bytes(), 8, chunk).await,
                    expected,
                    "{input:?} by {chunk}"
                );
            }
        }
    }

    #[tokio::test]
    async fn a_skipped_line_is_not_kept() {
        let mut input = br#"{"method":"x","params":""#.to_vec();
        input.resize(10_000_000, b'x');
        input.extend_from_slice(b"\",\"id\":12}\nnext\n");
        let mut lines = LineReader::new(&input[..], 1 << 20);
        let reply_id = Some(serde_json::json!(12));
        assert_eq!(
            lines.next().await.unwrap(),
            LineRead::TooLong { reply_id },
            "an id behind the limit is found"
        );
        assert_eq!(
            lines.next().await.unwrap(),
            LineRead::Line(b"next".to_vec())
        );
        assert_eq!(lines.line.capacity(), 0);
    }

    #[tokio::test]
    async fn a_dropped_read_loses_nothing() {
        let (mut client, server) = tokio::io::duplex(64);
        let mut lines = LineReader::new(server, 64);
        for part in [&b"one "[..], b"line"] {
            tokio::io::AsyncWriteExt::write_all(&mut client, part)
                .await
                .unwrap();
            assert!(poll_once(lines.next()).await.is_none());
        }
        tokio::io::AsyncWriteExt::write_all(&mut client, b"\n")
            .await
            .unwrap();
        assert_eq!(
            lines.next().await.unwrap(),
            LineRead::Line(b"one line".to_vec())
        );
    }

    /// Polls a future a single time and drops it.
    async fn poll_once<F: Future>(future: F) -> Option<F::Output> {
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|cx| {
            std::task::Poll::Ready(match future.as_mut().poll(cx) {
                std::task::Poll::Ready(output) => Some(output),
                std::task::Poll::Pending => None,
            })
        })
        .await
    }
}
