//! Sends printed text to the server in pieces, so that the output of an ended script is not lost.

use std::borrow::Cow;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use monty_types::{ExcType, MontyException, PrintWriterCallback};

use crate::limits::ScriptLimit;
use crate::outcome::{ScriptError, ScriptErrorKind};
use crate::wire::{self, WorkerReport};

/// The first lines are sent one by one: a worker that runs out of memory loses what it has not sent.
const UNBUFFERED_LINES: u32 = 1000;
/// After them a piece is sent when it is this long,
const PIECE_BYTES: usize = 16 << 10;
/// or this old.
const MAX_PIECE_AGE: Duration = Duration::from_millis(50);

pub(super) struct Printer<'a> {
    socket: &'a UnixStream,
    piece: String,
    sent_at: Instant,
    left: usize,
    lines: u32,
}

impl Printer<'_> {
    pub(super) fn new(socket: &UnixStream, output_bytes: u64) -> Printer<'_> {
        Printer {
            socket,
            piece: String::new(),
            sent_at: Instant::now(),
            left: usize::try_from(output_bytes).unwrap_or(usize::MAX),
            lines: 0,
        }
    }

    /// Bytes that may still be printed.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    pub(super) fn flush(&mut self) -> std::io::Result<()> {
        if !self.piece.is_empty() {
            wire::send(self.socket, &WorkerReport::Printed, self.piece.as_bytes())?;
            self.piece.clear();
        }
        self.sent_at = Instant::now();
        Ok(())
    }

    fn print(&mut self, text: &str) -> Result<(), MontyException> {
        if text.len() > self.left {
            self.overflow(text);
        }
        self.left -= text.len();
        self.piece.push_str(text);
        let prompt = self.lines < UNBUFFERED_LINES && self.piece.ends_with('\n');
        self.lines += u32::from(prompt);
        if prompt || self.piece.len() >= PIECE_BYTES {
            self.flush().map_err(server_gone)?;
        }
        Ok(())
    }

    /// Prints what still fits and ends the process: a script could catch an exception.
    #[expect(
        clippy::disallowed_methods,
        reason = "everything is sent, and the session goes back to its last checkpoint"
    )]
    fn overflow(&mut self, text: &str) -> ! {
        let mut fits = self.left;
        while !text.is_char_boundary(fits) {
            fits -= 1;
        }
        self.piece.push_str(&text[..fits]);
        let error = ScriptError::new(ScriptErrorKind::Limit(ScriptLimit::Output), "");
        let last = WorkerReport::Failed { error, cpu_us: 0 };
        let _ = self
            .flush()
            .and_then(|()| wire::send(self.socket, &last, &[]));
        std::process::exit(0)
    }
}

impl PrintWriterCallback for Printer<'_> {
    fn stdout_write(&mut self, output: Cow<'_, str>) -> Result<(), MontyException> {
        self.print(&output)
    }

    fn stdout_push(&mut self, end: char) -> Result<(), MontyException> {
        self.print(end.encode_utf8(&mut [0; 4]))
    }

    fn poll_flush(&mut self) -> Result<(), MontyException> {
        if self.sent_at.elapsed() >= MAX_PIECE_AGE {
            self.flush().map_err(server_gone)?;
        }
        Ok(())
    }
}

fn server_gone(error: std::io::Error) -> MontyException {
    MontyException::new(ExcType::RuntimeError, Some(error.to_string()))
}
