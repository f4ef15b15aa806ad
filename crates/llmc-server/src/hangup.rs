//! Notices when the client closes standard input while the server does not read it.
//!
//! While a client does not read its answers the server reads no input, so the end of input stays behind what is in the
//! pipe. The kernel reports the hangup all the same.

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
            // The kernel always reports a hangup; a socket closed for writing only on request.
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
