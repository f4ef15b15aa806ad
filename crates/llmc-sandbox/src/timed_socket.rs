//! A socket whose reads and writes all end at one time.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How often a call is asked whether it was cancelled.
const CANCEL_INTERVAL: Duration = Duration::from_millis(50);

pub(crate) struct TimedSocket<'s> {
    socket: &'s UnixStream,
    deadline: Instant,
    is_cancelled: Option<&'s dyn Fn() -> bool>,
}

impl<'s> TimedSocket<'s> {
    pub(crate) fn new(socket: &'s UnixStream, deadline: Instant) -> TimedSocket<'s> {
        TimedSocket {
            socket,
            deadline,
            is_cancelled: None,
        }
    }

    /// Ends with [`SocketCancelled`] once this function says so.
    pub(crate) fn unless(mut self, is_cancelled: &'s dyn Fn() -> bool) -> TimedSocket<'s> {
        self.is_cancelled = Some(is_cancelled);
        self
    }

    /// The time until which the socket may block next.
    fn wait(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match self.is_cancelled {
            None => Ok(left),
            Some(is_cancelled) if is_cancelled() => Err(io::Error::other(SocketCancelled)),
            Some(_) => Ok(left.min(CANCEL_INTERVAL)),
        }
    }

    /// Repeats what ran out of time until the deadline, or until the call is cancelled.
    fn repeat(
        &self,
        mut operation: impl FnMut(Duration) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            match operation(self.wait()?) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }
}

/// The reason of an error: the call was cancelled.
#[derive(Debug, thiserror::Error)]
#[error("cancelled")]
pub(crate) struct SocketCancelled;

impl SocketCancelled {
    pub(crate) fn caused(error: &io::Error) -> bool {
        error
            .get_ref()
            .is_some_and(|inner| inner.is::<SocketCancelled>())
    }
}

impl Read for TimedSocket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.repeat(|wait| {
            self.socket.set_read_timeout(Some(wait))?;
            (&mut &*self.socket).read(buffer)
        })
    }
}

impl Write for TimedSocket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.repeat(|wait| {
            self.socket.set_write_timeout(Some(wait))?;
            (&mut &*self.socket).write(bytes)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
