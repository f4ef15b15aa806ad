//! Where `print` goes: to the server, in pieces, so that a script that is ended has not printed in vain.

use std::borrow::Cow;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use monty_types::{ExcType, MontyException, PrintWriterCallback};

use crate::limits::Limit;
use crate::outcome::{Trouble, TroubleKind};
use crate::wire::{self, Said};

/// So many lines are sent one by one: a worker that runs out of memory takes what it has not sent along.
const PROMPT: u32 = 1000;
/// After that a piece is sent when it is this long,
const PIECE: usize = 16 << 10;
/// or this old.
const AGE: Duration = Duration::from_millis(50);

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

    /// How much may still be printed.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Sends what has not been sent.
    pub(super) fn flush(&mut self) -> std::io::Result<()> {
        if !self.piece.is_empty() {
            wire::send(self.socket, &Said::Printed, self.piece.as_bytes())?;
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
        let prompt = self.lines < PROMPT && self.piece.ends_with('\n');
        self.lines += u32::from(prompt);
        match prompt || self.piece.len() >= PIECE {
            true => self.flush().map_err(gone),
            false => Ok(()),
        }
    }

    /// Prints what still fits and ends: an exception could be caught, and the script would go on.
    #[expect(
        clippy::disallowed_methods,
        reason = "the server has been told everything, and the session goes back to its last state"
    )]
    fn overflow(&mut self, text: &str) -> ! {
        let mut fits = self.left;
        while !text.is_char_boundary(fits) {
            fits -= 1;
        }
        self.piece.push_str(&text[..fits]);
        let trouble = Trouble::new(TroubleKind::Limit(Limit::Output), "");
        let last = Said::Failed { trouble, cpu_us: 0 };
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
        match self.sent_at.elapsed() >= AGE {
            true => self.flush().map_err(gone),
            false => Ok(()),
        }
    }
}

fn gone(error: std::io::Error) -> MontyException {
    MontyException::new(ExcType::RuntimeError, Some(error.to_string()))
}
