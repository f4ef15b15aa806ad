//! The worker's side: a process that parses source files or converts a document, and ends with its server.

use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, poll};

use crate::document::document_main;
use crate::parser::parser_main;

/// Runs as a worker if this process was started as one, else returns `None`.
///
/// `main` calls this before it starts a thread or a runtime: confinement applies per thread.
pub fn worker_main(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let args: Vec<OsString> = args.into_iter().collect();
    parser_main(args.iter().cloned()).or_else(|| document_main(args))
}

/// Ends this process when the server closes the socket, also while it computes. Returns when the thread that does so is
/// confined: code that takes over this process could make a thread that is not do anything.
#[expect(
    clippy::disallowed_methods,
    reason = "a worker without its server has nothing to keep"
)]
pub(crate) fn exit_with_server(
    socket: UnixStream,
    memory: u64,
    confine: fn(u64) -> io::Result<()>,
) -> io::Result<()> {
    let (confined, is_confined) = std::sync::mpsc::channel();
    let watch = move || {
        // The main thread fails the same way and reports it.
        let _ = confine(memory);
        let _ = confined.send(());
        loop {
            let mut fds = [PollFd::new(&socket, PollFlags::RDHUP)];
            match poll(&mut fds, None) {
                Ok(_) if fds[0].revents().is_empty() => {}
                Err(rustix::io::Errno::INTR) => {}
                _ => std::process::exit(0),
            }
        }
    };
    std::thread::Builder::new()
        .name("server-watch".to_owned())
        .stack_size(64 << 10)
        .spawn(watch)?;
    is_confined.recv().map_err(io::Error::other)
}
