//! The parser's side: a process that confines itself and then parses one source after the other.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use llmc_syntax::{ParseReply, ParseRequest};

use super::{PARSER_ARGUMENT, frames};
use crate::worker::exit_with_server;

/// What a parser process does; tests replace a part.
#[derive(Debug, Clone, Copy)]
pub struct ParserRole {
    /// Gives up everything but computing, with at most this many bytes of memory.
    pub confine: fn(u64) -> io::Result<()>,
    pub parse: fn(&ParseRequest<'_>) -> ParseReply,
}

impl Default for ParserRole {
    fn default() -> ParserRole {
        ParserRole {
            confine: llmc_exec::restrict_to_compute,
            parse: llmc_syntax::parse_here,
        }
    }
}

/// Runs as a parser if this process was started as one, else returns `None`.
pub(crate) fn parser_main(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    if args.next()?.to_str()? != PARSER_ARGUMENT {
        return None;
    }
    let memory = args.next().and_then(|word| word.to_str()?.parse().ok());
    Some(serve_parser(ParserRole::default(), memory.unwrap_or(0)))
}

/// Serves the server at the other end of standard input until it closes the socket.
pub fn serve_parser(role: ParserRole, memory_bytes: u64) -> ExitCode {
    // Failures show as a closed socket; there is no other channel.
    match serve(role, memory_bytes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve(role: ParserRole, memory_bytes: u64) -> io::Result<()> {
    llmc_exec::close_inherited()?;
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    exit_with_server(socket.try_clone()?, memory_bytes, role.confine)?;
    // Without a filter this is still a process of its own, which is worth more than none.
    let confined = (role.confine)(memory_bytes);
    socket.write_all(&frames::pack_ready(&confined)?)?;
    while let Some(request) = frames::receive_request(&socket)? {
        let reply = (role.parse)(&request.as_request());
        socket.write_all(&frames::pack_reply(&reply)?)?;
    }
    Ok(())
}
