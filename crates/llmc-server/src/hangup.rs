//! Noticing that the client has closed our standard input while it is not being read.
//!
//! Input is left alone while a client does not read its answers, and then the end of it stays unseen behind
//! whatever is in the pipe. The kernel tells of it all the same.

use std::{io, thread};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::retry_on_intr,
};
use tokio_util::sync::CancellationToken;

/// The watching thread does nothing but wait.
const STACK_BYTES: usize = 64 * 1024;

/// Cancelled when the other end of standard input is gone. For a file or a device that may never be: there the
/// end of input must do.
pub(crate) fn of_stdin() -> CancellationToken {
    let gone = CancellationToken::new();
    let told = gone.clone();
    let started = thread::Builder::new()
        .name("hangup".into())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            let stdin = io::stdin();
            // A hangup is always told; a socket that was closed for writing only when it is asked for.
            let mut waits = [PollFd::new(&stdin, PollFlags::RDHUP)];
            let waited = retry_on_intr(|| poll(&mut waits, None));
            let closed = PollFlags::HUP | PollFlags::RDHUP;
            if waited.is_ok() && waits[0].revents().intersects(closed) {
                told.cancel();
            }
        });
    if let Err(error) = started {
        tracing::warn!(%error, "input cannot be watched");
    }
    gone
}
